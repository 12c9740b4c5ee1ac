//! `parapet import`: serves disk images of another machine without changing a byte.

use std::os::unix::fs::FileExt;

use crate::world::{Server, World, pattern};

const MIB: u64 = 1 << 20;
/// The input of `sfdisk`, and the partitions of the system's and the data's members.
type Table = (&'static str, usize, usize);
const GPT: Table = ("label: gpt\nstart=2048,size=16384\nstart=20480,size=32768\n", 1, 2);
/// The second partition is logical and starts within a block of 4 KiB.
const MBR: Table = (
    "label: dos\nstart=2048,size=16384,type=fd\nstart=18500,type=5\n\
     start=20479,size=32768,type=fd\n",
    1,
    5,
);

/// Creates disks with a mirror for the system and a RAID 5 for data. Returns the images and the
/// data.
fn nas(world: &World, table: &Table) -> (Vec<String>, Vec<u8>) {
    let make = |name: &str, flags: &[&str], size: &str| -> Vec<String> {
        let members: Vec<String> = (0..3).map(|index| format!("{name}{index}")).collect();
        let names: Vec<&str> = members.iter().map(String::as_str).collect();
        let start = ["create", name, "--new-files", size, "--yes"];
        world.ok(&[&start[..], flags, &names].concat());
        members
    };
    // In this version the superblock is at the end, as on old machines.
    let system = make("system", &["--level", "1", "--metadata", "1.0"], "8M");
    let members = make("tank", &["--level", "5"], "16M");
    let server = world.serve_members(&members);
    let data = pattern(20 << 20, 3);
    std::fs::write(world.path("data"), &data).unwrap();
    world.nbdcopy("data", &world.uri());
    assert_eq!(server.terminate(), 0);
    std::fs::write(world.path("table"), table.0).unwrap();
    let images: Vec<String> = (0..3).map(|index| format!("disk{index}.img")).collect();
    for (index, image) in images.iter().enumerate() {
        world.file(image, 32 * MIB);
        world.tool("fdisk", &["sh", "-c", &format!("sfdisk --quiet {image} < table")]);
        let listed = world.tool("fdisk", &["sfdisk", "--dump", image]);
        let starts =
            listed.lines().filter_map(|line| line.split("start=").nth(1)?.split(',').next());
        let starts: Vec<u64> = starts.map(|start| start.trim().parse().unwrap()).collect();
        let file = std::fs::File::options().write(true).open(world.path(image)).unwrap();
        for (member, start) in
            [(&system[index], starts[0]), (&members[index], *starts.last().unwrap())]
        {
            file.write_all_at(&std::fs::read(world.path(member)).unwrap(), start * 512).unwrap();
        }
    }
    (images, data)
}

fn import(world: &World, arguments: &[&str]) -> Server {
    let flags = ["--nbd", "unix:nbd.sock", "--control", "unix:control.sock", "--json"];
    world.start(&[&["import"], arguments, &flags].concat())
}

#[test]
fn a_dead_machines_arrays_are_read_from_partitions_in_images() {
    for table in [GPT, MBR] {
        let world = World::new();
        let (images, data) = nas(&world, &table);
        let bytes = |image: &String| std::fs::read(world.path(image)).unwrap();
        let before: Vec<Vec<u8>> = images.iter().map(bytes).collect();
        // One image is missing; the others come in any order.
        let server = import(&world, &["disk2.img", "disk0.img"]);
        let arrays = server.ready["arrays"].as_array().unwrap();
        let named = |name: &str| arrays.iter().find(|array| array["name"] == name).unwrap();
        assert_eq!(named("system")["level"], "raid1");
        let slots = named("tank")["slots"].as_array().unwrap();
        let path = slots[0]["member"]["name"].as_str().unwrap();
        assert!(path.ends_with(&format!("disk0.img:p{}", table.2)), "{path}");
        assert!(world.content()[..data.len()] == data);
        let refused =
            ["qemu-io", "-f", "raw", "-c", "write 0 4096", &world.uri()].map(str::to_owned);
        let refused: Vec<&str> = refused.iter().map(String::as_str).collect();
        assert_ne!(world.try_tool("qemu-utils", &refused).code, 0);
        assert_eq!(server.terminate(), 0);
        // With all images present, the user requests one array.
        let server = import(&world, &["--array", "tank", "disk1.img", "disk2.img", "disk0.img"]);
        assert_eq!(server.ready["arrays"][0]["name"], "tank");
        assert_eq!(server.ready["arrays"][0]["state"], "healthy");
        assert!(world.content()[..data.len()] == data);
        assert_eq!(server.terminate(), 0);
        assert!(images.iter().map(bytes).eq(before), "a byte of an image has changed");
    }
}

#[test]
fn what_is_no_member_and_what_is_missing_is_told() {
    let world = World::new();
    let (_, data) = nas(&world, &GPT);
    let report = world.run(&["examine", "disk1.img"]).out;
    assert!(report.contains("parapet import finds arrays in partitions"), "{report}");
    let report = world.refused(&["import", "disk1.img", "--array", "tank"], 3, "PPT-3007");
    assert!(report.contains("1 of 3 members"), "{report}");
    world.refused(&["import", "disk1.img", "--array", "tan"], 5, "PPT-5001");
    let report = world.refused(&["import", "data"], 5, "PPT-5001");
    assert!(
        report.contains("data: nothing known") && report.contains("parapet recover"),
        "{report}"
    );
    world.refused(&["import", "disk1.img", "disk1.img"], 3, "PPT-3004");
    world.tool("qemu-utils", &["qemu-img", "create", "-f", "qcow2", "wrapped", "1M"]);
    let report = world.refused(&["import", "wrapped"], 1, "PPT-1002");
    assert!(report.contains("qemu-img convert"), "{report}");
    // The backup table at the end of the disk is enough.
    for image in ["disk0.img", "disk1.img"] {
        let file = std::fs::File::options().write(true).open(world.path(image)).unwrap();
        file.write_all_at(&[0; 17408], 0).unwrap();
    }
    let server = import(&world, &["disk0.img", "disk1.img"]);
    assert!(world.content()[..data.len()] == data);
    assert_eq!(server.terminate(), 0);
}
