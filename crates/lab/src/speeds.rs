//! The speeds of layouts: the real engine on modelled disks, under the loads of a comparison.
//!
//! ```text
//!   layout × load × state (healthy, degraded, rebuilding) = cells ─▶ threads, one world for each
//!                                                                         │
//!           requests/s, bytes/s, latencies, rate of the rebuild ◀─────────┘
//! ```
//!
//! Arrays are as `parapet create` makes them unasked. All layouts hold the same data: workers
//! without a zone use as many bytes as the smallest layout has. A cell depends on nothing but its
//! inputs, so the number of threads changes no figure.

mod loads;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use array::{Array, CacheMode, Host};
use io::{Clock, Disk, Time};
use layout::{Layout, Level};
use metadata::create::NewArray;

pub use self::loads::PlannedLoad;

use crate::disk::catalogue::{Entry, Prepared};
use crate::experiment::{Fault, play};
use crate::member::Member;
use crate::parallel::in_parallel;
use crate::reliability::{Candidate, Inputs, LayoutSpeeds, Speed};
use crate::rig;
use crate::world::{Core, World};

/// Requests from this size on move bytes rather than heads: less time says as much.
const LARGE: u64 = 256 << 10;
/// Time for caches to fill and regions to be written first, and the window after it.
const LARGE_TIMES: [Duration; 2] = [Duration::from_millis(500), Duration::from_millis(700)];
const SMALL_TIMES: [Duration; 2] = [Duration::from_secs(4), Duration::from_secs(6)];
/// Arrays for which these times are: ten disks of 2007, bytes in a second, and ten heads. Larger
/// ones do as much in less time.
const LARGE_ARRAY: f64 = 870e6;
const MANY_HEADS: f64 = 10.0;
/// Flash answers far more requests: its times are this much shorter, on four SATA disks.
const FLASH: f64 = 80.0;
const FLASH_ARRAY: f64 = 2.2e9;
/// No times are further divided than by this.
const FASTEST: f64 = 6.0;
/// A rebuild beside large requests goes on in few steps of several stripes: its window is this long
/// on four disks of 2007, and half of that on larger arrays, whose rates are then within a fifth of
/// those of four times as much.
const REBUILDING: Duration = Duration::from_millis(2800);
const SMALL_ARRAY: f64 = 350e6;
/// The seed of addresses: one decides.
const SEED: u64 = 1;

/// What an array goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// All disks.
    Healthy,
    /// One disk has failed.
    Degraded,
    /// A new disk takes its place.
    Rebuilding,
}

/// Measures layouts of one kind of disk.
pub struct Modelled<'a> {
    /// The disk.
    pub disk: &'a Entry,
    /// The loads, in the order of all results.
    pub loads: &'a [PlannedLoad],
}

/// One measurement.
struct Task<'a> {
    candidate: &'a Candidate,
    load: &'a PlannedLoad,
    state: State,
}

/// Its result.
type Measured = Result<(Speed, Option<f64>), Fault>;

impl Modelled<'_> {
    /// The speeds of all candidates, in their order. `progress` is called with the number of cells
    /// that are done, and of all.
    ///
    /// # Errors
    /// If a zone of a load does not fit a layout, or the model stalls.
    pub fn measure(
        &self,
        inputs: &Inputs,
        progress: &dyn Fn(usize, usize),
    ) -> Result<Vec<LayoutSpeeds>, Fault> {
        let refused = |cause: metadata::Error| Fault::new("", cause.to_string(), "");
        let place = |it: &Candidate| it.place(inputs.disks, inputs.kind.bytes).map_err(refused);
        let placed = inputs.candidates.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let common = placed.iter().map(|it| it.usable_bytes).min().unwrap_or(0);
        let mut tasks = Vec::new();
        for (candidate, placed) in inputs.candidates.iter().zip(&placed) {
            let states = [State::Healthy, State::Degraded, State::Rebuilding];
            let states = if placed.tolerated > 0 { &states[..] } else { &states[..1] };
            for &state in states {
                tasks.extend(self.loads.iter().map(|load| Task { candidate, load, state }));
            }
        }
        let disk = self.disk.prepared();
        let stand = |task: &Task| Stand {
            disk: &disk,
            disk_bytes: inputs.kind.bytes,
            rate: inputs.kind.outer_rate,
            candidate: *task.candidate,
            members: inputs.disks - task.candidate.spares,
            state: task.state,
            bytes: common,
        };
        let run = |task: &Task| {
            stand(task).run(task.load).map_err(|fault| fault.within(&task.candidate.name()))
        };
        let results = in_parallel(&tasks, inputs.threads, run, progress);
        self.gather(inputs, &tasks, results)
    }

    fn gather(
        &self,
        inputs: &Inputs,
        tasks: &[Task],
        results: Vec<Measured>,
    ) -> Result<Vec<LayoutSpeeds>, Fault> {
        let mut all = vec![LayoutSpeeds::default(); inputs.candidates.len()];
        for (task, result) in tasks.iter().zip(results) {
            let (speed, rebuild) = result?;
            let at = inputs.candidates.iter().position(|it| it == task.candidate);
            let layout = &mut all[at.unwrap_or(0)];
            match task.state {
                State::Healthy => layout.healthy.push(speed),
                State::Degraded => layout.degraded.push(speed),
                State::Rebuilding => layout.rebuilding.push(speed),
            }
            // Of several loads the slowest rebuild.
            layout.rebuild_rate = match (layout.rebuild_rate, rebuild) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        Ok(all)
    }
}

/// An array on new disks.
struct Stand<'a> {
    disk: &'a Prepared,
    disk_bytes: u64,
    /// Bytes of the disk in a second.
    rate: f64,
    candidate: Candidate,
    members: usize,
    state: State,
    /// Bytes of the data.
    bytes: u64,
}

impl Stand<'_> {
    /// One load on a new array; and the bytes of the new member that are rebuilt in a second.
    fn run(&self, load: &PlannedLoad) -> Measured {
        let world = World::new();
        let [warm_up, window] = self.times(load.largest() >= LARGE);
        let member = || Member::built(&world, self.disk.build()) as Rc<dyn Disk>;
        let members: Vec<_> = (0..self.members).map(|_| member()).collect();
        let (spare, workers) = (member(), load.on(self.bytes));
        let (inner, candidate, state) = (world.clone(), self.candidate, self.state);
        let cache = if load.durable { CacheMode::Sync } else { CacheMode::None };
        let member_bytes = self.member_bytes();
        let main = async move {
            let refused = |cause: metadata::Error| Fault::new("array", cause.to_string(), "");
            let array =
                Nested::start(&inner, &candidate, &members, cache).await.map_err(refused)?;
            let rebuilt = array.enter(state, spare).await.map_err(refused)?;
            let from = inner.clock().now() + warm_up;
            let until = from + window;
            let progress = rebuilt.map(|array| [from, until].map(|at| done_at(&inner, &array, at)));
            let figures =
                play(&inner, Rc::clone(&array.disk), &workers, SEED, (from, until)).await?;
            let rate = progress.map(|[before, after]| {
                (after.get() - before.get()).max(0.0) * member_bytes / window.as_secs_f64()
            });
            Ok((Speed::of(&figures), rate.filter(|&rate| rate > 0.0)))
        };
        let stalled = |stall: crate::world::Stall| Fault::new("", stall.to_string(), "report it");
        world.run(main).map_err(stalled)?
    }

    /// The time before the window, and the window.
    fn times(&self, is_large: bool) -> [Duration; 2] {
        let (rotates, rate) = (self.disk.is_rotational(), self.rate * self.members as f64);
        let faster = match (rotates, is_large) {
            (true, true) => (rate / LARGE_ARRAY).clamp(1.0, FASTEST),
            (true, false) => (self.members as f64 / MANY_HEADS).clamp(1.0, FASTEST),
            (false, _) => FLASH * (rate / FLASH_ARRAY).clamp(1.0, FASTEST),
        };
        let times = if is_large { LARGE_TIMES } else { SMALL_TIMES };
        let [warm_up, window] = times.map(|time| time.div_f64(faster));
        if is_large && self.state == State::Rebuilding {
            let larger = if rotates { (rate / SMALL_ARRAY).clamp(1.0, 2.0) } else { FLASH };
            return [warm_up, REBUILDING.div_f64(larger)];
        }
        [warm_up, window]
    }

    fn member_bytes(&self) -> f64 {
        let disks = self.members + self.candidate.spares;
        let placed = self.candidate.place(disks, self.disk_bytes);
        placed.map_or(0.0, |placed| placed.member_bytes as f64)
    }
}

/// The share of the background job that is done at this time.
fn done_at(world: &World, array: &Array, at: Time) -> Rc<Cell<f64>> {
    let (share, result) = (Rc::new(Cell::new(0.0)), array.clone());
    let (slot, clock) = (Rc::clone(&share), world.clock());
    world.spawn(Core::FIRST, async move {
        clock.sleep_until(at).await;
        // A job that has ended has done all.
        let job = result.status().job;
        slot.set(job.map_or(1.0, |job| job.done_bytes as f64 / job.total_bytes.max(1) as f64));
    });
    share
}

/// The array or the arrays of a candidate, and the disk that clients see.
struct Nested {
    first: Array,
    disk: Rc<dyn Disk>,
}

impl Nested {
    async fn start(
        world: &World,
        candidate: &Candidate,
        members: &[Rc<dyn Disk>],
        cache: CacheMode,
    ) -> metadata::Result<Nested> {
        let inner = Host::new(world.dyn_clock());
        let host = Host { cache, ..Host::new(world.dyn_clock()) };
        let chunk = if candidate.layout == Layout::Raid1 { 0 } else { candidate.chunk_bytes };
        let new = NewArray::new("plan", candidate.layout, chunk);
        if candidate.arrays == 1 {
            let array = rig::start(world, Core::FIRST, members, &new, &host).await?;
            return Ok(Nested { disk: Rc::new(array.clone()), first: array });
        }
        let mut arrays: Vec<Array> = Vec::new();
        for disks in members.chunks(members.len() / candidate.arrays) {
            arrays.push(rig::start(world, Core::FIRST, disks, &new, &inner).await?);
        }
        let first = arrays[0].clone();
        let disks: Vec<_> =
            arrays.into_iter().map(|array| Rc::new(array) as Rc<dyn Disk>).collect();
        let outer = Layout::default_for(Level::Raid0, disks.len());
        let new = NewArray::new("outer", outer, candidate.chunk_bytes);
        let array = rig::start(world, Core::FIRST, &disks, &new, &host).await?;
        Ok(Nested { first, disk: Rc::new(array) })
    }

    /// Brings the array into this state; returns it if it is being rebuilt.
    async fn enter(&self, state: State, spare: Rc<dyn Disk>) -> metadata::Result<Option<Array>> {
        if state == State::Healthy {
            return Ok(None);
        }
        let slots = self.first.status().slots;
        if let Some(member) = slots.first().and_then(|slot| slot.member.as_ref()) {
            self.first.fail(member.id).await?;
        }
        if state == State::Degraded {
            return Ok(None);
        }
        self.first.add(spare, "new").await?;
        Ok(Some(self.first.clone()))
    }
}

#[cfg(test)]
mod tests;
