//! One path to a target: a port of ours and a port of the target.
//!
//! The window grows by one with each answer up to a threshold, and by one with each full window
//! beyond it; a timeout halves the threshold and closes the window to one frame (as TCP: RFC 5681).
//! Frames that were sent before such a loss and time out after it belong to the same loss. The
//! timeout follows the measured round trips (RFC 6298); every copy has a tag of its own, so every
//! answer is a measurement.
//!
//! A path on which nothing is answered is *suspect*: it is avoided, and probed. A path on which
//! large frames are lost and small ones are answered (a switch with a smaller MTU) is *narrow*: its
//! frames carry two sectors until a large probe is answered.

use std::time::Duration;

use io::{Mac, Time};

/// The timeout before anything was measured.
const FIRST_TIMEOUT: Duration = Duration::from_millis(250);
/// Bounds of the timeout. The lower one is far above a segment's round trip, and far below what an
/// application notices.
const MIN_TIMEOUT: Duration = Duration::from_millis(20);
const MAX_TIMEOUT: Duration = Duration::from_secs(5);
/// Losses in a row that make a path suspect: others are preferred.
const SUSPECT_AFTER: u32 = 3;
/// How often a suspect path is tried all the same.
pub(super) const PROBE_EVERY: Duration = Duration::from_secs(1);
/// Sectors of a small frame: they fit into the smallest MTU of Ethernet.
pub(super) const SMALL_SECTORS: u8 = 2;
/// Losses of large frames in a row, while small ones are answered, that make a path narrow.
const NARROW_AFTER: u32 = 3;

pub(super) struct Path {
    /// Our port, by its place.
    pub(super) port: usize,
    /// The target's port.
    pub(super) mac: Mac,
    /// The sectors of a frame as the target announces them.
    theirs: u8,
    /// The sectors of a frame that both ports have room for; 0 if there is none.
    room: u8,
    /// What the target queues.
    most: u32,
    window: u32,
    threshold: u32,
    /// Answers since the window grew, beyond the threshold.
    answers: u32,
    in_flight: u32,
    /// The smoothed round trip and its variation, in nanoseconds.
    round_trip: Option<(u64, u64)>,
    /// Losses in a row, and when the last one was noticed.
    losses: u32,
    lost_at: Option<Time>,
    probed: Option<Time>,
    /// Losses of large frames in a row, and whether a small one was answered since.
    large_losses: u32,
    small_passed: bool,
    narrow: bool,
}

impl Path {
    /// A path to a target that queues so many frames of so many sectors (0 means 2), from a port
    /// that has room for `ours`.
    pub(super) fn new(port: usize, mac: Mac, buffers: u16, theirs: u8, ours: u8) -> Path {
        let most = u32::from(buffers.max(1));
        let mut path = Path {
            port,
            mac,
            theirs: 0,
            room: 0,
            most,
            window: most.div_ceil(2),
            threshold: most.div_ceil(2),
            answers: 0,
            in_flight: 0,
            round_trip: None,
            losses: 0,
            lost_at: None,
            probed: None,
            large_losses: 0,
            small_passed: false,
            narrow: false,
        };
        path.announced(buffers, theirs, ours);
        path
    }

    /// The target announces itself (again).
    pub(super) fn announced(&mut self, buffers: u16, theirs: u8, ours: u8) {
        self.most = u32::from(buffers.max(1));
        self.window = self.window.min(self.most);
        self.theirs = if theirs == 0 { SMALL_SECTORS } else { theirs };
        self.fit(ours);
    }

    /// Our port has room for so many sectors now.
    pub(super) fn fit(&mut self, ours: u8) {
        self.room = self.theirs.min(ours);
        self.room = self.room.checked_ilog2().map_or(0, |log| 1 << log);
    }

    /// The most sectors of a frame now, a power of two; 0 if the path cannot carry any.
    pub(super) fn sectors(&self) -> u8 {
        if self.narrow { self.room.min(SMALL_SECTORS) } else { self.room }
    }

    /// The most sectors of a frame, if large frames pass.
    pub(super) fn room(&self) -> u8 {
        self.room
    }

    /// True if large frames are lost.
    pub(super) fn is_narrow(&self) -> bool {
        self.narrow
    }

    /// True if several losses came, and no answer.
    pub(super) fn is_suspect(&self) -> bool {
        self.losses >= SUSPECT_AFTER
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
        let doubled = measured.max(MIN_TIMEOUT) * (1 << self.losses.min(6));
        doubled.min(MAX_TIMEOUT)
    }

    /// A frame of so many sectors that counts as in flight was answered.
    pub(super) fn answered(&mut self, round_trip: Duration, sectors: u8) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.heard(round_trip, sectors);
        self.answers += 1;
        if self.window < self.threshold || self.answers >= self.window {
            (self.window, self.answers) = ((self.window + 1).min(self.most), 0);
        }
    }

    /// Another frame was answered: a probe, or a copy that counts as lost.
    pub(super) fn heard(&mut self, round_trip: Duration, sectors: u8) {
        self.measure(round_trip);
        self.trust();
        if sectors > SMALL_SECTORS {
            (self.large_losses, self.small_passed, self.narrow) = (0, false, false);
        } else if self.large_losses > 0 {
            self.small_passed = true;
            self.narrow_down();
        }
    }

    /// No longer suspect.
    pub(super) fn trust(&mut self) {
        (self.losses, self.probed) = (0, None);
    }

    fn measure(&mut self, round_trip: Duration) {
        let sample = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX / 16);
        self.round_trip = Some(match self.round_trip {
            None => (sample, sample / 2),
            Some((smoothed, variation)) => {
                let off = smoothed.abs_diff(sample);
                (smoothed - smoothed / 8 + sample / 8, variation - variation / 4 + off / 4)
            }
        });
    }

    /// No answer to a frame of so many sectors, sent then, came in time.
    pub(super) fn timed_out(&mut self, sent: Time, now: Time, sectors: u8) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.lost_at.is_some_and(|lost_at| sent < lost_at) {
            return;
        }
        self.lost_at = Some(now);
        self.losses = self.losses.saturating_add(1);
        self.threshold = (self.window / 2).max(1);
        (self.window, self.answers) = (1, 0);
        if sectors > SMALL_SECTORS {
            self.large_losses = self.large_losses.saturating_add(1);
            self.narrow_down();
        }
    }

    fn narrow_down(&mut self) {
        self.narrow |= self.small_passed && self.large_losses >= NARROW_AFTER;
    }

    /// A frame that counts as in flight is given up: its answer changes nothing.
    pub(super) fn given_up(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([2; 6]);
    const QUICK: Duration = Duration::from_micros(100);

    fn path(buffers: u16) -> Path {
        Path::new(0, MAC, buffers, 16, 16)
    }

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
        let mut path = path(64);
        assert_eq!(room(&mut path, Time(0)), 32);
        for _ in 0..32 {
            path.answered(QUICK, 16);
        }
        assert_eq!(room(&mut path, Time(0)), 33, "one more with each full window");
        // The whole window is lost at once: that is one loss.
        for _ in 0..33 {
            path.timed_out(Time(0), Time(5), 16);
        }
        assert!(!path.is_suspect());
        let mut windows = Vec::new();
        for now in 5..23 {
            let frames = room(&mut path, Time(now));
            windows.push(frames);
            (0..frames).for_each(|_| path.answered(QUICK, 16));
        }
        let expected = [1, 2, 4, 8, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29];
        assert_eq!(windows, expected, "doubled up to half the old window, then one by one");
    }

    #[test]
    fn the_window_never_exceeds_what_the_target_queues() {
        for buffers in [0, 1, 2, 16] {
            let mut path = path(buffers);
            for _ in 0..1000 {
                path.answered(QUICK, 1);
            }
            assert_eq!(room(&mut path, Time(0)), u32::from(buffers.max(1)), "{buffers}");
        }
        let mut path = path(64);
        path.announced(4, 16, 16);
        assert_eq!(room(&mut path, Time(0)), 4, "the target announces less");
    }

    #[test]
    fn a_silent_path_is_suspect_and_tried_now_and_then() {
        let mut path = path(16);
        for turn in 0..u64::from(SUSPECT_AFTER) {
            assert!(!path.is_suspect());
            path.sent(Time(turn));
            path.timed_out(Time(turn), Time(turn), 1);
        }
        assert!(path.is_suspect() && path.takes(Time(0)));
        path.sent(Time(0));
        assert!(!path.takes(Time(1)));
        let later = Time(0) + PROBE_EVERY;
        assert!(path.takes(later));
        path.sent(later);
        path.answered(QUICK, 1);
        assert!(!path.is_suspect());
    }

    #[test]
    fn the_timeout_follows_the_round_trips() {
        let mut path = path(16);
        assert_eq!(path.sent(Time(0)), FIRST_TIMEOUT);
        for _ in 0..50 {
            path.answered(Duration::from_micros(80), 1);
        }
        assert_eq!(path.sent(Time(0)), MIN_TIMEOUT);
        for _ in 0..50 {
            path.answered(Duration::from_millis(100), 1);
        }
        let timeout = path.sent(Time(0));
        assert!(timeout >= Duration::from_millis(99) && timeout < Duration::from_millis(200));
        path.timed_out(Time(0), Time(1), 1);
        assert!(path.sent(Time(0)) >= 2 * timeout.min(Duration::from_millis(99)));
    }

    #[test]
    fn a_path_that_loses_large_frames_only_is_narrow_until_one_passes() {
        let mut path = path(16);
        assert_eq!(path.sectors(), 16);
        for turn in 0..u64::from(NARROW_AFTER) {
            assert!(!path.is_narrow());
            path.answered(QUICK, SMALL_SECTORS);
            path.timed_out(Time(turn), Time(turn), 16);
        }
        path.answered(QUICK, SMALL_SECTORS);
        assert_eq!((path.sectors(), path.room(), path.is_suspect()), (2, 16, false));
        path.heard(QUICK, 16);
        assert_eq!(path.sectors(), 16);
        // A path that loses everything is not narrow.
        for turn in 10..20 {
            path.timed_out(Time(turn), Time(turn), 16);
        }
        assert!(path.is_suspect() && !path.is_narrow());
    }

    #[test]
    fn a_frame_fits_both_ports() {
        let sizes = [(16, 16, 16), (17, 32, 16), (0, 16, 2), (16, 2, 2), (16, 0, 0), (9, 8, 8)];
        for (theirs, ours, sectors) in sizes {
            assert_eq!(Path::new(0, MAC, 16, theirs, ours).sectors(), sectors, "{theirs} {ours}");
        }
        let mut path = path(16);
        path.fit(2);
        assert_eq!(path.sectors(), 2, "our MTU has shrunk");
        path.fit(16);
        assert_eq!(path.sectors(), 16);
    }
}
