//! The intent log: free space in the ring, touched rows, the bytes of a batch, and the repair of
//! rows after a crash.
//!
//! ```text
//!   session    batch             records, checks and payload -> one write per member
//!              ring | round      space of batches: free, in flight, durable, reclaimable
//!              touched           rows that a newer record covers
//!   recovery   reader | ppl      bytes of all logs -> the rows that a crash may have torn
//!              verdict           a record and its copies -> the row is torn, durable or unwritten
//!              solve             torn row + members' bytes -> the bytes to write
//!              expected          checksums that a block may have
//! ```
//!
//! Pure: numbers and bytes in, numbers and bytes out. `layout::private::log` has the theory and the
//! form of a record; `array/rows/intent` writes batches, `metadata/assemble/logs.rs` reads logs.
//! Never does I/O.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod batch;
pub mod compute;
pub mod expected;
pub mod ppl;
pub mod reader;
pub mod ring;
pub mod round;
pub mod setup;
pub mod solve;
pub mod space;
pub mod touched;
pub mod verdict;

pub use setup::{LogPlace, LogSetup, least_zone, most_bytes};
