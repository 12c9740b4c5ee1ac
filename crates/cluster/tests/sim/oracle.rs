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
//! A loss takes effect when the epoch that it begins opens. A client of an earlier epoch may still
//! get answers of before, or have got them long ago:
//!
//! ```text
//!   read begins ─ members answer ─ power cut, the write is lost ─ the client gets the answers
//!                 new              old                            new: legal, it was read before
//! ```
//!
//! The client cannot tell, and a refusal would protect nobody: had it got the answers before the
//! cut, its cache would hold the same bytes. So the oracle keeps what earlier epochs see, until a
//! read has seen the new content: reads that begin after that one must agree with it.

use std::collections::{BTreeMap, BTreeSet};

use cluster::ids::{ClientId, Epoch, Incarnation, RequestId};

pub type Host = (ClientId, Incarnation);

/// The values of each data piece.
type Allowed = Vec<BTreeSet<u64>>;

/// The content of a block as clients of epochs below this one see it.
#[derive(Clone)]
struct Before {
    epoch: Epoch,
    allowed: Allowed,
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
    /// What earlier epochs see, while nobody has seen the content of the last loss.
    before: Option<Before>,
    /// Reads in progress; what earlier epochs saw, if a later read has seen more.
    readers: BTreeMap<(Host, RequestId), Vec<Before>>,
}

fn exactly(value: &[u64]) -> Allowed {
    value.iter().map(|&piece| BTreeSet::from([piece])).collect()
}

fn fits(allowed: &Allowed, value: &[u64]) -> bool {
    allowed.iter().zip(value).all(|(allowed, piece)| allowed.contains(piece))
}

impl Block {
    /// From this epoch on the content may be another one without a write.
    fn unsettle(&mut self, epoch: Epoch) {
        let (now, wild) = (self.allowed.clone(), self.wild || self.degraded);
        let fresh = Before { epoch, allowed: now.clone(), wild };
        let before = self.before.get_or_insert(fresh);
        (before.epoch, before.wild) = (epoch, before.wild || wild);
        before.allowed.iter_mut().zip(now).for_each(|(before, now)| before.extend(now));
    }

    /// A read has seen the new content.
    fn settle(&mut self) {
        if let Some(before) = self.before.take() {
            self.readers.values_mut().for_each(|reader| reader.push(before.clone()));
        }
    }
}

pub struct Oracle {
    pub blocks: Vec<Block>,
    /// Acknowledged writes.
    pub count: u64,
    /// Incarnations up to this one are fenced.
    pub fenced: BTreeMap<ClientId, Incarnation>,
    /// The last epoch that began with a loss of unflushed writes.
    lost: Epoch,
    /// A stripe has several blocks: writes are durable when they are acknowledged, and a block is
    /// read from its member or not at all.
    striped: bool,
}

impl Oracle {
    pub fn new(blocks: usize, pieces: usize, striped: bool) -> Oracle {
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
            before: None,
            readers: BTreeMap::new(),
        };
        let blocks = vec![block; blocks];
        Oracle { blocks, count: 0, fenced: BTreeMap::new(), lost: Epoch(0), striped }
    }

    pub fn is_fenced(&self, (client, incarnation): Host) -> bool {
        self.fenced.get(&client).is_some_and(|&upto| incarnation <= upto)
    }

    /// True if a write can lock the block.
    pub fn is_free(&self, block: usize) -> bool {
        self.blocks[block].active.is_none() && self.blocks[block].readers.is_empty()
    }

    /// Locks the block for writing, if it is free.
    pub fn write(&mut self, host: Host, block: usize, value: &[u64], degraded: bool) -> bool {
        let free = self.is_free(block);
        if free {
            let found = &mut self.blocks[block];
            found.active = Some((host, value.to_vec()));
            found.degraded |= degraded && !self.striped;
        }
        free
    }

    /// The write was refused: nothing of it may ever be seen.
    pub fn write_refused(&mut self, host: Host, block: usize) {
        let active = self.blocks[block].active.take();
        assert_eq!(active.map(|(writer, _)| writer), Some(host), "the lock belongs to the writer");
    }

    /// The read was refused.
    pub fn read_refused(&mut self, reader: (Host, RequestId), block: usize) {
        self.blocks[block].readers.remove(&reader);
    }

    /// An operator accepts that the block may be garbage, from this epoch on.
    pub fn accepted(&mut self, block: usize, epoch: Epoch) {
        let found = &mut self.blocks[block];
        found.unsettle(epoch);
        (found.wild, found.last, found.unflushed) = (true, None, false);
    }

    /// The write is acknowledged, in this epoch of the writer.
    pub fn written(&mut self, host: Host, block: usize, epoch: Epoch) {
        self.count += 1;
        let number = self.count;
        let found = &mut self.blocks[block];
        let Some((writer, value)) = found.active.take() else { return };
        assert_eq!(writer, host, "the lock belongs to the writer");
        found.allowed = exactly(&value);
        (found.wild, found.torn, found.degraded, found.seen) = (false, false, false, None);
        found.before = None;
        // Members answered before too many of them restarted.
        if epoch < self.lost && !self.striped {
            found.unsettle(self.lost);
            found.wild = true;
        }
        found.last = Some((host, value, number));
        found.unflushed = true;
    }

    pub fn read(&mut self, host: Host, id: RequestId, block: usize) -> bool {
        let found = &mut self.blocks[block];
        if found.active.is_some() {
            return false;
        }
        found.readers.insert((host, id), Vec::new());
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
        let mut before = found.readers.remove(&(host, id)).unwrap_or_default();
        before.extend(found.before.clone());
        before.retain(|before| epoch < before.epoch);
        let torn = found.torn;
        if !before.is_empty() {
            if !before.iter().any(|before| before.wild || fits(&before.allowed, value)) {
                let allowed: Vec<&Allowed> = before.iter().map(|before| &before.allowed).collect();
                return Err(format!("I3: block {block} reads {value:x?}, before {allowed:x?}"));
            }
            return Ok(torn);
        }
        found.settle();
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
                let before = block.before.as_mut().map(|before| &mut before.allowed);
                for allowed in before.into_iter().chain([&mut block.allowed]) {
                    allowed.iter_mut().zip(&value).for_each(|(allowed, &piece)| {
                        allowed.insert(piece);
                    });
                }
            }
        }
    }

    /// A member leaves the set in sync with this epoch; `lost`: its unflushed writes are lost for
    /// good.
    pub fn member_lost(&mut self, epoch: Epoch, lost: bool) {
        if lost {
            self.lost = epoch;
        }
        for block in &mut self.blocks {
            let open = block.active.is_some() || block.torn;
            let loses = open && (lost || !self.striped) || lost && block.unflushed && !self.striped;
            if loses {
                block.unsettle(epoch);
                block.degraded |= open && !self.striped;
                block.wild |= lost;
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

const EPOCHS: [Epoch; 2] = [Epoch(1), Epoch(2)];

fn host(client: u32) -> Host {
    (ClientId(client), Incarnation(1))
}

fn read(oracle: &mut Oracle, client: u32, value: u64, epoch: Epoch) -> Result<bool, String> {
    let reader = (host(client), RequestId(9));
    assert!(oracle.read(reader.0, reader.1, 0));
    oracle.check(reader, 0, &[value], epoch)
}

/// Client 1 writes 5; client 2 begins to read; the write is lost; client 3 reads 0.
fn read_across_a_loss() -> (Oracle, (Host, RequestId)) {
    let mut oracle = Oracle::new(1, 1, false);
    assert!(oracle.write(host(1), 0, &[5], false));
    oracle.written(host(1), 0, EPOCHS[0]);
    let reader = (host(2), RequestId(1));
    assert!(oracle.read(reader.0, reader.1, 0));
    oracle.member_lost(EPOCHS[1], true);
    read(&mut oracle, 3, 0, EPOCHS[1]).expect("the write may be lost");
    (oracle, reader)
}

#[test]
fn a_read_of_an_earlier_epoch_returns_what_was_there_before_a_loss() {
    for (value, epoch, legal) in
        [(5, 0, true), (0, 0, false), (7, 0, false), (0, 1, true), (5, 1, false)]
    {
        let (mut oracle, reader) = read_across_a_loss();
        let verdict = oracle.check(reader, 0, &[value], EPOCHS[epoch]);
        assert_eq!(verdict.is_ok(), legal, "{value} in {epoch}: {verdict:?}");
    }
    let (mut oracle, reader) = read_across_a_loss();
    oracle.check(reader, 0, &[5], EPOCHS[0]).expect("it was read before the loss");
    for epoch in EPOCHS {
        read(&mut oracle, 2, 5, epoch).expect_err("a later read returns the same value");
        read(&mut oracle, 2, 0, epoch).expect("the value of the earlier read");
    }
}

/// All members of an earlier epoch answer after a decision that began with a loss.
#[test]
fn a_late_write_is_seen_by_its_epoch_and_may_be_lost_with_it() {
    let mut oracle = Oracle::new(1, 1, false);
    assert!(oracle.write(host(1), 0, &[5], false));
    oracle.member_lost(EPOCHS[1], true);
    oracle.written(host(1), 0, EPOCHS[0]);
    read(&mut oracle, 1, 7, EPOCHS[0]).expect_err("no client wrote this value");
    read(&mut oracle, 1, 5, EPOCHS[0]).expect("acknowledged");
    read(&mut oracle, 2, 7, EPOCHS[1]).expect("anything: the next flush reports it");
    read(&mut oracle, 3, 5, EPOCHS[1]).expect_err("a value that was read stays");
}
