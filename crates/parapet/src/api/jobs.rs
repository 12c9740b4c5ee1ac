//! The background work of all arrays.

use serde::Serialize;

use super::{Job, Report};
use crate::page::{Page, Style};
use crate::size::span;

/// Background jobs that are running.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Jobs {
    /// Sorted by the names of their arrays, of which each has at most one.
    pub(crate) jobs: Vec<ArrayJob>,
    /// Servers that did not answer, with the error.
    pub(crate) silent: Vec<String>,
}

/// A job and its array.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ArrayJob {
    /// Name of the array.
    pub(crate) name: String,
    /// UUID of the array.
    pub(crate) uuid: String,
    /// The job.
    pub(crate) job: Job,
}

impl Report for Jobs {
    const SCHEMA: &'static str = "parapet/jobs/1";

    fn text(&self, page: &mut Page) {
        if self.jobs.is_empty() {
            page.line("no background work");
        } else {
            let heading = ["ARRAY", "JOB", "DONE", "RATE", "LEFT", "HELD BACK BY"];
            let mut rows = vec![(Style::Plain, heading.map(String::from).to_vec())];
            rows.extend(self.jobs.iter().map(|it| (Style::Plain, it.row(page))));
            page.table(&rows);
        }
        for silent in &self.silent {
            page.styled(Style::Warning, format!("no answer: {silent}"));
        }
    }
}

impl ArrayJob {
    fn row(&self, page: &Page) -> Vec<String> {
        let (job, none) = (&self.job, || String::from("-"));
        vec![
            self.name.clone(),
            job.kind.word().into(),
            format!("{:.1} % of {}", job.percent, page.size(job.total_bytes)),
            job.bytes_per_second.map_or_else(none, |rate| format!("{}/s", page.size(rate))),
            job.seconds_left.map_or_else(none, span),
            job.limited_by.clone().unwrap_or_else(none),
        ]
    }
}
