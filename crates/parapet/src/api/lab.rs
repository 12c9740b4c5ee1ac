//! What `parapet lab` shows: catalogued disks, and published measurements beside the models.

use schemars::JsonSchema;
use serde::Serialize;

use super::Report;
use crate::page::{Page, Style};

/// The catalogue of modelled disks.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Disks {
    /// Sorted by name.
    pub(crate) disks: Vec<ModelledDisk>,
}

/// A disk of the catalogue.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ModelledDisk {
    /// Its name, for `--disks` and experiments.
    pub(crate) name: String,
    /// Maker and model, or a class.
    pub(crate) description: String,
    /// `hdd` or `flash`.
    pub(crate) kind: String,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Its parameters; empty in a list of all disks.
    pub(crate) parameters: Vec<DiskParameter>,
}

/// A parameter of a model.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DiskParameter {
    /// Its name, with the unit.
    pub(crate) name: String,
    /// Its value.
    pub(crate) value: String,
    /// Where it comes from.
    pub(crate) source: String,
}

impl Report for Disks {
    const SCHEMA: &'static str = "parapet/lab/disks/1";

    fn text(&self, page: &mut Page) {
        let heading = ["DISK", "KIND", "SIZE", "DESCRIPTION"].map(String::from).to_vec();
        let mut rows = vec![(Style::Plain, heading)];
        rows.extend(self.disks.iter().map(|disk| {
            let size = page.size(disk.bytes);
            (
                Style::Plain,
                vec![disk.name.clone(), disk.kind.clone(), size, disk.description.clone()],
            )
        }));
        page.table(&rows);
        for disk in &self.disks {
            for DiskParameter { name, value, source } in &disk.parameters {
                page.line(format!("  {name} = {value}"));
                page.line(format!("      {source}"));
            }
        }
    }
}

/// Measurements of reference systems beside the models.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Seeds {
    /// A table for each system.
    pub(crate) tables: Vec<SeedTable>,
}

/// The figures of one system. All that were reproduced are simulated.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SeedTable {
    /// R1 to R5.
    pub(crate) name: String,
    /// The system, and what was measured.
    pub(crate) title: String,
    /// Unit of all cells.
    pub(crate) unit: String,
    /// The cells.
    pub(crate) cells: Vec<SeedCell>,
    /// The numbers that no data sheet gives, with the cells on which they were fitted.
    pub(crate) constants: Vec<SeedConstant>,
    /// What the model leaves out.
    pub(crate) limits: String,
    /// The table as text.
    #[serde(skip)]
    pub(crate) text: String,
}

/// A figure.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SeedCell {
    /// What was measured.
    pub(crate) name: String,
    /// The published figure; null for a prediction.
    pub(crate) measured: Option<f64>,
    /// What the models give.
    pub(crate) reproduced: f64,
    /// Deviation from the measurement: 0.05 is 5 % too much.
    pub(crate) error: Option<f64>,
    /// The station that limits it.
    pub(crate) bound_by: String,
}

/// A fitted number.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SeedConstant {
    /// Its meaning.
    pub(crate) name: String,
    /// Its value, with the unit.
    pub(crate) value: String,
    /// The cells on which it was fitted.
    pub(crate) fitted_on: String,
}

impl From<::lab::seeds::Table> for SeedTable {
    fn from(table: ::lab::seeds::Table) -> SeedTable {
        let text = table.text();
        let cell = |cell: &::lab::seeds::Cell| SeedCell {
            name: cell.name.clone(),
            measured: cell.measured,
            reproduced: cell.reproduced,
            error: cell.error(),
            bound_by: cell.bound_by.into(),
        };
        let constant = |constant: &::lab::seeds::Constant| SeedConstant {
            name: constant.name.into(),
            value: constant.value.clone(),
            fitted_on: constant.fitted_on.into(),
        };
        SeedTable {
            name: table.name.into(),
            title: table.title.into(),
            unit: table.unit.into(),
            cells: table.cells.iter().map(cell).collect(),
            constants: table.constants.iter().map(constant).collect(),
            limits: table.limits.into(),
            text,
        }
    }
}

impl Report for Seeds {
    const SCHEMA: &'static str = "parapet/lab/seeds/1";

    fn text(&self, page: &mut Page) {
        for (index, table) in self.tables.iter().enumerate() {
            if index > 0 {
                page.line("");
            }
            table.text.lines().for_each(|line| page.line(line));
        }
    }
}

/// What an experiment has shown. All of it is simulated.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Experimented {
    /// The experiment's title.
    pub(crate) name: String,
    /// Runs, each with a seed of its own.
    pub(crate) runs: usize,
    /// Medians over the runs.
    pub(crate) figures: Vec<LabFigure>,
    /// Figures of the experiment to compare with.
    pub(crate) cells: Vec<LabCell>,
    /// Requests that failed, over all runs.
    pub(crate) errors: u64,
}

/// A figure.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LabFigure {
    /// Its name.
    pub(crate) name: String,
    /// Its unit.
    pub(crate) unit: String,
    /// Its value.
    pub(crate) value: f64,
}

/// A measured figure, and its reproduction.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LabCell {
    /// What was measured.
    pub(crate) name: String,
    /// The measured figure.
    pub(crate) measured: f64,
    /// The median of the runs.
    pub(crate) reproduced: f64,
    /// Deviation from the measurement: 0.05 is 5 % too much.
    pub(crate) error: f64,
}

impl Experimented {
    /// The answer for an outcome.
    pub(crate) fn of(outcome: &::lab::experiment::Outcome) -> Experimented {
        let figure = |(name, unit, value): (&str, &str, f64)| LabFigure {
            name: name.into(),
            unit: unit.into(),
            value,
        };
        let cell = |cell: &::lab::experiment::outcome::Cell| LabCell {
            name: cell.name.clone(),
            measured: cell.measured,
            reproduced: cell.reproduced,
            error: cell.reproduced / cell.measured - 1.0,
        };
        Experimented {
            name: outcome.name.clone(),
            runs: outcome.runs.len(),
            figures: outcome.median.named().into_iter().map(figure).collect(),
            cells: outcome.cells.iter().map(cell).collect(),
            errors: outcome.runs.iter().map(|run| run.errors).sum(),
        }
    }
}

impl Report for Experimented {
    const SCHEMA: &'static str = "parapet/lab/run/1";

    fn text(&self, page: &mut Page) {
        page.line(&self.name);
        page.line(format!("simulated, medians over {} seeds", self.runs));
        for LabFigure { name, unit, value } in &self.figures {
            page.line(format!("  {name:<14} {value:>12.3} {unit}"));
        }
        for LabCell { name, measured, reproduced, error } in &self.cells {
            let error = error * 100.0;
            page.line(format!(
                "  {name}: measured {measured}, here {reproduced:.1} ({error:+.1} %)"
            ));
        }
        if self.errors > 0 {
            page.styled(Style::Warning, format!("{} requests failed", self.errors));
        }
    }
}
