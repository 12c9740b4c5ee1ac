//! One path to a target: a port of ours and a port of the target.
//!
//! The window grows by one with each answer up to a threshold, and by one with each full window
//! beyond it; a timeout halves the threshold and closes the window to one frame (as TCP: RFC 5681).
//! The timeout follows the measured round trips (RFC 6298).

use std::time::Duration;

use io::{Mac, Time};

/// The timeout before anything was measured.
const FIRST_TIMEOUT: Duration = Duration::from_millis(250);
/// Bounds of the timeout. The lower one is far above a segment's round trip, and far below what an
/// application notices.
const MIN_TIMEOUT: Duration = Duration::from_millis(20);
const MAX_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeouts in a row that make a path suspect: others are preferred.
const SUSPECT_AFTER: u32 = 3;
/// How often a suspect path is tried all the same.
const PROBE_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Path {
    /// Our port, by its place.
    pub(super) link: usize,
    /// The target's port.
    pub(super) mac: Mac,
    /// What the target queues.
    most: u32,
    window: u32,
    threshold: u32,
    /// Answers since the window grew, beyond the threshold.
    answers: u32,
    in_flight: u32,
    /// The smoothed round trip and its variation, in nanoseconds.
    round_trip: Option<(u64, u64)>,
    timeouts: u32,
    probed: Option<Time>,
}

impl Path {
    pub(super) fn new(link: usize, mac: Mac, buffers: u16) -> Path {
        let most = u32::from(buffers.max(1));
        Path {
            link,
            mac,
            most,
            window: most.div_ceil(2),
            threshold: most.div_ceil(2),
            answers: 0,
            in_flight: 0,
            round_trip: None,
            timeouts: 0,
            probed: None,
        }
    }

    /// True if nothing was heard for several timeouts.
    pub(super) fn is_suspect(&self) -> bool {
        self.timeouts >= SUSPECT_AFTER
    }

    /// True if it takes one more frame now; a suspect path only to probe it.
    pub(super) fn takes(&self, now: Time) -> bool {
        if self.is_suspect() {
            return self.probed.is_none_or(|probed| now - probed >= PROBE_EVERY);
        }
        self.in_flight < self.window
    }

    /// A frame was sent; returns how long its answer may take.
    pub(super) fn sent(&mut self, now: Time) -> Duration {
        self.in_flight += 1;
        if self.is_suspect() {
            self.probed = Some(now);
        }
        let measured = self.round_trip.map_or(FIRST_TIMEOUT, |(smoothed, variation)| {
            Duration::from_nanos(smoothed + 4 * variation)
        });
        let doubled = measured.max(MIN_TIMEOUT) * (1 << self.timeouts.min(6));
        doubled.min(MAX_TIMEOUT)
    }

    /// An answer came; `round_trip` if it is known which frame it answers.
    pub(super) fn answered(&mut self, round_trip: Option<Duration>) {
        self.in_flight = self.in_flight.saturating_sub(1);
        (self.timeouts, self.probed) = (0, None);
        if let Some(sample) = round_trip {
            let sample = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX);
            self.round_trip = Some(match self.round_trip {
                None => (sample, sample / 2),
                Some((smoothed, variation)) => {
                    let off = smoothed.abs_diff(sample);
                    (smoothed - smoothed / 8 + sample / 8, variation - variation / 4 + off / 4)
                }
            });
        }
        self.answers += 1;
        if self.window < self.threshold || self.answers >= self.window {
            (self.window, self.answers) = ((self.window + 1).min(self.most), 0);
        }
    }

    /// No answer came in time.
    pub(super) fn timed_out(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.timeouts = self.timeouts.saturating_add(1);
        self.threshold = (self.window / 2).max(1);
        (self.window, self.answers) = (1, 0);
    }

    /// A frame is given up: nobody waits for its answer.
    pub(super) fn given_up(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([2; 6]);

    /// How many frames it takes now.
    fn room(path: &mut Path, now: Time) -> u32 {
        let mut count = 0;
        while path.takes(now) {
            path.sent(now);
            count += 1;
        }
        count
    }

    #[test]
    fn the_window_grows_with_answers_and_closes_with_a_timeout() {
        let mut path = Path::new(0, MAC, 64);
        assert_eq!(room(&mut path, Time(0)), 32);
        for _ in 0..32 {
            path.answered(Some(Duration::from_micros(100)));
        }
        assert_eq!(room(&mut path, Time(0)), 33, "one more with each full window");
        path.timed_out();
        for _ in 0..32 {
            path.given_up();
        }
        assert_eq!(room(&mut path, Time(0)), 1);
        for answers in 0..16 {
            path.answered(None);
            assert_eq!(room(&mut path, Time(0)), if answers < 15 { 2 } else { 1 }, "{answers}");
        }
    }

    #[test]
    fn the_window_never_exceeds_what_the_target_queues() {
        for buffers in [0, 1, 2, 16] {
            let mut path = Path::new(0, MAC, buffers);
            for _ in 0..1000 {
                path.answered(None);
            }
            assert_eq!(room(&mut path, Time(0)), u32::from(buffers.max(1)), "{buffers}");
        }
    }

    #[test]
    fn a_silent_path_is_suspect_and_tried_now_and_then() {
        let mut path = Path::new(0, MAC, 16);
        for _ in 0..SUSPECT_AFTER {
            assert!(!path.is_suspect());
            path.sent(Time(0));
            path.timed_out();
        }
        assert!(path.is_suspect() && path.takes(Time(0)));
        path.sent(Time(0));
        assert!(!path.takes(Time(1)));
        let later = Time(0) + PROBE_EVERY;
        assert!(path.takes(later));
        path.sent(later);
        path.answered(None);
        assert!(!path.is_suspect());
    }

    #[test]
    fn the_timeout_follows_the_round_trips() {
        let mut path = Path::new(0, MAC, 16);
        assert_eq!(path.sent(Time(0)), FIRST_TIMEOUT);
        for _ in 0..50 {
            path.answered(Some(Duration::from_micros(80)));
        }
        assert_eq!(path.sent(Time(0)), MIN_TIMEOUT);
        for _ in 0..50 {
            path.answered(Some(Duration::from_millis(100)));
        }
        let timeout = path.sent(Time(0));
        assert!(timeout >= Duration::from_millis(99) && timeout < Duration::from_millis(200));
        path.timed_out();
        assert!(path.sent(Time(0)) >= 2 * timeout.min(Duration::from_millis(99)));
    }
}
