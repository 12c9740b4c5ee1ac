//! The cluster protocol over streams and disks: the hosts of the state machines in `cluster`.
//!
//! ```text
//!   Disk ──▶ client ──▶ links, line (frames, bounded) ──▶ Stream
//!                          │                                │
//!            coordinator ──┴──▶ Store                       ▼
//!                          door ──▶ member ─┬───▶ area (label, headers) ──▶ Disk
//!                                           ╰──▶ sectors, journal (data) ───▲
//! ```
//!
//! A host feeds its machine one event at a time and carries out the actions. It decides nothing.
//!
//! Whoever comes through a `door` has a certificate, or needs none there. `cluster::roles` says
//! what its holder may do.

pub mod area;
pub mod client;
pub mod coordinator;
pub mod door;
mod journal;
pub mod line;
mod links;
pub mod member;
mod parts;
mod runs;
pub mod sectors;

use std::rc::Rc;

use cluster::ids::Ms;
use io::Clock;
use io::tasks::Task;

/// Gives the executor a task.
pub type Spawn = Rc<dyn Fn(Task)>;

/// The time of the machines.
fn milliseconds(clock: &dyn Clock) -> Ms {
    clock.now().0 / 1_000_000
}
