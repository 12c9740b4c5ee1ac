//! How likely a layout is to lose data.
//!
//! ```text
//!   rate ─▶ life ──┐
//!   rebuild ─▶ repair ──┼─▶ simulate ─▶ estimate ─▶ compare
//!   latent ────────┤                                  ▲
//!   redundancy ────┘        chain (exact reference)   candidate (usable bytes, from `metadata`)
//! ```
//!
//! [`plan`] compares layouts over the same disks. Chances are printed as 1 in N over a mission,
//! never as years to data loss, and never beyond one in a million.

mod advice;
mod candidate;
mod chain;
mod compare;
mod estimate;
mod goal;
mod inputs;
mod latent;
mod life;
mod rate;
mod rebuild;
mod redundancy;
mod repair;
mod simulate;
mod what_if;

pub use candidate::{Candidate, Placement};
pub use chain::{Chain, Crew, any_of};
pub use compare::{CAVEAT, Comparison, LayoutSpeeds, Row, Speed, plan};
pub use estimate::{Estimate, LEAST_PRINTED, Odds};
pub use goal::Goal;
pub use inputs::{Inputs, LatentRate};
pub use latent::{Latent, Scrub, by_hand};
pub use life::{AgeRange, Life, Weibull};
pub use rate::{
    AfrAtAge, Class, ELERATH_LATENT_RATE, HOURS_PER_DAY, HOURS_PER_YEAR, NEARLINE_LATENT_RATE,
    Rates, per_hour, per_year,
};
pub use rebuild::{DiskKind, Load, RebuildHours, rebuild_hours};
pub use redundancy::Redundancy;
pub use repair::Repair;
pub use simulate::{Cause, Correlation, Outcome, Runs, System, simulate};
pub use what_if::{Change, WhatIf};

#[cfg(test)]
mod tests;
