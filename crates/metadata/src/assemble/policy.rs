//! Changes of the crash-consistency policy of an existing array, by the user's option at assembly.
//!
//! Owns the permitted changes, and their effect on the records of the members. Writes nothing:
//! bitmap, headers and superblocks follow with the first commit, in the usual order
//! (`crate::commit`). A crash in the middle may leave different superblocks. The freshest one
//! decides whether there is a bitmap; without one, everything is resynced.
//!
//! The old policy still governs the recovery from a crash; the new one governs the next session.

use std::collections::BTreeMap;

use io::broken::{Broken, broken};
use layout::md::{ByteMap, Features, Superblock};
use layout::private::{Consistency, checksums};
use layout::{Family, Geometry, MemberId, RangeSet};
use log::least_zone;

use crate::assemble::dirty::{Loaded, new_bitmap};
use crate::assemble::group::Members;
use crate::assemble::intents::Intents;
use crate::assemble::slots::Assigned;
use crate::assemble::{Note, Options, refuse};
use crate::bitmap::{Bits, Pages};
use crate::commit::ppl;
use crate::error::{Error, Result};

/// Refuses a change of policy to or from PPL while the log has rows to replay. Only the superblocks
/// identify the log then, and a crash before the replay ends would leave them with the wrong one.
pub(super) fn permit((now, wanted): (Consistency, Consistency), intents: &Intents) -> Result<()> {
    let unresolved = intents.torn_rows.as_ref().is_ok_and(|torn_rows| !torn_rows.is_empty());
    if now == wanted || !unresolved || ![now, wanted].contains(&Consistency::Ppl) {
        return Ok(());
    }
    refuse(format!(
        "the array crashed during writes: assemble it with its policy {} first, which replays \
         them, and stop it; then change to policy {}",
        now.name(),
        wanted.name()
    ))
}

/// Aligns all records with the array's freshest superblock, and returns the old superblocks. A
/// crash during a commit that changed the policy leaves differing ones, and so does an absent
/// spare.
///
/// # Errors
/// Refused where a member has no room for the structures of the others.
pub(super) fn align(
    loaded: &mut Loaded,
    (members, assigned): (&Members, &Assigned),
) -> Result<BTreeMap<MemberId, Superblock>> {
    let array = members.latest().superblock.features;
    let writable = assigned.read_only_reason.is_none() && !broken(Broken::PolicyUnaligned);
    for (&id, record) in loaded.records.iter_mut().filter(|_| writable) {
        let own = record.superblock.features;
        if own.consistency() == array.consistency() {
            continue;
        }
        match (array.consistency(), record.map.bitmap_offset(), record.map.ppl_place()) {
            ((_, true), _, Some(place)) => record.superblock.set_ppl(place),
            ((true, false), Some(offset), _) => record.superblock.bitmap_offset = offset,
            ((false, false), ..) => record.superblock.bitmap_offset = 0,
            _ if assigned.configuration.slot_of(id).is_none() => continue,
            _ => {
                let name = &record.name;
                let what = format!("{name} has no room for what the others keep; leave it out");
                return refuse(what);
            }
        }
        let own = own.without(Features::BITMAP).without(Features::ANY_PPL);
        let kept = Features(array.0 & (Features::BITMAP.0 | Features::ANY_PPL.0));
        record.superblock.features = own.with(kept);
        record.behind = Pages::ALL;
    }
    let each = loaded.records.iter();
    Ok(each.map(|(&id, record)| (id, record.superblock.clone())).collect())
}

/// Changes the records to the policy `wanted`.
///
/// # Errors
/// Refused where the level does not support it, where the array is read-only, and where a member
/// has no room for it.
pub(super) fn adopt(
    loaded: &mut Loaded,
    (members, assigned): (&Members, &mut Assigned),
    geometry: &Geometry,
    (intents, wanted): (&Intents, Consistency),
    options: &Options,
) -> Result<()> {
    let (now, bound) = (intents.consistency, intents.log_bound);
    let unlogged = unlogged(loaded, assigned, geometry, (wanted, bound));
    assigned.notes.extend(unlogged);
    if now == wanted {
        // The array may have been created without a bitmap, or a crash in an earlier change has
        // left it so.
        let lacks = loaded.bits.is_none() && assigned.read_only_reason.is_none();
        let asked = options.consistency.is_some();
        if asked && lacks && wanted.has_bitmap() && geometry.family() != Family::Plain {
            add_bitmap(loaded, members, assigned, geometry)?;
        }
        return Ok(());
    }
    if let Some(why) = &assigned.read_only_reason {
        return refuse(format!("its consistency policy stays {}: {why}", now.name()));
    }
    let needs = |what: &str| {
        let (level, wanted) = (geometry.layout().level(), wanted.name());
        refuse(format!("{level} has no use for consistency policy {wanted}: {what}"))
    };
    match (geometry.family(), wanted) {
        (Family::Plain, _) => return needs("there is nothing that could disagree with the data"),
        (Family::Mirror, Consistency::Intent | Consistency::Journal | Consistency::Ppl) => {
            return needs("it is for levels with parity");
        }
        _ => {}
    }
    if now == Consistency::Ppl {
        drop_features(loaded, Features::ANY_PPL);
    }
    if wanted.has_log() {
        check_room(loaded, geometry, (wanted, bound))?;
    }
    if wanted == Consistency::Ppl {
        drop_features(loaded, Features::BITMAP);
        add_ppl(loaded, geometry)?;
        // Without room for its bits, everything is compared after a crash.
        loaded.bits = new_bits(loaded, members, assigned, geometry);
    } else if wanted == Consistency::Resync {
        drop_features(loaded, Features::BITMAP);
    } else if loaded.bits.is_none() {
        add_bitmap(loaded, members, assigned, geometry)?;
    }
    check_places(loaded)
}

/// The place of the private area follows from the superblock. On a member made by another program
/// it can move when a structure before it is added or removed, and would not be found again.
fn check_places(loaded: &Loaded) -> Result<()> {
    for record in loaded.records.values() {
        let found = ByteMap::of(&record.superblock, record.map.member_bytes);
        if !found.is_ok_and(|map| map.private == record.map.private) {
            return refuse(format!(
                "{}: what lies between superblock and data leaves no room for such a change; let \
                 mdadm make it, or replace that member",
                record.name
            ));
        }
    }
    Ok(())
}

/// The note about an array without a log despite its policy: a member added by another program has
/// no room for one.
fn unlogged(
    loaded: &Loaded,
    assigned: &Assigned,
    geometry: &Geometry,
    (wanted, bound): (Consistency, Option<u64>),
) -> Option<Note> {
    let logs = wanted.has_log() && assigned.read_only_reason.is_none();
    let missing = logs.then(|| check_room(loaded, geometry, (wanted, bound)).err()).flatten()?;
    Some(Note::LogUnusable { why: missing.to_string() })
}

/// Refuses a log that does not fit into the private area of every member. An absent member has room
/// for the log of the last session: `bound` bytes.
fn check_room(
    loaded: &Loaded,
    geometry: &Geometry,
    (wanted, bound): (Consistency, Option<u64>),
) -> Result<()> {
    let least = least_zone(geometry.slots(), wanted == Consistency::Journal);
    if let Some(room) = bound.filter(|&room| room < least) {
        return refuse(format!(
            "the missing member may have no room for the intent log of policy {}: it had {room} \
             bytes for its last log, {least} are needed. Keep the policy until the array has all \
             its members",
            wanted.name()
        ));
    }
    for record in loaded.records.values() {
        let room = record.map.log_bytes();
        if room < least {
            return refuse(format!(
                "{} has no room for the intent log: {room} bytes are free before its data, {least} \
                 are needed. Members that Parapet has made have it; keep the policy as it is, or \
                 replace that member",
                record.name
            ));
        }
    }
    Ok(())
}

/// The array ranges without valid checksums, and the torn ones among them; `None` if none are kept
/// from now on. After a crash the dirty ranges are torn, unless the replay of the intent log has
/// the checksums of their blocks and every member is present. A member added by another program may
/// have no room for checksums: then they are dropped.
///
/// # Errors
/// Refused where the user asks for checksums that cannot be kept.
pub(super) fn checksums(
    loaded: &Loaded,
    assigned: &mut Assigned,
    geometry: &Geometry,
    (intents, options): (&Intents, &Options),
    crashed: Option<(&RangeSet, bool)>,
) -> Result<(Option<RangeSet>, RangeSet)> {
    let kept = intents.checksums_from;
    let wanted = match (options.checksums, &assigned.read_only_reason) {
        (Some(wanted), Some(why)) if wanted != kept.is_some() => {
            return refuse(format!("cannot switch checksums on or off: {why}"));
        }
        (wanted, _) => wanted.unwrap_or(kept.is_some()),
    };
    if !wanted {
        return Ok((None, RangeSet::new()));
    }
    if !checksums::possible(geometry) {
        return refuse(
            "checksums are for levels with redundancy, and chunks (RAID 3.5: fragments) of whole \
             4096 bytes",
        );
    }
    if options.consistency.unwrap_or(intents.consistency) == Consistency::Ppl {
        return refuse(checksums::NOT_WITH_PPL);
    }
    if let Some(record) = loaded.records.values().find(|record| !record.has_table()) {
        let why = format!(
            "{} has no room for them before its data: 8 bytes for each 4 KiB. Members that Parapet \
             has made have it",
            record.name
        );
        if options.checksums.is_some() {
            return refuse(format!("checksums cannot be kept: {why}"));
        }
        assigned.notes.push(Note::ChecksumsDropped { why });
        return Ok((None, RangeSet::new()));
    }
    let end = geometry.capacity();
    let from = kept.unwrap_or(0).min(end);
    let mut unchecksummed: RangeSet =
        std::iter::once(from..end).filter(|r| !r.is_empty()).collect();
    let whole = assigned.configuration.in_sync() == geometry.all_slots();
    let known = |resolved| resolved && whole && intents.consistency.has_log();
    let unverified = crashed.filter(|&(_, resolved)| !known(resolved));
    let unverified = unverified.filter(|_| !broken(Broken::DirtyChecksumsTrusted));
    let mut torn: RangeSet = unverified.into_iter().flat_map(|(dirty, _)| dirty.iter()).collect();
    if kept.is_some() && intents.checksums_torn {
        unchecksummed.iter().for_each(|range| torn.insert(range));
    } else {
        unchecksummed.iter().for_each(|range| torn.remove(range));
    }
    torn.iter().for_each(|range| unchecksummed.insert(range));
    Ok((Some(unchecksummed), torn))
}

/// Drops the bitmap or md's log: both places are in the same field.
fn drop_features(loaded: &mut Loaded, dropped: Features) {
    loaded.bits = None;
    for record in loaded.records.values_mut() {
        record.superblock.features = record.superblock.features.without(dropped);
        record.superblock.bitmap_offset = 0;
    }
}

/// Adds md's partial parity log. It is emptied before the first superblock with that feature.
fn add_ppl(loaded: &mut Loaded, geometry: &Geometry) -> Result<()> {
    if let Some(why) = ppl::unfit(geometry) {
        return refuse(why);
    }
    for record in loaded.records.values_mut() {
        let place = record.map.ppl_place().ok_or_else(|| {
            let name = &record.name;
            Error::refused(format!(
                "{name} has no room for md's partial parity log before its data"
            ))
        })?;
        record.superblock.features = record.superblock.features.with(Features::MULTIPLE_PPLS);
        record.superblock.set_ppl(place);
    }
    Ok(())
}

/// Adds a bitmap. All bits are set unless everything is known to be in sync.
fn add_bitmap(
    loaded: &mut Loaded,
    members: &Members,
    assigned: &Assigned,
    geometry: &Geometry,
) -> Result<()> {
    let none = || Error::refused("there is no room for a write-intent bitmap on its members");
    let places = loaded.records.values().map(|record| record.map.bitmap_offset());
    let places: Vec<_> = places.collect::<Option<_>>().ok_or_else(none)?;
    loaded.bits = Some(new_bits(loaded, members, assigned, geometry).ok_or_else(none)?);
    for (record, place) in loaded.records.values_mut().zip(places) {
        record.superblock.features = record.superblock.features.with(Features::BITMAP);
        record.superblock.bitmap_offset = place;
    }
    Ok(())
}

/// Bits for the members' present places, to be written to all.
fn new_bits(
    loaded: &mut Loaded,
    members: &Members,
    assigned: &Assigned,
    geometry: &Geometry,
) -> Option<Bits> {
    let bits = new_bitmap(&loaded.records, members, geometry)?;
    loaded.records.values_mut().for_each(|record| record.behind = Pages::ALL);
    let whole = assigned.configuration.in_sync() == geometry.all_slots();
    let agree = whole && loaded.unsynced.is_empty();
    Some(if agree { Bits::new(bits.header().clone(), false) } else { bits })
}
