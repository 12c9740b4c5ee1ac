//! Calibration: constants of an experiment are fitted on its known cells, and judged by the others.
//!
//! ```text
//!   constants ─▶ experiment ─▶ runs ─▶ known cells ─▶ Σ (ln reproduced/measured)² ─┐
//!       ▲                                                                          │
//!       └────────────────────── simplex of Nelder and Mead ◀───────────────────────┘
//! ```
//!
//! The simplex needs no derivatives, and tolerates the steps that a simulation of few seeds has.
//! Equal experiments give equal constants. More constants than known cells are refused: they would
//! say nothing about other cells.

use super::outcome::Cell;
use super::schema::CellStatus;
use super::{Experiment, Fault, ensure, reproduced};

/// Evaluations for each constant at most.
const EVALUATIONS_MAX: usize = 40;
/// The fit ends when the simplex is this small, as a part of the ranges.
const TOLERANCE: f64 = 2e-3;

/// Constants and how well they explain the cells.
#[derive(Clone, PartialEq, Debug)]
pub struct Calibration {
    /// The constants.
    pub constants: Vec<Fitted>,
    /// All cells, by the experiment with these constants.
    pub cells: Vec<Cell>,
    /// Known cells; at least as many as constants.
    pub known_cells: usize,
    /// How often the experiment was run, with all its seeds.
    pub evaluations: usize,
    /// The experiment with these constants.
    pub experiment: Experiment,
}

/// A constant.
#[derive(Clone, PartialEq, Debug)]
pub struct Fitted {
    /// Its meaning.
    pub name: String,
    /// Its path in the experiment.
    pub path: String,
    /// Its unit.
    pub unit: String,
    /// What the file had before.
    pub before: Option<f64>,
    /// The fitted value.
    pub value: f64,
    /// It ended at a bound of its range: the range, or the model, is wrong.
    pub at_bound: bool,
}

impl Calibration {
    /// The largest deviation of the cells of a status, without its sign; 0 of none.
    pub fn worst(&self, status: CellStatus) -> f64 {
        let cells = self.cells.iter().filter(|cell| cell.status == status);
        cells.map(|cell| cell.error().abs()).fold(0.0, f64::max)
    }
}

/// Fits the constants of an experiment without a trace. `progress` gets the number of each
/// evaluation and its rms error of the known cells.
///
/// # Errors
/// If there are no constants, or more than known cells, or a run fails.
pub fn calibrate(
    experiment: &Experiment,
    progress: &dyn Fn(usize, f64),
) -> Result<Calibration, Fault> {
    experiment.check()?;
    let known = experiment.cells.iter().filter(|cell| cell.status == CellStatus::Known).count();
    let constants = &experiment.constants;
    let hint = "write [[constant]] with name, path, low, high and unit";
    ensure(!constants.is_empty(), "constant", "none to fit", hint)?;
    let cause = format!("{} constants, but {known} known cells", constants.len());
    let hint = "mark more cells known, or remove constants";
    ensure(constants.len() <= known, "constant", &cause, hint)?;
    let trace = experiment.trace_file().is_none();
    ensure(trace, "load.trace", "a trace cannot calibrate", "write [[load.worker]]")?;
    let mut fit = Fit { experiment, known, progress, evaluations: 0 };
    let at = fit.descend()?;
    let fitted = fit.at(&at)?;
    let cells = reproduced(&fitted, None)?;
    let constants = constants.iter().zip(&at).map(|(constant, &share)| Fitted {
        name: constant.name.clone(),
        path: constant.path.clone(),
        unit: constant.unit.clone(),
        before: experiment.number(&constant.path),
        value: fitted.number(&constant.path).unwrap_or(constant.at(share)),
        at_bound: !(TOLERANCE..=1.0 - TOLERANCE).contains(&share),
    });
    Ok(Calibration {
        constants: constants.collect(),
        cells,
        known_cells: known,
        evaluations: fit.evaluations,
        experiment: fitted,
    })
}

/// A point: each constant as a share of its range.
type Point = Vec<f64>;

struct Fit<'a> {
    experiment: &'a Experiment,
    known: usize,
    progress: &'a dyn Fn(usize, f64),
    evaluations: usize,
}

impl Fit<'_> {
    /// The experiment at a point.
    fn at(&self, point: &[f64]) -> Result<Experiment, Fault> {
        let mut changed = self.experiment.clone();
        for (constant, &share) in self.experiment.constants.iter().zip(point) {
            changed = changed.with_number(&constant.path, constant.at(share))?;
        }
        Ok(changed)
    }

    /// The mean square of the logarithmic errors of known cells.
    fn error(&mut self, point: &[f64]) -> Result<f64, Fault> {
        let cells = reproduced(&self.at(point)?, Some(CellStatus::Known))?;
        let known = cells.iter().filter(|cell| cell.status == CellStatus::Known);
        // A run that answers nothing is as wrong as can be, and finite.
        let square = |cell: &Cell| (cell.reproduced / cell.measured).max(1e-9).ln().powi(2);
        let mean = known.map(square).sum::<f64>() / self.known as f64;
        self.evaluations += 1;
        (self.progress)(self.evaluations, mean.sqrt());
        Ok(mean)
    }

    fn vertex(&mut self, point: Point) -> Result<(Point, f64), Fault> {
        let error = self.error(&point)?;
        Ok((point, error))
    }

    /// A point within the ranges, unless it is a corner already: a simplex against a bound
    /// would collapse.
    fn inside(&mut self, simplex: &[(Point, f64)], point: Point) -> Result<(Point, f64), Fault> {
        let point: Point = point.into_iter().map(|share| share.clamp(0.0, 1.0)).collect();
        if simplex.iter().any(|corner| corner.0 == point) {
            return Ok((point, f64::INFINITY));
        }
        self.vertex(point)
    }

    /// Nelder and Mead's simplex, from the first quarter of all ranges to the third of each.
    fn descend(&mut self) -> Result<Point, Fault> {
        let count = self.experiment.constants.len();
        let mut simplex = Vec::new();
        for corner in 0..=count {
            let share = |constant| if constant + 1 == corner { 0.75 } else { 0.25 };
            simplex.push(self.vertex((0..count).map(share).collect())?);
        }
        loop {
            simplex.sort_by(|a, b| a.1.total_cmp(&b.1));
            let (best, worst) = (simplex[0].clone(), simplex[count].clone());
            let spread = |other: &(Point, f64)| {
                other.0.iter().zip(&best.0).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
            };
            let small = simplex.iter().map(spread).fold(0.0, f64::max) < TOLERANCE;
            if small || self.evaluations >= EVALUATIONS_MAX * count {
                return Ok(best.0);
            }
            let centre: Point = (0..count)
                .map(|at| simplex[..count].iter().map(|one| one.0[at]).sum::<f64>() / count as f64)
                .collect();
            let away = |factor: f64| -> Point {
                centre.iter().zip(&worst.0).map(|(c, w)| c + factor * (c - w)).collect()
            };
            let mirrored = self.inside(&simplex, away(1.0))?;
            let next = if mirrored.1 < best.1 {
                let further = self.inside(&simplex, away(2.0))?;
                if further.1 < mirrored.1 { further } else { mirrored }
            } else if mirrored.1 < simplex[count - 1].1 {
                mirrored
            } else {
                self.inside(&simplex, away(if mirrored.1 < worst.1 { 0.5 } else { -0.5 }))?
            };
            if next.1 < worst.1 {
                simplex[count] = next;
                continue;
            }
            for corner in &mut simplex[1..] {
                let halfway = corner.0.iter().zip(&best.0).map(|(a, b)| (a + b) / 2.0).collect();
                *corner = self.vertex(halfway)?;
            }
        }
    }
}

#[cfg(test)]
mod tests;
