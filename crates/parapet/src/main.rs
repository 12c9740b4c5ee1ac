//! The program: command line, server, control API. Wiring only; the crates and modules below do the
//! work.
//!
//! ```text
//!    main ── flags ── cmd/<verb>  ──▶ client ──────── HTTP, JSON ─────────▶ daemon/control
//!                         │                                                     │
//!                         └──▶ engine ──▶ array ◀── daemon ── net::nbd ◀────── orders
//!    api: the reports, as types        terminal, page: for users       failure: the errors
//! ```
//!
//! Depends on every crate below; no crate depends on it.
#![forbid(unsafe_code)]

mod absent;
mod api;
mod atomic_file;
mod client;
#[cfg(feature = "cluster")]
mod cluster;
mod cmd;
mod completion;
mod daemon;
mod demo;
mod disk_health;
mod disks;
mod engine;
mod failure;
mod flags;
mod habit;
mod http;
#[cfg(any(feature = "cluster", feature = "notify"))]
mod https;
mod images;
mod local_disks;
mod machine;
mod modelled;
#[cfg(feature = "notify")]
mod notify;
mod overlay;
mod page;
mod places;
mod probe;
mod remote;
mod size;
mod systemd;
mod terminal;
mod tls;
mod translate;
mod undo;
mod written;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

#[cfg(not(feature = "cluster"))]
use absent::cluster;
#[cfg(not(feature = "notify"))]
use absent::notify;
use failure::{Exit, Failure, Id};
use flags::{Cli, Global};
use terminal::Terminal;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

const _: () = assert!(
    !io::broken::POSSIBLE || cfg!(debug_assertions),
    "releases must not contain mutants; they are for `cargo xtask torture --broken`"
);

fn main() -> ExitCode {
    if io::broken::POSSIBLE {
        let way = std::env::var("PARAPET_BROKEN").ok();
        io::broken::choose(way.as_deref().and_then(io::broken::Broken::named));
    }
    completion::answer();
    if let Some(text) = translate::help(std::env::args_os().skip(1)) {
        // A closed pipe is not an error.
        let _ = std::io::stdout().write_all(text.as_bytes());
        return ExitCode::SUCCESS;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misunderstood(habit::advised(absent::explained(error))),
    };
    let terminal = Terminal::new(&cli.global);
    let result = log(&cli.global, cli.verb.is_server()).and_then(|()| cli.verb.run(&terminal));
    match result {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(failure) => terminal.fail(&failure),
    }
}

/// Reports a command line error like any other error, also in JSON. Help and version go to standard
/// output.
fn misunderstood(error: clap::Error) -> ExitCode {
    let help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let json = std::env::args_os().any(|argument| argument == "--json");
    if help || !json {
        // A closed pipe is not an error.
        let _ = error.print();
        return ExitCode::from(if help { 0 } else { usage_status() });
    }
    let text = error.render().to_string();
    let message = message_of(&text);
    let failure = Failure::new(Id::Usage, message, "parapet --help shows what there is");
    println!("{}", terminal::json_of_ended(&failure, usage_status()));
    ExitCode::from(usage_status())
}

/// Returns the exit status of a wrong command line. For a monitor, 2 from `health` means CRITICAL
/// and 3 UNKNOWN.
fn usage_status() -> u8 {
    let mut words = std::env::args_os().skip(1);
    let verb = words.find(|word| !word.to_string_lossy().starts_with('-'));
    match verb {
        Some(verb) if verb == "health" => Exit::Refused as u8,
        _ => Exit::Usage as u8,
    }
}

/// Returns the message of a wrong command line on one line: up to the first tip or the usage.
fn message_of(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let lines = lines.take_while(|line| !line.starts_with("tip:") && !line.starts_with("Usage:"));
    let words: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

/// Starts the log on standard error: warnings, a server's changes of state, or the user's filter.
fn log(global: &Global, is_server: bool) -> failure::Result<()> {
    let level = match (global.quiet, global.verbose) {
        (true, 0) => LevelFilter::ERROR,
        (false, 0) if is_server => LevelFilter::INFO,
        (false, 0) => LevelFilter::WARN,
        (_, 1) => LevelFilter::INFO,
        (_, 2) => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let targets = match &global.log {
        None => Targets::new().with_default(LevelFilter::WARN).with_targets(
            // The page reports who gives commands.
            [("parapet", level), ("panel", level)],
        ),
        Some(filter) => filter.parse::<Targets>().map_err(|error| {
            let action = "write it as `info`, or `parapet=debug,rustls=warn`";
            Failure::new(Id::Usage, format!("the log filter {filter:?}: {error}"), action)
        })?,
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false);
    // Under systemd, the journal already adds the time.
    if std::env::var_os("JOURNAL_STREAM").is_some() {
        let registry = tracing_subscriber::registry().with(targets).with(lines.without_time());
        let _ = registry.try_init();
    } else {
        let _ = tracing_subscriber::registry().with(targets).with(lines).try_init();
    }
    Ok(())
}
