//! A catalogued hard disk, and the model's parameters made of it.

use serde::Deserialize;

use super::super::geometry::{Geometry, Sheet, Zone};
use super::super::hdd::{Order, Overhead, QueueSpec, ReadCacheSpec, Spec, WriteCacheSpec};
use super::super::seek::{Fit, SeekCurve};
use super::super::{Nanos, SECTOR};
use super::Sourced;

/// First cylinder, last cylinder, sectors of a track, track skew and cylinder skew in sectors.
type ZoneRow = (u32, u32, u32, f64, f64);

/// `a`, `b`, the last distance of the root, `c`, `e`; see [`Fit`].
type FitRow = (f64, f64, u32, f64, f64);

/// A catalogued hard disk. Fields as in the files; which of them are optional depends on how much
/// is known: `zones` or a pair of rates, a seek curve as points, as a fit or as three numbers.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct HddEntry {
    /// For people.
    pub name: String,
    sectors: Sourced<u64>,
    heads: Sourced<u32>,
    rpm: Sourced<u32>,
    zones: Option<Sourced<Vec<ZoneRow>>>,
    outer_mb_s: Option<Sourced<f64>>,
    inner_mb_s: Option<Sourced<f64>>,
    track_skew_ms: Option<Sourced<f64>>,
    cylinder_skew_ms: Option<Sourced<f64>>,
    /// Distance in cylinders, time in µs.
    seek_points_us: Option<Sourced<Vec<(u32, u64)>>>,
    seek_fit_ms: Option<Sourced<FitRow>>,
    seek_one_ms: Option<Sourced<f64>>,
    seek_average_ms: Option<Sourced<f64>>,
    seek_full_ms: Option<Sourced<f64>>,
    /// Writes seek by a curve of their own, or settle longer.
    write_seek_one_ms: Option<Sourced<f64>>,
    write_seek_average_ms: Option<Sourced<f64>>,
    write_seek_full_ms: Option<Sourced<f64>>,
    write_settle_ms: Option<Sourced<f64>>,
    head_switch_ms: Sourced<f64>,
    read_hit_ms: Sourced<f64>,
    read_miss_ms: Sourced<f64>,
    write_ms: Sourced<f64>,
    flush_ms: Sourced<f64>,
    bus_mb_s: Sourced<f64>,
    cache_runs: Sourced<usize>,
    run_sectors: Sourced<u64>,
    ahead_sectors: Sourced<u64>,
    /// 0 if it is off.
    write_cache_sectors: Sourced<u64>,
    considered: Sourced<usize>,
    age_limit_ms: Sourced<f64>,
}

/// Time between the limits of a data sheet and a transfer that must not miss: heads change within
/// the time of a seek to the next cylinder, and a little is left.
const SKEW_MARGIN_MS: f64 = 0.2;

impl HddEntry {
    /// Size in sectors.
    pub fn sectors(&self) -> u64 {
        self.sectors.0
    }

    /// The same with another number of sectors; `None` if that is more than its zones hold.
    pub(super) fn resized(&self, sectors: u64) -> Option<HddEntry> {
        let fits = self.zones.is_none() || sectors <= self.sectors.0;
        let size = Sourced(sectors, self.sectors.1.clone());
        fits.then(|| HddEntry { sectors: size, ..self.clone() })
    }

    /// Revolutions per minute.
    pub fn rpm(&self) -> u32 {
        self.rpm.0
    }

    /// The model's parameters.
    ///
    /// # Panics
    /// If the entry has neither zones nor rates, or no seek curve. A test builds every disk of the
    /// embedded files.
    pub fn spec(&self) -> Spec {
        let geometry = self.geometry();
        let read_seek = self.read_seek(geometry.cylinders());
        Spec {
            write_seek: self.write_seek(&read_seek, geometry.cylinders()),
            read_seek,
            geometry,
            head_switch: nanos(&self.head_switch_ms),
            overhead: Overhead {
                read_hit: nanos(&self.read_hit_ms),
                read_miss: nanos(&self.read_miss_ms),
                write: nanos(&self.write_ms),
                flush: nanos(&self.flush_ms),
            },
            bus_sector: (SECTOR as f64 * 1e3 / self.bus_mb_s.0).round() as Nanos,
            queue: QueueSpec {
                order: Order::Shortest,
                age_limit: Some(nanos(&self.age_limit_ms)),
                considered: self.considered.0,
            },
            read_cache: ReadCacheSpec {
                runs: self.cache_runs.0,
                sectors: self.run_sectors.0,
                ahead: self.ahead_sectors.0,
            },
            write_cache: (self.write_cache_sectors.0 > 0).then(|| WriteCacheSpec {
                sectors: self.write_cache_sectors.0,
                high_water: self.write_cache_sectors.0 * 3 / 4,
                order: Order::Shortest,
            }),
            lost: None,
        }
    }

    fn geometry(&self) -> Geometry {
        let revolution = (60e9 / f64::from(self.rpm.0)).round() as Nanos;
        if let Some(Sourced(zones, _)) = &self.zones {
            let zones = zones.iter().map(|&(first, last, track_sectors, track, cylinder)| {
                let skew = |sectors: f64| {
                    (sectors * revolution as f64 / f64::from(track_sectors)).round() as Nanos
                };
                Zone {
                    first_cylinder: first,
                    cylinders: last + 1 - first,
                    track_sectors,
                    track_skew: skew(track),
                    cylinder_skew: skew(cylinder),
                }
            });
            let zones: Vec<Zone> = zones.collect();
            return Geometry::new(&zones, self.heads.0, revolution, self.sectors.0);
        }
        let rate = |rate: &Option<Sourced<f64>>| {
            let rate = rate.as_ref().expect("a disk has zones, or an outer and an inner rate");
            (rate.0 * 1e6) as u64
        };
        let one = self.seek_one_ms.as_ref().map_or(0.0, |one| one.0).max(self.head_switch_ms.0);
        let skew = |skew: &Option<Sourced<f64>>| {
            let ms = skew.as_ref().map_or(one + SKEW_MARGIN_MS, |skew| skew.0);
            (ms * 1e6).round() as Nanos
        };
        Geometry::of_sheet(&Sheet {
            sectors: self.sectors.0,
            heads: self.heads.0,
            revolution,
            outer_rate: rate(&self.outer_mb_s),
            inner_rate: rate(&self.inner_mb_s),
            track_skew: skew(&self.track_skew_ms),
            cylinder_skew: skew(&self.cylinder_skew_ms),
        })
    }

    fn read_seek(&self, cylinders: u32) -> SeekCurve {
        if let Some(Sourced(points, _)) = &self.seek_points_us {
            let points: Vec<(u32, Nanos)> = points.iter().map(|&(d, us)| (d, us * 1000)).collect();
            return SeekCurve::of_points(&points, cylinders);
        }
        if let Some(Sourced((a, b, until, c, e), _)) = self.seek_fit_ms {
            return SeekCurve::of_fit(&Fit { a, b, until, c, e }, cylinders);
        }
        let sheet = [&self.seek_one_ms, &self.seek_average_ms, &self.seek_full_ms];
        of_sheet(sheet, cylinders).expect("a disk has a seek curve")
    }

    fn write_seek(&self, read: &SeekCurve, cylinders: u32) -> SeekCurve {
        let sheet =
            [&self.write_seek_one_ms, &self.write_seek_average_ms, &self.write_seek_full_ms];
        let settle = self.write_settle_ms.as_ref().map_or(0, nanos);
        of_sheet(sheet, cylinders).unwrap_or_else(|| read.settling(settle))
    }
}

fn of_sheet(numbers: [&Option<Sourced<f64>>; 3], cylinders: u32) -> Option<SeekCurve> {
    let [Some(one), Some(average), Some(full)] = numbers else { return None };
    Some(SeekCurve::of_sheet(nanos(one), nanos(average), nanos(full), cylinders))
}

fn nanos(ms: &Sourced<f64>) -> Nanos {
    (ms.0 * 1e6).round() as Nanos
}
