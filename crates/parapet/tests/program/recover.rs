//! `parapet recover`: superblocks are lost in the ways in which people lose them, and what the
//! array was is found out, without a byte written.

use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::world::{Server, World};

/// A file system with directories in it, on an array of members `m0` and so on; gives its bytes.
fn filled(world: &World, level: &str, members: usize, more: &[&str]) -> Vec<u8> {
    let names: Vec<String> = (0..members).map(|index| format!("m{index}")).collect();
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    let start = ["create", "tank", "--level", level, "--new-files", "40M", "--yes"];
    world.ok(&[&start[..], more, &words].concat());
    let server = world.serve_members(&names);
    let capacity = server.ready["arrays"][0]["capacity_bytes"].as_u64().unwrap();
    for index in 0..60 {
        let folder = world.path(&format!("tree/{}/{index}", index % 7));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("file"), vec![index; 150_000]).unwrap();
    }
    world.file("image", capacity);
    world.tool("e2fsprogs", &["mke2fs", "-q", "-t", "ext4", "-b", "1024", "-d", "tree", "image"]);
    world.nbdcopy("image", &world.uri());
    world.settle();
    assert_eq!(server.terminate(), 0);
    std::fs::read(world.path("image")).unwrap()
}

/// Somebody has zeroed the beginning of each disk.
fn zero_superblocks(world: &World, members: usize) {
    for index in 0..members {
        let file = std::fs::File::options().write(true).open(world.path(&format!("m{index}")));
        file.unwrap().write_all_at(&[0; 8192], 0).unwrap();
    }
}

fn recover(world: &World, disks: &[&str], more: &[&str]) -> Value {
    world.json(&[&["recover"], disks, more].concat())["guesses"][0].clone()
}

fn serve(world: &World, disks: &[&str], more: &[&str]) -> Server {
    let flags = ["--nbd", "unix:nbd.sock", "--control", "unix:control.sock", "--json"];
    world.start(&[&["recover"], disks, more, &flags].concat())
}

/// The array, as it is served.
fn content(world: &World) -> Vec<u8> {
    let uri = world.uri().replace("/tank?", "/recovered?");
    let _ = std::fs::remove_file(world.path("content"));
    world.nbdcopy(&uri, "content");
    std::fs::read(world.path("content")).unwrap()
}

#[test]
fn zeroed_superblocks_and_disks_in_any_order() {
    let cases: [(&str, &str, &str, &[&str]); 5] = [
        ("0", "original", "64K", &["m2", "m0", "m3", "m1"]),
        ("5", "left-symmetric", "64K", &["m3", "m1", "m0", "m2"]),
        ("5", "right-symmetric", "16K", &["m1", "m0", "m3", "m2"]),
        ("6", "ddf-N-restart", "128K", &["m2", "m1", "m3", "m0"]),
        ("10", "f2", "256K", &["m1", "m3", "m2", "m0"]),
    ];
    for (level, layout, chunk, disks) in cases {
        let world = World::new();
        let before = filled(&world, level, 4, &["--layout", layout, "--chunk", chunk]);
        zero_superblocks(&world, 4);
        let members = ["m0", "m1", "m2", "m3"].map(|name| std::fs::read(world.path(name)).unwrap());
        let guess = recover(&world, disks, &[]);
        assert_eq!(guess["level"], format!("raid{level}"), "{guess}");
        assert_eq!(guess["layout"], layout, "{guess}");
        assert_eq!(guess["disks"], serde_json::json!(["m0", "m1", "m2", "m3"]), "{guess}");
        assert_eq!(guess["signs"], guess["signs_tried"], "{guess}");
        assert!(guess["mdadm"].as_str().unwrap().ends_with("m0 m1 m2 m3"), "{guess}");
        let server = serve(&world, disks, &[]);
        assert!(content(&world) == before, "raid{level} {layout}");
        assert_eq!(server.terminate(), 0);
        let after = ["m0", "m1", "m2", "m3"].map(|name| std::fs::read(world.path(name)).unwrap());
        assert!(members == after, "a byte of a member has changed");
    }
}

#[test]
fn a_disk_is_missing_too() {
    for (level, chunk) in [("5", "32K"), ("6", "64K")] {
        let world = World::new();
        let before = filled(&world, level, 5, &["--chunk", chunk]);
        zero_superblocks(&world, 5);
        let disks = ["m4", "m0", "m3", "m1"];
        let guess = recover(&world, &disks, &["--members", "5"]);
        assert_eq!(guess["layout"], "left-symmetric", "{guess}");
        assert_eq!(guess["disks"], serde_json::json!(["m0", "m1", null, "m3", "m4"]), "{guess}");
        assert!(guess["mdadm"].as_str().unwrap().ends_with("m0 m1 missing m3 m4"), "{guess}");
        let server = serve(&world, &disks, &["--members", "5"]);
        assert!(content(&world) == before, "raid{level}");
        assert_eq!(server.terminate(), 0);
    }
}

/// Somebody has typed `create` where he meant `assemble`, with another level, chunk and order.
#[test]
fn another_array_was_created_over_it() {
    let world = World::new();
    let before = filled(&world, "5", 4, &["--chunk", "64K"]);
    let wrong = ["create", "oops", "--level", "6", "--chunk", "512K", "--metadata", "1.0", "--yes"];
    let over = "--overwrite-signature=linux_raid_member@0x1000";
    world.ok(&[&wrong[..], &[over, "m1", "m0", "m3", "m2"]].concat());
    let guess = recover(&world, &["m1", "m0", "m3", "m2"], &[]);
    assert_eq!(guess["level"], "raid5", "{guess}");
    assert_eq!(guess["chunk_bytes"], 65_536, "{guess}");
    assert_eq!(guess["disks"], serde_json::json!(["m0", "m1", "m2", "m3"]), "{guess}");
    let server = serve(&world, &["m1", "m0", "m3", "m2"], &[]);
    // Where its superblocks, at the end, and what goes with them, were put, data is lost.
    let kept = before.len() - (8 << 20);
    assert!(content(&world)[..kept] == before[..kept]);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn what_tells_nothing_is_no_array() {
    let world = World::new();
    let noise: Vec<u8> = crate::world::pattern(16 << 20, 5);
    for name in ["a", "b", "c"] {
        std::fs::write(world.path(name), &noise[name.len()..]).unwrap();
        world.file(&format!("{name}0"), 16 << 20);
    }
    world.refused(&["recover", "a0", "b0", "c0"], 5, "PPT-5001");
    world.refused(&["recover", "a", "b0", "c0"], 5, "PPT-5001");
    world.refused(&["recover", "a0", "b0", "--members", "1"], 5, "PPT-5001");
}
