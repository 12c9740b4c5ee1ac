//! The engine: an array of disks as one disk, while it runs.
//!
//! ```text
//!            Array              requests in; the verbs of an array's life
//!           /     \
//!      shard …   keeper         scheduling, caches, mail    membership, bitmap, jobs, replay
//!        |          |
//!      rows         |           units carried out: read, write, mirror, rebuild, scrub,
//!        |          |           checksums, intent log
//!      member    metadata       one disk: view, batches, latency, deadlines
//!        |          |
//!        └─▶ io::Disk ◀─┘
//! ```
//!
//! Decides purely (`layout::plan`), acts in straight-line `async`. Runs on any executor over any
//! disks: it opens nothing, spawns nothing, and reads only [`io::Clock`]. It has no network code.
//! Assertions stay on in release.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod array;
mod keeper;
mod member;
mod rows;
mod shard;
pub mod status;

pub use array::{Array, Host, Newcomer};
pub use keeper::{JobKind, ScrubResult};
pub use member::Introduction;
pub use member::durations::Durations;
pub use member::latency::Latency;
pub use rows::flush::CacheMode;
pub use rows::job::{Finding, Report};
pub use shard::bitmap::Intent;
pub use shard::message::Message;
pub use shard::submit::{Blueprint, Front};
pub use status::Status;
