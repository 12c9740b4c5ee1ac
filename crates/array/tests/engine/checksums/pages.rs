//! Pages of the table: a stream on members that rotate reads many at once.

use array::Array;
use layout::private::checksums::PAGE_COVERS;
use layout::{Layout, Level};
use metadata::create::NewArray;

use super::{CHUNK, corrupt, map_of};
use crate::world::{Fault, World};

const MEMBERS: u64 = 3;
const PAGES: u64 = 40;
/// One chunk of each member for each page: three stripes.
const STRIPES: u64 = MEMBERS * (MEMBERS - 1) * CHUNK;
/// Array bytes for each page.
const STEP: u64 = (MEMBERS - 1) * PAGE_COVERS;

fn started(rotational: bool) -> (World, Array) {
    let mut world = World::new(MEMBERS as usize, (PAGES + 8) * PAGE_COVERS);
    world.host.bounds.ahead_rotating_bytes = 0;
    world.host.bounds.ahead_bytes = 0;
    world.disks.iter().for_each(|disk| disk.rotational.set(rotational));
    let layout = Layout::default_for(Level::Raid5, MEMBERS as usize);
    let new = NewArray::new("tank", layout, CHUNK);
    world.create(&NewArray { zeroed: true, checksums: Some(true), ..new });
    let array = world.start();
    (world, array)
}

/// Reads three stripes for each of these pages.
fn read(world: &World, array: &Array, pages: std::ops::Range<u64>) {
    for page in pages {
        let bytes = world.read(array, page * STEP, STRIPES as usize).expect("repairable");
        assert!(bytes.iter().all(|&byte| byte == 0), "wrong bytes for page {page}");
    }
}

#[test]
fn a_stream_on_members_that_rotate_reads_many_pages_at_once() {
    for (rotational, most) in [(false, MEMBERS * PAGES), (true, 4 * MEMBERS)] {
        let (world, array) = started(rotational);
        let reads = || world.disks.iter().map(|disk| disk.reads.get()).sum::<u64>();
        read(&world, &array, 0..1);
        let once = reads();
        read(&world, &array, 0..1);
        let of_data = reads() - once;
        let before = reads();
        read(&world, &array, 1..PAGES);
        let of_pages = reads() - before - (PAGES - 1) * of_data;
        assert!(of_pages <= most, "{of_pages} reads of the table, rotational: {rotational}");
        assert!(rotational || of_pages == MEMBERS * (PAGES - 1), "{of_pages} reads of pages");
    }
}

#[test]
fn an_unreadable_page_does_not_cost_its_neighbours_their_checksums() {
    let (world, array) = started(true);
    let (disk, page) = (&world.disks[0], 5);
    let map = map_of(disk);
    let table = map.private_parts().expect("the member has a private area").checksums.start;
    disk.break_with(Fault::Unreadable { offset: table + page * 4096, len: 4096 });
    for other in [page - 1, page + 1, page + 2] {
        // A chunk of data: the first member has no parity in every third stripe.
        let stripe = (other * PAGE_COVERS / CHUNK).next_multiple_of(MEMBERS);
        corrupt(disk, map.data.start + stripe * CHUNK);
    }
    read(&world, &array, 0..PAGES);
    let status = array.status();
    let member = status.slots[0].member.as_ref().expect("the member stays");
    assert_eq!(member.checksum_errors, 3, "all corrupt blocks beside it are detected");
}
