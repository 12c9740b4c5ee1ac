//! Several hosts, one array: the protocol, without its transports.
//!
//! ```text
//!   client ───── Want, Release, Renew ────▶ coordinator ◀── Read, Cas ──▶ decision store
//!     │   ◀── Grant, Drain, Config ────────     │                        (file, etcd)
//!     │                                         │ Raise, Fence, Append
//!     └── Read, Write, Flush ──▶ member ◀───────┘ and the data of resyncs
//!                                  │
//!                          medium, header, log area
//! ```
//!
//! - A **client** writes a region only while it holds a *grant*. The grant is durable in the log
//!   areas of all live members before the first write is issued. A write is acknowledged when every
//!   live member has it. A grant that is held costs no further message.
//! - The **coordinator** owns the region table. Its *term* makes a deposed one harmless: members
//!   reject orders of lower terms.
//! - **Members** enforce all this: each request carries an *epoch*, an incarnation and a boot id.
//!   An order that raises one of them is acknowledged only after it is durable and requests that it
//!   refuses have ended.
//! - The **decision store** is one register with compare-and-set: term, leader, membership.
//!
//! Every part is a state machine: `handle(now, event)` and `tick(now)` push actions. Hosts call
//! `tick` once per [`Timing::tick_ms`](timing::Timing::tick_ms); it retransmits whatever has no
//! answer. All messages may be lost, duplicated, delayed and reordered.
//!
//! Pure: no sockets, files, clocks or threads. `docs/decisions/0032-cluster.md` has the decisions,
//! `tests/sim` the simulator that checks the invariants.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod append;
pub mod broken;
pub mod change;
pub mod client;
pub mod code;
pub mod config;
pub mod coordinator;
pub mod decisions;
pub mod ids;
pub mod member;
pub mod message;
pub mod record;
pub mod roles;
pub mod room;
pub mod session;
pub mod timing;
pub mod wire;
