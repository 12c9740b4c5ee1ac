//! Rare places, by name: an ensemble of runs that never reaches one of them proves little.
//!
//! Owns the table of all names. `cargo sim --marks` says which were reached and which were not;
//! `--require-marks` fails if one was not.
//!
//! Invariant: a name that is marked anywhere is in the table, and the table has each name once.

use crate::options::Wish;

/// Declares marks: a constant for each, and the table of all.
macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $text;)*
        const SINGLE: &[&str] = &[$($text),*];
    };
}

marks! {
    /// The process died.
    KILLED = "crash: the process is killed";
    /// The host lost its power.
    CUT = "crash: the power is cut";
    /// With clients' requests in flight.
    CRASHED_BUSY = "crash: with requests under way";
    /// While nothing was in flight and all was clean.
    CRASHED_IDLE = "crash: of a clean array";
    /// Before a resync was through.
    CRASHED_UNSYNCED = "crash: before parity or copies are in sync";
    /// While members were filled.
    CRASHED_REBUILDING = "crash: during a rebuild";
    /// While members were copied.
    CRASHED_REPLACING = "crash: during a replacement";
    /// While a scrub was running.
    CRASHED_SCRUBBING = "crash: during a scrub";
    /// While a resync was running.
    CRASHED_RESYNCING = "crash: during a resync";
    /// With a member missing.
    CRASHED_DEGRADED = "crash: of a degraded array";
    /// Again, before the assembly was through.
    AGAIN_ASSEMBLING = "crash: again, during assembly";
    /// Again, soon after the start.
    AGAIN_RECOVERING = "crash: again, during recovery";
    /// An array of arrays.
    CRASHED_NESTED = "crash: of an array of arrays";
    /// After a crash a resync began.
    RESYNCED = "recovery: resync after a crash";
    /// A crash left nothing to do.
    UNHURT = "recovery: nothing to sync";
    /// A rebuild went on where it was.
    REBUILD_RESUMED = "recovery: a rebuild goes on after a crash";
    /// A replacement went on where it was.
    REPLACE_RESUMED = "recovery: a replacement goes on after a crash";
    /// Dirty and degraded: refused, with the way out.
    REFUSED = "recovery: dirty and degraded is refused";
    /// The way out was taken.
    FORCED = "recovery: the way out that the refusal names";
    /// A block that was being written at a crash is an error.
    LOST = "recovery: an error in place of what was being written";
    /// And was still one when the array was whole again.
    SETTLED_LOST = "recovery: a lost block stays one until it is written";
    /// The log had rows, with members missing.
    SETTLED_DEGRADED = "recovery: rows are made right with members missing";
    /// The log had rows.
    SETTLED = "recovery: rows are made right from the log";
    /// And the host died again before they were.
    SETTLE_CUT = "crash: again, while rows are made right from the log";
    /// The log said nothing that could be relied on.
    LOG_UNUSABLE = "recovery: the log is not trusted";
    /// I9.
    FOREIGN = "another engine ran the array after a crash";
    /// A log has gone round.
    LOG_WRAPPED = "log: it has gone round";
    /// md's partial parity log has gone round.
    PPL_WRAPPED = "log: md's has gone round";
    /// A batch without records.
    LOG_TAIL_ONLY = "log: a batch that only says that older ones do not matter";
    /// A live record of a row blocks other writes of the row until a flush.
    LOG_CONFLICT = "log: a conflict forced a flush";
    /// A member lost before a crash was present at the assembly, and excluded.
    STALE_REFUSED = "stale: a lost member is there at assembly and left out";
    /// One event behind and excluded.
    STALE_BY_ONE = "stale: one event behind, and left out";
    /// A member one event behind, by a crash, was taken.
    BEHIND_ACCEPTED = "stale: one event behind by a crash, and taken";
    /// Two histories were refused.
    DIVERGED = "stale: two histories are refused";
    /// Two members have excluded each other, at different times.
    SIDES = "stale: whose side is the later one must be said";
    /// Faulty members were excluded at an assembly.
    LEFT_OUT = "assembly: without the members that were sick";
    /// People forget to plug a disk in.
    UNPLUGGED = "assembly: without members that are well";
    /// A member excluded at an assembly is present at a later one.
    BACK = "assembly: with a member that was left out before";
    /// Assembled again after a stop.
    ASSEMBLED = "assembly: after a stop";
    /// Stopped while something was running.
    STOPPED_BUSY = "stopped during background work";
    /// An incident while a job runs.
    HARM_BUSY = "harm during background work";
    /// An incident while degraded.
    HARM_DEGRADED = "harm while degraded";
    /// An incident while a resync is not through.
    HARM_UNSYNCED = "harm before parity or copies are in sync";
    /// A spare fails while it is filled.
    HARM_SPARE = "harm to a member that is being filled";
    /// A read error during a rebuild (F14).
    HARM_REBUILD_READ = "sectors go bad during a rebuild";
    /// Two at once.
    TWO_AT_ONCE = "two members are lost at once";
    /// F9, by bitmap.
    READDED = "a member came back by bitmap";
    /// F9, as a new one.
    RETURNED = "a lost member came back as a spare";
    /// A replacement.
    REPLACING = "a replacement began";
    /// A spare.
    SPARE = "a spare was added";
    /// A spare where one is needed.
    SPARE_NEEDED = "a spare was added to a degraded array";
    /// A command that would lose data.
    COMMAND_REFUSED = "a command was refused that would lose data";
    /// An error beyond the level's tolerance.
    HONEST = "an error beyond the budget";
    /// An error in a row that a crash made suspect.
    DOUBTED = "an error where a crash made parity doubtful";
    /// F1.
    F1 = "F1: sectors cannot be read";
    /// F1, and writing does not help.
    F1_STUCK = "F1: sectors cannot be read or mended";
    /// F2.
    F2 = "F2: writes fail";
    /// F2 for superblocks only.
    F2_SUPERBLOCK = "F2: superblock writes fail";
    /// F3.
    F3 = "F3: no answers";
    /// F3, for a while.
    F3_SHORT = "F3: no answers for a while";
    /// F4.
    F4 = "F4: a slow member";
    /// F4, at a hundred times its latency.
    F4_HUNDRED = "F4: a member at a hundred times its latency";
    /// F5.
    F5 = "F5: a torn write";
    /// F6.
    F6 = "F6: a lost write";
    /// F7.
    F7 = "F7: a misdirected write";
    /// F8 in data or parity.
    F8_DATA = "F8: rot in data or parity";
    /// F8: an extent is lost, and reported as a hole.
    F8_HOLE = "F8: a lost extent";
    /// F8: a member keeps nothing but its superblock.
    F8_LABEL = "F8: only a superblock is left";
    /// F8 in a superblock.
    F8_SUPERBLOCK = "F8: rot in a superblock";
    /// F8 in a bitmap.
    F8_BITMAP = "F8: rot in a bitmap";
    /// F8 in the private area.
    F8_PRIVATE = "F8: rot in the private area";
    /// F10, one member by itself.
    F10_ALONE = "F10: one member loses its power";
    /// F11.
    F11 = "F11: some superblocks are new, some old";
    /// F12.
    F12 = "F12: two halves went on apart";
    /// F13.
    F13 = "F13: a second loss during a rebuild";
    /// F15.
    F15 = "F15: no space";
    /// F20.
    F20 = "F20: a flush fails";
    /// F20, and the member says it has not.
    LYING_FLUSH = "F20: a lying flush";
    /// A sector that was being written when the power was cut holds neither old nor new bytes.
    GARBAGE = "F5: a garbage sector";
    /// Several members at once, for a while.
    BURST = "burst: several members are away for a while";
    /// A cached write goes to a row with more losses than it covers.
    STUCK = "a flush fails: what is held cannot be written out";
    /// Losses beyond tolerance, and the remaining data is right.
    RUINED = "ruin: more is lost than the level bears";
    /// A rebuild could not recover all, and its sources can be read again.
    LISTED = "ruin: a rebuild met it, and what it could not recover is listed";
    /// A member is gone.
    GONE = "a member is gone";
    /// Injected corruption was found and corrected.
    SCRUBBED = "silent damage was found and repaired";
    /// Modes of a cut.
    CUT_CLEAN = "cut: everything landed";
    /// Nothing since the last flush survives.
    CUT_BARE = "cut: nothing unflushed survives";
    /// Cleanly.
    CUT_PREFIX = "cut: a prefix survives";
    /// Any subset.
    CUT_SUBSET = "cut: a random subset survives";
    /// First or last parts.
    CUT_SHORN = "cut: writes are shorn";
    /// By the meaning of the bytes.
    CUT_ONLY_PARITY = "cut: only parity survives";
    /// By the meaning of the bytes.
    CUT_BUT_PARITY = "cut: all but parity survives";
    /// By the member's role.
    CUT_BUT_ONE = "cut: all but one member's";
    /// By the meaning of the bytes.
    CUT_ONLY_LOG = "cut: metadata without data";
    /// By the meaning of the bytes.
    CUT_BUT_LOG = "cut: data without metadata";
    /// Superblocks on some.
    CUT_SOME_SUPERBLOCKS = "cut: superblocks on some members only";
}

/// How an array was when a crash came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// Whole.
    Whole,
    /// A member is missing.
    Degraded,
    /// A member is being filled.
    Rebuilding,
}

/// The meaning of a member's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Its superblock.
    Superblock,
    /// Its copy of the bitmap.
    Bitmap,
    /// The intent log in the private area, or md's.
    Log,
    /// The rest of the private area.
    Private,
    /// Data.
    Data,
    /// P or Q.
    Parity,
    /// Anything else: bad-block list, padding.
    Other,
}

/// The journal device has failed while it was used.
pub const JOURNAL_HARMED: &str = "journal device: harmed while it was used";
/// The array has given it up.
pub const JOURNAL_LOST: &str = "journal device: lost, and the log on the members";
/// It was not there at a start.
pub const JOURNAL_AWAY: &str = "journal device: left out at a start";
/// An old copy of it was there.
pub const JOURNAL_OLD: &str = "journal device: an old copy in its place";
/// Where arrays are asked to have such a device.
const JOURNALED: [&str; 4] = [JOURNAL_HARMED, JOURNAL_LOST, JOURNAL_AWAY, JOURNAL_OLD];

/// The store of several members is nearly full.
pub const STORE_SHORT: &str = "F15: a shared store runs out of space";
/// The array cannot be written without them.
pub const STORE_FULL: &str = "F15: an array is full";
/// And loses another member meanwhile.
pub const STORE_LOSS: &str = "F15: a full array loses a member";
/// A write was left unfinished.
pub const STORE_WRITE: &str = "F15: a write finds no space";
/// Where members share a store.
const STORED: [&str; 4] = [STORE_SHORT, STORE_FULL, STORE_LOSS, STORE_WRITE];

/// Declares the marks of runs over AoE: a constant for each, and their table.
macro_rules! aoe_marks {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $text;)*
        const AOE: &[&str] = &[$($text),*];
    };
}

aoe_marks! {
    /// Our initiator, with one path.
    AOE_OURS = "AoE: our initiator on one path";
    /// And with several.
    AOE_OURS_PATHS = "AoE: our initiator on several paths";
    /// The model of Linux's driver.
    AOE_LINUX = "AoE: Linux's driver";
    /// The model of iPXE and WinAoE.
    AOE_SAME_TAG = "AoE: a client that repeats with the same tag";
    /// A target as vblade is.
    AOE_FOREIGN = "AoE: a target without history";
    /// F17.
    AOE_LATE = "F17: the target recognizes a late copy";
    /// F17 while the original is in flight.
    AOE_JOINED = "F17: a copy joins its original in flight";
    /// The target died and came back.
    AOE_RESTARTED = "AoE: the target restarts";
    /// While frames from before may still arrive.
    AOE_RESTARTED_SOON = "AoE: the target restarts within a frame's lifetime";
    /// A client's counter began anew.
    AOE_REBOOTED = "AoE: a client's host restarts";
    /// A silent partition.
    AOE_CUT = "F16: a wire is cut, and no port notices";
    /// A partition with an event.
    AOE_TARGET_PORT = "F16: a port of the target is down";
    /// A partition with an event on our side.
    AOE_CLIENT_PORT = "F16: a port of the clients is down";
    /// Frames must fit.
    AOE_MTU = "AoE: the MTU of a wire shrinks";
    /// Frames must fit, and nothing says so.
    AOE_HOLE = "AoE: a wire loses large frames";
    /// A client gave a request up.
    AOE_GAVE_UP = "AoE: a client gives up";
    /// The initiator says that the target may have been restarted.
    AOE_SILENCE = "AoE: the initiator reports silence";
    /// By its announcement.
    AOE_ANNOUNCED = "AoE: the initiator reports an announcement";
}

/// Every mark that an ensemble of runs over AoE must reach.
pub fn aoe() -> impl Iterator<Item = &'static str> {
    AOE.iter().copied()
}

macro_rules! remote_marks {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $text;)*
        const REMOTE: &[&str] = &[$($text),*];
    };
}

remote_marks! {
    /// The connection ends, and none can be made for a while.
    REMOTE_CUT = "F16: a server is cut off";
    /// It loses its volatile cache.
    REMOTE_CRASHED = "F16: a server crashes and loses unflushed writes";
    /// Its connections stay.
    REMOTE_STALLED = "F16: a server does not answer for a while";
    /// The connection ends again and again.
    REMOTE_FLAPS = "F16: a connection flaps";
    /// It was away for too long.
    REMOTE_MISSING = "F16: a remote member is missing";
    /// It is back, and may have lost writes.
    REMOTE_RETURNED = "F16: a remote member returns, and is not trusted";
    /// The bitmap knows what to copy.
    REMOTE_READDED = "F16: a remote member is re-added";
    /// A request is carried out late.
    REMOTE_ZOMBIE = "F16: a write is carried out late";
    /// The quarantine of its bytes has ended.
    REMOTE_AFTER_ZOMBIE = "F16: a write follows a late one to the same bytes";
    /// It was away for a short time.
    REMOTE_RESUMED = "F16: a connection is back in time";
    /// It broke too often.
    REMOTE_LEFT_ALONE = "F16: a connection that flaps is left alone";
}

/// Every mark that an ensemble of runs with network members must reach.
pub fn remote() -> impl Iterator<Item = &'static str> {
    REMOTE.iter().copied()
}

/// F8 in the table of checksums.
pub const F8_TABLE: &str = "F8: rot in the table of checksums";
/// Where arrays are asked to have checksums.
const CHECKSUMMED: [&str; 1] = [F8_TABLE];

/// Marks of crashes with writes of a part in flight or not flushed, by health.
const FLYING: [[&str; 3]; 5] = [
    [
        "in flight: superblock, whole",
        "in flight: superblock, degraded",
        "in flight: superblock, rebuilding",
    ],
    ["in flight: bitmap, whole", "in flight: bitmap, degraded", "in flight: bitmap, rebuilding"],
    ["in flight: data, whole", "in flight: data, degraded", "in flight: data, rebuilding"],
    ["in flight: parity, whole", "in flight: parity, degraded", "in flight: parity, rebuilding"],
    ["in flight: log, whole", "in flight: log, degraded", "in flight: log, rebuilding"],
];

/// The mark of a crash with writes of this part in flight; `None` if there is none for it.
pub fn in_flight_mark(part: Part, health: Health) -> Option<&'static str> {
    let row = match part {
        Part::Superblock => 0,
        Part::Bitmap => 1,
        Part::Data => 2,
        Part::Parity => 3,
        Part::Log => 4,
        Part::Private | Part::Other => return None,
    };
    Some(FLYING[row][health as usize])
}

/// True if the table has this name.
pub fn is_known(name: &str) -> bool {
    let all = SINGLE.iter().chain(FLYING.iter().flatten());
    let all = all.chain(&JOURNALED).chain(&CHECKSUMMED).chain(&STORED).chain(AOE).chain(REMOTE);
    all.into_iter().any(|known| *known == name)
}

/// Every mark that an ensemble of runs with these wishes must reach.
pub fn all(wish: Wish) -> impl Iterator<Item = &'static str> {
    let journaled = JOURNALED.iter().filter(move |_| wish.journal);
    let checksummed = CHECKSUMMED.iter().filter(move |_| wish.checksums);
    let stored = STORED.iter().filter(move |_| wish.stores);
    // Members on one store do not run out of space one by one.
    let alone = move |name: &&&str| !wish.stores || **name != F15;
    let single = SINGLE.iter().filter(alone).chain(FLYING.iter().flatten());
    single.chain(journaled).chain(checksummed).chain(stored).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_there_once() {
        let wish = Wish { checksums: true, journal: true, stores: true, ..Wish::default() };
        let mut names: Vec<_> = all(wish).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all(wish).count());
        assert!(all(Wish::default()).count() >= 60);
    }
}
