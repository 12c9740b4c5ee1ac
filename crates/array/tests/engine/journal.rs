//! The journal on a device of its own. While it is there, a crash costs nothing. After its loss the
//! array continues. Only the log of the last session is trusted.

use std::rc::Rc;

use array::Array;
use array::status::{EventKind, SlotState};
use layout::private::Consistency;
use layout::private::journal::JournalUse;
use layout::{Layout, Level, MemberId};
use metadata::assemble::{Note, Options};
use metadata::create::NewArray;

use crate::world::{Fault, FaultyDisk, World, holder, pattern};

const CHUNK: u64 = 16 << 10;
const FILLED: usize = 512 << 10;

fn new(name: &str, level: Level, members: usize) -> NewArray {
    let layout = Layout::default_for(level, members);
    let consistency = Some(Consistency::Journal);
    NewArray { zeroed: true, consistency, ..NewArray::new(name, layout, CHUNK) }
}

/// A RAID 5 of 4 or RAID 6 of 5 with three data chunks in a stripe and a journal device. It is full
/// of a durable pattern and marked dirty.
fn filled(level: Level) -> (World, Array) {
    let members = if level == Level::Raid6 { 5 } else { 4 };
    let world = World::new(members + 1, 8 << 20);
    world.create_journaled(&new("tank", level, members)).expect("the array is created");
    let array = world.start();
    world.write(&array, 0, &pattern(0, FILLED, 1)).expect("the array is healthy");
    world.flush(&array);
    assert_eq!(used(&array), JournalUse::Logging);
    (world, array)
}

fn used(array: &Array) -> JournalUse {
    array.status().journal.expect("the array has a journal device").used
}

fn journal(world: &World) -> &FaultyDisk {
    world.disks.last().expect("the last one is the journal device")
}

fn refusal(world: &World, missing: &[usize]) -> String {
    world.assemble_without(missing).map(drop).expect_err("it is refused").to_string()
}

/// A crash in the middle of a write of two blocks of a row; the write to `hung` has not arrived.
fn cut(level: Level, hung: usize) -> (World, Vec<usize>) {
    let (world, array) = filled(level);
    let held = &world.disks[holder(&array, hung)];
    held.break_with(Fault::HungFrom(world.data_offset()));
    let write = world.begin(&array, CHUNK - 4096, &pattern(CHUNK - 4096, 8192, 2));
    assert!(held.is_holding() > 0);
    let holders = (0..world.disks.len() - 1).map(|index| holder(&array, index)).collect();
    drop(write);
    world.crash(array);
    (world, holders)
}

#[test]
fn with_the_device_a_torn_write_is_whole_though_members_are_lost() {
    for (level, lost) in [(Level::Raid5, vec![1]), (Level::Raid6, vec![0, 2])] {
        for hung in [0, 1, 3] {
            let (world, holders) = cut(level, hung);
            let missing: Vec<usize> = lost.iter().map(|&index: &usize| holders[index]).collect();
            let array = world.start_without(&missing);
            for at in (0..3 * CHUNK).step_by(4096) {
                let found = world.read(&array, at, 4096).expect("no data is lost");
                let salt = if (CHUNK - 4096..CHUNK + 4096).contains(&at) { 2 } else { 1 };
                assert!(found == pattern(at, 4096, salt), "{level}, {hung} hung, at {at}");
            }
        }
    }
}

#[test]
fn a_batch_is_one_write_to_the_device_and_none_to_a_members_log() {
    let (world, array) = filled(Level::Raid6);
    let writes = || world.disks.iter().map(|disk| disk.writes.get()).collect::<Vec<_>>();
    world.write(&array, 0, &pattern(0, 4096, 2)).expect("the array is healthy");
    let before = writes();
    world.write(&array, 8192, &pattern(8192, 4096, 2)).expect("another row");
    let new: Vec<u64> = writes().iter().zip(before).map(|(new, old)| new - old).collect();
    let mut wanted = vec![0; 6];
    [0, 3, 4].into_iter().for_each(|index| wanted[holder(&array, index)] = 1);
    wanted[5] = 1;
    assert_eq!(new, wanted, "data, P, Q, and the device");
}

#[test]
fn without_the_device_a_crash_needs_the_resync_of_a_bitmap() {
    let (world, holders) = cut(Level::Raid5, 0);
    let device = world.disks.len() - 1;
    let refused = refusal(&world, &[holders[1], device]);
    for words in ["journal device", "disk4", "not here", "--force-dirty-degraded"] {
        assert!(refused.contains(words), "{refused}");
    }
    let whole = world.assemble_without(&[device]).expect("all members are present");
    assert!(whole.recovered.unsynced.overlaps(0..CHUNK), "marked regions are synced");
    let array = Array::start(whole, &world.host);
    assert_eq!(used(&array), JournalUse::Away);
    world.until(&array, |status| status.unsynced_bytes == 0);
    // From now on the log is on the members.
    world.disks[holders[0]].break_with(Fault::HungFrom(world.data_offset()));
    let write = world.begin(&array, 512, &pattern(512, 4096, 3));
    drop(write);
    world.crash(array);
    let array = world.start_without(&[holders[1], device]);
    let found = world.read(&array, CHUNK + 8192, 4096).expect("the read succeeds");
    assert!(found == pattern(CHUNK + 8192, 4096, 1));
}

#[test]
fn a_failed_journal_device_costs_a_barrier_and_the_members_take_the_log() {
    for fault in [Fault::WriteError, Fault::Gone, Fault::HungWrites] {
        let (world, array) = filled(Level::Raid5);
        let data = world.data_offset();
        journal(&world).break_with(fault);
        world.write(&array, 0, &pattern(0, 4096, 2)).expect("the array goes on");
        assert_eq!(used(&array), JournalUse::GivenUp);
        let lost = array.log().since(0).iter().filter(|e| e.kind == EventKind::JournalLost).count();
        assert_eq!(lost, 1, "{fault:?}");
        assert_eq!(array.status().redundancy_left, 1);
        // A row torn now is replayed from the members.
        let (first, second) = (holder(&array, 0), holder(&array, 1));
        world.disks[first].break_with(Fault::HungFrom(data));
        let write = world.begin(&array, 4096, &pattern(4096, 4096, 3));
        drop(write);
        world.crash(array);
        let array = world.start_without(&[second]);
        assert_eq!(used(&array), JournalUse::GivenUp, "it is there, and not used again by itself");
        let found = world.read(&array, CHUNK, CHUNK as usize).expect("the read succeeds");
        assert!(found == pattern(CHUNK, CHUNK as usize, 1), "{fault:?}");
        let found = world.read(&array, 4096, 4096).expect("the row was logged");
        assert!(found == pattern(4096, 4096, 3), "{fault:?}");
    }
}

#[test]
fn an_old_copy_of_the_device_is_no_log() {
    let (world, array) = filled(Level::Raid5);
    world.run(&array, array.stop()).expect("the array stops");
    let mut old = vec![0; 8 << 20];
    journal(&world).disk.peek(0, &mut old);
    let array = world.start();
    let (first, second) = (holder(&array, 0), holder(&array, 1));
    world.write(&array, 64 << 10, &pattern(64 << 10, 4096, 2)).expect("the shard is awake");
    world.disks[first].break_with(Fault::HungFrom(world.data_offset()));
    let write = world.begin(&array, 0, &pattern(0, 4096, 2));
    drop(write);
    world.crash(array);
    assert!(world.assemble_without(&[second]).is_ok(), "with the true one it starts");
    journal(&world).disk.poke(0, &old);
    let refused = refusal(&world, &[second]);
    assert!(refused.contains("old copy"), "{refused}");
    let whole = world.assemble_without(&[]).expect("all members are present");
    assert!(whole.notes.iter().any(|note| matches!(note, Note::LogUnusable { .. })));
    let array = Array::start(whole, &world.host);
    world.write(&array, 0, &pattern(0, 4096, 4)).expect("it can be the journal of a new session");
    assert_eq!(used(&array), JournalUse::Logging);
}

#[test]
fn the_previous_session_is_valid_until_a_member_names_the_next() {
    let (world, holders) = cut(Level::Raid5, 0);
    // The next process begins its session on the device, and dies before the members record it.
    let array = world.start_without(&[]);
    for member in 0..4 {
        world.disks[member].break_with(Fault::HungWrites);
    }
    let write = world.begin(&array, 128 << 10, &pattern(128 << 10, 4096, 5));
    drop(write);
    world.crash(array);
    let array = world.start_without(&[holders[1]]);
    let found = world.read(&array, CHUNK, 8192).expect("the first life's log");
    assert!(
        found[..4096] == pattern(CHUNK, 4096, 2) && found[4096..] == pattern(CHUNK + 4096, 4096, 1)
    );
}

#[test]
fn a_device_that_was_away_is_back_at_the_next_start() {
    let (world, array) = filled(Level::Raid5);
    world.run(&array, array.stop()).expect("the array stops");
    let device = world.disks.len() - 1;
    let assembly = world.assemble_without(&[device]).expect("no write was in flight");
    assert!(assembly.notes.iter().any(|note| matches!(note, Note::Journal { .. })));
    let array = Array::start(assembly, &world.host);
    world.write(&array, 0, &pattern(0, 4096, 2)).expect("logged on the members");
    assert_eq!(used(&array), JournalUse::Away);
    world.run(&array, array.stop()).expect("the array stops");
    let array = world.start();
    world.write(&array, 0, &pattern(0, 4096, 3)).expect("logged on the device");
    assert_eq!(used(&array), JournalUse::Logging);
    world.run(&array, array.stop()).expect("the array stops");
}

/// A row that was read after a crash keeps its contents, though the device returns with other ones.
#[test]
fn a_device_that_was_away_after_a_crash_is_not_trusted_when_it_is_back() {
    for level in [Level::Raid5, Level::Raid6] {
        let (world, _) = cut(level, 0);
        let array = world.start_without(&[world.disks.len() - 1]);
        let read = world.read(&array, CHUNK - 4096, 8192).expect("all members are present");
        world.cut(array);
        let array = world.start();
        let again = world.read(&array, CHUNK - 4096, 8192).expect("all members are present");
        assert!(again == read, "{level}");
    }
}

#[test]
fn a_device_of_another_array_is_refused() {
    let (mut world, array) = filled(Level::Raid5);
    world.run(&array, array.stop()).expect("the array stops");
    let (other, array) = filled(Level::Raid5);
    world.run(&array, array.stop()).expect("the array stops");
    let device = world.disks.len() - 1;
    world.disks[device] = other.disks[device].clone();
    let refused = refusal(&world, &[]);
    assert!(refused.contains("disk4") && refused.contains("another array"), "{refused}");
}

#[test]
fn an_unusable_journal_device_is_refused_and_nothing_is_written() {
    let world = World::new(5, 8 << 20);
    let intent = NewArray { consistency: None, ..new("tank", Level::Raid5, 4) };
    let error = world.create_journaled(&intent).expect_err("another policy").to_string();
    assert!(error.contains("consistency policy journal"), "{error}");
    let mut world = World::new(5, 8 << 20);
    world.disks[4] = FaultyDisk::new(1 << 20);
    let error =
        world.create_journaled(&new("tank", Level::Raid5, 4)).expect_err("small").to_string();
    assert!(error.contains("disk4 is too small"), "{error}");
    world.disks[4] = FaultyDisk::new(8 << 20);
    world.disks[4].disk.poke(0, b"XFSB");
    let error =
        world.create_journaled(&new("tank", Level::Raid5, 4)).expect_err("full").to_string();
    assert!(error.contains("disk4 holds xfs"), "{error}");
    assert!(world.disks.iter().all(|disk| disk.writes.get() == 0));
}

#[test]
fn a_new_device_takes_the_place_of_one_that_was_given_up_or_of_none() {
    let (mut world, array) = filled(Level::Raid5);
    journal(&world).break_with(Fault::Gone);
    world.write(&array, 0, &pattern(0, 4096, 2)).expect("the array goes on");
    world.run(&array, array.stop()).expect("the array stops");
    world.disks[4] = FaultyDisk::new(4 << 20);
    world.disks[4].disk.poke(0, b"XFSB");
    let wanted = Options { journal: Some("disk4".to_string()), ..Options::default() };
    let refused = world.assemble(0..5, &wanted).map(drop).expect_err("it is full").to_string();
    assert!(refused.contains("disk4") && refused.contains("xfs"), "{refused}");
    world.disks[4].disk.poke(0, &[0; 4]);
    let array = Array::start(world.assemble(0..5, &wanted).expect("empty now"), &world.host);
    world.disks[holder(&array, 0)].break_with(Fault::HungFrom(world.data_offset()));
    let write = world.begin(&array, 0, &pattern(0, 4096, 3));
    assert_eq!(used(&array), JournalUse::Logging);
    let missing = holder(&array, 1);
    drop(write);
    world.crash(array);
    let array = world.start_without(&[missing]);
    assert!(world.read(&array, 0, 4096).expect("logged") == pattern(0, 4096, 3));
    assert!(world.read(&array, CHUNK, 4096).expect("not touched") == pattern(CHUNK, 4096, 1));
}

#[test]
fn rows_torn_by_losing_device_and_member_together_are_unverified() {
    let (world, array) = filled(Level::Raid5);
    // One row is being written when the device fails to log another one.
    let second = holder(&array, 1);
    world.disks[second].break_with(Fault::HungFrom(world.data_offset()));
    let one = world.begin(&array, CHUNK - 4096, &pattern(CHUNK - 4096, 8192, 2));
    journal(&world).break_with(Fault::WriteError);
    let other = world.begin(&array, 96 << 10, &pattern(96 << 10, 4096, 2));
    world.until(&array, |status| status.slots[second].member.is_none());
    assert_eq!(used(&array), JournalUse::GivenUp);
    drop((one, other));
    world.crash(array);
    let refused = refusal(&world, &[second]);
    assert!(refused.contains("--force-dirty-degraded"), "{refused}");
}

#[test]
fn a_row_without_parity_is_not_replayed_from_an_older_record() {
    let (world, array) = filled(Level::Raid5);
    world.write(&array, 0, &pattern(0, 4096, 2)).expect("logged, with its data");
    let parity = holder(&array, 3);
    world.disks[parity].break_with(Fault::Gone);
    world.write(&array, 0, &pattern(0, 4096, 3)).expect("the level tolerates one loss");
    world.write(&array, 0, &pattern(0, 4096, 4)).expect("no parity is written");
    world.flush(&array);
    world.crash(array);
    let array = world.start_without(&[parity]);
    assert!(world.read(&array, 0, 4096).expect("the read succeeds") == pattern(0, 4096, 4));
}

/// Writes while their parity's member is missing are on the device too. A spare then gets new
/// parity, which is valid.
#[test]
fn parity_computed_since_is_valid_despite_a_record_without_parity() {
    let (mut world, array) = filled(Level::Raid5);
    let (lost, parity) = (holder(&array, 0), holder(&array, 3));
    world.run(&array, array.fail(MemberId(parity as u32))).expect("the level tolerates one loss");
    let at = CHUNK + 4096;
    world.write(&array, at, &pattern(at, 4096, 2)).expect("the write succeeds");
    let spare = FaultyDisk::new(8 << 20);
    world
        .run(&array, array.add(Rc::clone(&spare) as _, "spare"))
        .expect("the disk is large enough");
    world.until(&array, |status| status.slots[parity].state == SlotState::InSync);
    world.disks[parity] = spare;
    world.crash(array);
    let array = world.start_without(&[lost]);
    assert!(world.read(&array, 4096, 4096).expect("one member is lost") == pattern(4096, 4096, 1));
    assert!(world.read(&array, at, 4096).expect("the read succeeds") == pattern(at, 4096, 2));
}
