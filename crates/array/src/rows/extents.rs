//! Block status: which bytes are stored, and which read as zeros.
//!
//! An answer must be as true as a read. That of one member is not: a sparse copy, a punched file or
//! a thin LUN that lost its extents reports a hole where data was, and a copy that follows the map
//! never reads there. So zeros need a witness:
//!
//! ```text
//!   the member reports data ───────────────────────────────────────────▶ data
//!   it reports zeros, and its checksums count ──▶ entries of zeros ────▶ zeros
//!                     they do not count ──▶ all others report zeros ───▶ zeros
//!                                           else ──────────────────────▶ data: a read decides
//! ```
//!
//! "All others" are the readable copies, or all readable members of the stripe: zeros have zero
//! parity. Levels without redundancy have no witness, and a read knows no more.

use io::broken::{Broken, broken};
use io::{Extent, ExtentKind, Work};
use layout::private::checksums::blocks;
use layout::{Family, Slot};
use metadata::Result;

use crate::member::View;
use crate::rows::engine::{Engine, RowOp};

/// An answer covers at most this much: the pages of a table that it needs are in memory at once,
/// one for 2 MiB of a member.
const MOST: u64 = 64 << 20;

/// A stretch of the array in one chunk, or with the same copies.
struct Stretch {
    len: u64,
    /// Where it can be read directly.
    own: Option<Witness>,
    /// Checksums tell whether its blocks hold zeros.
    checked: bool,
    /// If they do not: the places that must hold zeros, too.
    others: Vec<Witness>,
}

/// A place on a member, and the number of the map that has it.
#[derive(Clone, Copy)]
struct Witness {
    map: usize,
    slot: Slot,
    at: u64,
}

impl Engine {
    /// The stretches of an array range, with the places that tell of them.
    fn status_stretches(&self, view: &View, offset: u64, len: u64) -> Vec<Stretch> {
        let geometry = &self.setup.geometry;
        let slots = geometry.slots();
        if geometry.family() == Family::Parity {
            let stripe = geometry.stripe_bytes();
            return self
                .each_chunk(offset, len)
                .map(|(slot, at, len, offset)| {
                    let end = (offset / stripe + 1) * stripe;
                    let witness = |slot: Slot| Witness { map: slot.index(), slot, at };
                    let readable = |slot: &Slot| view.is_readable(*slot, end, at, len);
                    let checked = self.checksums_to_verify(view, offset, len).is_some();
                    let others = geometry.all_slots().iter().filter(|&other| other != slot);
                    let others = others.filter(|_| !checked).filter(readable).map(witness);
                    let own = readable(&slot).then(|| witness(slot));
                    Stretch { len, own, checked, others: others.collect() }
                })
                .collect();
        }
        self.stretches(offset, len)
            .map(|(at, len, places)| {
                let synced = places.count() == 1 || !self.is_unsynced(at, len);
                let checked = self.checksums_to_verify(view, at, len).is_some();
                // The copies of one stretch lie far apart on a member: a map for each.
                let mut copies = places.copies().enumerate().filter_map(|(copy, place)| {
                    let map = copy * slots + place.slot.index();
                    let (slot, at_member) = (place.slot, place.member_offset);
                    let readable = view.is_readable(slot, at + len, at_member, len);
                    readable.then_some(Witness { map, slot, at: at_member })
                });
                let own = copies.next().filter(|_| synced);
                let others = copies.filter(|_| !checked).collect();
                Stretch { len, own, checked, others }
            })
            .collect()
    }
}

impl RowOp<'_> {
    /// Reports the allocation status of a range, or of its beginning.
    pub(crate) async fn extents(
        &mut self,
        (offset, len): (u64, u64),
        found: &mut Vec<Extent>,
    ) -> Result<()> {
        let inside = self.engine.gate.enter().await;
        let mut op = self.inside(&inside);
        let view = op.engine.view();
        let stretches = op.engine.status_stretches(&view, offset, len.min(MOST));
        let maps = op.member_maps(&view, &stretches).await;
        let parts: Vec<_> = stretches.iter().map(|stretch| stretch.reported(&maps)).collect();
        op.load_for_zeros(&view, &stretches, &parts).await;
        found.clear();
        for (stretch, extents) in stretches.iter().zip(parts) {
            op.confirm(&view, stretch, extents, found);
        }
        Ok(())
    }

    /// Asks the members.
    async fn member_maps(&mut self, view: &View, stretches: &[Stretch]) -> Vec<MemberMap> {
        let mut maps: Vec<MemberMap> = Vec::new();
        for stretch in stretches {
            for witness in stretch.own.iter().chain(&stretch.others) {
                let count = maps.len().max(witness.map + 1);
                maps.resize_with(count, MemberMap::default);
                maps[witness.map].include(*witness, stretch.len);
            }
        }
        for map in &mut maps {
            while let Some(slot) = map.slot.filter(|_| map.known < map.end) {
                let member = view.member(slot).expect("a readable slot has a member");
                let ask = Work::Extents { len: map.end - map.known, found: Vec::new() };
                self.work.batch.add(member, slot, map.known, ask, 0);
                self.engine.run(&mut self.work.batch, self.opts).await;
                let before = map.known;
                self.work.batch.drain(
                    |_, _, _| {},
                    |_, work, ok| map.record(work, ok),
                    &mut self.work.failures,
                );
                if map.known == before {
                    // No answer at all.
                    map.record(Work::Flush, false);
                }
                // A member that fails to answer is no error: its bytes count as stored.
                self.work.failures.clear();
            }
        }
        maps
    }

    /// Brings the entries of reported zeros into memory. Where that fails they are no zeros.
    async fn load_for_zeros(&mut self, view: &View, all: &[Stretch], parts: &[Vec<Extent>]) {
        self.work.wanted.clear();
        for (stretch, extents) in all.iter().zip(parts) {
            let Some(Witness { slot, at, .. }) = stretch.own.filter(|_| stretch.checked) else {
                continue;
            };
            let has_zeros = extents.iter().any(|extent| extent.kind != ExtentKind::Data);
            let range = at..at + stretch.len;
            self.work.add_wanted(view.member(slot).filter(|_| has_zeros), slot, range);
        }
        self.load_checksums().await;
        self.work.failures.clear();
    }

    /// Appends the extents of a stretch. Zeros that their checksums do not confirm become data.
    fn confirm(
        &self,
        view: &View,
        stretch: &Stretch,
        extents: Vec<Extent>,
        found: &mut Vec<Extent>,
    ) {
        let trusted = !stretch.checked || broken(Broken::HolesTrusted);
        let (Some(own), Some(checksums), false) = (stretch.own, &self.engine.checksums, trusted)
        else {
            return extents.into_iter().for_each(|extent| push(found, extent));
        };
        let member = view.member(own.slot).expect("a readable slot has a member");
        let mut at = own.at;
        for extent in extents {
            let range = at..at + extent.len;
            at = range.end;
            if extent.kind == ExtentKind::Data {
                push(found, extent);
                continue;
            }
            for (block, range) in blocks(range) {
                let is_zeros = checksums.is_zeros(member.id, (own.slot, block));
                let kind = if is_zeros { extent.kind } else { ExtentKind::Data };
                push(found, Extent { len: range.end - range.start, kind });
            }
        }
    }
}

impl Stretch {
    /// What the members report of it: zeros only where all do.
    fn reported(&self, maps: &[MemberMap]) -> Vec<Extent> {
        let report = |witness: &Witness| maps[witness.map].report(witness.at, self.len);
        let Some(own) = &self.own else {
            return vec![Extent { len: self.len, kind: ExtentKind::Data }];
        };
        let others = self.others.iter().filter(|_| !broken(Broken::HolesTrusted));
        others.fold(report(own), |agreed, other| agree(&agreed, &report(other)))
    }
}

/// The first of two reports of the same bytes, with data also where the other one has data.
fn agree(one: &[Extent], other: &[Extent]) -> Vec<Extent> {
    let (mut agreed, mut others) = (Vec::new(), other.iter().copied());
    let mut rest = Extent { len: 0, kind: ExtentKind::Data };
    for extent in one {
        let mut left = extent.len;
        while left > 0 {
            if rest.len == 0 {
                rest = others.next().expect("both reports cover the same bytes");
            }
            let len = rest.len.min(left);
            let kind = if rest.kind == ExtentKind::Data { rest.kind } else { extent.kind };
            push(&mut agreed, Extent { len, kind });
            (left, rest.len) = (left - len, rest.len - len);
        }
    }
    agreed
}

/// A member's reported status for one stretch of its data.
#[derive(Default)]
struct MemberMap {
    /// `None` if nothing is asked.
    slot: Option<Slot>,
    start: u64,
    end: u64,
    known: u64,
    extents: Vec<Extent>,
}

impl MemberMap {
    fn include(&mut self, Witness { slot, at, .. }: Witness, len: u64) {
        if self.slot.is_none() {
            (self.start, self.end) = (at, at + len);
        }
        self.slot = Some(slot);
        self.start = self.start.min(at);
        self.known = self.start;
        self.end = self.end.max(at + len);
    }

    fn record(&mut self, work: Work, ok: bool) {
        let before = self.known;
        if let (Work::Extents { found, .. }, true) = (work, ok) {
            for extent in found {
                self.known += extent.len;
                push(&mut self.extents, extent);
            }
        }
        if self.known == before {
            // A member without block status: all of it counts as stored.
            push(&mut self.extents, Extent { len: self.end - before, kind: ExtentKind::Data });
            self.known = self.end;
        }
    }

    fn report(&self, at: u64, len: u64) -> Vec<Extent> {
        let (mut from, to, mut reported) = (self.start, at + len, 0);
        let mut report = Vec::new();
        for extent in &self.extents {
            let (start, end) = (from.max(at), (from + extent.len).min(to));
            if start < end {
                reported += end - start;
                push(&mut report, Extent { len: end - start, kind: extent.kind });
            }
            from += extent.len;
        }
        assert_eq!(reported, len, "later extents would be reported at wrong offsets");
        report
    }
}

/// Appends an extent, joining it to the last one if they are of a kind.
pub(crate) fn push(into: &mut Vec<Extent>, extent: Extent) {
    match into.last_mut() {
        _ if extent.len == 0 => {}
        Some(last) if last.kind == extent.kind => last.len += extent.len,
        _ => into.push(extent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: ExtentKind = ExtentKind::Data;
    const HOLE: ExtentKind = ExtentKind::Hole;

    fn extents(of: &[(u64, ExtentKind)]) -> Vec<Extent> {
        of.iter().map(|&(len, kind)| Extent { len, kind }).collect()
    }

    #[test]
    fn a_member_map_returns_parts_of_its_extents() {
        let mut map = MemberMap::default();
        map.include(Witness { map: 0, slot: Slot::new(0), at: 100 }, 100);
        map.record(Work::Extents { len: 100, found: extents(&[(50, HOLE)]) }, true);
        map.record(Work::Extents { len: 50, found: Vec::new() }, true);
        assert_eq!(map.report(140, 20), extents(&[(10, HOLE), (10, DATA)]));
    }

    #[test]
    fn reports_agree_on_zeros_only_where_both_have_them() {
        let one = extents(&[(10, HOLE), (10, DATA), (20, ExtentKind::Zero)]);
        let other = extents(&[(5, DATA), (25, HOLE), (10, DATA)]);
        let agreed = [(5, DATA), (5, HOLE), (10, DATA), (10, ExtentKind::Zero), (10, DATA)];
        assert_eq!(agree(&one, &other), extents(&agreed));
    }
}
