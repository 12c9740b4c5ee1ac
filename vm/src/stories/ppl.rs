//! A RAID 5 of ours with md's partial parity log (PPL) loses a member in the crash: the kernel
//! makes the row that was being written right by the log, or nothing does.
//!
//! ```text
//!            d0     d1     P
//!   before   a      b      a⊕b
//!   crash    a′     b      a⊕b       P was in its disk's cache; b's member dies
//!                   ?                P ⊕ a′ is not b: the write hole
//!   log      P's member: b           so P = a′ ⊕ b, and then b = P ⊕ a′
//! ```
//!
//! The tear is made by hand, from the log: one that the crash could have made.

use std::os::unix::fs::FileExt;

use layout::md::ppl::{HEADER_BYTES, PplHeader, PplRow};
use layout::md::{ByteMap, PplEntry, ppl};
use layout::{Geometry, Layout, Level, Slot, Stripe};

use super::handover::{NAMES, full};
use crate::failure::{Failure, Result, ensure};
use crate::stories::{MEMBER_BYTES, Stage, Story};

pub(super) const STORIES: &[Story] = &[Story { name: "ppl closes the hole of a lost member", run }];

const MEMBERS: usize = 4;
const CHUNK_BYTES: u64 = 64 << 10;
/// In the first chunk of a stripe.
const WRITTEN_AT: u64 = 7 * 3 * CHUNK_BYTES + 4096;

fn run(stage: &Stage<'_>) -> Result {
    let names = &NAMES[..MEMBERS];
    let server = full(stage, ("5", "ppl"), names)?;
    std::fs::copy(stage.path("before"), stage.path("after"))?;
    server.write_unflushed("after", &[(WRITTEN_AT, 8192, 0x5a)])?;
    server.kill()?;
    let torn = tear(stage, names)?;
    let left: Vec<&str> = names.iter().copied().filter(|name| *name != torn.lost).collect();
    stage.set(&[("files", &left.join(" "))])?;
    let keep = |from: &str, to: &str| -> Result {
        for name in &left {
            std::fs::copy(
                stage.path(&format!("{name}{from}")),
                stage.path(&format!("{name}{to}")),
            )?;
        }
        Ok(())
    };
    keep("", ".torn")?;
    // By the kernel.
    stage.kernel.run("take", &stage.parapet.folder)?;
    let kernel_log = stage.text("told")?;
    ensure(kernel_log.contains("starting dirty degraded array with PPL"), || kernel_log)?;
    let new = stage.allowed(|_| true)?;
    // By us.
    keep(".torn", "")?;
    let server = stage.parapet.serve(&left, &["--degraded"])?;
    server.dump("content")?;
    ensure(stage.allowed(|_| true)? == new, || "the kernel and we read differently".into())?;
    server.kill()?;
    // By neither: one bit of the log's checksum is flipped.
    keep(".torn", "")?;
    let header = std::fs::File::options().read(true).write(true).open(stage.path(torn.log))?;
    let mut byte = [0];
    header.read_exact_at(&mut byte, torn.checksum_at)?;
    header.write_all_at(&[byte[0] ^ 1], torn.checksum_at)?;
    let taken = stage.kernel.run("take", &stage.parapet.folder);
    let wrong = taken.is_err() || stage.allowed(|_| true).is_err();
    ensure(wrong, || "the tear does no harm: this story shows nothing".into())
}

/// A row with its parity from before the logged write.
struct Torn {
    /// The member whose block of that row is not being written: it is lost.
    lost: &'static str,
    /// The member with the log, and the place of the partial parity's checksum in it.
    log: &'static str,
    checksum_at: u64,
}

/// Tears the first logged row with an unwritten block.
fn tear(stage: &Stage<'_>, names: &[&'static str]) -> Result<Torn> {
    let layout = Layout::default_for(Level::Raid5, MEMBERS);
    for (slot, &name) in names.iter().enumerate() {
        let bytes = stage.read(name)?;
        let superblock = stage.superblock(name)?;
        let map = ByteMap::of(&superblock, MEMBER_BYTES)
            .map_err(|error| Failure::new(format!("{name}: {error}")))?;
        let room = map.ppl.clone().ok_or_else(|| Failure::new(format!("{name} has no log")))?;
        let shape = layout::Shape {
            layout,
            chunk_bytes: CHUNK_BYTES,
            members: vec![superblock.size * 512; MEMBERS],
        };
        let geometry = Geometry::new(shape).map_err(|error| Failure::new(error.to_string()))?;
        let log =
            &bytes[room.start as usize..][..ppl::usable_bytes(room.end - room.start) as usize];
        let signature = ppl::signature(&superblock.set_uuid, parity::crc32c);
        let newest = ppl::newest(log, signature, parity::crc32c)
            .map_err(|error| Failure::new(format!("{name}: {error}")))?;
        let Some((header, unit)) = newest else { continue };
        let data_count = geometry.data_count() as u64;
        let fits = |entry: &PplEntry| entry.pp_bytes > 0 && entry.parity_disk as usize == slot;
        let Some(index) = header.entries.iter().position(fits) else { continue };
        let row = header.entries[index].row((CHUNK_BYTES, data_count));
        let row = row.ok_or_else(|| Failure::new(format!("{name}'s log tells of no row")))?;
        let partial = partial(log, &header, unit, index);
        let lost = old_parity(stage, name, (&geometry, map.data.start), row, partial)?;
        let checksum_at = room.start + unit as u64 + 536 + 24 * index as u64 + 20;
        return Ok(Torn { lost: names[lost.index()], log: name, checksum_at });
    }
    Err(Failure::new("no log records a partly written row"))
}

/// The partial parity of an entry.
fn partial<'a>(log: &'a [u8], header: &PplHeader, unit: usize, index: usize) -> &'a [u8] {
    let before = header.entries[..index].iter().map(|entry| entry.pp_bytes as usize);
    let start = unit + HEADER_BYTES as usize + before.sum::<usize>();
    &log[start..][..header.entries[index].pp_bytes as usize]
}

/// Puts back the parity that the row had before; gives the slot of a block that is not written.
fn old_parity(
    stage: &Stage<'_>,
    member: &str,
    (geometry, data_start): (&Geometry, u64),
    row: PplRow,
    partial: &[u8],
) -> Result<Slot> {
    let stripe = geometry.stripe(Stripe(row.stripe));
    let before = stage.read("before")?;
    let mut old = partial.to_vec();
    for index in row.first..row.first + row.count {
        let at = row.stripe * geometry.stripe_bytes() + index * CHUNK_BYTES + row.start;
        let data = &before[at as usize..][..row.len as usize];
        old.iter_mut().zip(data).for_each(|(checksum, byte)| *checksum ^= byte);
    }
    let file = std::fs::File::options().write(true).open(stage.path(member))?;
    file.write_all_at(&old, data_start + stripe.member_offset() + row.start)?;
    let written = row.first..row.first + row.count;
    let other = (0..geometry.data_count()).find(|&index| !written.contains(&(index as u64)));
    let other = other.ok_or_else(|| Failure::new("all of the row is being written"))?;
    Ok(stripe.data(other))
}
