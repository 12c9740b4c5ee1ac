//! Mutants: the engine with one safety step skipped, to test the tests.
//!
//! A simulator that finds no fault may be blind. With the Cargo feature `broken` each row below
//! makes the engine skip one safety step, at the place of that step, and `cargo xtask mutants`
//! requires that a test detects every one of them:
//!
//! ```text
//!   if member.unflushed.replace(false) && !broken(Broken::FlushMissesOne) {
//! ```
//!
//! Without the feature [`broken`] is always `false` and compiles to nothing. The tests have it,
//! with no mutant chosen. A release of the program cannot be built with it (`POSSIBLE`).
//!
//! Owns the table of mutants and the current choice. Numbers (`1` … `30`) are the mutants that a
//! simulator of such an engine should detect. `B1` … `B18` are data-loss bugs of other engines
//! (`docs/testing.md` lists them). `ours` are bugs found here, or our own rules. If no seed below
//! 3,000 detects a mutant, `by` names the tool that does: seeds with checksums, over AoE or with
//! network members, the simulator's sweep or exhaustive mode, or a test of `crates/array`.

use std::sync::atomic::{AtomicUsize, Ordering};

/// True in test builds whose engine can skip safety steps; never in a release.
pub const POSSIBLE: bool = cfg!(feature = "broken");

/// Declares the mutants: description, source, and the tool that detects it if no seed does.
macro_rules! ways {
    (@by) => { None };
    (@by $tool:literal) => { Some($tool) };
    ($($(#[doc = $what:literal])+ $name:ident: $source:literal $(by $tool:literal)?,)+) => {
        /// A skipped safety step.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Broken {
            $($(#[doc = $what])+ $name,)+
        }

        impl Broken {
            /// Every mutant.
            pub const ALL: &[Broken] = &[$(Broken::$name),+];

            /// Name, description and source.
            pub fn facts(self) -> (&'static str, &'static str, &'static str) {
                match self {
                    $(Broken::$name => (stringify!($name), concat!($($what),+), $source),)+
                }
            }

            /// The tool that detects it: `checksums` (seeds with checksums), `aoe` (seeds over
            /// AoE), `sweep`, `exhaustive`, `test NAME` (a module of `crates/array/tests/engine`)
            /// or `net NAME` (a test file of `crates/net`); `None` for a seed of the simulator.
            pub fn by(self) -> Option<&'static str> {
                match self {
                    $(Broken::$name => ways!(@by $($tool)?),)+
                }
            }
        }
    };
}

ways! {
    /// A canary: no array starts. A tool that misses it detects nothing.
    Canary: "canary",

    // ---- flushes
    /// A flush skips the member in slot 0.
    FlushMissesOne: "1",
    /// A durable write is acknowledged before it is durable on the member.
    FuaIgnored: "2",
    /// Data lost by a failed flush counts as durable.
    FlushErrorIgnored: "F20",
    /// A flush succeeds after an earlier flush has failed and lost data of both.
    FlushErrorForgotten: "F20" by "test flush",
    /// A flush covers writes that were in flight when it was sent.
    FlushCoversFlying: "ours",
    /// A start reads data that the last process did not flush, without a flush.
    StartUnflushed: "ours" by "test power_loss",
    /// Where copies may differ, a bad block on the leader excludes its other blocks from reads.
    LeaderOfAll: "ours" by "test unsynced",
    /// Blocks repaired by a scrub are not durable.
    RepairVolatile: "ours" by "test power_loss",
    /// Blocks corrected by a checked read are not durable.
    CorrectedVolatile: "ours" by "test power_loss",

    // ---- the write-intent bitmap and the dirty mark
    /// Data is written before the region's bit and the dirty mark are durable.
    BitAfterData: "3",
    /// Bits are cleared before the data written there is flushed.
    BitClearedUnflushed: "4",
    /// Bits are cleared while a member that will need them is missing.
    BitClearedDegraded: "5" by "test stale_members",
    /// A copy of a member from before the last session counts as a member that a crash left
    /// behind.
    RolledBackTrusted: "ours" by "test stale_members",
    /// A member that kept nothing but its superblock counts as in sync.
    LabelTrusted: "ours" by "test stale_members",
    /// The superblock of a member that saw two others does not decide their order.
    WitnessUnheard: "ours" by "test stale_members",
    /// Members are marked clean while writes are in flight.
    CleanWhileWriting: "ours",
    /// The checkpoint of an interrupted sync counts as a mark of writes.
    CheckpointTrusted: "ours",
    /// The first write after a crash is not recorded before it is made.
    FirstWriteUnrecorded: "ours",
    /// Writing the bitmap also clears the bad-block list behind it.
    BitmapSpills: "B14" by "sweep",
    /// A member is re-added by the bitmap although bits were cleared since it left.
    ReaddAfterClear: "B7",
    /// A truncated member is re-added by the bitmap.
    CutReadded: "ours" by "test lifecycle",
    /// A member re-added by the bitmap gets none of the writes that it missed.
    ReaddCopiesNothing: "ours",

    // ---- parity
    /// Parity is not written while a member is missing.
    ParityStaleDegraded: "6",
    /// A read-modify-write leaves Q unchanged.
    QStale: "7",
    /// One data slot uses another slot's coefficient in Q.
    WrongCoefficient: "8",
    /// The old data is overwritten before it is removed from parity.
    RmwBufferReused: "B16",
    /// A buffer that its owner may change is written without a copy.
    UnstableBuffer: "B15",
    /// Writes to different data of one row run concurrently.
    RowsUnlocked: "ours",

    // ---- the intent log
    /// A row is written without a record.
    RowsUnlogged: "11",
    /// Data is written before the log is durable.
    LogVolatile: "11",
    /// Log space is reused before its rows are flushed.
    LogRecycledUnflushed: "12",
    /// Log space is reused before a durable batch permits it.
    LogRecycledUnrecorded: "ours" by "test intents",
    /// Log space is reused before a member without its rows' checksums is recorded as lost.
    ChecksumsLossUnrecorded: "ours" by "test checksums",
    /// Only a member's own newest batch retires batches of its log.
    OwnTailOnly: "ours" by "test intents",
    /// A log is replayed under superblocks that another engine wrote.
    ForeignLog: "13",
    /// The log of an earlier session counts as the current one.
    SessionReused: "13",
    /// An entry of md's partial parity log is trusted with a wrong checksum.
    LogUnchecked: "14" by "test ppl",
    /// A batch with a right checksum that does not parse counts as never written.
    UnparsableUnwritten: "ours" by "test corrupt",
    /// Data is written after a member has failed to log it.
    LogErrorIgnored: "15, B3, B17",
    /// Rows with other unflushed data are logged without a flush.
    LogConflictIgnored: "ours",
    /// The partial syndrome covers all blocks instead of the unwritten ones.
    PartialOfAll: "ours",
    /// A record on P's member only is trusted.
    PairUnchecked: "ours" by "test intents",
    /// A record counts as torn although the row's missing parity was rebuilt since.
    FilledTakenForCut: "ours" by "test intents",
    /// Writes to a missing member are not logged.
    DegradedUnlogged: "4.3",
    /// Replay leaves parity unchanged.
    ReplayWritesNoParity: "ours",
    /// Blocks that replay cannot resolve get arbitrary content instead of an error.
    CutLossForgotten: "ours",
    /// The next assembly ignores the list of blocks that replay could not resolve.
    LostListUnread: "ours",
    /// A commit begins a new log session before replay has finished.
    RecordBeforeResolved: "ours",

    // ---- the journal device
    /// A missing journal device counts as an empty log.
    AbsentJournalIgnored: "ours" by "test journal",
    /// A journal device without the last session counts as the log.
    StaleJournalTrusted: "13" by "test journal",
    /// The journal device of another array is used.
    ForeignJournalTaken: "ours" by "test journal",
    /// The members name a session before it is durable on the journal device.
    JournalHeaderLate: "ours" by "test journal",
    /// A write to a row without parity is not logged although older records cover the row.
    DataAloneUnlogged: "ours" by "test journal",
    /// The loss of the journal device is not recorded.
    JournalLossUnrecorded: "B3" by "test journal",
    /// Rows count as verified after journal device and member were lost at once.
    JournalLossUndoubted: "ours" by "test journal",

    // ---- membership
    /// A member one event behind is accepted although the others recorded its loss.
    EventsDecide: "9, B1",
    /// A write is acknowledged before the loss of a member that missed it is recorded.
    AckBeforeLoss: "10" by "sweep",
    /// A membership change is not recorded.
    ChangeUnrecorded: "B2",
    /// A commit continues without the members that failed it, and records them as in sync.
    CommitWithoutFailed: "ours",
    /// A member that a crash left one event behind also misses the next commit.
    BehindStays: "ours" by "test power_loss",
    /// Superblocks are written before the data that they vouch for is flushed.
    CommitUnflushed: "18",
    /// A superblock is written without its private header.
    HeaderUnwritten: "20",
    /// Two membership changes run concurrently.
    TwoChangesAtOnce: "ours",
    /// Split-brain halves are assembled together.
    DivergenceAccepted: "I8",
    /// The layout of a RAID 0 is guessed.
    Raid0Guessed: "B9",

    // ---- rebuild and replacement
    /// Blocks beyond the recovery offset are read.
    ReadsUnrebuilt: "16",
    /// A hedge reads blocks beyond the recovery offset.
    HedgeReadsUnrebuilt: "B4",
    /// A rebuild does not wait for writes in flight when the spare joined.
    RebuildUnlocked: "19, B10",
    /// Writes below the recovery offset do not reach the new member.
    RebuildMissesWrites: "17",
    /// Writes do not reach a replacement.
    CopyMissesWrites: "B11",
    /// The recovery offset includes blocks still being rebuilt.
    WatermarkAhead: "18",
    /// A member that was half rebuilt at the stop counts as in sync.
    HalfRebuiltWhole: "B12",
    /// A rebuild of several slots of a mirror fills only one.
    RebuildFillsOne: "ours",
    /// A replacement on RAID 0 copies nothing.
    ReplaceCopiesNothing: "ours",
    /// After a crash a replacement is trusted up to its recovery offset.
    CopyTrustedAfterCrash: "ours" by "test lifecycle",
    /// A member missing at the restart of a failed array is trusted when it returns.
    AbsentUnrecorded: "ours" by "test journal",
    /// Log space is reused before a member lost during replay is recorded.
    ResolvedLossLate: "ours" by "test ppl",
    /// Replay loses the whole block around a bad part, and computes parity from wrong data.
    BesideBadLost: "ours" by "test rare_faults",
    /// The completion of replay is not recorded before the first read.
    ResolvedUnrecorded: "ours" by "test intents",
    /// Replay leaves a block that it could not read unchanged.
    UnreadLeftAlone: "ours" by "test intents",
    /// Replay rewrites unwritten blocks of a slot with a replacement.
    KeptWrittenAgain: "ours" by "test lifecycle",
    /// A row with a restored block is not compared.
    RestoredUncompared: "ours" by "test unsynced",
    /// A block counts as torn if a newer record covers a part of it, although it was durable.
    OldRecordDistrusted: "ours" by "test intents",
    /// A log batch links to its predecessor after the member failed to write that.
    FailedBatchNamed: "ours" by "test intents",
    /// A replacement takes its slot in the same superblock that first records it as complete.
    TakesOverInOneStep: "ours" by "test lifecycle",
    /// A job continues before the keeper has received its list of lost blocks.
    AnswerOvertakes: "ours" by "test lifecycle",
    /// The removal of a spare is recorded only with the next change.
    RemovalUnrecorded: "ours" by "test power_loss",
    /// Blocks without a readable copy count as rebuilt.
    LostTakenForRebuilt: "F14",
    /// Background work crosses region borders into other shards.
    JobsCrossRegions: "ours",
    /// A failed write to a replacement is ignored.
    CopyErrorSwallowed: "30" by "sweep",

    // ---- resync and scrub
    /// Copies that a crash left different are read from any member.
    DirtyReadsBalanced: "21",
    /// A scrub always makes parity and copies match the data.
    ScrubTrustsData: "22",
    /// Copies that a crash left different are read before they are resynced.
    CopiesUnsettled: "ours" by "test unsynced",
    /// A resync changes data that mismatches parity.
    ResyncChangesData: "ours",

    // ---- ATA over Ethernet
    /// A late copy of a write that was done is done again.
    AoeLateExecuted: "28" by "aoe",
    /// A write that overlaps an earlier one in flight does not wait for it.
    AoeOverlapUnordered: "ours" by "aoe",
    /// A copy of a request in flight is carried out beside it.
    AoeCopyInFlightExecuted: "ours" by "aoe",
    /// A write whose data was written before is answered and not done, whatever came in between.
    AoeReackedWithoutHistory: "ours" by "aoe",
    /// The initiator writes to sectors while copies of an earlier write may still arrive.
    AoeRangeReused: "ours" by "aoe",

    // ---- fragments that are smaller than physical sectors
    /// A flush leaves parts of sectors in memory.
    FragmentsStay: "ours" by "net cluster_sectors",
    /// Parts of sectors are written in place without a copy in the journal.
    FragmentsUnjournaled: "ours" by "net cluster_sectors",
    /// A start ignores the journal.
    FragmentsNotReplayed: "ours" by "net cluster_sectors",
    /// A torn entry of the journal counts as damage.
    TornFragmentsReplayed: "ours" by "net cluster_sectors",
    /// An entry is replaced before its sectors are durable in place.
    FragmentsUnsettled: "ours" by "net cluster_sectors",
    /// An entry stays valid while one of its sectors is written past the journal.
    OldFragmentsKept: "ours" by "net cluster_sectors",

    // ---- members on other machines
    /// Acknowledged writes that a server may have lost are not written again after a break.
    RemoteNotReplayed: "27" by "remote",
    /// A durable write is not kept where older writes lie under it.
    RemoteReplayUndoes: "ours" by "remote",
    /// A write does not wait for an older one to its bytes that may still land.
    RemoteQuarantineIgnored: "ours" by "remote",
    /// A connection that breaks again and again is not left alone.
    RemoteFlapsUndamped: "ours" by "remote",

    // ---- reads, discards, deadlines
    /// A read of a missing member returns the buffer's old content.
    DegradedReadsNothing: "B5",
    /// A failed read returns the buffer's old content.
    ReadErrorIgnored: "B18",
    /// Blocks on the bad-block list are read.
    BadBlocksRead: "B13",
    /// Read-ahead data outlives a write.
    ReadAheadStale: "ours",
    /// Stripes are discarded at a wrong offset.
    DiscardMisplaced: "25",
    /// Every copy is discarded at the first copy's offset.
    DiscardOneOffset: "B8",
    /// The partial blocks at the edges of a discard keep their content.
    DiscardKeepsEdges: "ours",
    /// A write that missed its deadline counts as complete.
    LateTrusted: "26" by "sweep",
    /// A member returns while an earlier write may still land.
    LateWritesLand: "ours" by "test slow",
    /// A superblock is written while an older one for that member is in flight.
    LateOvertaken: "ours" by "test slow",
    /// A flush of a write-back cache does not write the cached data.
    FlushForgetsHeld: "ours",
    /// A row beyond redundancy is written before its parity is recorded as discarded.
    ParityTrusted: "ours" by "test rare_faults",
    /// A resync does not report parity that it could not compute because of a bad block.
    UnverifiedForgotten: "ours" by "test bad_blocks",
    /// Without redundancy a failed replacement takes its slot.
    FailedCopyKept: "ours" by "test bad_blocks",
    /// A block leaves the bad-block list before its new data is durable.
    ListBeforeData: "ours" by "test bad_blocks",
    /// A write that clears a bad block is acknowledged before the list on the member is updated.
    HealedUnrecorded: "ours" by "test bad_blocks",
    /// Filler content of unrecoverable blocks is read after their list is full.
    FillerRead: "ours" by "test intents",
    /// After a crash all blocks of one write are lost with an unreadable one.
    CutLostTogether: "ours" by "test intents",
    /// All blocks of one read are lost with an unreadable one.
    ReadTogether: "ours" by "test bad_blocks",
    /// A recovered block is not verified against its checksum.
    RecoveredUnjudged: "ours" by "test checksums",
    /// A scrub skips a listed block although the rest of its row can be compared.
    ListedLeftOut: "ours" by "test bad_blocks",
    /// A written block stays on the bad-block list after another member was lost meanwhile.
    ListedAfterLoss: "ours" by "test bad_blocks",
    /// A record counts as torn if a member that joined later lacks it.
    JoinedMustHave: "ours" by "test intents",
    /// A commit during recovery records that all members just got their slots.
    SinceForgotten: "ours" by "test intents",
    /// Parity is discarded on its member only, not on the replacement.
    CopyOfParityTrusted: "ours" by "test rare_faults",
    /// A region's bit is cleared before the resync's writes are durable.
    BitClearedUndurable: "ours" by "test resynced",
    /// A replacement takes its slot before it is recorded as complete.
    CopyTakenUnasked: "ours" by "test takeover",
    /// Without redundancy a replacement that continues without its source is not recorded.
    PlainAbsentUnrecorded: "ours" by "test takeover",
    /// A replacement that a crash left unverified is still recorded as complete.
    ShortCopyUnrecorded: "ours" by "test takeover",
    /// A member that missed a change of policy keeps the old policy.
    PolicyUnaligned: "ours" by "test policy",
    /// What a member lacks is recovered from rows whose last write found no space.
    UnfinishedRecovered: "ours" by "test full",
    /// A member without space is lost though others share its store.
    StoreUnasked: "ours" by "test full",
    /// Merged writes fail together although only one of them is impossible.
    MergedFailTogether: "ours" by "test rare_faults",
    /// A PPL entry is trusted after a later write with discarded parity.
    OlderEntryTrusted: "ours" by "test ppl",
    /// A started write is left torn when the array becomes read-only.
    BegunWriteRefused: "ours" by "test intents",
    /// A joined member with a volatile cache is not flushed before an acknowledgement.
    JoinedCacheUnflushed: "ours" by "test flush",
    /// A slow member is reported at once, whatever its answers take.
    SlowReportedAtOnce: "ours" by "test slow",

    // ---- checksums
    /// A stop writes no checksums if cached data cannot be written.
    StuckStopUnsummed: "ours" by "test checksums",
    /// A member's report of a hole is trusted, whatever its checksums or the other members say.
    HolesTrusted: "ours",
    /// Reads are not verified.
    ChecksumsUnchecked: "22" by "test checksums",
    /// Parity is computed from the buffer of a failed read.
    FailedReadUsed: "ours" by "test checksums",
    /// Checksums do not depend on a block's place.
    ChecksumsUnseeded: "23" by "test checksums",
    /// The log has another block's old checksum, so the table may be ahead of the data.
    OldChecksumUnlogged: "24" by "test checksums",
    /// Log space is reused before the checksums of its rows are durable.
    LogRecycledUnsummed: "ours" by "test checksums",
    /// Some writes leave the old checksum in place.
    ChecksumStaleAfterWrite: "ours" by "test checksums",
    /// Rows that are rebuilt, compared or replayed keep mismatching generations.
    RowsUnaligned: "ours" by "test checksums",
    /// A write computes parity from a block that generations say is behind.
    BehindUsed: "ours" by "test checksums",
    /// A write of a part of a block keeps the rest of one that generations say is behind.
    RestOfBehindKept: "ours" by "test checksums",
    /// A scrub does not use generations to find lost writes.
    GenerationsUnasked: "22" by "test checksums",
    /// Rebuilt blocks below the checkpoint have no checksums.
    RebuiltUnsummed: "ours" by "checksums",
    /// After a crash checksums of dirty regions are trusted without a log.
    DirtyChecksumsTrusted: "ours" by "test checksums",
    /// After a crash dirty blocks are accepted although a copy or their row matches the entry.
    TornChecksumsIgnored: "ours" by "test checksums",
    /// A write to a part of an unrecoverable block makes the rest readable.
    RestOfBlockForgotten: "ours" by "test checksums",
    /// Checked reads do not compare copies.
    CopiesUncompared: "ours" by "test checksums",
    /// Checksums in the log are ignored after a crash.
    ClaimsIgnored: "ours" by "test checksums",
    /// Members are marked clean before checksums are written.
    CleanUnsummed: "ours" by "checksums",
    /// Pages of a member's table are written after its removal.
    ForgottenPageWritten: "ours" by "test checksums",
    /// A member is re-added while a page of its table is in flight.
    PageOvertaken: "ours" by "test checksums",
    /// A re-added member's checksums are trusted although it missed some.
    ReaddChecksumsTrusted: "ours" by "test checksums",
    /// Of several batches with a piece only the newest is checked for durability.
    NewestAlone: "ours" by "test intents",
    /// A member is re-added while a log batch without units is in flight.
    BatchOvertaken: "ours" by "test intents",
    /// The log of a journal device is read wherever its header points.
    JournalUnbounded: "ours" by "test corrupt",
    /// A block that mismatches P is not recovered from Q.
    ContradictedByP: "ours" by "test checksums",
    /// A block without a checksum counts as corrupt during replay.
    UnsummedWrong: "ours" by "test checksums",
    /// A table page that was not read in time counts as a page without entries.
    UnreadForgotten: "ours" by "test checksums",
    /// During replay blocks are trusted whose table was not read in time.
    LateTableTrusted: "ours" by "test checksums",
    /// A full bad-block list always fails members that are being rebuilt.
    FullListUnrecorded: "ours" by "test bad_blocks",
    /// A scrub drops the checksum of a block without a good copy.
    LostChecksumForgotten: "ours" by "test checksums",
    /// The first bad block of a member is ignored until a superblock mentions the list.
    FirstListUnread: "ours" by "test bad_blocks",
    /// A full bad-block list fails members in sync.
    FullListCostsAll: "ours" by "test bad_blocks",
    /// `--force-dirty-degraded` also trusts differing copies.
    ForcedCopies: "ours" by "test resynced",
    /// Unwritten sectors beside a bad one are overwritten from another copy.
    UnsettledTogether: "ours" by "test resynced",
    /// A job stays throttled after its clients have left.
    ClientsRemembered: "ours" by "test lifecycle",
    /// A bad sector at any possible superblock offset fails the member.
    AnySectorNeeded: "ours" by "test corrupt",
    /// Checksums are trusted after another engine has run the array.
    ForeignChecksums: "13" by "test checksums",
}

/// 0: none; else the mutant's number plus one.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

/// Selects a mutant for all threads; `None` restores the sound engine. No effect without the
/// feature.
pub fn choose(way: Option<Broken>) {
    CHOSEN.store(way.map_or(0, |way| way as usize + 1), Ordering::Relaxed);
}

/// Is this mutant selected?
#[inline(always)]
pub fn broken(way: Broken) -> bool {
    POSSIBLE && CHOSEN.load(Ordering::Relaxed) == way as usize + 1
}

impl Broken {
    /// The mutant with this name.
    pub fn named(name: &str) -> Option<Broken> {
        Broken::ALL.iter().copied().find(|way| way.facts().0 == name)
    }
}
