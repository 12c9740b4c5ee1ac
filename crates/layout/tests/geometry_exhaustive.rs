//! The map is one-to-one, for every layout there is, on 2 to 9, 64 and 128 members of equal and
//! unequal sizes: each array byte has its copies, no two have the same, and the inverse agrees.

use layout::geometry::{MAX_CHUNK_BYTES, REGION_BYTES};
use layout::{
    Family, Geometry, GeometryError, Layout, Level, Owner, Shape, Slot, SlotSet, Stripe, StripeRole,
};

/// Every layout of every level on 2 to 9 members, and on 64, 65 and 128.
fn layouts() -> impl Iterator<Item = (Layout, usize)> {
    let counts = (2..=9).chain([64, 65, 128]);
    counts.flat_map(|n| {
        Level::ALL
            .into_iter()
            .flat_map(move |level| Layout::all(level, n))
            .filter(move |layout| n < 64 || !is_odd_raid10(*layout))
            .map(move |layout| (layout, n))
    })
}

/// RAID 10 has about 1,000 layouts on 128 members: there, a few copies are enough.
fn is_odd_raid10(layout: Layout) -> bool {
    matches!(layout, Layout::Raid10 { near, far, .. } if near > 3 && near < 63 || far > 3)
}

fn chunks(layout: Layout) -> Vec<u64> {
    match layout {
        Layout::Raid1 => vec![0],
        Layout::Linear => vec![0, 4096, 12_288],
        Layout::Raid0(_) => vec![4096, 6144, 65_536],
        Layout::Raid35 { order } => [4096_u64, 65_536].map(|b| (b >> order).max(512)).into(),
        _ => vec![4096, 65_536],
    }
}

/// Member sizes: equal; all different; few heights, with rests that fill no chunk; the smallest.
fn sizes(layout: Layout, n: usize, chunk: u64) -> Vec<Vec<u64>> {
    let chunk = if chunk == 0 { 4096 } else { chunk };
    let least = match layout {
        Layout::Raid10 { far, .. } => u64::from(far),
        _ => 1,
    };
    let n = n as u64;
    vec![
        (0..n).map(|_| (least + 10) * chunk).collect(),
        (0..n).map(|i| (least + (i * 5 + 3) % n) * chunk + 511 * i).collect(),
        (0..n).map(|i| (least + 2 + 3 * (i / 2 % 3)) * chunk + (chunk - 1)).collect(),
        (0..n).map(|_| least * chunk).collect(),
    ]
}

fn geometries() -> impl Iterator<Item = (Shape, Geometry)> {
    layouts().flat_map(|(layout, n)| {
        chunks(layout).into_iter().flat_map(move |chunk_bytes| {
            sizes(layout, n, chunk_bytes).into_iter().map(move |members| {
                let shape = Shape { layout, chunk_bytes, members };
                let geometry = Geometry::new(shape.clone());
                let geometry = geometry.unwrap_or_else(|error| panic!("{shape:?}: {error}"));
                (shape, geometry)
            })
        })
    })
}

/// Ranges of each member that something was found to live in.
struct Members {
    used: Vec<Vec<(u64, u64)>>,
}

impl Members {
    fn take(&mut self, slot: Slot, start: u64, len: u64) {
        self.used[slot.index()].push((start, start + len));
    }

    /// Bytes taken in all, after making sure that none was taken twice or lies outside.
    fn total(mut self, geometry: &Geometry) -> u64 {
        let mut total = 0;
        for (index, ranges) in self.used.iter_mut().enumerate() {
            let end = geometry.member_bytes(Slot::new(index));
            ranges.sort_unstable();
            assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "taken twice");
            assert!(ranges.last().is_none_or(|last| last.1 <= end), "outside of the member");
            total += ranges.iter().map(|(start, end)| end - start).sum::<u64>();
        }
        total
    }
}

/// Each array byte's copies, and that `owner` leads back from each.
fn walk_copies(geometry: &Geometry, members: &mut Members) {
    let mut at = 0;
    while at < geometry.capacity() {
        let places = geometry.places(at);
        assert_eq!(places.count(), geometry.redundancy() + 1);
        assert!(places.len > 0 && at + places.len <= geometry.capacity());
        let slots: SlotSet = places.copies().map(|place| place.slot).collect();
        assert_eq!(slots.count(), places.count(), "two copies on one member");
        for (copy, place) in places.copies().enumerate() {
            members.take(place.slot, place.member_offset, places.len);
            assert_eq!(places.on(place.slot), Some((copy, place)));
            for step in [0, 1, places.len / 2, places.len - 1] {
                let len = places.len - step;
                let owner = geometry.owner(place.slot, place.member_offset + step);
                assert_eq!(owner, Owner::Data { array_offset: at + step, len, copy });
            }
        }
        for step in [1, places.len / 2, places.len - 1] {
            let inner = geometry.places(at + step);
            assert_eq!(inner.len, places.len - step);
            assert!(inner.copies().zip(places.copies()).all(|(inner, outer)| {
                inner.slot == outer.slot && inner.member_offset == outer.member_offset + step
            }));
        }
        at += places.len;
    }
    assert_eq!(at, geometry.capacity());
}

/// Each stripe's roles, and that `owner` and `stripe_of` lead back to them.
fn walk_stripes(geometry: &Geometry, members: &mut Members) {
    let (chunk, k) = (geometry.chunk_bytes(), geometry.data_count());
    assert_eq!(k + geometry.parity_count(), geometry.slots());
    assert_eq!(geometry.stripe_bytes(), k as u64 * chunk);
    assert_eq!(geometry.capacity(), geometry.stripes() * geometry.stripe_bytes());
    for stripe in (0..geometry.stripes()).map(Stripe) {
        let map = geometry.stripe(stripe);
        assert_eq!((map.data_count(), map.member_offset()), (k, stripe.0 * chunk));
        let mut slots = SlotSet::EMPTY;
        let mut exponents = SlotSet::EMPTY;
        for index in 0..k {
            let slot = map.data(index);
            assert_eq!(map.role(slot), StripeRole::Data(index));
            slots.insert(slot);
            exponents.insert(Slot(map.exponent(index)));
            for within in [0, 1, chunk - 1] {
                let array_offset = (stripe.0 * k as u64 + index as u64) * chunk + within;
                assert_eq!(geometry.stripe_of(array_offset), (stripe, index, within));
                let owner = geometry.owner(slot, map.member_offset() + within);
                assert_eq!(owner, Owner::Data { array_offset, len: chunk - within, copy: 0 });
            }
        }
        let p = geometry.owner(map.p(), map.member_offset() + 1);
        assert_eq!(p, Owner::P { stripe, len: chunk - 1 });
        assert_eq!(map.role(map.p()), StripeRole::P);
        slots.insert(map.p());
        assert_eq!(map.q().is_some(), geometry.parity_count() == 2);
        if let Some(q) = map.q() {
            assert_eq!(geometry.owner(q, map.member_offset()), Owner::Q { stripe, len: chunk });
            assert_eq!(map.role(q), StripeRole::Q);
            assert_eq!(exponents.count(), k, "two data chunks weigh the same in Q");
            slots.insert(q);
        }
        assert_eq!(slots, geometry.all_slots(), "a slot without a role");
        slots.iter().for_each(|slot| members.take(slot, map.member_offset(), chunk));
    }
}

/// Walks every member from end to end and adds up the results of `owner`.
fn sweep_members(geometry: &Geometry) -> (u64, u64) {
    let (mut data, mut parity) = (0, 0);
    for slot in geometry.all_slots().iter() {
        let (mut at, end) = (0, geometry.member_bytes(slot));
        while at < end {
            let owner = geometry.owner(slot, at);
            assert!(owner.bytes() > 0 && at + owner.bytes() <= end);
            match owner {
                Owner::Data { len, .. } => data += len,
                Owner::P { len, .. } | Owner::Q { len, .. } => parity += len,
                Owner::Unused { .. } => {}
            }
            at += owner.bytes();
        }
        assert_eq!(at, end);
        for past in [end, end + 1, 1 << 60] {
            assert_eq!(geometry.owner(slot, past), Owner::Unused { len: u64::MAX - past });
        }
    }
    (data, parity)
}

#[test]
fn one_to_one() {
    for (shape, geometry) in geometries() {
        for (index, bytes) in shape.members.iter().enumerate() {
            assert!(geometry.member_bytes(Slot::new(index)) <= *bytes);
        }
        let mut members = Members { used: vec![Vec::new(); geometry.slots()] };
        match geometry.family() {
            Family::Parity => walk_stripes(&geometry, &mut members),
            Family::Plain | Family::Mirror => walk_copies(&geometry, &mut members),
        }
        let copies = match geometry.family() {
            Family::Parity => 1,
            Family::Plain | Family::Mirror => geometry.redundancy() as u64 + 1,
        };
        let taken = members.total(&geometry);
        let (data, parity) = sweep_members(&geometry);
        assert_eq!(data, geometry.capacity() * copies, "{shape:?}");
        assert_eq!(data + parity, taken, "{shape:?}");
    }
}

/// Without redundancy every whole chunk is used; with it, the smallest member's chunks on each.
#[test]
fn no_chunk_is_wasted() {
    for (shape, geometry) in geometries() {
        let unit = if shape.chunk_bytes == 0 { 512 } else { shape.chunk_bytes };
        let whole: Vec<u64> = shape.members.iter().map(|bytes| bytes / unit * unit).collect();
        let n = geometry.slots() as u64;
        let even = n * whole.iter().min().unwrap();
        let copies = geometry.redundancy() as u64 + 1;
        match geometry.family() {
            Family::Plain => assert_eq!(geometry.capacity(), whole.iter().sum::<u64>()),
            Family::Parity => {
                assert_eq!(geometry.capacity(), even / n * geometry.data_count() as u64);
            }
            Family::Mirror => {
                let used = geometry.capacity() * copies;
                let far = match shape.layout {
                    Layout::Raid10 { far, .. } => far.into(),
                    _ => 1,
                };
                // Less than one chunk per far part of a member, and less than a chunk's copies.
                assert!(used <= even && even - used < n * far * unit + copies * unit);
            }
        }
    }
}

/// Against the definition, for all sets of lost members: is there a byte without a copy left?
#[test]
fn survives_exactly_if_a_copy_remains() {
    for (shape, geometry) in geometries().filter(|(_, geometry)| geometry.slots() <= 9) {
        let mut holders = Vec::new();
        let mut at = 0;
        while geometry.family() != Family::Parity && at < geometry.capacity() {
            let places = geometry.places(at);
            let slots: SlotSet = places.copies().map(|place| place.slot).collect();
            assert!(places.len > 0);
            if !holders.contains(&slots) {
                holders.push(slots);
            }
            at += places.len;
        }
        let mut always = geometry.slots();
        for bits in 0..1_u32 << geometry.slots() {
            let slots = (0..geometry.slots()).filter(|slot| bits >> slot & 1 == 1);
            let lost: SlotSet = slots.map(Slot::new).collect();
            let served = match geometry.family() {
                Family::Parity => lost.count() <= geometry.parity_count(),
                _ => holders.iter().all(|slots| !slots.is_subset(lost)),
            };
            assert_eq!(geometry.survives(lost), served, "{shape:?} without {lost:?}");
            assert_eq!(geometry.survives(lost.with(Slot(127))), served, "no such slot");
            if !served {
                always = always.min(lost.count() - 1);
            }
        }
        assert_eq!(geometry.redundancy(), always, "{shape:?}");
    }
}

#[test]
fn regions_are_whole_stripes() {
    for (_, geometry) in geometries() {
        let stripe = geometry.stripe_bytes();
        for geometry in [geometry.clone(), geometry.with_region_bytes(3 * stripe + 1)] {
            let bytes = geometry.region_bytes();
            assert!(bytes.is_multiple_of(stripe) && bytes <= REGION_BYTES);
            assert_eq!(geometry.region(0), 0);
            assert_eq!(geometry.region(geometry.capacity() - 1), geometry.regions() - 1);
            for region in 1..geometry.regions() {
                assert_eq!(geometry.region(region * bytes - 1), region - 1);
                assert_eq!(geometry.region(region * bytes), region);
            }
        }
    }
    let members = vec![1 << 40; 128];
    let layout = Layout::default_for(Level::Raid5, 128);
    let shape = Shape { layout, chunk_bytes: MAX_CHUNK_BYTES, members };
    let large = Geometry::new(shape).unwrap();
    assert_eq!(large.region_bytes(), 127 * MAX_CHUNK_BYTES, "at least one stripe");
}

/// The largest arrays: nothing overflows, and the last byte is where it belongs.
#[test]
fn largest() {
    for (layout, n) in layouts() {
        for chunk_bytes in chunks(layout) {
            let size = i64::MAX as u64 / n as u64;
            let members: Vec<u64> = (0..n as u64).map(|i| size - i * 1_000_000).collect();
            let shape = Shape { layout, chunk_bytes, members };
            let geometry = Geometry::new(shape.clone()).unwrap();
            let last = geometry.capacity() - 1;
            let (slot, member_offset) = match geometry.family() {
                Family::Parity => {
                    let (stripe, index, within) = geometry.stripe_of(last);
                    assert_eq!(stripe.0, geometry.stripes() - 1);
                    let map = geometry.stripe(stripe);
                    (map.data(index), map.member_offset() + within)
                }
                _ => {
                    let places = geometry.places(last);
                    let place = places.copy(places.count() - 1);
                    (place.slot, place.member_offset)
                }
            };
            assert!(member_offset < geometry.member_bytes(slot), "{shape:?}");
            let owner = geometry.owner(slot, member_offset);
            let back = matches!(owner, Owner::Data { array_offset, .. } if array_offset == last);
            assert!(back, "{shape:?}: {owner:?}");
        }
    }
}

#[test]
fn refusals_say_why() {
    use GeometryError as No;
    let geometry = |level: &str, layout: &str, chunk_bytes: u64, members: &[u64]| {
        let layout = Layout::parse(level.parse().unwrap(), layout).unwrap();
        Geometry::new(Shape { layout, chunk_bytes, members: members.to_vec() }).unwrap_err()
    };
    const C: u64 = 64 << 10;
    let text = |error: GeometryError| error.to_string();

    assert_eq!(
        text(geometry("6", "ls", C, &[C; 3])),
        "raid6 left-symmetric needs 4 or more members, not 3"
    );
    assert_eq!(
        text(geometry("10", "f3", C, &[3 * C; 2])),
        "raid10 f3 needs 3 or more members, not 2"
    );
    assert_eq!(
        text(geometry("3.5", "order2", 1024, &[C; 6])),
        "raid3.5 order2 takes at most 5 members, not 6"
    );
    assert_eq!(text(geometry("1", "none", 0, &[])), "raid1 needs 1 or more members, not 0");
    assert_eq!(
        text(geometry("10", "n2o2", C, &[2 * C; 5])),
        "raid10 n2o2 on 5 members would put two chunks in one place"
    );
    assert!(matches!(geometry("5", "ls", C, &[C; 129]), No::TooManyMembers { allowed: 128, .. }));
    assert!(matches!(geometry("5", "ls", 2048, &[C; 3]), No::ChunkRange { min: 4096, .. }));
    assert!(matches!(geometry("5", "ls", 32 << 20, &[C; 3]), No::ChunkRange { .. }));
    assert!(matches!(geometry("3.5", "order3", 256, &[C; 9]), No::ChunkRange { min: 512, .. }));
    assert!(matches!(geometry("3.5", "order1", 1024, &[C; 3]), No::ChunkRange { min: 2048, .. }));
    assert!(matches!(geometry("5", "ls", 12_288, &[C; 3]), No::ChunkNotPowerOfTwo { .. }));
    assert!(matches!(geometry("0", "original", 4100, &[C; 3]), No::ChunkNotSectors { .. }));
    assert!(matches!(geometry("1", "none", C, &[C; 2]), No::ChunkNotZero { .. }));
    let small = No::MemberTooSmall { slot: Slot(1), bytes: C - 1, needed: C };
    assert_eq!(geometry("4", "none", C, &[C, C - 1, C]), small);
    assert_eq!(text(small), "member 1 has 65535 bytes for data and needs 65536");
    let far = No::MemberTooSmall { slot: Slot(0), bytes: C, needed: 2 * C };
    assert_eq!(geometry("10", "f2", C, &[C, C]), far);
    assert_eq!(geometry("linear", "none", 0, &[1 << 62, 1 << 62]), No::TooLarge);
    assert_eq!(geometry("0", "alternate", C, &[u64::MAX, u64::MAX]), No::TooLarge);
}

#[test]
#[should_panic = "array_offset < self.capacity"]
fn past_the_end_is_a_bug() {
    let shape = Shape { layout: Layout::Raid1, chunk_bytes: 0, members: vec![4096; 2] };
    Geometry::new(shape).unwrap().places(4096);
}
