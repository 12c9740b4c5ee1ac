//! The writes of the metadata writer, their order, and the result of reading them back.

use std::ops::RangeInclusive;
use std::rc::Rc;

use io::Disk;
use io::tasks::{complete, poll_once};
use layout::md::Features;
use layout::md::superblock::{CLEAN, Role};
use layout::private::Tag;
use layout::{Level, RangeSet, Slot, SlotAssignment};

use super::*;
use crate::assemble::{Assembly, Options};
use crate::create::NewArray;
use crate::test_disk::{Act, CHUNK, MIB, Rig, TestDisk, assert_contains, new_array, text};

fn decision(assembly: &Assembly, clean: bool) -> Decision {
    Decision { configuration: assembly.configuration.clone(), clean, resync_from: None }
}

fn commit(assembly: &Assembly, decision: &Decision) -> Result<(), Vec<MemberId>> {
    let result = complete(assembly.metadata.commit(decision)).expect("the future completes");
    result.map_err(|failures| failures.into_iter().map(|(id, _)| id).collect())
}

fn set(assembly: &Assembly, regions: RangeInclusive<u64>) {
    let regions = [regions];
    let set = assembly.metadata.set_bits(&assembly.configuration, &regions);
    complete(set).expect("the future completes").expect("the disks work");
}

fn clear(assembly: &Assembly, configuration: &Configuration, regions: &[u64]) {
    let clear = assembly.metadata.clear_bits(configuration, regions);
    complete(clear).expect("the future completes").expect("the disks work");
}

fn record_of(assembly: &Assembly) -> super::Record {
    assembly.metadata.record(MemberId(0)).expect("a member")
}

fn dirty(assembly: &Assembly) -> Vec<u64> {
    assembly.metadata.dirty_bits().collect()
}

/// The assembly's configuration without the member in `slot`.
fn without(assembly: &Assembly, slot: usize) -> Configuration {
    let mut configuration = assembly.configuration.clone();
    configuration.slots[slot] = SlotAssignment::default();
    configuration
}

#[test]
fn a_commit_writes_bitmap_then_flushes_then_writes_superblocks() {
    let rig = Rig::of(Level::Raid5, 4, |new| new.spares = 1);
    let assembly = rig.all().unwrap();
    rig.acts();
    commit(&assembly, &decision(&assembly, false)).unwrap();
    let acts = rig.acts();
    for member in &acts[..3] {
        let [
            Act::Write(bitmap, true),
            Act::Write(header, false),
            Act::Flush,
            Act::Write(superblock, true),
        ] = &member[..]
        else {
            panic!("another order: {member:?}");
        };
        assert_eq!((bitmap, superblock), (&(8192..12288), &(4096..4608)));
        let private =
            record_of(&assembly).map.private.expect("a member written by Parapet has one");
        assert_eq!(*header, private.start..private.start + 4096, "copy 0: event 2");
    }
    assert_eq!(acts[3], [Act::Write(4096..4608, true)], "a spare has only a superblock");
}

/// A power cut in the middle must not leave older units as the newest: the start of the log goes
/// first, and comes back when no unit can follow it.
#[test]
fn a_partial_parity_log_is_emptied_from_its_start() {
    let rig = Rig::of(Level::Raid5, 4, |new| new.consistency = Some(Consistency::Ppl));
    let assembly = rig.all().unwrap();
    assert!(assembly.metadata.open_log(1, u64::MAX).is_some());
    assembly.metadata.begin_session();
    rig.acts();
    commit(&assembly, &decision(&assembly, false)).unwrap();
    let place = record_of(&assembly).ppl_place().expect("the array has such logs");
    let (start, end) = (place.offset, place.offset + place.bytes);
    for member in &rig.acts() {
        let relevant = |act: &&Act| match act {
            Act::Write(range, _) => range.start >= start && range.end <= end,
            Act::Flush => true,
        };
        let acts: Vec<&Act> = member.iter().filter(relevant).collect();
        let first = start..start + 4096;
        let expected = [
            &Act::Write(first.clone(), true),
            &Act::Write(first.end..end, false),
            &Act::Flush,
            &Act::Write(first, false),
            &Act::Flush,
        ];
        assert_eq!(acts, expected);
    }
}

#[test]
fn commits_count_events_and_mark_dirty_and_clean() {
    let rig = Rig::of(Level::Raid5, 4, |new| new.spares = 1);
    let assembly = rig.all().unwrap();
    assert_eq!(assembly.events(), 1, "a new array begins with 1");
    let mut stamps = Vec::new();
    for (events, clean) in [(2, false), (3, true), (4, false)] {
        commit(&assembly, &decision(&assembly, clean)).unwrap();
        for disk in 0..4 {
            let superblock = rig.superblock(disk);
            assert_eq!(superblock.events, events);
            assert_eq!(superblock.resync_offset, if clean { CLEAN } else { 0 });
            assert_eq!(superblock.logical_block_size, 0);
            assert_eq!(superblock.utime.seconds(), 1_700_000_000);
            assert!(Tag::of(superblock.utime).is_some());
            stamps.push(superblock.utime);
        }
        assert_eq!(rig.all().unwrap().events(), events);
    }
    stamps.dedup();
    assert_eq!(stamps.len(), 3, "each commit has a tag of its own, the same for all members");
}

#[test]
fn how_far_a_resync_got_is_kept_while_nothing_is_written() {
    for (level, sectors) in [(Level::Raid5, 1024 / 2), (Level::Raid10, 1024), (Level::Raid1, 1024)]
    {
        let rig = Rig::of(level, if level == Level::Raid5 { 3 } else { 4 }, |new| {
            new.zeroed = false;
            new.bitmap = None;
        });
        let assembly = rig.all().unwrap();
        assert_eq!(assembly.recovered.unsynced.bytes(), assembly.geometry.capacity());
        let far = Decision { resync_from: Some(512 << 10), ..decision(&assembly, true) };
        commit(&assembly, &far).unwrap();
        assert_eq!(rig.superblock(0).resync_offset, sectors, "{level}");
        let again = rig.all().unwrap();
        assert_eq!(
            again.recovered.unsynced.next(0),
            Some(512 << 10..again.geometry.capacity()),
            "{level}"
        );
        commit(&assembly, &Decision { clean: false, ..far }).unwrap();
        assert_eq!(rig.superblock(0).resync_offset, 0, "while writing nothing is sure");
    }
}

#[test]
fn a_member_that_fails_is_named_and_the_others_are_written() {
    let rig = Rig::of(Level::Raid6, 5, |_| ());
    let assembly = rig.all().unwrap();
    rig.disks[2].broken.set(true);
    assert_eq!(commit(&assembly, &decision(&assembly, false)), Err(vec![MemberId(2)]));
    let next = Decision { configuration: without(&assembly, 2), ..decision(&assembly, false) };
    commit(&assembly, &next).unwrap();
    for disk in [0, 1, 3, 4] {
        let superblock = rig.superblock(disk);
        let found = (superblock.events, superblock.roles[2]);
        assert_eq!(found, (2, Role::Faulty), "the attempt that failed has left no superblock");
    }
    assert_eq!(rig.superblock(2).events, 1, "the failed one is left as it was");
    assembly.metadata.expel(MemberId(2));
    commit(&assembly, &next).unwrap();
    assert_eq!(rig.superblock(0).roles[2], Role::Faulty, "it could come back");
}

/// A crash has left `disk2` one event behind the others, which are at 2.
fn one_behind() -> Rig {
    let rig = Rig::of(Level::Raid6, 5, |_| ());
    let assembly = rig.all().unwrap();
    rig.keep_superblock(2, true);
    assert_eq!(commit(&assembly, &decision(&assembly, false)), Err(vec![MemberId(2)]));
    rig.keep_superblock(2, false);
    assert_eq!((rig.superblock(1).events, rig.superblock(2).events), (2, 1));
    rig
}

#[test]
fn a_stale_superblock_is_brought_up_to_date_before_the_next_commit() {
    let rig = one_behind();
    let assembly = rig.all().unwrap();
    rig.acts();
    commit(&assembly, &decision(&assembly, false)).unwrap();
    let acts = rig.acts();
    assert_eq!(acts[2][0], Act::Write(4096..4608, true), "first of all its superblock");
    assert_eq!(acts[2].len(), acts[1].len() + 1, "then like the others");
    // Whatever part of the next commit a crash leaves out, the member is never two events behind.
    let rig = one_behind();
    let assembly = rig.all().unwrap();
    rig.keep_superblock(2, true);
    assert_eq!(commit(&assembly, &decision(&assembly, false)), Err(vec![MemberId(2)]));
    assert_eq!(rig.superblock(1).events, 2, "the others do not continue without it");
    let again = rig.all().unwrap();
    assert_eq!(again.configuration.in_sync(), again.geometry.all_slots());
}

#[test]
fn the_header_of_a_stale_member_is_not_overwritten() {
    let rig = one_behind();
    let assembly = rig.all().unwrap();
    // The headers are written, and no superblock.
    rig.disks[0].flush_fails.set(true);
    assert_eq!(commit(&assembly, &decision(&assembly, false)), Err(vec![MemberId(0)]));
    let (behind, other) = (rig.superblock(2), rig.superblock(1));
    assert_eq!((behind.events, behind.utime), (other.events, other.utime));
    assert_eq!((behind.roles, behind.resync_offset), (other.roles, other.resync_offset));
    let bounds = record_of(&assembly).map.private.expect("a member written by Parapet has one");
    let mut copies = [0; 8192];
    rig.disks[2].mem.peek(bounds.start, &mut copies);
    let superblock = rig.superblock(2);
    assert!(layout::private::valid(&copies, &superblock, &bounds, parity::crc32c).is_some());
}

#[test]
fn bits_are_durable_when_set_and_survive() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid10, Level::Raid35] {
        let rig = Rig::of(level, 3, |_| ());
        let assembly = rig.all().unwrap();
        let mark = assembly.facts().bitmap_bytes.expect("there is a bitmap");
        assert_eq!(mark, CHUNK);
        commit(&assembly, &decision(&assembly, false)).unwrap();
        rig.acts();
        set(&assembly, 3..=4);
        for acts in rig.acts() {
            assert_eq!(acts, [Act::Write(8192..12288, true)], "one page, durably");
        }
        set(&assembly, 3..=3);
        assert!(rig.acts().concat().is_empty(), "set already");

        let again = rig.all().unwrap();
        assert_eq!(dirty(&again), [3, 4]);
        let expected = sync::array_range(&again.geometry, 3 * mark..5 * mark);
        assert_eq!(
            again.recovered.unsynced,
            [expected].into_iter().collect::<RangeSet>(),
            "{level}"
        );
        clear(&assembly, &assembly.configuration, &[3]);
        assert_eq!(dirty(&rig.all().unwrap()), [4]);
    }
}

#[test]
fn nothing_is_cleared_while_a_member_is_missing_and_clearing_is_announced() {
    let rig = Rig::of(Level::Raid5, 3, |_| ());
    let assembly = rig.all().unwrap();
    commit(&assembly, &decision(&assembly, false)).unwrap();
    set(&assembly, 0..=1);
    clear(&assembly, &without(&assembly, 1), &[0, 1]);
    assert_eq!(dirty(&assembly), [0, 1]);
    rig.acts();
    clear(&assembly, &assembly.configuration, &[0]);
    let acts = rig.acts();
    assert_eq!(acts[0].len(), 2, "events_cleared first, then the bits: {:?}", acts[0]);
    let mut header = [0; 256];
    rig.disks[0].mem.peek(8192, &mut header);
    assert_eq!(Bitmap::parse(&header).unwrap().events_cleared, 2);
    rig.acts();
    clear(&assembly, &assembly.configuration, &[1]);
    assert_eq!(rig.acts()[0].len(), 1, "it is announced already");
}

#[test]
fn a_bit_waits_for_the_slowest_member_and_calls_share_a_write() {
    let rig = Rig::of(Level::Raid1, 2, |_| ());
    let assembly = rig.all().unwrap();
    set(&assembly, 9..=9);
    rig.acts();
    rig.disks[1].holds.set(true);
    let metadata = &assembly.metadata;
    let region = [1, 2, 3].map(|region| [region..=region]);
    let set = |region| Box::pin(metadata.set_bits(&assembly.configuration, region));
    let (mut first, mut same) = (set(&region[0]), set(&region[0]));
    let (mut other, mut third) = (set(&region[1]), set(&region[2]));
    assert!(poll_once(&mut first).is_none());
    assert!(poll_once(&mut same).is_none(), "the bit is set in memory, but not durable");
    assert!(poll_once(&mut other).is_none() && poll_once(&mut third).is_none());
    assert_eq!(rig.disks[1].acts.borrow().len(), 1, "one write of a page at a time");
    rig.disks[1].release();
    for future in [first, same, other, third] {
        complete(future).expect("all are released").expect("the disks work");
    }
    assert_eq!(rig.disks[1].acts.borrow().len(), 2, "the others shared the second write");
    let again = rig.all().unwrap();
    assert_eq!(dirty(&again), [1, 2, 3, 9]);
    assert!(again.recovered.unsynced.is_empty(), "but the superblocks say clean");
}

#[test]
fn a_bit_that_could_not_be_written_is_written_by_the_next_call() {
    let rig = Rig::of(Level::Raid1, 2, |_| ());
    let assembly = rig.all().unwrap();
    rig.disks[1].broken.set(true);
    let failed = complete(assembly.metadata.set_bits(&assembly.configuration, &[4..=4])).unwrap();
    assert_eq!(failed.unwrap_err()[0].0, MemberId(1));
    rig.disks[1].broken.set(false);
    set(&assembly, 4..=4);
    let mut byte = [0];
    rig.disks[1].mem.peek(8192 + 256, &mut byte);
    assert_eq!(byte, [1 << 4]);
}

#[test]
fn a_bit_that_is_set_while_it_is_being_cleared_stays_set() {
    let rig = Rig::of(Level::Raid1, 2, |_| ());
    let assembly = rig.all().unwrap();
    commit(&assembly, &decision(&assembly, false)).unwrap();
    set(&assembly, 1..=2);
    rig.disks[0].holds.set(true);
    let mut clearing = Box::pin(assembly.metadata.clear_bits(&assembly.configuration, &[1, 2]));
    assert!(poll_once(&mut clearing).is_none());
    let region = [1..=1];
    let setting = assembly.metadata.set_bits(&assembly.configuration, &region);
    let mut setting = Box::pin(setting);
    assert!(poll_once(&mut setting).is_none());
    rig.disks[0].release();
    complete(clearing).expect("released").expect("the disks work");
    complete(setting).expect("released").expect("the disks work");
    assert_eq!(dirty(&rig.all().unwrap()), [1]);
}

#[test]
fn a_spare_takes_a_slot_and_is_rebuilt_across_a_restart() {
    let rig = Rig::of(Level::Raid5, 4, |new| new.spares = 1);
    let assembly = rig.all().unwrap();
    let mut configuration = without(&assembly, 1);
    configuration.spares.clear();
    let half = 2 * CHUNK * 10;
    configuration.slots[1] =
        SlotAssignment { member: Some(MemberId(3)), recovered: Some(half), replacement: None };
    commit(&assembly, &Decision { configuration, ..decision(&assembly, true) }).unwrap();
    let rebuilt = rig.superblock(3);
    assert!(rebuilt.features.contains(Features::RECOVERY_OFFSET));
    assert_eq!(rebuilt.recovery_offset, 10 * CHUNK / 512);
    assert_eq!(rebuilt.roles[..4], [Role::Slot(0), Role::Faulty, Role::Slot(2), Role::Slot(1)]);
    let again =
        rig.assemble(&[0, 2, 3], &Options::default()).expect("no further member is missing");
    assert_eq!(again.configuration.slots[1].recovered, Some(half));
    let whole = SlotAssignment { member: Some(MemberId(3)), recovered: None, replacement: None };
    let mut configuration = again.configuration.clone();
    configuration.slots[1] = whole;
    commit(&again, &Decision { configuration, ..decision(&again, true) }).unwrap();
    assert!(!rig.superblock(3).features.contains(Features::RECOVERY_OFFSET));
    assert_eq!(
        rig.assemble(&[0, 2, 3], &Options::default()).unwrap().configuration.slots[1],
        whole
    );
}

#[test]
fn a_replacement_has_the_role_twice_and_goes_on_after_a_restart() {
    let rig = Rig::of(Level::Raid5, 4, |new| new.spares = 1);
    let assembly = rig.all().unwrap();
    let mut configuration = assembly.configuration.clone();
    configuration.spares.clear();
    configuration.slots[2].replacement = Some((MemberId(3), 2 * CHUNK));
    commit(&assembly, &Decision { configuration, ..decision(&assembly, true) }).unwrap();
    let replacement = rig.superblock(3);
    assert_eq!(replacement.features.0 & 0x12, 0x12);
    assert_eq!(replacement.roles[2..4], [Role::Slot(2), Role::Slot(2)]);
    assert_eq!(rig.superblock(2).features.0 & 0x12, 0);
    let again = rig.all().unwrap();
    let assignment = again.configuration.slots[2];
    let expected = SlotAssignment {
        member: Some(MemberId(2)),
        recovered: None,
        replacement: Some((MemberId(3), 2 * CHUNK)),
    };
    assert_eq!(assignment, expected);
    // The old member is lost meanwhile: the copy counts as a rebuild up to its end.
    let alone = rig.assemble(&[0, 1, 3], &Options::default()).unwrap();
    let expected =
        SlotAssignment { member: Some(MemberId(3)), recovered: Some(2 * CHUNK), replacement: None };
    assert_eq!(alone.configuration.slots[2], expected);
}

#[test]
fn a_new_disk_is_admitted_with_the_next_number_and_written_by_the_next_commit() {
    let rig = Rig::of(Level::Raid5, 3, |_| ());
    let assembly = rig.all().unwrap();
    let admit = |bytes: u64| {
        let disk = TestDisk::new(io::Limits::plain(bytes));
        let answer = assembly.metadata.admit(Rc::clone(&disk) as Rc<dyn Disk>, "new");
        complete(answer).expect("the future completes").map(|admitted| (disk, admitted))
    };
    assert_contains(&text(admit(6 * MIB).map(drop)), &["new", "too small", "6 MiB"]);
    let (disk, admitted) = admit(9 * MIB).unwrap();
    assert_eq!(admitted.id, MemberId(3));
    assert_eq!(admitted.data_offset, rig.superblock(0).data_offset * 512);
    let same = assembly.metadata.admit(Rc::clone(&disk) as Rc<dyn Disk>, "again");
    assert_contains(&text(complete(same).unwrap()), &["again", "member already", "new"]);
    let own = assembly.metadata.admit(Rc::clone(&rig.disks[1]) as Rc<dyn Disk>, "disk1");
    assert_contains(&text(complete(own).unwrap()), &["member already"]);

    set(&assembly, 5..=5);
    let mut configuration = without(&assembly, 0);
    configuration.slots[0] =
        SlotAssignment { member: Some(admitted.id), recovered: Some(0), replacement: None };
    commit(&assembly, &Decision { configuration, ..decision(&assembly, false) }).unwrap();
    let mut page = vec![0; 4096];
    disk.mem.peek(8192, &mut page);
    assert_eq!(Bits::parse(&page).unwrap().unwrap().dirty(), [5], "its bitmap is a copy");
    let mut bytes = vec![0; 4096];
    disk.mem.peek(4096, &mut bytes);
    let superblock = Superblock::parse(&bytes, 8).unwrap();
    assert_eq!((superblock.device.number, superblock.own_role()), (3, Role::Slot(0)));
    assert!(superblock.features.contains(Features::RECOVERY_OFFSET));
    assert_ne!(superblock.device.uuid, rig.superblock(1).device.uuid);
}

/// A RAID 5 whose member 1 was lost while all was clean.
fn lost_member() -> (Rig, Assembly) {
    let rig = Rig::of(Level::Raid5, 3, |_| ());
    let assembly = rig.all().unwrap();
    commit(&assembly, &decision(&assembly, false)).unwrap();
    set(&assembly, 0..=0);
    clear(&assembly, &assembly.configuration, &[0]);
    let next = Decision { configuration: without(&assembly, 1), ..decision(&assembly, false) };
    commit(&assembly, &next).unwrap();
    assembly.metadata.expel(MemberId(1));
    (rig, assembly)
}

fn readmit(assembly: &Assembly, disk: &Rc<TestDisk>) -> crate::error::Result<Readmitted> {
    let disk = Rc::clone(disk) as Rc<dyn Disk>;
    complete(assembly.metadata.readmit(disk, "back")).expect("the future completes")
}

#[test]
fn a_member_that_returns_needs_ranges_changed_since() {
    let (rig, assembly) = lost_member();
    set(&assembly, 2..=3);
    let back = readmit(&assembly, &rig.disks[1]).unwrap();
    assert_eq!((back.id, back.slot), (MemberId(1), Slot(1)));
    let expected = sync::array_range(&assembly.geometry, 2 * CHUNK..4 * CHUNK);
    assert_eq!(back.ranges, [expected].into_iter().collect::<RangeSet>());
    let mut configuration = without(&assembly, 1);
    configuration.slots[1] =
        SlotAssignment { member: Some(back.id), recovered: Some(0), replacement: None };
    let next = Decision { configuration, ..decision(&assembly, false) };
    commit(&assembly, &next).unwrap();
    assert_eq!(rig.superblock(1).roles[1], Role::Slot(1));
    assert_contains(&text(readmit(&assembly, &rig.disks[1])), &["member already"]);
    // It fails again and comes back again, without being forgotten in between.
    let lost = Decision { configuration: without(&assembly, 1), ..decision(&assembly, false) };
    commit(&assembly, &lost).unwrap();
    rig.edit(1, |superblock| {
        superblock.features = superblock.features.without(Features::RECOVERY_OFFSET);
    });
    assert_eq!(readmit(&assembly, &rig.disks[1]).unwrap().id, MemberId(1));
    commit(&assembly, &next).unwrap();
    assert_eq!(rig.superblock(0).roles[1], Role::Slot(1));
}

#[test]
fn a_member_that_missed_more_than_the_bitmap_covers_is_not_readmitted() {
    // Bits were cleared after it left: its slot had been rebuilt on another disk.
    let (rig, assembly) = lost_member();
    clear(&assembly, &assembly.configuration, &[0]);
    assert_contains(
        &text(readmit(&assembly, &rig.disks[1])),
        &["left at event 2", "since event 3", "in full"],
    );
    // It was in rebuild itself.
    let (rig, assembly) = lost_member();
    rig.edit(1, |superblock| {
        superblock.features = superblock.features.with(Features::RECOVERY_OFFSET)
    });
    assert_contains(
        &text(readmit(&assembly, &rig.disks[1])),
        &["not rebuilt to the end", "in full"],
    );
    // It has another shape.
    let (rig, assembly) = lost_member();
    rig.edit(1, |superblock| superblock.layout = 0);
    assert_contains(&text(readmit(&assembly, &rig.disks[1])), &["shape", "layout 0"]);
    // It went on by itself meanwhile.
    let (rig, assembly) = lost_member();
    rig.edit(1, |superblock| superblock.roles[0] = Role::Faulty);
    rig.edit(1, |superblock| superblock.roles[2] = Role::Faulty);
    assert_contains(
        &text(readmit(&assembly, &rig.disks[1])),
        &["went on without", "history of its own"],
    );
    // A stranger.
    let other = Rig::of(Level::Raid5, 3, |_| ());
    assert_contains(&text(readmit(&assembly, &other.disks[0])), &["another array"]);
}

#[test]
fn a_removed_spare_does_not_come_back_by_itself() {
    let rig = Rig::of(Level::Raid5, 4, |new| new.spares = 1);
    let assembly = rig.all().unwrap();
    let mut next = decision(&assembly, true);
    next.configuration.spares.clear();
    commit(&assembly, &next).unwrap();
    assembly.metadata.expel(MemberId(3));
    commit(&assembly, &next).unwrap();
    let again = rig.all().unwrap();
    assert!(again.configuration.spares.is_empty());
    assert_eq!(again.members.len(), 3);
    let disk = Rc::clone(&rig.disks[3]) as Rc<dyn Disk>;
    let admitted =
        complete(again.metadata.admit(disk, "disk3")).expect("the future completes").unwrap();
    assert_eq!(admitted.id, MemberId(4), "it is a new one now");
}

#[test]
fn a_disk_as_large_as_the_member_can_take_its_place_where_each_has_a_size_of_its_own() {
    for version in [Version::V1_0, Version::V1_2] {
        let mut rig = Rig::with_sizes(&[8 * MIB, 9 * MIB]);
        rig.create(&NewArray { version, ..new_array(Level::Linear, 2) }).expect("the value fits");
        let assembly = rig.all().unwrap();
        let metadata = &assembly.metadata;
        let large = || {
            let disk = TestDisk::new(io::Limits::plain(9 * MIB));
            let admitted = complete(metadata.admit(disk, "new")).expect("the future completes");
            admitted.expect("the disk is large enough").id
        };
        // The smaller member's place is taken by a disk that is cut to its size.
        let first = large();
        metadata.fit(first, MemberId(0)).expect("the disk is larger");
        metadata.expel(MemberId(0));
        let second = large();
        metadata.fit(second, MemberId(1)).expect("as large");
        metadata.expel(MemberId(1));
        metadata.fit(large(), second).expect("as large");
    }
}

#[test]
fn bad_blocks_are_kept_and_the_log_can_be_full() {
    let rig = Rig::of(Level::Raid5, 3, |_| ());
    let assembly = rig.all().unwrap();
    assembly.metadata.add_bad_block(MemberId(1), 4096..8192).unwrap();
    commit(&assembly, &decision(&assembly, true)).unwrap();
    assert!(rig.superblock(1).features.contains(Features::BAD_BLOCKS));
    assert!(!rig.superblock(0).features.contains(Features::BAD_BLOCKS));
    let again = rig.all().unwrap();
    let mut bad = RangeSet::new();
    bad.insert(4096..8192);
    assert_eq!(again.members[1].bad, bad);
    assert!(again.members[0].bad.is_empty());
    let full = (1..512).find_map(|index| {
        let start = 8192 + 1024 * index;
        again.metadata.add_bad_block(MemberId(1), start..start + 512).err()
    });
    assert_eq!(full, None, "511 more entries fit");
    let error = again.metadata.add_bad_block(MemberId(1), MIB..MIB + 512).unwrap_err();
    assert_eq!((error.needed, error.room), (513, 512));
}

#[test]
fn corrected_reads_are_counted_in_the_superblock() {
    let rig = Rig::of(Level::Raid1, 2, |_| ());
    let assembly = rig.all().unwrap();
    assembly.metadata.add_corrected(MemberId(1), 8);
    assembly.metadata.add_corrected(MemberId(1), 3);
    commit(&assembly, &decision(&assembly, true)).unwrap();
    assert_eq!(rig.superblock(1).device.corrected_reads, 11);
    assert_eq!(rig.superblock(0).device.corrected_reads, 0);
}

#[test]
fn a_member_that_never_answers_does_not_hold_up_the_record() {
    struct Rushed;
    impl Clock for Rushed {
        fn now(&self) -> io::Time {
            io::Time(0)
        }
        fn sleep_until(&self, _: io::Time) -> io::Completion<()> {
            io::Completion::ready(())
        }
        fn unix_micros(&self) -> u64 {
            0
        }
        fn charge(&self, _: io::Cost, _: u64) {}
    }
    let rig = Rig::of(Level::Raid1, 2, |_| ());
    let candidates = (0..2).map(|index| rig.candidate(index)).collect();
    let random: Random = Rc::new(crate::test_disk::random);
    let options = Options::default();
    let assembly = crate::assemble::assemble(candidates, &options, Rc::new(Rushed), random);
    let assembly = complete(assembly).expect("the future completes").unwrap();
    rig.disks[1].holds.set(true);
    assert_eq!(commit(&assembly, &decision(&assembly, false)), Err(vec![MemberId(1)]));
    assert_eq!(rig.superblock(0).events, 1, "an unanswered commit is not trusted");
    rig.disks[1].release();
}

#[test]
fn no_superblock_vouches_for_a_member_whose_flush_failed() {
    let rig = Rig::of(Level::Raid5, 3, |_| ());
    let assembly = rig.all().unwrap();
    commit(&assembly, &decision(&assembly, false)).unwrap();
    // The array is to be marked clean: what disk1 wrote since its last flush is lost.
    rig.disks[1].flush_fails.set(true);
    assert_eq!(commit(&assembly, &decision(&assembly, true)), Err(vec![MemberId(1)]));
    for index in 0..3 {
        assert_ne!(rig.superblock(index).resync_offset, CLEAN, "disk{index}");
    }
    // After a crash here every member is valid, and the array is not clean.
    assert!(!rig.all().unwrap().recovered.clean);
}
