//! Groups disks into one array, and decides which of its members are usable.
//!
//! Owns the refusals that need more than one superblock: two arrays, duplicates, split brain,
//! differing shapes, features that Parapet does not run.

use layout::md::Superblock;
use layout::md::superblock::Role;
use layout::{MAX_SLOTS, MemberId};

use crate::assemble::probe::{MemberProbe, Reject};
use crate::assemble::roles::{Divergence, StaleReason, Standing};
use crate::assemble::{Note, Options, is_called, list, refuse, roles, shape, with_reasons};
use crate::error::Result;

/// Members of one array, with the standing of each.
pub(super) struct Members {
    pub(super) probes: Vec<MemberProbe>,
    pub(super) standings: Vec<Standing>,
    freshest: usize,
    pub(super) notes: Vec<Note>,
}

impl Members {
    /// The member with the trusted superblock.
    pub(super) fn latest(&self) -> &MemberProbe {
        &self.probes[self.freshest]
    }

    /// The members that are not stale, each with its standing.
    pub(super) fn counted(&self) -> impl Iterator<Item = (usize, &MemberProbe, Standing)> {
        let all = self.probes.iter().zip(&self.standings).enumerate();
        all.filter(|(_, (_, standing))| !matches!(standing, Standing::Stale(_)))
            .map(|(index, (probe, &standing))| (index, probe, standing))
    }

    /// Marks a member as stale, with the reason. If its superblock was the trusted one, that of
    /// another member of the last event is.
    ///
    /// # Panics
    /// If there is no other one.
    pub(super) fn mark_stale(&mut self, index: usize, lapse: StaleReason) {
        let events = self.latest().superblock.events;
        if index == self.freshest {
            let mut others = self.counted().filter(|&(other, found, standing)| {
                let holds = matches!(standing, Standing::Active(_));
                other != index && holds && found.superblock.events == events
            });
            let other = others.next().map(|(other, ..)| other);
            drop(others);
            self.freshest = other.expect("another member shows what this one lacks");
        }
        self.standings[index] = Standing::Stale(lapse);
        self.notes.push(stale(&self.probes[index], self.latest(), lapse));
    }

    /// Leaves out a member. Refused if no other member has the latest superblock, because its
    /// claims about the others would be lost.
    pub(super) fn leave_out(&mut self, id: MemberId, why: &str) -> bool {
        let latest = self.latest().superblock.events;
        let is_meant = |found: &MemberProbe| MemberId(found.superblock.device.number) == id;
        let holds = |found: &MemberProbe| matches!(found.superblock.own_role(), Role::Slot(_));
        let other = self.counted().find(|(_, found, _)| {
            !is_meant(found) && holds(found) && found.superblock.events == latest
        });
        let meant = self.counted().find(|(_, found, _)| is_meant(found));
        let (Some((freshest, ..)), Some((index, found, _))) = (other, meant) else { return false };
        self.notes.push(Note::Unusable { name: found.name.clone(), why: why.to_string() });
        self.probes.remove(index);
        self.standings.remove(index);
        self.freshest = freshest - usize::from(index < freshest);
        true
    }
}

/// The probes of the selected array.
pub(super) struct Chosen {
    probes: Vec<MemberProbe>,
    notes: Vec<Note>,
}

/// Selects the one array.
pub(super) fn choose(
    mut probes: Vec<MemberProbe>,
    rejects: Vec<(String, Reject)>,
    options: &Options,
) -> Result<Chosen> {
    // Named disks get a note with their problem; a scan has already removed foreign disks.
    let unusable = |(name, why): (String, Reject)| Note::Unusable { name, why: why.to_string() };
    let notes: Vec<Note> = rejects.into_iter().map(unusable).collect();
    probes.retain(|found| {
        options.uuid.is_none_or(|uuid| found.superblock.set_uuid == uuid)
            && options.name.as_ref().is_none_or(|name| is_called(&found.superblock.set_name, name))
    });
    let Some(first) = probes.first() else {
        let what = match (&options.name, &options.uuid) {
            (Some(name), _) => format!("no member of an array called {name} was found"),
            (None, Some(uuid)) => format!("no member of array {uuid} was found"),
            (None, None) => "none of the disks is a member of an array".to_string(),
        };
        return refuse(with_reasons(what, &notes));
    };
    let describe = |found: &MemberProbe| {
        let superblock = &found.superblock;
        format!("{} is of {} ({})", found.name, superblock.set_name, superblock.set_uuid)
    };
    let other = |found: &&MemberProbe| found.superblock.set_uuid != first.superblock.set_uuid;
    if let Some(other) = probes.iter().find(other) {
        return refuse(format!(
            "these are members of different arrays: {}, {}; say which array is meant, by uuid",
            describe(first),
            describe(other)
        ));
    }
    Ok(Chosen { probes, notes })
}

/// Judges the members of the array.
pub(super) fn join(chosen: Chosen) -> Result<Members> {
    let Chosen { probes, mut notes } = chosen;
    refuse_duplicates(&probes)?;
    let superblocks: Vec<&Superblock> = probes.iter().map(|found| &found.superblock).collect();
    for found in &probes {
        let slots = found.superblock.raid_disks as usize;
        if slots > MAX_SLOTS {
            return refuse(format!(
                "{}: an array of {slots} slots; at most {MAX_SLOTS} are supported",
                found.name
            ));
        }
    }
    let judged = roles::judge(&superblocks);
    let judged = judged.or_else(|divergence| refuse(describe_divergence(&probes, &divergence)))?;
    let latest = &probes[judged.freshest];
    for (found, &standing) in probes.iter().zip(&judged.standings) {
        if let Standing::Stale(lapse) = standing {
            notes.push(stale(found, latest, lapse));
            continue;
        }
        if let Some(what) = roles::difference(&latest.superblock, &found.superblock) {
            return refuse(format!(
                "{} does not fit the others of its array: {what} (as in {}); leave it out",
                found.name, latest.name
            ));
        }
        shape::permit_features(found)?;
    }
    let (standings, freshest) = (judged.standings, judged.freshest);
    Ok(Members { probes, standings, freshest, notes })
}

fn refuse_duplicates(probes: &[MemberProbe]) -> Result<()> {
    for (index, a) in probes.iter().enumerate() {
        let same = |b: &&MemberProbe| {
            let (a, b) = (&a.superblock, &b.superblock);
            a.device.number == b.device.number && a.device.uuid == b.device.uuid
        };
        if let Some(b) = probes[..index].iter().find(same) {
            return refuse(format!(
                "{} and {} are the same member (number {}, {}): one is a copy of the other, or one \
                 disk was named twice; leave one out",
                b.name, a.name, a.superblock.device.number, a.superblock.device.uuid
            ));
        }
    }
    Ok(())
}

fn stale(found: &MemberProbe, latest: &MemberProbe, lapse: StaleReason) -> Note {
    let why = match lapse {
        StaleReason::GivenUp => "the others went on without it".to_string(),
        StaleReason::Behind => "it missed more than one change".to_string(),
        StaleReason::RolledBack => {
            "it took no part in the last session: it is a copy from before, or was put back"
                .to_string()
        }
        StaleReason::Hollow => {
            "it has the superblock of the last change, and not the private area that this change \
             wrote: the rest of its contents counts as lost (--force-dirty-degraded takes it as it \
             is)"
            .to_string()
        }
        StaleReason::Replaced => "another disk has its number now".to_string(),
        StaleReason::Unknown => "the others do not know its number".to_string(),
        StaleReason::Elsewhere(own) => {
            format!("it says it holds slot {own}, the others say otherwise")
        }
    };
    Note::Stale {
        name: found.name.clone(),
        events: found.superblock.events,
        latest_events: latest.superblock.events,
        latest: latest.name.clone(),
        why,
    }
}

/// The history of each side, as text.
fn describe_divergence(probes: &[MemberProbe], divergence: &Divergence) -> String {
    let names = |side: &[usize]| list(side.iter().map(|&index| probes[index].name.as_str()));
    let story = |side: &[usize], others: &[usize]| {
        let latest = side.iter().max_by_key(|&&index| probes[index].superblock.events);
        let superblock = &probes[*latest.expect("each side has a member")].superblock;
        format!(
            "{} went on without {} (event {}, last written {})",
            names(side),
            names(others),
            superblock.events,
            utc(superblock.utime.seconds())
        )
    };
    let Divergence { ours, theirs } = divergence;
    format!(
        "the members have two histories that cannot be merged: {}; {}. Assemble the side you want \
         to keep by naming only its members, then add the others as new ones: what was written to \
         them alone is lost then",
        story(ours, theirs),
        story(theirs, ours)
    )
}

/// `2026-11-21 20:05:09 UTC`, by the proleptic Gregorian calendar.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that the leap day is the last of its year; eras have 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn seconds_become_a_date() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_700_000_000), "2023-11-14 22:13:20 UTC");
        assert_eq!(utc(4_107_542_399), "2100-02-28 23:59:59 UTC");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }
}
