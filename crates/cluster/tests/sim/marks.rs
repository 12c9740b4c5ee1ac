//! Rare places: an ensemble of runs that never reaches one of them proves little.

macro_rules! marks {
    ($($name:ident = $text:literal;)+) => {
        $(pub const $name: &str = $text;)+
        /// Every mark.
        pub const ALL: &[&str] = &[$($text),+];
    };
}

marks! {
    REMOVED = "membership: a member is removed";
    RETURNED = "membership: a missing member returns";
    REBUILT = "membership: a member is rebuilt and in sync";
    RESTARTED = "membership: a restarted member is rebuilt";
    REBUILDING_AGAIN = "membership: a member restarts or is lost during its rebuild";
    MASS_RESTART = "membership: too many members restart at once";
    TWO_CHANGES = "membership: an epoch is skipped before it was active";
    TAKEOVER = "takeover: by another candidate";
    TWO_LEADERS = "takeover: two candidates lead at once";
    TAKEOVER_BUSY = "takeover: with grants in the log";
    TAKEOVER_UNDECIDED = "takeover: while a change is decided and not active";
    DEPOSED = "takeover: a deposed coordinator is refused";
    HEARD_THROUGH = "takeover: a candidate hears the leader only through members";
    LOGS_DIFFER = "takeover: members' logs differ";
    STORE_LOST = "store: unknown outcome, took effect";
    STORE_DROPPED = "store: unknown outcome, no effect";
    STORE_CONFLICT = "store: conflict";
    RESTORED_TERM = "store: an old backup with the same membership";
    RESTORED_EPOCH = "store: an old backup with an old membership";
    EVICTED_DEAD = "client: a dead one is evicted";
    EVICTED_ALIVE = "client: a living one is evicted";
    EVICTED_DEGRADED = "client: an eviction while a member is missing";
    FENCED = "client: late requests are refused by the fence";
    FLUSH_LOST = "client: a flush reports lost writes";
    SECOND_HOLDER = "grant: two holders of a region";
    DRAINED = "grant: drained";
    HANDED_OVER = "grant: an exclusive region changes hands";
    ROOM_LACKING = "grant: requests wait for room in the log";
    GRANT_RETURNED = "grant: a late copy is given back";
    PARKED = "write: sent again in a new epoch";
    PATCHED_BY_TWO = "patch: two hosts write parts of one block";
    PATCHED_AGAIN = "patch: the block is read again in a new epoch";
    RUN_WRITTEN = "run: a write of several stripes";
    RUN_AGAIN = "run: a write of several stripes is sent again in a new epoch";
    RUN_RECOVERED = "run: several blocks are read, some of them recovered";
    COPY_DROPPED = "write: a late copy is dropped";
    OLD_EPOCH = "member: a request of an old epoch is refused";
    OLD_BOOT = "member: a request for an earlier boot is refused";
    TORN_HEADER = "member: a torn header";
    TORN_ENTRY = "member: a torn entry of the append area";
    CHECKPOINT = "member: a header follows entries";
    REPLAYED = "member: a start follows entries";
    CACHE_LOST = "member: unflushed writes are lost";
    DRAIN_WAITED = "member: an order waits for running requests";
    RESYNCED = "resync: an unsync region";
    RESYNC_DEGRADED = "resync: with a member missing";
    RESYNC_ABANDONED = "resync: abandoned by a change of the membership";
    SPLIT = "links: two groups of nodes";
    STOOD_STILL = "all nodes: stand still at once";
    FULL_STRIPE = "stripe: a write of all blocks";
    DELTA = "stripe: a read-modify-write";
    REST = "stripe: parity from the other blocks";
    DECODE = "stripe: parity of a recovered stripe";
    DEGRADED = "stripe: a write while a member is not in sync";
    SENT_AGAIN = "stripe: a write of some blocks is sent again in a new epoch";
    RECOVERED = "stripe: a block is recovered from the others";
    REFUSED = "stripe: a request in a region with a hole is refused";
    ACCEPTED = "stripe: the loss of a hole is accepted";
    REPLACED = "replace: a blank disk takes a slot";
    REPLACED_AGAIN = "replace: a second blank disk takes it";
    REPLACED_TAKEOVER = "replace: another coordinator ends it";
    REPLACED_REBUILT = "replace: the disk is rebuilt and in sync";
    BLANK_WAITS = "replace: a blank disk answers for a member that is not missing";
    OLD_DISK = "replace: a disk that was replaced answers";
    OLD_DISK_MISSING = "replace: a disk that was replaced answers for a missing member";
    TORN_READ = "read: a block that a dead client was writing";
}
