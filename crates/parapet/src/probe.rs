//! What is on a disk before something else is put there.
//!
//! Owns the ladder's first rung: every signature found must be named by the user, one by one,
//! before it may be overwritten. There is no flag that silences all of them. Never writes.

use std::path::Path;
use std::str::FromStr;

use crate::api::SignatureView;
use crate::disks::Opened;
use crate::failure::{Failure, Id, Result};

/// Everything recognizable on a disk.
///
/// # Errors
/// What cannot be read cannot be called empty.
pub(crate) async fn signatures(opened: &Opened) -> Result<Vec<SignatureView>> {
    let found = array::examine::examine(&*opened.disk, &opened.clock).await.map_err(|error| {
        let message = format!("{}: {error}", opened.path.display());
        Failure::new(Id::Input, message, "see the system's log for the disk's errors")
    })?;
    Ok(found.signatures.iter().map(SignatureView::of).collect())
}

impl SignatureView {
    /// As it was found.
    pub(crate) fn of(found: &layout::md::Signature) -> SignatureView {
        SignatureView { name: found.name.into(), offset: found.offset }
    }
}

/// What the user has said may be overwritten: `ext4@0x438`, on any of the disks.
impl FromStr for SignatureView {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<SignatureView, String> {
        let parsed = crate::written::signature(text);
        let parsed = parsed.map(|(name, offset)| SignatureView { name: name.into(), offset });
        parsed.ok_or_else(|| "write it as NAME@OFFSET, such as ext4@0x438".into())
    }
}

/// Refuses unless every signature on every disk was named.
///
/// # Errors
/// `Signature`, listing what was found where, and the flags that allow it.
pub(crate) fn refuse_unnamed<'a>(
    found: impl IntoIterator<Item = (&'a Path, &'a [SignatureView])>,
    allowed: &[SignatureView],
) -> Result<()> {
    let (mut places, mut flags) = (Vec::new(), Vec::<String>::new());
    for (path, signatures) in found {
        for signature in signatures.iter().filter(|signature| !allowed.contains(signature)) {
            places.push(format!("{}: {signature}", path.display()));
            let flag = format!("--overwrite-signature={signature}");
            if !flags.contains(&flag) {
                flags.push(flag);
            }
        }
    }
    if places.is_empty() {
        return Ok(());
    }
    let message = format!("something would be overwritten ({})", places.join("; "));
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
        let both = [ext4.clone(), swap.clone()];
        let path = Path::new("/dev/x");
        let check = |allowed: &[SignatureView]| refuse_unnamed([(path, &both[..])], allowed);
        assert!(check(&both).is_ok());
        let refusal = check(&[ext4]).unwrap_err();
        assert_eq!(refusal.id, Id::Signature);
        assert!(refusal.action.ends_with("--overwrite-signature=swap@0xff6"), "{}", refusal.action);
        assert!(!refusal.message.contains("ext4"));
        assert!(refuse_unnamed([(path, &[][..])], &[]).is_ok());
    }
}
