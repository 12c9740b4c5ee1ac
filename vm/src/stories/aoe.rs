//! The kernel's own AoE initiator: a file system is used on an array that Parapet serves, also
//! while a member is lost and rebuilt, and while the server goes and comes back.
//!
//! ```text
//!   guest   kernel aoe ── ext4 ── four files in every way (inside/exercise.rs)
//!                │ vec0, vec1
//!               tap ── dumpcap: tshark must understand every frame
//!                │ AF_PACKET
//!   host    parapet serve --aoe 1.0@TAP ── fail, remove, add ── end, kill, serve again
//! ```

use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::capture::Capture;
use crate::failure::{Failure, Result, ensure};
use crate::kernel::Guest;
use crate::parapet::Server;
use crate::pattern;
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
    Story { name: "aoe client with two links, pulled in turn", run: two_links },
    Story { name: "aoe client of a server that is away for too long", run: outlived },
];

const MEMBER_BYTES: u64 = 96 << 20;
const MEMBERS: [&str; 4] = ["m0", "m1", "m2", "m3"];
const SPARE: &str = "spare";

/// The least answers that a story's client gets, which a recording of the wire must show.
const LEAST_ANSWERS: usize = 500;

/// A cable between a guest and the host, and a recording of it; it goes with this value.
struct Tap {
    name: String,
    mtu: u32,
    /// The server's interface: the tap, or the end of a cable behind a bridge.
    served: String,
    capture: Option<Capture>,
}

impl Tap {
    fn new(stage: &Stage<'_>, mtu: u32) -> Result<Tap> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ppt{}x{number}", std::process::id());
        let mut tap = Tap { served: name.clone(), name, mtu, capture: None };
        ip(&["tuntap", "add", &tap.name, "mode", "tap"])?;
        tap.set(&["mtu", &mtu.to_string(), "up"])?;
        let file = stage.path(&format!("{}.pcapng", tap.name));
        tap.capture = Some(Capture::start(&tap.name, file)?);
        Ok(tap)
    }

    fn set(&self, words: &[&str]) -> Result {
        ip(&[&["link", "set", &self.name], words].concat())
    }

    /// With a bridge and a cable between the tap and the server. The cable can be pulled: a tap
    /// that goes down is a broken device for user-mode Linux, not a broken wire.
    fn with_cable(mut self) -> Result<Tap> {
        let [bridge, inner, outer] = ["b", "i", "s"].map(|end| format!("{}{end}", self.name));
        let mtu = self.mtu.to_string();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&[
            "link", "add", &outer, "mtu", &mtu, "type", "veth", "peer", "name", &inner, "mtu", &mtu,
        ])?;
        for port in [&self.name, &inner] {
            ip(&["link", "set", port, "master", &bridge])?;
        }
        for each in [&bridge, &inner, &outer] {
            ip(&["link", "set", each, "up"])?;
        }
        self.served = outer;
        Ok(self)
    }

    /// Pulls the cable, or puts it back.
    fn plug(&self, state: &str) -> Result {
        ip(&["link", "set", &self.served, state])
    }

    /// What the guest's kernel is told of it, as its port of this number.
    fn word(&self, number: usize) -> String {
        let Tap { name, mtu, .. } = self;
        format!("vec{number}:transport=tap,ifname={name},depth=64,gro=0,mtu={mtu}")
    }

    /// The wire had no frame that an independent decoder does not understand.
    fn verify(&mut self) -> Result {
        self.capture.take().map_or(Ok(()), |capture| capture.verify(LEAST_ANSWERS))
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        for name in [&self.name, &self.served, &format!("{}b", self.name)] {
            let _ = ip(&["link", "del", name]);
        }
    }
}

fn ip(words: &[&str]) -> Result {
    let done = Command::new("ip").args(words).output()?;
    let why = || format!("ip {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    ensure(done.status.success(), why)
}

/// An array, served on the taps.
fn array<'a>(stage: &'a Stage<'_>, level: &str, taps: &[Tap]) -> Result<Server<'a>> {
    for name in MEMBERS.iter().chain(&[SPARE]) {
        std::fs::File::create(stage.path(name))?.set_len(MEMBER_BYTES)?;
    }
    let words = ["create", "tank", "--yes", "--level", level, "--chunk", "64K"];
    stage.parapet.run(&[&words[..], &MEMBERS].concat())?;
    serve(stage, taps)
}

fn serve<'a>(stage: &'a Stage<'_>, taps: &[Tap]) -> Result<Server<'a>> {
    let names: Vec<&str> = taps.iter().map(|tap| tap.served.as_str()).collect();
    stage.parapet.serve(&MEMBERS, &["--aoe", &format!("1.0@{}", names.join(","))])
}

/// Starts the guest, which uses the array until it is told that it is enough.
fn boot(stage: &Stage<'_>, taps: &[Tap], sizes: (u32, u32)) -> Result<Guest> {
    boot_with(stage, taps, sizes, "aoe/meanwhile", "60")
}

/// Starts the guest with this script; its driver waits for so many seconds for a silent server.
fn boot_with(
    stage: &Stage<'_>,
    taps: &[Tap],
    (mtu, payload): (u32, u32),
    script: &str,
    deadsecs: &str,
) -> Result<Guest> {
    let vm = std::env::current_exe()?;
    let ports: Vec<String> = (0..taps.len()).map(|number| format!("vec{number}")).collect();
    stage.set(&[
        ("ports", &ports.join(" ")),
        ("deadsecs", deadsecs),
        ("mtu", &mtu.to_string()),
        ("expected", &payload.to_string()),
        ("vm", &vm.display().to_string()),
    ])?;
    let words: Vec<String> = taps.iter().enumerate().map(|(at, tap)| tap.word(at)).collect();
    stage.kernel.boot_with(script, &stage.parapet.folder, &words)
}

fn rebuilt(stage: &Stage<'_>, level: &str, sizes: (u32, u32)) -> Result {
    let mut taps = [Tap::new(stage, sizes.0)?];
    let server = array(stage, level, &taps)?;
    let mut guest = boot(stage, &taps, sizes)?;
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
    server.stop()?;
    taps.iter_mut().try_for_each(Tap::verify)
}

fn restarted(stage: &Stage<'_>, level: &str, sizes: (u32, u32)) -> Result {
    let mut taps = [Tap::new(stage, sizes.0)?];
    let server = array(stage, level, &taps)?;
    let mut guest = boot(stage, &taps, sizes)?;
    work_on(stage, &mut guest)?;
    server.terminate()?;
    let server = serve(stage, &taps)?;
    work_on(stage, &mut guest)?;
    // Killed: what was answered is durable, or at least in the members' page cache here.
    server.kill()?;
    let server = serve(stage, &taps)?;
    work_on(stage, &mut guest)?;
    end(stage, guest, &server)?;
    server.stop()?;
    taps.iter_mut().try_for_each(Tap::verify)
}

fn two_links(stage: &Stage<'_>) -> Result {
    let sizes = (9000, 8192);
    let tap = || Tap::new(stage, sizes.0)?.with_cable();
    let mut taps = [tap()?, tap()?];
    let server = array(stage, "5", &taps)?;
    let mut guest = boot(stage, &taps, sizes)?;
    work_on(stage, &mut guest)?;
    for tap in &taps {
        tap.plug("down")?;
        work_on(stage, &mut guest)?;
        tap.plug("up")?;
        work_on(stage, &mut guest)?;
    }
    end(stage, guest, &server)?;
    server.stop()?;
    taps.iter_mut().try_for_each(Tap::verify)
}

fn outlived(stage: &Stage<'_>) -> Result {
    let sizes = (9000, 8192);
    let mut taps = [Tap::new(stage, sizes.0)?];
    let server = array(stage, "5", &taps)?;
    std::fs::write(stage.path("pattern"), pattern::bytes(8 << 20))?;
    let mut guest = boot_with(stage, &taps, sizes, "aoe/outlived", "5")?;
    let mut has_made = |name: &str| {
        guest.until(name, |guest| {
            guest.runs()?;
            Ok(stage.path(name).exists())
        })
    };
    has_made("written")?;
    server.kill()?;
    std::fs::write(stage.path("gone"), "")?;
    has_made("failed")?;
    let server = serve(stage, &taps)?;
    std::fs::write(stage.path("back"), "")?;
    guest.finish()?;
    server.wait_until_idle(true)?;
    server.scrub()?;
    server.stop()?;
    taps.iter_mut().try_for_each(Tap::verify)
}

/// Ends the use of the array: all must be in order.
fn end(stage: &Stage<'_>, guest: Guest, server: &Server<'_>) -> Result {
    std::fs::write(stage.path("enough"), "")?;
    guest.finish()?;
    server.wait_until_idle(true)?;
    server.scrub().map_err(|why| Failure::new(format!("the scrub after use: {why}")))?;
    Ok(())
}
