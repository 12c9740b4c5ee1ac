//! A member's disk with a volatile cache. Pieces are 8 bytes: one sector each, so they never tear.

use std::collections::{BTreeMap, BTreeSet};

use cluster::member::IoId;
use cluster::message::{Io, Stamp};

use random::Rng;

#[derive(Default)]
pub struct Medium {
    durable: BTreeMap<u64, u64>,
    /// Writes that no flush covers, in order, with the number of the first.
    cache: Vec<(u64, u64)>,
    first: usize,
    /// Requests in execution; of a flush, the number of writes that it covers.
    running: BTreeMap<IoId, (Stamp, Io, usize)>,
    /// Blocks whose last write was lost in a restart.
    pub lost: BTreeSet<u64>,
}

pub fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("pieces have 8 bytes"))
}

/// The pieces of a write, with their blocks.
fn pieces(block: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    (block..).zip(bytes.chunks(8).map(number))
}

impl Medium {
    /// So many blocks of garbage.
    pub fn garbage(rng: &mut Rng, blocks: u64) -> Medium {
        let durable = (0..blocks).map(|block| (block, rng.below(u64::MAX))).collect();
        Medium { durable, ..Medium::default() }
    }

    pub fn begin(&mut self, io: IoId, stamp: Stamp, request: Io) {
        self.running.insert(io, (stamp, request, self.first + self.cache.len()));
    }

    /// What a read returns.
    pub fn view(&self, block: u64) -> u64 {
        let cached = self.cache.iter().rev().find(|(of, _)| *of == block);
        cached.map_or(self.after_crash(block), |(_, value)| *value)
    }

    /// What a read returns if the cache is lost.
    pub fn after_crash(&self, block: u64) -> u64 {
        self.durable.get(&block).copied().unwrap_or(0)
    }

    /// The request, which takes effect now; the bytes of a read.
    pub fn end(&mut self, io: IoId) -> Option<(Stamp, Io, Vec<u8>)> {
        let (stamp, request, covers) = self.running.remove(&io)?;
        let mut bytes = Vec::new();
        match &request {
            Io::Read(block, count) => {
                let blocks = *block..*block + u64::from(*count);
                bytes = blocks.flat_map(|block| self.view(block).to_le_bytes()).collect();
            }
            Io::Write(block, bytes) => {
                pieces(*block, bytes).for_each(|(block, value)| self.write(block, value));
            }
            Io::Flush => {
                let count = covers.saturating_sub(self.first).min(self.cache.len());
                for (block, value) in self.cache.drain(..count) {
                    self.durable.insert(block, value);
                }
                self.first += count;
            }
            Io::Check => {}
        }
        Some((stamp, request, bytes))
    }

    fn write(&mut self, block: u64, value: u64) {
        self.cache.push((block, value));
        self.lost.remove(&block);
    }

    /// The process or the power fails: each cached write survives or not. True if one is lost.
    pub fn crash(&mut self, rng: &mut Rng) -> bool {
        let running = std::mem::take(&mut self.running);
        for (_, request, _) in running.into_values() {
            let Io::Write(block, bytes) = request else { continue };
            // Each piece for itself.
            for (block, value) in pieces(block, &bytes) {
                if rng.percent(50) {
                    self.write(block, value);
                }
            }
        }
        let keep = rng.pick(&[0, 50, 90, 100]);
        let before = std::mem::take(&mut self.cache);
        self.first += before.len();
        let mut any = false;
        for (block, value) in before {
            if rng.percent(keep) {
                self.durable.insert(block, value);
                self.lost.remove(&block);
            } else {
                self.lost.insert(block);
                any = true;
            }
        }
        any
    }
}
