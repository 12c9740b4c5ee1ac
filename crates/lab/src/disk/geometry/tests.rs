//! Angles and times agree: whichever way a sector is reached, it passes at its angle.

use super::*;

fn small() -> Geometry {
    let zone = |first_cylinder, cylinders, track_sectors| Zone {
        first_cylinder,
        cylinders,
        track_sectors,
        track_skew: 1_100_000,
        cylinder_skew: 2_300_001,
    };
    Geometry::new(&[zone(0, 5, 17), zone(5, 3, 13), zone(9, 4, 7)], 3, 8_333_333, 400)
}

#[test]
fn a_stream_meets_every_sector_at_its_angle() {
    let geometry = small();
    let start = geometry.locate(0).angle;
    for sector in 0..399 {
        let reached = (start + geometry.pass(0, sector)) % geometry.revolution();
        let skew = geometry.pass(sector, 1);
        let place = geometry.locate(sector);
        let waited = (place.angle + geometry.revolution() - reached) % geometry.revolution();
        assert!(
            waited == 0 || waited == 1_100_000 || waited == 2_300_001,
            "sector {sector} passes {waited} ns after the stream expects it"
        );
        assert!(skew > 0);
    }
}

#[test]
fn passed_is_the_inverse_of_pass() {
    let geometry = small();
    for first in [0, 16, 50, 254, 300] {
        for sectors in 1..(399 - first) {
            let time = geometry.pass(first, sectors);
            assert_eq!(geometry.passed(first, time, u64::MAX), sectors, "{first}+{sectors}");
            assert!(geometry.passed(first, time - 1, u64::MAX) < sectors, "{first}+{sectors}");
        }
    }
}

#[test]
fn cylinders_between_zones_hold_nothing() {
    let geometry = small();
    assert_eq!(geometry.locate(15 * 17 + 9 * 13 - 1).cylinder, 7);
    assert_eq!(geometry.locate(15 * 17 + 9 * 13).cylinder, 9);
    assert_eq!(geometry.cylinders(), 13);
}

#[test]
fn the_rates_of_a_data_sheet_come_back() {
    let sheet = Sheet {
        sectors: 976_773_168,
        heads: 6,
        revolution: 8_333_333,
        outer_rate: 86_800_000,
        inner_rate: 43_000_000,
        track_skew: 1_000_000,
        cylinder_skew: 1_200_000,
    };
    let geometry = Geometry::of_sheet(&sheet);
    assert_eq!(geometry.sectors(), sheet.sectors);
    let rate = |sector| 100_000.0 * 512.0 * 1e9 / geometry.pass(sector, 100_000) as f64;
    let (outer, inner) = (rate(0), rate(sheet.sectors - 100_001));
    assert!((outer / 86.8e6 - 1.0).abs() < 0.02, "outer {outer}");
    assert!((inner / 43.0e6 - 1.0).abs() < 0.04, "inner {inner}");
}
