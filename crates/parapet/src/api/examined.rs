//! The report of `parapet examine`, as types and as text.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::text::shape;
use super::{Consistency, JournalNote, JournalView, Report};
use crate::page::{Page, Style};

/// The metadata found on disks.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Examined {
    /// One entry for each examined disk.
    pub(crate) disks: Vec<ExaminedDisk>,
}

/// An examined disk.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ExaminedDisk {
    /// Its path.
    pub(crate) path: String,
    /// Its size.
    pub(crate) bytes: u64,
    /// Valid superblocks; several if the disk is a member of an array that is itself a member.
    pub(crate) superblocks: Vec<SuperblockView>,
    /// The journal device on this disk; null if there is none.
    #[serde(default)]
    pub(crate) journal: Option<JournalView>,
    /// Why there is no superblock, or why a superblock is invalid.
    pub(crate) faults: Vec<String>,
    /// All signatures found on the disk.
    pub(crate) signatures: Vec<SignatureView>,
}

/// A signature on a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SignatureView {
    /// Its name in blkid.
    pub(crate) name: String,
    /// Position of its magic number.
    pub(crate) offset: u64,
}

/// The fields of a superblock.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SuperblockView {
    /// `md 0.90`, `md 1.0`, `md 1.1`, `md 1.2`; `parapet 1.2` for RAID 3.5.
    pub(crate) version: String,
    /// Position of the superblock.
    pub(crate) offset: u64,
    /// UUID of the array.
    pub(crate) array_uuid: String,
    /// Name of the array.
    pub(crate) array_name: String,
    /// UUID of this member.
    pub(crate) member_uuid: String,
    /// As in `Array`.
    pub(crate) level: String,
    /// As in `Array`.
    pub(crate) layout: String,
    /// Chunk size in bytes.
    pub(crate) chunk_bytes: u64,
    /// Number of slots.
    pub(crate) slots: u32,
    /// `slot 3`, `spare`, `faulty`, `journal`.
    pub(crate) role: String,
    /// Event count: the member with the highest count has the newest metadata.
    pub(crate) events: u64,
    /// Creation time of the array.
    pub(crate) created: Timestamp,
    /// Time of the last superblock update.
    pub(crate) updated: Timestamp,
    /// True if the array was stopped cleanly.
    pub(crate) clean: bool,
    /// Start of the data on this member.
    pub(crate) data_offset: u64,
    /// Size available for data on this member.
    pub(crate) data_bytes: u64,
    /// Recovery offset of a rebuild, if the member is not complete.
    pub(crate) recovered_bytes: Option<u64>,
    /// States of all slots in this superblock: `A` present, `.` missing.
    pub(crate) slot_states: String,
    /// Bytes covered by a bit of the bitmap; null without a valid bitmap.
    pub(crate) bitmap_chunk_bytes: Option<u64>,
    /// Number of bits set in the bitmap.
    pub(crate) dirty_bits: Option<u64>,
    /// Number of ranges in the bad-block log.
    pub(crate) bad_blocks: u64,
    /// Parapet's private area on this member.
    #[serde(flatten)]
    pub(crate) private: PrivateView,
    /// Reasons why Parapet does not run the array, and fields preserved for other tools, in
    /// sentences.
    #[serde(default)]
    pub(crate) remarks: Vec<String>,
}

/// The fields of Parapet's private area.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PrivateView {
    /// True if Parapet's private area is valid: no other tool has written the superblock since.
    pub(crate) private_area: bool,
    /// Why Parapet's private area is invalid; null if it is valid, or if there is no room for one.
    #[serde(default)]
    pub(crate) private_fault: Option<String>,
    /// Consistency policy in the private area; null without one.
    #[serde(default)]
    pub(crate) consistency: Option<Consistency>,
    /// True if the private area says that the array keeps checksums.
    #[serde(default)]
    pub(crate) checksums: bool,
    /// The array's journal device; null if there is none, or no valid private area names one.
    #[serde(default)]
    pub(crate) journal: Option<JournalNote>,
    /// The intent log on this member. Null if nothing was logged since the last start of the array,
    /// or if the log is not on the members.
    #[serde(default)]
    pub(crate) log: Option<LogView>,
}

/// A member's intent log.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LogView {
    /// Number of zones, one for each thread.
    pub(crate) zones: u32,
    /// Size of each zone.
    pub(crate) zone_bytes: u64,
    /// Number of readable batches, old ones included.
    pub(crate) batches: u64,
    /// Number of records that a replay would need: rows that a crash may have torn. 0 after a clean
    /// stop.
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
    /// True if the members found lie in its partitions.
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
        page.field("state", if self.clean { "clean" } else { "not stopped cleanly" });
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

/// Formats a signature for `--overwrite-signature`.
impl std::fmt::Display for SignatureView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{:#x}", self.name, self.offset)
    }
}
