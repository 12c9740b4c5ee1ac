//! The meaning of a member's bytes: superblock, bitmap, log, data, parity.
//!
//! Made from a member's own superblock when a crash or a rot wants to choose by it. Owns nothing of
//! the array; a disk that no superblock can be read from is all `Other`.

use std::ops::Range;
use std::rc::Rc;

use layout::md::ByteMap;
use layout::{Geometry, Owner, Slot};

use crate::check;
use crate::disk::SimDisk;
use crate::mark::Part;

/// The parts of one member.
pub struct Parts {
    map: Option<ByteMap>,
    log: Option<Range<u64>>,
    assignment: Option<(Geometry, Slot)>,
}

impl Parts {
    /// The parts of this disk, which holds this slot, if any, of an array of this shape.
    pub fn of(disk: &Rc<SimDisk>, assignment: Option<(Geometry, Slot)>) -> Parts {
        let map = check::member(disk).ok().map(|member| member.map);
        let log = map.as_ref().and_then(ByteMap::private_parts).map(|parts| parts.log);
        Parts { map, log, assignment }
    }

    /// The part at this offset.
    pub fn at(&self, offset: u64) -> Part {
        let Some(map) = &self.map else { return Part::Other };
        let within = |range: &Option<Range<u64>>| {
            range.as_ref().is_some_and(|range| range.contains(&offset))
        };
        if map.data.contains(&offset) {
            let Some((geometry, slot)) = &self.assignment else { return Part::Data };
            let at = offset - map.data.start;
            if at >= geometry.member_bytes(*slot) {
                return Part::Other;
            }
            return match geometry.owner(*slot, at) {
                Owner::P { .. } | Owner::Q { .. } => Part::Parity,
                _ => Part::Data,
            };
        }
        match () {
            () if map.superblock.contains(&offset) => Part::Superblock,
            () if within(&map.bitmap) => Part::Bitmap,
            () if within(&self.log) || within(&map.ppl) => Part::Log,
            () if within(&map.private) => Part::Private,
            () => Part::Other,
        }
    }

    /// Where there is room for a table of checksums.
    pub fn tables(&self) -> Option<Range<u64>> {
        Some(self.map.as_ref()?.private_parts()?.checksums)
    }

    /// Where the table of checksums lies, as far as the member's data needs it.
    pub fn table(&self) -> Option<Range<u64>> {
        let (geometry, slot) = self.assignment.as_ref()?;
        let table = self.map.as_ref()?.private_parts()?.checksums;
        let entries = geometry.member_bytes(*slot) / 4096;
        (!table.is_empty()).then(|| table.start..table.start + entries * 8)
    }

    /// Where a part lies that lies in one piece.
    pub fn range(&self, part: Part) -> Option<Range<u64>> {
        let map = self.map.as_ref()?;
        match part {
            Part::Superblock => Some(map.superblock.clone()),
            Part::Bitmap => map.bitmap.clone(),
            Part::Log => self.log.clone(),
            Part::Private => map.private.clone(),
            Part::Data | Part::Parity => Some(map.data.clone()),
            Part::Other => None,
        }
    }
}
