//! `parapet recover`: superblocks are lost in several realistic ways. The program identifies the
//! array without writing a byte.

use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::world::{Server, World};

/// Creates a file system with directories on an array of members `m0` and so on; returns its bytes.
fn filled(world: &World, level: &str, members: usize, more: &[&str]) -> Vec<u8> {
    let names: Vec<String> = (0..members).map(|index| format!("m{index}")).collect();
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    let start = ["create", "tank", "--level", level, "--new-files", "40M", "--yes"];
    world.ok(&[&start[..], more, &words].concat());
    let server = world.serve_members(&names);
    let capacity = server.ready["arrays"][0]["capacity_bytes"].as_u64().unwrap();
    file_system(world, (capacity, 150_000), &[]);
    world.nbdcopy("image", &world.uri());
    world.wait_until_idle();
    assert_eq!(server.terminate(), 0);
    std::fs::read(world.path("image")).unwrap()
}

/// Creates the file `image`: a file system of this size, with files of this size in directories.
fn file_system(world: &World, (bytes, file_bytes): (u64, usize), more: &[&str]) {
    for index in 0..60 {
        let folder = world.path(&format!("tree/{}/{index}", index % 7));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("file"), vec![index; file_bytes]).unwrap();
    }
    world.file("image", bytes);
    let make = ["mke2fs", "-q", "-t", "ext4", "-b", "1024", "-d", "tree"];
    world.tool("e2fsprogs", &[&make[..], more, &["image"]].concat());
}

/// Unpacks an array that a real kernel made, and adds a small file system; returns members and
/// bytes.
fn golden(world: &World, name: &str) -> (Vec<String>, Vec<u8>) {
    golden_with(world, name, ("600", "400"))
}

/// The same, with `group` blocks per group and `inodes` inodes.
fn golden_with(world: &World, name: &str, (group, inodes): (&str, &str)) -> (Vec<String>, Vec<u8>) {
    let (members, capacity) = crate::golden::unpacked(world, name);
    let words: Vec<&str> = members.iter().map(String::as_str).collect();
    let server = world.serve(&[&["golden"], &words[..]].concat());
    // Several groups, as in larger file systems.
    let small = ["-g", group, "-N", inodes, "-O", "^has_journal,^resize_inode,^flex_bg"];
    file_system(world, (capacity, 10_000), &small);
    world.nbdcopy("image", &world.uri().replace("/tank?", "/golden?"));
    world.order(&["wait", "golden", "--timeout", "600", "--quiet"]);
    assert_eq!(server.terminate(), 0);
    (members, std::fs::read(world.path("image")).unwrap())
}

/// Realistic ways to lose superblocks.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// Zeros up to the data offset.
    Zeroed,
    /// `mdadm --zero-superblock`.
    Removed,
    /// `create` instead of `assemble`: another chunk size, members in reverse order.
    Created(&'static str),
    /// A partition table of this kind.
    Partitioned(&'static str),
}

impl Loss {
    fn befalls(self, world: &World, members: &[String]) {
        for member in members {
            let file = std::fs::File::options().write(true).open(world.path(member)).unwrap();
            match self {
                Loss::Zeroed => file.write_all_at(&[0; 1 << 20], 0).unwrap(),
                Loss::Removed => {
                    world.tool("mdadm", &["mdadm", "--zero-superblock", member]);
                }
                // Disks may be larger than the size that the kernel used. Without the reserve,
                // writes at the end would overwrite data. So would the log that `create` puts in
                // front of the data with superblocks other than 1.0.
                Loss::Created(_) | Loss::Partitioned("gpt") => file.set_len(6 << 20).unwrap(),
                Loss::Partitioned(_) => {}
            }
        }
        let words: Vec<&str> = members.iter().rev().map(String::as_str).collect();
        if let Loss::Created(level) = self {
            let wrong = "create oops --chunk 128K --metadata 1.0 --consistency resync --bitmap off \
                         --checksums off --overwrite-signature linux_raid_member@0x1000 --yes \
                         --level";
            let wrong: Vec<&str> = wrong.split_whitespace().chain([level]).collect();
            world.ok(&[&wrong[..], &words].concat());
        }
        if let Loss::Partitioned(label) = self {
            for member in members {
                let table = format!("printf 'label: {label}\\n,\\n' | sfdisk -q {member}");
                world.tool("fdisk", &["sh", "-c", &table]);
            }
        }
    }
}

/// Reads the bytes of the members.
fn bytes(world: &World, members: &[String]) -> Vec<Vec<u8>> {
    members.iter().map(|member| std::fs::read(world.path(member)).unwrap()).collect()
}

/// Zeroes the start of each disk.
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

/// Reads the served array.
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
fn a_kernels_array_is_found_again_whatever_befell_it() {
    let cases: [(&str, Loss, &str, u64); 8] = [
        ("raid4", Loss::Zeroed, "none", 32),
        ("raid5", Loss::Created("5"), "left-symmetric", 64),
        ("raid5-1.1", Loss::Removed, "right-asymmetric", 16),
        ("raid6", Loss::Partitioned("gpt"), "left-symmetric", 16),
        ("raid6-ddf", Loss::Zeroed, "ddf-N-continue", 64),
        ("raid10-near", Loss::Partitioned("dos"), "n2", 64),
        ("raid10-far", Loss::Removed, "f2", 16),
        ("raid1-1.0", Loss::Removed, "none", 0),
    ];
    for (name, loss, layout, chunk_kib) in cases {
        let world = World::new();
        let (members, before) = golden(&world, name);
        loss.befalls(&world, &members);
        let lost = bytes(&world, &members);
        let mut disks: Vec<&str> = members.iter().map(String::as_str).collect();
        disks.rotate_left(1);
        let guess = recover(&world, &disks, &["--whole"]);
        let level = name.split('-').next().unwrap();
        assert_eq!(guess["level"], level, "{name} {loss:?}: {guess}");
        assert_eq!(guess["layout"], layout, "{name} {loss:?}: {guess}");
        assert_eq!(guess["chunk_bytes"], chunk_kib << 10, "{name} {loss:?}: {guess}");
        // Copies of a mirror are identical: nothing identifies the first one.
        if layout != "n2" && level != "raid1" {
            assert_eq!(guess["disks"], serde_json::json!(members), "{name} {loss:?}: {guess}");
        }
        let server = serve(&world, &disks, &["--whole"]);
        // If a disk is larger than its used part, so is the recovered array.
        assert!(content(&world).starts_with(&before), "{name} {loss:?}");
        assert_eq!(server.terminate(), 0);
        assert!(bytes(&world, &members) == lost, "{name} {loss:?}: a byte of a member has changed");
    }
}

#[test]
fn a_guess_that_the_evidence_contradicts_is_never_a_command_to_copy() {
    let world = World::new();
    let before = filled(&world, "6", 6, &["--chunk", "64K"]);
    zero_superblocks(&world, 6);
    // One disk is missing and the user does not say so: the search tries that, and it fits.
    let five = ["m4", "m0", "m5", "m3", "m1"];
    let guess = recover(&world, &five, &[]);
    assert_eq!(guess["disks"], serde_json::json!(["m0", "m1", null, "m3", "m4", "m5"]), "{guess}");
    assert_eq!(guess["verdict"], "fits", "{guess}");
    let write = guess["write"].as_str().unwrap();
    assert_eq!(write, "parapet recover m4 m0 m5 m3 m1 --members 6 --write");
    // With a forced count of five, no candidate fits.
    let wrong = [&["recover"], &five[..], &["--members", "5"]].concat();
    let report = world.json(&wrong);
    assert_eq!(report["guesses"][0]["verdict"], "contradicted", "{report}");
    assert_eq!(report["guesses"][0]["mdadm"], "", "{report}");
    assert!(report["hint"].as_str().unwrap().contains("--members 6"), "{report}");
    let text = world.ok(&wrong);
    assert!(text.contains("nothing fits well") && !text.contains("for good"), "{text}");
    assert!(!text.contains("mdadm"), "{text}");
    world.refused(&[&wrong[..], &["--write", "--yes"]].concat(), 3, "PPT-3006");
    // The printed command works as described.
    let words: Vec<&str> = write.split(' ').skip(1).collect();
    world.ok(&[&words[..], &["--yes"]].concat());
    let server = world.serve(&[&["recovered"], &five[..]].concat());
    assert!(content(&world) == before);
    assert_eq!(server.terminate(), 0);
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
        // With a known order, the user also names the gap.
        let named = ["--in-order", "m0", "m1", "missing", "m3", "m4"];
        let report = recover(&world, &named, &[]);
        assert_eq!((&report["disks"], &report["alike"]), (&guess["disks"], &0.into()), "{report}");
        let unsaid = ["recover", "--in-order", "m0", "m1", "m3", "m4", "--members", "5"];
        world.refused(&unsaid, 5, "PPT-5001");
        let server = serve(&world, &disks, &["--members", "5"]);
        assert!(content(&world) == before, "raid{level}");
        assert_eq!(server.terminate(), 0);
    }
}

/// The user ran `create` instead of `assemble`, with another level, chunk size and order.
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
    // Superblocks of 1.0 and their reserved area, under 5 MiB a member, replaced its last data.
    let kept = before.len() - 3 * (5 << 20);
    assert!(content(&world)[..kept] == before[..kept]);
    assert_eq!(server.terminate(), 0);
    world.ok(&["recover", "m1", "m0", "m3", "m2", "--write", "--yes"]);
    let report = world.ok(&["examine", "m0", "m1", "m2", "m3"]);
    assert!(report.contains("recovered") && !report.contains("oops"), "{report}");
}

/// Runs the commands in the copies' manifest.
fn undo(world: &World, folder: &str) {
    let manifest = std::fs::read(format!("{folder}/undo.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    for piece in manifest["pieces"].as_array().unwrap() {
        world.tool("coreutils", &["sh", "-c", piece["restore"].as_str().unwrap()]);
    }
}

#[test]
fn superblocks_are_written_once_that_is_wanted() {
    let cases = [
        ("raid5", Loss::Partitioned("dos"), "left-symmetric", "64K"),
        ("raid6", Loss::Removed, "left-symmetric", "16K"),
        ("raid10-far", Loss::Partitioned("dos"), "far=2", "16K"),
    ];
    for (name, loss, layout, chunk) in cases {
        let world = World::new();
        let (members, before) = golden(&world, name);
        loss.befalls(&world, &members);
        let lost = bytes(&world, &members);
        let mut disks: Vec<&str> = members.iter().map(String::as_str).collect();
        disks.rotate_right(1);
        let write = [&["recover"], &disks[..], &["--write", "--whole"]].concat();
        let plan = world.json(&[&write[..], &["--dry-run"]].concat());
        assert_eq!((&plan["done"], &plan["uuid"]), (&false.into(), &Value::Null), "{plan}");
        let warned = plan["warnings"].to_string().contains("keeps a partition table");
        assert_eq!(warned, matches!(loss, Loss::Partitioned(_)), "{name}: {plan}");
        world.refused(&write, 3, "PPT-3002");
        assert!(bytes(&world, &members) == lost, "{name}: a byte of a member has changed");
        let yes = [&write[..], &["--yes"]].concat();
        undo(&world, world.json(&yes)["undo"].as_str().unwrap());
        assert!(bytes(&world, &members) == lost, "{name}: the copies are not what was there");
        assert_eq!(world.json(&yes)["done"], true);
        for (slot, member) in members.iter().enumerate() {
            let report = world.tool("mdadm", &["mdadm", "--examine", member]);
            let level = name.split('-').next().unwrap();
            for (what, is) in [("Raid Level", level), ("Layout", layout), ("Chunk Size", chunk)] {
                assert!(report.contains(&format!("{what} : {is}\n")), "{what} {is}: {report}");
            }
            assert!(report.contains(&format!("Device Role : Active device {slot}\n")), "{report}");
        }
        let server = world.serve(&[&["recovered"], &disks[..]].concat());
        world.order(&["scrub", "recovered"]);
        let status = world.order(&["wait", "recovered", "--timeout", "600", "--quiet"]);
        assert_eq!(status["array"]["last_scrub"]["mismatches"], 0, "{name}: {status}");
        assert_eq!(status["array"]["writable"], true, "{name}: {status}");
        assert!(content(&world).starts_with(&before), "{name}");
        assert_eq!(server.terminate(), 0);
    }
}

/// All file-system signatures are on one disk: the others could be in any order.
#[test]
fn several_orders_are_not_chosen_from_by_chance() {
    let world = World::new();
    let (members, before) = golden_with(&world, "raid5", ("512", "160"));
    Loss::Removed.befalls(&world, &members);
    let mut disks: Vec<&str> = members.iter().map(String::as_str).collect();
    disks.rotate_left(1);
    assert_ne!(recover(&world, &disks, &[])["alike"], 0);
    let write = ["--write", "--yes"];
    let report = world.refused(&[&["recover"], &disks[..], &write].concat(), 3, "PPT-3006");
    // With so little evidence, another layout fits as well.
    assert!(report.contains("--choose"), "{report}");
    let chosen = ["recover", "--choose", "1"];
    let report = world.refused(&[&chosen, &disks[..], &write].concat(), 3, "PPT-3006");
    assert!(report.contains("--in-order"), "{report}");
    disks.rotate_right(1);
    let guess = recover(&world, &disks, &["--in-order"]);
    assert_eq!((&guess["disks"], &guess["alike"]), (&serde_json::json!(members), &0.into()));
    world.ok(&[&["recover", "--in-order"], &disks[..], &write].concat());
    let server = world.serve(&[&["recovered"], &disks[..]].concat());
    assert!(content(&world).starts_with(&before));
    assert_eq!(server.terminate(), 0);
}

/// Each disk has its own partition table, which is not the start of the array.
#[test]
fn partition_tables_on_every_disk_do_not_lead_astray() {
    let world = World::new();
    let (members, _) = golden_with(&world, "raid6", ("512", "160"));
    Loss::Partitioned("gpt").befalls(&world, &members);
    let disks: Vec<&str> = members.iter().map(String::as_str).collect();
    let guess = recover(&world, &disks, &["--whole"]);
    assert_eq!((&guess["level"], &guess["layout"]), (&"raid6".into(), &"left-symmetric".into()));
}

#[test]
fn what_cannot_be_written_is_refused() {
    let world = World::new();
    filled(&world, "0", 3, &["--chunk", "64K"]);
    zero_superblocks(&world, 3);
    let write = ["recover", "m0", "m1", "m2", "--write", "--yes"];
    let usage = world.run(&[&write[..], &["--nbd", "unix:nbd.sock"]].concat());
    assert_eq!(usage.code, 2, "{usage:?}");
    let report = world.refused(&["recover", "m0", "m1", "m2", "--yes"], 2, "PPT-2001");
    assert!(report.contains("--write"), "{report}");
    let members = ["m0", "m1", "m2"].map(String::from);
    let lost = bytes(&world, &members);
    // The content of a missing disk cannot be checked.
    let missing = ["recover", "m0", "m1", "--members", "3", "--level", "0", "--write", "--yes"];
    let report = world.refused(&missing, 3, "PPT-3007");
    assert!(report.contains("slot 2 of 3 is missing"), "{report}");
    // In an image, at the start of a partition that is found.
    for member in &members {
        let name = format!("{member}.img");
        let content = [vec![0; 1 << 20], std::fs::read(world.path(member)).unwrap()].concat();
        std::fs::write(world.path(&name), content).unwrap();
        let table = format!("echo 'start=2048' | sfdisk -q {name}");
        world.tool("fdisk", &["sh", "-c", &table]);
    }
    let images = ["recover", "m0.img", "m1.img", "m2.img", "--write", "--yes"];
    let report = world.refused(&images, 3, "PPT-3006");
    assert!(report.contains("m0.img:p1 is a partition") && report.contains("losetup"), "{report}");
    assert!(bytes(&world, &members) == lost, "a byte of a member has changed");
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

#[test]
fn as_many_members_are_tried_as_an_array_can_have() {
    let world = World::new();
    world.file("d0", 16 << 20);
    world.file("d1", 16 << 20);
    world.refused(&["recover", "d0", "d1", "--members", "129"], 2, "PPT-2001");
    let ran = world.run(&["recover", "d0", "d1", "--members", "128", "--level", "5", "--json"]);
    assert_ne!(ran.code, 2, "{ran:?}");
}
