//! Workers that keep requests in flight: a closed load.
//!
//! Each request in flight is a task: answers are taken as they come, in any order, as fio does it
//! with a queue depth. The requests of a worker take their addresses from one sequence.

use std::cell::RefCell;
use std::rc::Rc;

use io::{Clock, Disk, Op, Time};

use super::Fault;
use super::outcome::Direction;
use super::record::Recorder;
use super::schema::{Pattern, WorkerChoice};
use super::tasks::Crowd;
use crate::world::World;

/// Where requests go, and who records their answers.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) world: World,
    pub(super) disk: Rc<dyn Disk>,
    pub(super) recorder: Rc<Recorder>,
}

impl Target {
    /// Sends a request and records its answer. False if it failed.
    pub(super) async fn send(&self, direction: Direction, op: Op) -> bool {
        let (clock, bytes) = (self.world.clock(), op.work.len());
        let sent = clock.now();
        let done = self.disk.submit(op).await;
        if let Err(error) = &done.result {
            self.recorder.error(error);
            return false;
        }
        self.recorder.answer(direction, (sent, clock.now()), bytes);
        true
    }

    /// A read, or a write of zeros.
    pub(super) fn op(&self, writes: bool, offset: u64, bytes: u64) -> Op {
        let pool = self.world.pool();
        match writes {
            true => Op::write(offset, pool.take_zeroed(bytes as usize).freeze()),
            false => Op::read(offset, pool.take(bytes as usize)),
        }
    }
}

/// The addresses of a worker.
struct Sequence {
    choice: WorkerChoice,
    /// Its zone: first byte, requests that fit.
    zone: (u64, u64),
    next: u64,
    random: u64,
}

impl Sequence {
    /// Direction and address of the next request.
    fn next(&mut self) -> (bool, u64) {
        let (start, fitting) = self.zone;
        let number = match self.choice.pattern {
            Pattern::Random => random::next(&mut self.random) % fitting,
            Pattern::Sequential => {
                let number = self.next % fitting;
                self.next += 1;
                number
            }
        };
        let writes = match self.choice.write_percent {
            0 => false,
            100.. => true,
            percent => random::next(&mut self.random) % 100 < u64::from(percent),
        };
        (writes, start + number * self.choice.size.0)
    }
}

/// Starts all workers; they send until `until`.
pub(super) fn start(
    target: &Target,
    choices: &[WorkerChoice],
    (seed, until): (u64, Time),
    crowd: &Rc<Crowd>,
) -> Result<(), Fault> {
    let capacity = target.disk.limits().bytes;
    let mut number = 0u64;
    for (index, choice) in choices.iter().enumerate() {
        for one in 0..choice.count as u64 {
            let zone = zone(choice, one, capacity).map_err(|(cause, hint)| {
                Fault::new(&format!("load.worker[{index}]"), cause, hint)
            })?;
            // Streams of random numbers that have nothing in common.
            let mut state = seed.wrapping_mul(0x1_0001) ^ (number << 40);
            let random = random::next(&mut state);
            let sequence = Sequence { choice: choice.clone(), zone, next: 0, random };
            number += 1;
            let sequence = Rc::new(RefCell::new(sequence));
            for _ in 0..choice.depth {
                let (target, sequence) = (target.clone(), Rc::clone(&sequence));
                crowd.spawn(async move { work(&target, &sequence, until).await });
            }
        }
    }
    Ok(())
}

/// The zone of one of the workers: first byte, requests that fit.
fn zone(
    choice: &WorkerChoice,
    one: u64,
    capacity: u64,
) -> Result<(u64, u64), (String, &'static str)> {
    let (start, size) = (choice.start.0, choice.size.0);
    let zone = choice.zone.map_or(capacity.saturating_sub(start), |zone| zone.0);
    let end = start.saturating_add(zone);
    if end > capacity || start >= capacity {
        let cause = format!("its zone ends at {end} bytes, the array has {capacity}");
        return Err((cause, "lower `start` or `zone`"));
    }
    let (start, zone) = match choice.pattern {
        Pattern::Random => (start, zone),
        Pattern::Sequential => {
            let part = zone / choice.count as u64;
            let part = part - part % size;
            (start + one * part, part)
        }
    };
    match zone / size {
        0 => Err(("its zone has no room for a request".into(), "enlarge `zone`")),
        fitting => Ok((start, fitting)),
    }
}

async fn work(target: &Target, sequence: &RefCell<Sequence>, until: Time) {
    let clock = target.world.clock();
    while clock.now() < until {
        let (writes, offset) = sequence.borrow_mut().next();
        let op = target.op(writes, offset, sequence.borrow().choice.size.0);
        let direction = if writes { Direction::Write } else { Direction::Read };
        if !target.send(direction, op).await {
            return;
        }
    }
}
