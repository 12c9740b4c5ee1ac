//! Disputed blocks, where no member is identified as wrong, and their neighbours.

use array::Array;
use layout::{Layout, Level, Stripe};
use metadata::assemble::Options;
use metadata::create::NewArray;

use super::{BLOCK, CHUNK, LEN, checksummed, corrupt, filled, map_of, pause};
use crate::world::{Fault, World, pattern};

#[test]
fn a_scrub_does_not_forget_the_sum_of_a_block_that_no_copy_has() {
    for repair in [false, true] {
        for unreadable in [false, true] {
            let (world, array) = filled(Level::Raid1, 2);
            let from = map_of(&world.disks[0]).data.start;
            // Block 2 is lost on both, in different ways; block 5 on one.
            corrupt(&world.disks[0], from + 2 * BLOCK + 7);
            corrupt(&world.disks[1], from + 2 * BLOCK + 9);
            if unreadable {
                let offset = from + 5 * BLOCK;
                world.disks[0].break_with(Fault::Unreadable { offset, len: 512 });
            } else {
                corrupt(&world.disks[0], from + 5 * BLOCK + 7);
            }
            world
                .read(&array, 2 * BLOCK, 4096)
                .expect_err("the losses exceed the level's tolerance");
            array.scrub(repair).expect("the scrub starts");
            pause(&world, &array);
            world.until(&array, |status| status.last_scrub.is_some() && status.job.is_none());
            for _ in 0..4 {
                let found = world.read(&array, 2 * BLOCK, 4096);
                assert!(found.is_err(), "repair {repair} unreadable {unreadable}: not what it was");
            }
        }
    }
}

/// Parity of a row was wrong when checksums were switched on. No member is identified as wrong, so
/// there are no checksums. A crash interrupts a write to one of its blocks: another, unwritten one
/// must stay as it is.
#[test]
fn an_unwritten_block_without_a_checksum_is_not_wrong() {
    let world = World::new(5, 8 << 20);
    let layout = Layout::default_for(Level::Raid5, 5);
    world.create(&NewArray {
        zeroed: true,
        checksums: Some(false),
        ..NewArray::new("tank", layout, CHUNK)
    });
    let array = world.start();
    world.write(&array, 0, &pattern(0, LEN, 1)).expect("the array is healthy");
    world.flush(&array);
    let map = array.geometry().stripe(Stripe(0));
    let p = map.p().index();
    world.run(&array, array.stop()).expect("the array stops");
    corrupt(&world.disks[p], map_of(&world.disks[p]).data.start + 7);
    let options = Options { checksums: Some(true), ..Options::default() };
    let array =
        Array::start(world.assemble(0..5, &options).expect("the array assembles"), &world.host);
    world.until(&array, checksummed);
    // Blocks 1 and 2 of the row are written, and have checksums.
    for index in 1..3 {
        let at = index * CHUNK;
        world.write(&array, at, &pattern(at, BLOCK as usize, 2)).expect("the array is healthy");
    }
    world.flush(&array);
    let before = world.read(&array, 3 * CHUNK, BLOCK as usize).expect("the array is healthy");
    let d0 = map.data(0).index();
    world.disks[d0].break_with(Fault::HungFrom(map_of(&world.disks[d0]).data.start));
    drop(world.begin(&array, 0, &pattern(0, BLOCK as usize, 3)));
    assert!(world.disks[d0].is_holding() > 0);
    world.crash(array);
    let array = world.start();
    let after = world.read(&array, 3 * CHUNK, BLOCK as usize);
    assert!(before == pattern(3 * CHUNK, BLOCK as usize, 1));
    assert!(after.is_ok_and(|after| after == before), "an unwritten block has changed");
}

/// Copies (or a row) disagree in one sector when checksums are switched on: only that block has no
/// checksum.
#[test]
fn a_disputed_block_costs_no_sum_of_another() {
    for (level, members, chunk) in [(Level::Raid5, 4, 64 << 10), (Level::Raid1, 2, 0)] {
        let mut world = World::new(members, 8 << 20);
        world.host.bounds.unit_bytes = 1 << 20;
        let layout = Layout::default_for(level, members);
        world.create(&NewArray {
            zeroed: true,
            checksums: Some(false),
            ..NewArray::new("tank", layout, chunk)
        });
        let array = world.start();
        world.write(&array, 0, &pattern(0, LEN, 1)).expect("the array is healthy");
        world.flush(&array);
        let other =
            if level == Level::Raid1 { 1 } else { array.geometry().stripe(Stripe(0)).p().index() };
        let first = if level == Level::Raid1 {
            0
        } else {
            array.geometry().stripe(Stripe(0)).data(0).index()
        };
        world.run(&array, array.stop()).expect("the array stops");
        corrupt(&world.disks[other], map_of(&world.disks[other]).data.start + 7);
        let options = Options { checksums: Some(true), ..Options::default() };
        let array = Array::start(
            world.assemble(0..members, &options).expect("the array assembles"),
            &world.host,
        );
        world.until(&array, checksummed);
        // Rot, ten blocks away.
        let at = 10 * BLOCK;
        corrupt(&world.disks[first], map_of(&world.disks[first]).data.start + at + 9);
        for _ in 0..4 {
            let found = world.read(&array, at, BLOCK as usize);
            assert!(
                found.is_ok_and(|found| found == pattern(at, BLOCK as usize, 1)),
                "{level}: rot is delivered"
            );
        }
    }
}
