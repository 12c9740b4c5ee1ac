//! A whole machine with two processors, made by QEMU without the help of the host's processor: it
//! takes ten seconds to start and runs any kernel.
//!
//! ```text
//!   kernel + initramfs (vm/guest/initramfs, busybox, 9p modules)
//!      └── the host's root folder, read-only, over 9p ── vm/guest/init
//!      └── the story's folder, over 9p
//! ```
//!
//! Or the machine has nothing of the host but a disk (vm/guest/cluster/moved): QEMU moves no
//! machine that has a folder of the host.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::debian::{self, Image};
use super::{Cable, Peer};
use crate::failure::Result;

/// Enough for file systems and their checkers; a quarter of it is the guest's cache of files.
const MEMORY: &str = "1024M";
const PROCESSORS: &str = "2";
/// No story takes so long.
const LIMIT_SECONDS: &str = "900";
/// By these it sees the host's folders.
const SHARES: [&str; 3] = ["virtio_pci", "9pnet_virtio", "9p"];
/// By these one that has only a disk sees that.
const DISK: [&str; 2] = ["virtio_pci", "virtio_blk"];
/// Enough for a copy of that disk, and soon moved.
const SMALL_MEMORY: &str = "256M";
/// Where the host is busy the timer comes late; that does not mean that there is none.
const WORDS: &str = "console=ttyS0 quiet panic=-1 no_timer_check";

/// The command line.
pub(super) struct Machine {
    kernel: PathBuf,
    initramfs: PathBuf,
    /// Of a machine that has only a disk.
    moved: PathBuf,
    /// Small programs, in one file.
    busybox: PathBuf,
}

impl Machine {
    /// The machine of this kernel; its first file systems are made in `state`.
    pub(super) fn new(image: &Image, guest: &Path, state: &Path) -> Result<Machine> {
        let make = |script, modules: &[&str], name| {
            initramfs(image, &guest.join(script), modules, &state.join(name))
        };
        Ok(Machine {
            kernel: image.kernel(),
            initramfs: make("initramfs", &SHARES, "initramfs")?,
            moved: make("cluster/moved", &DISK, "moved")?,
            busybox: image.busybox(),
        })
    }

    /// A machine that has only a disk: this NBD export.
    pub(super) fn with_disk(&self, uri: &str) -> Command {
        let mut command = self.start(SMALL_MEMORY, &self.moved, WORDS);
        command.args(disk(uri));
        command
    }

    /// All machines have this in common.
    fn start(&self, memory: &str, initramfs: &Path, words: &str) -> Command {
        // The process that should end it may be killed first.
        let mut command = Command::new("timeout");
        command
            .args(["--signal=KILL", LIMIT_SECONDS, "qemu-system-x86_64"])
            .args(["-accel", "tcg,thread=multi", "-smp", PROCESSORS, "-m", memory, "-cpu", "max"])
            .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
            .args(["-serial", "stdio"])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(initramfs)
            .args(["-append", words]);
        command
    }

    /// Starts it with these words for its first process, and these cables.
    pub(super) fn command(
        &self,
        first: &Path,
        work: &Path,
        words: &[String],
        cables: &[Cable],
    ) -> Command {
        let share = |tag: &str, path: &Path, more: &str| {
            let path = value(&path.display().to_string());
            let kind = "local,security_model=none,multidevs=remap";
            let device = format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}");
            [
                "-fsdev".into(),
                format!("{kind},id={tag},path={path}{more}"),
                "-device".into(),
                device,
            ]
        };
        let own = format!("first={} busybox={}", first.display(), self.busybox.display());
        let words = format!("{WORDS} {own} {}", words.join(" "));
        let mut command = self.start(MEMORY, &self.initramfs, &words);
        command
            .args(share("root", Path::new("/"), ",readonly=on"))
            .args(share("story", work, ""))
            .args(["-netdev", "user,id=net"])
            .args(["-device", "virtio-net-pci,netdev=net,romfile="])
            .args(cables.iter().enumerate().flat_map(|(number, cable)| plug(number, cable)))
            .stdin(Stdio::null());
        command
    }
}

/// The first file system of a machine: busybox, this script, these modules.
fn initramfs(image: &Image, script: &Path, modules: &[&str], home: &Path) -> Result<PathBuf> {
    for folder in ["bin", "modules", "new"] {
        std::fs::create_dir_all(home.join(folder))?;
    }
    std::fs::copy(script, home.join("init"))?;
    std::fs::copy(image.busybox(), home.join("bin/busybox"))?;
    for (number, file) in image.files_of(modules)?.iter().enumerate() {
        let module = std::fs::File::create(home.join(format!("modules/{number:02}.ko")))?;
        let mut unpack = Command::new(image.busybox());
        unpack.arg("xzcat").arg(file).stdout(module);
        debian::output(&mut unpack)?;
    }
    let archive = home.with_extension("cpio");
    let script = "find . | bin/busybox cpio -o -H newc >\"$0\"";
    let mut pack = Command::new("sh");
    debian::output(pack.args(["-ec", script]).arg(&archive).current_dir(home))?;
    Ok(archive)
}

/// A value in a word of options: a comma ends it unless there are two.
fn value(text: &str) -> String {
    text.replace(',', ",,")
}

/// Its disk, and its card at the wire; either end of that may come and go.
pub(super) fn peer(Peer { number, disk, ends: [own, other] }: &Peer) -> Vec<String> {
    let [own, other] = [own, other].map(|path| value(&path.display().to_string()));
    let wire = format!(
        "dgram,id=wire,local.type=unix,local.path={own},remote.type=unix,remote.path={other}"
    );
    let card = format!("virtio-net-pci,netdev=wire,romfile=,mac=52:54:00:00:01:{number:02x}");
    [&self::disk(disk)[..], &["-netdev".into(), wire, "-device".into(), card]].concat()
}

/// A disk that others may write, too: an NBD export, past the host's cache.
pub(super) fn disk(uri: &str) -> [String; 4] {
    let source = format!("file={},format=raw,if=none,id=disk,cache=none", value(uri));
    let device = "virtio-blk-pci,drive=disk,share-rw=on";
    ["-drive".into(), source, "-device".into(), device.into()]
}

/// What it calls the end of its cable of this number: the first interface is that of the user's
/// network.
pub(super) fn port(number: usize) -> String {
    format!("eth{}", number + 1)
}

/// A network card at the end of a cable.
fn plug(number: usize, Cable { interface, mtu, address }: &Cable) -> [String; 4] {
    let address = address.as_ref().map_or(String::new(), |address| format!(",mac={address}"));
    [
        "-netdev".into(),
        format!("tap,id=cable{number},ifname={interface},script=no,downscript=no"),
        "-device".into(),
        format!("virtio-net-pci,netdev=cable{number},host_mtu={mtu},romfile={address}"),
    ]
}
