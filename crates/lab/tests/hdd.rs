//! The model of hard disks against published and computed figures: queues, streams, caches. With
//! `--nocapture` the figures are printed.

mod closed;

use lab::disk::catalogue::Catalogue;
use std::cell::RefCell;
use std::rc::Rc;

use lab::disk::hdd::{Activity, Hdd, Lost, Span, Spec};
use lab::disk::{Kind, Model, Request, SECTOR};
use random::Rng;

fn spec(name: &str) -> Spec {
    Catalogue::get().hdd(name).expect("a catalogued disk").spec()
}

/// Random requests over the first `share` of a disk, one of `depth` at a time; per second.
fn random(spec: Spec, kind: Kind, sectors: u32, depth: usize, share: f64) -> f64 {
    let blocks = (spec.geometry.sectors() as f64 * share) as u64 / u64::from(sectors);
    let mut rng = Rng::stream(7, "random", depth as u64);
    let request = |tag| Request {
        kind,
        ..Request::read(tag, rng.below(blocks) * u64::from(sectors), sectors)
    };
    let mut disk = Hdd::new(spec);
    closed::run(&mut disk, depth, 4 * depth as u64, 4000 + 40 * depth as u64, request).rate
}

/// The figures count the requests that the disk chooses from. The one that the heads serve is not
/// among them: the arm leaves before the host has the answer.
fn in_flight(choice: usize) -> usize {
    if choice == 1 { 1 } else { choice + 1 }
}

fn within(what: &str, found: f64, expected: f64, percent: f64) {
    let off = 100.0 * (found / expected - 1.0);
    println!("{what}: {found:.1}, expected {expected:.1} ({off:+.1} %)");
    assert!(off.abs() <= percent, "{what}: {found:.1}, expected {expected:.1} ({off:+.1} %)");
}

/// Shortest positioning time first, 4 KiB reads over the whole disk (facts of the lab, 1.3).
#[test]
fn deeper_queues_give_a_fifth_more_with_each_doubling() {
    let depths = [1, 2, 4, 8, 16, 32, 64, 128];
    let table = [
        ("cheetah-15k5", [178, 214, 253, 301, 366, 433, 527, 618]),
        ("hd501lj", [76, 92, 108, 130, 156, 185, 221, 264]),
        ("nearline-16t", [83, 98, 117, 140, 171, 206, 249, 295]),
    ];
    for (name, rates) in table {
        let mut found = Vec::new();
        for (depth, rate) in depths.into_iter().zip(rates) {
            let mut spec = spec(name);
            // The figures are for an ideal queue.
            spec.queue.considered = 256;
            spec.queue.age_limit = None;
            found.push(random(spec, Kind::Read, 8, in_flight(depth), 1.0));
            within(&format!("{name} depth {depth}"), found[found.len() - 1], f64::from(rate), 10.0);
        }
        let doubling = (found[7] / found[0]).powf(1.0 / 7.0);
        within(&format!("{name}, for each doubling"), doubling, 1.2, 2.5);
    }
}

/// Consumer disks reorder few requests: their gain at depth 32 is 1.5 to 1.6 (facts 1.3).
#[test]
fn a_disk_that_considers_few_requests_gains_little() {
    let mut spec = spec("desktop-2t");
    spec.queue.age_limit = None;
    let gain = random(spec.clone(), Kind::Read, 8, 32, 1.0) / random(spec, Kind::Read, 8, 1, 1.0);
    println!("gain at depth 32, 4 considered: {gain:.2}");
    assert!((1.4..1.65).contains(&gain), "{gain:.2}");
}

/// 16 KiB writes at depth 1: over 12 % of the cylinders, and over all of them (facts 1.3).
#[test]
fn a_short_stroke_flatters() {
    let spec = spec("cheetah-15k5");
    // The outer cylinders are longer than the mean: 12 % of them hold 15 % of the sectors.
    within("short stroke", random(spec.clone(), Kind::Write, 32, 1, 0.15), 260.0, 5.0);
    within("whole disk", random(spec, Kind::Write, 32, 1, 1.0), 161.0, 5.0);
}

/// Reference system R2: 16 KiB over 20 GiB of a RAID 10 on four disks, so 14 % of each. Each write
/// goes to two disks (facts 2).
#[test]
fn four_disks_under_a_controller_that_hands_its_requests_over() {
    let rates = [520, 613, 747, 906, 1060, 1227, 1407, 1584];
    for (depth, rate) in [1, 2, 4, 8, 16, 32, 64, 128].into_iter().zip(rates) {
        let mut spec = spec("cheetah-15k5");
        spec.queue.age_limit = None;
        let one = random(spec, Kind::Write, 32, in_flight(depth), 0.146);
        within(&format!("SPTF over {depth}"), 4.0 * one / 2.0, f64::from(rate), 10.0);
    }
}

/// A stream from `start`: requests of `sectors`, `step` apart; MB/s.
fn stream(disk: &mut Hdd, kind: Kind, start: u64, sectors: u32, step: u64, depth: usize) -> f64 {
    let count = 400;
    let next = |tag| Request { kind, ..Request::read(tag, start + tag * step, sectors) };
    let outcome = closed::run(disk, depth, count / 2, count, next);
    outcome.rate * f64::from(sectors) * SECTOR as f64 / 1e6
}

#[test]
fn streams_run_at_the_rates_of_the_sheet_and_a_pass_at_their_mean() {
    for (name, outer, inner) in [("cheetah-15k5", 125.0, 73.0), ("hd501lj", 86.8, 43.0)] {
        let spec = spec(name);
        let last = spec.geometry.sectors() - 700 * 2048;
        let rate = |at| stream(&mut Hdd::new(spec.clone()), Kind::Read, at, 2048, 2048, 2);
        within(&format!("{name} outside"), rate(0), outer, 2.0);
        within(&format!("{name} inside"), rate(last), inner, 2.0);
        let whole = spec.geometry.sectors();
        let seconds = spec.geometry.pass(0, whole) as f64 / 1e9;
        let mean = whole as f64 * SECTOR as f64 / seconds / 1e6;
        within(&format!("{name} whole pass"), mean, (outer + inner) / 2.0, 2.0);
        let promised = whole as f64 * SECTOR as f64 / outer / 1e6;
        let longer = 2.0 / (1.0 + inner / outer);
        within(&format!("{name} pass, of the promise"), seconds / promised, longer, 2.0);
    }
}

/// Without a write cache each command that comes after the last one ended waits almost a
/// revolution: 1 MiB at depth 1 gives 78 MB/s instead of 205 (facts 1.5). Two in flight hide it.
#[test]
fn without_write_cache_a_stream_misses_revolutions() {
    let mut spec = spec("ultrastar-7k8");
    let middle = spec.geometry.sectors() / 2;
    let cached = stream(&mut Hdd::new(spec.clone()), Kind::Write, middle, 2048, 2048, 1);
    spec.write_cache = None;
    let one = stream(&mut Hdd::new(spec.clone()), Kind::Write, middle, 2048, 2048, 1);
    let two = stream(&mut Hdd::new(spec.clone()), Kind::Write, middle, 2048, 2048, 2);
    within("write cache on", cached, 205.0, 5.0);
    within("off, one in flight", one, 78.0, 5.0);
    within("off, two in flight", two, 205.0, 5.0);
    // A sector of its own on the same track: exactly a revolution for each.
    let revolution = spec.geometry.revolution() as f64 / 1e9;
    let sectors = stream(&mut Hdd::new(spec), Kind::Write, middle, 1, 1, 1);
    within("off, sector by sector", sectors, SECTOR as f64 / revolution / 1e6, 2.0);
}

#[test]
fn sequential_reads_hit_the_read_ahead_or_lose_revolutions_without_it() {
    let mut spec = spec("hd501lj");
    let next = |tag| Request::read(tag, 128 * tag, 128);
    let outcome = closed::run(&mut Hdd::new(spec.clone()), 1, 200, 1000, next);
    within("64 KiB at depth 1", outcome.rate * 65_536.0 / 1e6, 86.8, 3.0);
    spec.read_cache.ahead = 0;
    let outcome = closed::run(&mut Hdd::new(spec.clone()), 1, 200, 1000, next);
    // A revolution and the transfer, 64 KiB at the rate of the track.
    let slow = 65_536.0 / (0.008_333 + 65_536.0 / 99e6) / 1e6;
    within("without read-ahead", outcome.rate * 65_536.0 / 1e6, slow, 5.0);
}

/// A slow reader finds everything in the cache: the read-ahead has filled it while the host
/// thought. One read in a gap of 5 ms takes 0.03 ms and the bus.
#[test]
fn a_slow_sequential_reader_only_hits() {
    let mut disk = Hdd::new(spec("hd501lj"));
    let (mut now, mut answers, mut times) = (0, Vec::new(), Vec::new());
    for tag in 0..100 {
        disk.submit(now, Request::read(tag, tag * 128, 128));
        answers.clear();
        while answers.is_empty() {
            disk.advance(disk.next_event().expect("a read is in flight"), &mut answers);
        }
        times.push(answers[0].at - now);
        now = answers[0].at + 5_000_000;
        disk.advance(now, &mut answers);
    }
    let bus = 128 * 1707;
    assert!(times[1..].iter().all(|&time| time == 30_000 + bus), "{times:?}");
}

/// A RAID 5 member skips its parity chunks: the head passes over them at the rate of the medium
/// (facts 1.4).
#[test]
fn a_stream_with_gaps_gets_its_share_of_the_medium() {
    let next = |tag: u64| Request::read(tag, tag / 3 * 512 + tag % 3 * 128, 128);
    for depth in [1, 4] {
        let outcome = closed::run(&mut Hdd::new(spec("hd501lj")), depth, 300, 3000, next);
        let rate = outcome.rate * 65_536.0 / 1e6;
        within(&format!("three of four chunks, depth {depth}"), rate, 0.75 * 86.8, 4.0);
    }
}

/// A stream whose requests came over two links: every second one first, then the others. The gaps
/// passed under the heads, so the others are in the cache.
#[test]
fn a_stream_out_of_order_needs_no_second_pass() {
    let order = |number: u64| {
        let (batch, place) = (number / 16 * 16, number % 16);
        batch + if place < 8 { 2 * place } else { 2 * (place - 8) + 1 }
    };
    let mut disk = Hdd::new(spec("hd501lj"));
    let request = |tag| Request::read(tag, order(tag) * 128, 128);
    let rate = closed::run(&mut disk, 16, 64, 2000, request).rate * 64.0 * 1024.0 / 1e6;
    within("MB/s", rate, 86.8, 3.0);
}

/// Reference system R4: a disk writes a stream at 38,057 KiB/s that it reads at 84,790 (facts 1.5).
#[test]
fn lost_revolutions_explain_a_slow_write_stream() {
    let mut spec = spec("hd501lj");
    spec.lost = Some(Lost { per_million: 111_000, chunk: 128, seed: 5 });
    let next = |tag| Request::write(tag, 1024 * tag, 1024);
    let outcome = closed::run(&mut Hdd::new(spec), 1, 500, 3000, next);
    within("write stream, KiB/s", outcome.rate * 512.0, 38_057.0, 5.0);
}

/// A flush is answered when every write before it is on the medium, and blocks later commands.
#[test]
fn a_flush_destages_everything_and_blocks_the_queue() {
    let mut disk = Hdd::new(spec("hd501lj"));
    let mut rng = Rng::stream(3, "flush", 0);
    for tag in 0..100 {
        disk.submit(0, Request::write(tag, rng.below(1_000_000) * 512, 8));
    }
    disk.submit(0, Request::flush(100));
    disk.submit(0, Request::read(101, 0, 8));
    let mut answers = Vec::new();
    while let Some(next) = disk.next_event() {
        disk.advance(next, &mut answers);
    }
    let at = |tag| answers.iter().find(|answer| answer.tag == tag).expect("answered").at;
    let writes = (0..100).map(at).max().expect("writes");
    assert!(writes < 10_000_000, "the cache takes 100 writes in {writes} ns");
    // 100 destages by shortest positioning time: 4 to 8 ms each.
    assert!((400_000_000..800_000_000).contains(&at(100)), "{}", at(100));
    assert!(at(101) > at(100), "a read passed the flush");
    let now = at(101);
    disk.submit(now, Request::flush(102));
    answers.clear();
    disk.advance(now + 1_000_000, &mut answers);
    assert_eq!(answers.len(), 1, "nothing is left to destage");
}

/// What the heads do is told without gaps, and adds up.
#[test]
fn an_observer_sees_every_moment_once() {
    let spans = Rc::new(RefCell::new(Vec::<Span>::new()));
    let mut spec = spec("hd501lj");
    spec.lost = Some(Lost { per_million: 500_000, chunk: 128, seed: 1 });
    let mut disk = Hdd::new(spec);
    let seen = Rc::clone(&spans);
    disk.observe(Box::new(move |span| seen.borrow_mut().push(span)));
    let mut rng = Rng::stream(4, "observer", 0);
    let next = |tag| match tag % 3 {
        0 => Request::write(tag, rng.below(7_000_000) * 128, 128),
        _ => Request::read(tag, rng.below(7_000_000) * 128, 128),
    };
    closed::run(&mut disk, 2, 10, 1000, next);
    let spans = spans.borrow();
    assert!(spans.windows(2).all(|pair| pair[0].until == pair[1].from));
    for activity in [Activity::Seek, Activity::Rotate, Activity::Transfer] {
        assert!(spans.iter().any(|span| span.activity == activity), "{activity:?}");
    }
    // The heads wait for a command where they are; they move within seeks only.
    let moves = |pair: &[Span]| pair[0].cylinder != pair[1].cylinder;
    let moving = spans.windows(2).filter(|pair| moves(pair));
    assert!(moving.clone().count() > 500);
    assert!(moving.clone().all(|pair| pair[1].activity == Activity::Seek));
    let lost = spans.iter().filter(|span| span.activity == Activity::LostRevolution);
    assert!(lost.clone().count() > 100);
    assert!(lost.clone().all(|span| span.until - span.from == 8_333_333));
}

/// The same requests at the same times give the same answers; a late caller gets them with the
/// times at which they were due.
#[test]
fn answers_do_not_depend_on_how_often_the_model_is_asked() {
    let run = |late: bool| {
        let mut disk = Hdd::new(spec("hd501lj"));
        let mut rng = Rng::stream(5, "late", 0);
        let mut answers = Vec::new();
        for tag in 0..2000 {
            let now = tag * 7_000_000;
            let at = rng.below(1_000_000) * 512;
            let kind = if rng.percent(40) { Kind::Write } else { Kind::Read };
            while let Some(next) = disk.next_event().filter(|&next| !late && next <= now) {
                disk.advance(next, &mut answers);
            }
            disk.submit(now, Request { kind, ..Request::read(tag, at, 16) });
        }
        disk.advance(u64::MAX / 2, &mut answers);
        answers
    };
    let answers = run(false);
    assert_eq!(answers, run(true));
    assert!(answers.windows(2).all(|pair| pair[0].at <= pair[1].at));
}

/// Time of one request on an idle disk.
fn once(disk: &mut Hdd, now: &mut u64, request: Request) -> u64 {
    let (start, mut answers) = (*now, Vec::new());
    disk.submit(start, request);
    while answers.is_empty() {
        disk.advance(disk.next_event().expect("a request is in flight"), &mut answers);
    }
    *now = answers[0].at + 100_000_000;
    disk.advance(*now, &mut answers);
    answers[0].at - start
}

#[test]
fn a_write_takes_its_sectors_out_of_the_read_cache() {
    let mut spec = spec("hd501lj");
    // A run slides: this one keeps what the host has read.
    spec.read_cache.sectors = 4096;
    let (mut disk, mut now) = (Hdd::new(spec), 0);
    let hit = 30_000 + 8 * 1707;
    assert!(once(&mut disk, &mut now, Request::read(0, 5000, 8)) > 1_000_000);
    for sector in [5000, 5016, 5500] {
        assert_eq!(once(&mut disk, &mut now, Request::read(0, sector, 8)), hit, "{sector}");
    }
    let write = Request { durable: true, ..Request::write(0, 5016, 8) };
    assert!(once(&mut disk, &mut now, write) > 100_000);
    assert_eq!(once(&mut disk, &mut now, Request::read(0, 5008, 8)), hit);
    assert!(once(&mut disk, &mut now, Request::read(0, 5016, 8)) > 100_000);
}

/// One request far away, among others that always are nearer.
#[test]
fn the_age_limit_ends_the_wait_of_a_request_that_others_pass() {
    let waits = |limit| {
        let mut spec = spec("hd501lj");
        spec.queue.age_limit = limit;
        let far = spec.geometry.sectors() - 8;
        let mut rng = Rng::stream(6, "age", 0);
        let next = |tag| match tag {
            8 => Request::read(tag, far, 8),
            _ => Request::read(tag, rng.below(100_000) * 8, 8),
        };
        let outcome = closed::run(&mut Hdd::new(spec), 16, 1, 2000, next);
        outcome.quantile(1.0)
    };
    assert!((500_000_000..550_000_000).contains(&waits(Some(500_000_000))));
    // Without it, 2000 others are answered and the far one is not.
    assert!(waits(None) < 400_000_000);
}
