//! Other machines and the kernel: block storage protocols over the seam.
//!
//! ```text
//!    nbd   aoe   fuse          protocols, as state machines and straight-line async
//!       \   |   /
//!       bytewise               any byte range over a disk of blocks
//!           |
//!          io                  Disk · Stream · Link · Clock
//! ```
//!
//! Owns the bytes on the wire (`*/wire.rs`, nowhere else) and every violation by a peer. Never
//! opens a socket, never depends on the structure of a disk.
//!
//! Invariant: bytes from a peer never cause a panic, and one peer's misbehaviour ends only its own
//! connection.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod aoe;
pub mod bytewise;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod fuse;
mod gate;
pub mod nbd;
pub mod remote;
mod transfer;
