//! An array as the API shows it, from the state of the engine and of the server.

use std::path::Path;
use std::rc::Rc;

use array::status::{
    FULL_LIST, JobStatus, JournalStatus, MemberStatus, Replay, SlotState as EngineState,
    SlotStatus, Status,
};
use array::{CacheMode, ScrubResult};
use io::Clock;
use jiff::Timestamp;
use layout::Mode;
use os::Address;

use super::parts::coarse;
use super::watch::DELETED;
use super::{Daemon, Known, Served};
use crate::api::{
    self, Array, Finding, Integrity, Job, JobKind, Journal, JournalState, Latency, Member, Problem,
    Scrub, Slot, SlotState, Speed, State,
};
use crate::flags::UNLIMITED;
use crate::remote::{self, Remote};

/// The reason when an array has stopped accepting writes.
const FULL_STORE: &str = "the store of its members has no space left";
/// The minimum interval of a rate.
const ENOUGH_SECONDS: f64 = 0.5;
/// The maximum ratio of an estimate to the measured time; estimates up to `LONG_ENOUGH` are exempt.
const HORIZON: f64 = 20.0;
const LONG_ENOUGH_SECONDS: f64 = 10.0;
/// The maximum of an estimate.
const TOO_LONG_SECONDS: u64 = 10 * 365 * 86_400;

impl Daemon {
    /// Returns the current state of an array.
    pub(crate) fn view(&self, served: &Served) -> Array {
        served.sample_job_rate(self.spawner.clock().now());
        let status = served.array.status();
        let geometry = served.array.geometry();
        let redundancy = geometry.redundancy();
        let slots: Vec<Slot> = status.slots.iter().map(|slot| served.slot(slot)).collect();
        let inside: Vec<Array> = self.inside(served).iter().map(|inner| self.view(inner)).collect();
        let state = inside.iter().map(|inner| with_inner(inner, status.redundancy_left));
        let state = state.fold(own_state(&status), State::max);
        let (min, max) = served.array.speed();
        let mut array = Array {
            uuid: served.uuid().into(),
            name: served.name().into(),
            level: status.layout.level().to_string(),
            layout: status.layout.to_string(),
            chunk_bytes: status.chunk_bytes,
            capacity_bytes: status.capacity_bytes,
            state,
            writable: status.mode == Mode::ReadWrite,
            integrity: served.integrity(&status, redundancy),
            redundancy,
            redundancy_left: status.redundancy_left,
            parity: status.parity,
            slots,
            spares: status.spares.iter().map(|member| served.member(member)).collect(),
            faulty: served.faulty().into_iter().filter_map(|id| served.absent(id)).collect(),
            job: status.job.as_ref().map(|status| served.job(status)),
            last_rebuild: served.job_rate.last(),
            last_scrub: status.last_scrub.as_ref().map(scrub),
            speed: Speed { min, max: Some(max).filter(|&max| max != UNLIMITED) },
            cache: match served.story.cache {
                CacheMode::None => "none".into(),
                CacheMode::Sync => "sync".into(),
                CacheMode::Writeback => "writeback".into(),
            },
            cached_bytes: status.cached_bytes,
            threads: self.crew.threads(),
            exports: self.exports.name_of(served).map(|name| self.uris(&name)).unwrap_or_default(),
            clients: self.exports.clients_of(served),
            aoe: self.aoe_view(served),
            attached: self.attached_view(served),
            problems: Vec::new(),
        };
        array.problems = self.problems(&array, status.mode);
        array.problems.extend(inside.iter().filter_map(problem_inside));
        array
    }

    /// Returns the arrays that are members of this one.
    fn inside(&self, served: &Served) -> Vec<Rc<Served>> {
        let is_inside = |inner: &Rc<Served>| inner.inside().as_deref() == Some(served.uuid());
        self.arrays().into_iter().filter(is_inside).collect()
    }

    /// Returns the current state of every array.
    pub(crate) fn views(&self) -> Vec<Array> {
        self.arrays().iter().map(|served| self.view(served)).collect()
    }

    /// Returns the NBD URIs of an export.
    fn uris(&self, name: &str) -> Vec<String> {
        let scheme = if self.secure { "nbds" } else { "nbd" };
        let uri = |address: &Address| match address {
            Address::Unix(path) => {
                let path = crate::places::absolute(path);
                format!("{scheme}+unix:///{name}?socket={}", escaped(&path.display().to_string()))
            }
            Address::Tcp(address) => format!("{scheme}://{address}/{name}"),
        };
        self.nbd.borrow().iter().map(uri).collect()
    }

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
            1 => self.nbd.borrow().iter().map(nbd_flag).collect(),
            // Omit the addresses: the other arrays keep them.
            _ => String::new(),
        };
        let (name, members) = (&array.name, members.join(" "));
        let serve = format!("parapet serve {name} {members}{nbd}{flag}");
        format!("repair the cause, then: parapet stop {name}{flag}; {serve}")
    }

    fn problems(&self, array: &Array, mode: Mode) -> Vec<Problem> {
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

/// Returns the state of an array, ignoring the state of its members.
pub(super) fn own_state(status: &Status) -> State {
    let is_whole = |slot: &SlotStatus| {
        matches!(slot.state, EngineState::InSync | EngineState::Replacing { .. })
    };
    match (status.mode, status.redundancy_left) {
        (Mode::Broken, _) => State::Failed,
        _ if status.slots.iter().all(is_whole) => State::Healthy,
        (_, 0) => State::Critical,
        _ => State::Degraded,
    }
}

/// Returns the state of an inner array for its outer one. `redundancy_left` is the number of
/// members that the outer one can still lose.
fn with_inner(inner: &Array, redundancy_left: usize) -> State {
    match inner.state {
        // The slot already shows the loss of the member.
        State::Healthy | State::Failed => State::Healthy,
        state if redundancy_left == 0 => state,
        State::Degraded | State::Critical => State::Degraded,
    }
}

/// Returns the problem of an array that is a member of another one.
fn problem_inside(inner: &Array) -> Option<Problem> {
    let first = inner.problems.first()?;
    let state = match inner.state {
        State::Healthy => String::new(),
        state => format!("{}, ", state.word()),
    };
    let message = format!("{}{}: {state}{}", crate::disks::ARRAY, inner.name, first.message);
    Some(Problem { id: "PPT-8018".into(), message, action: first.action.clone() })
}

fn journal(status: &JournalStatus) -> Journal {
    Journal {
        uuid: layout::md::Uuid(status.uuid).to_string(),
        name: status.name.clone(),
        state: status.used.into(),
        written_bytes: status.member.as_ref().map_or(0, |member| member.written_bytes),
    }
}

/// Returns the problem of a member that still serves.
fn trouble(known: &Known) -> Option<String> {
    let state = known.remote.as_ref().map(Remote::state);
    match state {
        _ if known.is_deleted() => Some(DELETED.into()),
        Some(remote::State::Reconnecting) => Some("connection lost: reconnecting".into()),
        Some(remote::State::Missing | remote::State::Returned) => {
            Some("its server does not answer".into())
        }
        _ => None,
    }
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
        if member.slow && slot.replacement.is_none() {
            problem("PPT-8013", format!("{who} {}", slowness(member)), action.clone());
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

/// Describes the latency of a slow member.
fn slowness(member: &Member) -> String {
    let usual = member.read_latency.as_ref().or(member.write_latency.as_ref());
    let usual = usual.map_or(String::new(), |latency| {
        format!(" (usually {:.1} ms)", latency.p50_us as f64 / 1e3)
    });
    format!(
        "takes ten times as long as the others{usual}: reads go past it where they can, writes \
         wait for it"
    )
}

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

impl Served {
    fn integrity(&self, status: &Status, redundancy: usize) -> Integrity {
        Integrity {
            dirty: !status.clean,
            unsynced_bytes: status.unsynced_bytes,
            unsynced_ranges: coarse(&self.array.unsynced(), status.capacity_bytes),
            verifying: status.verifying,
            bad_bytes: status.bad_bytes,
            consistency: Some(status.consistency.into()).filter(|_| redundancy > 0),
            journal: status.journal.as_ref().map(journal),
            unsummed_bytes: status.unsummed_bytes,
            replay: status
                .replay
                .map(|Replay { rows, lost_bytes }| api::Replay { rows, lost_bytes }),
            log_unusable: self.story.log_unusable.clone(),
        }
    }

    fn slot(&self, slot: &SlotStatus) -> Slot {
        Slot {
            slot: slot.slot.index(),
            state: match slot.state {
                EngineState::InSync | EngineState::Replacing { .. } => SlotState::InSync,
                EngineState::Rebuilding { .. } => SlotState::Rebuilding,
                EngineState::Missing => SlotState::Missing,
            },
            member: slot.member.as_ref().map(|member| self.member(member)),
            replacement: slot.replacement.as_ref().map(|member| self.member(member)),
            filled_bytes: match slot.state {
                EngineState::Rebuilding { below } | EngineState::Replacing { below } => Some(below),
                EngineState::InSync | EngineState::Missing => None,
            },
        }
    }

    fn member(&self, status: &MemberStatus) -> Member {
        let known = self.known(status.id);
        let [read_errors, write_errors, checksum_errors] = self.errors_since_clear(status);
        Member {
            name: status.name.clone(),
            uuid: known.as_ref().map(|known| known.uuid.clone()).unwrap_or_default(),
            trouble: known.as_ref().and_then(trouble),
            serial: known.and_then(|known| known.serial),
            read_bytes: status.read_bytes,
            written_bytes: status.written_bytes,
            read_errors,
            write_errors,
            checksum_errors,
            repaired_bytes: status.repaired_bytes,
            bad_bytes: status.bad_bytes,
            slow: status.slow,
            read_latency: status.reads.map(latency),
            write_latency: status.writes.map(latency),
            ..Member::default()
        }
    }

    /// Returns a member that the engine has removed.
    fn absent(&self, id: layout::MemberId) -> Option<Member> {
        let known = self.known(id)?;
        let counted = self.array.member(id).map(|status| self.member(&status)).unwrap_or_default();
        let loss = self.loss_of(&known);
        let last_slot = loss.as_ref().and_then(|loss| loss.slot).or_else(|| self.last_slot(id));
        // Another disk may answer in its place.
        let refused = known.remote.as_ref().and_then(Remote::refused);
        Some(Member {
            last_slot,
            lost_at: loss.as_ref().map(|loss| loss.at),
            replaced: loss.is_none() && last_slot.is_some(),
            trouble: refused.or_else(|| loss.map(|loss| loss.why)),
            slow: false,
            name: known.path.display().to_string(),
            uuid: known.uuid,
            serial: known.serial,
            ..counted
        })
    }
}

impl Served {
    fn job(&self, job: &JobStatus) -> Job {
        let elapsed_s = job.elapsed.as_secs_f64();
        let enough = elapsed_s >= ENOUGH_SECONDS;
        let rate = self.job_rate.array_rate().filter(|_| enough);
        let to_do = job.total_bytes.saturating_sub(job.done_bytes);
        let left = rate.filter(|&rate| rate > 0).map(|rate| to_do as f64 / rate as f64);
        let left = left.filter(|left| {
            enough && (elapsed_s >= LONG_ENOUGH_SECONDS || *left <= elapsed_s * HORIZON)
        });
        let left = left.map(|left| left.ceil() as u64);
        let elapsed = jiff::SignedDuration::try_from(job.elapsed).unwrap_or_default();
        Job {
            kind: match job.kind {
                array::JobKind::Rebuild(_) => JobKind::Rebuild,
                array::JobKind::Replace(_) => JobKind::Replace,
                array::JobKind::Resync => JobKind::Resync,
                array::JobKind::Check => JobKind::Check,
                array::JobKind::Repair => JobKind::Repair,
                array::JobKind::Checksum => JobKind::Checksum,
            },
            done_bytes: job.done_bytes,
            total_bytes: job.total_bytes,
            percent: api::percent(job.done_bytes, job.total_bytes),
            bytes_per_second: rate,
            member_bytes_per_second: rate
                .and_then(|rate| Some((rate as f64 * self.job_rate.share()?) as u64)),
            seconds_left: left.filter(|left| *left <= TOO_LONG_SECONDS),
            limited_by: job.throttled.then(|| self.what_limits()),
            started: self
                .job_rate
                .started()
                .unwrap_or_else(|| Timestamp::now().checked_sub(elapsed).unwrap_or_default()),
            mismatches: job.mismatches,
            lost_bytes: job.lost_bytes,
        }
    }
}

impl Served {
    /// Describes the factor that limits the rate of a job.
    fn what_limits(&self) -> String {
        match self.array.speed().1 {
            UNLIMITED => "the requests of clients (parapet speed)".into(),
            max => {
                format!("the limit of {}/s per member (parapet speed)", crate::size::Size(max))
            }
        }
    }
}

fn latency(latency: array::Latency) -> Latency {
    let micros = |span: std::time::Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    Latency { p50_us: micros(latency.p50), p99_us: micros(latency.p99) }
}

fn scrub(result: &ScrubResult) -> Scrub {
    let micros = i64::try_from(result.unix_micros).unwrap_or(0);
    let finding = |finding: &array::Finding| Finding {
        array_offset: finding.array_offset,
        member_offset: finding.member_offset,
        disk_offset: finding.disk_offset,
        bytes: finding.len,
        slot: finding.culprit.map(layout::Slot::index),
        repaired: finding.repaired,
    };
    Scrub {
        repair: result.repair,
        complete: result.complete,
        ended: Timestamp::from_microsecond(micros).unwrap_or_default(),
        seconds: result.duration.as_secs_f64(),
        bytes: result.report.bytes,
        compared_bytes: result.report.compared_bytes,
        mismatches: result.report.mismatches,
        repaired_mismatches: result.report.repaired,
        repaired_bytes: result.report.repaired_bytes,
        guessed_bytes: result.report.guessed_bytes,
        findings: result.report.findings.iter().map(finding).collect(),
    }
}

/// Escapes a path for the query of a URI.
fn escaped(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
    path.bytes()
        .map(|b| if plain(b) { char::from(b).into() } else { format!("%{b:02X}") })
        .collect()
}
