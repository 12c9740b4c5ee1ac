//! The contract of a disk, against an export of our own server through our own client.

use std::cell::Cell;
use std::rc::Rc;

use io::{Limits, MemDisk, contract};
use net::nbd::client::connect;
use net::nbd::{Catalogue, Export};

use crate::world::{World, pool};

/// Runs `check` on the export as its client sees it.
fn checked(export: Export, room: usize, read_only: bool) {
    let world = World::new(Rc::new(Catalogue::new([Rc::new(export)])));
    let end = world.connect_over(room, usize::MAX).unwrap();
    let passed = Rc::new(Cell::new(false));
    let mark = Rc::clone(&passed);
    let (disk, link) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(None)));
    let (disk_place, link_place) = (Rc::clone(&disk), Rc::clone(&link));
    world.tasks.spawn(async move {
        let (disk, link) = connect(Box::new(end), "disk", None, pool()).await.unwrap();
        disk_place.set(Some(disk));
        link_place.set(Some(link));
    });
    world.run_until_idle();
    let link = link.take().expect("connected");
    let disk = Rc::new(disk.take().expect("connected"));
    world.tasks.spawn(async move { drop(link.await) });
    world.tasks.spawn(async move {
        match read_only {
            true => contract::check_read_only(disk, &pool()).await,
            false => contract::check(disk, &pool()).await,
        }
        mark.set(true);
    });
    (0..10_000).take_while(|_| !passed.get()).for_each(|_| world.run_until_idle());
    assert!(passed.get(), "the checks came to a stand");
}

fn export(block: u32) -> Export {
    let limits = Limits { logical_block: block, ..Limits::plain(12 << 20) };
    Export::new("disk", Rc::new(MemDisk::with_limits(limits)), pool())
}

#[test]
fn a_remote_disk_keeps_the_contract() {
    checked(export(512), 1 << 20, false);
    checked(export(4096), 1 << 20, false);
}

#[test]
fn a_remote_disk_keeps_the_contract_over_a_narrow_stream() {
    checked(export(512), 5000, false);
}

#[test]
fn a_read_only_remote_disk_keeps_the_contract() {
    checked(export(512).read_only(), 1 << 20, true);
}
