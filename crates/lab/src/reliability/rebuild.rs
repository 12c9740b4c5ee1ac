//! How long a rebuild takes, from a disk's data sheet.
//!
//! The rate of a rotating disk falls from the outer to the inner tracks, about linearly with the
//! track, and every track takes the same time. So a whole pass lasts 2 / (1 + inner/outer) times
//! what the rate at its start promises: 35 % more at inner/outer = 0.48 (Deskstar 7K500). A limit
//! on the rate (throttle) flattens the outer part:
//!
//! ```text
//!   rate │‾‾‾‾‾‾‾‾\                    share × rate of the disk,
//!        │ limit    ‾‾‾\               at most the limit
//!        │              ‾‾‾\
//!        └────────────────────▶ track
//! ```

/// The size and rates of a disk model.
#[derive(Clone, PartialEq, Debug)]
pub struct DiskKind {
    /// Its name.
    pub name: String,
    /// Bytes of the disk.
    pub bytes: u64,
    /// Sequential bytes per second on the outermost track.
    pub outer_rate: f64,
    /// Rate on the innermost track divided by that: 0.45 to 0.7, and 1 for flash.
    pub inner_share: f64,
}

/// What a rebuild gets of the disks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// Share of the sequential rate that clients leave: above 0, at most 1.
    pub share: f64,
    /// At most this many bytes per second (throttle, link, parity).
    pub limit: Option<f64>,
    /// Where the engine has measured the share under the clients' load, that one counts instead.
    pub is_measured: bool,
}

impl Load {
    /// No clients, no limit.
    pub const IDLE: Load = Load { share: 1.0, limit: None, is_measured: false };
}

/// Hours of a rebuild.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RebuildHours {
    /// As the rate at the start promises.
    pub at_start_rate: f64,
    /// With the slower inner tracks.
    pub zone_corrected: f64,
}

/// Hours to rebuild a member with this many bytes of data.
pub fn rebuild_hours(bytes: u64, disk: &DiskKind, load: Load) -> RebuildHours {
    let (bytes, inner) = (bytes as f64, disk.inner_share);
    let start_rate = load.share * disk.outer_rate;
    let limit = load.limit.unwrap_or(f64::INFINITY);
    let mean_rate = start_rate * (1.0 + inner) / 2.0;
    // The share of the tracks, and of the bytes, on which the limit counts.
    let tracks = if inner >= 1.0 {
        if limit < start_rate { 1.0 } else { 0.0 }
    } else {
        ((1.0 - limit / start_rate) / (1.0 - inner)).clamp(0.0, 1.0)
    };
    let limited = tracks * (2.0 - (1.0 - inner) * tracks) / (1.0 + inner);
    let seconds = bytes * limited / limit + bytes * (1.0 - tracks) / mean_rate;
    RebuildHours {
        at_start_rate: bytes / start_rate.min(limit) / 3600.0,
        zone_corrected: seconds / 3600.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(bytes: u64, outer: f64, inner_share: f64) -> DiskKind {
        DiskKind { name: "disk".into(), bytes, outer_rate: outer, inner_share }
    }

    #[test]
    fn zones_lengthen_a_pass_by_a_third() {
        let found = rebuild_hours(500_000_000_000, &disk(0, 86.8e6, 0.48), Load::IDLE);
        assert!((found.zone_corrected / found.at_start_rate - 1.3514).abs() < 1e-4, "{found:?}");
        let flash = rebuild_hours(500_000_000_000, &disk(0, 86.8e6, 1.0), Load::IDLE);
        assert_eq!(flash.zone_corrected, flash.at_start_rate);
    }

    #[test]
    fn the_floor_of_the_fact_sheet() {
        for (terabytes, rate, hours) in [(8, 100e6, 22.0), (16, 150e6, 30.0), (24, 250e6, 27.0)] {
            let bytes = terabytes * 1_000_000_000_000;
            let found = rebuild_hours(bytes, &disk(bytes, rate, 1.0), Load::IDLE);
            assert!((found.at_start_rate - hours).abs() < 0.5, "{found:?}");
        }
    }

    #[test]
    fn a_limit_flattens_the_outer_tracks() {
        let (bytes, inner) = (1_000_000_000_u64, 0.5);
        let limited = |limit, share| {
            let load = Load { share, limit: Some(limit), is_measured: false };
            rebuild_hours(bytes, &disk(bytes, 100e6, inner), load).zone_corrected * 3600.0
        };
        // By hand: in steps of a millionth of the tracks.
        let by_hand = |limit: f64, share: f64| {
            let rate = |track: f64| 100e6 * (1.0 - (1.0 - inner) * track);
            let steps = 100_000;
            let time = |step: u32| {
                let rate = rate((f64::from(step) + 0.5) / f64::from(steps));
                rate / (share * rate).min(limit)
            };
            let density = bytes as f64 / (100e6 * (1.0 + inner) / 2.0);
            (0..steps).map(time).sum::<f64>() / f64::from(steps) * density
        };
        for (limit, share) in [(70e6, 1.0), (30e6, 0.5), (40e6, 1.0), (200e6, 1.0), (20e6, 0.3)] {
            let (found, expected) = (limited(limit, share), by_hand(limit, share));
            assert!((found / expected - 1.0).abs() < 1e-6, "{found} instead of {expected}");
        }
    }
}
