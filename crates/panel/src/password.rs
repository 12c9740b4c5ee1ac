//! The password of the page: a file with one salted hash (Argon2id, in the PHC string format).
//!
//! The file is read at each login, so that a new password needs no restart. Never logs or returns
//! a password.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use argon2::{Config, Variant, verify_encoded};

use crate::session::random;

/// The fewest bytes of a password.
pub const LEAST_PASSWORD_BYTES: usize = 8;
/// The most bytes of a password.
pub const MOST_PASSWORD_BYTES: usize = 1024;
/// Memory of a hash, in KiB (OWASP's recommendation for two passes).
const MEMORY_KIB: u32 = 19 * 1024;
/// Passes over that memory.
const PASSES: u32 = 2;
/// Bytes of the salt of a hash.
const SALT_BYTES: usize = 16;
/// The most bytes of a password file.
const MOST_FILE_BYTES: u64 = 4096;

/// A password file that could be read when the page was started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PasswordFile {
    path: PathBuf,
}

impl PasswordFile {
    /// Checks the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, if other users can, or if it holds no hash.
    pub fn open(path: &Path) -> io::Result<PasswordFile> {
        let file = PasswordFile { path: path.to_owned() };
        // Any password shows whether this is a hash.
        is_hash_of(&file.read()?, "")?;
        Ok(file)
    }

    /// Stores the hash of a password, with mode 0600; replaces the file as a whole.
    ///
    /// # Errors
    /// If the password is too short or too long, or the file cannot be written.
    pub fn create(path: &Path, password: &str) -> io::Result<PasswordFile> {
        let bytes = password.len();
        if !(LEAST_PASSWORD_BYTES..=MOST_PASSWORD_BYTES).contains(&bytes) {
            let range = format!("{LEAST_PASSWORD_BYTES} to {MOST_PASSWORD_BYTES} bytes");
            return Err(wrong(&format!("the password has {bytes} bytes; it needs {range}")));
        }
        let salt = random::<SALT_BYTES>();
        let config = Config {
            variant: Variant::Argon2id,
            mem_cost: MEMORY_KIB,
            time_cost: PASSES,
            lanes: 1,
            ..Config::default()
        };
        let hash = argon2::hash_encoded(password.as_bytes(), &salt, &config);
        let hash = hash.map_err(|error| wrong(&error.to_string()))?;
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let new = PathBuf::from(name);
        let written = write_secret(&new, &format!("{hash}\n"));
        if let Err(error) = written.and_then(|()| fs::rename(&new, path)) {
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        PasswordFile::open(path)
    }

    /// Returns true if this is the password. Takes tens of milliseconds and 19 MiB, on purpose.
    ///
    /// # Errors
    /// As of [`PasswordFile::open`].
    pub(crate) fn verify(&self, password: &str) -> io::Result<bool> {
        is_hash_of(&self.read()?, password)
    }

    fn read(&self) -> io::Result<String> {
        let stat = fs::metadata(&self.path)?;
        if stat.mode() & 0o077 != 0 {
            return Err(wrong("other users can read it; chmod 600"));
        }
        if !stat.is_file() || stat.len() > MOST_FILE_BYTES {
            return Err(wrong(NO_HASH));
        }
        fs::read_to_string(&self.path)
    }
}

const NO_HASH: &str = "it holds no Argon2id hash; parapet page password makes one";

fn is_hash_of(text: &str, password: &str) -> io::Result<bool> {
    let hash = text.trim_end();
    if !hash.starts_with("$argon2id$") {
        return Err(wrong(NO_HASH));
    }
    // The library compares in constant time.
    verify_encoded(hash, password.as_bytes()).map_err(|_| wrong(NO_HASH))
}

fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options().create_new(true).write(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("parapet-password-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_the_last_password_is_accepted_and_never_stored() {
        let folder = Folder::new("verify");
        let path = folder.0.join("page.password");
        let file = PasswordFile::create(&path, "correct horse").unwrap();
        assert!(file.verify("correct horse").unwrap());
        for other in ["", "correct hors", "correct horse ", "CORRECT HORSE"] {
            assert!(!file.verify(other).unwrap(), "{other}");
        }
        let first = fs::read_to_string(&path).unwrap();
        assert!(
            first.starts_with("$argon2id$v=19$m=19456,t=2,p=1$") && !first.contains("horse"),
            "{first}"
        );
        PasswordFile::create(&path, "battery staple").unwrap();
        assert!(file.verify("battery staple").unwrap() && !file.verify("correct horse").unwrap());
        PasswordFile::create(&path, "correct horse").unwrap();
        assert_ne!(fs::read_to_string(&path).unwrap(), first, "each hash has its own salt");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "no file is left behind");
    }

    #[test]
    fn hashes_of_former_versions_are_accepted() {
        let folder = Folder::new("former");
        let path = folder.0.join("page.password");
        PasswordFile::create(&path, "another one").unwrap();
        let former = "$argon2id$v=19$m=19456,t=2,p=1$JJkbMtBSEYgTyu0h4SAB4Q\
                      $5cRDbXpSVCylZKhJV0I7cn/4ueFNY+B4Upp0+Kk5Dcs";
        fs::write(&path, format!("{former}\n")).unwrap();
        let file = PasswordFile::open(&path).unwrap();
        assert!(file.verify("correct horse").unwrap() && !file.verify("another one").unwrap());
    }

    #[test]
    fn files_that_others_read_or_that_hold_no_hash_are_refused() {
        let folder = Folder::new("refused");
        let path = folder.0.join("page.password");
        let why = |path: &Path| PasswordFile::open(path).unwrap_err().to_string();
        assert!(why(&path).contains("No such file"));
        PasswordFile::create(&path, "correct horse").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert_eq!(why(&path), "other users can read it; chmod 600");
        for text in ["", "correct horse\n", "$argon2i$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$AAAA"] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            assert_eq!(why(&path), NO_HASH, "{text}");
        }
    }

    #[test]
    fn short_and_long_passwords_are_refused() {
        let folder = Folder::new("lengths");
        let path = folder.0.join("page.password");
        for (bytes, good) in [(7, false), (8, true), (1024, true), (1025, false)] {
            let made = PasswordFile::create(&path, &"x".repeat(bytes));
            assert_eq!(made.is_ok(), good, "{bytes}");
        }
    }
}
