//! Copies of overwritten blocks: the list of `parapet undestroy`, as types and as text.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Report;
use crate::page::{Page, Style};

/// All copies that exist.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct KeptList {
    /// Their folder.
    pub(crate) folder: String,
    /// Sorted by time, oldest first.
    pub(crate) copies: Vec<KeptCopy>,
}

/// The copies of one operation.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct KeptCopy {
    /// The array that was created, changed or destroyed.
    pub(crate) array: String,
    /// The verb that overwrote the blocks: `destroy`, `create`, `add` ….
    pub(crate) verb: String,
    /// Time of the operation.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) made: Timestamp,
    /// Folder of the copies; `undo.json` in it holds the commands that restore them.
    pub(crate) folder: String,
    /// Size of the copies.
    pub(crate) bytes: u64,
    /// The disks of the copied blocks.
    pub(crate) disks: Vec<String>,
    /// True if `parapet undestroy` can restore them; otherwise use the commands in `undo.json`.
    pub(crate) undestroy: bool,
}

impl Report for KeptList {
    const SCHEMA: &'static str = "parapet/undo-list/1";

    fn text(&self, page: &mut Page) {
        if self.copies.is_empty() {
            page.line(format!("no copies are kept in {}", self.folder));
            return;
        }
        let heading = ["ARRAY", "BEFORE", "TIME", "DISKS", "SIZE", "PUT BACK BY"];
        let mut rows = vec![(Style::Plain, heading.map(String::from).to_vec())];
        for copy in &self.copies {
            let by = match copy.undestroy {
                true => format!("parapet undestroy {}", copy.folder),
                false => format!("the commands in {}/undo.json", copy.folder),
            };
            rows.push((
                Style::Plain,
                vec![
                    copy.array.clone(),
                    copy.verb.clone(),
                    copy.made.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
                    copy.disks.len().to_string(),
                    page.size(copy.bytes),
                    by,
                ],
            ));
        }
        page.table(&rows);
    }
}
