//! How long the arm takes to another cylinder.
//!
//! An arm accelerates and brakes: short seeks grow with the root of the distance. Beyond some
//! distance it moves at its top speed: long seeks grow linearly.
//!
//! ```text
//!   full ┤                         ╱
//!        │                   ╱            linear
//!   knee ┤            ╱·
//!        │       ·                        root of the distance
//!    one ┤   ·
//!        └───┬─────────┬───────────┬──
//!            1      C / 3          C      cylinders
//! ```

use super::Nanos;

/// Seek times by distance in cylinders.
#[derive(Clone, Debug)]
pub struct SeekCurve {
    /// By distance; the first is 0.
    times: Vec<u32>,
}

/// A curve as fits give it, in milliseconds: `a + b·√d` up to a distance, `c + e·d` above.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fit {
    /// `a`, ms.
    pub a: f64,
    /// `b`, ms.
    pub b: f64,
    /// The last distance of the first part, cylinders.
    pub until: u32,
    /// `c`, ms.
    pub c: f64,
    /// `e`, ms.
    pub e: f64,
}

impl SeekCurve {
    /// The curve of a data sheet: from one cylinder, the average over all pairs of cylinders, and
    /// the full stroke (ns). The knee is chosen so that the average comes out.
    ///
    /// # Panics
    /// If there are fewer than 4 cylinders.
    pub fn of_sheet(one: Nanos, average: Nanos, full: Nanos, cylinders: u32) -> SeekCurve {
        assert!(cylinders >= 4, "{cylinders} cylinders have no seek curve");
        let (one, average, full) = (one as f64, average as f64, full as f64);
        let (mut low, mut high) = (one, full);
        for _ in 0..60 {
            let knee = (low + high) / 2.0;
            let time = |distance| sheet_time(one, knee, full, cylinders, distance);
            match mean(cylinders, time) < average {
                true => low = knee,
                false => high = knee,
            }
        }
        SeekCurve::tabulate(cylinders, |d| sheet_time(one, low, full, cylinders, d))
    }

    /// A fitted curve.
    pub fn of_fit(fit: &Fit, cylinders: u32) -> SeekCurve {
        SeekCurve::tabulate(cylinders, |distance| {
            let ms = match distance <= fit.until {
                true => fit.a + fit.b * f64::from(distance).sqrt(),
                false => fit.c + fit.e * f64::from(distance),
            };
            ms * 1e6
        })
    }

    /// A measured curve: (distance, time) in ascending order, straight lines between them.
    ///
    /// # Panics
    /// If `points` is empty.
    pub fn of_points(points: &[(u32, Nanos)], cylinders: u32) -> SeekCurve {
        SeekCurve::tabulate(cylinders, |distance| {
            let next = points.partition_point(|&(d, _)| d < distance);
            let (d, t) = points[next.min(points.len() - 1)];
            let Some(&(d0, t0)) = next.checked_sub(1).and_then(|last| points.get(last)) else {
                return t as f64;
            };
            if d <= distance {
                return t as f64;
            }
            let share = f64::from(distance - d0) / f64::from(d - d0);
            t0 as f64 + (t as f64 - t0 as f64) * share
        })
    }

    fn tabulate(cylinders: u32, time: impl Fn(u32) -> f64) -> SeekCurve {
        let times = (0..cylinders).map(|d| if d == 0 { 0 } else { time(d).round() as u32 });
        SeekCurve { times: times.collect() }
    }

    /// This curve with more time to settle. A change to the next cylinder settles within the skew
    /// and takes as long as before.
    #[must_use]
    pub fn settling(&self, more: Nanos) -> SeekCurve {
        let settle = |(distance, &time): (usize, &u32)| match distance {
            0 | 1 => time,
            _ => time + more as u32,
        };
        SeekCurve { times: self.times.iter().enumerate().map(settle).collect() }
    }

    /// The time of a seek over this many cylinders, ns.
    pub fn time(&self, distance: u32) -> Nanos {
        u64::from(self.times[distance as usize])
    }

    /// The average over all pairs of different cylinders, ns.
    pub fn average(&self) -> Nanos {
        mean(self.times.len() as u32, |distance| f64::from(self.times[distance as usize])) as u64
    }
}

fn sheet_time(one: f64, knee: f64, full: f64, cylinders: u32, distance: u32) -> f64 {
    let (third, d) = (f64::from(cylinders) / 3.0, f64::from(distance));
    if d <= third {
        return one + (knee - one) * ((d - 1.0) / (third - 1.0)).sqrt();
    }
    knee + (full - knee) * (d - third) / (f64::from(cylinders) - 1.0 - third)
}

/// The mean of `time` over all pairs of cylinders: distance `d` has the share `2(1 − d/C)/C`.
fn mean(cylinders: u32, time: impl Fn(u32) -> f64) -> f64 {
    let count = f64::from(cylinders);
    let share = |d: u32| 2.0 * (1.0 - f64::from(d) / count) / count;
    (1..cylinders).map(|d| share(d) * time(d)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_gives_its_three_numbers_back() {
        // Cheetah 15K.5 and SpinPoint HD501LJ.
        for (one, average, full, cylinders) in
            [(300_000, 3_500_000, 7_000_000, 82_000), (800_000, 8_900_000, 18_000_000, 60_000)]
        {
            let curve = SeekCurve::of_sheet(one, average, full, cylinders);
            assert_eq!(curve.time(0), 0);
            assert_eq!(curve.time(1), one);
            assert_eq!(curve.time(cylinders - 1), full);
            assert!(curve.average().abs_diff(average) < 1000, "{}", curve.average());
            // Facts 1.1: the knee is about 1.05 times the average.
            let knee = curve.time(cylinders / 3) as f64 / average as f64;
            assert!((1.03..1.07).contains(&knee), "{knee}");
        }
    }

    #[test]
    fn fits_and_points_are_followed() {
        let hp = Fit { a: 3.24, b: 0.4, until: 383, c: 8.0, e: 0.008 };
        let curve = SeekCurve::of_fit(&hp, 1962);
        assert_eq!(curve.time(100), 7_240_000);
        assert_eq!(curve.time(1000), 16_000_000);
        let curve = SeekCurve::of_points(&[(1, 1000), (3, 2000), (10, 9000)], 12);
        let times: Vec<Nanos> = [1, 2, 3, 5, 10, 11].map(|d| curve.time(d)).to_vec();
        assert_eq!(times, [1000, 1500, 2000, 4000, 9000, 9000]);
    }
}
