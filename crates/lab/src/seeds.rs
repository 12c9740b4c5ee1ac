//! Published measurements of five systems, and what the models give for them.
//!
//! A cell is *known* if its measurement was published with the system: it may calibrate a constant,
//! or be explained by it. All other cells are predictions. A table says which constants it uses,
//! and on which cells they were fitted: a model with a constant for each cell would be none.

pub mod r1;
pub mod r2;
pub mod r3;
pub mod r4;
pub mod r5;
pub mod rack;

use std::fmt::Write;

use crate::world::Stall;

/// The systems.
pub const NAMES: [&str; 5] = ["R1", "R2", "R3", "R4", "R5"];

/// The table of one of [`NAMES`]. Takes up to a minute.
///
/// # Errors
/// An experiment stalls: an error of its model.
///
/// # Panics
/// For any other name.
pub fn table(name: &str) -> Result<Table, Stall> {
    match name {
        "R1" => r1::table(),
        "R2" => r2::table(),
        "R3" => r3::table(),
        "R4" => r4::table(),
        "R5" => r5::table(),
        other => panic!("no system {other}"),
    }
}

/// A figure of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    /// What was measured.
    pub name: String,
    /// The published figure, if there is one.
    pub measured: Option<f64>,
    /// What the models give.
    pub reproduced: f64,
    /// The station that limits it.
    pub bound_by: &'static str,
}

impl Cell {
    /// Deviation from the measurement: 0.05 is 5 % too much.
    pub fn error(&self) -> Option<f64> {
        self.measured.map(|measured| self.reproduced / measured - 1.0)
    }
}

/// A number that no data sheet gives.
#[derive(Clone, PartialEq, Debug)]
pub struct Constant {
    /// Its meaning.
    pub name: &'static str,
    /// Its value, with the unit.
    pub value: String,
    /// The cells on which it was fitted.
    pub fitted_on: &'static str,
}

/// The cells of one system.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// Its name: R1 to R5.
    pub name: &'static str,
    /// The system, and what was measured there.
    pub title: &'static str,
    /// Unit of all cells.
    pub unit: &'static str,
    /// The cells.
    pub cells: Vec<Cell>,
    /// The constants of all cells.
    pub constants: Vec<Constant>,
    /// What the model leaves out, in sentences.
    pub limits: &'static str,
}

impl Table {
    /// The largest deviation of a known cell, without its sign.
    pub fn worst(&self) -> f64 {
        self.cells.iter().filter_map(Cell::error).fold(0.0, |worst, error| worst.max(error.abs()))
    }

    /// The table as text of at most 100 columns.
    pub fn text(&self) -> String {
        let mut text = format!("{}. {} ({})\n", self.name, self.title, self.unit);
        let name = |cell: &Cell| cell.name.chars().count();
        let width = self.cells.iter().map(name).max().unwrap_or(0).max(4);
        let _ = writeln!(
            text,
            "  {:<width$}  {:>10}  {:>10}  {:>7}  BOUND BY",
            "CELL", "MEASURED", "REPRODUCED", "ERROR"
        );
        for cell in &self.cells {
            let measured = cell.measured.map_or("-".into(), grouped);
            let error = cell.error().map_or("-".into(), |error| format!("{:+.1} %", error * 100.0));
            let (name, reproduced, bound) = (&cell.name, grouped(cell.reproduced), cell.bound_by);
            let _ = writeln!(
                text,
                "  {name:<width$}  {measured:>10}  {reproduced:>10}  {error:>7}  {bound}"
            );
        }
        let _ = writeln!(text, "  constants:");
        for Constant { name, value, fitted_on } in &self.constants {
            let _ = writeln!(text, "    {name}: {value}, fitted on {fitted_on}");
        }
        let _ = writeln!(text, "  {}", self.limits);
        text
    }
}

/// A figure with three digits at least, and commas between thousands.
fn grouped(value: f64) -> String {
    if value.abs() < 100.0 {
        return format!("{value:.3}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) && digit.is_ascii_digit() {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_grouped() {
        assert_eq!(grouped(1_234_567.4), "1,234,567");
        assert_eq!(grouped(968.7), "969");
        assert_eq!(grouped(1.0371), "1.037");
        assert_eq!(grouped(100_000.0), "100,000");
    }
}
