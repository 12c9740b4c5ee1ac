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
mod balance;
mod batch;
mod copies;
mod durable;
mod front;
mod gate;
mod hedge;
mod intent;
mod keeper;
mod late;
mod locks;
mod marks;
mod member;
mod message;
mod post;
mod pulse;
mod read;
mod rows;
mod shard;
pub mod status;
mod sums;
mod unit;
mod upkeep;
mod view;
mod watch;
mod write;
mod writeback;
mod zero;

pub use array::{Array, Host, Newcomer};
pub use durable::CacheMode;
pub use front::{Blueprint, Front};
pub use keeper::{JobKind, ScrubResult};
pub use marks::Intent;
pub use member::Introduction;
pub use message::Message;
pub use pulse::Latency;
pub use status::Status;
pub use upkeep::{Finding, Report};
