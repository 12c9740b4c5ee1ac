//! Members on hung file systems: the server continues, and loses only the hung member.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::world::{World, not_tried, pattern, until};

/// A file on a FUSE file system: nbdkit, mounted by nbdfuse.
struct Fuse {
    nbdkit: Child,
    nbdfuse: Child,
    folder: PathBuf,
}

impl Fuse {
    /// None if this user may not mount one.
    fn new(world: &World, name: &str, size: &str) -> Option<Fuse> {
        let (folder, socket) = (world.path(name), world.path(&format!("{name}.sock")));
        std::fs::create_dir(&folder).unwrap();
        let spawn = |command: &mut Command, package: &str| {
            let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            quiet.spawn().unwrap_or_else(|_| panic!("install the package {package}"))
        };
        let mut nbdkit = Command::new("nbdkit");
        let mut nbdkit =
            spawn(nbdkit.args(["-f", "-U"]).arg(&socket).args(["memory", size]), "nbdkit");
        until(|| socket.exists() || nbdkit.try_wait().unwrap().is_some());
        let mut nbdfuse = Command::new("nbdfuse");
        let place = folder.join("member");
        let nbdfuse = nbdfuse.arg(&place).arg("--unix").arg(&socket);
        let mut nbdfuse = spawn(nbdfuse, "libnbd-bin");
        until(|| place.exists() || nbdfuse.try_wait().unwrap().is_some());
        let shown = place.exists();
        let fuse = Fuse { nbdkit, nbdfuse, folder };
        if shown {
            return Some(fuse);
        }
        not_tried("mounts a FUSE file system");
        None
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.nbdkit.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // Pending requests fail with an error.
        let _ = self.nbdkit.kill();
        let _ = self.nbdkit.wait();
        let mut umount = Command::new("umount");
        let _ = umount.arg("--lazy").arg(&self.folder).stderr(Stdio::null()).status();
        let _ = self.nbdfuse.kill();
        let _ = self.nbdfuse.wait();
    }
}

#[test]
fn a_member_whose_file_system_hangs_is_lost_alone_and_the_server_answers_meanwhile() {
    let world = World::new();
    let Some(fuse) = Fuse::new(&world, "mnt", "16M") else { return };
    world.file("m0", 16 << 20);
    world.file("m2", 16 << 20);
    let members = ["m0", "mnt/member", "m2"];
    world
        .ok(&[&["create", "tank", "--level", "5", "--chunk", "16K", "--yes"], &members[..]]
            .concat());
    let server = world.serve(&[&["tank"], &members[..], &["--deadline", "2"]].concat());
    let data = pattern(8 << 20, 31);
    std::fs::write(world.path("data"), &data).unwrap();
    world.nbdcopy("data", &world.uri());
    world.order(&["status", "tank"]);

    fuse.signal("STOP");
    std::thread::scope(|scope| {
        let data = pattern(8 << 20, 32);
        std::fs::write(world.path("data"), &data).unwrap();
        let writing = scope.spawn(|| world.nbdcopy("data", &world.uri()));
        // The server answers every query while the file hangs.
        until(|| world.order(&["status", "tank"])["slots"][1]["state"] == "missing");
        writing.join().unwrap();
    });
    let status = world.order(&["status", "tank"]);
    assert_eq!((&status["state"], &status["writable"]), (&"critical".into(), &true.into()));
    let member = world.path("mnt/member").display().to_string();
    assert_eq!(status["faulty"][0]["name"], member, "{status}");
    assert!(world.content()[..8 << 20] == pattern(8 << 20, 32));
    // The member can be removed while it hangs, also by its path.
    world.order(&["remove", "tank", "mnt/member"]);
    world.order(&["status", "tank"]);
    fuse.signal("CONT");
    assert_eq!(server.terminate(), 0);
}
