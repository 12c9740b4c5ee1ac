//! A newer kernel than the host's packages have, and its machine, from Debian's archive.
//!
//! The package manager fetches and verifies them, with our own source list and state folder: the
//! machine's configuration is unchanged, and nothing is installed. Unpacked files are kept for the
//! next run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::{Failure, Result, ensure};

/// Where the kernel comes from: Linux 6.12 since it was opened, and nothing newer to come.
const SUITE: &str = "bookworm-backports";
/// The package that depends on the newest kernel of the suite.
const KERNEL: &str = "linux-image-amd64";
/// Where the rest comes from.
const BASE_SUITE: &str = "bookworm";
const BUSYBOX: &str = "busybox-static";
/// The signers of both.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The unpacked files.
pub(super) struct Image {
    home: PathBuf,
    pub(super) release: String,
}

impl Image {
    /// From this folder; fetched into it if it is not there.
    ///
    /// # Errors
    /// There is no Debian archive, or a package is missing.
    pub(super) fn get(cache: &Path) -> Result<Image> {
        ensure(std::env::consts::ARCH == "x86_64", || {
            "whole machines are started on x86_64 only".into()
        })?;
        let home = cache.join(format!("debian-{SUITE}"));
        if !home.is_dir() {
            // An interrupted or concurrent fetch leaves nothing incomplete.
            let draft = cache.join(format!("draft-{}", std::process::id()));
            let made = fetch(&draft).and_then(|()| {
                let renamed = std::fs::rename(draft.join("root"), &home);
                if home.is_dir() { Ok(()) } else { Ok(renamed?) }
            });
            let _ = std::fs::remove_dir_all(&draft);
            made?;
        }
        let release = only(&home.join("lib/modules"))?;
        Ok(Image { home, release })
    }

    pub(super) fn kernel(&self) -> PathBuf {
        self.home.join(format!("boot/vmlinuz-{}", self.release))
    }

    pub(super) fn modules(&self) -> PathBuf {
        self.home.join("lib/modules").join(&self.release)
    }

    pub(super) fn busybox(&self) -> PathBuf {
        self.home.join("bin/busybox")
    }

    /// The files of these modules and their dependencies, in load order.
    pub(super) fn files_of(&self, modules: &[&str]) -> Result<Vec<PathBuf>> {
        let mut files: Vec<PathBuf> = Vec::new();
        for module in modules {
            let mut command = Command::new("modprobe");
            command.arg("-d").arg(&self.home).args(["-S", &self.release, "--show-depends", module]);
            for line in output(&mut command)?.lines() {
                let file = line.strip_prefix("insmod ").map(|path| PathBuf::from(path.trim()));
                files.extend(file.filter(|file| !files.contains(file)));
            }
        }
        Ok(files)
    }
}

/// Fetches and unpacks it all into the folder's `root`.
fn fetch(draft: &Path) -> Result {
    let archives = archives()?;
    let tried = archives.iter().map(|archive| Source::open(draft, archive));
    let mut why = Failure::new("no Debian archive is among the machine's package sources");
    for source in tried {
        match source {
            Ok(source) => return source.unpack(draft),
            Err(failure) => why = failure,
        }
    }
    Err(why)
}

/// The machine's package sources: those labelled Debian; without downloaded lists, all whose suite
/// is not a derived one (`bookworm-updates`).
fn archives() -> Result<Vec<String>> {
    let targets = index_targets(&["--format", "$(LABEL)|$(REPO_URI)"])?;
    let debian = |line: &str| Some(line.strip_prefix("Debian|")?.to_owned());
    let mut found: Vec<String> = targets.lines().filter_map(debian).collect();
    if found.is_empty() {
        let targets = index_targets(&["--no-release-info", "--format", "$(RELEASE)|$(REPO_URI)"])?;
        let rows = targets.lines().filter_map(|line| line.split_once('|'));
        let whole = rows.filter(|(suite, _)| !suite.contains('-'));
        found = whole.map(|(_, archive)| archive.to_owned()).collect();
    }
    found.dedup();
    Ok(found)
}

/// apt's data about its configured package lists.
fn index_targets(words: &[&str]) -> Result<String> {
    let mut command = Command::new("apt-get");
    command.arg("indextargets").args(words).arg("Created-By: Packages");
    output(&mut command).map_err(|failure| {
        Failure::new(format!("kernels come through apt, from Debian's archive: {failure}"))
    })
}

/// The package manager with a source list and a state folder of its own.
struct Source {
    options: Vec<String>,
}

impl Source {
    fn open(draft: &Path, archive: &str) -> Result<Source> {
        let _ = std::fs::remove_dir_all(draft);
        for folder in ["state/lists/partial", "cache/archives/partial", "packages", "root"] {
            std::fs::create_dir_all(draft.join(folder))?;
        }
        let keys =
            if Path::new(KEYS).exists() { format!("[signed-by={KEYS}] ") } else { "".into() };
        let line = |suite| format!("deb {keys}{archive} {suite} main\n");
        std::fs::write(draft.join("sources.list"), line(BASE_SUITE) + &line(SUITE))?;
        let set = |name: &str, value: &Path| format!("{name}={}", value.display());
        let options = [
            set("Dir::Etc::sourcelist", &draft.join("sources.list")),
            set("Dir::Etc::sourceparts", Path::new("/dev/null")),
            set("Dir::Etc::preferences", Path::new("/dev/null")),
            set("Dir::Etc::preferencesparts", Path::new("/dev/null")),
            format!("APT::Default-Release={SUITE}"),
            set("Dir::State", &draft.join("state")),
            set("Dir::Cache", &draft.join("cache")),
            // Its own user may not be let into our folder.
            "APT::Sandbox::User=root".into(),
            "APT::Update::Error-Mode=any".into(),
        ];
        let options = options.into_iter().flat_map(|option| ["-o".into(), option]).collect();
        let source = Source { options };
        source.ask("apt-get", draft, &["-q", "update"])?;
        Ok(source)
    }

    fn ask(&self, program: &str, folder: &Path, words: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        output(command.current_dir(folder).args(&self.options).args(words))
    }

    /// Downloads the packages, unpacks them, and lets modules be found by name.
    fn unpack(&self, draft: &Path) -> Result {
        let depends = self.ask("apt-cache", draft, &["depends", KERNEL])?;
        let image = depends
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .find(|package| package.starts_with("linux-image-"))
            .ok_or_else(|| Failure::new(format!("{KERNEL} names no kernel: {depends}")))?;
        let packages = draft.join("packages");
        self.ask("apt-get", &packages, &["-q", "download", image, BUSYBOX])?;
        let root = draft.join("root");
        for package in std::fs::read_dir(&packages)? {
            output(Command::new("dpkg-deb").arg("-x").arg(package?.path()).arg(&root))?;
        }
        let release = only(&root.join("lib/modules"))?;
        output(Command::new("depmod").arg("-b").arg(&root).arg(&release)).map(drop)
    }
}

/// The command's output, if it succeeds.
pub(super) fn output(command: &mut Command) -> Result<String> {
    // Where only root has them on its path.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(format!("{:?}: {error}", command.get_program())))?;
    ensure(output.status.success(), || {
        format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The name of the one thing in a folder.
fn only(folder: &Path) -> Result<String> {
    let missing = || Failure::new(format!("{} is empty", folder.display()));
    let entry = std::fs::read_dir(folder)?.next().ok_or_else(missing)??;
    Ok(entry.file_name().to_string_lossy().into_owned())
}
