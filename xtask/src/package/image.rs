//! An OCI image of the static program, from scratch, as an archive: `podman load`, `skopeo copy`.
//!
//! ```text
//!    static program ─▶ staged root ─▶ umoci ─▶ layout ─▶ tar ─▶ parapet-VERSION-ARCH.oci.tar
//! ```
//!
//! umoci needs neither a daemon nor a network.

use super::fresh::Running;
use super::{Stage, folder, of, text};
use crate::failure::Failure;
use crate::shell;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "/usr/bin/parapet";
/// Where a container finds its files of arrays.
const DATA: &str = "/data";
/// Members of the array that the check makes.
const MEMBERS: [&str; 3] = ["/data/m0", "/data/m1", "/data/m2"];
/// Until the served array answers.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes the image of the static `program`.
pub(super) fn make(root: &Path, program: &Path, architecture: &str) -> Result<PathBuf, Failure> {
    let folder = folder(root)?;
    let (staged, layout) = (folder.join("image"), folder.join("layout"));
    for old in [&staged, &layout] {
        if old.exists() {
            fs::remove_dir_all(old).map_err(|error| of(old, &error))?;
        }
    }
    let stage = Stage(staged.clone());
    stage.copy(program, &PROGRAM[1..], 0o755)?;
    for empty in ["data", "etc/parapet", "run/parapet", "var/lib/parapet", "proc", "dev", "tmp"] {
        let path = staged.join(empty);
        fs::create_dir_all(&path).map_err(|error| of(&path, &error))?;
    }
    let version = env!("CARGO_PKG_VERSION");
    let image = format!("{}:{version}", text(&layout)?);
    let umoci = |words: &[&str]| shell::run(&folder, &[&["umoci"], words].concat());
    umoci(&["init", "--layout", text(&layout)?])?;
    umoci(&["new", "--image", &image])?;
    umoci(&["insert", "--image", &image, text(&staged)?, "/"])?;
    umoci(&[
        "config",
        "--image",
        &image,
        "--config.entrypoint",
        PROGRAM,
        "--config.cmd",
        "--help",
        "--config.workingdir",
        DATA,
        "--config.volume",
        DATA,
        "--config.label",
        &format!("org.opencontainers.image.version={version}"),
    ])?;
    umoci(&["gc", "--layout", text(&layout)?])?;
    let archive = folder.join(format!("parapet-{version}-{architecture}.oci.tar"));
    let tar = ["tar", "--owner=0", "--group=0", "-C", text(&layout)?, "-cf", text(&archive)?, "."];
    shell::run(&folder, &tar)?;
    Ok(archive)
}

/// Unpacks the archive, and tries the program inside of it: its version, and an array of files.
pub(super) fn checked(root: &Path, archive: &Path) -> Result<(), Failure> {
    let folder = folder(root)?.join("unpacked");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| of(&folder, &error))?;
    }
    let layout = folder.join("layout");
    fs::create_dir_all(&layout).map_err(|error| of(&layout, &error))?;
    shell::run(&folder, &["tar", "-C", text(&layout)?, "-xf", text(archive)?])?;
    let version = env!("CARGO_PKG_VERSION");
    let image = format!("{}:{version}", text(&layout)?);
    let bundle = folder.join("bundle");
    shell::run(&folder, &["umoci", "unpack", "--image", &image, text(&bundle)?])?;
    let config = bundle.join("config.json");
    let read = fs::read(&config).map_err(|error| of(&config, &error))?;
    let config: Value = serde_json::from_slice(&read).unwrap_or_default();
    if config["process"]["args"] != json!([PROGRAM, "--help"]) {
        let what = format!("the image starts {}", config["process"]["args"]);
        return Err(Failure::new(what, format!("its entry point is {PROGRAM}")));
    }
    let inside = bundle.join("rootfs");
    let said = shell::output(&inside, &container(&["--version"]))?;
    if said.trim() != format!("parapet {version}") {
        return Err(Failure::new(format!("the image's program is {said}"), "build it again"));
    }
    let create = ["create", "tank", "--level", "5", "--new-files", "64M", "--yes"];
    shell::run(&inside, &container(&[&create[..], &MEMBERS[..]].concat()))?;
    serves(&inside)
}

/// A command of the image's program in namespaces of its own, as a runtime starts it. It runs in
/// the image's root.
fn container<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let start = "mount -t proc proc proc && mount --rbind /dev dev && \
                 exec chroot . /usr/bin/parapet \"$@\"";
    let unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net"];
    [&unshare[..], &["sh", "-c", start, "parapet"], arguments].concat()
}

/// Serves the array over NBD, and asks for its size.
fn serves(inside: &Path) -> Result<(), Failure> {
    let listen = ["--nbd", "unix:/data/nbd.sock"];
    let words = container(&[&["serve", "tank"], &MEMBERS[..], &listen].concat());
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(inside).stdin(Stdio::null()).stdout(Stdio::null());
    let server = command.spawn();
    let server =
        server.map_err(|error| Failure::new(format!("{}: {error}", words[0]), "run it as root"))?;
    let mut server = Running(server);
    let uri = format!("nbd+unix:///tank?socket={}", inside.join("data/nbd.sock").display());
    let begun = Instant::now();
    while !shell::succeeds(inside, &["nbdinfo", "--size", &uri]) {
        if !matches!(server.0.try_wait(), Ok(None)) || begun.elapsed() > PATIENCE {
            return Err(Failure::new("the image serves no array", "see its messages above"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    shell::run(inside, &["nbdinfo", &uri])
}
