//! Members whose superblock claims more than they hold.
//!
//! Owns the check of the structures that a commit writes on every member before its first
//! superblock. Never writes.
//!
//! ```text
//!                         header or bitmap of 24     superblock
//!   a.img                          ✓                     24           the freshest
//!   b.img  crash in between        ✓                     23           took part: valid
//!   c.img  an old copy             –                     23           missed the session: stale
//!   d.img  a copied label       no header                24           lost all else: stale
//! ```
//!
//! A commit makes the private header and the bitmap header durable on every assigned member before
//! it writes any superblock (`crate::commit`). So a member that is one event behind because of a
//! crash has them with the number of the freshest superblock. A copy of a member from before the
//! session does not have them, and lacks every write of the session. A member of the last event
//! without any header of its own has lost it, and with it what else lay on the disk.
//!
//! Only Parapet writes in this order: if a kernel wrote the freshest superblock there is no proof
//! either way. The same applies if the structures to compare are unreadable, or if no member of the
//! last event has them. Without headers the bitmap decides. The time of a header is not compared: a
//! crash may interrupt a second attempt at the same number.

use io::broken::{Broken, broken};
use layout::md::superblock::Role;
use layout::md::{Bitmap, Features};
use layout::private::{self, HEADER_BYTES, HEADERS_BYTES, PrivateHeader, Tag};

use crate::assemble::Options;
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
    /// It has none: zeros, or those of another member or array.
    Absent,
    /// There is something else.
    Damaged,
    /// It has no usable ones.
    Silent,
}

/// Leaves out the members that provably took no part in the last commit, or lost what it wrote.
/// The administrator may accept what such a member holds.
pub(super) async fn leave_out(reach: &MemberIo, members: &mut Members, options: &Options) {
    let latest = &members.latest().superblock;
    if Tag::of(latest.utime).is_none() || broken(Broken::RolledBackTrusted) {
        return;
    }
    let events = latest.events;
    let holders = members.counted().filter(|(_, found, standing)| {
        matches!(standing, Standing::Active(_))
            && matches!(found.superblock.own_role(), Role::Slot(_))
    });
    let work = holders.map(|(index, found, _)| async move {
        let is_latest = found.superblock.events == events;
        (index, is_latest, evidence(reach, found, events).await)
    });
    let holders: Vec<(usize, bool, [Part; 2])> = all(work).await;
    // A structure that no member of the last event has was not written by the commit.
    let [header, bitmap] = [0, 1].map(|structure| {
        holders.iter().any(|(_, is_latest, parts)| *is_latest && parts[structure] == Part::Took)
    });
    let accepted = options.force_dirty_degraded || broken(Broken::LabelTrusted);
    for (index, is_latest, [own_header, own_bitmap]) in holders {
        let missed = header && own_header == Part::Missed || bitmap && own_bitmap == Part::Missed;
        if lost([header, bitmap], [own_header, own_bitmap]) && !accepted {
            members.mark_stale(index, StaleReason::Hollow);
        } else if !is_latest && missed {
            members.mark_stale(index, StaleReason::RolledBack);
        }
    }
}

/// True if a member lost what the commit of its superblock wrote beside it; `headed` if that was a
/// private header, too.
pub(crate) async fn is_hollow(reach: &MemberIo, found: &MemberProbe, headed: bool) -> bool {
    let superblock = &found.superblock;
    if Tag::of(superblock.utime).is_none() || broken(Broken::LabelTrusted) {
        return false;
    }
    let bits = superblock.features.contains(Features::BITMAP);
    lost([headed, bits], evidence(reach, found, superblock.events).await)
}

/// True if a member has lost what the commit `wrote`: its header, or, without headers, its bitmap.
/// A damaged header alone may be rot.
fn lost([headed, bits]: [bool; 2], [header, bitmap]: [Part; 2]) -> bool {
    let no_bitmap = bits && bitmap == Part::Absent;
    match header {
        Part::Absent if headed => true,
        Part::Damaged if headed => no_bitmap,
        _ => !headed && no_bitmap,
    }
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
        let headers = copies.chunks(HEADER_BYTES as usize);
        let parsed: Vec<_> =
            headers.filter_map(|copy| PrivateHeader::parse(copy, parity::crc32c).ok()).collect();
        let is_own = |header: &PrivateHeader| {
            let identity = (header.set_uuid, header.device_uuid);
            identity == (superblock.set_uuid, superblock.device.uuid)
        };
        let is_empty = copies.iter().all(|&byte| byte == 0);
        return match parsed.iter().any(is_own) {
            true => Part::Silent,
            false if is_empty || !parsed.is_empty() => Part::Absent,
            false => Part::Damaged,
        };
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
        Ok(header) if header.uuid != superblock.set_uuid => Part::Absent,
        Ok(header) if header.events >= events => Part::Took,
        Ok(header) if header.events >= superblock.events => Part::Missed,
        Err(_) if bytes.iter().all(|&byte| byte == 0) => Part::Absent,
        _ => Part::Silent,
    }
}
