//! Rates of failures and of latent sector errors, and where they come from.
//!
//! | rate | value | source |
//! |---|---|---|
//! | failures by class and age | `afr.toml` | Backblaze; Schroeder and Gibson FAST'07 |
//! | latent errors, nearline disks | 8.5 % of disks in 32 months | Bairavasundaram SIGMETRICS'07 |
//! | latent errors, Elerath's | one in 9,259 h | 8·10⁻¹⁴ per byte read, Elerath and Pecht DSN'07 |
//!
//! The two rates of latent errors differ by a factor of 28, and the answer hangs on the choice:
//! a comparison shows both.

use serde::Deserialize;

use super::life::Life;

/// Hours of a year.
pub const HOURS_PER_YEAR: f64 = 8760.0;
/// Hours of a day.
pub const HOURS_PER_DAY: f64 = 24.0;

/// Latent errors per disk-hour of nearline disks: −ln(1 − 8.5 %) in 32 months, one in 30 years.
pub const NEARLINE_LATENT_RATE: f64 = 3.8e-6;
/// Latent errors per disk-hour by Elerath and Pecht: one a year.
pub const ELERATH_LATENT_RATE: f64 = 1.0 / 9259.0;

/// Failures per hour of a disk that fails within a year with this chance.
pub fn per_hour(afr: f64) -> f64 {
    -f64::ln_1p(-afr) / HOURS_PER_YEAR
}

/// The chance that a disk with this rate per hour fails within a year.
pub fn per_year(rate: f64) -> f64 {
    -f64::exp_m1(-rate * HOURS_PER_YEAR)
}

/// The table of failure rates.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Rates {
    /// Date of the table.
    pub as_of: toml::value::Datetime,
    /// What to keep in mind about all of them.
    pub caveat: String,
    /// Its rows.
    #[serde(rename = "class")]
    pub classes: Vec<Class>,
}

/// One class of disks.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Class {
    /// A word to choose it by.
    pub name: String,
    /// What was counted.
    pub about: String,
    /// Date of the publication.
    pub date: toml::value::Datetime,
    /// Where it was published.
    pub source: String,
    /// Rates by age, in order of age.
    pub afr: Vec<AfrAtAge>,
}

/// A rate from an age on.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct AfrAtAge {
    /// Years in service.
    pub age: f64,
    /// Per cent that fail within a year.
    pub percent: f64,
}

impl Rates {
    /// The table that comes with the program.
    ///
    /// # Panics
    /// Never: a test reads it.
    pub fn built_in() -> Rates {
        toml::from_str(include_str!("afr.toml")).expect("the table is part of the program")
    }

    /// The class of this name.
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.iter().find(|class| class.name == name)
    }
}

impl Class {
    /// The lives of such disks.
    pub fn life(&self) -> Life {
        let rates = self.afr.iter().map(|at| (at.age, per_hour(at.percent / 100.0)));
        Life::by_age(&rates.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_source_and_a_life() {
        let rates = Rates::built_in();
        for class in &rates.classes {
            assert!(!class.source.is_empty() && !class.about.is_empty(), "{}", class.name);
            let found = per_year(class.life().hazard(0.0)) * 100.0;
            assert!((found - class.afr[0].percent).abs() < 1e-9, "{}: {found}", class.name);
        }
        let ageing = rates.class("ageing").expect("a class").life();
        assert!(ageing.hazard(10.5 * HOURS_PER_YEAR) > 3.0 * ageing.hazard(0.0));
    }

    #[test]
    fn nearline_rate_is_the_published_share_of_disks() {
        let months = 32.0 * HOURS_PER_YEAR / 12.0;
        let share = -f64::exp_m1(-NEARLINE_LATENT_RATE * months);
        assert!((share - 0.085).abs() < 1e-4, "{share}");
    }
}
