//! Disks of other sizes than the members': larger ones, and the smallest that fits.

use std::rc::Rc;

use array::Array;
use io::Disk;
use layout::md::Version;
use layout::private::Consistency;
use layout::{Layout, Level, Slot};
use metadata::assemble::Options;
use metadata::create::NewArray;

use crate::world::{FaultyDisk, World, map_at, pattern, whole};

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// Arrays with different structures before the data, and their numbers of members.
fn arrays() -> Vec<(NewArray, usize)> {
    let mut all = Vec::new();
    let levels = [(Level::Raid1, 3), (Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid10, 4)];
    for version in [Version::V1_2, Version::V1_1, Version::V1_0] {
        for (level, count) in levels.into_iter().chain([(Level::Raid35, 3)]) {
            for checksums in [false, true] {
                let layout = Layout::default_for(level, count);
                let chunk = if level == Level::Raid1 { 0 } else { 16 << 10 };
                let mut new = NewArray { version, ..NewArray::new("tank", layout, chunk) };
                (new.zeroed, new.checksums) = (true, Some(checksums));
                all.push((new.clone(), count));
                if level == Level::Raid5 {
                    for consistency in [Consistency::Bitmap, Consistency::Journal, Consistency::Ppl]
                    {
                        new.checksums = Some(checksums && consistency != Consistency::Ppl);
                        all.push((
                            NewArray { consistency: Some(consistency), ..new.clone() },
                            count,
                        ));
                    }
                }
            }
        }
    }
    all
}

/// Slot 1 loses its member and this disk takes its place; it is still there after a restart.
fn take_place(world: &mut World, new: &NewArray, disk: Rc<FaultyDisk>, what: &str) {
    let array = world.start();
    world.write(&array, 0, &pattern(0, 128 << 10, 3)).expect("the array is healthy");
    let added = world.run(&array, array.add(Rc::clone(&disk) as Rc<dyn Disk>, "new"));
    let spare = added.unwrap_or_else(|why| panic!("{what}: {why}"));
    world.run(&array, array.replace(Slot::new(1), spare)).expect("a spare of the right size");
    world.until(&array, whole);
    world.run(&array, array.stop()).expect("the array stops");
    drop(array);
    let parts = map_at(&disk, new.version).private_parts().expect("ours has a private area");
    let others = map_at(&world.disks[0], new.version).private_parts().expect("ours");
    let bytes = |range: &std::ops::Range<u64>| range.end - range.start;
    assert!(bytes(&parts.log) >= bytes(&others.log).min(NEW_LOG), "{what}: a log like the others'");
    let table = (bytes(&parts.checksums) > 0, bytes(&others.checksums) > 0);
    assert_eq!(table.0, table.1, "{what}: a table like the others'");
    world.disks[1] = disk;
    let count = world.disks.len() - usize::from(new.consistency == Some(Consistency::Journal));
    let assembly = world.assemble(0..world.disks.len(), &Options::default());
    let array = Array::start(assembly.unwrap_or_else(|why| panic!("{what}: {why}")), &world.host);
    assert!(whole(&array.status()), "{what}");
    assert!(array.status().slots.len() == count, "{what}");
    let found = world.read(&array, 0, 128 << 10).expect("the array is healthy");
    assert!(found == pattern(0, 128 << 10, 3), "{what}");
    world.run(&array, array.stop()).expect("the array stops");
}

/// The smallest log of a new member.
const NEW_LOG: u64 = layout::private::NEW_LOG_BYTES;

fn create(world: &World, new: &NewArray) {
    match new.consistency {
        Some(Consistency::Journal) => world.create_journaled(new).expect("the array is created"),
        _ => world.create(new),
    }
}

fn journals(new: &NewArray) -> usize {
    usize::from(new.consistency == Some(Consistency::Journal))
}

#[test]
fn a_disk_of_any_larger_size_takes_a_members_place() {
    for (new, count) in arrays() {
        for percent in [100, 101, 105, 150, 200, 1000] {
            let what = format!("{:?} {:?} {percent} %", new.layout, (new.version, new.consistency));
            let mut world = World::new(count + journals(&new), 20 * MIB);
            create(&world, &new);
            let bytes = (20 * MIB * percent / 100).next_multiple_of(4 * KIB);
            take_place(&mut world, &new, FaultyDisk::new(bytes), &what);
        }
    }
}

/// The required size is that of the array's data, not that of the old disk.
#[test]
fn the_smallest_disk_that_holds_a_members_data_fits() {
    for (new, count) in arrays() {
        let what = format!("{:?} {:?}", new.layout, (new.version, new.consistency));
        let new = NewArray { size_bytes: Some(8 * MIB), ..new };
        let mut world = World::new(count + journals(&new), 20 * MIB);
        create(&world, &new);
        let map = map_at(&world.disks[0], new.version);
        let around = 20 * MIB - map.data_bytes();
        // 1.0 needs some blocks more, since its superblock has a fixed distance from the end.
        let least = around + 8 * MIB + if new.version == Version::V1_0 { 64 * KIB } else { 0 };
        let array = world.start();
        let small = FaultyDisk::new(8 * MIB) as Rc<dyn Disk>;
        world.run(&array, array.add(small, "small")).expect_err("it has room for the data only");
        world.run(&array, array.stop()).expect("the array stops");
        drop(array);
        take_place(&mut world, &new, FaultyDisk::new(least), &what);
    }
}

/// Members of very different sizes, and disks of all these sizes as replacements.
#[test]
fn members_of_different_sizes_can_be_replaced_by_each_others_sizes() {
    for (new, count) in arrays() {
        for percent in [100, 150, 1000] {
            let what = format!("{:?} {:?} {percent} %", new.layout, (new.version, new.consistency));
            let mut world = World::new(count + journals(&new), 20 * MIB);
            world.disks[0] = FaultyDisk::new(200 * MIB);
            world.disks[2] = FaultyDisk::new(32 * MIB);
            create(&world, &new);
            let array = world.start();
            let disk = FaultyDisk::new(20 * MIB * percent / 100);
            let added = world.run(&array, array.add(disk as Rc<dyn Disk>, "new"));
            let spare = added.unwrap_or_else(|why| panic!("{what}: {why}"));
            world
                .run(&array, array.fail(layout::MemberId(1)))
                .expect("the level tolerates one loss");
            world.until(&array, whole);
            assert!(
                array.status().slots[1].member.as_ref().is_some_and(|m| m.id == spare),
                "{what}"
            );
            world.run(&array, array.stop()).expect("the array stops");
        }
    }
}

/// A small disk has less room for its log than the others. A session without it must not give the
/// others larger logs: beside those it could never return.
#[test]
fn a_member_with_less_room_for_its_log_returns_after_a_session_without_it() {
    let layout = Layout::default_for(Level::Raid5, 3);
    let mut new = NewArray { zeroed: true, ..NewArray::new("tank", layout, 16 << 10) };
    new.size_bytes = Some(8 * MIB);
    let mut world = World::new(3, 800 * MIB);
    world.disks[1] = FaultyDisk::new(20 * MIB);
    create(&world, &new);
    let log = |disk: usize| map_at(&world.disks[disk], new.version).private_parts().unwrap().log;
    assert!(log(1).end - log(1).start < log(0).end - log(0).start, "it has as much room");
    let array = world.start();
    world.write(&array, 0, &pattern(0, 128 << 10, 3)).expect("the array is healthy");
    world.run(&array, array.stop()).expect("the array stops");
    drop(array);

    let array = world.start_without(&[1]);
    world.write(&array, 0, &pattern(0, 128 << 10, 4)).expect("one member may be missing");
    let small = Rc::clone(&world.disks[1]) as Rc<dyn Disk>;
    world
        .run(&array, array.add(small, "small"))
        .expect("its log is as long as in the last session");
    world.until(&array, whole);
    let found = world.read(&array, 0, 128 << 10).expect("the array is healthy");
    assert!(found == pattern(0, 128 << 10, 4));
}
