//! Several threads, one array: `--threads`.

use crate::world::{World, pattern};

const REGION: usize = 64 << 20;

/// Creates a RAID 6 with enough regions that each of three threads owns some.
fn wide_array(world: &World) -> Vec<String> {
    let members: Vec<String> = (0..5).map(|index| format!("m{index}")).collect();
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let start = ["create", "tank", "--level", "6", "--chunk", "64K", "--new-files", "80M", "--yes"];
    world.ok(&[&start[..], &names].concat());
    members
}

fn serve(world: &World, members: &[String], threads: &str) -> crate::world::Server {
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    world.serve(&[&["tank", "--threads", threads], &names[..]].concat())
}

/// Returns the bytes that each thread of a process that serves the array has written to files.
fn written_by_thread(pid: u32) -> Vec<(String, u64)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let each = tasks.map(|task| {
        let task = task.unwrap().path();
        let name = std::fs::read_to_string(task.join("comm")).unwrap().trim().to_owned();
        let io = std::fs::read_to_string(task.join("io")).unwrap();
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
        (name, written.parse().unwrap())
    });
    let serves = |name: &str| {
        let number = name.strip_prefix("parapet").map(|rest| rest.trim_start_matches('-'));
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let mut threads: Vec<_> = each.filter(|(name, _)| serves(name)).collect();
    threads.sort();
    threads
}

#[test]
fn every_thread_writes_its_regions_whichever_thread_a_client_is_on() {
    let world = World::new();
    let members = wide_array(&world);
    let server = serve(&world, &members, "3");
    let bytes = server.ready["arrays"][0]["capacity_bytes"].as_u64().unwrap() as usize;
    assert!(bytes > 3 * REGION, "{bytes}");
    let data = pattern(bytes, 3);
    std::fs::write(world.path("data"), &data).unwrap();
    // Four connections by default, spread over the threads.
    world.nbdcopy("data", &world.uri());
    assert!(world.content() == data);
    let threads = written_by_thread(server.pid());
    let names: Vec<&str> = threads.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["parapet", "parapet-1", "parapet-2"]);
    for (name, written) in &threads {
        assert!(*written >= REGION as u64, "{name} has written {written} bytes: {threads:?}");
    }
    assert_eq!(server.terminate(), 0, "{}", world.log());
    // One thread reads data that three threads wrote.
    let server = world.serve_members(&members);
    assert_eq!(server.ready["arrays"][0]["state"], "healthy");
    assert!(world.content() == data);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn members_are_lost_and_rebuilt_under_load_on_three_threads() {
    let world = World::new();
    let members = wide_array(&world);
    let server = serve(&world, &members, "3");
    let bytes = server.ready["arrays"][0]["capacity_bytes"].as_u64().unwrap() as usize;
    let data = pattern(bytes, 4);
    std::fs::write(world.path("data"), &data).unwrap();
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| world.nbdcopy("data", &world.uri()));
        for slot in ["1", "4"] {
            world.order(&["fail", "tank", slot]);
            let spare = format!("s{slot}");
            world.file(&spare, 80 << 20);
            world.order(&["add", "tank", &spare]);
        }
        copying.join().unwrap();
    });
    let array = world.wait_until_idle();
    assert_eq!(array["state"], "healthy", "{array}");
    assert!(world.content() == data);
    world.fio("0", "150M", 1);
    // Re-add a failed member: the threads that own its changed regions copy them.
    world.order(&["fail", "tank", "2"]);
    world.fio("0", "150M", 1);
    world.order(&["re-add", "tank", "m2"]);
    world.wait_until_idle();
    world.order(&["scrub", "tank", "check"]);
    let array = world.wait_until_idle();
    assert_eq!(array["last_scrub"]["mismatches"], 0, "{array}");
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

#[test]
fn an_array_of_arrays_runs_on_two_threads() {
    let world = World::new();
    let make = |name: &str, members: [&str; 3]| {
        let start = ["create", name, "--level", "5", "--chunk", "64K", "--new-files", "80M"];
        world.ok(&[&start[..], &["--yes"], &members].concat());
    };
    make("left", ["l0", "l1", "l2"]);
    make("right", ["r0", "r1", "r2"]);
    let outer = ["create", "tank", "--level", "0", "--chunk", "128K", "--scan", ".", "--yes"];
    world.ok(&[&outer[..], &["array:left", "array:right"]].concat());
    let server = world.serve(&["tank", "--scan", ".", "--threads", "2"]);
    let arrays = server.ready["arrays"].as_array().unwrap();
    let tank = arrays.iter().find(|array| array["name"] == "tank").unwrap();
    let data = pattern(tank["capacity_bytes"].as_u64().unwrap() as usize, 5);
    std::fs::write(world.path("data"), &data).unwrap();
    world.nbdcopy("data", &world.uri());
    world.order(&["fail", "left", "0"]);
    world.order(&["fail", "right", "2"]);
    assert!(world.content() == data, "degraded");
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

#[test]
fn a_server_of_three_threads_that_is_killed_keeps_what_was_flushed() {
    let world = World::new();
    let members = wide_array(&world);
    let server = serve(&world, &members, "3");
    let data = pattern(200 << 20, 6);
    std::fs::write(world.path("data"), &data).unwrap();
    // nbdcopy ends with a flush on each connection.
    world.nbdcopy("data", &world.uri());
    server.kill();
    let server = serve(&world, &members, "3");
    assert!(world.content()[..data.len()] == data);
    let array = world.wait_until_idle();
    assert_eq!(array["state"], "healthy", "{array}");
    world.order(&["scrub", "tank", "check"]);
    assert_eq!(world.wait_until_idle()["last_scrub"]["mismatches"], 0);
    assert_eq!(server.terminate(), 0, "{}", world.log());
}
