//! The arguments of MAC mask, Reserve/Release and keyed reservations.
//!
//! ```text
//!  keyed requests   stat      0
//!                   register  1  count 8  0 16   key 64   { mac 48 }…
//!                   set       2  type 8   0 16   key 64
//!                   replace   3  type 8   flags 8  0 8   target key 64   new key 64
//!                   reset     4
//!  every answer     directive 8  type 8  keys 16  0 32  generation 32  holder 64  { key 64 }…
//! ```

use io::Mac;

use super::macs;

/// One step of an edit of the mask list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edit {
    /// Nothing.
    Skip,
    /// Admit this client.
    Add(Mac),
    /// Admit it no more.
    Remove(Mac),
    /// A directive of another number.
    Unknown(u8),
}

/// A request about the mask list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mask {
    /// Answer with the list.
    Read,
    /// Edit it, step by step.
    Edit(Vec<Edit>),
}

/// Why an edit failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MaskFault {
    /// Not said.
    Unspecified = 1,
    /// A directive is not known.
    Directive = 2,
    /// The list is full.
    Full = 3,
}

/// Bytes of a mask argument before its directives.
const MASK_BYTES: usize = 4;

impl Mask {
    /// The request at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Option<Mask> {
        let (&[_, directive, _, count], rest) = bytes.split_first_chunk::<MASK_BYTES>()?;
        match directive {
            0 => Some(Mask::Read),
            1 => {
                let edits = rest.get(..usize::from(count) * 8)?.chunks_exact(8).map(Edit::of);
                Some(Mask::Edit(edits.collect()))
            }
            _ => None,
        }
    }

    /// Appends the request.
    pub fn put(&self, into: &mut Vec<u8>) {
        match self {
            Mask::Read => into.extend([0, 0, 0, 0]),
            Mask::Edit(edits) => {
                into.extend([0, 1, 0, edits.len() as u8]);
                for edit in edits {
                    let (number, mac) = match *edit {
                        Edit::Skip => (0, Mac::default()),
                        Edit::Add(mac) => (1, mac),
                        Edit::Remove(mac) => (2, mac),
                        Edit::Unknown(number) => (number, Mac::default()),
                    };
                    into.extend([0, number]);
                    into.extend(mac.0);
                }
            }
        }
    }

    /// Appends the answer: the list, after the request was carried out.
    pub fn put_list(edited: bool, list: &[Mac], into: &mut Vec<u8>) {
        into.extend([0, edited.into(), 0, list.len() as u8]);
        for mac in list {
            into.extend([0, 0]);
            into.extend(mac.0);
        }
    }

    /// Appends the answer to an edit whose step `index` failed.
    pub fn put_fault(fault: MaskFault, index: usize, into: &mut Vec<u8>) {
        into.extend([0, 1, fault as u8, index as u8]);
    }
}

impl Edit {
    fn of(bytes: &[u8]) -> Edit {
        let mac = super::mac(bytes, 2);
        match bytes[1] {
            0 => Edit::Skip,
            1 => Edit::Add(mac),
            2 => Edit::Remove(mac),
            other => Edit::Unknown(other),
        }
    }
}

/// A request about the reservation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reserve {
    /// Answer with the holders.
    Read,
    /// These are the holders, if the client is one, or if there is none.
    Set(Vec<Mac>),
    /// These are the holders.
    Force(Vec<Mac>),
}

impl Reserve {
    /// The request at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Option<Reserve> {
        let (&[directive, count], rest) = bytes.split_first_chunk::<2>()?;
        let list = || rest.get(..usize::from(count) * 6).map(macs);
        match directive {
            0 => Some(Reserve::Read),
            1 => list().map(Reserve::Set),
            2 => list().map(Reserve::Force),
            _ => None,
        }
    }

    /// Appends the request.
    pub fn put(&self, into: &mut Vec<u8>) {
        let (directive, list) = match self {
            Reserve::Read => (0, &[][..]),
            Reserve::Set(list) => (1, &list[..]),
            Reserve::Force(list) => (2, &list[..]),
        };
        Reserve::put_list(directive, list, into);
    }

    /// Appends the answer to this request: the holders.
    pub fn put_answer(&self, holders: &[Mac], into: &mut Vec<u8>) {
        let directive = match self {
            Reserve::Read => 0,
            Reserve::Set(_) => 1,
            Reserve::Force(_) => 2,
        };
        Reserve::put_list(directive, holders, into);
    }

    fn put_list(directive: u8, list: &[Mac], into: &mut Vec<u8>) {
        into.extend([directive, list.len() as u8]);
        list.iter().for_each(|mac| into.extend(mac.0));
    }
}

/// The key of a registered client; 0 is none.
pub type Key = u64;

/// Who may do what under a keyed reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The holder reads and writes; others do neither.
    HolderOnly = 0,
    /// The holder writes; all read.
    HolderWrites = 1,
    /// All that are registered read and write; one of them holds the reservation.
    RegisteredOnly = 2,
    /// All that are registered write, all read; one of them holds the reservation.
    RegisteredWrite = 3,
    /// All that are registered hold it, read and write.
    GroupOnly = 4,
    /// All that are registered hold it and write; all read.
    GroupWrites = 5,
}

impl Kind {
    /// The kind of this number.
    pub fn of(number: u8) -> Option<Kind> {
        use Kind::{
            GroupOnly, GroupWrites, HolderOnly, HolderWrites, RegisteredOnly, RegisteredWrite,
        };
        [HolderOnly, HolderWrites, RegisteredOnly, RegisteredWrite, GroupOnly, GroupWrites]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }

    /// True if one key holds the reservation, not all that are registered.
    pub fn has_holder(self) -> bool {
        (self as u8) < Kind::GroupOnly as u8
    }

    /// True if clients without a right to write may read.
    pub fn lets_all_read(self) -> bool {
        self as u8 & 1 != 0
    }
}

/// A request about keyed reservations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Keyed {
    /// Answer with the state.
    Stat,
    /// Register these addresses under a key; under key 0, no more.
    Register(Key, Vec<Mac>),
    /// Reserve, as the holder of this key; with key 0, release.
    Set(Kind, Key),
    /// Give the registration another key; or, without `keep`, take its place and drop it.
    Replace {
        /// The kind, if the reservation changes hands.
        kind: Kind,
        /// Only give it another key.
        keep: bool,
        /// The present key.
        target: Key,
        /// The new one.
        key: Key,
    },
    /// Forget everything.
    Reset,
}

/// The flag of [`Keyed::Replace`] for `keep`.
const NO_PREEMPT: u8 = 0x01;

impl Keyed {
    /// The request at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Option<Keyed> {
        let key =
            |at: usize| bytes.get(at..at + 8)?.first_chunk().map(|it| Key::from_be_bytes(*it));
        let kind = || bytes.get(1).copied().and_then(Kind::of);
        match bytes.first()? {
            0 => Some(Keyed::Stat),
            1 => {
                let count = usize::from(*bytes.get(1)?);
                let list = bytes.get(12..)?.get(..count * 6)?;
                Some(Keyed::Register(key(4)?, macs(list)))
            }
            2 => Some(Keyed::Set(kind()?, key(4)?)),
            3 => {
                let keep = bytes.get(2)? & NO_PREEMPT != 0;
                Some(Keyed::Replace { kind: kind()?, keep, target: key(4)?, key: key(12)? })
            }
            4 => Some(Keyed::Reset),
            _ => None,
        }
    }

    /// Appends the request.
    pub fn put(&self, into: &mut Vec<u8>) {
        match self {
            Keyed::Stat => into.extend([0, 0, 0, 0]),
            Keyed::Register(key, list) => {
                into.extend([1, list.len() as u8, 0, 0]);
                into.extend(key.to_be_bytes());
                list.iter().for_each(|mac| into.extend(mac.0));
            }
            Keyed::Set(kind, key) => {
                into.extend([2, *kind as u8, 0, 0]);
                into.extend(key.to_be_bytes());
            }
            Keyed::Replace { kind, keep, target, key } => {
                into.extend([3, *kind as u8, if *keep { NO_PREEMPT } else { 0 }, 0]);
                into.extend(target.to_be_bytes());
                into.extend(key.to_be_bytes());
            }
            Keyed::Reset => into.extend([4, 0, 0, 0]),
        }
    }

    /// The directive's number.
    pub fn directive(&self) -> u8 {
        match self {
            Keyed::Stat => 0,
            Keyed::Register(..) => 1,
            Keyed::Set(..) => 2,
            Keyed::Replace { .. } => 3,
            Keyed::Reset => 4,
        }
    }
}

/// The answer to every [`Keyed`] request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyedState {
    /// The number of the reservation's [`Kind`]; 0 if there is none.
    pub kind: u8,
    /// How often registrations have changed.
    pub generation: u32,
    /// The key that holds the reservation; 0 if none does.
    pub holder: Key,
    /// All registered keys.
    pub keys: Vec<Key>,
}

impl KeyedState {
    /// Appends the answer to a request of this directive.
    pub fn put(&self, directive: u8, into: &mut Vec<u8>) {
        into.extend([directive, self.kind]);
        into.extend((self.keys.len() as u16).to_be_bytes());
        into.extend([0; 4]);
        into.extend(self.generation.to_be_bytes());
        into.extend(self.holder.to_be_bytes());
        self.keys.iter().for_each(|key| into.extend(key.to_be_bytes()));
    }
}
