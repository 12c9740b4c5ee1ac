//! Members that took no part in the last commit, though they are only one event behind, as after a
//! crash.
//!
//! Owns the check of the structures that a commit writes on every member before its first
//! superblock. Never writes.
//!
//! ```text
//!                         header or bitmap of 24     superblock of 24
//!   a.img                          ✓                        ✓           the freshest
//!   b.img  crash in between        ✓                 still 23           took part: valid
//!   c.img  an old copy             –                 still 23           missed the session: stale
//! ```
//!
//! A commit makes the private header and the bitmap header durable on every assigned member before
//! it writes any superblock (`crate::commit`). So a member that is one event behind because of a
//! crash has them with the number of the freshest superblock. A copy of a member from before the
//! session does not have them, and lacks every write of the session.
//!
//! Only Parapet writes in this order: if a kernel wrote the freshest superblock there is no proof
//! either way. The same applies if the structures to compare are unreadable or damaged. The time of
//! a header is not compared: a crash may interrupt a second attempt at the same number.

use io::broken::{Broken, broken};
use layout::md::superblock::Role;
use layout::md::{Bitmap, Features};
use layout::private::{self, HEADER_BYTES, HEADERS_BYTES, PrivateHeader, Tag};

use crate::assemble::group::Members;
use crate::assemble::probe::MemberProbe;
use crate::assemble::roles::{StaleReason, Standing};
use crate::commit::member_io::{MemberIo, all};
use crate::commit::record::bitmap_range;

/// The bytes read for a bitmap's header: whole blocks of any disk.
const PAGE_BYTES: u64 = 4096;

/// A member's part in a commit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It has the structures that the commit wrote before its first superblock.
    Took,
    /// It has those of an earlier commit.
    Missed,
    /// It has no usable ones.
    Silent,
}

/// Leaves out the members that provably took no part in the last commit.
pub(super) async fn leave_out(reach: &MemberIo, members: &mut Members) {
    let latest = &members.latest().superblock;
    if Tag::of(latest.utime).is_none() || broken(Broken::RolledBackTrusted) {
        return;
    }
    let behind = members.counted().filter(|(_, found, standing)| {
        matches!(standing, Standing::Active(_))
            && matches!(found.superblock.own_role(), Role::Slot(_))
            && found.superblock.events < latest.events
    });
    let behind: Vec<(usize, &MemberProbe)> =
        behind.map(|(index, found, _)| (index, found)).collect();
    if behind.is_empty() {
        return;
    }
    let [header, bits] = evidence(reach, members.latest(), latest.events).await;
    let work = behind.into_iter().map(|(index, found)| async move {
        // A structure that the freshest member lacks was not written by the commit.
        let [own_header, own_bitmap] = evidence(reach, found, latest.events).await;
        let missed = |of_all, own| of_all == Part::Took && own == Part::Missed;
        (missed(header, own_header) || missed(bits, own_bitmap)).then_some(index)
    });
    let missed: Vec<usize> = all(work).await.into_iter().flatten().collect();
    missed.into_iter().for_each(|index| members.mark_stale(index, StaleReason::RolledBack));
}

/// The evidence of a member's private header and of its bitmap for the commit with this number.
async fn evidence(reach: &MemberIo, found: &MemberProbe, events: u64) -> [Part; 2] {
    [of_header(reach, found, events).await, of_bitmap(reach, found, events).await]
}

async fn of_header(reach: &MemberIo, found: &MemberProbe, events: u64) -> Part {
    let Some(bounds) = &found.map.private else { return Part::Silent };
    let place = bounds.start..bounds.start + HEADERS_BYTES;
    let Ok(copies) = reach.read(&*found.disk, place).await else { return Part::Silent };
    let superblock = &found.superblock;
    // A header that matches its superblock shows that no other program has written here.
    if private::valid(&copies, superblock, bounds, parity::crc32c).is_none() {
        return Part::Silent;
    }
    let start = (PrivateHeader::copy(events) * HEADER_BYTES) as usize;
    let copy = &copies[start..start + HEADER_BYTES as usize];
    match PrivateHeader::parse(copy, parity::crc32c) {
        Ok(header) if header.events >= events => Part::Took,
        Ok(_) => Part::Missed,
        // It was never written: the member dates from the creation of the array.
        Err(_) if copy.iter().all(|&byte| byte == 0) => Part::Missed,
        Err(_) => Part::Silent,
    }
}

async fn of_bitmap(reach: &MemberIo, found: &MemberProbe, events: u64) -> Part {
    let superblock = &found.superblock;
    // The bits that stand beside md's partial parity log lie in the private area, which has a
    // header of its own.
    if !superblock.features.contains(Features::BITMAP) {
        return Part::Silent;
    }
    let Some(room) = bitmap_range(&found.map, superblock.features) else { return Part::Silent };
    let place = room.start..room.end.min(room.start + PAGE_BYTES);
    let Ok(bytes) = reach.read(&*found.disk, place).await else { return Part::Silent };
    match Bitmap::parse(&bytes) {
        Ok(header) if header.uuid != superblock.set_uuid => Part::Silent,
        Ok(header) if header.events >= events => Part::Took,
        Ok(header) if header.events >= superblock.events => Part::Missed,
        _ => Part::Silent,
    }
}
