//! What `parapet lab` shows: catalogued disks, and published measurements beside the models.

use serde::Serialize;

use super::Report;
use crate::page::{Page, Style};

/// The catalogue of modelled disks.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Disks {
    /// Sorted by name.
    pub(crate) disks: Vec<ModelledDisk>,
}

/// A disk of the catalogue.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Seeds {
    /// A table for each system.
    pub(crate) tables: Vec<SeedTable>,
}

/// The figures of one system. All that were reproduced are simulated.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LabFigure {
    /// Its name.
    pub(crate) name: String,
    /// Its unit.
    pub(crate) unit: String,
    /// Its value.
    pub(crate) value: f64,
}

/// A measured figure, and its reproduction.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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

impl LabCell {
    fn of(cell: &::lab::experiment::outcome::Cell) -> LabCell {
        let (name, error) = (cell.name.clone(), cell.error());
        LabCell { name, measured: cell.measured, reproduced: cell.reproduced, error }
    }
}

impl Experimented {
    /// The answer for an outcome.
    pub(crate) fn of(outcome: &::lab::experiment::Outcome) -> Experimented {
        let figure = |(name, unit, value): (&str, &str, f64)| LabFigure {
            name: name.into(),
            unit: unit.into(),
            value,
        };
        Experimented {
            name: outcome.name.clone(),
            runs: outcome.runs.len(),
            figures: outcome.median.named().into_iter().map(figure).collect(),
            cells: outcome.cells.iter().map(LabCell::of).collect(),
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

/// Constants of an experiment, fitted on its known cells. All reproduced figures are simulated.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Calibrated {
    /// The experiment's title.
    pub(crate) name: String,
    /// The constants.
    pub(crate) constants: Vec<LabConstant>,
    /// Known cells and held ones, by the experiment with these constants.
    pub(crate) cells: Vec<CalibratedCell>,
    /// Known cells for each constant: near 1, the fit says nothing of the model.
    pub(crate) cells_per_constant: f64,
    /// Largest deviation of known cells: 0.05 is 5 %.
    pub(crate) worst_known: f64,
    /// Largest deviation of held cells; null without any.
    pub(crate) worst_held: Option<f64>,
    /// How often the experiment was run, each time with all its seeds.
    pub(crate) evaluations: usize,
}

/// A fitted constant.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LabConstant {
    /// Its meaning.
    pub(crate) name: String,
    /// Its path in the experiment.
    pub(crate) path: String,
    /// Its unit.
    pub(crate) unit: String,
    /// What the file had; null if nothing.
    pub(crate) before: Option<f64>,
    /// The fitted value.
    pub(crate) value: f64,
    /// It ended at a bound of its range: the range, or the model, is wrong.
    pub(crate) at_bound: bool,
}

/// A cell of a calibration.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CalibratedCell {
    /// `known`: it was fitted on; `held`: it judges.
    pub(crate) status: String,
    /// The unit of both figures.
    pub(crate) unit: String,
    /// The figures.
    #[serde(flatten)]
    pub(crate) cell: LabCell,
}

impl Calibrated {
    /// The answer for a calibration.
    pub(crate) fn of(name: &str, found: &::lab::experiment::calibrate::Calibration) -> Calibrated {
        use ::lab::experiment::schema::CellStatus;
        let held = found.cells.iter().any(|cell| cell.status == CellStatus::Held);
        let constant = |one: &::lab::experiment::calibrate::Fitted| LabConstant {
            name: one.name.clone(),
            path: one.path.clone(),
            unit: one.unit.clone(),
            before: one.before,
            value: one.value,
            at_bound: one.at_bound,
        };
        let cell = |cell: &::lab::experiment::outcome::Cell| CalibratedCell {
            status: format!("{:?}", cell.status).to_lowercase(),
            unit: cell.unit.to_string(),
            cell: LabCell::of(cell),
        };
        Calibrated {
            name: name.into(),
            constants: found.constants.iter().map(constant).collect(),
            cells: found.cells.iter().map(cell).collect(),
            cells_per_constant: found.known_cells as f64 / found.constants.len() as f64,
            worst_known: found.worst(CellStatus::Known),
            worst_held: held.then(|| found.worst(CellStatus::Held)),
            evaluations: found.evaluations,
        }
    }
}

impl Report for Calibrated {
    const SCHEMA: &'static str = "parapet/lab/calibrate/1";

    fn text(&self, page: &mut Page) {
        page.line(&self.name);
        page.line(format!("simulated, {} runs of all seeds", self.evaluations));
        for LabConstant { name, path, unit, before, value, at_bound } in &self.constants {
            let before = before.map_or("not set".into(), |before| format!("{before}"));
            page.line(format!("  {name}: {value:.4} {unit} (before: {before}; {path})"));
            if *at_bound {
                page.styled(
                    Style::Warning,
                    "    at a bound of its range: extend it, or \
                                             change the model",
                );
            }
        }
        let heading = ["CELL", "STATUS", "MEASURED", "HERE", "ERROR"].map(String::from).to_vec();
        let mut rows = vec![(Style::Plain, heading)];
        rows.extend(self.cells.iter().map(|CalibratedCell { status, unit, cell }| {
            let error = format!("{:+.1} %", cell.error * 100.0);
            let here = format!("{:.1} {unit}", cell.reproduced);
            let measured = format!("{}", cell.measured);
            (Style::Plain, vec![cell.name.clone(), status.clone(), measured, here, error])
        }));
        page.table(&rows);
        let percent = |worst: f64| format!("{:.1} %", worst * 100.0);
        let held = self.worst_held.map_or("no held cells judge".into(), |worst| {
            format!("held cells within {}", percent(worst))
        });
        page.line(format!(
            "known cells within {}, {held}; {:.1} known cells per constant",
            percent(self.worst_known),
            self.cells_per_constant
        ));
    }
}
