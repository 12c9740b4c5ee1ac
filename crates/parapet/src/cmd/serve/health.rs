//! Whether a server watches the disks of its members, and how.

use os::Address;
use policy::Period;
use policy::health::{Policy, Settings};

use crate::disk_health::{self, Running};
use crate::failure::{Failure, Id, Result};

/// How disks are watched.
#[derive(clap::Args)]
pub(super) struct Flags {
    /// Watch the disks of the members with smartctl: alert, replace-if-spare (copy a failing disk
    /// to a spare) or off [default: off; without POLICY: replace-if-spare]
    #[arg(long, value_name = "POLICY", num_args = 0..=1, require_equals = true,
        default_missing_value = "replace-if-spare")]
    health: Option<Policy>,
    /// Time between two SMART readings of a disk [default: 90 min]
    #[arg(long, value_name = "PERIOD", requires = "health", value_parser = period)]
    health_poll: Option<Period>,
    /// The settings of a configuration file.
    #[arg(skip)]
    settings: Settings,
}

/// Parses a length of time.
fn period(text: &str) -> std::result::Result<Period, String> {
    text.to_owned().try_into()
}

impl Flags {
    /// As a configuration says.
    pub(super) fn configured(settings: &Settings) -> Flags {
        let (health, settings) = (Some(settings.policy), settings.clone());
        Flags { health, health_poll: None, settings }
    }

    /// Starts to watch disks, if they are to be watched, over one of these control sockets.
    ///
    /// # Errors
    /// If there is no control socket.
    pub(super) fn start(&self, control: &[Address]) -> Result<Option<Running>> {
        let Some(policy) = self.health else { return Ok(None) };
        let poll = self.health_poll.unwrap_or(self.settings.poll);
        let settings = Settings { policy, poll, ..self.settings.clone() };
        let control = control.iter().find_map(|address| match address {
            Address::Unix(path) => Some(path),
            Address::Tcp(_) => None,
        });
        let control = control.ok_or_else(|| {
            let message =
                "--health: orders go over the control API, and there is no control socket";
            Failure::new(Id::Usage, message, "add --control unix:PATH")
        })?;
        disk_health::start(&settings, control)
    }
}
