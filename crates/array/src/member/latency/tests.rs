//! Histograms, marks and verdicts, fed by hand.

use super::*;

const MICRO: Duration = Duration::from_micros(1);
const FLOOR: Duration = Duration::from_millis(2);
const MOST: Duration = Duration::from_secs(8);

fn assess_all(latencies: &[LatencyStats], is_known: bool) {
    let peers: Vec<_> =
        latencies.iter().map(|latency_stats| Peer { latency_stats, is_known }).collect();
    assess(&peers, FLOOR, MOST, &mut Vec::new());
    judge(&peers);
}

fn latencies(members: usize) -> Vec<LatencyStats> {
    (0..members).map(|_| LatencyStats::default()).collect()
}

/// Sends operations at one moment, after all earlier answers.
fn feed_at(latency_stats: &LatencyStats, at: Time, (count, bytes, micros): (u32, u64, u32)) {
    (0..count).for_each(|_| {
        latency_stats.add(Kind::Read, bytes, at, at + micros * MICRO);
    });
}

fn feed(latency_stats: &LatencyStats, count: u32, micros: u32) {
    feed_at(latency_stats, Time(0), (count, 4096, micros));
}

fn feed_large(latency_stats: &LatencyStats, micros: u32) {
    feed_at(latency_stats, Time(0), (64, 1 << 20, micros));
}

/// These members are slow for four bursts after all earlier ones; the others answer as usual.
fn stall(latencies: &[LatencyStats], slow: &[usize]) {
    for burst in 1..5 {
        let at = Time(0) + burst * Duration::from_secs(10);
        for (index, latency_stats) in latencies.iter().enumerate() {
            let micros = if slow.contains(&index) { 10_000 } else { 100 };
            feed_at(latency_stats, at, (16, 4096, micros));
        }
        let peers: Vec<_> =
            latencies.iter().map(|p| Peer { latency_stats: p, is_known: true }).collect();
        judge(&peers);
    }
}

#[test]
fn a_bucket_is_a_quarter_of_an_octave_and_time_outside_is_in_the_outermost() {
    for nanos in [1024, 1279, 1280, 5000, 123_456, 7_654_321, 9_999_999_999_u64] {
        let top = top_of(bucket_of(nanos));
        assert!(nanos < top && top <= nanos + nanos / 4 + 1, "{nanos}: {top}");
    }
    assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BUCKETS - 1));
}

#[test]
fn quantiles_are_right_to_a_quarter_and_forget_old_answers() {
    let histogram = Histogram::default();
    (0..15).for_each(|_| histogram.add(100_000));
    assert_eq!(histogram.quantile(50), None, "too few");
    (0..400).for_each(|_| histogram.add(100_000));
    (0..8).for_each(|_| histogram.add(5_000_000));
    let near = |value: Option<u64>, nanos: u64| {
        let value = value.expect("enough");
        assert!(value >= nanos && value <= nanos + nanos / 4 + 1, "{value} of {nanos}");
    };
    near(histogram.quantile(50), 100_000);
    near(histogram.quantile(1), 5_000_000);
    (0..3000).for_each(|_| histogram.add(700_000));
    near(histogram.quantile(50), 700_000);
    near(histogram.quantile(1), 700_000);
}

#[test]
fn one_of_many_is_slow_by_its_peers_median_and_recovers() {
    let latencies = latencies(5);
    latencies.iter().for_each(|latency_stats| feed(latency_stats, 64, 100));
    assess_all(&latencies, true);
    feed(&latencies[2], 11, 10_000);
    (0..4).for_each(|_| assess_all(&latencies, true));
    assert!(!latencies[2].is_slow(), "too few bad answers");
    latencies.iter().for_each(|latency_stats| feed(latency_stats, 64, 100));
    feed(&latencies[2], 100, 10_000);
    (0..9).for_each(|_| assess_all(&latencies, true));
    assert!(!latencies[2].is_slow(), "one burst, however many answers");
    latencies.iter().for_each(|latency_stats| feed(latency_stats, 512, 100));
    assess_all(&latencies, true);
    stall(&latencies, &[2]);
    assert!(latencies[2].is_slow());
    // It neither excuses nor accuses the others.
    feed(&latencies[1], 16, 900);
    assert!(!latencies[1].is_slow(), "nine times is not ten");
    feed(&latencies[2], 10, 100);
    assert!(latencies[2].is_slow(), "not yet");
    feed(&latencies[2], 6, 100);
    assert!(!latencies[2].is_slow());
}

#[test]
fn a_starved_server_thread_makes_no_member_slow() {
    for members in 2..8 {
        let latencies = latencies(members);
        latencies.iter().for_each(|latency_stats| feed(latency_stats, 400, 100));
        assess_all(&latencies, true);
        for burst in 1..7 {
            let at = Time(0) + burst * Duration::from_secs(1);
            latencies.iter().for_each(|latency_stats| feed_at(latency_stats, at, (16, 4096, 2300)));
            assess_all(&latencies, true);
        }
        assert!(
            latencies.iter().all(|latency_stats| !latency_stats.is_slow()),
            "{members} members"
        );
        // The rest of the stall does not count against any member.
        (10..14).for_each(|burst| {
            let at = Time(0) + burst * Duration::from_secs(1);
            feed_at(&latencies[0], at, (1, 4096, 10_000));
            latencies.iter().for_each(|latency_stats| feed_at(latency_stats, at, (1, 4096, 100)));
            assess_all(&latencies, true);
        });
        assert!(!latencies[0].is_slow(), "{members} members");
    }
}

#[test]
fn only_a_minority_is_slow_and_one_of_two() {
    let cases: [(usize, &[usize], bool); 7] = [
        (2, &[0], true),
        (2, &[0, 1], false),
        (3, &[1], true),
        (3, &[0, 1], false),
        (4, &[2], true),
        (4, &[0, 3], false),
        (5, &[0, 3], true),
    ];
    for (members, slow, expected) in cases {
        let latencies = latencies(members);
        latencies.iter().for_each(|latency_stats| feed(latency_stats, 400, 100));
        assess_all(&latencies, true);
        stall(&latencies, slow);
        for (index, latency_stats) in latencies.iter().enumerate() {
            let is_slow = expected && slow.contains(&index);
            assert_eq!(latency_stats.is_slow(), is_slow, "{slow:?} of {members}: {index}");
        }
    }
}

#[test]
fn members_that_are_slow_together_are_not_marked_slow() {
    let latencies = latencies(4);
    latencies.iter().for_each(|latency_stats| feed(latency_stats, 64, 100));
    assess_all(&latencies, true);
    for _ in 0..40 {
        latencies.iter().for_each(|latency_stats| feed(latency_stats, 8, 700));
        assess_all(&latencies, true);
    }
    assert!(latencies.iter().all(|latency_stats| !latency_stats.is_slow()));
    let hedge_after = Duration::from_nanos(latencies[0].hedge_after(4096));
    assert!(hedge_after >= 3 * 700 * MICRO, "{hedge_after:?}");
}

#[test]
fn patience_has_a_floor_and_is_endless_while_nothing_is_known() {
    let latencies = latencies(3);
    assess_all(&latencies, false);
    assert_eq!(latencies[0].hedge_after(4096), u64::MAX);
    feed(&latencies[0], 100, 1_000_000);
    assert!(!latencies[0].is_slow(), "no peer to compare with");
    assess_all(&latencies, true);
    assert_eq!(latencies[0].hedge_after(4096), nanos(FLOOR), "the others answer at once");
    stall(&latencies, &[0]);
    assert!(latencies[0].is_slow());
    let hedge_after = Duration::from_nanos(latencies[1].hedge_after(4096));
    assert!(hedge_after <= MOST, "{hedge_after:?}");
}

#[test]
fn a_transfer_of_a_megabyte_is_not_held_against_a_member_whose_peers_read_small_blocks() {
    let latencies = latencies(2);
    feed(&latencies[0], 64, 100);
    feed(&latencies[1], 64, 100);
    feed_large(&latencies[0], 9000);
    feed_large(&latencies[1], 8000);
    assess_all(&latencies, true);
    for burst in 1..5 {
        let at = Time(0) + burst * Duration::from_secs(1);
        feed_at(&latencies[0], at, (64, 1 << 20, 9000));
        feed_at(&latencies[1], at, (64, 1 << 20, 8000));
        assess_all(&latencies, true);
    }
    assert!(!latencies[0].is_slow());
    stall(&latencies, &[0]);
    assert!(latencies[0].is_slow(), "small ones may not take so long");
}
