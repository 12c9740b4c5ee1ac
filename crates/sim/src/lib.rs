//! The pretend world in which Parapet is tested: disks, time, faults and an oracle, all from one
//! seed.
//!
//! ```text
//!   seed ──▶ options ──▶ requests, incidents      drawn before the run, each from its own stream
//!                            │
//!            executor ◀──▶ array ◀──▶ disks       one thread, virtual time, seeded order
//!                            │          │
//!                          oracle     check       values a read may return; bytes on members
//! ```
//!
//! The engine under test is the real one, over disks that reorder, hang, disappear and fail. The
//! simulator relies on its promises, not on its internals.
//!
//! Invariant: a run depends on its seed and on the code alone. The same seed twice gives the same
//! hash of every event.
#![forbid(unsafe_code)]

pub mod aoe;
pub mod check;
pub mod checksummed;
pub mod clock;
pub mod covered;
pub mod crash;
pub mod cut;
pub mod disk;
pub mod executor;
pub mod exhaust;
pub mod fill;
pub mod foreign;
pub mod garbage;
pub mod incident;
pub mod journal;
pub mod keep;
pub mod lie;
pub mod link;
pub mod logged;
pub mod mark;
pub mod medium;
pub mod mutant;
pub mod node;
pub mod options;
pub mod oracle;
pub mod parts;
pub mod pattern;
pub mod ppl;
pub mod regressions;
pub mod remote;
pub mod report;
pub mod ruin;
pub mod scenario;
pub mod shrink;
pub mod silent;
pub mod split;
pub mod stand;
pub mod sweep;
pub mod trace;
pub mod workload;
pub mod world;
