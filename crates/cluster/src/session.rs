//! Around the protocol: who speaks on a connection, what an operator asks, what hosts store.
//!
//! ```text
//!   connection   Hello ──▶ messages of that speaker       or   Hello, Ask ──▶ Told
//!   member       Label: array, slot, shape                     coordinator   Decided: the register
//!                Journaled: sectors that are about to be overwritten
//! ```
//!
//! The speaker of a connection is fixed by its first frame. A receiver refuses messages that carry
//! another identity, and connections for another array or slot.
//!
//! Owns the frames only. `net::cluster` carries them.

use crate::config::{Config, Shape};
use crate::decisions::{Value, Version};
use crate::ids::{
    ArrayId, BootId, CandidateId, ClientId, DiskId, Epoch, Incarnation, MemberId, Ms, Region, Term,
};
use crate::message::ToClient;
use crate::wire::{Frame, Malformed, Wire, choices, structures};

/// Who sends the messages of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speaker {
    /// A client's incarnation.
    Client(ClientId, Incarnation),
    /// A coordinator.
    Candidate(CandidateId),
    /// A command of the program.
    Operator,
}

/// The first frame of each connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The sender.
    pub speaker: Speaker,
    /// The array meant; an operator may say 0.
    pub array: ArrayId,
    /// The member meant; 0 to a coordinator.
    pub member: MemberId,
}

/// A coordinator's message to a client, under its term.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FromCoordinator(pub Term, pub ToClient);

/// What the first block of a member's disk says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// The array's name.
    pub name: String,
    /// The array.
    pub array: ArrayId,
    /// The slot of this member.
    pub member: MemberId,
    /// The disk.
    pub disk: DiskId,
    /// The number of members.
    pub members: u16,
    /// The array's fixed properties.
    pub shape: Shape,
}

/// An entry of a member's fragment journal: whole sectors that are about to be written in place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Journaled {
    /// The first byte of each within the data of the member, and its content.
    pub sectors: Vec<(u64, Vec<u8>)>,
}

/// The array, for a client that is about to start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The array's name.
    pub name: String,
    /// The current configuration.
    pub config: Config,
    /// The address of each member.
    pub addresses: Vec<String>,
}

/// A command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// To a member: size and label.
    Describe,
    /// To a member: erase the disk and become this member.
    Format(Label),
    /// To a coordinator: the array.
    Welcome,
    /// To a coordinator: the state of its reign.
    Report,
    /// To a coordinator: evict this client; answered when every member has fenced it.
    Evict(ClientId),
    /// To a coordinator: serve inconsistent regions again, whatever some of their blocks hold.
    AcceptLoss,
}

/// The answer to a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// Bytes for data, bytes of a sector, the label if there is one, with the disk's epoch.
    Described(u64, u32, Option<(Label, Epoch)>),
    /// Formatted; its boot.
    Formatted(BootId),
    /// The array.
    Welcome(Welcome),
    /// The state of the reign.
    Report(Report),
    /// Fenced up to this incarnation.
    Evicted(Incarnation),
    /// Refused or failed, and why.
    Failed(String),
    /// So many regions will be served again.
    Accepted(u32),
    /// There is nobody to evict: no client of this id has ever joined.
    NeverJoined,
}

/// The state of a coordinator's reign.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The term in which it leads; `None` while it does not.
    pub term: Option<Term>,
    /// True if it can serve the array, or hears a leader that can.
    pub led: bool,
    /// True if the epoch is open to clients and enough members are in sync.
    pub active: bool,
    /// The configuration.
    pub config: Option<Config>,
    /// Clients that are joined.
    pub clients: Vec<Joined>,
    /// Holders of an earlier reign that have not declared themselves yet.
    pub undeclared: Vec<ClientId>,
    /// Clients whose eviction is not complete.
    pub evicting: Vec<ClientId>,
    /// An epoch that a member knows and the decision store does not. Nothing is served until the
    /// store's latest content is restored.
    pub later: Option<Epoch>,
    /// Regions that wait for a resync.
    pub unsync: u32,
    /// For each member, regions that it misses.
    pub stale: Vec<u32>,
    /// Members in whose place another disk answers, with its epoch; 0: it is blank.
    pub others: Vec<(MemberId, Epoch)>,
    /// The region that is being resynced.
    pub resyncing: Option<Region>,
    /// Regions in which no grant is given: an operator must accept a loss.
    pub holes: u32,
}

/// A client that is joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Joined {
    /// The client.
    pub client: ClientId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Since when it is silent, in milliseconds.
    pub silent_ms: Ms,
    /// Regions that it holds.
    pub regions: u32,
}

/// The register in a decision store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decided {
    /// The register's version; in a store that counts itself, the version that this one replaced.
    pub version: Version,
    /// Its content.
    pub value: Value,
}

structures! {
    Hello { speaker, array, member }
    Label { name, array, member, disk, members, shape }
    Journaled { sectors }
    Welcome { name, config, addresses }
    Report {
        term, led, active, config, clients, undeclared, evicting, later, unsync, stale, others,
        resyncing, holes
    }
    Joined { client, incarnation, silent_ms, regions }
    Value { term, leader, config }
    Decided { version, value }
}

choices! {
    Speaker { 0 = Client(id, incarnation), 1 = Candidate(id), 2 = Operator }
    Ask {
        0 = Describe, 1 = Format(label), 2 = Welcome, 3 = Report, 4 = Evict(client), 5 = AcceptLoss
    }
    Told {
        0 = Described(bytes, sector, label), 1 = Formatted(boot), 2 = Welcome(welcome),
        3 = Report(report), 4 = Evicted(upto), 5 = Failed(why), 6 = Accepted(regions),
        7 = NeverJoined
    }
}

impl Wire for FromCoordinator {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(FromCoordinator(Wire::take(from)?, Wire::take(from)?))
    }
}

macro_rules! frames {
    ($($kind:literal $name:ident)+) => {
        $(
            impl Frame for $name {
                const KIND: u16 = $kind;
            }
        )+
    };
}

frames! { 6 Hello 7 FromCoordinator 8 Label 9 Ask 10 Told 11 Decided 13 Journaled }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Level, Mode, Slot, State};
    use crate::wire::{decode, encode, frame_bytes};

    #[test]
    fn frames_come_back_and_state_their_length() {
        let (level, mode) = (Level::Fragments, Mode::Shared);
        let shape = Shape { level, regions: 4, region_blocks: 2, piece_bytes: 2048, mode };
        let slots = vec![Slot { state: State::InSync, boot: BootId(2) }; 3];
        let config = Config { array: ArrayId(7), epoch: Epoch(3), shape, slots };
        let value = Value { term: Term(2), leader: CandidateId(0), config };
        let decided = Decided { version: Version(9), value };
        let bytes = encode(&decided);
        assert_eq!(decode(&bytes), Ok((decided, bytes.len())));
        assert_eq!(frame_bytes(&bytes[..15]), Ok(None));
        assert_eq!(frame_bytes(&bytes[..16]), Ok(Some(bytes.len())));
        assert_eq!(frame_bytes(&[0; 16]), Err(Malformed::Magic));
        let mut long = bytes[..16].to_vec();
        long[8..12].fill(0xff);
        assert_eq!(frame_bytes(&long), Err(Malformed::Value));
        let told = Told::Failed(String::from("no"));
        assert_eq!(decode(&encode(&told)), Ok((told, encode(&Told::Failed("no".into())).len())));
    }
}
