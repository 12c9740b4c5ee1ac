//! What members lie on while they are measured: memory, files in memory, files on a disk. Owns the
//! files; they go when the folder goes. Never measures anything.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use io::{Disk, MemDisk, Op, Pool};
use os::{Executor, FileDisk, Options};

/// Where members lie.
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

/// A folder for members; it and they are gone when it is dropped.
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

    /// A new disk of so many bytes, every block of it written: with zeros.
    pub(crate) async fn disk(&self, bytes: u64, on: &Executor) -> Rc<dyn Disk> {
        let disk: Rc<dyn Disk> = match self.medium {
            Medium::Memory => Rc::new(MemDisk::new(bytes)),
            _ => {
                open(&self.path.join(self.made.replace(self.made.get() + 1).to_string()), bytes, on)
            }
        };
        let (pool, step) = (Pool::new(1 << 20), 1 << 20);
        let zeros = pool.take_zeroed(step).freeze();
        let mut under_way = std::collections::VecDeque::new();
        for at in (0..bytes).step_by(step) {
            let len = (bytes - at).min(step as u64) as usize;
            under_way.push_back(disk.submit(Op::write(at, zeros.slice(0..len))));
            if under_way.len() == 8 {
                let oldest = under_way.pop_front().expect("there are eight");
                oldest.await.result.expect("room for the member");
            }
        }
        for write in under_way {
            write.await.result.expect("room for the member");
        }
        disk.submit(Op::flush()).await.result.expect("a disk that keeps what it was given");
        disk
    }
}

fn open(path: &Path, bytes: u64, on: &Executor) -> Rc<FileDisk> {
    let options = Options { create_bytes: Some(bytes), ..Options::default() };
    FileDisk::open(path, &options, &on.spawner()).expect("a new file in our own folder")
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("{} is left behind: {error}", self.path.display());
        }
    }
}
