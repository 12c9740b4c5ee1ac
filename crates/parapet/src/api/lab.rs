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
