//! The cluster protocol over streams and disks: the hosts of the state machines in `cluster`.
//!
//! ```text
//!   Stream ──▶ line (frames, bounded) ──▶ member  ──▶ area (label, headers, data) ──▶ Disk
//! ```
//!
//! A host feeds its machine one event at a time and carries out the actions. It decides nothing.
//!
//! Whoever reaches the address of a member can read and write it: there is no TLS and no key yet.

pub mod area;
pub mod line;
pub mod member;

use std::rc::Rc;

use io::tasks::Task;

/// Gives the executor a task.
pub type Spawn = Rc<dyn Fn(Task)>;
