//! NBD, the Network Block Device protocol: server and client.
//!
//! ```text
//!    server ──▶ handshake ──▶ session                 one connection, from greeting to end
//!                  │             │
//!               export ◀─────────┘──▶ bytewise ──▶ Disk
//!                  ▲
//!              the host's Exports                      wire: the bytes; limits of a peer
//! ```
//!
//! Fixed newstyle only. Everything normative of the protocol is served, and extended headers;
//! RESIZE is not, as no peer has it. Source of all formats and rules: `doc/proto.md` of the NBD
//! project.

pub mod client;
pub mod context;
pub mod export;
mod handshake;
pub mod limits;
pub mod memory;
mod outbox;
pub mod server;
mod session;
pub mod wire;

pub use export::{Catalogue, Client, Clients, Denial, Export, Exports};
pub use memory::Memory;
pub use server::{Ending, Server, Tls};
