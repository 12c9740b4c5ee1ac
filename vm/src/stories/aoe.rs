//! The kernel's own AoE initiator: a file system is used on an array that Parapet serves, also
//! while a member is lost and rebuilt, and while the server goes and comes back.
//!
//! ```text
//!   guest   kernel aoe ── ext4 ── four files in every way (inside/exercise.rs)
//!                │ vec0
//!               tap
//!                │ AF_PACKET
//!   host    parapet serve --aoe 1.0@TAP ── fail, remove, add ── end, kill, serve again
//! ```

use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::failure::{Failure, Result, ensure};
use crate::kernel::Guest;
use crate::parapet::Server;
use crate::stories::clients::work_on;
use crate::stories::{Stage, Story};

pub(super) const STORIES: &[Story] = &[
    Story {
        name: "aoe client while a member is rebuilt, MTU 1500",
        run: |stage| rebuilt(stage, "5", (1500, 1024)),
    },
    Story {
        name: "aoe client while a member is rebuilt, MTU 4200",
        run: |stage| rebuilt(stage, "10", (4200, 4096)),
    },
    Story {
        name: "aoe client while the server restarts, MTU 9000",
        run: |stage| restarted(stage, "6", (9000, 8192)),
    },
];

const MEMBER_BYTES: u64 = 96 << 20;
const MEMBERS: [&str; 4] = ["m0", "m1", "m2", "m3"];
const SPARE: &str = "spare";

/// A cable between a guest and the host; it goes with this value.
struct Tap {
    name: String,
    mtu: u32,
}

impl Tap {
    fn new(mtu: u32) -> Result<Tap> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let tap = Tap { name: format!("ppt{}x{number}", std::process::id()), mtu };
        ip(&["tuntap", "add", &tap.name, "mode", "tap"])?;
        ip(&["link", "set", &tap.name, "mtu", &mtu.to_string(), "up"])?;
        Ok(tap)
    }

    /// What the guest's kernel is told of it.
    fn word(&self) -> String {
        format!("vec0:transport=tap,ifname={},depth=64,gro=0,mtu={}", self.name, self.mtu)
    }

    fn export(&self) -> [String; 2] {
        ["--aoe".into(), format!("1.0@{}", self.name)]
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let _ = ip(&["link", "del", &self.name]);
    }
}

fn ip(words: &[&str]) -> Result {
    let done = Command::new("ip").args(words).output()?;
    let why = || format!("ip {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    ensure(done.status.success(), why)
}

/// An array, served on the tap.
fn array<'a>(stage: &'a Stage<'_>, level: &str, tap: &Tap) -> Result<Server<'a>> {
    for name in MEMBERS.iter().chain(&[SPARE]) {
        std::fs::File::create(stage.path(name))?.set_len(MEMBER_BYTES)?;
    }
    let words = ["create", "tank", "--yes", "--level", level, "--chunk", "64K"];
    stage.parapet.run(&[&words[..], &MEMBERS].concat())?;
    serve(stage, tap)
}

fn serve<'a>(stage: &'a Stage<'_>, tap: &Tap) -> Result<Server<'a>> {
    let [flag, export] = tap.export();
    stage.parapet.serve(&MEMBERS, &[&flag, &export])
}

/// Starts the guest, which uses the array until it is told that it is enough.
fn boot(stage: &Stage<'_>, tap: &Tap, (mtu, payload): (u32, u32)) -> Result<Guest> {
    let vm = std::env::current_exe()?;
    stage.set(&[
        ("port", "vec0"),
        ("mtu", &mtu.to_string()),
        ("expected", &payload.to_string()),
        ("vm", &vm.display().to_string()),
    ])?;
    stage.kernel.boot_with("aoe/meanwhile", &stage.parapet.folder, &[tap.word()])
}

fn rebuilt(stage: &Stage<'_>, level: &str, sizes: (u32, u32)) -> Result {
    let tap = Tap::new(sizes.0)?;
    let server = array(stage, level, &tap)?;
    let mut guest = boot(stage, &tap, sizes)?;
    work_on(stage, &mut guest)?;
    server.order(&["fail", "tank", MEMBERS[1]])?;
    work_on(stage, &mut guest)?;
    server.order(&["remove", "tank", MEMBERS[1]])?;
    // While the client is at work it need not go faster than a MiB a second.
    server.order(&["speed", "tank", "--speed-min", "8M"])?;
    server.order(&["add", "tank", SPARE])?;
    server.wait_until_idle(true)?;
    work_on(stage, &mut guest)?;
    end(stage, guest, &server)?;
    server.stop()
}

fn restarted(stage: &Stage<'_>, level: &str, sizes: (u32, u32)) -> Result {
    let tap = Tap::new(sizes.0)?;
    let server = array(stage, level, &tap)?;
    let mut guest = boot(stage, &tap, sizes)?;
    work_on(stage, &mut guest)?;
    server.terminate()?;
    let server = serve(stage, &tap)?;
    work_on(stage, &mut guest)?;
    // Killed: what was answered is durable, or at least in the members' page cache here.
    server.kill()?;
    let server = serve(stage, &tap)?;
    work_on(stage, &mut guest)?;
    end(stage, guest, &server)?;
    server.stop()
}

/// Ends the use of the array: all must be in order.
fn end(stage: &Stage<'_>, guest: Guest, server: &Server<'_>) -> Result {
    std::fs::write(stage.path("enough"), "")?;
    guest.finish()?;
    server.wait_until_idle(true)?;
    server.scrub().map_err(|why| Failure::new(format!("the scrub after use: {why}")))?;
    Ok(())
}
