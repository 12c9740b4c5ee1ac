//! Arrays of kinds that are not run, or read only, or incompletely described.

use super::*;

/// The remarks about a member at examination.
fn remarks(rig: &Rig, disk: usize) -> String {
    let clock: Rc<dyn Clock> = Rc::new(crate::test_disk::Still);
    let found = complete(crate::examine::examine(&*rig.disks[disk], &clock)).unwrap().unwrap();
    found.superblocks[0].remarks.join("\n")
}

#[test]
fn preserved_features_of_other_engines_are_reported() {
    let rig = Rig::of(Level::Raid1, 2, |_| ());
    assert_eq!(remarks(&rig, 0), "");
    rig.edit(1, |superblock| {
        superblock.logical_block_size = 4096;
        superblock.device.flags = 3;
    });
    assert_contains(
        &remarks(&rig, 1),
        &["6.19", "blocks of 4096 bytes", "write-mostly", "failfast"],
    );
    // A reshape reports its old and new shape.
    rig.edit(0, |superblock| {
        superblock.features = superblock.features.with(Features::RESHAPE);
        (superblock.raid_disks, superblock.reshape.delta_disks) = (4, 1);
    });
    assert_contains(&remarks(&rig, 0), &["being reshaped", "from 3 to 4 slots"]);
}

#[test]
fn kinds_of_array_that_are_not_run_are_refused_by_name() {
    let cases = [
        (Features::RESHAPE, "being reshaped"),
        (Features::JOURNAL, "--fail JOURNAL --remove JOURNAL"),
        (Features::CLUSTERED, "md-cluster"),
        (Features(1 << 20), "unknown(0x100000)"),
    ];
    for (feature, said) in cases {
        let rig = Rig::of(Level::Raid5, 3, |new| new.bitmap = None);
        (0..3).for_each(|disk| {
            rig.edit(disk, |superblock| superblock.features = superblock.features.with(feature));
        });
        assert_contains(&text(rig.all()), &[said]);
        assert_contains(&remarks(&rig, 1), &[said]);
    }
    let rig = Rig::of(Level::Raid1, 2, |_| ());
    (0..2).for_each(|disk| rig.edit(disk, |superblock| superblock.level = -4));
    assert_contains(&text(rig.all()), &["multipath"]);
    let rig = Rig::of(Level::Raid1, 2, |_| ());
    (0..2).for_each(|disk| rig.edit(disk, |superblock| superblock.raid_disks = 200));
    assert_contains(&text(rig.all()), &["200 slots", "at most 128"]);
}

#[test]
fn kinds_of_array_that_are_only_read_are_read_only() {
    // md's partial parity log.
    let rig = Rig::of(Level::Raid5, 3, |new| new.bitmap = None);
    (0..3).for_each(|disk| {
        rig.edit(disk, |superblock| {
            superblock.features = superblock.features.with(Features::PPL);
            superblock.set_ppl(layout::md::superblock::PplPlace { offset: 8, size: 8 });
        });
    });
    let assembly = rig.all().unwrap();
    assert_eq!(assembly.configuration.mode, Mode::ReadOnly);
    assert_contains(&assembly.read_only_reason.unwrap(), &["partial parity log"]);
    // The lockless bitmap.
    let rig = Rig::of(Level::Raid5, 3, |_| ());
    rig.disks.iter().for_each(|disk| disk.mem.poke(8192 + 4, &[6]));
    let assembly = rig.all().unwrap();
    assert_eq!(assembly.configuration.mode, Mode::ReadOnly);
    assert_contains(&assembly.read_only_reason.unwrap(), &["lockless", "copy the data"]);
    assert_contains(&remarks(&rig, 1), &["bitmap is not used", "lockless"]);
    assert_contains(
        &text(rig.assemble(&[0, 1], &degraded())),
        &["lockless", "a member is missing"],
    );
    // By order, and because a disk is.
    let rig = Rig::of(Level::Raid5, 3, |_| ());
    let read_only = rig.assemble(&[0, 1, 2], &allowing(|options| options.read_only = true));
    assert_eq!(read_only.unwrap().configuration.mode, Mode::ReadOnly);
}

#[test]
fn a_raid0_that_does_not_say_its_layout_is_refused_where_it_matters() {
    let forget = |rig: &Rig| {
        (0..rig.disks.len()).for_each(|disk| {
            rig.edit(disk, |superblock| {
                superblock.layout = 0;
                superblock.features = superblock.features.without(Features::RAID0_LAYOUT);
            });
        });
    };
    let rig = Rig::of(Level::Raid0, 3, |_| ());
    forget(&rig);
    assert!(rig.all().is_ok(), "equal members: both layouts are the same");
    let mut rig = Rig::with_sizes(&[6 * MIB, 8 * MIB, 12 * MIB, 12 * MIB]);
    rig.create(&new_array(Level::Raid0, 4)).unwrap();
    let geometry = rig.all().unwrap().geometry;
    forget(&rig);
    assert_contains(&text(rig.all()), &["original", "alternate"]);
    let given = allowing(|options| options.raid0_layout = Some(Raid0Layout::Original));
    assert_eq!(rig.assemble(&[0, 1, 2, 3], &given).unwrap().geometry, geometry);
}

/// A 0.90 superblock of a RAID 1 of two, for a disk of `bytes`.
fn old_superblock(bytes: u64, number: u32) -> (u64, Vec<u8>) {
    let mut sb = vec![0; 4096];
    let mut put = |at: usize, value: u32| sb[at..at + 4].copy_from_slice(&value.to_le_bytes());
    let words = [
        (0, 0xa92b_4efc),
        (8, 90),
        (20, 7),
        (28, 1),
        (32, 1024),
        (36, 2),
        (40, 2),
        (52, 8),
        (56, 9),
        (60, 10),
        (132, 1),
        (156, 5),
        (512, 0),
        (524, 0),
        (528, 6),
        (640, 1),
        (652, 1),
        (656, 6),
        (3968, number),
        (3980, number),
        (3984, 6),
    ];
    words.into_iter().for_each(|(at, value)| put(at, value));
    let checksum: u64 =
        sb.chunks(4).map(|w| u64::from(u32::from_le_bytes([w[0], w[1], w[2], w[3]]))).sum();
    let checksum = (checksum as u32).wrapping_add((checksum >> 32) as u32);
    sb[152..156].copy_from_slice(&checksum.to_le_bytes());
    (layout::md::super090::position(bytes).unwrap(), sb)
}

#[test]
fn version_0_90_is_read_and_not_written() {
    let rig = Rig::new(2);
    for (number, disk) in rig.disks.iter().enumerate() {
        let (at, bytes) = old_superblock(8 * MIB, number as u32);
        disk.mem.poke(at, &bytes);
    }
    let assembly = rig.all().unwrap();
    assert_eq!(assembly.facts().format, Format::Md090);
    assert_eq!((assembly.facts().layout, assembly.facts().capacity), (Layout::Raid1, MIB));
    assert_eq!(assembly.members[1].data_offset, 0);
    assert_eq!(assembly.configuration.mode, Mode::ReadOnly);
    assert_contains(&assembly.read_only_reason.unwrap(), &["0.90"]);
}
