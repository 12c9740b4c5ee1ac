//! Opens disks by their paths, detects duplicates, and finds their names.
//!
//! Never reads their content. Invariant: one operation never opens the same disk twice, even by
//! different paths.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use array::Array;
use io::{Clock, Disk, Done, Op, Part};
use layout::md::{Partition, SECTOR};
use metadata::Bounds;
use os::disk::{Holder, OpenErrorKind};
use os::{FileDisk, OpenError, Options, Spawner};

use crate::daemon::first;
use crate::failure::{Failure, Id, Result, of_path};
use crate::modelled::{self, file_of};
use crate::places;
use crate::remote::{self, Remote, is_remote};

/// How long a killed process may take to release a disk, and the interval of the checks.
const LETTING_GO: Duration = Duration::from_secs(2);
const BLINK: Duration = Duration::from_millis(20);

/// Prefix of an array's name in place of a path.
pub(crate) const ARRAY: &str = "array:";

/// An open disk.
pub(crate) struct Opened {
    /// The path that the user named.
    pub(crate) path: PathBuf,
    /// The disk.
    pub(crate) disk: Rc<dyn Disk>,
    /// The file or device behind it; none for a disk on another machine, an array that is a member
    /// of another, or a partition inside an image.
    pub(crate) file: Option<Rc<FileDisk>>,
    /// The connections to a disk on another machine.
    pub(crate) remote: Option<Remote>,
    /// The serial number of the device.
    pub(crate) serial: Option<String>,
    /// Clock for timeouts.
    pub(crate) clock: Rc<dyn Clock>,
}

impl Opened {
    /// Wraps an open file or device, with a model before it if the path names one.
    ///
    /// # Errors
    /// As [`modelled::check`].
    pub(crate) fn file(path: &Path, file: Rc<FileDisk>, on: &Spawner) -> Result<Opened> {
        if let Some(name) = file.can_freeze() {
            let path = path.display().to_string();
            let why = "without io_uring the whole server waits for it if it hangs";
            tracing::warn!(path, "lies on {name}: {why}");
        }
        let (path, serial) = (path.to_owned(), serial(path));
        let (disk, clock) = (modelled::in_front(&path, &file, on)?, on.clock());
        Ok(Opened { path, disk, file: Some(file), remote: None, serial, clock })
    }

    /// Returns a partition inside it as a disk, named as Linux names partitions.
    pub(crate) fn part(&self, partition: &Partition) -> Option<Opened> {
        let disk = Part::new(Rc::clone(&self.disk), partition.range.clone())?;
        let path = PathBuf::from(format!("{}:p{}", self.path.display(), partition.number));
        let (serial, clock) = (self.serial.clone(), Rc::clone(&self.clock));
        Some(Opened { path, disk: Rc::new(disk), file: None, remote: None, serial, clock })
    }

    /// Wraps an array that is to be a member of another.
    pub(crate) fn array(array: &Array, on: &Spawner) -> Opened {
        let path = PathBuf::from(format!("{ARRAY}{}", array.name()));
        let clock = on.clock();
        let disk = Rc::new(array.clone());
        Opened { path, disk, file: None, remote: None, serial: None, clock }
    }

    /// Runs an operation, with a timeout.
    ///
    /// # Errors
    /// The disk's error, or a timeout; after a timeout, the operation may still complete.
    pub(crate) async fn ask(&self, op: Op) -> io::Result<Done> {
        let deadline = Bounds::default().deadline;
        let alarm = self.clock.sleep_until(self.clock.now() + deadline);
        let answer = self.disk.submit(op);
        let Some(done) = first(answer, alarm).await else {
            let context = format!("{}, after {} s", self.path.display(), deadline.as_secs());
            return Err(io::Error::new(io::ErrorKind::Timeout, context));
        };
        done.result.clone().map(|()| done)
    }

    /// Returns its name as a member of an array; see [`member_path`].
    pub(crate) fn name(&self) -> String {
        member_path(&self.path).display().to_string()
    }

    /// Returns its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.disk.limits().bytes
    }
}

/// Returns the path by which an array names a member in reports and in the log: absolute, since
/// their readers work in other folders. `array:NAME` is no path and stays; so does the address of a
/// disk on another machine. Of a modelled disk it is the model with its file.
pub(crate) fn member_path(path: &Path) -> PathBuf {
    if let Some(whole) = modelled::whole(path) {
        return whole;
    }
    match array_name(path) {
        "" if !is_remote(path) => places::absolute(path),
        _ => path.to_owned(),
    }
}

/// Returns false if a disk is only a missing file. What is wrong with another text, its opening
/// reports.
pub(crate) fn is_there(path: &Path) -> bool {
    is_remote(path) || modelled::check(path).is_err() || file_of(path).symlink_metadata().is_ok()
}

/// Returns the array's name from `array:NAME` in place of a path.
pub(crate) fn array_name(path: &Path) -> &str {
    path.to_str().and_then(|path| path.strip_prefix(ARRAY)).unwrap_or_default()
}

/// Opens all of them, or none.
///
/// # Errors
/// If one cannot be opened, or two are the same.
pub(crate) async fn open(paths: &[PathBuf], read_only: bool, on: &Spawner) -> Result<Vec<Opened>> {
    refuse_same(paths)?;
    let options = Options { read_only, ..Options::default() };
    let mut opened = Vec::new();
    for path in paths {
        opened.push(open_retrying(path, &options, on).await?);
    }
    Ok(opened)
}

/// Why a disk could not be opened.
pub(crate) struct Obstacle {
    failure: Failure,
    /// A Parapet server uses the disk, or a process that this one may not inspect.
    pub(crate) is_served: bool,
}

impl From<Obstacle> for Failure {
    fn from(obstacle: Obstacle) -> Failure {
        obstacle.failure
    }
}

impl From<OpenError> for Obstacle {
    fn from(error: OpenError) -> Obstacle {
        let is_served = match error.kind() {
            OpenErrorKind::Busy(holders) => {
                holders.is_empty() || holders.iter().any(|holder| holder.who.contains("(parapet"))
            }
            _ => false,
        };
        Obstacle { failure: error.into(), is_served }
    }
}

/// Opens a disk, with retries: the kernel takes a moment to release the disk of a killed process.
///
/// # Errors
/// The obstacle.
pub(crate) async fn open_retrying(
    path: &Path,
    options: &Options,
    on: &Spawner,
) -> std::result::Result<Opened, Obstacle> {
    if is_remote(path) {
        let opened = remote::open(path, options.read_only, on).await;
        return opened.map_err(|failure| Obstacle { failure, is_served: false });
    }
    modelled::check(path).map_err(|failure| Obstacle { failure, is_served: false })?;
    let clock = on.clock();
    let deadline = clock.now() + LETTING_GO;
    loop {
        let error = match FileDisk::open(file_of(path), options, on) {
            Ok(file) => {
                let opened = Opened::file(path, file, on);
                return opened.map_err(|failure| Obstacle { failure, is_served: false });
            }
            Err(error) => error,
        };
        let OpenErrorKind::Busy(holders) = error.kind() else { return Err(error.into()) };
        let pid = |holder: &Holder| holder.who.split(' ').nth(1)?.parse::<u32>().ok();
        let is_left_over = |holder: &Holder| pid(holder).is_some_and(|pid| !places::is_alive(pid));
        if !holders.iter().all(is_left_over) || clock.now() >= deadline {
            return Err(error.into());
        }
        clock.sleep_until(clock.now() + BLINK).await;
    }
}

/// Opens one disk.
///
/// # Errors
/// The obstacle.
pub(crate) async fn open_one(path: &Path, options: &Options, on: &Spawner) -> Result<Opened> {
    if is_remote(path) {
        return remote::open(path, options.read_only, on).await;
    }
    modelled::check(path)?;
    let file = FileDisk::open(file_of(path), options, on)?;
    Opened::file(path, file, on)
}

/// Creates a file and reserves its space; that of a modelled disk stays sparse.
///
/// # Errors
/// If the file exists, or there is no room; then nothing is left behind.
pub(crate) async fn make_file(path: &Path, bytes: u64, on: &Spawner) -> Result<Opened> {
    if modelled::is_modelled(path) {
        return modelled::create(path, bytes, on).await;
    }
    let options = Options { create_bytes: Some(bytes), ..Options::default() };
    open_one(path, &options, on).await
}

/// Refuses two paths that lead to the same disk or the same bytes. Examples are a file and a loop
/// device on it, or a disk and a partition of it.
///
/// # Errors
/// Names both.
pub(crate) fn refuse_same(paths: &[PathBuf]) -> Result<()> {
    remote::refuse_same(paths)?;
    let mut known: Vec<(Place, &Path)> = Vec::new();
    let mut missing = Vec::new();
    for path in paths.iter().filter(|path| !is_remote(path)) {
        let Some(place) = Place::of(path, MOST_LOOPS) else {
            // A file to be created.
            let path = places::absolute(file_of(path));
            if missing.contains(&path) {
                let message = format!("{} is named twice", path.display());
                return Err(Failure::new(Id::Same, message, "name each disk once"));
            }
            missing.push(path);
            continue;
        };
        if let Some((before, other)) = known.iter().find(|(known, _)| known.overlaps(&place)) {
            let what = if *before == place { "the same disk" } else { "made of the same bytes" };
            let message = format!("{} and {} are {what}", other.display(), path.display());
            return Err(Failure::new(Id::Same, message, "name each disk once"));
        }
        known.push((place, path));
    }
    Ok(())
}

/// Returns the first of these disks that shares bytes with the one at `path`. For files it uses
/// only the recorded identity: their file systems may hang.
pub(crate) fn of_same_bytes(
    (path, identity): (&Path, (u64, u64)),
    held: &[(PathBuf, (u64, u64))],
) -> Option<PathBuf> {
    let place = |path: &Path, (device, inode): (u64, u64)| match inode {
        0 => Place::of(path, MOST_LOOPS),
        _ => Some(Place { base: format!("{device} {inode}"), range: 0..u64::MAX }),
    };
    let own = place(path, identity)?;
    let same = |(path, identity): &&(PathBuf, _)| {
        place(path, *identity).is_some_and(|place| place.overlaps(&own))
    };
    held.iter().find(same).map(|(path, _)| path.clone())
}

/// Maximum depth of loop devices on loop devices.
const MOST_LOOPS: u32 = 8;

/// The storage behind a disk.
#[derive(PartialEq, Eq, Debug)]
struct Place {
    /// A file, or a device that is neither a partition nor a loop device.
    base: String,
    range: Range<u64>,
}

impl Place {
    /// Returns none if there is no such file.
    fn of(path: &Path, loops: u32) -> Option<Place> {
        let (device_number, inode) = identity(path)?;
        let whole = || Place { base: format!("{device_number} {inode}"), range: 0..u64::MAX };
        let device = sys(path).and_then(|device| Place::of_device(&device, loops));
        Some(device.unwrap_or_else(whole))
    }

    /// Returns the place of the device that the kernel describes in this folder.
    fn of_device(device: &Path, loops: u32) -> Option<Place> {
        let text = |name: &str| fs::read_to_string(device.join(name)).ok();
        let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
        let bytes = number("size")?.saturating_mul(SECTOR).max(1);
        if device.join("partition").exists() {
            let start = number("start")?.saturating_mul(SECTOR);
            return Some(Place::of_device(device.parent()?, loops)?.part(start, bytes));
        }
        let backing = text("loop/backing_file");
        if let (Some(file), Some(loops)) = (backing, loops.checked_sub(1)) {
            // A file deleted since then has no identity under this name.
            if let Some(under) = Place::of(Path::new(file.trim_end_matches('\n')), loops) {
                return Some(under.part(number("loop/offset").unwrap_or(0), bytes));
            }
        }
        Some(Place { base: text("dev")?.trim().to_owned(), range: 0..bytes })
    }

    fn part(self, start: u64, bytes: u64) -> Place {
        let start = self.range.start.saturating_add(start);
        Place { base: self.base, range: start..start.saturating_add(bytes) }
    }

    fn overlaps(&self, other: &Place) -> bool {
        let (a, b) = (&self.range, &other.range);
        self.base == other.base && a.start < b.end && b.start < a.end
    }
}

/// Identifies a disk: by the device number, or by the file's inode. None if it does not exist.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    let stat = fs::metadata(file_of(path)).ok()?;
    // No file system has an inode 0.
    let device = stat.file_type().is_block_device();
    Some(if device { (stat.rdev(), 0) } else { (stat.dev(), stat.ino()) })
}

/// Returns the kernel's number of the disk behind this device node: each disk that is plugged in
/// gets another one (`diskseq`, Linux 5.15). None if the kernel has none.
pub(crate) fn sequence(path: &Path) -> Option<String> {
    let device = sys(path)?;
    let whole = if device.join("partition").exists() { device.parent()? } else { &device };
    first_text(whole, &["diskseq"])
}

/// Returns true if a server of this machine may be behind this device node, as `attach` makes them:
/// ublk and NBD devices, and loop devices on its files.
pub(crate) fn may_be_attached(path: &Path) -> bool {
    let Some(device) = sys(path) else { return false };
    let whole = if device.join("partition").exists() { device.parent() } else { Some(&*device) };
    let Some(whole) = whole else { return false };
    let name = whole.file_name().unwrap_or_default().to_string_lossy();
    let backing = || first_text(whole, &["loop/backing_file"]);
    name.starts_with("ublkb")
        || name.starts_with("nbd")
        || backing().is_some_and(|file| Path::new(&file).starts_with(places::runtime()))
}

/// Lists files and block devices in this folder, each once, by name; or the AoE targets that answer
/// on interfaces (`aoe:eth1,eth2`).
///
/// # Errors
/// If the folder cannot be read, or an interface cannot be used.
pub(crate) async fn scan(folder: &Path, on: &Spawner) -> Result<Vec<PathBuf>> {
    if is_remote(folder) {
        return remote::scan(folder, on).await;
    }
    scan_folder(folder)
}

/// As [`scan`], of a folder of this machine. Blocks while its file system does.
pub(crate) fn scan_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| of_path(folder, &error))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut known = Vec::new();
    paths.retain(|path| {
        let disk = fs::metadata(path)
            .is_ok_and(|stat| stat.is_file() || stat.file_type().is_block_device());
        let new = identity(path).filter(|identity| !known.contains(identity));
        known.extend(new);
        disk && new.is_some()
    });
    Ok(paths)
}

/// Returns the serial number of a block device, or of the disk that it is a part of; none for
/// files.
pub(crate) fn serial(path: &Path) -> Option<String> {
    let device = sys(path)?;
    let whole = if device.join("partition").exists() { device.parent()? } else { &device };
    first_text(whole, &["serial", "device/serial", "device/vpd_pg80"])
}

/// Returns the sysfs folder of a block device.
pub(crate) fn sys(path: &Path) -> Option<PathBuf> {
    let stat = fs::metadata(file_of(path)).ok()?;
    let stat = Some(stat).filter(|stat| stat.file_type().is_block_device())?;
    let (major, minor) = numbers(stat.rdev());
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

/// Splits a device number into major and minor.
const fn numbers(device: u64) -> (u64, u64) {
    (device >> 8 & 0xfff | device >> 32 & !0xfff, device & 0xff | device >> 12 & !0xff)
}

/// Returns the content of the first of these files that is not empty.
pub(crate) fn first_text(folder: &Path, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| {
        let bytes = fs::read(folder.join(name)).ok()?;
        // Page 0x80 begins with a header of four bytes.
        let text = if bytes.first() == Some(&0) { bytes.get(4..)? } else { &bytes };
        let text = String::from_utf8_lossy(text).trim().to_owned();
        (!text.is_empty()).then_some(text)
    })
}

/// Identifies a disk independently of its path and across restarts, as text. None if the kernel has
/// no name for it.
pub(crate) fn stable_identity(path: &Path) -> Option<String> {
    let stat = fs::metadata(file_of(path)).ok()?;
    if stat.is_file() {
        let (major, minor) = numbers(stat.dev());
        let made = stat.created().ok().and_then(|time| jiff::Timestamp::try_from(time).ok());
        let made = made.map_or_else(String::new, |time| format!(", made {time}"));
        return Some(format!("inode {} on {major}:{minor}{made}", stat.ino()));
    }
    let device = sys(path)?;
    let part = fs::read_to_string(device.join("partition")).ok();
    let whole = if part.is_some() { device.parent()? } else { &device };
    let ids = ["wwid", "device/wwid", "dm/uuid", "md/uuid", "serial", "device/serial"];
    let name = first_text(whole, &ids).or_else(|| serial(path));
    let backing = || first_text(whole, &["loop/backing_file"]);
    let name = name.map(|id| format!("disk {id}"));
    let name = name.or_else(|| backing().map(|file| format!("a loop device on {file}")))?;
    Some(match part {
        Some(part) => format!("partition {} of {name}", part.trim()),
        None => name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_with_two_names_is_noticed_and_scanned_once() {
        let folder = std::env::temp_dir().join(format!("parapet-disks-{}", std::process::id()));
        fs::create_dir_all(folder.join("sub")).unwrap();
        let [one, other, two] = ["a", "b", "c"].map(|name| folder.join(name));
        fs::write(&one, "1").unwrap();
        fs::write(&two, "2").unwrap();
        std::os::unix::fs::symlink(&one, &other).unwrap();
        let refusal = refuse_same(&[one.clone(), two.clone(), other.clone()]).unwrap_err();
        assert_eq!(refusal.id, Id::Same);
        assert!(refuse_same(&[one.clone(), two.clone()]).is_ok());
        assert_eq!(scan_folder(&folder).unwrap(), [one.clone(), two.clone()]);
        assert_eq!(serial(&one), None);
        assert!(
            stable_identity(&one).is_some() && stable_identity(&one) == stable_identity(&other)
        );
        assert_ne!(stable_identity(&one), stable_identity(&two));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(scan_folder(&folder).unwrap_err().id, Id::Missing);
    }

    #[test]
    fn loop_devices_and_partitions_are_where_their_bytes_are() {
        let folder = std::env::temp_dir().join(format!("parapet-place-{}", std::process::id()));
        let image = folder.join("image");
        let device = |name: &str, files: &[(&str, &str)]| {
            fs::create_dir_all(folder.join(name).join("loop")).unwrap();
            for (file, text) in files {
                fs::write(folder.join(name).join(file), text).unwrap();
            }
            Place::of_device(&folder.join(name), MOST_LOOPS).unwrap()
        };
        let file = format!("{}\n", image.display());
        let lost = format!("{} (deleted)\n", image.display());
        let backing = ("loop/backing_file", file.as_str());
        let zero = ("loop/offset", "0\n");
        fs::create_dir_all(&folder).unwrap();
        fs::write(&image, "x").unwrap();
        let own = Place::of(&image, MOST_LOOPS).unwrap();
        let first = device("loop0", &[("size", "2048\n"), ("dev", "7:0\n"), backing, zero]);
        let second = [("size", "2048\n"), ("dev", "7:1\n"), backing, ("loop/offset", "1048576\n")];
        let second = device("loop1", &second);
        let of_loop = [("partition", "1\n"), ("start", "8\n"), ("size", "16\n")];
        let part = device("loop0/loop0p1", &of_loop);
        let next = [("partition", "2\n"), ("start", "24\n"), ("size", "16\n")];
        let next = device("loop0/loop0p2", &next);
        let stray =
            [("size", "2048\n"), ("dev", "7:2\n"), ("loop/backing_file", lost.as_str()), zero];
        let stray = device("loop2", &stray);
        assert!(own.overlaps(&first) && own.overlaps(&second) && own.overlaps(&part));
        assert!(first.overlaps(&part) && first.overlaps(&next) && !part.overlaps(&next));
        assert!(!first.overlaps(&second) && !second.overlaps(&part));
        assert_eq!((part.range, stray.base.as_str()), (4096..12288, "7:2"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
