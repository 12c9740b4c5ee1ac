//! The properties of a run over AoE, drawn from its seed.

use std::fmt;

use crate::link::Weather;
use random::Rng;

/// A client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Our initiator.
    Ours,
    /// Linux's driver.
    Linux,
    /// iPXE's, or WinAoE.
    SameTag,
}

/// Something that happens to the target or the wires, and is over after a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// The target's process dies, or its host too, and comes back.
    Restart { power: bool },
    /// A wire carries nothing, and no port notices.
    Cut { wire: usize },
    /// A port of the target is down.
    TargetPort { wire: usize },
    /// The clients' ports on a wire are down.
    ClientPorts { wire: usize },
    /// Every port on a wire has a smaller MTU.
    Mtu { wire: usize, mtu: u32 },
    /// A wire loses frames above 1514 bytes.
    Hole { wire: usize },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Incident {
    pub(super) at_us: u64,
    pub(super) span_us: u64,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) wires: usize,
    pub(super) mtu: u32,
    pub(super) clients: Vec<Kind>,
    /// The target is ours, which knows late copies.
    pub(super) has_history: bool,
    pub(super) weather: Weather,
    pub(super) latency_us: u64,
    /// The disk has a volatile cache.
    pub(super) volatile: bool,
    /// Rounds of requests of each client.
    pub(super) rounds: usize,
    pub(super) incidents: Vec<Incident>,
    /// An incident takes so long that clients give up.
    pub(super) gives_up: bool,
    /// Linux's host restarts now and then.
    pub(super) reboots: bool,
}

/// A frame's lifetime in the wire, in microseconds.
const LIFETIME_US: u64 = net::aoe::FRAME_LIFETIME.as_micros() as u64;

impl Options {
    pub(super) fn draw(seed: u64) -> Options {
        let mut rng = Rng::stream(seed, "aoe options", 0);
        let has_history = rng.percent(65);
        let wires = rng.within(1, 3) as usize;
        let kind = |rng: &mut Rng| match has_history {
            true => rng.pick(&[Kind::Ours, Kind::Linux, Kind::Linux, Kind::SameTag]),
            false => Kind::Ours,
        };
        let clients: Vec<Kind> = (0..rng.within(1, 3)).map(|_| kind(&mut rng)).collect();
        let mut chance = |percent, most| if rng.percent(percent) { rng.within(1, most) } else { 0 };
        let weather = Weather {
            lost: chance(70, 50),
            // Nobody without a history can stand copies that the wire makes.
            repeated: if has_history { chance(60, 80) } else { 0 },
            late: chance(80, 80),
            hole: 0,
        };
        let mut options = Options {
            wires,
            mtu: rng.pick(&[1500, 4200, 9000]),
            clients,
            has_history,
            weather,
            latency_us: rng.pick(&[50, 500, 5000]),
            volatile: rng.percent(50),
            rounds: rng.within(20, 80) as usize,
            incidents: Vec::new(),
            gives_up: rng.percent(10),
            reboots: rng.percent(30),
        };
        options.draw_incidents(&mut rng);
        options
    }

    fn draw_incidents(&mut self, rng: &mut Rng) {
        let count = if rng.percent(75) { rng.within(1, 6) } else { 0 };
        let only_ours = self.clients.iter().all(|kind| *kind == Kind::Ours);
        let mut at_us = 0;
        for _ in 0..count {
            at_us += rng.within(1_000, 3_000_000);
            let wire = rng.below(self.wires as u64) as usize;
            let mut weights = vec![
                (3, What::Restart { power: rng.percent(50) }),
                (2, What::Cut { wire }),
                (2, What::TargetPort { wire }),
                (2, What::ClientPorts { wire }),
            ];
            // Linux learns of a smaller MTU within a minute only, and of a hole never.
            if only_ours {
                weights.push((2, What::Mtu { wire, mtu: 1500 }));
                weights.push((1, What::Hole { wire }));
            }
            let what = rng.weighted(&weights);
            let span_us = self.span(what, rng);
            self.incidents.push(Incident { at_us, span_us, what });
            at_us += span_us;
        }
        if self.gives_up {
            at_us += rng.within(1_000, 1_000_000);
            let what = What::Restart { power: rng.percent(50) };
            self.incidents.push(Incident { at_us, span_us: 40_000_000, what });
        }
    }

    fn span(&self, what: What, rng: &mut Rng) -> u64 {
        let span = rng.skewed(3_000_000);
        // A target that restarts has no history. Only a client that counts answers stands that
        // sooner, and only if the wire makes no copies.
        let is_quick =
            self.weather.repeated == 0 && self.clients.iter().all(|kind| *kind == Kind::Ours);
        match what {
            What::Restart { .. } if !is_quick => LIFETIME_US + span,
            _ => span,
        }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Weather { lost, repeated, late, .. } = self.weather;
        let target = if self.has_history { "ours" } else { "without history" };
        writeln!(f, "  target {target}, clients {:?}, {} wires", self.clients, self.wires)?;
        writeln!(
            f,
            "  MTU {}, of 1000 frames {lost} lost, {repeated} repeated, {late} late",
            self.mtu
        )?;
        write!(
            f,
            "  disk {} µs, volatile {}, {} rounds, gives up {}, reboots {}",
            self.latency_us, self.volatile, self.rounds, self.gives_up, self.reboots
        )?;
        for (number, Incident { at_us, span_us, what }) in self.incidents.iter().enumerate() {
            write!(f, "\n  i{number}: at {at_us} µs for {span_us} µs: {what:?}")?;
        }
        Ok(())
    }
}
