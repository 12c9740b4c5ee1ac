//! The report of `parapet recover`: candidate arrays, as types and as text.

use serde::{Deserialize, Serialize};

use super::Report;
use crate::page::{Page, Style};

/// Findings about disks without superblocks.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Recovered {
    /// Sorted by likelihood, best first.
    pub(crate) guesses: Vec<GuessView>,
    /// Suggestions if no candidate fits well.
    #[serde(default)]
    pub(crate) hint: Option<String>,
}

/// How well the evidence supports a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum GuessVerdict {
    /// It fits, and no other candidate fits as well.
    Fits,
    /// Another candidate, or another order of the disks, fits as well.
    Ambiguous,
    /// Most of the signatures, tables or rows contradict it.
    Contradicted,
}

/// A candidate array.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct GuessView {
    /// As in `Array`.
    pub(crate) level: String,
    /// As in `Array`.
    pub(crate) layout: String,
    /// As in `Array`.
    pub(crate) chunk_bytes: u64,
    /// Data offset on each disk.
    pub(crate) data_offset: u64,
    /// As in `Array`.
    pub(crate) capacity_bytes: u64,
    /// The disk of each slot; null if missing.
    pub(crate) disks: Vec<Option<String>>,
    /// Content found at the start of the array: its name and position.
    pub(crate) content: Vec<String>,
    /// Number of signatures of that content at the expected position.
    pub(crate) signs: u64,
    /// Number of signatures searched.
    pub(crate) signs_tried: u64,
    /// Number of rows with consistent redundancy.
    pub(crate) rows: u64,
    /// Number of rows compared.
    pub(crate) rows_tried: u64,
    /// Number of file-system tables with valid references.
    pub(crate) steps: u64,
    /// Number of tables checked.
    pub(crate) steps_tried: u64,
    /// Number of other disk orders that explain as much; null if there were too many to try all.
    pub(crate) alike: Option<u64>,
    /// How well the evidence supports it.
    pub(crate) verdict: GuessVerdict,
    /// The command that writes the superblocks of this candidate; null unless it fits.
    pub(crate) write: Option<String>,
    /// The same command for mdadm; empty unless it fits.
    pub(crate) mdadm: String,
}

impl Report for Recovered {
    const SCHEMA: &'static str = "parapet/recover/1";

    fn text(&self, page: &mut Page) {
        if let Some(hint) = &self.hint {
            page.styled(Style::Warning, format!("nothing fits well: {hint}"));
        }
        for (number, guess) in (1..).zip(&self.guesses) {
            let level = match guess.layout.as_str() {
                "none" => guess.level.clone(),
                layout => format!("{}, {layout}", guess.level),
            };
            let chunk = match guess.chunk_bytes {
                0 => String::new(),
                bytes => format!(", chunk {}", page.size(bytes)),
            };
            let size = page.size(guess.capacity_bytes);
            page.styled(Style::Strong, format!("{number}. {level}{chunk}, {size}"));
            let disks: Vec<&str> =
                guess.disks.iter().map(|disk| disk.as_deref().unwrap_or("missing")).collect();
            page.field("slots", disks.join("  "));
            page.field("data from", page.size(guess.data_offset));
            if !guess.content.is_empty() {
                page.field("holds", guess.content.join(", "));
            }
            page.field(
                "signs",
                format!("{} of {} where they belong", guess.signs, guess.signs_tried),
            );
            page.field("rows", format!("{} of {} agree", guess.rows, guess.rows_tried));
            if guess.steps_tried > 0 {
                page.field("tables", format!("{} of {} lead on", guess.steps, guess.steps_tried));
            }
            match (guess.verdict, &guess.write) {
                (GuessVerdict::Fits, Some(write)) if number == 1 => page.field("for good", write),
                (GuessVerdict::Contradicted, _) => {
                    page.field_in(Style::Warning, "verdict", "the evidence contradicts this guess");
                }
                _ => {}
            }
            match guess.alike {
                Some(0) => {}
                Some(count) => page.field(
                    "alike",
                    match count {
                        1 => "one other order of the disks fits as well".into(),
                        count => format!("{count} other orders of the disks fit as well"),
                    },
                ),
                None => page.field("alike", "other orders were not tried: there are too many"),
            }
        }
    }
}
