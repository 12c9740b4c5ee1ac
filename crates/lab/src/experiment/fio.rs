//! An outcome in the JSON of `fio --output-format=json+`, for fio-plot and other tools.
//!
//! Keys and units are fio's (3.33): `bw` in KiB/s, `bw_bytes` in bytes per second, `runtime` in
//! milliseconds, percentiles by texts such as `99.900000`. Figures that a model does not have, such
//! as context switches, are left out rather than invented.

use serde_json::{Map, Value, json};

use super::outcome::{Outcome, Run, Side};

/// fio's usual percentiles.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// The last latency of each class of fio's `latency_ns`, `_us` and `_ms`; the next class starts
/// there.
const NS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
const MS: [u64; 11] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000];

/// The median run in fio's form: one job.
///
/// `rw`, `bs` and `iodepth` stand in the job's options, where fio-plot looks for them.
pub fn to_fio_json(outcome: &Outcome) -> String {
    let jobs: Vec<Value> = outcome.median_run().map(|run| job(outcome, run)).into_iter().collect();
    let document = json!({
        "fio version": format!("parapet-lab-{} (simulated)", outcome.version),
        "timestamp": 0,
        "timestamp_ms": 0,
        "time": "simulated",
        "jobs": jobs,
    });
    serde_json::to_string_pretty(&document).expect("numbers and texts have a JSON form")
}

fn job(outcome: &Outcome, run: &Run) -> Value {
    let runtime_ms = (run.span_s * 1000.0).round() as u64;
    let mut job = json!({
        "jobname": outcome.name,
        "groupid": 0,
        "error": u8::from(run.errors > 0),
        "eta": 0,
        "elapsed": run.span_s.ceil() as u64,
        "job options": options(outcome, run),
        "read": side(&run.read, run, runtime_ms),
        "write": side(&run.write, run, runtime_ms),
        "trim": side(&run.trim, run, runtime_ms),
        "sync": {
            "total_ios": run.sync.requests,
            "lat_ns": detailed(&run.sync),
        },
        "job_runtime": runtime_ms,
        "usr_cpu": 0.0,
        "sys_cpu": 0.0,
    });
    let classes = classes(run);
    if let (Value::Object(job), Value::Object(classes)) = (&mut job, classes) {
        job.extend(classes);
    }
    job
}

fn options(outcome: &Outcome, run: &Run) -> Value {
    let experiment = super::load(&outcome.experiment).ok();
    let worker = experiment.as_ref().and_then(|found| found.load.workers.first());
    let sequential = worker.is_some_and(|one| one.pattern == super::schema::Pattern::Sequential);
    let rw = match (run.read.requests > 0, run.write.requests > 0, sequential) {
        (true, true, true) => "rw",
        (true, true, false) => "randrw",
        (false, true, true) => "write",
        (false, true, false) => "randwrite",
        (_, _, true) => "read",
        _ => "randread",
    };
    let mut options = json!({
        "name": outcome.name,
        "rw": rw,
        "iodepth": worker.map_or(outcome.depth as usize, |one| one.depth).to_string(),
        "numjobs": worker.map_or(1, |one| one.count).to_string(),
        "runtime": (run.span_s.round() as u64).to_string(),
    });
    if let Some(worker) = worker {
        options["bs"] = json!(worker.size.0.to_string());
    }
    options
}

fn side(side: &Side, run: &Run, runtime_ms: u64) -> Value {
    let empty = side.requests == 0;
    let direct = !empty && side.requests == run.latencies().len();
    let series = |value: fn(&super::outcome::Second) -> f64| -> Vec<f64> {
        // The time line counts all requests: it is this side's only if there is no other.
        if direct { run.seconds.iter().map(value).collect() } else { Vec::new() }
    };
    let bw = spread(&series(|second| second.bytes as f64 / 1024.0));
    let iops = spread(&series(|second| second.requests as f64));
    json!({
        "io_bytes": side.bytes,
        "io_kbytes": side.bytes / 1024,
        "bw_bytes": side.bytes_per_s.round() as u64,
        "bw": (side.bytes_per_s / 1024.0).round() as u64,
        "iops": side.requests_per_s,
        "runtime": if empty { 0 } else { runtime_ms },
        "total_ios": side.requests,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": latency(&Side::default()),
        "clat_ns": detailed(side),
        "lat_ns": latency(side),
        "bw_min": bw.min.round() as u64,
        "bw_max": bw.max.round() as u64,
        "bw_agg": if empty { 0.0 } else { 100.0 },
        "bw_mean": bw.mean,
        "bw_dev": bw.deviation,
        "bw_samples": bw.samples,
        "iops_min": iops.min.round() as u64,
        "iops_max": iops.max.round() as u64,
        "iops_mean": iops.mean,
        "iops_stddev": iops.deviation,
        "iops_samples": iops.samples,
    })
}

fn latency(side: &Side) -> Value {
    json!({
        "min": side.min_ns,
        "max": side.max_ns,
        "mean": side.mean_ns,
        "stddev": side.stddev_ns,
        "N": side.requests,
    })
}

/// With percentiles and all classes, if there is a request.
fn detailed(side: &Side) -> Value {
    let mut value = latency(side);
    if side.requests > 0 {
        value["percentile"] = percentiles(side);
        let middle = |(from, to, count): (u64, u64, u64)| {
            ((from + (to - from) / 2).to_string(), json!(count))
        };
        value["bins"] = Value::Object(side.latencies.buckets().map(middle).collect());
    }
    value
}

fn percentiles(side: &Side) -> Value {
    let value = |percent: f64| {
        let found = side.latencies.percentile(percent / 100.0);
        (format!("{percent:.6}"), json!(found.clamp(side.min_ns, side.max_ns)))
    };
    Value::Object(PERCENTILES.into_iter().map(value).collect())
}

#[derive(Default)]
struct Spread {
    min: f64,
    max: f64,
    mean: f64,
    deviation: f64,
    samples: usize,
}

fn spread(values: &[f64]) -> Spread {
    let samples = values.len();
    if samples == 0 {
        return Spread::default();
    }
    let mean = values.iter().sum::<f64>() / samples as f64;
    let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    Spread {
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(0.0, f64::max),
        mean,
        deviation: (square / samples as f64).sqrt(),
        samples,
    }
}

/// The shares of latencies in fio's classes, in percent.
fn classes(run: &Run) -> Value {
    let all = run.latencies();
    let mut objects = Map::new();
    let mut from = 0;
    for (name, factor, bounds) in [
        ("latency_ns", 1, &NS[..]),
        ("latency_us", 1000, &NS[..]),
        ("latency_ms", 1_000_000, &MS[..]),
    ] {
        let mut object = Map::new();
        for &bound in bounds {
            let until = bound * factor;
            object.insert(bound.to_string(), json!(100.0 * all.share(from, until)));
            from = until;
        }
        if factor == 1_000_000 {
            object.insert(">=2000".into(), json!(100.0 * all.share(from, u64::MAX)));
        }
        objects.insert(name.into(), Value::Object(object));
    }
    Value::Object(objects)
}
