//! The properties of a round: all derived from its seed.

use parapet_torture::random::Random;
use std::fmt;
use std::time::Duration;

/// An array, how it is served, and how its members behave.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) level: &'static str,
    pub(crate) layout: Option<&'static str>,
    pub(crate) members: usize,
    pub(crate) chunk_kibibytes: u64,
    pub(crate) member_mebibytes: u64,
    pub(crate) bitmap: &'static str,
    /// How it stands against the write hole; `None`: as it is by itself.
    pub(crate) consistency: Option<&'static str>,
    pub(crate) cache: &'static str,
    pub(crate) threads: u64,
    /// The array begins synced.
    pub(crate) zeroed: bool,
    /// Members hold their answers back for at most so long.
    pub(crate) delay: Duration,
    pub(crate) clients: usize,
    pub(crate) depth: usize,
    pub(crate) windows: usize,
    /// How often the array is served under load until an incident.
    pub(crate) lives: usize,
    /// fio writes too, and verifies its flushed data.
    pub(crate) fio: bool,
}

/// A level, its members, and its layouts.
type Shape = (&'static str, std::ops::RangeInclusive<usize>, &'static [&'static str]);

const SHAPES: &[Shape] = &[
    ("1", 2..=3, &[]),
    ("10", 2..=5, &["n2", "f2", "o2"]),
    ("4", 3..=5, &[]),
    ("5", 3..=6, &["left-symmetric", "right-asymmetric", "parity-first"]),
    ("6", 4..=7, &["left-symmetric", "right-asymmetric-6", "ddf-zero-restart"]),
    ("3.5", 3..=3, &["order1"]),
    ("3.5", 5..=5, &["order2"]),
];

/// The levels that can be asked for.
pub(crate) fn is_level(level: &str) -> bool {
    SHAPES.iter().any(|shape| shape.0 == level)
}

impl Plan {
    /// The plan of a seed, of this level if one is asked for.
    pub(crate) fn new(seed: u64, level: Option<&str>) -> Plan {
        let mut random = Random::new(seed, 1);
        let shapes: Vec<&Shape> =
            SHAPES.iter().filter(|shape| level.is_none_or(|level| level == shape.0)).collect();
        let (level, members, layouts) = random.pick(&shapes);
        let most = members.end() - members.start() + 1;
        let wide = random.percent(8);
        let mut plan = Plan {
            level,
            layout: (!layouts.is_empty()).then(|| random.pick(layouts)),
            members: members.start() + random.below(most),
            chunk_kibibytes: random.pick(&[4, 16, 64]),
            // Several threads want several regions.
            member_mebibytes: if wide { 72 } else { random.within(8..17) },
            bitmap: random.pick(&["auto", "auto", "64K", "off"]),
            consistency: None,
            cache: random.pick(&["none", "none", "writeback", "sync"]),
            threads: if wide { 3 } else { random.pick(&[1, 1, 2]) },
            zeroed: random.percent(75),
            delay: Duration::from_micros(random.pick(&[0, 0, 200, 800])),
            clients: 1 + random.below(3),
            depth: random.pick(&[16, 24, 32]),
            windows: 1 + random.below(4),
            lives: 2 + random.below(3),
            fio: random.percent(35),
        };
        plan.draw_consistency(&mut Random::new(seed, 4));
        plan
    }

    /// Most arrays keep their defaults.
    fn draw_consistency(&mut self, random: &mut Random) {
        if !self.has_parity() || random.percent(60) {
            return;
        }
        let hole = if self.bitmap == "off" { "resync" } else { "bitmap" };
        let policy = random.pick(&["journal", "journal", "ppl", hole]);
        match (policy, self.level) {
            // md knows the one or the other, and its log has room for one thread.
            ("ppl", "5") => {
                (self.consistency, self.bitmap, self.threads) = (Some("ppl"), "off", 1);
            }
            ("ppl", _) => {}
            _ => self.consistency = Some(policy),
        }
    }

    /// How many members may be lost, whichever they are.
    pub(crate) fn redundancy(&self) -> usize {
        match self.level {
            "1" => self.members - 1,
            "6" => 2,
            _ => 1,
        }
    }

    /// True if a missing member and interrupted writes may cost unwritten blocks: there is no log,
    /// or parity was out of sync before.
    pub(crate) fn has_hole(&self) -> bool {
        let unlogged = matches!(self.consistency, Some("bitmap" | "resync"));
        self.has_parity() && (unlogged || !self.zeroed)
    }

    /// True if the level has parity.
    pub(crate) fn has_parity(&self) -> bool {
        !matches!(self.level, "1" | "10")
    }

    /// How to make it, less the names of the members.
    pub(crate) fn create(&self) -> Vec<String> {
        let mut words: Vec<String> = vec!["create".into(), "tank".into(), "--yes".into()];
        words.extend(["--level".into(), self.level.into()]);
        words.extend(["--bitmap".into(), self.bitmap.into()]);
        if let Some(policy) = self.consistency {
            words.extend(["--consistency".into(), policy.into()]);
        }
        if let Some(layout) = self.layout {
            words.extend(["--layout".into(), layout.into()]);
        }
        if !matches!(self.level, "1" | "3.5") {
            words.extend(["--chunk".into(), format!("{}K", self.chunk_kibibytes)]);
        }
        if self.zeroed {
            words.push("--assume-zeroed".into());
        }
        words
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { level, members, member_mebibytes, chunk_kibibytes, .. } = self;
        write!(f, "RAID {level}")?;
        self.layout.iter().try_for_each(|layout| write!(f, " {layout}"))?;
        write!(f, ", {members} x {member_mebibytes} MiB, chunk {chunk_kibibytes} KiB, ")?;
        write!(f, "bitmap {}, ", self.bitmap)?;
        self.consistency.iter().try_for_each(|policy| write!(f, "{policy}, "))?;
        write!(f, "cache {}, ", self.cache)?;
        write!(f, "threads {}, delay {} µs, ", self.threads, self.delay.as_micros())?;
        write!(f, "{} clients x {}", self.clients, self.depth)?;
        f.write_str(if self.zeroed { "" } else { ", not synced" })?;
        f.write_str(if self.fio { ", fio" } else { "" })
    }
}
