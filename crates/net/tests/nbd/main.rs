//! The NBD server and client, spoken to over streams in memory.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs)]

mod contract;
mod handshake;
mod hostile;
mod limits;
mod memory;
mod mix;
mod pipe;
mod transmission;
mod violations;
mod world;
