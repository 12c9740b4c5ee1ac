//! Copies of blocks, made before a command overwrites them.
//!
//! ```text
//!    STATE/undo/1763760000-tank/            one folder per operation
//!        undo.json                          what, when, which disks, which bytes
//!        0-0x0                              the bytes of disk 0 from offset 0 on
//! ```
//!
//! Copies all ranges to be overwritten, the head and tail of a disk, the places of signatures and
//! superblocks, and all content found elsewhere. It records only the position of long runs of
//! zeros, and skips holes of sparse files. `parapet undestroy` restores the blocks that `destroy`
//! erased, if the disks were not used since. For other verbs, `undo.json` lists `dd` commands.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use io::{Buf, ExtentKind, Op, Pool, Work};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::SignatureView;
use crate::disks::Opened;
use crate::failure::{Failure, Id, Result, of_path};
use crate::modelled::file_of;
use crate::places;
use crate::remote::RemoteAddress;

pub(crate) mod evidence;

use evidence::Evidence;

/// Range at either end that a superblock or a partition table may occupy.
const HEAD_BYTES: u64 = 1 << 20;
const TAIL_BYTES: u64 = 128 << 10;
/// Range copied around a signature elsewhere.
const AROUND_BYTES: u64 = 64 << 10;
/// Maximum size of a read, and of a file with copies.
const PIECE_BYTES: u64 = 8 << 20;
/// Minimum run of zeros that is recorded instead of copied.
const RUN_BYTES: usize = 64 << 10;
/// Maximum size of a request that zeros a disk.
const ZERO_BYTES: u64 = 64 << 20;

/// Maximum number of operations whose copies are kept.
const MOST_KEPT: usize = 64;
/// Maximum size of all copies; those of the latest operation stay, whatever their size.
const MOST_KEPT_BYTES: u64 = 8 << 30;

const SCHEMA: &str = "parapet/undo/1";
/// The verb whose copies `undestroy` can restore.
pub(crate) const DESTROY: &str = "destroy";

/// The contents of a folder of copies.
#[derive(Serialize, Deserialize)]
pub(crate) struct Manifest {
    schema: String,
    /// Time of the copies.
    pub(crate) made: Timestamp,
    /// The verb that overwrote the blocks.
    pub(crate) verb: String,
    /// The array that was created or destroyed.
    pub(crate) array: String,
    pub(crate) pieces: Vec<Piece>,
    /// Identifies the disks; empty in copies that `undestroy` does not restore.
    #[serde(default)]
    pub(crate) disks: Vec<Evidence>,
}

/// Bytes of a disk.
#[derive(Serialize, Deserialize)]
pub(crate) struct Piece {
    /// Its path.
    pub(crate) disk: String,
    /// Their position.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// The copy, in the folder; none for zeros.
    pub(crate) file: Option<String>,
    /// A command that restores them.
    restore: String,
}

impl Piece {
    /// Returns the bytes; none for zeros.
    ///
    /// # Errors
    /// If the copy cannot be read, or its length has changed.
    pub(crate) fn kept(&self, folder: &Path) -> Result<Option<Vec<u8>>> {
        let Some(file) = &self.file else { return Ok(None) };
        let copy = folder.join(file);
        let kept = fs::read(&copy).map_err(|error| of_path(&copy, &error))?;
        if kept.len() as u64 != self.bytes {
            let message = format!("{}: {} bytes, not {}", copy.display(), kept.len(), self.bytes);
            return Err(Failure::new(Id::Input, message, "find another copy of that folder"));
        }
        Ok(Some(kept))
    }
}

impl Manifest {
    /// Returns the size of the copies.
    pub(crate) fn bytes(&self) -> u64 {
        let copied = self.pieces.iter().filter(|piece| piece.file.is_some());
        copied.fold(0, |sum, piece| sum.saturating_add(piece.bytes))
    }

    /// Reads the manifest in this folder.
    ///
    /// # Errors
    /// If the folder has no valid manifest.
    pub(crate) fn read(folder: &Path) -> Result<Manifest> {
        let path = folder.join("undo.json");
        let text = fs::read(&path).map_err(|error| of_path(&path, &error))?;
        let read = serde_json::from_slice(&text).ok();
        read.filter(|manifest: &Manifest| manifest.schema == SCHEMA).ok_or_else(|| {
            let message = format!("{}: not one that Parapet has written", path.display());
            Failure::new(Id::Input, message, "name the folder that `parapet destroy` has told")
        })
    }
}

/// Returns all copies, the oldest first.
pub(crate) fn all() -> Vec<(PathBuf, Manifest)> {
    let entries = fs::read_dir(places::state().join("undo")).into_iter().flatten();
    let folders = entries.flatten().map(|entry| entry.path());
    let read = folders.filter_map(|folder| {
        let manifest = Manifest::read(&folder).ok()?;
        Some((folder, manifest))
    });
    let mut all: Vec<_> = read.collect();
    all.sort_by(|(a, old), (b, new)| (old.made, a).cmp(&(new.made, b)));
    all
}

/// Returns the latest copies made before the array of this name was destroyed.
pub(crate) fn latest(array: &str) -> Option<(PathBuf, Manifest)> {
    let mut own = all().into_iter();
    own.rfind(|(_, kept)| kept.verb == DESTROY && kept.array == array)
}

/// A disk to be overwritten.
pub(crate) struct OverwriteTarget<'a> {
    /// The disk.
    pub(crate) opened: &'a Opened,
    /// The signatures found on it.
    pub(crate) signatures: &'a [SignatureView],
    /// The ranges to be written.
    pub(crate) written: Vec<Range<u64>>,
    /// The most distinctive places of its content, sampled to identify the disk later.
    pub(crate) landmarks: Vec<u64>,
}

impl<'a> OverwriteTarget<'a> {
    /// Describes a disk whose two ends and signatures are copied.
    pub(crate) fn new(opened: &'a Opened, signatures: &'a [SignatureView]) -> OverwriteTarget<'a> {
        OverwriteTarget { opened, signatures, written: Vec::new(), landmarks: Vec::new() }
    }

    /// Returns a name of the disk that is independent of the current folder.
    fn name(&self) -> String {
        name(self.opened)
    }
}

fn name(opened: &Opened) -> String {
    match opened.file {
        Some(_) => places::absolute(file_of(&opened.path)).display().to_string(),
        None => opened.path.display().to_string(),
    }
}

/// The result of copying.
pub(crate) struct Kept {
    /// The folder; none if there was nothing but zeros.
    pub(crate) folder: Option<PathBuf>,
    pieces: Vec<Piece>,
}

/// Copies the blocks.
///
/// # Errors
/// If the copies cannot be made. Then nothing may be overwritten, and no partial copies remain.
pub(crate) async fn keep(verb: &str, array: &str, disks: &[OverwriteTarget<'_>]) -> Result<Kept> {
    let mut copies = Copies {
        now: Timestamp::now(),
        array,
        folder: None,
        pieces: Vec::new(),
        pool: Pool::new(PIECE_BYTES as usize),
    };
    match copies.make(verb, disks).await {
        Ok(()) => {
            copies.folder.iter().for_each(|newest| prune(newest));
            Ok(Kept { folder: copies.folder, pieces: copies.pieces })
        }
        Err(failure) => {
            if let Some(folder) = copies.folder {
                // This process has just created the folder.
                let _ = fs::remove_dir_all(folder);
            }
            Err(failure)
        }
    }
}

/// Deletes the oldest copies beyond the limits. Those just made stay.
fn prune(newest: &Path) {
    let all = all();
    let (mut count, mut bytes) = (all.len(), all.iter().map(|(_, kept)| kept.bytes()).sum::<u64>());
    for (folder, kept) in all.iter().filter(|(folder, _)| folder != newest) {
        if count <= MOST_KEPT && bytes <= MOST_KEPT_BYTES {
            return;
        }
        let at = folder.display();
        match fs::remove_dir_all(folder) {
            Ok(()) => {
                (count, bytes) = (count - 1, bytes.saturating_sub(kept.bytes()));
                tracing::info!("{at}: oldest copies of overwritten blocks deleted (limit reached)");
            }
            Err(error) => tracing::warn!("{at}: old copies cannot be deleted: {error}"),
        }
    }
}

/// Copies in progress.
struct Copies<'a> {
    now: Timestamp,
    array: &'a str,
    folder: Option<PathBuf>,
    pieces: Vec<Piece>,
    /// Reuses the buffer for all reads.
    pool: Pool,
}

impl Copies<'_> {
    async fn make(&mut self, verb: &str, disks: &[OverwriteTarget<'_>]) -> Result<()> {
        for (index, target) in disks.iter().enumerate() {
            for (offset, len) in ranges(target) {
                let mut at = offset;
                while at < offset + len {
                    let run = next_run(target.opened, at, offset + len - at).await;
                    match run {
                        Run::Zeros(bytes) => self.add_zeros(target, at, at + bytes),
                        Run::Data(bytes) => {
                            let buf = self.pool.take(bytes as usize);
                            let bytes = read(target.opened, at, buf).await?;
                            self.add(index, target, at, &bytes)?;
                        }
                    }
                    at += run.bytes();
                }
            }
        }
        let Some(folder) = self.folder.clone() else { return Ok(()) };
        let mut evidence = Vec::new();
        for target in disks.iter().filter(|_| verb == DESTROY) {
            evidence.push(Evidence::gather(target).await?);
        }
        let manifest = Manifest {
            schema: SCHEMA.into(),
            made: self.now,
            verb: verb.into(),
            array: self.array.into(),
            pieces: std::mem::take(&mut self.pieces),
            disks: evidence,
        };
        let text = serde_json::to_vec_pretty(&manifest).expect("made of strings and numbers");
        self.pieces = manifest.pieces;
        write(&folder.join("undo.json"), &text)?;
        // The next step may erase the blocks permanently: the names of the copies must be durable
        // too.
        let named = [Some(folder.as_path()), folder.parent()];
        let mut named = named.into_iter().flatten();
        named.try_for_each(|at| sync_folder(at).map_err(|e| of_path(at, &e)))
    }

    /// Copies these bytes of a disk, and records the runs of zeros.
    fn add(
        &mut self,
        index: usize,
        target: &OverwriteTarget<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let mut start = 0;
        let runs = bytes.chunks(RUN_BYTES).map(|run| (is_zero(run), run.len()));
        for same in runs.collect::<Vec<_>>().chunk_by(|a, b| a.0 == b.0) {
            let len = same.iter().map(|(_, len)| len).sum::<usize>();
            let (from, at) = (&bytes[start..start + len], offset + start as u64);
            start += len;
            let end = at + len as u64;
            if same[0].0 {
                self.add_zeros(target, at, end);
            } else {
                let piece = self.copy(index, target, at, from)?;
                self.pieces.push(piece);
            }
        }
        Ok(())
    }

    /// Records a run of zeros. A run that nobody overwrites stays zero and needs no record.
    fn add_zeros(&mut self, target: &OverwriteTarget<'_>, at: u64, end: u64) {
        if target.written.iter().any(|w| at < w.end && w.start < end) {
            let piece = self.zeros(target, at, end);
            self.pieces.push(piece);
        }
    }

    fn copy(
        &mut self,
        index: usize,
        target: &OverwriteTarget<'_>,
        at: u64,
        from: &[u8],
    ) -> Result<Piece> {
        let folder = match &self.folder {
            Some(folder) => folder,
            None => self.folder.insert(folder(&self.now, self.array)?),
        };
        let (disk, file) = (target.name(), format!("{index}-{at:#x}"));
        let path = folder.join(&file);
        write(&path, from)?;
        let restore = restore(&places::absolute(&path), &disk, at, from.len() as u64);
        Ok(Piece { disk, offset: at, bytes: from.len() as u64, file: Some(file), restore })
    }

    /// Records a run of zeros, merged with a run that ends where it begins.
    fn zeros(&mut self, target: &OverwriteTarget<'_>, at: u64, end: u64) -> Piece {
        let disk = target.name();
        let joins = |last: &mut Piece| last.disk == disk && last.file.is_none() && last.end() == at;
        let offset = self.pieces.pop_if(joins).map_or(at, |before| before.offset);
        let bytes = end - offset;
        let restore = restore(Path::new("/dev/zero"), &disk, offset, bytes);
        Piece { disk, offset, bytes, file: None, restore }
    }
}

impl Piece {
    const fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

/// The command that restores bytes, with the tools of any Linux machine.
fn restore(from: &Path, disk: &str, offset: u64, bytes: u64) -> String {
    let from = places::quoted(&from.display().to_string());
    let disk = match RemoteAddress::parse(disk) {
        Ok(RemoteAddress::Nbd(_)) => {
            let write = format!("write -s {from} {offset} {bytes}");
            let (write, disk) = (places::quoted(&write), places::quoted(disk));
            return format!("qemu-io -f raw -c {write} {disk}");
        }
        Ok(RemoteAddress::Aoe(address)) => format!("/dev/etherd/e{}", address.target),
        Err(_) => disk.to_owned(),
    };
    format!(
        "dd if={from} of={} bs=4096 iflag=count_bytes count={bytes} oflag=seek_bytes \
         seek={offset} conv=notrunc,fsync",
        places::quoted(&disk)
    )
}

impl Kept {
    /// Restores the copied blocks of a disk, durably.
    ///
    /// # Errors
    /// If the disk fails, or a copy cannot be read.
    pub(crate) async fn put_back(&self, opened: &Opened) -> Result<()> {
        let disk = name(opened);
        let folder = self.folder.as_deref().unwrap_or(Path::new(""));
        for piece in self.pieces.iter().filter(|piece| piece.disk == disk) {
            match piece.kept(folder)? {
                Some(bytes) => put(opened, piece.offset, &bytes).await?,
                None => {
                    let mut at = piece.offset;
                    while at < piece.end() {
                        let len = ZERO_BYTES.min(piece.end() - at);
                        let zero = Work::Zero { len, unmap: true, fast: false };
                        answer(opened, Op::new(at, zero)).await?;
                        at += len;
                    }
                }
            }
        }
        answer(opened, Op::flush()).await
    }
}

/// Writes these bytes, durably.
///
/// # Errors
/// If the disk fails.
pub(crate) async fn put(opened: &Opened, offset: u64, bytes: &[u8]) -> Result<()> {
    let mut buf = Pool::new(0).take(bytes.len());
    buf.copy_from_slice(bytes);
    answer(opened, Op::write(offset, buf.freeze()).with_fua()).await
}

async fn answer(opened: &Opened, op: Op) -> Result<()> {
    opened.ask(op).await.map(drop).map_err(|error| {
        let message = format!("{}: {error}", opened.path.display());
        Failure::new(Id::Input, message, "run it again; the kept copies remain")
    })
}

fn sync_folder(at: &Path) -> std::io::Result<()> {
    File::open(at)?.sync_all()
}

/// A run of bytes that is copied in one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Run {
    /// The disk reports zeros: no read is needed.
    Zeros(u64),
    /// At most [`PIECE_BYTES`] to be read.
    Data(u64),
}

impl Run {
    const fn bytes(self) -> u64 {
        match self {
            Run::Zeros(bytes) | Run::Data(bytes) => bytes,
        }
    }
}

/// Returns the first run within `len` bytes from `offset` on. It does not read holes of a sparse
/// file: the checksum table of a large member has GiBs of them. Short holes count as data, which
/// keeps the number of copies low.
async fn next_run(opened: &Opened, offset: u64, len: u64) -> Run {
    let all = Run::Data(len.min(PIECE_BYTES));
    let Ok(done) = opened.ask(Op::new(offset, Work::Extents { len, found: Vec::new() })).await
    else {
        return all;
    };
    let Work::Extents { found, .. } = done.work else { return all };
    let (mut data, mut zeros) = (0, 0);
    for extent in found {
        match extent.kind {
            ExtentKind::Hole | ExtentKind::Zero => zeros += extent.len,
            ExtentKind::Data if zeros >= RUN_BYTES as u64 => break,
            ExtentKind::Data => data += std::mem::take(&mut zeros) + extent.len,
        }
    }
    match (data, zeros.min(len)) {
        (0, zeros) if zeros >= RUN_BYTES as u64 || zeros == len => Run::Zeros(zeros),
        (0, _) => all,
        (data, _) => Run::Data(data.min(len).min(PIECE_BYTES)),
    }
}

async fn read(opened: &Opened, offset: u64, buf: Buf) -> Result<Buf> {
    let done = opened.ask(Op::read(offset, buf)).await.map_err(|error| {
        let message = format!("{}: it cannot be read: {error}", opened.path.display());
        Failure::new(Id::Input, message, "see the system's log for the disk's errors")
    })?;
    Ok(done.into_buf())
}

fn is_zero(bytes: &[u8]) -> bool {
    // Without an early end, the compiler vectorizes the loop.
    bytes.iter().fold(0, |all, byte| all | byte) == 0
}

/// Creates a folder that only this user can read.
fn folder(now: &Timestamp, array: &str) -> Result<PathBuf> {
    let parent = places::state().join("undo");
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(&parent).map_err(|error| of_path(&parent, &error))?;
    let name = folder_name(now, array);
    // After two operations in one second with one name, try another number.
    for number in 0..100 {
        let suffix = if number == 0 { String::new() } else { format!("-{number}") };
        let folder = parent.join(format!("{name}{suffix}"));
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| folder.clone()).map_err(|error| of_path(&folder, &error)),
        }
    }
    Err(of_path(&parent, &std::io::ErrorKind::AlreadyExists.into()))
}

/// The superblock of another host may contain an array name that is no valid folder name.
fn folder_name(now: &Timestamp, array: &str) -> String {
    format!("{}-{}", now.as_second(), array.replace(['/', '\0'], "_"))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    written.map_err(|error| of_path(path, &error))
}

/// Returns the ranges to copy as offset and length, sorted and without overlaps.
fn ranges(target: &OverwriteTarget<'_>) -> Vec<(u64, u64)> {
    joined(target.opened.bytes(), target.signatures, &target.written)
}

fn joined(
    disk_bytes: u64,
    signatures: &[SignatureView],
    written: &[Range<u64>],
) -> Vec<(u64, u64)> {
    let page = |offset: u64| offset & !4095;
    let mut wanted =
        vec![(0, HEAD_BYTES), (page(disk_bytes.saturating_sub(TAIL_BYTES)), disk_bytes)];
    wanted.extend(signatures.iter().map(|signature| {
        let start = page(signature.offset.saturating_sub(AROUND_BYTES));
        (start, signature.offset.saturating_add(AROUND_BYTES))
    }));
    wanted.extend(written.iter().map(|range| (page(range.start), range.end)));
    wanted.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (start, end) in wanted {
        let end = end.min(disk_bytes);
        match ranges.last_mut() {
            Some((from, length)) if start <= *from + *length => {
                *length = (*length).max(end.saturating_sub(*from));
            }
            _ if start < end => ranges.push((start, end - start)),
            _ => {}
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::{Completion, Disk, Done, Extent, Limits};
    use std::rc::Rc;

    /// A disk of 16 TiB: one block of data, a hole for the rest. Fails a test that reads the hole.
    struct Sparse {
        data: Range<u64>,
    }

    impl Disk for Sparse {
        fn submit(&self, op: Op) -> Completion<Done> {
            let Op { offset, mut work, .. } = op;
            match &mut work {
                Work::Read(bufs) => {
                    let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
                    let end = offset + len;
                    assert!(self.data.start <= offset && end <= self.data.end, "{offset}, {len}");
                    bufs.iter_mut().for_each(|buf| buf.fill(7));
                }
                Work::Extents { len, found } => {
                    let end = offset + *len;
                    let within = |at: u64| at.clamp(offset, end);
                    let (start, stop) = (within(self.data.start), within(self.data.end));
                    let runs = [
                        (start - offset, ExtentKind::Hole),
                        (stop - start, ExtentKind::Data),
                        (end - stop, ExtentKind::Hole),
                    ];
                    let runs = runs.into_iter().filter(|&(len, _)| len > 0);
                    found.extend(runs.map(|(len, kind)| Extent { len, kind }));
                }
                other => panic!("{other:?}"),
            }
            Completion::ready(Done { work, result: Ok(()) })
        }

        fn limits(&self) -> Limits {
            Limits::plain(16 << 40)
        }
    }

    #[test]
    fn holes_are_recorded_as_zeros_without_a_read_however_large_they_are() {
        let executor = os::Executor::new(os::Config::default()).unwrap();
        let on = executor.spawner();
        let data = 8 << 30..(8 << 30) + 4096;
        let opened = Opened {
            path: "/nowhere/disk".into(),
            disk: Rc::new(Sparse { data: data.clone() }),
            file: None,
            remote: None,
            serial: None,
            clock: on.clock(),
        };
        let table = 1 << 20..33 << 30;
        let mut target = OverwriteTarget::new(&opened, &[]);
        target.written.push(table.clone());
        let array = format!("holes-{}", std::process::id());
        let kept = executor.block_on(keep("create", &array, &[target])).unwrap();
        let folder = kept.folder.clone().expect("a single block is copied");
        let copied: Vec<_> =
            kept.pieces.iter().map(|p| (p.offset..p.end(), p.file.is_some())).collect();
        fs::remove_dir_all(folder).unwrap();
        // The first MiB is merged with the next range.
        let expected = [(0..data.start, false), (data.clone(), true), (data.end..table.end, false)];
        assert_eq!(copied, expected);
    }

    #[test]
    fn an_array_of_any_name_has_one_folder() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(folder_name(&now, "nas:tank"), "0-nas:tank");
        assert_eq!(folder_name(&now, "a/../../b\0"), "0-a_.._.._b_");
    }

    #[test]
    fn ranges_cover_both_ends_and_what_was_found_and_do_not_overlap() {
        let of = |bytes, offsets: &[u64]| {
            let signature = |&offset: &u64| SignatureView { name: "x".into(), offset };
            let signatures: Vec<SignatureView> = offsets.iter().map(signature).collect();
            joined(bytes, &signatures, &[])
        };
        assert_eq!(of(0, &[]), []);
        assert_eq!(of(5120, &[]), [(0, 5120)]);
        assert_eq!(of(1 << 30, &[]), [(0, 1 << 20), ((1 << 30) - (128 << 10), 128 << 10)]);
        let middle = 64 << 20;
        let found = of(1 << 30, &[0x438, middle + 0x40]);
        assert_eq!(found[1], (middle - (64 << 10), (128 << 10) + 0x40));
        assert_eq!(found.len(), 3);
        let head = joined(1 << 30, &[], &[4096..8192, 8192..3 << 20]);
        assert_eq!(head[0], (0, 3 << 20), "all written data");
    }
}
