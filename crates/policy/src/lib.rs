//! What a server does with arrays and disks unasked: when it scrubs, which spare it moves, what it
//! thinks of a disk, whom it tells.
//!
//! ```text
//!    parapet.toml ──▶ Config ──▶ schedule, spares, health, alerts ──▶ decisions
//!                                     ▲                                  │
//!    state of the arrays, time, documents of smartctl        parapet carries them out
//! ```
//!
//! Decides, and does nothing: no files, sockets, threads or clock of its own, so that a test can
//! play a year in a moment. Never decides anything about data: that is the job of `array`.
#![forbid(unsafe_code)]

pub mod alerts;
pub mod config;
pub mod health;
pub mod period;
pub mod schedule;
pub mod spares;

pub use config::Config;
pub use period::Period;
