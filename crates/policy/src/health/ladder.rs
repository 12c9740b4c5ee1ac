//! The ladder: how bad a disk is, from SMART data and the errors that arrays saw.
//!
//! | level | because of |
//! |---|---|
//! | watch | counters above zero that do not grow; heat; CRC errors (check the cable) |
//! | suspect | growing counters, pending sectors, errors in an array, slowness, worn spare blocks |
//! | replace | the disk reports that it fails; repeated failed reads |
//! | fail | an array has lost it |
//!
//! Totals are never judged alone: a disk may live for years with a few reallocated sectors.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Reading, Settings};

/// How long slowness counts: a disk that is slow now and then must not raise an alarm each time.
const SLOW_MEMORY: Duration = Duration::from_secs(86_400);

/// How bad a disk is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Nothing is known against it.
    #[default]
    Ok,
    /// Worth a look.
    Watch,
    /// It may fail: tell somebody.
    Suspect,
    /// It should be replaced while it still serves.
    Replace,
    /// It has failed in an array.
    Fail,
}

impl Level {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Watch => "watch",
            Level::Suspect => "suspect",
            Level::Replace => "replace",
            Level::Fail => "fail",
        }
    }
}

/// A counter of errors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counter {
    /// ATA 5, SCSI's grown defects.
    Reallocated,
    /// ATA 187, NVMe's media errors, SCSI's uncorrected reads.
    Uncorrectable,
    /// ATA 188.
    Timeouts,
    /// ATA 197, SCSI's pending defects.
    Pending,
    /// ATA 198, SCSI's uncorrected verifies.
    OfflineUncorrectable,
    /// ATA 199.
    CrcErrors,
    /// Failed reads that an array saw.
    ReadErrors,
    /// Blocks that an array read with a wrong checksum.
    ChecksumErrors,
}

impl Counter {
    /// One of what it counts, and several.
    fn nouns(self) -> [&'static str; 2] {
        match self {
            Counter::Reallocated => ["reallocated sector", "reallocated sectors"],
            Counter::Uncorrectable => ["uncorrectable error", "uncorrectable errors"],
            Counter::Timeouts => ["command timeout", "command timeouts"],
            Counter::Pending => [
                "unreadable sector that waits for reallocation",
                "unreadable sectors that wait for reallocation",
            ],
            Counter::OfflineUncorrectable => [
                "sector that a scan of the disk could not read",
                "sectors that a scan of the disk could not read",
            ],
            Counter::CrcErrors => ["CRC error of the interface", "CRC errors of the interface"],
            Counter::ReadErrors => ["failed read in an array", "failed reads in an array"],
            Counter::ChecksumErrors => [
                "block with a wrong checksum in an array",
                "blocks with a wrong checksum in an array",
            ],
        }
    }

    /// So many of them: `3 reallocated sectors`.
    pub fn counted(self, count: u64) -> String {
        let [one, several] = self.nouns();
        format!("{count} {}", if count == 1 { one } else { several })
    }

    /// So many new ones.
    fn grown(self, count: u64) -> String {
        let [one, several] = self.nouns();
        format!("{count} new {}", if count == 1 { one } else { several })
    }
}

/// What the arrays see of one member on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// UUID of the member.
    pub member: String,
    /// Failed reads since the start of the array.
    pub read_errors: u64,
    /// Blocks with a wrong checksum since the start of the array.
    pub checksum_errors: u64,
    /// True if it is far slower than its peers.
    pub slow: bool,
    /// True if the array has lost it.
    pub lost: bool,
}

/// How bad a disk is, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// How bad.
    pub level: Level,
    /// Why, the worst first; empty if it is well.
    pub reasons: Vec<String>,
}

/// Growth of a counter, until a long time passes without any.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Growth {
    /// By how much it grew.
    amount: u64,
    /// When it grew last.
    latest: Timestamp,
}

/// What is remembered of a disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    serial: Option<String>,
    /// The latest SMART data.
    reading: Option<Reading>,
    /// When it was read.
    #[serde(default)]
    read_at: Option<Timestamp>,
    /// The latest counts of each member on it: failed reads, wrong checksums.
    members: BTreeMap<String, (u64, u64)>,
    growth: BTreeMap<Counter, Growth>,
    /// When an array saw it slow last.
    slow_at: Option<Timestamp>,
}

impl Disk {
    /// The latest SMART data.
    pub fn reading(&self) -> Option<&Reading> {
        self.reading.as_ref()
    }

    /// When it was read.
    pub fn read_at(&self) -> Option<Timestamp> {
        self.read_at
    }

    /// Takes new SMART data, if the disk was awake, and what arrays see of it; judges the disk.
    pub fn observe(
        &mut self,
        now: Timestamp,
        reading: Option<&Reading>,
        own: &[Own],
        settings: &Settings,
    ) -> Verdict {
        if let Some(reading) = reading {
            self.take_reading(now, reading);
        }
        self.take_own(now, own);
        // A clock that was set back forgets nothing.
        let is_within = |time: Timestamp, span: Duration| {
            Duration::try_from(now.duration_since(time)).unwrap_or_default() <= span
        };
        self.growth.retain(|_, growth| is_within(growth.latest, settings.memory.0));
        if own.iter().any(|own| own.slow) {
            self.slow_at = Some(now);
        }
        self.slow_at = self.slow_at.filter(|&time| is_within(time, SLOW_MEMORY));
        self.judge(own, settings)
    }

    fn take_reading(&mut self, now: Timestamp, reading: &Reading) {
        let is_other = self.serial.is_some() && self.serial != reading.serial;
        if is_other && reading.serial.is_some() {
            // Another disk in the same place.
            *self = Disk::default();
        }
        self.serial = self.serial.take().or_else(|| reading.serial.clone());
        for (&counter, &count) in &reading.counters {
            let before = self.reading.as_ref().and_then(|it| it.counters.get(&counter));
            if let Some(&before) = before {
                self.grow(counter, count.saturating_sub(before), now);
            }
        }
        self.reading = Some(reading.clone());
        self.read_at = Some(now);
    }

    fn take_own(&mut self, now: Timestamp, own: &[Own]) {
        let mut members = BTreeMap::new();
        for Own { member, read_errors, checksum_errors, .. } in own {
            let (reads, checksums) = self.members.get(member).copied().unwrap_or_default();
            // A count that fell began anew.
            let growth = |count: u64, before: u64| count.checked_sub(before).unwrap_or(count);
            self.grow(Counter::ReadErrors, growth(*read_errors, reads), now);
            self.grow(Counter::ChecksumErrors, growth(*checksum_errors, checksums), now);
            members.insert(member.clone(), (*read_errors, *checksum_errors));
        }
        self.members = members;
    }

    fn grow(&mut self, counter: Counter, amount: u64, now: Timestamp) {
        if amount == 0 {
            return;
        }
        let growth = self.growth.entry(counter).or_insert(Growth { amount: 0, latest: now });
        *growth = Growth { amount: growth.amount.saturating_add(amount), latest: now };
    }

    fn grown(&self, counter: Counter) -> u64 {
        self.growth.get(&counter).map_or(0, |growth| growth.amount)
    }

    fn judge(&self, own: &[Own], settings: &Settings) -> Verdict {
        let mut found = Findings::default();
        if own.iter().any(|own| own.lost) {
            found.add(Level::Fail, "an array has lost it");
        }
        self.judge_errors(settings, &mut found);
        if let Some(reading) = &self.reading {
            self.judge_counters(reading, &mut found);
            judge_condition(reading, settings, &mut found);
        }
        let timeouts = self.grown(Counter::Timeouts);
        // Seagate's 188 alone has raised many false alarms; cables and power cause timeouts, too.
        if timeouts > 0 && !found.0.is_empty() {
            found.add(Level::Watch, &Counter::Timeouts.grown(timeouts));
        }
        found.verdict()
    }

    fn judge_errors(&self, settings: &Settings, found: &mut Findings) {
        let reads = self.grown(Counter::ReadErrors).max(self.grown(Counter::Uncorrectable));
        if reads >= settings.read_errors {
            let limit = settings.read_errors;
            found.add(Level::Replace, &format!("{reads} failed reads; the limit is {limit}"));
        }
        for counter in [Counter::ReadErrors, Counter::ChecksumErrors] {
            let count = self.grown(counter);
            if count > 0 {
                found.add(Level::Suspect, &counter.counted(count));
            }
        }
        if self.slow_at.is_some() {
            found.add(Level::Suspect, "far slower than the other members of its array");
        }
    }

    fn judge_counters(&self, reading: &Reading, found: &mut Findings) {
        let counts = |counter| reading.counters.get(&counter).copied().unwrap_or(0);
        let pending = counts(Counter::Pending);
        if pending > 0 {
            found.add(Level::Suspect, &Counter::Pending.counted(pending));
        }
        for counter in [Counter::Reallocated, Counter::Uncorrectable, Counter::OfflineUncorrectable]
        {
            match (counts(counter), self.grown(counter)) {
                (_, growth) if growth > 0 => found.add(Level::Suspect, &counter.grown(growth)),
                (0, _) => {}
                (count, _) => found.add(Level::Watch, &counter.counted(count)),
            }
        }
        let errors = self.grown(Counter::CrcErrors);
        if errors > 0 {
            let text = Counter::CrcErrors.grown(errors);
            found.add(Level::Watch, &format!("{text}: check the cable"));
        }
    }
}

/// What the disk says of itself.
fn judge_condition(reading: &Reading, settings: &Settings, found: &mut Findings) {
    reading.failing.iter().for_each(|why| found.add(Level::Replace, why));
    reading.warnings.iter().for_each(|why| found.add(Level::Suspect, why));
    if let Some(result) = &reading.failed_self_test {
        found.add(Level::Suspect, &format!("the last self-test failed: {result}"));
    }
    if let Some(spare) = reading.spare_blocks
        && spare.left_percent < spare.threshold_percent
    {
        let (left, threshold) = (spare.left_percent, spare.threshold_percent);
        let text = format!("{left} % of its spare blocks are left, the threshold is {threshold} %");
        found.add(Level::Suspect, &text);
    }
    if let Some(used) = reading.used_percent.filter(|&used| used >= 100) {
        found.add(Level::Watch, &format!("{used} % of its rated life are used"));
    }
    let is_nvme = reading.protocol.as_deref() == Some("NVMe");
    let limit = settings.temperature_limit_celsius;
    if let Some(now) = reading.temperature_celsius.filter(|&now| now > limit && !is_nvme) {
        found.add(Level::Watch, &format!("{now} °C; the limit is {limit} °C"));
    }
}

/// Reasons, each with its level.
#[derive(Default)]
struct Findings(Vec<(Level, String)>);

impl Findings {
    fn add(&mut self, level: Level, reason: &str) {
        self.0.push((level, reason.into()));
    }

    fn verdict(mut self) -> Verdict {
        // Stable: within a level, the order of the rules.
        self.0.sort_by_key(|(level, _)| std::cmp::Reverse(*level));
        let level = self.0.first().map_or(Level::Ok, |(level, _)| *level);
        Verdict { level, reasons: self.0.into_iter().map(|(_, reason)| reason).collect() }
    }
}
