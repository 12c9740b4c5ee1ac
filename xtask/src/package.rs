//! `cargo xtask package`: a Debian package, a static archive of the program, and with `--image` an
//! OCI image.
//!
//! ```text
//!    cargo build, dist ─────▶ program ─┬─▶ stage ─▶ dpkg-deb ─▶ parapet_VERSION_ARCH.deb
//!    the program itself ─▶ man pages, ─┘
//!    contrib ─▶ units …     completions
//!    cargo build, static ─▶ program ─┬───▶ tar ─▶ parapet-VERSION-ARCH.tar.gz
//!                                    └─▶ umoci ─▶ parapet-VERSION-ARCH.oci.tar
//! ```
//!
//! The package never stops or restarts a server when it is upgraded: that would drop clients. It
//! stops them when it is removed.

mod fresh;
mod image;

use crate::failure::Failure;
use crate::shell;
use crate::tools::{self, Purpose};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The static build's target has its own folder: it is built with other flags.
const STATIC_FOLDER: &str = "target/static";

const DESCRIPTION: &str = "\
redundant block devices in user space
 Turns disks, files and network disks into one redundant block device (linear,
 RAID 0, 1, 10, 4, 5, 6 and 3.5) and serves it over NBD and ATA over Ethernet,
 or as a local disk. On disk an array is a Linux md array. An intent log closes
 the write hole.
";

/// What runs after the files are unpacked.
const POSTINST: &str = "\
#!/bin/sh
set -e
if [ \"$1\" = configure ] && [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload >/dev/null || true
fi
if [ \"$1\" = configure ] && [ -n \"$2\" ]; then
	echo 'parapet: running servers keep the earlier version until they are restarted'
fi
exit 0
";

/// What runs before the files go.
const PRERM: &str = "\
#!/bin/sh
set -e
if [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then
	deb-systemd-invoke stop parapet.service 'parapet@*.service' >/dev/null || true
fi
exit 0
";

/// What runs after the files have gone.
const POSTRM: &str = "\
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload >/dev/null || true
fi
exit 0
";

/// Builds them; `--check` tries the package with lintian and in a fresh Debian root, and the image
/// in namespaces.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let known = ["--check", "--image"];
    if let Some(stranger) = arguments.iter().find(|word| !known.contains(&word.as_str())) {
        let remedy = "there are --check and --image";
        return Err(Failure::new(format!("no argument {stranger:?}"), remedy));
    }
    let [check, image] = known.map(|flag| arguments.iter().any(|word| word == flag));
    if check || image {
        tools::ensure(Purpose::Packages)?;
    }
    let root = shell::root()?;
    let program = shell::shipped(&root)?;
    let package = debian(&root, &program)?;
    println!("{}", package.display());
    if check {
        checked(&root, &package)?;
    }
    let (archive, program) = archive(&root)?;
    println!("{}", archive.display());
    if image {
        let image = image::make(&root, &program, &architecture(&root)?)?;
        println!("{}", image.display());
        if check {
            image::checked(&root, &image)?;
        }
    }
    Ok(())
}

/// The folder of packages, empty of earlier stages.
fn folder(root: &Path) -> Result<PathBuf, Failure> {
    let folder = root.join("target/package");
    fs::create_dir_all(&folder).map_err(|error| of(&folder, &error))?;
    Ok(folder)
}

fn of(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()), "see the folder target/package")
}

/// Makes the Debian package.
fn debian(root: &Path, program: &Path) -> Result<PathBuf, Failure> {
    let folder = folder(root)?;
    // Where dpkg-shlibdeps looks for the files of a package.
    let stage = folder.join("debian/parapet");
    if stage.exists() {
        fs::remove_dir_all(&stage).map_err(|error| of(&stage, &error))?;
    }
    let staged = Stage(stage.clone());
    staged.copy(program, "usr/bin/parapet", 0o755)?;
    shell::run(&stage, &["strip", "--strip-unneeded", "usr/bin/parapet"])?;
    staged.man_pages()?;
    staged.copy(&root.join("contrib/fence/fence_parapet"), "usr/sbin/fence_parapet", 0o755)?;
    let manual = "usr/share/man/man8/fence_parapet.8";
    staged.copy(&root.join("contrib/fence/fence_parapet.8"), manual, 0o644)?;
    staged.compress(manual)?;
    for (name, place) in [
        ("bash", "usr/share/bash-completion/completions/parapet"),
        ("zsh", "usr/share/zsh/vendor-completions/_parapet"),
        ("fish", "usr/share/fish/vendor_completions.d/parapet.fish"),
    ] {
        let text = shell::output(&stage, &["usr/bin/parapet", "completions", name])?;
        staged.write(place, text.as_bytes(), 0o644)?;
    }
    for (from, place) in [
        ("contrib/systemd/parapet.service", "lib/systemd/system/parapet.service"),
        ("contrib/systemd/parapet@.service", "lib/systemd/system/parapet@.service"),
        ("contrib/parapet.toml", "usr/share/doc/parapet/examples/parapet.toml"),
        ("contrib/udev/62-parapet-md.rules", "lib/udev/rules.d/62-parapet-md.rules"),
        (
            "contrib/prometheus/parapet.rules.yml",
            "usr/share/doc/parapet/examples/parapet.rules.yml",
        ),
        ("contrib/grafana/parapet.json", "usr/share/doc/parapet/examples/grafana.json"),
        ("docs/admin.md", "usr/share/doc/parapet/admin.md"),
        ("docs/operate.md", "usr/share/doc/parapet/operate.md"),
        ("docs/aoe.md", "usr/share/doc/parapet/aoe.md"),
    ] {
        staged.copy(&root.join(from), place, 0o644)?;
    }
    staged.documents(root)?;
    let (architecture, depends) = (architecture(root)?, depends(&folder, &stage)?);
    let version = env!("CARGO_PKG_VERSION");
    let control = format!(
        "Package: parapet\nVersion: {version}\nSection: admin\nPriority: optional\n\
         Architecture: {architecture}\nMaintainer: Parapet maintainers \
         <maintainers@parapet.invalid>\nDepends: {depends}\n\
         Suggests: ledmon, mdadm, smartmontools\n\
         Description: {DESCRIPTION}"
    );
    staged.write("DEBIAN/control", control.as_bytes(), 0o644)?;
    for (name, script) in [("postinst", POSTINST), ("prerm", PRERM), ("postrm", POSTRM)] {
        staged.write(&format!("DEBIAN/{name}"), script.as_bytes(), 0o755)?;
    }
    let package = folder.join(format!("parapet_{version}_{architecture}.deb"));
    let (from, to) = (text(&stage)?, text(&package)?);
    shell::run(root, &["dpkg-deb", "--root-owner-group", "--build", from, to])?;
    Ok(package)
}

fn text(path: &Path) -> Result<&str, Failure> {
    let unusable = || Failure::new("the checkout's path is not UTF-8", "move the checkout");
    path.to_str().ok_or_else(unusable)
}

fn architecture(root: &Path) -> Result<String, Failure> {
    Ok(shell::output(root, &["dpkg", "--print-architecture"])?.trim().into())
}

/// The packages whose libraries the program needs.
fn depends(folder: &Path, stage: &Path) -> Result<String, Failure> {
    // The tool reads the control file of a source package.
    let source = folder.join("debian");
    fs::create_dir_all(&source).map_err(|error| of(&source, &error))?;
    let control = source.join("control");
    fs::write(&control, "Source: parapet\n\nPackage: parapet\nArchitecture: any\n")
        .map_err(|error| of(&control, &error))?;
    let program = stage.join("usr/bin/parapet");
    let found = shell::output(folder, &["dpkg-shlibdeps", "-O", "-e", text(&program)?])?;
    let list = found.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    list.map(String::from)
        .ok_or_else(|| Failure::new("dpkg-shlibdeps found no library", "see its messages above"))
}

/// The files of a package.
struct Stage(PathBuf);

impl Stage {
    fn write(&self, place: &str, bytes: &[u8], mode: u32) -> Result<(), Failure> {
        let path = self.0.join(place);
        let written = path
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, bytes))
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)));
        written.map_err(|error| of(&path, &error))
    }

    fn copy(&self, from: &Path, place: &str, mode: u32) -> Result<(), Failure> {
        let bytes = fs::read(from).map_err(|error| of(from, &error))?;
        self.write(place, &bytes, mode)
    }

    fn compress(&self, place: &str) -> Result<(), Failure> {
        shell::run(&self.0, &["gzip", "--best", "--no-name", "--force", place])
    }

    fn man_pages(&self) -> Result<(), Failure> {
        let place = "usr/share/man/man1";
        shell::output(&self.0, &["usr/bin/parapet", "man", place, "--quiet"])?;
        let folder = self.0.join(place);
        let entries = fs::read_dir(&folder).map_err(|error| of(&folder, &error))?;
        for entry in entries.flatten() {
            self.compress(&format!("{place}/{}", entry.file_name().to_string_lossy()))?;
        }
        Ok(())
    }

    /// Licence and changes, as Debian wants them.
    fn documents(&self, root: &Path) -> Result<(), Failure> {
        let read = |name: &str| {
            let path = root.join(name);
            fs::read_to_string(&path).map_err(|error| of(&path, &error))
        };
        let indented = |text: &str| {
            let line =
                |line: &str| if line.is_empty() { " .\n".into() } else { format!(" {line}\n") };
            text.lines().map(line).collect::<String>()
        };
        let copyright = format!(
            "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
             Upstream-Name: parapet\n\nFiles: *\nCopyright: the Parapet contributors\n\
             License: Expat or Apache-2.0\n\nLicense: Expat\n{}\nLicense: Apache-2.0\n \
             On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0.\n",
            indented(&read("LICENSE-MIT")?)
        );
        self.write("usr/share/doc/parapet/copyright", copyright.as_bytes(), 0o644)?;
        let date = shell::output(root, &["git", "log", "-1", "--format=%aD"])?;
        let change = format!(
            "parapet ({}) unstable; urgency=medium\n\n  * See NEWS.md.gz for the changes of each \
             release.\n\n -- Parapet maintainers <maintainers@parapet.invalid>  {}",
            env!("CARGO_PKG_VERSION"),
            date
        );
        self.write("usr/share/doc/parapet/changelog", change.as_bytes(), 0o644)?;
        self.compress("usr/share/doc/parapet/changelog")?;
        self.copy(&root.join("CHANGELOG.md"), "usr/share/doc/parapet/NEWS.md", 0o644)?;
        self.compress("usr/share/doc/parapet/NEWS.md")
    }
}

/// Makes the archive of a program without shared libraries; gives that program too.
fn archive(root: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    let host = shell::output(root, &["rustc", "--print", "host-tuple"])?;
    let host = host.trim();
    // Flags only reach the program, not build scripts, if a target is named.
    let static_flags = "target.'cfg(all())'.rustflags=['-C', 'target-feature=+crt-static']";
    let build = [
        "cargo",
        "build",
        "--profile",
        "dist",
        "--locked",
        "--bin",
        "parapet",
        "--target",
        host,
        "--target-dir",
        STATIC_FOLDER,
        "--config",
        static_flags,
    ];
    let program = shell::built(root, &build, "parapet")?;
    let folder = folder(root)?;
    let name = format!("parapet-{}-{host}", env!("CARGO_PKG_VERSION"));
    let staged = Stage(folder.join(&name));
    staged.copy(&program, "parapet", 0o755)?;
    shell::run(&staged.0, &["strip", "--strip-unneeded", "parapet"])?;
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "CHANGELOG.md"] {
        staged.copy(&root.join(file), file, 0o644)?;
    }
    let archive = folder.join(format!("{name}.tar.gz"));
    let to = text(&archive)?;
    shell::run(&folder, &["tar", "--owner=0", "--group=0", "-czf", to, &name])?;
    Ok((archive, staged.0.join("parapet")))
}

/// Tries the package: lintian, the exposure of the units, and its life in a fresh root.
fn checked(root: &Path, package_file: &Path) -> Result<(), Failure> {
    let package = text(package_file)?;
    let units = ["contrib/systemd/parapet.service", "contrib/systemd/parapet@.service"];
    shell::run(root, &["lintian", "--fail-on", "error,warning", package])?;
    let exposure = ["systemd-analyze", "security", "--offline=yes", "--threshold=35"];
    shell::run(root, &[&exposure[..], &units].concat())?;
    fresh::checked(root, package_file)
}
