//! Events of an array as lines of the log: the array first, then the member and its slot.
//!
//! Each event gets its own line. Repairs come in bursts, so the log summarizes them once a second.
//! Never decides anything.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::time::Duration;

use array::ScrubResult;
use array::status::{Event, EventKind, MemberStatus, Replay, Status};
use io::{Clock, Time};

use super::view::own_state;
use super::{Daemon, Served, first};
use crate::api::{Severity, State};
use crate::size::Size;

/// Maximum number of scrub findings in the log.
const TOLD_FINDINGS: usize = 20;
/// Repairs within this interval share a line.
const REPAIRS: Duration = Duration::from_secs(1);

/// Repairs not logged yet.
#[derive(Default)]
struct Repairs {
    /// The members, by name.
    of: BTreeSet<String>,
    /// When to log them.
    due: Option<Time>,
    /// The last logged counts of each member: rewritten bytes, checksum errors, read errors.
    before: BTreeMap<String, [u64; 3]>,
}

impl Served {
    /// Logs the events of the array, in mdadm's words.
    pub(super) async fn log_events(self: Rc<Self>, daemon: Weak<Daemon>, clock: &dyn Clock) {
        let (mut reported, mut repairs) = (0, Repairs::default());
        loop {
            let log = self.array.log();
            let grown = first(log.wait(reported), self.until_stopped());
            let ended = match repairs.due {
                Some(due) => first(grown, clock.sleep_until(due)).await,
                None => Some(grown.await),
            };
            self.apply_events();
            let events = log.since(reported);
            reported = log.count();
            let status = self.array.status();
            for event in &events {
                self.job_rate.apply_event(event, status.job.as_ref(), status.capacity_bytes);
                match event.member.as_ref().filter(|_| event.kind == EventKind::Repaired) {
                    Some(member) => {
                        repairs.note(member, clock.now());
                        let range = event.range.clone();
                        range.into_iter().for_each(|it| self.error_places.note(member, it));
                    }
                    None => self.log_event(event, status.replay),
                }
            }
            let is_over = ended == Some(None);
            if is_over || repairs.due.is_some_and(|due| due <= clock.now()) {
                repairs.log_event(&self);
            }
            self.log_findings(&status);
            self.log_state();
            if let Some(daemon) = daemon.upgrade() {
                daemon.stirred.raise();
            }
            if is_over {
                return;
            }
        }
    }

    fn log_event(&self, event: &Event, replay: Option<Replay>) {
        let (array, kind) = (self.name(), format!("{:?}", event.kind));
        let slot = event.slot.map(|slot| format!("slot {slot}"));
        let slot = slot.filter(|slot| !event.text.contains(slot.as_str()));
        let slot = slot.map_or(String::new(), |slot| format!(" ({slot})"));
        let member = event.member.as_ref().map(|member| format!("{member}{slot}: "));
        let line = format!("{array}: {}{}", member.unwrap_or_default(), event.text);
        let severity = severity(event.kind, replay);
        match severity {
            Severity::Error => tracing::error!(event = kind, "{line}"),
            Severity::Warning => tracing::warn!(event = kind, "{line}"),
            Severity::Info => tracing::info!(event = kind, "{line}"),
        }
        let message = line.strip_prefix(&format!("{array}: ")).unwrap_or(&line);
        self.history.note((word(event), severity), event.member.as_deref(), message);
    }

    /// Logs the state of the array if it has changed. A member's event comes before the change of
    /// the membership that it causes.
    pub(super) fn log_state(&self) {
        let status = self.array.status();
        let now = (own_state(&status), status.redundancy_left);
        let before = self.watched.borrow_mut().state.replace(now);
        let (state, left) = now;
        if before.map_or(state == State::Healthy, |before| before == now) {
            return;
        }
        let message = format!("the array {}, {}", state.is_word(), tolerated(left));
        let line = format!("{}: {message}", self.name());
        let (word, severity) = match state {
            State::Healthy => ("Healthy", Severity::Info),
            State::Degraded | State::Critical => ("DegradedArray", Severity::Warning),
            State::Failed => ("FailedArray", Severity::Error),
        };
        match severity {
            Severity::Info => tracing::info!("{line}"),
            Severity::Warning => tracing::warn!("{line}"),
            Severity::Error => tracing::error!("{line}"),
        }
        self.history.note((word, severity), None, &message);
    }

    /// Logs the findings of scrubs and records their ends, once.
    pub(super) fn log_findings(&self, status: &Status) {
        for (index, scrub) in [&status.last_scrub, &status.last_part].into_iter().enumerate() {
            let Some(scrub) = scrub else { continue };
            let ended = Some(scrub.unix_micros);
            if std::mem::replace(&mut self.watched.borrow_mut().scrubs[index], ended) == ended {
                continue;
            }
            self.error_places.cover(&scrub.range);
            if index == 0 {
                self.scrubs.end(scrub);
            }
            self.log_mismatches(scrub);
        }
    }

    fn log_mismatches(&self, scrub: &ScrubResult) {
        let array = self.name();
        for finding in scrub.report.findings.iter().take(TOLD_FINDINGS) {
            let slot = finding.culprit.map(|slot| format!("slot {slot}: "));
            let slot = slot.unwrap_or_default();
            let what = match finding.repaired {
                true => "mismatch, repaired",
                false => "members disagree, not repaired",
            };
            let (bytes, offset, disk) = (finding.len, finding.array_offset, finding.disk_offset);
            tracing::warn!(
                "{array}: {slot}{what}: {} at offset {disk} of the disk, {offset} of the array",
                Size(bytes)
            );
        }
        if scrub.report.findings.len() > TOLD_FINDINGS {
            let found = scrub.report.findings.len();
            tracing::warn!("{array}: {found} places in all: parapet status {array} --json");
        }
    }
}

impl Repairs {
    fn note(&mut self, member: &str, now: Time) {
        self.of.insert(member.into());
        self.due.get_or_insert(now + REPAIRS);
    }

    fn log_event(&mut self, served: &Served) {
        self.due = None;
        let status = served.array.status();
        for name in std::mem::take(&mut self.of) {
            let is_it = |member: &&MemberStatus| member.name == name;
            let holder = |slot: &&array::status::SlotStatus| slot.member.iter().any(|m| is_it(&m));
            let slot = status.slots.iter().find(holder);
            let place = slot.map_or(String::new(), |slot| format!(" (slot {})", slot.slot));
            let held = status.slots.iter().flat_map(|s| s.member.iter().chain(&s.replacement));
            let counts = held.chain(&status.spares).find(is_it).map_or([0; 3], counts);
            let before = self.before.insert(name.clone(), counts).unwrap_or_default();
            let more = |index: usize| counts[index].saturating_sub(before[index]);
            let why = why(more(1), more(2));
            let (array, bytes) = (served.name(), Size(more(0)));
            let message = format!("{name}{place}: {bytes} rewritten from the others{why}");
            tracing::warn!(event = "Repaired", "{array}: {message}");
            served.history.note(("Repaired", Severity::Warning), Some(&name), &message);
        }
    }
}

/// How much an event matters. What the user has ordered is no warning.
fn severity(kind: EventKind, replay: Option<Replay>) -> Severity {
    match kind {
        EventKind::Replayed if replay.is_some_and(|replay| replay.lost_bytes > 0) => {
            Severity::Warning
        }
        EventKind::Fail
        | EventKind::Broken
        | EventKind::Full
        | EventKind::BadBlock
        | EventKind::ClientError => Severity::Error,
        EventKind::Repaired | EventKind::Slow | EventKind::JournalLost => Severity::Warning,
        EventKind::Replayed
        | EventKind::TakenOut
        | EventKind::SpareAdded
        | EventKind::RebuildStarted
        | EventKind::SpareActive
        | EventKind::ReplaceStarted
        | EventKind::Readded
        | EventKind::Removed
        | EventKind::SlowOver
        | EventKind::JobStarted
        | EventKind::JobFinished
        | EventKind::JobInterrupted => Severity::Info,
    }
}

/// mdadm's word for an event, where it has one: scripts know them.
fn word(event: &Event) -> &'static str {
    match event.kind {
        EventKind::Fail | EventKind::TakenOut if event.slot.is_none() => "FailSpare",
        EventKind::Fail | EventKind::TakenOut => "Fail",
        EventKind::RebuildStarted | EventKind::JobStarted => "RebuildStarted",
        EventKind::JobFinished => "RebuildFinished",
        EventKind::SpareActive => "SpareActive",
        EventKind::Replayed => "Replayed",
        EventKind::JournalLost => "JournalLost",
        EventKind::Broken => "Broken",
        EventKind::Full => "Full",
        EventKind::SpareAdded => "SpareAdded",
        EventKind::ReplaceStarted => "ReplaceStarted",
        EventKind::Readded => "Readded",
        EventKind::Removed => "Removed",
        EventKind::Repaired => "Repaired",
        EventKind::BadBlock => "BadBlock",
        EventKind::ClientError => "ClientError",
        EventKind::Slow => "Slow",
        EventKind::SlowOver => "SlowOver",
        EventKind::JobInterrupted => "JobInterrupted",
    }
}

/// Describes the number of further failures that the array survives.
pub(super) fn tolerated(redundancy_left: usize) -> String {
    match redundancy_left {
        0 => "it tolerates no further failure".into(),
        1 => "it tolerates one more failure".into(),
        count => format!("it tolerates {count} more failures"),
    }
}

fn counts(member: &MemberStatus) -> [u64; 3] {
    [member.repaired_bytes, member.checksum_errors, member.read_errors]
}

/// Returns why bytes were rewritten, as far as known.
fn why(checksum_errors: u64, read_errors: u64) -> String {
    let checksums = match checksum_errors {
        0 => None,
        1 => Some("1 block did not match its checksum".to_string()),
        count => Some(format!("{count} blocks did not match their checksums")),
    };
    let reads = match read_errors {
        0 => None,
        1 => Some("1 read failed".to_string()),
        count => Some(format!("{count} reads failed")),
    };
    let causes: Vec<String> = checksums.into_iter().chain(reads).collect();
    if causes.is_empty() { String::new() } else { format!(": {}", causes.join(", ")) }
}
