//! Watches the disks of served members: a thread that reads SMART data and acts by policy.
//!
//! ```text
//!    smartctl ──▶ watcher ◀── state of the arrays ── control socket
//!                    │  policy::health decides
//!                    └── notes, orders to replace ──▶ control socket
//! ```
//!
//! A client of the control API like any administrator: its orders are checked, refused and logged
//! like theirs, and a slow disk or smartctl delays no request. Never wakes a disk that sleeps, and
//! never opens a member.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use policy::health::{Policy, Settings};

use crate::client::Client;
use crate::failure::{Failure, Id, Result};

pub(crate) mod locate;
mod memory;
pub(crate) mod record;
pub(crate) mod smart;
pub(crate) mod tool;
mod watcher;
pub(crate) mod whole;

use watcher::Watcher;

/// Longest time between two looks at the arrays. SMART is read less often.
const LOOK: Duration = Duration::from_secs(60);
/// How long the thread may take to end; a hung disk may hold it longer.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// The thread, until this is dropped.
pub(crate) struct Running {
    stopped: Arc<AtomicBool>,
    /// Dropped to wake the thread.
    wake: Option<mpsc::Sender<()>>,
    /// Ends with the thread.
    ended: mpsc::Receiver<()>,
}

/// Watches the disks of the arrays that the server at this control socket serves; none if the
/// policy is off.
///
/// # Errors
/// If there is no thread.
pub(crate) fn start(settings: &Settings, control: &Path) -> Result<Option<Running>> {
    if settings.policy == Policy::Off {
        return Ok(None);
    }
    let ((wake, woken), (ending, ended)) = (mpsc::channel(), mpsc::channel());
    let stopped = Arc::new(AtomicBool::new(false));
    let pause = settings.poll.0.min(LOOK);
    let client = Client::at(crate::places::absolute(control));
    let mut watcher = Watcher::new(settings.clone(), client, Arc::clone(&stopped));
    let watch = move || {
        loop {
            watcher.look();
            if woken.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
        drop(ending);
    };
    std::thread::Builder::new().name("parapet-health".into()).spawn(watch).map_err(|error| {
        let message = format!("no thread to watch disks: {error}");
        Failure::new(Id::Failed, message, "raise the limit of processes (ulimit -u)")
    })?;
    Ok(Some(Running { stopped, wake: Some(wake), ended }))
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        drop(self.wake.take());
        // Disconnected: it has ended. Otherwise a disk hangs, or the server answers no more.
        let _: std::result::Result<(), RecvTimeoutError> = self.ended.recv_timeout(LAST_PATIENCE);
    }
}
