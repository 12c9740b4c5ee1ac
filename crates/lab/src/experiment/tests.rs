//! Tests of experiments: runs of the engine on few disks, and faults of files.

use super::*;
use crate::trace;

const SMALL: &str = r#"
name = "small"
warm_up_s = 0.5
window_s = 2
seeds = 2

[hardware]
disks = "4xhd501lj"
cpu = { request_ns = 4000, member_op_ns = 1500 }

[array]
level = "raid5"
chunk = "64KiB"

[[load.worker]]
pattern = "random"
count = 4
write_percent = 50
size = "16KiB"
zone = "10GiB"

[[cell]]
name = "a guess"
value = 100
unit = "requests/s"
status = "held"
"#;

fn ran(text: &str) -> Outcome {
    let experiment = load(text).unwrap_or_else(|fault| panic!("{fault}"));
    run(&experiment).unwrap_or_else(|fault| panic!("{fault}"))
}

fn fault(from: &str, to: &str) -> String {
    let text = SMALL.replacen(from, to, 1);
    assert_ne!(text, SMALL, "{from}");
    let fault = load(&text).and_then(|experiment| run(&experiment)).expect_err(to);
    fault.within("a.toml").to_string()
}

#[test]
fn equal_experiments_have_equal_outcomes_and_seeds_differ() {
    let outcome = ran(SMALL);
    assert_eq!(outcome, ran(SMALL));
    assert_ne!(outcome.runs[0].figures, outcome.runs[1].figures);
    assert_eq!(Outcome::from_json(&outcome.to_json()).unwrap(), outcome);
    assert_eq!(outcome.depth, 4);
    assert_eq!(outcome.cells[0].reproduced, outcome.median.requests_per_s);
}

#[test]
fn the_parts_of_a_run_agree() {
    for run in ran(SMALL).runs {
        assert_eq!(run.errors, 0);
        assert_eq!(run.span_s, 2.0);
        let requests = run.read.requests + run.write.requests;
        assert!(requests > 50, "{requests}");
        let counted: u64 = run.seconds.iter().map(|second| second.requests).sum();
        assert_eq!((counted, run.latencies().len()), (requests, requests));
        assert_eq!(run.read.bytes + run.write.bytes, requests * 16_384);
        // Closed: requests in flight = rate × mean latency.
        let in_flight = run.figures.requests_per_s * run.figures.mean_ns / 1e9;
        assert!((3.6..=4.4).contains(&in_flight), "{in_flight}");
        assert_eq!(run.stations.len(), 5);
        for station in &run.stations {
            let sum: f64 = station.shares.iter().map(|share| share.share).sum();
            assert!((sum - 1.0).abs() < 1e-6, "{station:?}");
        }
        assert!(run.stations[1].busy() > 0.3, "{:?}", run.stations[1]);
        let read: u64 = run.members.iter().map(|member| member.reads).sum();
        assert!(read > run.read.requests / 2, "{read}");
    }
}

#[test]
fn heads_move_without_gaps_within_the_first_run() {
    let outcome = ran(SMALL);
    assert_eq!(outcome.runs[0].heads.len(), 4);
    assert!(outcome.runs[1].heads.is_empty());
    for line in &outcome.runs[0].heads {
        let ends = line.spans.windows(2).all(|pair| pair[0].until_ns == pair[1].from_ns);
        assert!(ends && line.spans.iter().all(|span| span.until_ns <= 200_000_000));
        assert!(line.spans.iter().any(|span| span.what == "seek"));
    }
}

#[test]
fn a_failed_member_is_not_used_and_an_event_is_listed() {
    let text = SMALL.replacen("chunk =", "failed = [1]\nchunk =", 1);
    let outcome = ran(&text);
    assert_eq!(outcome.runs[0].members[1].read_bytes, 0);
    let text = format!("{SMALL}\n[[event]]\nat_s = 1\ndo = \"fail\"\nslot = 2\n");
    let run = ran(&text).runs.remove(0);
    let event = run.events.iter().find(|event| event.at_s > 0.5).unwrap();
    assert!((event.at_s - 1.0).abs() < 0.1 && event.text.contains("disk2"), "{event:?}");
    assert_eq!(run.errors, 0, "{:?}", run.first_error);
}

#[test]
fn a_worker_stops_when_its_array_has_failed() {
    let text = SMALL.replacen("chunk =", "failed = [1]\nchunk =", 1);
    let text = format!("{text}\n[[event]]\nat_s = 1\ndo = \"fail\"\nslot = 2\n");
    let run = ran(&text).runs.remove(0);
    assert!(run.errors > 0, "{:?}", run.events);
}

#[test]
fn flash_disks_are_faster_and_have_no_heads() {
    let flash = SMALL.replacen("4xhd501lj", "4xpm883-960", 1);
    let outcome = ran(&flash);
    assert!(outcome.median.requests_per_s > 10.0 * ran(SMALL).median.requests_per_s);
    assert!(outcome.runs[0].heads.is_empty() && outcome.runs[0].stations.len() == 1);
}

#[test]
fn faults_name_file_key_and_remedy() {
    let unknown = fault("chunk =", "chunkk =");
    assert!(unknown.starts_with("a.toml: line 13: chunkk: unknown field"), "{unknown}");
    for (from, to, key, hint) in [
        ("4xhd501lj", "4xhd501", "hardware.disks", "10xhd501lj"),
        ("\"raid5\"", "\"raid7\"", "array.level", "raid5"),
        ("\"16KiB\"", "\"16000B\"", "load.worker[0].size", "4KiB"),
        ("\"10GiB\"", "\"10TiB\"", "load.worker[0]", "zone"),
        ("seeds = 2", "seeds = 0", "seeds", "5"),
        ("window_s = 2", "window_s = -1", "window_s", "seconds"),
        ("value = 100", "value = 0", "cell[0].value", "measured"),
        ("chunk = \"64KiB\"", "consistency = \"maybe\"", "array.consistency", "intent"),
        ("chunk = \"64KiB\"", "failed = [9]", "array.failed", "slots"),
        ("chunk = \"64KiB\"", "chunk = \"1000B\"", "array", "change"),
        ("count = 4", "count = 60000\ndepth = 2", "load: more than", "lower"),
        ("request_ns = 4000", "request_ns = 4000000000", "hardware.cpu", "ns"),
        ("write_percent = 50", "count2 = 1", "line 18: count2", ""),
        ("\"16KiB\"", "\"16\"", "line 19: size", "no size"),
        ("\"random\"", "\"chaotic\"", "line 16: pattern", "random"),
    ] {
        let text = fault(from, to);
        assert!(text.starts_with(&format!("a.toml: {key}")), "{to}: {text}");
        assert!(text.contains(hint) && text.contains('\n'), "{to}: {text}");
    }
    assert!(load("[").is_err() && load("").is_err());
}

/// Keys of fio's own output must be in ours, with values of the same type.
fn covers(path: &str, theirs: &serde_json::Value, ours: &serde_json::Value) {
    use serde_json::Value;
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            for (key, value) in theirs.iter().filter(|(key, _)| !ABSENT.contains(&key.as_str())) {
                let mine = ours.get(key).unwrap_or_else(|| panic!("{path}.{key} is missing"));
                covers(&format!("{path}.{key}"), value, mine);
            }
        }
        (Value::Array(theirs), Value::Array(ours)) => covers(path, &theirs[0], &ours[0]),
        (Value::Number(_), Value::Number(_)) | (Value::String(_), Value::String(_)) => {}
        _ => panic!("{path}: {theirs} against {ours}"),
    }
}

/// What a model cannot have; options depend on the job, bins on the values.
const ABSENT: [&str; 13] = [
    "ctx",
    "majf",
    "minf",
    "iodepth_level",
    "iodepth_submit",
    "iodepth_complete",
    "latency_depth",
    "latency_target",
    "latency_percentile",
    "latency_window",
    "disk_util",
    "bins",
    "job options",
];

#[test]
fn the_json_for_fio_has_the_structure_of_fio() {
    let theirs = include_str!("../../tests/experiments/fio-3.33.json");
    let theirs: serde_json::Value = serde_json::from_str(theirs).unwrap();
    let outcome = ran(SMALL);
    let ours: serde_json::Value = serde_json::from_str(&to_fio_json(&outcome)).unwrap();
    covers("", &theirs, &ours);
    let (run, job) = (outcome.median_run().unwrap(), &ours["jobs"][0]);
    assert_eq!(job["read"]["iops"], run.read.requests_per_s);
    assert_eq!(job["write"]["total_ios"], run.write.requests);
    let median = job["read"]["clat_ns"]["percentile"]["50.000000"].as_u64().unwrap();
    assert_eq!(median, run.read.latencies.percentile(0.5));
    let classes = ["latency_ns", "latency_us", "latency_ms"].map(|name| job[name].as_object());
    let shares = classes.into_iter().flatten().flat_map(|class| class.values());
    let sum: f64 = shares.filter_map(serde_json::Value::as_f64).sum();
    assert!((sum - 100.0).abs() < 0.01, "{sum}");
    assert_eq!(job["job options"]["rw"], "randrw");
}

const REPLAY: &str = r#"
name = "replay"
seeds = 1
[hardware]
disks = "2xhd501lj"
[array]
level = "raid1"
[load.trace]
file = "t.log"
"#;

fn replayed(extra: &str, trace: &str) -> Result<Run, Fault> {
    let experiment = load(&format!("{REPLAY}{extra}\n"))?;
    assert_eq!(experiment.trace_file(), Some("t.log"));
    let trace = trace::read(trace.as_bytes()).unwrap();
    run_with(&experiment, Some(trace)).map(|mut outcome| outcome.runs.remove(0))
}

use super::outcome::Run;

#[test]
fn an_open_replay_keeps_the_times_and_a_closed_one_the_order() {
    let mut text = "fio version 3 iolog\n0 f add\n0 f open\n".to_string();
    for number in 0..200u64 {
        let offset = number * 7919 % 1000 * 4096;
        let verb = if number % 2 == 0 { "read" } else { "write" };
        text += &format!("{} f {verb} {offset} 4096\n", number * 50_000);
    }
    text += "10000000 f sync 0 0\n";
    let open = replayed("", &text).unwrap();
    assert_eq!((open.read.requests, open.write.requests, open.sync.requests), (100, 100, 1));
    assert!((open.span_s - 10.0).abs() < 0.1, "{}", open.span_s);
    let fast = replayed("time_scale = 200", &text).unwrap();
    assert!((fast.span_s - 5.0).abs() < 0.1, "{}", fast.span_s);
    let closed = replayed("replay = \"closed\"", &text).unwrap();
    assert_eq!(closed.write.requests, 100);
    assert!(closed.span_s < 5.0, "{}", closed.span_s);
    let deep = replayed("replay = \"closed\"\ndepth = 8", &text).unwrap();
    assert!(deep.span_s < closed.span_s, "{} {}", deep.span_s, closed.span_s);
}

#[test]
fn a_trace_that_does_not_fit_is_refused_or_folded() {
    let text = "fio version 2 iolog\nf add\nf open\nf write 900000000000000 4096\nf close\n";
    let untimed = replayed("", text).unwrap_err().to_string();
    assert!(untimed.contains("replay: the trace has no times"), "{untimed}");
    let far = replayed("replay = \"closed\"", text).unwrap_err().to_string();
    assert!(far.contains("fold = true"), "{far}");
    let folded = replayed("replay = \"closed\"\nfold = true", text).unwrap();
    assert_eq!((folded.write.requests, folded.errors), (1, 0));
}

#[test]
fn a_trace_is_given_exactly_where_one_is_named() {
    assert!(run(&load(REPLAY).unwrap()).is_err());
    let trace = trace::read(b"1,hm,1,Read,0,4096,5").unwrap();
    assert!(run_with(&load(SMALL).unwrap(), Some(trace)).is_err());
}

/// R2 as a file: the same constants as in `seeds`.
#[test]
fn the_experiment_of_r2_reaches_what_was_measured() {
    let outcome = ran(include_str!("../../tests/experiments/r2.toml"));
    let cell = &outcome.cells[0];
    let error = cell.reproduced / cell.measured - 1.0;
    assert!(error.abs() < 0.05, "{error}");
}

#[test]
fn clients_reach_the_array_over_links() {
    let stream = SMALL
        .replace(
            "pattern = \"random\"\ncount = 4\nwrite_percent = 50\nsize = \"16KiB\"",
            "pattern = \"sequential\"\ndepth = 8\nsize = \"128KiB\"",
        )
        .replace(
            "warm_up_s = 0.5\nwindow_s = 2\nseeds = 2",
            "warm_up_s = 0.05\nwindow_s = 0.3\nseeds = 1",
        )
        .replace("4xhd501lj", "4xpm9a3-1t9")
        .replace("cpu = { request_ns = 4000, member_op_ns = 1500 }", "LINK");
    let rate = |link: &str| {
        let outcome = ran(&stream.replace("LINK", link));
        (outcome.median.bytes_per_s / 1024.0, outcome.runs[0].clone())
    };
    // Fast disks without a network; then a wire, or two, or the core's work for frames.
    let (free, _) = rate("");
    assert!(free > 300_000.0, "{free}");
    let wires = |text: &str, kib: f64| {
        let (rate, run) = rate(text);
        assert!((rate / kib - 1.0).abs() < 0.01, "{text}: {rate}");
        assert_eq!(run.errors, 0);
        run
    };
    let run = wires("link = { protocol = \"aoe\", mtu = 9000 }", 121_183.0);
    let station = |name: &str| run.stations.iter().find(|it| it.name == name).unwrap().busy();
    assert!(station("link0 from") > 0.99 && station("link0 to") < 0.1);
    wires("link = { protocol = \"aoe\", links = 2, mtu = 9000 }", 242_365.0);
    wires("link = { protocol = \"nbd\", mtu = 9000 }", 125e6 / 1024.0 * 8948.0 / 9038.0);
    let (busy, _) = rate("link = { protocol = \"aoe\" }\ncpu = { frame_ns = 20000 }");
    assert!((24_000.0..=26_000.0).contains(&busy), "{busy}");
    let wrong = stream.replace("LINK", "link = { protocol = \"nbd\", volatile = true }");
    assert!(load(&wrong).unwrap_err().to_string().contains("hardware.link.volatile"));
}
