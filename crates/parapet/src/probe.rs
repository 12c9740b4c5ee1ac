//! Finds the content of a disk before a command overwrites it.
//!
//! Owns the first safety check: the user must name every signature before it may be overwritten. No
//! flag overrides all of them. Never writes.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use io::{Op, Pool};
use layout::md::Superblock;

use crate::api::SignatureView;
use crate::disks::Opened;
use crate::failure::{Failure, Id, Result};
use crate::{images, places};

/// Magic numbers of files that do not hold a disk: magic number, position, and name.
const FILES: &[(&[u8], usize, &str)] = &[
    (b"SQLite format 3\0", 0, "sqlite"),
    (b"\x7fELF", 0, "elf"),
    (b"\x1f\x8b", 0, "gzip"),
    (b"\x28\xb5\x2f\xfd", 0, "zstd"),
    (b"\xfd7zXZ\0", 0, "xz"),
    (b"BZh", 0, "bzip2"),
    (b"PK\x03\x04", 0, "zip"),
    (b"%PDF", 0, "pdf"),
    (b"ustar", 257, "tar"),
];
/// Name of unknown content at the start of a file.
const DATA: &str = "data";
/// Number of bytes to read at the start. A member of version 1.2 has zeros there.
const BEGINNING_BYTES: usize = 4096;

/// Returns all signatures on a disk.
///
/// # Errors
/// A disk that cannot be read must not count as empty.
pub(crate) async fn signatures(opened: &Opened) -> Result<Vec<SignatureView>> {
    let found = examine(opened).await?;
    Ok(found.signatures.iter().map(SignatureView::of).collect())
}

async fn examine(opened: &Opened) -> Result<metadata::examine::Examination> {
    metadata::examine::examine(&*opened.disk, &opened.clock).await.map_err(|error| {
        let message = format!("{}: {error}", opened.path.display());
        Failure::new(Id::Input, message, "see the system's log for the disk's errors")
    })
}

/// Content lost when a disk becomes a member.
#[derive(Default)]
pub(crate) struct Contents {
    /// All signatures; for a regular file, also the presence of any data.
    pub(crate) signatures: Vec<SignatureView>,
    /// The superblocks of its current or former arrays.
    pub(crate) superblocks: Vec<Superblock>,
}

/// Examines a disk that is to be overwritten.
///
/// # Errors
/// A disk that cannot be read must not count as empty.
pub(crate) async fn contents(opened: &Opened) -> Result<Contents> {
    let found = examine(opened).await?;
    let mut signatures: Vec<_> = found.signatures.iter().map(SignatureView::of).collect();
    let is_file = opened.file.as_ref().is_some_and(|file| !file.is_device());
    if is_file && signatures.is_empty() && opened.bytes() >= BEGINNING_BYTES as u64 {
        let read = Op::read(0, Pool::new(0).take(BEGINNING_BYTES));
        let done = opened.ask(read).await.map_err(|error| {
            let message = format!("{}: {error}", opened.path.display());
            Failure::new(Id::Input, message, "see the system's log for the disk's errors")
        })?;
        signatures.extend(of_file(&done.into_buf()));
    }
    let superblocks = found.superblocks.into_iter();
    let superblocks = superblocks.filter_map(|found| found.superblock.ok()).collect();
    Ok(Contents { signatures, superblocks })
}

/// Identifies a file by its first bytes; none if they are all zeros.
fn of_file(beginning: &[u8]) -> Option<SignatureView> {
    let magics = FILES.iter().copied();
    let mut known =
        magics.chain(images::WRAPPED.iter().map(|&(m, at, name)| (m, at as usize, name)));
    let begins = |(magic, at, _): &(&[u8], usize, &str)| {
        beginning.get(*at..).is_some_and(|bytes| bytes.starts_with(magic))
    };
    if let Some((_, at, name)) = known.find(begins) {
        return Some(SignatureView { name: name.into(), offset: at as u64 });
    }
    let holds = beginning.iter().any(|&byte| byte != 0);
    holds.then(|| SignatureView { name: DATA.into(), offset: 0 })
}

/// Content that the user allows to overwrite: `ext4@0x438` on any disk, `/dev/sdb:ext4@0x438` on
/// one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Allowed {
    /// On this disk only.
    disk: Option<PathBuf>,
    signature: SignatureView,
}

impl Allowed {
    /// Returns the signature, if it may be overwritten on this disk.
    pub(crate) fn on(&self, path: &Path) -> Option<&SignatureView> {
        self.disk.as_ref().is_none_or(|disk| disk == path).then_some(&self.signature)
    }
}

impl From<SignatureView> for Allowed {
    fn from(signature: SignatureView) -> Allowed {
        Allowed { disk: None, signature }
    }
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Allowed, String> {
        // Neither a name nor an offset has a colon; a path may have several.
        match text.rsplit_once(':') {
            None => text.parse().map(|signature| Allowed { disk: None, signature }),
            Some((disk, text)) => {
                let signature = text.parse()?;
                Ok(Allowed { disk: Some(disk.into()), signature })
            }
        }
    }
}

impl SignatureView {
    /// Returns true for the signature of an array member.
    pub(crate) fn is_member(&self) -> bool {
        self.name.ends_with("_member")
    }

    /// Converts a signature from the scan.
    pub(crate) fn of(found: &layout::md::Signature) -> SignatureView {
        SignatureView { name: found.name.into(), offset: found.offset }
    }
}

/// Parses a signature in its display form: `ext4@0x438`.
impl FromStr for SignatureView {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<SignatureView, String> {
        let parsed = crate::written::signature(text);
        let parsed = parsed.map(|(name, offset)| SignatureView { name: name.into(), offset });
        parsed.ok_or_else(|| "write it as NAME@OFFSET, such as ext4@0x438".into())
    }
}

/// Refuses unless the user named every signature on every disk.
///
/// # Errors
/// `Signature`, with the signatures found on each disk and the flags that allow them. The flags
/// include the disk's name if there are several disks.
pub(crate) fn refuse_unnamed<'a>(
    found: impl IntoIterator<Item = (&'a Path, &'a Contents)>,
    allowed: &[Allowed],
) -> Result<()> {
    let mut refused = Vec::new();
    for (path, contents) in found {
        let may = |signature: &SignatureView| {
            allowed.iter().any(|allowed| allowed.on(path) == Some(signature))
        };
        let unnamed = contents.signatures.iter().filter(|signature| !may(signature));
        refused.extend(unnamed.map(|signature| (path, contents, signature)));
    }
    let Some(first) = refused.first().map(|(path, ..)| *path) else { return Ok(()) };
    let several = refused.iter().any(|(path, ..)| *path != first);
    let (mut found_signatures, mut flags) = (Vec::new(), Vec::new());
    for (path, contents, signature) in refused {
        let disk = path.display();
        let superblock = contents.superblocks.first().filter(|_| signature.is_member());
        let of = |superblock: &Superblock| format!(", member of {}", superblock.set_name);
        let member = superblock.map_or(String::new(), of);
        found_signatures.push(format!("{disk}: {signature}{member}"));
        let value = if several { format!("{disk}:{signature}") } else { signature.to_string() };
        flags.push(format!("--overwrite-signature={}", places::quoted(&value)));
    }
    let message = format!("something would be overwritten ({})", found_signatures.join("; "));
    let action = format!("if it is not needed any more, say {}", flags.join(" "));
    Err(Failure::new(Id::Signature, message, action))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(text: &str) -> SignatureView {
        text.parse().unwrap()
    }

    #[test]
    fn signatures_are_written_as_they_are_shown() {
        assert_eq!(signature("ext4@0x438").to_string(), "ext4@0x438");
        assert_eq!(signature("dos@510"), signature("dos@0x1fe"));
        for bad in ["ext4", "ext4@", "ext4@x", "ext4@0xzz", "@@"] {
            assert!(bad.parse::<SignatureView>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_what_was_named_is_overwritten() {
        let (ext4, swap) = (signature("ext4@0x438"), signature("swap@0xff6"));
        let signatures = vec![ext4.clone(), swap.clone()];
        let both = Contents { signatures, superblocks: Vec::new() };
        let path = Path::new("/dev/x");
        let check = |allowed: &[SignatureView]| {
            let allowed: Vec<Allowed> = allowed.iter().cloned().map(Allowed::from).collect();
            refuse_unnamed([(path, &both)], &allowed)
        };
        assert!(check(&[ext4.clone(), swap]).is_ok());
        let refusal = check(&[ext4]).unwrap_err();
        assert_eq!(refusal.id, Id::Signature);
        assert!(refusal.action.ends_with("--overwrite-signature=swap@0xff6"), "{}", refusal.action);
        assert!(!refusal.message.contains("ext4"));
        assert!(refuse_unnamed([(path, &Contents::default())], &[]).is_ok());
    }

    #[test]
    fn a_signature_is_allowed_on_one_disk_or_on_all() {
        let on =
            |text: &str, path: &str| text.parse::<Allowed>().unwrap().on(Path::new(path)).is_some();
        assert!(on("ext4@0x438", "/dev/x") && on("ext4@0x438", "/dev/y"));
        assert!(on("/dev/x:ext4@0x438", "/dev/x") && !on("/dev/x:ext4@0x438", "/dev/y"));
        assert!(on("array:left:dos@510", "array:left"));
        assert!("/dev/x:ext4".parse::<Allowed>().is_err());
    }

    #[test]
    fn files_with_data_are_known_or_at_least_not_empty() {
        let found = |at: usize, bytes: &[u8]| {
            let mut beginning = [0; 4096];
            beginning[at..at + bytes.len()].copy_from_slice(bytes);
            of_file(&beginning).map(|found| found.to_string())
        };
        assert_eq!(found(0, b"QFI\xfb").as_deref(), Some("qcow2@0x0"));
        assert_eq!(found(257, b"ustar").as_deref(), Some("tar@0x101"));
        assert_eq!(found(0, b"SQLite format 3\0").as_deref(), Some("sqlite@0x0"));
        assert_eq!(found(4095, b"x").as_deref(), Some("data@0x0"));
        assert_eq!(found(0, b""), None);
    }
}
