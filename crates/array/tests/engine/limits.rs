//! Each limit of an array at `limit - 1`, `limit` and `limit + 1`: an array at the limit lives a
//! whole life (written, cut, degraded, assembled again), one above it is refused and nothing is
//! written. `docs/limits.md` has the table; a test of the program compares it with this file.

use std::panic::{AssertUnwindSafe, catch_unwind};

use array::Array;
use io::{Disk, MemDisk};
use layout::geometry::{MAX_CHUNK_BYTES, MAX_ORDER, MIN_CHUNK_BYTES};
use layout::md::superblock::{EVENTS_MOST, EVENTS_ROOM, MAX_DEVICES};
use layout::md::{NAME_BYTES, Superblock, Version, bitmap, ppl};
use layout::private::log::{BATCH_ALIGNMENT, Form};
use layout::private::{Consistency, NEW_LOG_BYTES, journal};
use layout::{Family, Layout, Level, MAX_SLOTS, Stripe, sync};
use metadata::MOST_BLOCK_BYTES;
use metadata::assemble::{Note, Options};
use metadata::create::{BitmapChunk, NewArray, check_journal, create, plan};

use crate::world::{Fault, World, pattern};

const CHUNK: u64 = 4096;
/// Enough for the structures of a member, a log and some chunks.
const MEMBER: u64 = 6 << 20;

fn new(level: Level, members: usize) -> NewArray {
    let layout = Layout::default_for(level, members);
    let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
    NewArray { zeroed: true, ..NewArray::new("limit", layout, chunk) }
}

/// A world whose disks are an array of this kind.
fn made(disks: usize, member_bytes: u64, new: &NewArray) -> World {
    let world = World::new(disks, member_bytes);
    world.create(new);
    world
}

/// Creating this is refused with these words, and no disk is written.
fn refused(disks: usize, member_bytes: u64, new: &NewArray, words: &str) {
    let world = World::new(disks, member_bytes);
    let clock = std::rc::Rc::clone(&world.clock) as std::rc::Rc<dyn io::Clock>;
    let work = create(new, world.candidates(0..disks), &clock, &crate::world::random);
    let Err(why) = io::tasks::complete(work).expect("memory disks complete") else {
        panic!("an array that should be refused: {words}");
    };
    let why = why.to_string();
    assert!(why.contains(words), "{why:?} does not say {words:?}");
    assert!(world.disks.iter().all(|disk| disk.writes.get() == 0), "{words}: a disk was written");
}

/// The places of an array that a wrong number would miss: the first and the last block of its first
/// and its last stripe.
fn places(array: &Array) -> Vec<u64> {
    let (stripe, capacity) = (array.geometry().stripe_bytes(), array.geometry().capacity());
    let mut places = vec![0, stripe - 4096, capacity - stripe, capacity - 4096];
    places.dedup();
    places
}

/// An array with these members is filled, cut in the middle of a write, assembled without a member,
/// and assembled once more.
fn lives(world: World, what: &str) {
    let array = world.start();
    let geometry = array.geometry().clone();
    let places = places(&array);
    let fill = |array: &Array, salt| {
        for &at in &places {
            let written = world.write(array, at, &pattern(at, 4096, salt));
            written.unwrap_or_else(|why| panic!("{what}: byte {at}: {why}"));
        }
        world.flush(array);
    };
    fill(&array, 1);
    let cut = *places.last().expect("four");
    let (holder, other) = match geometry.family() {
        Family::Parity => {
            let last = Stripe(geometry.capacity() / geometry.stripe_bytes() - 1);
            let map = geometry.stripe(last);
            let data = geometry.data_count() - 1;
            (map.data(data).index(), map.data(0).index())
        }
        Family::Mirror | Family::Plain => (geometry.slots() - 1, 0),
    };
    world.disks[holder].break_with(Fault::HungFrom(world.data_offset()));
    let write = world.begin(&array, cut, &pattern(cut, 4096, 2));
    assert!(world.disks[holder].is_holding() > 0, "{what}: the write is cut");
    drop(write);
    world.crash(array);
    let lost: &[usize] = if geometry.redundancy() > 0 { &[other] } else { &[] };
    let assembly = world.assemble_without(lost);
    let assembly = assembly.unwrap_or_else(|why| panic!("{what}: {why}"));
    let bad = |note: &Note| matches!(note, Note::LogUnusable { .. } | Note::Unusable { .. });
    assert!(!assembly.notes.iter().any(bad), "{what}: {:?}", assembly.notes);
    let array = Array::start(assembly, &world.host);
    for &at in &places {
        let found =
            world.read(&array, at, 4096).unwrap_or_else(|why| panic!("{what}: {at}: {why}"));
        let new = found == pattern(at, 4096, 2) && at == cut;
        assert!(new || found == pattern(at, 4096, 1), "{what}: byte {at} has changed");
    }
    fill(&array, 3);
    world.run(&array, array.stop()).unwrap_or_else(|why| panic!("{what}: {why}"));
    let array = world.start();
    for &at in &places {
        assert!(world.read(&array, at, 4096).expect(what) == pattern(at, 4096, 3), "{what}: {at}");
    }
}

#[test]
fn slots() {
    for level in [Level::Linear, Level::Raid0, Level::Raid1, Level::Raid4, Level::Raid5] {
        for members in [MAX_SLOTS - 1, MAX_SLOTS] {
            lives(
                made(members, MEMBER, &new(level, members)),
                &format!("{level}, {members} slots"),
            );
        }
        let many = MAX_SLOTS + 1;
        refused(many, MEMBER, &new(level, many), "at most 128 members, not 129");
    }
    for (level, members) in [(Level::Raid6, MAX_SLOTS), (Level::Raid10, MAX_SLOTS)] {
        lives(made(members, MEMBER, &new(level, members)), &format!("{level}, {members} slots"));
        refused(MAX_SLOTS + 1, MEMBER, &new(level, MAX_SLOTS + 1), "at most 128 members, not 129");
    }
}

/// A RAID 10 may have as many copies as slots.
#[test]
fn copies() {
    for copies in [MAX_SLOTS - 1, MAX_SLOTS] {
        let layout = Layout::Raid10 { near: copies as u8, far: 1, offset: false };
        let kind = NewArray { layout, ..new(Level::Raid10, copies) };
        lives(made(MAX_SLOTS, MEMBER, &kind), &format!("{copies} copies"));
    }
    let layout = Layout::Raid10 { near: MAX_SLOTS as u8 + 1, far: 1, offset: false };
    let kind = NewArray { layout, ..new(Level::Raid10, MAX_SLOTS) };
    refused(MAX_SLOTS, MEMBER, &kind, "is not a layout");
}

/// A record of the narrow form names 64 data slots; the array beside it is logged in the wide form.
#[test]
fn narrow_data_slots() {
    let narrow = Form::Narrow.indices() as usize;
    for (data, form) in [narrow - 1, narrow, narrow + 1].into_iter().zip([0, 0, 1]) {
        assert_eq!(Form::of(data), Form::ALL[form], "{data} data slots");
        for (level, parity) in [(Level::Raid5, 1), (Level::Raid6, 2)] {
            let members = data + parity;
            lives(made(members, MEMBER, &new(level, members)), &format!("{level}, {data} of data"));
        }
    }
}

/// Members, spares included: as many as the role table has room for.
#[test]
fn devices() {
    let kind =
        |disks: usize, version| NewArray { spares: disks - 2, version, ..new(Level::Raid1, 2) };
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        for disks in [MAX_DEVICES - 1, MAX_DEVICES] {
            let world = made(disks, 4 << 20, &kind(disks, version));
            let array = world.start();
            assert_eq!(array.status().spares.len(), disks - 2, "{version:?}");
            world.write(&array, 0, &pattern(0, 4096, 1)).expect("the array is healthy");
            let more: std::rc::Rc<dyn Disk> = std::rc::Rc::new(MemDisk::new(4 << 20));
            let added = world.run(&array, array.add(more, "more"));
            assert_eq!(added.is_ok(), disks < MAX_DEVICES, "{disks} disks and one more: {added:?}");
            // The member of the highest number takes a slot.
            world
                .run(&array, array.fail(layout::MemberId(0)))
                .expect("the level tolerates one loss");
            world.until(&array, crate::world::whole);
            world.run(&array, array.stop()).expect("the array stops");
            let array = world.start();
            assert!(world.read(&array, 0, 4096).expect("the read succeeds") == pattern(0, 4096, 1));
        }
        let many = MAX_DEVICES + 1;
        refused(many, 4 << 20, &kind(many, version), "more disks than a superblock has room for");
    }
}

#[test]
fn orders() {
    for order in [MAX_ORDER - 1, MAX_ORDER] {
        let members = (1 << order) + 1;
        let layout = Layout::Raid35 { order };
        let kind = NewArray { layout, ..new(Level::Raid35, members) };
        lives(made(members, MEMBER, &kind), &format!("order {order}"));
    }
    let layout = Layout::Raid35 { order: MAX_ORDER + 1 };
    let kind = NewArray { layout, ..new(Level::Raid35, 129) };
    refused(MAX_SLOTS, MEMBER, &kind, "is not a layout");
}

/// The chunks are powers of two but for RAID 0: there they differ by one sector.
#[test]
fn chunks() {
    let of = |level, chunk_bytes| NewArray { chunk_bytes, ..new(level, 4) };
    for level in [Level::Raid0, Level::Raid10, Level::Raid5, Level::Raid6] {
        let (near, low) = match level {
            Level::Raid0 => (MAX_CHUNK_BYTES - 4096, MIN_CHUNK_BYTES + 512),
            _ => (MAX_CHUNK_BYTES / 2, MIN_CHUNK_BYTES * 2),
        };
        for chunk in [MIN_CHUNK_BYTES, low, near, MAX_CHUNK_BYTES] {
            let world = made(4, 72 << 20, &of(level, chunk));
            lives(world, &format!("{level}, chunks of {chunk} bytes"));
        }
        let steps = if level == Level::Raid0 { 512 } else { MIN_CHUNK_BYTES / 2 };
        refused(
            4,
            72 << 20,
            &of(level, MIN_CHUNK_BYTES - steps),
            "is not supported: 4 KiB to 16 MiB",
        );
        let above = if level == Level::Raid0 { MAX_CHUNK_BYTES + 512 } else { 2 * MAX_CHUNK_BYTES };
        refused(4, 72 << 20, &of(level, above), "is not supported: 4 KiB to 16 MiB");
    }
}

/// A bitmap of as many bits as its room has; one more is refused, with larger chunks as way out.
/// Small and large members have rooms of 4, 64 and 128 KiB; the last ones are too large to be run.
#[test]
fn bitmap_bits() {
    for (member_bytes, room) in [(256 << 20, 4 << 10), (9 << 30, 64 << 10), (201 << 30, 128 << 10)]
    {
        assert!(room <= bitmap::MOST_SPACE_BYTES);
        let most = (room - bitmap::HEADER_BYTES) * 8;
        let of = |bits: u64| {
            let (size_bytes, bitmap) = (Some(bits * CHUNK), Some(BitmapChunk::Bytes(CHUNK as u32)));
            NewArray { size_bytes, bitmap, ..new(Level::Raid5, 3) }
        };
        let limits = io::Limits { bytes: member_bytes, ..MemDisk::new(MEMBER).limits() };
        let disks = [0, 1, 2].map(|number| (format!("disk{number}"), limits));
        for bits in [most - 1, most] {
            let planned = plan(&of(bits), &disks).expect("the plan fits");
            assert_eq!(sync::sync_bytes(&planned.geometry), bits * CHUNK);
            if room < bitmap::MOST_SPACE_BYTES {
                lives(made(3, member_bytes, &of(bits)), &format!("{bits} bits"));
            }
        }
        let why = plan(&of(most + 1), &disks).expect_err("too many bits").to_string();
        assert!(why.contains("choose larger chunks"), "{why}");
    }
}

#[test]
fn names() {
    let of = |bytes: usize| NewArray { name: "n".repeat(bytes), ..new(Level::Raid5, 3) };
    for bytes in [NAME_BYTES - 1, NAME_BYTES] {
        let world = made(3, MEMBER, &of(bytes));
        assert_eq!(world.start().status().name, "n".repeat(bytes));
        let named = Options { name: Some("n".repeat(bytes)), ..Options::default() };
        assert!(world.assemble(0..3, &named).is_ok(), "{bytes} bytes");
        lives(world, &format!("a name of {bytes} bytes"));
    }
    refused(3, MEMBER, &of(NAME_BYTES + 1), "more than 32 bytes");
}

/// md's partial parity log is for fewer slots than an array may have.
#[test]
fn ppl_slots() {
    let of =
        |members| NewArray { consistency: Some(Consistency::Ppl), ..new(Level::Raid5, members) };
    for members in [ppl::MOST_SLOTS - 1, ppl::MOST_SLOTS] {
        lives(made(members, 8 << 20, &of(members)), &format!("{members} slots with ppl"));
    }
    let many = ppl::MOST_SLOTS + 1;
    refused(many, 8 << 20, &of(many), "at most 64 slots, not 65");
}

/// The journal holds a write to all slots. The members are too small for more than the least log.
#[test]
fn journal_slots() {
    let of = |members| NewArray {
        consistency: Some(Consistency::Journal),
        version: Version::V1_0,
        checksums: Some(false),
        ..new(Level::Raid5, members)
    };
    let most = NEW_LOG_BYTES as usize / (2 * BATCH_ALIGNMENT as usize) - 8;
    for members in [most - 1, most] {
        lives(made(members, MEMBER, &of(members)), &format!("{members} slots with a journal"));
    }
    let many = most + 1;
    refused(many, MEMBER, &of(many), "are needed for 121 members; choose larger disks");
    let device = ("journal", io::Limits::plain(journal::LEAST_BYTES));
    assert!(check_journal(&of(most), device, most).is_ok(), "a device with the least log");
    let why = check_journal(&of(many), device, many).expect_err("the least log is too small");
    assert!(why.to_string().contains("are needed for 121 members"), "{why}");
}

/// Each shard writes a zone of its own: as many as the log has room for.
#[test]
fn shards() {
    let world = || made(3, 72 << 20, &new(Level::Raid5, 3));
    let most =
        world().assemble(0..3, &Options::default()).expect("the array assembles").most_shards();
    let most = most.expect("the member has a log") as usize;
    for shards in [most - 1, most] {
        let mut world = world();
        world.host.shards = shards;
        lives(world, &format!("{shards} shards"));
    }
    let mut world = world();
    world.host.shards = most + 1;
    let before: Vec<u64> = world.disks.iter().map(|disk| disk.writes.get()).collect();
    let started = catch_unwind(AssertUnwindSafe(|| drop(world.start())));
    assert!(started.is_err(), "more shards than zones");
    let after: Vec<u64> = world.disks.iter().map(|disk| disk.writes.get()).collect();
    assert_eq!(before, after, "nothing is written");
}

/// Disks that are written in blocks of up to 4096 bytes.
#[test]
fn blocks() {
    let disks = |block: u32| {
        let limits = io::Limits { logical_block: block, ..MemDisk::new(MEMBER).limits() };
        let one = |name: u32| (format!("disk{name}"), limits);
        [0, 1, 2].map(one)
    };
    for block in [MOST_BLOCK_BYTES / 2, MOST_BLOCK_BYTES] {
        plan(&new(Level::Raid5, 3), &disks(block)).expect("the request is small enough");
    }
    let why = plan(&new(Level::Raid5, 3), &disks(2 * MOST_BLOCK_BYTES)).expect_err("too large");
    assert!(why.to_string().contains("at most 4096 are possible"), "{why}");
}

/// An array whose event count leaves no room for a session is read-only: one event more than a
/// superblock may have, and no member would be found again.
#[test]
fn events() {
    let most = EVENTS_MOST - EVENTS_ROOM;
    for (events, writable) in
        [(most - 1, true), (most, true), (most + 1, false), (EVENTS_MOST, false)]
    {
        let world = made(3, MEMBER, &new(Level::Raid5, 3));
        let array = world.start();
        world.write(&array, 0, &pattern(0, 4096, 1)).expect("the array is healthy");
        world.run(&array, array.stop()).expect("the array stops");
        for disk in &world.disks {
            let mut bytes = vec![0; 4096];
            disk.disk.peek(4096, &mut bytes);
            let found = Superblock::parse(&bytes, 8).expect("a member");
            disk.disk.poke(4096, &Superblock { events, ..found }.print());
        }
        let array = world.start();
        assert!(world.read(&array, 0, 4096).expect("the read succeeds") == pattern(0, 4096, 1));
        let written = world.write(&array, 0, &pattern(0, 4096, 2));
        assert_eq!(written.is_ok(), writable, "{events} events: {written:?}");
        world.run(&array, array.stop()).expect("the array stops");
        let salt = if writable { 2 } else { 1 };
        let assembly = world.assemble(0..3, &Options::default());
        let assembly = assembly.unwrap_or_else(|why| panic!("{events} events: {why}"));
        let reason = assembly.read_only_reason.clone().unwrap_or_default();
        // The first session of the two at the limit has used events up.
        assert!(writable || reason.contains("copy the data"), "{events} events: {reason:?}");
        let array = Array::start(assembly, &world.host);
        assert!(world.read(&array, 0, 4096).expect("the read succeeds") == pattern(0, 4096, salt));
    }
}
