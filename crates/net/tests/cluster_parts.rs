//! Clients that read and write any range: parts of blocks, from one host and from two.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs)]

#[allow(dead_code)]
#[path = "cluster/rig.rs"]
mod rig;

use cluster::config::{Level, Mode};
use io::{Disk, Op, Pool, Work};
use rig::{BLOCK, Rig};

/// A byte that differs between rounds and between places.
fn pattern(round: usize, place: usize) -> u8 {
    (round * 31 + place * 7 + 1) as u8
}

/// In mode shared, holders of a region would replace each other's parts of a block.
#[test]
fn exports_of_mode_exclusive_alone_take_parts_of_blocks() {
    for (mode, block) in [(Mode::Shared, 4096), (Mode::Exclusive, 1)] {
        let rig = Rig::with(Level::Fragments, mode);
        let limits = rig.client(1, &rig.coordinator()).limits();
        assert_eq!((limits.logical_block, limits.physical_block), (block, 4096));
    }
}

/// Unaligned writes, zeros and reads, within blocks and across the edges of blocks and stripes.
#[test]
fn ranges_are_bytes_of_a_plain_array() {
    [Level::Fragments, Level::Raid5].into_iter().for_each(compare);
}

fn compare(level: Level) {
    let rig = Rig::with(level, Mode::Exclusive);
    let disk = rig.client(1, &rig.coordinator());
    let mut plain = vec![0; 8 * BLOCK];
    let starts = [0, 1, 511, 512, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK - 7];
    let lengths = [1, 2, 512, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 4 * BLOCK + 5];
    let ranges = starts.into_iter().flat_map(|at| lengths.map(|length| at..at + length));
    for (round, range) in ranges.enumerate() {
        let at = range.start as u64;
        if round % 3 == 2 {
            plain[range.clone()].fill(0);
            let (len, unmap, fast) = (range.len() as u64, false, false);
            rig.run(&disk, Op::new(at, Work::Zero { len, unmap, fast }));
        } else {
            range.clone().for_each(|place| plain[place] = pattern(round, place));
            rig.run(&disk, Op::write(at, Pool::new(0).copy_of(&plain[range.clone()]).freeze()));
        }
        let around = range.start.saturating_sub(round % 5)..range.end + round % 7;
        let op = Op::read(around.start as u64, Pool::new(0).take(around.len()));
        assert!(rig.run(&disk, op).into_buf()[..] == plain[around], "{level:?} {range:?}");
    }
    let whole = rig.run(&disk, Op::read(0, Pool::new(0).take(plain.len()))).into_buf();
    assert!(whole[..] == plain, "{level:?}");
}

/// In each round two hosts write halves of one block at once.
#[test]
fn parts_of_a_block_that_two_hosts_write_at_once_survive() {
    [Level::Fragments, Level::Mirror, Level::Raid5].into_iter().for_each(share_blocks);
}

fn share_blocks(level: Level) {
    let rig = Rig::with(level, Mode::Exclusive);
    let coordinator = rig.coordinator();
    let disks = [rig.client(1, &coordinator), rig.client(2, &coordinator)];
    for round in 0..20 {
        let block = round % 3 * BLOCK;
        let half = |host: usize| [pattern(round, host); BLOCK / 2];
        let write = |host: usize| {
            let content = Pool::new(0).copy_of(&half(host)).freeze();
            disks[host].submit(Op::write((block + host * BLOCK / 2) as u64, content))
        };
        let mut answers = Vec::from([write(round % 2), write(1 - round % 2)]);
        rig.until(|| {
            answers.retain_mut(|answer| {
                let done = answer.take_ready();
                done.is_none_or(|done| done.result.is_err())
            });
            answers.is_empty()
        });
        let op = Op::read(block as u64, Pool::new(0).take(BLOCK));
        let content = rig.run(&disks[round % 2], op).into_buf();
        let fits = content[..] == [half(0), half(1)].concat();
        assert!(fits, "{level:?}, round {round}");
    }
}
