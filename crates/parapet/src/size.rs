//! Parses and formats sizes.
//!
//! Input: `65536`, `64K`, `64KiB` (both 1024), `64KB` (1000), `1.5G`; case does not matter. Output:
//! binary units with their `i`, three significant digits. Rates have the same format, per second.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Size(pub(crate) u64);

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const LETTERS: &str = "kmgtpe";

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let word = text.trim().to_ascii_lowercase();
        let split = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
        let (number, unit) = (&word[..split], word[split..].trim_start());
        let factor = factor(unit).ok_or_else(|| {
            format!("{unit:?} is no unit: write K, KiB (1024), KB (1000) and so on up to E")
        })?;
        scaled(number, factor).map(Size)
    }
}

/// Returns the bytes of a unit: `k`, `kib` 1024; `kb` 1000; nothing or `b` 1.
fn factor(unit: &str) -> Option<u64> {
    if unit.is_empty() || unit == "b" {
        return Some(1);
    }
    let power = LETTERS.find(unit.chars().next()?)? as u32 + 1;
    match &unit[1..] {
        "" | "ib" => Some(1 << (10 * power)),
        "b" => 1000_u64.checked_pow(power),
        _ => None,
    }
}

/// Multiplies `number`, which may have a decimal point, by `factor`; whole bytes or an error.
fn scaled(number: &str, factor: u64) -> Result<u64, String> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.len() > 18 || number.ends_with('.') {
        return Err("a size begins with a number, such as 64K or 1.5G".into());
    }
    let digits = |text: &str| if text.is_empty() { Ok(0) } else { text.parse::<u64>() };
    let parse = |text| digits(text).map_err(|_| format!("{number} is no size"));
    let tenths = 10_u128.pow(fraction.len() as u32);
    let units = u128::from(parse(whole)?) * tenths + u128::from(parse(fraction)?);
    let beyond = "more than 16 EiB";
    let bytes = units.checked_mul(u128::from(factor)).ok_or(beyond)?;
    if !bytes.is_multiple_of(tenths) {
        return Err(format!("{number} times {factor} is not a whole number of bytes"));
    }
    u64::try_from(bytes / tenths).map_err(|_| beyond.into())
}

impl Size {
    /// Formats in powers of 1000: `65.5 kB`.
    pub(crate) fn in_thousands(self) -> String {
        scaled_text(self.0, 1000.0, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&scaled_text(self.0, 1024.0, &UNITS))
    }
}

fn scaled_text(bytes: u64, base: f64, units: &[&str; 7]) -> String {
    let mut unit = 0;
    let mut value = bytes as f64;
    // 1023.9995 would round to 1024.
    while value >= base - 0.5 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let decimals = match value {
        whole if unit == 0 || whole.fract() == 0.0 => 0,
        small if small < 10.0 => 2,
        medium if medium < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", units[unit])
}

/// Formats a duration: `45 s`, `12 min`, `3 h 10 min`, `2 d 4 h`.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        7200..172_800 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Formats an elapsed time: as [`span`], and `0.05 s` for less than a second.
pub(crate) fn took(seconds: f64) -> String {
    match seconds {
        blink if blink < 0.01 => "less than 0.01 s".into(),
        short if short < 0.995 => format!("{short:.2} s"),
        long => span(long.ceil() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512b", 512),
            ("64k", 65536),
            ("64KiB", 65536),
            ("64 KB", 64000),
            ("1.5G", 3 << 29),
            (".5k", 512),
            ("2TB", 2_000_000_000_000),
            ("16E", 0),
            ("1x", 0),
            ("K", 0),
            ("-1", 0),
            ("1.", 0),
            ("1.2.3", 0),
            ("0.0001", 0),
            ("99999999999999999999", 0),
            // Beyond 128 bits before the point is moved.
            ("1847446047370.55184744615E", 0),
            ("1kk", 0),
        ] {
            let read = text.parse::<Size>();
            match bytes {
                0 if text != "0" => assert!(read.is_err(), "{text}: {read:?}"),
                _ => assert_eq!(read, Ok(Size(bytes)), "{text}"),
            }
        }
        assert!("15.9E".parse::<Size>().is_err(), "no whole number of bytes");
    }

    #[test]
    fn sizes_are_shown() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.50 KiB"),
            (65536, "64 KiB"),
            (1_048_575, "1.00 MiB"),
            (100_000_000, "95.4 MiB"),
            (6_001_175_126_016, "5.46 TiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn spans_are_shown() {
        assert_eq!(span(119), "119 s");
        let texts = [0.001, 0.05, 0.999, 1.2, 121.0].map(took);
        assert_eq!(texts, ["less than 0.01 s", "0.05 s", "1 s", "2 s", "3 min"]);
        assert_eq!(span(121), "3 min");
        assert_eq!(span(11_400), "3 h 10 min");
        assert_eq!(span(187_200), "2 d 4 h");
    }
}
