//! Fragments that are smaller than the sectors of the members. Needs root.

use super::{BYTES, MEMBER_BYTES, Rig};
use crate::world::{World, not_tried};

/// A cluster of level 3.5 on disks with logical blocks of 4 KiB; none if this user may not make
/// any.
struct Large {
    rig: Rig,
    /// Given back after the members have ended.
    _disks: Loops,
}

struct Loops(Vec<String>);

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.0 {
            let detached =
                std::process::Command::new("losetup").args(["--detach", device]).status();
            assert!(detached.is_ok_and(|it| it.success()) || std::thread::panicking());
        }
    }
}

impl Large {
    fn new() -> Option<Large> {
        let (world, mut disks) = (World::new(), Loops(Vec::new()));
        for index in 0..3 {
            let file = world.file(&format!("f{index}"), MEMBER_BYTES).display().to_string();
            let words = ["losetup", "--find", "--show", "--sector-size", "4096", &file];
            let made = world.try_tool("mount", &words);
            if made.code != 0 {
                not_tried("makes loop devices");
                return None;
            }
            let device = made.out.trim().to_owned();
            std::os::unix::fs::symlink(&device, world.path(&format!("m{index}"))).unwrap();
            disks.0.push(device);
        }
        let rig = Rig::of_disks(world, "pool", "3.5", "shared");
        Some(Large { rig, _disks: disks })
    }
}

/// Blocks of 4 KiB, as on any disk. A member that is killed has lost what it kept in memory, and is
/// rebuilt; what was flushed is there, also when all members are killed at once.
#[test]
fn fragments_are_kept_on_disks_with_large_sectors() {
    let Some(Large { rig, _disks }) = &mut Large::new() else { return };
    for device in &_disks.0 {
        let sector = rig.world.tool("util-linux", &["blockdev", "--getss", device]);
        assert_eq!(sector.trim(), "4096");
    }
    rig.clients = (0..2).map(|index| Some(rig.client(index))).collect();
    let uri = rig.uri(0);
    let info = rig.world.tool("libnbd-bin", &["nbdinfo", "--json", &uri]);
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let export = &info["exports"][0];
    assert_eq!(
        (&export["block_size_minimum"], &export["export-size"]),
        (&4096.into(), &BYTES.into())
    );

    let pattern = rig.world.pattern("pattern", BYTES).display().to_string();
    rig.world.nbdcopy(&pattern, &uri);
    // Single blocks: halves of sectors, beside those of blocks that stay.
    let writes = (0..64).map(|block| format!("write -P {} {}k 4k", block + 1, block * 12));
    let writes: Vec<String> = writes.chain(["flush".into()]).collect();
    assert!(rig.io(0, &writes.iter().map(String::as_str).collect::<Vec<_>>()));
    let mut wanted = std::fs::read(&pattern).unwrap();
    for block in 0..64 {
        wanted[block * 12288..][..4096].fill(block as u8 + 1);
    }
    assert!(rig.content(1, "before") == wanted);

    rig.members[1].take().unwrap().kill();
    assert!(rig.io(0, &["write -P 99 4k 4k", "flush"]));
    wanted[4096..8192].fill(99);
    rig.start_member(1);
    rig.until_optimal();
    rig.members[0].take().unwrap().kill();
    assert!(rig.content(1, "rebuilt") == wanted, "the rebuilt member differs");
    rig.start_member(0);
    rig.until_optimal();

    (0..3).for_each(|index| rig.members[index].take().unwrap().kill());
    (0..3).for_each(|index| rig.start_member(index));
    rig.until_optimal();
    assert!(rig.content(0, "after") == wanted);
    for server in rig.clients.iter_mut().chain(&mut rig.coordinators).chain(&mut rig.members) {
        assert_eq!(server.take().unwrap().terminate(), 0);
    }
}
