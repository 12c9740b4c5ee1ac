//! The power fails, or the process dies, at the worst moments: earlier promises hold.

use std::rc::Rc;

use array::Array;
use array::status::SlotState;
use io::Disk;
use layout::md::Superblock;
use layout::private::Consistency;
use layout::{Layout, Level, MemberId, Stripe};
use metadata::assemble::Options;
use metadata::create::NewArray;

use crate::world::{Fault, World, pattern, whole};

/// The offset of the superblock on a member's disk.
const SUPERBLOCK: u64 = 4096;

fn world(level: Level, members: usize) -> World {
    let world = World::new(members, 8 << 20);
    let layout = Layout::default_for(level, members);
    let chunk = if level == Level::Raid1 { 0 } else { 16 << 10 };
    let checksums = Some(false);
    world.create(&NewArray { zeroed: true, checksums, ..NewArray::new("tank", layout, chunk) });
    world
}

/// Writes and flushes until no region is dirty any more; returns the content.
fn resolved(world: &World, array: &Array) -> Vec<u8> {
    let content = pattern(0, 256 << 10, 1);
    world.write(array, 0, &content).expect("the array is healthy");
    world.flush(array);
    world.sleep(array, 3 * world.host.bounds.region_linger);
    world.until(array, |status| status.clean);
    content
}

/// A client writes, the server dies and is started again, and the client flushes: now its write
/// must be durable. The new process has written nothing, but the members' caches still hold the old
/// one's writes.
#[test]
fn a_flush_covers_writes_of_the_previous_process() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid1, 2), (Level::Raid0, 3)] {
        let world = world(level, members);
        world.disks.iter().for_each(|disk| disk.volatile.set(true));
        let before = world.start();
        world.write(&before, 0, &pattern(0, 64 << 10, 1)).expect("the array is healthy");
        world.crash(before);

        let after = world.start();
        world.flush(&after);
        world.cut(after);
        let array = world.start();
        let found = world.read(&array, 0, 64 << 10).expect("the array is healthy");
        assert!(found == pattern(0, 64 << 10, 1), "{level}: it was flushed");
    }
}

/// A scrub repairs a block, and then its member fails a flush. It is left out, and returns by the
/// bitmap, which covers writes but not repairs. It must have the repair.
#[test]
fn a_member_that_returns_by_the_bitmap_has_repairs_of_scrubs() {
    for (level, members) in [(Level::Raid6, 5), (Level::Raid1, 3)] {
        let world = world(level, members);
        let array = world.start();
        let content = resolved(&world, &array);

        let rotten = match level {
            Level::Raid1 => 1,
            _ => array.geometry().stripe(Stripe(0)).data(0).index(),
        };
        let disk = Rc::clone(&world.disks[rotten]);
        disk.disk.poke(world.data_offset(), &[0x77; 4096]);
        disk.flush_fails_in.set(Some(0));
        array.scrub(true).expect("no other task runs");
        world.until(&array, |status| status.last_scrub.is_some());
        let report = array.status().last_scrub.expect("a scrub has ended").report;
        assert_eq!((report.repaired_bytes, report.guessed_bytes), (4096, 0), "{level}");
        world.until(&array, |status| status.slots[rotten].state == SlotState::Missing);

        let back = Rc::clone(&disk) as Rc<dyn Disk>;
        world.run(&array, array.readd(back, "back")).expect("the bitmap covers the missed writes");
        world.until(&array, whole);
        for other in (0..members).filter(|&other| other != rotten).take(2) {
            world
                .run(&array, array.fail(MemberId(other as u32)))
                .expect("the level tolerates two losses");
        }
        let found = world.read(&array, 0, content.len()).expect("degraded");
        assert!(found == content, "{level}: the scrub said that it was repaired");
    }
}

/// The same for a correction by a checked read.
#[test]
fn a_member_that_returns_by_the_bitmap_has_corrections_of_checked_reads() {
    let mut world = world(Level::Raid6, 5);
    world.host.check_reads = true;
    let array = world.start();
    let content = resolved(&world, &array);

    let rotten = array.geometry().stripe(Stripe(0)).data(0).index();
    let disk = Rc::clone(&world.disks[rotten]);
    disk.disk.poke(world.data_offset(), &[0x77; 4096]);
    disk.flush_fails_in.set(Some(0));
    assert!(world.read(&array, 0, 4096).expect("Q identifies the wrong member") == content[..4096]);
    world.flush(&array);
    world.until(&array, |status| status.slots[rotten].state == SlotState::Missing);

    let back = Rc::clone(&disk) as Rc<dyn Disk>;
    world.run(&array, array.readd(back, "back")).expect("the bitmap covers the missed writes");
    world.until(&array, whole);
    for other in (0..5).filter(|&other| other != rotten).take(2) {
        world
            .run(&array, array.fail(MemberId(other as u32)))
            .expect("the level tolerates two losses");
    }
    let found = world.read(&array, 0, content.len()).expect("degraded");
    assert!(found == content, "the block was repaired before");
}

/// The power fails while superblocks are written: one member has the new one, the others do not.
/// However often that happens in a row, no member is lost.
#[test]
fn cuts_in_the_middle_of_commits_leave_no_member_behind() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5)] {
        let world = world(level, members);
        world.disks.iter().for_each(|disk| disk.volatile.set(true));
        let array = world.start();
        let content = pattern(0, 256 << 10, 1);
        world.write(&array, 0, &content).expect("the array is healthy");
        world.run(&array, array.stop()).expect("the array stops");
        drop(array);
        for cut in 0..4 {
            let array = world.start();
            world.disks[1..].iter().for_each(|disk| disk.break_with(Fault::HungAt(SUPERBLOCK)));
            drop(world.begin(&array, 512 << 10, &[0; 4096]));
            assert!(world.disks[1].is_holding() > 0, "{level}: its superblock is not written");
            world.cut(array);
            let again = world.assemble(0..members, &Options::default());
            let again = again.unwrap_or_else(|why| panic!("{level}, cut {cut}: {why}"));
            let slots = again.configuration.slots.iter();
            assert!(
                slots.into_iter().all(|assignment| assignment.member.is_some()),
                "{level}, cut {cut}"
            );
        }
        let array = world.start();
        world.until(&array, |status| status.unsynced_bytes == 0);
        world.run(&array, array.fail(MemberId(0))).expect("the level tolerates one loss");
        let found = world.read(&array, 0, content.len()).expect("degraded");
        assert!(found == content, "{level}");
    }
}

/// The power fails in the middle of a commit, and the array is started with another policy. Members
/// that are first brought up to that commit get the structures of the new policy, like the others.
#[test]
fn a_member_that_is_one_commit_behind_takes_part_in_a_change_of_policy() {
    use Consistency::{Bitmap, Intent, Ppl, Resync};
    for (before, after) in [
        (Bitmap, Resync),
        (Intent, Resync),
        (Resync, Intent),
        (Bitmap, Ppl),
        (Resync, Ppl),
        (Ppl, Bitmap),
        (Ppl, Resync),
    ] {
        let world = World::new(4, 8 << 20);
        let layout = Layout::default_for(Level::Raid5, 4);
        let new = NewArray { zeroed: true, ..NewArray::new("tank", layout, 16 << 10) };
        let new = NewArray { consistency: Some(before), checksums: Some(false), ..new };
        world.create(&new);
        world.disks.iter().for_each(|disk| disk.volatile.set(true));
        let array = world.start();
        let content = pattern(0, 256 << 10, 1);
        world.write(&array, 0, &content).expect("the array is healthy");
        world.run(&array, array.stop()).expect("the array stops");
        drop(array);
        let array = world.start();
        world.disks[1..].iter().for_each(|disk| disk.break_with(Fault::HungAt(SUPERBLOCK)));
        drop(world.begin(&array, 512 << 10, &[0; 4096]));
        assert!(world.disks[1].is_holding() > 0, "its superblock is not written");
        world.cut(array);

        let what = format!("{} to {}", before.name(), after.name());
        let options = Options { consistency: Some(after), ..Options::default() };
        let assembly = world.assemble(0..4, &options).expect("all members are present");
        let array = Array::start(assembly, &world.host);
        world.write(&array, 512 << 10, &content).expect("the array is healthy");
        world.until(&array, whole);
        world.flush(&array);
        world.cut(array);
        let again = world.assemble(0..4, &Options::default());
        let again = again.unwrap_or_else(|why| panic!("{what}: {why}"));
        assert_eq!(again.facts().consistency, after, "{what}");
        let features = |disk: &Rc<crate::world::FaultyDisk>| {
            let mut bytes = vec![0; 4096];
            disk.disk.peek(SUPERBLOCK, &mut bytes);
            let superblock = Superblock::parse(&bytes, SUPERBLOCK / 512).expect("a member");
            (superblock.features, superblock.bitmap_offset)
        };
        let all: Vec<_> = world.disks.iter().map(features).collect();
        assert!(all.iter().all(|own| *own == all[0]), "{what}: {all:?}");
    }
}

/// A spare is removed, or failed, and the power fails: the disk may be in other use by then.
#[test]
fn a_removed_spare_does_not_return_by_itself() {
    for remove in [true, false] {
        let world = World::new(3, 8 << 20);
        let layout = Layout::default_for(Level::Raid1, 2);
        let new = NewArray { zeroed: true, spares: 1, ..NewArray::new("tank", layout, 0) };
        world.create(&new);
        let array = world.start();
        world.write(&array, 0, &pattern(0, 4096, 1)).expect("the array is healthy");
        let spare = array.status().spares[0].id;
        let done = match remove {
            true => world.run(&array, array.remove(spare)),
            false => world.run(&array, array.fail(spare)),
        };
        done.expect("the member has no slot");
        world.cut(array);
        let array = world.start();
        assert_eq!(array.status().spares.len(), 0, "it is one no more");
    }
}
