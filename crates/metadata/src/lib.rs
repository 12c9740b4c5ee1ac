//! The metadata of an array at rest: the offline half of the engine.
//!
//! ```text
//!   create ──▶ members ──▶ assemble ──▶ Assembly ──▶ the running engine ──▶ commit ──▶ members
//!                │  └────▶ examine      the metadata of one member
//!                └───────▶ recover      arrays whose metadata is lost
//! ```
//!
//! This crate can be read, tested and fuzzed without the engine, as mdadm without md. `layout`
//! defines the formats of all bytes; this crate reads and writes them over [`io::Disk`].
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod assemble;
mod bitmap;
mod bounds;
pub mod commit;
mod config_store;
pub mod create;
mod error;
pub mod examine;
pub mod export;
pub mod recover;
#[cfg(test)]
mod test_disk;

pub use bounds::Bounds;
pub use commit::MOST_BLOCK_BYTES;
pub use config_store::{Decisions, Local, Undecided, Verdict};
pub use error::{Error, ErrorKind, Result};
