//! Mutants: the protocol with one safety step skipped, to test the tests.
//!
//! With the Cargo feature `broken` each row makes the code skip one safety step, at the place of
//! that step. The simulator must detect all of them (`tests/sim/mutants.rs`) but one that is too
//! rare (`tests/lost.rs`) and one at a limit that no life reaches (`tests/limits.rs`). Without the
//! feature [`broken`] is always `false`, compiled to nothing.
//!
//! Sources: `G1` … `G5` are rules of the grant protocol, `I1` … its invariants, `§` steps of
//! evictions and membership changes, `ddraid` bugs of the system that had the idea first.

/// Declares the mutants: description and source.
macro_rules! ways {
    ($($(#[doc = $what:literal])+ $name:ident: $source:literal,)+) => {
        /// A skipped safety step.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Broken {
            $($(#[doc = $what])+ $name,)+
        }

        impl Broken {
            /// Every mutant.
            pub const ALL: &[Broken] = &[$(Broken::$name),+];

            /// Description and source.
            pub fn facts(self) -> (&'static str, &'static str) {
                match self {
                    $(Broken::$name => (concat!($($what),+), $source),)+
                }
            }
        }
    };
}

ways! {
    // ---- grants
    /// A grant is given before its mark is durable.
    GrantsBeforeDurable: "G1",
    /// A second holder of a dirty region is admitted from memory.
    SecondHolderUnlogged: "G1, ddraid",
    /// A mark counts as durable when one member has it.
    OneLogSuffices: "G1",
    /// A client writes before it has the grant.
    IssuesBeforeGrant: "G2",
    /// A write is acknowledged before the last member has it.
    AcksEarly: "G3",
    /// The last answer to arrive decides, whatever the others were.
    LastAnswerCounts: "G3, ddraid",
    /// Writes skip members that are being rebuilt.
    RebuildingSkipped: "G3",
    /// A flush skips a member.
    FlushSkipsOne: "G3",
    /// A restart of a member in sync leaves no trace in the client.
    LossUnreported: "G3, I15",
    /// A grant is released without a flush.
    ReleasesUnflushed: "G4",
    /// A grant is released with writes in flight.
    ReleasesInFlight: "G4",
    /// The first release of a region clears it for all holders.
    FirstReleaseCleans: "G4, section 0 (6)",
    /// Exclusive grants are shared.
    ExclusiveShared: "I8",
    /// A client takes a grant of a deposed coordinator.
    OldGrantTaken: "I4",

    /// Marks that find no room in the log are dropped.
    FullLogDrops: "I11",
    /// Grants do not wait for room in the log.
    RoomIgnored: "I11",
    /// A mark gives its room back before it is cleared on all members.
    RoomFreedEarly: "I11",

    // ---- parts of blocks
    /// The rest of a block is read before the region is granted and the stripe is locked.
    PatchReadsUngranted: "I8",
    /// A block is read for a patch while another write of the same client changes it.
    PatchUnlocked: "I8",
    /// A patch sends the rest of its block as it was before members lost writes.
    PatchRevivesLost: "I3",

    // ---- stripes of levels 5 and 6
    /// After a fault, new parity is computed again from data of which a part is new already.
    ParityRecomputed: "I8, §3.5",
    /// A region is released between the reads and the writes of a read-modify-write.
    ReleasesBetween: "I8, §3.2",
    /// Two writes of a stripe overlap.
    StripeUnlocked: "I8",
    /// Q keeps its old bytes in a read-modify-write.
    QNotUpdated: "I2",
    /// A block is recovered without the region's grant, while others write the stripe.
    RecoversUngranted: "I9",
    /// A block is recovered while a write of the same client is under way in its stripe.
    RecoversUnlocked: "I9",
    /// Of several stripes only the first is locked.
    LocksFirstStripe: "I9",
    /// A write is acknowledged before it is durable.
    AcksVolatile: "0035, I15",
    /// A resync recovers data from parity that a dead client left behind.
    ResyncTrustsParity: "I9",
    /// A region whose writer died is resynced although a member that holds data is not in sync.
    HoleRebuilt: "I9, section 0 (2)",
    /// A stale member is a source of a resync.
    StaleIsSource: "I12",

    // ---- client death
    /// Regions of a dead client become free without a fence.
    EvictsUnfenced: "§3.4, I7",
    /// Regions of a dead client count as clean.
    EvictForgetsUnsync: "§3.4",
    /// The grants of a dead client are never dropped.
    DeadHolderKept: "ddraid, I13",
    /// The greatest start number is let in: no fence names the one after it.
    LastLetIn: "I13",
    /// A member ignores the fence.
    FenceUnchecked: "§3.4",

    // ---- members
    /// An order is answered before requests that it refuses have ended.
    NoDrain: "§5 (4), I5",
    /// An order is answered before it is durable.
    AnswersBeforeDurable: "§5 (2), I5",
    /// A torn header destroys the only one.
    OneSlot: "§5 (2)",
    /// The parity of a header's number chooses its slot, although numbers are skipped.
    SlotByNumber: "§5 (2)",
    /// A start takes entries of the append area that are older than the header.
    OldEntriesReplayed: "I11",
    /// Marks that find no room in the append area are dropped.
    FullAreaDrops: "I11, ddraid",
    /// A full append area starts again without a header.
    AreaWraps: "I11",
    /// The checksum covers two words.
    ChecksumOfTwoWords: "ddraid",
    /// Members take requests of any epoch.
    EpochUnchecked: "§5 (3)",
    /// Members take requests meant for an earlier boot.
    BootUnchecked: "I15",
    /// Members take orders of lower terms.
    TermUnchecked: "I4",
    /// Members take resync writes of deposed coordinators.
    OldResyncRuns: "§3.6, I4",
    /// A late copy of a write is executed again.
    CopiesExecuted: "I17",

    // ---- membership
    /// More members are removed than the level tolerates.
    RemovesTooMany: "§3.5",
    /// Members are removed although those that answer cannot serve the array.
    RemovesInVain: "I13",
    /// A member is removed although the others were heard only before it was late.
    EarlierAnswersCount: "I13",
    /// The time in which a coordinator or client stood still counts as the silence of others.
    PauseCounts: "I13",
    /// A client is evicted when it complains first, if the member was heard shortly before.
    ComplaintCountsAtOnce: "I13",
    /// A client is evicted that cannot release a region, because live members do not answer.
    DrainsInVain: "I13",
    /// A client wants grants before all members have answered it.
    WantsUnchecked: "I13",
    /// A client that waits for a grant or a member does not check whether it reaches all members.
    WaitsUnchecked: "I13",
    /// A new epoch makes clients forget how long members have been silent.
    SilenceForgotten: "I13",
    /// A candidate that hears too few members takes over.
    TakesOverInVain: "I13",
    /// A candidate does not count a leader that only members hear.
    ProbesIgnored: "I13",
    /// A leader that cannot serve the array keeps others from taking over.
    BeatsInVain: "I13",
    /// A restarted member stays in sync although its lost writes could be rebuilt.
    RestartIgnored: "§3.5",
    /// A missing member returns in sync.
    ReturnsInSync: "I12",
    /// A rebuilt member counts as in sync although regions of it are stale.
    PromotesEarly: "I12",
    /// Regions that a member misses are not recorded.
    StaleForgotten: "I6",
    /// An epoch opens when the first member has adopted it.
    ActivatesEarly: "barrier theorem, I6",
    /// A decision of unknown outcome counts as made.
    UnknownIsDone: "I18",
    /// A blank disk takes a slot although its regions are not recorded as stale.
    BlankTrusted: "I6",
    /// A blank disk takes a slot before it is durable that all its regions are stale.
    BlankEarly: "I6",
    /// An order for another disk raises a blank one.
    RaisesOtherDisk: "I12, I13",
    /// Any disk counts as the one that an epoch names.
    ReplacedReturns: "I12",
    /// A mirror is read without asking the others for the epoch.
    ReadsUnchecked: "§3.5, I3",
    /// The reads of a read-modify-write ask no other member for the epoch.
    SettlesUnchecked: "§3.5, I2",
    /// A reader of a mirror does not ask members that are being rebuilt.
    RebuildingUnchecked: "§3.5, I3",

    // ---- takeover
    /// The grant log is the intersection of what members have, in sync or not.
    RecoveryIntersects: "§3.6",
    /// Holders in the log that have not declared themselves count as gone.
    DeclarationSkipped: "§3.6",

    /// A register that is older than a member's epoch counts as the membership.
    OldRegisterTrusted: "§4",
    /// A leader takes a term that another one had before the register was restored.
    TermReused: "§3.6, §4",

    // ---- resync
    /// A resync does nothing.
    ResyncSkipped: "ddraid (NOSYNC), I2",
    /// A resync copies member 0 to the others, whatever the level.
    ResyncCopiesFirst: "ddraid, I2",
    /// A region counts as clean before the resync is durable.
    ResyncUnflushed: "I2",
    /// A resync runs while clients hold the region.
    ResyncIgnoresHolders: "I8",
    /// Parity is not computed.
    NoParity: "ddraid (NOCALC), I2",
}

#[cfg(feature = "broken")]
std::thread_local! {
    static CHOSEN: std::cell::Cell<Option<Broken>> = const { std::cell::Cell::new(None) };
}

/// Selects the mutant of this thread.
#[cfg(feature = "broken")]
pub fn choose(way: Option<Broken>) {
    CHOSEN.set(way);
}

/// True if this step is to be skipped.
#[cfg(feature = "broken")]
#[inline]
pub fn broken(way: Broken) -> bool {
    CHOSEN.get() == Some(way)
}

/// Always false.
#[cfg(not(feature = "broken"))]
#[inline]
pub const fn broken(_: Broken) -> bool {
    false
}
