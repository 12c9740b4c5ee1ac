//! The programs of other people that tests and benchmarks talk to, and how they come onto the
//! machine.
//!
//! `cargo xtask tools` installs missing tools through the machine's package manager as root;
//! otherwise it lists them with the command. Never edits the machine's package sources.

use crate::failure::Failure;
use crate::shell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The purpose of a tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    Tests,
    Figures,
    Packages,
    Loads,
}

/// How to detect a tool.
enum Proof {
    Program(&'static str),
    File(&'static str),
}

struct Tool {
    purpose: Purpose,
    proof: Proof,
    package: &'static str,
    why: &'static str,
}

const fn tool(purpose: Purpose, proof: Proof, package: &'static str, why: &'static str) -> Tool {
    Tool { purpose, proof, package, why }
}

use Proof::{File, Program};
use Purpose::{Figures, Loads, Packages, Tests};

const TOOLS: &[Tool] = &[
    tool(Tests, Program("mdadm"), "mdadm", "reads our superblocks and writes others"),
    tool(Tests, Program("nbdinfo"), "libnbd-bin", "an NBD client: properties of an export"),
    tool(Tests, Program("nbdcopy"), "libnbd-bin", "an NBD client: many connections in parallel"),
    tool(Tests, Program("nbdfuse"), "libnbd-bin", "a file system that hangs on demand"),
    tool(Tests, Program("nbdkit"), "nbdkit", "server of that file system"),
    tool(Tests, Program("qemu-io"), "qemu-utils", "an NBD client: single requests with flags"),
    tool(Tests, Program("qemu-img"), "qemu-utils", "an NBD client: block status, comparison"),
    tool(Tests, Program("fio"), "fio", "an NBD client: load with verification"),
    tool(Tests, Program("aoeping"), "aoetools", "an AoE client: IDENTIFY, SMART"),
    tool(Tests, Program("vblade"), "vblade", "an AoE target: members on another machine"),
    tool(Tests, Program("qemu-nbd"), "qemu-utils", "an NBD server: members on another machine"),
    tool(Tests, Program("ip"), "iproute2", "interfaces and cables between them"),
    tool(Tests, Program("nsenter"), "util-linux", "the hosts of a cluster"),
    tool(Tests, Program("dumpcap"), "tshark", "records what goes over those cables"),
    tool(Tests, Program("tshark"), "tshark", "an AoE decoder: no frame may be malformed"),
    tool(Tests, Program("mkfs.ext4"), "e2fsprogs", "a file system that `create` must detect"),
    tool(Tests, Program("mkfs.vfat"), "dosfstools", "a file system that `create` must detect"),
    tool(Tests, Program("mke2fs"), "e2fsprogs", "a file system that `recover` must find"),
    tool(Tests, Program("sfdisk"), "fdisk", "a partition table that `create` must detect"),
    tool(Tests, Program("wipefs"), "util-linux", "reference for signatures on disks"),
    tool(Tests, Program("curl"), "curl", "a client of the web page and the control API"),
    tool(Tests, Program("etcd"), "etcd-server", "a decision store of arrays of several hosts"),
    tool(Tests, Program("etcdctl"), "etcd-client", "backups of that store, and its leader"),
    tool(Tests, Program("script"), "bsdutils", "a terminal for programs that ask for a password"),
    tool(Tests, Program("openssl"), "openssl", "certificates for TLS tests"),
    tool(Tests, Program("prometheus"), "prometheus", "scrapes our metrics, evaluates our alerts"),
    tool(Tests, Program("promtool"), "prometheus", "checks metrics and alert rules"),
    tool(Tests, Program("chromium"), "chromium", "a browser for the web page"),
    tool(Tests, Program("chromedriver"), "chromium-driver", "drives that browser"),
    tool(Tests, Program("aiosmtpd"), "python3-aiosmtpd", "a mail server, and Python for others"),
    tool(Tests, Program("linux.uml"), "user-mode-linux", "a real kernel with md, as a process"),
    tool(Tests, Program("modprobe"), "kmod", "loads that kernel's modules"),
    tool(Tests, Program("qemu-system-x86_64"), "qemu-system-x86", "a machine for a newer kernel"),
    tool(Tests, Program("udevadm"), "udev", "assembles free members in that kernel"),
    tool(Tests, Program("nbd-client"), "nbd-client", "connects that kernel's NBD client"),
    tool(Tests, Program("mkfs.xfs"), "xfsprogs", "a file system on that client and on local disks"),
    tool(Tests, Program("mkfs.btrfs"), "btrfs-progs", "a file system on local disks"),
    tool(Tests, Program("mkfs.ocfs2"), "ocfs2-tools", "a file system of two machines"),
    tool(Tests, Program("mount"), "mount", "mounts local disks"),
    tool(Tests, Program("blkid"), "util-linux", "reference for the type of our members"),
    tool(Tests, Program("cmp"), "diffutils", "compares contents of arrays"),
    tool(Figures, Program("fio"), "fio", "the same load for us and for the peers"),
    tool(Figures, Program("nbdkit"), "nbdkit", "peer: the fastest NBD server of a file"),
    tool(Figures, Program("qemu-nbd"), "qemu-utils", "peer: the usual NBD server"),
    tool(
        Figures,
        Program("qemu-storage-daemon"),
        "qemu-system-common",
        "peer: a FUSE export of a file",
    ),
    tool(Figures, Program("nbdfuse"), "libnbd-bin", "peer: the usual FUSE file of an NBD export"),
    tool(Figures, Program("vblade"), "vblade", "peer: the usual AoE target"),
    tool(Figures, Program("etcd"), "etcd-server", "the decision store of a cluster"),
    tool(Figures, Program("etcdctl"), "etcd-client", "reads the revision of the decision store"),
    tool(Figures, Program("ip"), "iproute2", "namespaces, interfaces and cables between them"),
    tool(Figures, File("/usr/include/isa-l.h"), "libisal-dev", "peer: parity kernels"),
    tool(Figures, Program("taskset"), "util-linux", "server and client on a core each"),
    tool(Figures, Program("chrt"), "util-linux", "keeps other work off those cores"),
    tool(Loads, Program("sysbench"), "sysbench", "random writes as R2's"),
    tool(Loads, Program("bonnie++"), "bonnie++", "small files with fsync as R5's"),
    tool(Loads, Program("fio"), "fio", "streams, and the NBD client of --agree"),
    tool(Loads, File("/usr/src/linux-source-6.1.tar.xz"), "linux-source-6.1", "files to unpack"),
    tool(Loads, Program("chrt"), "util-linux", "modelled disks answer in time"),
    tool(Loads, Program("xz"), "xz-utils", "decompresses them"),
    tool(Loads, Program("mkfs.ext4"), "e2fsprogs", "the file system on arrays"),
    tool(Loads, Program("mkfs.btrfs"), "btrfs-progs", "peer: RAID in the file system"),
    tool(Loads, Program("losetup"), "mount", "plain files as disks"),
    tool(Packages, Program("dpkg-shlibdeps"), "dpkg-dev", "the libraries that a program needs"),
    tool(Packages, Program("strip"), "binutils", "removes symbols from the program"),
    tool(Packages, Program("lintian"), "lintian", "Debian's rules for packages"),
    tool(Packages, Program("debootstrap"), "debootstrap", "a fresh Debian root"),
    tool(Packages, Program("systemd-analyze"), "systemd", "the exposure of units"),
    tool(Packages, Program("umoci"), "umoci", "makes and unpacks OCI images"),
    tool(Packages, Program("unshare"), "util-linux", "runs an image in namespaces"),
    tool(Packages, Program("nbdinfo"), "libnbd-bin", "asks the image's server"),
    tool(Packages, Program("qemu-io"), "qemu-utils", "a client during an upgrade"),
];

/// Where programs lie that only root has on its path.
const ALSO: &[&str] = &["/usr/sbin", "/sbin", "/usr/local/sbin"];

impl Tool {
    fn name(&self) -> &'static str {
        match self.proof {
            Program(name) | File(name) => name,
        }
    }

    fn is_there(&self) -> bool {
        match self.proof {
            File(path) => Path::new(path).exists(),
            Program(name) => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let folders = std::env::split_paths(&path).chain(ALSO.iter().map(PathBuf::from));
                folders.map(|folder| folder.join(name)).any(|program| program.is_file())
            }
        }
    }
}

/// `cargo xtask tools`: the tools of the tests, or with `bench` those of the benchmarks.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    match arguments {
        [] => ensure(Tests),
        [only] if only == "bench" => ensure(Figures),
        _ => Err(Failure::new("tools takes no argument but bench", "leave it out")),
    }
}

/// All tools for `purpose` are there when this returns without a failure.
pub(crate) fn ensure(purpose: Purpose) -> Result<(), Failure> {
    // Twice: apt may remove a tool from another release when it installs a conflicting one (seen:
    // qemu-system-x86 removes a qemu-utils of backports).
    for _ in 0..2 {
        let lacking = missing(purpose);
        if !lacking.is_empty() {
            install(&lacking)?;
        }
    }
    if let Some(tool) = missing(purpose).first() {
        return Err(Failure::new(
            format!("{} is still missing though {} is installed", tool.name(), tool.package),
            format!("see `dpkg -L {}`", tool.package),
        ));
    }
    for tool in TOOLS.iter().filter(|tool| tool.purpose == purpose) {
        println!("{:<22} {:<12} {}", tool.name(), tool.package, tool.why);
    }
    if purpose == Packages { Ok(()) } else { fio_speaks_nbd() }
}

fn missing(purpose: Purpose) -> Vec<&'static Tool> {
    TOOLS.iter().filter(|tool| tool.purpose == purpose && !tool.is_there()).collect()
}

fn install(lacking: &[&Tool]) -> Result<(), Failure> {
    for tool in lacking {
        println!("missing: {} (package {}): {}", tool.name(), tool.package, tool.why);
    }
    let mut packages: Vec<_> = lacking.iter().map(|tool| tool.package).collect();
    packages.sort_unstable();
    packages.dedup();
    let wait = "DPkg::Lock::Timeout=300";
    let update = ["apt-get", "-q", "-o", wait, "update"];
    let mut install = vec!["apt-get", "-qq", "-o", wait, "install", "--yes"];
    install.push("--no-install-recommends");
    install.extend(&packages);
    let here = Path::new("/");
    if !is_root() || !shell::succeeds(here, &["apt-get", "--version"]) {
        let (who, names) = if is_root() { ("no apt-get", "") } else { ("not root", "sudo ") };
        let line = format!(
            "{names}apt-get update && {names}apt-get install --no-install-recommends {}",
            packages.join(" ")
        );
        return Err(Failure::new(
            format!("{} tools are missing, and {who} to install them", lacking.len()),
            format!("run `{line}`, or the like of your system"),
        ));
    }
    // A package index that cannot be renewed may still be good enough.
    if let Err(failure) = shell::run(here, &update) {
        println!("{failure}");
    }
    install.splice(0..0, ["env", "DEBIAN_FRONTEND=noninteractive"]);
    shell::run(here, &install)
}

/// True if this user may do everything.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|us| us.uid() == 0)
}

/// Some builds of fio lack the engine that most tests of the NBD server need.
fn fio_speaks_nbd() -> Result<(), Failure> {
    let engines = shell::output(Path::new("/"), &["fio", "--enghelp"])?;
    if engines.lines().any(|line| line.trim() == "nbd") {
        return Ok(());
    }
    Err(Failure::new(
        "this fio has no nbd engine",
        "install the distribution's fio (Debian's has it), or build fio with libnbd",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_on_the_path_and_a_made_up_one_is_not() {
        assert!(tool(Tests, Program("sh"), "dash", "").is_there());
        assert!(!tool(Tests, Program("no-such-program"), "none", "").is_there());
        assert!(!tool(Tests, File("/no/such/file"), "none", "").is_there());
    }

    #[test]
    fn every_tool_says_why() {
        assert!(TOOLS.iter().all(|tool| !tool.why.is_empty() && !tool.package.is_empty()));
    }
}
