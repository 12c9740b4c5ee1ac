//! The problems of an array, each with an id and a next step.

use std::path::Path;

use array::status::FULL_LIST;
use layout::Mode;
use os::Address;

use super::Daemon;
use crate::api::{Array, HealthLevel, JournalState, Member, Problem, Slot, SlotState, State};

/// The reason when an array has stopped accepting writes.
const FULL_STORE: &str = "the store of its members has no space left";

impl Daemon {
    /// Formats ` --control unix:PATH` if the socket is not at the default place.
    pub(super) fn control_flag(&self) -> String {
        match self.control.borrow().first() {
            Some(Address::Unix(path)) if !self.usual_control.get() => {
                let path = format!("unix:{}", crate::places::absolute(path).display());
                format!(" --control {}", crate::places::quoted(&path))
            }
            _ => String::new(),
        }
    }

    /// Returns the command that restarts a failed array: only a start takes lost members again.
    pub(super) fn how_to_revive(&self, array: &Array, flag: &str) -> String {
        let path = |member: &Member| {
            let path = crate::disks::member_path(Path::new(&member.name));
            crate::places::quoted(&path.display().to_string())
        };
        let members = array.members().filter(|member| !member.replaced).map(path);
        let members: Vec<String> = members.collect();
        let nbd: String = match self.arrays().len() {
            1 => self.nbd_addresses().iter().map(nbd_flag).collect(),
            // Omit the addresses: the other arrays keep them.
            _ => String::new(),
        };
        let (name, members) = (&array.name, members.join(" "));
        let serve = format!("parapet serve {name} {members}{nbd}{flag}");
        format!("repair the cause, then: parapet stop {name}{flag}; {serve}")
    }

    /// Returns what is wrong with an array.
    pub(super) fn problems(&self, array: &Array, mode: Mode) -> Vec<Problem> {
        let (name, flag) = (&array.name, self.control_flag());
        let revive = self.how_to_revive(array, &flag);
        let mut problems = Vec::new();
        let mut problem = |id: &str, message: String, action: String| {
            problems.push(Problem { id: id.into(), message, action });
        };
        let missing = array.slots.iter().filter(|slot| slot.state == SlotState::Missing).count();
        let rebuilding =
            array.slots.iter().filter(|slot| slot.state == SlotState::Rebuilding).count();
        let add = how_to_fill(array, &flag);
        let why = why_lost(array);
        if mode == Mode::Full {
            let message = format!("{FULL_STORE}: writes fail, reads go on");
            problem("PPT-8019", message, revive.replace("repair the cause", "free space"));
        }
        match array.state {
            State::Failed => problem(
                "PPT-8003",
                format!("{missing} members are missing, more than the level tolerates{why}"),
                revive.clone(),
            ),
            _ if missing > 0 && array.state == State::Critical => {
                problem(
                    "PPT-8002",
                    missing_sentence(missing, "the next loss loses data") + &why,
                    add,
                );
            }
            _ if missing > 0 => {
                problem(
                    "PPT-8001",
                    missing_sentence(missing, "data is still redundant") + &why,
                    add,
                );
            }
            _ if rebuilding > 0 => problem(
                "PPT-8004",
                "a member is being filled; until then redundancy is reduced".into(),
                format!("parapet wait {name} --for whole{flag}"),
            ),
            _ => {}
        }
        if let Some(scrub) = &array.last_scrub
            && let left = scrub.mismatches.saturating_sub(scrub.repaired_mismatches)
            && left > 0
        {
            let places = match left {
                1 => "a place".to_string(),
                count => format!("{count} places"),
            };
            let message = format!("the last scrub left {places} where members disagree");
            let action = match missing + rebuilding {
                0 => format!("parapet scrub {name} repair{flag}"),
                _ if missing > 0 => how_to_fill(array, &flag),
                _ => format!("parapet wait {name} --for whole{flag}"),
            };
            problem("PPT-8005", message, action);
        }
        problems.extend(problems_of_members(array, &flag));
        problems.extend(unprotected(array, &flag, revive));
        problems.extend(without_journal(array));
        let bad_bytes = array.slots.iter().filter_map(|slot| bad_bytes(array, slot, &flag));
        problems.extend(bad_bytes);
        problems.extend(cut_bytes(array));
        problems
    }
}

/// Returns the problem of an array that is a member of another one.
pub(super) fn problem_inside(inner: &Array) -> Option<Problem> {
    let first = inner.problems.first()?;
    let state = match inner.state {
        State::Healthy => String::new(),
        state => format!("{}, ", state.word()),
    };
    let message = format!("{}{}: {state}{}", crate::disks::ARRAY, inner.name, first.message);
    Some(Problem { id: "PPT-8018".into(), message, action: first.action.clone() })
}

/// Reports a journal device that failed or was missing at the start.
fn without_journal(array: &Array) -> Option<Problem> {
    let journal = array.integrity.journal.as_ref().filter(|_| array.writable)?;
    let (name, device) = (&array.name, &journal.name);
    let what = match journal.state {
        JournalState::GivenUp => format!("the journal device {device} has failed"),
        // The log is on the device, or moves there with the next write.
        JournalState::Logging => return None,
        JournalState::Away => format!("the journal device {device} is not used"),
    };
    let message = format!("{what}: the intent log is on the members");
    let stop = format!("parapet stop {name}");
    let action = match journal.state {
        JournalState::GivenUp => format!("{stop}, then parapet serve it with --journal DEVICE"),
        _ => format!("{stop}, then parapet serve it with {device} among its members"),
    };
    Some(Problem { id: "PPT-8015".into(), message, action })
}

/// Reports parity that is not computed, or out of sync.
fn unprotected(array: &Array, flag: &str, revive: String) -> Option<Problem> {
    let (id, message, action) = if !array.has_parity() {
        return None;
    } else if !array.parity {
        let message = "started without parity: new writes are not protected".into();
        ("PPT-8010", message, format!("parapet stop {}{flag}", array.name))
    } else if array.integrity.unsynced_bytes > 0 && !array.integrity.verifying {
        let size = crate::size::Size(array.integrity.unsynced_bytes);
        let why = match &array.integrity.log_unusable {
            Some(why) => format!("; the intent log was not used: {why}"),
            None => String::new(),
        };
        let message = format!("{size} are not in sync yet: until then, a loss loses data{why}");
        let action = match array.is_syncing() {
            true => format!("parapet wait {} --for resync{flag}", array.name),
            false if array.state == State::Failed => revive,
            false => how_to_sync(array, flag),
        };
        ("PPT-8011", message, action)
    } else {
        return None;
    };
    Some(Problem { id: id.into(), message, action })
}

/// Returns the command that starts a resync of an array that does not start it by itself.
fn how_to_sync(array: &Array, flag: &str) -> String {
    match array.writable {
        true => how_to_fill(array, flag),
        false => "restart `parapet serve` without --read-only to resync".into(),
    }
}

/// Counts the bytes on the bad-block list of a slot's member. Parapet lists only unrecoverable
/// blocks; md also lists blocks that other members still hold.
fn bad_bytes(array: &Array, slot: &Slot, flag: &str) -> Option<Problem> {
    let is_bad = |slot: &&Slot| slot.member.as_ref().is_some_and(|member| member.bad_bytes > 0);
    let member = slot.member.as_ref().filter(|_| is_bad(&slot))?;
    let size = crate::size::Size(member.bad_bytes);
    let whose = format!("slot {} ({}): {size}", slot.slot, member.name);
    let alone = array.slots.iter().filter(is_bad).count() == 1;
    let (id, message, action) = match alone && array.redundancy_left > 0 {
        true => (
            "PPT-8016",
            format!("{whose} are on its list of bad blocks, and are made from the others"),
            format!("parapet scrub {} repair{flag}", array.name),
        ),
        false => (
            "PPT-8012",
            format!("{whose} could not be recovered, and are errors until they are written"),
            "restore these blocks from a backup".into(),
        ),
    };
    Some(Problem { id: id.into(), message, action })
}

/// Reports bytes torn by a crash while their member was missing.
fn cut_bytes(array: &Array) -> Option<Problem> {
    let size = crate::size::Size(Some(array.integrity.bad_bytes).filter(|&bytes| bytes > 0)?);
    let message = format!(
        "{size} that were being written when it crashed, and never acknowledged as durable, are an \
         error until they are written"
    );
    let action = "rewrite these blocks; a file system does so when it replays its journal".into();
    Some(Problem { id: "PPT-8014".into(), message, action })
}

/// Returns the command that fills a missing slot.
fn how_to_fill(array: &Array, flag: &str) -> String {
    let name = &array.name;
    match array.faulty.iter().find(|member| array.can_return(member)) {
        _ if array.awaits_spare() => format!("parapet wait {name} --for whole{flag}"),
        _ if !array.writable => {
            format!("restart `parapet serve` without --read-only, then: parapet add {name} DISK")
        }
        None => format!("parapet add {name} DISK{flag}"),
        Some(lost) if lost.trouble.as_ref().is_some_and(|why| why.contains(FULL_LIST)) => format!(
            "the list of unverified blocks is full: restore from a backup; or stop the array, \
             assemble it with --force-dirty-degraded (may return wrong data), and then: parapet \
             add {name} DISK{flag}"
        ),
        Some(lost) => {
            let lost = crate::places::quoted(&lost.name);
            format!("parapet re-add {name} {lost}{flag}, or parapet add {name} DISK{flag}")
        }
    }
}

/// Formats ` --nbd unix:PATH`, as `serve` takes it.
fn nbd_flag(address: &Address) -> String {
    let address = match address {
        Address::Unix(path) => format!("unix:{}", crate::places::absolute(path).display()),
        Address::Tcp(address) => format!("tcp:{address}"),
    };
    format!(" --nbd {}", crate::places::quoted(&address))
}

/// Reports the problems of members that hold a slot.
fn problems_of_members(array: &Array, flag: &str) -> Vec<Problem> {
    let name = &array.name;
    let mut problems = Vec::new();
    let mut problem = |id: &str, message: String, action: String| {
        problems.push(Problem { id: id.into(), message, action });
    };
    for slot in &array.slots {
        let Some(member) = &slot.member else { continue };
        let action = match slot.replacement {
            Some(_) => format!("parapet wait {name} --for whole{flag}"),
            None => format!("parapet replace {name} {} DISK{flag}", slot.slot),
        };
        let who = format!("slot {} ({})", slot.slot, member.name);
        if let Some(trouble) = member.trouble.as_ref().filter(|_| slot.replacement.is_none()) {
            problem("PPT-8007", format!("{who}: {trouble}"), action.clone());
        }
        if slot.replacement.is_none()
            && let Some((message, action)) = health_of(array, slot.slot, member, flag)
        {
            problem("PPT-8020", format!("{who}: {message}"), action);
        }
        if member.slow && slot.replacement.is_none() {
            let smart = format!("parapet disk smart {}", crate::places::quoted(&member.name));
            let action = format!("iostat -x 5, {smart}, then {action}");
            problem("PPT-8013", format!("{who} {SLOWNESS}"), action);
        }
        if member.checksum_errors > 0 {
            let message = format!("{who}: {}", checksum_errors(member));
            let action = format!("parapet clear {name}{flag}, or {action}");
            problem("PPT-8017", message, action);
        }
        match member.read_errors {
            0 => {}
            1 => problem("PPT-8006", format!("{who}: a read error"), action),
            count => problem("PPT-8006", format!("{who}: {count} read errors"), action),
        }
    }
    problems
}

/// Describes the health of a member's disk, if somebody should act.
fn health_of(array: &Array, slot: usize, member: &Member, flag: &str) -> Option<(String, String)> {
    let health = member.health.as_ref()?;
    let action = match health.level {
        HealthLevel::Ok | HealthLevel::Watch => return None,
        HealthLevel::Suspect => {
            format!("parapet disk smart {}", crate::places::quoted(&member.name))
        }
        _ => format!("parapet replace {} {slot} DISK{flag}", array.name),
    };
    Some((health.sentence(), action))
}

/// Describes the checksum errors of a member.
fn checksum_errors(member: &Member) -> String {
    let blocks = match member.checksum_errors {
        1 => "1 block did not match its checksum".into(),
        count => format!("{count} blocks did not match their checksums"),
    };
    match member.repaired_bytes {
        0 => format!("{blocks}; nothing was repaired"),
        bytes => format!("{blocks}; {} repaired", crate::size::Size(bytes)),
    }
}

/// The problem text of a slow member. The event has the figures: the usual time of a member says
/// little where reads avoid it.
const SLOWNESS: &str = "has answered far slower than the other members for minutes: reads are \
                        routed to other members where possible, writes wait for it";

/// Lists why members failed, as far as known, as an addition to a sentence.
fn why_lost(array: &Array) -> String {
    let tell = |member: &Member| {
        let slot = member.last_slot.map_or(String::new(), |slot| format!(" (slot {slot})"));
        let time = member.lost_at.map_or(String::new(), |time| format!(" at {time}"));
        let (name, trouble) = (&member.name, member.trouble.as_ref()?);
        Some(format!("; {name}{slot} was lost{time}: {trouble}"))
    };
    array.faulty.iter().filter(|member| array.can_return(member)).filter_map(tell).collect()
}

fn missing_sentence(count: usize, so: &str) -> String {
    match count {
        1 => format!("a member is missing; {so}"),
        _ => format!("{count} members are missing; {so}"),
    }
}
