//! The limits of an array, named, and fixed when it starts.

use std::time::Duration;

/// Every queue and buffer in the engine is bounded: at a limit, requests wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Units that one shard carries out at once.
    pub units: usize,
    /// Approximate size of a unit: requests are cut at stripe borders.
    pub unit_bytes: u64,
    /// Memory of one shard for parity and for the reads that it needs.
    pub scratch_bytes: u64,
    /// Memory of one shard for acknowledged writes that are not on the members yet: cache mode
    /// `writeback`.
    pub cache_bytes: u64,
    /// The longest time before such a write goes to the members. Long enough for a slow sequential
    /// writer to fill a stripe, short enough that little is at risk.
    pub cache_linger: Duration,
    /// The most bytes of each member that one shard uses for its intent log.
    pub log_bytes: u64,
    /// Memory of one shard for checksums of its members' blocks: 1/512 of the data in use.
    pub checksums_bytes: u64,
    /// The most that is read ahead of one sequential reader; 0: nothing. The default is two stripes
    /// of five members with chunks of 512 KiB.
    pub ahead_bytes: u64,
    /// The same where members rotate: half of it while there is one reader, all of it while several
    /// share the members, because what a disk reads between two seeks must take longer than a seek.
    pub ahead_rotating_bytes: u64,
    /// For each member that rotates, the most that is read ahead of each of several readers: an
    /// array of few members needs less for their full rate.
    pub ahead_member_bytes: u64,
    /// Members that rotate stay with a reader that has more for them, until another one's read has
    /// waited for this long.
    pub ahead_turn: Duration,
    /// Sequential readers that one shard tracks at once. Together they have `ahead_bytes` of memory
    /// each, or what one of them may read ahead, if that is more.
    pub ahead_streams: usize,
    /// How long the last part of a stripe in a write stream may wait for the rest: about the time
    /// of a wake from another core, once more for each 16 KiB of the part.
    pub stream_patience: Duration,
    /// Memory of unused buffers that is kept for later requests; or two stripes of up to
    /// `ahead_rotating_bytes`, if that is more.
    pub keep_bytes: usize,
    /// The largest operation sent to a member.
    pub member_op_bytes: u64,
    /// A member that does not answer within this time is lost.
    pub deadline: Duration,
    /// A member is reported as slow after this time of answers far slower than its peers'. Reads
    /// avoid it from the first evidence on: a burst of cache hits of the peers is enough for that,
    /// and no reason to replace a disk.
    pub slow_report: Duration,
    /// A read is not hedged earlier than this, however fast the other members are.
    pub hedge_floor: Duration,
    /// The percentage of reads that may be hedged; 0: none.
    pub hedge_percent: u32,
    /// The initial burst of hedged reads, and the most orphaned reads in flight.
    pub hedges: u32,
    /// A region without writes for this long is marked clean again: md's `daemon_sleep`.
    pub region_linger: Duration,
    /// An array without writes for this long is marked clean: md's `safe_mode_delay`.
    pub clean_delay: Duration,
    /// Units of background work in flight at once.
    pub job_units: usize,
    /// Background work is flushed and its progress recorded after this many bytes of a member.
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
            ahead_rotating_bytes: 16 << 20,
            ahead_member_bytes: 3 << 20,
            ahead_turn: Duration::from_millis(250),
            ahead_streams: 8,
            stream_patience: Duration::from_micros(20),
            keep_bytes: 16 << 20,
            member_op_bytes: 1 << 20,
            deadline: Duration::from_secs(30),
            slow_report: Duration::from_secs(120),
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
