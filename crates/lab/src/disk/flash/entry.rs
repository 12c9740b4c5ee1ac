//! A catalogued flash disk, and the model's parameters made of it.

use serde::Deserialize;

use super::super::Nanos;
use super::super::catalogue::Sourced;
use super::Spec;

/// A catalogued flash disk. Fields as in the file.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct FlashEntry {
    /// For people.
    pub name: String,
    sectors: Sourced<u64>,
    bus_mb_s: Sourced<f64>,
    command_us: Sourced<f64>,
    dies: Sourced<usize>,
    channels: Sourced<usize>,
    channel_mb_s: Sourced<f64>,
    page_kib: Sourced<u64>,
    /// One time, or those of the three pages of a cell.
    read_us: Sourced<Vec<f64>>,
    program_us: Sourced<f64>,
    erase_us: Sourced<f64>,
    block_pages: Sourced<u32>,
    suspend_us: Sourced<f64>,
    buffer_mib: Sourced<u64>,
    acknowledge_us: Sourced<f64>,
    /// Of random writes, once the spare is used.
    amplification: Sourced<f64>,
    /// Physical beyond logical space, in percent.
    spare_percent: Sourced<f64>,
    /// The buffer survives a power cut.
    protected: Sourced<bool>,
    flush_us: Sourced<f64>,
}

impl FlashEntry {
    /// The same with another number of sectors.
    pub(crate) fn resized(&self, sectors: u64) -> FlashEntry {
        FlashEntry { sectors: Sourced(sectors, self.sectors.1.clone()), ..self.clone() }
    }

    /// The model's parameters, of a disk that random writes have used for long.
    pub fn spec(&self) -> Spec {
        Spec {
            sectors: self.sectors.0,
            bus_rate: rate(&self.bus_mb_s),
            command: nanos(self.command_us.0),
            dies: self.dies.0,
            channels: self.channels.0,
            channel_rate: rate(&self.channel_mb_s),
            page: self.page_kib.0 * 1024,
            read: self.read_us.0.iter().map(|&us| nanos(us)).collect(),
            program: nanos(self.program_us.0),
            erase: nanos(self.erase_us.0),
            block_pages: self.block_pages.0,
            suspend: (self.suspend_us.0 > 0.0).then(|| nanos(self.suspend_us.0)),
            buffer: self.buffer_mib.0 << 20,
            acknowledge: nanos(self.acknowledge_us.0),
            amplification: (self.amplification.0 * 1000.0).round() as u64,
            fresh: 0,
            protected: self.protected.0,
            flush: nanos(self.flush_us.0),
        }
    }

    /// The same of a fresh disk: random writes do not amplify until the spare is used.
    pub fn fresh_spec(&self) -> Spec {
        let bytes = self.sectors.0 as f64 * super::SECTOR as f64;
        Spec { fresh: (bytes * (1.0 + self.spare_percent.0 / 100.0)) as u64, ..self.spec() }
    }
}

fn nanos(us: f64) -> Nanos {
    (us * 1e3).round() as Nanos
}

fn rate(mb_s: &Sourced<f64>) -> u64 {
    (mb_s.0 * 1e6) as u64
}
