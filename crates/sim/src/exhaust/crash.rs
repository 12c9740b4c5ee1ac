//! Every state that a power cut can leave, from the log of one run.
//!
//! ```text
//!   log     sent A   sent B   A landed   flush sent   sent C   flush landed   …
//!   cut here ──▶ A or not     A, B: any subset        A, B, C    B, C and always A
//! ```
//!
//! A write is *pending* from its submission until it is durable: answered with FUA, or answered
//! before the submission of an answered flush. At a cut any subset of the pending writes has
//! reached the medium, in the order of submission: of two writes to one sector the engine sends the
//! second after the answer to the first.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::medium::SECTOR;
use crate::stand::{Effect, Event, Image, PAGE};
use random::{Rng, mix};

/// More pending units than this are sampled.
pub(super) const UNITS_MAX: usize = 10;
/// Subsets of more units than that which are tried at one moment.
const SAMPLES: usize = 48;

/// The atomic unit of a cut: the part of a write within one page.
#[derive(Clone)]
pub(super) struct Unit {
    /// The disk.
    pub(super) disk: usize,
    op: u64,
    /// First sector.
    pub(super) sector: u64,
    bytes: Rc<[u8]>,
    /// Where in `bytes` it begins.
    start: usize,
    /// Relevant sectors: the others were overwritten by durable data.
    pub(super) live: u8,
}

impl Unit {
    fn sectors(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let live = self.live;
        (0..8).filter(move |bit| live >> bit & 1 == 1).map(|bit| {
            let from = self.start + bit * SECTOR as usize;
            (self.sector + bit as u64, &self.bytes[from..from + SECTOR as usize])
        })
    }

    /// Puts it on disks.
    pub(super) fn apply(&self, mut put: impl FnMut(usize, u64, &[u8])) {
        for (sector, bytes) in self.sectors() {
            put(self.disk, sector * SECTOR, bytes);
        }
    }

    /// The same unit with some sectors only.
    fn only(&self, live: u8) -> Unit {
        Unit { live: self.live & live, ..self.clone() }
    }
}

/// Cuts a write into units.
fn units(op: u64, disk: usize, offset: u64, bytes: &Rc<[u8]>) -> Vec<Unit> {
    let mut units = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let at = offset + start as u64;
        let part = (PAGE - at as usize % PAGE).min(bytes.len() - start);
        let live = ((1_u16 << (part / SECTOR as usize)) - 1) as u8;
        let (sector, bytes) = (at / SECTOR, Rc::clone(bytes));
        units.push(Unit { disk, op, sector, bytes, start, live });
        start += part;
    }
    units
}

/// A number for a sector's content on a disk.
fn fingerprint(disk: usize, sector: u64, bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks::<8>().0.iter().zip(1_u64..);
    let checksum = words.fold(0_u64, |checksum, (word, at)| {
        checksum
            .wrapping_add(mix(u64::from_le_bytes(*word) ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    });
    mix(checksum ^ mix((disk as u64) << 32 | sector))
}

/// One state that a cut can leave.
pub(super) struct State<'a> {
    /// The durable content of each disk.
    pub(super) durable: &'a [Rc<Image>],
    /// Other completed writes, in order.
    pub(super) landed: Vec<Unit>,
}

/// The disks at one moment of a log.
pub(super) struct Moment {
    durable: Vec<Rc<Image>>,
    /// For each disk, the number of its durable content.
    fingerprints: Vec<u64>,
    pending: Vec<Unit>,
    /// Operations that were answered.
    answered: BTreeSet<u64>,
    /// Flushes in flight: their disk, and the operations that they cover.
    flushes: BTreeMap<u64, (usize, Vec<u64>)>,
    fua: BTreeSet<u64>,
}

/// How the states of a moment were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Coverage {
    /// All of them.
    Every,
    /// There are more units than [`UNITS_MAX`].
    Sampled,
}

impl Moment {
    /// Before anything was sent.
    pub(super) fn new(images: &[Rc<Image>]) -> Moment {
        Moment {
            durable: images.to_vec(),
            fingerprints: vec![0; images.len()],
            pending: Vec::new(),
            answered: BTreeSet::new(),
            flushes: BTreeMap::new(),
            fua: BTreeSet::new(),
        }
    }

    /// The next thing in the log happens. True if a cut after it can leave another state.
    pub(super) fn follow(&mut self, event: &Event) -> bool {
        match event {
            Event::Note(_) => true,
            Event::Sent { effect: Effect::Read, .. } => false,
            Event::Sent { op, disk, effect: Effect::Flush } => {
                let of_disk = self.pending.iter().filter(|unit| unit.disk == *disk);
                let done = of_disk.map(|unit| unit.op).filter(|op| self.answered.contains(op));
                self.flushes.insert(*op, (*disk, done.collect()));
                false
            }
            Event::Sent { op, disk, effect: Effect::Write { offset, bytes, fua } } => {
                self.pending.extend(units(*op, *disk, *offset, bytes));
                if *fua {
                    self.fua.insert(*op);
                }
                true
            }
            Event::Landed { op } => {
                self.answered.insert(*op);
                if let Some((disk, covered)) = self.flushes.remove(op) {
                    return self.drop_older(|unit| unit.disk == disk && covered.contains(&unit.op));
                }
                self.fua.contains(op) && self.drop_older(|unit| unit.op == *op)
            }
        }
    }

    /// The chosen writes become durable: older content of their sectors is gone.
    fn drop_older(&mut self, chosen: impl Fn(&Unit) -> bool) -> bool {
        let mut changed = false;
        let mut at = 0;
        while at < self.pending.len() {
            if !chosen(&self.pending[at]) {
                at += 1;
                continue;
            }
            let unit = self.pending.remove(at);
            changed = true;
            let disk = unit.disk;
            for older in &mut self.pending[..at] {
                if older.disk == disk {
                    for (sector, _) in unit.sectors() {
                        if let Some(bit) = sector.checked_sub(older.sector).filter(|&bit| bit < 8) {
                            older.live &= !(1 << bit);
                        }
                    }
                }
            }
            let image = Rc::make_mut(&mut self.durable[disk]);
            let number = &mut self.fingerprints[disk];
            let mut old = [0; SECTOR as usize];
            for (sector, bytes) in unit.sectors() {
                image.read(sector * SECTOR, &mut old);
                let before = fingerprint(disk, sector, &old);
                let after = fingerprint(disk, sector, bytes);
                *number = number.wrapping_add(after.wrapping_sub(before));
                image.write(sector * SECTOR, bytes);
            }
        }
        self.pending.retain(|unit| unit.live != 0);
        changed
    }

    /// Every state that a cut now can leave, through `each`: a number for each disk, equal for
    /// equal content, and the parts of the state.
    pub(super) fn states<'a>(
        &'a self,
        rng: &mut Rng,
        mut each: impl FnMut(&[u64], &dyn Fn() -> State<'a>),
    ) -> Coverage {
        let sectors: u32 = self.pending.iter().map(|unit| unit.live.count_ones()).sum();
        // Few enough sectors: each for itself.
        let fine = sectors as usize <= UNITS_MAX;
        let units: Vec<Unit> =
            if fine { self.pending.iter().flat_map(split).collect() } else { self.pending.clone() };
        let table = Table::new(&units, &self.durable);
        let mut numbers = Vec::new();
        let mut give = |mask: &[u8]| {
            numbers.clone_from(&self.fingerprints);
            table.add(mask, &mut numbers);
            each(&numbers, &|| {
                let landed = units.iter().zip(mask).filter(|(_, live)| **live != 0);
                let landed = landed.map(|(unit, &live)| unit.only(live)).collect();
                State { durable: &self.durable, landed }
            });
        };
        let every = units.len() <= UNITS_MAX;
        if every {
            let mut mask = vec![0; units.len()];
            for subset in 0..1_u32 << units.len() {
                let bits = mask.iter_mut().zip(0..);
                bits.for_each(|(live, bit)| *live = if subset >> bit & 1 == 1 { 0xff } else { 0 });
                give(&mask);
            }
        } else {
            samples(units.len(), rng).iter().for_each(|mask| give(mask));
        }
        if !fine {
            // Torn: half of one unit, with all of the others or none.
            for at in (0..units.len()).filter(|&at| units[at].live.count_ones() > 1) {
                for (half, others) in [(0x0f, 0), (0xf0, 0), (0x0f, 0xff), (0xf0, 0xff)] {
                    let mut mask = vec![others; units.len()];
                    mask[at] = half;
                    give(&mask);
                }
            }
        }
        if every { Coverage::Every } else { Coverage::Sampled }
    }
}

/// A unit for each sector.
fn split(unit: &Unit) -> impl Iterator<Item = Unit> {
    (0..8).map(|bit| unit.only(1 << bit)).filter(|unit| unit.live != 0)
}

/// None, all, each alone, all but each, and any.
fn samples(count: usize, rng: &mut Rng) -> Vec<Vec<u8>> {
    let whole = |landed: bool| if landed { 0xff } else { 0 };
    let mut masks = vec![vec![0; count], vec![0xff; count]];
    for one in 0..count {
        for alone in [false, true] {
            masks.push((0..count).map(|unit| whole((unit == one) == alone)).collect());
        }
    }
    masks.extend((0..SAMPLES).map(|_| (0..count).map(|_| whole(rng.percent(50))).collect()));
    masks
}

/// The possible content of each sector of the pending units.
struct Table(Vec<Place>);

/// A sector of a disk that units cover.
struct Place {
    disk: usize,
    /// The number of the durable content.
    durable: u64,
    /// The units: index, bit, and the number of the resulting content.
    covers: Vec<(usize, u8, u64)>,
}

impl Table {
    fn new(units: &[Unit], durable: &[Rc<Image>]) -> Table {
        let mut places = BTreeMap::new();
        let mut old = [0; SECTOR as usize];
        for (at, unit) in units.iter().enumerate() {
            let disk = unit.disk;
            for (sector, bytes) in unit.sectors() {
                let place = places.entry((disk, sector)).or_insert_with(|| {
                    durable[disk].read(sector * SECTOR, &mut old);
                    let durable = fingerprint(disk, sector, &old);
                    Place { disk, durable, covers: Vec::new() }
                });
                let bit = 1 << (sector - unit.sector);
                place.covers.push((at, bit, fingerprint(disk, sector, bytes)));
            }
        }
        Table(places.into_values().collect())
    }

    /// Changes the numbers of the disks by these sectors of the units.
    fn add(&self, landed: &[u8], numbers: &mut [u64]) {
        for Place { disk, durable, covers } in &self.0 {
            let last = covers.iter().rev().find(|&&(unit, bit, _)| landed[unit] & bit != 0);
            let now = last.map_or(*durable, |&(.., number)| number);
            let checksum = &mut numbers[*disk];
            *checksum = checksum.wrapping_add(now.wrapping_sub(*durable));
        }
    }
}
