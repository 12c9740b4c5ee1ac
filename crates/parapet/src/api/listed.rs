//! Served arrays, and unserved arrays in a folder, as text: a line each.

use std::collections::BTreeSet;

use super::{Job, List, Report, Resting};
use crate::page::{Page, Style};

impl Report for List {
    const SCHEMA: &'static str = "parapet/list/1";

    fn text(&self, page: &mut Page) {
        if self.arrays.is_empty() && !(self.resting.is_empty() && self.silent.is_empty()) {
            // The other lines say what there is.
        } else if self.arrays.is_empty() {
            let looked = |folder: &String| format!(" (looked in {folder})");
            let folder = self.folder.as_ref().map_or(String::new(), looked);
            page.line(format!("no array is being served{folder}"));
        } else {
            let heading = ["NAME", "STATE", "LEVEL", "SIZE", "MEMBERS", "JOB"];
            let mut rows = vec![(Style::Plain, heading.map(String::from).to_vec())];
            for array in &self.arrays {
                let job = array.job.as_ref().map_or(String::from("-"), Job::short);
                rows.push((
                    array.state.style(),
                    vec![
                        array.name.clone(),
                        array.state.word().into(),
                        array.level.clone(),
                        page.size(array.capacity_bytes),
                        array.members_word(),
                        job,
                    ],
                ));
            }
            page.table(&rows);
        }
        if !self.resting.is_empty() {
            if !self.arrays.is_empty() {
                page.line("");
            }
            let heading = ["NOT SERVED", "LEVEL", "MEMBERS", "DISKS"];
            let mut rows = vec![(Style::Plain, heading.map(String::from).to_vec())];
            rows.extend(self.resting.iter().map(Resting::row));
            page.table(&rows);
        }
        for silent in &self.silent {
            page.styled(Style::Warning, format!("no answer: {silent}"));
        }
    }
}

impl Resting {
    fn row(&self) -> (Style, Vec<String>) {
        let slots = self.members.iter().filter(|member| member.role.starts_with("slot "));
        let slots: BTreeSet<&str> = slots.map(|m| m.role.as_str()).collect();
        let style = if slots.len() < self.slots { Style::Warning } else { Style::Plain };
        let there = format!("{}/{}", slots.len(), self.slots);
        let paths: Vec<&str> = self.members.iter().map(|member| member.path.as_str()).collect();
        (style, vec![self.name.clone(), self.level.clone(), there, paths.join(" ")])
    }
}
