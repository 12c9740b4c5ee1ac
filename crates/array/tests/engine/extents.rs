//! Block status tells of zeros only where a read returns zeros, whatever a member reports.

use array::Array;
use io::{Disk, ExtentKind, Op, Work};
use layout::{Layout, Level};
use metadata::create::NewArray;

use crate::checksums::{CHUNK, LEN, LEVELS, map_of};
use crate::world::{World, pattern};

/// An array full of a pattern at its beginning; nothing was written behind it.
fn filled(level: Level, members: usize, checksums: bool) -> (World, Array) {
    let world = World::new(members, 8 << 20);
    let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
    let layout = Layout::default_for(level, members);
    let checksums = Some(checksums);
    world.create(&NewArray { zeroed: true, checksums, ..NewArray::new("tank", layout, chunk) });
    let array = world.start();
    world.write(&array, 0, &pattern(0, LEN, 1)).expect("the array is healthy");
    world.flush(&array);
    (world, array)
}

/// How many bytes of a range are reported as zeros.
fn zeros(world: &World, array: &Array, offset: u64, len: u64) -> u64 {
    let (mut at, mut zeros) = (offset, 0);
    while at < offset + len {
        let ask = Work::Extents { len: offset + len - at, found: Vec::new() };
        let done = world.run(array, array.submit(Op::new(at, ask)));
        done.result.expect("the array is healthy");
        let Work::Extents { found, .. } = done.work else {
            unreachable!("the request was for extents")
        };
        at += found.iter().map(|extent| extent.len).sum::<u64>();
        let are_zeros = found.iter().filter(|extent| extent.kind != ExtentKind::Data);
        zeros += are_zeros.map(|extent| extent.len).sum::<u64>();
    }
    zeros
}

#[test]
fn extents_that_a_member_lost_are_data() {
    for (level, members) in LEVELS {
        for (checksums, slot) in (0..members).flat_map(|slot| [(true, slot), (false, slot)]) {
            let (world, array) = filled(level, members, checksums);
            let disk = &world.disks[slot];
            let whole = Work::Zero { len: 4 * CHUNK, unmap: true, fast: false };
            drop(disk.disk.submit(Op::new(map_of(disk).data.start, whole)));
            let found = zeros(&world, &array, 0, LEN as u64);
            assert_eq!(found, 0, "{level}, checksums {checksums}: slot {slot} lost extents");
        }
    }
}

#[test]
fn zeros_that_the_array_wrote_or_never_wrote_are_reported() {
    for (level, members) in LEVELS {
        for checksums in [true, false] {
            let (world, array) = filled(level, members, checksums);
            let rest = array.limits().bytes - LEN as u64;
            let found = zeros(&world, &array, LEN as u64, rest);
            assert_eq!(found, rest, "{level}, checksums {checksums}: never written");
            let len = (LEN / 2) as u64;
            let zero = Work::Zero { len, unmap: true, fast: false };
            let done = world.run(&array, array.submit(Op::new(0, zero)));
            done.result.expect("the array is healthy");
            let found = zeros(&world, &array, 0, LEN as u64);
            assert_eq!(found, len, "{level}, checksums {checksums}: zeroed");
        }
    }
}
