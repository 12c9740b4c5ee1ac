//! Every limit on a peer's requests, by name.

use std::time::Duration;

/// Most bytes in one READ or WRITE, announced to clients: the protocol's recommended maximum.
pub const MAX_PAYLOAD: u32 = 32 << 20;
/// A refused payload up to this length is read and dropped; a longer one ends the connection.
pub const MAX_DRAIN: u64 = 64 << 20;
/// Requests of one connection that are not answered yet, answers not yet sent included.
pub const MAX_REQUESTS: usize = 256;
/// Bytes that the requests of one connection keep in memory.
pub const MAX_REQUEST_BYTES: u64 = 64 << 20;
/// Memory that the requests of all connections keep in use, unless the host says otherwise.
pub const DEFAULT_MEMORY: u64 = 128 << 20;
/// Bytes of requests that each connection may keep in memory beside that: enough for clients of
/// small requests to go on when others hold all the rest.
pub const OWN_BYTES: u64 = 256 << 10;
/// Memory for the payload of a WRITE is taken in pieces of this size, as the payload arrives.
pub const PIECE_BYTES: usize = 1 << 20;
/// A client that has sent a part of a request sends the rest, or [`STALL_BYTES`], in this time. The
/// same holds for taking answers, while they keep others from the memory that they wait for.
pub const STALL_TIME: Duration = Duration::from_secs(120);
/// See [`STALL_TIME`].
pub const STALL_BYTES: u64 = 1 << 20;
/// TRIM and WRITE_ZEROES are done in steps of this many bytes, so that they can be left off when
/// the client is gone.
pub const STEP_BYTES: u64 = 64 << 20;
/// BLOCK_STATUS asks the disk about this many bytes at a time; between two steps other connections
/// have their turn.
pub const STATUS_STEP_BYTES: u64 = 16 << 20;
/// BLOCK_STATUS stops after this many steps and reports the extents found.
pub const STATUS_STEPS: u32 = 4096;
/// Extents in one BLOCK_STATUS reply.
pub const MAX_EXTENTS: usize = 8192;

/// Time from the greeting to the begin of transmission.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Options in one handshake: clients that list exports ask two or more for each.
pub const MAX_OPTIONS: usize = 4096;
/// Bytes of one option that are looked at.
pub const MAX_OPTION_BYTES: u32 = 64 << 10;
/// A longer option is read and dropped up to this length; beyond, the connection ends.
pub const MAX_OPTION_DRAIN: u32 = 1 << 20;
/// Queries in one metadata option.
pub const MAX_QUERIES: usize = 32;
/// Connections in transmission that came through one listener, on each thread.
pub const MAX_CONNECTIONS: usize = 100;
/// Handshakes in progress of one listener, on each thread; one more drops the oldest.
pub const MAX_HANDSHAKES: usize = 256;
