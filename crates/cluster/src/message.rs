//! The messages between clients, coordinator and members.
//!
//! Each may be lost, duplicated, delayed and reordered: numbers in it let the receiver recognize
//! copies. `wire` has the bytes.

use crate::config::Config;
use crate::ids::{
    BootId, ClientId, DiskId, Epoch, GrantId, Incarnation, MemberId, Ms, OpId, Region, Term,
};
use crate::record::{Log, Position, Record};

/// The origin of a member request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Who {
    /// A client's I/O.
    Client(ClientId, Incarnation),
    /// A coordinator's resync.
    Coordinator(Term),
}

/// What a member checks before it executes a request. On a transport with sessions it belongs to
/// the session, except for `op` and `floor`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// The origin.
    pub who: Who,
    /// The origin's epoch.
    pub epoch: Epoch,
    /// The member's boot in that epoch.
    pub boot: BootId,
    /// The request's number; a copy has the same.
    pub op: OpId,
    /// The origin waits for no lower number: the member may forget them.
    pub floor: OpId,
}

/// Most bytes that one member request reads or writes, if they are several pieces. More would gain
/// nothing, and let a client take more of a member's memory.
pub const MOST_IO_BYTES: u32 = 256 << 10;

/// A member request. Each piece of several is old or new for itself until the answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Io {
    /// Read the pieces of a stripe and of those after it: so many.
    Read(u64, u32),
    /// Write the pieces of a stripe and of those after it.
    Write(u64, Vec<u8>),
    /// Make all completed writes durable.
    Flush,
    /// Only verify the stamp.
    Check,
}

/// A coordinator's order to a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Report boot and epoch. True: the leader can serve the array; members count this for
    /// candidates that do not hear it.
    Probe(bool),
    /// Adopt the term and report the grant log.
    ReadLog,
    /// Adopt the epoch and these least incarnations; refuse everything below. For this disk only:
    /// one that was never raised is blank.
    Raise(DiskId, Epoch, Vec<(ClientId, Incarnation)>),
    /// Refuse incarnations of the client below this one.
    Fence(ClientId, Incarnation),
    /// Replace the grant log, which also truncates it.
    Install(Log),
    /// Append the next batch.
    Append(u64, Vec<Record>),
}

/// To a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToMember {
    /// A request.
    Data(Stamp, Io),
    /// An order.
    Control(Term, Order),
}

/// Why a member refuses a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It has another boot id.
    Boot(BootId),
    /// It has another epoch.
    Epoch(Epoch),
    /// The client was evicted.
    Fenced,
    /// The coordinator was deposed.
    Term(Term),
}

/// A member's answer to an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// To a probe, and to an order for another disk; 0: it was never raised.
    Alive(Epoch),
    /// The epoch and the grant log.
    LogIs(Epoch, Log),
    /// Adopted, durable, drained.
    Raised(Epoch),
    /// Durable and drained.
    Fenced(ClientId, Incarnation),
    /// The log's position after an install or append.
    Appended(Position),
    /// A higher term is in force. Leaders have said so many times since the member's start that
    /// they can serve the array.
    Deposed(Term, u64),
}

/// From a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FromMember {
    /// The request is complete; bytes of a read.
    Done(OpId, Vec<u8>),
    /// The request was not executed.
    Refused(OpId, Refusal),
    /// The answer to an order of this term, and the member's boot.
    Control(Term, BootId, Answer),
}

/// A grant that a client holds, in its own words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Claim {
    /// The region.
    pub region: Region,
    /// Its number.
    pub grant: GrantId,
}

/// From a client to the coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FromClient {
    /// Start this incarnation. Earlier ones end.
    Join,
    /// Renew the lease; declare the grants held, as of the newest term heard of.
    Renew {
        /// The client's clock, echoed by the answer.
        sent_ms: Ms,
        /// The newest term heard of: grants of lower terms are ignored from here on.
        term: Term,
        /// Every grant held.
        held: Vec<Claim>,
        /// The client's epoch.
        epoch: Epoch,
    },
    /// Ask for a grant.
    Want(Region, GrantId),
    /// Give a grant back: all writes are flushed.
    Release(Region, GrantId),
    /// A member does not answer this request, the oldest one; repeated while it does not.
    Unreachable(MemberId, OpId),
}

/// From the coordinator to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToClient {
    /// The lease is renewed from this time of the client's clock on.
    Renewed(Ms),
    /// The configuration to use.
    Config(Config),
    /// The region may be written.
    Grant(Region, GrantId),
    /// Give the grant back soon.
    Drain(Region, GrantId),
    /// The grant is given back.
    Released(Region, GrantId),
    /// Incarnations below this one are evicted.
    Evicted(Incarnation),
    /// No grant: parity of the region may be wrong while a member that holds data is not in sync.
    Refused(Region, GrantId),
}
