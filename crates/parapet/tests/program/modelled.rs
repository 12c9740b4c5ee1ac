//! `model:DISK:FILE` as members: real data, the times of disks that are not there.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::world::World;

const CHEETAH_BYTES: u64 = 73_407_864_832;

fn named(files: &[&str]) -> Vec<String> {
    files.iter().map(|file| format!("model:cheetah-15k5:{file}")).collect()
}

fn create<'a>(members: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    let words = [&["create", "tank", "--level", "5", "--chunk", "64K", "--yes"], more].concat();
    words.into_iter().chain(members.iter().map(String::as_str)).collect()
}

#[test]
fn an_array_of_modelled_disks_has_their_sizes_and_keeps_its_data() {
    let world = World::new();
    let members = named(&["m0", "m1", "m2"]);
    world.ok(&create(&members, &[]));
    for file in ["m0", "m1", "m2"] {
        let stat = std::fs::metadata(world.path(file)).unwrap();
        assert_eq!(stat.len(), CHEETAH_BYTES);
        assert!(stat.blocks() * 512 < 8 << 20, "{file} is sparse");
    }
    let server = world.serve_members(&members);
    let array = world.order(&["status", "tank"]);
    let whole = format!("model:cheetah-15k5:{}", world.path("m1").display());
    assert_eq!(array["slots"][1]["member"]["name"], *whole, "{array}");
    assert_eq!(array["state"], "healthy");
    world.qemu_io(&["write -P 7 1M 3M", "flush"]);

    // A member leaves by its name as typed, another joins.
    world.order(&["fail", "tank", &members[1]]);
    world.order(&["remove", "tank", &members[1]]);
    world.qemu_io(&["read -P 7 1M 3M"]);
    world.order_refused(&["add", "tank", "model:cheetah-15k5:m9"], 5, "PPT-5003");
    world.order_refused(&["add", "tank", "model:none:m1"], 2, "PPT-2001");
    world.order_refused(&["add", "tank", &members[0]], 3, "PPT-3003");
    world.order(&["add", "tank", &members[1]]);
    assert_eq!(server.terminate(), 0, "{}", world.log());

    // The files are plain members.
    let examined = world.json(&["examine", "m0"]);
    let same = world.json(&["examine", &members[0]]);
    assert!(examined["disks"][0]["superblocks"].is_array());
    assert_eq!(examined["disks"][0]["superblocks"], same["disks"][0]["superblocks"]);
    world.tool("mdadm", &["mdadm", "--examine", "m0"]);
    let server = world.serve(&["tank", "--degraded", "m0", "m2"]);
    world.qemu_io(&["read -P 7 1M 3M"]);
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

#[test]
fn modelled_disks_are_created_smaller_and_refused_with_a_hint() {
    let world = World::new();
    let members = named(&["m0", "m1", "m2"]);
    world.ok(&create(&members, &["--new-files", "64M"]));
    assert_eq!(std::fs::metadata(world.path("m0")).unwrap().len(), 64 << 20);
    let text = world.refused(&["examine", "model:none:m0"], 2, "PPT-2001");
    assert!(text.contains("no modelled disk is called \"none\""), "{text}");
    assert!(text.contains("parapet lab disks"), "{text}");
    let text = world.refused(&["examine", "model:m0"], 2, "PPT-2001");
    assert!(text.contains("model:NAME:FILE"), "{text}");
    let twice = ["examine", "m0", &members[0]];
    assert_eq!(world.run(&twice).code, 0, "both are looked at, read-only");
    let twice = ["create", "t", "--level", "1", "m0", &members[0], "--yes"];
    world.refused(&twice, 3, "PPT-3004");
    let words = [&["serve", "tank", "--threads", "2", "--nbd", "unix:s"], &slices(&members)[..]];
    let text = world.refused(&words.concat(), 3, "PPT-3006");
    assert!(text.contains("a modelled member works with one thread only"), "{text}");
    // Nothing is left of a create that fails.
    let members = named(&["n0", "n1", "no-folder/n2"]);
    assert_ne!(world.run(&create(&members, &[])).code, 0);
    assert!(!Path::new(&world.path("n0")).exists());
}

fn slices(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}
