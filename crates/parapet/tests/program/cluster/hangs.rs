//! A member whose disk hangs: the file system under it is frozen. Needs root.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use super::{MEMBER_BYTES, Rig};
use crate::attach::Mounted;
use crate::world::{World, not_tried, until};

/// A file system that takes no writes.
struct Frozen<'a>(&'a Mounted);

impl Frozen<'_> {
    fn new(mounted: &Mounted) -> Frozen<'_> {
        assert!(fsfreeze("--freeze", mounted));
        Frozen(mounted)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        assert!(fsfreeze("--unfreeze", self.0) || std::thread::panicking());
    }
}

fn fsfreeze(what: &str, mounted: &Mounted) -> bool {
    let status = Command::new("fsfreeze").arg(what).arg(&mounted.at).status();
    status.is_ok_and(|status| status.success())
}

/// Its server is alive, and answers no order; the others go on. When its disk goes on, it is
/// rebuilt.
#[test]
fn a_member_whose_disk_hangs_is_left_out_and_rebuilt() {
    let world = World::new();
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return not_tried("mounts a file system");
    }
    let image = world.file("image", 3 * MEMBER_BYTES).display().to_string();
    world.tool("ext4", &["mkfs.ext4", "-q", &image]);
    std::fs::create_dir(world.path("mnt")).unwrap();
    let mounted = Mounted::new(&world, &["-o", "loop", &image]);
    for index in [0, 2] {
        drop(world.file(&format!("m{index}"), MEMBER_BYTES));
    }
    let file = std::fs::File::create(mounted.at.join("m1")).unwrap();
    file.set_len(MEMBER_BYTES).unwrap();
    std::os::unix::fs::symlink(mounted.at.join("m1"), world.path("m1")).unwrap();
    let mut rig = Rig::of_disks(world, "pool", "3.5", "shared");
    rig.clients = (0..2).map(|index| Some(rig.client(index))).collect();
    assert!(rig.io(0, &["write -P 1 0 1M", "flush"]));
    {
        let _frozen = Frozen::new(&mounted);
        assert!(rig.io(1, &["write -P 2 512k 1M", "flush", "read -P 1 0 512k"]));
        let status = rig.status();
        assert_eq!(
            (&status["state"], &status["members"][1]["state"]),
            (&"degraded".into(), &"missing".into())
        );
        until(|| rig.status()["members"][1]["problem"] == "the disk does not answer");
    }
    rig.until_optimal();
    assert_eq!(rig.clients(), [1, 2], "both clients stay joined");
    rig.members[0].take().unwrap().kill();
    assert!(rig.io(0, &["read -P 1 0 512k", "read -P 2 512k 1M"]));
    for server in rig.clients.iter_mut().chain(&mut rig.coordinators).chain(&mut rig.members) {
        if let Some(server) = server.take() {
            assert_eq!(server.terminate(), 0);
        }
    }
}
