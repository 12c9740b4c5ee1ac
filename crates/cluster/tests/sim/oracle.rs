//! What reads may return, and the locks of the layer above.
//!
//! The upper layer is a cluster file system: it locks blocks among hosts, and breaks a dead host's
//! locks only when the fence agent says so (`Evicted`). Under this contract each *piece* of a block
//! is a register:
//!
//! ```text
//!   acknowledged           exactly this value
//!   writer died (torn)     old or new, each piece for itself; degraded: anything, but stable
//!   unflushed, and too     anything, until it is read or written; the flush must report it
//!   many members restart
//! ```
//!
//! A value that was read stays, as long as no member is lost before the region is resynced.
//!
//! A read takes effect at *one* moment between its beginning and its end. No write falls between
//! these, thanks to the lock, but a loss may:
//!
//! ```text
//!   read begins ── members answer ── power cut, the write is lost ── the client gets the answers
//!                  new              old                              new: legal, it was read before
//! ```
//!
//! The client cannot tell, and a refusal would protect nobody: had it got the answers before the
//! cut, its cache would hold the same bytes. So such a read may also return what was allowed
//! before the loss, and says nothing about what is there now.

use std::collections::{BTreeMap, BTreeSet};

use cluster::ids::{ClientId, Epoch, Incarnation, RequestId};

pub type Host = (ClientId, Incarnation);

/// The values of each data piece.
type Allowed = Vec<BTreeSet<u64>>;

/// A read in progress.
#[derive(Clone, Default)]
struct Reading {
    /// What was allowed before losses that it has seen.
    earlier: Option<Allowed>,
    /// Anything was allowed before one of them.
    wild: bool,
}

#[derive(Clone)]
pub struct Block {
    allowed: Allowed,
    /// Anything is allowed.
    pub wild: bool,
    /// The write in progress.
    pub active: Option<(Host, Vec<u64>)>,
    /// The last acknowledged write, its number, and whether it is flushed.
    pub last: Option<(Host, Vec<u64>, u64)>,
    pub unflushed: bool,
    /// A writer died, and the region is not resynced since.
    torn: bool,
    /// While it was written or torn, a member was not in sync.
    degraded: bool,
    /// The last value read while `degraded`.
    seen: Option<(Epoch, Vec<u64>)>,
    readers: BTreeMap<(Host, RequestId), Reading>,
}

fn exactly(value: &[u64]) -> Allowed {
    value.iter().map(|&piece| BTreeSet::from([piece])).collect()
}

fn fits(allowed: &Allowed, value: &[u64]) -> bool {
    allowed.iter().zip(value).all(|(allowed, piece)| allowed.contains(piece))
}

impl Block {
    /// The content is about to change without a write.
    fn unsettle(&mut self) {
        for reading in self.readers.values_mut() {
            reading.wild |= self.wild || self.torn && self.degraded;
            let earlier = reading.earlier.get_or_insert_with(|| self.allowed.clone());
            for (earlier, allowed) in earlier.iter_mut().zip(&self.allowed) {
                earlier.extend(allowed);
            }
        }
    }
}

pub struct Oracle {
    pub blocks: Vec<Block>,
    /// Acknowledged writes.
    pub count: u64,
    /// Incarnations up to this one are fenced.
    pub fenced: BTreeMap<ClientId, Incarnation>,
}

impl Oracle {
    pub fn new(blocks: usize, pieces: usize) -> Oracle {
        let zero = vec![BTreeSet::from([0]); pieces];
        let block = Block {
            allowed: zero.clone(),
            wild: false,
            active: None,
            last: None,
            unflushed: false,
            torn: false,
            degraded: false,
            seen: None,
            readers: BTreeMap::new(),
        };
        Oracle { blocks: vec![block; blocks], count: 0, fenced: BTreeMap::new() }
    }

    pub fn is_fenced(&self, (client, incarnation): Host) -> bool {
        self.fenced.get(&client).is_some_and(|&upto| incarnation <= upto)
    }

    /// Locks the block for writing, if it is free.
    pub fn write(&mut self, host: Host, block: usize, value: &[u64], degraded: bool) -> bool {
        let found = &mut self.blocks[block];
        if found.active.is_some() || !found.readers.is_empty() {
            return false;
        }
        found.active = Some((host, value.to_vec()));
        found.degraded |= degraded;
        true
    }

    pub fn written(&mut self, host: Host, block: usize) {
        self.count += 1;
        let number = self.count;
        let found = &mut self.blocks[block];
        let Some((writer, value)) = found.active.take() else { return };
        assert_eq!(writer, host, "the lock belongs to the writer");
        found.allowed = exactly(&value);
        (found.wild, found.torn, found.degraded, found.seen) = (false, false, false, None);
        found.last = Some((host, value, number));
        found.unflushed = true;
    }

    pub fn read(&mut self, host: Host, id: RequestId, block: usize) -> bool {
        let found = &mut self.blocks[block];
        if found.active.is_some() {
            return false;
        }
        found.readers.insert((host, id), Reading::default());
        true
    }

    /// Ends a read. Returns whether the block was torn, or why the value is wrong.
    pub fn check(
        &mut self,
        (host, id): (Host, RequestId),
        block: usize,
        value: &[u64],
        epoch: Epoch,
    ) -> Result<bool, String> {
        let found = &mut self.blocks[block];
        let reading = found.readers.remove(&(host, id)).unwrap_or_default();
        let torn = found.torn;
        if let Some(mut earlier) = reading.earlier {
            let now = earlier.iter_mut().zip(&found.allowed);
            now.for_each(|(earlier, allowed)| earlier.extend(allowed));
            let wild = reading.wild || found.wild || found.torn && found.degraded;
            if !wild && !fits(&earlier, value) {
                return Err(format!("I3: block {block} reads {value:x?}, allowed {earlier:x?}"));
            }
            return Ok(torn);
        }
        if found.torn && found.degraded {
            if let Some((at, seen)) = &found.seen
                && *at == epoch
                && seen != value
            {
                return Err(format!("I10: block {block} reads {value:x?} after {seen:x?}"));
            }
            found.seen = Some((epoch, value.to_vec()));
            return Ok(true);
        }
        if !found.wild && !fits(&found.allowed, value) {
            let allowed = &found.allowed;
            return Err(format!("I3: block {block} reads {value:x?}, allowed {allowed:x?}"));
        }
        // A value that was read stays.
        found.allowed = exactly(value);
        found.wild = false;
        Ok(torn)
    }

    /// Blocks that a flush of this host covers, with their value.
    pub fn flushed(&mut self, host: Host, before: u64) -> Vec<(usize, Vec<u64>)> {
        let mut covered = Vec::new();
        for (index, block) in self.blocks.iter_mut().enumerate() {
            let Some((writer, value, number)) = &block.last else { continue };
            if *writer != host || *number > before || block.active.is_some() || !block.unflushed {
                continue;
            }
            block.unflushed = false;
            block.wild = false;
            block.allowed = exactly(value);
            covered.push((index, value.clone()));
        }
        covered
    }

    /// A flush of this host failed: what it covers is not promised.
    pub fn loss_reported(&mut self, host: Host, before: u64) {
        for block in &mut self.blocks {
            let covered =
                |(writer, _, number): &(Host, Vec<u64>, u64)| *writer == host && *number <= before;
            block.unflushed &= !block.last.as_ref().is_some_and(covered);
        }
    }

    /// The client is fenced: its locks are broken.
    pub fn evicted(&mut self, client: ClientId, upto: Incarnation) {
        let entry = self.fenced.entry(client).or_default();
        *entry = (*entry).max(upto);
        let dead = |(id, incarnation): Host| id == client && incarnation <= upto;
        for block in &mut self.blocks {
            block.readers.retain(|&(host, _), _| !dead(host));
            if let Some((_, value)) = block.active.take_if(|(host, _)| dead(*host)) {
                // It may have replaced the last one.
                (block.torn, block.unflushed, block.last) = (true, false, None);
                for (allowed, piece) in block.allowed.iter_mut().zip(value) {
                    allowed.insert(piece);
                }
            }
        }
    }

    /// A member left the set in sync; `lost`: its unflushed writes are lost for good.
    pub fn member_lost(&mut self, lost: bool) {
        for block in &mut self.blocks {
            let open = block.active.is_some() || block.torn;
            if open || lost && block.unflushed {
                block.unsettle();
                block.degraded |= open;
                block.wild |= lost;
            }
        }
    }

    /// The region of these blocks was resynced.
    pub fn resynced(&mut self, blocks: std::ops::Range<u64>) {
        for block in &mut self.blocks[blocks.start as usize..blocks.end as usize] {
            if block.torn && block.active.is_none() {
                if block.degraded {
                    block.unsettle();
                }
                block.wild |= block.degraded;
                (block.torn, block.degraded, block.seen) = (false, false, None);
            }
        }
    }
}

/// Client 1 writes 5; client 2 begins to read; the write is lost; client 3 reads 0.
fn read_across_a_loss() -> (Oracle, (Host, RequestId)) {
    let host = |client| (ClientId(client), Incarnation(1));
    let mut oracle = Oracle::new(1, 1);
    assert!(oracle.write(host(1), 0, &[5], false));
    oracle.written(host(1), 0);
    assert!(oracle.read(host(2), RequestId(1), 0));
    oracle.member_lost(true);
    assert!(oracle.read(host(3), RequestId(2), 0));
    oracle.check((host(3), RequestId(2)), 0, &[0], Epoch(2)).expect("the write may be lost");
    (oracle, (host(2), RequestId(1)))
}

#[test]
fn a_read_may_return_what_a_loss_has_replaced_meanwhile() {
    for (value, legal) in [(5, true), (0, true), (7, false)] {
        let (mut oracle, reader) = read_across_a_loss();
        let verdict = oracle.check(reader, 0, &[value], Epoch(1));
        assert_eq!(verdict.is_ok(), legal, "{value}: {verdict:?}");
    }
    let (mut oracle, reader) = read_across_a_loss();
    oracle.check(reader, 0, &[5], Epoch(1)).expect("it was read before the loss");
    let later = (reader.0, RequestId(3));
    assert!(oracle.read(later.0, later.1, 0));
    assert!(oracle.check(later, 0, &[5], Epoch(2)).is_err(), "a later read sees what was seen");
}
