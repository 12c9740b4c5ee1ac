//! Jobs and scrubs as text.

use super::*;

/// A job that took less has no meaningful rate.
const SOON_SECONDS: f64 = 0.1;

impl JobKind {
    /// Returns the name in `wait --for` and `when`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            JobKind::Rebuild => "rebuild",
            JobKind::Replace => "replace",
            JobKind::Resync => "resync",
            JobKind::Check => "check",
            JobKind::Repair => "repair",
            JobKind::Checksum => "checksumming",
        }
    }
}

impl Job {
    pub(in crate::api) fn short(&self) -> String {
        let left = self.seconds_left.map_or(String::new(), |left| format!(", {} left", span(left)));
        format!("{} {:.1} %{left}", self.kind.word(), self.percent)
    }

    /// Formats percent, rate, remaining time and the limiting factor.
    pub(crate) fn sentence(&self, page: &Page) -> String {
        let done = format!(
            "{} {:.1} % ({} of {})",
            self.kind.word(),
            self.percent,
            page.size(self.done_bytes),
            page.size(self.total_bytes)
        );
        let rate = self.member_bytes_per_second;
        let rate = rate.map(|rate| format!(", {}/s over all members", page.size(rate)));
        let left = match self.seconds_left {
            Some(left) => format!(", {} left", span(left)),
            None => ", no estimate yet".into(),
        };
        let limit = self.limited_by.as_ref().map(|limit| format!(", held back by {limit}"));
        format!("{done}{}{left}{}", rate.unwrap_or_default(), limit.unwrap_or_default())
    }
}

impl ScrubRecord {
    /// Says what the last scrub of this server does not.
    pub(in crate::api) fn sentence(&self, page: &Page, array: &Array) -> Option<String> {
        let is_told = array.last_scrub.as_ref().is_some_and(|scrub| scrub.complete);
        let completed = self.completed.filter(|_| !is_told);
        let completed =
            completed.map(|at| at.strftime("last complete one ended %Y-%m-%d %H:%MZ").to_string());
        let is_running = array
            .job
            .as_ref()
            .is_some_and(|job| matches!(job.kind, JobKind::Check | JobKind::Repair));
        let interrupted = (self.position_bytes > 0 && !is_running).then(|| {
            let (at, name) = (page.size(self.position_bytes), &array.name);
            format!("one was interrupted at {at}: parapet scrub {name} resume")
        });
        let parts: Vec<String> = completed.into_iter().chain(interrupted).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

impl Scrub {
    pub(in crate::api) fn findings_not_shown(&self) -> Option<String> {
        let more = self.mismatches.saturating_sub(SHOWN_FINDINGS as u64);
        (more > 0).then(|| format!("and {more} more (parapet status --json)"))
    }

    pub(in crate::api) fn sentence(&self, page: &Page) -> String {
        let count = match self.mismatches {
            0 => "no mismatch".into(),
            1 => "1 mismatch".into(),
            count => format!("{count} mismatches"),
        };
        let bytes = match self.repaired_bytes {
            0 => String::new(),
            bytes => format!(" ({} rewritten)", page.size(bytes)),
        };
        let repaired = match (self.mismatches, self.repaired_mismatches) {
            (0, _) => bytes,
            (_, 0) => format!(", none repaired{bytes}"),
            (1, _) => format!(", repaired{bytes}"),
            (_, count) => format!(", {count} repaired{bytes}"),
        };
        let guessed = match self.guessed_bytes {
            0 => String::new(),
            bytes => format!(" ({} by a guess at which member was wrong)", page.size(bytes)),
        };
        let found = format!("{count}{repaired}{guessed}");
        let rate = rate_over(self.bytes, self.seconds);
        let stopped = match self.complete {
            true => String::new(),
            false => format!(
                " (incomplete: {} of the array were compared)",
                page.size(self.compared_bytes)
            ),
        };
        format!("{:.0}{stopped}: {found}, took {}{rate}", self.ended, took(self.seconds))
    }
}

/// Formats ` at 3 GiB/s over all members`; empty if the job was too short for a rate.
fn rate_over(bytes: u64, seconds: f64) -> String {
    match seconds < SOON_SECONDS {
        true => String::new(),
        false => format!(" at {}/s over all members", Size((bytes as f64 / seconds) as u64)),
    }
}

impl LastRebuild {
    pub(in crate::api) fn sentence(&self) -> String {
        let rate = self.member_bytes_per_second;
        let rate = rate.filter(|_| self.seconds >= SOON_SECONDS);
        let rate = rate.map(|rate| format!(" at {}/s over all members", Size(rate)));
        let kind = if self.replace { "replacement" } else { "rebuild" };
        let took = took(self.seconds);
        format!("{:.0}: a {kind}, took {took}{}", self.ended, rate.unwrap_or_default())
    }
}

impl Speed {
    /// Formats both limits.
    pub(crate) fn sentence(&self) -> String {
        let max = match self.max {
            None => "as fast as it can".into(),
            Some(0) => "not at all: it is paused".into(),
            Some(max) => format!("at most at {}/s on each member", Size(max)),
        };
        let min = format!("{}/s while clients are at work", Size(self.min));
        format!("{max}, at least at {min}")
    }
}

impl Finding {
    pub(in crate::api) fn sentence(&self) -> String {
        let who = self.slot.map_or("the wrong member cannot be identified".into(), |slot| {
            format!("slot {slot} is wrong")
        });
        let (disk, data) = match self.slot {
            Some(_) => ("its disk", "its data"),
            None => ("the first disk concerned", "the data there"),
        };
        format!(
            "{who}: {} bytes at offset {} of {disk} ({} of {data}), array offset {}",
            self.bytes, self.disk_offset, self.member_offset, self.array_offset
        )
    }
}
