//! Where a sector is: cylinder, head and angle.
//!
//! Angles are times. The platter turns once per `revolution`; the angle of a place is the time
//! within a revolution at which the place passes under the heads. A head that is on the track at
//! time `t` waits `(angle − t) mod revolution`. Rotation is never random: sequential streams,
//! missed revolutions and disks in step come from it.
//!
//! ```text
//!   zone 0   outermost, most sectors on a track
//!     cylinder 0   head 0: sector 0, 1, …   head 1: later by the track skew   …
//!     cylinder 1   head 0: later by the cylinder skew                         …
//!   zone 1 …
//! ```
//!
//! A skew gives the head the time to change track. The k-th of `n` sectors starts at `k·rev/n`,
//! rounded down once, so that the end of a sector is exactly the start of the next: a stream never
//! loses a revolution to rounding.

use super::{Nanos, SECTOR};

/// Cylinders with the same number of sectors on a track.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Zone {
    /// First cylinder. Cylinders between zones are spare and hold no data.
    pub first_cylinder: u32,
    /// Number of cylinders.
    pub cylinders: u32,
    /// Sectors of each track.
    pub track_sectors: u32,
    /// From the end of a track to the start of the next one of the cylinder.
    pub track_skew: Nanos,
    /// From the end of a cylinder to the start of the next one.
    pub cylinder_skew: Nanos,
}

/// A zone, with the places of its first sector.
#[derive(Clone, Copy, Debug)]
struct Laid {
    zone: Zone,
    first_sector: u64,
    angle: Nanos,
}

/// The place of a sector.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// Cylinder, from the outside.
    pub cylinder: u32,
    /// Head.
    pub head: u32,
    /// When it passes, within a revolution.
    pub angle: Nanos,
}

/// The layout of a disk.
#[derive(Clone, Debug)]
pub struct Geometry {
    zones: Vec<Laid>,
    heads: u32,
    revolution: Nanos,
    cylinders: u32,
    sectors: u64,
}

/// A disk as its data sheet describes it: the rate falls linearly from the outside to the inside.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sheet {
    /// Size in sectors.
    pub sectors: u64,
    /// Heads, or surfaces with data.
    pub heads: u32,
    /// Time of a revolution.
    pub revolution: Nanos,
    /// Sustained rate at the outside, bytes per second.
    pub outer_rate: u64,
    /// Sustained rate at the inside, bytes per second.
    pub inner_rate: u64,
    /// See [`Zone`].
    pub track_skew: Nanos,
    /// See [`Zone`].
    pub cylinder_skew: Nanos,
}

/// Zones of a disk that is known by its data sheet.
const SHEET_ZONES: u32 = 16;

/// Where a sector lies: its track, and its number there.
struct Spot {
    zone: usize,
    track: u64,
    index: u32,
}

impl Geometry {
    /// A disk of these zones. `sectors` may be less than they hold.
    ///
    /// # Panics
    /// If the zones hold fewer than `sectors`, or are empty.
    pub fn new(zones: &[Zone], heads: u32, revolution: Nanos, sectors: u64) -> Geometry {
        let (mut first_sector, mut angle) = (0, 0);
        let mut laid = Vec::with_capacity(zones.len());
        for &zone in zones {
            laid.push(Laid { zone, first_sector, angle });
            let cylinders = u64::from(zone.cylinders);
            first_sector += cylinders * u64::from(heads) * u64::from(zone.track_sectors);
            angle = (angle + cylinders * round(&zone, heads)) % revolution;
        }
        let last = zones.last().expect("a disk has a zone");
        assert!(first_sector >= sectors, "the zones hold {first_sector} sectors of {sectors}");
        let cylinders = last.first_cylinder + last.cylinders;
        Geometry { zones: laid, heads, revolution, cylinders, sectors }
    }

    /// The geometry behind a data sheet. The sheet's sustained rates include the skews: the rate on
    /// the track is higher.
    pub fn of_sheet(sheet: &Sheet) -> Geometry {
        let heads = u64::from(sheet.heads);
        let turns = heads * sheet.revolution;
        let whole = turns + (heads - 1) * sheet.track_skew + sheet.cylinder_skew;
        let per_track = |rate: f64| {
            let bytes = rate * 1e-9 * (sheet.revolution * whole) as f64 / turns as f64;
            bytes / SECTOR as f64
        };
        let (outer, inner) = (sheet.outer_rate as f64, sheet.inner_rate as f64);
        let mean = per_track((outer + inner) / 2.0);
        let cylinders = (sheet.sectors as f64 / (mean * heads as f64)).ceil() as u32;
        let mut zones = Vec::new();
        let (mut first_cylinder, mut left) = (0, sheet.sectors);
        for index in 0..SHEET_ZONES {
            let depth = f64::from(index) / f64::from(SHEET_ZONES - 1);
            let track_sectors = per_track(outer + (inner - outer) * depth).round() as u32;
            let whole = cylinders * (index + 1) / SHEET_ZONES - first_cylinder;
            let needed = left.div_ceil(heads * u64::from(track_sectors)) as u32;
            let last = index + 1 == SHEET_ZONES;
            let cylinders = if last { needed } else { whole.min(needed) };
            left = left.saturating_sub(u64::from(cylinders) * heads * u64::from(track_sectors));
            let (track_skew, cylinder_skew) = (sheet.track_skew, sheet.cylinder_skew);
            zones.push(Zone {
                first_cylinder,
                cylinders,
                track_sectors,
                track_skew,
                cylinder_skew,
            });
            first_cylinder += cylinders;
        }
        Geometry::new(&zones, sheet.heads, sheet.revolution, sheet.sectors)
    }

    /// Size in sectors.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Number of cylinders.
    pub fn cylinders(&self) -> u32 {
        self.cylinders
    }

    /// Time of a revolution.
    pub fn revolution(&self) -> Nanos {
        self.revolution
    }

    /// Where a sector is.
    pub fn locate(&self, sector: u64) -> Place {
        let spot = self.spot(sector);
        let Laid { zone, angle, .. } = self.zones[spot.zone];
        let (cylinder, head) =
            (spot.track / u64::from(self.heads), spot.track % u64::from(self.heads));
        let skews = cylinder * round(&zone, self.heads) + head * zone.track_skew;
        let angle = angle + skews + self.start(&zone, spot.index);
        let cylinder = zone.first_cylinder + cylinder as u32;
        Place { cylinder, head: head as u32, angle: angle % self.revolution }
    }

    /// How long `sectors` sectors from `sector` take to pass, track and cylinder changes included.
    pub fn pass(&self, sector: u64, sectors: u64) -> Nanos {
        let mut spot = self.spot(sector);
        let (mut left, mut time) = (sectors, 0);
        loop {
            let zone = &self.zones[spot.zone].zone;
            let here = u64::from(zone.track_sectors - spot.index);
            let start = self.start(zone, spot.index);
            if left <= here {
                return time + self.start(zone, spot.index + left as u32) - start;
            }
            left -= here;
            time += self.revolution - start + self.change(&mut spot);
        }
    }

    /// How many sectors from `sector` pass completely within `time`, at most `most`.
    pub fn passed(&self, sector: u64, time: Nanos, most: u64) -> u64 {
        let mut spot = self.spot(sector);
        let (mut left, mut passed) = (time, 0);
        while passed < most {
            let zone = &self.zones[spot.zone].zone;
            let start = self.start(zone, spot.index);
            let here = self.revolution - start;
            if left < here {
                // The last sector that has started: the largest k with k·rev/n, rounded down, ≤ t.
                let turned = u128::from(start + left + 1) * u128::from(zone.track_sectors) - 1;
                let index = (turned / u128::from(self.revolution)) as u64;
                return most.min(passed + index - u64::from(spot.index));
            }
            passed += u64::from(zone.track_sectors - spot.index);
            left -= here;
            let change = self.change(&mut spot);
            let Some(rest) = left.checked_sub(change) else { break };
            left = rest;
        }
        passed.min(most)
    }

    fn spot(&self, sector: u64) -> Spot {
        let zone = self.zones.partition_point(|laid| laid.first_sector <= sector) - 1;
        let Laid { zone: Zone { track_sectors, .. }, first_sector, .. } = self.zones[zone];
        let within = sector - first_sector;
        let track_sectors = u64::from(track_sectors);
        let (track, index) = (within / track_sectors, (within % track_sectors) as u32);
        Spot { zone, track, index }
    }

    /// When the sector with this number on its track starts, from the start of the track.
    fn start(&self, zone: &Zone, index: u32) -> Nanos {
        u64::from(index) * self.revolution / u64::from(zone.track_sectors)
    }

    /// Moves to the start of the next track, and tells how long that takes.
    fn change(&self, spot: &mut Spot) -> Nanos {
        let zone = &self.zones[spot.zone].zone;
        spot.index = 0;
        spot.track += 1;
        if !spot.track.is_multiple_of(u64::from(self.heads)) {
            return zone.track_skew;
        }
        if spot.track == u64::from(zone.cylinders) * u64::from(self.heads)
            && spot.zone + 1 < self.zones.len()
        {
            *spot = Spot { zone: spot.zone + 1, track: 0, index: 0 };
        }
        zone.cylinder_skew
    }
}

/// By how much the angle of a cylinder's first sector moves on to the next cylinder.
fn round(zone: &Zone, heads: u32) -> Nanos {
    u64::from(heads - 1) * zone.track_skew + zone.cylinder_skew
}

#[cfg(test)]
mod tests;
