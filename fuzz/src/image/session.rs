//! One session: an array is assembled, used, and left.
//!
//! All writes go through the model, and the story compares all reads with it. Here only the rules
//! of single requests are checked.

use array::{Array, Host};
use io::{Disk, ErrorKind, Op, Pool, Work};
use metadata::assemble::Assembly;

use super::model::{INVENTED, Model, Reading, SECTOR, pattern, tag_of};
use super::world::World;
use crate::Trail;
use crate::choice::Choices;
use crate::trail::tell;

/// Bytes read at once; where that fails, sector by sector.
const PIECE: u64 = 16 << 10;
/// An array that lies about its size is not read to its end.
const MOST_BYTES: u64 = 4 << 20;

/// An array in use.
pub(super) struct Session {
    world: World,
    array: Array,
    pool: Pool,
    /// Bytes that are looked at.
    pub(super) bytes: u64,
}

impl Session {
    pub(super) fn start(world: &World, assembly: Assembly, shards: usize) -> Session {
        let mut host = Host::new(world.clock());
        host.bounds.unit_bytes = 32 << 10;
        host.bounds.scratch_bytes = 1 << 20;
        host.bounds.ahead_bytes = 64 << 10;
        host.bounds.checkpoint_bytes = 64 << 10;
        host.shards = shards;
        let array = Array::start(assembly, &host);
        let bytes = array.limits().bytes.min(MOST_BYTES) / SECTOR * SECTOR;
        Session { world: world.clone(), array, pool: Pool::new(1 << 20), bytes }
    }

    /// Everything that can be read.
    pub(super) fn read(&self) -> Reading {
        let mut tags = Vec::new();
        let mut at = 0;
        while at < self.bytes {
            let len = PIECE.min(self.bytes - at);
            match self.read_at(at, len) {
                Some(found) => tags.extend(found.into_iter().map(Some)),
                None => {
                    for sector in (at..at + len).step_by(SECTOR as usize) {
                        tags.push(self.read_at(sector, SECTOR).map(|found| found[0]));
                    }
                }
            }
            at += len;
        }
        Reading { tags }
    }

    fn read_at(&self, offset: u64, len: u64) -> Option<Vec<u32>> {
        let op = Op::read(offset, self.pool.take(len as usize));
        let done = self.world.run(&self.array, self.array.submit(op));
        if let Err(error) = &done.result {
            let honest = matches!(error.kind(), ErrorKind::Medium { .. } | ErrorKind::Gone);
            assert!(honest || error.kind() == ErrorKind::Timeout, "a read within fails: {error}");
            return None;
        }
        let bytes = done.into_buf();
        let sectors = (offset..).step_by(SECTOR as usize).zip(bytes.chunks(SECTOR as usize));
        Some(sectors.map(|(at, sector)| tag_of(at, sector)).collect())
    }

    /// Requests as chosen, each waited for.
    pub(super) fn requests(
        &self,
        choices: &mut Choices<'_>,
        model: &mut Model,
        tag: &mut u32,
        trail: &mut Trail,
    ) {
        for _ in 0..choices.below(12) {
            let kind = choices.below(8);
            let (offset, len) = self.place(choices);
            if len == 0 {
                continue;
            }
            *tag += 1;
            let (op, leaves) = match kind {
                0..=3 => {
                    let bytes = self.pool.copy_of(&pattern(*tag, offset, len));
                    (Op::write(offset, bytes.freeze()), Some(*tag))
                }
                4 => (
                    Op::new(offset, Work::Zero { len, unmap: len % 1024 == 0, fast: false }),
                    Some(0),
                ),
                5 => (Op::new(offset, Work::Discard { len }), None),
                6 => (Op::flush(), None),
                _ => {
                    self.absurd(choices);
                    continue;
                }
            };
            let discards = matches!(op.work, Work::Discard { .. });
            let op = if kind == 1 { op.with_fua() } else { op };
            let done = self.world.run(&self.array, self.array.submit(op));
            trail.note((kind, done.result.is_ok()));
            let tag = *tag;
            tell(|| format!("write {tag}: {len} bytes at {offset}: {:?}", done.result));
            match leaves {
                Some(tag) if done.result.is_ok() => model.written(offset, len, tag),
                Some(tag) => model.attempted(offset, len, tag),
                // Old or zeros; where the array promises zeros, the promise is not relied on here.
                None if discards => model.attempted(offset, len, 0),
                None => {}
            }
        }
    }

    /// Writes abandoned after this many polls: their effect is unknown.
    pub(super) fn cut_off(&self, choices: &mut Choices<'_>, model: &mut Model, tag: &mut u32) {
        let mut answers = Vec::new();
        for _ in 0..choices.below(4) {
            let (offset, len) = self.place(choices);
            if len == 0 {
                continue;
            }
            *tag += 1;
            let bytes = self.pool.copy_of(&pattern(*tag, offset, len));
            model.attempted(offset, len, *tag);
            answers.push(self.array.submit(Op::write(offset, bytes.freeze())));
        }
        let polls = u32::from(choices.byte() % 32);
        self.world.run_for(polls, &self.array, std::future::pending::<()>());
    }

    fn place(&self, choices: &mut Choices<'_>) -> (u64, u64) {
        let sectors = self.bytes / SECTOR;
        if sectors == 0 {
            return (0, 0);
        }
        let first = (u64::from(choices.byte()) << 8 | u64::from(choices.byte())) % sectors;
        let count = choices.pick(&[1, 8, 16, 3, 128, 24, 64, 7]).min(sectors - first);
        (first * SECTOR, count * SECTOR)
    }

    /// Requests that no array can carry out must be refused, and change nothing.
    fn absurd(&self, choices: &mut Choices<'_>) {
        let end = self.array.limits().bytes;
        let offset = choices.pick(&[end, u64::MAX - 511, 1, end - end.min(512)]);
        let len = choices.pick(&[1024_u64, 1, 513, u64::MAX - 511]);
        let work = match choices.below(3) {
            0 if len <= 1024 => Work::Read(vec![self.pool.take(len as usize)]),
            1 => Work::Discard { len },
            _ => Work::Zero { len, unmap: true, fast: false },
        };
        let done = self.world.run(&self.array, self.array.submit(Op::new(offset, work)));
        assert!(done.result.is_err(), "{len} bytes at {offset} of {end}");
    }

    /// Whether any unwritten content is found.
    pub(super) fn invented(reading: &Reading) -> bool {
        reading.tags.contains(&Some(INVENTED))
    }

    /// Stops it; true if it could be marked clean.
    pub(super) fn stop(self) -> bool {
        self.world.run(&self.array, self.array.stop()).is_ok()
    }
}
