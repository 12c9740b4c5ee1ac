//! A measured program. Ends when it is dropped.

use crate::failure::Failure;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Clock ticks of `/proc/PID/stat`: the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Until a server takes connections.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Process(Child);

impl Process {
    /// Starts it; its standard output is dropped.
    pub(super) fn start(mut command: Command) -> Result<Process, Failure> {
        let line = format!("{command:?}");
        let child = command.stdout(Stdio::null()).spawn();
        child
            .map(Process)
            .map_err(|error| Failure::new(format!("{line}: {error}"), "is it installed?"))
    }

    /// True until it ends by itself.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Waits until it serves; `line` is its command.
    pub(super) fn wait_until(
        &mut self,
        line: &str,
        serves: impl Fn() -> bool,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        while !serves() {
            if !self.is_running() || begun.elapsed() > PATIENCE {
                let what = format!("{line} does not serve");
                return Err(Failure::new(what, "see its messages above"));
            }
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// A file about it in `/proc`.
    pub(super) fn proc(&self, file: &str) -> Result<String, Failure> {
        let path = format!("/proc/{}/{file}", self.0.id());
        std::fs::read_to_string(&path)
            .map_err(|error| Failure::new(format!("{path}: {error}"), "has the server died?"))
    }

    /// CPU time since its start, its own and the kernel's for it.
    pub(super) fn cpu_seconds(&self) -> Result<f64, Failure> {
        let stat = self.proc("stat")?;
        ticks(&stat)
            .map(|ticks| ticks / TICKS_PER_SECOND)
            .ok_or_else(|| Failure::new("/proc/PID/stat has no CPU time", "is this Linux?"))
    }
}

/// utime and stime: the 14th and 15th field. The second, the name, may have spaces in it.
fn ticks(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some(next()? + next()?)
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have gone by itself; there is nothing to lose: its files go too.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_a_name_with_spaces() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 5 1 1";
        assert_eq!(ticks(stat), Some(300.0));
        assert_eq!(ticks("7"), None);
    }
}
