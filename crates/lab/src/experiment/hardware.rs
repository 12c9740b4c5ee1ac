//! The disks of an experiment, and what their heads do.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::Fault;
use super::outcome::{Constant, HeadLine, HeadSpan, Share, Station};
use super::schema::{ControllerCache, DestageOrder, Experiment, LinkChoice, Size};
use crate::controller::{CacheSpec, Cached, Destage};
use crate::disk::catalogue::{Catalogue, Entry};
use crate::disk::flash::Flash;
use crate::disk::hdd::{Activity, Hdd, Lost, Span, Spec};
use crate::disk::{Model, Nanos, SECTOR};
use crate::member::Member;
use crate::world::World;

/// Disks of an experiment at most.
const DISKS_MAX: usize = 384;
/// Disks whose heads are drawn.
const HEADS_MAX: usize = 4;
/// Spans of a disk's heads at most.
const SPANS_MAX: usize = 4000;

const ACTIVITIES: [(Activity, &str); 7] = [
    (Activity::Command, "command"),
    (Activity::Seek, "seek"),
    (Activity::Rotate, "rotate"),
    (Activity::Transfer, "transfer"),
    (Activity::LostRevolution, "lost revolution"),
    (Activity::ReadAhead, "read ahead"),
    (Activity::Idle, "idle"),
];

/// The window in which heads are watched, and for how long their movements are kept.
#[derive(Clone, Copy, Default)]
pub(super) struct Watch {
    pub(super) from: Nanos,
    pub(super) until: Nanos,
    pub(super) keep_until: Nanos,
}

/// What the heads of a disk did within the window.
struct Heads {
    name: String,
    cylinders: u32,
    spent: [Nanos; ACTIVITIES.len()],
    spans: Vec<HeadSpan>,
}

/// A disk of the experiment.
pub(super) struct Disk {
    pub(super) member: Rc<Member>,
    heads: Option<Rc<RefCell<Heads>>>,
}

/// The names of the disks in the catalogue, one for each disk.
pub(super) fn names(disks: &str) -> Result<Vec<String>, Fault> {
    let fault = |cause: String| {
        let hint = "write a number, an x and a name of the catalogue: disks = \"10xhd501lj\"";
        Fault::new("hardware.disks", cause, hint)
    };
    let mut names = Vec::new();
    for part in disks.split(',').map(str::trim) {
        let (count, name) = match part.split_once('x') {
            Some((count, name)) if is_number(count) => (count.parse(), name.trim()),
            _ => (Ok(1), part),
        };
        let Ok(count @ 1..=DISKS_MAX) = count else {
            return Err(fault(format!("{part:?} has no number from 1 to {DISKS_MAX}")));
        };
        if Catalogue::get().entry(name).is_none() {
            let known: Vec<&str> = Catalogue::get().names().collect();
            return Err(fault(format!("no disk {name:?} among {}", known.join(", "))));
        }
        names.extend((0..count).map(|_| name.to_string()));
    }
    if names.len() > DISKS_MAX {
        return Err(fault(format!("{} disks are more than {DISKS_MAX}", names.len())));
    }
    Ok(names)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Makes a disk of the experiment.
pub(super) fn disk(
    world: &World,
    experiment: &Experiment,
    (number, count): (usize, usize),
    name: &str,
    (seed, watch): (u64, &Rc<Cell<Watch>>),
) -> Result<Disk, Fault> {
    let cache = experiment.hardware.cache.as_ref().map(|cache| share(cache, count)).transpose()?;
    let hdd = match Catalogue::get().entry(name) {
        Some(Entry::Hdd(hdd)) => hdd,
        Some(Entry::Flash(flash)) => {
            let fresh = experiment.hardware.fresh_flash;
            let spec = if fresh { flash.fresh_spec() } else { flash.spec() };
            let member = Member::new(world, behind(cache, Flash::new(spec)));
            return Ok(Disk { member, heads: None });
        }
        None => {
            let hint = "choose a disk of `parapet lab disks`";
            return Err(Fault::new("hardware.disks", format!("no disk {name:?}"), hint));
        }
    };
    let spec = personal(hdd.spec(), experiment, seed ^ number as u64);
    let heads = Rc::new(RefCell::new(Heads {
        name: format!("disk{number}"),
        cylinders: spec.geometry.cylinders(),
        spent: [0; ACTIVITIES.len()],
        spans: Vec::new(),
    }));
    let mut hdd = Hdd::new(spec);
    let (seen, watch) = (Rc::clone(&heads), Rc::clone(watch));
    let draws = number < HEADS_MAX;
    hdd.observe(Box::new(move |span| seen.borrow_mut().add(span, watch.get(), draws)));
    Ok(Disk { member: Member::new(world, behind(cache, hdd)), heads: Some(heads) })
}

/// A disk behind its share of the controller's cache, if there is one.
fn behind(cache: Option<CacheSpec>, disk: impl Model + 'static) -> Box<dyn Model> {
    match cache {
        Some(cache) => Box::new(Cached::new(disk, cache)),
        None => Box::new(disk),
    }
}

/// The disk's share of the controller's cache.
fn share(cache: &ControllerCache, disks: usize) -> Result<CacheSpec, Fault> {
    let sectors = cache.size.0 / SECTOR / disks.max(1) as u64;
    let most = cache.largest.0 / SECTOR;
    if most == 0 || most > sectors || most > u64::from(u32::MAX) {
        let cause = format!("{} of {disks} disks have no room for {}", cache.size, cache.largest);
        let hint = "enlarge `size`, or lower `largest`";
        return Err(Fault::new("hardware.cache", cause, hint));
    }
    if cache.depth == 0 {
        let cause = "0 destages at a time".to_string();
        return Err(Fault::new("hardware.cache.depth", cause, "write 1 or more"));
    }
    let order = match cache.order {
        DestageOrder::Lru => Destage::Lru,
        DestageOrder::Elevator => Destage::Elevator,
        DestageOrder::Disk => Destage::Disk,
    };
    let acknowledge = nanos(cache.acknowledge_us);
    Ok(CacheSpec { sectors, order, depth: cache.depth, most: most as u32, acknowledge })
}

fn nanos(us: f64) -> Nanos {
    (us * 1e3).round() as Nanos
}

/// The catalogued disk with the experiment's quirks.
fn personal(mut spec: Spec, experiment: &Experiment, seed: u64) -> Spec {
    if experiment.hardware.disk_write_cache == Some(false) {
        spec.write_cache = None;
    }
    let personality = &experiment.personality;
    if let Some(us) = personality.write_overhead_us {
        spec.overhead.write = nanos(us);
    }
    if let Some(per_million) = personality.lost_revolutions_per_million {
        let chunk = personality.lost_chunk.unwrap_or(Size(64 << 10)).0 / SECTOR;
        spec.lost = Some(Lost { per_million, chunk: chunk.max(1), seed });
    }
    spec
}

/// The numbers that the models were given.
pub(super) fn constants(experiment: &Experiment, names: &[String]) -> Vec<Constant> {
    let mut found = Vec::new();
    let mut add = |name: &str, value: String, source: &str| {
        found.push(Constant { name: name.into(), value, source: source.into() });
    };
    let mut kinds: Vec<&String> = names.iter().collect();
    kinds.sort();
    kinds.dedup();
    for kind in kinds {
        let parameters = Catalogue::get().parameters(kind).unwrap_or_default();
        let assumed = parameters.iter().filter(|one| one.source.starts_with("assum")).count();
        let value = format!("{} parameters, {assumed} of them assumed", parameters.len());
        add(kind, value, "catalogue");
    }
    let personality = &experiment.personality;
    if let Some(us) = personality.write_overhead_us {
        add("overhead of a write in the disk", format!("{us} µs"), "personality");
    }
    if let Some(share) = personality.lost_revolutions_per_million {
        let chunk = personality.lost_chunk.unwrap_or(Size(64 << 10));
        let value = format!("{share} of a million per {chunk}");
        add("lost revolutions", value, "personality");
    }
    if let Some(cache) = &experiment.hardware.cache {
        let order = format!("{:?}", cache.order).to_lowercase();
        let value = format!("{}, {order} order, depth {}", cache.size, cache.depth);
        add("controller's cache", value, "experiment");
    }
    if let Some(link) = &experiment.hardware.link {
        let LinkChoice { protocol, links, megabits, mtu, delay_us, volatile, .. } = link;
        let protocol = format!("{protocol:?}").to_lowercase();
        let answers = if *volatile { ", writes volatile" } else { "" };
        let value = format!(
            "{protocol}, {links} × {megabits} Mb/s, MTU {mtu}, {delay_us} µs a frame{answers}"
        );
        add("network", value, "experiment");
    }
    for constant in &experiment.constants {
        let value = experiment.number(&constant.path).map_or("as modelled".into(), short);
        let (low, high) = (constant.low, constant.high);
        let source = format!("calibrated between {low} and {high}");
        add(&constant.name, format!("{value} {}", constant.unit), &source);
    }
    match experiment.hardware.cpu {
        Some(cpu) => add("CPU", cpu.to_string(), "experiment"),
        None => add("CPU", "free".into(), "default"),
    }
    found
}

/// A number with at most four digits after the point.
fn short(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

impl Heads {
    fn add(&mut self, span: Span, watch: Watch, draws: bool) {
        let (from, until) = (span.from.max(watch.from), span.until.min(watch.until));
        if from >= until {
            return;
        }
        let index = ACTIVITIES.iter().position(|(activity, _)| *activity == span.activity);
        let index = index.expect("every activity is listed");
        self.spent[index] += until - from;
        if draws && from < watch.keep_until && self.spans.len() < SPANS_MAX {
            let until = until.min(watch.keep_until);
            self.spans.push(HeadSpan {
                from_ns: from - watch.from,
                until_ns: until - watch.from,
                what: ACTIVITIES[index].1.into(),
                cylinder: span.cylinder,
            });
        }
    }

    /// The shares of a window of this length. What was not reported was idle.
    fn station(&self, span: Nanos) -> Station {
        let known: Nanos = self.spent.iter().sum();
        let shares = ACTIVITIES.iter().zip(self.spent).map(|(&(activity, what), spent)| {
            let idle = activity == Activity::Idle;
            let spent = if idle { spent + span.saturating_sub(known) } else { spent };
            Share { what: what.into(), share: spent as f64 / span.max(known).max(1) as f64 }
        });
        Station { name: self.name.clone(), shares: shares.collect() }
    }
}

impl Disk {
    /// What its heads were busy with.
    pub(super) fn station(&self, span: Nanos) -> Option<Station> {
        Some(self.heads.as_ref()?.borrow().station(span))
    }

    /// How its heads moved.
    pub(super) fn head_line(&self) -> Option<HeadLine> {
        let heads = self.heads.as_ref()?.borrow();
        let (name, cylinders) = (heads.name.clone(), heads.cylinders);
        let spans = heads.spans.clone();
        (!spans.is_empty()).then_some(HeadLine { name, cylinders, spans })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_named_with_their_number() {
        let names = |text: &str| names(text).map(|names| names.join(" "));
        assert_eq!(names("2xhd501lj").unwrap(), "hd501lj hd501lj");
        assert_eq!(names("hd501lj, 1xcheetah-15k5").unwrap(), "hd501lj cheetah-15k5");
        for wrong in ["", "0xhd501lj", "3x", "999xhd501lj", "4xnothing", "-1xhd501lj", ","] {
            let error = names(wrong).unwrap_err().to_string();
            assert!(error.contains("hardware.disks"), "{wrong}: {error}");
        }
    }
}
