//! A run: the engine on the experiment's disks, with one seed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use array::{Array, CacheMode, Host};
use io::{Clock, Time};
use layout::private::Consistency;
use layout::{Layout, Level, Slot};
use metadata::create::NewArray;

use super::hardware::{self, Disk, Watch};
use super::histogram::Histogram;
use super::outcome::{Figures, Happened, Member, Run, Share, Side, Station};
use super::record::Recorder;
use super::schema::{Action, ArrayChoice, Cache, Experiment, Incident};
use super::tasks::Crowd;
use super::workers::Target;
use super::{Fault, replay, workers};
use crate::link;
use crate::member::Counts;
use crate::rig;
use crate::trace::Trace;
use crate::world::{Core, CpuCosts, VirtualClock, World};

/// Level and layout of the array.
pub(super) fn layout(choice: &ArrayChoice, disks: usize) -> Result<Layout, Fault> {
    let level: Level = choice.level.parse().map_err(|cause: layout::LayoutError| {
        Fault::new("array.level", format!("{:?}: {cause}", choice.level), "write \"raid5\"")
    })?;
    let members = disks.saturating_sub(choice.spares);
    let Some(name) = &choice.layout else { return Ok(Layout::default_for(level, members)) };
    Layout::parse(level, name).map_err(|cause| {
        let cause = format!("{name:?}: {cause}");
        Fault::new("array.layout", cause, "write one of mdadm's names, or leave it out")
    })
}

/// The crash-consistency policy.
pub(super) fn consistency(choice: &ArrayChoice) -> Result<Option<Consistency>, Fault> {
    let Some(name) = &choice.consistency else { return Ok(None) };
    match Consistency::named(name) {
        Some(found) if found != Consistency::Journal => Ok(Some(found)),
        _ => {
            let hint = "write resync, bitmap, intent or ppl";
            Err(Fault::new("array.consistency", format!("no policy {name:?} here"), hint))
        }
    }
}

fn new_array(choice: &ArrayChoice, disks: usize) -> Result<NewArray, Fault> {
    let layout = layout(choice, disks)?;
    let chunk = if layout == Layout::Raid1 { 0 } else { choice.chunk.0 };
    let new = NewArray::new("lab", layout, chunk);
    Ok(NewArray {
        bitmap: new.bitmap.filter(|_| choice.bitmap),
        spares: choice.spares,
        consistency: consistency(choice)?,
        checksums: choice.checksums,
        ..new
    })
}

/// Everything that a run holds.
struct Stage {
    world: World,
    experiment: Rc<Experiment>,
    names: Vec<String>,
    seed: u64,
    disks: RefCell<Vec<Disk>>,
    watch: Rc<Cell<Watch>>,
    recorder: Rc<Recorder>,
    /// Where clients run: apart from the array if a network is between.
    client: Core,
    links: RefCell<Vec<link::Busy>>,
}

/// What members, the core and the links had done at a moment.
#[derive(Clone, Default)]
struct Mark {
    counts: Vec<Counts>,
    busy_ns: u64,
    links_ns: Vec<[u64; 2]>,
}

/// Runs the experiment with one seed; `draws` keeps the movements of the heads.
pub(super) fn run(
    experiment: &Rc<Experiment>,
    trace: Option<&Rc<Trace>>,
    (seed, draws): (u64, bool),
) -> Result<Run, Fault> {
    let world = World::new();
    if let Some(cpu) = experiment.hardware.cpu {
        world.set_costs(Core::FIRST, cpu.into());
    }
    let client = match &experiment.hardware.link {
        Some(link) => {
            world.core(CpuCosts { frame_ns: link.client_frame_ns, ..CpuCosts::default() })
        }
        None => Core::FIRST,
    };
    let stage = Rc::new(Stage {
        world: world.clone(),
        client,
        links: RefCell::default(),
        experiment: Rc::clone(experiment),
        names: hardware::names(&experiment.hardware.disks)?,
        seed,
        disks: RefCell::default(),
        watch: Rc::default(),
        recorder: Rc::default(),
    });
    let trace = trace.cloned();
    let outcome = world.run_once(async move {
        let array = stage.start().await?;
        stage.play(trace.as_deref(), &array, draws).await
    });
    outcome.map_err(|stall| Fault::new("", stall.to_string(), "report it with the experiment"))?
}

async fn fail(array: &Array, slot: u8) -> Result<(), String> {
    let status = array.status();
    let found = status.slots.iter().find(|one| one.slot == Slot(slot));
    let member = found.and_then(|one| one.member.as_ref());
    let member = member.ok_or_else(|| format!("slot {slot} has no member"))?;
    array.fail(member.id).await.map_err(|cause| cause.to_string())
}

impl Stage {
    /// Creates and starts the array; its failed members have failed.
    async fn start(&self) -> Result<Array, Fault> {
        let choice = &self.experiment.array;
        let fault = |cause: metadata::Error| {
            Fault::new("array", cause.to_string(), "change [array] or the number of disks")
        };
        let new = new_array(choice, self.names.len())?;
        let mut host = Host::new(self.world.dyn_clock());
        host.cache = match choice.cache {
            Cache::None => CacheMode::None,
            Cache::Sync => CacheMode::Sync,
            Cache::Writeback => CacheMode::Writeback,
        };
        let mut members = Vec::new();
        for name in &self.names {
            members.push(self.disk(name)?);
        }
        let array =
            rig::start(&self.world, Core::FIRST, &members, &new, &host).await.map_err(fault)?;
        for &slot in &choice.failed {
            fail(&array, slot).await.map_err(|cause| {
                Fault::new("array.failed", cause, "name slots of the array, each once")
            })?;
        }
        Ok(array)
    }

    /// Makes the next disk.
    fn disk(&self, name: &str) -> Result<Rc<dyn io::Disk>, Fault> {
        let place = (self.disks.borrow().len(), self.names.len());
        let seen = (self.seed, &self.watch);
        let disk = hardware::disk(&self.world, &self.experiment, place, name, seen)?;
        let member = Rc::clone(&disk.member);
        self.disks.borrow_mut().push(disk);
        Ok(member)
    }

    /// The array as its clients see it.
    async fn reach(&self, array: &Array) -> Result<Rc<dyn io::Disk>, Fault> {
        let disk: Rc<dyn io::Disk> = Rc::new(array.clone());
        let Some(choice) = &self.experiment.hardware.link else { return Ok(disk) };
        let cores = (Core::FIRST, self.client);
        let reached = link::reach(&self.world, cores, disk, choice.into()).await;
        let reached = reached.map_err(|cause| {
            Fault::new("hardware.link", cause, "choose another `mtu`, or report it")
        })?;
        self.links.replace(reached.links);
        Ok(reached.disk)
    }

    /// Runs the load and gathers what was seen.
    async fn play(
        self: &Rc<Stage>,
        trace: Option<&Trace>,
        array: &Array,
        draws: bool,
    ) -> Result<Run, Fault> {
        let (clock, experiment) = (self.world.clock(), &self.experiment);
        let target = Target {
            world: self.world.clone(),
            disk: self.reach(array).await?,
            recorder: Rc::clone(&self.recorder),
        };
        let from = clock.now() + experiment.warm_up();
        let until = experiment.window().map_or(Time(u64::MAX >> 1), |window| from + window);
        let keep = if draws { (experiment.heads_ms * 1e6) as u64 } else { 0 };
        self.watch.set(Watch { from: from.0, until: until.0, keep_until: from.0 + keep });
        self.recorder.open(from, until);
        for incident in &experiment.events {
            self.expect(array, incident, from);
        }
        let marks = [from, until].map(|at| self.mark_at(at));
        let crowd = Crowd::new(&self.world, self.client);
        match (trace, &experiment.load.trace) {
            (Some(trace), Some(choice)) => {
                replay::check(trace, choice, target.disk.limits().bytes)?;
                replay::run(&target, trace, choice, until, &crowd).await?;
            }
            _ => {
                let choices = &experiment.load.workers;
                workers::start(&target, choices, (self.seed, until), &crowd)?;
                crowd.fewer_than(1).await;
            }
        }
        let end = match experiment.window() {
            Some(_) => until,
            None => self.recorder.last().max(from),
        };
        let [before, after] = marks.map(|mark| mark.take());
        let before = before.unwrap_or_default();
        Ok(self.gather(array, (from, end), (&before, &after.unwrap_or_else(|| self.mark()))))
    }

    /// Lets an incident happen.
    fn expect(self: &Rc<Stage>, array: &Array, incident: &Incident, from: Time) {
        let (array, incident, stage) = (array.clone(), incident.clone(), Rc::clone(self));
        let at = from + Duration::from_secs_f64(incident.at_s);
        self.world.spawn(Core::FIRST, async move {
            stage.world.clock().sleep_until(at).await;
            let result = match incident.action {
                Action::Fail => fail(&array, incident.slot.unwrap_or(0)).await,
                Action::Scrub => array.scrub(false).map_err(|cause| cause.to_string()),
                Action::Add => stage.add(&array).await,
            };
            if let Err(cause) = result {
                let error = io::Error::refused(format!("event at {} s: {cause}", incident.at_s));
                stage.recorder.error(&error);
            }
        });
    }

    /// Adds a disk like the first one.
    async fn add(&self, array: &Array) -> Result<(), String> {
        let name = self.names.first().ok_or("no disk to copy")?;
        let disk = self.disk(name).map_err(|fault| fault.to_string())?;
        array.add(disk, "added").await.map(drop).map_err(|cause| cause.to_string())
    }

    fn mark_at(self: &Rc<Stage>, at: Time) -> Rc<RefCell<Option<Mark>>> {
        let slot = Rc::new(RefCell::new(None));
        let (stage, result) = (Rc::clone(self), Rc::clone(&slot));
        self.world.spawn(Core::FIRST, async move {
            stage.world.clock().sleep_until(at).await;
            result.replace(Some(stage.mark()));
        });
        slot
    }

    fn mark(&self) -> Mark {
        let counts = self.disks.borrow().iter().map(|disk| disk.member.counts()).collect();
        let links_ns = self.links.borrow().iter().map(|[to, from]| [to(), from()]).collect();
        Mark { counts, busy_ns: self.world.busy_ns(Core::FIRST), links_ns }
    }

    fn gather(&self, array: &Array, (from, end): (Time, Time), marks: (&Mark, &Mark)) -> Run {
        let span = (end.0 - from.0).max(1);
        let span_s = span as f64 / 1e9;
        let [read, write, trim, sync] = self.recorder.sides(span_s);
        let (errors, first_error) = self.recorder.errors();
        let disks = self.disks.borrow();
        let busy = (marks.1.busy_ns - marks.0.busy_ns) as f64 / span as f64;
        let mut run = Run {
            seed: self.seed,
            span_s,
            figures: Figures::default(),
            read,
            write,
            trim,
            sync,
            errors,
            first_error,
            members: members(marks),
            stations: Vec::new(),
            seconds: self.recorder.seconds(span_s),
            events: happened(array, from),
            heads: disks.iter().filter_map(Disk::head_line).collect(),
        };
        if self.experiment.hardware.cpu.is_some() {
            run.stations.push(working("cpu".into(), busy));
        }
        run.stations.extend(links(marks, span));
        run.stations.extend(disks.iter().filter_map(|disk| disk.station(span)));
        run.figures = figures([&run.read, &run.write, &run.trim]);
        run
    }
}

fn working(name: String, busy: f64) -> Station {
    let busy = busy.clamp(0.0, 1.0);
    let share = |what: &str, share| Share { what: what.into(), share };
    Station { name, shares: vec![share("work", busy), share("idle", 1.0 - busy)] }
}

/// Both directions of each link.
fn links((before, after): (&Mark, &Mark), span: u64) -> Vec<Station> {
    let mut stations = Vec::new();
    for (number, after) in after.links_ns.iter().enumerate() {
        let before = before.links_ns.get(number).copied().unwrap_or_default();
        for (direction, way) in ["to", "from"].into_iter().enumerate() {
            let busy = after[direction].saturating_sub(before[direction]) as f64 / span as f64;
            stations.push(working(format!("link{number} {way}"), busy));
        }
    }
    stations
}

fn members((before, after): (&Mark, &Mark)) -> Vec<Member> {
    let member = |(number, after): (usize, &Counts)| {
        let before = before.counts.get(number).copied().unwrap_or_default();
        Member {
            name: format!("disk{number}"),
            reads: after.reads - before.reads,
            writes: after.writes - before.writes,
            flushes: after.flushes - before.flushes,
            read_bytes: after.read_bytes - before.read_bytes,
            written_bytes: after.written_bytes - before.written_bytes,
        }
    };
    after.counts.iter().enumerate().map(member).collect()
}

/// The events of the engine, by the window's time.
fn happened(array: &Array, from: Time) -> Vec<Happened> {
    let start = VirtualClock::default().unix_micros();
    let event = |event: array::status::Event| {
        let at_us = event.unix_micros.saturating_sub(start) as f64;
        let member = event.member.map(|name| format!("{name}: ")).unwrap_or_default();
        Happened {
            at_s: (at_us - from.0 as f64 / 1e3) / 1e6,
            text: format!("{member}{}", event.text),
        }
    };
    array.log().since(0).into_iter().map(event).collect()
}

/// The figures of all requests but flushes.
pub(super) fn figures(sides: [&Side; 3]) -> Figures {
    let mut all = Histogram::default();
    sides.iter().for_each(|side| all.merge(&side.latencies));
    let total: f64 = sides.iter().map(|side| side.mean_ns * side.requests as f64).sum();
    let percentile = |share| all.percentile(share) as f64;
    Figures {
        requests_per_s: sides.iter().map(|side| side.requests_per_s).sum(),
        bytes_per_s: sides.iter().map(|side| side.bytes_per_s).sum(),
        mean_ns: total / all.len().max(1) as f64,
        p50_ns: percentile(0.5),
        p90_ns: percentile(0.9),
        p99_ns: percentile(0.99),
        p999_ns: percentile(0.999),
    }
}
