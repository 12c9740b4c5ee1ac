//! Fields of an on-disk structure, and their faults.
//!
//! Owns the way a number lies in bytes. Each structure has one `const` table of [`Field`]s, made by
//! `fields!`; printing and parsing both go through it, so an offset is written down once. Never
//! judges a value: that is the business of the structure.
//!
//! Invariant: a table covers its structure without gap or overlap (checked when it is compiled).

use core::fmt;

/// A named run of bytes in an on-disk structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// The field's name in the format's documentation.
    pub name: &'static str,
    /// Bytes from the start of the structure.
    pub offset: usize,
    /// Length in bytes.
    pub size: usize,
}

impl Field {
    /// The field's bytes. The structure's length must have been checked.
    #[inline]
    pub(crate) fn bytes(self, structure: &[u8]) -> &[u8] {
        &structure[self.offset..self.offset + self.size]
    }

    /// The field as a little-endian number of at most eight bytes.
    #[inline]
    pub(crate) fn get(self, structure: &[u8]) -> u64 {
        assert!(self.size <= 8, "a field this long is not a number");
        let bytes = self.bytes(structure);
        bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
    }

    /// The field as a big-endian number of at most eight bytes.
    pub(crate) fn get_big(self, structure: &[u8]) -> u64 {
        assert!(self.size <= 8, "a field this long is not a number");
        self.bytes(structure).iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
    }

    /// The field as a little-endian number of four bytes.
    #[inline]
    pub(crate) fn get_u32(self, structure: &[u8]) -> u32 {
        assert!(self.size == 4, "not a field of four bytes");
        u32::from_le_bytes(self.array(structure))
    }

    /// The field as a little-endian two's complement number of four bytes.
    pub(crate) fn get_i32(self, structure: &[u8]) -> i32 {
        self.get_u32(structure) as i32
    }

    /// The field as an array; `N` must be its size.
    #[inline]
    pub(crate) fn array<const N: usize>(self, structure: &[u8]) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(structure));
        array
    }

    /// Writes the low bytes of `value`, little-endian.
    #[inline]
    pub(crate) fn put(self, structure: &mut [u8], value: u64) {
        assert!(self.size == 8 || value >> (8 * self.size) == 0, "the value does not fit");
        self.put_bytes(structure, &value.to_le_bytes()[..self.size]);
    }

    /// Writes a two's complement number into a field of four bytes.
    pub(crate) fn put_i32(self, structure: &mut [u8], value: i32) {
        self.put(structure, u64::from(value as u32));
    }

    /// Writes `bytes`, which must have the field's size.
    #[inline]
    pub(crate) fn put_bytes(self, structure: &mut [u8], bytes: &[u8]) {
        structure[self.offset..self.offset + self.size].copy_from_slice(bytes);
    }

    /// The error that this field of `structure`, holding `value`, has `fault`.
    pub(crate) const fn wrong(
        self,
        structure: &'static str,
        value: u64,
        fault: Fault,
    ) -> ParseError {
        ParseError { structure, field: self.name, offset: self.offset as u64, value, fault }
    }
}

/// True if `fields` cover `size` bytes in order, without gap or overlap.
pub(crate) const fn contiguous(fields: &[Field], size: usize) -> bool {
    let mut next = 0;
    let mut index = 0;
    while index < fields.len() {
        if fields[index].offset != next {
            return false;
        }
        next += fields[index].size;
        index += 1;
    }
    next == size
}

/// Makes a module `at` with one constant per field, and `FIELDS`, the table of all of them; refuses
/// to compile unless the table covers exactly `$total` bytes.
macro_rules! fields {
    ($total:expr; $($constant:ident $name:literal $offset:literal $size:literal)*) => {
        pub(crate) mod at {
            #![allow(dead_code)] // a pad has a name but no reader
            use $crate::md::field::{Field, contiguous};
            $(pub(crate) const $constant: Field =
                Field { name: $name, offset: $offset, size: $size };)*
            pub(crate) const FIELDS: &[Field] = &[$($constant),*];
            const _: () = assert!(contiguous(FIELDS, $total), "the table has a gap or an overlap");
        }
    };
}
pub(crate) use fields;

/// Why bytes are not the expected structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The structure, as a person would call it.
    pub structure: &'static str,
    /// The name of the field at fault.
    pub field: &'static str,
    /// Where the field lies: bytes from the start of the structure.
    pub offset: u64,
    /// The field's value; for a truncated structure, the required number of bytes.
    pub value: u64,
    /// The fault.
    pub fault: Fault,
}

impl ParseError {
    /// True if a write that a crash interrupted explains it: other bytes, too few, or a wrong
    /// checksum. Otherwise the checksum is right: the structure was written like this, and is
    /// damaged or of a version that this program cannot read.
    pub const fn may_be_torn(&self) -> bool {
        matches!(self.fault, Fault::Truncated { .. } | Fault::Magic | Fault::Checksum { .. })
    }
}

/// The faults of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The bytes given end before the structure does.
    Truncated {
        /// How many bytes there were.
        have: u64,
    },
    /// Not the magic number of this structure: something else lies here, or nothing.
    Magic,
    /// Any value but this one is an error.
    Unequal {
        /// The only value allowed.
        expected: u64,
    },
    /// Larger than allowed.
    Above {
        /// The largest value allowed.
        most: u64,
    },
    /// Smaller than allowed.
    Below {
        /// The smallest value allowed.
        least: u64,
    },
    /// The stored checksum is not that of the bytes.
    Checksum {
        /// The checksum of the bytes.
        computed: u64,
    },
    /// Reserved bytes that are not zero (the value is the byte at the offset).
    Reserved,
    /// Known and refused: the text names it.
    Refused(&'static str),
    /// In contradiction with another field: the text says which.
    Conflict(&'static str),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParseError { structure, field, offset, value, fault } = *self;
        if let Fault::Truncated { have } = fault {
            return write!(f, "{structure}: {have} bytes end before byte {value} ({field})");
        }
        if let Fault::Checksum { computed } = fault {
            return write!(
                f,
                "{structure}: damaged, its checksum is wrong: {field} at byte {offset} is \
                 {value:#x}, its bytes give {computed:#x}"
            );
        }
        write!(f, "{structure}: {field} at byte {offset} is {value} ({value:#x}): ")?;
        match fault {
            Fault::Truncated { .. } | Fault::Checksum { .. } => Ok(()),
            Fault::Magic => write!(f, "not the magic number"),
            Fault::Unequal { expected } => write!(f, "must be {expected}"),
            Fault::Above { most } => write!(f, "at most {most} is possible"),
            Fault::Below { least } => write!(f, "at least {least} is needed"),
            Fault::Reserved => write!(f, "reserved bytes must be zero"),
            Fault::Refused(why) | Fault::Conflict(why) => write!(f, "{why}"),
        }
    }
}

impl core::error::Error for ParseError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_table_with_a_gap_or_an_overlap_is_noticed() {
        let field = |offset, size| Field { name: "x", offset, size };
        assert!(contiguous(&[field(0, 4), field(4, 8)], 12));
        assert!(!contiguous(&[field(0, 4), field(5, 8)], 13), "gap");
        assert!(!contiguous(&[field(0, 4), field(3, 8)], 11), "overlap");
        assert!(!contiguous(&[field(0, 4)], 5), "short");
    }

    #[test]
    fn numbers_are_little_endian_unless_said_otherwise() {
        let field = Field { name: "x", offset: 1, size: 4 };
        let mut bytes = [0; 6];
        field.put(&mut bytes, 0x1234_5678);
        assert_eq!(bytes, [0, 0x78, 0x56, 0x34, 0x12, 0]);
        assert_eq!(field.get(&bytes), 0x1234_5678);
        assert_eq!(field.get_big(&bytes), 0x7856_3412);
        field.put_i32(&mut bytes, -2);
        assert_eq!(field.get_i32(&bytes), -2);
        assert_eq!(field.get(&bytes), 0xffff_fffe);
    }

    #[test]
    fn an_error_names_field_value_and_offset() {
        let field = Field { name: "max_dev", offset: 220, size: 4 };
        let text = field.wrong("superblock", 5000, Fault::Above { most: 1920 }).to_string();
        for part in ["superblock", "max_dev", "byte 220", "5000", "1920"] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }
}
