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

use std::collections::{BTreeMap, BTreeSet};

use cluster::ids::{ClientId, Epoch, Incarnation};

pub type Host = (ClientId, Incarnation);

#[derive(Clone)]
pub struct Block {
    /// Of each data piece.
    allowed: Vec<BTreeSet<u64>>,
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
    readers: BTreeMap<Host, usize>,
}

fn exactly(value: &[u64]) -> Vec<BTreeSet<u64>> {
    value.iter().map(|&piece| BTreeSet::from([piece])).collect()
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

    pub fn read(&mut self, host: Host, block: usize) -> bool {
        let found = &mut self.blocks[block];
        if found.active.is_some() {
            return false;
        }
        *found.readers.entry(host).or_default() += 1;
        true
    }

    /// Ends a read. Returns whether the block was torn, or why the value is wrong.
    pub fn check(
        &mut self,
        host: Host,
        block: usize,
        value: &[u64],
        epoch: Epoch,
    ) -> Result<bool, String> {
        let found = &mut self.blocks[block];
        if let Some(count) = found.readers.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                found.readers.remove(&host);
            }
        }
        let torn = found.torn;
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
        let fits = found.allowed.iter().zip(value).all(|(allowed, piece)| allowed.contains(piece));
        if !fits && !found.wild {
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
            block.readers.retain(|&host, _| !dead(host));
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
            block.degraded |= block.active.is_some() || block.torn;
            if lost && (block.unflushed || block.torn || block.active.is_some()) {
                block.wild = true;
            }
        }
    }

    /// The region of these blocks was resynced.
    pub fn resynced(&mut self, blocks: std::ops::Range<u64>) {
        for block in &mut self.blocks[blocks.start as usize..blocks.end as usize] {
            if block.torn && block.active.is_none() {
                block.wild |= block.degraded;
                (block.torn, block.degraded, block.seen) = (false, false, None);
            }
        }
    }
}
