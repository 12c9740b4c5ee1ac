//! `parapet notify`: tries whom a configuration tells of events.

use policy::alerts::Channel;

use crate::api::NotifyTest;
use crate::cmd::daemon::ConfigFile;
use crate::failure::{Exit, Failure, Id, Result};
use crate::machine::settings;
use crate::notify;
use crate::terminal::Terminal;

/// Try whom a server tells of events
///
/// Programs, webhooks, ntfy and mail are set up as [[notify]] in the configuration, or with serve
/// --notify.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Send a test message now, and report whether it was delivered
    ///
    /// For example: parapet notify test --config /etc/parapet/parapet.toml phone
    Test {
        #[command(flatten)]
        files: ConfigFile,
        /// Program, folder or URL, as in serve --notify, in place of a configuration; may be
        /// repeated
        #[arg(long, value_name = "TARGET", value_parser = notify::of_text)]
        notify: Vec<Channel>,
        /// Name of the channel [default: all]
        #[arg(value_name = "CHANNEL")]
        channel: Option<String>,
    },
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    let Verb::Test { files, notify, channel } = args.verb;
    let mut channels = notify;
    if channels.is_empty() || files.config.is_some() {
        channels.extend(settings::read(files.config.as_deref())?.config.notify);
    }
    if let Some(wanted) = &channel {
        let names: Vec<String> = channels.iter().map(|channel| channel.name.clone()).collect();
        channels.retain(|channel| channel.name == *wanted);
        if channels.is_empty() {
            let message = format!("{wanted}: there is no such channel");
            let action = format!("choose one of: {}", names.join(", "));
            return Err(Failure::new(Id::Usage, message, action));
        }
    }
    if channels.is_empty() {
        let action = "add a section [[notify]]";
        return Err(Failure::new(Id::Input, "the configuration tells nobody of events", action));
    }
    test_all(&channels, terminal)
}

/// Sends to each channel, whatever happened to the others.
fn test_all(channels: &[Channel], terminal: &Terminal) -> Result<Exit> {
    let (mut delivered, mut failed) = (Vec::new(), Vec::new());
    for channel in channels {
        let name = &channel.name;
        let sent = notify::check(channel).map_err(|failure| failure.message);
        match sent.and_then(|()| notify::test(channel).map_err(|why| format!("{name}: {why}"))) {
            Ok(()) => delivered.push(name.clone()),
            Err(why) => failed.push(why),
        }
    }
    if failed.is_empty() {
        terminal.report(&NotifyTest { delivered });
        return Ok(Exit::Done);
    }
    for name in &delivered {
        terminal.say(format!("{name}: the test message was delivered"));
    }
    let message = format!("not delivered: {}", failed.join("; "));
    Err(Failure::new(Id::Failed, message, "correct [[notify]], then test again"))
}
