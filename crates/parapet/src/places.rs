//! Paths of control sockets and undo copies, and the rules for names.
//!
//! Never opens anything. Root uses `/run` and `/var/lib`, others their own folders.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Id, Result};
use crate::written;

/// Maximum length of a unix socket path: `sun_path` less its NUL.
const SOCKET_PATH_BYTES: usize = 107;

/// Returns the effective user of this process.
pub(crate) fn user() -> Option<u32> {
    std::fs::metadata("/proc/self").ok().map(|stat| stat.uid())
}

/// Makes a path usable from any folder.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns true if a process with this id exists and has not ended.
pub(crate) fn is_alive(pid: u32) -> bool {
    // 42 (a name) S 1 …
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X'))
}

/// Reads an environment variable that holds a path.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The folder of control sockets: `$PARAPET_RUNTIME`, `/run/parapet` for root,
/// `$XDG_RUNTIME_DIR/parapet` for others where it is set.
pub(crate) fn runtime() -> PathBuf {
    let own = || variable("XDG_RUNTIME_DIR").filter(|_| user() != Some(0));
    let usual = || own().map(|folder| folder.join("parapet"));
    variable("PARAPET_RUNTIME").or_else(usual).unwrap_or_else(|| "/run/parapet".into())
}

/// Returns the control socket of a served array.
pub(crate) fn control_of(name: &str) -> PathBuf {
    runtime().join(format!("{name}.sock"))
}

/// Returns true if commands take this path for a control socket.
pub(crate) fn is_control(path: &Path) -> bool {
    let folder = absolute(path).parent().map(Path::to_owned);
    folder == Some(absolute(&runtime())) && path.extension().is_some_and(|end| end == "sock")
}

/// Returns the folder of undo copies: `$PARAPET_STATE`, `/var/lib/parapet` for root,
/// `$XDG_STATE_HOME/parapet` or `~/.local/state/parapet` for others.
pub(crate) fn state() -> PathBuf {
    if let Some(path) = variable("PARAPET_STATE") {
        return path;
    }
    if user() == Some(0) {
        return PathBuf::from("/var/lib/parapet");
    }
    let home = || variable("HOME").map(|home| home.join(".local/state"));
    variable("XDG_STATE_HOME").or_else(home).unwrap_or_else(std::env::temp_dir).join("parapet")
}

/// Quotes a word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+=:,./@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns the display name of an array. An array of version 0.90 has no name: use `md-` and the
/// start of its UUID.
pub(crate) fn array_name(name: &str, uuid: &str) -> String {
    match name {
        "" => format!("md-{}", uuid.split(':').next().unwrap_or_default()),
        name => name.into(),
    }
}

/// Returns a file name for an array: its name if that is a valid file name, else its UUID.
pub(crate) fn file_name(name: &str, uuid: &str) -> String {
    written::name(name).unwrap_or_else(|_| uuid.replace(':', ""))
}

/// Checks whether a unix socket can have this path.
///
/// # Errors
/// If it is too long for the kernel, or its folder is missing.
pub(crate) fn check_socket(path: &Path) -> Result<()> {
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > SOCKET_PATH_BYTES {
        let message = format!(
            "{}: {bytes} bytes are too long for a unix socket, {SOCKET_PATH_BYTES} at most",
            path.display()
        );
        return Err(Failure::new(Id::Socket, message, "choose a shorter path"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            let message = format!("{}: there is no such folder", folder.display());
            Err(Failure::new(Id::Missing, message, format!("mkdir -p {}", folder.display())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_fit_for_files_and_exports() {
        for good in ["a", "data-1", "tank_2.old", &"x".repeat(32)] {
            assert_eq!(written::name(good).as_deref(), Ok(good));
        }
        for bad in ["", ".", "..", "-a", "a/b", "a b", "é", "a\n", &"x".repeat(33)] {
            assert!(written::name(bad).is_err(), "{bad:?}");
        }
        assert_eq!(file_name("host:a", "01:23"), "0123");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("unix:/run/a-b.sock"), "unix:/run/a-b.sock");
        assert_eq!(quoted("a b'c"), r"'a b'\''c'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn this_process_lives_and_one_that_has_ended_does_not() {
        assert!(is_alive(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(!is_alive(pid));
    }

    #[test]
    fn sockets_have_short_paths_in_folders_that_exist() {
        let long = std::env::temp_dir().join("x".repeat(120));
        assert_eq!(check_socket(&long).unwrap_err().id, Id::Socket);
        assert_eq!(check_socket(Path::new("/no/such/folder/s")).unwrap_err().id, Id::Missing);
        assert!(check_socket(&std::env::temp_dir().join("s")).is_ok());
        assert!(check_socket(Path::new("s")).is_ok());
    }
}
