//! The limits of an array, named, and fixed when it starts.

use std::time::Duration;

/// Limits of the engine: work beyond them waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Pieces of requests that one shard works on at once.
    pub units: usize,
    /// A request is processed in pieces of about this size, cut between stripes.
    pub unit_bytes: u64,
    /// Memory of one shard for parity and the blocks needed to compute it.
    pub scratch_bytes: u64,
    /// Memory of one shard for writes that are acknowledged and not on the members: cache mode
    /// `writeback`.
    pub cache_bytes: u64,
    /// Such a write goes to the members after so long, if nothing sends it there before: long
    /// enough for a slow sequential writer to fill a stripe, short enough that little is at risk.
    pub cache_linger: Duration,
    /// The most that one shard uses of each member for its intent log.
    pub log_bytes: u64,
    /// Memory of one shard for checksums of its members' blocks: 1/512 of the blocks in use.
    pub checksums_bytes: u64,
    /// The most that is read ahead of one sequential reader; 0: nothing. Two stripes of five
    /// members with chunks of 512 KiB.
    pub ahead_bytes: u64,
    /// Sequential readers that one shard tracks: their memory is this many times `ahead_bytes`.
    pub ahead_streams: usize,
    /// How long a part of a stripe at the end of a stream of writes may wait for the rest: about as
    /// long as a wake from another core takes, and as much again for each 16 KiB of the part.
    pub stream_patience: Duration,
    /// Unused buffers that are kept for the next request.
    pub keep_bytes: usize,
    /// The largest operation sent to a member.
    pub member_op_bytes: u64,
    /// A member that does not answer for so long is lost.
    pub deadline: Duration,
    /// A read is not done again from the other members sooner than so, however fast they are.
    pub hedge_floor: Duration,
    /// Hedges allowed for each hundred reads; 0: none.
    pub hedge_percent: u32,
    /// Burst of hedges allowed at once, and limit of orphans in flight.
    pub hedges: u32,
    /// A region without writes for so long is marked clean again: md's `daemon_sleep`.
    pub region_linger: Duration,
    /// An array without writes for so long is marked clean: md's `safe_mode_delay`.
    pub clean_delay: Duration,
    /// Pieces of background work in flight.
    pub job_units: usize,
    /// Background work is made durable and its progress recorded after this many bytes of a member.
    pub checkpoint_bytes: u64,
    /// Read errors that a member may have, halved every hour, before a spare replaces it: md's
    /// `max_read_errors`, without failing the member.
    pub read_errors: u32,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            units: 64,
            unit_bytes: 1 << 20,
            scratch_bytes: 32 << 20,
            cache_bytes: 64 << 20,
            cache_linger: Duration::from_secs(1),
            log_bytes: 64 << 20,
            checksums_bytes: 64 << 20,
            ahead_bytes: 4 << 20,
            ahead_streams: 8,
            stream_patience: Duration::from_micros(20),
            keep_bytes: 16 << 20,
            member_op_bytes: 1 << 20,
            deadline: Duration::from_secs(30),
            hedge_floor: Duration::from_millis(2),
            hedge_percent: 5,
            hedges: 64,
            region_linger: Duration::from_secs(5),
            clean_delay: Duration::from_millis(200),
            job_units: 4,
            checkpoint_bytes: 256 << 20,
            read_errors: 20,
        }
    }
}
