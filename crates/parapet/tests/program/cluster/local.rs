//! A client as a local disk, by FUSE and a loop device, with a file system. Needs root.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::Rig;
use crate::attach::{Mounted, alone};
use crate::world::{Server, until};

/// Three members, coordinators, and client 2 over NBD. `/dev/parapet` is the machine's, hence the
/// name.
fn rig(name: &str) -> Rig {
    let mut rig =
        Rig::without_clients(&format!("{name}{}", std::process::id()), "3.5", "exclusive");
    rig.clients = vec![None, Some(rig.client(1))];
    std::fs::create_dir(rig.world.path("mnt")).unwrap();
    rig
}

const ATTACH: [&str; 7] = ["cluster", "client", "pool.toml", "--attach", "--how", "fuse", "--id"];

impl Rig {
    /// Client 1 as a local disk, with these other words.
    fn attached(&self, more: &[&str]) -> (Server, PathBuf) {
        let server = self.world.start(&[&ATTACH[..], &["1", "--json"], more].concat());
        let attached = &server.ready["attached"];
        let path = PathBuf::from(attached["path"].as_str().unwrap());
        assert_eq!(path, Path::new("/dev/parapet").join(&self.name));
        let device = std::fs::read_link(&path).unwrap();
        assert_eq!(device.to_str(), attached["device"].as_str());
        assert_eq!(attached["survives_restart"], false);
        (server, path)
    }

    fn mkfs(&self, device: &Path) {
        self.world.tool("ext4", &["mkfs.ext4", "-q", device.to_str().unwrap()]);
    }

    fn mount(&self, device: &Path) -> Mounted {
        Mounted::new(&self.world, &[device.to_str().unwrap()])
    }
}

fn write_durably(mounted: &Mounted) -> std::io::Result<()> {
    let mut file = File::create(mounted.at.join("late"))?;
    file.write_all(b"x").and_then(|()| file.sync_all())
}

#[test]
fn another_host_reads_the_file_system_that_one_has_written() {
    let rig = rig("local");
    let (client, device) = rig.attached(&[]);
    assert!(client.ready["address"].is_null());
    let words = ["blockdev", "--getss", "--getsize64", device.to_str().unwrap()];
    assert_eq!(rig.world.tool("util-linux", &words).trim(), format!("4096\n{}", super::BYTES));
    rig.mkfs(&device);
    let mounted = rig.mount(&device);
    mounted.fill(1);
    let other = rig.world.refused(&[&ATTACH[..], &["3"]].concat(), 3, "PPT-3003");
    assert!(other.contains("another client of this host"), "{other}");
    // It does not stop under a file system.
    client.signal("TERM");
    until(|| rig.world.log().contains("mounted at"));
    mounted.fill(21);
    assert!(device.exists());
    mounted.unmount();
    assert_eq!(client.wait(), 0);
    assert!(!device.exists());
    rig.content(1, "whole");
    rig.world.tool("ext4", &["fsck.ext4", "-f", "-n", "whole"]);
    let image = rig.world.path("whole").display().to_string();
    let mounted = Mounted::new(&rig.world, &["-o", "loop,ro", &image]);
    [1, 21].into_iter().for_each(|from| mounted.verify(from));
}

#[test]
fn a_mounted_disk_fails_after_an_eviction_and_returns_when_it_is_unmounted() {
    let _alone = alone();
    let rig = rig("evicted");
    let (client, device) = rig.attached(&["--nbd", "unix:n0.sock"]);
    rig.mkfs(&device);
    let mounted = rig.mount(&device);
    mounted.fill(1);
    rig.world.ok(&["cluster", "evict", "pool.toml", "1"]);
    write_durably(&mounted).expect_err("it is evicted");
    // It stays, and answers nothing but errors.
    assert!(device.exists() && Path::new(&format!("/proc/{}/exe", client.pid())).exists());
    assert!(!rig.io(0, &["read 0 4k"]));
    // What has the old file system in its caches must go before a new start.
    client.kill();
    let refused = rig.world.refused(&[&ATTACH[..], &["1"]].concat(), 3, "PPT-3003");
    assert!(refused.contains("mounted at"), "{refused}");
    assert_eq!(rig.clients(), [2], "it has not joined");
    mounted.unmount();
    let (client, device) = rig.attached(&["--nbd", "unix:n0.sock"]);
    let mounted = rig.mount(&device);
    mounted.verify(1);
    write_durably(&mounted).unwrap();
    // It waits for the end of the use, then for the kernel; each signal ends one wait.
    client.signal("TERM");
    until(|| rig.world.log().contains("mounted at"));
    client.signal("TERM");
    until(|| !device.exists());
    assert_eq!(client.terminate(), 0);
    assert!(rig.world.log().contains("fail from now on"));
    write_durably(&mounted).expect_err("it has ended");
    mounted.unmount();
}
