//! Former members that are added to their array again.

use crate::world::World;

/// A spare has taken over the slot: one command turns the failed member into the next spare.
#[test]
fn a_failed_member_whose_slot_was_taken_becomes_a_spare() {
    let world = World::new();
    let mut members = world.create("6", 4, &["--spare", "s0", "--chunk", "16K"]);
    members.push("s0".into());
    let server = world.serve_members(&members);
    world.qemu_io(&["write -P 3 0 8M", "flush"]);
    world.order(&["fail", "tank", "m1"]);
    world.wait_until_idle();
    let message = world.order_refused(&["re-add", "tank", "m1"], 3, "PPT-3006");
    assert!(message.contains("its slot 1 is held by /") && message.contains("/s0;"), "{message}");
    assert!(
        message.contains(&format!("parapet add tank {}", world.path("m1").display())),
        "{message}"
    );
    let array = world.order(&["add", "tank", "m1"])["array"].clone();
    let m1 = world.path("m1").display().to_string();
    assert_eq!(array["spares"][0]["name"], m1, "{array}");
    assert!(array["faulty"].as_array().unwrap().is_empty(), "{array}");
    // It works like any other spare.
    world.order(&["fail", "tank", "0"]);
    let array = world.wait_until_idle();
    assert_eq!(array["slots"][0]["member"]["name"], m1, "{array}");
    world.order(&["fail", "tank", "2"]);
    world.order(&["fail", "tank", "3"]);
    world.qemu_io(&["read -P 3 0 8M"]);
    // In a missing slot it is rebuilt in full.
    world.order(&["add", "tank", "m0"]);
    world.order(&["add", "tank", "m2"]);
    assert_eq!(world.wait_until_idle()["state"], "healthy", "{}", world.log());
    assert_eq!(server.terminate(), 0);
}

/// The same after it was removed, and after a restart that left it out as stale.
#[test]
fn a_former_member_needs_no_leave_to_be_overwritten() {
    let world = World::new();
    let mut members = world.create("5", 3, &["--spare", "s0"]);
    members.push("s0".into());
    let server = world.serve_members(&members);
    world.order(&["fail", "tank", "m1"]);
    world.wait_until_idle();
    world.order(&["remove", "tank", "m1"]);
    world.order(&["add", "tank", "m1"]);
    world.order(&["fail", "tank", "m0"]);
    world.wait_until_idle();
    assert_eq!(server.terminate(), 0);
    let names = ["tank", "m2", "s0", "m1"];
    let server = world.serve(&names);
    let array = world.order(&["add", "tank", "m0"])["array"].clone();
    assert_eq!(array["spares"].as_array().unwrap().len(), 1, "{array}");
    // A removed spare can be added again, too.
    world.order(&["remove", "tank", &world.path("m0").display().to_string()]);
    world.order(&["add", "tank", "m0"]);
    assert_eq!(server.terminate(), 0);
}

/// A former member that was used alone has data that the array lacks: only a named signature allows
/// overwriting it.
#[test]
fn a_member_with_a_history_of_its_own_is_overwritten_only_by_name() {
    let world = World::new();
    world.create("1", 2, &[]);
    for member in ["m0", "m1"] {
        let server = world.serve(&["tank", member, "--degraded"]);
        world.qemu_io(&["write -P 3 0 1M", "flush"]);
        assert_eq!(server.terminate(), 0, "{}", world.log());
    }
    let server = world.serve(&["tank", "m0", "--degraded"]);
    let before = std::fs::read(world.path("m1")).unwrap();
    let message = world.order_refused(&["re-add", "tank", "m1"], 3, "PPT-3006");
    assert!(message.contains("a history of its own"), "{message}");
    world.order_refused(&["add", "tank", "m1"], 3, "PPT-3001");
    assert!(std::fs::read(world.path("m1")).unwrap() == before);
    world.order(&["add", "tank", "m1", "--overwrite-signature=linux_raid_member@0x1000"]);
    assert_eq!(world.wait_until_idle()["state"], "healthy");
    assert_eq!(server.terminate(), 0);
}

/// A failed array may need the data of its lost members.
#[test]
fn nothing_is_added_to_an_array_that_has_failed() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let server = world.serve_members(&members);
    world.qemu_io(&["write -P 3 0 1M", "flush"]);
    for member in ["m1", "m2"] {
        let file = std::fs::File::options().write(true).open(world.path(member)).unwrap();
        file.set_len(1 << 20).unwrap();
    }
    let uri = world.uri();
    let write = ["qemu-io", "-f", "raw", "-c", "write -P 4 0 1M", &uri];
    let state = || world.order(&["status", "tank"])["state"].clone();
    crate::world::until(|| {
        world.try_tool("qemu-utils", &write);
        state() == "failed"
    });
    world.file("new", 16 << 20);
    for disk in ["m1", "new"] {
        let message = world.order_refused(&["add", "tank", disk], 3, "PPT-3006");
        assert!(message.contains("parapet stop tank"), "{message}");
    }
    world.order(&["stop", "tank"]);
    server.wait();
}
