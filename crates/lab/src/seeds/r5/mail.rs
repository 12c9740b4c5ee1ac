//! bonnie++'s small files on a journalling file system, as an array sees them.

use std::rc::Rc;
use std::time::Duration;

use io::{Clock, Disk, Op};

use crate::world::World;

const BLOCK: u64 = 4096;
const DIRECTORIES: u64 = 16;
const LEAST: u64 = 500;
const MOST: u64 = 25_000;
/// bonnie++ writes a file in such pieces; in the page cache they become one write.
const JOURNAL: u64 = 128 << 20;
/// Of a create: inode, its bitmap, the blocks' bitmap, group descriptor, directory; one more for
/// the journal's own descriptor. A delete changes the same ones.
const METADATA_BLOCKS: u64 = 6;
/// ext3 puts directories into groups of blocks far apart.
const GROUP: u64 = 128 << 20;

/// The load.
pub(super) struct Mail {
    world: World,
    clock: Rc<dyn Clock>,
    disk: Rc<dyn Disk>,
    /// Where data may lie, behind the journal, in bytes.
    zone: u64,
    /// The next byte of each directory's data.
    ends: [u64; DIRECTORIES as usize],
    journal: u64,
    random: u64,
}

/// Files in a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rates {
    pub(super) sequential_creates: f64,
    pub(super) random_creates: f64,
    pub(super) random_reads: f64,
    pub(super) random_deletes: f64,
}

impl Rates {
    pub(super) fn named(&self) -> [(&'static str, f64); 4] {
        [
            ("sequential creates", self.sequential_creates),
            ("random creates", self.random_creates),
            ("random reads", self.random_reads),
            ("random deletes", self.random_deletes),
        ]
    }
}

impl Mail {
    /// The load on a file system whose files take this many bytes in all.
    pub(super) fn new(world: &World, disk: Rc<dyn Disk>, bytes: u64) -> Mail {
        let zone = bytes.max(DIRECTORIES * GROUP) / DIRECTORIES;
        let ends =
            std::array::from_fn(|directory| JOURNAL + directory as u64 * zone / BLOCK * BLOCK);
        let (world, clock) = (world.clone(), world.dyn_clock());
        Mail { world, clock, disk, zone, ends, journal: 0, random: 1 }
    }

    /// Creates, reads and deletes this many files in each pass.
    pub(super) async fn run(mut self, files: u64) -> Rates {
        self.warm_up().await;
        let mut took = [Duration::ZERO; 4];
        for (pass, took) in took.iter_mut().enumerate() {
            let start = self.clock.now();
            for file in 0..files {
                match pass {
                    // Directories are filled one after the other, or in any order.
                    0 => self.create(file * DIRECTORIES / files).await,
                    1 => {
                        let directory = self.draw(DIRECTORIES);
                        self.create(directory).await;
                    }
                    2 => self.look_up().await,
                    _ => self.commit().await,
                }
            }
            *took = self.clock.now() - start;
        }
        let rate = |took: Duration| files as f64 / took.as_secs_f64();
        let [sequential_creates, random_creates, random_reads, random_deletes] = took.map(rate);
        Rates { sequential_creates, random_creates, random_reads, random_deletes }
    }

    /// The files were written before they are read: the engine knows their checksums. A page of
    /// these covers 2 MiB of a member.
    async fn warm_up(&self) {
        for at in (JOURNAL..JOURNAL + DIRECTORIES * self.zone).step_by(8 << 20) {
            self.read(at, 256).await;
        }
    }

    async fn create(&mut self, directory: u64) {
        let blocks = (LEAST + self.draw(MOST - LEAST + 1)).div_ceil(BLOCK);
        let end = &mut self.ends[directory as usize];
        let at = *end;
        *end += blocks * BLOCK;
        // Ordered mode: data first, then the transaction.
        self.write(at, blocks).await;
        self.commit().await;
    }

    /// A transaction of the journal, and its commit block when that is durable.
    async fn commit(&mut self) {
        let blocks = METADATA_BLOCKS + 1;
        if self.journal + blocks * BLOCK > JOURNAL {
            self.journal = 0;
        }
        let at = self.journal;
        self.journal += blocks * BLOCK;
        self.write(at, METADATA_BLOCKS).await;
        self.flush().await;
        self.write(at + METADATA_BLOCKS * BLOCK, 1).await;
        self.flush().await;
    }

    /// Reads a file anywhere: its inode, then its data.
    async fn look_up(&mut self) {
        let blocks = (LEAST + self.draw(MOST - LEAST + 1)).div_ceil(BLOCK);
        let inode = self.anywhere(1);
        self.read(inode, 1).await;
        let data = self.anywhere(blocks);
        self.read(data, blocks).await;
    }

    fn anywhere(&mut self, blocks: u64) -> u64 {
        let most = DIRECTORIES * self.zone / BLOCK - blocks;
        JOURNAL + self.draw(most) * BLOCK
    }

    async fn write(&self, at: u64, blocks: u64) {
        let mut buf = self.world.pool().take((blocks * BLOCK) as usize);
        buf.fill(0);
        self.send(Op::write(at, buf.freeze())).await;
    }

    async fn read(&self, at: u64, blocks: u64) {
        let buf = self.world.pool().take((blocks * BLOCK) as usize);
        self.send(Op::read(at, buf)).await;
    }

    async fn flush(&self) {
        self.send(Op::flush()).await;
    }

    async fn send(&self, op: Op) {
        let done = self.disk.submit(op).await;
        assert!(done.result.is_ok(), "a modelled disk does not fail unasked: {:?}", done.result);
    }

    fn draw(&mut self, below: u64) -> u64 {
        random::next(&mut self.random) % below
    }
}
