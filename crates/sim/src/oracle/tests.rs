//! Values that the oracle allows, and values that it does not.

use super::*;

fn bytes(oracle: &Oracle, write: Request) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    oracle.fill(write, &mut bytes);
    bytes
}

fn sees(oracle: &mut Oracle, bytes: &[u8]) -> bool {
    let read = oracle.read(0, 512);
    oracle.check(read, [bytes]).is_ok()
}

#[test]
fn the_last_acknowledged_write_is_read() {
    let mut oracle = Oracle::new(4096, true);
    assert!(sees(&mut oracle, &[0; 512]));
    let a = oracle.write(0, 512, Put::Pattern);
    let bytes = bytes(&oracle, a);
    assert!(sees(&mut oracle, &[0; 512]) && sees(&mut oracle, &bytes), "both, under way");
    assert!(sees(&mut oracle, &[0; 512]), "still under way");
    oracle.acknowledge(a, false);
    assert!(sees(&mut oracle, &bytes));
    assert!(!sees(&mut oracle, &[0; 512]), "superseded");
}

#[test]
fn a_read_may_see_the_content_at_its_start() {
    let mut oracle = Oracle::new(4096, true);
    let read = oracle.read(0, 512);
    let a = oracle.write(0, 512, Put::Pattern);
    oracle.acknowledge(a, false);
    assert!(oracle.check(read, [&[0; 512][..]]).is_ok());
    assert!(!sees(&mut oracle, &[0; 512]));
}

#[test]
fn overlapping_writes_end_in_any_order_and_reading_settles_it() {
    let mut oracle = Oracle::new(4096, true);
    let a = oracle.write(0, 512, Put::Pattern);
    let b = oracle.write(0, 512, Put::Pattern);
    let (in_a, in_b) = (bytes(&oracle, a), bytes(&oracle, b));
    oracle.acknowledge(b, false);
    oracle.acknowledge(a, false);
    assert!(!sees(&mut oracle, &[0; 512]));
    assert!(sees(&mut oracle, &in_b));
    assert!(!sees(&mut oracle, &in_a), "b was last: it stays so");
}

#[test]
fn a_crash_leaves_either_and_the_first_read_decides() {
    for first_old in [false, true] {
        let mut oracle = Oracle::new(4096, true);
        let a = oracle.write(0, 512, Put::Pattern);
        let new = bytes(&oracle, a);
        oracle.crash(Caches::Emptied);
        let (first, second): (&[u8], &[u8]) =
            if first_old { (&[0; 512], &new) } else { (&new, &[0; 512]) };
        assert!(sees(&mut oracle, first));
        assert!(!sees(&mut oracle, second));
        assert!(sees(&mut oracle, first));
    }
}

#[test]
fn torn_blocks_are_lost_to_reads_that_began_before_they_were_known_again() {
    let mut oracle = Oracle::new(4096, true);
    oracle.set_forgetful(true);
    oracle.write(0, 512, Put::Pattern);
    oracle.crash(Caches::Emptied);
    oracle.expose();
    let before = oracle.read(0, 512);
    let beside = oracle.read(512, 512);
    let new = oracle.write(0, 512, Put::Pattern);
    assert!(oracle.may_be_lost(before) && oracle.may_be_lost(beside), "the whole block is cut");
    oracle.acknowledge(new, false);
    let after = oracle.read(0, 512);
    assert!(oracle.may_be_lost(before) && !oracle.may_be_lost(after));
    assert!(!oracle.is_lost(0) && oracle.is_lost(1));
    assert_eq!(oracle.lost().collect::<Vec<_>>(), (1..8).collect::<Vec<_>>());
}

#[test]
fn a_rewritten_lost_block_is_lost_again_with_its_write() {
    for durable in [false, true] {
        let mut oracle = Oracle::new(4096, true);
        oracle.set_forgetful(true);
        oracle.write(0, 512, Put::Pattern);
        oracle.crash(Caches::Emptied);
        oracle.expose();
        assert!(oracle.is_lost(0));
        let new = oracle.write(0, 512, Put::Pattern);
        let bytes = bytes(&oracle, new);
        assert!(sees(&mut oracle, &bytes) && !oracle.is_lost(0), "it is in a cache");
        oracle.acknowledge(new, durable);
        oracle.crash(Caches::Kept);
        assert!(!oracle.is_lost(0));
        oracle.crash(Caches::Emptied);
        assert_eq!(oracle.is_lost(0), !durable);
    }
}

#[test]
fn the_unknown_becomes_known_when_it_is_read() {
    let mut oracle = Oracle::new(4096, false);
    assert!(sees(&mut oracle, &[7; 512]));
    assert!(!sees(&mut oracle, &[8; 512]));
    assert!(sees(&mut oracle, &[7; 512]));
}

#[test]
fn a_slow_read_of_unknown_content_fixes_nothing_if_overwritten_meanwhile() {
    let mut oracle = Oracle::new(4096, false);
    let slow = oracle.read(0, 512);
    let new = oracle.write(0, 512, Put::Pattern);
    let in_new = bytes(&oracle, new);
    oracle.acknowledge(new, true);
    assert!(oracle.check(slow, [&[7; 512][..]]).is_ok());
    assert!(!sees(&mut oracle, &[7; 512]));
    assert!(sees(&mut oracle, &in_new));
}

#[test]
fn discarded_content_may_be_in_a_cache_only() {
    for flushed in [false, true] {
        let mut oracle = Oracle::new(4096, true);
        oracle.set_forgetful(true);
        let a = oracle.write(0, 512, Put::Pattern);
        let in_a = bytes(&oracle, a);
        oracle.acknowledge(a, false);
        let discard = oracle.write(0, 512, Put::Anything);
        oracle.acknowledge(discard, true);
        assert!(sees(&mut oracle, &in_a));
        assert!(!sees(&mut oracle, &[0; 512]), "while the host lives");
        if flushed {
            let flush = oracle.flush();
            oracle.flushed(flush);
        }
        oracle.crash(Caches::Emptied);
        assert_eq!(sees(&mut oracle, &[0; 512]), !flushed, "the data before");
    }
}

#[test]
fn the_content_after_overlapping_discards_is_no_older_than_the_last() {
    let mut oracle = Oracle::new(4096, true);
    let first = oracle.write(0, 512, Put::Anything);
    let a = oracle.write(0, 512, Put::Pattern);
    let in_a = bytes(&oracle, a);
    oracle.acknowledge(a, false);
    let second = oracle.write(0, 512, Put::Anything);
    oracle.acknowledge(first, false);
    let before = oracle.read(0, 512);
    oracle.acknowledge(second, false);
    assert!(sees(&mut oracle, &[7; 512]));
    assert!(oracle.check(before, [&in_a[..]]).is_ok(), "the second was already running");
    assert!(sees(&mut oracle, &[7; 512]), "it stays so");
    assert!(!sees(&mut oracle, &[8; 512]) && !sees(&mut oracle, &in_a));
}

#[test]
fn a_refused_write_has_no_effect() {
    let mut oracle = Oracle::new(4096, true);
    let a = oracle.write(0, 512, Put::Pattern);
    let new = bytes(&oracle, a);
    oracle.refuse(a);
    assert!(!sees(&mut oracle, &new));
}

#[test]
fn another_sectors_bytes_are_detected() {
    let mut oracle = Oracle::new(4096, true);
    let a = oracle.write(0, 1024, Put::Pattern);
    let mut both = vec![0; 1024];
    oracle.fill(a, &mut both);
    oracle.acknowledge(a, false);
    both.copy_within(512.., 0);
    let read = oracle.read(0, 1024);
    assert!(oracle.check(read, [&both[..]]).is_err());
}

#[test]
fn unflushed_writes_may_be_lost() {
    let mut oracle = Oracle::new(4096, true);
    oracle.set_forgetful(true);
    let writes = [0; 3].map(|_| {
        let write = oracle.write(0, 512, Put::Pattern);
        let bytes = bytes(&oracle, write);
        oracle.acknowledge(write, false);
        bytes
    });
    assert!(sees(&mut oracle, &writes[2]));
    assert!(!sees(&mut oracle, &writes[1]), "while the host lives");
    oracle.crash(Caches::Emptied);
    assert!(sees(&mut oracle, &writes[1]), "the second went to the members, the third did not");
    assert!(!sees(&mut oracle, &writes[2]) && !sees(&mut oracle, &[0; 512]), "it stays so");
    oracle.crash(Caches::Emptied);
    assert!(!sees(&mut oracle, &writes[0]), "whatever happens");
}

#[test]
fn flushed_and_fua_writes_are_not_lost() {
    let mut oracle = Oracle::new(4096, true);
    oracle.set_forgetful(true);
    let a = oracle.write(0, 512, Put::Pattern);
    let in_a = bytes(&oracle, a);
    oracle.acknowledge(a, false);
    let flush = oracle.flush();
    let b = oracle.write(0, 512, Put::Pattern);
    let in_b = bytes(&oracle, b);
    oracle.acknowledge(b, false);
    oracle.flushed(flush);
    oracle.crash(Caches::Emptied);
    assert!(!sees(&mut oracle, &[0; 512]), "the first was flushed");
    assert!(sees(&mut oracle, &in_a), "the second came after the flush began");
    assert!(!sees(&mut oracle, &in_b));
    let c = oracle.write(0, 512, Put::Pattern);
    oracle.acknowledge(c, true);
    oracle.crash(Caches::Emptied);
    assert!(!sees(&mut oracle, &in_a) && !sees(&mut oracle, &in_b));
}
