//! The media of members: memory, files in memory, files on a disk. Owns the files and removes them
//! with their folder. Never measures anything.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use io::{Disk, MemDisk, Op, Pool};
use os::{Executor, FileDisk, Options};

/// The medium of members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Medium {
    /// `io::MemDisk`: no system call.
    Memory,
    /// Files in /dev/shm: `pread` and `pwrite` inline.
    Tmpfs,
    /// Files under cargo's target folder, O_DIRECT through io_uring.
    Disk,
}

impl Medium {
    pub(crate) const ALL: [Medium; 3] = [Medium::Memory, Medium::Tmpfs, Medium::Disk];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Medium::Memory => "memory",
            Medium::Tmpfs => "tmpfs",
            Medium::Disk => "disk",
        }
    }

    fn parent(self) -> PathBuf {
        match self {
            Medium::Disk => PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
            _ => PathBuf::from("/dev/shm"),
        }
    }
}

/// A folder of members, removed on drop.
pub(crate) struct Folder {
    path: PathBuf,
    made: Cell<usize>,
    medium: Medium,
}

impl Folder {
    pub(crate) fn new(medium: Medium) -> Folder {
        let path = medium.parent().join(format!("parapet-engine-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a writable folder");
        Folder { path, made: Cell::new(0), medium }
    }

    /// Creates a disk of `bytes`, with zeros written to every block.
    pub(crate) async fn disk(&self, bytes: u64, on: &Executor) -> Rc<dyn Disk> {
        let disk: Rc<dyn Disk> = match self.medium {
            Medium::Memory => Rc::new(MemDisk::new(bytes)),
            _ => {
                open(&self.path.join(self.made.replace(self.made.get() + 1).to_string()), bytes, on)
            }
        };
        let (pool, step) = (Pool::new(1 << 20), 1 << 20);
        let zeros = pool.take_zeroed(step).freeze();
        let mut in_flight = std::collections::VecDeque::new();
        for at in (0..bytes).step_by(step) {
            let len = (bytes - at).min(step as u64) as usize;
            in_flight.push_back(disk.submit(Op::write(at, zeros.slice(0..len))));
            if in_flight.len() == 8 {
                let oldest = in_flight.pop_front().expect("eight writes are in flight");
                oldest.await.result.expect("the medium has space for the member");
            }
        }
        for write in in_flight {
            write.await.result.expect("the medium has space for the member");
        }
        disk.submit(Op::flush()).await.result.expect("the flush succeeds");
        disk
    }
}

fn open(path: &Path, bytes: u64, on: &Executor) -> Rc<FileDisk> {
    let options = Options { create_bytes: Some(bytes), ..Options::default() };
    FileDisk::open(path, &options, &on.spawner()).expect("the folder is ours")
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("{} is left behind: {error}", self.path.display());
        }
    }
}
