//! Images of disks, and the partitions inside them.
//!
//! The kernel creates devices for the partitions of a disk, but not of an image file. Opens for
//! reading only unless the caller asks for more, and never writes.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ::io::{Op, Pool};
use layout::md::{Partition, SECTOR, partitions};
use os::{Direct, FileDisk, Options, Spawner};

use crate::disks::{self, Opened};
use crate::failure::{Failure, Id, Result, of_path};
use crate::modelled::file_of;
use crate::remote::is_remote;

/// An image, or a disk.
pub(crate) struct Image {
    pub(crate) whole: Opened,
    pub(crate) parts: Vec<Opened>,
}

/// Image formats that do not store the disk byte by byte: magic number, position, and name.
pub(crate) const WRAPPED: &[(&[u8], u64, &str)] = &[
    (b"QFI\xfb", 0, "qcow2"),
    (b"KDMV", 0, "vmdk"),
    (b"# Disk DescriptorFile", 0, "vmdk"),
    (&[0x7f, 0x10, 0xda, 0xbe], 64, "vdi"),
    (b"conectix", 0, "vpc"),
    (b"vhdxfile", 0, "vhdx"),
];

/// Opens all of these, each with the partitions inside it.
///
/// # Errors
/// If one cannot be opened or has an image format, or if two are the same.
pub(crate) async fn open(paths: &[PathBuf], read_only: bool, on: &Spawner) -> Result<Vec<Image>> {
    disks::refuse_same(paths)?;
    let mut images = Vec::new();
    for path in paths {
        images.push(match is_remote(path) {
            true => open_remote(path, read_only, on).await?,
            false => open_file(path, read_only, on)?,
        });
    }
    Ok(images)
}

/// Opens a disk on another machine; its server has unwrapped an image.
async fn open_remote(path: &Path, read_only: bool, on: &Spawner) -> Result<Image> {
    let options = Options { read_only, ..Options::default() };
    let whole = disks::open_one(path, &options, on).await?;
    let found = remote_partitions(&whole).await?;
    Ok(image(whole, &found))
}

/// Reads the partition table of a disk that cannot be read at once: each round reads the blocks
/// that the last one lacked.
async fn remote_partitions(whole: &Opened) -> Result<Vec<Partition>> {
    let block = u64::from(whole.disk.limits().logical_block).max(SECTOR);
    let mut known: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    loop {
        let lacking = Cell::new(None);
        let read = |offset: u64, length: usize| {
            let mut bytes = Vec::new();
            let first = offset / block * block;
            let mut at = first;
            while at < offset + length as u64 {
                match known.get(&at) {
                    Some(block) => bytes.extend_from_slice(block),
                    None => {
                        lacking.set(lacking.get().or(Some(at)));
                        return None;
                    }
                }
                at += block;
            }
            let skip = (offset - first) as usize;
            bytes.get(skip..skip + length).map(<[u8]>::to_vec)
        };
        let found = partitions(read, whole.bytes());
        let Some(at) = lacking.get().filter(|at| at + block <= whole.bytes()) else {
            return Ok(found);
        };
        let asked = whole.ask(Op::read(at, Pool::new(0).take(block as usize))).await;
        let done = asked.map_err(|error| {
            let message = format!("{}: {error}", whole.path.display());
            Failure::new(Id::Input, message, "see the log of the disk's server")
        })?;
        known.insert(at, done.into_buf().to_vec());
    }
}

fn open_file(path: &Path, read_only: bool, on: &Spawner) -> Result<Image> {
    let file = File::open(file_of(path)).map_err(|error| of_path(path, &error))?;
    refuse_wrapped(path, &file)?;
    let options = Options { read_only, ..Options::default() };
    let mut whole = Opened::file(path, FileDisk::open(file_of(path), &options, on)?, on)?;
    let read = |offset: u64, length: usize| {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset).ok().map(|()| bytes)
    };
    let found = partitions(read, whole.bytes());
    if found.iter().any(|partition| whole.part(partition).is_none()) {
        // Partitions may begin in the middle of a block of the image's file system.
        let options = Options { direct: Direct::Never, ..options };
        // The lock on the whole image would exclude this process too.
        drop(whole);
        whole = Opened::file(path, FileDisk::open(file_of(path), &options, on)?, on)?;
    }
    Ok(image(whole, &found))
}

fn image(whole: Opened, found: &[Partition]) -> Image {
    let part = |partition: &Partition| {
        let part = whole.part(partition);
        if part.is_none() {
            let (path, number) = (whole.path.display(), partition.number);
            tracing::warn!("partition {number} of {path} begins or ends within a block of it");
        }
        part
    };
    let parts = found.iter().filter_map(part).collect();
    Image { whole, parts }
}

/// Refuses images that must be converted first: offsets in the file differ from offsets on the
/// disk.
fn refuse_wrapped(path: &Path, file: &File) -> Result<()> {
    let begins = |(magic, at, _): &&(&[u8], u64, &str)| {
        let mut bytes = vec![0; magic.len()];
        file.read_exact_at(&mut bytes, *at).is_ok() && bytes == *magic
    };
    let Some((_, _, name)) = WRAPPED.iter().find(begins) else { return Ok(()) };
    let message = format!("{} is an image in format {name}", path.display());
    let path = path.display();
    let action = format!("unwrap it first: qemu-img convert -O raw {path} {path}.raw");
    Err(Failure::new(Id::Input, message, action))
}
