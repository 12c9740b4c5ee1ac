//! Recovery: the search for an array whose superblocks are lost.
//!
//! ```text
//!   disks ──▶ where does data begin?        remaining superblocks, and file systems that begin
//!                  │                        in the first part of the disks
//!                  ▼
//!     level × layout × chunk                each predicts slot and offset of each sign: the disk
//!                  │      signs             that has it there is in that slot (signatures.rs)
//!                  ▼
//!              slot order                   slots without signs: every order, judged by the
//!                  │      rows              agreement of redundancy (rows.rs)
//!                  ▼
//!          walk                         through the file system, from table to table
//!             │                            (file_systems.rs): separates the remaining orders
//!             ▼
//!        guesses, ranked, with the evidence for and against each
//! ```
//!
//! Owns the hypotheses and their rank. Reads only. A guess is not proof: users should first read
//! the data with the array read-only.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::rc::Rc;

use io::{Boxed, Clock};
use layout::md::SECTOR;
use layout::md::superblock::{Version, position};
use layout::{Family, Geometry, Layout, Level, Raid0Layout, Shape};

use crate::assemble::{Candidate, probe};
use crate::bounds::Bounds;
use crate::commit::member_io::MemberIo;
use crate::error::{Error, Result};

pub(crate) mod file_systems;
mod pages;
mod rows;
pub(crate) mod signatures;
pub(crate) mod slot_order;
pub(crate) mod superblocks;

pub use superblocks::{Stamp, stamps};

use file_systems::Walker;
use pages::{PAGE, Pages};
use rows::{Agreement, Row};
use signatures::{Sign, Start};
use slot_order::{Order, Votes, assignment};

/// The known properties of the array; the search finds the others.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// Slots of the array, if disks are missing; as many as disks if 0.
    pub members: usize,
    /// Its level.
    pub level: Option<Level>,
    /// Its layout.
    pub layout: Option<Layout>,
    /// Its chunk, in bytes.
    pub chunk_bytes: Option<u64>,
    /// The start of data on each disk, in bytes.
    pub data_offset: Option<u64>,
    /// The disk in each slot; none where it is missing.
    pub order: Option<Vec<Option<usize>>>,
}

/// A possible array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guess {
    /// Level and layout.
    pub layout: Layout,
    /// Bytes; 0 for RAID 1.
    pub chunk_bytes: u64,
    /// The start of data on each disk, in bytes.
    pub data_offset: u64,
    /// Bytes of data on each disk, at most.
    pub member_bytes: u64,
    /// Bytes of the array.
    pub capacity: u64,
    /// The index of the disk in each slot; `None` for a missing one.
    pub order: Vec<Option<usize>>,
    /// The contents found in the array, with their offsets.
    pub content: Vec<(&'static str, u64)>,
    /// Signs of the contents that were found in their places.
    pub signs: usize,
    /// Signs that were searched for.
    pub signs_tried: usize,
    /// Rows whose redundancy agrees.
    pub rows: usize,
    /// Rows that were compared.
    pub rows_tried: usize,
    /// Table references of the file system that lead to the expected table.
    pub steps: usize,
    /// Table references that were followed.
    pub steps_tried: usize,
    /// The number of other disk orders with as much evidence; `None` if there are too many to try.
    pub alike: Option<usize>,
}

impl Guess {
    /// True if more evidence of each kind supports it than contradicts it.
    pub fn fits(&self) -> bool {
        let most = |hit: usize, tried: usize| tried == 0 || 2 * hit > tried;
        most(self.signs, self.signs_tried)
            && most(self.steps, self.steps_tried)
            && most(self.rows, self.rows_tried)
    }

    /// True if both have the same evidence.
    pub fn ties_with(&self, other: &Guess) -> bool {
        self.weight() == other.weight()
    }

    /// The evidence for it, less the evidence against it.
    fn weight(&self) -> i64 {
        let each = |hit: usize, tried: usize| 2 * hit as i64 - tried as i64;
        2 * each(self.signs, self.signs_tried)
            + 2 * each(self.steps, self.steps_tried)
            + each(self.rows, self.rows_tried)
    }
}

/// Chunk sizes to try, the usual ones first.
const CHUNKS_KIB: [u64; 9] = [512, 64, 128, 256, 32, 16, 8, 4, 1024];
/// Levels to try, the usual ones first.
const LEVELS: [Level; 6] =
    [Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10, Level::Raid0, Level::Raid4];
/// The part of a disk in which data begins: mdadm leaves at most 128 MiB in front.
const HEAD_BYTES: u64 = 144 << 20;
/// A partition table counts as the start of an array only at multiples of this.
const MBR_ALIGN: u64 = 64 << 10;
/// The most possible starts of data to try.
const MOST_OFFSETS: usize = 64;
const RUN_BYTES: u64 = 1 << 20;
/// The number of partitions whose starts are tried.
const MOST_INSIDE: usize = 8;
const MOST_GUESSES: usize = 10;
/// The most copies of any known RAID 10.
const MOST_COPIES: u8 = 3;

/// Searches for the array that these disks formed, in this order or another. Writes nothing.
///
/// # Errors
/// Refused: no disk, more disks than `wish.members`, an order of fewer slots than that, or nothing
/// that looks like an array.
pub fn search<'a>(
    disks: &'a [Candidate],
    wish: &'a Wish,
    clock: &'a Rc<dyn Clock>,
) -> Boxed<'a, Result<Vec<Guess>>> {
    Box::pin(async move {
        let count = wish.order.as_ref().map_or(disks.len(), Vec::len);
        let slots = wish.members.max(count);
        let fits = |order: &Order| order.len() == slots;
        if disks.is_empty()
            || wish.members != 0 && count > wish.members
            || !wish.order.iter().all(fits)
        {
            return Err(Error::refused(format!("{count} disks for {} slots", wish.members)));
        }
        let reach = MemberIo::within(Rc::clone(clock), Bounds::default().deadline);
        let pages = Pages::new(&reach, disks);
        let mut weighed = Vec::new();
        for offset in offsets(&pages, wish).await {
            for hypothesis in hypotheses(disks, wish, slots, offset) {
                weighed.push(weigh(&pages, hypothesis).await);
            }
        }
        let most = weighed.iter().map(|weighed| weighed.expected.count).max().unwrap_or(0);
        // Signs on missing disks are not found: even the right hypothesis has fewer.
        let there = disks.len() as f64 / slots as f64;
        weighed
            .retain(|weighed| weighed.expected.count as f64 * 1.5 >= most as f64 * there * there);
        let mut guesses = Vec::new();
        let mut sampled: Option<((u64, u64), Vec<Row>)> = None;
        for weighed in weighed {
            let key = (weighed.hypothesis.offset, weighed.hypothesis.member_bytes >> 20);
            let rows = match &sampled {
                Some((known, rows)) if *known == key => rows,
                _ => {
                    let (offset, bytes) = (key.0, weighed.hypothesis.member_bytes);
                    &sampled.insert((key, rows::rows(&pages, offset, bytes).await)).1
                }
            };
            guesses.extend(judge(&pages, weighed, rows, wish.order.as_ref()).await);
        }
        guesses.sort_by_key(|guess| (Reverse(guess.weight()), rarity(guess.layout, slots)));
        guesses.retain(|guess| guess.weight() > 0);
        guesses.truncate(MOST_GUESSES);
        if guesses.is_empty() {
            return Err(Error::refused("these disks have no trace of an array"));
        }
        Ok(guesses)
    })
}

/// The rank of a layout among guesses with the same evidence: the more usual one comes first. RAID
/// 4 comes before a RAID 5 that keeps all parity on one member.
fn rarity(layout: Layout, members: usize) -> u8 {
    match layout {
        Layout::Raid4 => 1,
        _ => 2 * u8::from(layout != Layout::default_for(layout.level(), members)),
    }
}

/// The possible starts of data: by superblocks, and by file systems.
async fn offsets(pages: &Pages<'_>, wish: &Wish) -> BTreeSet<u64> {
    if let Some(offset) = wish.data_offset {
        return [offset].into();
    }
    // The offsets in superblocks are tried even if there are too many others.
    let (mut said, mut offsets) = (BTreeSet::new(), BTreeSet::new());
    let slots = wish.members.max(pages.disks().len()) as u64;
    for disk in 0..pages.disks().len() {
        said.extend(said_offsets(pages, disk).await);
        for at in (0..HEAD_BYTES).step_by(RUN_BYTES as usize) {
            let run = pages.run(disk, at, RUN_BYTES).await;
            for (index, page) in (0..).zip(run.chunks_exact(PAGE as usize)) {
                let Some(start) = signatures::start(page) else { continue };
                // Files may contain boot sectors, too.
                if start.name == signatures::MBR && !(at + index * PAGE).is_multiple_of(MBR_ALIGN) {
                    continue;
                }
                // Its distance from the start of data depends on chunk and level.
                for behind in behind(start.told_at, slots) {
                    offsets.extend((at + index * PAGE).checked_sub(behind));
                }
            }
        }
    }
    said.extend(offsets.into_iter().take(MOST_OFFSETS));
    said
}

/// Offsets on a member at which this byte of an array may be.
fn behind(array_offset: u64, slots: u64) -> BTreeSet<u64> {
    let chunks = CHUNKS_KIB.map(|chunk| chunk << 10);
    let each = |chunk: u64| {
        (1..=slots).map(move |data| array_offset / (chunk * data) * chunk + array_offset % chunk)
    };
    chunks.into_iter().flat_map(each).collect()
}

/// The data offsets in the remaining superblocks of a disk, right or wrong.
async fn said_offsets(pages: &Pages<'_>, disk: usize) -> Vec<u64> {
    let traces = probe::traces(pages.reach(), &*pages.disks()[disk].disk).await;
    let found = traces.map(|traces| traces.found).unwrap_or_default();
    let superblocks = found.iter().filter_map(|trace| trace.superblock.as_ref().ok());
    superblocks.filter_map(|superblock| superblock.data_offset.checked_mul(SECTOR)).collect()
}

/// A possible geometry of the disks; the order of the disks is open.
struct Hypothesis {
    geometry: Geometry,
    offset: u64,
    member_bytes: u64,
}

fn hypotheses(disks: &[Candidate], wish: &Wish, slots: usize, offset: u64) -> Vec<Hypothesis> {
    let ends = disks.iter().map(|disk| {
        let bytes = disk.disk.limits().bytes;
        // Without room in front, the superblock is at the end.
        if offset < PAGE { position(Version::V1_0, bytes).unwrap_or(0) } else { bytes }
    });
    let room = ends.min().unwrap_or(0).saturating_sub(offset);
    let levels =
        LEVELS.into_iter().filter(|level| wish.level.is_none_or(|wanted| wanted == *level));
    let mut found = Vec::new();
    for layout in levels.flat_map(|level| Layout::all(level, slots)) {
        let is_tried = match layout {
            // Members are assumed to have one size: then both are the same.
            Layout::Raid0(which) => which == Raid0Layout::Original || wish.layout == Some(layout),
            Layout::Raid10 { near, far, .. } => near * far <= MOST_COPIES && near * far > 1,
            _ => true,
        };
        if !is_tried || wish.layout.is_some_and(|wanted| wanted != layout) {
            continue;
        }
        let chunks: Vec<u64> = match (layout, wish.chunk_bytes) {
            (Layout::Raid1, _) => vec![0],
            (_, Some(chunk)) => vec![chunk],
            _ => CHUNKS_KIB.map(|chunk| chunk << 10).into(),
        };
        for chunk_bytes in chunks {
            let member_bytes = room / chunk_bytes.max(PAGE) * chunk_bytes.max(PAGE);
            let shape = Shape { layout, chunk_bytes, members: vec![member_bytes; slots] };
            let geometry = Geometry::new(shape).ok();
            found.extend(geometry.map(|geometry| Hypothesis { geometry, offset, member_bytes }));
        }
    }
    found
}

/// A hypothesis, and its signs.
struct Weighed {
    hypothesis: Hypothesis,
    expected: Expected,
}

/// The signs found under a hypothesis.
#[derive(Clone, Default)]
struct Expected {
    content: Vec<(&'static str, u64)>,
    signs: Vec<Sign>,
    votes: Votes,
    /// Signs that some disk has in their place.
    count: usize,
}

impl Hypothesis {
    /// Slots and offsets on the disks where an array byte lies.
    fn places(&self, at: u64) -> Vec<(usize, u64)> {
        let geometry = &self.geometry;
        if at >= geometry.capacity() {
            return Vec::new();
        }
        let on_disk = |offset: u64| self.offset + offset;
        if geometry.family() == Family::Parity {
            let (stripe, index, within) = geometry.stripe_of(at);
            let map = geometry.stripe(stripe);
            return vec![(map.data(index).index(), on_disk(map.member_offset() + within))];
        }
        let copies = geometry.places(at).copies();
        copies.map(|copy| (copy.slot.index(), on_disk(copy.member_offset))).collect()
    }

    /// The possible contents at an array byte, from each of the disks.
    async fn starts(&self, pages: &Pages<'_>, at: u64) -> Vec<Start> {
        let mut starts: Vec<Start> = Vec::new();
        for told_at in [0, signatures::BTRFS_AT] {
            for (_, offset) in self.places(at.saturating_add(told_at)) {
                for disk in 0..pages.disks().len() {
                    let page = pages.page(disk, offset).await;
                    let start = page.and_then(|page| signatures::start(&page));
                    let start = start.filter(|start| start.told_at == told_at);
                    let new = start.map(|start| start.moved(at)).filter(|s| !starts.contains(s));
                    starts.extend(new);
                }
            }
        }
        starts
    }
}

/// Counts the signs, for the contents that most of them match.
async fn weigh(pages: &Pages<'_>, hypothesis: Hypothesis) -> Weighed {
    let nothing = || Expected {
        votes: vec![vec![0; pages.disks().len()]; hypothesis.geometry.slots()],
        ..Expected::default()
    };
    let mut best = nothing();
    for start in hypothesis.starts(pages, 0).await {
        let mut expected = nothing();
        let mut inside = start.inside.clone();
        inside.retain(|at| at.is_multiple_of(PAGE));
        inside.truncate(MOST_INSIDE);
        expected.count_signs(pages, &hypothesis, (start, 0)).await;
        for at in inside {
            // Only one thing begins there, but each disk may have a candidate, such as a partition
            // table of its own.
            let mut likeliest = expected.clone();
            for start in hypothesis.starts(pages, at).await {
                let mut with = expected.clone();
                with.count_signs(pages, &hypothesis, (start, at)).await;
                if with.count > likeliest.count {
                    likeliest = with;
                }
            }
            expected = likeliest;
        }
        if expected.count > best.count {
            best = expected;
        }
    }
    Weighed { hypothesis, expected: best }
}

impl Expected {
    /// Counts the signs of the contents at `at`.
    async fn count_signs(
        &mut self,
        pages: &Pages<'_>,
        hypothesis: &Hypothesis,
        (start, at): (Start, u64),
    ) {
        self.content.push((start.name, at));
        for sign in &start.signs {
            let mut is_found = false;
            for (slot, offset) in hypothesis.places(sign.at) {
                for (disk, votes) in self.votes[slot].iter_mut().enumerate() {
                    let page = pages.page(disk, offset).await;
                    if page.is_some_and(|page| sign.is_in(&page)) {
                        *votes += 1;
                        is_found = true;
                    }
                }
            }
            self.count += usize::from(is_found);
        }
        self.signs.extend(start.signs);
    }
}

/// Assigns the disks to slots, and weighs the evidence.
async fn judge(
    pages: &Pages<'_>,
    weighed: Weighed,
    rows: &[Row],
    known: Option<&Order>,
) -> Option<Guess> {
    let Weighed { hypothesis, expected: Expected { content, signs, votes, .. } } = weighed;
    let geometry = &hypothesis.geometry;
    let kernel = parity::best();
    let agrees = |order: &Order| rows::parity(geometry, order, rows, kernel);
    let (disks, slots) = (pages.disks().len(), geometry.slots());
    let is_short = disks < slots && geometry.family() == Family::Parity;
    let every = match known {
        Some(order) => Some(vec![order.clone()]),
        None => is_short.then(|| slot_order::all(disks, slots)).flatten(),
    };
    let (orders, is_all) = every.map_or_else(
        || {
            let slot_order = assignment(&votes, disks, &agrees);
            (slot_order.orders, slot_order.is_all)
        },
        |orders| (orders, true),
    );
    let starts: Vec<u64> = content.iter().map(|&(_, at)| at).collect();
    let (mut best, mut alike): (Option<Judged>, usize) = (None, 0);
    for order in orders {
        let walker = Walker { pages, hypothesis: &hypothesis, order: &order };
        let signs = walker.signs(&signs).await;
        if best.as_ref().is_some_and(|best| best.signs.agree > signs.agree) {
            continue;
        }
        let steps = walker.walk(&starts).await;
        let new = Judged { signs, steps, order };
        match &best {
            Some(best) if best.rank() == new.rank() => alike += 1,
            Some(best) if best.rank() > new.rank() => {}
            _ => (best, alike) = (Some(new), 0),
        }
    }
    let Judged { signs, steps, order } = best?;
    let offset = hypothesis.offset;
    let rows = match geometry.family() {
        Family::Mirror => rows::copies(geometry, &order, rows, (pages, offset)).await,
        _ => agrees(&order),
    };
    Some(Guess {
        layout: geometry.layout(),
        chunk_bytes: geometry.chunk_bytes(),
        data_offset: offset,
        member_bytes: hypothesis.member_bytes,
        capacity: geometry.capacity(),
        order,
        content,
        signs: signs.agree,
        signs_tried: signs.tried,
        rows: rows.agree,
        rows_tried: rows.tried,
        steps: steps.agree,
        steps_tried: steps.tried,
        alike: is_all.then_some(alike),
    })
}

/// An order of the disks and its evidence.
struct Judged {
    signs: Agreement,
    steps: Agreement,
    order: Order,
}

impl Judged {
    fn rank(&self) -> (usize, usize) {
        (self.signs.agree, self.steps.agree)
    }
}
