//! Copies of what was overwritten: what `parapet undestroy` lists, in types and in words.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Report;
use crate::page::{Page, Style};

/// All copies that are kept.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct KeptList {
    /// The folder that they are in.
    pub(crate) folder: String,
    /// The oldest first.
    pub(crate) copies: Vec<KeptCopy>,
}

/// The copies of one operation.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct KeptCopy {
    /// The array that was made, changed or destroyed.
    pub(crate) array: String,
    /// The verb that overwrote something: `destroy`, `create`, `add` ….
    pub(crate) verb: String,
    /// When.
    #[schemars(with = "String")]
    pub(crate) made: Timestamp,
    /// The folder of the copies, with the commands that put them back in `undo.json`.
    pub(crate) folder: String,
    /// Size of the copies.
    pub(crate) bytes: u64,
    /// The disks that they were taken from.
    pub(crate) disks: Vec<String>,
    /// True if `parapet undestroy` puts it back; else the commands in `undo.json` do.
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
