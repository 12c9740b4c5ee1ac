//! The reports as text. Data goes to standard output; advice takes at most one line.

mod jobs;

use super::*;
use crate::page::Style;
use crate::size::{Size, span, took};

impl Report for Array {
    const SCHEMA: &'static str = "parapet/status/1";

    fn text(&self, page: &mut Page) {
        page.field_in(Style::Strong, "array", &self.name);
        page.field_in(self.state.style(), "state", self.state_sentence());
        for problem in &self.problems {
            page.field_in(
                Style::Warning,
                "problem",
                format!("{} [{}]", problem.message, problem.id),
            );
            page.command("action", &problem.action);
        }
        page.field("level", shape(page, &self.level, &self.layout, self.chunk_bytes));
        page.field(
            "size",
            if page.is_verbose() {
                page.in_both_units(self.capacity_bytes)
            } else {
                page.size(self.capacity_bytes)
            },
        );
        page.field("uuid", &self.uuid);
        if let Some(policy) = self.integrity.consistency {
            page.field("consistency", policy.sentence());
        }
        self.integrity.journal.iter().for_each(|journal| page.field("journal", journal.sentence()));
        match self.integrity.unsummed_bytes {
            None if self.redundancy == 0 => {}
            None => page.field("checksums", "off"),
            Some(0) => page.field("checksums", "on"),
            Some(bytes) => {
                page.field("checksums", format!("on; {} have none yet", page.size(bytes)));
            }
        }
        if let Some(replay) = &self.integrity.replay {
            let style = if replay.lost_bytes > 0 { Style::Warning } else { Style::Plain };
            page.field_in(style, "replayed", replay.sentence(page));
        }
        let usual = self.speed.max.is_none() && !page.is_verbose();
        if !usual {
            page.field("speed", self.speed.sentence());
        }
        if page.is_verbose() {
            page.field("cache", format!("{}, {} in it", self.cache, page.size(self.cached_bytes)));
            page.field("threads", self.threads.to_string());
        }
        if let Some(job) = &self.job {
            page.field("job", job.sentence(page));
        }
        if let Some(rebuild) = &self.last_rebuild {
            page.field("last rebuild", rebuild.sentence());
        }
        self.show_scrubs(page);
        self.show_exports(page);
        self.show_alerts(page);
        page.line("");
        page.table(&self.member_rows());
        if page.is_verbose() {
            page.line("");
            page.table(&self.counter_rows(page));
        }
    }
}

impl Array {
    fn show_scrubs(&self, page: &mut Page) {
        if let Some(scrub) = &self.last_scrub {
            page.field("last scrub", scrub.sentence(page));
            for finding in scrub.findings.iter().take(SHOWN_FINDINGS) {
                page.field("mismatch", finding.sentence());
            }
            if let Some(more) = scrub.findings_not_shown() {
                page.field("", more);
            }
        }
        if let Some(sentence) = self.scrub_record.sentence(page, self) {
            page.field("scrub", sentence);
        }
    }

    fn show_exports(&self, page: &mut Page) {
        self.exports.iter().for_each(|export| page.field("export", export));
        self.aoe.iter().for_each(|aoe| page.field("aoe", aoe.sentence()));
        self.attached.iter().for_each(|attached| page.field("attached", attached.sentence()));
    }
}

/// Formats the level, with layout and chunk size where the level has them.
pub(super) fn shape(page: &Page, level: &str, layout: &str, chunk_bytes: u64) -> String {
    let order = layout.strip_prefix("order").and_then(|order| order.parse::<u32>().ok());
    let layout = match layout {
        "none" => String::new(),
        layout => format!(", {layout}"),
    };
    let chunk = match (chunk_bytes, order) {
        (0, _) => String::new(),
        (bytes, None) => format!(", chunk {}", page.size(bytes)),
        // RAID 3.5 cuts a block into fragments, one for each data member.
        (bytes, Some(order)) => format!(", chunk {}", page.size(bytes << order)),
    };
    format!("{level}{layout}{chunk}")
}

/// Limit of listed findings: a scrub may find many, and `--json` shows more.
const SHOWN_FINDINGS: usize = 5;

impl Array {
    /// Returns true if this member has no slot and its former slot is still missing.
    pub(crate) fn can_return(&self, member: &Member) -> bool {
        let is_free =
            |slot: usize| self.slots.get(slot).is_some_and(|slot| slot.state == SlotState::Missing);
        !member.replaced && member.last_slot.is_none_or(is_free)
    }

    /// Formats `5 of 6`, and the spares.
    pub(super) fn members_word(&self) -> String {
        let there = self.slots.iter().filter(|slot| slot.state == SlotState::InSync).count();
        let spares = match self.spares.len() {
            0 => String::new(),
            count => format!(" +{count}"),
        };
        format!("{there}/{}{spares}", self.slots.len())
    }

    /// Returns true if the redundancy is parity, not copies.
    pub(crate) fn has_parity(&self) -> bool {
        ["raid4", "raid5", "raid6", "raid3.5"].contains(&self.level.as_str())
    }

    /// Formats the slots as md does: `[UU_]`.
    pub(crate) fn picture(&self) -> String {
        let letter = |slot: &Slot| if slot.state == SlotState::InSync { 'U' } else { '_' };
        format!("[{}]", self.slots.iter().map(letter).collect::<String>())
    }

    fn state_sentence(&self) -> String {
        let more = match (self.state, self.redundancy_left) {
            (State::Failed, _) => "data cannot be reached".into(),
            (State::Critical, 0) if self.redundancy == 0 => "one more loss loses data".into(),
            (_, 0) if self.redundancy == 0 && self.is_nested() => "no member array may fail".into(),
            (_, 0) if self.redundancy == 0 => "this level survives no loss".into(),
            (_, 0) if self.has_parity() && !self.parity => {
                "without parity: a loss loses data".into()
            }
            (_, 0)
                if self.has_parity()
                    && self.integrity.unsynced_bytes > 0
                    && !self.integrity.verifying =>
            {
                "until it is in sync, a loss loses data".into()
            }
            (_, 0) => "one more loss loses data".into(),
            (_, 1) => "one member may be lost".into(),
            (_, count) => format!("{count} members may be lost"),
        };
        let writes = if self.writable { "" } else { ", read-only" };
        format!("{}{writes}, {more}  {}", self.state.word(), self.picture())
    }

    /// Returns true if its members are arrays.
    fn is_nested(&self) -> bool {
        let mut members = self.slots.iter().filter_map(|slot| slot.member.as_ref());
        members.any(|member| member.name.starts_with(crate::disks::ARRAY))
    }

    /// Lists the counters of each member.
    fn counter_rows(&self, page: &Page) -> Vec<(Style, Vec<String>)> {
        let heading =
            ["MEMBER", "READ", "WRITTEN", "REPAIRED", "READ P50/P99", "WRITE P50/P99", "UUID"];
        let mut rows = vec![(Style::Plain, heading.map(String::from).to_vec())];
        rows.extend(self.members().map(|member| {
            let sizes = [member.read_bytes, member.written_bytes, member.repaired_bytes];
            let [read, written, repaired] = sizes.map(|bytes| page.size(bytes));
            let times = [&member.read_latency, &member.write_latency];
            let [reads, writes] = times.map(|latency| match latency {
                Some(Latency { p50_us, p99_us }) => {
                    format!("{}/{}", millis(*p50_us), millis(*p99_us))
                }
                None => "-".into(),
            });
            let (name, uuid) = (member.name.clone(), member.uuid.clone());
            (Style::Plain, vec![name, read, written, repaired, reads, writes, uuid])
        }));
        rows
    }

    fn member_rows(&self) -> Vec<(Style, Vec<String>)> {
        let heading = ["SLOT", "STATE", "MEMBER", "SERIAL", "ERRORS READ/WRITE/CHECKSUM"];
        let mut rows = vec![(Style::Plain, heading.map(String::from).to_vec())];
        let mut row = |style, place: String, state: &str, member: Option<&Member>| {
            let none = || String::from("-");
            let name = member.map_or_else(none, |member| member.name.clone());
            let serial = member.and_then(|member| member.serial.clone()).unwrap_or_else(none);
            let errors = member.map_or_else(none, |member| {
                let Member { read_errors, write_errors, checksum_errors, .. } = member;
                format!("{read_errors}/{write_errors}/{checksum_errors}")
            });
            rows.push((style, vec![place, state.into(), name, serial, errors]));
        };
        for slot in &self.slots {
            let slow = slot.member.as_ref().is_some_and(|member| member.slow);
            let (style, word) = match slot.state {
                SlotState::InSync if slow => (Style::Warning, "in sync, slow"),
                SlotState::InSync => (Style::Good, "in sync"),
                SlotState::Rebuilding => (Style::Warning, "rebuilding"),
                SlotState::Missing => (Style::Bad, "missing"),
            };
            row(style, slot.slot.to_string(), word, slot.member.as_ref());
            if let Some(replacement) = &slot.replacement {
                row(Style::Warning, slot.slot.to_string(), "replacing", Some(replacement));
            }
        }
        for spare in &self.spares {
            row(Style::Plain, "-".into(), "spare", Some(spare));
        }
        for faulty in &self.faulty {
            let slot = faulty.last_slot.map_or(String::new(), |slot| format!(", was slot {slot}"));
            let (style, word) = match faulty.replaced {
                true => (Style::Plain, "replaced"),
                false => (Style::Bad, "faulty"),
            };
            row(style, "-".into(), &format!("{word}{slot}"), Some(faulty));
        }
        rows
    }
}

/// Formats microseconds as milliseconds.
pub(super) fn millis(micros: u64) -> String {
    format!("{:.1} ms", micros as f64 / 1e3)
}

impl Replay {
    /// Describes the result of the replay.
    fn sentence(&self, page: &Page) -> String {
        let rows = match self.rows {
            1 => "intent log replayed: 1 row".into(),
            rows => format!("intent log replayed: {rows} rows"),
        };
        match self.lost_bytes {
            0 => rows,
            bytes => format!(
                "{rows}; {} of them unrecoverable (never acknowledged as durable); rewrite to \
                 clear",
                page.size(bytes)
            ),
        }
    }
}

impl Slot {
    /// Returns true if its member or its replacement is being filled.
    pub(crate) fn is_filling(&self) -> bool {
        self.state == SlotState::Rebuilding || self.replacement.is_some()
    }
}

impl State {
    pub(crate) fn word(self) -> &'static str {
        match self {
            State::Healthy => "healthy",
            State::Degraded => "degraded",
            State::Critical => "critical",
            State::Failed => "failed",
        }
    }

    /// Describes the same state in a sentence about the array.
    pub(crate) fn is_word(self) -> &'static str {
        match self {
            State::Healthy => "is healthy",
            State::Degraded => "is degraded",
            State::Critical => "is critical",
            State::Failed => "has failed",
        }
    }

    pub(super) fn style(self) -> Style {
        match self {
            State::Healthy => Style::Good,
            State::Degraded => Style::Warning,
            State::Critical | State::Failed => Style::Bad,
        }
    }
}

impl Report for Changed {
    const SCHEMA: &'static str = "parapet/changed/1";

    fn text(&self, page: &mut Page) {
        page.line(&self.message);
    }
}

impl Plan {
    /// Returns true if the members are arrays.
    pub(crate) fn is_nested(&self) -> bool {
        self.disks.iter().any(|disk| disk.path.starts_with(crate::disks::ARRAY))
    }
}

impl Report for Plan {
    const SCHEMA: &'static str = "parapet/plan/1";

    fn text(&self, page: &mut Page) {
        let verb = if self.done { "done" } else { "plan" };
        page.field_in(Style::Strong, verb, format!("{} {}", self.verb, self.name));
        if let Some(uuid) = &self.uuid {
            page.field("uuid", uuid);
        }
        if !self.level.is_empty() {
            page.field("level", shape(page, &self.level, &self.layout, self.chunk_bytes));
        }
        let raw = page.size(self.raw_bytes);
        let capacity = page.in_both_units(self.capacity_bytes);
        match (self.verb.as_str(), self.capacity_bytes) {
            ("destroy" | "undestroy", 0) => page.field("size", format!("{raw} on the members")),
            ("destroy", _) => page.field("lost", format!("{capacity} that can be stored")),
            _ => page.field("size", format!("{capacity} of {raw} on the members")),
        }
        let survives = match self.redundancy {
            0 if self.is_nested() => "what each member array survives".into(),
            0 => "no loss of a member".into(),
            1 => "the loss of one member".into(),
            count => format!("the loss of any {count} members"),
        };
        match self.verb.as_str() {
            "destroy" => page.command("undo", format!("parapet undestroy {}", self.name)),
            "undestroy" => {}
            _ => page.field("survives", survives),
        }
        if let Some(policy) = self.consistency {
            page.field("consistency", policy.sentence());
        }
        match (self.verb.as_str(), self.checksums) {
            (_, true) => page.field("checksums", "on"),
            ("create", false) if self.redundancy > 0 => page.field("checksums", "off"),
            _ => {}
        }
        let heading = ["ROLE", "BECOMES", "DISK", "SERIAL", "SIZE", "OVERWRITES"];
        let mut rows = vec![(Style::Plain, heading.map(String::from).to_vec())];
        for disk in &self.disks {
            let lost: Vec<String> = disk.overwrites.iter().map(ToString::to_string).collect();
            let (style, lost) = match lost.is_empty() {
                true => (Style::Plain, "nothing known".into()),
                false => (Style::Bad, lost.join(", ")),
            };
            let becomes = match (self.verb.as_str(), disk.new) {
                ("destroy", _) => "free",
                _ if disk.role == "journal" && !disk.new => "journal",
                (_, true) => "new file",
                _ => "member",
            };
            rows.push((
                style,
                vec![
                    disk.role.clone(),
                    becomes.into(),
                    disk.path.clone(),
                    disk.serial.clone().unwrap_or_else(|| "-".into()),
                    page.size(disk.bytes),
                    lost,
                ],
            ));
        }
        page.line("");
        page.table(&rows);
        for warning in &self.warnings {
            page.styled(Style::Warning, format!("  note: {warning}"));
        }
        if let Some(undo) = &self.undo {
            page.line(format!("  the overwritten bytes are kept in {undo}"));
        }
    }
}

impl Report for Assembled {
    const SCHEMA: &'static str = "parapet/assemble/1";

    fn text(&self, page: &mut Page) {
        self.array.text(page);
        for note in &self.notes {
            page.styled(Style::Warning, format!("  note: {note}"));
        }
        page.line(match self.settled {
            true => "replayed and stopped; all members are marked clean",
            false => "nothing was written",
        });
    }
}

impl Report for Health {
    const SCHEMA: &'static str = "parapet/health/1";

    fn text(&self, page: &mut Page) {
        let word = format!("{:?}", self.verdict).to_uppercase();
        let performance = match self.performance.as_str() {
            "" => String::new(),
            performance => format!(" | {performance}"),
        };
        page.line(format!("PARAPET {word}: {}{performance}", self.message));
    }
}

impl Report for When {
    const SCHEMA: &'static str = "parapet/when/1";

    fn text(&self, page: &mut Page) {
        let sentence = match &self.job {
            None => "nothing is being done".into(),
            Some(job) => job.sentence(page),
        };
        let expected = self.expected.map(|time| format!(", at {time:.0}")).unwrap_or_default();
        page.line(format!("{}: {sentence}{expected}", self.name));
    }
}

impl Report for Text {
    const SCHEMA: &'static str = "parapet/text/1";

    fn text(&self, page: &mut Page) {
        self.text.lines().for_each(|line| page.line(line));
    }
}

impl Report for Waited {
    const SCHEMA: &'static str = "parapet/wait/1";

    fn text(&self, page: &mut Page) {
        let state = self.array.state.word();
        page.line(format!("{}: {state}, waited {:.1} s", self.name, self.seconds));
    }
}

impl Report for Demonstration {
    const SCHEMA: &'static str = "parapet/demo/1";

    fn text(&self, page: &mut Page) {
        let size = page.size(self.bytes);
        let rate = |seconds: f64| Size((self.bytes as f64 / seconds.max(0.001)) as u64);
        page.field("written", format!("{size} at {}/s", rate(self.write_seconds)));
        page.field("failed", format!("{} while writing", self.failed.join(" and ")));
        page.field("rebuilt", format!("{:.1} s after the last write", self.rebuild_seconds));
        page.field("read back", format!("{size} at {}/s", rate(self.read_seconds)));
        match self.wrong_bytes {
            0 => page.field_in(Style::Good, "verified", "every byte is as it was written"),
            count => page.field_in(Style::Bad, "wrong", format!("{count} bytes differ")),
        }
    }
}
