//! The engine: an array of disks as one disk.
//!
//! ```text
//!            Array            requests in, units out; the verbs of an array's life
//!           /     \
//!      Shard …   Keeper       rows and data              membership, superblocks, marks, jobs
//!        |          |
//!   layout::plan  Ledger      what to do, as a value     the members' bytes about the array
//!        |
//!     Batch ──▶ io::Disk      member operations
//! ```
//!
//! Decides purely (`layout::plan`), acts in straight-line `async`. Runs on any executor over any
//! disks: it opens nothing, spawns nothing, reads no clock but [`io::Clock`]. It does not know that
//! a network exists. Assertions stay on in release.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod ahead;
mod array;
pub mod assemble;
mod balance;
mod batch;
mod bitmap;
pub mod bounds;
pub mod broken;
mod compute;
mod copies;
pub mod create;
mod decisions;
mod durable;
mod error;
pub mod examine;
mod front;
mod gate;
mod hedge;
mod keeper;
mod late;
pub mod ledger;
mod locks;
mod log;
mod marks;
mod member;
mod message;
mod post;
mod pulse;
pub mod ranges;
mod read;
pub mod recover;
mod rows;
mod shard;
pub mod status;
mod sums;
mod sync;
mod unit;
mod upkeep;
mod view;
mod watch;
mod write;
mod writeback;
mod zero;

pub use array::{Array, Host, Newcomer};
pub use bounds::Bounds;
pub use decisions::{Decisions, Undecided, Verdict};
pub use durable::CacheMode;
pub use error::{Error, ErrorKind, Result};
pub use front::{Blueprint, Front};
pub use keeper::{JobKind, ScrubResult};
pub use log::LogPlace;
pub use marks::Intent;
pub use member::{Introduction, MemberId};
pub use message::Message;
pub use pulse::Latency;
pub use ranges::RangeSet;
pub use status::Status;
pub use upkeep::{Finding, Report};
pub use view::{Configuration, Mode, Seat};
