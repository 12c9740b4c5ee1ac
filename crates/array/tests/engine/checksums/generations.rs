//! Generations identify a member that lost a block together with its entry.

use std::rc::Rc;
use std::time::Duration;

use array::Array;
use array::status::SlotState;
use layout::private::Consistency;
use layout::{Layout, Level, Slot, Stripe};
use metadata::assemble::Options;
use metadata::create::NewArray;

use super::{BLOCK, CHUNK, LEN, LEVELS, checksummed, corrupt, filled, is_sound, map_of, pause};
use crate::world::{Fault, FaultyDisk, World, pattern};

/// A member's data and its table.
fn data_and_table(disk: &FaultyDisk) -> [(u64, Vec<u8>); 2] {
    let map = map_of(disk);
    let table = map.private_parts().expect("the member has a private area").checksums.start;
    [(map.data.start, 1 << 20), (table, BLOCK as usize)].map(|(at, len)| {
        let mut bytes = vec![0; len];
        disk.disk.peek(at, &mut bytes);
        (at, bytes)
    })
}

/// Events before a member loses writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    Nothing,
    Rebuilt,
    Crashed,
}

/// A member loses the last writes to some blocks together with their entries, so each matches the
/// other. A repair identifies the member, and recovers the writes.
fn loses_block_and_entry(level: Level, members: usize, slot: usize, before: Before) {
    let (mut world, mut array) = filled(level, members);
    let mut right = pattern(0, LEN, 1);
    let mut write = |world: &World, array: &Array, offset: u64, len: usize, salt: u8| {
        let bytes = pattern(offset, len, salt);
        world.write(array, offset, &bytes).expect("the array is healthy");
        right[offset as usize..offset as usize + len].copy_from_slice(&bytes);
    };
    for salt in 2..7 {
        write(&world, &array, 0, BLOCK as usize, salt);
        write(&world, &array, CHUNK, 2 * BLOCK as usize, salt);
    }
    match before {
        Before::Nothing => {}
        Before::Rebuilt => {
            pause(&world, &array);
            let id = array.status().slots[1].member.as_ref().expect("the slot has a member").id;
            world.run(&array, array.fail(id)).expect("the level tolerates one loss");
            write(&world, &array, 0, BLOCK as usize, 7);
            let spare = FaultyDisk::new(8 << 20);
            spare.disk.poke(1 << 20, &vec![0xee; 6 << 20]);
            world
                .run(&array, array.add(Rc::clone(&spare) as _, "spare"))
                .expect("the disk is large enough");
            world.until(&array, checksummed);
            world.until(&array, |s| s.slots.iter().all(|slot| slot.state == SlotState::InSync));
            world.disks[1] = spare;
        }
        Before::Crashed => {
            drop(array);
            array = world.start();
            world.until(&array, checksummed);
        }
    }
    pause(&world, &array);
    let old = data_and_table(&world.disks[slot]);
    for salt in 10..13 {
        write(&world, &array, 0, BLOCK as usize, salt);
    }
    write(&world, &array, CHUNK + 3 * BLOCK, BLOCK as usize, 20);
    write(&world, &array, 3 * CHUNK, 8 * CHUNK as usize, 21);
    world.run(&array, array.stop()).expect("the array is healthy");
    old.iter().for_each(|(at, bytes)| world.disks[slot].disk.poke(*at, bytes));
    let array = world.start();
    array.scrub(true).expect("the scrub starts");
    world.until(&array, |status| status.last_scrub.is_some() && status.job.is_none());
    let report = array.status().last_scrub.expect("a scrub has ended").report;
    let what = format!("{level} slot {slot} {before:?}");
    assert_eq!((report.guessed_bytes, report.lost_bytes), (0, 0), "{what}");
    let named = report.findings.iter().all(|found| found.culprit == Some(Slot::new(slot)));
    assert!(named && report.mismatches > 0, "{what}: {:?}", report.findings);
    for _ in 0..members {
        assert!(world.read(&array, 0, LEN).expect("repaired") == right, "{what}");
    }
    assert!(is_sound(&world, &array), "{what}");
}

#[test]
fn generations_identify_a_member_that_lost_block_and_entry() {
    for (level, members) in LEVELS {
        for slot in 0..members {
            loses_block_and_entry(level, members, slot, Before::Nothing);
        }
    }
}

/// Checked reads never return old data of a member, on any level.
#[test]
fn a_checked_read_detects_a_lost_block_and_entry() {
    for (level, members) in [(Level::Raid1, 2)].into_iter().chain(LEVELS) {
        for slot in 0..members {
            let (mut world, array) = filled(level, members);
            pause(&world, &array);
            let old = data_and_table(&world.disks[slot]);
            world.write(&array, 0, &pattern(0, LEN, 2)).expect("the array is healthy");
            world.run(&array, array.stop()).expect("the array is healthy");
            old.iter().for_each(|(at, bytes)| world.disks[slot].disk.poke(*at, bytes));
            world.host.check_reads = true;
            let array = world.start();
            for at in [0, BLOCK, CHUNK + 512, 3 * CHUNK] {
                let found = world.read(&array, at, 1024).expect("generations identify the member");
                assert!(found == pattern(at, 1024, 2), "{level} slot {slot} at {at}");
            }
            assert!(world.read(&array, 0, LEN).expect("repaired") == pattern(0, LEN, 2));
            assert!(is_sound(&world, &array), "{level} slot {slot}");
        }
    }
}

/// Without checksums the majority of copies decides; two differing copies are an error.
#[test]
fn a_checked_read_of_copies_without_checksums_asks_the_majority() {
    for members in [2, 3] {
        let mut world = World::new(members, 8 << 20);
        let layout = Layout::default_for(Level::Raid1, members);
        let checksums = Some(false);
        world.create(&NewArray { zeroed: true, checksums, ..NewArray::new("tank", layout, 0) });
        world.host.check_reads = true;
        let array = world.start();
        world.write(&array, 0, &pattern(0, LEN, 1)).expect("the array is healthy");
        pause(&world, &array);
        corrupt(&world.disks[0], map_of(&world.disks[0]).data.start + 77);
        let found = world.read(&array, 0, 512);
        assert_eq!(found.is_ok(), members == 3);
        assert!(found.is_err() || found.is_ok_and(|found| found == pattern(0, 512, 1)));
        let found = world.read(&array, BLOCK, BLOCK as usize).expect("the copies agree");
        assert!(found == pattern(BLOCK, BLOCK as usize, 1));
    }
}

#[test]
fn generations_go_together_after_a_rebuild_and_a_crash() {
    for (level, members) in LEVELS {
        for slot in 0..members {
            loses_block_and_entry(level, members, slot, Before::Rebuilt);
            loses_block_and_entry(level, members, slot, Before::Crashed);
        }
    }
}

#[test]
fn a_torn_block_with_a_lost_entry_is_recovered_from_its_row() {
    for (level, members) in LEVELS {
        for slot in 0..members {
            let (world, array) = filled(level, members);
            let old = data_and_table(&world.disks[slot]);
            pause(&world, &array);
            let table_before = data_and_table(&world.disks[slot]);
            let mut right = pattern(0, LEN, 2);
            right[LEN - CHUNK as usize..].copy_from_slice(&pattern(
                LEN as u64 - CHUNK,
                CHUNK as usize,
                1,
            ));
            world.write(&array, 0, &right).expect("the array is healthy");
            world.run(&array, array.stop()).expect("the array is healthy");
            let disk = &world.disks[slot].disk;
            // In each block the first half is old.
            let (start, bytes) = &old[0];
            for at in (0..192 << 10).step_by(BLOCK as usize) {
                disk.poke(start + at as u64, &bytes[at..at + 2048]);
            }
            disk.poke(table_before[1].0, &table_before[1].1);
            let array = world.start();
            for _ in 0..members {
                let found = world.read(&array, 0, LEN).expect("the row contains the block");
                assert!(found == right, "{level} slot {slot}");
            }
            let _ = is_sound(&world, &array);
            assert!(is_sound(&world, &array), "{level} slot {slot}");
        }
    }
}

/// A stopped array with parity that has lost a write together with its entry. Also returns the
/// members with the block and with its parity.
fn parity_in_the_past(level: Level, members: usize) -> (World, usize, usize) {
    let (world, array) = filled(level, members);
    pause(&world, &array);
    let map = array.geometry().stripe(Stripe(0));
    let (holder, parity) = (map.data(0).index(), map.p().index());
    let old = data_and_table(&world.disks[parity]);
    world.write(&array, 0, &pattern(0, BLOCK as usize, 2)).expect("the array is healthy");
    world.run(&array, array.stop()).expect("the array is healthy");
    old.iter().for_each(|(at, bytes)| world.disks[parity].disk.poke(*at, bytes));
    (world, holder, parity)
}

/// Parity has lost a write together with its entry. A block of that row, or another one of the same
/// chunk, is unreadable. The block recovered from parity does not match its own entry, so it is
/// neither returned nor written.
#[test]
fn a_recovered_block_matches_its_own_entry() {
    for (level, members) in [(Level::Raid4, 4), (Level::Raid5, 4), (Level::Raid35, 3)] {
        for unreadable in [0, 1] {
            let (world, holder, _) = parity_in_the_past(level, members);
            let offset = map_of(&world.disks[holder]).data.start + unreadable * BLOCK;
            world.disks[holder].break_with(Fault::Unreadable { offset, len: BLOCK });
            let array = world.start();
            let len = array.geometry().chunk_bytes() as usize;
            let mut right = pattern(0, len, 1);
            let written = len.min(BLOCK as usize);
            right[..written].copy_from_slice(&pattern(0, written, 2));
            let what = format!("{level} {unreadable}");
            for _ in 0..2 {
                let found = world.read(&array, 0, len);
                assert!(found.as_ref().is_err() || found.is_ok_and(|f| f == right), "{what}");
            }
            let found = world.read(&array, 0, BLOCK as usize);
            assert_eq!(found.is_ok(), unreadable != 0, "{what}: the entry of one that can be read");
            if let Ok(found) = found {
                assert!(found == right[..BLOCK as usize], "{what}");
                assert!(
                    world.read(&array, 0, len).expect("each member separately") == right,
                    "{what}"
                );
            }
        }
    }
}

/// The same for a readable block on a member so slow that the block is computed.
#[test]
fn a_block_computed_for_a_slow_member_matches_its_entry() {
    for (level, members) in [(Level::Raid4, 4), (Level::Raid5, 4)] {
        let (world, holder, parity) = parity_in_the_past(level, members);
        let array = world.start();
        world.disks.iter().for_each(|disk| disk.delay.set(Duration::from_millis(1)));
        for at in (0..LEN as u64).step_by(BLOCK as usize).cycle().take(2000) {
            world.read(&array, at, BLOCK as usize).expect("the array is healthy");
        }
        world.disks[holder].delay.set(Duration::from_secs(2));
        let reads = world.disks[parity].reads.get();
        let found = world.read(&array, 0, BLOCK as usize).expect("it is slow");
        assert!(world.disks[parity].reads.get() > reads, "{level}: the others were asked");
        assert!(found == pattern(0, BLOCK as usize, 2), "{level}: what was written last");
    }
}

/// Like `a_recovered_block_matches_its_own_entry`, with a right Q.
#[test]
fn a_block_that_contradicts_p_is_recovered_from_q() {
    for scrub in [false, true] {
        let (world, _, _) = parity_in_the_past(Level::Raid6, 5);
        let array = world.start();
        let holder = array.geometry().stripe(Stripe(0)).data(1).index();
        let offset = map_of(&world.disks[holder]).data.start;
        world.disks[holder].break_with(Fault::Unreadable { offset, len: BLOCK });
        if scrub {
            array.scrub(true).expect("the scrub starts");
            world.until(&array, |status| status.last_scrub.is_some() && status.job.is_none());
            let report = array.status().last_scrub.expect("a scrub has ended").report;
            assert_eq!(report.lost_bytes, 0);
        }
        let found = world.read(&array, CHUNK, BLOCK as usize).expect("two may be wrong");
        assert!(found == pattern(CHUNK, BLOCK as usize, 1));
    }
}

/// One sector of a row is disputed when checksums are switched on. A later verdict by generations
/// about another block of that row is right, or there is none.
#[test]
fn beside_a_disputed_block_no_member_is_identified_wrongly() {
    for lost in [44, 1, 2, 3] {
        let mut world = World::new(4, 8 << 20);
        world.host.bounds.unit_bytes = 1 << 20;
        let layout = Layout::default_for(Level::Raid5, 4);
        world.create(&NewArray {
            zeroed: true,
            checksums: Some(false),
            ..NewArray::new("tank", layout, 64 << 10)
        });
        let array = world.start();
        world.write(&array, 0, &pattern(0, LEN, 1)).expect("the array is healthy");
        world.flush(&array);
        let map = array.geometry().stripe(Stripe(0));
        let (p, d) = (map.p().index(), map.data(0).index());
        world.run(&array, array.stop()).expect("the array stops");
        super::corrupt(&world.disks[p], map_of(&world.disks[p]).data.start + 7);
        let options = Options { checksums: Some(true), ..Options::default() };
        let array =
            Array::start(world.assemble(0..4, &options).expect("the array assembles"), &world.host);
        world.until(&array, checksummed);
        pause(&world, &array);
        let old = data_and_table(&world.disks[d]);
        // The member loses the last writes to a block ten blocks away, and its entry.
        let at = 10 * BLOCK;
        for salt in 0..lost {
            world
                .write(&array, at, &pattern(at, BLOCK as usize, 50 + salt))
                .expect("the array is healthy");
        }
        let beside = at + (64 << 10);
        let before = world.read(&array, beside, BLOCK as usize).expect("the array is healthy");
        assert!(before == pattern(beside, BLOCK as usize, 1));
        world.run(&array, array.stop()).expect("the array is healthy");
        old.iter().for_each(|(at, bytes)| world.disks[d].disk.poke(*at, bytes));
        let array = world.start();
        array.scrub(true).expect("the scrub starts");
        world.until(&array, |status| status.last_scrub.is_some() && status.job.is_none());
        let report = array.status().last_scrub.expect("a scrub has ended").report;
        let after = world.read(&array, beside, BLOCK as usize);
        assert!(after.is_ok_and(|after| after == before), "lost {lost}: an unwritten block");
        let beside: Vec<_> = report.findings.iter().filter(|f| f.member_offset > 4096).collect();
        assert!(!beside.is_empty());
        for found in beside {
            let right = found.culprit.is_none() || found.culprit == Some(Slot::new(d));
            assert!(right, "lost {lost}: {found:?}, and it was slot {d}");
        }
    }
}

/// One row of the table in `docs/faults.md`: how an array is made, and the write to it after a
/// member has lost a flushed block together with its entry.
#[derive(Clone, Copy, Debug)]
struct Beside {
    level: Level,
    members: usize,
    consistency: Option<Consistency>,
    /// The whole checksum table is in memory when the write comes.
    warm: bool,
    at: u64,
    len: usize,
}

impl Beside {
    /// A read-modify-write of the very block whose member lost a write: of a cold table it knows
    /// too little to tell.
    fn is_unheld(self, array: &Array, slot: usize) -> bool {
        let modifies = self.members >= 6 && self.len as u64 == BLOCK;
        let index = (self.at / CHUNK) as usize;
        let holder = || array.geometry().stripe(Stripe(0)).data(index).index();
        modifies && !self.warm && holder() == slot
    }

    /// Makes the array, has this slot's member lose writes, and writes.
    fn written(self, slot: usize) -> (World, Array, Vec<u8>) {
        let Beside { level, members, consistency, warm, at, len } = self;
        let world = World::new(members, 8 << 20);
        let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
        let layout = Layout::default_for(level, members);
        let new = NewArray::new("tank", layout, chunk);
        world.create(&NewArray { zeroed: true, checksums: Some(true), consistency, ..new });
        let array = world.start();
        world.write(&array, 0, &pattern(0, LEN, 1)).expect("the array is healthy");
        world.flush(&array);
        pause(&world, &array);
        let old = data_and_table(&world.disks[slot]);
        // A salt of its own for each chunk: parity changes too.
        let chunk = |number: usize| {
            let at = number as u64 * CHUNK;
            pattern(at, CHUNK as usize, 2 + number as u8)
        };
        let mut right: Vec<u8> = (0..LEN / CHUNK as usize).flat_map(chunk).collect();
        world.write(&array, 0, &right).expect("the array is healthy");
        world.run(&array, array.stop()).expect("the array is healthy");
        old.iter().for_each(|(at, bytes)| world.disks[slot].disk.poke(*at, bytes));
        let array = world.start();
        if warm {
            assert!(!is_sound(&world, &array), "{self:?} slot {slot}: the state is made");
        }
        let written = pattern(at, len, 99);
        world.write(&array, at, &written).expect("the array is healthy");
        right[at as usize..at as usize + len].copy_from_slice(&written);
        (world, array, right)
    }
}

/// A member loses a flushed block together with its entry; then a client writes beside it, in the
/// same row or the same block, before any scrub. What was flushed comes back.
#[test]
fn a_write_beside_a_lost_write_does_not_make_it_permanent() {
    let levels = [
        (Level::Raid1, 2),
        (Level::Raid5, 3),
        (Level::Raid5, 6),
        (Level::Raid4, 3),
        (Level::Raid6, 4),
        (Level::Raid6, 8),
    ];
    let (sector, block) = (512, BLOCK as usize);
    for (level, members) in levels.into_iter().chain(LEVELS) {
        let mirror = matches!(level, Level::Raid1 | Level::Raid10);
        let policies = [None, Some(Consistency::Bitmap)];
        let policies = policies.into_iter().take(if mirror { 1 } else { 2 });
        for (consistency, warm) in policies.flat_map(|policy| [(policy, true), (policy, false)]) {
            // At the block itself, a part and all of it; into its middle; across into the next
            // one; beside it in its row.
            for (at, len) in
                [(0, sector), (0, block), (1024, sector), (BLOCK - 512, 1024), (CHUNK, block)]
            {
                let beside = Beside { level, members, consistency, warm, at, len };
                for slot in 0..members {
                    holds(beside, slot);
                }
            }
        }
    }
}

/// After the write a scrub finds what is left, and any member may be lost then.
fn holds(beside: Beside, slot: usize) {
    let (world, array, right) = beside.written(slot);
    let what = format!("{beside:?}, slot {slot}");
    if beside.is_unheld(&array, slot) {
        let at = beside.at as usize;
        let found = world.read(&array, beside.at, beside.len).expect("the array is healthy");
        assert!(found == right[at..at + beside.len], "{what}: the new block is read back");
        return;
    }
    array.scrub(true).expect("the scrub starts");
    pause(&world, &array);
    world.until(&array, |s| s.last_scrub.is_some() && s.job.is_none());
    for lost in 0..beside.members {
        assert!(world.read(&array, 0, LEN).expect("the read succeeds") == right, "{what} {lost}");
    }
    assert!(is_sound(&world, &array), "{what}");
    let id = array.status().slots[0].member.as_ref().expect("the slot has a member").id;
    world.run(&array, array.fail(id)).expect("the level tolerates one loss");
    assert!(world.read(&array, 0, LEN).expect("degraded") == right, "{what}: degraded");
}
