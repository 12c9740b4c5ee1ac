//! Members that were away while the others went on: their contents are stale.

use std::rc::Rc;
use std::time::Duration;

use array::Array;
use array::status::SlotState;
use io::{Clock, Disk};
use layout::md::Version;
use layout::private::Consistency;
use layout::{Layout, Level, MemberId, Raid5Layout};
use metadata::assemble::Options;
use metadata::create::NewArray;

use crate::world::{Fault, FaultyDisk, World, pattern};

/// A crash leaves all members equally dirty. An array that continues without one of them must
/// record that before the first write, even if nothing else needs a record. Otherwise the absent
/// member would return as an equal, with its old contents.
#[test]
fn after_a_crash_a_start_without_a_member_is_on_record_before_the_first_write() {
    for (version, bitmap) in [(Version::V1_2, true), (Version::V1_0, true), (Version::V1_2, false)]
    {
        let world = World::new(2, 8 << 20);
        let mut new = NewArray { version, zeroed: true, ..NewArray::new("tank", Layout::Raid1, 0) };
        new.bitmap = new.bitmap.filter(|_| bitmap);
        world.create(&new);
        let both = world.start();
        world.write(&both, 0, &pattern(0, 4096, 1)).expect("both members accept the write");
        drop(both);

        let alone = Options { degraded: true, ..Options::default() };
        let assembly = world.assemble([1], &alone).expect("one of two members suffices");
        let array = Array::start(assembly, &world.host);
        world.write(&array, 0, &pattern(0, 4096, 2)).expect("the other member is missing");
        drop(array);

        let assembly =
            world.assemble([0, 1], &alone).expect("one member has the newest superblock");
        let array = Array::start(assembly, &world.host);
        for _ in 0..8 {
            let found = world.read(&array, 0, 4096).expect("a member has the data");
            assert!(found == pattern(0, 4096, 2), "the acknowledged data, not the data before");
        }
    }
}

/// The same with parity, where a start without a member after a crash must be forced.
#[test]
fn a_forced_start_without_a_member_is_on_record_before_the_first_write() {
    let world = World::new(3, 8 << 20);
    let layout = Layout::Raid5(Raid5Layout::LeftSymmetric);
    world.create(&NewArray { zeroed: true, ..NewArray::new("tank", layout, 16 << 10) });
    let all = world.start();
    world.write(&all, 0, &pattern(0, 32 << 10, 1)).expect("all members accept the write");
    drop(all);

    let forced = Options { degraded: true, force_dirty_degraded: true, ..Options::default() };
    let assembly = world.assemble([1, 2], &forced).expect("two of three, at a risk");
    let array = Array::start(assembly, &world.host);
    world.write(&array, 0, &pattern(0, 32 << 10, 2)).expect("the third member is missing");
    drop(array);

    let assembly =
        world.assemble([0, 1, 2], &forced).expect("two members have the newest superblock");
    let array = Array::start(assembly, &world.host);
    let found = world.read(&array, 0, 32 << 10).expect("parity has it");
    assert!(found == pattern(0, 32 << 10, 2), "the acknowledged data, not the data before");
}

/// Data that was read after a crash stays the same whichever members return. A write was torn, and
/// the absent member holds the other part of it.
#[test]
fn data_read_without_a_member_stays_when_it_returns() {
    let raid5 = Layout::Raid5(Raid5Layout::LeftSymmetric);
    for (layout, chunk, count) in [(Layout::Raid1, 0, 2), (raid5, 16 << 10, 3)] {
        for (slow, away) in (0..count).flat_map(|slow| (0..count).map(move |away| (slow, away))) {
            let world = World::new(count, 8 << 20);
            world.create(&NewArray { zeroed: true, ..NewArray::new("tank", layout, chunk) });
            let all = world.start();
            world.write(&all, 0, &pattern(0, 32 << 10, 1)).expect("all members accept the write");
            let data = world.data_offset();
            world.disks[slow].break_with(Fault::HungFrom(data));
            drop(world.begin(&all, 0, &pattern(0, 4096, 2)));
            world.crash(all);

            let options = Options { degraded: true, ..Options::default() };
            let there = (0..count).filter(|&disk| disk != away);
            let assembly =
                world.assemble(there, &options).expect("the array starts with one missing member");
            let array = Array::start(assembly, &world.host);
            let Ok(read) = world.read(&array, 0, 4096) else { continue };
            drop(array);
            let assembly = world.assemble(0..count, &options).expect("all members have returned");
            let array = Array::start(assembly, &world.host);
            for _ in 0..8 {
                let again = world.read(&array, 0, 4096).expect("the block was read before");
                assert!(again == read, "{layout:?}: {slow} was slow, {away} away");
            }
        }
    }
}

/// A power failure leaves one member an event ahead. It is away when the others go on, to the
/// number that it already has. That number does not show the writes that it missed, so their bits
/// must be set when it returns.
#[test]
fn a_member_ahead_and_away_gets_missed_writes_though_the_others_were_idle() {
    let raid5 = Layout::Raid5(Raid5Layout::LeftSymmetric);
    for (layout, chunk, count) in [(Layout::Raid1, 0, 2), (raid5, 16 << 10, 3)] {
        let mut world = World::new(count, 8 << 20);
        world.create(&NewArray { zeroed: true, ..NewArray::new("tank", layout, chunk) });
        world.host.bounds.clean_delay = Duration::from_secs(3600);
        let all = world.start();
        world.write(&all, 0, &pattern(0, 64 << 10, 1)).expect("all members accept the write");
        world.run(&all, all.stop()).expect("operations succeed");
        drop(all);
        // The commit for the first write of the next session reaches only the first member.
        let all = world.start();
        world.disks[1..].iter().for_each(|disk| disk.break_with(Fault::HungAt(4096)));
        drop(world.begin(&all, 0, &pattern(0, 64 << 10, 9)));
        assert!(world.disks[1].is_holding() > 0);
        world.crash(all);

        let array = world.start_without(&[0]);
        world
            .write(&array, 0, &pattern(0, 64 << 10, 2))
            .expect("the array starts with one missing member");
        world.flush(&array);
        let until = world.clock.now() + 4 * world.host.bounds.region_linger;
        world.run(&array, world.clock.sleep_until(until));
        let back = Rc::clone(&world.disks[0]) as Rc<dyn Disk>;
        let back = world.run(&array, array.readd(back, "back"));
        back.expect("the bitmap covers the missed writes");
        world.until(&array, |status| {
            status.slots.iter().all(|slot| slot.state == SlotState::InSync)
        });
        world.run(&array, array.fail(MemberId(1))).expect("the level tolerates one loss");
        let found = world.read(&array, 0, 64 << 10).expect("degraded");
        assert!(found == pattern(0, 64 << 10, 2), "the flushed data, not the data before");
    }
}

/// Each of two members of a mirror has run without the other. Their superblocks alone are those of
/// a split brain; the third member saw both, and proves which one is stale.
#[test]
fn a_member_that_saw_both_others_proves_their_order() {
    let world = World::new(3, 8 << 20);
    world.create(&NewArray { zeroed: true, ..NewArray::new("tank", Layout::Raid1, 0) });
    let alone = Options { degraded: true, ..Options::default() };
    let all = world.start();
    world.run(&all, all.fail(MemberId(0))).expect("two others hold the data");
    world.write(&all, 0, &pattern(0, 4096, 1)).expect("degraded");
    world.run(&all, all.stop()).expect("clean");
    drop(all);

    let array = Array::start(world.assemble([2], &alone).expect("one of two"), &world.host);
    let back = Rc::clone(&world.disks[0]) as Rc<dyn Disk>;
    world.run(&array, array.readd(back, "disk0")).expect("the bitmap covers the missed writes");
    world.until(&array, |status| status.slots[0].state == SlotState::InSync);
    world.write(&array, 0, &pattern(0, 4096, 2)).expect("without member 1");
    world.run(&array, array.stop()).expect("clean");
    drop(array);

    let array = Array::start(world.assemble([0], &alone).expect("one of two"), &world.host);
    world.write(&array, 0, &pattern(0, 4096, 3)).expect("without members 1 and 2");
    world.run(&array, array.stop()).expect("clean");
    drop(array);

    assert!(world.assemble([0, 1], &alone).is_err(), "without member 2 this is a split brain");
    for order in [[0, 1, 2], [1, 2, 0], [2, 1, 0]] {
        let assembly = world.assemble(order, &alone).expect("member 2 proves the order");
        let array = Array::start(assembly, &world.host);
        let found = world.read(&array, 0, 4096).expect("member 0 is the freshest");
        assert!(found == pattern(0, 4096, 3), "the last acknowledged write");
        world.run(&array, array.stop()).expect("clean");
    }
}

/// All bytes of a member, as a copy of its image would have them.
fn image(disk: &FaultyDisk) -> Vec<u8> {
    let mut bytes = vec![0; disk.limits().bytes as usize];
    disk.disk.peek(0, &mut bytes);
    bytes
}

/// The arrays on which a rolled-back member is detected: the array, its number of members, and
/// whether it starts degraded after a crash.
fn rolled_back_arrays() -> Vec<(NewArray, usize, bool)> {
    let raid5 = Layout::Raid5(Raid5Layout::LeftSymmetric);
    let mut all = Vec::new();
    for version in [Version::V1_2, Version::V1_0] {
        for checksums in [Some(true), Some(false)] {
            let new = |layout, chunk| NewArray {
                version,
                checksums,
                zeroed: true,
                ..NewArray::new("tank", layout, chunk)
            };
            all.push((new(Layout::Raid1, 0), 2, true));
            all.push((new(Layout::Raid1, 0), 3, true));
            all.push((new(Layout::default_for(Level::Raid10, 4), 16 << 10), 4, true));
            all.push((new(Layout::default_for(Level::Raid6, 4), 16 << 10), 4, true));
            all.push((new(raid5, 16 << 10), 3, true));
            let bitmap = Some(Consistency::Bitmap);
            all.push((NewArray { consistency: bitmap, ..new(raid5, 16 << 10) }, 3, false));
        }
    }
    all
}

/// A member is rolled back to its state before the session. It is one event behind, as after a
/// power failure in the middle of a commit, but it has missed every write of the session.
#[test]
fn a_copy_of_a_member_from_before_the_session_is_left_out() {
    for (new, count, starts) in rolled_back_arrays() {
        for sessions in [1, 2] {
            let what = format!("{:?} {:?} {:?}", new.layout, new.version, new.checksums);
            let mut world = World::new(count, 16 << 20);
            world.create(&new);
            world.host.bounds.clean_delay = Duration::from_secs(3600);
            for session in 1..sessions {
                let all = world.start();
                world
                    .write(&all, 0, &pattern(0, 128 << 10, session))
                    .expect("all members accept the write");
                world.run(&all, all.stop()).expect("operations succeed");
            }
            let old = image(&world.disks[1]);
            let all = world.start();
            world.write(&all, 0, &pattern(0, 128 << 10, 9)).expect("all members accept the write");
            world.flush(&all);
            world.crash(all);
            world.disks[1].disk.poke(0, &old);

            let refused = world.assemble(0..count, &Options::default());
            let why = refused.map(|_| ()).expect_err("one member missed all writes").to_string();
            assert!(why.contains("took no part"), "{what}: {why}");
            if !starts {
                let why = world.assemble_without(&[]).map(|_| ()).expect_err("no log").to_string();
                assert!(why.contains("force-dirty-degraded"), "{what}: {why}");
                continue;
            }
            let array = world.start();
            let found = world.read(&array, 0, 128 << 10).expect("the other members have the data");
            assert!(found == pattern(0, 128 << 10, 9), "{what}: what was flushed");
            // With or without the bitmap, it returns with the missed writes.
            let back = Rc::clone(&world.disks[1]) as Rc<dyn Disk>;
            if world.run(&array, array.readd(Rc::clone(&back), "back")).is_err() {
                world.run(&array, array.add(back, "back")).expect("as a new member");
            }
            world.until(&array, crate::world::whole);
            world.run(&array, array.fail(MemberId(0))).expect("the level tolerates one loss");
            let found = world.read(&array, 0, 128 << 10).expect("degraded");
            assert!(found == pattern(0, 128 << 10, 9), "{what}: it was brought up to date");
        }
    }
}

/// A power failure in the middle of a commit leaves members one event behind too, but they have
/// missed nothing. The same holds after a second failure, in a commit with the same number.
#[test]
fn a_member_left_one_event_behind_by_a_power_loss_is_valid() {
    for (new, count, starts) in rolled_back_arrays() {
        for twice in [false, true] {
            let what = format!("{:?} {:?} {:?} {twice}", new.layout, new.version, new.checksums);
            let mut world = World::new(count, 16 << 20);
            world.create(&new);
            world.host.bounds.clean_delay = Duration::from_secs(3600);
            let all = world.start();
            world.write(&all, 0, &pattern(0, 128 << 10, 1)).expect("all members accept the write");
            world.run(&all, all.stop()).expect("operations succeed");
            let place = crate::world::map_at(&world.disks[0], new.version).superblock.start;
            let hang = |disks: &[Rc<FaultyDisk>]| {
                disks.iter().for_each(|disk| disk.break_with(Fault::HungAt(place)));
            };
            let all = world.start();
            hang(&world.disks[1..]);
            drop(world.begin(&all, 0, &pattern(0, 64 << 10, 2)));
            assert!(world.disks[1].is_holding() > 0, "{what}: it is in the middle of a commit");
            world.crash(all);
            if twice {
                // The member that is ahead is away, and the others get no further.
                let Ok(assembly) = world.assemble_without(&[0]) else {
                    assert!(!starts, "{what}");
                    continue;
                };
                let array = Array::start(assembly, &world.host);
                hang(&world.disks[1..]);
                drop(world.begin(&array, 0, &pattern(0, 64 << 10, 3)));
                world.crash(array);
            }
            let assembly = world.assemble(0..count, &Options::default());
            let array = Array::start(assembly.expect("no member missed a write"), &world.host);
            world.until(&array, crate::world::whole);
            let found = world.read(&array, 64 << 10, 64 << 10).expect("the array is healthy");
            assert!(found == pattern(0, 128 << 10, 1)[64 << 10..], "{what}");
        }
    }
}

/// A label copied to a new disk, or firmware that put one back: the superblock is of the last
/// event, and the rest of the disk reads as zeros.
#[test]
fn a_member_with_nothing_but_its_superblock_is_left_out_and_rebuilt() {
    for (new, count, _) in rolled_back_arrays() {
        let mirror = matches!(new.layout.level(), Level::Raid1 | Level::Raid10);
        let headed = new.checksums == Some(true) || !mirror;
        for (hollow, bitmap) in [(0, false), (1, false), (1, true)] {
            let what = format!("{:?} {:?} {:?} {bitmap}", new.layout, new.version, new.checksums);
            let world = World::new(count, 16 << 20);
            world.create(&new);
            let all = world.start();
            world.write(&all, 0, &pattern(0, 128 << 10, 3)).expect("all members accept the write");
            world.run(&all, all.stop()).expect("operations succeed");
            let disk = &world.disks[hollow];
            let map = crate::world::map_at(disk, new.version);
            let whole = image(disk);
            disk.disk.poke(0, &vec![0; whole.len()]);
            let structures = [Some(map.superblock.clone()), map.bitmap.clone().filter(|_| bitmap)];
            for range in structures.into_iter().flatten() {
                let bytes = &whole[range.start as usize..range.end as usize];
                disk.disk.poke(range.start, bytes);
            }
            let refused = world.assemble(0..count, &Options::default()).map(|_| ());
            if !headed && bitmap {
                // Nothing shows it.
                assert!(refused.is_ok(), "{what}");
                continue;
            }
            let why = refused.expect_err("one member lost its data").to_string();
            assert!(why.contains("lost"), "{what}: {why}");
            let array = world.start();
            let found = world.read(&array, 0, 128 << 10).expect("the other members have the data");
            assert!(found == pattern(0, 128 << 10, 3), "{what}");
            let back = || Rc::clone(disk) as Rc<dyn Disk>;
            let refused = world.run(&array, array.readd(back(), "back")).map(|_| ());
            refused.expect_err("the bitmap does not cover the lost bytes");
            world.run(&array, array.add(back(), "back")).expect("as a new member");
            world.until(&array, crate::world::whole);
            let other = MemberId(if hollow == 0 { 1 } else { 0 });
            world.run(&array, array.fail(other)).expect("the level tolerates one loss");
            let found = world.read(&array, 0, 128 << 10).expect("degraded");
            assert!(found == pattern(0, 128 << 10, 3), "{what}: it was rebuilt");
        }
    }
}
