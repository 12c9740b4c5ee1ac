//! Verification of reads against checksums. Decides whether a block matches; never decides which
//! member is wrong.
//!
//! A read of a healthy range takes no lock: a write in flight may have changed the block but not
//! yet its entry. So a mismatch is checked again under the lock of its row before it counts.

use std::ops::Range;
use std::rc::Rc;

use io::Buf;
use io::broken::{Broken, broken};
use layout::plan::Method;
use layout::private::checksums::blocks;
use layout::{Family, Mode, Place, Slot, SlotSet};

use crate::member::{Member, View};
use crate::rows::checksum::{BLOCK, ChecksumTable};
use crate::rows::engine::{Engine, RowOp};
use crate::rows::{Piece, RowWork};

/// The result of comparing a block with its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Right,
    /// The block has no checksum.
    Unknown,
    Wrong,
}

impl ChecksumTable {
    /// Judges a block with this CRC.
    pub(super) fn judge(&self, member: &Member, slot: Slot, block: u64, crc: u32) -> Verdict {
        let entry = self.entry(member.id, block);
        match entry.is_known() {
            false => Verdict::Unknown,
            true if self.fits(entry, (slot, block), crc) => Verdict::Right,
            true => Verdict::Wrong,
        }
    }

    /// The first wrong block in bytes of a slot from `at` on. Partial blocks are not verified: they
    /// were read before the checksums were valid.
    pub(crate) fn find_wrong(
        &self,
        member: &Member,
        slot: Slot,
        at: u64,
        bytes: &[u8],
    ) -> Option<Range<u64>> {
        blocks(at..at + bytes.len() as u64).find_map(|(block, range)| {
            if range.end - range.start < BLOCK {
                return None;
            }
            let bytes = &bytes[(range.start - at) as usize..(range.end - at) as usize];
            let crc = parity::crc32c(0, bytes);
            let wrong = self.judge(member, slot, block, crc) == Verdict::Wrong;
            wrong.then_some(range)
        })
    }
}

impl ChecksumTable {
    /// Counts checksum mismatches in bytes of a slot from `at` on.
    pub(crate) fn count_wrong(&self, member: &Member, slot: Slot, at: u64, bytes: &[u8]) -> u64 {
        let (mut count, mut begin) = (0, 0);
        while let Some(wrong) = self.find_wrong(member, slot, at + begin, &bytes[begin as usize..])
        {
            count += 1;
            begin = wrong.end - at;
        }
        count
    }
}

impl Engine {
    /// The checksums, if those of this array range are valid.
    pub(crate) fn checksums_of(&self, offset: u64, len: u64) -> Option<&ChecksumTable> {
        self.checksums.as_ref().filter(|checksums| checksums.counts(offset, len))
    }

    /// An array range made of whole blocks around this one; itself where there are no checksums.
    pub(crate) fn widened(&self, (offset, len): (u64, u64)) -> (u64, u64) {
        if self.checksums.is_none() {
            return (offset, len);
        }
        let start = offset / BLOCK * BLOCK;
        let end = (offset + len).next_multiple_of(BLOCK).min(self.setup.geometry.capacity());
        (start, end - start)
    }

    /// True if this array range may be read without the rest of `wide`: the first and last block of
    /// `wide` have no checksum, and no other member can supply them.
    pub(crate) fn may_read_parts(&self, range: (u64, u64), wide: (u64, u64)) -> bool {
        let (Some(checksums), view) = (self.checksums_of(wide.0, wide.1), self.view()) else {
            return false;
        };
        let unknown = |slot: Slot, at: u64| {
            let entry = |member: &Rc<Member>| {
                let known = checksums.entry(member.id, at / BLOCK).is_known();
                checksums.is_there(member.id, at / BLOCK) && !known
            };
            view.member(slot).is_some_and(entry)
        };
        let edges = [wide.0, wide.0 + wide.1 - BLOCK.min(wide.1)];
        if self.setup.geometry.family() != Family::Parity {
            return edges.into_iter().all(|at| {
                let places = self.setup.geometry.places(at);
                let mut there = places.copies().filter(|place| view.member(place.slot).is_some());
                there.all(|place| unknown(place.slot, place.member_offset))
            });
        }
        let each = |at| self.each_chunk(at, BLOCK.min(wide.1));
        self.can_read_directly(&view, range)
            && edges.into_iter().flat_map(each).all(|(slot, at, ..)| unknown(slot, at))
    }

    /// Marks slots of the rows whose blocks do not match their checksums. False if there are any.
    pub(crate) fn check_pieces(&self, view: &View, rows: &mut [RowWork], pieces: &[Piece]) -> bool {
        let (mut right, stripe_bytes) = (true, self.setup.geometry.stripe_bytes());
        for row in rows {
            let Some(checksums) =
                self.checksums_to_verify(view, self.stripe_offset(row.row.stripe), stripe_bytes)
            else {
                continue;
            };
            for piece in &pieces[row.first..row.first + row.count] {
                let (Some(buf), Some(member)) = (&piece.buf, view.member(piece.slot)) else {
                    continue;
                };
                if piece.failed || broken(Broken::ChecksumsUnchecked) {
                    continue;
                }
                self.setup.clock.charge(io::Cost::Checksum, buf.len() as u64);
                if checksums.find_wrong(member, piece.slot, row.at(), buf).is_some() {
                    row.wrong.insert(piece.slot);
                    right = false;
                }
            }
        }
        right
    }

    /// True if the recovered bytes match the entries of the unreadable blocks. They may not,
    /// because the rest of the row may have lost a write together with its entry.
    pub(crate) fn recovered_fits(&self, view: &View, row: &RowWork, pieces: &[Piece]) -> bool {
        // On a read-only array the entry itself may be known to be wrong.
        let judged = view.mode == Mode::ReadWrite;
        !judged || self.fits_entries(view, row, pieces, row.bad.difference(row.contradicted))
    }

    /// True if the recovered bytes of these slots match their entries.
    pub(crate) fn fits_entries(
        &self,
        view: &View,
        row: &RowWork,
        pieces: &[Piece],
        slots: SlotSet,
    ) -> bool {
        let (offset, bytes) =
            (self.stripe_offset(row.row.stripe), self.setup.geometry.stripe_bytes());
        let Some(Method::Recover(erasure)) = row.plan.map(|plan| plan.method) else { return true };
        let judged = !broken(Broken::RecoveredUnjudged);
        let Some(checksums) = self.checksums_of(offset, bytes).filter(|_| judged) else {
            return true;
        };
        // Blocks not rebuilt yet, or listed as bad, have entries for other contents.
        let holds = |slot: &Slot| view.is_readable(*slot, offset + bytes, row.at(), row.row.len());
        let unread: SlotSet = slots.intersection(erasure.lost()).iter().filter(holds).collect();
        if unread.is_empty() {
            return true;
        }
        let (x, y) = self.recover_row(row, erasure, pieces);
        erasure.lost().iter().zip([x, y]).filter(|(slot, _)| unread.contains(*slot)).all(
            |(slot, bytes)| {
                let member = view.member(slot);
                member.is_none_or(|m| checksums.find_wrong(m, slot, row.at(), &bytes).is_none())
            },
        )
    }
}

impl RowOp<'_> {
    /// Adds the blocks that the rows in `work` read and write to the wanted checksums.
    pub(crate) fn add_wanted_rows(&mut self, view: &View) {
        self.work.wanted.clear();
        for number in 0..self.work.rows.len() {
            let row = self.work.rows[number];
            let Some(plan) = row.plan else { continue };
            for slot in plan.read.union(plan.write).iter() {
                let range = row.at()..row.at() + row.row.len();
                self.work.add_wanted(view.targets(slot), slot, range);
            }
        }
    }

    /// Brings the pages into memory that a read of this array range needs. False if a member
    /// failed.
    pub(crate) async fn load_for_read(&mut self, view: &View, (offset, len): (u64, u64)) -> bool {
        if self.engine.checksums_to_verify(view, offset, len).is_none() {
            return true;
        }
        self.work.wanted.clear();
        if self.engine.setup.geometry.family() == Family::Parity {
            for (slot, at, part, _) in self.engine.each_chunk(offset, len) {
                self.work.add_wanted(view.member(slot), slot, at..at + part);
            }
        } else {
            for (number, (_, part, _)) in self.engine.stretches(offset, len).enumerate() {
                let Place { slot, member_offset: at } = self.work.chosen[number];
                self.work.add_wanted(view.member(slot), slot, at..at + part);
            }
        }
        self.load_checksums().await
    }

    /// Brings the pages of one copy of a stretch into memory. False if the member failed.
    pub(crate) async fn load_for_copy(
        &mut self,
        member: &Rc<Member>,
        place: &Place,
        len: u64,
    ) -> bool {
        if self.engine.checksums.is_none() {
            return true;
        }
        let start = place.member_offset;
        self.work.wanted.clear();
        self.work.add_wanted([member], place.slot, start..start + len);
        self.load_checksums().await
    }

    /// True if whole blocks read for clients match their checksums.
    pub(crate) fn check_read(&self, view: &View, (offset, len): (u64, u64), bufs: &[Buf]) -> bool {
        let Some(checksums) = self.engine.checksums_to_verify(view, offset, len) else {
            return true;
        };
        self.engine.setup.clock.charge(io::Cost::Checksum, len);
        let mut rest = Rest { bufs, skip: 0 };
        let mut fits = |slot: Slot, at: u64, len: u64| {
            let Some(member) = view.member(slot) else { return false };
            blocks(at..at + len).all(|(block, range)| {
                let len = range.end - range.start;
                let crc = rest.crc(len as usize);
                len < BLOCK || checksums.judge(member, slot, block, crc) != Verdict::Wrong
            })
        };
        let right = if self.engine.setup.geometry.family() == Family::Parity {
            self.engine.each_chunk(offset, len).all(|(slot, at, part, _)| fits(slot, at, part))
        } else {
            let stretches = self.engine.stretches(offset, len).map(|(_, part, _)| part);
            let mut places = self.work.chosen.iter().zip(stretches);
            places.all(|(place, part)| fits(place.slot, place.member_offset, part))
        };
        right || broken(Broken::ChecksumsUnchecked)
    }
}

/// Bytes spread over several buffers.
struct Rest<'a> {
    bufs: &'a [Buf],
    skip: usize,
}

impl Rest<'_> {
    /// The CRC of the next `len` bytes.
    fn crc(&mut self, len: usize) -> u32 {
        let (mut left, mut crc) = (len, 0);
        while let Some(buf) = self.bufs.first().filter(|_| left > 0) {
            let part = &buf[self.skip..buf.len().min(self.skip + left)];
            crc = parity::crc32c(crc, part);
            left -= part.len();
            self.skip += part.len();
            if self.skip == buf.len() {
                (self.bufs, self.skip) = (&self.bufs[1..], 0);
            }
        }
        crc
    }
}
