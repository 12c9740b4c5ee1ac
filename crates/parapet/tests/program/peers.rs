//! Servers of other people, whose exports are members, and arrays of them.

use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use crate::wires::Shelf;
use crate::world::{Server, World, until};

/// A process that ends with its test.
pub struct Peer(Child);

impl Peer {
    pub fn start(world: &World, package: &str, words: &[&str]) -> Peer {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&world.folder).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Peer(child.unwrap_or_else(|_| panic!("{} is missing: install {package}", words[0])))
    }

    pub fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.0.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An nbdkit server of a file `dN` of 32 MiB on the socket `nN`, with these filters and parameters.
pub fn nbdkit(world: &World, number: usize, filters: &[&str], parameters: &[&str]) -> Peer {
    let (file, socket) = (format!("d{number}"), format!("n{number}"));
    if !world.path(&file).exists() {
        world.file(&file, 32 << 20);
    }
    let _ = std::fs::remove_file(world.path(&socket));
    let filters: Vec<String> = filters.iter().map(|filter| format!("--filter={filter}")).collect();
    let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
    let start = ["nbdkit", "-f", "--exit-with-parent", "-U", &socket];
    let words = [&start[..], &filters, &["file", &file], parameters].concat();
    let peer = Peer::start(world, "nbdkit", &words);
    // It exists before the server listens.
    until(|| UnixStream::connect(world.path(&socket)).is_ok());
    peer
}

/// A qemu-nbd server of the same file on the same socket; its write cache is volatile.
pub fn qemu_nbd(world: &World, number: usize) -> Peer {
    let (file, socket) = (format!("d{number}"), world.path(&format!("n{number}")));
    if !world.path(&file).exists() {
        world.file(&file, 32 << 20);
    }
    let _ = std::fs::remove_file(&socket);
    let listen = socket.display().to_string();
    let options = ["--format=raw", "--cache=writeback", "--persistent", "--shared=0"];
    let words = [&["qemu-nbd"], &options[..], &["--socket", &listen, &file]].concat();
    let peer = Peer::start(world, "qemu-utils", &words);
    until(|| UnixStream::connect(&socket).is_ok());
    peer
}

pub fn uri(number: usize) -> String {
    format!("nbd+unix:///?socket=n{number}")
}

/// Creates an array of this level on these members, and serves it.
pub fn serve(world: &World, level: &str, members: &[String]) -> Server {
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    world.ok(&[&["create", "tank", "--level", level, "--yes"], &names[..]].concat());
    world.serve_members(members)
}

/// Waits until the member in this slot is in this state.
pub fn until_slot(world: &World, slot: usize, state: &str) {
    until(|| world.order(&["status", "tank"])["slots"][slot]["state"] == state);
}

pub fn vblade(world: &World, shelf: &Shelf, slot: usize) -> Peer {
    let (file, slot) = (format!("b{slot}"), slot.to_string());
    if !world.path(&file).exists() {
        world.file(&file, 32 << 20);
    }
    let words = shelf.within(&["vblade", "1", &slot, &shelf.far[0], &file]);
    Peer::start(world, "vblade", &words)
}
