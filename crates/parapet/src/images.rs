//! Images of disks, and the partitions inside them.
//!
//! A kernel would make devices of partitions; of an image nobody has. Opens for reading only unless
//! told otherwise, and never writes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use layout::md::{Partition, partitions};
use os::{Direct, FileDisk, Options, Spawner};

use crate::disks::{self, Opened};
use crate::failure::{Failure, Id, Result, of_path};

/// An image, or a disk.
pub(crate) struct Image {
    pub(crate) whole: Opened,
    pub(crate) parts: Vec<Opened>,
}

/// Images in formats that hold a disk, but not byte by byte: magic, where, and name.
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
/// One that cannot be opened or is in a format of its own, or two that are the same.
pub(crate) fn open(paths: &[PathBuf], read_only: bool, on: &Spawner) -> Result<Vec<Image>> {
    disks::refuse_same(paths)?;
    paths.iter().map(|path| open_one(path, read_only, on)).collect()
}

fn open_one(path: &Path, read_only: bool, on: &Spawner) -> Result<Image> {
    let file = File::open(path).map_err(|error| of_path(path, &error))?;
    refuse_wrapped(path, &file)?;
    let options = Options { read_only, ..Options::default() };
    let mut whole = Opened::file(path, FileDisk::open(path, &options, on)?, on);
    let read = |offset: u64, length: usize| {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset).ok().map(|()| bytes)
    };
    let found = partitions(read, whole.bytes());
    if found.iter().any(|partition| whole.part(partition).is_none()) {
        // They begin between two blocks of the file system that the image lies on.
        let options = Options { direct: Direct::Never, ..options };
        // Its lock keeps everybody out, us too.
        drop(whole);
        whole = Opened::file(path, FileDisk::open(path, &options, on)?, on);
    }
    let part = |partition: &Partition| {
        let part = whole.part(partition);
        if part.is_none() {
            let (path, number) = (path.display(), partition.number);
            tracing::warn!("partition {number} of {path} begins or ends within a block of it");
        }
        part
    };
    let parts = found.iter().filter_map(part).collect();
    Ok(Image { whole, parts })
}

/// Refuses what has to be unwrapped first: what looks like a superblock in there lies elsewhere
/// than on the disk.
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
