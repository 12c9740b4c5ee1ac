//! Experiments: the engine on models of disks, controllers, links and hosts, in virtual time.
//!
//! ```text
//!   catalogue ──▶ disk, flash        models: when does a disk answer?
//!                     │
//!   experiment ──▶ array ──▶ members ──▶ outcome ──▶ report, comparison
//!       ▲
//!     trace
//!
//!   real_time                        the same models beside real data, for real programs
//!   reliability                      how likely is the loss of data?
//! ```
#![forbid(unsafe_code)]

pub mod appliance;
pub mod compare;
pub mod controller;
pub mod demerit;
pub mod disk;
pub mod experiment;
pub mod link;
pub mod load;
pub mod member;
mod parallel;
pub mod real_time;
pub mod reliability;
pub mod report;
pub mod rig;
pub mod seeds;
pub mod speeds;
pub mod station;
pub mod trace;
pub mod world;
