//! The list against a set of sectors kept one by one, and the log against md's rules.

use super::*;
use alloc::collections::BTreeSet;

fn log(entries: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
    bytes.resize(4096, 0xff);
    bytes
}

fn entry(start: u64, length: u64) -> u64 {
    start << 10 | length
}

#[test]
fn a_log_the_kernel_wrote_is_not_sorted() {
    let found = BadBlocks::parse(&log(&[entry(70512, 8), entry(70000, 16)]), 0).unwrap();
    assert_eq!(found.refused, []);
    assert_eq!(found.blocks.ranges(), [70000..70016, 70512..70520]);
    let printed = found.blocks.print(0, 8).unwrap();
    assert_eq!(printed, log(&[entry(70000, 16), entry(70512, 8)]));
}

#[test]
fn an_entry_of_length_zero_is_refused_by_name_and_the_rest_is_kept() {
    let bytes = log(&[entry(100, 1), entry(200, 0), entry(300, 2)]);
    let found = BadBlocks::parse(&bytes, 0).unwrap();
    assert_eq!(found.blocks.ranges(), [100..101, 300..302]);
    let [refused] = found.refused[..] else { panic!("{:?}", found.refused) };
    assert_eq!((refused.offset, refused.value), (8, 200 << 10));
    assert!(matches!(refused.fault, Fault::Refused(why) if why.contains("zero")));
}

#[test]
fn the_first_unused_entry_ends_the_log() {
    let found = BadBlocks::parse(&log(&[entry(1, 1), UNUSED, entry(5, 1)]), 0).unwrap();
    assert_eq!(found.blocks.ranges(), core::slice::from_ref(&(1..2)));
    assert!(BadBlocks::parse(&log(&[]), 0).unwrap().blocks.is_empty());
}

#[test]
fn a_shift_counts_in_larger_units() {
    let found = BadBlocks::parse(&log(&[entry(10, 2)]), 3).unwrap();
    assert_eq!(found.blocks.ranges(), core::slice::from_ref(&(80..96)));
    let mut blocks = BadBlocks::default();
    blocks.add(81..82);
    blocks.add(95..97);
    assert_eq!(blocks.print(3, 8).unwrap(), log(&[entry(10, 3)]), "rounded outwards");
    let far = BadBlocks::parse(&log(&[entry(1 << 53, 1)]), 1).unwrap();
    assert_eq!((far.blocks.is_empty(), far.refused.len()), (true, 1));
}

#[test]
fn long_ranges_are_split_and_a_full_log_says_so() {
    let mut blocks = BadBlocks::default();
    blocks.add(1000..1000 + 512 + 1);
    assert_eq!(blocks.print(0, 8).unwrap(), log(&[entry(1000, 512), entry(1512, 1)]));
    assert_eq!(blocks.print(0, 0), Err(LogFull { needed: 2, room: 0 }));
    let mut many = BadBlocks::default();
    (0..513).for_each(|index| many.add(index * 10..index * 10 + 1));
    assert_eq!(many.print(0, 8), Err(LogFull { needed: 513, room: 512 }));
    many.remove(0..1);
    let printed = many.print(0, 8).unwrap();
    assert_eq!(BadBlocks::parse(&printed, 0).unwrap().blocks, many);
}

#[test]
fn lengths_and_shifts_that_cannot_be_are_errors() {
    assert_eq!(BadBlocks::parse(&[0xff; 4104], 0).unwrap_err().field, "length");
    assert_eq!(BadBlocks::parse(&[0xff; 12], 0).unwrap_err().field, "entry");
    assert_eq!(BadBlocks::parse(&[0xff; 8], 41).unwrap_err().field, "bblog_shift");
}

#[test]
fn the_list_agrees_with_a_set_of_sectors() {
    let mut state = 0x0123_4567_89ab_cdef_u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for _ in 0..200 {
        let (mut blocks, mut set) = (BadBlocks::default(), BTreeSet::new());
        for _ in 0..60 {
            let start = random(200);
            let sectors = start..start + random(12);
            match random(3) {
                0 => {
                    blocks.remove(sectors.clone());
                    set.retain(|sector| !sectors.contains(sector));
                }
                _ => {
                    blocks.add(sectors.clone());
                    set.extend(sectors);
                }
            }
            assert_agree(&blocks, &set);
        }
        let start = random(200);
        let sectors = start..start + random(30);
        let within: Vec<u64> = blocks.within(sectors.clone()).flatten().collect();
        assert_eq!(within, set.range(sectors.clone()).copied().collect::<Vec<_>>());
        assert_eq!(blocks.touch(sectors), !within.is_empty());
        let printed = blocks.print(0, 8).unwrap();
        assert_eq!(BadBlocks::parse(&printed, 0).unwrap().blocks, blocks);
    }
}

fn assert_agree(blocks: &BadBlocks, set: &BTreeSet<u64>) {
    let listed: Vec<u64> = blocks.ranges().iter().cloned().flatten().collect();
    assert_eq!(listed, set.iter().copied().collect::<Vec<_>>());
    let pairs = blocks.ranges().windows(2);
    pairs.for_each(|pair| assert!(pair[0].end < pair[1].start, "{:?} touch", blocks.ranges()));
    assert!(blocks.ranges().iter().all(|range| !range.is_empty()));
}

#[test]
fn noise_never_panics() {
    let mut state = 0xfeed_f00d_dead_beef_u64;
    for round in 0..2000 {
        let bytes: Vec<u8> = (0..64)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        let found = BadBlocks::parse(&bytes, (round % 41) as u8).unwrap();
        assert!(found.blocks.ranges().len() + found.refused.len() <= 8);
    }
}
