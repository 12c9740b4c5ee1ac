//! Every way in which small rows can be torn and members lost, with their number.

use layout::geometry::Shape;
use layout::private::log::Syndrome;
use layout::{Geometry, Layout, Level, Stripe};

use super::*;

const LEN: usize = 512;

fn kernel() -> Kernel {
    parity::best()
}

/// Bytes of a data block, before or after the write.
fn block(index: usize, new: bool) -> Vec<u8> {
    let seed = (index as u8).wrapping_mul(37) ^ if new { 0xa5 } else { 0x11 };
    (0..LEN).map(|at| seed.wrapping_add((at as u8).wrapping_mul(7 + index as u8))).collect()
}

fn syndromes(map: &StripeMap, data: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
    let (mut p, mut q) = (vec![0; LEN], vec![0; LEN]);
    let source = |index: usize, at: usize| &data[index][at..];
    let with_q = map.q().is_some().then_some(&mut q[..]);
    compute::encode(kernel(), map, LEN, source, Some(&mut p), with_q);
    (p, q)
}

/// One row with `data` blocks, of which `first..first + count` were being written.
struct Story {
    map: StripeMap,
    torn_row: TornRow,
    old: Vec<Vec<u8>>,
    new: Vec<Vec<u8>>,
    parities: usize,
}

impl Story {
    fn new(level: Level, data: usize, first: usize, count: usize, checked: bool) -> Story {
        let parities = if level == Level::Raid6 { 2 } else { 1 };
        let slots = data + parities;
        let layout = Layout::all(level, slots).next().expect("a level has layouts");
        let shape = Shape { layout, chunk_bytes: 4096, members: vec![1 << 20; slots] };
        let map = Geometry::new(shape).expect("a small array").stripe(Stripe(0));
        let old: Vec<_> = (0..data).map(|index| block(index, false)).collect();
        let is_new = |index: usize| (first..first + count).contains(&index);
        let new: Vec<_> = (0..data).map(|index| block(index, is_new(index))).collect();
        // The syndromes of the unwritten blocks, with zeros for the written ones.
        let kept = |index: usize| if is_new(index) { vec![0; LEN] } else { old[index].clone() };
        let (p, q) = syndromes(&map, &(0..data).map(kept).collect::<Vec<_>>());
        let record = Record {
            stripe: 0,
            stripes: 1,
            start: 0,
            len: LEN as u64,
            first: first as u16,
            count: count as u16,
            syndrome: Syndrome::P,
            paired: parities == 2,
            partial: count < data,
            checked,
            checksummed: false,
            logged: 0,
            zeros: false,
            epoch: 0,
        };
        let partial = |bytes| if count < data { Partial::Bytes(bytes) } else { Partial::Zero };
        let checks = (first..first + count).map(|index| parity::crc32c(0, &new[index]));
        let checks = if checked { checks.collect() } else { Vec::new() };
        let torn_row = TornRow {
            record,
            stripe: 0,
            start: 0,
            len: LEN as u64,
            checks,
            p: Some(partial(p)),
            q: (parities == 2).then(|| partial(q)),
            logged: Vec::new(),
        };
        Story { map, torn_row, old, new, parities }
    }

    /// Plays one case. `landed` is the set of completed writes: bit i for data block first + i,
    /// then P, then Q. `lost` is the set of lost members in the order data, P, Q. Returns
    /// (untouched blocks wrong, written ones garbage, written ones recorded as lost).
    fn play(&self, landed: usize, lost: usize) -> (usize, usize, usize) {
        let data = self.old.len();
        let (first, count) =
            (usize::from(self.torn_row.record.first), usize::from(self.torn_row.record.count));
        let has = |bits: usize, bit: usize| bits >> bit & 1 == 1;
        let written = |index: usize| (first..first + count).contains(&index);
        let now = |index: usize| {
            let is_new = written(index) && has(landed, index - first);
            if is_new { self.new[index].clone() } else { self.old[index].clone() }
        };
        let (old_parity, new_parity) =
            (syndromes(&self.map, &self.old), syndromes(&self.map, &self.new));
        let p = if has(landed, count) { new_parity.0 } else { old_parity.0 };
        let q = if has(landed, count + 1) { new_parity.1 } else { old_parity.1 };
        let keep = |bit: usize, bytes: Vec<u8>| (!has(lost, bit)).then_some(bytes);
        let mut held = Held {
            data: (0..data).map(|index| keep(index, now(index))).collect(),
            p: keep(data, p),
            q: keep(data + 1, q).filter(|_| self.parities == 2),
        };
        let mut torn_row = self.torn_row.clone();
        // The log is on the parity members.
        torn_row.p = torn_row.p.filter(|_| !has(lost, data));
        torn_row.q = torn_row.q.filter(|_| !has(lost, data + 1));
        let unsolved = solve(kernel(), &self.map, &torn_row, &mut held);
        let given_up = unsolved.first().map_or(&[][..], |(_, indices)| &indices[..]);
        let mut result = (0, 0, given_up.len());
        for index in 0..data {
            let bytes = held.data[index].as_ref().expect("no member is excluded");
            if !written(index) {
                result.0 += usize::from(given_up.contains(&index) || *bytes != self.old[index]);
            } else if !given_up.contains(&index) {
                let known = *bytes == self.old[index] || *bytes == self.new[index];
                result.1 += usize::from(!known);
            }
        }
        result
    }
}

/// All cases of a level: their number, and the checksum of their results.
fn enumerate(level: Level, most: usize, checked: bool) -> (usize, (usize, usize, usize)) {
    let (mut cases, mut checksum) = (0, (0, 0, 0));
    let parities = if level == Level::Raid6 { 2 } else { 1 };
    for data in 2..=most {
        for (first, count) in (0..data).flat_map(|f| (1..=data - f).map(move |c| (f, c))) {
            let story = Story::new(level, data, first, count, checked || count > 1);
            for landed in 0..1_usize << (count + parities) {
                let lost = 0..1_usize << (data + parities);
                for lost in lost.filter(|lost| lost.count_ones() as usize <= parities) {
                    let (wrong, garbage, given_up) = story.play(landed, lost);
                    assert_eq!(wrong, 0, "{level:?} {data} {first}+{count} {landed:b} {lost:b}");
                    cases += 1;
                    checksum = (checksum.0 + wrong, checksum.1 + garbage, checksum.2 + given_up);
                }
            }
        }
    }
    (cases, checksum)
}

#[test]
fn no_untouched_block_is_lost_and_no_written_one_is_garbage() {
    for level in [Level::Raid5, Level::Raid6] {
        for checked in [false, true] {
            let (cases, (wrong, garbage, given_up)) = enumerate(level, 8, checked);
            println!(
                "{level:?}: {cases} cases, {wrong} wrong, {garbage} garbage, {given_up} given up"
            );
            assert_eq!((wrong, garbage), (0, 0), "{level:?} of {cases}");
            assert!(cases > 9_000, "{cases}");
        }
    }
}

#[test]
fn one_written_block_is_always_old_or_new() {
    for level in [Level::Raid5, Level::Raid6] {
        for data in 2..6 {
            for first in 0..data {
                let story = Story::new(level, data, first, 1, false);
                let lost = 1_usize << first;
                for landed in 0..1_usize << (1 + story.parities) {
                    assert_eq!(story.play(landed, lost), (0, 0, 0));
                }
            }
        }
    }
}

#[test]
fn logged_data_is_used() {
    let mut story = Story::new(Level::Raid5, 4, 1, 2, true);
    story.torn_row.logged = vec![(1, story.new[1].clone()), (2, story.new[2].clone())];
    for (landed, lost) in (0..8).flat_map(|landed| (0..4).map(move |lost| (landed, 1 << lost))) {
        assert_eq!(story.play(landed, lost), (0, 0, 0), "{landed:b} {lost:b}");
    }
}

#[test]
fn a_wrong_check_is_an_error_not_garbage() {
    let mut story = Story::new(Level::Raid5, 4, 0, 2, true);
    // The first block and parity landed, the second did not, and its member is lost.
    assert_eq!(story.play(0b101, 0b10), (0, 0, 0), "parity tells the new block");
    assert_eq!(story.play(0b001, 0b10), (0, 0, 1), "parity is the old one");
    story.torn_row.checks[1] ^= 1;
    assert_eq!(story.play(0b101, 0b10), (0, 0, 1));
}
