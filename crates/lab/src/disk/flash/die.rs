//! A die: one program or erase at a time; reads wait for it, or suspend it.
//!
//! ```text
//!   program   ══data══▶▓▓▓▓▓▓▓▓▓┄┄┄┄┄┄┄┄┄┄┄▓▓▓▓▓▓▓▓▓▓▓
//!   read                        ╎suspend╎tR╎
//! ```
//!
//! A program is not suspended while its data still crosses the channel.

use super::super::Nanos;

/// The time line of a die.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Die {
    work: Option<Work>,
    /// The end of the last read.
    read_until: Nanos,
    /// Programs since the last erase.
    pub(super) programs: u32,
}

/// A program or an erase.
#[derive(Clone, Copy, Debug)]
struct Work {
    suspendable: Nanos,
    until: Nanos,
}

impl Die {
    /// True if no program or erase runs.
    pub(super) fn is_idle(&self) -> bool {
        self.work.is_none()
    }

    /// When a program could start on an idle die.
    pub(super) fn free_at(&self) -> Nanos {
        self.read_until
    }

    /// Starts a program or an erase. It can be suspended from `suspendable` on.
    pub(super) fn start(&mut self, suspendable: Nanos, until: Nanos) {
        self.work = Some(Work { suspendable, until });
    }

    /// Ends the program that was to end at `now`; if reads have delayed it, gives its new end.
    pub(super) fn finish(&mut self, now: Nanos) -> Option<Nanos> {
        let late = self.work.map(|work| work.until).filter(|&until| until > now);
        if late.is_none() {
            self.work = None;
        }
        late
    }

    /// Reads a page; gives the end. `suspend` is the time that suspending takes.
    pub(super) fn read(&mut self, now: Nanos, time: Nanos, suspend: Option<Nanos>) -> Nanos {
        let start = now.max(self.read_until);
        self.read_until = match (&mut self.work, suspend) {
            (Some(work), Some(suspend)) if start < work.until => {
                // Reads that follow at once find it suspended.
                let suspended = self.read_until > now && self.read_until > work.suspendable;
                let pause = start.max(work.suspendable);
                let end = pause + if suspended { 0 } else { suspend } + time;
                work.until += end - pause;
                end
            }
            (Some(work), None) => start.max(work.until) + time,
            _ => start + time,
        };
        self.read_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_wait_for_a_program_or_suspend_it() {
        let program = |die: &mut Die| die.start(10, 700);
        let mut die = Die::default();
        program(&mut die);
        assert_eq!(die.read(100, 50, None), 750);
        let mut die = Die::default();
        program(&mut die);
        // Not before its data has crossed the channel.
        assert_eq!(die.read(0, 50, Some(20)), 80);
        assert_eq!(die.read(60, 50, Some(20)), 130, "it is still suspended");
        assert_eq!(die.finish(700), Some(820), "the reads have delayed the program");
        assert_eq!(die.finish(820), None);
        assert!(die.is_idle());
    }
}
