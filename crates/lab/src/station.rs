//! Resources that serve first come, first served: a bus, a core, a wire.
//!
//! A station is asked at the moment at which the work arrives, and answers when the work is done.
//! Its callers come in order of time, so that its state is one moment for each server.

use crate::disk::Nanos;

/// One or more equal servers with a common queue.
#[derive(Clone, Debug)]
pub struct Station {
    /// When each server is free.
    free: Vec<Nanos>,
    busy: Nanos,
    served: u64,
}

impl Station {
    /// An idle station: one server for a bus or a wire, one for each core or port.
    ///
    /// # Panics
    /// If there is no server.
    pub fn new(servers: usize) -> Station {
        assert!(servers > 0, "a station has a server");
        Station { free: vec![0; servers], busy: 0, served: 0 }
    }

    /// Queues work of this length that arrives at `now`; gives its end.
    pub fn serve(&mut self, now: Nanos, work: Nanos) -> Nanos {
        let first = self.free.iter_mut().min().expect("a station has a server");
        *first = now.max(*first) + work;
        self.busy += work;
        self.served += 1;
        *first
    }

    /// When work that arrives at `now` would start.
    pub fn starts(&self, now: Nanos) -> Nanos {
        now.max(*self.free.iter().min().expect("a station has a server"))
    }

    /// How much work it got, over all servers.
    pub fn busy(&self) -> Nanos {
        self.busy
    }

    /// How many pieces of work it got.
    pub fn served(&self) -> u64 {
        self.served
    }

    /// The share of a span that its servers work; above 1 if work is left at its end.
    pub fn utilization(&self, span: Nanos) -> f64 {
        self.busy as f64 / (span as f64 * self.free.len() as f64)
    }
}

/// A station that carries bytes: a shared bus, a link.
#[derive(Clone, Debug)]
pub struct Bus {
    station: Station,
    bytes_per_second: u64,
    each: Nanos,
}

impl Bus {
    /// A bus of this rate that spends `each` on every transfer besides its bytes.
    ///
    /// # Panics
    /// If the rate is 0.
    pub fn new(bytes_per_second: u64, each: Nanos) -> Bus {
        assert!(bytes_per_second > 0, "a bus has a rate");
        Bus { station: Station::new(1), bytes_per_second, each }
    }

    /// How long so many bytes take on an idle bus.
    pub fn time(&self, bytes: u64) -> Nanos {
        let carried = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        self.each + carried as Nanos
    }

    /// Queues a transfer that arrives at `now`; gives its end.
    pub fn carry(&mut self, now: Nanos, bytes: u64) -> Nanos {
        let time = self.time(bytes);
        self.station.serve(now, time)
    }

    /// Its statistics.
    pub fn station(&self) -> &Station {
        &self.station
    }
}

/// Bytes that an AoE frame with this payload takes on Ethernet: 14 of Ethernet, 22 of AoE and ATA,
/// 4 of checksum, 8 of preamble, 12 of gap.
pub const fn aoe_frame(payload: u64) -> u64 {
    payload + 14 + 22 + 4 + 8 + 12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_queues_in_order_on_the_server_that_is_free_first() {
        let mut cores = Station::new(2);
        let ends: Vec<Nanos> =
            [(0, 10), (0, 4), (1, 4), (2, 1)].map(|(now, work)| cores.serve(now, work)).to_vec();
        assert_eq!(ends, [10, 4, 8, 9]);
        assert_eq!((cores.busy(), cores.served(), cores.starts(3)), (19, 4, 9));
        assert_eq!(cores.serve(100, 1), 101);
        assert!((cores.utilization(100) - 0.1).abs() < 1e-9);
    }

    /// Facts of the lab, 2: KiB/s of payload on one link of 1 Gb/s.
    #[test]
    fn gigabit_ethernet_carries_the_known_rates_of_aoe() {
        for (sectors, kib) in [(2, 115_314), (8, 120_308), (16, 121_183), (17, 121_235)] {
            let mut wire = Bus::new(125_000_000, 0);
            let (payload, frames) = (sectors * 512, 100_000);
            let end = (0..frames).fold(0, |_, _| wire.carry(0, aoe_frame(payload)));
            let rate = (frames * payload) as f64 / 1024.0 / (end as f64 / 1e9);
            assert!((rate / f64::from(kib) - 1.0).abs() < 1e-4, "{sectors}: {rate}");
        }
    }

    /// Five disks of 39 MB/s on a bus of 80 MB/s, of which 0.9 is usable: the bus decides.
    #[test]
    fn a_shared_bus_limits_the_sum_of_its_disks() {
        let mut bus = Bus::new(72_000_000, 0);
        let disk = |bytes: u64| bytes * 1_000_000_000 / 39_000_000;
        let mut ready = [0; 5];
        for _ in 0..1000 {
            for at in &mut ready {
                *at = bus.carry(*at + disk(65_536), 65_536);
            }
        }
        let rate = 5000.0 * 65_536.0 / (ready[4] as f64 / 1e9) / 1e6;
        assert!((70.0..72.1).contains(&rate), "{rate}");
    }
}
