//! Small files that are replaced as a whole: a crash leaves the old content or the new one.

use std::fs::{self, File};
use std::io::{Result, Write};
use std::path::Path;

/// Replaces the content of a file, durably; makes its folder, if there is none.
///
/// # Errors
/// The file keeps its old content.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}
