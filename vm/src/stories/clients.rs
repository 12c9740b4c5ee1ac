//! The kernel's own NBD client, with four connections: a file system is used on an array that
//! Parapet serves, also while a member is lost and rebuilt, and while the server goes and comes
//! back.
//!
//! ```text
//!   guest   kernel nbd ── ext4, XFS ── four files in every way (inside/exercise.rs), a tree
//!                │ 4 × TCP
//!   host    parapet serve ── fail, remove, add ── end, stop, kill, serve again
//! ```

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;

use crate::failure::{Failure, Result, ensure};
use crate::kernel::Guest;
use crate::parapet::Server;
use crate::stories::{Stage, Story};

pub(super) const STORIES: &[Story] = &[
    Story { name: "nbd client, ext4", run: |stage| steady(stage, "ext4", ("5", "1")) },
    Story { name: "nbd client, xfs", run: |stage| steady(stage, "xfs", ("6", "2")) },
    Story {
        name: "nbd client while a member is rebuilt, ext4",
        run: |stage| rebuilt(stage, "ext4", "5"),
    },
    Story {
        name: "nbd client while a member is rebuilt, xfs",
        run: |stage| rebuilt(stage, "xfs", "10"),
    },
    Story {
        name: "nbd client while the server restarts, ext4",
        run: |stage| restarted(stage, "ext4", "6"),
    },
    Story {
        name: "nbd client while the server restarts, xfs",
        run: |stage| restarted(stage, "xfs", "5"),
    },
];

/// XFS is made on 300 MiB at the least.
const MEMBER_BYTES: u64 = 192 << 20;
const MEMBERS: [&str; 4] = ["m0", "m1", "m2", "m3"];
const SPARE: &str = "spare";
/// Of each file, before and after the events meanwhile.
const STEPS: u64 = 60;
/// Of the workers on the file system; as in `vm/guest/exercise.sh`.
const WORKERS: u64 = 4;

/// An array, and a guest's parameters.
fn array<'a>(stage: &'a Stage<'_>, level: &str, threads: &str) -> Result<Server<'a>> {
    for name in MEMBERS.iter().chain(&[SPARE]) {
        std::fs::File::create(stage.path(name))?.set_len(MEMBER_BYTES)?;
    }
    let words = ["create", "tank", "--yes", "--level", level, "--chunk", "64K"];
    stage.parapet.run(&[&words[..], &MEMBERS].concat())?;
    stage.tree()?;
    let address = format!("tcp:127.0.0.1:{}", free_port()?);
    stage.parapet.serve(&MEMBERS, &["--nbd", &address, "--threads", threads])
}

/// A free port below those that Linux gives to outgoing connections (32768 and up). A client that
/// keeps connecting to the port of a stopped server could otherwise get that port for itself, and
/// connect to itself: then the server cannot start again.
fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 8_000) as u16;
    let mut ports = (0..4_000).map(|_| first + NEXT.fetch_add(1, Ordering::Relaxed) % 4_000);
    let free = ports.find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    free.ok_or_else(|| Failure::new("no free port from 20000 to 32000"))
}

/// Where NBD clients of TCP find the server.
fn address(server: &Server<'_>) -> Result<String> {
    let all = server.process.ready["data"]["nbd"].as_array().into_iter().flatten();
    let tcp = all.filter_map(Value::as_str).find(|address| address.starts_with("tcp:"));
    tcp.map(str::to_owned).ok_or_else(|| Failure::new(format!("no port: {}", server.process.ready)))
}

/// Writes the guest's parameters, and starts it.
fn set(stage: &Stage<'_>, server: &Server<'_>, (fs, connect): (&str, &str)) -> Result {
    let address = address(server)?;
    let port = address.rsplit(':').next().unwrap_or_default();
    let vm = std::env::current_exe()?;
    stage.set(&[
        ("fs", fs),
        ("port", port),
        ("connect", connect),
        ("vm", &vm.display().to_string()),
    ])
}

/// Nothing happens but use.
fn steady(stage: &Stage<'_>, fs: &str, (level, threads): (&str, &str)) -> Result {
    let server = array(stage, level, threads)?;
    set(stage, &server, (fs, "connect"))?;
    stage.newer.get()?.run("clients/steady", &stage.parapet.folder)?;
    server.wait_until_idle(true)?;
    server.scrub()?;
    server.stop()
}

/// How many steps the slowest worker has done.
fn steps(stage: &Stage<'_>) -> u64 {
    let done = |seed| {
        let text = stage.text(&format!("progress.{seed}")).unwrap_or_default();
        text.parse().unwrap_or(0)
    };
    (1..=WORKERS).map(done).min().unwrap_or(0)
}

/// Until each worker has done some more.
pub(super) fn work_on(stage: &Stage<'_>, guest: &mut Guest) -> Result {
    let goal = steps(stage) + STEPS;
    guest.until("work on the file system", |guest| {
        guest.runs()?;
        Ok(steps(stage) >= goal)
    })
}

fn rebuilt(stage: &Stage<'_>, fs: &str, level: &str) -> Result {
    let server = array(stage, level, "1")?;
    set(stage, &server, (fs, "connect"))?;
    let kernel = stage.newer.get()?;
    let mut guest = kernel.boot("clients/meanwhile", &stage.parapet.folder)?;
    work_on(stage, &mut guest)?;
    server.order(&["fail", "tank", MEMBERS[1]])?;
    work_on(stage, &mut guest)?;
    server.order(&["remove", "tank", MEMBERS[1]])?;
    // While the client is at work it need not go faster than a MiB a second.
    server.order(&["speed", "tank", "--speed-min", "8M"])?;
    server.order(&["add", "tank", SPARE])?;
    server.wait_until_idle(true)?;
    work_on(stage, &mut guest)?;
    std::fs::write(stage.path("enough"), "")?;
    guest.finish()?;
    server.wait_until_idle(true)?;
    server.scrub()?;
    server.stop()
}

fn restarted(stage: &Stage<'_>, fs: &str, level: &str) -> Result {
    let server = array(stage, level, "1")?;
    set(stage, &server, (fs, "connect_again_and_again"))?;
    let address = address(&server)?;
    let again = || stage.parapet.serve(&MEMBERS, &["--nbd", &address]);
    let kernel = stage.newer.get()?;
    let mut guest = kernel.boot("clients/meanwhile", &stage.parapet.folder)?;
    work_on(stage, &mut guest)?;
    server.terminate()?;
    let server = again()?;
    work_on(stage, &mut guest)?;
    server.stop()?;
    let server = again()?;
    work_on(stage, &mut guest)?;
    server.kill()?;
    let server = again()?;
    work_on(stage, &mut guest)?;
    std::fs::write(stage.path("enough"), "")?;
    guest.finish()?;
    let links = stage.text("attached")?.lines().count();
    // More, where this machine is so busy that the kernel held one for dead.
    ensure(links >= 12, || format!("{links} connections were made again, not 12"))?;
    server.wait_until_idle(true)?;
    server.scrub()?;
    server.stop()
}
