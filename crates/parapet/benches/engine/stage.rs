//! The arrays under test: created, assembled, running, and idle before the first request.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use array::{Array, Host};
use io::Disk;
use layout::{Layout, Level};
use metadata::assemble::{Candidate, Options, assemble};
use metadata::commit::Random;
use metadata::create::{NewArray, create};
use os::Executor;

use crate::medium::Folder;

/// The properties of an array under test.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) level: Level,
    pub(crate) members: usize,
    /// Number of data members.
    pub(crate) data: u64,
}

const fn shape(name: &'static str, level: Level, members: usize, data: u64) -> Shape {
    Shape { name, level, members, data }
}

pub(crate) const RAID0: Shape = shape("RAID 0 ×4", Level::Raid0, 4, 4);
pub(crate) const RAID1: Shape = shape("RAID 1 ×2", Level::Raid1, 2, 1);
pub(crate) const RAID5: Shape = shape("RAID 5 4+1", Level::Raid5, 5, 4);
pub(crate) const RAID6: Shape = shape("RAID 6 4+2", Level::Raid6, 6, 4);
pub(crate) const RAID10: Shape = shape("RAID 10 ×4", Level::Raid10, 4, 2);
pub(crate) const RAID35: Shape = shape("RAID 3.5 4+1", Level::Raid35, 5, 4);
pub(crate) const RAID5_WIDE: Shape = shape("RAID 5 5+1", Level::Raid5, 6, 5);

/// Space on each member for superblock, bitmap, logs and checksums.
const OVERHEAD_BYTES: u64 = 16 << 20;

impl Shape {
    fn new_array(&self) -> NewArray {
        let layout = Layout::default_for(self.level, self.members);
        let chunk_bytes = match self.level {
            Level::Raid1 => 0,
            // A fragment: blocks of 4 KiB.
            Level::Raid35 => 1 << 10,
            _ => 64 << 10,
        };
        let new = NewArray::new("bench", layout, chunk_bytes);
        NewArray { zeroed: true, overwrite: true, ..new }
    }

    /// Bytes of a member of an array that holds `data_bytes`.
    pub(crate) fn member_bytes(&self, data_bytes: u64) -> u64 {
        data_bytes / self.data + OVERHEAD_BYTES
    }

    /// New members.
    pub(crate) async fn members(
        &self,
        data_bytes: u64,
        folder: &Folder,
        on: &Executor,
    ) -> Vec<Rc<dyn Disk>> {
        let mut members = Vec::new();
        for _ in 0..self.members {
            members.push(folder.disk(self.member_bytes(data_bytes), on).await);
        }
        members
    }

    /// Starts an array of zeros on these members, running and idle.
    pub(crate) async fn start(&self, members: &[Rc<dyn Disk>], on: &Executor) -> Array {
        self.start_as(members, on, |new| new).await
    }

    /// Like [`Shape::start`], with default options modified by `change`.
    pub(crate) async fn start_as(
        &self,
        members: &[Rc<dyn Disk>],
        on: &Executor,
        change: impl FnOnce(NewArray) -> NewArray,
    ) -> Array {
        let candidates = || {
            let numbered = members.iter().enumerate();
            let name = |index| format!("m{index}");
            numbered.map(|(index, disk)| Candidate::new(Rc::clone(disk), name(index))).collect()
        };
        let new = change(self.new_array());
        let random: Random = Rc::new(random);
        create(&new, candidates(), &(on.clock() as _), &*random)
            .await
            .expect("the members are large enough");
        let options = Options::default();
        let assembly = assemble(candidates(), &options, on.clock(), random).await;
        let assembly = assembly.expect("the members form an array");
        let array = Array::start(assembly, &Host::new(on.clock()));
        on.spawn_local(array.run());
        let status = array.status();
        assert!(status.unsynced_bytes == 0 && status.job.is_none(), "known zeros need no sync");
        array
    }
}

/// Returns unique identities.
fn random(bytes: &mut [u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    for bytes in bytes.chunks_mut(8) {
        let count = COUNT.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        bytes.copy_from_slice(&count.to_le_bytes()[..bytes.len()]);
    }
}
