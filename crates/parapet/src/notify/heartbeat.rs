//! The heartbeat: a web server is called while the thread of the arrays works. Silence is its
//! alarm.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use policy::alerts::Heartbeat;

use super::{THREAD, web};

/// The shortest interval: the server of the arrays reports more often than this.
const SHORTEST: Duration = Duration::from_secs(10);

/// The thread that calls; it ends when this is dropped.
pub(super) struct Heart {
    settings: Heartbeat,
    /// True if the thread of the arrays has reported since the last call.
    beaten: Arc<AtomicBool>,
    _alive: mpsc::Sender<()>,
}

impl Heart {
    /// Starts the thread.
    pub(super) fn start(settings: &Heartbeat) -> Heart {
        let beaten = Arc::new(AtomicBool::new(true));
        let (alive, ended) = mpsc::channel();
        let (own, heartbeat) = (Arc::clone(&beaten), settings.clone());
        let every = settings.every.0.max(SHORTEST);
        let thread = std::thread::Builder::new().name(THREAD.into());
        let started = thread.spawn(move || {
            let call = || web::call(&heartbeat).map_err(|undelivered| undelivered.why);
            run(&own, call, || ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout));
        });
        if let Err(error) = started {
            tracing::error!("heartbeat: no thread: {error}");
        }
        Heart { settings: settings.clone(), beaten, _alive: alive }
    }

    /// What it was started with.
    pub(super) fn settings(&self) -> &Heartbeat {
        &self.settings
    }

    /// Reports that the thread of the arrays works.
    pub(super) fn beat(&self) {
        self.beaten.store(true, Ordering::Relaxed);
    }
}

/// Calls, until `pause` returns false. Skips a call if nobody has beaten since the last one.
fn run(
    beaten: &AtomicBool,
    call: impl Fn() -> Result<(), String>,
    mut pause: impl FnMut() -> bool,
) {
    let mut had_trouble = false;
    loop {
        let result = match beaten.swap(false, Ordering::Relaxed) {
            true => call(),
            false => Err("withheld: the thread of the arrays does not answer".into()),
        };
        if let Err(why) = &result
            && !had_trouble
        {
            tracing::warn!("heartbeat: {why}");
        }
        had_trouble = result.is_err();
        if !pause() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn it_stops_when_the_arrays_stand_still_and_goes_on_after_them() {
        let (beaten, calls, pauses) = (AtomicBool::new(true), Cell::new(0), Cell::new(0));
        let call = || {
            calls.set(calls.get() + 1);
            Ok(())
        };
        let pause = || {
            pauses.set(pauses.get() + 1);
            match pauses.get() {
                1 | 2 => beaten.store(true, Ordering::Relaxed),
                3 | 4 => assert_eq!(calls.get(), 3, "nobody has beaten"),
                _ => beaten.store(true, Ordering::Relaxed),
            }
            pauses.get() < 6
        };
        run(&beaten, call, pause);
        assert_eq!(calls.get(), 4);
    }
}
