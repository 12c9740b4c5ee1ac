//! Scrubs: findings, wrong members, repairs, and unchanged data.

use std::time::Duration;

use array::status::EventKind;
use array::{Array, ScrubResult};
use io::Disk;
use layout::{Layout, Level, MemberId, Slot};
use metadata::create::NewArray;

use crate::world::{Fault, World, pattern};

const MEMBER_BYTES: u64 = 6 << 20;
fn world(layout: Layout, members: usize, spares: usize) -> World {
    let world = World::new(members + spares, MEMBER_BYTES);
    let chunk = match layout.level() {
        Level::Raid1 => 0,
        Level::Raid35 => 1024,
        _ => 16 << 10,
    };
    world.create(&NewArray {
        zeroed: true,
        spares,
        checksums: Some(false),
        ..NewArray::new("tank", layout, chunk)
    });
    world
}

fn scrub(world: &World, array: &Array, repair: bool) -> ScrubResult {
    let before = array.status().last_scrub.map(|scrub| scrub.unix_micros);
    array.scrub(repair).expect("no other task runs");
    world
        .until(array, |status| status.last_scrub.as_ref().map(|scrub| scrub.unix_micros) != before);
    array.status().last_scrub.expect("a scrub has ended")
}

/// The whole content of the array.
fn content(world: &World, array: &Array) -> Vec<u8> {
    let all = array.limits().bytes;
    let part = |at: u64| {
        world.read(array, at, (1 << 19).min(all - at) as usize).expect("the read succeeds")
    };
    (0..all).step_by(1 << 19).flat_map(part).collect()
}

/// Fills the array and returns its content.
fn fill(world: &World, array: &Array) -> Vec<u8> {
    let bytes = pattern(0, array.limits().bytes as usize, 3);
    for (index, part) in bytes.chunks(1 << 19).enumerate() {
        world.write(array, (index as u64) << 19, part).expect("the array is healthy");
    }
    bytes
}

/// All bytes of all disks from the start of the data on.
fn disks(world: &World, from: u64) -> Vec<Vec<u8>> {
    let bytes = |disk: &std::rc::Rc<crate::world::FaultyDisk>| {
        let mut bytes = vec![0; (MEMBER_BYTES - from) as usize];
        disk.disk.peek(from, &mut bytes);
        bytes
    };
    world.disks.iter().map(bytes).collect()
}

#[test]
fn of_three_copies_each_block_is_judged_by_itself_and_only_outvoted_ones_are_written() {
    for layout in
        [Layout::default_for(Level::Raid1, 3), Layout::Raid10 { near: 3, far: 1, offset: false }]
    {
        let world = world(layout, 3, 0);
        let from = world.data_offset();
        let array = world.start();
        let bytes = fill(&world, &array);
        let before = disks(&world, from);
        // All in one stretch, the last ones in neighbouring blocks.
        world.disks[0].disk.poke(from + 100_000, &[0xee; 10]);
        world.disks[1].disk.poke(from + 102_000, &[0xdd; 10]);
        world.disks[2].disk.poke(from + 110_080, &[0xcc; 1500]);
        world.disks[2].break_with(Fault::Unreadable { offset: from + 122_880, len: 512 });
        let found = scrub(&world, &array, false).report;
        let blamed: Vec<_> = found
            .findings
            .iter()
            .map(|f| (f.culprit.map(|slot| slot.index()), f.disk_offset - from, f.len))
            .collect();
        let expected = [(Some(0), 99_840, 512), (Some(1), 101_888, 512), (Some(2), 110_080, 1536)];
        assert_eq!(blamed, expected, "{layout:?}");
        // A check also restores unreadable blocks.
        assert_eq!((found.mismatches, found.repaired_bytes, found.lost_bytes), (3, 4096, 0));
        let written = || world.disks.iter().map(|disk| disk.writes.get()).collect::<Vec<_>>();
        let writes = written();
        let repair = scrub(&world, &array, true).report;
        assert_eq!(repair.guessed_bytes, 0, "all were outvoted");
        assert_eq!(repair.repaired_bytes, 2560);
        let writes: Vec<u64> = written().iter().zip(writes).map(|(now, then)| now - then).collect();
        assert!(writes.iter().all(|&count| count <= 3), "no more than was wrong: {writes:?}");
        assert!(disks(&world, from) == before, "{layout:?}: all as it was");
        assert!(content(&world, &array) == bytes);
        assert!(world.disks[2].faults.borrow().is_empty(), "the bad sector was written");
        assert_eq!(scrub(&world, &array, false).report.mismatches, 0);
    }
}

#[test]
fn a_check_restores_unreadable_blocks_and_changes_no_others() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5)] {
        let layout = Layout::default_for(level, members);
        let world = world(layout, members, 0);
        let from = world.data_offset();
        let array = world.start();
        let bytes = fill(&world, &array);
        let before = disks(&world, from);
        for at in [8192, 300_032] {
            world.disks[1].break_with(Fault::Unreadable { offset: from + at, len: 512 });
        }
        // A mismatch elsewhere is reported, and left.
        let mut wrong = [0; 1];
        world.disks[0].disk.peek(from + 600_000, &mut wrong);
        world.disks[0].disk.poke(from + 600_000, &[!wrong[0]]);
        let check = scrub(&world, &array, false).report;
        assert_eq!((check.mismatches, check.lost_bytes), (1, 0), "{layout:?}");
        assert_eq!(check.repaired_bytes, 2 * 4096, "{layout:?}");
        assert!(world.disks[1].faults.borrow().is_empty(), "{layout:?}: both can be read again");
        world.disks[0].disk.poke(from + 600_000, &wrong);
        assert!(disks(&world, from) == before, "{layout:?}");
        assert!(content(&world, &array) == bytes, "{layout:?}");
    }
}

#[test]
fn without_a_majority_the_first_copy_is_used_as_a_guess() {
    // Two copies; and three that are all different.
    for copies in [2, 3] {
        let world = world(Layout::default_for(Level::Raid1, copies), copies, 0);
        let from = world.data_offset();
        let array = world.start();
        let mut bytes = fill(&world, &array);
        for (index, disk) in world.disks.iter().enumerate() {
            disk.disk.poke(from + 65_536, &[index as u8; 512]);
        }
        let check = scrub(&world, &array, false).report;
        assert_eq!((check.mismatches, check.guessed_bytes), (1, 0));
        let found = check.findings[0];
        assert_eq!((found.culprit, found.array_offset, found.len), (None, 65_536, 512));
        let repair = scrub(&world, &array, true).report;
        let written = 512 * (copies as u64 - 1);
        assert_eq!((repair.repaired_bytes, repair.guessed_bytes), (written, written));
        bytes[65_536..66_048].fill(0);
        assert!(content(&world, &array) == bytes);
        assert_eq!(scrub(&world, &array, false).report.mismatches, 0);
    }
}

#[test]
fn members_that_are_wrong_in_different_rows_of_a_stripe_are_all_named_on_raid_6() {
    let layout = Layout::default_for(Level::Raid6, 5);
    let world = world(layout, 5, 0);
    let from = world.data_offset();
    let array = world.start();
    let bytes = fill(&world, &array);
    let before = disks(&world, from);
    // One chunk on each member is one stripe; neighbours and far apart, data and parity.
    for (disk, disk_bytes) in world.disks.iter().enumerate() {
        let at = 4 * (16 << 10) + disk as u64 * 1536;
        disk_bytes.disk.poke(from + at, &[0x5a; 700]);
    }
    // An unreadable sector must not hide or damage a mismatch beside it.
    let bad = from + 4 * (16 << 10) + 12_288;
    world.disks[2].break_with(Fault::Unreadable { offset: bad, len: 512 });
    let found = scrub(&world, &array, false).report;
    let blamed: Vec<_> = found.findings.iter().map(|f| (f.culprit, f.disk_offset - from)).collect();
    let place = |disk: u64| (Some(Slot::new(disk as usize)), 65_536 + disk * 1536);
    assert_eq!(blamed, (0..5).map(place).collect::<Vec<_>>());
    let repair = scrub(&world, &array, true).report;
    assert_eq!((repair.mismatches, repair.guessed_bytes), (5, 0));
    assert!(disks(&world, from) == before);
    assert!(content(&world, &array) == bytes);
    assert!(world.disks[2].faults.borrow().is_empty(), "the bad sector was written");
}

#[test]
fn raid_5_cannot_identify_the_wrong_member_and_reports_a_guess() {
    let world = world(Layout::default_for(Level::Raid5, 4), 4, 0);
    let from = world.data_offset();
    let array = world.start();
    fill(&world, &array);
    world.disks[1].disk.poke(from + 40_960, &[0x5a; 512]);
    let check = scrub(&world, &array, false).report;
    assert_eq!(
        (check.mismatches, check.findings[0].culprit, check.findings[0].len),
        (1, None, 512)
    );
    assert_eq!(check.compared_bytes, array.limits().bytes);
    let repair = scrub(&world, &array, true).report;
    assert_eq!((repair.repaired_bytes, repair.guessed_bytes), (512, 512));
    assert_eq!(scrub(&world, &array, false).report.mismatches, 0);
}

#[test]
fn all_mismatches_are_counted_though_not_all_are_listed() {
    let world = world(Layout::default_for(Level::Raid1, 2), 2, 0);
    let from = world.data_offset();
    let array = world.start();
    fill(&world, &array);
    for place in 0..1500 {
        world.disks[1].disk.poke(from + place * 1024, &[0xff, 0]);
        world.disks[1].disk.poke(from + place * 1024 + 2, &[0, 0xff]);
    }
    let found = scrub(&world, &array, false).report;
    assert_eq!((found.mismatches, found.findings.len()), (1500, 1000));
}

#[test]
fn of_small_chunks_background_work_reads_and_writes_whole_runs_of_a_member() {
    // Rows of 1 KiB: a member holds 5 MiB of them.
    let world = world(Layout::Raid35 { order: 2 }, 5, 1);
    let array = world.start();
    let bytes = fill(&world, &array);
    let units = array.limits().bytes.div_ceil(64 << 10);
    let operations = |world: &World| {
        world.disks.iter().map(|disk| disk.reads.get() + disk.writes.get()).max().expect("disks")
    };
    let before = operations(&world);
    assert_eq!(scrub(&world, &array, false).report.compared_bytes, array.limits().bytes);
    let asked = operations(&world) - before;
    assert!(asked <= units + 16, "{asked} operations for {units} units");
    let before = operations(&world);
    world.disks[1].break_with(Fault::Gone);
    world.write(&array, 0, &bytes[..512]).expect("the level tolerates one loss");
    let whole = |status: &array::Status| status.redundancy_left == 1 && status.job.is_none();
    world.until(&array, whole);
    let asked = operations(&world) - before;
    assert!(asked <= units + 64, "{asked} operations for {units} units");
    assert!(content(&world, &array) == bytes);
}

#[test]
fn a_scrub_ends_when_a_member_is_lost_and_the_spare_takes_over_at_once() {
    for (layout, members) in [
        (Layout::default_for(Level::Raid1, 2), 2),
        (Layout::default_for(Level::Raid6, 5), 5),
        (Layout::default_for(Level::Raid10, 4), 4),
    ] {
        for repair in [false, true] {
            let world = world(layout, members, 1);
            let array = world.start();
            fill(&world, &array);
            // A long delay after each piece: the job would take hours.
            array.set_speed(1024, 1024);
            array.scrub(repair).expect("no other task runs");
            world.until(&array, |status| status.job.as_ref().is_some_and(|job| job.done_bytes > 0));
            let begun = io::Clock::now(&*world.clock);
            world.disks[1].break_with(Fault::Gone);
            world.write(&array, 0, &pattern(0, 65_536, 3)).expect("the level tolerates one loss");
            world.until(&array, |status| status.spares.is_empty());
            assert!(io::Clock::now(&*world.clock) - begun < Duration::from_secs(1), "at once");
            let scrub = array.status().last_scrub.expect("a scrub has ended");
            assert!(!scrub.complete, "{layout:?}");
            let compared = scrub.report.compared_bytes;
            assert!(compared > 0 && compared < array.limits().bytes, "{compared}");
            let events = array.log().since(0);
            let interrupted = events.iter().find(|event| event.kind == EventKind::JobInterrupted);
            let interrupted = &interrupted.expect("the interruption is logged").text;
            assert!(
                interrupted.contains("a member was lost") && interrupted.contains("compared"),
                "{interrupted}"
            );
            array.set_speed(0, u64::MAX);
            world.until(&array, |status| status.redundancy_left >= 1 && status.job.is_none());
        }
    }
}

#[test]
fn a_scrub_goes_on_where_it_was_stopped() {
    let world = world(Layout::default_for(Level::Raid6, 5), 5, 0);
    let array = world.start();
    fill(&world, &array);
    let all = array.limits().bytes;
    array.set_speed(1024, 1024);
    array.scrub(false).expect("no other task runs");
    world.until(&array, |status| status.job.as_ref().is_some_and(|job| job.done_bytes > 0));
    array.stop_scrub().expect("it runs");
    world.until(&array, |status| status.last_scrub.is_some());
    let first = array.status().last_scrub.expect("a scrub has ended");
    assert!(!first.complete && first.range.start == 0);
    assert!(first.range.end > 0 && first.range.end < all, "{:?}", first.range);
    assert_eq!(first.range.end, first.report.compared_bytes);
    // A mismatch below is not looked at again; one above is found.
    let from = world.data_offset();
    world.disks[1].disk.poke(from + 1024, &[0x77; 300]);
    let last = all / 3 - 4096;
    world.disks[1].disk.poke(from + last, &[0x77; 300]);
    array.set_speed(0, u64::MAX);
    array.scrub_from(false, first.range.end).expect("no other task runs");
    world.until(&array, |status| status.last_scrub.as_ref().is_some_and(|scrub| scrub.complete));
    let second = array.status().last_scrub.expect("a scrub has ended");
    assert_eq!((second.range.clone(), second.report.mismatches), (first.range.end..all, 1));
    for beyond in [all, all + 1, u64::MAX] {
        assert!(array.scrub_from(false, beyond).is_err(), "{beyond}");
    }
    array.scrub_from(false, all - 1).expect("the last byte");
    world.until(&array, |status| {
        status.last_scrub.as_ref().is_some_and(|scrub| scrub.range.start == all - 1)
    });
}

#[test]
fn a_check_of_a_degraded_array_compares_the_remaining_redundancy() {
    // RAID 6 without a data, P or Q slot, each in some stripes: the rest is compared.
    let world = world(Layout::default_for(Level::Raid6, 5), 5, 0);
    let from = world.data_offset();
    let array = world.start();
    fill(&world, &array);
    world.run(&array, array.fail(MemberId(4))).expect("the level tolerates one loss");
    let sound = scrub(&world, &array, false);
    let all = array.limits().bytes;
    assert_eq!(
        (sound.complete, sound.report.compared_bytes, sound.report.mismatches),
        (true, all, 0)
    );
    // A chunk of each of five stripes: parity moves, and each mismatch is found.
    for stripe in 0..5 {
        world.disks[1].disk.poke(from + stripe * (16 << 10) + 1024, &[0x77; 300]);
    }
    let found = scrub(&world, &array, false).report;
    assert_eq!((found.mismatches, found.findings[0].len), (5, 512));
    let refused =
        array.scrub(true).expect_err("the wrong member could not be identified").to_string();
    assert!(refused.contains("a check is possible"), "{refused}");
    world.run(&array, array.fail(MemberId(3))).expect("the level tolerates another loss");
    let refused = array.scrub(false).expect_err("no copy is left").to_string();
    assert!(refused.contains("no redundancy is left"), "{refused}");

    // Mirrors: two of three copies; the other pair of RAID 10; and one copy alone.
    for (level, members, compared) in
        [(Level::Raid1, 3, Some(1)), (Level::Raid10, 4, Some(2)), (Level::Raid1, 2, None)]
    {
        let world = self::world(Layout::default_for(level, members), members, 0);
        let array = world.start();
        fill(&world, &array);
        world.run(&array, array.fail(MemberId(0))).expect("the level tolerates one loss");
        match compared {
            Some(share) => {
                let all = array.limits().bytes / share;
                assert_eq!(scrub(&world, &array, false).report.compared_bytes, all, "{level}");
            }
            None => drop(array.scrub(false).expect_err("one copy is left")),
        }
    }
}

#[test]
fn a_speed_limit_is_that_of_each_member_on_every_level() {
    for (level, members) in [
        (Level::Raid5, 4),
        (Level::Raid6, 4),
        (Level::Raid1, 2),
        (Level::Raid1, 3),
        (Level::Raid10, 4),
        (Level::Raid10, 5),
    ] {
        let world = world(Layout::default_for(level, members), members, 0);
        let array = world.start();
        let read = || {
            let status = array.status();
            let members = status.slots.into_iter().filter_map(|slot| slot.member);
            members.map(|member| member.read_bytes).max().expect("members")
        };
        let before = read();
        array.set_speed(1 << 20, 1 << 20);
        let seconds = scrub(&world, &array, false).duration.as_secs_f64();
        let rate = (read() - before) as f64 / seconds / f64::from(1 << 20);
        assert!((0.9..1.1).contains(&rate), "{level} of {members}: {rate} MiB/s");
    }
}

#[test]
fn a_checked_read_with_a_mismatch_is_corrected_on_raid_6_and_an_error_on_raid_5() {
    for (level, members) in [(Level::Raid6, 5), (Level::Raid5, 4)] {
        let mut world = world(Layout::default_for(level, members), members, 0);
        let from = world.data_offset();
        world.host.check_reads = true;
        let array = world.start();
        let bytes = fill(&world, &array);
        let before = disks(&world, from);
        (0..2).for_each(|disk| {
            let at = from + 65_536 + disk as u64 * 2048;
            world.disks[disk].disk.poke(at, &[0x5a; 900]);
        });
        let stripe = array.geometry().stripe_bytes();
        let read = world.read(&array, 4 * stripe, stripe as usize);
        let events = array.log().since(0);
        let count = |kind: EventKind| events.iter().filter(|event| event.kind == kind).count();
        if level == Level::Raid6 {
            assert_eq!(
                read.expect("both are named"),
                bytes[4 * stripe as usize..][..stripe as usize]
            );
            assert!(disks(&world, from) == before, "and made right");
            world.until(&array, |_| array.log().count() >= 2);
            let events = array.log().since(0);
            assert_eq!(events.iter().filter(|e| e.kind == EventKind::Repaired).count(), 2);
        } else {
            assert!(read.is_err(), "the wrong member cannot be identified");
            world.until(&array, |_| array.log().count() >= 1);
            assert_eq!(count(EventKind::Repaired), 0);
            let events = array.log().since(0);
            assert!(events.iter().any(|event| event.text.contains("contradict")), "{events:?}");
        }
    }
}

#[test]
fn a_part_is_compared_by_itself_and_says_nothing_of_the_rest() {
    let world = world(Layout::default_for(Level::Raid6, 5), 5, 0);
    let array = world.start();
    fill(&world, &array);
    let whole = scrub(&world, &array, false);
    let (all, stripe, from) = (array.limits().bytes, 3 * (16 << 10), world.data_offset());
    // One mismatch in the part, one before it and one behind.
    for at in [0, 1 << 20, (1 << 20) + (32 << 10)] {
        world.disks[1].disk.poke(from + at + 100, &[0x77; 300]);
    }
    let asked = 3 * (1 << 20) + 5..3 * (1 << 20) + 6;
    array.scrub_part(false, asked.clone()).expect("no other task runs");
    world.until(&array, |status| status.last_part.is_some());
    let status = array.status();
    let part = status.last_part.expect("just looked at");
    let start = asked.start / stripe * stripe;
    assert_eq!((part.range.clone(), part.complete), (start..start + stripe, true));
    assert_eq!((part.report.mismatches, part.report.compared_bytes), (1, stripe));
    let last = status.last_scrub.expect("the whole one");
    assert_eq!((last.range, last.unix_micros), (whole.range, whole.unix_micros));
    let texts: Vec<String> = array.log().since(0).into_iter().map(|event| event.text).collect();
    let text = format!("check of {stripe} bytes at {start} of the array finished");
    assert!(texts.contains(&text), "{texts:?}");
    for wrong in [0..0, all..all, 0..all + 1, all - 1..u64::MAX] {
        assert!(array.scrub_part(false, wrong.clone()).is_err(), "{wrong:?}");
    }
    // The last byte, and a repair.
    array.scrub_part(true, all - 1..all).expect("no other task runs");
    world.until(&array, |status| status.last_part.as_ref().is_some_and(|it| it.range.end == all));
    assert!(array.status().last_part.expect("just looked at").repair);
    // A scrub of the whole array is not one of a part.
    assert_eq!(scrub(&world, &array, false).range, 0..all);
}

#[test]
fn a_repair_names_the_stripes_of_the_array() {
    for (layout, members) in [
        (Layout::default_for(Level::Raid5, 4), 4),
        (Layout::default_for(Level::Raid6, 5), 5),
        (Layout::default_for(Level::Raid1, 2), 2),
        (Layout::default_for(Level::Raid10, 4), 4),
        (Layout::default_for(Level::Raid35, 5), 5),
    ] {
        let world = world(layout, members, 0);
        let array = world.start();
        fill(&world, &array);
        let offset = world.data_offset() + (1 << 20);
        world.disks[0].faults.borrow_mut().push(Fault::Unreadable { offset, len: 512 });
        array.scrub(false).expect("no other task runs");
        world.until(&array, |status| status.last_scrub.is_some());
        let repaired = |event: &array::status::Event| event.kind == EventKind::Repaired;
        let events: Vec<_> = array.log().since(0).into_iter().filter(repaired).collect();
        assert!(!events.is_empty(), "{layout:?}");
        for event in events {
            let range = event.range.expect("it is in the data");
            assert!(range.end <= array.limits().bytes);
            // What the range covers was on that place of the member: a scrub of it finds the
            // next error there.
            world.disks[0].faults.borrow_mut().push(Fault::Unreadable { offset, len: 512 });
            let before = array.log().count();
            array.scrub_part(false, range.clone()).expect("no other task runs");
            let since = || array.log().since(before);
            world.until(&array, |_| since().iter().any(|it| it.kind == EventKind::JobFinished));
            assert!(since().iter().any(repaired), "{layout:?} {range:?}: {:?}", since());
        }
    }
}
