//! Every level with real NBD clients: healthy, while members fail, degraded, during the rebuild,
//! and healthy again.
//!
//! ```text
//!    0          8 MiB     12 MiB        end
//!    ├── nbdcopy ┼── fio ──┼── nbdcopy ──┤    nbdcopy fills the array, and reads all of it back
//!        ╵ ╵ qemu-io                          in each state; qemu-io writes what is not aligned,
//!                                             and fio checks what it wrote itself
//! ```

use crate::world::{World, pattern};

/// A level, its number of members, and the members that it can lose.
struct Case {
    level: &'static str,
    layout: &'static str,
    members: usize,
    loses: &'static [usize],
    /// The array is a RAID 0 of two such arrays, and each loses members.
    nested: bool,
}

const fn case(
    level: &'static str,
    layout: &'static str,
    members: usize,
    loses: &'static [usize],
) -> Case {
    Case { level, layout, members, loses, nested: false }
}

/// A RAID 0 of two arrays of this level: 50, 60, 10+0.
const fn nested(level: &'static str, members: usize, loses: &'static [usize]) -> Case {
    Case { level, layout: "", members, loses, nested: true }
}

/// The range that fio writes.
const FIO: std::ops::Range<usize> = 8 << 20..12 << 20;

impl Case {
    /// Returns the arrays whose members are disks.
    fn arrays(&self) -> &'static [&'static str] {
        if self.nested { &["left", "right"] } else { &["tank"] }
    }

    fn make(&self, world: &World) {
        for array in self.arrays() {
            let members: Vec<String> =
                (0..self.members).map(|slot| format!("{array}-{slot}")).collect();
            let members: Vec<&str> = members.iter().map(String::as_str).collect();
            let start = ["create", array, "--level", self.level, "--new-files", "16M", "--yes"];
            let layout: &[&str] =
                if self.layout.is_empty() { &[] } else { &["--layout", self.layout] };
            let chunk: &[&str] = match self.level {
                "1" | "linear" | "3.5" => &[],
                _ => &["--chunk", "16K"],
            };
            world.ok(&[&start[..], layout, chunk, &members].concat());
        }
        if self.nested {
            let start =
                ["create", "tank", "--level", "0", "--chunk", "64K", "--scan", ".", "--yes"];
            world.ok(&[&start[..], &["array:left", "array:right"]].concat());
        }
    }

    /// Runs a command for each lost member.
    fn each_loss(&self, mut order: impl FnMut(&str, usize)) {
        for array in self.arrays() {
            self.loses.iter().for_each(|&slot| order(array, slot));
        }
    }
}

/// Fills the array, fails members, writes and reads, adds new members, and scrubs.
fn live(case: &Case) {
    let world = World::new();
    case.make(&world);
    let server = world.serve(&["tank", "--scan", "."]);
    let info = world.tool("libnbd-bin", &["nbdinfo", "--size", &world.uri()]);
    let bytes: usize = info.trim().parse().unwrap();
    let arrays = server.ready["arrays"].as_array().unwrap();
    let tank = arrays.iter().find(|array| array["name"] == "tank").unwrap();
    assert_eq!(tank["capacity_bytes"], bytes);
    let mut expected = pattern(bytes, 1);
    std::fs::write(world.path("data"), &expected).unwrap();
    world.nbdcopy("data", &world.uri());
    clients(&world, &mut expected, 0x11, "healthy");
    if !case.loses.is_empty() {
        fail_and_rebuild(&world, case, &mut expected);
    }
    assert_eq!(server.terminate(), 0, "{}", world.log());
    stopped_and_started(&world, case, &expected);
}

fn fail_and_rebuild(world: &World, case: &Case, expected: &mut [u8]) {
    world.under_load(case.arrays()[0], || {
        case.each_loss(|array, slot| {
            odd_writes(world, expected, 0x22);
            world.order(&["fail", array, &slot.to_string()]);
            assert!(same(&world.content(), expected), "at the loss of {array} {slot}");
        });
    });
    clients(world, expected, 0x33, "degraded");
    // Limit the rebuild rate, so that all clients run during the rebuild.
    let slowly = |array: &str, limit: &str| {
        world.order(&["speed", array, "--speed-min", "64K", "--speed-max", limit]);
    };
    case.arrays().iter().for_each(|array| slowly(array, "64K"));
    case.each_loss(|array, slot| {
        let spare = format!("{array}-new{slot}");
        world.file(&spare, 16 << 20);
        world.order(&["add", array, &spare]);
    });
    clients(world, expected, 0x44, "during rebuild");
    for array in case.arrays() {
        let status = world.order(&["status", array]);
        assert_eq!(status["job"]["kind"], "rebuild", "all that was during it: {status}");
        slowly(array, "off");
    }
    clients(world, expected, 0x55, "during a quick rebuild");
    for array in case.arrays() {
        assert_eq!(wait_until_healthy(world, array)["state"], "healthy");
        world.order(&["scrub", array, "check"]);
        let status = wait_until_healthy(world, array);
        assert_eq!(status["last_scrub"]["mismatches"], 0, "{status}");
        assert_eq!(status["last_scrub"]["complete"], true, "{status}");
    }
    clients(world, expected, 0x66, "whole again");
}

/// Returns the array once it is healthy and no job runs.
fn wait_until_healthy(world: &World, array: &str) -> serde_json::Value {
    world.order(&["wait", array, "--for", "whole", "--timeout", "600", "--quiet"]);
    world.order(&["wait", array, "--timeout", "600", "--quiet"])["array"].clone()
}

/// Runs all three clients in sequence.
fn clients(world: &World, expected: &mut [u8], byte: u8, state: &str) {
    assert!(same(&world.content(), expected), "{state}: before\n{}", world.log());
    odd_writes(world, expected, byte);
    world.fio("8M", "4M", 1);
    let found = world.content();
    assert!(same(&found, expected), "{state}: after\n{}", world.log());
    expected[FIO].copy_from_slice(&found[FIO]);
    // nbdcopy rewrites all of it in large requests.
    std::fs::write(world.path("data"), &expected).unwrap();
    world.nbdcopy("data", &world.uri());
}

/// Compares the bytes that fio did not write.
fn same(found: &[u8], expected: &[u8]) -> bool {
    found.len() == expected.len()
        && found[..FIO.start] == expected[..FIO.start]
        && found[FIO.end..] == expected[FIO.end..]
}

/// Writes at unaligned offsets, both to the array and to `expected`.
fn odd_writes(world: &World, expected: &mut [u8], byte: u8) {
    let places = [(512, 512), (60_928, 9_728), (1_000_448, 300_032), (3_000_832, 1_024)];
    let commands: Vec<String> = places
        .iter()
        .map(|(offset, len)| format!("write -P {byte} {offset} {len}"))
        .chain(["write -z 2097152 65536".into(), "flush".into()])
        .chain(places.iter().map(|(offset, len)| format!("read -P {byte} {offset} {len}")))
        .collect();
    world.qemu_io(&commands.iter().map(String::as_str).collect::<Vec<_>>());
    for (offset, len) in places {
        expected[offset..offset + len].fill(byte);
    }
    expected[2_097_152..2_162_688].fill(0);
}

/// Stops the array, finds it again by a scan, and compares its content.
fn stopped_and_started(world: &World, case: &Case, content: &[u8]) {
    let server = world.serve(&["tank", "--scan", "."]);
    for array in server.ready["arrays"].as_array().unwrap() {
        assert_eq!(array["state"], "healthy", "{}", world.log());
    }
    assert!(world.content() == content, "{} after a restart", case.level);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn linear() {
    live(&case("linear", "", 3, &[]));
}

#[test]
fn raid0() {
    live(&case("0", "", 3, &[]));
}

#[test]
fn raid1() {
    live(&case("1", "", 3, &[0, 2]));
}

#[test]
fn raid10_near() {
    live(&case("10", "n2", 4, &[0, 3]));
}

#[test]
fn raid10_far() {
    live(&case("10", "f2", 3, &[1]));
}

#[test]
fn raid10_offset() {
    live(&case("10", "o2", 4, &[2]));
}

#[test]
fn raid4() {
    live(&case("4", "", 3, &[2]));
}

#[test]
fn raid5() {
    live(&case("5", "", 4, &[1]));
}

#[test]
fn raid5_right_asymmetric() {
    live(&case("5", "right-asymmetric", 3, &[0]));
}

#[test]
fn raid6() {
    live(&case("6", "", 5, &[0, 3]));
}

#[test]
fn raid6_ddf() {
    live(&case("6", "ddf-zero-restart", 4, &[1, 2]));
}

#[test]
fn raid35() {
    live(&case("3.5", "order1", 3, &[1]));
}

#[test]
fn raid35_of_order_2() {
    live(&case("3.5", "", 5, &[4]));
}

#[test]
fn raid35_of_order_3() {
    live(&case("3.5", "order3", 9, &[0]));
}

#[test]
fn raid50() {
    live(&nested("5", 3, &[1]));
}

#[test]
fn raid60() {
    live(&nested("6", 4, &[0, 2]));
}

#[test]
fn raid10_in_raid0() {
    live(&nested("10", 3, &[2]));
}
