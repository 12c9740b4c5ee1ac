//! The model of hard disks against measured disks.
//!
//! The traces are of DiskSim's validation: 10,000 requests for each disk, one at a time, with
//! measured service times. `traces/README.md` describes the files. With `--nocapture` the figures
//! are printed.

use lab::demerit::{demerit, mean};
use lab::disk::catalogue::Catalogue;
use lab::disk::hdd::Hdd;
use lab::disk::{Answer, Kind, Model, Request};

/// A request of a trace.
struct Traced {
    request: Request,
    service_ns: u64,
    gap_ns: u64,
}

const TRACES: [(&str, &[u8]); 5] = [
    ("barracuda", include_bytes!("traces/barracuda.bin")),
    ("cheetah4lp", include_bytes!("traces/cheetah4lp.bin")),
    ("cheetah9lp", include_bytes!("traces/cheetah9lp.bin")),
    ("ibm18es", include_bytes!("traces/ibm18es.bin")),
    ("atlas10k", include_bytes!("traces/atlas10k.bin")),
];

fn number(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a number has a last byte");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

fn decode(mut bytes: &[u8]) -> Vec<Traced> {
    let mut traced = Vec::new();
    let mut end = 0u64;
    while !bytes.is_empty() {
        let head = number(&mut bytes);
        let step = number(&mut bytes);
        let sector = end.wrapping_add((step >> 1) ^ (step & 1).wrapping_neg());
        let kind = if head & 1 == 1 { Kind::Write } else { Kind::Read };
        let sectors = (head >> 1) as u32;
        let request = Request { tag: 0, kind, sector, sectors, durable: false };
        end = request.end();
        let service_ns = number(&mut bytes) * 1000;
        let gap_ns = number(&mut bytes) * 1000;
        traced.push(Traced { request, service_ns, gap_ns });
    }
    traced
}

/// The model's time for each request, each `gap_ns` after the answer to the one before.
fn replay(disk: &mut Hdd, trace: &[Traced]) -> Vec<u64> {
    let (mut now, mut answers): (u64, Vec<Answer>) = (0, Vec::new());
    let mut times = Vec::with_capacity(trace.len());
    for traced in trace {
        disk.submit(now, traced.request);
        answers.clear();
        while answers.is_empty() {
            let next = disk.next_event().expect("a request is in flight");
            disk.advance(next, &mut answers);
        }
        times.push(answers[0].at - now);
        now = answers[0].at + traced.gap_ns;
        disk.advance(now, &mut answers);
    }
    times
}

/// Demerit and error of the mean of each disk, with the parameters named `suffix`.
fn figures(suffix: &str) -> Vec<(&'static str, f64)> {
    let measure = |&(name, bytes): &(&'static str, &[u8])| {
        let trace = decode(bytes);
        assert_eq!(trace.len(), 10_000);
        let hdd = Catalogue::get().hdd(&format!("{name}{suffix}")).expect("a catalogued disk");
        let mut modelled = replay(&mut Hdd::new(hdd.spec()), &trace);
        let mut measured: Vec<u64> = trace.iter().map(|traced| traced.service_ns).collect();
        let (mean_ms, off) = (mean(&measured) / 1e6, mean(&modelled) / mean(&measured) - 1.0);
        let figure = demerit(&mut modelled, &mut measured);
        let (figure, off) = (100.0 * figure, 100.0 * off);
        println!("{name}{suffix}: mean {mean_ms:.2} ms, demerit {figure:.1} %, mean {off:+.1} %");
        (name, figure)
    };
    TRACES.iter().map(measure).collect()
}

#[test]
fn extracted_parameters_come_within_6_5_percent() {
    for (name, figure) in figures("") {
        assert!(figure <= 6.5, "{name}: {figure:.1} %");
    }
}

#[test]
fn data_sheets_come_within_12_percent() {
    for (name, figure) in figures("-sheet") {
        assert!(figure <= 12.0, "{name}: {figure:.1} %");
    }
}
