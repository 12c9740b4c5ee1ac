//! Assembly: arrays that start, arrays that are refused, and the messages about them.

use std::rc::Rc;

use io::tasks::complete;
use layout::md::superblock::{CLEAN, Role};
use layout::md::{Bitmap, Features, SECTOR, Version};
use layout::{Layout, Level, Mode, Slot, SlotAssignment};

use super::*;
use crate::commit::Decision;
use crate::error::ErrorKind;
use crate::test_disk::{Act, CHUNK, MIB, Rig, TestDisk, assert_contains, new_array, text};

mod kinds;

/// The levels with their numbers of members.
const LEVELS: [(Level, usize); 8] = [
    (Level::Linear, 2),
    (Level::Raid0, 3),
    (Level::Raid1, 2),
    (Level::Raid4, 3),
    (Level::Raid5, 4),
    (Level::Raid6, 5),
    (Level::Raid10, 4),
    (Level::Raid35, 5),
];

fn allowing(edit: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options { degraded: true, ..Options::default() };
    edit(&mut options);
    options
}

fn degraded() -> Options {
    allowing(|_| ())
}

/// Makes a decision durable, as far as disks work.
fn commit(assembly: &Assembly, configuration: Configuration, clean: bool) {
    let decision = Decision { configuration, clean, resync_from: None };
    let _ = complete(assembly.metadata.commit(&decision)).expect("the future completes");
}

/// Starts from these disks alone, and writes.
fn go_on(rig: &Rig, which: &[usize]) {
    let assembly = rig.assemble(which, &degraded()).expect("enough members");
    commit(&assembly, assembly.configuration.clone(), false);
    commit(&assembly, assembly.configuration.clone(), true);
}

fn notes(assembly: &Assembly) -> String {
    let notes: Vec<String> = assembly.notes.iter().map(Note::to_string).collect();
    notes.join("\n")
}

#[test]
fn created_arrays_assemble_at_every_level_and_version() {
    for (level, count) in LEVELS {
        for version in Version::ALL {
            let mut rig = Rig::new(count);
            let new = NewArrayOf { level, count, version }.make();
            let facts = rig.create(&new).unwrap();
            rig.acts();
            let assembly = rig.all().unwrap_or_else(|error| panic!("{level} {version}: {error}"));
            let writes = |act: &Act| matches!(act, Act::Write(..));
            assert!(!rig.acts().concat().iter().any(writes), "assembly writes nothing");
            assert_eq!(assembly.facts(), &facts);
            assert_eq!((facts.layout, facts.slots), (new.layout, count));
            assert_eq!(
                (facts.name.as_str(), facts.capacity),
                ("data", assembly.geometry.capacity())
            );
            let slots: Vec<_> = assembly.configuration.slots.iter().map(|s| s.member).collect();
            let members: Vec<_> = (0..count).map(|id| Some(MemberId(id as u32))).collect();
            assert_eq!(slots, members);
            assert_eq!(assembly.configuration.mode, Mode::ReadWrite);
            assert!(
                assembly.recovered.clean
                    && assembly.recovered.unsynced.is_empty()
                    && assembly.notes.is_empty()
            );
            let redundant = assembly.geometry.redundancy() > 0;
            assert_eq!(facts.bitmap_bytes, redundant.then_some(CHUNK), "{level}");
            assert_eq!(facts.format.to_string().starts_with("parapet"), level == Level::Raid35);
        }
    }
}

struct NewArrayOf {
    level: Level,
    count: usize,
    version: Version,
}

impl NewArrayOf {
    fn make(&self) -> crate::create::NewArray {
        let mut new = new_array(self.level, self.count);
        new.version = self.version;
        new
    }
}

#[test]
fn missing_members_are_named_and_need_permission() {
    let rig = Rig::of(Level::Raid6, 5, |_| ());
    let error = text(rig.assemble(&[0, 2, 3, 4], &Options::default()));
    assert_contains(&error, &["missing", "slot 1", "--degraded"]);
    let assembly = rig.assemble(&[0, 2, 4], &degraded()).unwrap();
    assert_eq!(assembly.configuration.slots[1], SlotAssignment::default());
    assert_contains(&notes(&assembly), &["slot 1 has no member", "slot 3 has no member"]);
    let error = rig.assemble(&[0, 2], &degraded()).err().expect("too few");
    assert_eq!(error.kind(), ErrorKind::DataLost);
    assert_contains(&error.to_string(), &["2 of 5", "raid6", "1, 3, 4"]);
    // Once the others have gone on without it, it is no longer expected.
    go_on(&rig, &[0, 2, 3, 4]);
    assert!(rig.assemble(&[0, 2, 3, 4], &Options::default()).is_ok());
    for (level, count) in [(Level::Raid0, 3), (Level::Linear, 3)] {
        let rig = Rig::of(level, count, |_| ());
        let error = rig.assemble(&[0, 2], &degraded()).err().expect("no name occurs twice");
        assert_eq!((error.kind(), error.slot()), (ErrorKind::DataLost, Some(Slot(1))));
        assert_contains(&error.to_string(), &["slot 1 of 3 is missing"]);
    }
}

#[test]
fn a_stale_member_is_left_out_even_one_event_behind() {
    let rig = Rig::of(Level::Raid6, 4, |_| ());
    let assembly = rig.all().unwrap();
    let mut configuration = assembly.configuration.clone();
    configuration.slots[3] = SlotAssignment::default();
    commit(&assembly, configuration, true);
    assert_eq!((rig.superblock(0).events, rig.superblock(3).events), (2, 1));
    let again = rig.all().unwrap();
    assert_eq!(again.configuration.slots[3], SlotAssignment::default());
    assert_eq!(again.members.len(), 3);
    assert_contains(
        &notes(&again),
        &["disk3 is stale", "event 1", "disk0 is at 2", "slot 3 has no member"],
    );
}

#[test]
fn a_crash_between_superblocks_loses_nobody() {
    for written in 1..4 {
        let rig = Rig::of(Level::Raid5, 4, |_| ());
        let assembly = rig.all().unwrap();
        (written..4).for_each(|index| rig.keep_superblock(index, true));
        commit(&assembly, assembly.configuration.clone(), false);
        (written..4).for_each(|index| rig.keep_superblock(index, false));
        let again = rig.all().unwrap();
        assert_eq!(again.configuration.in_sync().count(), 4);
        assert_eq!((again.events(), again.recovered.clean), (2, false));
        assert!(again.recovered.unsynced.is_empty(), "no bit was set yet");
    }
}

#[test]
fn a_commit_that_fails_beyond_redundancy_makes_no_member_stale() {
    let rig = Rig::of(Level::Raid5, 4, |_| ());
    let assembly = rig.all().unwrap();
    rig.disks[2..].iter().for_each(|disk| disk.broken.set(true));
    for _ in 0..2 {
        commit(&assembly, assembly.configuration.clone(), false);
    }
    rig.disks.iter().for_each(|disk| disk.broken.set(false));
    assert_eq!([0, 3].map(|index| rig.superblock(index).events), [1, 1]);
    assert_eq!(rig.all().unwrap().configuration.in_sync().count(), 4, "all are back");
}

#[test]
fn two_histories_are_refused_and_both_are_told() {
    let rig = Rig::of(Level::Raid10, 4, |_| ());
    go_on(&rig, &[0, 2]);
    go_on(&rig, &[1, 3]);
    go_on(&rig, &[1, 3]);
    let error = text(rig.all());
    assert_contains(
        &error,
        &["two histories", "disk1 and disk3 went on without disk0 and disk2 (event 5"],
    );
    assert_contains(
        &error,
        &["disk0 and disk2 went on without disk1 and disk3 (event 3", "2023-11-14"],
    );
    assert!(rig.assemble(&[0, 2], &Options::default()).is_ok(), "each side is an array");
    assert!(rig.assemble(&[1, 3], &Options::default()).is_ok());
    assert_contains(&text(rig.assemble(&[0, 1], &degraded())), &["two histories"]);
}

#[test]
fn wrong_disks_are_refused_by_name() {
    let rig = Rig::of(Level::Raid5, 3, |_| ());
    // Of another array.
    let other = Rig::of(Level::Raid5, 3, |new| new.name = "other".into());
    let mut mixed = Rig::new(0);
    mixed.disks = vec![Rc::clone(&rig.disks[0]), Rc::clone(&other.disks[1])];
    let uuids = [rig.superblock(0).set_uuid, other.superblock(0).set_uuid];
    let error = text(mixed.all());
    assert_contains(&error, &["disk0 is of host:data", "disk1 is of other", &uuids[1].to_string()]);
    let chosen = mixed.assemble(&[0, 1], &allowing(|options| options.uuid = Some(uuids[0])));
    assert_contains(&text(chosen), &["1 of 3"]);
    let named = mixed.assemble(&[0, 1], &allowing(|options| options.name = Some("third".into())));
    assert_contains(&text(named), &["no member of an array called third"]);
    // The same disk twice, and a copy of it.
    assert_contains(
        &text(rig.assemble(&[0, 1, 1, 2], &degraded())),
        &["disk1 and disk1", "same member"],
    );
    let mut copied = Rig::new(0);
    copied.disks = rig.disks.clone();
    copied.disks.push(rig.disks[2].copy(8 * MIB));
    assert_contains(&text(copied.all()), &["disk2 and disk3", "number 2"]);
    // Of another shape.
    type Edit = fn(&mut layout::md::Superblock);
    let edits: [(&str, Edit); 4] = [
        ("level 4", |superblock| superblock.level = 4),
        ("layout 0", |superblock| superblock.layout = 0),
        ("chunk sectors 64", |superblock| superblock.chunk_sectors = 64),
        ("slots 4", |superblock| superblock.raid_disks = 4),
    ];
    for (said, edit) in edits {
        let rig = Rig::of(Level::Raid5, 3, |_| ());
        rig.edit(1, edit);
        assert_contains(&text(rig.all()), &["disk1", said, "as in disk"]);
    }
}

#[test]
fn unusable_disks_are_reported_with_numbers_and_left_out_if_the_rest_suffices() {
    let rig = Rig::of(Level::Raid5, 3, |_| ());
    let mut cut = Rig::new(0);
    cut.disks =
        vec![Rc::clone(&rig.disks[0]), Rc::clone(&rig.disks[1]), rig.disks[2].copy(5 * MIB)];
    let error = text(cut.all());
    assert_contains(&error, &["disk2", "it has 5242880 bytes", "ends at byte 8388608", "slot 2"]);
    assert_contains(&notes(&cut.assemble(&[0, 1, 2], &degraded()).unwrap()), &["disk2", "5242880"]);

    let rig = Rig::of(Level::Raid5, 3, |_| ());
    rig.disks[1].mem.poke(4096 + 300, &[0x55]);
    let error = text(rig.all());
    assert_contains(&error, &["disk1", "md 1.2 superblock at byte 4096", "sb_csum at byte 216"]);
    let assembly = rig.assemble(&[0, 1, 2], &degraded()).unwrap();
    assert_contains(&notes(&assembly), &["disk1 was left out", "sb_csum"]);

    let rig = Rig::of(Level::Raid5, 3, |_| ());
    rig.edit(1, |superblock| {
        superblock.features = superblock.features.with(Features::BAD_BLOCKS);
        superblock.bblog.shift = 99;
    });
    assert_contains(&text(rig.all()), &["disk1", "bad-block log at byte", "bblog_shift", "99"]);

    let rig = Rig::of(Level::Raid5, 3, |_| ());
    rig.edit(1, |superblock| superblock.bblog.offset = 9000);
    let error = text(rig.all());
    assert_contains(
        &error,
        &["disk1", "bblog_offset at byte 188 is 9000", "where something else lies"],
    );

    let mut rig = Rig::of(Level::Raid5, 3, |_| ());
    rig.disks.push(TestDisk::new(io::Limits::plain(8 * MIB)));
    rig.disks[3].mem.poke(0x438, &[0x53, 0xef]);
    assert_eq!(rig.all().unwrap().notes.len(), 1, "one disk too many does no harm");
    assert_contains(
        &notes(&rig.all().unwrap()),
        &["disk3 was left out", "no superblock found, but ext2"],
    );
    assert_contains(
        &text(rig.assemble(&[3], &degraded())),
        &["none of the disks", "disk3", "ext2"],
    );
    let firmware = Rig::new(1);
    firmware.disks[0].mem.poke(8 * MIB - 1024, b"Intel Raid ISM Cfg Sig. ");
    assert_contains(&text(firmware.all()), &["Intel", "IMSM", "not supported", "let Linux run it"]);
}

#[test]
fn two_claims_to_a_slot_are_refused() {
    let rig = Rig::of(Level::Raid5, 4, |new| new.spares = 1);
    for disk in 0..4 {
        rig.edit(disk, |superblock| superblock.roles[3] = Role::Slot(2));
    }
    assert_contains(&text(rig.all()), &["disk2 and disk3", "slot 2"]);
}

#[test]
fn spares_are_kept_and_noted() {
    let rig = Rig::of(Level::Raid1, 4, |new| new.spares = 2);
    let assembly = rig.all().unwrap();
    assert_eq!(assembly.configuration.spares, [MemberId(2), MemberId(3)]);
    assert_eq!(assembly.members.len(), 4);
    assert_contains(&notes(&assembly), &["disk2 is a spare", "disk3 is a spare"]);
}

#[test]
fn without_a_bitmap_a_dirty_array_is_synced_whole_and_a_clean_one_not_at_all() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid10, Level::Raid35] {
        let rig = Rig::of(level, 3, |new| new.bitmap = None);
        let assembly = rig.all().unwrap();
        assert!(assembly.recovered.clean && assembly.recovered.unsynced.is_empty());
        commit(&assembly, assembly.configuration.clone(), false);
        let again = rig.all().unwrap();
        assert!(!again.recovered.clean);
        assert_eq!(again.recovered.unsynced.bytes(), again.geometry.capacity(), "{level}");
        assert_contains(&notes(&again), &["not stopped cleanly"]);
        commit(&assembly, assembly.configuration.clone(), true);
        assert!(rig.all().unwrap().recovered.unsynced.is_empty());
    }
    let unsynced = Rig::of(Level::Raid5, 3, |new| new.zeroed = false).all().unwrap();
    assert_contains(&notes(&unsynced), &["is new"]);
    assert_eq!(
        unsynced.recovered.unsynced.bytes(),
        unsynced.geometry.capacity(),
        "not known to be zeros"
    );
}

#[test]
fn a_bitmap_that_cannot_be_relied_on_is_not_used() {
    type Lose = fn(&Rig);
    let lose: [(&str, Lose); 3] = [
        ("uuid", |rig| rig.disks.iter().for_each(|disk| disk.mem.poke(8192 + 8, &[1; 16]))),
        ("event 0", |rig| rig.disks.iter().for_each(|disk| disk.mem.poke(8192 + 24, &[0; 8]))),
        ("magic", |rig| rig.disks.iter().for_each(|disk| disk.mem.poke(8192, &[0; 4]))),
    ];
    for (what, lose) in lose {
        let rig = Rig::of(Level::Raid5, 3, |_| ());
        let assembly = rig.all().unwrap();
        commit(&assembly, assembly.configuration.clone(), false);
        lose(&rig);
        let again = rig.all().unwrap();
        assert_eq!(again.recovered.unsynced.bytes(), again.geometry.capacity(), "{what}");
        assert_contains(&notes(&again), &["disk2: its bitmap is not used"]);
        // The next commit writes a new one.
        commit(&again, again.configuration.clone(), false);
        let mut header = [0; 256];
        rig.disks[1].mem.peek(8192, &mut header);
        let header = Bitmap::parse(&header).unwrap();
        assert_eq!((header.uuid, header.events), (again.facts().uuid, 3));
    }
    // One bad copy among good ones is harmless.
    let rig = Rig::of(Level::Raid5, 3, |_| ());
    commit(&rig.all().unwrap(), rig.all().unwrap().configuration, false);
    rig.disks[0].mem.poke(8192, &[0; 4]);
    assert!(rig.all().unwrap().recovered.unsynced.is_empty());
}

#[test]
fn a_bit_that_any_copy_has_counts() {
    let rig = Rig::of(Level::Raid5, 3, |_| ());
    let assembly = rig.all().unwrap();
    commit(&assembly, assembly.configuration.clone(), false);
    rig.disks[0].mem.poke(8192 + 256, &[0b10]);
    rig.disks[2].mem.poke(8192 + 256, &[0b100]);
    let again = rig.all().unwrap();
    assert_eq!(again.metadata.dirty_bits().collect::<Vec<_>>(), [1, 2]);
    // The copies are made equal by the next commit.
    commit(&again, again.configuration.clone(), false);
    let mut byte = [0];
    rig.disks[1].mem.peek(8192 + 256, &mut byte);
    assert_eq!(byte, [0b110]);
}

#[test]
fn a_spare_that_was_given_a_slot_in_the_last_moment_holds_nothing_yet() {
    let rig = Rig::of(Level::Raid5, 4, |new| new.spares = 1);
    let assembly = rig.all().unwrap();
    let mut configuration = assembly.configuration.clone();
    configuration.spares.clear();
    configuration.slots[1] =
        SlotAssignment { member: Some(MemberId(3)), recovered: Some(0), replacement: None };
    rig.keep_superblock(3, true);
    commit(&assembly, configuration, true);
    rig.keep_superblock(3, false);
    let again = rig.all().unwrap();
    let expected =
        SlotAssignment { member: Some(MemberId(3)), recovered: Some(0), replacement: None };
    assert_eq!(again.configuration.slots[1], expected);
    assert_contains(
        &notes(&again),
        &["disk3 (slot 1) is rebuilt up to array offset 0", "disk1 is stale"],
    );
}

#[test]
fn a_member_that_linux_was_bringing_up_to_date_by_its_bitmap_is_rebuilt_whole() {
    let rig = Rig::of(Level::Raid5, 3, |_| ());
    rig.edit(2, |superblock| {
        superblock.features = superblock.features.with(Features::RECOVERY_BITMAP);
    });
    let assembly = rig.all().unwrap();
    assert_eq!(assembly.configuration.slots[2].recovered, Some(0));
    let error = rig.assemble(&[0, 2], &degraded()).err().expect("the member does not count yet");
    assert_eq!(error.kind(), ErrorKind::DataLost);
}

#[test]
fn dirty_and_degraded_parity_is_refused_unless_forced() {
    for (level, count) in
        [(Level::Raid4, 3), (Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid35, 5)]
    {
        let rig = Rig::of(level, count, |_| ());
        let assembly = rig.all().unwrap();
        commit(&assembly, assembly.configuration.clone(), false);
        let rest: Vec<usize> = (1..count).collect();
        assert!(rig.assemble(&rest, &degraded()).is_ok(), "no bit is set: nothing was under way");
        let region = [2..=2];
        let set = assembly.metadata.set_bits(&assembly.configuration, &region);
        complete(set).unwrap().unwrap();
        let error = text(rig.assemble(&rest, &degraded()));
        let bytes = rig.all().unwrap().recovered.unsynced.bytes().to_string();
        assert_contains(&error, &["slots 0", "--force-dirty-degraded", &bytes]);
        let forced = rig.assemble(&rest, &allowing(|options| options.force_dirty_degraded = true));
        assert_eq!(forced.unwrap().recovered.unsynced.bytes().to_string(), bytes);
    }
    let rig = Rig::of(Level::Raid1, 2, |new| new.bitmap = None);
    let assembly = rig.all().unwrap();
    commit(&assembly, assembly.configuration.clone(), false);
    assert!(rig.assemble(&[1], &degraded()).is_ok(), "one copy agrees with itself");
}

#[test]
fn a_member_that_lies_inside_another_array_is_not_mistaken_for_the_disk() {
    // A mirror at 1.0 has its data at byte 0, and is itself a member of an array at 1.2.
    let outer = Rig::of(Level::Raid1, 2, |new| new.version = Version::V1_0);
    let inner = Rig::of(Level::Raid5, 3, |_| ());
    let mut front = vec![0; MIB as usize];
    inner.disks[0].mem.peek(0, &mut front);
    let used = outer.superblock(0).size * SECTOR;
    outer.disks.iter().for_each(|disk| disk.mem.poke(4096, &front[4096..65536]));
    outer.disks.iter().for_each(|disk| {
        // As large as the mirror is: its data ends before the mirror's superblock.
        let mut bytes = vec![0; 4096];
        disk.mem.peek(4096, &mut bytes);
        let mut superblock = layout::md::Superblock::parse(&bytes, 8).unwrap();
        superblock.data_size = used / SECTOR - superblock.data_offset;
        superblock.ctime = layout::md::Timestamp::new(1_800_000_000, 0); // and younger
        superblock.size = 512;
        disk.mem.poke(4096, &superblock.print());
    });
    let assembly = outer.all().unwrap();
    assert_eq!(assembly.facts().layout, Layout::Raid1);
    let uuid = Some(inner.superblock(1).set_uuid);
    let wanted = outer.assemble(&[0], &allowing(|options| options.uuid = uuid));
    assert_contains(&text(wanted), &["1 of 3", "raid5"]);
}

#[test]
fn a_survey_groups_members_by_array() {
    let (a, b) = (Rig::of(Level::Raid5, 3, |_| ()), Rig::of(Level::Raid1, 2, |_| ()));
    let mut all = Rig::new(1);
    all.disks.extend(a.disks.iter().chain(&b.disks).cloned());
    let candidates = (0..all.disks.len()).map(|index| all.candidate(index)).collect();
    let survey = complete(survey(candidates, &(Rc::new(crate::test_disk::Still) as _))).unwrap();
    assert_eq!(survey.arrays.len(), 2);
    let group = &survey.arrays[&a.superblock(0).set_uuid];
    let names: Vec<&str> = group.candidates.iter().map(|c| c.name.as_str()).collect();
    assert_eq!((names, group.level), (vec!["disk1", "disk2", "disk3"], Some(Level::Raid5)));
    assert_eq!((group.name.as_str(), group.slots), ("data", 3));
    assert_eq!((survey.others[0].0.name.as_str(), survey.others.len()), ("disk0", 1));
    assert_contains(&survey.others[0].1, &["no superblock found"]);
}

#[test]
fn superblocks_in_other_hands_are_kept_as_they_were() {
    // Fields of a kernel or of mdadm that we do not interpret survive our commits.
    let rig = Rig::of(Level::Raid1, 2, |_| ());
    (0..2).for_each(|disk| {
        rig.edit(disk, |superblock| {
            superblock.logical_block_size = 512;
            superblock.device.flags = 1;
            superblock.utime = layout::md::Timestamp::new(1_600_000_000, 0);
        });
    });
    let assembly = rig.all().unwrap();
    commit(&assembly, assembly.configuration.clone(), true);
    let superblock = rig.superblock(1);
    assert_eq!((superblock.logical_block_size, superblock.device.flags), (512, 1));
    assert_eq!(superblock.resync_offset, CLEAN);
    assert_eq!(assembly.members[1].disk.limits().bytes, 8 * MIB);
}

/// Arbitrary bytes in place of metadata: an error or an array, never a panic or a stray write.
#[test]
fn noise_in_the_metadata_is_an_error_or_harmless() {
    let mut seed = 7_u64;
    let mut number = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    let risky = allowing(|options| options.force_dirty_degraded = true);
    let (mut started, mut refused) = (0, 0);
    for round in 0..600 {
        let (level, count) = LEVELS[number(8) as usize];
        let rig = Rig::of(level, count, |_| ());
        for _ in 0..=number(2) {
            let disk = &rig.disks[number(count as u64) as usize].mem;
            if round % 3 == 0 {
                disk.poke(8192 + number(8192), &[number(256) as u8, number(256) as u8]);
                continue;
            }
            // A field of the superblock, under a right checksum.
            let mut block = [0; 512];
            disk.peek(4096, &mut block);
            let at = (8 + 4 * number(126)) as usize;
            let value = [0, 1, u32::MAX, number(1 << 31) as u32, number(300) as u32];
            block[at..at + 4].copy_from_slice(&value[number(5) as usize].to_le_bytes());
            let roles = u64::from(u16::from_le_bytes([block[220], block[221]]));
            let used = (256 + 2 * roles).min(512) as usize;
            let checksum = layout::md::superblock::checksum(&block[..used]);
            block[216..220].copy_from_slice(&checksum.to_le_bytes());
            disk.poke(4096, &block);
        }
        let which: Vec<usize> = (0..count).collect();
        rig.acts();
        let Ok(assembly) = rig.assemble(&which, &risky) else {
            refused += 1;
            continue;
        };
        started += 1;
        commit(&assembly, assembly.configuration.clone(), false);
        for (disk, acts) in rig.acts().iter().enumerate() {
            let data = &assembly.members.iter().find(|joined| joined.name == format!("disk{disk}"));
            let Some(joined) = data else {
                let flushed = acts.iter().all(|act| matches!(act, Act::Flush));
                assert!(flushed, "a disk that was left out is written");
                continue;
            };
            let inside = |act: &Act| match act {
                Act::Write(range, _) => range.end <= joined.data_offset,
                Act::Flush => true,
            };
            assert!(acts.iter().all(inside), "{level}: {acts:?} beyond {}", joined.data_offset);
        }
    }
    assert!(started > 100 && refused > 50, "{started} started, {refused} refused");
}
