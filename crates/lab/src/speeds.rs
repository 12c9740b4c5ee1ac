//! The speeds of a layout: the real engine on modelled disks, with all disks and during a rebuild.
//!
//! Arrays are as `parapet create` makes them unasked. Streams run at the start of the array, small
//! requests over all of it. During a rebuild one disk has failed and a new one takes its place.

use std::rc::Rc;
use std::time::Duration;

use array::{Array, Host};
use io::{Clock, Disk};
use layout::{Layout, Level};
use metadata::create::NewArray;

use crate::disk::catalogue::Entry;
use crate::load::{self, Load, Pattern, Seen, Worker};
use crate::member::Member;
use crate::reliability::{Candidate, Inputs, LayoutSpeeds, Performance, RandomSpeed, Speeds};
use crate::rig;
use crate::world::{Core, World};

/// A stream: requests of this size, so many at a time.
const STREAM: (u64, usize) = (1 << 20, 8);
/// Small requests: their size, and so many readers or writers.
const SMALL: (u64, usize) = (4 << 10, 32);
/// Caches fill before the window.
const WARM_UP: Duration = Duration::from_millis(500);
const STREAM_WINDOW: Duration = Duration::from_millis(700);
const SMALL_WINDOW: Duration = Duration::from_secs(3);

/// Measures layouts of one kind of disk.
pub struct Modelled<'a> {
    /// The disk.
    pub disk: &'a Entry,
    /// Called before each layout, with its name.
    pub progress: &'a dyn Fn(&str),
}

impl Speeds for Modelled<'_> {
    fn of(&self, candidate: &Candidate, inputs: &Inputs) -> Option<LayoutSpeeds> {
        (self.progress)(&candidate.name());
        let redundant = candidate.place(inputs.disks, inputs.kind.bytes).ok()?.tolerated > 0;
        let measure = |rebuilding| performance(self.disk, candidate, inputs.disks, rebuilding);
        let rebuilding = match redundant {
            true => Some(measure(true)?),
            false => None,
        };
        Some(LayoutSpeeds { healthy: measure(false)?, rebuilding })
    }
}

fn performance(
    disk: &Entry,
    candidate: &Candidate,
    disks: usize,
    rebuilding: bool,
) -> Option<Performance> {
    let seen = |sequential: bool, writes: bool| {
        let stand = Stand { disk, candidate, members: disks - candidate.spares, rebuilding };
        stand.run(sequential, writes)
    };
    let stream = |writes| seen(true, writes).map(|seen| seen.kib_per_second() * 1024.0);
    let small = |writes| {
        let micros = |latency: Duration| latency.as_nanos() as f64 / 1000.0;
        seen(false, writes).map(|seen| RandomSpeed {
            per_second: seen.requests_per_second(),
            p50_us: micros(seen.percentile(0.5)),
            p99_us: micros(seen.percentile(0.99)),
        })
    };
    Some(Performance {
        sequential_read: stream(false)?,
        sequential_write: stream(true)?,
        random_read: small(false)?,
        random_write: small(true)?,
    })
}

struct Stand<'a> {
    disk: &'a Entry,
    candidate: &'a Candidate,
    members: usize,
    rebuilding: bool,
}

impl Stand<'_> {
    /// One load on a new array; `None` if the model stalls.
    fn run(&self, sequential: bool, writes: bool) -> Option<Seen> {
        let world = World::new();
        let member = || Member::built(&world, self.disk.build()) as Rc<dyn Disk>;
        let members: Vec<_> = (0..self.members).map(|_| member()).collect();
        let (candidate, rebuilding) = (*self.candidate, self.rebuilding);
        let (spare, inner) = (member(), world.clone());
        let main = async move {
            let array = start(&inner, &candidate, &members, rebuilding.then_some(spare)).await?;
            let bytes = array.limits().bytes;
            let load = load_of(sequential, writes, bytes);
            Ok::<_, metadata::Error>(load::run(&inner, Core::FIRST, &array, &load).await)
        };
        world.run(main).ok()?.ok()
    }
}

fn load_of(sequential: bool, writes: bool, array_bytes: u64) -> Load {
    let (pattern, (bytes, count), window) = match sequential {
        true => (Pattern::Sequential { start: 0, bytes: array_bytes }, STREAM, STREAM_WINDOW),
        false => (Pattern::Random { bytes: array_bytes }, SMALL, SMALL_WINDOW),
    };
    let workers = match sequential {
        true => vec![Worker { pattern, writes, bytes, depth: count }],
        false => vec![Worker { pattern, writes, bytes, depth: 1 }; count],
    };
    Load { workers, warm_up: WARM_UP, window, seed: 1 }
}

/// Starts the array or the arrays of a candidate. With a `spare`, its first disk fails and is
/// rebuilt.
async fn start(
    world: &World,
    candidate: &Candidate,
    members: &[Rc<dyn Disk>],
    spare: Option<Rc<dyn Disk>>,
) -> metadata::Result<Rc<dyn Disk>> {
    let host = Host::new(world.dyn_clock());
    let chunk = if candidate.layout == Layout::Raid1 { 0 } else { candidate.chunk_bytes };
    let new = NewArray::new("plan", candidate.layout, chunk);
    let mut arrays: Vec<Array> = Vec::new();
    for disks in members.chunks(members.len() / candidate.arrays) {
        arrays.push(rig::start(world, Core::FIRST, disks, &new, &host).await?);
    }
    if let Some(spare) = spare {
        let slots = arrays[0].status().slots;
        if let Some(first) = slots.first().and_then(|slot| slot.member.as_ref()) {
            arrays[0].fail(first.id).await?;
        }
        arrays[0].add(spare, "new").await?;
        let settled = world.clock().now() + WARM_UP;
        world.clock().sleep_until(settled).await;
    }
    if let [array] = &arrays[..] {
        return Ok(Rc::new(array.clone()));
    }
    let inner: Vec<_> = arrays.into_iter().map(|array| Rc::new(array) as Rc<dyn Disk>).collect();
    let outer = Layout::default_for(Level::Raid0, inner.len());
    let new = NewArray::new("outer", outer, candidate.chunk_bytes);
    Ok(Rc::new(rig::start(world, Core::FIRST, &inner, &new, &host).await?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::catalogue::Catalogue;

    #[test]
    fn a_rebuild_slows_clients_and_parity_slows_small_writes() {
        let disk = Catalogue::get().entry("hd501lj").expect("a catalogued disk");
        let of = |level, rebuilding| {
            performance(disk, &Candidate::new(level, 4), 4, rebuilding).expect("no stall")
        };
        let (raid10, raid5) = (of(Level::Raid10, false), of(Level::Raid5, false));
        assert!(raid10.random_write.per_second > 1.2 * raid5.random_write.per_second);
        assert!(raid5.sequential_read > 1.05 * raid10.sequential_read);
        let rebuilding = of(Level::Raid5, true);
        assert!(rebuilding.random_read.per_second < 0.9 * raid5.random_read.per_second);
    }

    #[test]
    fn nested_arrays_are_measured_too() {
        let disk = Catalogue::get().entry("hd501lj").expect("a catalogued disk");
        let nested = Candidate { arrays: 2, ..Candidate::new(Level::Raid5, 3) };
        let found = performance(disk, &nested, 6, true).expect("no stall");
        assert!(found.sequential_read > 100e6, "{found:?}");
    }
}
