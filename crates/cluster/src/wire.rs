//! Messages and durable records as bytes.
//!
//! ```text
//!   0  magic "PpCl"   4  version   6  kind   8  length of the body   12  CRC32C of body and head
//!   16 body: numbers little-endian, lists with a u32 count
//! ```
//!
//! The checksum covers all bytes but itself, at their length in bytes. A decoder never panics and
//! never allocates more than the input justifies: each list is bounded by `MOST_ITEMS` and by the
//! bytes that are left.
//!
//! Invariant: what [`encode`] writes, [`decode`] reads back; `decode` accepts nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::broken::{Broken, broken};
use crate::config::{Config, Level, Mode, Shape, Slot, State};
use crate::decisions::Version;
use crate::ids::{
    ArrayId, BootId, CandidateId, ClientId, DiskId, Epoch, GrantId, Incarnation, MemberId, OpId,
    Region, Term,
};
use crate::message::{
    Answer, Claim, FromClient, FromMember, Io, Order, Refusal, Stamp, ToClient, ToMember, Who,
};
use crate::record::{Mark, Position, Record};
use crate::room;

/// First bytes of a frame.
const MAGIC: [u8; 4] = *b"PpCl";
/// Version of all bodies.
const VERSION: u16 = 1;
/// Bytes before the body.
pub const HEAD: usize = 16;
/// Most bytes of a body.
const MOST_BYTES: usize = 32 << 20;
/// Most items of a list.
const MOST_ITEMS: usize = 1 << 20;

/// Why bytes are not a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// They end early.
    Short,
    /// They start with another magic.
    Magic,
    /// Version or kind is another one.
    Version,
    /// The checksum differs: torn or damaged.
    Checksum,
    /// A number is out of its range.
    Value,
    /// Bytes are left over.
    Long,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::Short => "frame: too short",
            Malformed::Magic => "frame: wrong magic",
            Malformed::Version => "frame: unknown version or kind",
            Malformed::Checksum => "frame: checksum mismatch",
            Malformed::Value => "frame: value out of range",
            Malformed::Long => "frame: trailing bytes",
        })
    }
}

/// A value with a form in bytes.
pub trait Wire: Sized {
    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);
    /// Takes it from the front.
    ///
    /// # Errors
    /// If the bytes do not start with one.
    fn take(from: &mut &[u8]) -> Result<Self, Malformed>;

    /// Appends several, without their count.
    fn put_all(items: &[Self], out: &mut Vec<u8>) {
        items.iter().for_each(|item| item.put(out));
    }

    /// Takes several from the front.
    ///
    /// # Errors
    /// As [`Wire::take`].
    fn take_all(count: usize, from: &mut &[u8]) -> Result<Vec<Self>, Malformed> {
        (0..count).map(|_| Self::take(from)).collect()
    }
}

/// A value that is a whole frame.
pub trait Frame: Wire {
    /// Its number in the head.
    const KIND: u16;
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    if broken(Broken::ChecksumOfTwoWords) {
        return parity::crc32c(0, body.get(..8).unwrap_or(body));
    }
    parity::crc32c(parity::crc32c(0, &head[..12]), body)
}

/// The frame of a value.
///
/// # Panics
/// If it is longer than `MOST_BYTES`.
pub fn encode<T: Frame>(value: &T) -> Vec<u8> {
    let mut frame = Vec::with_capacity(128);
    encode_to(value, &mut frame);
    frame
}

/// Appends the frame of a value.
///
/// # Panics
/// As [`encode`].
pub fn encode_to<T: Frame>(value: &T, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend(T::KIND.to_le_bytes());
    out.extend([0; 8]);
    value.put(out);
    let (head, body) = out[start..].split_at_mut(HEAD);
    assert!(body.len() <= MOST_BYTES, "a frame is bounded");
    head[8..12].copy_from_slice(&u32::try_from(body.len()).expect("bounded").to_le_bytes());
    let sum = checksum(&head[..12], body);
    head[12..16].copy_from_slice(&sum.to_le_bytes());
}

/// The value of the frame at the front of `bytes`, and the frame's length.
///
/// # Errors
/// If there is no complete valid frame.
pub fn decode<T: Frame>(bytes: &[u8]) -> Result<(T, usize), Malformed> {
    let head = bytes.get(..HEAD).ok_or(Malformed::Short)?;
    let mut rest = head;
    if <[u8; 4]>::take(&mut rest)? != MAGIC {
        return Err(Malformed::Magic);
    }
    if (u16::take(&mut rest)?, u16::take(&mut rest)?) != (VERSION, T::KIND) {
        return Err(Malformed::Version);
    }
    let length = usize::try_from(u32::take(&mut rest)?).map_err(|_| Malformed::Value)?;
    let sum = u32::take(&mut rest)?;
    if length > MOST_BYTES {
        return Err(Malformed::Value);
    }
    let mut body = bytes.get(HEAD..HEAD + length).ok_or(Malformed::Short)?;
    if checksum(head, body) != sum {
        return Err(Malformed::Checksum);
    }
    let value = T::take(&mut body)?;
    if body.is_empty() { Ok((value, HEAD + length)) } else { Err(Malformed::Long) }
}

/// The bytes of the frame at the front of `bytes`, as its head states; `None` if the head is not
/// complete. For a reader that must know how much to wait for.
///
/// # Errors
/// If no frame starts like this, or it would be longer than `MOST_BYTES`.
pub fn frame_bytes(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(head) = bytes.get(..HEAD) else { return Ok(None) };
    if head[..4] != MAGIC {
        return Err(Malformed::Magic);
    }
    let length = u32::take(&mut &head[8..12])?;
    let length = usize::try_from(length).map_err(|_| Malformed::Value)?;
    if length > MOST_BYTES { Err(Malformed::Value) } else { Ok(Some(HEAD + length)) }
}

macro_rules! numbers {
    ($($name:ty),+) => {
        $(
            impl Wire for $name {
                fn put(&self, out: &mut Vec<u8>) {
                    out.extend(self.to_le_bytes());
                }
                fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                    let (bytes, rest) = from.split_first_chunk().ok_or(Malformed::Short)?;
                    *from = rest;
                    Ok(Self::from_le_bytes(*bytes))
                }
            }
        )+
    };
}

numbers! { u16, u32, u64, u128 }

impl Wire for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let (&byte, rest) = from.split_first().ok_or(Malformed::Short)?;
        *from = rest;
        Ok(byte)
    }
    // Pieces are long: they are copied at once.
    fn put_all(items: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(items);
    }
    fn take_all(count: usize, from: &mut &[u8]) -> Result<Vec<u8>, Malformed> {
        let (bytes, rest) = from.split_at_checked(count).ok_or(Malformed::Short)?;
        *from = rest;
        Ok(bytes.to_vec())
    }
}

impl Wire for [u8; 4] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self);
    }
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let (bytes, rest) = from.split_first_chunk().ok_or(Malformed::Short)?;
        *from = rest;
        Ok(*bytes)
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Value),
        }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).expect("lists are bounded").put(out);
        T::put_all(self, out);
    }
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let count = usize::try_from(u32::take(from)?).map_err(|_| Malformed::Value)?;
        // Each item has at least a byte.
        if count > MOST_ITEMS.min(from.len()) {
            return Err(Malformed::Value);
        }
        T::take_all(count, from)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_bytes().to_vec().put(out);
    }
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        String::from_utf8(Vec::take(from)?).map_err(|_| Malformed::Value)
    }
}

/// Options are a truth value and the value.
impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        bool::take(from)?.then(|| T::take(from)).transpose()
    }
}

/// Sets are lists in ascending order.
impl<T: Wire + Ord> Wire for BTreeSet<T> {
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).expect("sets are bounded").put(out);
        self.iter().for_each(|item| item.put(out));
    }
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let items = Vec::<T>::take(from)?;
        match items.windows(2).all(|pair| pair[0] < pair[1]) {
            true => Ok(items.into_iter().collect()),
            false => Err(Malformed::Value),
        }
    }
}

impl<K: Wire + Ord + Copy, V: Wire + Copy> Wire for BTreeMap<K, V> {
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).expect("maps are bounded").put(out);
        self.iter().for_each(|(&key, &value)| (key, value).put(out));
    }
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let items = Vec::<(K, V)>::take(from)?;
        match items.windows(2).all(|pair| pair[0].0 < pair[1].0) {
            true => Ok(items.into_iter().collect()),
            false => Err(Malformed::Value),
        }
    }
}

macro_rules! newtypes {
    ($($name:ident),+) => {
        $(
            impl Wire for $name {
                fn put(&self, out: &mut Vec<u8>) {
                    self.0.put(out);
                }
                fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                    Ok($name(Wire::take(from)?))
                }
            }
        )+
    };
}

newtypes! {
    ArrayId, BootId, CandidateId, ClientId, DiskId,
    Epoch, GrantId, Incarnation, MemberId, OpId, Region, Term, Version
}

/// Structures: their fields in order.
macro_rules! structures {
    ($($name:ident { $($field:ident),+ })+) => {
        $(
            impl Wire for $name {
                fn put(&self, out: &mut Vec<u8>) {
                    $(self.$field.put(out);)+
                }
                fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                    Ok($name { $($field: Wire::take(from)?),+ })
                }
            }
        )+
    };
}
pub(crate) use structures;

structures! {
    Shape { level, regions, region_blocks, piece_bytes, mode }
    Slot { state, boot }
    Position { term, seq }
    Record { set, mark }
    Stamp { who, epoch, boot, op, floor }
    Claim { region, grant }
}

/// Choices: a byte, and the fields in order.
macro_rules! choices {
    ($($name:ident { $($tag:literal = $variant:ident $(($($field:ident),+))?),+ })+) => {
        $(
            impl Wire for $name {
                fn put(&self, out: &mut Vec<u8>) {
                    match self {
                        $($name::$variant $(($($field),+))? => {
                            out.push($tag);
                            $($($field.put(out);)+)?
                        })+
                    }
                }
                fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
                    match u8::take(from)? {
                        $($tag => {
                            $($(let $field = Wire::take(from)?;)+)?
                            Ok($name::$variant $(($($field),+))?)
                        })+
                        _ => Err(Malformed::Value),
                    }
                }
            }
        )+
    };
}

pub(crate) use choices;

choices! {
    Level { 0 = Mirror, 1 = Fragments, 2 = Raid5, 3 = Raid6 }
    Mode { 0 = Shared, 1 = Exclusive }
    State { 0 = InSync, 1 = Rebuilding, 2 = Missing }
    Who { 0 = Client(id, incarnation), 1 = Coordinator(term) }
    Mark {
        0 = Held(region, client, incarnation), 1 = Unsync(region), 2 = Stale(member, region),
        3 = Evicted(client, incarnation)
    }
    Io { 0 = Read(stripe, count), 1 = Write(stripe, bytes), 2 = Flush, 3 = Check }
    Order {
        0 = Probe(serves), 1 = ReadLog, 2 = Raise(disk, epoch, fences), 3 = Fence(client, least),
        4 = Install(log), 5 = Append(seq, records)
    }
    ToMember { 0 = Data(stamp, io), 1 = Control(term, order) }
    Refusal { 0 = Boot(boot), 1 = Epoch(epoch), 2 = Fenced, 3 = Term(term) }
    Answer {
        0 = Alive(epoch), 1 = LogIs(epoch, log), 2 = Raised(epoch), 3 = Fenced(client, least),
        4 = Appended(position), 5 = Deposed(term, beats)
    }
    FromMember { 0 = Done(op, bytes), 1 = Refused(op, refusal), 2 = Control(term, boot, answer) }
    ToClient {
        0 = Renewed(sent), 1 = Config(config), 2 = Grant(region, grant), 3 = Drain(region, grant),
        4 = Released(region, grant), 5 = Evicted(least), 6 = Refused(region, grant)
    }
}

/// Most members of an array.
const MOST_MEMBERS: usize = 4096;

impl Wire for Config {
    fn put(&self, out: &mut Vec<u8>) {
        self.array.put(out);
        self.epoch.put(out);
        self.shape.put(out);
        self.slots.put(out);
    }
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        let (array, epoch) = Wire::take(from)?;
        let shape = Shape::take(from)?;
        let slots = Vec::<Slot>::take(from)?;
        // Hosts that write one stripe at once would spoil its parity.
        let striped = shape.level.is_striped();
        let alone = !striped || shape.mode == Mode::Exclusive;
        let most = if striped { parity::TERMS_MAX } else { MOST_MEMBERS };
        let fits = (shape.level.least()..=most).contains(&slots.len()) && alone;
        let zero = shape.regions == 0 || shape.region_blocks == 0 || shape.piece_bytes == 0;
        if fits && !zero && room::fits(&shape, slots.len()) {
            Ok(Config { array, epoch, shape, slots })
        } else {
            Err(Malformed::Value)
        }
    }
}

impl Wire for FromClient {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            FromClient::Join => out.push(0),
            FromClient::Renew { sent_ms, term, held, epoch } => {
                out.push(1);
                sent_ms.put(out);
                term.put(out);
                held.put(out);
                epoch.put(out);
            }
            FromClient::Want(region, grant) => {
                out.push(2);
                (*region, *grant).put(out);
            }
            FromClient::Release(region, grant) => {
                out.push(3);
                (*region, *grant).put(out);
            }
            FromClient::Unreachable(member, op) => {
                out.push(4);
                (*member, *op).put(out);
            }
        }
    }
    fn take(from: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(match u8::take(from)? {
            0 => FromClient::Join,
            1 => FromClient::Renew {
                sent_ms: Wire::take(from)?,
                term: Wire::take(from)?,
                held: Wire::take(from)?,
                epoch: Wire::take(from)?,
            },
            2 => FromClient::Want(Wire::take(from)?, Wire::take(from)?),
            3 => FromClient::Release(Wire::take(from)?, Wire::take(from)?),
            4 => FromClient::Unreachable(Wire::take(from)?, Wire::take(from)?),
            _ => return Err(Malformed::Value),
        })
    }
}

impl Frame for ToMember {
    const KIND: u16 = 1;
}
impl Frame for FromMember {
    const KIND: u16 = 2;
}
impl Frame for FromClient {
    const KIND: u16 = 3;
}
impl Frame for ToClient {
    const KIND: u16 = 4;
}

#[cfg(test)]
mod tests;
