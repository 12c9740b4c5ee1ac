//! The model of flash disks against data sheets and against the effects that it is there for. With
//! `--nocapture` the figures are printed.

mod closed;

use closed::Outcome;
use lab::disk::catalogue::Catalogue;
use lab::disk::flash::{Flash, FlashEntry, Spec};
use lab::disk::{Answer, Kind, Model, Request};
use random::Rng;

fn entry(name: &str) -> &'static FlashEntry {
    Catalogue::get().flash(name).expect("a catalogued disk")
}

/// Random 4 KiB over the whole disk; `reads` in a hundred are reads.
fn random(spec: Spec, reads: u64, depth: usize, warm_up: u64, count: u64) -> Outcome {
    let blocks = spec.sectors / 8;
    let mut rng = Rng::stream(7, "flash", depth as u64);
    let next = |tag| {
        let kind = if rng.percent(reads) { Kind::Read } else { Kind::Write };
        Request { kind, ..Request::read(tag, rng.below(blocks) * 8, 8) }
    };
    closed::run(&mut Flash::new(spec), depth, warm_up, count, next)
}

#[test]
fn reads_take_sensing_channel_and_bus_and_scale_with_the_dies() {
    for (name, one_us, least) in [("pm883-960", 93.0, 90_000.0), ("pm9a3-1t9", 67.0, 800_000.0)] {
        let one = random(entry(name).spec(), 100, 1, 100, 5000);
        let deep = random(entry(name).spec(), 100, 256, 1000, 50_000);
        let us = one.quantile(0.5) as f64 / 1e3;
        println!("{name}: {us:.0} us, {:.0}/s at depth 256", deep.rate);
        assert!((us / one_us - 1.0).abs() < 0.05, "{name}: {us:.1} us");
        assert!(deep.rate > least, "{name}: {:.0}", deep.rate);
    }
}

/// The dies program each page of the host and its copies, and sense the copies. The rates of the
/// data sheets, for which the amplification was chosen, leave out the sensing.
#[test]
fn steady_random_writes_run_at_the_rate_of_the_dies_over_the_amplification() {
    let table = [("pm883-960", 25_000.0), ("pm9a3-1t9", 130_000.0), ("870evo-1t", 12_000.0)];
    for (name, sheet) in table {
        let spec = entry(name).spec();
        let copies = spec.amplification as f64 / 1000.0 - 1.0;
        let crossing = spec.page as f64 / spec.channel_rate as f64 * 1e9;
        let erase = spec.erase as f64 / f64::from(spec.block_pages);
        let program = spec.program as f64 + erase;
        let page = program * (1.0 + copies) + spec.read[0] as f64 * copies + crossing;
        let expected = spec.dies as f64 * (spec.page / 4096) as f64 * 1e9 / page;
        let found = random(spec, 0, 32, 100_000, 200_000).rate;
        println!("{name}: {found:.0}/s, by the dies {expected:.0}, data sheet {sheet}");
        assert!((found / expected - 1.0).abs() < 0.02, "{name}: {found:.0}, {expected:.0}");
        assert!((found / sheet - 1.0).abs() < 0.15, "{name}: {found:.0}");
    }
}

#[test]
fn a_fresh_disk_and_a_sequential_writer_do_not_pay_for_cleaning() {
    let mut spec = entry("pm883-960").fresh_spec();
    spec.fresh = 1 << 30;
    // 1 GiB are 262,144 writes of 4 KiB; the buffer hides some of the first ones.
    let fresh = random(spec.clone(), 0, 32, 50_000, 150_000).rate;
    let used = random(spec, 0, 32, 300_000, 100_000).rate;
    println!("fresh {fresh:.0}/s, then {used:.0}/s");
    assert!(fresh / used > 5.0);
    let next = |tag| Request::write(tag, tag * 256, 256);
    let mut disk = Flash::new(entry("pm883-960").spec());
    let rate = closed::run(&mut disk, 8, 2000, 8000, next).rate * 131_072.0 / 1e6;
    println!("sequential: {rate:.0} MB/s");
    assert!((520.0..561.0).contains(&rate), "{rate:.0}");
}

/// Without suspending programs, the slowest percent of reads takes 3 to 5 times as long (facts of
/// the lab, 1.7).
#[test]
fn suspending_programs_keeps_slow_reads_short() {
    let mixed = |name: &str, suspend: bool| {
        let mut spec = entry(name).spec();
        spec.suspend = spec.suspend.filter(|_| suspend);
        let blocks = spec.sectors / 8;
        let mut disk = Flash::new(spec);
        let mut rng = Rng::stream(9, "mixed", 0);
        let (mut answers, mut reads) = (Vec::<Answer>::new(), Vec::new());
        // Open: 5,000 reads and 5,000 writes a second.
        for tag in 0..40_000 {
            let kind = if tag % 2 == 0 { Kind::Read } else { Kind::Write };
            let request = Request { kind, ..Request::read(tag, rng.below(blocks) * 8, 8) };
            disk.submit(tag * 100_000, request);
        }
        disk.advance(u64::MAX / 2, &mut answers);
        for answer in answers.iter().filter(|answer| answer.tag % 2 == 0) {
            reads.push(answer.at - answer.tag * 100_000);
        }
        reads.sort_unstable();
        assert_eq!(reads.len(), 20_000);
        reads[reads.len() * 99 / 100] as f64 / 1e3
    };
    for name in ["pm883-960", "micron7300-3t84"] {
        let (with, without) = (mixed(name, true), mixed(name, false));
        println!("{name}: p99 {with:.0} us with suspend, {without:.0} us without");
        assert!(without / with > 3.0, "{name}: {with:.0} {without:.0}");
    }
}

#[test]
fn a_flush_empties_an_unprotected_buffer_and_a_battery_makes_it_free() {
    for (name, least, most) in [("870evo-1t", 3_590_000, 4_500_000), ("pm883-960", 15_000, 15_000)]
    {
        let mut disk = Flash::new(entry(name).spec());
        for tag in 0..4 {
            disk.submit(0, Request::write(tag, tag * 1_000_000, 8));
        }
        let mut answers = Vec::new();
        disk.advance(1_000_000, &mut answers);
        assert_eq!(answers.len(), 4, "the buffer answers");
        disk.submit(1_000_000, Request::write(5, 17, 1));
        disk.advance(2_000_000, &mut answers);
        disk.submit(2_000_000, Request::flush(9));
        answers.clear();
        disk.advance(u64::MAX / 2, &mut answers);
        let time = answers.iter().find(|answer| answer.tag == 9).expect("answered").at - 2_000_000;
        assert!((least..=most).contains(&time), "{name}: {time}");
    }
}

#[test]
fn every_request_is_answered_once_however_the_model_is_asked() {
    let run = |late: bool| {
        let spec = Spec { suspend: Some(20_000), ..entry("870evo-1t").spec() };
        let mut disk = Flash::new(spec);
        let mut rng = Rng::stream(5, "late", 0);
        let mut answers = Vec::new();
        for tag in 0..5000 {
            let now = tag * 30_000;
            while let Some(next) = disk.next_event().filter(|&next| !late && next <= now) {
                disk.advance(next, &mut answers);
            }
            let (at, durable) = (rng.below(100_000_000), rng.percent(5));
            let request = match rng.below(20) {
                0 => Request::flush(tag),
                1..9 => Request::read(tag, at, 1 + rng.below(300) as u32),
                _ => Request { durable, ..Request::write(tag, at, 1 + rng.below(100) as u32) },
            };
            disk.submit(now, request);
        }
        disk.advance(u64::MAX / 2, &mut answers);
        answers
    };
    let mut answers = run(false);
    assert_eq!(answers, run(true));
    assert!(answers.windows(2).all(|pair| pair[0].at <= pair[1].at));
    answers.sort_by_key(|answer| answer.tag);
    assert!(answers.iter().map(|answer| answer.tag).eq(0..5000));
}
