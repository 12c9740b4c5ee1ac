//! Images of arrays made by a real kernel, read complete and with a member missing. The tests need
//! no such kernel. `vm/src/golden.rs` created the images.

use std::path::{Path, PathBuf};

use crate::world::{Server, World};

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Returns the folders of images.
fn arrays() -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(home()).unwrap().map(|entry| entry.unwrap());
    let mut arrays: Vec<_> = entries
        .map(|entry| (entry.file_name().to_str().unwrap().to_owned(), entry.path()))
        .collect();
    arrays.sort();
    assert_eq!(arrays.len(), 18, "images of vm/src/golden.rs");
    arrays
}

/// Unpacks the members.
fn unpack(world: &World, folder: &Path) -> Vec<String> {
    let mut members = Vec::new();
    while folder.join(format!("m{}.gz", members.len())).exists() {
        let name = format!("m{}", members.len());
        let packed = folder.join(format!("{name}.gz"));
        let unpack = format!("gzip -dc {} > {name}", packed.display());
        world.tool("gzip", &["sh", "-c", &unpack]);
        members.push(name);
    }
    assert!(members.len() > 1, "{}", folder.display());
    members
}

/// Unpacks the members of the array of this name; returns them and the array's size.
pub fn unpacked(world: &World, name: &str) -> (Vec<String>, u64) {
    let folder = home().join(name);
    (unpack(world, &folder), expected(&folder).len() as u64)
}

/// Returns the expected content: each 4 KiB block holds its number, from 1.
fn expected(folder: &Path) -> Vec<u8> {
    let bytes: usize =
        std::fs::read_to_string(folder.join("bytes")).unwrap().trim().parse().unwrap();
    let blocks = bytes.div_ceil(4096) as u64;
    let mut all: Vec<u8> = (1..=blocks).flat_map(|n| n.to_le_bytes().repeat(512)).collect();
    all.truncate(bytes);
    all
}

fn import(world: &World, members: &[String]) -> Server {
    let members: Vec<&str> = members.iter().rev().map(String::as_str).collect();
    let flags = ["--nbd", "unix:nbd.sock", "--control", "unix:control.sock", "--json"];
    world.start(&[&["import"], &members[..], &flags].concat())
}

/// Reads the default export.
fn content(world: &World) -> Vec<u8> {
    let _ = std::fs::remove_file(world.path("content"));
    world.nbdcopy(&world.uri().replace("/tank?", "/?"), "content");
    std::fs::read(world.path("content")).unwrap()
}

#[test]
fn the_kernels_arrays_are_read_and_not_touched() {
    for (name, folder) in arrays() {
        let world = World::new();
        let mut members = unpack(&world, &folder);
        let bytes = |members: &[String]| -> Vec<Vec<u8>> {
            members.iter().map(|member| std::fs::read(world.path(member)).unwrap()).collect()
        };
        let before = bytes(&members);
        let server = import(&world, &members);
        let array = &server.ready["arrays"][0];
        assert_eq!(array["level"], name.split('-').next().unwrap(), "{name}: {array}");
        let state = if name.contains("degraded") { "healthy" } else { "degraded" };
        assert_ne!(array["state"], state, "{name}: {array}");
        assert!(content(&world) == expected(&folder), "{name}");
        assert_eq!(server.terminate(), 0);
        assert!(bytes(&members) == before, "{name}: a byte of a member has changed");
        let can_lose = !["linear", "raid0"].contains(&name.as_str())
            && (!name.contains("degraded") && !name.contains("dirty") || name.contains("raid6"));
        if can_lose {
            members.remove(0);
            let server = import(&world, &members);
            assert!(content(&world) == expected(&folder), "{name} without a member");
            assert_eq!(server.terminate(), 0);
        }
    }
}

#[test]
fn the_kernels_arrays_are_taken_over_and_agree_with_their_redundancy() {
    for (name, folder) in arrays() {
        // Superblocks of version 0.90 are read-only, and a level without redundancy cannot be
        // scrubbed.
        if name.contains("0.90") || ["linear", "raid0"].contains(&name.as_str()) {
            continue;
        }
        let world = World::new();
        let members = unpack(&world, &folder);
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        let more: &[&str] = if name.contains("degraded") { &["--degraded"] } else { &[] };
        let server = world.serve(&[&["golden"], &members[..], more].concat());
        world.order(&["wait", "golden", "--timeout", "600", "--quiet"]);
        if name != "raid5-degraded" {
            world.order(&["scrub", "golden"]);
            let status = world.order(&["wait", "golden", "--timeout", "600", "--quiet"]);
            assert_eq!(status["array"]["last_scrub"]["mismatches"], 0, "{name}: {status}");
        }
        assert!(content(&world) == expected(&folder), "{name}");
        assert_eq!(server.terminate(), 0);
    }
}
