//! R4: Parapet on the hardware of the SR1521, as experiments with the engine.
//!
//! ```text
//!   host ─▶ initiator ═ 2 × 1 Gb/s ═ target ─▶ engine ─▶ HD501LJ, which lose revolutions
//! ```
//!
//! Protocol, window and policies are Parapet's own; the disks are those of the box, with their
//! constant. The processor is the one on which `cargo xtask bench aoe` measures our target, since
//! nobody ran Parapet on the box's: a frame of a read takes 3.5 µs there at MTU 1500 and 5.8 µs at
//! MTU 9000, which two numbers reproduce.

use super::super::Cell;
use super::{ARRAYS, LOST_REVOLUTION, Spread};
use crate::experiment::{self, Experiment};
use crate::world::Stall;

/// Places in [`ARRAYS`].
const RAID5_OF_4: usize = 5;
const JBOD: usize = 7;
/// Requests of the host: 768 KiB in flight, as the box's host had.
const DEPTH: usize = 6;
const REQUEST: &str = "128KiB";
/// Work for a frame sent or received, in nanoseconds, and for a byte of it, in picoseconds.
pub(super) const FRAME_NS: u64 = 1_600;
pub(super) const BYTE_PS: u64 = 320;
/// Work for a byte of parity and of checksums, in picoseconds: `cargo xtask bench parity`.
const KERNEL_PS: u64 = 50;

/// A stream on one of the arrays.
#[derive(Clone, Copy, Debug)]
pub struct Streamed {
    /// The array, by its place in the tables.
    pub array: usize,
    /// Most bytes of a frame after its Ethernet header.
    pub mtu: u32,
    /// Gigabit links.
    pub links: usize,
    /// It writes.
    pub writes: bool,
    /// Seconds that count.
    pub window_s: f64,
}

/// The experiment: what `parapet lab run` takes.
///
/// # Panics
/// Never: the text is an experiment.
pub fn experiment(streamed: &Streamed) -> Experiment {
    let Streamed { array, mtu, links, writes, window_s } = *streamed;
    let (_, spread, disks) = ARRAYS[array];
    let level = match (spread, disks) {
        (Spread::Striped, 1) => "linear",
        (Spread::Striped, _) => "raid0",
        (Spread::Mirrored, 2) => "raid1",
        (Spread::Mirrored, _) => "raid10",
        (Spread::Parity, _) => "raid5",
    };
    let (writes, lost) = (if writes { 100 } else { 0 }, (LOST_REVOLUTION * 1e6) as u32);
    let text = format!(
        r#"
        name = "R4, {level} of {disks}, MTU {mtu}"
        warm_up_s = 1.5
        window_s = {window_s:?}
        seeds = 1
        [hardware]
        disks = "{disks}xhd501lj"
        link = {{ protocol = "aoe", links = {links}, mtu = {mtu}, volatile = true }}
        [hardware.cpu]
        frame_ns = {FRAME_NS}
        copy_ps = {BYTE_PS}
        parity_ps = {KERNEL_PS}
        checksum_ps = {KERNEL_PS}
        [personality]
        lost_revolutions_per_million = {lost}
        [array]
        level = "{level}"
        chunk = "64KiB"
        cache = "writeback"
        [[load.worker]]
        pattern = "sequential"
        write_percent = {writes}
        size = "{REQUEST}"
        depth = {DEPTH}
        "#
    );
    experiment::load(&text).expect("the text is an experiment")
}

/// KiB/s of a stream, and the busiest station: `None` if no station works 97 % of the time.
///
/// # Errors
/// The experiment stalls: an error of the model.
pub fn run(streamed: &Streamed) -> Result<(f64, Option<&'static str>), Stall> {
    let outcome = experiment::run(&experiment(streamed)).map_err(|_| Stall::Hang)?;
    let busy = |prefix: &str| {
        let stations = outcome.runs[0].stations.iter();
        let busy = stations.filter(|it| it.name.starts_with(prefix)).map(|it| it.busy());
        busy.fold(0.0, f64::max)
    };
    let kinds = [("link", "wire"), ("cpu", "CPU"), ("disk", "disks")];
    let busiest = kinds.into_iter().max_by(|a, b| busy(a.0).total_cmp(&busy(b.0)));
    let bound = busiest.filter(|(prefix, _)| busy(prefix) >= 0.97).map(|(_, name)| name);
    Ok((outcome.median.bytes_per_s / 1024.0, bound))
}

/// All arrays at both MTUs, and two reads over one link.
///
/// # Errors
/// As [`run`].
pub(super) fn cells() -> Result<Vec<Cell>, Stall> {
    let mut cells = Vec::new();
    let mut add = |streamed: Streamed| -> Result<(), Stall> {
        let (kib_s, bound) = run(&streamed)?;
        let Streamed { array, mtu, links, writes, .. } = streamed;
        let (verb, array) = (if writes { "write" } else { "read" }, ARRAYS[array].0);
        let links = if links == 1 { ", one link" } else { "" };
        cells.push(Cell {
            name: format!("Parapet, MTU {mtu}{links}, {array} {verb}"),
            measured: None,
            reproduced: kib_s,
            bound_by: bound.unwrap_or("window"),
        });
        Ok(())
    };
    for mtu in [9000, 1500] {
        for writes in [true, false] {
            for (array, &(_, _, disks)) in ARRAYS.iter().enumerate() {
                // Few disks take longer to show what they do behind a full cache.
                let window_s = if disks <= 4 { 4.0 } else { 1.0 };
                add(Streamed { array, mtu, links: 2, writes, window_s })?;
            }
        }
        for array in [RAID5_OF_4, JBOD] {
            add(Streamed { array, mtu, links: 1, writes: false, window_s: 1.0 })?;
        }
    }
    Ok(cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stated costs of a frame of a read, in microseconds, are those of `docs/bench`.
    #[test]
    fn two_numbers_give_the_measured_work_of_a_frame() {
        let work = |bytes: u64| (2 * FRAME_NS * 1000 + (bytes + 36 + 60) * BYTE_PS) as f64 / 1e6;
        assert!((work(1024) - 3.52).abs() < 0.1 && (work(8192) - 5.81).abs() < 0.1);
    }

    #[test]
    fn wide_arrays_fill_both_links_and_a_disk_its_own_rate() {
        let rate = |array, links, writes| {
            run(&Streamed { array, mtu: 9000, links, writes, window_s: 0.5 }).unwrap().0
        };
        for (array, writes) in [(0, true), (0, false), (4, true)] {
            let rate = rate(array, 2, writes);
            assert!(rate > 0.99 * 242_365.0, "{array} {writes}: {rate}");
        }
        // Frames of two links arrive out of order.
        for links in [1, 2] {
            let disk = rate(JBOD, links, false);
            assert!(disk > 0.97 * 84_789.0, "{links} links: {disk}");
        }
    }
}
