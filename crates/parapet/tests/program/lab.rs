//! `parapet lab` and `parapet plan`: what users see of the modelled disks.

use std::fs;

use crate::world::World;

const EXPERIMENT: &str = r#"
name = "four disks"
warm_up_s = 1
window_s = 2
seeds = 2

[hardware]
disks = "4xhd501lj"

[array]
level = "raid5"
chunk = "64KiB"

[[load.worker]]
pattern = "sequential"
size = "1MiB"
depth = 8

[[cell]]
name = "a stream"
value = 180
unit = "MB/s"
status = "known"
"#;

#[test]
fn modelled_disks_have_parameters_with_sources() {
    let world = World::new();
    let all = world.json(&["lab", "disks"]);
    let disks = all["disks"].as_array().unwrap();
    assert!(disks.len() > 10 && disks.iter().all(|disk| disk["bytes"].as_u64() > Some(1 << 30)));
    let one = world.json(&["lab", "disks", "hd501lj"]);
    let parameters = one["disks"][0]["parameters"].as_array().unwrap();
    assert!(parameters.len() > 10);
    assert!(parameters.iter().all(|it| it["source"].as_str().is_some_and(|s| s.len() > 5)));
    world.refused(&["lab", "disks", "no-such-disk"], 2, "PPT-2001");
}

#[test]
fn a_plan_compares_layouts() {
    let world = World::new();
    let plan = ["plan", "10xhd501lj", "--repair", "72h", "--scrub", "14d", "--afr", "3"];
    let found = world.json(&[&plan[..], &["--no-speeds"]].concat());
    let layouts = found["layouts"].as_array().unwrap();
    let loss = |name: &str| {
        let row = layouts.iter().find(|row| row["name"] == name).unwrap();
        row["loss"].as_f64().unwrap()
    };
    assert!(loss("raid6") < loss("raid10") && loss("raid10") < loss("raid5"));
    assert!(found["advice"].as_str().unwrap().contains("raid6"));
    let text = world.ok(&[&plan[..], &["--no-speeds"]].concat());
    assert!(text.contains("less than 1 in 1,000,000"), "{text}");
    assert!(text.contains("No layout replaces a backup."), "{text}");
    let never = world.ok(&["plan", "4xhd501lj", "--scrub", "never", "--no-speeds"]);
    assert!(never.contains("a scrub every 14 days"), "{never}");
}

#[test]
fn a_plan_measures_speeds_with_the_engine() {
    let world = World::new();
    let found = world.json(&["plan", "3xhd501lj"]);
    let row = |name: &str| {
        let rows = found["layouts"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap().clone()
    };
    let rate = |row: &serde_json::Value, state: &str| {
        row[state]["sequential_read_bytes_per_second"].as_f64().unwrap()
    };
    let (raid0, raid5) = (row("raid0"), row("raid5"));
    assert!(rate(&raid0, "healthy") > 2.7 * 86e6, "{raid0}");
    assert!(raid0["rebuilding"].is_null());
    assert!(rate(&raid5, "rebuilding") < rate(&raid5, "healthy"), "{raid5}");
}

#[test]
fn what_no_plan_can_be_made_of_is_refused() {
    let world = World::new();
    for disks in ["hd501lj", "1xhd501lj", "101xhd501lj", "4xno-such-disk", "x", "4x"] {
        world.refused(&["plan", disks], 2, "PPT-2001");
    }
    for option in [["--afr", "0"], ["--scrub", "often"], ["--class", "none"], ["--repair", "-1h"]] {
        let words = [&["plan", "4xhd501lj", "--no-speeds"], &option[..]].concat();
        world.refused(&words, 2, "PPT-2001");
    }
}

#[test]
fn an_experiment_runs_and_is_drawn_and_compared() {
    let world = World::new();
    let file = |name: &str| world.path(name).display().to_string();
    let (experiment, outcome) = (file("four.toml"), file("four.json"));
    let (page, fio) = (file("four.html"), file("four.fio"));
    fs::write(&experiment, EXPERIMENT).unwrap();
    let run = ["lab", "run", &experiment, "--out", &outcome, "--html", &page, "--fio", &fio];
    let found = world.json(&run);
    assert_eq!((found["runs"].as_u64(), found["errors"].as_u64()), (Some(2), Some(0)));
    assert!(found["cells"][0]["error"].as_f64().unwrap().abs() < 0.1, "{found}");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("<svg") && html.contains("simulated"));
    let jobs: serde_json::Value = serde_json::from_slice(&fs::read(&fio).unwrap()).unwrap();
    assert!(jobs["jobs"][0]["read"]["iops"].as_f64().unwrap() > 100.0);
    let text = world.ok(&["lab", "compare", &outcome, &outcome]);
    assert!(text.contains("1.000"), "{text}");
    let plots = file("plots");
    world.ok(&["lab", "report", &outcome, &outcome, "--html", &page, "--svg", &plots]);
    assert!(fs::read_dir(&plots).unwrap().count() > 5);
    world.ok(&["lab", "report", &experiment, "--depths", "1,2", "--svg", &plots]);
    let plot = fs::read_to_string(world.path("plots/latency-by-depth.svg")).unwrap();
    assert!(plot.contains("simulated"), "{plot}");
    world.refused(&["lab", "report", &outcome], 2, "PPT-2001");
}

#[test]
fn a_constant_is_calibrated() {
    let world = World::new();
    let file = |name: &str| world.path(name).display().to_string();
    let (experiment, fitted) = (file("four.toml"), file("fitted.toml"));
    let constant = "[[constant]]\nname = \"work of a request\"\n\
                    path = \"hardware.cpu.request_ns\"\nlow = 0\nhigh = 1e6\nunit = \"ns\"\n";
    let calibrate = ["lab", "calibrate", &experiment];
    let known = EXPERIMENT.replace("\"held\"", "\"known\"");
    let held = EXPERIMENT.replace("\"known\"", "\"held\"");
    fs::write(&experiment, format!("{held}{constant}")).unwrap();
    world.refused(&calibrate, 2, "PPT-2001");
    fs::write(&experiment, format!("{known}{constant}")).unwrap();
    let found = world.json(&[&calibrate[..], &["--write", &fitted]].concat());
    assert_eq!(found["constants"][0]["path"], "hardware.cpu.request_ns", "{found}");
    assert_eq!(found["cells"][0]["status"], "known", "{found}");
    assert!(found["worst_held"].is_null(), "{found}");
    let text = fs::read_to_string(&fitted).unwrap();
    assert!(text.contains("request_ns = "), "{text}");
    let text = world.ok(&calibrate);
    assert!(text.contains("known cells per constant"), "{text}");
}

#[test]
fn a_trace_is_replayed() {
    let world = World::new();
    let file = |name: &str| world.path(name).display().to_string();
    let (experiment, trace) = (file("four.toml"), file("trace"));
    fs::write(&experiment, EXPERIMENT).unwrap();
    let lines: String = (0..50).map(|n| format!("f write {} 4096\n", n * 8192)).collect();
    fs::write(&trace, format!("fio version 2 iolog\nf add\nf open\n{lines}f close\n")).unwrap();
    let found = world.json(&["lab", "replay", &trace, "--on", &experiment, "--closed"]);
    assert_eq!(found["errors"], 0, "{found}");
    fs::write(&trace, "fio version 2 iolog\nf add\nf open\nf write x 4096\n").unwrap();
    let ran = world.run(&["lab", "replay", &trace, "--on", &experiment, "--closed"]);
    assert!(ran.code == 2 && ran.err.contains("line 4"), "{ran:?}");
}

#[test]
fn a_wrong_experiment_names_file_and_key() {
    let world = World::new();
    let file = world.path("four.toml").display().to_string();
    for (old, new, key) in [
        ("seeds = 2", "seeds = 0", "seeds"),
        ("level = \"raid5\"", "level = \"raid7\"", "level"),
        ("4xhd501lj", "4xno-such-disk", "disks"),
        ("chunk = ", "chunks = ", "chunks"),
    ] {
        fs::write(&file, EXPERIMENT.replace(old, new)).unwrap();
        let ran = world.run(&["lab", "run", &file]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains("four.toml") && ran.err.contains(key), "{ran:?}");
    }
    world.refused(&["lab", "run", "no-such-file"], 5, "PPT-5003");
}
