//! The workload: each client reads, writes and flushes under the locks of the upper layer.

use cluster::change::{Change, Way};
use cluster::client::{self, Failure};
use cluster::code;
use cluster::ids::{ClientId, RequestId};
use cluster::record::Mark;

use super::{Event, World};
use crate::ground::Task;
use crate::marks;
use crate::oracle::Host;
use crate::verify;

/// Requests of a client at once.
const DEPTH: usize = 3;

impl World {
    fn host(&self, index: usize) -> Host {
        (ClientId(index as u32), self.ground.clients[index].incarnation)
    }

    fn is_degraded(&self) -> bool {
        self.value.config.in_sync().count() < self.value.config.slots.len()
    }

    pub fn work(&mut self, index: usize, life: u64) {
        if self.ground.clients[index].host.life != life || self.now > self.work_ms {
            return;
        }
        let pause = self.rng.within(5, 120);
        self.at(self.now + pause, Event::Work(index, life));
        if self.ground.clients[index].tasks.len() >= DEPTH {
            return;
        }
        let host = self.host(index);
        let block = self.rng.below(self.oracle.blocks.len() as u64);
        let (task, work) = match self.rng.below(20) {
            0..11 => {
                let Some(found) = self.write(host, block) else { return };
                found
            }
            11..17 => {
                if !self.oracle.read(host, RequestId(self.next_request), block as usize) {
                    return;
                }
                (Task::Read(block), client::Work::Read(block))
            }
            _ => (Task::Flush(self.oracle.count), client::Work::Flush),
        };
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.tell(|| format!("client {index} {id:?}: {task:?} {work:x?}"));
        self.ground.clients[index].tasks.insert(id, task);
        self.client(index, client::Event::Request(id, work));
    }

    /// A write of some blocks of one stripe, if no other host uses them.
    fn write(&mut self, host: Host, block: u64) -> Option<(Task, client::Work)> {
        let config = self.value.config.clone();
        let (shape, members) = (config.shape, config.slots.len());
        let (mut first, mut count) = (block, 1);
        if shape.level.is_striped() {
            let (width, (_, index)) = (code::width(&shape, members), code::place(&config, block));
            let whole = self.rng.percent(25);
            first -= if whole { index as u64 } else { 0 };
            count = if whole { width } else { 1 + self.rng.below((width - index) as u64) as usize };
        }
        let blocks = first as usize..first as usize + count;
        let pieces = code::block_bytes(&shape, members) / 8;
        let value: Vec<u64> = (0..(pieces * count) as u64)
            .map(|piece| crate::rng::mix(self.next_value + piece) | 1)
            .collect();
        self.next_value += 16;
        if !blocks.clone().all(|block| self.oracle.is_free(block)) {
            return None;
        }
        let degraded = self.is_degraded();
        for (block, value) in blocks.zip(value.chunks(pieces)) {
            assert!(self.oracle.write(host, block, value, degraded), "it is free");
        }
        let bytes = verify::bytes(&value);
        if shape.level.is_striped() {
            self.mark(match Change::new(&config, first, bytes.len()).plan(&config).0 {
                Way::Whole => marks::FULL_STRIPE,
                Way::Delta => marks::DELTA,
                Way::Rest => marks::REST,
                Way::Decode => marks::DECODE,
            });
        }
        Some((Task::Write(first, count), client::Work::Write(first, bytes)))
    }

    /// A request was refused: sometimes an operator looks at it.
    fn refused(&mut self) {
        self.mark(marks::REFUSED);
        // A client is evicted, and a member was not in sync.
        let dead = |mark: &Mark| matches!(mark, Mark::Evicted(_, upto) if upto.0 > 0);
        let evicted = self.ground.members.iter().any(|node| node.header.log.marks.iter().any(dead));
        let degraded = self.marks.contains(marks::REMOVED) || self.marks.contains(marks::RESTARTED);
        let story = || String::from("a request is refused without a reason");
        self.require(if evicted && degraded { Ok(()) } else { Err(story()) });
        if self.rng.percent(20) {
            self.accept();
        }
    }

    /// An operator accepts the loss of all holes.
    pub fn accept(&mut self) {
        let leaders = self.ground.candidates.iter().enumerate();
        let leaders = leaders.filter_map(|(index, node)| Some((node.machine.as_ref()?, index)));
        let Some((_, index)) = leaders.filter_map(|(it, index)| Some((it.active()?, index))).max()
        else {
            return;
        };
        let local = self.ground.candidates[index].host.skew.at(self.now);
        let machine = self.ground.candidates[index].machine.as_mut().expect("it leads");
        let mut out = Vec::new();
        let holes = machine.accept_loss(local, &mut out);
        let config = self.value.config.clone();
        if !holes.is_empty() {
            self.mark(marks::ACCEPTED);
            self.tell(|| format!("candidate {index}: the loss of {holes:?} is accepted"));
        }
        for stripe in holes.into_iter().flat_map(|region| config.shape.stripes(region)) {
            let width = code::width(&config.shape, config.slots.len());
            let columns = code::columns(config.shape.level, config.slots.len(), stripe);
            for (index, &member) in columns[..width].iter().enumerate() {
                if !config.is_in_sync(member) {
                    self.oracle.accepted(stripe as usize * width + index, config.epoch);
                }
            }
        }
        self.coordinator_actions(index, out);
    }

    pub fn done(&mut self, index: usize, id: RequestId, result: Result<Vec<u8>, Failure>) {
        let Some(task) = self.ground.clients[index].tasks.remove(&id) else { return };
        let host = self.host(index);
        self.tell(|| format!("client {index} {id:?}: {task:?} is done: {result:x?}"));
        // Its locks are broken already: nobody relies on the answer.
        if self.oracle.is_fenced(host) {
            return;
        }
        let config = self.value.config.clone();
        let machine = self.ground.clients[index].machine.as_ref();
        let epoch = machine.and_then(client::Client::epoch).unwrap_or_default();
        match (task, result) {
            (Task::Write(block, count), Ok(_)) => {
                let blocks = block as usize..block as usize + count;
                let active = |block: usize| self.oracle.blocks[block].active.clone();
                let value = blocks.clone().flat_map(|block| {
                    let (_, value) = active(block).expect("the writer has the lock");
                    value
                });
                let value: Vec<u64> = value.collect();
                let verdict = self.ground.acknowledged(&config, block, &value);
                self.require(verdict);
                blocks.for_each(|block| self.oracle.written(host, block, epoch));
                self.sent.remove(&(index, code::place(&config, block).0));
                if config.shape.level.is_striped() && self.is_degraded() {
                    self.mark(marks::DEGRADED);
                }
            }
            (Task::Write(block, count), Err(Failure::Inconsistent)) => {
                self.refused();
                let blocks = block as usize..block as usize + count;
                blocks.for_each(|block| self.oracle.write_refused(host, block));
            }
            (Task::Read(block), Err(Failure::Inconsistent)) => {
                self.refused();
                self.oracle.read_refused((host, id), block as usize);
            }
            (Task::Read(block), Ok(bytes)) => {
                let value: Vec<u64> = bytes.chunks(8).map(crate::medium::number).collect();
                match self.oracle.check((host, id), block as usize, &value, epoch) {
                    Ok(true) => self.mark(marks::TORN_READ),
                    Ok(false) => {}
                    Err(story) => self.require(Err(story)),
                }
                let (stripe, number) = code::place(&config, block);
                let columns = code::columns(config.shape.level, config.slots.len(), stripe);
                if config.shape.level.is_striped() && !config.is_in_sync(columns[number]) {
                    self.mark(marks::RECOVERED);
                }
            }
            (Task::Flush(before), Ok(_)) => {
                for (block, value) in self.oracle.flushed(host, before) {
                    let verdict = self.ground.flushed(&config, host, block, &value);
                    self.require(verdict);
                }
            }
            (Task::Flush(before), Err(Failure::Lost)) => {
                self.mark(marks::FLUSH_LOST);
                self.oracle.loss_reported(host, before);
            }
            (_, Err(_)) => {}
        }
    }
}
