//! Where every byte of an array lives.
//!
//! Owns the map from array offsets to members and back, for every level, and a level's requirements
//! for its members. Never considers which members are present, never does I/O; allocates only in
//! construction.
//! Invariants: the map is one-to-one; every mapped byte is within [`Geometry::member_bytes`]; on
//! md's levels it is md's map, bit for bit.
//!
//! # The maps
//!
//! A *chunk* is a run of array bytes that lies on one member. A *stripe* is one chunk on each
//! member, all at the same member offset. Numbers below are chunks of the array, columns are slots,
//! lines are stripes, member offsets grow downwards.
//!
//! **Parity** (`parity.rs`). P, and on RAID 6 Q, turn so that every member takes its share of small
//! writes. Where they are depends on s mod n for stripe s; a [`StripeMap`] answers everything about
//! one stripe by a few additions. The default, *left-symmetric*, puts data behind the parity and
//! around the end, so that n consecutive chunks are on n members:
//!
//! ```text
//!   RAID 5, 5 members            RAID 6, 5 members
//!          0   1   2   3   4             0   1   2   3   4      exponents of g in Q
//!   s=0    0   1   2   3   P      s=0    Q   0   1   2   P        .  0  1  2  .
//!   s=1    5   6   7   P   4      s=1    3   4   5   P   Q        0  1  2  .  .
//!   s=2   10  11   P   8   9      s=2    7   8   P   Q   6        1  2  .  .  0
//!   s=3   15   P  12  13  14      s=3   11   P   Q   9  10        2  .  .  0  1
//!   s=4    P  16  17  18  19      s=4    P   Q  12  13  14        .  .  0  1  2
//! ```
//!
//! *Left* parity walks down from the last slot, *right* up from slot 0; *asymmetric* data starts at
//! slot 0 in each stripe. Q = Σ g^e · D: the exponent e of a data chunk counts slots from Q on,
//! around the end, without P. In left- and right-symmetric that is the index of the data; in others
//! it need not be, and DDF's layouts count slots from 0: always ask [`StripeMap::exponent`].
//!
//! **RAID 3.5**. A stripe is one block: the block is cut over all data members, so that a block's
//! write is always a whole stripe and nothing is ever read to compute parity. The fragment is the
//! chunk.
//!
//! ```text
//!   order 2: 2² data members + 1, block of 4 KiB
//!          0       1       2       3       4
//!   s=0   0–1023  –2047   –3071   –4095    P      bytes of block 0
//!   s=1   0–1023  –2047   –3071   –4095    P      bytes of block 1
//! ```
//!
//! **Mirror** (`mirror.rs`). RAID 10 lays out positions: copy j of chunk c is at position
//! c · near + j, and positions fill stripes of n slots. Far copies repeat all stripes, `near` slots
//! further on: in the next part of the members, or (offset) in the next stripe. RAID 1 is the case
//! near = n.
//!
//! ```text
//!   near 2, 5 members    near 2, 4 members    far 2, 4 members    offset 2, 4 members
//!    0  0  1  1  2        0  0  1  1           0  1  2  3          0  1  2  3
//!    2  3  3  4  4        2  2  3  3           4  5  6  7          3  0  1  2
//!    5  5  6  6  7        4  4  5  5           8  9 10 11          4  5  6  7
//!    7  8  8  9  9        6  6  7  7          ──────────── half    7  4  5  6
//!                                              3  0  1  2          8  9 10 11
//!                                              7  4  5  6         11  8  9 10
//!                                             11  8  9 10
//! ```
//!
//! **Plain** (`plain.rs`). RAID 0 over unequal members has a *zone* for each height: all members
//! take part in the first, the shortest drop out of the next. Linux counted turns first from the
//! start of the array, later from the start of the zone; both are on disks, and a superblock says
//! which.
//!
//! ```text
//!   members of 1, 3, 3 chunks      original     alternate
//!                        zone 0    0  1  2      0  1  2
//!                        zone 1       4  3         3  4       3 mod 2 = 1, so chunk 3 goes to the
//!                                     6  5         5  6       zone's member 1, or its first
//! ```
//!
//! **Regions** cut array space into runs of whole stripes, the same length everywhere: the grain of
//! intent, of dirty bits and of shards.

use alloc::vec::Vec;

use crate::units::{MAX_SLOTS, Slot, SlotSet, Stripe};

mod divisor;
mod error;
mod mirror;
mod names;
mod parity;
mod place;
mod plain;

pub(crate) use error::Amount;
pub use error::{GeometryError, LayoutError};
pub use names::{Layout, Level, MAX_ORDER, Raid0Layout, Raid5Layout, Raid6Layout};
pub use parity::{StripeMap, StripeRole};
pub use place::{Owner, Place, Places};

use divisor::Divisor;
use mirror::Mirror;
use parity::Parity;
use plain::Plain;

/// The smallest chunk, and the smallest block of a RAID 3.5, in bytes.
pub const MIN_CHUNK_BYTES: u64 = 4 << 10;
/// The largest chunk, and the largest block of a RAID 3.5, in bytes.
pub const MAX_CHUNK_BYTES: u64 = 16 << 20;
/// Bytes of a region, before rounding to whole stripes.
pub const REGION_BYTES: u64 = 64 << 20;
/// Members are used in whole sectors.
const SECTOR_BYTES: u64 = 512;

/// The parameters of an array's map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Level and parameters.
    pub layout: Layout,
    /// 0 for RAID 1. Linear: members are cut to a multiple of it, 0 for none. RAID 0: a multiple of
    /// 512. Otherwise a power of two. RAID 3.5: the fragment, block / 2^order.
    pub chunk_bytes: u64,
    /// Bytes for data on each member, in the order of slots.
    pub members: Vec<u64>,
}

/// How an array finds its bytes again after a loss.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Family {
    /// Not at all: linear and RAID 0.
    Plain,
    /// From a copy: RAID 1 and 10.
    Mirror,
    /// By computing: RAID 4, 5, 6 and 3.5.
    Parity,
}

/// The map of one array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    layout: Layout,
    slots: u8,
    chunk_bytes: u64,
    capacity: u64,
    stripe_bytes: u64,
    region: Divisor,
    map: Map,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Map {
    Plain(Plain),
    Mirror(Mirror),
    Parity(Parity),
}

impl Geometry {
    /// The map of an array of this shape.
    ///
    /// # Errors
    /// [`GeometryError`] states the layout's requirement that the shape violates.
    pub fn new(shape: Shape) -> Result<Geometry, GeometryError> {
        let Shape { layout, chunk_bytes, members } = shape;
        check_members(layout, members.len())?;
        check_chunk(layout, chunk_bytes)?;
        let slots = members.len();
        let unit = if chunk_bytes == 0 { SECTOR_BYTES } else { chunk_bytes };
        let members = usable(layout, unit, members)?;
        let least = members.iter().copied().min().expect("no level has fewer than one member");
        let chunks = least / unit;
        let (map, stripe_bytes) = match layout {
            Layout::Linear => (Map::Plain(Plain::linear(members)), unit.max(MIN_CHUNK_BYTES)),
            Layout::Raid0(turns) => {
                let by_array = turns == Raid0Layout::Original;
                let plain = Plain::striped(members, chunk_bytes, by_array);
                (Map::Plain(plain), slots as u64 * chunk_bytes)
            }
            Layout::Raid1 => (Map::Mirror(Mirror::whole(slots, least)), MIN_CHUNK_BYTES),
            Layout::Raid10 { near, far, offset } => {
                let mirror = Mirror::new((near, far, offset), slots, chunk_bytes, chunks);
                let stripe_bytes = mirror.period() * chunk_bytes;
                (Map::Mirror(mirror), stripe_bytes)
            }
            Layout::Raid4 | Layout::Raid5(_) | Layout::Raid6(_) | Layout::Raid35 { .. } => {
                let parity = Parity::new(layout, slots, chunk_bytes, chunks);
                let stripe_bytes = parity.data_count() as u64 * chunk_bytes;
                (Map::Parity(parity), stripe_bytes)
            }
        };
        let capacity = match &map {
            Map::Plain(plain) => plain.capacity(),
            Map::Mirror(mirror) => mirror.capacity(),
            Map::Parity(parity) => parity.stripes() * stripe_bytes,
        };
        assert!(capacity > 0 && stripe_bytes > 0, "an array without a byte");
        let region = whole_stripes(REGION_BYTES, stripe_bytes, capacity);
        let slots = slots as u8;
        Ok(Geometry { layout, slots, chunk_bytes, capacity, stripe_bytes, region, map })
    }

    /// The same map with regions of `bytes`, rounded down to whole stripes, at least one.
    #[must_use]
    pub fn with_region_bytes(mut self, bytes: u64) -> Geometry {
        self.region = whole_stripes(bytes, self.stripe_bytes, self.capacity);
        self
    }

    /// Level and parameters.
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// How many slots, filled or not: 1 ..= [`MAX_SLOTS`].
    pub const fn slots(&self) -> usize {
        self.slots as usize
    }

    /// Every slot.
    pub const fn all_slots(&self) -> SlotSet {
        SlotSet::first(self.slots())
    }

    /// Bytes of a chunk, as given in [`Shape::chunk_bytes`].
    pub const fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Bytes of the array: > 0.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes of this member that the array uses, from its data offset on.
    ///
    /// # Panics
    /// If the array has no such slot.
    pub fn member_bytes(&self, slot: Slot) -> u64 {
        assert!(slot.index() < self.slots());
        match &self.map {
            Map::Plain(plain) => plain.member_bytes(slot),
            Map::Mirror(mirror) => mirror.member_bytes(),
            Map::Parity(parity) => parity.stripes() * self.chunk_bytes,
        }
    }

    /// How lost bytes come back.
    pub const fn family(&self) -> Family {
        match self.map {
            Map::Plain(_) => Family::Plain,
            Map::Mirror(_) => Family::Mirror,
            Map::Parity(_) => Family::Parity,
        }
    }

    /// How many members may always be lost, whichever they are.
    pub const fn redundancy(&self) -> usize {
        match &self.map {
            Map::Plain(_) => 0,
            Map::Mirror(mirror) => mirror.copies() - 1,
            Map::Parity(parity) => parity.parity_count(),
        }
    }

    /// True if every byte can be served without these members.
    pub fn survives(&self, lost: SlotSet) -> bool {
        let lost = lost.intersection(self.all_slots());
        match &self.map {
            Map::Plain(_) => lost.is_empty(),
            Map::Mirror(mirror) => mirror.survives(lost),
            Map::Parity(parity) => lost.count() <= parity.parity_count(),
        }
    }

    /// True if this RAID 0 has zones that md's two layouts map differently. A superblock that does
    /// not say which layout it has can be trusted where this is false.
    pub fn is_zoned(&self) -> bool {
        matches!(&self.map, Map::Plain(plain) if matches!(self.layout, Layout::Raid0(_))
            && plain.is_zoned())
    }

    /// Array bytes of one stripe. With parity: data chunks · chunk. Otherwise the least run that
    /// fills whole stripes: RAID 0 all members' chunks, RAID 10 as many chunks as it takes for
    /// copies to start on slot 0 again, RAID 1 and linear one block of 4 KiB (linear: or its
    /// rounding).
    pub const fn stripe_bytes(&self) -> u64 {
        self.stripe_bytes
    }

    /// Data chunks of a stripe: k.
    ///
    /// # Panics
    /// Unless the family is [`Family::Parity`]; so do all up to [`Geometry::stripe_of`].
    pub const fn data_count(&self) -> usize {
        self.parity().data_count()
    }

    /// Parity chunks of a stripe: 1 or 2.
    pub const fn parity_count(&self) -> usize {
        self.parity().parity_count()
    }

    /// How many stripes.
    pub const fn stripes(&self) -> u64 {
        self.parity().stripes()
    }

    /// The roles of the slots in a stripe.
    ///
    /// # Panics
    /// If the array has no such stripe.
    pub fn stripe(&self, stripe: Stripe) -> StripeMap {
        let parity = self.parity();
        assert!(stripe.0 < parity.stripes());
        parity.stripe(stripe)
    }

    /// The stripe, the index of its data and the offset in the chunk where an array byte is.
    ///
    /// # Panics
    /// If the offset is not below the capacity.
    pub const fn stripe_of(&self, array_offset: u64) -> (Stripe, usize, u64) {
        assert!(array_offset < self.capacity);
        self.parity().stripe_of(array_offset)
    }

    /// The copies of an array byte, and how many bytes further the same holds.
    ///
    /// # Panics
    /// If the offset is not below the capacity, or the family is [`Family::Parity`].
    pub fn places(&self, array_offset: u64) -> Places {
        assert!(array_offset < self.capacity);
        match &self.map {
            Map::Plain(plain) => plain.places(array_offset),
            Map::Mirror(mirror) => mirror.places(array_offset),
            Map::Parity(_) => panic!("with parity, ask for the stripe"),
        }
    }

    /// The content at an offset from a member's data offset: the inverse of the map.
    ///
    /// # Panics
    /// If the array has no such slot.
    pub fn owner(&self, slot: Slot, member_offset: u64) -> Owner {
        if member_offset >= self.member_bytes(slot) {
            return Owner::Unused { len: u64::MAX - member_offset };
        }
        match &self.map {
            Map::Plain(plain) => plain.owner(slot, member_offset),
            Map::Mirror(mirror) => mirror.owner(slot, member_offset),
            Map::Parity(parity) => parity.owner(slot, member_offset),
        }
    }

    /// Array bytes of a region: whole stripes, [`REGION_BYTES`] or less, or one stripe if that is
    /// more.
    pub const fn region_bytes(&self) -> u64 {
        self.region.get()
    }

    /// The region an array byte is in.
    pub const fn region(&self, array_offset: u64) -> u64 {
        assert!(array_offset < self.capacity);
        self.region.quotient(array_offset)
    }

    /// How many regions; the last may be shorter.
    pub const fn regions(&self) -> u64 {
        self.capacity.div_ceil(self.region.get())
    }

    const fn parity(&self) -> &Parity {
        match &self.map {
            Map::Parity(parity) => parity,
            Map::Plain(_) | Map::Mirror(_) => panic!("without parity there are no stripes"),
        }
    }
}

/// A region of at most `bytes`, but of one stripe at least.
fn whole_stripes(bytes: u64, stripe_bytes: u64, capacity: u64) -> Divisor {
    let stripes = (bytes / stripe_bytes).max(1);
    Divisor::new(stripes * stripe_bytes, capacity)
}

/// Does this layout allow this number of members?
fn check_members(layout: Layout, found: usize) -> Result<(), GeometryError> {
    let bad = GeometryError::BadLayout { layout };
    let (needed, allowed) = match layout {
        Layout::Raid10 { near, far, .. } => {
            let copies = usize::from(near) * usize::from(far);
            if !(2..=MAX_SLOTS).contains(&copies) {
                return Err(bad);
            }
            (copies, MAX_SLOTS)
        }
        Layout::Raid35 { order } => {
            if !(1..=MAX_ORDER).contains(&order) {
                return Err(bad);
            }
            let members = (1 << order) + 1;
            (members, members)
        }
        _ => (layout.level().min_members(), MAX_SLOTS),
    };
    if found < needed {
        return Err(GeometryError::TooFewMembers { layout, needed, found });
    }
    if found > allowed {
        return Err(GeometryError::TooManyMembers { layout, allowed, found });
    }
    match layout {
        // md's near copies go on in the next stripe, which here holds offset copies.
        Layout::Raid10 { near, far, offset: true }
            if far > 1 && !found.is_multiple_of(near.into()) =>
        {
            Err(GeometryError::CopiesCollide { layout, members: found })
        }
        _ => Ok(()),
    }
}

/// Can an array of this layout have such chunks?
fn check_chunk(layout: Layout, bytes: u64) -> Result<(), GeometryError> {
    let power_of_two = match layout {
        Layout::Raid1 if bytes == 0 => return Ok(()),
        Layout::Raid1 => return Err(GeometryError::ChunkNotZero { bytes }),
        Layout::Linear if bytes == 0 => return Ok(()),
        Layout::Linear | Layout::Raid0(_) => false,
        _ => true,
    };
    let (min, max) = match layout {
        Layout::Raid35 { order } => {
            ((MIN_CHUNK_BYTES >> order).max(SECTOR_BYTES), MAX_CHUNK_BYTES >> order)
        }
        _ => (MIN_CHUNK_BYTES, MAX_CHUNK_BYTES),
    };
    if !(min..=max).contains(&bytes) {
        return Err(GeometryError::ChunkRange { bytes, min, max });
    }
    if power_of_two && !bytes.is_power_of_two() {
        return Err(GeometryError::ChunkNotPowerOfTwo { bytes });
    }
    if !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(GeometryError::ChunkNotSectors { bytes });
    }
    Ok(())
}

/// The members' sizes in whole units (chunks or sectors), if they are large enough and not too
/// large.
fn usable(layout: Layout, unit: u64, members: Vec<u64>) -> Result<Vec<u64>, GeometryError> {
    let needed = match layout {
        Layout::Raid10 { far, .. } => u64::from(far) * unit,
        _ => unit,
    };
    let small = members.iter().position(|bytes| *bytes < needed);
    if let Some(index) = small {
        let (slot, bytes) = (Slot::new(index), members[index]);
        return Err(GeometryError::MemberTooSmall { slot, bytes, needed });
    }
    // With this no product or checksum of sizes below can overflow.
    let total = members.iter().try_fold(0_u64, |total, bytes| total.checked_add(*bytes));
    if total.is_none_or(|total| total > i64::MAX as u64) {
        return Err(GeometryError::TooLarge);
    }
    Ok(members.into_iter().map(|bytes| bytes - bytes % unit).collect())
}
