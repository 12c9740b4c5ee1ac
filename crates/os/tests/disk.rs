//! Disks in adverse conditions: locks, full and truncated files, other holders.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;

use io::{Disk, Done, ErrorKind, Op, Pool, Work};
use os::disk::OpenErrorKind;
use os::{Config, Direct, Engine, Executor, FileDisk, OpenError, Options};
use world::{Scratch, alone, mib, on_disk, on_tmpfs, run};

const ENGINES: [Engine; 2] = [Engine::Uring, Engine::Epoll];

fn executor(engine: Engine) -> Executor {
    Executor::new(Config { engine, ..Config::default() }).unwrap()
}

fn open(path: &Path, options: Options, on: &Executor) -> Result<Rc<FileDisk>, OpenError> {
    FileDisk::open(path, &options, &on.spawner())
}

fn new_disk(path: &Path, direct: Direct, on: &Executor) -> Rc<FileDisk> {
    open(path, Options { direct, create_bytes: Some(mib(4)), ..Options::default() }, on).unwrap()
}

fn submit(on: &Executor, disk: &FileDisk, op: Op) -> Done {
    on.block_on(disk.submit(op))
}

fn kind(done: &Done) -> Option<ErrorKind> {
    done.result.as_ref().err().map(|error| error.kind())
}

/// Holders as in the error message.
fn holders(result: Result<Rc<FileDisk>, OpenError>) -> String {
    let error = result.err().expect("another process holds the disk");
    assert!(matches!(error.kind(), OpenErrorKind::Busy(_)), "{error}");
    error.to_string()
}

#[test]
fn a_second_opening_names_the_process_that_was_first() {
    let (scratch, on) = (Scratch::new(on_disk()), executor(Engine::Auto));
    let path = scratch.path("disk");
    let first = new_disk(&path, Direct::Auto, &on);
    let held_by = holders(open(&path, Options::default(), &on));
    assert!(held_by.contains(&format!("this very process {} (", std::process::id())), "{held_by}");
    let reader = Options { read_only: true, ..Options::default() };
    holders(open(&path, reader, &on));
    open(&path, Options { lock: false, ..Options::default() }, &on).unwrap();
    drop(first);
    let one = open(&path, reader, &on).unwrap();
    let two = open(&path, reader, &on).unwrap();
    holders(open(&path, Options::default(), &on));
    drop((one, two));
    open(&path, Options::default(), &on).unwrap();
}

#[test]
fn a_lock_of_another_process_is_reported_with_its_name_and_the_remedy() {
    let _alone = alone();
    let (scratch, on) = (Scratch::new(on_disk()), executor(Engine::Auto));
    let path = scratch.path("disk");
    drop(new_disk(&path, Direct::Auto, &on));
    let mut holder = Command::new("flock")
        .arg(&path)
        .args(["sh", "-c", "echo held; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let held_by = holders(open(&path, Options::default(), &on));
    let pid = holder.id();
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert!(held_by.ends_with(&format!("process {pid} (flock)")), "{held_by}");
    open(&path, Options::default(), &on).unwrap();
}

#[test]
fn a_device_names_its_holder() {
    let _alone = alone();
    let (scratch, on) = (Scratch::new(on_disk()), executor(Engine::Auto));
    let Some(device) = scratch.loop_device(mib(16), 512) else { return };
    let first = open(device.node(), Options::default(), &on).unwrap();
    let held_by = holders(open(device.node(), Options::default(), &on));
    assert!(held_by.contains("this very process"), "{held_by}");
    drop(first);
    assert!(run("mkfs.ext4", &["-q"], device.node()));
    let place = scratch.path("place");
    fs::create_dir(&place).unwrap();
    assert!(run("mount", &[device.node().to_str().unwrap()], &place));
    let held_by = holders(open(device.node(), Options::default(), &on));
    assert!(run("umount", &[], &place));
    let place = place.display();
    assert!(held_by.ends_with(&format!("mounted at {place}")), "{held_by}");
    open(device.node(), Options::default(), &on).unwrap();
}

#[test]
fn a_file_that_is_no_disk_is_not_opened() {
    let _alone = alone();
    let (scratch, on) = (Scratch::new(on_disk()), executor(Engine::Auto));
    let kind =
        |path: &Path, options| open(path, options, &on).err().expect("must fail").to_string();
    let default = Options::default();
    assert!(kind(&scratch.path("none"), default).contains("no such file"));
    assert!(kind(&scratch.path(""), default).contains("neither a file nor a block device"));
    assert!(kind(Path::new("/dev/null"), default).contains("neither a file nor a block device"));
    let fifo = scratch.path("fifo");
    assert!(run("mkfifo", &[], &fifo));
    assert!(kind(&fifo, default).contains("neither a file nor a block device"));
    let tmpfs = Scratch::new(on_tmpfs());
    let always =
        Options { direct: Direct::Always, create_bytes: Some(mib(1)), ..Options::default() };
    assert!(kind(&tmpfs.path("disk"), always).contains("O_DIRECT"));
    assert!(!tmpfs.path("disk").exists(), "a failed create leaves nothing behind");
    let path = scratch.path("disk");
    fs::write(&path, "precious").unwrap();
    let create = Options { create_bytes: Some(mib(1)), ..Options::default() };
    assert!(kind(&path, create).contains("exists already"));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_full_file_system_is_reported_and_nothing_is_left_behind() {
    let _alone = alone();
    let scratch = Scratch::new(on_tmpfs());
    let Some(mount) = scratch.mount_tmpfs(mib(4)) else { return };
    let on = executor(Engine::Auto);
    let path = mount.place().join("disk");
    let create = Options { create_bytes: Some(mib(8)), ..Options::default() };
    let error = open(&path, create, &on).err().expect("there is no space");
    assert!(matches!(error.kind(), OpenErrorKind::NoSpace(bytes) if *bytes == mib(8)), "{error}");
    assert!(!path.exists());
    // A file with holes finds out when it writes.
    fs::File::create(&path).unwrap().set_len(mib(8)).unwrap();
    let disk = open(&path, Options::default(), &on).unwrap();
    let pool = Pool::new(0);
    let done = submit(&on, &disk, Op::write(0, pool.take_zeroed(mib(8) as usize).freeze()));
    assert_eq!(kind(&done), Some(ErrorKind::NoSpace));
    assert!(matches!(&done.work, Work::Write(bufs) if bufs[0].len() as u64 == mib(8)));
    submit(&on, &disk, Op::read(mib(7), pool.take(4096))).result.expect("the rest still works");
}

#[test]
fn a_cut_file_is_noticed_and_never_made_whole_with_zeros() {
    let (on_disk, on_tmpfs) = (Scratch::new(on_disk()), Scratch::new(on_tmpfs()));
    for engine in ENGINES {
        for (scratch, direct) in
            [(&on_disk, Direct::Always), (&on_disk, Direct::Never), (&on_tmpfs, Direct::Auto)]
        {
            let (on, pool) = (executor(engine), Pool::new(0));
            let path = scratch.path(&format!("{engine:?}-{direct:?}"));
            let disk = new_disk(&path, direct, &on);
            submit(&on, &disk, Op::write(0, pool.copy_of(&[7; 4096]).freeze())).result.unwrap();
            assert!(!disk.is_gone());
            fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(mib(1)).unwrap();
            let done = submit(&on, &disk, Op::read(mib(1) - 4096, pool.take(8192)));
            let lost = ErrorKind::Medium { offset: mib(1), len: 4096 };
            assert_eq!(kind(&done), Some(lost), "{engine:?} {direct:?}");
            for op in [Op::write(mib(2), pool.take(4096).freeze()), Op::flush()] {
                assert_eq!(kind(&submit(&on, &disk, op)), Some(ErrorKind::Truncated));
            }
            assert_eq!(fs::metadata(&path).unwrap().len(), mib(1), "nothing was written");
            let below = submit(&on, &disk, Op::read(0, pool.take(4096)));
            assert_eq!(below.into_buf()[..], [7; 4096]);
            assert!(disk.is_gone());
        }
    }
}

/// A cut is noticed though the file is as long as before, whoever made it so.
#[test]
fn a_cut_file_that_grew_back_is_noticed() {
    let (on_disk, on_tmpfs) = (Scratch::new(on_disk()), Scratch::new(on_tmpfs()));
    for engine in ENGINES {
        for (scratch, direct) in
            [(&on_disk, Direct::Always), (&on_disk, Direct::Never), (&on_tmpfs, Direct::Auto)]
        {
            for by_write in [true, false] {
                let (on, pool) = (executor(engine), Pool::new(0));
                let path = scratch.path(&format!("{engine:?}-{direct:?}-{by_write}"));
                let disk = new_disk(&path, direct, &on);
                let len = |bytes| {
                    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(bytes).unwrap();
                };
                let end = |byte| {
                    let bytes = pool.copy_of(&[byte; 8192]).freeze();
                    submit(&on, &disk, Op::write(mib(4) - 8192, bytes))
                };
                let zero = |offset, unmap| {
                    let work = Work::Zero { len: mib(1), unmap, fast: false };
                    submit(&on, &disk, Op::new(offset, work)).result.unwrap();
                };
                // Neither what the disk itself does to its last page is a cut, nor a longer file.
                end(1).result.unwrap();
                zero(mib(3), true);
                zero(mib(3), false);
                len(mib(6));
                len(mib(4));
                end(2).result.unwrap();
                assert!(!disk.is_gone(), "{engine:?} {direct:?}");
                len(mib(1));
                if by_write {
                    assert_eq!(kind(&end(3)), Some(ErrorKind::Truncated), "{engine:?} {direct:?}");
                } else {
                    len(mib(4));
                    assert_eq!(kind(&submit(&on, &disk, Op::flush())), Some(ErrorKind::Truncated));
                }
                assert_eq!(fs::metadata(&path).unwrap().len(), mib(4));
                assert!(disk.is_gone(), "{engine:?} {direct:?}");
                let below = submit(&on, &disk, Op::read(0, pool.take(4096)));
                let lost = ErrorKind::Medium { offset: 0, len: 4096 };
                assert_eq!(kind(&below), Some(lost), "the place of the cut is unknown");
            }
        }
    }
}

#[test]
fn a_flush_notices_a_cut_file() {
    let (scratch, on) = (Scratch::new(on_disk()), executor(Engine::Auto));
    let path = scratch.path("disk");
    let disk = new_disk(&path, Direct::Auto, &on);
    submit(&on, &disk, Op::flush()).result.unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(mib(1)).unwrap();
    assert_eq!(kind(&submit(&on, &disk, Op::flush())), Some(ErrorKind::Truncated));
}

#[test]
fn a_deleted_file_works_and_says_that_it_is_deleted() {
    let (scratch, on) = (Scratch::new(on_disk()), executor(Engine::Auto));
    let path = scratch.path("disk");
    let disk = new_disk(&path, Direct::Auto, &on);
    assert!(!disk.is_deleted());
    fs::remove_file(&path).unwrap();
    let pool = Pool::new(0);
    submit(&on, &disk, Op::write(0, pool.take(4096).freeze())).result.unwrap();
    submit(&on, &disk, Op::flush()).result.unwrap();
    assert!(disk.is_deleted() && !disk.is_gone());
}

#[test]
fn a_shrunken_device_answers_with_errors() {
    let _alone = alone();
    let (scratch, on) = (Scratch::new(on_disk()), executor(Engine::Auto));
    let Some(device) = scratch.loop_device(mib(16), 512) else { return };
    let disk = open(device.node(), Options::default(), &on).unwrap();
    let backing = scratch.path("backing-512");
    fs::OpenOptions::new().write(true).open(backing).unwrap().set_len(mib(8)).unwrap();
    assert!(run("losetup", &["--set-capacity"], device.node()));
    let pool = Pool::new(0);
    let done = submit(&on, &disk, Op::read(mib(12), pool.take(4096)));
    assert_eq!(kind(&done), Some(ErrorKind::Medium { offset: mib(12), len: 4096 }));
    assert_eq!(kind(&submit(&on, &disk, Op::flush())), Some(ErrorKind::Gone));
}

#[test]
fn a_dropped_executor_waits_for_operations_in_flight() {
    let scratch = Scratch::new(on_disk());
    let on = executor(Engine::Uring);
    let disk = new_disk(&scratch.path("disk"), Direct::Always, &on);
    let pool = Pool::new(mib(64) as usize);
    for round in 0..64 {
        drop(disk.submit(Op::read(round * 65536 % mib(4), pool.take(65536))));
    }
    assert_eq!(pool.kept_bytes(), 0, "all buffers are on their way");
    drop(on);
    assert_eq!(pool.kept_bytes(), 64 * 65536, "all have come back");
    // A disk that outlives its executor answers inline.
    let done = io::tasks::complete(disk.submit(Op::read(0, pool.take(4096))));
    done.expect("at once").result.unwrap();
}

#[test]
fn a_file_that_threads_share_is_one_file_and_locked_until_the_last_lets_go() {
    for engine in ENGINES {
        let (scratch, on) = (Scratch::new(on_disk()), executor(engine));
        let path = scratch.path("disk");
        let disk = new_disk(&path, Direct::Auto, &on);
        let shared = disk.share();
        let (release, held_by) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            let on = executor(engine);
            let disk = FileDisk::of(shared, &on.spawner());
            let bytes = Pool::new(0).copy_of(&[7; 8192]).freeze();
            submit(&on, &disk, Op::write(65536, bytes)).result.unwrap();
            // Kept open until the first thread has let go.
            held_by.recv().unwrap();
            submit(&on, &disk, Op::read(65536, Pool::new(0).take(4096))).result.unwrap();
            holders(open(disk.path(), Options::default(), &on));
        });
        drop(disk);
        release.send(()).unwrap();
        other.join().unwrap();
        let disk = open(&path, Options::default(), &on).unwrap();
        let done = submit(&on, &disk, Op::read(65536, Pool::new(0).take(8192)));
        let Work::Read(bufs) = done.work else { panic!("a read completes as a read") };
        assert!(bufs.iter().all(|buf| buf.iter().all(|&byte| byte == 7)));
    }
}

/// For a file in memory the disk caches the end of the last hole or data range. Its answers must
/// equal those of a new handle, whatever was written before through any handle.
#[test]
fn a_cached_hole_is_dropped_by_a_write() {
    let (scratch, on) = (Scratch::new(on_tmpfs()), executor(Engine::Auto));
    let (path, pool) = (scratch.path("disk"), Pool::new(0));
    let disks = {
        let first = new_disk(&path, Direct::Auto, &on);
        let second = FileDisk::of(first.share(), &on.spawner());
        [first, second]
    };
    let extents = |disk: &FileDisk, offset: u64, len: u64| {
        let done = submit(&on, disk, Op::new(offset, Work::Extents { len, found: Vec::new() }));
        done.result.unwrap();
        let Work::Extents { found, .. } = done.work else { panic!("unexpected kind of work") };
        found
    };
    let mut state = 7_u64;
    let mut roll = |sides: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % sides
    };
    for step in 0..2000 {
        let block = 4096;
        let (at, disk) = (roll(mib(4) / block) * block, &disks[roll(2) as usize]);
        let len = ((1 + roll(40)) * block).min(mib(4) - at);
        match roll(6) {
            0 => {
                let buf = pool.copy_of(&vec![5; len as usize]).freeze();
                submit(&on, disk, Op::write(at, buf)).result.unwrap();
            }
            1 => {
                let work = Work::Zero { len, unmap: true, fast: false };
                submit(&on, disk, Op::new(at, work)).result.unwrap();
            }
            _ => {
                let fresh =
                    open(&path, Options { lock: false, ..Options::default() }, &on).unwrap();
                assert_eq!(extents(disk, at, len), extents(&fresh, at, len), "step {step}");
            }
        }
    }
}
