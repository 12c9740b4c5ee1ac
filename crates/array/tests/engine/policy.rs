//! Changes of the crash-consistency policy, and members that missed the change.

use std::rc::Rc;
use std::time::Duration;

use array::Array;
use io::{Disk, Op};
use layout::md::{Superblock, Timestamp};
use layout::private::Consistency;
use layout::{Layout, Level, Stripe};
use metadata::assemble::{Note, Options};
use metadata::create::NewArray;

use crate::world::{Fault, FaultyDisk, World, map_of, pattern, whole};

/// A member is away while the policy is changed, and returns.
#[test]
fn a_member_that_returns_after_a_change_of_policy_gets_the_new_one() {
    use Consistency::{Bitmap, Intent, Journal, Ppl, Resync};
    let all = [Bitmap, Intent, Journal, Ppl, Resync];
    for (before, after) in all.iter().flat_map(|&a| all.iter().map(move |&b| (a, b))) {
        let what = format!("{} to {}", before.name(), after.name());
        let world = World::new(4, 8 << 20);
        let layout = Layout::default_for(Level::Raid5, 4);
        let new = NewArray { zeroed: true, ..NewArray::new("tank", layout, 16 << 10) };
        world.create(&NewArray { consistency: Some(before), checksums: Some(false), ..new });
        let array = world.start();
        world.write(&array, 0, &pattern(0, 256 << 10, 1)).expect("the array is healthy");
        world.run(&array, array.stop()).expect("the array stops");
        let options = Options { degraded: true, consistency: Some(after), ..Options::default() };
        let assembly = world.assemble(1..4, &options).expect("the array assembles");
        let array = Array::start(assembly, &world.host);
        let content = pattern(0, 256 << 10, 2);
        world.write(&array, 0, &content).expect("degraded");
        let disk = Rc::clone(&world.disks[0]) as Rc<dyn Disk>;
        if world.run(&array, array.readd(Rc::clone(&disk), "disk0")).is_err() {
            world.run(&array, array.add(disk, "disk0")).expect("as a new member");
        }
        world.until(&array, whole);
        world.run(&array, array.stop()).expect("the array stops");
        let array = world.start();
        assert_eq!(array.status().consistency, after, "{what}");
        world.write(&array, 0, &content[..4096]).expect(&what);
        world.run(&array, array.submit(Op::flush())).result.expect(&what);
        world.crash(array);
        let array = world.start();
        assert_eq!(array.status().consistency, after, "{what}");
        world.until(&array, |status| status.unsynced_bytes == 0 && whole(status));
        let found = world.read(&array, 0, content.len()).expect("the read succeeds");
        assert!(found == content, "{what}");
    }
}

/// The power fails in the middle of the commit that changes the policy, and one spare was away.
#[test]
fn members_that_missed_the_change_of_policy_get_it() {
    use Consistency::{Bitmap, Intent, Ppl, Resync};
    let all = [Bitmap, Intent, Ppl, Resync];
    for (before, after) in all.iter().flat_map(|&a| all.iter().map(move |&b| (a, b))) {
        let what = format!("{} to {}", before.name(), after.name());
        let world = World::new(5, 8 << 20);
        let layout = Layout::default_for(Level::Raid5, 4);
        let new = NewArray { zeroed: true, spares: 1, ..NewArray::new("tank", layout, 16 << 10) };
        world.create(&NewArray { consistency: Some(before), checksums: Some(false), ..new });
        world.disks.iter().for_each(|disk| disk.volatile.set(true));
        let array = world.start();
        let content = pattern(0, 256 << 10, 1);
        world.write(&array, 0, &content).expect("the array is healthy");
        world.run(&array, array.stop()).expect("the array stops");
        let options = Options { consistency: Some(after), ..Options::default() };
        let assembly = world.assemble(0..4, &options).expect("all members are present");
        let array = Array::start(assembly, &world.host);
        world.disks[1..].iter().for_each(|disk| disk.break_with(Fault::HungAt(4096)));
        drop(world.begin(&array, 512 << 10, &[0; 4096]));
        assert!(world.disks[1].is_holding() > 0, "its superblock is not written");
        world.cut(array);

        for _ in 0..2 {
            let array = world.start();
            assert_eq!(array.status().consistency, after, "{what}");
            world.write(&array, 512 << 10, &content).expect("the array is healthy");
            world.until(&array, |status| status.unsynced_bytes == 0 && whole(status));
            world.flush(&array);
            world.cut(array);
            let again = world.assemble(0..5, &Options::default());
            let again = again.unwrap_or_else(|why| panic!("{what}: {why}"));
            let slots = &again.configuration.slots;
            assert!(slots.iter().all(|assignment| assignment.member.is_some()), "{what}");
        }
        // The spare has a slot.
        let array = world.start();
        world.until(&array, |status| status.unsynced_bytes == 0);
        world.run(&array, array.fail(layout::MemberId(0))).expect("the level tolerates one loss");
        world.until(&array, whole);
        world.write(&array, 0, &content).expect("the write succeeds");
        world.run(&array, array.stop()).expect("the array stops");
        let array = world.start_without(&[0]);
        assert_eq!(array.status().consistency, after, "{what}");
        assert!(
            world.read(&array, 0, content.len()).expect("the read succeeds") == content,
            "{what}"
        );
        world.write(&array, 0, &content).expect("the write succeeds");
    }
}

/// Members that mdadm made without a bad-block list: nothing bounds the space of a bitmap there.
/// The structures behind it keep their place with a bitmap and without one.
#[test]
fn a_change_of_policy_moves_nothing_on_members_without_a_list_of_bad_blocks() {
    use Consistency::{Bitmap, Intent, Resync};
    for (before, after) in [(Resync, Intent), (Bitmap, Resync), (Intent, Resync)] {
        let what = format!("{} to {}", before.name(), after.name());
        let world = World::new(4, 8 << 20);
        let layout = Layout::default_for(Level::Raid5, 4);
        let new = NewArray { zeroed: true, ..NewArray::new("tank", layout, 16 << 10) };
        let bitmap = new.bitmap.filter(|_| before != Resync);
        world.create(&NewArray { consistency: Some(before), bitmap, ..new });
        for disk in &world.disks {
            let mut bytes = vec![0; 4096];
            disk.disk.peek(4096, &mut bytes);
            let mut superblock = Superblock::parse(&bytes, 8).expect("a member");
            (superblock.bblog.offset, superblock.bblog.sectors) = (0, 0);
            superblock.utime = Timestamp::new(superblock.utime.seconds(), 0);
            disk.disk.poke(4096, &superblock.print());
        }
        let options =
            Options { consistency: Some(after), checksums: Some(true), ..Options::default() };
        let assembly = world.assemble(0..4, &options).expect("all members are present");
        let array = Array::start(assembly, &world.host);
        let content = pattern(0, 256 << 10, 1);
        world.write(&array, 0, &content).expect("the array is healthy");
        world.until(&array, |status| status.unsummed_bytes == Some(0));
        world.crash(array);
        let again = world.assemble(0..4, &Options::default()).expect("all members are present");
        let facts = again.facts();
        assert_eq!((facts.consistency, facts.checksums), (after, true), "{what}");
    }
}

/// Lets the data of a member begin at this sector, as on a disk that another program has added.
fn begin_data(member: &FaultyDisk, sector: u64) -> Superblock {
    let mut bytes = vec![0; 4096];
    member.disk.peek(4096, &mut bytes);
    let mut superblock = Superblock::parse(&bytes, 8).expect("a member");
    superblock.data_size += superblock.data_offset - sector;
    superblock.data_offset = sector;
    member.disk.poke(4096, &superblock.print());
    superblock
}

/// mdadm has added a spare whose data begins where our private area would be. The array then has no
/// log, and reports that at the start.
#[test]
fn an_array_without_room_for_its_log_reports_it() {
    let world = World::new(5, 8 << 20);
    let layout = Layout::default_for(Level::Raid5, 4);
    let new = NewArray { zeroed: true, spares: 1, ..NewArray::new("tank", layout, 16 << 10) };
    world.create(&NewArray { checksums: Some(false), ..new });
    let unlogged = |assembly: &metadata::assemble::Assembly| {
        assembly.notes.iter().find_map(|note| match note {
            Note::LogUnusable { why } => Some(why.clone()),
            _ => None,
        })
    };
    let found = |options| world.assemble(0..5, &options).expect("all members are present");
    assert_eq!(unlogged(&found(Options::default())), None);
    begin_data(&world.disks[4], 64);
    let why = unlogged(&found(Options::default())).expect("the spare has no space");
    assert!(why.contains("disk4"), "{why}");
    let options = Options { consistency: Some(Consistency::Bitmap), ..Options::default() };
    assert_eq!(unlogged(&found(options)), None);
}

/// mdadm has added a spare with room for a log, but not for that of policy journal on so many
/// slots.
#[test]
fn an_array_whose_log_is_too_small_for_a_journal_runs_without_it() {
    const SLOTS: usize = 30;
    let world = World::new(SLOTS + 1, 8 << 20);
    let layout = Layout::default_for(Level::Raid5, SLOTS);
    let new = NewArray { zeroed: true, spares: 1, ..NewArray::new("tank", layout, 16 << 10) };
    let consistency = Some(Consistency::Journal);
    world.create(&NewArray { consistency, checksums: Some(false), ..new });
    let spare = &world.disks[SLOTS];
    let least = log::least_zone(SLOTS, true);
    while map_of(spare).log_bytes() >= least {
        begin_data(spare, map_of(spare).data.start / 512 - 8);
    }
    assert!(map_of(spare).log_bytes() > 0, "the spare has a log");
    let assembly = world.assemble(0..=SLOTS, &Options::default()).expect("all are present");
    assert_eq!(assembly.most_shards(), None);
    let is_noted =
        |note: &Note| matches!(note, Note::LogUnusable { why } if why.contains("disk30"));
    assert!(assembly.notes.iter().any(is_noted), "{:?}", assembly.notes);
    let array = Array::start(assembly, &world.host);
    let content = pattern(0, 256 << 10, 1);
    world.write(&array, 0, &content).expect("the array is healthy");
    assert_eq!(world.read(&array, 0, content.len()).expect("the array is healthy"), content);
}

/// A missing member may have no room for a larger log than the last one: policy journal on many
/// slots waits for it.
#[test]
fn a_degraded_array_does_not_change_to_a_log_that_the_missing_member_may_not_hold() {
    const SLOTS: usize = 30;
    let mut world = World::new(SLOTS, 8 << 20);
    world.host.bounds.log_bytes = log::least_zone(SLOTS, true) - 4096;
    let new = NewArray {
        zeroed: true,
        ..NewArray::new("tank", Layout::default_for(Level::Raid5, SLOTS), 16 << 10)
    };
    world.create(&NewArray { checksums: Some(false), ..new });
    let array = world.start();
    world.write(&array, 0, &pattern(0, 4096, 1)).expect("the array is healthy");
    world.run(&array, array.stop()).expect("the array stops");
    let journal = Options { consistency: Some(Consistency::Journal), ..Options::default() };
    let degraded = Options { degraded: true, ..journal.clone() };
    let refusal =
        world.assemble(1..SLOTS, &degraded).err().expect("a member is missing").to_string();
    assert!(refusal.contains("until the array has all its members"), "{refusal}");
    let assembly = world.assemble(0..SLOTS, &journal).expect("all members are present");
    assert!(assembly.most_shards().is_some(), "the members have room for the log");
}

/// A kernel has rebuilt onto a disk made by mdadm, whose data begins where checksums would lie. The
/// array runs without them and reports why. A request to keep them is refused with the reason.
#[test]
fn an_array_that_cannot_have_its_checksums_any_more_runs_without_them() {
    let world = World::new(4, 8 << 20);
    let layout = Layout::default_for(Level::Raid5, 4);
    world.create(&NewArray {
        zeroed: true,
        checksums: Some(true),
        ..NewArray::new("tank", layout, 16 << 10)
    });
    let member = &world.disks[2];
    let superblock = begin_data(member, 64);
    member.disk.poke(64 * 512, &vec![0; superblock.size as usize * 512]);
    let wanted = Options { checksums: Some(true), ..Options::default() };
    let refusal = world.assemble(0..4, &wanted).err().expect("there is no space").to_string();
    assert!(refusal.contains("disk2"), "{refusal}");
    let assembly = world.assemble(0..4, &Options::default()).expect("all members are present");
    assert!(!assembly.facts().checksums);
    let is_noted =
        |note: &Note| matches!(note, Note::ChecksumsDropped { why } if why.contains("disk2"));
    assert!(assembly.notes.iter().any(is_noted), "{:?}", assembly.notes);
    let array = Array::start(assembly, &world.host);
    let content = pattern(0, 256 << 10, 1);
    world.write(&array, 0, &content).expect("the array is healthy");
    assert_eq!(world.read(&array, 0, content.len()).expect("the array is healthy"), content);
}

/// The user's option, and a crash between the commits of a start.
#[test]
fn an_interrupted_change_of_policy_leaves_one_policy() {
    let world = World::new(4, 8 << 20);
    let layout = Layout::default_for(Level::Raid5, 4);
    world.create(&NewArray {
        zeroed: true,
        checksums: Some(false),
        consistency: Some(Consistency::Intent),
        ..NewArray::new("tank", layout, 16 << 10)
    });
    let array = world.start();
    let content = pattern(0, 256 << 10, 1);
    world.write(&array, 0, &content).expect("the array is healthy");
    world.flush(&array);
    let map = array.geometry().stripe(Stripe(0));
    let (p, gone) = (map.p().index(), map.data(2).index());
    let from = map_of(&world.disks[p]).data.start;
    world.disks[p].break_with(Fault::HungFrom(from));
    drop(world.begin(&array, 0, &pattern(0, 4096, 2)));
    world.crash(array);
    let there: Vec<usize> = (0..4).filter(|&d| d != gone).collect();
    let options =
        Options { degraded: true, consistency: Some(Consistency::Resync), ..Options::default() };
    let assembly =
        world.assemble(there.iter().copied(), &options).expect("the log determines the row");
    let array = Array::start(assembly, &world.host);
    // Absent members are recorded as stale; the rows are not replayed yet.
    world.disks.iter().for_each(|disk| disk.break_with(Fault::HungFrom(from)));
    world.sleep(&array, Duration::from_millis(5));
    world.crash(array);
    let plain = Options { degraded: true, ..Options::default() };
    let assembly =
        world.assemble(there.iter().copied(), &plain).expect("the log determines the row");
    let array = Array::start(assembly, &world.host);
    let found = world.read(&array, 4096, content.len() - 4096).expect("the read succeeds");
    assert!(found == content[4096..]);
    world.run(&array, array.stop()).expect("the array stops");
    let wanted =
        Options { degraded: true, consistency: Some(Consistency::Intent), ..Options::default() };
    let assembly = world.assemble(there.iter().copied(), &wanted).expect("the array assembles");
    let facts = assembly.facts().clone();
    assert!(facts.bitmap_bytes.is_some(), "policy intent without a bitmap, for ever");
}
