//! Every small row, every state, every request: the plan is carried out on numbers and must leave a
//! row from which everything can be had back.

use super::*;
use std::vec::Vec;

extern crate std;

/// A row of numbers in GF(2⁸): data slots 0..k, then P, then Q.
struct Numbers {
    roles: Roles,
    bytes: Vec<u8>,
}

fn mul(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a = a << 1 ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    product
}

fn power(exponent: usize) -> u8 {
    (0..exponent).fold(1, |value, _| mul(value, 2))
}

fn inverse(a: u8) -> u8 {
    (1..=255).find(|&b| mul(a, b) == 1).expect("not zero")
}

fn roles(data: usize, parity: usize) -> Roles {
    Roles {
        data: SlotSet::first(data),
        p: Slot::new(data),
        q: (parity == 2).then(|| Slot::new(data + 1)),
    }
}

fn syndromes(data: &[u8]) -> (u8, u8) {
    data.iter()
        .enumerate()
        .fold((0, 0), |(p, q), (index, &byte)| (p ^ byte, q ^ mul(power(index), byte)))
}

impl Numbers {
    fn new(roles: Roles, seed: u8, synced: bool) -> Numbers {
        let k = roles.data.count();
        let mut bytes: Vec<u8> = (0..k).map(|i| mul(seed, i as u8 * 7 + 3)).collect();
        let (p, q) = syndromes(&bytes);
        let wrong = if synced { 0 } else { 0x55 };
        bytes.push(p ^ wrong);
        if roles.q.is_some() {
            bytes.push(q ^ wrong);
        }
        Numbers { roles, bytes }
    }

    /// The data, if the `readable` slots determine it.
    fn recovered(&self, readable: SlotSet, erasure: Erasure) -> Vec<u8> {
        let k = self.roles.data.count();
        let mut data = self.bytes[..k].to_vec();
        for slot in erasure.lost().iter() {
            assert!(!readable.contains(slot));
            data[slot.index()] = 0;
        }
        let (p, q) = syndromes(&data);
        match erasure {
            Erasure::FromP(x) => data[x.index()] = p ^ self.bytes[self.roles.p.index()],
            Erasure::FromQ(x) => {
                let q = q ^ self.bytes[self.roles.q.expect("the level has Q").index()];
                data[x.index()] = mul(q, inverse(power(x.index())));
            }
            Erasure::FromPq(x, y) => {
                let p = p ^ self.bytes[self.roles.p.index()];
                let q = q ^ self.bytes[self.roles.q.expect("the level has Q").index()];
                let (gx, gy) = (power(x.index()), power(y.index()));
                let dx = mul(q ^ mul(gy, p), inverse(gx ^ gy));
                data[x.index()] = dx;
                data[y.index()] = p ^ dx;
            }
        }
        data
    }

    fn write(&mut self, plan: &WritePlan, state: &RowState, touched: SlotSet) -> Vec<u8> {
        assert!(plan.read.is_subset(state.readable));
        assert!(plan.write.is_subset(state.writable));
        let k = self.roles.data.count();
        let fresh = |slot: Slot| 0xa0 ^ slot.0;
        let mut data = match plan.method {
            Method::Recover(erasure) => self.recovered(plan.read, erasure),
            _ => self.bytes[..k].to_vec(),
        };
        let (mut p, mut q) = (0, 0);
        if plan.method == Method::ReadModifyWrite {
            p = self.bytes[self.roles.p.index()];
            q = self.roles.q.map_or(0, |q| self.bytes[q.index()]);
            for slot in touched.iter() {
                p ^= data[slot.index()] ^ fresh(slot);
                q ^= mul(power(slot.index()), data[slot.index()] ^ fresh(slot));
            }
        }
        for slot in touched.iter() {
            data[slot.index()] = fresh(slot);
        }
        if plan.method != Method::ReadModifyWrite {
            (p, q) = syndromes(&data);
        }
        for slot in plan.write.iter() {
            self.bytes[slot.index()] = match slot {
                slot if slot == self.roles.p => p,
                slot if Some(slot) == self.roles.q => q,
                slot => data[slot.index()],
            };
        }
        data
    }
}

fn subsets(of: usize) -> impl Iterator<Item = SlotSet> {
    (0..1u32 << of).map(move |bits| (0..of).filter(|i| bits >> i & 1 == 1).map(Slot::new).collect())
}

/// Calls `each` for every row of up to 5 data and 2 parity slots in every state.
fn every_row(mut each: impl FnMut(Roles, RowState)) {
    for (k, m) in [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (2, 2), (3, 2), (4, 2)] {
        for readable in subsets(k + m) {
            let rest: Vec<Slot> = SlotSet::first(k + m).difference(readable).iter().collect();
            for rebuilding in subsets(rest.len()) {
                let rebuilding: SlotSet = rebuilding.iter().map(|i| rest[i.index()]).collect();
                let writable = readable.union(rebuilding);
                for (synced, suspect) in [(true, false), (false, false), (false, true)] {
                    each(roles(k, m), RowState { readable, writable, synced, suspect });
                }
            }
        }
    }
}

#[test]
fn every_write_leaves_a_row_that_holds_the_data() {
    let mut methods = [0usize; 5];
    let mut refused = 0;
    every_row(|roles, state| {
        for touched in subsets(roles.data.count()).skip(1) {
            let mut row = Numbers::new(roles, 29, state.synced);
            let before = row.bytes.clone();
            let kept_before: Vec<u8> = match erasure(&roles, &state) {
                Ok((Some(erasure), _)) => row.recovered(state.readable, erasure),
                _ => before[..roles.data.count()].to_vec(),
            };
            let Ok(plan) = plan_write(&roles, &state, touched) else {
                let missing = SlotSet::first(roles.data.count() + roles.parity().count())
                    .difference(state.readable);
                assert!(missing.count() > roles.parity().count(), "{state:?} {touched:?}");
                refused += 1;
                continue;
            };
            let data = row.write(&plan, &state, touched);
            methods[match plan.method {
                Method::DataOnly => 0,
                Method::Full => 1,
                Method::ReadModifyWrite => 2,
                Method::Reconstruct => 3,
                Method::Recover(_) => 4,
            }] += 1;
            assert!(state.synced || plan.method != Method::ReadModifyWrite);

            // Untouched blocks are unchanged, on the members and in recovered form.
            for slot in roles.data.difference(touched).iter() {
                assert_eq!(row.bytes[slot.index()], before[slot.index()], "kept data changed");
                if matches!(plan.method, Method::Recover(_)) {
                    assert_eq!(data[slot.index()], kept_before[slot.index()]);
                }
            }
            // After any method but DataOnly, parity that is written agrees with all the data.
            let (p, q) = syndromes(&data);
            if !matches!(plan.method, Method::DataOnly | Method::ReadModifyWrite) || state.synced {
                for parity in plan.write.intersection(roles.parity()).iter() {
                    let right = if parity == roles.p { p } else { q };
                    if plan.method != Method::ReadModifyWrite
                        || roles.data.is_subset(state.readable)
                    {
                        assert_eq!(row.bytes[parity.index()], right, "{plan:?} {state:?}");
                    }
                }
            }
            // Every touched block can be recovered from the written blocks.
            let current = state.readable.union(plan.write);
            let after =
                RowState { readable: current, writable: current, synced: true, suspect: false };
            let read = plan_read(&roles, &after, touched);
            let read = read.unwrap_or_else(|lost| panic!("{lost}: {plan:?} {state:?} {touched:?}"));
            let seen = match read.recover {
                Some(erasure) => row.recovered(current, erasure),
                None => row.bytes[..roles.data.count()].to_vec(),
            };
            for slot in touched.iter() {
                assert_eq!(seen[slot.index()], 0xa0 ^ slot.0, "{plan:?} {state:?} {touched:?}");
            }
        }
    });
    assert!(methods.iter().all(|&count| count > 100), "every method occurs: {methods:?}");
    assert!(refused > 100);
}

#[test]
fn every_read_gives_the_data_or_says_that_it_is_lost() {
    every_row(|roles, state| {
        for wanted in subsets(roles.data.count()).skip(1) {
            let row = Numbers::new(roles, 41, true);
            let lost = roles.data.difference(state.readable).count();
            let parity = roles.parity().intersection(state.readable).count();
            match plan_read(&roles, &state, wanted) {
                Err(refusal) => {
                    assert!(lost > parity || state.suspect, "{state:?}");
                    assert!(!refusal.slots.is_empty() && refusal.slots.is_subset(wanted));
                }
                Ok(plan) => {
                    assert!(plan.read.is_subset(state.readable));
                    match plan.recover {
                        None => assert_eq!(plan.read, wanted, "no more than wanted is read"),
                        Some(erasure) => {
                            assert!(!state.suspect);
                            let data = row.recovered(plan.read, erasure);
                            assert_eq!(data, row.bytes[..roles.data.count()]);
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn rows_cover_the_range_once_and_do_not_overlap() {
    const CHUNK: u64 = 8;
    for from in 0..5 * CHUNK {
        for to in from + 1..=5 * CHUNK {
            let mut seen = [0u8; 5 * CHUNK as usize];
            let mut end = 0;
            for row in rows(Stripe(9), from, to, CHUNK) {
                assert!(row.start >= end, "rows are in order and disjoint");
                end = row.end;
                for index in row.first..row.first + row.count {
                    for offset in row.start..row.end {
                        seen[index * CHUNK as usize + offset as usize] += 1;
                    }
                }
            }
            for (at, &count) in seen.iter().enumerate() {
                let inside = (from..to).contains(&(at as u64));
                assert_eq!(count, u8::from(inside), "{from}..{to} at {at}");
            }
        }
    }
}
