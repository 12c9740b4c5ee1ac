//! Telling somebody of events: programs, web servers, mail.
//!
//! ```text
//!   server ──▶ Handle ──▶ Line: Outbox ──▶ thread of this channel ──▶ program | web | mail
//!                  │               └─────▶ keeper, a thread of its own ──▶ STATE/alerts
//!                  └────▶ Line …                 heartbeat, a thread of its own ──▶ web
//! ```
//!
//! `policy::alerts` decides what each channel is told, and when. Each channel has a thread, so
//! that a mail server that hangs delays neither an array nor another channel. What waits is kept on
//! disk: the next server with a channel of the same destination sends it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use policy::alerts::{Channel, Event, Heartbeat, Kind, Notice, TOO_OLD, Web};

use crate::api::{ChannelState, HistoryEntry, Severity};
use crate::failure::{Failure, Id, Result, of_path};
use crate::places;

mod heartbeat;
mod keeper;
mod line;
mod mail;
mod program;
mod secret;
mod store;
mod text;
mod web;

use heartbeat::Heart;
use line::Line;

/// How long the last messages may take, when the server stops.
const LAST_PATIENCE: Duration = Duration::from_secs(5);
/// Names of the threads.
const THREAD: &str = "parapet-notify";

/// Why a message was not delivered.
#[derive(Debug)]
struct Undelivered {
    why: String,
    /// The channel refuses this message, and would refuse it again.
    for_good: bool,
}

impl Undelivered {
    /// A message that may pass later.
    fn yet(why: impl Into<String>) -> Undelivered {
        Undelivered { why: why.into(), for_good: false }
    }
}

/// Whom a server tells of events.
#[derive(clap::Args, Default)]
pub(crate) struct NotifyFlags {
    /// Program to run for each event, as mdadm --monitor does, or a folder of programs; or a URL:
    /// https://HOST/PATH (webhook), ntfy://HOST/TOPIC. May be repeated
    #[arg(long, value_name = "TARGET", value_parser = of_text)]
    notify: Vec<Channel>,
}

impl NotifyFlags {
    /// Returns the channels.
    ///
    /// # Errors
    /// As [`check`].
    pub(crate) fn channels(&self) -> Result<&[Channel]> {
        self.notify.iter().try_for_each(check)?;
        Ok(&self.notify)
    }
}

/// The channels of a server.
#[derive(Default)]
pub(crate) struct Handle {
    lines: RefCell<Vec<Line>>,
    /// The last event of each array with a problem, by UUID: for channels that come later.
    problems: RefCell<BTreeMap<String, Event>>,
    heart: RefCell<Option<Heart>>,
}

impl Handle {
    /// Starts the channels, or changes them: one whose destination stays keeps its messages, a new
    /// one is told of the problems that last. Those that go get one more attempt for each message.
    ///
    /// Mistakes that [`check`] finds go to the log when a message is due: they must not keep an
    /// array from being served.
    pub(crate) fn reload(&self, channels: &[Channel], heartbeat: Option<&Heartbeat>) {
        let mut old = self.lines.take();
        let mut take = |is_it: &dyn Fn(&Channel) -> bool| {
            let found = old.iter().position(|line| is_it(&line.channel()));
            found.map(|index| old.swap_remove(index))
        };
        let same: Vec<Option<Line>> =
            channels.iter().map(|channel| take(&|other| other == channel)).collect();
        let lines = channels.iter().zip(same).map(|(channel, same)| {
            let leads_there =
                |other: &Channel| other.kind.destination() == channel.kind.destination();
            same.or_else(|| take(&leads_there).inspect(|line| line.change(channel)))
                .unwrap_or_else(|| self.start(channel))
        });
        self.lines.replace(lines.collect());
        // The thread of the arrays does not wait for them.
        old.iter().for_each(Line::end);
        let is_same = self.heart.borrow().as_ref().map(Heart::settings) == heartbeat;
        if !is_same {
            self.heart.replace(heartbeat.map(Heart::start));
        }
    }

    /// Starts a channel.
    fn start(&self, channel: &Channel) -> Line {
        let line = Line::start(channel);
        self.problems.borrow().values().for_each(|event| line.tell(event));
        line
    }

    /// True if somebody is told.
    pub(crate) fn is_used(&self) -> bool {
        !self.lines.borrow().is_empty()
    }

    /// Tells all channels of an event.
    pub(crate) fn tell(&self, array: &str, uuid: &str, entry: &HistoryEntry) {
        let event = event(array, uuid, entry);
        self.lines.borrow().iter().for_each(|line| line.tell(&event));
        let mut problems = self.problems.borrow_mut();
        match entry.event.as_str() {
            "DegradedArray" | "FailedArray" => drop(problems.insert(uuid.into(), event)),
            "Healthy" | "Stopped" => drop(problems.remove(uuid)),
            _ => {}
        }
    }

    /// Reports that the thread of the arrays works: without this, the heartbeat ends.
    pub(crate) fn beat(&self) {
        self.heart.borrow().iter().for_each(Heart::beat);
    }

    /// The channels, and what they could not deliver.
    pub(crate) fn states(&self) -> Vec<ChannelState> {
        self.lines.borrow().iter().map(Line::state).collect()
    }

    /// Waits for the last messages, for a while: nothing follows.
    pub(crate) fn close(&self) {
        self.heart.replace(None);
        line::finish(&self.lines.take(), LAST_PATIENCE);
    }
}

/// Reads `--notify`: a program, a folder of programs, or a URL.
///
/// # Errors
/// The URL is not of a kind that can be told.
pub(crate) fn of_text(text: &str) -> std::result::Result<Channel, String> {
    let Some((scheme, rest)) = text.split_once("://") else {
        let path = places::absolute(Path::new(text));
        let name = path.display().to_string();
        return Ok(Channel::new(match path.is_dir() {
            true => Kind::Folder { folder: name },
            false => Kind::Exec { program: name },
        }));
    };
    let plain = |url: String| Web { url, token: None, ca: None };
    match scheme {
        "http" | "https" if !rest.is_empty() => Ok(Channel::new(Kind::Webhook(plain(text.into())))),
        "ntfy" => {
            let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
            // As in links of the ntfy app.
            let scheme = if query == "secure=false" { "http" } else { "https" };
            match rest.split_once('/') {
                Some((host, topic)) if !host.is_empty() && !topic.is_empty() => {
                    Ok(Channel::new(Kind::Ntfy(plain(format!("{scheme}://{rest}")))))
                }
                _ => Err("write it as ntfy://ntfy.sh/TOPIC".into()),
            }
        }
        "smtp" | "smtps" => Err("mail is set up in a configuration file, as [[notify]]".into()),
        _ => Err("a path, or a URL of https, http or ntfy".into()),
    }
}

/// Checks what can be checked without sending anything.
///
/// # Errors
/// A program, a file of a secret or a certificate is missing or cannot be used.
pub(crate) fn check(channel: &Channel) -> Result<()> {
    let unusable = |why: String| {
        Failure::new(Id::Input, format!("{}: {why}", channel.name), "correct the configuration")
    };
    match &channel.kind {
        Kind::Exec { program: path } | Kind::Folder { folder: path } => {
            let path = Path::new(path);
            if program::programs(path).map_err(|error| of_path(path, &error))?.is_empty() {
                let message = format!("{}: no program that can be run", path.display());
                let action = format!("chmod +x {}", places::quoted(&path.to_string_lossy()));
                return Err(Failure::new(Id::Input, message, action));
            }
        }
        Kind::Webhook(web) | Kind::Ntfy(web) => {
            web.token.iter().try_for_each(|it| secret::read(it).map(drop)).map_err(unusable)?;
            web::authority(web.ca.as_deref()).map_err(|error| unusable(error.why))?;
        }
        Kind::Smtp(mail) => mail::check(mail).map_err(|error| unusable(error.why))?,
    }
    Ok(())
}

/// Sends a test message now, and waits for it.
///
/// # Errors
/// Why it was not delivered.
pub(crate) fn test(channel: &Channel) -> std::result::Result<(), String> {
    let entry = HistoryEntry {
        number: 0,
        time: jiff::Timestamp::now(),
        event: "TestMessage".into(),
        severity: Severity::Info,
        member: None,
        message: "test, by command".into(),
    };
    let mut outbox = policy::alerts::Outbox::new(channel.clone());
    outbox.note(&event("test", "", &entry), now());
    let notice = outbox.next(now()).expect("a test message always passes");
    send(channel, &notice).map_err(|undelivered| undelivered.why)
}

/// Sends a message over its channel.
fn send(channel: &Channel, notice: &Notice) -> std::result::Result<(), Undelivered> {
    match &channel.kind {
        Kind::Exec { program: path } | Kind::Folder { folder: path } => {
            program::run_all(Path::new(path), notice)
        }
        Kind::Webhook(web) => web::post(web, notice),
        Kind::Ntfy(web) => web::publish(web, notice),
        Kind::Smtp(mail) => mail::send(mail, notice),
    }
}

/// Time since a fixed moment, so long before the start of the process that messages of an earlier
/// one have their age.
fn now() -> Duration {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    TOO_OLD + START.elapsed()
}

/// The severity of an event, as in the API.
fn severity(event: &Event) -> Severity {
    match event.severity {
        policy::alerts::Severity::Info => Severity::Info,
        policy::alerts::Severity::Warning => Severity::Warning,
        policy::alerts::Severity::Error => Severity::Error,
    }
}

fn event(array: &str, uuid: &str, entry: &HistoryEntry) -> Event {
    Event {
        array: array.into(),
        uuid: uuid.into(),
        word: entry.event.clone(),
        severity: match entry.severity {
            Severity::Info => policy::alerts::Severity::Info,
            Severity::Warning => policy::alerts::Severity::Warning,
            Severity::Error => policy::alerts::Severity::Error,
        },
        member: entry.member.clone(),
        message: entry.message.clone(),
        time: entry.time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_on_the_command_line_are_read() {
        let kind = |text: &str| of_text(text).map(|channel| channel.kind);
        let web = |url: &str| Web { url: url.into(), token: None, ca: None };
        assert_eq!(kind("https://h/x"), Ok(Kind::Webhook(web("https://h/x"))));
        assert_eq!(kind("ntfy://h/raid"), Ok(Kind::Ntfy(web("https://h/raid"))));
        assert_eq!(kind("ntfy://h:1/r?secure=false"), Ok(Kind::Ntfy(web("http://h:1/r"))));
        assert_eq!(kind("/"), Ok(Kind::Folder { folder: "/".into() }));
        assert_eq!(kind("/no/hook"), Ok(Kind::Exec { program: "/no/hook".into() }));
        for bad in ["ntfy://h", "ntfy:///x", "smtp://h", "ftp://h/x", "https://"] {
            assert!(of_text(bad).is_err(), "{bad}");
        }
    }
}
