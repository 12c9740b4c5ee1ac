//! Who is behind: generations, where blocks contradict each other though each fits its own entry
//! (`layout::private::checksums` has the theory).
//!
//! ```text
//!   write      data + 1, parity + the weights of what is written     nothing else is looked at
//!   rebuild,   a row, or copies, that agree: parity and copies are   so that what was not made by
//!   scrub, …   given the generations that go with the data           writes tells no tales
//! ```
//!
//! Owns both rules, and the verdict. Where a row has entries that nobody knows, it has no verdict.

use std::rc::Rc;

use io::broken::{Broken, broken};
use layout::private::checksums::{
    Behind, ChecksumEntry, behind, blocks, parity_generation, weight,
};
use layout::{MemberId, Place, RangeSet, Slot};

use crate::member::Member;
use crate::member::view::View;
use crate::rows::RowWork;
use crate::rows::checksum::verdict::newest;
use crate::rows::checksum::{ChecksumTable, Wanted};
use crate::rows::engine::Engine;
use crate::rows::op::RowOp;

/// What a row adds to the generation of its parity when these data indices are written.
pub(crate) fn weights(written: impl Iterator<Item = usize>) -> u32 {
    written.map(weight).fold(0, u32::wrapping_add)
}

impl ChecksumTable {
    /// The generations of a block of these members; `None` if one of them is not known.
    fn generations<'a>(
        &self,
        members: impl Iterator<Item = Option<&'a Rc<Member>>>,
        block: u64,
    ) -> Option<Vec<u32>> {
        let each = members.map(|member| {
            let entry = self.entry(member?.id, block);
            entry.is_known().then_some(entry.generation)
        });
        each.collect()
    }

    /// Gives a known entry of a slot's block this generation.
    fn age(&self, member: MemberId, (slot, block): (Slot, u64), generation: u32) {
        let entry = self.entry(member, block);
        let aged = entry.aged(generation, self.checksum_of_zeros(slot, block));
        if entry.is_known() && aged != entry {
            self.set(member, block, aged);
        }
    }
}

impl RowOp<'_> {
    /// Gives the parity of rows that agree the generations that go with their data, and the copy
    /// that is made of a slot those of the original.
    pub(crate) async fn align_rows(&mut self, view: &View, rows: &[RowWork]) {
        self.align_undisputed(view, rows, &RangeSet::default()).await;
    }

    /// As [`RowOp::align_rows`], but for blocks of the rows in which something is `left` in
    /// dispute: what their generations tell stays.
    pub(crate) async fn align_undisputed(
        &mut self,
        view: &View,
        rows: &[RowWork],
        left: &RangeSet,
    ) {
        let Some(checksums) = &self.engine.checksums else { return };
        if broken(Broken::RowsUnaligned) {
            return;
        }
        self.work.wanted.clear();
        for row in rows {
            let range = row.at()..row.at() + row.row.len();
            for slot in row.roles.all().iter() {
                let wanted =
                    |member| Wanted { member: Rc::clone(member), slot, range: range.clone() };
                self.work.wanted.extend(view.targets(slot).map(wanted));
            }
        }
        if !self.load_checksums().await {
            // Who fails here fails again where it matters.
            return self.work.failures.clear();
        }
        for row in rows {
            for (block, range) in blocks(row.at()..row.at() + row.row.len()) {
                if !left.overlaps(range.start - row.at()..range.end - row.at()) {
                    self.engine.align_block(checksums, view, row, block);
                }
            }
        }
    }

    /// Gives copies of a stretch of so many bytes the generation of the newest of them, where they
    /// are alike.
    pub(crate) async fn align_copies(
        &mut self,
        view: &View,
        places: &layout::Places,
        len: u64,
        left: &RangeSet,
    ) {
        let Some(checksums) = &self.engine.checksums else { return };
        if broken(Broken::RowsUnaligned) {
            return;
        }
        self.work.wanted.clear();
        for Place { slot, member_offset: at } in places.copies() {
            let wanted = |member| Wanted { member: Rc::clone(member), slot, range: at..at + len };
            self.work.wanted.extend(view.targets(slot).map(wanted));
        }
        if !self.load_checksums().await {
            return self.work.failures.clear();
        }
        let wanted = std::mem::take(&mut self.work.wanted);
        let first = |wanted: &Wanted| wanted.range.start / super::BLOCK;
        let disputed = |number| left.overlaps(number * super::BLOCK..(number + 1) * super::BLOCK);
        for number in (0..len.div_ceil(super::BLOCK)).filter(|&number| !disputed(number)) {
            let entries = wanted.iter().map(|w| checksums.entry(w.member.id, first(w) + number));
            let newest = newest(entries.map(|entry| entry.is_known().then_some(entry.generation)));
            for (copy, wanted) in
                newest.into_iter().flat_map(|age| wanted.iter().map(move |w| (age, w)))
            {
                checksums.age(wanted.member.id, (wanted.slot, first(wanted) + number), copy);
            }
        }
        self.work.wanted = wanted;
    }
}

impl Engine {
    fn align_block(&self, checksums: &ChecksumTable, view: &View, row: &RowWork, block: u64) {
        for slot in row.roles.data.iter() {
            let Some(original) = view.member(slot).map(|m| checksums.entry(m.id, block)) else {
                continue;
            };
            let alike = |id| {
                let ChecksumEntry { checksum, .. } = checksums.entry(id, block);
                checksum == original.checksum && original.is_known()
            };
            for replacement in view.targets(slot).filter(|member| alike(member.id)) {
                checksums.age(replacement.id, (slot, block), original.generation);
            }
        }
        let data = (0..row.map.data_count()).map(|index| view.member(row.map.data(index)));
        let Some(data) = checksums.generations(data, block) else { return };
        let due = parity_generation(data.into_iter());
        for slot in row.roles.parity().iter() {
            view.targets(slot).for_each(|member| checksums.age(member.id, (slot, block), due));
        }
    }

    /// The slot that has lost writes to a block of a row (from the start of its members' data), and
    /// its entries with them.
    pub(crate) fn behind(&self, view: &View, row: &RowWork, block: u64) -> Option<Slot> {
        let stripe = self.stripe_offset(row.row.stripe);
        let checksums = self.checksums_of(stripe, self.setup.geometry.stripe_bytes())?;
        // Each write asks, so nothing is allocated here.
        let generation = |slot| {
            let entry = checksums.entry(view.member(slot)?.id, block);
            entry.is_known().then_some(entry.generation)
        };
        let parity = generation(row.map.p())?;
        let data = (0..row.map.data_count()).map(|index| generation(row.map.data(index)));
        if data.clone().any(|generation| generation.is_none()) {
            return None;
        }
        match behind(parity, data.map(|known| known.expect("looked at just now"))) {
            Behind::Data(index) => Some(row.map.data(index)),
            Behind::Parity => Some(row.map.p()),
            Behind::Nobody | Behind::Unclear => None,
        }
        .filter(|_| !broken(Broken::GenerationsUnasked))
    }

    /// The generation of a block of a copy, if it is known and counts in this array range.
    pub(crate) fn generation(
        &self,
        member: &Member,
        block: u64,
        (at, len): (u64, u64),
    ) -> Option<u32> {
        let entry = self.checksums_of(at, len)?.entry(member.id, block);
        entry.is_known().then_some(entry.generation)
    }
}
