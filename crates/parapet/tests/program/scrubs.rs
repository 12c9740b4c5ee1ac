//! Scrubs that are stopped, interrupted and resumed, and what is kept of them over restarts.

use crate::world::{World, until};

/// A stopped scrub goes on where it stopped, also in the next server.
#[test]
fn a_scrub_is_stopped_resumed_and_remembered() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K"]);
    let server = world.serve_members(&members);
    world.wait_until_idle();
    let status = world.order(&["status", "tank"]);
    assert_eq!(status["scrub_record"]["completed"], serde_json::Value::Null);
    world.order_refused(&["scrub", "tank", "resume"], 3, "PPT-3006");
    world.order(&["speed", "tank", "--speed-max", "2M"]);
    world.order(&["scrub", "tank", "check"]);
    until(|| {
        let job = &world.order(&["status", "tank"])["job"];
        assert!(job.is_object(), "the scrub ended");
        job["done_bytes"].as_u64() > Some(0)
    });
    world.order(&["scrub", "tank", "stop"]);
    let status = world.wait_until_idle();
    let position = status["scrub_record"]["position_bytes"].as_u64().unwrap();
    assert!(position > 0 && !status["last_scrub"]["complete"].as_bool().unwrap(), "{status}");
    let report = world.ok(&["status", "tank", "--control", "control.sock"]);
    assert!(report.contains("parapet scrub tank resume"), "{report}");
    assert_eq!(server.terminate(), 0);

    let server = world.serve_members(&members);
    let kept = world.order(&["status", "tank"])["scrub_record"]["position_bytes"].as_u64();
    assert_eq!(kept, Some(position));
    world.order(&["scrub", "tank", "resume"]);
    let status = world.wait_until_idle();
    let compared = status["last_scrub"]["compared_bytes"].as_u64().unwrap();
    let capacity = status["capacity_bytes"].as_u64().unwrap();
    assert_eq!(compared, capacity - position, "only the rest is read: {status}");
    let completed = status["scrub_record"]["completed"].clone();
    assert!(completed.is_string() && status["scrub_record"]["position_bytes"] == 0, "{status}");
    assert_eq!(server.terminate(), 0);

    let server = world.serve_members(&members);
    assert_eq!(world.order(&["status", "tank"])["scrub_record"]["completed"], completed);
    let report = world.ok(&["status", "tank", "--control", "control.sock"]);
    assert!(report.contains("last complete one ended"), "{report}");
    assert_eq!(server.terminate(), 0);
}

/// The end of a server interrupts a scrub; the next server knows how far it came.
#[test]
fn a_scrub_survives_the_end_of_its_server() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve_members(&members);
    world.wait_until_idle();
    world.order(&["speed", "tank", "--speed-max", "2M"]);
    world.order(&["scrub", "tank", "repair"]);
    until(|| world.order(&["status", "tank"])["job"]["done_bytes"].as_u64() > Some(0));
    assert_eq!(server.terminate(), 0);
    let server = world.serve_members(&members);
    let status = world.order(&["status", "tank"]);
    assert!(status["scrub_record"]["position_bytes"].as_u64() > Some(0), "{status}");
    world.order(&["scrub", "tank", "resume"]);
    let status = world.wait_until_idle();
    assert_eq!(status["last_scrub"]["repair"], true, "it goes on as the repair that it was");
    assert_eq!(server.terminate(), 0);
}

/// A damaged record is reported and costs nothing but the record.
#[test]
fn a_damaged_record_is_reported() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve_members(&members);
    world.order(&["scrub", "tank", "check"]);
    let status = world.wait_until_idle();
    assert_eq!(server.terminate(), 0);
    let uuid = status["uuid"].as_str().unwrap().replace(':', "");
    let record = world.path("state/scrub").join(uuid);
    assert!(std::fs::read_to_string(&record).unwrap().contains("completed"));
    std::fs::write(&record, "{\"first_served\":").unwrap();
    let server = world.serve_members(&members);
    assert!(world.log().contains("damaged"), "{}", world.log());
    assert_eq!(server.terminate(), 0);
}
