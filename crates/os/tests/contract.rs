//! The contract of a disk, against every way in which this crate accesses one.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::path::Path;
use std::rc::Rc;

use io::{Disk, MemDisk, Pool, contract};
use os::{Config, Direct, Engine, Executor, FileDisk, Options};
use world::{Scratch, mib, on_disk, on_tmpfs};

fn pool() -> Pool {
    Pool::new(64 << 20)
}

fn executor(engine: Engine) -> Executor {
    Executor::new(Config { engine, ..Config::default() }).unwrap()
}

/// Creates a file with these options and runs the suite; says whether it was accessed directly.
fn check(path: &Path, direct: Direct, engine: Engine) -> bool {
    let executor = executor(engine);
    let options = Options { direct, create_bytes: Some(mib(12)), ..Options::default() };
    let disk = FileDisk::open(path, &options, &executor.spawner()).unwrap();
    executor.block_on(contract::check(Rc::clone(&disk) as Rc<dyn Disk>, &pool()));
    let is_direct = disk.is_direct();
    drop(disk);
    let options = Options { direct, read_only: true, ..Options::default() };
    let disk = FileDisk::open(path, &options, &executor.spawner()).unwrap();
    executor.block_on(contract::check_read_only(disk, &pool()));
    is_direct
}

#[test]
fn a_disk_in_memory() {
    executor(Engine::Epoll).block_on(contract::check(Rc::new(MemDisk::new(mib(12))), &pool()));
}

#[test]
fn a_part_of_a_disk() {
    let part = io::Part::new(Rc::new(MemDisk::new(mib(16))), mib(1)..mib(13)).unwrap();
    executor(Engine::Epoll).block_on(contract::check(Rc::new(part), &pool()));
}

#[test]
fn a_file_on_tmpfs() {
    let scratch = Scratch::new(on_tmpfs());
    assert!(!check(&scratch.path("disk"), Direct::Auto, Engine::Auto));
}

#[test]
fn a_buffered_file() {
    let scratch = Scratch::new(on_disk());
    assert!(!check(&scratch.path("disk"), Direct::Never, Engine::Auto));
}

#[test]
fn a_direct_file() {
    let scratch = Scratch::new(on_disk());
    assert!(check(&scratch.path("disk"), Direct::Always, Engine::Auto));
}

#[test]
fn files_without_io_uring() {
    let scratch = Scratch::new(on_disk());
    assert!(check(&scratch.path("direct"), Direct::Always, Engine::Epoll));
    assert!(!check(&scratch.path("buffered"), Direct::Never, Engine::Epoll));
}

#[test]
fn a_loop_device_of_either_block_size() {
    let scratch = Scratch::new(on_disk());
    for sector in [512, 4096] {
        let Some(device) = scratch.loop_device(mib(16), sector) else { return };
        let executor = executor(Engine::Auto);
        let spawner = executor.spawner();
        let disk = FileDisk::open(device.node(), &Options::default(), &spawner).unwrap();
        assert_eq!(disk.limits().bytes, mib(16));
        assert_eq!(disk.limits().logical_block, sector);
        assert!(disk.is_direct() && disk.is_device() && !disk.is_gone());
        executor.block_on(contract::check(disk, &pool()));
    }
}
