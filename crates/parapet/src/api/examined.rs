//! What lies on disks: what `parapet examine` says, in types and in words.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::shape;
use super::{Consistency, JournalNote, JournalView, Report};
use crate::page::{Page, Style};

/// What a member's metadata says.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Examined {
    /// One for each disk looked at.
    pub(crate) disks: Vec<ExaminedDisk>,
}

/// One disk looked at.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ExaminedDisk {
    /// Its path.
    pub(crate) path: String,
    /// Its size.
    pub(crate) bytes: u64,
    /// Valid superblocks; more than one where an array's member is itself made of an array.
    pub(crate) superblocks: Vec<SuperblockView>,
    /// The journal device that it is; null if it is none.
    #[serde(default)]
    pub(crate) journal: Option<JournalView>,
    /// Why there is none, or why one is not believed.
    pub(crate) faults: Vec<String>,
    /// Everything recognizable on the disk.
    pub(crate) signatures: Vec<SignatureView>,
}

/// Something recognizable on a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SignatureView {
    /// As blkid names it.
    pub(crate) name: String,
    /// Where its magic number is.
    pub(crate) offset: u64,
}

/// A superblock in words.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SuperblockView {
    /// `md 0.90`, `md 1.0`, `md 1.1`, `md 1.2`; `parapet 1.2` for RAID 3.5.
    pub(crate) version: String,
    /// Where it lies.
    pub(crate) offset: u64,
    /// The array.
    pub(crate) array_uuid: String,
    /// Its name.
    pub(crate) array_name: String,
    /// This member.
    pub(crate) member_uuid: String,
    /// As in `Array`.
    pub(crate) level: String,
    /// As in `Array`.
    pub(crate) layout: String,
    /// Bytes of a chunk.
    pub(crate) chunk_bytes: u64,
    /// How many slots the array has.
    pub(crate) slots: u32,
    /// `slot 3`, `spare`, `faulty`, `journal`.
    pub(crate) role: String,
    /// Counts changes of the metadata: the member with the most knows best.
    pub(crate) events: u64,
    /// When the array was made.
    pub(crate) created: Timestamp,
    /// When the superblock was last written.
    pub(crate) updated: Timestamp,
    /// True if the array was stopped in order.
    pub(crate) clean: bool,
    /// Where data begins on this member.
    pub(crate) data_offset: u64,
    /// Room for data on this member.
    pub(crate) data_bytes: u64,
    /// How far this member is rebuilt, if it is not whole.
    pub(crate) recovered_bytes: Option<u64>,
    /// The states of all slots as this member knows them: `A` there, `.` missing.
    pub(crate) slot_states: String,
    /// Bytes that a bit of the bitmap stands for; null without a valid bitmap.
    pub(crate) bitmap_chunk_bytes: Option<u64>,
    /// Bits of the bitmap that are set.
    pub(crate) dirty_bits: Option<u64>,
    /// Runs in the list of bad blocks.
    pub(crate) bad_blocks: u64,
    /// Parapet's private area on this member.
    #[serde(flatten)]
    pub(crate) private: PrivateView,
    /// Why the array is not run, and what is kept for others, in sentences.
    #[serde(default)]
    pub(crate) remarks: Vec<String>,
}

/// Parapet's private area in words.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PrivateView {
    /// True if Parapet's private area is valid: nobody else has written the superblock since.
    pub(crate) private_area: bool,
    /// Why Parapet's private area is not valid; null if it is, or if there is no room for one.
    #[serde(default)]
    pub(crate) private_fault: Option<String>,
    /// How the array stands against the write hole, as the private area says; null without one.
    #[serde(default)]
    pub(crate) consistency: Option<Consistency>,
    /// The array keeps checksums, as the private area says.
    #[serde(default)]
    pub(crate) checksums: bool,
    /// The array's journal device; null if it has none, or nothing valid says so.
    #[serde(default)]
    pub(crate) journal: Option<JournalNote>,
    /// What lies in the intent log; null if nothing was logged since the array was started last, or
    /// not on the members.
    #[serde(default)]
    pub(crate) log: Option<LogView>,
}

/// A member's intent log.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LogView {
    /// How many threads had a zone of it.
    pub(crate) zones: u32,
    /// Bytes of each zone.
    pub(crate) zone_bytes: u64,
    /// Batches that can be read, old ones too.
    pub(crate) batches: u64,
    /// Records in batches that still matter: rows that a crash may have cut. 0 if the array was
    /// stopped in order.
    pub(crate) records: u64,
    /// Why a zone of the log cannot be read, if one is damaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) damage: Option<String>,
}

impl Report for Examined {
    const SCHEMA: &'static str = "parapet/examine/1";

    fn text(&self, page: &mut Page) {
        for (index, disk) in self.disks.iter().enumerate() {
            if index > 0 {
                page.line("");
            }
            page.field_in(
                Style::Strong,
                "disk",
                format!("{}, {}", disk.path, page.size(disk.bytes)),
            );
            for fault in &disk.faults {
                page.field_in(Style::Warning, "superblock", fault);
            }
            for view in &disk.superblocks {
                view.text(page);
            }
            if let Some(journal) = &disk.journal {
                journal.text(page);
            }
            for signature in &disk.signatures {
                page.field("signature", format!("{} at {:#x}", signature.name, signature.offset));
            }
            if disk.is_partitioned() {
                page.field("remark", "parapet import finds arrays in partitions");
            }
        }
    }
}

impl ExaminedDisk {
    /// True if what members there are lie in its partitions.
    fn is_partitioned(&self) -> bool {
        let is_table = |view: &SignatureView| matches!(view.name.as_str(), "gpt" | "dos");
        self.superblocks.is_empty() && self.signatures.iter().any(is_table)
    }
}

impl SuperblockView {
    fn text(&self, page: &mut Page) {
        page.field("array", format!("{} ({})", self.array_name, self.array_uuid));
        page.field("metadata", format!("{} at byte {}", self.version, self.offset));
        page.field("level", shape(page, &self.level, &self.layout, self.chunk_bytes));
        page.field("role", format!("{} of {} slots", self.role, self.slots));
        page.field("member", &self.member_uuid);
        page.field("slots", &self.slot_states);
        page.field("events", self.events.to_string());
        page.field("created", self.created.to_string());
        page.field("updated", self.updated.to_string());
        page.field("state", if self.clean { "clean" } else { "not stopped in order" });
        page.field(
            "data",
            format!("{} at offset {}", page.size(self.data_bytes), self.data_offset),
        );
        if let Some(recovered) = self.recovered_bytes {
            page.field("rebuilt", format!("the first {}", page.size(recovered)));
        }
        if let (Some(chunk), Some(dirty)) = (self.bitmap_chunk_bytes, self.dirty_bits) {
            page.field("bitmap", format!("{dirty} bits set, {} each", page.size(chunk)));
        }
        if let Some(policy) = self.private.consistency {
            page.field("consistency", policy.sentence());
        }
        if let Some(journal) = &self.private.journal {
            page.field("journal", journal.sentence());
        }
        if self.private.checksums {
            page.field("checksums", "on");
        }
        if let Some(log) = &self.private.log {
            page.field("intent log", log.sentence(page));
        }
        if let Some(fault) = &self.private.private_fault {
            page.field("private area", format!("does not count: {fault}"));
        }
        if self.bad_blocks > 0 {
            page.field_in(Style::Warning, "bad blocks", self.bad_blocks.to_string());
        }
        for remark in &self.remarks {
            page.field_in(Style::Warning, "remark", remark);
        }
    }
}

impl LogView {
    pub(super) fn sentence(&self, page: &Page) -> String {
        let (zones, bytes) = (self.zones, page.size(self.zone_bytes));
        let zones = match zones {
            1 => format!("a zone of {bytes}"),
            _ => format!("{zones} zones of {bytes}"),
        };
        let damage = self.damage.as_ref().map(|why| format!("; damaged: {why}"));
        let damage = damage.unwrap_or_default();
        format!("{zones}, {} batches, {} records matter{damage}", self.batches, self.records)
    }
}

/// As `--overwrite-signature` takes it.
impl std::fmt::Display for SignatureView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{:#x}", self.name, self.offset)
    }
}
