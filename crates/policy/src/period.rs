//! Lengths of time as an administrator writes them: `90 min`, `30 days`, `2h 30m`.

use std::fmt;
use std::time::Duration;

use jiff::{Span, SpanRelativeTo};
use serde::{Deserialize, Serialize};

/// A length of time, 1 ms to 10 years. A day has 24 hours, a week 7 days.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Period(pub Duration);

/// The longest period.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 86400);

impl Period {
    /// So many seconds.
    pub const fn seconds(count: u64) -> Period {
        Period(Duration::from_secs(count))
    }

    /// So many days of 24 hours.
    pub const fn days(count: u64) -> Period {
        Period::seconds(count * 86400)
    }
}

impl TryFrom<String> for Period {
    type Error = String;

    fn try_from(text: String) -> Result<Period, String> {
        let malformed = || format!("{text:?} is no period: write it as `90 min` or `30 days`");
        let span: Span = text.parse().map_err(|_| malformed())?;
        let length = span.to_duration(SpanRelativeTo::days_are_24_hours());
        let length = length.ok().and_then(|length| Duration::try_from(length).ok());
        let length = length.ok_or_else(malformed)?;
        if length < Duration::from_millis(1) || length > LONGEST {
            return Err(format!("{text:?}: a period is between 1 ms and 10 years"));
        }
        Ok(Period(length))
    }
}

impl From<Period> for String {
    fn from(period: Period) -> String {
        period.to_string()
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("day", 86400), ("h", 3600), ("min", 60), ("s", 1)];
        let (mut rest, mut words) = (self.0.as_secs(), Vec::new());
        for (unit, seconds) in units {
            let count = rest / seconds;
            rest %= seconds;
            match (count, unit) {
                (0, _) => {}
                (2.., "day") => words.push(format!("{count} days")),
                _ => words.push(format!("{count} {unit}")),
            }
        }
        match self.0.subsec_millis() {
            0 => {}
            millis => words.push(format!("{millis} ms")),
        }
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Period, String> {
        Period::try_from(text.to_owned())
    }

    #[test]
    fn periods_are_read_and_written() {
        for (text, seconds, written) in [
            ("30s", 30, "30 s"),
            ("90 min", 5400, "1 h 30 min"),
            ("30 days", 30 * 86400, "30 days"),
            ("1 week", 7 * 86400, "7 days"),
            ("1d 2h", 93600, "1 day 2 h"),
        ] {
            assert_eq!(read(text), Ok(Period::seconds(seconds)), "{text}");
            assert_eq!(read(text).unwrap().to_string(), written);
            assert_eq!(read(written), read(text), "{written} is read back");
        }
        assert_eq!(read("20ms").unwrap().to_string(), "20 ms");
        for bad in ["", "30", "-5s", "0s", "11 years", "1 month", "a while"] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
