//! What a read of each 512-byte piece may return: a register, of which writes may end without an
//! answer.
//!
//! ```text
//!   write    begins ───────────────── acknowledged        older values are gone for good
//!   write    begins ──── its client dies ──── fenced      it is there, or it never will be
//!   read     begins ── value ── ends                      earlier values do not come back
//! ```
//!
//! A piece has *candidates*, the values that it may hold. A write adds its value when it begins.
//! Once it is acknowledged, all values whose writes had ended before it began are gone. A read must
//! return a candidate of some moment between its beginning and its end; then all other values whose
//! writes had ended before it began are gone. Times number the events, in the order of one lock.
//! Nothing legal is reported; of racing requests not every inversion is found.
//!
//! The history also has the locks of a cluster file system, which hosts need: none reads a block
//! while it is written, and in mode `shared` nobody writes it either. A write of a part of a block
//! reads the rest first, so it excludes others in both modes. A host's locks are broken when it is
//! fenced. If a member was lost meanwhile, a block that it was writing is *wild* until
//! somebody writes it again: level 3.5 promises nothing about it, and everything about all others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::ops::Range;

use parapet_torture::random::mix;

/// Unit of the registers.
pub(crate) const PIECE_BYTES: usize = 512;
/// Unit of the locks.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// Pieces of a block.
pub(crate) const PIECES: usize = BLOCK_BYTES / PIECE_BYTES;

/// Events of a block that are kept.
const STORY: usize = 40;

/// A life of a client.
pub(crate) type Session = u64;
/// A request; of a write, also the value that it writes. 0 is the content of a new array.
pub(crate) type Op = u64;

#[derive(Clone)]
struct Piece {
    /// Values, and when their writes ended.
    candidates: BTreeMap<Op, Option<u64>>,
    /// Since then it may hold anything.
    wild: Option<u64>,
}

/// A request in progress, or whose end nobody knows.
struct Open {
    session: Session,
    block: usize,
    pieces: Range<usize>,
    begun: u64,
    writes: bool,
    /// It cannot have an effect from now on.
    fenced: bool,
    /// Of a read: the candidates of each piece since it began; none if it was wild.
    seen: Vec<Option<BTreeSet<Op>>>,
}

/// See the module.
pub(crate) struct History {
    blocks: Vec<Vec<Piece>>,
    /// The latest events of each block, for the message of a violation.
    stories: Vec<VecDeque<String>>,
    open: BTreeMap<Op, Open>,
    shared: bool,
    /// Members may be missing.
    pub(crate) degraded: bool,
    now: u64,
}

impl History {
    /// A new array of this many blocks; `shared`: hosts lock blocks for writing.
    pub(crate) fn new(blocks: usize, shared: bool) -> History {
        let piece = Piece { candidates: BTreeMap::from([(0, Some(0))]), wild: None };
        let blocks = vec![vec![piece; PIECES]; blocks];
        let stories = vec![VecDeque::new(); blocks.len()];
        History { blocks, stories, open: BTreeMap::new(), shared, degraded: false, now: 0 }
    }

    fn note(&mut self, block: usize, event: String) {
        let story = &mut self.stories[block];
        story.push_back(format!("{}: {event}", self.now));
        if story.len() > STORY {
            story.pop_front();
        }
    }

    fn wrong(&self, block: usize, piece: usize, what: &str) -> String {
        let mut text = format!("block {block}, piece {piece}: {what}");
        for event in &self.stories[block] {
            let _ = write!(text, "\n  {event}");
        }
        text
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn begin(&mut self, session: Session, block: usize, pieces: Range<usize>, writes: bool) -> Op {
        let begun = self.tick();
        let what = if writes { "writes" } else { "reads" };
        self.note(block, format!("session {session} {what} {pieces:?}"));
        let open = Open { session, block, pieces, begun, writes, fenced: false, seen: Vec::new() };
        self.open.insert(begun, open);
        begun
    }

    /// Locks the block and begins a write of these pieces, or returns none: the block is locked.
    pub(crate) fn write(&mut self, session: Session, block: usize, at: Range<usize>) -> Option<Op> {
        let mut there = self.open.values().filter(|open| open.block == block && !open.fenced);
        let whole = |pieces: &Range<usize>| *pieces == (0..PIECES);
        let alone = self.shared || !whole(&at);
        if there.any(|open| alone || !open.writes || !whole(&open.pieces)) {
            return None;
        }
        let op = self.begin(session, block, at.clone(), true);
        for piece in &mut self.blocks[block][at.clone()] {
            piece.candidates.insert(op, None);
        }
        // Fenced readers have no lock.
        for read in self.open.values_mut().filter(|open| open.block == block && !open.writes) {
            let covered = read.pieces.clone().zip(&mut read.seen);
            let covered = covered.filter(|(place, _)| at.contains(place));
            covered.filter_map(|(_, seen)| seen.as_mut()).for_each(|seen| {
                seen.insert(op);
            });
        }
        Some(op)
    }

    /// The write was acknowledged.
    pub(crate) fn written(&mut self, op: Op) {
        let now = self.tick();
        let Some(Open { block, pieces, begun, .. }) = self.open.remove(&op) else { return };
        self.note(block, format!("{op} is written"));
        for piece in &mut self.blocks[block][pieces] {
            piece.candidates.entry(op).and_modify(|ended| *ended = Some(ended.unwrap_or(now)));
            let gone = |ended: Option<u64>| ended.is_some_and(|ended| ended < begun);
            piece.candidates.retain(|&value, ended| value == op || !gone(*ended));
            piece.wild = piece.wild.filter(|&since| since > begun);
        }
    }

    /// Locks the block and begins a read, or returns none: the block is locked.
    pub(crate) fn read(&mut self, session: Session, block: usize) -> Option<Op> {
        if self.open.values().any(|open| open.block == block && open.writes && !open.fenced) {
            return None;
        }
        let op = self.begin(session, block, 0..PIECES, false);
        let seen = |piece: &Piece| match piece.wild {
            None => Some(piece.candidates.keys().copied().collect()),
            Some(_) => None,
        };
        let seen = self.blocks[block].iter().map(seen).collect();
        self.open.get_mut(&op).expect("just inserted").seen = seen;
        Some(op)
    }

    /// The read has returned this content.
    ///
    /// # Errors
    /// It is wrong, and how.
    pub(crate) fn check(&mut self, op: Op, content: &[u8]) -> Result<(), String> {
        self.tick();
        let Some(Open { block, begun, seen, .. }) = self.open.remove(&op) else { return Ok(()) };
        for (index, (bytes, seen)) in content.chunks(PIECE_BYTES).zip(seen).enumerate() {
            let Some(seen) = seen.filter(|_| self.blocks[block][index].wild.is_none()) else {
                continue;
            };
            let Some(value) = decode(bytes, (block * PIECES + index) as u64) else {
                let what = format!("{op} reads garbage {:x?}, not {seen:?}", &bytes[..16]);
                return Err(self.wrong(block, index, &what));
            };
            if !seen.contains(&value) {
                let what = format!("{op} reads {value}, not {seen:?}");
                return Err(self.wrong(block, index, &what));
            }
            if index == 0 {
                self.note(block, format!("{op} has read {value}"));
            }
            let piece = &mut self.blocks[block][index];
            let gone = |ended: Option<u64>| ended.is_some_and(|ended| ended < begun);
            piece.candidates.retain(|&other, ended| other == value || !gone(*ended));
        }
        Ok(())
    }

    /// The read has failed. A write that failed stays open: it may still have an effect.
    pub(crate) fn read_failed(&mut self, op: Op) {
        self.open.remove(&op);
    }

    /// All members have fenced this client: its open requests have ended.
    pub(crate) fn fence(&mut self, session: Session) {
        let now = self.tick();
        let open = self.open.values_mut().filter(|open| open.session == session && !open.fenced);
        let mut ended = Vec::new();
        for open in open {
            open.fenced = true;
            if open.writes {
                ended.push((open.block, open.begun));
            }
        }
        for (block, op) in ended {
            self.note(block, format!("{op} of session {session} is fenced"));
            for piece in &mut self.blocks[block] {
                piece.candidates.entry(op).and_modify(|ended| *ended = Some(now));
                if self.degraded {
                    piece.wild = Some(now);
                }
            }
        }
    }
}

/// The bytes of a value at a place of the array, in pieces.
pub(crate) fn encode(value: Op, place: u64) -> [u8; PIECE_BYTES] {
    let mut bytes = [0; PIECE_BYTES];
    let words = bytes.chunks_exact_mut(8).enumerate();
    words.for_each(|(index, word)| {
        let number =
            if index == 0 { value } else { mix(value ^ place << 32 ^ (index as u64) << 56) };
        word.copy_from_slice(&number.to_le_bytes());
    });
    bytes
}

/// The value of these bytes, if they are one.
fn decode(bytes: &[u8], place: u64) -> Option<Op> {
    if bytes.iter().all(|&byte| byte == 0) {
        return Some(0);
    }
    let value = u64::from_le_bytes(bytes.first_chunk().copied()?);
    (encode(value, place) == bytes).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(value: Op) -> Vec<u8> {
        let piece = |place| if value == 0 { [0; PIECE_BYTES] } else { encode(value, place) };
        (0..PIECES as u64).flat_map(piece).collect()
    }

    /// A history, and a read of its block by another client.
    fn reads(history: &mut History, value: Op) -> bool {
        let read = history.read(9, 0).expect("the block is free");
        history.check(read, &content(value)).is_ok()
    }

    fn acknowledged(history: &mut History) -> Op {
        let op = history.write(1, 0, 0..PIECES).expect("the block is free");
        history.written(op);
        op
    }

    #[test]
    fn an_acknowledged_write_replaces_all_earlier_ones() {
        let mut history = History::new(1, true);
        assert!(reads(&mut history, 0));
        let (first, second) = (acknowledged(&mut history), acknowledged(&mut history));
        assert!(!reads(&mut history, 0) && !reads(&mut history, first) && !reads(&mut history, 7));
        assert!(reads(&mut history, second));
        let read = history.read(9, 0).unwrap();
        assert!(history.check(read, &[1; BLOCK_BYTES]).is_err(), "no value at all");
    }

    #[test]
    fn a_write_of_a_fenced_client_is_there_or_never_will_be() {
        for (first, later, legal) in
            [(true, false, false), (false, true, false), (true, true, true)]
        {
            let mut history = History::new(1, true);
            let old = acknowledged(&mut history);
            let open = history.write(2, 0, 0..PIECES).unwrap();
            assert!(history.read(9, 0).is_none() && history.write(9, 0, 0..1).is_none());
            history.fence(2);
            let value = |new| if new { open } else { old };
            assert!(reads(&mut history, value(first)));
            assert_eq!(reads(&mut history, value(later)), legal);
        }
        let mut history = History::new(1, true);
        let open = history.write(2, 0, 0..PIECES).unwrap();
        history.fence(2);
        let newer = acknowledged(&mut history);
        assert!(!reads(&mut history, open), "a late write");
        assert!(reads(&mut history, newer));
    }

    #[test]
    fn a_write_with_an_unknown_outcome_may_have_an_effect_until_its_client_is_fenced() {
        let mut history = History::new(1, false);
        let open = history.write(2, 0, 0..PIECES).unwrap();
        let newer = acknowledged(&mut history);
        history.fence(2);
        assert!(reads(&mut history, open));
        assert!(!reads(&mut history, newer), "it was overwritten");
    }

    #[test]
    fn only_what_a_fenced_client_was_writing_may_be_garbage_and_only_if_a_member_was_lost() {
        for degraded in [false, true] {
            let mut history = History::new(2, true);
            history.degraded = degraded;
            history.write(2, 0, 0..1).unwrap();
            history.fence(2);
            assert_eq!(reads(&mut history, 77), degraded);
            let newer = acknowledged(&mut history);
            assert!(!reads(&mut history, 77));
            assert!(reads(&mut history, newer));
            let other = history.read(9, 1).unwrap();
            assert!(history.check(other, &content(77)).is_err());
        }
    }

    #[test]
    fn a_late_answer_is_one_of_its_time() {
        let mut history = History::new(1, true);
        let read = history.read(2, 0).unwrap();
        assert!(history.write(1, 0, 0..1).is_none());
        history.fence(2);
        let newer = acknowledged(&mut history);
        history.check(read, &content(0)).unwrap();
        assert!(reads(&mut history, newer));
    }
}
