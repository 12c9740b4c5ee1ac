//! The feature map of a v1 superblock.
//!
//! Owns the bits and their names. A kernel refuses an array with an unknown bit, so Parapet never
//! sets a bit of its own; it preserves and reports unknown bits.

use core::fmt;

/// A set of feature bits (byte 8 of the superblock).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features(pub u32);

impl Features {
    /// No feature.
    pub const NONE: Features = Features(0);
    /// `bitmap_offset` is valid: there is a write-intent bitmap.
    pub const BITMAP: Features = Features(1);
    /// `recovery_offset` is valid: this member is only rebuilt up to there.
    pub const RECOVERY_OFFSET: Features = Features(2);
    /// The `new_*` fields and `reshape_position` are valid.
    pub const RESHAPE: Features = Features(4);
    /// The bad-block log has entries.
    pub const BAD_BLOCKS: Features = Features(8);
    /// This member is a copy in the making of another one with the same role.
    pub const REPLACEMENT: Features = Features(16);
    /// The reshape runs from the end to the start.
    pub const RESHAPE_BACKWARDS: Features = Features(32);
    /// `new_offset` is valid: the data moves on the member.
    pub const NEW_OFFSET: Features = Features(64);
    /// The recovery is guided by the bitmap.
    pub const RECOVERY_BITMAP: Features = Features(128);
    /// The array is shared by a cluster, one bitmap per node.
    pub const CLUSTERED: Features = Features(256);
    /// The array has a journal device.
    pub const JOURNAL: Features = Features(512);
    /// There is a partial parity log with one header.
    pub const PPL: Features = Features(1024);
    /// There is a partial parity log used as a ring of several.
    pub const MULTIPLE_PPLS: Features = Features(2048);
    /// `layout` names the RAID 0 layout in use.
    pub const RAID0_LAYOUT: Features = Features(4096);

    const NAMES: [(Features, &'static str); 13] = [
        (Features::BITMAP, "bitmap"),
        (Features::RECOVERY_OFFSET, "recovery-offset"),
        (Features::RESHAPE, "reshape"),
        (Features::BAD_BLOCKS, "bad-blocks"),
        (Features::REPLACEMENT, "replacement"),
        (Features::RESHAPE_BACKWARDS, "reshape-backwards"),
        (Features::NEW_OFFSET, "new-offset"),
        (Features::RECOVERY_BITMAP, "recovery-bitmap"),
        (Features::CLUSTERED, "clustered"),
        (Features::JOURNAL, "journal"),
        (Features::PPL, "ppl"),
        (Features::MULTIPLE_PPLS, "multiple-ppls"),
        (Features::RAID0_LAYOUT, "raid0-layout"),
    ];

    /// All bits with a name: those of Linux 6.1 to 6.19.
    pub const KNOWN: Features = Features((1 << Features::NAMES.len()) - 1);
    /// Either form of a partial parity log.
    pub const ANY_PPL: Features = Features(Features::PPL.0 | Features::MULTIPLE_PPLS.0);

    /// True if all bits of `other` are set.
    pub const fn contains(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if a bit of `other` is set.
    pub const fn intersects(self, other: Features) -> bool {
        self.0 & other.0 != 0
    }

    /// The consistency policy: is it a bitmap, and is it a partial parity log in either form?
    pub const fn consistency(self) -> (bool, bool) {
        (self.contains(Features::BITMAP), self.intersects(Features::ANY_PPL))
    }

    /// The set with `other` in it.
    #[must_use]
    pub const fn with(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }

    /// The set without `other`.
    #[must_use]
    pub const fn without(self, other: Features) -> Features {
        Features(self.0 & !other.0)
    }

    /// The unknown bits. An array with one must not be written.
    pub const fn unknown(self) -> Features {
        self.without(Features::KNOWN)
    }

    /// The names of the known bits that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let set = Features::NAMES.into_iter().filter(move |&(bit, _)| self.contains(bit));
        set.map(|(_, name)| name)
    }
}

/// The names, with commas; unknown bits as one hexadecimal number.
impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for name in self.names() {
            write!(f, "{comma}{name}")?;
            comma = ",";
        }
        match self.unknown() {
            Features::NONE => Ok(()),
            unknown => write!(f, "{comma}unknown({:#x})", unknown.0),
        }
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Features({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_known_bit_has_a_name_and_the_rest_is_reported() {
        assert_eq!(Features::KNOWN.0, 0x1fff);
        assert_eq!(Features::KNOWN.names().count(), 13);
        assert_eq!(Features(0).to_string(), "");
        assert_eq!(Features(1 | 8 | 1 << 20).to_string(), "bitmap,bad-blocks,unknown(0x100000)");
        assert_eq!(Features(u32::MAX).unknown().0, 0xffff_e000);
    }
}
