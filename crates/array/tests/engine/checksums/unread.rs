//! Unreadable parts of headers and tables, and their cost for the checksums.

use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use array::Array;
use layout::md::{Role, Superblock};
use layout::{Level, MemberId, Stripe};
use metadata::assemble::Options;

use super::{BLOCK, LEN, SUPERBLOCK, corrupt, filled, map_of, pause};
use crate::world::{Fault, FaultyDisk, pattern};

/// One bad sector in one member's private header, and rot on another member.
#[test]
fn an_unreadable_header_of_one_member_does_not_cost_all_checksums() {
    for late in [false, true] {
        let (world, array) = filled(Level::Raid5, 4);
        world.run(&array, array.stop()).expect("the array stops");
        let map = map_of(&world.disks[0]);
        corrupt(&world.disks[0], map.data.start + 2 * BLOCK + 7);
        let area = map_of(&world.disks[1]).private.expect("ours");
        let (offset, len) = (area.start, 512);
        let fault = match late {
            true => Fault::LateOnce { offset, len },
            false => Fault::Unreadable { offset, len },
        };
        world.disks[1].break_with(fault);
        let array = world.start();
        let found = world.read(&array, 0, LEN);
        assert!(found.is_ok_and(|f| f == pattern(0, LEN, 1)), "late {late}: rot is delivered");
    }
}

/// The table of a member is unreadable for a moment during replay.
#[test]
fn one_failed_read_of_a_table_does_not_clear_its_entries() {
    let (world, array) = filled(Level::Raid5, 4);
    world.run(&array, array.stop()).expect("the array stops");
    let array = world.start();
    let map = array.geometry().stripe(Stripe(0));
    let (data, hung) = (map.data(0).index(), map.p().index());
    let from = map_of(&world.disks[hung]).data.start;
    world.disks[hung].break_with(Fault::HungFrom(from));
    let write = world.begin(&array, 0, &pattern(0, BLOCK as usize, 2));
    assert!(world.disks[hung].is_holding() > 0);
    drop(write);
    world.crash(array);
    // Elsewhere on the written member, in the same page of its table.
    corrupt(&world.disks[data], map_of(&world.disks[data]).data.start + 3 * BLOCK + 7);
    let offset = map_of(&world.disks[data])
        .private_parts()
        .expect("the member has a private area")
        .checksums
        .start;
    world.disks[data].break_with(Fault::LateOnce { offset, len: 512 });
    let array = world.start();
    let found = world.read(&array, 3 * BLOCK, BLOCK as usize).expect("at most one member is lost");
    assert!(found == pattern(3 * BLOCK, BLOCK as usize, 1), "rot is delivered");
}

/// The power fails in the middle of the commit that assigns a spare to its slot.
#[test]
fn a_spare_that_missed_its_commit_does_not_cost_all_checksums() {
    let (mut world, array) = filled(Level::Raid6, 5);
    let spare = FaultyDisk::new(8 << 20);
    *spare.clock.borrow_mut() = Some(Rc::clone(&world.clock));
    world
        .run(&array, array.add(Rc::clone(&spare) as _, "spare"))
        .expect("the disk is large enough");
    world.disks.push(Rc::clone(&spare));
    let map = array.geometry().stripe(Stripe(0));
    let (bad, gone) = (map.data(0).index(), map.data(2).index());
    pause(&world, &array);
    world.disks.iter().for_each(|disk| disk.delay.set(Duration::from_millis(1)));
    let mut failing = Box::pin(array.fail(MemberId(gone as u32)));
    let first = failing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(first.is_pending(), "the job is running");
    let role = |disk: &FaultyDisk| {
        let mut bytes = vec![0; 4096];
        disk.disk.peek(SUPERBLOCK, &mut bytes);
        let superblock = Superblock::parse(&bytes, 8).expect("a member");
        (superblock.own_role(), bytes)
    };
    let (mut before, mut now) = (role(&spare), role(&spare));
    while !matches!(now.0, Role::Slot(_)) {
        world.sleep(&array, Duration::from_micros(100));
        (before, now) = (now, role(&spare));
    }
    assert_eq!(before.0, Role::Spare);
    drop(failing);
    world.crash(array);
    spare.disk.poke(SUPERBLOCK, &before.1);
    world.disks.iter().for_each(|disk| disk.delay.set(Duration::ZERO));
    corrupt(&world.disks[bad], map_of(&world.disks[bad]).data.start + 2 * BLOCK + 7);
    let there = (0..world.disks.len()).filter(|&d| d != gone);
    let options = Options { degraded: true, ..Options::default() };
    let assembly =
        world.assemble(there, &options).expect("the array starts with one missing member");
    let array = Array::start(assembly, &world.host);
    let found = world.read(&array, 0, LEN);
    assert!(found.is_ok_and(|f| f == pattern(0, LEN, 1)), "rot is delivered");
}

/// Rot in a row that a crash has torn. The table read of that member is late, and the member is
/// lost for that. Its unwritten data was right by parity.
#[test]
fn rot_of_a_member_whose_table_is_late_is_not_folded_into_parity() {
    for late in [false, true] {
        let (world, array) = filled(Level::Raid5, 4);
        world.run(&array, array.stop()).expect("the array stops");
        let array = world.start();
        let map = array.geometry().stripe(Stripe(0));
        let (other, p) = (map.data(1).index(), map.p().index());
        world.disks[p].break_with(Fault::HungFrom(map_of(&world.disks[p]).data.start));
        let write = world.begin(&array, 0, &pattern(0, BLOCK as usize, 2));
        assert!(world.disks[p].is_holding() > 0);
        drop(write);
        world.crash(array);
        corrupt(&world.disks[other], map_of(&world.disks[other]).data.start + 7);
        if late {
            let offset = map_of(&world.disks[other])
                .private_parts()
                .expect("the member has a private area")
                .checksums
                .start;
            world.disks[other].break_with(Fault::LateOnce { offset, len: 512 });
        }
        let array = world.start();
        let at = super::CHUNK;
        let found = world.read(&array, at, BLOCK as usize);
        let right = found.is_ok_and(|found| found == pattern(at, BLOCK as usize, 1));
        assert!(right, "late {late}: an unwritten block has changed");
    }
}
