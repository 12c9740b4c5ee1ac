//! The UUIDs, names and time stamps of md's metadata.
//!
//! Owns how they are stored and shown. Never makes one up: randomness and time come from the
//! caller.

use alloc::string::String;
use core::fmt;

/// The identity of an array or of a member: sixteen bytes, stored and shown in the same order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Reads 32 hexadecimal digits; `:` and `-` between them are skipped, so md's way of writing
    /// and RFC 9562's are both understood. `None` if there are more, fewer, or other characters.
    pub fn parse(text: &str) -> Option<Uuid> {
        let mut bytes = [0; 16];
        let mut digits = 0;
        for character in text.chars().filter(|&c| c != ':' && c != '-') {
            let value = character.to_digit(16)? as u8;
            let byte: &mut u8 = bytes.get_mut(digits / 2)?;
            *byte = *byte << 4 | value;
            digits += 1;
        }
        (digits == 32).then_some(Uuid(bytes))
    }

    /// The form of RFC 9562: `8-4-4-4-12` digits (as in `/dev/disk/by-uuid` and blkid).
    pub fn rfc(self) -> impl fmt::Display {
        Grouped { uuid: self, groups: &[4, 2, 2, 2, 6], separator: '-' }
    }

    fn md(self) -> Grouped {
        Grouped { uuid: self, groups: &[4, 4, 4, 4], separator: ':' }
    }
}

/// md's form: four groups of eight digits, as mdadm prints and reads them.
impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.md().fmt(f)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

/// A UUID with a way to cut it into groups of bytes.
struct Grouped {
    uuid: Uuid,
    groups: &'static [usize],
    separator: char,
}

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = &self.uuid.0[..];
        for (index, &group) in self.groups.iter().enumerate() {
            if index > 0 {
                write!(f, "{}", self.separator)?;
            }
            let (head, tail) = rest.split_at(group);
            head.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            rest = tail;
        }
        Ok(())
    }
}

/// The most bytes of an array's name.
pub const NAME_BYTES: usize = 32;

/// The name of an array, `host:name` or `name`: at most [`NAME_BYTES`], padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Name(pub [u8; NAME_BYTES]);

impl Name {
    /// `None` if the text is longer than [`NAME_BYTES`] or contains a NUL.
    pub fn new(text: &str) -> Option<Name> {
        let mut bytes = [0; NAME_BYTES];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        (!text.contains('\0')).then_some(Name(bytes))
    }

    /// The bytes before the padding.
    pub fn as_bytes(&self) -> &[u8] {
        let length = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        &self.0[..length]
    }

    /// The part after `host:`, or all of it.
    pub fn short(&self) -> String {
        let bytes = self.as_bytes();
        let start = bytes.iter().position(|&byte| byte == b':').map_or(0, |colon| colon + 1);
        String::from_utf8_lossy(&bytes[start..]).into_owned()
    }
}

/// The name as text; unprintable bytes are escaped, because a name comes from a disk.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in String::from_utf8_lossy(self.as_bytes()).chars() {
            match character.is_control() {
                true => write!(f, "{}", character.escape_default())?,
                false => write!(f, "{character}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

/// A moment as md stores it: seconds since 1970 in the low 40 bits, microseconds in the high 24.
///
/// The kernel writes no microseconds into `utime`; Parapet keeps a random tag there (see
/// [`crate::private`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    const SECONDS: u64 = (1 << 40) - 1;

    /// # Panics
    /// If `seconds` needs more than 40 bits or `micros` is a second or more.
    pub const fn new(seconds: u64, micros: u32) -> Timestamp {
        assert!(seconds <= Timestamp::SECONDS && micros < 1_000_000);
        Timestamp(seconds | (micros as u64) << 40)
    }

    /// Whole seconds since 1970.
    pub const fn seconds(self) -> u64 {
        self.0 & Timestamp::SECONDS
    }

    /// The 24 bits for microseconds; a foreign writer may have put more than 999,999 there.
    pub const fn micros(self) -> u32 {
        (self.0 >> 40) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const TEXT: &str = "00112233:44556677:8899aabb:ccddeeff";

    #[test]
    fn a_uuid_has_two_written_forms() {
        let uuid = Uuid::parse(TEXT).unwrap();
        assert_eq!(uuid.0[0], 0);
        assert_eq!(uuid.0[15], 0xff);
        assert_eq!(uuid.to_string(), TEXT);
        assert_eq!(uuid.rfc().to_string(), "00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(Uuid::parse(&uuid.rfc().to_string()), Some(uuid));
    }

    #[test]
    fn an_invalid_uuid_is_refused() {
        for text in ["", "00112233", &TEXT[1..], &[TEXT, "0"].concat(), &TEXT.replace('f', "g")] {
            assert_eq!(Uuid::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_name_fills_at_most_32_bytes_and_is_shown_escaped() {
        let name = Name::new("host:data").unwrap();
        assert_eq!((name.to_string().as_str(), name.short().as_str()), ("host:data", "data"));
        assert_eq!(Name::new("plain").unwrap().short(), "plain");
        assert!(Name::new(&"x".repeat(32)).is_some());
        assert!(Name::new(&"x".repeat(33)).is_none());
        assert!(Name::new("a\0b").is_none());
        assert_eq!(Name::new("a\u{1b}[2J").unwrap().to_string(), "a\\u{1b}[2J");
        let mut raw = [0xff; 32];
        raw[0] = b'a';
        assert!(Name(raw).to_string().starts_with('a'));
    }

    #[test]
    fn a_timestamp_keeps_seconds_and_microseconds_apart() {
        let time = Timestamp::new(1_700_000_000, 999_999);
        assert_eq!((time.seconds(), time.micros()), (1_700_000_000, 999_999));
        assert_eq!(time.0, 1_700_000_000 | 999_999 << 40);
    }
}
