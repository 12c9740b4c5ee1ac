//! A copy takes its slot only when it is complete.

use std::rc::Rc;
use std::time::Duration;

use array::Array;
use array::status::SlotState;
use io::{Clock, Disk};
use layout::md::{Features, Superblock};
use layout::private::Consistency;
use layout::{Layout, Level, MemberId, Slot};
use metadata::assemble::Options;
use metadata::create::{NewArray, create};

use crate::world::{Fault, FaultyDisk, World, pattern, whole};

/// The offset of the superblock on a member's disk.
const SUPERBLOCK: u64 = 4096;

fn world(level: Level, members: usize, spares: usize) -> World {
    let world = World::new(members + spares, 8 << 20);
    let layout = Layout::default_for(level, members);
    let chunk = if level == Level::Raid1 { 0 } else { 16 << 10 };
    let checksums = Some(false);
    world.create(&NewArray {
        zeroed: true,
        spares,
        checksums,
        ..NewArray::new("tank", layout, chunk)
    });
    world
}

/// An array of three of the four disks; the last one was added to it.
fn of_three(world: &World, new: NewArray) -> Array {
    let new = NewArray { zeroed: true, checksums: Some(false), ..new };
    let clock = Rc::clone(&world.clock) as Rc<dyn Clock>;
    let create = create(&new, world.candidates(0..3), &clock, &crate::world::random);
    world.wait(create).expect("the array is created");
    let assembly = world.assemble(0..3, &Options::default()).expect("all members are present");
    let array = Array::start(assembly, &world.host);
    let spare = Rc::clone(&world.disks[3]) as Rc<dyn Disk>;
    world.run(&array, array.add(spare, "spare")).expect("the value fits");
    array
}

fn superblock(disk: &FaultyDisk) -> Superblock {
    let mut bytes = vec![0; 4096];
    disk.disk.peek(SUPERBLOCK, &mut bytes);
    Superblock::parse(&bytes, SUPERBLOCK / 512).expect("a member")
}

/// A copy is complete, and fails while that is being recorded. During the second commit, with
/// another member failing, the user assigns another spare to the slot.
#[test]
fn the_next_copy_of_a_slot_does_not_take_it_by_the_word_of_the_last_one() {
    for (level, members) in [(Level::Raid1, 3), (Level::Raid6, 5)] {
        let world = world(level, members, 2);
        let array = world.start();
        let content = pattern(0, 256 << 10, 1);
        world.write(&array, 0, &content).expect("the array is healthy");
        world.flush(&array);
        world.sleep(&array, Duration::from_secs(20));

        array.set_speed(1, 1);
        let (first, second) = (MemberId(members as u32), MemberId(members as u32 + 1));
        world.run(&array, array.replace(Slot::new(0), first)).expect("a spare exists");
        world.disks[members].break_with(Fault::HungAt(SUPERBLOCK));
        world.sleep(&array, Duration::from_millis(1));
        array.set_speed(u64::MAX, u64::MAX);
        world.until(&array, |_| world.disks[members].is_holding() > 0);
        world.disks.iter().for_each(|disk| disk.delay.set(Duration::from_millis(1)));
        world.until(&array, |status| status.slots[0].replacement.is_none());
        // The commit is being repeated.
        world.disks[1].break_with(Fault::HungAt(SUPERBLOCK));
        world.run(&array, array.replace(Slot::new(0), second)).expect("a spare exists");
        world.until(&array, |status| status.job.is_none());
        let slots = array.status().slots;
        assert_eq!(slots[1].state, SlotState::Missing, "{level}");
        assert_eq!(slots[0].member.as_ref().map(|member| member.id), Some(second), "{level}");
        let found = world.read(&array, 0, content.len()).expect("one member is lost");
        assert!(found == content, "{level}: nothing was copied");
    }
}

/// The copy of a RAID 0 member is recorded as complete, and the power fails before it has the slot.
/// It is used alone. When the other one returns, it must count as stale.
#[test]
fn writes_to_a_copy_alone_are_not_lost_when_its_source_returns() {
    for level in [Level::Raid0, Level::Linear, Level::Raid1, Level::Raid5] {
        let world = World::new(4, 8 << 20);
        let chunk = if matches!(level, Level::Raid1 | Level::Linear) { 0 } else { 16 << 10 };
        let new = NewArray::new("tank", Layout::default_for(level, 3), chunk);
        let array = of_three(&world, new);
        let content = pattern(0, 512 << 10, 1);
        world.write(&array, 0, &content).expect("the array is healthy");
        world.flush(&array);
        world.sleep(&array, Duration::from_secs(20));
        world.disks.iter().for_each(|disk| disk.volatile.set(true));
        array.set_speed(1, 1);
        world.run(&array, array.replace(Slot::new(0), MemberId(3))).expect("a spare exists");
        world.sleep(&array, Duration::from_millis(1));
        array.set_speed(u64::MAX, u64::MAX);
        world.disks.iter().for_each(|disk| disk.delay.set(Duration::from_millis(1)));
        let copy = Rc::clone(&world.disks[3]);
        while superblock(&copy).features.contains(Features::RECOVERY_OFFSET) {
            world.sleep(&array, Duration::from_micros(100));
        }
        assert!(superblock(&copy).features.contains(Features::REPLACEMENT), "{level}: not yet");
        world.disks.iter().for_each(|disk| disk.break_with(Fault::HungAt(SUPERBLOCK)));
        world.sleep(&array, Duration::from_millis(100));
        world.cut(array);
        world.disks.iter().for_each(|disk| disk.delay.set(Duration::ZERO));

        let assembly = world.assemble([1, 2, 3], &Options::default()).expect("the copy is whole");
        let array = Array::start(assembly, &world.host);
        let newer = pattern(0, content.len(), 2);
        world.write(&array, 0, &newer).expect("the copy is whole");
        world.flush(&array);
        world.cut(array);

        let array = world.start();
        let found = world.read(&array, 0, content.len()).expect("all members are present");
        assert!(found == newer, "{level}: it was flushed");
        world.until(&array, whole);
        let found = world.read(&array, 0, content.len()).expect("all members are present");
        assert!(found == newer, "{level}: it was flushed");
    }
}

/// A copy is recorded as complete, and a torn write has reached only its source. Data that is then
/// read from the source must stay the same when the source is lost the next time.
#[test]
fn a_suspect_copy_is_recorded_before_its_source_is_read() {
    for consistency in [Consistency::Bitmap, Consistency::Intent] {
        let world = World::new(4, 8 << 20);
        let new = NewArray::new("tank", Layout::default_for(Level::Raid5, 3), 16 << 10);
        let array = of_three(&world, NewArray { consistency: Some(consistency), ..new });
        world.write(&array, 0, &pattern(0, 512 << 10, 1)).expect("the array is healthy");
        world.flush(&array);
        world.sleep(&array, Duration::from_secs(20));
        world.disks.iter().for_each(|disk| disk.volatile.set(true));
        array.set_speed(1, 1);
        world.run(&array, array.replace(Slot::new(0), MemberId(3))).expect("a spare exists");
        world.sleep(&array, Duration::from_millis(1));
        let copy = Rc::clone(&world.disks[3]);
        copy.break_with(Fault::HungAt(world.data_offset()));
        drop(world.begin(&array, 0, &pattern(0, 4096, 2)));
        assert_eq!(copy.is_holding(), 1, "the write is cut");
        array.set_speed(u64::MAX, u64::MAX);
        while superblock(&copy).features.contains(Features::RECOVERY_OFFSET) {
            world.sleep(&array, Duration::from_micros(100));
        }
        assert!(superblock(&copy).features.contains(Features::REPLACEMENT), "not yet");
        world.cut(array);

        let array = world.start();
        let found = world.read(&array, 0, 4096).expect("all members are present");
        world.cut(array);
        let options = Options { degraded: true, ..Options::default() };
        let Ok(assembly) = world.assemble(1..4, &options) else { continue };
        let array = Array::start(assembly, &world.host);
        if let Ok(again) = world.read(&array, 0, 4096) {
            assert!(again == found, "{}: it has changed", consistency.name());
        }
    }
}
