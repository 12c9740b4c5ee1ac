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

mod bad_wire;
mod killed;
mod relay;
mod resized;
mod tap;
mod tools;

use self::tap::Tap;
use crate::failure::{Failure, Result};
use crate::kernel::{Cable, Guest, Kernel};
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
    Story { name: "aoe client while the MTU changes", run: resized::grown_and_shrunk },
    Story {
        name: "aoe client whose server has a smaller MTU for a while",
        run: resized::shrunk_first,
    },
    Story { name: "aoe client that is killed while it writes", run: killed::killed },
    Story {
        name: "aoe client over a bad wire, MTU 1500",
        run: |stage| bad_wire::used(stage, "5", (1500, 1024), 1),
    },
    Story {
        name: "aoe client over a bad wire, MTU 9000",
        run: |stage| bad_wire::used(stage, "6", (9000, 8192), 2),
    },
    Story { name: "aoe client with the tools of aoetools", run: tools::tools },
];

/// Only the whole run has them.
pub(super) const LONG_STORIES: &[Story] =
    &[Story { name: "aoe client on Linux 6.12 while the MTU changes", run: resized::on_newer }];

const MEMBER_BYTES: u64 = 96 << 20;
const MEMBERS: [&str; 4] = ["m0", "m1", "m2", "m3"];
const SPARE: &str = "spare";

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
    serve_with(stage, taps, &[])
}

fn serve_with<'a>(stage: &'a Stage<'_>, taps: &[Tap], more: &[&str]) -> Result<Server<'a>> {
    let names: Vec<&str> = taps.iter().map(|tap| tap.served.as_str()).collect();
    let export = format!("1.0@{}", names.join(","));
    stage.parapet.serve(&MEMBERS, &[&["--aoe", &export], more].concat())
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
    boot_on(stage.kernel, stage, taps, (mtu, payload), (script, deadsecs))
}

/// The same, on this kernel.
fn boot_on(
    kernel: &Kernel,
    stage: &Stage<'_>,
    taps: &[Tap],
    (mtu, payload): (u32, u32),
    (script, deadsecs): (&str, &str),
) -> Result<Guest> {
    let vm = std::env::current_exe()?;
    let ports: Vec<String> = (0..taps.len()).map(|number| kernel.port(number)).collect();
    stage.set(&[
        ("ports", &ports.join(" ")),
        ("deadsecs", deadsecs),
        ("mtu", &mtu.to_string()),
        ("expected", &payload.to_string()),
        ("vm", &vm.display().to_string()),
    ])?;
    let cables: Vec<Cable> = taps.iter().map(Tap::cable).collect();
    kernel.boot_with(script, &stage.parapet.folder, &cables)
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
    has_made(stage, &mut guest, "written")?;
    server.kill()?;
    std::fs::write(stage.path("gone"), "")?;
    has_made(stage, &mut guest, "failed")?;
    let server = serve(stage, &taps)?;
    std::fs::write(stage.path("back"), "")?;
    guest.finish()?;
    server.wait_until_idle(true)?;
    server.scrub()?;
    server.stop()?;
    taps.iter_mut().try_for_each(Tap::verify)
}

/// Waits for the guest to make this file.
fn has_made(stage: &Stage<'_>, guest: &mut Guest, name: &str) -> Result {
    guest.until(name, |guest| {
        guest.runs()?;
        Ok(stage.path(name).exists())
    })
}

/// Ends the use of the array: all must be in order.
fn end(stage: &Stage<'_>, guest: Guest, server: &Server<'_>) -> Result {
    std::fs::write(stage.path("enough"), "")?;
    guest.finish()?;
    server.wait_until_idle(true)?;
    server.scrub().map_err(|why| Failure::new(format!("the scrub after use: {why}")))?;
    Ok(())
}
