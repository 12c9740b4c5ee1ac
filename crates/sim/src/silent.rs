//! Silent damage: rot, lost writes, misdirected writes.
//!
//! Owns the incidents that corrupt bytes without the array's knowledge, each only where detection
//! is possible: superblocks have checksums, bitmaps have copies, and in arrays with checksums every
//! read is verified. Without checksums a scrub finds the wrong member with two redundancies (RAID
//! 6, three copies), and clients pause until it has.
//!
//! ```text
//!   quiet, whole ──▶ corrupt one member ──▶ scrub and repair ──▶ check: no more findings
//!                ──▶ stop ──▶ corrupt a superblock ──▶ assemble: it is excluded
//!                ──▶ die  ──▶ corrupt a bitmap ──▶ assemble: the other copies decide
//! ```

use std::rc::Rc;

use io::Clock;
use layout::{Family, Level, Slot};

use crate::covered;
use crate::crash::Crash;
use crate::cut::Mode;
use crate::disk::{SimDisk, Stray};
use crate::incident::Director;
use crate::mark::{self, Part};
use crate::medium::SECTOR;
use crate::node::Node;
use crate::parts::Parts;
use crate::workload::{Kind, Request};
use random::Rng;

/// What a file gives back at a time.
const PAGE: u64 = 4096;

/// The corrupted part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rot {
    /// Data or parity.
    Data,
    /// The superblock of a member.
    Superblock,
    /// A copy of the bitmap.
    Bitmap,
    /// The private area.
    Private,
    /// The table of checksums.
    Table,
}

/// Every kind of rot.
pub const ROTS: [Rot; 7] =
    [Rot::Data, Rot::Data, Rot::Superblock, Rot::Bitmap, Rot::Private, Rot::Table, Rot::Table];

impl Director {
    /// Something rots on the member in this slot.
    pub(crate) async fn rot(self: &Rc<Self>, node: &Rc<Node>, slot: Slot, rot: Rot, chance: u64) {
        if self.nodes.len() > 1 {
            return;
        }
        let mut rng = Rng::stream(chance, "rot", 0);
        self.stage.hold().await;
        if self.wait_clean(node).await
            && let Some(disk) = node.disk_in(slot)
        {
            let redundant = node.geometry().redundancy() > 0;
            let can_tell = match rot {
                Rot::Data => locates(node),
                Rot::Superblock => redundant && node.can_lose(slot),
                Rot::Private => redundant,
                Rot::Table => redundant && node.shape.checksums,
                Rot::Bitmap => {
                    node.shape.bitmap_chunk.is_some() && node.geometry().family() != Family::Plain
                }
            };
            if can_tell {
                self.note(|| format!("INCIDENT slot {slot}, {}: rot in {rot:?}", disk.name));
                self.stage.world.trace.fault();
            }
            match rot {
                _ if !can_tell => {}
                Rot::Data => self.rot_data(node, slot, &disk, &mut rng).await,
                Rot::Superblock | Rot::Private | Rot::Table => {
                    self.rot_at_rest(node, (slot, &disk), rot, &mut rng).await;
                }
                Rot::Bitmap => self.rot_bitmap(node, &disk, &mut rng).await,
            }
        }
        self.stage.go_on();
    }

    /// One write of data is lost, or lands elsewhere on its disk.
    pub(crate) async fn stray(self: &Rc<Self>, slot: Slot, lost: bool, chance: u64) {
        let node = &Rc::clone(&self.nodes[0]);
        if self.nodes.len() > 1 || !locates(node) {
            return;
        }
        let mut rng = Rng::stream(chance, "stray", 0);
        self.stage.hold().await;
        if self.wait_clean(node).await
            && let Some(disk) = node.disk_in(slot)
            && let Some(data) = Parts::of(&disk, None).range(Part::Data)
        {
            let stray =
                if lost { Stray::Lost } else { Stray::Elsewhere(rng.within(8, 64) * SECTOR) };
            let on = if let Stray::Elsewhere(on) = stray { on } else { 0 };
            self.note(|| format!("INCIDENT slot {slot}, {}: {stray:?}", disk.name));
            self.stage.world.trace.fault();
            let used = node.geometry().member_bytes(slot);
            let before = disk.strayed();
            disk.set_stray(stray, data.start..data.start + used);
            let blocks = node.geometry().capacity() / 4096;
            for number in 0..60 {
                let sector = rng.below(blocks) * 8;
                if !self.can_tell(node, member_offset(node, sector * SECTOR), on + 8 * SECTOR) {
                    continue;
                }
                let write = Request { kind: Kind::Write(1), sector, count: 8, fua: true, pause: 0 };
                self.stage.perform((99, number), write).await;
                if disk.strayed() > before {
                    self.mark(if lost { mark::F6 } else { mark::F7 });
                    break;
                }
            }
            disk.stop_straying();
            self.read_all(node).await;
            self.find_and_repair(node, slot).await;
        }
        self.stage.go_on();
    }

    /// Waits a little for an array that is whole, in sync and clean, on disks that are well.
    pub(crate) async fn wait_clean(&self, node: &Rc<Node>) -> bool {
        let flush = Request { kind: Kind::Flush, sector: 0, count: 1, fua: false, pause: 0 };
        self.stage.perform((99, 0), flush).await;
        for _ in 0..40 {
            let status = node.status();
            let sound = !node.forced.get() && !self.stage.stuck.get();
            let checksummed = status.unsummed_bytes.unwrap_or(0) == 0;
            let quiet = node.endangered().is_empty() && node.is_whole() && status.clean;
            if sound && quiet && checksummed {
                return true;
            }
            self.stage.world.pause(2000).await;
        }
        false
    }

    async fn rot_data(self: &Rc<Self>, node: &Rc<Node>, slot: Slot, disk: &SimDisk, rng: &mut Rng) {
        let Some(data) =
            node.disk_in(slot).and_then(|disk| Parts::of(&disk, None).range(Part::Data))
        else {
            return;
        };
        let sectors = node.geometry().member_bytes(slot) / SECTOR;
        let extents_lost = rng.percent(40);
        for _ in 0..rng.skewed(8) {
            let at = rng.below(sectors) * SECTOR;
            if extents_lost {
                let first = (data.start + at) / PAGE * PAGE;
                let last = first + (1 + rng.skewed(16)) * PAGE;
                let is_data = data.start <= first && last <= data.start + sectors * SECTOR;
                if is_data && self.can_tell(node, first - data.start, last - first) {
                    disk.punch(first, last - first);
                }
            } else if self.can_tell(node, at, SECTOR) {
                corrupt(disk, data.start + at, SECTOR, rng);
            }
        }
        self.mark(if extents_lost { mark::F8_HOLE } else { mark::F8_DATA });
        // Before any read repairs it.
        self.ask_all(node, Kind::Extents).await;
        self.read_all(node).await;
        self.find_and_repair(node, slot).await;
    }

    /// Can the wrong member be identified here? Where a crash and a loss have left errors, a row
    /// has less redundancy than its level, or none. Without checksums a wrong block there is
    /// returned as stored. With checksums the same holds after a crash without a log, or of a
    /// degraded array, when regions are checksummed again.
    fn can_tell(&self, node: &Node, member_offset: u64, len: u64) -> bool {
        let geometry = node.geometry();
        let kept = node.shape.checksums && node.shape.consistency.closes_hole();
        if (kept && !node.lists_bad()) || geometry.family() != Family::Parity {
            return true;
        }
        let stripe = |at: u64| at / geometry.chunk_bytes() * geometry.stripe_bytes();
        let end = stripe(member_offset + len - 1) + geometry.stripe_bytes();
        !self.stage.doubted.borrow().overlaps(stripe(member_offset)..end)
    }

    /// A scrub repairs the errors in this slot, and the next one finds nothing.
    pub(crate) async fn find_and_repair(&self, node: &Rc<Node>, slot: Slot) {
        for repair in [true, false] {
            let Some(report) = self.scrubbed(node, repair).await else { return };
            assert_eq!(report.guessed_bytes, 0, "{}: the wrong member is identifiable", node.name);
            for finding in &report.findings {
                assert!(repair, "{}: repaired, and still there: {finding:?}", node.name);
                // A checksum that rotted names the block that it belongs to.
                assert_eq!(finding.culprit, Some(slot), "{}: {finding:?}", node.name);
                self.mark(mark::SCRUBBED);
            }
        }
    }

    /// A scrub from begin to end; `None` if something came between.
    pub(crate) async fn scrubbed(&self, node: &Rc<Node>, repair: bool) -> Option<array::Report> {
        let clock = &self.stage.world.clock;
        let ended = node.status().last_scrub.map(|scrub| scrub.unix_micros);
        if ended.is_some_and(|ended| ended >= clock.unix_micros()) {
            // The next one may end in the same moment that it begins: without anything to compare.
            self.stage.world.pause(1).await;
        }
        let asked = clock.unix_micros();
        node.array().scrub(repair).ok()?;
        for _ in 0..10_000 {
            self.stage.world.pause(1000).await;
            let last = node.status().last_scrub.filter(|scrub| scrub.unix_micros >= asked);
            if let Some(scrub) = last {
                return scrub.complete.then_some(scrub.report);
            }
        }
        panic!("{}: a scrub does not end", node.name);
    }

    /// While the array is stopped, the superblock of one member rots, or a part of its private
    /// area.
    async fn rot_at_rest(
        &self,
        node: &Rc<Node>,
        (slot, disk): (Slot, &Rc<SimDisk>),
        rot: Rot,
        rng: &mut Rng,
    ) {
        let parts = Parts::of(disk, Some((node.geometry(), slot)));
        let range = match rot {
            Rot::Superblock => parts.range(Part::Superblock),
            Rot::Table => parts.table(),
            _ => parts.range(Part::Private),
        };
        let Some(range) = range else { return };
        let headed = node.shape.checksums || node.geometry().family() == Family::Parity;
        let shows = headed || node.shape.bitmap_chunk.is_some();
        node.stop().await.expect("an idle array stops");
        self.stage.oracle.borrow_mut().keep_all();
        if rot == Rot::Superblock
            && shows
            && rng.percent(40)
            && let Some(raw) = covered::read(disk)
        {
            // A label copied to a new disk.
            self.mark(mark::F8_LABEL);
            disk.leave_label(range, raw.events);
        } else if rot == Rot::Superblock {
            self.mark(mark::F8_SUPERBLOCK);
            // A byte that the checksum covers.
            corrupt(disk, range.start + rng.below(250), 1, rng);
        } else {
            self.mark(if rot == Rot::Table { mark::F8_TABLE } else { mark::F8_PRIVATE });
            for _ in 0..rng.skewed(8) {
                corrupt(disk, range.start + rng.below(range.end - range.start), 1, rng);
            }
        }
        self.assemble(node).await;
        self.read_all(node).await;
        if rot == Rot::Table && self.wait_clean(node).await {
            // Unread copies still have their damage.
            self.find_and_repair(node, slot).await;
        }
    }

    /// Reads everything: it must be right despite the rot, where checksums detect it.
    async fn read_all(&self, node: &Rc<Node>) {
        if node.shape.checksums {
            self.ask_all(node, Kind::Read(1)).await;
        }
    }

    /// One request after the other, of the whole array.
    async fn ask_all(&self, node: &Rc<Node>, kind: Kind) {
        let sectors = node.geometry().capacity() / SECTOR;
        for first in (0..sectors).step_by(64) {
            let count = 64.min(sectors - first);
            let request = Request { kind, sector: first, count, fua: false, pause: 0 };
            self.stage.perform((98, first as usize), request).await;
        }
    }

    /// The host dies, and one copy of the bitmap rots.
    async fn rot_bitmap(self: &Rc<Self>, node: &Rc<Node>, disk: &Rc<SimDisk>, rng: &mut Rng) {
        let geometry = node.geometry();
        let Some(range) = Parts::of(disk, None).range(Part::Bitmap) else { return };
        // An operation is in flight.
        let sectors = geometry.capacity() / SECTOR;
        let write =
            |sector| Request { kind: Kind::Write(1), sector, count: 1, fua: false, pause: 0 };
        self.stage.perform((99, 0), write(rng.below(sectors))).await;
        let crash = Crash {
            power: rng.percent(50),
            mode: Mode::draw(rng),
            mended_percent: 100,
            again: [0; 2],
            chance: rng.bits(),
        };
        self.mark(mark::F8_BITMAP);
        let (disk, bits) = (Rc::clone(disk), range.start + 256);
        let clear = rng.percent(50);
        let at = bits + rng.below(64);
        self.crash_with(crash, || {
            let mut zeros = [0; 64];
            match clear {
                true => disk.poke_bytes(bits, &zeros),
                false => {
                    disk.peek(at, &mut zeros);
                    zeros[0] ^= 0x55;
                    disk.poke_bytes(at, &zeros);
                }
            }
        })
        .await;
    }
}

/// Where a byte of the array lies on its member; of copies, anywhere.
fn member_offset(node: &Node, offset: u64) -> u64 {
    let geometry = node.geometry();
    if geometry.family() != Family::Parity {
        return 0;
    }
    let (stripe, _, within) = geometry.stripe_of(offset);
    geometry.stripe(stripe).member_offset() + within
}

/// True if a scrub can identify the wrong member: by the checksums, or by redundancy alone
/// ([`identifies_wrong_member`]).
pub fn locates(node: &Node) -> bool {
    node.shape.checksums || identifies_wrong_member(node)
}

/// True if redundancy alone identifies the wrong member.
pub fn identifies_wrong_member(node: &Node) -> bool {
    let Some(geometry) = node.last_geometry() else { return false };
    match geometry.family() {
        Family::Plain => false,
        Family::Mirror => geometry.places(0).count() >= 3,
        Family::Parity => geometry.layout().level() == Level::Raid6,
    }
}

/// Changes some bytes.
fn corrupt(disk: &SimDisk, at: u64, len: u64, rng: &mut Rng) {
    let (first, last) = (at / SECTOR * SECTOR, (at + len).next_multiple_of(SECTOR));
    let mut bytes = vec![0; (last - first) as usize];
    disk.peek(first, &mut bytes);
    for byte in &mut bytes[(at - first) as usize..][..len as usize] {
        *byte ^= 1 + rng.below(255) as u8;
    }
    disk.poke_bytes(first, &bytes);
}
