//! Assigns members to slots: the configuration that an array starts with.
//!
//! Owns the rules for a slot that two members claim, for members in rebuild, and for a start with
//! members missing.

use std::collections::BTreeMap;

use io::broken::{Broken, broken};
use layout::md::ppl::HEADER_BYTES;
use layout::md::superblock::{EVENTS_MOST, EVENTS_ROOM, Role};
use layout::md::{Features, SECTOR, Superblock};
use layout::{Configuration, Epoch, Geometry, MemberId, Mode, Slot, SlotAssignment, SlotSet, sync};

use crate::assemble::group::Members;
use crate::assemble::roles::Standing;
use crate::assemble::{Note, Options, refuse, with_reasons};
use crate::commit::record::Record;
use crate::commit::{Format, MOST_BLOCK_BYTES, ppl};
use crate::error::{Error, ErrorKind, Result};

/// The configuration and its notes.
pub(super) struct Assigned {
    pub(super) configuration: Configuration,
    pub(super) notes: Vec<Note>,
    pub(super) read_only_reason: Option<String>,
}

/// The recovered bytes of a member, from the start of its data; `None`: all.
fn rebuilt_bytes(superblock: &Superblock) -> Option<u64> {
    let has = |feature| superblock.features.contains(feature);
    match superblock.own_role() {
        Role::Slot(_) if has(Features::RECOVERY_BITMAP) => Some(0),
        Role::Slot(_) if broken(Broken::HalfRebuiltWhole) => None,
        Role::Slot(_) => has(Features::RECOVERY_OFFSET)
            .then(|| superblock.recovery_offset.saturating_mul(SECTOR)),
        _ => Some(0),
    }
}

/// Assigns every member to its slot.
pub(super) fn assignment(
    members: &Members,
    geometry: &Geometry,
    options: &Options,
) -> Result<Assigned> {
    let mut slots = vec![SlotAssignment::default(); geometry.slots()];
    let (mut spares, mut notes) = (Vec::new(), Vec::new());
    for (slot, assignment) in slots.iter_mut().enumerate() {
        *assignment = take_slot(members, geometry, Slot::new(slot), &mut notes)?;
        if assignment.member.is_none() {
            notes.push(Note::Missing { slot: Slot::new(slot) });
        }
    }
    for (_, found, standing) in members.counted() {
        if standing == Standing::Spare {
            spares.push(MemberId(found.superblock.device.number));
            notes.push(Note::Spare { name: found.name.clone() });
        }
    }
    let read_only_reason = read_only_reason(members, geometry, options);
    let mode = if read_only_reason.is_some() { Mode::ReadOnly } else { Mode::ReadWrite };
    let configuration = Configuration { epoch: Epoch(1), slots, spares, journal: None, mode };
    enough(members, geometry, &configuration, options)?;
    Ok(Assigned { configuration, notes, read_only_reason })
}

/// The assignment of one slot. Of two claimants, the one with the copy in progress is the
/// replacement. If only that one is present, it is the slot's member, recovered up to the end of
/// the copy.
fn take_slot(
    members: &Members,
    geometry: &Geometry,
    slot: Slot,
    notes: &mut Vec<Note>,
) -> Result<SlotAssignment> {
    let claims = members.counted().filter(|&(_, _, s)| s == Standing::Active(slot));
    let (mut whole, mut copies): (Vec<_>, Vec<_>) =
        claims.map(|(_, found, _)| found).partition(|found| {
            let superblock = &found.superblock;
            !superblock.features.contains(Features::REPLACEMENT)
                && matches!(superblock.own_role(), Role::Slot(_))
        });
    if whole.len() > 1 || copies.len() > 1 {
        let claimants = if whole.len() > 1 { &whole } else { &copies };
        return refuse(format!(
            "{} and {} both claim slot {slot}: leave one out",
            claimants[0].name, claimants[1].name
        ));
    }
    let (member, replacement) = match whole.pop() {
        Some(member) => (Some(member), copies.pop()),
        None => (copies.pop(), None),
    };
    let below = |bytes: u64| sync::recovered_below(geometry, bytes);
    let id = |superblock: &Superblock| MemberId(superblock.device.number);
    let mut assignment = SlotAssignment::default();
    if let Some(found) = member {
        assignment.member = Some(id(&found.superblock));
        assignment.recovered = rebuilt_bytes(&found.superblock).map(below);
        if let Some(below) = assignment.recovered {
            notes.push(Note::Rebuilding { name: found.name.clone(), slot, below });
        }
    }
    if let Some(found) = replacement {
        let below = rebuilt_bytes(&found.superblock).map_or(geometry.capacity(), below);
        assignment.replacement = Some((id(&found.superblock), below));
        notes.push(Note::Replacing { name: found.name.clone(), slot, below });
    }
    Ok(assignment)
}

/// The reason of an array that the user made read-only.
pub const READ_ONLY_AS_ASKED: &str = "it was started read-only";

/// The reason if nothing may be written.
fn read_only_reason(members: &Members, geometry: &Geometry, options: &Options) -> Option<String> {
    if options.read_only {
        return Some(READ_ONLY_AS_ASKED.to_string());
    }
    let latest = members.latest();
    if latest.format == Format::Md090 {
        let why = "its superblock is of the old version 0.90, which is only read; copy the data to \
                   a new array, or let Linux convert it (mdadm --assemble --update=metadata)";
        return Some(why.to_string());
    }
    let events = latest.superblock.events;
    if events > EVENTS_MOST - EVENTS_ROOM {
        return Some(format!(
            "its event count {events} leaves no room for one more session; copy the data to a new \
             array"
        ));
    }
    let keeps_ppl = latest.superblock.features.intersects(Features::ANY_PPL);
    if let Some(why) = ppl::unfit(geometry).filter(|_| keeps_ppl) {
        return Some(why);
    }
    members.counted().find_map(|(_, found, _)| {
        let limits = found.disk.limits();
        if limits.read_only {
            return Some(format!("{} is read-only", found.name));
        }
        let block = limits.logical_block;
        let log = found.map.ppl.as_ref().filter(|_| keeps_ppl);
        if log.is_some_and(|log| log.end - log.start < 2 * HEADER_BYTES) {
            return Some(format!("the partial parity log of {} has no room", found.name));
        }
        let misfit = block > MOST_BLOCK_BYTES
            || log.is_some_and(|log| !log.start.is_multiple_of(block.into()))
            || !found.map.superblock.start.is_multiple_of(block.into())
            || !found.map.data.start.is_multiple_of(block.into());
        misfit.then(|| {
            format!("{} is written in blocks of {block} bytes, which do not fit", found.name)
        })
    })
}

/// Checks the members with which an array opens. All that does not fit was refused before.
///
/// # Panics
/// If a member has several places or is too small, or too many are missing.
pub(crate) fn assert_fit(
    configuration: &Configuration,
    records: &BTreeMap<MemberId, Record>,
    geometry: &Geometry,
) {
    configuration.assert_consistent();
    let lost = geometry.all_slots().difference(configuration.in_sync());
    assert!(geometry.survives(lost), "an array would start without slots {lost:?}");
    for (slot, id) in configuration.assigned() {
        let have = records.get(&id).map_or(0, |record| record.map.data_bytes());
        let needed = geometry.member_bytes(slot);
        assert!(needed <= have, "slot {slot} uses {needed} bytes of a member with {have}");
    }
}

/// The slots that had a member in the last session and have none now.
pub(super) fn gone(
    members: &Members,
    geometry: &Geometry,
    configuration: &Configuration,
) -> SlotSet {
    let had = members.latest().superblock.roles.iter().filter_map(|role| match role {
        Role::Slot(slot) => Some(usize::from(*slot)).filter(|&slot| slot < geometry.slots()),
        _ => None,
    });
    had.map(Slot::new).collect::<SlotSet>().difference(configuration.present())
}

/// True if a member with a slot in the last session is absent, even if its slot has another member.
pub(super) fn is_one_away(members: &Members) -> bool {
    let here = |number: u32| {
        members.counted().any(|(_, found, _)| found.superblock.device.number == number)
    };
    let mut roles = members.latest().superblock.roles.iter().zip(0..);
    roles.any(|(role, number)| matches!(role, Role::Slot(_)) && !here(number))
}

/// Checks that enough members are present to start the array.
fn enough(
    members: &Members,
    geometry: &Geometry,
    configuration: &Configuration,
    options: &Options,
) -> Result<()> {
    let lost = geometry.all_slots().difference(configuration.in_sync());
    let reasons = |what: String| with_reasons(what, &members.notes);
    if !geometry.survives(lost) {
        let slots: Vec<String> = lost.iter().map(|slot| slot.to_string()).collect();
        let what = format!(
            "{} of {} members are there and whole, too few for {}; missing or not rebuilt: \
             slots {}",
            configuration.in_sync().count(),
            geometry.slots(),
            geometry.layout().level(),
            slots.join(", ")
        );
        return Err(Error::new(ErrorKind::DataLost, reasons(what)));
    }
    let gone = gone(members, geometry, configuration);
    if !gone.is_empty() && !options.degraded {
        let slots: Vec<String> = gone.iter().map(|slot| slot.to_string()).collect();
        let word = if slots.len() == 1 { "slot" } else { "slots" };
        return refuse(reasons(format!(
            "members missing: {word} {}. Attach them, or start degraded (--degraded)",
            slots.join(", ")
        )));
    }
    Ok(())
}
