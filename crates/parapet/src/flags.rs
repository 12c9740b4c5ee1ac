//! Flags that several verbs share, and the flags of all verbs.
//!
//! Each flag is defined once; its definition yields parsing, help, manual page and completion.
//! Flags of a single verb are in `cmd/<verb>.rs`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use os::Address;

use crate::absent;
use crate::client::QUESTION_TIMEOUT;
use crate::cmd::Verb;
use crate::probe::Allowed;
use crate::size::Size;
use crate::written;

/// A redundant block device in user space.
///
/// Combines disks and files into one redundant block device and serves it over NBD and ATA
/// over Ethernet. The on-disk format is Linux md's.
#[derive(Parser)]
#[command(name = "parapet", version = absent::version(), max_term_width = 100)]
#[command(arg_required_else_help = true)]
#[command(after_help = "Exit status: 0 done, 1 failed, 2 usage, 3 refused by a safety guard, \
    4 server unreachable or permission denied, 5 no such array or disk, 6 timed out.\n\
    Try `parapet quickstart`. From other tools: `parapet help mdadm`, `parapet help zpool`.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Flags of every verb.
#[derive(Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Global {
    /// Print results and errors as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Show sizes in bytes
    #[arg(long, global = true)]
    pub(crate) bytes: bool,
    /// Show sizes in powers of 1000: kB, MB, GB
    #[arg(long, global = true, conflicts_with = "bytes")]
    pub(crate) si: bool,
    /// Colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Colour,
    /// Omit hints and progress
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Verbose output; repeat for debug logging
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Log filter, such as `info` or `parapet=debug,rustls=warn`
    #[arg(long, global = true, value_name = "FILTER", env = "PARAPET_LOG")]
    pub(crate) log: Option<String>,
}

/// When to use colours.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// How to reach the server of an array.
#[derive(Args)]
pub(crate) struct Control {
    /// Control socket of the server [default: by the array's name]
    #[arg(long, value_name = "unix:PATH", env = "PARAPET_CONTROL", value_parser = unix_path)]
    pub(crate) control: Option<PathBuf>,
}

impl Control {
    /// Returns the socket, if the user named one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.control.as_deref()
    }
}

/// How long servers may take to answer.
#[derive(Args)]
pub(crate) struct AnswerTimeout {
    /// Give up if a server does not answer within this time
    #[arg(long, value_name = "SECONDS", default_value_t = QUESTION_TIMEOUT.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

impl AnswerTimeout {
    pub(crate) fn get(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// How a plan is confirmed.
#[derive(Args)]
pub(crate) struct Consent {
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Print the plan and exit
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// What may be overwritten.
#[derive(Args)]
pub(crate) struct Overwrite {
    /// Allow overwriting this signature, on this disk or on any; repeat for each signature
    #[arg(long, value_name = "[DISK:]NAME@OFFSET")]
    pub(crate) overwrite_signature: Vec<Allowed>,
}

impl Overwrite {
    /// Returns the signatures that may be overwritten on this disk, for its array's server.
    pub(crate) fn on(&self, disk: &str) -> Vec<String> {
        let on_it = self.overwrite_signature.iter().filter_map(|a| a.on(Path::new(disk)));
        on_it.map(ToString::to_string).collect()
    }
}

/// Speed limits of background work.
#[derive(Args, Default)]
pub(crate) struct SpeedLimits {
    /// Minimum rate of background work per member and second, even under client load
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) speed_min: Option<Size>,
    /// Maximum rate of background work per member and second; `off` for no limit
    #[arg(long, value_name = "SIZE", value_parser = size_or_off)]
    pub(crate) speed_max: Option<Size>,
}

/// No speed limit.
pub(crate) const UNLIMITED: u64 = u64::MAX;

fn size_or_off(text: &str) -> Result<Size, String> {
    if text == "off" { Ok(Size(UNLIMITED)) } else { rate(text) }
}

/// Parses a rate per second. Refuses a few bytes, which the user meant in another unit; 0 pauses
/// the work.
pub(crate) fn rate(text: &str) -> Result<Size, String> {
    let rate: Size = text.parse()?;
    match (1..1 << 10).contains(&rate.0) {
        true => Err(format!("this is {rate}/s; write the unit, such as {}M", rate.0)),
        false => Ok(rate),
    }
}

/// Parses `unix:PATH`, or a bare path.
pub(crate) fn unix_path(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix:").unwrap_or(text);
    if path.is_empty() { Err("write it as unix:PATH".into()) } else { Ok(PathBuf::from(path)) }
}

/// Parses `unix:PATH` or `tcp:ADDRESS:PORT`; `tcp:PORT` is the loopback address, `tcp::PORT` every
/// address.
pub(crate) fn address(text: &str) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(Address::Unix(PathBuf::from(path)));
    }
    let Some(rest) = text.strip_prefix("tcp:") else {
        return Err("write it as unix:PATH or tcp:ADDRESS:PORT".into());
    };
    tcp_address(rest).map(Address::Tcp)
}

/// Parses `ADDRESS:PORT`, `PORT` on the loopback address, or `:PORT` on every address.
pub(crate) fn tcp_address(text: &str) -> Result<SocketAddr, String> {
    if let Some(found) = written::socket(text)? {
        return Ok(found);
    }
    let mut found = text.to_socket_addrs().map_err(|error| format!("{text}: {error}"))?;
    found.next().ok_or_else(|| format!("{text}: no address"))
}

/// Parses an array's name; see [`written::name`].
pub(crate) fn name(text: &str) -> Result<String, String> {
    written::name(text)
}

/// Parses `on` or `off`.
pub(crate) fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("it is on or off".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_agree_with_each_other() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_and_flag_says_what_it_does() {
        for verb in Cli::command().get_subcommands() {
            assert!(verb.get_about().is_some(), "{}", verb.get_name());
            for flag in verb.get_arguments() {
                assert!(flag.get_help().is_some(), "{} {}", verb.get_name(), flag.get_id());
            }
        }
    }

    #[test]
    fn addresses_are_read() {
        let tcp = |text: &str| Address::Tcp(text.parse().unwrap());
        assert_eq!(address("unix:/run/x"), Ok(Address::Unix("/run/x".into())));
        assert_eq!(address("tcp:10809"), Ok(tcp("127.0.0.1:10809")));
        assert_eq!(address("tcp::10809"), Ok(tcp("[::]:10809")));
        assert_eq!(address("tcp:[::1]:5"), Ok(tcp("[::1]:5")));
        assert_eq!(address("tcp:127.0.0.1:0"), Ok(tcp("127.0.0.1:0")));
        for bad in ["", "unix:", "/run/x", "tcp:", "tcp:x", "tcp:1.2.3.4", "tcp::x", "udp:1"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
