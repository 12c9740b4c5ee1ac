//! A cluster: its processes that are ready, and its state, as types and as text.

use serde::{Deserialize, Serialize};

use super::{AttachedView, Report};
use crate::page::{Page, Style};
use crate::size::Size;

/// A process of a cluster that is ready.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ClusterServing {
    /// Its process id.
    pub(crate) pid: u32,
    /// `disk`, `coordinator` or `client`.
    pub(crate) role: String,
    /// The array; null for a disk that is no member yet.
    pub(crate) array: Option<String>,
    /// What it serves, in words.
    pub(crate) what: String,
    /// Where others connect to it; null if it is a local disk only.
    pub(crate) address: Option<String>,
    /// The local disk of a client; null if it has none.
    pub(crate) attached: Option<AttachedView>,
}

impl Report for ClusterServing {
    const SCHEMA: &'static str = "parapet/cluster-serving/1";

    fn text(&self, page: &mut Page) {
        page.field("serving", &self.what);
        self.address.iter().for_each(|address| page.field("address", address));
        self.attached.iter().for_each(|attached| page.field("attached", attached.sentence()));
    }
}

/// The state of a cluster.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ClusterStatus {
    /// The array's name.
    pub(crate) name: String,
    /// The array: 32 hexadecimal digits.
    pub(crate) uuid: String,
    /// Its state.
    pub(crate) state: ClusterState,
    /// `raid3.5`, `raid1`, `raid5` or `raid6`.
    pub(crate) level: String,
    /// `shared` or `exclusive`; empty while no coordinator leads.
    pub(crate) mode: String,
    /// Its size; 0 while no coordinator leads.
    pub(crate) capacity_bytes: u64,
    /// The number of the membership; 0 while no coordinator leads.
    pub(crate) epoch: u64,
    /// An epoch that a member knows and the store does not: an old backup of it was restored.
    pub(crate) later_epoch: Option<u64>,
    /// The candidates.
    pub(crate) coordinators: Vec<CandidateView>,
    /// The members, by slot.
    pub(crate) members: Vec<ClusterMember>,
    /// Members that must be in sync for any I/O.
    pub(crate) members_needed: usize,
    /// The clients, by id.
    pub(crate) clients: Vec<ClusterClient>,
    /// Regions whose redundancy is to be computed again, after a client's death.
    pub(crate) unsynced_regions: u32,
    /// Those of them that wait for `cluster accept-loss`: their writer died while a member was not
    /// in sync, at level 5 or 6. Requests there fail.
    pub(crate) inconsistent_regions: u32,
    /// The region that is being worked on.
    pub(crate) resyncing: Option<u32>,
    /// Bytes of a region.
    pub(crate) region_bytes: u64,
}

/// State of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClusterState {
    /// All members are in sync.
    Optimal,
    /// It serves, with less redundancy.
    Degraded,
    /// Requests wait: too few members are in sync, or a change is under way.
    Waiting,
    /// No coordinator leads: writes to new regions wait.
    NoCoordinator,
}

/// A process that may coordinate.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CandidateView {
    /// Its address.
    pub(crate) address: String,
    /// `leads`, `stands_by` or `unreachable`.
    pub(crate) state: String,
    /// The term in which it leads.
    pub(crate) term: Option<u64>,
}

/// A member of a cluster.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ClusterMember {
    /// Its slot.
    pub(crate) slot: u16,
    /// Its server.
    pub(crate) address: String,
    /// `in_sync`, `rebuilding` or `missing`; `unknown` while no coordinator leads.
    pub(crate) state: String,
    /// Regions that it misses.
    pub(crate) stale_regions: u32,
    /// Why its server does not answer here, or answers as another member; null if it is well.
    pub(crate) problem: Option<String>,
}

/// A client of a cluster.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ClusterClient {
    /// Its id.
    pub(crate) id: u32,
    /// `joined`, `undeclared` (known from an earlier reign) or `evicting`.
    pub(crate) state: String,
    /// Its start number; 0 if unknown.
    pub(crate) incarnation: u32,
    /// Regions that it may be writing.
    pub(crate) regions: u32,
    /// For how long it has been silent, in milliseconds.
    pub(crate) silent_ms: u64,
}

impl ClusterState {
    pub(crate) fn word(self) -> &'static str {
        match self {
            ClusterState::Optimal => "optimal",
            ClusterState::Degraded => "degraded",
            ClusterState::Waiting => "waiting",
            ClusterState::NoCoordinator => "no coordinator",
        }
    }

    fn style(self) -> Style {
        match self {
            ClusterState::Optimal => Style::Good,
            ClusterState::Degraded => Style::Warning,
            ClusterState::Waiting | ClusterState::NoCoordinator => Style::Bad,
        }
    }
}

/// The words of a state, for a table.
fn words(state: &str) -> String {
    state.replace('_', " ")
}

/// The colour of a state.
fn style_of(state: &str) -> Style {
    match state {
        "leads" | "stands_by" | "in_sync" | "joined" => Style::Plain,
        "rebuilding" | "undeclared" | "unknown" => Style::Warning,
        _ => Style::Bad,
    }
}

impl ClusterStatus {
    /// Members in sync.
    pub(crate) fn in_sync(&self) -> usize {
        self.members.iter().filter(|member| member.state == "in_sync").count()
    }

    fn member_rows(&self) -> Vec<(Style, Vec<String>)> {
        let heading = ["MEMBER", "STATE", "STALE", "ADDRESS"];
        let mut rows = vec![(Style::Plain, heading.map(String::from).to_vec())];
        rows.extend(self.members.iter().map(|member| {
            let problem = member.problem.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            let cells = vec![
                member.slot.to_string(),
                words(&member.state),
                member.stale_regions.to_string(),
                format!("{}{problem}", member.address),
            ];
            (style_of(&member.state), cells)
        }));
        rows
    }

    fn client_rows(&self) -> Vec<(Style, Vec<String>)> {
        let heading = ["CLIENT", "STATE", "REGIONS", "SILENT"];
        let mut rows = vec![(Style::Plain, heading.map(String::from).to_vec())];
        rows.extend(self.clients.iter().map(|client| {
            let cells = vec![
                client.id.to_string(),
                words(&client.state),
                client.regions.to_string(),
                format!("{:.1} s", client.silent_ms as f64 / 1000.0),
            ];
            (style_of(&client.state), cells)
        }));
        rows
    }
}

impl Report for ClusterStatus {
    const SCHEMA: &'static str = "parapet/cluster-status/1";

    fn text(&self, page: &mut Page) {
        page.field_in(Style::Strong, "cluster", &self.name);
        page.field_in(self.state.style(), "state", self.state.word());
        if self.epoch > 0 {
            page.field("level", format!("{}, {}", self.level, self.mode));
            page.field("size", page.size(self.capacity_bytes));
            page.field("epoch", self.epoch.to_string());
        }
        if let Some(epoch) = self.later_epoch {
            let line = format!("a member knows a later epoch, {epoch}: restore its latest content");
            page.field_in(Style::Bad, "store", line);
        }
        page.field("uuid", &self.uuid);
        for candidate in &self.coordinators {
            let term = candidate.term.map_or(String::new(), |term| format!(" in term {term}"));
            let line = format!("{} {}{term}", candidate.address, words(&candidate.state));
            page.field_in(style_of(&candidate.state), "coordinator", line);
        }
        let size = Size(self.region_bytes);
        if self.unsynced_regions > self.inconsistent_regions {
            let count = self.unsynced_regions - self.inconsistent_regions;
            page.field_in(Style::Warning, "resync", format!("{count} regions of {size} to resync"));
        }
        if self.inconsistent_regions > 0 {
            let count = self.inconsistent_regions;
            let line = format!("{count} regions of {size}: requests fail; see `cluster explain`");
            page.field_in(Style::Bad, "inconsistent", line);
        }
        page.line("");
        page.table(&self.member_rows());
        if !self.clients.is_empty() {
            page.line("");
            page.table(&self.client_rows());
        }
    }
}

/// The state of a cluster in sentences.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ClusterExplained {
    /// The state that the sentences explain.
    pub(crate) status: ClusterStatus,
    /// Each with its subject: `now`, `coordinator`, `members`, `clients`, `next`.
    pub(crate) sentences: Vec<Sentence>,
}

/// What a sentence is about, and the sentence.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Sentence {
    /// Its subject.
    pub(crate) subject: String,
    /// The sentence.
    pub(crate) text: String,
}

impl Report for ClusterExplained {
    const SCHEMA: &'static str = "parapet/cluster-explain/1";

    fn text(&self, page: &mut Page) {
        let mut before = "";
        for Sentence { subject, text } in &self.sentences {
            let label = if subject == before { "" } else { subject };
            page.field(label, text);
            before = subject;
        }
    }
}

/// The outcome of the demonstration of a cluster.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ClusterDemonstration {
    /// Bytes written by both clients.
    pub(crate) written_bytes: u64,
    /// Bytes that were read back different.
    pub(crate) wrong_bytes: u64,
    /// How long a client's I/O stood still when a member died.
    pub(crate) member_stall_seconds: f64,
    /// … when the coordinator died.
    pub(crate) coordinator_stall_seconds: f64,
    /// … when the other client died.
    pub(crate) client_stall_seconds: f64,
    /// Duration of all.
    pub(crate) seconds: f64,
}

impl Report for ClusterDemonstration {
    const SCHEMA: &'static str = "parapet/cluster-demo/1";

    fn text(&self, page: &mut Page) {
        page.field("written", format!("{} by two clients", page.size(self.written_bytes)));
        let stalls = [
            ("member", self.member_stall_seconds),
            ("coordinator", self.coordinator_stall_seconds),
            ("client", self.client_stall_seconds),
        ];
        for (who, seconds) in stalls {
            page.field(who, format!("killed; I/O stood still for {seconds:.1} s"));
        }
        match self.wrong_bytes {
            0 => page.field_in(Style::Good, "verified", "every byte is as it was written"),
            count => page.field_in(Style::Bad, "wrong", format!("{count} bytes differ")),
        }
    }
}
