//! SMART values over the days: the first reading of each day, for two years.
//!
//! A line of JSON for each day. A line that a crash has cut is ignored. When a day has several
//! readings, the first is kept: the latest one is remembered elsewhere ([`Disk`](super::Disk)).

use std::collections::BTreeMap;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::{Level, Reading};

/// The days that are kept.
pub const MOST_DAYS: usize = 2 * 366;
/// The file is shortened when it has so many more.
const SLACK: usize = 32;

/// SMART values of one day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Day {
    /// The day, in UTC.
    pub day: Date,
    /// How bad the disk was.
    pub level: Level,
    /// Its serial number: another disk may be put in the same place.
    pub serial: Option<String>,
    /// Temperature in degrees Celsius.
    pub temperature_celsius: Option<i64>,
    /// Time in service, in hours.
    pub power_on_hours: Option<u64>,
    /// Raw values, by the id of their attribute.
    pub raw: BTreeMap<String, u64>,
}

/// The days of a disk, the oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Days(Vec<Day>);

/// What is to be written of the days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The file stays as it is.
    Nothing,
    /// This goes to its end.
    Append(String),
    /// This is the new file.
    Replace(String),
}

impl Day {
    /// The day of a reading.
    pub fn of(day: Date, level: Level, reading: &Reading) -> Day {
        let raw = reading.attributes.iter().map(|attribute| (attribute.id.clone(), attribute.raw));
        Day {
            day,
            level,
            serial: reading.serial.clone(),
            temperature_celsius: reading.temperature_celsius,
            power_on_hours: reading.power_on_hours,
            raw: raw.collect(),
        }
    }

    fn line(&self) -> String {
        let line = serde_json::to_string(self).expect("a day is made of strings and numbers");
        line + "\n"
    }
}

impl Days {
    /// Reads the lines of a file.
    pub fn parse(text: &str) -> Days {
        let days = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let mut days = Days(days);
        days.0.sort_by_key(|day: &Day| day.day);
        days.shorten();
        days
    }

    /// Adds a day, unless it is there already.
    pub fn add(&mut self, day: Day) -> Change {
        let before = self.0.len();
        let is_other = |known: &Day| {
            known.serial.is_some() && day.serial.is_some() && known.serial != day.serial
        };
        // Later days are of a clock that was set back.
        self.0.retain(|known| known.day <= day.day && !is_other(known));
        let is_shorter = self.0.len() < before;
        let is_known = self.0.last().is_some_and(|last| last.day == day.day);
        if !is_known {
            self.0.push(day.clone());
        }
        if is_shorter || self.0.len() > MOST_DAYS + SLACK {
            self.shorten();
            return Change::Replace(self.0.iter().map(Day::line).collect());
        }
        if is_known { Change::Nothing } else { Change::Append(day.line()) }
    }

    fn shorten(&mut self) {
        self.0.drain(..self.0.len().saturating_sub(MOST_DAYS));
    }

    /// The days, the oldest first.
    pub fn into_vec(self) -> Vec<Day> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::ToSpan;
    use jiff::civil::date;

    fn day(day: Date) -> Day {
        let reading = Reading { serial: Some("A".into()), ..Reading::default() };
        Day::of(day, Level::Ok, &reading)
    }

    #[test]
    fn a_day_has_one_line_and_a_cut_line_is_ignored() {
        let first = date(2026, 3, 1);
        let mut days = Days::default();
        let Change::Append(line) = days.add(day(first)) else { panic!("the first day") };
        assert_eq!(days.add(day(first)), Change::Nothing);
        let Change::Append(second) = days.add(day(first + 1.day())) else { panic!("the next") };
        let text = format!("{line}{}", &second[..second.len() / 2]);
        assert_eq!(Days::parse(&text).into_vec(), [day(first)]);
        assert_eq!(Days::parse(&format!("{line}{second}")), days);
    }

    #[test]
    fn two_years_are_kept() {
        let (mut days, mut text) = (Days::default(), String::new());
        for number in 0..3 * 366 {
            match days.add(day(date(2024, 1, 1) + number.days())) {
                Change::Append(line) => text += &line,
                Change::Replace(new) => text = new,
                Change::Nothing => panic!("a new day"),
            }
            assert!(text.lines().count() <= MOST_DAYS + SLACK);
        }
        let days = Days::parse(&text).into_vec();
        assert_eq!(days.len(), MOST_DAYS);
        assert_eq!(days.last(), Some(&day(date(2024, 1, 1) + (3 * 366 - 1).days())));
    }

    #[test]
    fn another_disk_and_a_clock_that_was_set_back_begin_anew() {
        let mut days = Days::default();
        days.add(day(date(2026, 3, 1)));
        days.add(day(date(2099, 1, 1)));
        let Change::Replace(text) = days.add(day(date(2026, 3, 2))) else { panic!("set back") };
        assert_eq!(text.lines().count(), 2);
        let other = Day { serial: Some("B".into()), ..day(date(2026, 3, 3)) };
        let Change::Replace(text) = days.add(other.clone()) else { panic!("another disk") };
        assert_eq!(Days::parse(&text).into_vec(), [other]);
    }
}
