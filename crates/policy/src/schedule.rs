//! When an array is scrubbed: every so often, within windows of the day, pausing outside them.
//!
//! ```text
//!            window            window
//!    ───────[=======]─────────[=======]──────▶ time
//!       due  start   pause     resume  end
//! ```
//!
//! A scrub that was paused, or interrupted by a restart, goes on where it stopped. While a disk of
//! the array is suspect, the next scrub is due earlier: what the other disks cannot read must be
//! found before that disk is lost.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::{DateTime, Time, Weekday};
use serde::{Deserialize, Serialize};

use crate::period::Period;

/// The section `[scrub]`: the schedule of all arrays.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scrub {
    /// False to scrub only on request.
    pub enabled: bool,
    /// Time from the end of one scrub to the start of the next.
    pub every: Period,
    /// The same while a disk of the array is suspect, if that is less.
    pub every_suspect: Period,
    /// When a scrub may run; empty for always.
    pub windows: Vec<Window>,
    /// Correct mismatches too, as `parapet scrub NAME repair` does.
    pub repair: bool,
    /// Slow background work down while the reads of members take longer than this (99th
    /// percentile).
    pub latency: Option<Period>,
}

impl Default for Scrub {
    fn default() -> Scrub {
        let (every, every_suspect, windows) = (Period::days(30), Period::days(7), Vec::new());
        Scrub { enabled: true, every, every_suspect, windows, repair: false, latency: None }
    }
}

/// A part of the day, on some days of the week: `22:00-06:00`, `sat,sun 00:00-24:00`,
/// `mon-fri 01:00-05:00`. One that passes midnight belongs to the day on which it begins.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Window {
    text: String,
    /// Whether it begins on this day, from Monday.
    days: [bool; 7],
    from: Time,
    /// Midnight for the end of the day.
    until: Time,
}

/// A clock that is set back by up to this delays the next scrub by as much.
const AHEAD: Duration = Duration::from_secs(24 * 3600);

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

impl Window {
    fn contains(&self, at: DateTime) -> bool {
        let (day, time) = (at.weekday(), at.time());
        let begins = |day: Weekday| self.days[day.to_monday_zero_offset() as usize];
        if self.from < self.until {
            return begins(day) && self.from <= time && time < self.until;
        }
        begins(day) && self.from <= time || begins(day.previous()) && time < self.until
    }
}

impl TryFrom<String> for Window {
    type Error = String;

    fn try_from(text: String) -> Result<Window, String> {
        let malformed =
            || format!("{text:?} is no window: write it as `22:00-06:00` or `sat,sun 01:00-09:00`");
        let (days, hours) = match text.trim().rsplit_once(' ') {
            Some((days, hours)) => (days_of(days).ok_or_else(malformed)?, hours),
            None => ([true; 7], text.trim()),
        };
        let (from, until) = hours.split_once('-').ok_or_else(malformed)?;
        let (from, until) =
            (time_of(from).ok_or_else(malformed)?, time_of(until).ok_or_else(malformed)?);
        Ok(Window { text, days, from, until })
    }
}

impl From<Window> for String {
    fn from(window: Window) -> String {
        window.text
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn days_of(text: &str) -> Option<[bool; 7]> {
    let number = |name: &str| {
        let name = name.trim().to_ascii_lowercase();
        DAYS.iter().position(|day| *day == name)
    };
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut day, last) = (number(first)?, number(last)?);
        while day != last {
            days[day] = true;
            day = (day + 1) % 7;
        }
        days[last] = true;
    }
    Some(days)
}

/// Reads `HH:MM`; `24:00` is the end of the day.
fn time_of(text: &str) -> Option<Time> {
    let (hour, minute) = text.trim().split_once(':')?;
    match (hour.parse::<i8>().ok()?, minute.parse::<i8>().ok()?) {
        (24, 0) => Some(Time::midnight()),
        (hour, minute) => Time::new(hour, minute, 0, 0).ok(),
    }
}

/// An array, as the schedule sees it.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// End of the last complete scrub; before the first one, when the array was first seen.
    pub last: Timestamp,
    /// Where an interrupted scrub goes on, in bytes of the array; 0 if none was interrupted.
    pub position: u64,
    /// What the array does.
    pub work: Work,
    /// True if a disk of it may fail.
    pub is_suspect: bool,
}

impl Standing {
    /// True if the last scrub is recorded further ahead than time zones and small corrections
    /// explain: a clock was wrong, and the true time is lost.
    pub fn is_ahead(&self, now: Timestamp) -> bool {
        Duration::try_from(self.last.duration_since(now)).is_ok_and(|ahead| ahead > AHEAD)
    }
}

/// What an array does in the background.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Nothing, with all members in sync.
    Idle,
    /// A scrub that the schedule started.
    Scheduled,
    /// Other work, or it is degraded: no scrub can start.
    Other,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Nothing.
    Wait,
    /// Start a scrub at this byte of the array.
    Start(u64),
    /// Stop it, to go on later.
    Pause,
}

impl Scrub {
    /// Decides, at this time; `local` is the same time on the wall clock.
    pub fn decide(&self, now: Timestamp, local: DateTime, array: &Standing) -> Decision {
        let allowed =
            self.windows.is_empty() || self.windows.iter().any(|window| window.contains(local));
        // A clock that was set back a little counts as no time.
        let since = Duration::try_from(now.duration_since(array.last)).unwrap_or_default();
        let every = match array.is_suspect {
            true => self.every.min(self.every_suspect),
            false => self.every,
        };
        match array.work {
            Work::Scheduled if !allowed || !self.enabled => Decision::Pause,
            Work::Scheduled | Work::Other => Decision::Wait,
            Work::Idle if !allowed || !self.enabled => Decision::Wait,
            Work::Idle if array.position > 0 => Decision::Start(array.position),
            Work::Idle if since >= every.0 || array.is_ahead(now) => Decision::Start(0),
            Work::Idle => Decision::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(text: &str) -> Window {
        Window::try_from(text.to_owned()).unwrap()
    }

    fn at(text: &str) -> DateTime {
        text.parse().unwrap()
    }

    #[test]
    fn windows_pass_midnight_and_know_their_days() {
        // 2026-11-27 is a Friday.
        let night = window("22:00-06:00");
        for (time, inside) in [("21:59", false), ("22:00", true), ("05:59", true), ("06:00", false)]
        {
            assert_eq!(night.contains(at(&format!("2026-11-27T{time}"))), inside, "{time}");
        }
        let friday = window("fri 22:00-06:00");
        assert!(friday.contains(at("2026-11-27T23:00")) && friday.contains(at("2026-11-28T05:00")));
        assert!(!friday.contains(at("2026-11-27T05:00")), "that night began on Thursday");
        let weekend = window("Sat,Sun 00:00-24:00");
        assert!(
            weekend.contains(at("2026-11-28T00:00")) && weekend.contains(at("2026-11-29T23:59"))
        );
        assert!(!weekend.contains(at("2026-11-27T23:59")));
        let around = window("sat-mon 01:00-02:00");
        assert!(
            around.contains(at("2026-11-30T01:30")) && !around.contains(at("2026-12-01T01:30"))
        );
        for bad in ["", "22:00", "25:00-26:00", "22-06", "someday 22:00-06:00", "mon- 1:00-2:00"] {
            assert!(Window::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
    }

    /// Plays the nights of two months, a step a minute.
    #[test]
    fn a_scrub_longer_than_its_window_takes_several_nights_and_then_rests() {
        const WHOLE: u64 = 20 * 60;
        let policy = Scrub { windows: vec![window("01:00-06:00")], ..Scrub::default() };
        let begin: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
        let mut array = Standing { last: begin, position: 0, work: Work::Idle, is_suspect: false };
        let (mut done, mut nights, mut ends) = (0, 0, Vec::new());
        for minute in 0..61 * 24 * 60 {
            let now = begin + Duration::from_secs(minute * 60);
            let local = now.to_zoned(jiff::tz::TimeZone::UTC).datetime();
            match policy.decide(now, local, &array) {
                Decision::Start(from) => {
                    (done, nights) = (from, nights + 1);
                    array.work = Work::Scheduled;
                }
                Decision::Pause => (array.position, array.work) = (done, Work::Idle),
                Decision::Wait if array.work == Work::Scheduled => done += 1,
                Decision::Wait => {}
            }
            if done == WHOLE {
                array = Standing { last: now, position: 0, work: Work::Idle, ..array };
                (done, ends) = (0, [ends, vec![minute / (24 * 60)]].concat());
            }
        }
        // Due on day 30; five hours a night for twenty hours, less the minute of each start.
        assert_eq!((ends, nights), (vec![34], 5));
    }

    #[test]
    fn other_work_and_a_user_are_left_alone() {
        let policy = Scrub { windows: vec![window("01:00-06:00")], ..Scrub::default() };
        let now: Timestamp = "2026-11-01T12:00:00Z".parse().unwrap();
        let local = now.to_zoned(jiff::tz::TimeZone::UTC).datetime();
        let last = Timestamp::UNIX_EPOCH;
        let of = |work| Standing { last, position: 7, work, is_suspect: true };
        assert_eq!(policy.decide(now, local, &of(Work::Other)), Decision::Wait);
        assert_eq!(policy.decide(now, local, &of(Work::Idle)), Decision::Wait);
        assert_eq!(policy.decide(now, local, &of(Work::Scheduled)), Decision::Pause);
        let never = Scrub { enabled: false, windows: Vec::new(), ..policy };
        assert_eq!(never.decide(now, local, &of(Work::Idle)), Decision::Wait);
    }

    #[test]
    fn a_scrub_that_is_recorded_in_the_future_does_not_stop_the_schedule() {
        let policy = Scrub::default();
        let now: Timestamp = "2026-11-01T12:00:00Z".parse().unwrap();
        let local = now.to_zoned(jiff::tz::TimeZone::UTC).datetime();
        let day = Duration::from_secs(24 * 3600);
        for (ahead, decision) in [
            (Duration::from_secs(60), Decision::Wait),
            (day, Decision::Wait),
            (day + Duration::from_secs(1), Decision::Start(0)),
            (4000 * day, Decision::Start(0)),
        ] {
            let last = now + ahead;
            let array = Standing { last, position: 0, work: Work::Idle, is_suspect: false };
            assert_eq!(policy.decide(now, local, &array), decision, "{ahead:?}");
        }
    }

    /// One line: days since the last scrub, whether a disk is suspect, what the array does, whether
    /// a window is open, and the decision.
    #[test]
    fn a_suspect_disk_brings_the_scrub_forward_within_its_windows() {
        use Decision::{Pause, Start, Wait};
        let policy = Scrub { windows: vec![window("01:00-06:00")], ..Scrub::default() };
        let last: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
        for (days, is_suspect, work, open, decision) in [
            (6, false, Work::Idle, true, Wait),
            (6, true, Work::Idle, true, Wait),
            (7, false, Work::Idle, true, Wait),
            (7, true, Work::Idle, true, Start(0)),
            (7, true, Work::Idle, false, Wait),
            (7, true, Work::Other, true, Wait),
            (7, true, Work::Scheduled, false, Pause),
            (30, false, Work::Idle, true, Start(0)),
        ] {
            let hour = if open { 2 } else { 12 };
            let now = last + Duration::from_secs((days * 24 + hour) * 3600);
            let local = now.to_zoned(jiff::tz::TimeZone::UTC).datetime();
            let array = Standing { last, position: 0, work, is_suspect };
            assert_eq!(policy.decide(now, local, &array), decision, "{days} days, {array:?}");
            let never = Scrub { enabled: false, ..policy.clone() };
            assert!(matches!(never.decide(now, local, &array), Wait | Pause));
            // A schedule that is denser anyway stays so.
            let dense = Scrub { every: Period::days(1), ..policy.clone() };
            if work == Work::Idle && open {
                assert_eq!(dense.decide(now, local, &array), Start(0));
            }
        }
    }
}
