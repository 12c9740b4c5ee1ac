//! An array as the API shows it, from the state of the engine and of the server.

use std::rc::Rc;
use std::time::Duration;

use array::status::{
    JobStatus, JournalStatus, MemberStatus, Replay, SlotState as EngineState, SlotStatus, Status,
};
use array::{CacheMode, ScrubResult};
use io::Clock;
use jiff::Timestamp;
use layout::Mode;
use os::Address;

use super::parts::coarse;
use super::problems::problem_inside;
use super::watch::DELETED;
use super::{Daemon, Known, Served};
use crate::api::{
    self, Array, Durations, Finding, Integrity, Job, JobKind, Journal, Latency, Member, Scrub,
    Slot, SlotState, Speed, State,
};
use crate::flags::UNLIMITED;
use crate::remote::{self, Remote};

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
            scrub_record: served.scrubs.view(),
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
            alerts: self.alerts.states(),
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

    /// Returns the current state of every array that has started.
    pub(crate) fn views(&self) -> Vec<Array> {
        let arrays = self.arrays();
        let shown = arrays.iter().filter(|served| !served.is_starting.get());
        shown.map(|served| self.view(served)).collect()
    }

    /// Returns the NBD URIs of an export.
    fn uris(&self, name: &str) -> Vec<String> {
        let scheme = if self.is_secure() { "nbds" } else { "nbd" };
        let uri = |address: &Address| match address {
            Address::Unix(path) => {
                let path = crate::places::absolute(path);
                format!("{scheme}+unix:///{name}?socket={}", escaped(&path.display().to_string()))
            }
            Address::Tcp(address) => format!("{scheme}://{address}/{name}"),
        };
        self.nbd_addresses().iter().map(uri).collect()
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
            health: self.health_of(status.id),
            error_ranges: self.error_places.of(&status.name),
            read_latency: status.reads.map(latency),
            write_latency: status.writes.map(latency),
            read_durations: durations(&status.durations[0]),
            write_durations: durations(&status.durations[1]),
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
    pub(super) fn job(&self, job: &JobStatus) -> Job {
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
    Latency { p50_us: micros(latency.p50), p99_us: micros(latency.p99) }
}

fn durations(durations: &array::Durations) -> Durations {
    Durations {
        bounds_us: array::Durations::bounds().map(micros).collect(),
        counts: durations.counts.clone(),
        sum_us: micros(durations.sum),
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
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
