//! A whole machine with two processors, made by QEMU without the help of the host's processor: it
//! takes ten seconds to start and runs any kernel.
//!
//! ```text
//!   kernel + initramfs (vm/guest/initramfs, busybox, 9p modules)
//!      └── the host's root folder, read-only, over 9p ── vm/guest/init
//!      └── the story's folder, over 9p
//! ```

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Cable;
use super::debian::{self, Image};
use crate::failure::Result;

/// Enough for file systems and their checkers; a quarter of it is the guest's cache of files.
const MEMORY: &str = "1024M";
const PROCESSORS: &str = "2";
/// No story takes so long.
const LIMIT_SECONDS: &str = "900";
/// By these it sees the host's folders.
const SHARES: [&str; 3] = ["virtio_pci", "9pnet_virtio", "9p"];

/// The command line.
pub(super) struct Machine {
    kernel: PathBuf,
    initramfs: PathBuf,
    /// Small programs, in one file.
    busybox: PathBuf,
}

impl Machine {
    /// The machine of this kernel; its first file system is made in `state`.
    pub(super) fn new(image: &Image, guest: &Path, state: &Path) -> Result<Machine> {
        let home = state.join("initramfs");
        for folder in ["bin", "modules", "new"] {
            std::fs::create_dir_all(home.join(folder))?;
        }
        std::fs::copy(guest.join("initramfs"), home.join("init"))?;
        std::fs::copy(image.busybox(), home.join("bin/busybox"))?;
        for (number, file) in image.files_of(&SHARES)?.iter().enumerate() {
            let module = std::fs::File::create(home.join(format!("modules/{number:02}.ko")))?;
            let mut unpack = Command::new(image.busybox());
            unpack.arg("xzcat").arg(file).stdout(module);
            debian::output(&mut unpack)?;
        }
        let initramfs = state.join("initramfs.cpio");
        let script = "find . | bin/busybox cpio -o -H newc >../initramfs.cpio";
        debian::output(Command::new("sh").args(["-ec", script]).current_dir(&home))?;
        Ok(Machine { kernel: image.kernel(), initramfs, busybox: image.busybox() })
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
            // A comma ends a value unless there are two.
            let path = path.display().to_string().replace(',', ",,");
            let kind = "local,security_model=none,multidevs=remap";
            let device = format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}");
            [
                "-fsdev".into(),
                format!("{kind},id={tag},path={path}{more}"),
                "-device".into(),
                device,
            ]
        };
        // Where the host is busy the timer comes late; that does not mean that there is none.
        let fixed = "console=ttyS0 quiet panic=-1 no_timer_check";
        let own = format!("first={} busybox={}", first.display(), self.busybox.display());
        // The process that should end it may be killed first.
        let mut command = Command::new("timeout");
        command
            .args(["--signal=KILL", LIMIT_SECONDS, "qemu-system-x86_64"])
            .args(["-accel", "tcg,thread=multi", "-smp", PROCESSORS, "-m", MEMORY, "-cpu", "max"])
            .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
            .args(["-serial", "stdio"])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initramfs)
            .arg("-append")
            .arg(format!("{fixed} {own} {}", words.join(" ")))
            .args(share("root", Path::new("/"), ",readonly=on"))
            .args(share("story", work, ""))
            .args(["-netdev", "user,id=net"])
            .args(["-device", "virtio-net-pci,netdev=net,romfile="])
            .args(cables.iter().enumerate().flat_map(|(number, cable)| plug(number, cable)))
            .stdin(Stdio::null());
        command
    }
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
