//! The map against a second one, written from md's formulas (Linux 6.1: raid5.c, raid10.c, raid0.c)
//! as whole tables, chunk by chunk and without a thought to speed; and against tables written by
//! hand.

use layout::{
    Geometry, Layout, LayoutError, Level, Owner, Place, Raid0Layout, Raid5Layout, Raid6Layout,
    Shape, Slot, Stripe, StripeRole,
};

const CHUNK: u64 = 64 << 10;

fn geometry(layout: Layout, chunks: &[u64]) -> Geometry {
    let members = chunks.iter().map(|chunks| chunks * CHUNK).collect();
    Geometry::new(Shape { layout, chunk_bytes: CHUNK, members }).expect("md's format allows it")
}

fn parse(level: &str, layout: &str) -> Layout {
    Layout::parse(level.parse().expect("md's format allows it"), layout)
        .expect("md's format allows it")
}

// --- Parity: one stripe as a list of roles, by md's level and layout numbers --------------------

/// The slots of P and Q.
fn parities(level: i32, layout: u32, n: u64, s: u64) -> (u64, Option<u64>) {
    match (level, layout) {
        (4, _) => (n - 1, None),
        (5, 0 | 2) => (n - 1 - s % n, None),
        (5, 1 | 3) => (s % n, None),
        (5, 4) => (0, None),
        (5, 5) => (n - 1, None),
        (6, 0 | 2) => (n - 1 - s % n, Some((n - 1 - s % n + 1) % n)),
        (6, 1 | 3 | 8) => (s % n, Some((s % n + 1) % n)),
        (6, 4) => (0, Some(1)),
        (6, 5) => (n - 2, Some(n - 1)),
        (6, 9) => (n - 1 - (s + 1) % n, Some((n - 1 - (s + 1) % n + 1) % n)),
        (6, 10) => (n - 1 - s % n, Some((n - 1 - s % n + n - 1) % n)),
        (6, 16 | 18) => (n - 2 - s % (n - 1), Some(n - 1)),
        (6, 17 | 19) => (s % (n - 1), Some(n - 1)),
        (6, 20) => (0, Some(n - 1)),
        _ => unreachable!("md has no such layout"),
    }
}

/// The content of each slot of stripe `s`.
fn roles(level: i32, layout: u32, n: u64, s: u64) -> Vec<StripeRole> {
    let (p, q) = parities(level, layout, n, s);
    let mut roles = vec![None; n as usize];
    roles[p as usize] = Some(StripeRole::P);
    if let Some(q) = q {
        assert_eq!(roles[q as usize], None);
        roles[q as usize] = Some(StripeRole::Q);
    }
    let k = if q.is_some() { n - 2 } else { n - 1 };
    for d in 0..k {
        let slot = match (level, layout) {
            (5, 2 | 3) => (p + 1 + d) % n,
            (6, 2 | 3) => (p + 2 + d) % n,
            (6, 10) => (p + 1 + d) % n,
            (6, 18 | 19) => (p + 1 + d) % (n - 1),
            _ => roles.iter().position(Option::is_none).expect("md's format allows it") as u64,
        };
        assert_eq!(roles[slot as usize], None);
        roles[slot as usize] = Some(StripeRole::Data(d as usize));
    }
    roles.into_iter().map(Option::unwrap).collect()
}

/// The exponent of g for each data index of a RAID 6 stripe.
fn exponents(layout: u32, roles: &[StripeRole]) -> Vec<u8> {
    let n = roles.len();
    let q = roles.iter().position(|role| *role == StripeRole::Q).expect("md's format allows it");
    let mut exponents = vec![0; n - 2];
    let (mut slot, mut count) = if matches!(layout, 8..=10) { (0, 0) } else { ((q + 1) % n, 0) };
    for _ in 0..n {
        if let StripeRole::Data(index) = roles[slot] {
            exponents[index] = if matches!(layout, 8..=10) { slot as u8 } else { count };
            count += 1;
        }
        slot = (slot + 1) % n;
    }
    exponents
}

#[test]
fn parity_is_where_md_has_it() {
    for n in (2..=16).chain([63, 64, 65, 128]) {
        for level in [Level::Raid4, Level::Raid5, Level::Raid6] {
            for layout in Layout::all(level, n) {
                let stripes = 3 * n as u64 + 1;
                let map = geometry(layout, &vec![stripes; n]);
                for s in 0..stripes {
                    let stripe = map.stripe(Stripe(s));
                    let md = level.md_number().expect("md's format allows it");
                    let expected = roles(md, layout.to_md(), n as u64, s);
                    for (slot, role) in expected.iter().enumerate() {
                        let slot = Slot::new(slot);
                        assert_eq!(stripe.role(slot), *role, "{layout:?} {n} {s} {slot}");
                        let holds = match *role {
                            StripeRole::Data(index) => stripe.data(index),
                            StripeRole::P => stripe.p(),
                            StripeRole::Q => stripe.q().expect("md's format allows it"),
                        };
                        assert_eq!(holds, slot);
                    }
                    let exponent: Vec<u8> =
                        (0..map.data_count()).map(|index| stripe.exponent(index)).collect();
                    let expected = match level {
                        Level::Raid6 => exponents(layout.to_md(), &expected),
                        _ => vec![0; map.data_count()],
                    };
                    assert_eq!(exponent, expected, "{layout:?} {n} {s}");
                }
            }
        }
    }
}

// --- RAID 10 ------------------------------------------------------------------------------------

/// md's copies of every array chunk, as (slot, member chunk), walked as
/// `__raid10_find_phys` does.
fn raid10(word: u32, n: u64, member_chunks: u64) -> Vec<Vec<(u64, u64)>> {
    let (near, far) = (u64::from(word & 255), u64::from(word >> 8 & 255));
    let offset = word >> 16 & 1 == 1;
    let chunks = member_chunks / far * n / near;
    let used = (chunks * near * far).div_ceil(n);
    let stride = if offset { 1 } else { used / far };
    let copies = |chunk: u64| {
        let mut copies = Vec::new();
        let (mut row, mut dev) = (chunk * near / n, chunk * near % n);
        if offset {
            row *= far;
        }
        for _ in 0..near {
            let (mut far_dev, mut far_row) = (dev, row);
            copies.push((far_dev, far_row));
            for _ in 1..far {
                far_dev = (far_dev + near) % n;
                far_row += stride;
                copies.push((far_dev, far_row));
            }
            dev += 1;
            if dev == n {
                dev = 0;
                row += 1;
            }
        }
        copies
    };
    (0..chunks).map(copies).collect()
}

/// The copies of every chunk, as the map has them; and that `owner` agrees.
fn copies(map: &Geometry) -> Vec<Vec<(u64, u64)>> {
    let copies = |chunk: u64| {
        let copies = map.places(chunk * CHUNK).copies().enumerate();
        let copies = copies.map(|(index, Place { slot, member_offset })| {
            let owner = map.owner(slot, member_offset);
            let Owner::Data { array_offset, copy, .. } = owner else { panic!("{owner:?}") };
            assert_eq!((array_offset, copy), (chunk * CHUNK, index));
            assert_eq!(member_offset % CHUNK, 0);
            (u64::from(slot.0), member_offset / CHUNK)
        });
        copies.collect()
    };
    (0..map.capacity() / CHUNK).map(copies).collect()
}

#[test]
fn raid10_copies_are_where_md_has_them() {
    let mut layouts = 0;
    for n in 2..=12 {
        for layout in Layout::all(Level::Raid10, n) {
            let Layout::Raid10 { far, .. } = layout else { unreachable!() };
            for member_chunks in [u64::from(far), 12, 13, 14, 23] {
                let map = geometry(layout, &vec![member_chunks; n]);
                let expected = raid10(layout.to_md(), n as u64, member_chunks);
                assert_eq!(copies(&map), expected, "{layout} {n} {member_chunks}");
                layouts += 1;
            }
        }
    }
    assert!(layouts > 1000, "{layouts}");
}

/// Why [`layout::GeometryError::CopiesCollide`]: md's own map is not one-to-one there.
#[test]
fn offset_copies_collide_where_near_does_not_divide_members() {
    let table = raid10(parse("10", "n2o2").to_md(), 5, 8);
    let mut places: Vec<_> = table.concat();
    places.sort_unstable();
    assert!(places.windows(2).any(|pair| pair[0] == pair[1]));
}

#[test]
fn raid10_sizes_as_measured() {
    let cases =
        [("n2", 4096), ("n3", 2730), ("f2", 4096), ("f3", 2728), ("o2", 4096), ("o3", 2728)];
    for (name, chunks) in cases {
        let map = geometry(parse("10", name), &[2048; 4]);
        assert_eq!(map.capacity(), chunks * CHUNK, "{name}");
    }
}

// --- RAID 0, linear, RAID 1 ---------------------------------------------------------------------

/// (slot, member chunk) of every array chunk: fill zone by zone.
fn raid0(members: &[u64], original: bool) -> Vec<Vec<(u64, u64)>> {
    let mut table = Vec::new();
    let mut zone_start = 0;
    while members.iter().any(|chunks| *chunks > zone_start) {
        let in_zone = |slot: &usize| members[*slot] > zone_start;
        let list: Vec<usize> = (0..members.len()).filter(in_zone).collect();
        let zone_end = list.iter().map(|slot| members[*slot]).min().expect("md's format allows it");
        for off in 0..(zone_end - zone_start) * list.len() as u64 {
            let turn = if original { table.len() as u64 } else { off };
            let slot = list[(turn % list.len() as u64) as usize];
            table.push(vec![(slot as u64, zone_start + off / list.len() as u64)]);
        }
        zone_start = zone_end;
    }
    table
}

const UNEQUAL: [&[u64]; 9] = [
    &[111, 144, 176],
    &[176, 111, 144],
    &[1, 3, 3],
    &[7, 7, 7, 7],
    &[5, 1],
    &[9],
    &[2, 9, 4, 9, 4, 11, 9],
    &[8, 7, 6, 5, 4, 3, 2, 1],
    &[3, 10, 10, 10, 10, 17, 17, 17, 19],
];

#[test]
fn raid0_zones_are_where_md_has_them() {
    for members in UNEQUAL {
        let tables = [true, false].map(|original| raid0(members, original));
        let maps = [Raid0Layout::Original, Raid0Layout::Alternate]
            .map(|layout| geometry(Layout::Raid0(layout), members));
        for (map, table) in maps.iter().zip(&tables) {
            assert_eq!(copies(map), *table, "{members:?}");
        }
        // The layouts that may ignore a superblock without a layout.
        let [original, alternate] = tables;
        assert!(maps[0].is_zoned() || original == alternate);
        assert_eq!(maps[0].is_zoned(), maps[1].is_zoned());
    }
    assert!(geometry(parse("0", "original"), UNEQUAL[0]).is_zoned());
    assert!(!geometry(parse("0", "original"), UNEQUAL[3]).is_zoned());
    assert!(!geometry(parse("0", "original"), UNEQUAL[4]).is_zoned());
}

#[test]
fn linear_follows_the_slots() {
    for members in UNEQUAL {
        let expected: Vec<Vec<_>> = (0..members.len())
            .flat_map(|slot| (0..members[slot]).map(move |chunk| vec![(slot as u64, chunk)]))
            .collect();
        assert_eq!(copies(&geometry(Layout::Linear, members)), expected);
    }
    // Cut to sectors, or to its rounding.
    let members = vec![10_000, 5_000];
    let linear = |chunk_bytes| {
        Geometry::new(Shape { layout: Layout::Linear, chunk_bytes, members: members.clone() })
    };
    assert_eq!(linear(0).expect("md's format allows it").capacity(), 9_728 + 4_608);
    assert_eq!(linear(4096).expect("md's format allows it").capacity(), 8_192 + 4_096);
}

#[test]
fn raid1_is_the_same_everywhere() {
    let shape = Shape { layout: Layout::Raid1, chunk_bytes: 0, members: vec![70_000; 128] };
    let map = Geometry::new(shape).expect("md's format allows it");
    assert_eq!(map.capacity(), 69_632);
    let places = map.places(12_345);
    assert_eq!(places.len, 69_632 - 12_345);
    assert_eq!(places.count(), 128);
    for (index, place) in places.copies().enumerate() {
        assert_eq!(place, Place { slot: Slot::new(index), member_offset: 12_345 });
    }
}

// --- By hand ------------------------------------------------------------------------------------

/// A drawing of member chunks, line by line: a number is an array chunk, P and Q parity, `.` free.
fn drawing(map: &Geometry) -> Vec<String> {
    let all = map.all_slots();
    let lines = all.iter().map(|slot| map.member_bytes(slot).div_ceil(map.chunk_bytes())).max();
    let cell = |slot, line: u64| {
        let offset = line * map.chunk_bytes();
        match map.owner(slot, offset) {
            Owner::Data { array_offset, .. } => (array_offset / map.chunk_bytes()).to_string(),
            Owner::P { .. } => "P".into(),
            Owner::Q { .. } => "Q".into(),
            Owner::Unused { .. } => ".".into(),
        }
    };
    let line = |line| all.iter().map(|slot| cell(slot, line)).collect::<Vec<_>>().join(" ");
    (0..lines.expect("md's format allows it")).map(line).collect()
}

fn assert_drawn(level: &str, layout: &str, members: &[u64], lines: &[&str]) {
    let drawn = drawing(&geometry(parse(level, layout), members));
    let lines = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    assert_eq!(drawn, lines.collect::<Vec<_>>(), "{level} {layout}");
}

#[test]
fn drawn_parity() {
    assert_drawn(
        "5",
        "ls",
        &[5; 5],
        &[
            " 0   1   2   3   P",
            " 5   6   7   P   4",
            "10  11   P   8   9",
            "15   P  12  13  14",
            " P  16  17  18  19",
        ],
    );
    assert_drawn("5", "la", &[3; 3], &["0 1 P", "2 P 3", "P 4 5"]);
    assert_drawn("5", "ra", &[3; 3], &["P 0 1", "2 P 3", "4 5 P"]);
    assert_drawn("5", "rs", &[3; 3], &["P 0 1", "3 P 2", "4 5 P"]);
    assert_drawn("4", "none", &[2; 4], &["0 1 2 P", "3 4 5 P"]);
    assert_drawn(
        "6",
        "ls",
        &[6; 6],
        &[
            " Q   0   1   2   3   P",
            " 4   5   6   7   P   Q",
            " 9  10  11   P   Q   8",
            "14  15   P   Q  12  13",
            "19   P   Q  16  17  18",
            " P   Q  20  21  22  23",
        ],
    );
    assert_drawn("6", "left-asymmetric", &[4; 4], &["Q 0 1 P", "2 3 P Q", "4 P Q 5", "P Q 6 7"]);
    assert_drawn("6", "ddf-N-restart", &[4; 4], &["0 1 P Q", "2 P Q 3", "P Q 4 5", "Q 6 7 P"]);
    assert_drawn("6", "ddf-N-continue", &[4; 4], &["0 1 Q P", "3 Q P 2", "Q P 4 5", "P 6 7 Q"]);
    assert_drawn("6", "left-symmetric-6", &[3; 4], &["0 1 P Q", "3 P 2 Q", "P 4 5 Q"]);
}

/// Exponents of g by slot; `-` for parity.
fn assert_exponents(layout: &str, lines: &[&str]) {
    let n = lines[0].split_whitespace().count();
    let map = geometry(parse("6", layout), &vec![lines.len() as u64; n]);
    for (s, line) in lines.iter().enumerate() {
        let stripe = map.stripe(Stripe(s as u64));
        let drawn = map.all_slots().iter().map(|slot| match stripe.role(slot) {
            StripeRole::Data(index) => stripe.exponent(index).to_string(),
            StripeRole::P | StripeRole::Q => "-".into(),
        });
        let expected: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(drawn.collect::<Vec<_>>(), expected, "{layout} stripe {s}");
    }
}

#[test]
fn drawn_exponents() {
    assert_exponents("ls", &["- 0 1 2 -", "0 1 2 - -", "1 2 - - 0", "2 - - 0 1", "- - 0 1 2"]);
    assert_exponents("la", &["- 0 1 2 -", "0 1 2 - -", "1 2 - - 0", "2 - - 0 1", "- - 0 1 2"]);
    assert_exponents("ls-6", &["0 1 2 - -", "0 1 - 2 -", "0 - 1 2 -", "- 0 1 2 -"]);
    assert_exponents("ddf-zero-restart", &["- - 2 3", "0 - - 3", "0 1 - -", "- 1 2 -"]);
    assert_exponents("ddf-N-continue", &["0 1 - -", "0 - - 3", "- - 2 3", "- 1 2 -"]);
}

#[test]
fn drawn_raid10() {
    assert_drawn("10", "n3", &[3; 4], &["0 0 0 1", "1 1 2 2", "2 3 3 3"]);
    assert_drawn("10", "n3", &[3; 5], &["0 0 0 1 1", "1 2 2 2 3", "3 3 4 4 4"]);
    assert_drawn("10", "n3", &[2; 4], &["0 0 0 1", "1 1 . ."]);
    assert_drawn("10", "f2", &[4; 4], &["0 1 2 3", "4 5 6 7", "3 0 1 2", "7 4 5 6"]);
    assert_drawn("10", "f2", &[5; 5], &["0 1 2 3 4", "5 6 7 8 9", "4 0 1 2 3", "9 5 6 7 8"]);
    assert_drawn("10", "o2", &[4; 4], &["0 1 2 3", "3 0 1 2", "4 5 6 7", "7 4 5 6"]);
    assert_drawn("10", "o2", &[4; 5], &["0 1 2 3 4", "4 0 1 2 3", "5 6 7 8 9", "9 5 6 7 8"]);
    assert_drawn("10", "n2f2", &[2; 4], &["0 0 1 1", "1 1 0 0"]);
}

#[test]
fn drawn_raid0() {
    assert_drawn("0", "original", &[1, 3, 3], &["0 1 2", ". 4 3", ". 6 5"]);
    assert_drawn("0", "alternate", &[1, 3, 3], &["0 1 2", ". 3 4", ". 5 6"]);
    // 111 · 3 = 333 chunks in zone 0, odd: zone 1 starts on its other member.
    for (layout, slot) in [("original", 2), ("alternate", 1)] {
        let map = geometry(parse("0", layout), &[111, 144, 176]);
        let place = Place { slot: Slot(slot), member_offset: 111 * CHUNK };
        assert_eq!(map.places(333 * CHUNK).copy(0), place, "{layout}");
        let last = Place { slot: Slot(2), member_offset: 175 * CHUNK };
        assert_eq!(map.places((111 + 144 + 175) * CHUNK).copy(0), last);
    }
}

#[test]
fn drawn_raid35() {
    let shape =
        Shape { layout: Layout::Raid35 { order: 2 }, chunk_bytes: 1024, members: vec![2048; 5] };
    let map = Geometry::new(shape).expect("md's format allows it");
    assert_eq!((map.stripe_bytes(), map.stripes(), map.capacity()), (4096, 2, 8192));
    assert_eq!(drawing(&map), ["0 1 2 3 P", "4 5 6 7 P"]);
}

// --- Names and numbers --------------------------------------------------------------------------

#[test]
fn names_and_numbers_lead_back() {
    for (level, n) in Level::ALL.into_iter().flat_map(|level| (1..=65).map(move |n| (level, n))) {
        assert_eq!(level.to_string().parse(), Ok(level));
        assert!(level.md_number().is_none_or(|number| Level::from_md(number) == Some(level)));
        for layout in Layout::all(level, n) {
            assert_eq!(layout.level(), level);
            assert_eq!(Layout::parse(level, &layout.to_string()), Ok(layout));
            assert_eq!(Layout::from_md(level, layout.to_md()), Ok(layout));
        }
    }
    assert_eq!(Layout::all(Level::Raid5, 5).count(), 6);
    assert_eq!(Layout::all(Level::Raid6, 5).count(), 14);
    assert_eq!(Layout::all(Level::Raid6, 3).count(), 0);
    assert_eq!([3, 5, 9, 8].map(|n| Layout::all(Level::Raid35, n).count()), [1, 1, 1, 0]);
}

#[test]
fn names_people_use() {
    let levels = [
        ("5", Level::Raid5),
        ("RAID5", Level::Raid5),
        ("raid-6", Level::Raid6),
        ("RAID 10", Level::Raid10),
        ("3.5", Level::Raid35),
        ("raid3.5", Level::Raid35),
        ("jbod", Level::Linear),
        ("Linear", Level::Linear),
        ("mirror", Level::Raid1),
        ("0", Level::Raid0),
    ];
    for (name, level) in levels {
        assert_eq!(name.parse(), Ok(level), "{name}");
    }
    for name in ["", "raid", "2", "50", "raidlinear", "multipath", "-1"] {
        assert_eq!(name.parse::<Level>(), Err(LayoutError::UnknownLevel), "{name}");
    }
    assert_eq!(parse("5", "LS"), Layout::Raid5(Raid5Layout::LeftSymmetric));
    assert_eq!(parse("5", "ddf-zero-restart"), Layout::Raid5(Raid5Layout::RightAsymmetric));
    assert_eq!(parse("6", "ddf-n-restart"), Layout::Raid6(Raid6Layout::DdfNRestart));
    assert_eq!(parse("6", "default"), Layout::default_for(Level::Raid6, 6));
    assert_eq!(parse("10", "n2o2"), Layout::Raid10 { near: 2, far: 2, offset: true });
    for (level, name) in [
        ("5", "n2"),
        ("10", "n1"),
        ("10", "n129"),
        ("10", "f"),
        ("10", "x2"),
        ("10", "f2n2"),
        ("3.5", "order7"),
        ("3.5", "order0"),
        ("6", "left"),
        ("0", ""),
    ] {
        let level = level.parse().expect("md's format allows it");
        assert_eq!(Layout::parse(level, name), Err(LayoutError::UnknownName { level }), "{name}");
    }
    assert_eq!(Layout::default_for(Level::Raid35, 9), Layout::Raid35 { order: 3 });
}

#[test]
fn numbers_md_stores() {
    let numbers = [
        ("5", "ls", 2),
        ("6", "ls", 2),
        ("6", "ddf-N-continue", 10),
        ("6", "rs-6", 19),
        ("6", "parity-first-6", 20),
        ("0", "original", 1),
        ("0", "alternate", 2),
        ("10", "n2", 0x102),
        ("10", "f2", 0x201),
        ("10", "o2", 0x10201),
        ("4", "none", 0),
    ];
    for (level, name, number) in numbers {
        assert_eq!(parse(level, name).to_md(), number, "{level} {name}");
    }
    let from = Layout::from_md;
    for (level, number) in [
        (Level::Raid5, 6),
        (Level::Raid6, 6),
        (Level::Raid6, 11),
        (Level::Raid6, 21),
        (Level::Raid10, 0x101),
        (Level::Raid10, 0x200),
        (Level::Raid10, 0x80102),
        (Level::Raid0, 3),
        (Level::Raid35, 0),
        (Level::Raid35, 257),
    ] {
        assert_eq!(from(level, number), Err(LayoutError::UnknownNumber { level, number }));
    }
    assert_eq!(from(Level::Raid10, 0x60201), Err(LayoutError::FarSets));
    assert_eq!(from(Level::Raid10, 0x20201), Err(LayoutError::FarSets));
    assert_eq!(from(Level::Raid0, 0), Err(LayoutError::Unspecified));
    assert_eq!(from(Level::Raid4, 5), Ok(Layout::Raid4));
    assert_eq!([-4, 2, 35].map(Level::from_md), [None; 3]);
}
