//! The package in a fresh Debian root: installed, upgraded while a client writes and reads, and
//! removed.

use super::{folder, of, text};
use crate::failure::Failure;
use crate::shell;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Until the served array answers.
const PATIENCE: Duration = Duration::from_secs(60);
const PACKAGE: &str = "parapet.deb";
/// Members of the array that is served during the upgrade.
const MEMBERS: [&str; 2] = ["/m0", "/m1"];
const SOCKET: &str = "nbd.sock";

/// Tries the package.
pub(super) fn checked(root: &Path, package: &Path) -> Result<(), Failure> {
    let fresh = Fresh::make(root)?;
    fs::copy(package, fresh.path(PACKAGE)).map_err(|error| of(&fresh.0, &error))?;
    fresh.run(&["dpkg", "--install", PACKAGE])?;
    fresh.run(&["parapet", "--version"])?;
    administrators_story(root, &fresh)?;
    fresh.upgrade_under_load()?;
    fresh.run(&["dpkg", "--purge", "parapet"])?;
    let left = ["usr/bin/parapet", "lib/systemd/system/parapet@.service", "usr/share/doc/parapet"];
    match left.iter().find(|path| fresh.path(path).exists()) {
        None => Ok(()),
        Some(path) => Err(Failure::new(format!("{path} is left after the removal"), "remove it")),
    }
}

/// Runs every block of `docs/admin.md` with the installed program and unit.
fn administrators_story(root: &Path, fresh: &Fresh) -> Result<(), Failure> {
    let story = "admin::every_block_of_the_administrators_story_works";
    let test = [&shell::cargo(), "test", "--locked", "-p", "parapet", "--test", "program"];
    let exact = ["--", "--exact", story];
    let mut command = shell::command(root, &[&test[..], &exact].concat());
    let status = command.env("PARAPET_INSTALLED", &fresh.0).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Failure::new("the package fails docs/admin.md", "see its messages above")),
    }
}

/// A Debian root.
struct Fresh(PathBuf);

impl Fresh {
    fn make(root: &Path) -> Result<Fresh, Failure> {
        let fresh = folder(root)?.join("root");
        if !fresh.exists() {
            shell::run(root, &["debootstrap", "--variant=minbase", "bookworm", text(&fresh)?])?;
        }
        Ok(Fresh(fresh))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A command inside of it.
    fn run(&self, words: &[&str]) -> Result<(), Failure> {
        shell::run(&self.0, &[&["chroot", "."], words].concat())
    }

    /// Installs the package again, which is an upgrade to dpkg, while a client of an array of the
    /// installed program writes and reads. The client keeps its connection.
    fn upgrade_under_load(&self) -> Result<(), Failure> {
        let create = ["parapet", "create", "tank", "--level", "1", "--new-files", "64M", "--yes"];
        self.run(&[&create[..], &MEMBERS].concat())?;
        let server = self.serve()?;
        let uri = format!("nbd+unix:///tank?socket={}", self.path(SOCKET).display());
        let begun = Instant::now();
        while !shell::succeeds(&self.0, &["nbdinfo", "--size", &uri]) {
            if begun.elapsed() > PATIENCE {
                return Err(Failure::new("the package serves no array", "see its messages above"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let mut client = Client::connect(&uri)?;
        client.round(1)?;
        let upgraded = AtomicBool::new(false);
        let (rounds, installed) = std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                let mut rounds = 0u32;
                while !upgraded.load(Ordering::Relaxed) {
                    rounds += 1;
                    client.round(rounds as u8)?;
                }
                // Once more with the upgraded program on disk.
                client.round(u8::MAX).map(|()| rounds)
            });
            let installed = self.run(&["dpkg", "--install", PACKAGE]);
            upgraded.store(true, Ordering::Relaxed);
            (load.join().expect("the load does not panic"), installed)
        });
        installed?;
        println!("upgrade: the client wrote and read {} times meanwhile", rounds?);
        drop(server);
        for name in MEMBERS {
            let path = self.path(&name[1..]);
            fs::remove_file(&path).map_err(|error| of(&path, &error))?;
        }
        Ok(())
    }

    fn serve(&self) -> Result<Running, Failure> {
        let listen = format!("unix:/{SOCKET}");
        let mut command = Command::new("chroot");
        command.args([".", "parapet", "serve", "tank"]).args(MEMBERS).args(["--nbd", &listen]);
        command.args(["--control", "unix:/control.sock"]).current_dir(&self.0);
        let server = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let failed = |error| Failure::new(format!("chroot: {error}"), "run it as root");
        Ok(Running(server.map_err(failed)?))
    }
}

/// A client with one connection, which qemu-io keeps.
struct Client {
    _process: Running,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Client {
    fn connect(uri: &str) -> Result<Client, Failure> {
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw", uri]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let failed = |error| Failure::new(format!("qemu-io: {error}"), "install qemu-utils");
        let mut process = command.spawn().map_err(failed)?;
        let (orders, answers) = (process.stdin.take(), process.stdout.take());
        let (Some(orders), Some(answers)) = (orders, answers) else {
            return Err(Failure::new("qemu-io has no pipes", "report this"));
        };
        Ok(Client { _process: Running(process), orders, answers: BufReader::new(answers) })
    }

    /// Writes a mebibyte of `pattern`, and reads it back.
    fn round(&mut self, pattern: u8) -> Result<(), Failure> {
        self.order(&format!("write -P {pattern} 0 1M\n"), "wrote 1048576/1048576")?;
        self.order(&format!("read -P {pattern} 0 1M\n"), "read 1048576/1048576")
    }

    /// Gives one order, and waits for its answer: qemu-io does not see a second one that is sent
    /// with the first.
    fn order(&mut self, order: &str, expected: &str) -> Result<(), Failure> {
        let lost = |what: &str| {
            let remedy = "an upgrade must not stop or restart a server";
            Failure::new(format!("the client lost its export: {what}"), remedy)
        };
        let sent = self.orders.write_all(order.as_bytes()).and_then(|()| self.orders.flush());
        sent.map_err(|error| lost(&error.to_string()))?;
        loop {
            let mut line = String::new();
            match self.answers.read_line(&mut line) {
                Ok(0) => return Err(lost("qemu-io has ended")),
                Err(error) => return Err(lost(&error.to_string())),
                Ok(_) if line.contains("ailed") || line.contains("rror") => {
                    return Err(lost(line.trim()));
                }
                Ok(_) if line.contains(expected) => return Ok(()),
                Ok(_) => {}
            }
        }
    }
}

/// Ends with this value.
pub(super) struct Running(pub(super) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
