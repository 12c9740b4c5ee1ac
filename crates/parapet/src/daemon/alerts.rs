//! Whom the server tells of the events of its arrays. `crate::notify` sends the messages.

use std::rc::Rc;
use std::time::Duration;

use io::Clock;
use policy::alerts::{Channel, Heartbeat};

use super::{Daemon, Served};
use crate::api::Severity;
use crate::failure::{Failure, Id, Result};

/// Interval of the reports to the heartbeat.
const BEAT: Duration = Duration::from_secs(4);

impl Daemon {
    /// Tells these channels of each event from now on, and no others. To be called again when the
    /// configuration has changed.
    pub(crate) fn notify(&self, channels: &[Channel], heartbeat: Option<&Heartbeat>) {
        self.alerts.reload(channels, heartbeat);
    }

    /// Reports to systemd and to the heartbeat that this thread works, as long as it does.
    pub(super) fn feed_watchdogs(&self) {
        crate::systemd::feed_watchdog(&self.spawner);
        let (alerts, clock) = (Rc::downgrade(&self.alerts), self.spawner.clock());
        self.spawner.spawn_local(async move {
            while let Some(alerts) = alerts.upgrade() {
                alerts.beat();
                drop(alerts);
                clock.sleep_until(clock.now() + BEAT).await;
            }
        });
    }

    /// Makes an event that somebody should be told of.
    pub(super) fn test_alerts(&self, served: &Served) -> Result<String> {
        let name = served.name();
        if !self.alerts.is_used() {
            let message = format!("{name}: nobody is told of events");
            let action = "restart the server with --notify PROGRAM";
            return Err(Failure::new(Id::WrongState, message, action));
        }
        served.history.note(("TestMessage", Severity::Info), None, "test, by command");
        Ok(format!("{name}: TestMessage is sent"))
    }
}
