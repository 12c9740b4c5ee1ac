//! md's partial parity log: an interrupted write leaves every block that it did not touch as it
//! was, even with a member missing, and whichever program wrote the superblocks last.

use array::Array;
use io::Disk;
use layout::md::ppl::{self, PplHeader};
use layout::md::{Features, Superblock, Timestamp};
use layout::private::Consistency;
use layout::{Layout, Level};
use metadata::assemble::{Assembly, Options};
use metadata::create::NewArray;

use crate::world::{Fault, World, holder, pattern};

const CHUNK: u64 = 16 << 10;
const SUPERBLOCK: u64 = 4096;
const MEMBERS: usize = 4;

/// A RAID 5 with three data chunks in a stripe, full of a durable pattern, and marked dirty.
fn filled() -> (World, Array) {
    let world = World::new(MEMBERS, 8 << 20);
    let layout = Layout::default_for(Level::Raid5, MEMBERS);
    let consistency = Some(Consistency::Ppl);
    world.create(&NewArray { zeroed: true, consistency, ..NewArray::new("tank", layout, CHUNK) });
    let array = world.start();
    world.write(&array, 0, &pattern(0, 512 << 10, 1)).expect("the array is healthy");
    world.flush(&array);
    (world, array)
}

fn superblock(world: &World, member: usize) -> Superblock {
    let mut bytes = vec![0; 4096];
    world.disks[member].disk.peek(SUPERBLOCK, &mut bytes);
    Superblock::parse(&bytes, SUPERBLOCK / 512).expect("ours")
}

/// A member's log, and its start.
fn log(world: &World, member: usize) -> (Vec<u8>, u64) {
    let place = superblock(world, member).ppl().expect("the member keeps one");
    let start = (SUPERBLOCK as i64 + i64::from(place.offset) * 512) as u64;
    let mut bytes = vec![0; usize::from(place.size) * 512];
    world.disks[member].disk.peek(start, &mut bytes);
    (bytes, start)
}

fn newest(world: &World, member: usize) -> Option<(PplHeader, usize)> {
    let signature = ppl::signature(&superblock(world, member).set_uuid, parity::crc32c);
    ppl::newest(&log(world, member).0, signature, parity::crc32c).expect("not damaged")
}

fn assemble_without(
    world: &World,
    missing: &[usize],
    consistency: Option<Consistency>,
) -> metadata::Result<Assembly> {
    let there = (0..world.disks.len()).filter(|disk| !missing.contains(disk));
    world.assemble(there, &Options { degraded: true, consistency, ..Options::default() })
}

fn start_without(world: &World, missing: &[usize]) -> Array {
    let assembly =
        assemble_without(world, missing, None).expect("the log records the interrupted rows");
    Array::start(assembly, &world.host)
}

/// A write to data 0 of stripe 0 that does not reach member `hung` (numbered as in `holder`).
/// Returns the place of the second data block.
fn cut(world: &World, array: Array, hung: usize) -> usize {
    let data = world.assemble(0..MEMBERS, &Options::default()).expect("all").members[0].data_offset;
    let held = &world.disks[holder(&array, hung)];
    held.break_with(Fault::HungFrom(data));
    let write = world.begin(&array, 512, &pattern(512, 8192, 2));
    assert_eq!(held.is_holding(), 1);
    let second = holder(&array, 1);
    drop(write);
    world.crash(array);
    second
}

#[test]
fn blocks_beside_a_torn_write_survive_the_loss_of_their_member() {
    for (hung, by_kernel) in [(0, false), (3, false), (0, true), (3, true)] {
        let (world, array) = filled();
        let second = cut(&world, array, hung);
        for member in (0..MEMBERS).filter(|_| by_kernel) {
            // The state after a kernel's session: no microseconds.
            let mut superblock = superblock(&world, member);
            superblock.utime = Timestamp::new(superblock.utime.seconds() + 9, 0);
            world.disks[member].disk.poke(SUPERBLOCK, &superblock.print());
        }
        let array = start_without(&world, &[second]);
        for index in [1, 2] {
            let at = index * CHUNK;
            let found = world.read(&array, at, CHUNK as usize).expect("the block was not written");
            assert!(found == pattern(at, CHUNK as usize, 1), "{index} {hung} {by_kernel}");
        }
        let found = world.read(&array, 512, 8192).expect("the read succeeds");
        assert!(found == pattern(512, 8192, if hung == 0 { 1 } else { 2 }), "{hung}");
    }
}

/// A member is lost during replay, and the next crash comes before that is recorded. The member
/// returns with its contents, and the log must still have its rows.
#[test]
fn the_log_is_kept_until_losses_during_replay_are_on_record() {
    let (world, array) = filled();
    let first = holder(&array, 0);
    let second = cut(&world, array, 3);
    let assembly = assemble_without(&world, &[], None).expect("all members are present");
    let array = Array::start(assembly, &world.host);
    for (member, disk) in world.disks.iter().enumerate() {
        let gone = member == first;
        disk.break_with(if gone { Fault::Gone } else { Fault::HungAt(SUPERBLOCK) });
    }
    let until = io::Clock::now(&*world.clock) + std::time::Duration::from_millis(5);
    world.run(&array, io::Clock::sleep_until(&*world.clock, until));
    assert!(world.disks.iter().any(|disk| disk.is_holding() > 0), "it is being recorded");
    world.crash(array);
    let array = start_without(&world, &[second]);
    for index in [1, 2] {
        let at = index * CHUNK;
        let found = world.read(&array, at, CHUNK as usize).expect("the block was not written");
        assert!(found == pattern(at, CHUNK as usize, 1), "{index}");
    }
}

#[test]
fn a_row_whose_partial_parity_is_damaged_is_not_made_of_it() {
    let (world, array) = filled();
    let parity = holder(&array, 3);
    let second = cut(&world, array, 3);
    let ((header, at), (bytes, start)) = (newest(&world, parity).unwrap(), log(&world, parity));
    assert_eq!(header.entries.len(), 1);
    let byte = at + ppl::HEADER_BYTES as usize;
    world.disks[parity].disk.poke(start + byte as u64, &[bytes[byte] ^ 1]);
    let array = start_without(&world, &[second]);
    let found = world.read(&array, CHUNK, CHUNK as usize).expect("md's promise is weaker");
    let expected = pattern(CHUNK, CHUNK as usize, 1);
    let wrong = found.iter().zip(&expected).filter(|(found, expected)| found != expected).count();
    // From the damaged entry one byte would be wrong.
    assert!(wrong > 4096, "{wrong}: what nothing has put right is wrong");
}

#[test]
fn a_batch_waits_until_all_rows_of_the_one_before_are_durable() {
    let (world, array) = filled();
    world.crash(array);
    world.disks.iter().for_each(|disk| disk.volatile.set(true));
    let array = start_without(&world, &[]);
    world.until(&array, |status| status.unsynced_bytes == 0);
    world.write(&array, 0, &pattern(0, 4096, 2)).expect("the shard is awake");
    let flushes = || world.disks.iter().map(|disk| disk.flushes.get()).sum::<u64>();
    let (before, parity) = (flushes(), holder(&array, 3));
    world.write(&array, 3 * CHUNK, &pattern(3 * CHUNK, 4096, 2)).expect("another stripe");
    assert!(flushes() > before, "only the newest batch counts");
    let (old, _) = newest(&world, parity).unwrap();
    world.write(&array, CHUNK, &pattern(CHUNK, 4096, 2)).expect("the array is healthy");
    let (new, _) = newest(&world, parity).unwrap();
    assert!(new.generation > old.generation);
    assert_eq!(new.entries[0].data_sector, CHUNK / 512);
}

#[test]
fn a_log_is_empty_when_a_session_begins_and_when_a_member_joins() {
    let (world, array) = filled();
    let parity = holder(&array, 3);
    assert!(newest(&world, parity).is_some_and(|(header, _)| header.generation > 0));
    world.run(&array, array.stop()).expect("the array stops");
    let array = world.start();
    world.write(&array, 0, &pattern(0, 512, 2)).expect("the shard is awake");
    let (header, at) = newest(&world, parity).expect("the list was emptied and has one item");
    assert_eq!((header.generation, header.entries.len(), at), (1, 1, 0));
    let other = (0..MEMBERS).find(|&member| member != parity).expect("four");
    assert_eq!(newest(&world, other).map(|(header, _)| header.generation), Some(0));

    world.disks[other].break_with(Fault::WriteError);
    world.write(&array, 0, &pattern(0, 64 << 10, 2)).expect("the level tolerates one loss");
    world.run(&array, array.stop()).expect("the array stops");
    world.disks[other].faults.borrow_mut().clear();
    // Its contents could be taken for something newer.
    let (_, start) = log(&world, other);
    let stale = PplHeader { generation: 1 << 40, ..header };
    world.disks[other].disk.poke(start, &stale.print(parity::crc32c));
    let array = start_without(&world, &[other]);
    let disk = std::rc::Rc::clone(&world.disks[other]) as std::rc::Rc<dyn Disk>;
    world.run(&array, array.add(disk, "back")).expect("as a new member");
    world.until(&array, |status| status.slots.iter().all(|slot| slot.member.is_some()));
    world.until(&array, |status| status.job.is_none());
    let (header, _) = newest(&world, other).expect("the member has one");
    assert!(header.generation < 1 << 40, "emptied when it joined");
}

#[test]
fn a_policy_becomes_md_s_log_and_another_again() {
    let (world, array) = filled();
    world.run(&array, array.stop()).expect("the array stops");
    for policy in [Consistency::Intent, Consistency::Ppl, Consistency::Resync, Consistency::Ppl] {
        let assembly = assemble_without(&world, &[], Some(policy)).expect("the array assembles");
        let array = Array::start(assembly, &world.host);
        assert_eq!(array.status().consistency, policy);
        world.write(&array, 512, &pattern(512, 8192, 3)).expect("the shard is awake");
        world.run(&array, array.stop()).expect("the array stops");
        let features = superblock(&world, 2).features;
        assert_eq!(features.contains(Features::MULTIPLE_PPLS), policy == Consistency::Ppl);
        assert_eq!(features.contains(Features::BITMAP), policy == Consistency::Intent);
    }
    // Not while only the old log can replay some rows.
    let array = start_without(&world, &[]);
    world.write(&array, 0, &pattern(0, 512 << 10, 1)).expect("the array is healthy");
    cut(&world, array, 0);
    let refused = assemble_without(&world, &[], Some(Consistency::Intent)).err().expect("cut");
    assert!(refused.to_string().contains("assemble it with its policy ppl first"), "{refused}");
    assert!(assemble_without(&world, &[], None).is_ok());
}

#[test]
fn only_raid_5_has_it() {
    let world = World::new(MEMBERS, 8 << 20);
    let layout = Layout::default_for(Level::Raid6, MEMBERS);
    world.create(&NewArray { zeroed: true, ..NewArray::new("tank", layout, CHUNK) });
    let refused = assemble_without(&world, &[], Some(Consistency::Ppl)).err().expect("RAID 6");
    assert!(refused.to_string().contains("RAID 5 only"), "{refused}");
}

/// A block and parity of its row are unreadable while another block is written, which md's log
/// cannot record. Its entry of an older write matches older contents of the row.
#[test]
fn unreadable_blocks_are_not_recovered_from_an_older_entry() {
    let (world, array) = filled();
    world.write(&array, 2 * CHUNK, &pattern(0, 4096, 5)).expect("the array is healthy");
    world.flush(&array);
    let map = array.geometry().stripe(layout::Stripe(0));
    let offset = world.data_offset();
    let unreadable = Fault::Unreadable { offset, len: 4096 };
    let (one, p) = (map.data(1).index(), map.p().index());
    [one, p].into_iter().for_each(|member| world.disks[member].break_with(unreadable));
    let new = pattern(0, 4096, 7);
    world.write(&array, 0, &new).expect("the write succeeds");
    world.flush(&array);
    world.crash(array);
    world.disks[one].break_with(unreadable);
    let array = world.start();
    assert!(world.read(&array, 0, 4096).expect("the read succeeds") == new);
    if let Ok(read) = world.read(&array, CHUNK, 4096) {
        assert!(read == pattern(CHUNK, 4096, 1), "it is invented");
    }
}
