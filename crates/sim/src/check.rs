//! Conditions on the members of an array at rest, computed naively from their bytes.
//!
//! Uses neither the engine nor its kernels or plans; only the map of the array (whose own tests
//! compare it with md's formulas) and the array's last content.
//!
//! - every byte of data lies where the map says, on each of its copies;
//! - P is the XOR of a stripe's data, Q the checksum of g^exponent · data in GF(2⁸) mod
//!   x⁸+x⁴+x³+x²+1;
//! - each superblock can be read, names its slot, says clean, and all have the same event count;
//! - no bit of a bitmap is set;
//! - every block fits its checksum, if the array keeps them.

use std::collections::BTreeMap;
use std::rc::Rc;

use layout::md::superblock::{Role, Superblock, Version, position};
use layout::md::{Bitmap, ByteMap, SECTOR};
use layout::{Geometry, Owner, Slot, Stripe};

use crate::checksummed;
use crate::disk::SimDisk;

/// A member at rest.
pub struct Member {
    /// The disk.
    pub disk: Rc<SimDisk>,
    /// Its superblock.
    pub superblock: Superblock,
    /// Where everything lies on it.
    pub map: ByteMap,
}

/// The violation, if any.
pub type Verdict = Result<(), String>;

/// Reads a member's superblock as any program would that finds the disk.
///
/// # Errors
/// If there is none.
pub fn member(disk: &Rc<SimDisk>) -> Result<Member, String> {
    let bytes = io::Disk::limits(&**disk).bytes;
    let mut faults = Vec::new();
    // The one at the end first: its data may begin with a superblock of the array above.
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        let Some(at) = position(version, bytes) else { continue };
        let mut raw = [0; 4096];
        disk.peek(at, &mut raw);
        match Superblock::parse(&raw, at / SECTOR) {
            Ok(superblock) => {
                let map = ByteMap::of(&superblock, bytes).map_err(|fault| fault.to_string())?;
                return Ok(Member { disk: Rc::clone(disk), superblock, map });
            }
            Err(fault) => faults.push(fault.to_string()),
        }
    }
    Err(format!("{}: no superblock: {}", disk.name, faults.join("; ")))
}

impl Member {
    /// The slot it says it has.
    pub fn slot(&self) -> Option<Slot> {
        match self.superblock.own_role() {
            Role::Slot(slot) => Some(Slot::new(slot.into())),
            _ => None,
        }
    }

    fn data(&self, member_offset: u64, len: u64, into: &mut Vec<u8>) {
        into.resize(len as usize, 0);
        self.disk.peek(self.map.data.start + member_offset, into);
    }

    /// The bits of its bitmap that are set.
    fn dirty(&self) -> Result<Vec<u64>, String> {
        let Some(at) = self.map.bitmap_offset() else { return Ok(Vec::new()) };
        if !self.superblock.features.contains(layout::md::Features::BITMAP) {
            return Ok(Vec::new());
        }
        let start = self.map.superblock.start as i64 + i64::from(at) * SECTOR as i64;
        let mut header = vec![0; 4096];
        self.disk.peek(start as u64, &mut header);
        let bitmap = Bitmap::parse(&header).map_err(|fault| fault.to_string())?;
        let mut whole = vec![0; bitmap.bytes() as usize];
        self.disk.peek(start as u64, &mut whole);
        let set = |bit: &u64| {
            let (byte, mask) = layout::md::bitmap::byte_of(*bit);
            whole[byte as usize] & mask != 0
        };
        Ok((0..bitmap.bits()).filter(set).collect())
    }
}

/// Multiplies by g = 2.
fn double(byte: u8) -> u8 {
    (byte << 1) ^ if byte & 0x80 != 0 { 0x1d } else { 0 }
}

/// Products of g^exponent with each byte, by exponent.
#[derive(Default)]
struct Products(BTreeMap<u8, [u8; 256]>);

impl Products {
    fn of(&mut self, exponent: u8) -> &[u8; 256] {
        self.0.entry(exponent).or_insert_with(|| {
            std::array::from_fn(|byte| (0..exponent).fold(byte as u8, |byte, _| double(byte)))
        })
    }
}

/// Compares the members of an array at rest with the array's content.
///
/// # Errors
/// The first thing that is wrong.
pub fn at_rest(geometry: &Geometry, disks: &[Rc<SimDisk>], content: &[u8]) -> Verdict {
    let mut slots: Vec<Option<Member>> = (0..geometry.slots()).map(|_| None).collect();
    let mut events = None;
    for disk in disks {
        let member = member(disk)?;
        let Some(slot) = member.slot() else { continue };
        let is_clean = member.superblock.is_clean();
        if !is_clean {
            return Err(format!("{}: stopped in order, and not clean", disk.name));
        }
        let count = member.superblock.events;
        if *events.get_or_insert(count) != count {
            return Err(format!("{}: {count} events, others have {events:?}", disk.name));
        }
        let dirty = member.dirty()?;
        if !dirty.is_empty() {
            return Err(format!("{}: bits {dirty:?} of the bitmap are set", disk.name));
        }
        let assignment = &mut slots[slot.index()];
        if let Some(other) = assignment {
            return Err(format!("{} and {} both hold slot {slot}", disk.name, other.disk.name));
        }
        *assignment = Some(member);
    }
    let mut products = Products::default();
    for (slot, member) in slots.iter().enumerate() {
        let Some(member) = member else { return Err(format!("slot {slot} has no member")) };
        walk(geometry, member, Slot::new(slot), content, &mut products)?;
        let (assignment, bytes) = (Slot::new(slot), geometry.member_bytes(Slot::new(slot)));
        let is_used = |at| !matches!(geometry.owner(assignment, at), Owner::Unused { .. });
        checksummed::fits(member, slot as u32, bytes, is_used)?;
    }
    Ok(())
}

/// Compares every byte of one member with its expected value.
fn walk(
    geometry: &Geometry,
    member: &Member,
    slot: Slot,
    content: &[u8],
    products: &mut Products,
) -> Verdict {
    let (mut at, end) = (0, geometry.member_bytes(slot));
    let (mut found, mut checksum) = (Vec::new(), Vec::new());
    while at < end {
        let owner = geometry.owner(slot, at);
        let len = owner.bytes().min(end - at);
        checksum.clear();
        checksum.resize(len as usize, 0);
        let expected = match owner {
            Owner::Data { array_offset, .. } => &content[array_offset as usize..][..len as usize],
            Owner::P { stripe, .. } => syndrome(geometry, stripe, at, content, None, &mut checksum),
            Owner::Q { stripe, .. } => {
                syndrome(geometry, stripe, at, content, Some(products), &mut checksum)
            }
            Owner::Unused { .. } => {
                at += len;
                continue;
            }
        };
        member.data(at, len, &mut found);
        if found != expected {
            let differs = |&byte: &usize| found[byte] != expected[byte];
            let byte = (0..found.len()).find(differs).unwrap_or_default();
            let name = &member.disk.name;
            return Err(format!(
                "{name} (slot {slot}): at {} of its data it disagrees: {owner:?}",
                at + byte as u64
            ));
        }
        at += len;
    }
    Ok(())
}

/// P, or Q with `products`, of one chunk of the array's content from `at` on: added to `checksum`.
fn syndrome<'a>(
    geometry: &Geometry,
    stripe: Stripe,
    at: u64,
    content: &[u8],
    mut products: Option<&mut Products>,
    checksum: &'a mut [u8],
) -> &'a [u8] {
    let map = geometry.stripe(stripe);
    let (chunk, within) = (geometry.chunk_bytes(), at - map.member_offset());
    for index in 0..map.data_count() {
        let start = stripe.0 * geometry.stripe_bytes() + index as u64 * chunk + within;
        let data = checksum.iter_mut().zip(&content[start as usize..]);
        match &mut products {
            None => data.for_each(|(checksum, &byte)| *checksum ^= byte),
            Some(products) => {
                let table = products.of(map.exponent(index));
                data.for_each(|(checksum, &byte)| *checksum ^= table[usize::from(byte)]);
            }
        }
    }
    checksum
}
