//! The test of the test: ways in which the engine can be broken, one at a time and on purpose.
//!
//! A simulator that finds nothing may be blind. So, with the Cargo feature `broken`, each line here
//! leaves out one thing that the engine does for safety, at the very place where it does it, and
//! `cargo xtask mutants` holds that the simulator finds every one of them:
//!
//! ```text
//!   if member.unflushed.replace(false) && !broken(Broken::FlushMissesOne) {
//! ```
//!
//! Without the feature [`broken`] is `false`, and nothing of this is left in the program, which
//! cannot be built with it (`POSSIBLE`).
//!
//! Owns the table of the ways, and which one is chosen. Numbers in it (`1` … `30`) are those of the
//! mutants that every simulator of such an engine should find, `B1` … `B18` bugs that lost data in
//! the field, in other engines; the latter are told in `docs/testing.md`. `ours` are bugs that were
//! once found here, or rules of our own. What no seed shows within 3,000 says `by` whom it is seen:
//! seeds whose arrays keep checksums, the simulator's sweep or exhaustive mode, or a test of this
//! crate.

use std::sync::atomic::{AtomicUsize, Ordering};

/// True if the engine can be broken: never in anything that people use.
pub const POSSIBLE: bool = cfg!(feature = "broken");

/// Declares the ways: what is left out, where it comes from, and what sees it if no seed does.
macro_rules! ways {
    (@by) => { None };
    (@by $tool:literal) => { Some($tool) };
    ($($(#[doc = $what:literal])+ $name:ident: $source:literal $(by $tool:literal)?,)+) => {
        /// What is left out.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Broken {
            $($(#[doc = $what])+ $name,)+
        }

        impl Broken {
            /// Every way.
            pub const ALL: &[Broken] = &[$(Broken::$name),+];

            /// Its name, what is left out, and where it comes from.
            pub fn facts(self) -> (&'static str, &'static str, &'static str) {
                match self {
                    $(Broken::$name => (stringify!($name), concat!($($what),+), $source),)+
                }
            }

            /// What sees it: `checksums` (seeds of arrays that keep them), `sweep`, `exhaustive`,
            /// or `test NAME`, a test file of this crate; `None` for a seed of the simulator.
            pub fn by(self) -> Option<&'static str> {
                match self {
                    $(Broken::$name => ways!(@by $($tool)?),)+
                }
            }
        }
    };
}

ways! {
    /// A canary: no array starts. Whoever does not report this reports nothing.
    Canary: "canary",

    // ---- flushes
    /// A flush leaves out the member in slot 0.
    FlushMissesOne: "1",
    /// A write that is to be durable is acknowledged when the member has it.
    FuaIgnored: "2",
    /// What a failed flush has lost is taken for durable.
    FlushErrorIgnored: "F20",
    /// A flush succeeds though one before it has failed, and lost what was written for both.
    FlushErrorForgotten: "F20" by "test flush",
    /// A flush counts for writes that were under way when it was sent.
    FlushCoversFlying: "ours",
    /// What the last process did not flush is read without a flush.
    StartUnflushed: "ours" by "test power_loss",
    /// Where copies may disagree, one that has a bad block is not read beside it.
    LeaderOfAll: "ours" by "test unsynced",
    /// What a scrub has repaired is not durable.
    RepairVolatile: "ours" by "test power_loss",
    /// What a checked read has put right is not durable.
    CorrectedVolatile: "ours" by "test power_loss",

    // ---- the write-intent bitmap, and what superblocks say of writes
    /// Data goes out before the region's bit, and the dirty mark, are durable.
    BitAfterData: "3",
    /// Bits are cleared though what was written there is not flushed.
    BitClearedUnflushed: "4",
    /// Bits are cleared while a member is missing that will need them.
    BitClearedDegraded: "5" by "test stale_members",
    /// A copy of a member from just before the last session is taken for one that a crash left
    /// behind.
    RolledBackTrusted: "ours" by "test stale_members",
    /// A member that saw both of two others is not asked which of them went on later.
    WitnessUnheard: "ours" by "test stale_members",
    /// Members are marked clean while writes are under way.
    CleanWhileWriting: "ours",
    /// A checkpoint of an unfinished sync is taken for a mark of writes.
    CheckpointTrusted: "ours",
    /// The first write of a life after a crash is not on record before it is made.
    FirstWriteUnrecorded: "ours",
    /// Writing the bitmap also clears what lies behind it, the list of bad blocks.
    BitmapSpills: "B14" by "sweep",
    /// A member comes back by the bitmap though bits were cleared since it left.
    ReaddAfterClear: "B7",
    /// A member that has lost bytes comes back by the bitmap.
    CutReadded: "ours" by "test lifecycle",
    /// A member that comes back by the bitmap gets nothing of what it missed.
    ReaddCopiesNothing: "ours",

    // ---- parity
    /// Parity is not written while a member is missing.
    ParityStaleDegraded: "6",
    /// A read-modify-write leaves Q as it was.
    QStale: "7",
    /// One data slot has another's coefficient in Q.
    WrongCoefficient: "8",
    /// The old bytes are gone before they are taken out of parity.
    RmwBufferReused: "B16",
    /// Bytes that someone else may change are written without a copy.
    UnstableBuffer: "B15",
    /// Writes to different data of one row run at once.
    RowsUnlocked: "ours",

    // ---- the intent log
    /// A row is written without a record.
    RowsUnlogged: "11",
    /// The log is not durable before the data goes out.
    LogVolatile: "11",
    /// The log's space is used again before what it stood for is flushed.
    LogRecycledUnflushed: "12",
    /// The log's space is used again before a durable batch says that it may be.
    LogRecycledUnrecorded: "ours" by "test intents",
    /// The log's space is used again though a member that lacks its checksums is not on record as
    /// lost.
    ChecksumsLossUnrecorded: "ours" by "test checksums",
    /// Of a member's log only its own newest batch says what does not matter any more.
    OwnTailOnly: "ours" by "test intents",
    /// A log is replayed on superblocks that somebody else wrote.
    ForeignLog: "13",
    /// The log of an earlier session is taken for this one's.
    SessionReused: "13",
    /// An entry of md's partial parity log is trusted whatever its checksum says.
    LogUnchecked: "14" by "test ppl",
    /// A batch of the log with a right checksum that cannot be parsed counts as never written.
    UnparsableUnwritten: "ours" by "test corrupt",
    /// Data is written though a member has failed to log it.
    LogErrorIgnored: "15, B3, B17",
    /// Rows of which other data is not durable yet are logged all the same.
    LogConflictIgnored: "ours",
    /// The partial syndrome is that of all blocks, not of those that stay.
    PartialOfAll: "ours",
    /// A record that P's member has and Q's lacks counts.
    PairUnchecked: "ours" by "test intents",
    /// A record of a row whose other parity was missing counts though that was made since.
    FilledTakenForCut: "ours" by "test intents",
    /// What is written while a member is missing is not logged.
    DegradedUnlogged: "4.3",
    /// Replay leaves parity as it was.
    ReplayWritesNoParity: "ours",
    /// What replay cannot settle is made whole with whatever came out.
    CutLossForgotten: "ours",
    /// What replay could not settle, and was listed as lost, is forgotten at the next assembly.
    LostListUnread: "ours",
    /// A record is made, and begins a new session of the log, before what a crash cut is resolved.
    RecordBeforeResolved: "ours",

    // ---- the journal device
    /// A journal device that is not here is taken for an empty log.
    AbsentJournalIgnored: "ours" by "test journal",
    /// A copy of the journal device that does not know the last session is taken for the log.
    StaleJournalTrusted: "13" by "test journal",
    /// The journal device of another array is taken for this one's.
    ForeignJournalTaken: "ours" by "test journal",
    /// The members name a session before the journal device knows it.
    JournalHeaderLate: "ours" by "test journal",
    /// What is written while all parity of a row is lost is not logged, though older records are.
    DataAloneUnlogged: "ours" by "test journal",
    /// That the journal device is lost is on record nowhere.
    JournalLossUnrecorded: "B3" by "test journal",
    /// Rows that were cut when journal device and member were lost at once are verified.
    JournalLossUndoubted: "ours" by "test journal",

    // ---- membership
    /// A member one event behind counts, though the others gave it up.
    EventsDecide: "9, B1",
    /// A write is acknowledged before the loss of a member that missed it is on record.
    AckBeforeLoss: "10" by "sweep",
    /// A change of membership is on record nowhere.
    ChangeUnrecorded: "B2",
    /// A commit goes on without the members that failed it, and calls them well.
    CommitWithoutFailed: "ours",
    /// A member that a crash has left one event behind misses the next commit, too.
    BehindStays: "ours" by "test power_loss",
    /// Superblocks are written before what they vouch for is flushed.
    CommitUnflushed: "18",
    /// The private area's header is not written before the superblock that it goes with.
    HeaderUnwritten: "20",
    /// Two changes of membership at once.
    TwoChangesAtOnce: "ours",
    /// Halves that went on apart are put together.
    DivergenceAccepted: "I8",
    /// The layout of a RAID 0 is guessed.
    Raid0Guessed: "B9",

    // ---- rebuild and replacement
    /// What is not rebuilt yet is read.
    ReadsUnrebuilt: "16",
    /// A read past a slow member takes what is not rebuilt yet.
    HedgeReadsUnrebuilt: "B4",
    /// A rebuild does not wait for writes that were under way when the spare joined.
    RebuildUnlocked: "19, B10",
    /// Writes behind a rebuild do not reach the new member.
    RebuildMissesWrites: "17",
    /// Writes do not reach a member that is being made a copy.
    CopyMissesWrites: "B11",
    /// A rebuild counts as done what has only been begun.
    WatermarkAhead: "18",
    /// A member that was half rebuilt at the stop counts as whole.
    HalfRebuiltWhole: "B12",
    /// Of several slots of a mirror one is rebuilt.
    RebuildFillsOne: "ours",
    /// A replacement on RAID 0 copies nothing.
    ReplaceCopiesNothing: "ours",
    /// After a crash a copy counts as far as it was made.
    CopyTrustedAfterCrash: "ours" by "test lifecycle",
    /// A member that was away when an array that had died was started is trusted when it is back.
    AbsentUnrecorded: "ours" by "test journal",
    /// The log is used anew before it is on record who was lost while it was replayed.
    ResolvedLossLate: "ours" by "test ppl",
    /// In replay, what lies beside a bad part of a block is lost with it, and parity belongs to
    /// something else.
    BesideBadLost: "ours" by "test rare_faults",
    /// That all rows were made right is not on record before they are read.
    ResolvedUnrecorded: "ours" by "test intents",
    /// A block that could not be read while its row was made right keeps what it holds.
    UnreadLeftAlone: "ours" by "test intents",
    /// Replay writes again what nobody wrote, where the slot has a replacement.
    KeptWrittenAgain: "ours" by "test lifecycle",
    /// A row of which something had to be restored is not compared.
    RestoredUncompared: "ours" by "test unsynced",
    /// What a newer record has taken a part of counts as cut, though it was durable before.
    OldRecordDistrusted: "ours" by "test intents",
    /// A batch of the log names the one before it though its member failed to take that.
    FailedBatchNamed: "ours" by "test intents",
    /// A copy takes the slot with the same superblock that first says that it is whole.
    TakesOverInOneStep: "ours" by "test lifecycle",
    /// A job goes on before the keeper has heard which blocks are lost.
    AnswerOvertakes: "ours" by "test lifecycle",
    /// That a spare was removed comes on record with the next change.
    RemovalUnrecorded: "ours" by "test power_loss",
    /// What no copy could give is taken for rebuilt.
    LostTakenForRebuilt: "F14",
    /// Background work goes over the borders of regions, which other shards write.
    JobsCrossRegions: "ours",
    /// The failure of a write to a new copy is not noticed.
    CopyErrorSwallowed: "30" by "sweep",

    // ---- resync and scrub
    /// Copies that a crash left different are read from any member.
    DirtyReadsBalanced: "21",
    /// A scrub trusts data, and makes parity and copies agree with it.
    ScrubTrustsData: "22",
    /// Copies that a crash left different are read before they are made alike.
    CopiesUnsettled: "ours" by "test unsynced",
    /// A resync changes data that parity says is wrong.
    ResyncChangesData: "ours",

    // ---- reads, discards, deadlines
    /// Reads of what is missing give whatever the buffer holds.
    DegradedReadsNothing: "B5",
    /// A read that failed gives what was in the buffer.
    ReadErrorIgnored: "B18",
    /// Bytes on the bad-block list are read.
    BadBlocksRead: "B13",
    /// What was read ahead outlives a write.
    ReadAheadStale: "ours",
    /// Stripes are discarded at a wrong offset.
    DiscardMisplaced: "25",
    /// Copies are discarded where the first one lies.
    DiscardOneOffset: "B8",
    /// The edges of a discard keep their bytes.
    DiscardKeepsEdges: "ours",
    /// A write that has missed its deadline counts as done.
    LateTrusted: "26" by "sweep",
    /// A member is taken back while what was written to it before may still land.
    LateWritesLand: "ours" by "test slow",
    /// A record is written to a member while an older one for it is still under way.
    LateOvertaken: "ours" by "test slow",
    /// A flush of a write-back cache does not wait for what is held.
    FlushForgetsHeld: "ours",
    /// A row that has lost too much is written before it is on record that its parity is given up.
    ParityTrusted: "ours" by "test rare_faults",
    /// A resync says nothing of parity that it could not make, for a block that is listed as bad.
    UnverifiedForgotten: "ours" by "test bad_blocks",
    /// Without redundancy, a copy that has failed takes its slot.
    FailedCopyKept: "ours" by "test bad_blocks",
    /// A block is taken off the list of bad ones before what was written there is durable.
    ListBeforeData: "ours" by "test bad_blocks",
    /// What takes a block off the list is acknowledged before the list on the member says so.
    HealedUnrecorded: "ours" by "test bad_blocks",
    /// Where the list of what a crash has cost is full, what is written in its place is read.
    FillerRead: "ours" by "test intents",
    /// After a crash blocks that cannot be read count as lost with all that was written at once.
    CutLostTogether: "ours" by "test intents",
    /// Blocks that cannot be read count as lost together with all that is read at once.
    ReadTogether: "ours" by "test bad_blocks",
    /// What is recovered for a block that cannot be read is not compared with its checksum.
    RecoveredUnjudged: "ours" by "test checksums",
    /// A scrub leaves out what has a listed block if the rest of its row can be compared.
    ListedLeftOut: "ours" by "test bad_blocks",
    /// What was written stays on the list of bad blocks if another member was lost meanwhile.
    ListedAfterLoss: "ours" by "test bad_blocks",
    /// A record is held to be torn if a member that came later does not have it.
    JoinedMustHave: "ours" by "test intents",
    /// A record before the log is resolved says that all members got their slots just then.
    SinceForgotten: "ours" by "test intents",
    /// Parity is given up on its member alone, and not on the copy that is to take its place.
    CopyOfParityTrusted: "ours" by "test rare_faults",
    /// The bit of a region is cleared before what a resync has written there is durable.
    BitClearedUndurable: "ours" by "test resynced",
    /// A copy takes its slot though it is not whole on record.
    CopyTakenUnasked: "ours" by "test takeover",
    /// Without redundancy it is on no record that a copy goes on without its source.
    PlainAbsentUnrecorded: "ours" by "test takeover",
    /// A copy that a crash has put unverified still says that it is whole.
    ShortCopyUnrecorded: "ours" by "test takeover",
    /// Members that have missed a change of policy keep to the old one.
    PolicyUnaligned: "ours" by "test policy",
    /// What a member lacks is recovered from rows whose last write found no space.
    UnfinishedRecovered: "ours" by "test full",
    /// A member without space is lost though others share its store.
    StoreUnasked: "ours" by "test full",
    /// Writes that were merged fail together, whichever of them cannot be done.
    MergedFailTogether: "ours" by "test rare_faults",
    /// What md's log says of a row is trusted though data was written past its parity since.
    OlderEntryTrusted: "ours" by "test ppl",
    /// A write that has begun is left cut when the array takes no more.
    BegunWriteRefused: "ours" by "test intents",
    /// A member with a cache that joins an array without is not flushed before an answer.
    JoinedCacheUnflushed: "ours" by "test flush",

    // ---- checksums
    /// A stop writes no checksums if there is something in the cache that could not be written out.
    StuckStopUnsummed: "ours" by "test checksums",
    /// Nothing that is read is compared with its checksum.
    ChecksumsUnchecked: "22" by "test checksums",
    /// Parity is computed from the buffer of a read that failed.
    FailedReadUsed: "ours" by "test checksums",
    /// Checksums do not depend on where a block lies.
    ChecksumsUnseeded: "23" by "test checksums",
    /// The log has the old checksum of another block: the table may be ahead of the data.
    OldChecksumUnlogged: "24" by "test checksums",
    /// The log's space is used again before the checksums of its rows are durable.
    LogRecycledUnsummed: "ours" by "test checksums",
    /// Some writes leave the old checksum behind.
    ChecksumStaleAfterWrite: "ours" by "test checksums",
    /// Rows that are rebuilt, compared or resolved keep generations that do not go together.
    RowsUnaligned: "ours" by "test checksums",
    /// A write computes parity from a block that generations say is behind.
    BehindUsed: "ours" by "test checksums",
    /// A write of a part of a block keeps the rest of one that generations say is behind.
    RestOfBehindKept: "ours" by "test checksums",
    /// A scrub does not ask generations who has lost a write.
    GenerationsUnasked: "22" by "test checksums",
    /// What is rebuilt has no checksums when the checkpoint says that it is there.
    RebuiltUnsummed: "ours" by "checksums",
    /// After a crash checksums of dirty regions are trusted, though no log can settle them.
    DirtyChecksumsTrusted: "ours" by "test checksums",
    /// After a crash blocks of dirty regions are taken as they are, though another copy, or their
    /// row, fits the entry.
    TornChecksumsIgnored: "ours" by "test checksums",
    /// A write of a part of a block that is lost makes the rest of it readable.
    RestOfBlockForgotten: "ours" by "test checksums",
    /// Reads that are to be checked do not compare copies.
    CopiesUncompared: "ours" by "test checksums",
    /// What the log says of checksums is not looked at after a crash.
    ClaimsIgnored: "ours" by "test checksums",
    /// The dirty mark is taken away before checksums are written.
    CleanUnsummed: "ours" by "checksums",
    /// Pages of a member's table are written after it was removed.
    ForgottenPageWritten: "ours" by "test checksums",
    /// A member comes back while a page of its table is on its way to it.
    PageOvertaken: "ours" by "test checksums",
    /// The checksums of a member that comes back are trusted though it has missed some.
    ReaddChecksumsTrusted: "ours" by "test checksums",
    /// Of several batches that tell of a piece the newest alone is asked whether it is durable.
    NewestAlone: "ours" by "test intents",
    /// A member comes back while a batch of the log without units is on its way to it.
    BatchOvertaken: "ours" by "test intents",
    /// The log of a journal device is looked for wherever its header says.
    JournalUnbounded: "ours" by "test corrupt",
    /// What P contradicts is not asked of Q.
    ContradictedByP: "ours" by "test checksums",
    /// A block without a checksum is held to be wrong when its row is made right after a crash.
    UnsummedWrong: "ours" by "test checksums",
    /// A page of a table that was not read in time counts as one that knows nothing.
    UnreadForgotten: "ours" by "test checksums",
    /// What a member holds whose table was not read in time is trusted when rows are made right.
    LateTableTrusted: "ours" by "test checksums",
    /// A bad-block list that is full costs members that are being filled, whatever it was for.
    FullListUnrecorded: "ours" by "test bad_blocks",
    /// A scrub forgets the checksum of a block that no copy has.
    LostChecksumForgotten: "ours" by "test checksums",
    /// The first bad block of a member is not trusted without a superblock that says so.
    FirstListUnread: "ours" by "test bad_blocks",
    /// A list of bad blocks that is full costs members that are whole.
    FullListCostsAll: "ours" by "test bad_blocks",
    /// Copies that differ after a crash are trusted by the user's word.
    ForcedCopies: "ours" by "test resynced",
    /// What nobody wrote beside a bad sector is made like another copy.
    UnsettledTogether: "ours" by "test resynced",
    /// A job waits as it would beside clients, though they are gone.
    ClientsRemembered: "ours" by "test lifecycle",
    /// A bad sector wherever a superblock could lie costs the member.
    AnySectorNeeded: "ours" by "test corrupt",
    /// Checksums are trusted though somebody else has run the array.
    ForeignChecksums: "13" by "test checksums",
}

/// 0: none; else one more than the way's number.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

/// Breaks the engine in this way from now on, on all threads; `None` mends it. Without the feature
/// nothing happens.
pub fn choose(way: Option<Broken>) {
    CHOSEN.store(way.map_or(0, |way| way as usize + 1), Ordering::Relaxed);
}

/// Is the engine broken in this way?
#[inline(always)]
pub fn broken(way: Broken) -> bool {
    POSSIBLE && CHOSEN.load(Ordering::Relaxed) == way as usize + 1
}

impl Broken {
    /// The way with this name.
    pub fn named(name: &str) -> Option<Broken> {
        Broken::ALL.iter().copied().find(|way| way.facts().0 == name)
    }
}
