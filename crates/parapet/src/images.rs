//! Images of disks, and the partitions inside them.
//!
//! The kernel creates devices for the partitions of a disk, but not of an image file. Opens for
//! reading only unless the caller asks for more, and never writes.

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
        // Partitions may begin in the middle of a block of the image's file system.
        let options = Options { direct: Direct::Never, ..options };
        // The lock on the whole image would exclude this process too.
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
