//! Safety checks before data is destroyed: signatures, plans, confirmation, copies.

use serde_json::Value;

use crate::world::World;

/// Creates a file with the signature of a swap device.
fn swap(world: &World, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; 16 << 20];
    bytes[4086..4096].copy_from_slice(b"SWAPSPACE2");
    bytes[1_000_000] = 77;
    std::fs::write(world.path(name), &bytes).unwrap();
    bytes
}

#[test]
fn what_lies_on_a_disk_is_named_one_by_one_or_nothing_happens() {
    let world = World::new();
    let before = swap(&world, "a");
    world.file("b", 16 << 20);
    let create = ["create", "tank", "--level", "1", "--yes", "a", "b"];
    let message = world.refused(&create, 3, "PPT-3001");
    assert!(message.contains("--overwrite-signature=swap@0xff6"), "{message}");
    let wrong = [&create[..], &["--overwrite-signature=ext4@0x438"]].concat();
    world.refused(&wrong, 3, "PPT-3001");
    assert!(std::fs::read(world.path("a")).unwrap() == before, "a refusal writes nothing");
    let right = [&create[..], &["--overwrite-signature=swap@0xff6"]].concat();
    let plan = world.json(&right);
    assert_eq!(plan["done"], true);
    let examined = world.json(&["examine", "a"]);
    let signatures = examined["disks"][0]["signatures"].as_array().unwrap();
    assert_eq!(signatures.len(), 1, "the swap signature is gone: {signatures:?}");
    assert_eq!(signatures[0]["name"], "linux_raid_member");
    undo_restores(&world, plan["undo"].as_str().unwrap(), "a", &before);
}

#[test]
fn files_that_hold_something_else_are_not_overwritten() {
    let world = World::new();
    world.file("blank", 16 << 20);
    let begins = |name: &str, bytes: &[u8]| {
        let mut content = vec![0; 16 << 20];
        content[..bytes.len()].copy_from_slice(bytes);
        std::fs::write(world.path(name), &content).unwrap();
    };
    world.tool("qemu-utils", &["qemu-img", "create", "-q", "-f", "qcow2", "qcow2", "64M"]);
    std::fs::File::options()
        .write(true)
        .open(world.path("qcow2"))
        .unwrap()
        .set_len(16 << 20)
        .unwrap();
    begins("sqlite", b"SQLite format 3\0");
    begins("data", b"Dear diary,");
    for name in ["qcow2", "sqlite", "data"] {
        let create = ["create", "tank", "--level", "1", "--yes", "blank", name];
        let message = world.refused(&create, 3, "PPT-3001");
        assert!(message.contains(&format!("--overwrite-signature={name}@0x0")), "{message}");
    }
    // Each disk needs its own flag; the flag is valid for no other disk.
    std::fs::copy(world.path("data"), world.path("copy")).unwrap();
    let create = ["create", "tank", "--level", "1", "data", "copy"];
    let message = world.refused(&[&create[..], &["--yes"]].concat(), 3, "PPT-3001");
    let flags = ["--overwrite-signature=data:data@0x0", "--overwrite-signature=copy:data@0x0"];
    assert!(message.contains(&flags.join(" ")), "{message}");
    world.refused(&[&create[..], &["--yes", flags[0]]].concat(), 3, "PPT-3001");
    // The plan is shown nevertheless, with the obstacles.
    let plan = world.json(&[&create[..], &["-n"]].concat());
    assert!(plan["warnings"].to_string().contains(flags[1]), "{plan}");
    world.ok(&[&create[..], &["--yes"], &flags].concat());
    let message = world.refused(&[&create[..], &["--yes"]].concat(), 3, "PPT-3001");
    assert!(message.contains("data: linux_raid_member@0x1000, member of tank"), "{message}");
    // The members of a destroyed array are free.
    let members = world.create("1", 2, &[]);
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    world.ok(&[&["destroy", "tank", "--yes"], &members[..]].concat());
    world.ok(&[&["create", "tank", "--level", "1", "--yes"], &members[..]].concat());
}

#[test]
fn copies_of_what_was_overwritten_are_listed() {
    let world = World::new();
    assert_eq!(world.json(&["undestroy"])["copies"].as_array().unwrap().len(), 0);
    swap(&world, "a");
    world.file("b", 16 << 20);
    let start = ["create", "tank", "--level", "1", "--yes", "a", "b"];
    let made = world.json(&[&start[..], &["--overwrite-signature=a:swap@0xff6"]].concat());
    let copies = world.json(&["undestroy"])["copies"].clone();
    assert_eq!(copies[0]["verb"], "create", "{copies}");
    assert_eq!(copies[0]["undestroy"], false, "{copies}");
    assert_eq!(copies[0]["folder"], made["undo"], "{copies}");
    // `undestroy` finds the copies of `create` by the array's name, too, and prints how to restore
    // them.
    let report = world.refused(&["undestroy", "tank", "--yes"], 5, "PPT-5001");
    assert!(report.contains(&format!("{}/undo.json", made["undo"].as_str().unwrap())), "{report}");
    world.ok(&["destroy", "tank", "--yes", "a", "b"]);
    let copies = world.json(&["undestroy"])["copies"].clone();
    assert_eq!((&copies[1]["verb"], &copies[1]["undestroy"]), (&"destroy".into(), &true.into()));
    assert_eq!(copies[1]["disks"].as_array().unwrap().len(), 2, "{copies}");
    assert!(world.ok(&["undestroy"]).contains("PUT BACK BY"));
    let folder = copies[1]["folder"].as_str().unwrap();
    assert_eq!(world.json(&["undestroy", folder, "--yes"])["done"], true);
}

#[test]
fn a_layout_of_raid_3_5_that_does_not_fit_is_named() {
    let world = World::new();
    let create =
        ["create", "t", "--level", "3.5", "--layout", "order1", "--new-files", "16M", "-y"];
    let message = world.refused(&[&create[..], &["a", "b", "c", "d", "e"]].concat(), 2, "PPT-2002");
    assert!(message.contains("--layout order1 takes 3 members, 5 were named"), "{message}");
    assert!(message.contains("5 members are order2"), "{message}");
}

#[test]
fn file_systems_and_partition_tables_made_by_others_are_not_overwritten() {
    let world = World::new();
    let fresh = |name: &str| drop(world.file(name, 16 << 20));
    ["ext4", "dos", "gpt", "blank"].into_iter().for_each(fresh);
    world.tool("e2fsprogs", &["/usr/sbin/mkfs.ext4", "-q", "ext4"]);
    let table = |label: &str| {
        let line = format!("printf 'label: {label}\\n,4M\\n' | /usr/sbin/sfdisk -q {label}");
        world.tool("fdisk", &["sh", "-c", &line]);
    };
    ["dos", "gpt"].into_iter().for_each(table);
    for name in ["ext4", "dos", "gpt"] {
        let before = std::fs::read(world.path(name)).unwrap();
        let create = ["create", "tank", "--level", "1", "--yes", "blank", name];
        let message = world.refused(&create, 3, "PPT-3001");
        assert!(message.contains(&format!("--overwrite-signature={name}@")), "{message}");
        assert!(std::fs::read(world.path(name)).unwrap() == before, "a refusal writes nothing");
    }
    // `add` must not overwrite it either.
    let members = world.create("1", 2, &[]);
    let server = world.serve_members(&members);
    let message = world.order_refused(&["add", "tank", "ext4"], 3, "PPT-3001");
    assert!(message.contains("ext4@"), "{message}");
    assert_eq!(server.terminate(), 0);
}

/// Checks that the copies restore everything that was overwritten.
fn undo_restores(world: &World, folder: &str, disk: &str, before: &[u8]) {
    let manifest = std::fs::read(world.path(folder).join("undo.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let pieces = manifest["pieces"].as_array().unwrap();
    let own = world.path(disk);
    for piece in pieces.iter().filter(|piece| piece["disk"] == own.to_str().unwrap()) {
        world.tool("coreutils", &["sh", "-c", piece["restore"].as_str().unwrap()]);
    }
    let bytes = std::fs::read(&own).unwrap();
    assert_eq!(bytes.len(), before.len(), "{disk} is as long as it was");
    let wrong = bytes.iter().zip(before).position(|(now, before)| now != before);
    assert_eq!(wrong, None, "{disk} is as it was, byte by byte");
}

#[test]
fn all_that_create_overwrites_can_be_put_back() {
    let world = World::new();
    let sides = ["a", "b", "c", "j"];
    let cases: [&[&str]; 6] = [
        &["--level", "5"],
        &["--level", "1", "--metadata", "1.0"],
        &["--level", "5", "--consistency", "ppl", "--metadata", "1.1"],
        &["--level", "10", "--checksums", "on"],
        &["--level", "5", "--assume-zeroed"],
        &["--level", "6", "--consistency", "journal", "--journal", "j"],
    ];
    for flags in cases {
        let files = sides.map(|name| {
            let mut bytes = crate::world::pattern(24 << 20, 3 + u64::from(name.as_bytes()[0]));
            // The copies restore zeros, too.
            bytes[..1 << 20].fill(0);
            std::fs::write(world.path(name), &bytes).unwrap();
            bytes
        });
        let level6 = flags.contains(&"6");
        let members: &[&str] = if level6 { &["a", "b", "c", "d"] } else { &["a", "b", "c"] };
        if level6 {
            std::fs::copy(world.path("c"), world.path("d")).unwrap();
        }
        let plan = world.json(&[&["create", "tank", "--yes"], flags, members].concat());
        for (name, before) in sides.iter().zip(&files) {
            undo_restores(&world, plan["undo"].as_str().unwrap(), name, before);
        }
    }
}

#[test]
fn nobody_is_asked_where_nobody_can_answer() {
    let world = World::new();
    let create = ["create", "tank", "--level", "1", "--new-files", "16M", "a", "b"];
    let message = world.refused(&create, 3, "PPT-3002");
    assert!(message.contains("--yes"), "{message}");
    assert!(!world.path("a").exists());
}

#[test]
fn a_disk_is_not_named_twice() {
    let world = World::new();
    world.file("a", 16 << 20);
    std::os::unix::fs::symlink(world.path("a"), world.path("b")).unwrap();
    world.refused(&["create", "tank", "--level", "1", "--yes", "a", "b"], 3, "PPT-3004");
    world.refused(&["create", "tank", "--level", "1", "--yes", "a", "./a"], 3, "PPT-3004");
}

#[test]
fn a_shape_that_does_not_exist_is_a_usage_error() {
    let world = World::new();
    let create = |more: &[&str]| {
        let start = ["create", "tank", "--new-files", "16M", "--yes", "--level"];
        world.refused(&[&start, more].concat(), 2, "PPT-2002")
    };
    create(&["6", "a", "b", "c"]);
    create(&["5", "--chunk", "3000", "a", "b", "c"]);
    create(&["5", "--layout", "n2", "a", "b", "c"]);
    create(&["3.5", "a", "b", "c", "d"]);
    create(&["0", "a", "b", "--spare", "c"]);
    let message = create(&["5", "--chunk", "16M", "a", "b", "c"]);
    assert!(message.contains('a'), "{message}");
    for name in ["a/b", "", "-x", "..", &"x".repeat(33)] {
        let ran = world.run(&["create", "--level", "1", "--", name, "a", "b"]);
        assert_eq!(ran.code, 2, "{name:?}: {ran:?}");
    }
    assert_eq!(std::fs::read_dir(&world.folder).unwrap().count(), 1, "only the folder `run`");
}

#[test]
fn a_full_file_system_leaves_nothing_behind() {
    let world = World::new();
    // More than the memory or disk of any machine.
    let create = ["create", "tank", "--level", "1", "--new-files", "64T", "--yes", "a", "b"];
    let ran = world.run(&[&create[..], &["--json"]].concat());
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(!world.path("a").exists() && !world.path("b").exists());
}

#[test]
fn a_member_in_use_is_refused_and_its_holder_named() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve_members(&members);
    let overwrite = "--overwrite-signature=linux_raid_member@0x1000";
    let create = ["create", "other", "--level", "1", "--yes", overwrite, "m0", "m1"];
    let message = world.refused(&create, 3, "PPT-3003");
    assert!(message.contains(&server.pid().to_string()), "{message}");
    world.refused(&["destroy", "tank", "m0", "m1", "--yes"], 3, "PPT-3003");
    world.refused(&["serve", "tank", "m0", "m1"], 3, "PPT-3003");
    assert_eq!(world.run(&["examine", "m0"]).code, 0, "looking is allowed");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn destroy_takes_only_what_belongs_to_the_array_and_keeps_a_copy() {
    let world = World::new();
    world.create("5", 3, &[]);
    let create = ["create", "other", "--level", "1", "--new-files", "16M", "--yes", "x", "y"];
    world.ok(&create);
    world.refused(&["destroy", "tank", "m0", "x", "--yes"], 3, "PPT-3005");
    world.refused(&["destroy", "nothing", "m0", "--yes"], 3, "PPT-3005");
    world.file("blank", 16 << 20);
    world.refused(&["destroy", "tank", "blank", "--yes"], 5, "PPT-5004");
    world.refused(&["destroy", "tank", "m0", "m1", "m2"], 3, "PPT-3002");
    let plan = world.json(&["destroy", "tank", "m0", "m1", "m2", "-n"]);
    assert_eq!(plan["done"], false);
    assert_eq!(world.run(&["examine", "m0", "m1", "m2"]).code, 0, "still members");
    let before = std::fs::read(world.path("m1")).unwrap();
    let done = world.json(&["destroy", "tank", "m0", "m1", "m2", "--yes"]);
    assert_eq!(world.run(&["examine", "m0"]).code, 5);
    assert_eq!(world.run(&["examine", "x", "y"]).code, 0);
    let blank = std::fs::read(world.path("m1")).unwrap();
    undo_restores(&world, done["undo"].as_str().unwrap(), "m1", &before);
    std::fs::write(world.path("m1"), blank).unwrap();
    // The disks are blank again: no flag is needed to reuse them.
    world.ok(&["create", "again", "--level", "5", "--yes", "m0", "m1", "m2"]);
}

/// Runs the program on a terminal with this text as the user's input.
fn typed(world: &World, text: &str, arguments: &str) -> crate::world::Ran {
    let program = env!("CARGO_BIN_EXE_parapet");
    let line = format!(
        "export PARAPET_STATE=$PWD/state; printf '{text}\\n' | script -qec '{program} {arguments}' \
         /dev/null"
    );
    world.try_tool("bsdutils", &["sh", "-c", &line])
}

#[test]
fn somebody_is_asked_on_a_terminal_and_what_is_lost_needs_the_name() {
    let world = World::new();
    let create = "create tank --level 1 a b --new-files 16M";
    let ran = typed(&world, "n", create);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.out.contains("Make this array? [y/N]"), "{ran:?}");
    assert!(!world.path("a").exists());
    assert_eq!(typed(&world, "y", create).code, 0);
    let destroy = "destroy tank a b";
    for wrong in ["y", "yes", "tan", ""] {
        assert_eq!(typed(&world, wrong, destroy).code, 3, "{wrong}");
    }
    assert_eq!(world.run(&["examine", "a", "b"]).code, 0);
    let ran = typed(&world, "tank", destroy);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(world.run(&["examine", "a"]).code, 5);
}

#[test]
fn what_was_destroyed_comes_back_while_nobody_has_used_its_disks() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let server = world.serve_members(&members);
    world.qemu_io(&["write -P 0x5a 0 4M", "flush"]);
    assert_eq!(server.terminate(), 0);
    let destroy = ["destroy", "tank", "m0", "m1", "m2", "--yes"];
    world.refused(&["undestroy", "tank", "--yes"], 5, "PPT-5001");
    world.ok(&destroy);
    assert_eq!(world.json(&["undestroy", "tank", "--dry-run"])["done"], false);
    world.refused(&["serve", "tank", "m0", "m1", "m2"], 5, "PPT-5001");
    assert_eq!(world.json(&["undestroy", "tank", "--yes"])["done"], true);
    let server = world.serve_members(&members);
    world.qemu_io(&["read -P 0x5a 0 4M"]);
    assert_eq!(server.terminate(), 0);

    let folder = world.json(&destroy)["undo"].as_str().unwrap().to_owned();
    let mut bytes = std::fs::read(world.path("m1")).unwrap();
    bytes[4096] = 1;
    std::fs::write(world.path("m1"), &bytes).unwrap();
    let report = world.refused(&["undestroy", &folder, "--yes"], 3, "PPT-3001");
    assert!(report.contains("m1 has been used since"), "{report}");
    assert!(std::fs::read(world.path("m1")).unwrap() == bytes);
}

/// Creates an array with data on its members, and destroys it.
fn destroyed(world: &World, level: &str, more: &[&str]) {
    let members = world.create(level, 2, more);
    let server = world.serve_members(&members);
    world.qemu_io(&["write -P 0x5a 0 4M", "flush"]);
    world.wait_until_idle();
    assert_eq!(server.terminate(), 0);
    world.ok(&["destroy", "tank", "m0", "m1", "--yes"]);
}

#[test]
fn what_was_destroyed_is_not_put_on_a_disk_that_came_in_its_place() {
    for more in [&[][..], &["--checksums", "off"]] {
        let world = World::new();
        destroyed(&world, "1", more);
        let undestroy = ["undestroy", "tank", "--yes"];
        let swap = || {
            for (from, to) in [("m0", "x"), ("m1", "m0"), ("x", "m1")] {
                std::fs::rename(world.path(from), world.path(to)).unwrap();
            }
        };
        swap();
        let before = ["m0", "m1"].map(|name| std::fs::read(world.path(name)).unwrap());
        let report = world.refused(&undestroy, 3, "PPT-3005");
        let m1 = world.path("m1").display().to_string();
        let found = report.contains(&format!("is another disk now: what was there is at {m1}"));
        assert!(
            if more.is_empty() { found } else { report.contains("m0 may be another") },
            "{report}"
        );
        let after = ["m0", "m1"].map(|name| std::fs::read(world.path(name)).unwrap());
        assert!(before == after, "nothing is written");
        swap();
        std::fs::rename(world.path("m1"), world.path("x")).unwrap();
        world.file("m1", 16 << 20);
        let report = world.refused(&undestroy, 3, "PPT-3005");
        assert!(report.contains("m1 does not hold what was destroyed there"), "{report}");
        assert!(std::fs::read(world.path("m1")).unwrap().iter().all(|&byte| byte == 0));
        std::fs::rename(world.path("x"), world.path("m1")).unwrap();
        world.ok(&undestroy);
        assert_eq!(world.run(&["examine", "m0", "m1"]).code, 0);
    }
}

#[test]
fn copies_that_do_not_tell_their_disks_apart_are_not_put_back() {
    let world = World::new();
    destroyed(&world, "1", &[]);
    let folder = std::fs::read_dir(world.path("state/undo")).unwrap().next().unwrap().unwrap();
    let path = folder.path().join("undo.json");
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    manifest.as_object_mut().unwrap().remove("disks").unwrap();
    std::fs::write(&path, manifest.to_string()).unwrap();
    let report = world.refused(&["undestroy", "tank", "--yes"], 3, "PPT-3006");
    assert!(report.contains("undo.json"), "{report}");
}

/// Creates an array whose member `c` cannot be written at its end, as on a full file system. A
/// limit of 32 MiB on file sizes causes the failure.
fn create_on_full_disk(world: &World) -> crate::world::Ran {
    let program = env!("CARGO_BIN_EXE_parapet");
    let line = format!(
        "export PARAPET_STATE=$PWD/state PARAPET_RUNTIME=$PWD/run; trap '' XFSZ; ulimit -f 65536; \
         exec {program} create tank --level 5 --metadata 1.0 --yes a b c \
         --overwrite-signature=swap@0xff6 --overwrite-signature=b:data@0x0 \
         --overwrite-signature=c:data@0x0"
    );
    world.try_tool("dash", &["dash", "-c", &line])
}

#[test]
fn what_was_on_the_disks_is_back_after_a_failure() {
    let world = World::new();
    let swap = swap(&world, "a");
    let data = std::fs::read(world.pattern("b", 16 << 20)).unwrap();
    world.file("c", 64 << 20);
    let ran = create_on_full_disk(&world);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("there is no array"), "{ran:?}");
    assert!(ran.err.contains("the previous content is back on a, b, c"), "{ran:?}");
    assert!(std::fs::read(world.path("a")).unwrap() == swap);
    assert!(std::fs::read(world.path("b")).unwrap() == data);
    assert!(std::fs::read(world.path("c")).unwrap().iter().all(|&byte| byte == 0));
    // If a copy cannot be restored, the error gives its location.
    std::fs::write(world.path("c"), crate::world::pattern(64 << 20, 3)).unwrap();
    let ran = create_on_full_disk(&world);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.err.contains("is back on a, b; the previous content could not be restored"),
        "{ran:?}"
    );
    assert!(ran.err.contains("state/undo/") && ran.err.contains("undo.json"), "{ran:?}");
    assert!(std::fs::read(world.path("a")).unwrap() == swap);
    assert!(std::fs::read(world.path("b")).unwrap() == data);
}
