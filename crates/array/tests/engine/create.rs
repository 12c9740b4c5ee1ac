//! Creating arrays: plans, written bytes, refusals; mdadm reads the result.

use std::cell::{Cell, RefCell};
use std::fs;
use std::ops::Range;
use std::process::Command;
use std::rc::Rc;

use io::tasks::complete;
use io::{Clock, Completion, Cost, Disk, Done, ErrorKind, Limits, MemDisk, Op, Time};
use layout::md::superblock::CLEAN;
use layout::md::{Role, Version};
use layout::{Layout, Level};
use metadata::assemble::Candidate;
use metadata::commit::{Facts, Format};
use metadata::create::{BitmapChunk, NewArray, create, plan};
use metadata::examine::examine;

const MIB: u64 = 1 << 20;

/// A disk in memory that records its writes and can fail.
struct Watched {
    mem: MemDisk,
    written: RefCell<Vec<Range<u64>>>,
    /// The number of writes and flushes that still succeed.
    patience: Cell<usize>,
}

impl Watched {
    fn new(limits: Limits) -> Rc<Watched> {
        let mem = MemDisk::with_limits(limits);
        Rc::new(Watched { mem, written: RefCell::default(), patience: Cell::new(usize::MAX) })
    }
}

impl Disk for Watched {
    fn submit(&self, op: Op) -> Completion<Done> {
        if op.work.is_write() || matches!(op.work, io::Work::Flush) {
            self.written.borrow_mut().push(op.offset..op.offset + op.work.len());
            let patience = self.patience.get();
            self.patience.set(patience.saturating_sub(1));
            if patience == 0 {
                let error = io::Error::new(ErrorKind::Gone, "tired disk");
                return Completion::ready(Done::failed(op.work, error));
            }
        }
        self.mem.submit(op)
    }

    fn limits(&self) -> Limits {
        self.mem.limits()
    }
}

struct Still;

fn clock() -> Rc<dyn Clock> {
    Rc::new(Still)
}

impl Clock for Still {
    fn now(&self) -> Time {
        Time(0)
    }

    fn sleep_until(&self, _: Time) -> Completion<()> {
        Completion::never()
    }

    fn unix_micros(&self) -> u64 {
        1_700_000_000_000_123
    }

    fn charge(&self, _: Cost, _: u64) {}
}

fn disks(sizes: &[u64]) -> Vec<Rc<Watched>> {
    sizes.iter().map(|&bytes| Watched::new(Limits::plain(bytes))).collect()
}

fn make(new: &NewArray, disks: &[Rc<Watched>]) -> metadata::Result<Facts> {
    let candidate = |(index, disk): (usize, &Rc<Watched>)| {
        Candidate::new(Rc::clone(disk) as Rc<dyn Disk>, format!("disk{index}"))
    };
    let members = disks.iter().enumerate().map(candidate).collect();
    let seed = Cell::new(0_u8);
    let random = |bytes: &mut [u8]| {
        bytes.iter_mut().for_each(|byte| *byte = seed.replace(seed.get().wrapping_add(37)));
    };
    complete(create(new, members, &clock(), &random)).expect("the future completes")
}

fn refusal(new: &NewArray, disks: &[Rc<Watched>]) -> String {
    make(new, disks).expect_err("must be refused").to_string()
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

fn chunk(level: Level) -> u64 {
    match level {
        Level::Raid1 => 0,
        Level::Raid35 => 2048,
        _ => 64 << 10,
    }
}

#[test]
fn every_layout_is_written_within_its_byte_map_and_examined() {
    for level in Level::ALL {
        for (members, version) in [(3, Version::V1_0), (4, Version::V1_1), (5, Version::V1_2)] {
            for layout in Layout::all(level, members) {
                let disks = disks(&vec![6 * MIB; members]);
                let mut new = NewArray::new("data", layout, chunk(level));
                new.version = version;
                let facts =
                    make(&new, &disks).unwrap_or_else(|error| panic!("{layout:?}: {error}"));
                for (index, disk) in disks.iter().enumerate() {
                    let found = complete(examine(&**disk, &clock())).unwrap().unwrap();
                    let [superblock] = &found.superblocks[..] else { panic!("one superblock") };
                    assert_eq!(superblock.layout, Ok(layout));
                    let map = superblock.map.clone().unwrap().unwrap();
                    let own = [&map.bitmap, &map.bad_blocks, &map.private];
                    let own = own.into_iter().flatten().chain([&map.superblock]);
                    let own: Vec<_> = own.cloned().collect();
                    for written in disk.written.borrow().iter().filter(|w| !w.is_empty()) {
                        let inside = |room: &Range<u64>| {
                            room.start <= written.start && written.end <= room.end
                        };
                        assert!(own.iter().any(inside), "{written:?} is outside {own:?}");
                    }
                    let superblock = superblock.superblock.clone().unwrap();
                    assert_eq!(superblock.device.number as usize, index);
                    assert_eq!(superblock.own_role(), Role::Slot(index as u16));
                    assert_eq!(superblock.set_uuid, facts.uuid);
                }
            }
        }
    }
}

#[test]
fn a_new_superblock_says_what_every_kernel_accepts() {
    let disks = disks(&[8 * MIB; 4]);
    let mut new = NewArray::new("host:data", Layout::default_for(Level::Raid5, 3), 64 << 10);
    new.spares = 1;
    make(&new, &disks).unwrap();
    let mut bytes = [0; 512];
    disks[3].mem.peek(4096, &mut bytes);
    assert_eq!(bytes[200..208], [1, 0, 0, 0, 0, 0, 0, 0], "events are not 0");
    assert_eq!(bytes[224..256], [0; 32], "no block size");
    let found = complete(examine(&*disks[3], &clock())).unwrap().unwrap().superblocks.remove(0);
    assert_eq!(found.format, Format::Md(Version::V1_2));
    let superblock = found.superblock.unwrap();
    assert_eq!((superblock.own_role(), superblock.device.number), (Role::Spare, 3));
    assert_eq!(superblock.resync_offset, 0, "contents unknown: to be synced");
    let bitmap = found.bitmap.unwrap();
    assert_eq!((bitmap.dirty, bitmap.header.unwrap().events), (1, 1));
    assert_eq!(found.bad_blocks, None);

    let disks = self::disks(&[8 * MIB; 3]);
    new.spares = 0;
    new.zeroed = true;
    make(&new, &disks).unwrap();
    let found = complete(examine(&*disks[0], &clock())).unwrap().unwrap().superblocks.remove(0);
    assert_eq!(found.superblock.unwrap().resync_offset, CLEAN);
    assert_eq!(found.bitmap.unwrap().dirty, 0);
}

#[test]
fn an_error_at_any_write_leaves_nothing_that_looks_like_an_array() {
    let new = NewArray::new("data", Layout::default_for(Level::Raid5, 3), 64 << 10);
    let whole = disks(&[8 * MIB; 3]);
    make(&new, &whole).unwrap();
    let writes = whole[1].written.borrow().len();
    for patience in 0..writes {
        let disks = disks(&[8 * MIB; 3]);
        disks[1].patience.set(patience);
        assert_contains(
            &refusal(&new, &disks),
            &["disk1 could not be written", "no array", "tired disk"],
        );
        for disk in &disks {
            let found = complete(examine(&**disk, &clock())).unwrap().unwrap();
            assert!(found.superblocks.is_empty(), "after {patience} writes: {found:?}");
        }
    }
}

#[test]
fn old_contents_of_a_disk_are_overwritten_only_with_permission() {
    let disks = disks(&[8 * MIB; 2]);
    disks[1].mem.poke(0x438, &[0x53, 0xef]);
    disks[1].mem.poke(8 * MIB - 512, b"EFI PART");
    let mut new = NewArray::new("data", Layout::Raid1, 0);
    assert_contains(&refusal(&new, &disks), &["disk1 holds", "nothing was written"]);
    assert!(disks[0].written.borrow().is_empty());
    new.overwrite = true;
    make(&new, &disks).unwrap();
    let names = |disk: &Watched| {
        let found = complete(examine(disk, &clock())).unwrap().unwrap();
        found.signatures.iter().map(|signature| signature.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&disks[1]), ["linux_raid_member"], "the old ones are wiped");
    new.overwrite = false;
    assert_contains(&refusal(&new, &disks), &["disk0 holds linux_raid_member", "disk1 holds"]);
}

#[test]
fn contradictions_are_refused_with_both_numbers() {
    let raid5 = NewArray::new("data", Layout::default_for(Level::Raid5, 3), 64 << 10);
    let refused = |edit: &dyn Fn(&mut NewArray), limits: &[Limits]| {
        let mut new = raid5.clone();
        edit(&mut new);
        let named: Vec<_> =
            limits.iter().enumerate().map(|(index, l)| (format!("disk{index}"), *l)).collect();
        plan(&new, &named).expect_err("must be refused").to_string()
    };
    let plain = Limits::plain(8 * MIB);
    let small = Limits::plain(MIB);
    assert_contains(&refused(&|_| (), &[plain, small, plain]), &["disk1", "1 MiB", "too small"]);
    assert_contains(&refused(&|_| (), &[plain]), &["raid5", "2 or more", "not 1"]);
    assert_contains(&refused(&|new| new.spares = 3, &[plain; 3]), &["3 spares of 3 disks"]);
    assert_contains(&refused(&|new| new.chunk_bytes = 3000, &[plain; 3]), &["3000"]);
    assert_contains(
        &refused(&|new| new.size_bytes = Some(9 * MIB), &[plain; 3]),
        &["9437184", "the smallest"],
    );
    let chunk = |bytes| move |new: &mut NewArray| new.bitmap = Some(BitmapChunk::Bytes(bytes));
    assert_contains(&refused(&chunk(5000), &[plain; 3]), &["5000", "power of two"]);
    assert_contains(
        &refused(&chunk(4096), &[Limits::plain(1 << 30); 3]),
        &["4096", "too many for its 4096"],
    );
    let read_only = Limits { read_only: true, ..plain };
    assert_contains(&refused(&|_| (), &[plain, plain, read_only]), &["disk2", "read-only"]);
    let large = Limits { logical_block: 8192, ..plain };
    assert_contains(&refused(&|_| (), &[plain, large, plain]), &["disk1", "8192", "4096"]);
    let fragment = |new: &mut NewArray| {
        (new.layout, new.chunk_bytes) = (Layout::Raid35 { order: 1 }, 2048);
    };
    let blocks = Limits { logical_block: 4096, ..plain };
    assert_contains(&refused(&fragment, &[blocks; 3]), &["blocks of 4096", "2048", "larger block"]);
    let spare = |new: &mut NewArray| new.spares = 1;
    let disks = [plain, plain, plain, Limits::plain(6 * MIB)];
    assert_contains(&refused(&spare, &disks), &["disk3 cannot be a spare"]);
    let stripes = |new: &mut NewArray| {
        (new.layout, new.size_bytes) = (Layout::default_for(Level::Raid0, 2), Some(MIB));
    };
    assert_contains(&refused(&stripes, &[plain; 2]), &["raid0", "whole"]);
    let one = disks_of_one();
    assert_contains(
        &refusal(&NewArray::new("data", Layout::Raid1, 0), &one),
        &["disk0 and disk1 are one"],
    );
    let long = NewArray::new("x".repeat(33), Layout::Raid1, 0);
    assert_contains(&refusal(&long, &self::disks(&[8 * MIB; 2])), &["32 bytes"]);
}

fn disks_of_one() -> Vec<Rc<Watched>> {
    let disk = Watched::new(Limits::plain(8 * MIB));
    vec![Rc::clone(&disk), disk]
}

#[test]
fn a_plan_reports_unused_space_and_warns() {
    let sizes = [8 * MIB, 16 * MIB, 8 * MIB];
    let named: Vec<_> = sizes
        .iter()
        .enumerate()
        .map(|(index, &bytes)| (format!("disk{index}"), Limits::plain(bytes)))
        .collect();
    let new = NewArray::new("data", Layout::default_for(Level::Raid5, 3), 64 << 10);
    let plan = plan(&new, &named).unwrap();
    assert_eq!(plan.capacity, 2 * plan.used_bytes);
    assert_eq!((plan.redundancy, plan.unused_bytes[0]), (1, 0));
    assert_eq!(plan.unused_bytes[1], 8 * MIB);
    assert_eq!(plan.warnings.len(), 1);
    assert_contains(&plan.warnings[0], &["disk1", "8 MiB stay unused"]);
}

/// The judge is the real program (Debian package `mdadm`): if it is missing, the test fails and is
/// not skipped.
#[test]
fn mdadm_reads_what_is_created() {
    let levels = [
        (Level::Linear, "linear"),
        (Level::Raid0, "raid0"),
        (Level::Raid1, "raid1"),
        (Level::Raid4, "raid4"),
        (Level::Raid5, "raid5"),
        (Level::Raid6, "raid6"),
        (Level::Raid10, "raid10"),
    ];
    for (level, name) in levels {
        let disks = disks(&[8 * MIB; 5]);
        let mut new = NewArray::new("host:data", Layout::default_for(level, 4), chunk(level));
        new.spares = usize::from(level != Level::Raid0 && level != Level::Linear);
        let facts = make(&new, &disks).unwrap();
        let path = std::env::temp_dir().join(format!("parapet-{}-{name}", std::process::id()));
        let mut image = vec![0; 8 << 20];
        disks[1].mem.peek(0, &mut image);
        fs::write(&path, image).expect("the temporary directory is writable");
        let output = Command::new("mdadm")
            .args(["--examine".as_ref(), path.as_os_str()])
            .env("LC_ALL", "C")
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .output();
        fs::remove_file(&path).expect("it was written");
        let output = output.expect("mdadm is missing: install the package mdadm");
        let text = String::from_utf8_lossy(&output.stdout);
        let uuid = facts.uuid.to_string();
        let (active, spares) = (5 - new.spares, new.spares);
        assert_contains(&text, &[&uuid, name, "Name : host:data", "- correct", "Version : 1.2"]);
        assert_contains(
            &text,
            &[&format!("Raid Devices : {active}"), "Device Role : Active device 1"],
        );
        assert_contains(&text, &[&format!("Array State : {}", "A".repeat(active)), "Events : 1"]);
        assert!(spares <= 1 && output.status.success());
    }
}
