//! Changes of a disk between two sessions.
//!
//! Damage is within a disk's faults: bytes that mismatch their checksum, a shorter or blank disk.
//! Lies are not: fields changed under a corrected checksum, superblocks from another time. After a
//! lie only later writes must read back.

use std::rc::Rc;

use layout::md::{ByteMap, RawSuperblock, SECTOR, Superblock, Version, position, super090};
use layout::private::checksums::ChecksumEntry;

use super::disk::Image;
use crate::Trail;
use crate::choice::Choices;
use crate::metadata::{mend, sample_090};
use crate::trail::tell;

/// The kind of an edit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Nature {
    /// Nothing that matters.
    Harmless,
    /// The disk is worth less than before, and it shows.
    Damage,
    /// The disk has false metadata.
    Lie,
}

/// Where the superblock of version 1 lies, if there is one.
fn superblock_of(image: &Image) -> Option<(u64, Vec<u8>)> {
    Version::ALL.into_iter().find_map(|version| {
        let at = position(version, image.bytes())?;
        let mut bytes = vec![0; 4096];
        image.peek(at, &mut bytes);
        RawSuperblock::new(&bytes).is_ok().then_some((at, bytes))
    })
}

/// Changes a disk by the choices. `old` is its content at an earlier time.
pub(super) fn edit(
    image: &mut Rc<Image>,
    old: &Image,
    choices: &mut Choices<'_>,
    trail: &mut Trail,
) -> Nature {
    let kind = match choices.byte() {
        240.. => 10,
        byte => byte % 10,
    };
    trail.note(("edit", kind));
    let Some((at, mut bytes)) = superblock_of(image) else { return Nature::Harmless };
    match kind {
        0 => {
            // One byte under the checksum; two could cancel out.
            let place = at + u64::from(choices.byte());
            let mut byte = [0];
            image.peek(place, &mut byte);
            byte[0] ^= choices.byte().max(1);
            image.poke(place, &byte);
            Nature::Damage
        }
        1 => {
            image.poke(at, &[0; 4096]);
            Nature::Damage
        }
        2 => {
            let sectors = image.bytes() / 512;
            let left = sectors * (choices.below(255) as u64) / 255;
            *image = Rc::new(image.cut(left * 512));
            Nature::Damage
        }
        3 => {
            *image = Rc::new(Image::new(image.bytes()));
            Nature::Damage
        }
        4..=6 => {
            change_field(&mut bytes, choices, trail);
            mend::superblock(&mut bytes);
            image.poke(at, &bytes);
            Nature::Lie
        }
        7 => {
            let Some((then, earlier)) = superblock_of(old) else { return Nature::Harmless };
            image.poke(then, &earlier);
            Nature::Lie
        }
        8 => {
            // Anything between the superblock and the data, or at the end.
            let reach = choices.pick(&[8 << 10, 64 << 10, 2 << 20]);
            let from_end = choices.flag();
            for _ in 0..=choices.below(8) {
                let back = choices.word() % reach;
                let start = if from_end { image.bytes().saturating_sub(back + 8) } else { back };
                image.poke(start, &choices.word().to_le_bytes());
            }
            Nature::Lie
        }
        9 => {
            place_older(image, at, choices);
            Nature::Lie
        }
        _ => change_checksums(image, old, (at, &bytes), choices, trail),
    }
}

/// Edits entries of the checksum table: bits of a checksum, or values that no disk produces.
/// `superblock` is its place and content.
fn change_checksums(
    image: &Image,
    old: &Image,
    superblock: (u64, &[u8]),
    choices: &mut Choices<'_>,
    trail: &mut Trail,
) -> Nature {
    let (at, bytes) = superblock;
    let found = Superblock::parse(bytes, at / SECTOR).ok();
    let map = found.and_then(|found| ByteMap::of(&found, image.bytes()).ok());
    let Some(parts) = map.and_then(|map| map.private_parts()) else { return Nature::Harmless };
    let kind = choices.below(5);
    trail.note(("sums", kind));
    let mut page = [0; 4096];
    if kind == 0 {
        old.peek(parts.checksums.start, &mut page);
        image.poke(parts.checksums.start, &page);
        return Nature::Lie;
    }
    image.peek(parts.checksums.start, &mut page);
    for _ in 0..=choices.below(4) {
        // Few are in use.
        let (index, any) = (choices.below(24), choices.word());
        let was = ChecksumEntry::get(&page, index);
        let becomes = match kind {
            1 => ChecksumEntry { checksum: any as u32, generation: (any >> 32) as u32 },
            2 => ChecksumEntry { generation: was.generation.wrapping_add(any as u32), ..was },
            3 => ChecksumEntry::get(&page, any as usize % 24),
            // A checksum of zeros alone means something else.
            _ if was.generation != 0 => {
                ChecksumEntry { checksum: was.checksum ^ 1 << (any % 32), ..was }
            }
            _ => ChecksumEntry::UNKNOWN,
        };
        tell(|| format!("entry {index}: {was:?} becomes {becomes:?}"));
        becomes.put(&mut page, index);
    }
    image.poke(parts.checksums.start, &page);
    if kind < 4 { Nature::Lie } else { Nature::Damage }
}

/// A superblock of version 0.90 with a few words changed, beside the one at `at` or in its place.
fn place_older(image: &Image, at: u64, choices: &mut Choices<'_>) {
    let Some(place) = super090::position(image.bytes()) else { return };
    let levels = [5, 1, 0, 6, 10, 4, u32::MAX];
    let mut older = sample_090(false, choices.pick(&levels), choices.pick(&[0, 1, 0x101]));
    for _ in 0..choices.below(4) {
        let word = 4 * choices.below(256) * (1 + choices.below(4)) % 4096;
        let value = number(choices) as u32;
        older[word..word + 4].copy_from_slice(&value.to_le_bytes());
    }
    mend::superblock_090(&mut older);
    image.poke(place, &older);
    if choices.flag() {
        image.poke(at, &[0; 4096]);
    }
}

/// A number at which something may happen.
fn number(choices: &mut Choices<'_>) -> u64 {
    match choices.below(4) {
        0 => u64::from(choices.byte()),
        1 => 1 << (choices.byte() % 64),
        2 => u64::MAX.wrapping_sub(u64::from(choices.byte())),
        _ => choices.word(),
    }
}

/// One field by its name, or an entry of the role table: another value, or a little more or less.
fn change_field(bytes: &mut [u8], choices: &mut Choices<'_>, trail: &mut Trail) {
    let Ok(raw) = RawSuperblock::new(bytes) else { return };
    let fields: Vec<_> = raw.fields().map(|(field, _)| field).collect();
    let chosen = choices.below(fields.len() + 8);
    let (start, size) = match fields.get(chosen) {
        Some(field) => (field.offset, field.size),
        None => (256 + 2 * choices.below(8), 2),
    };
    let name = fields.get(chosen).map_or("dev_roles", |field| field.name);
    trail.note(("field", name));
    let size = size.min(8);
    let mut old = [0; 8];
    old[..size].copy_from_slice(&bytes[start..start + size]);
    let old = u64::from_le_bytes(old);
    let new = match choices.below(4) {
        0 => old.wrapping_add(u64::from(choices.byte())),
        1 => old.wrapping_sub(u64::from(choices.byte())),
        2 => old ^ 1 << (choices.byte() % 64),
        _ => number(choices),
    };
    tell(|| format!("{name} at {start}: {old:#x} becomes {new:#x}"));
    bytes[start..start + size].copy_from_slice(&new.to_le_bytes()[..size]);
}
