//! Other machines: block storage protocols over the seam.
//!
//! ```text
//!    nbd   aoe   cluster       protocols, as state machines and straight-line async
//!       \   |   /
//!       bytewise               any byte range over a disk of blocks
//!           |
//!          io                  Disk · Stream · Clock
//! ```
//!
//! Owns the bytes on the wire (`*/wire.rs`, nowhere else) and everything that a peer may do wrong.
//! Never opens a socket, never knows what a disk is made of.
//!
//! Invariant: bytes from a peer never cause a panic, and one peer's misbehaviour ends only its own
//! connection.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod bytewise;
pub mod nbd;
mod transfer;
