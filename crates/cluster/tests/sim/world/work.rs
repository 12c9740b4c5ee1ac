//! The workload: each client reads, writes and flushes under the locks of the upper layer.

use std::ops::Range;

use cluster::change::{Change, Way};
use cluster::client::{self, Failure};
use cluster::code;
use cluster::config::Config;
use cluster::ids::{ClientId, Epoch, RequestId};
use cluster::record::Mark;

use super::{Event, World};
use crate::ground::Task;
use crate::marks;
use crate::oracle::{CELLS, Host, cells};
use crate::verify;

/// Requests of a client at once.
const DEPTH: usize = 3;

/// True if these cells are more than a stripe.
pub fn is_run(config: &Config, cells: &Range<usize>) -> bool {
    cells.len() > code::width(&config.shape, config.slots.len()) * CELLS
}

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
        let mut pause = self.rng.within(5, 120);
        // In worlds with runs requests come in bursts, or a run would rarely meet another one.
        if let Some(rng) = &mut self.runs {
            pause = if rng.percent(80) { rng.within(1, 15) } else { pause };
        }
        self.at(self.now + pause, Event::Work(index, life));
        if self.ground.clients[index].tasks.len() >= DEPTH {
            return;
        }
        let host = self.host(index);
        let mut block = self.rng.below(self.oracle.blocks());
        // For the same reason most are in one region.
        if self.runs.as_mut().is_some_and(|rng| rng.percent(70)) {
            block %= self.region_blocks();
        }
        let (task, work) = match self.rng.below(20) {
            0..11 => {
                let found = match self.part(60) {
                    Some(part) => self.patch(host, block, part),
                    None => self.write(host, block),
                };
                let Some(found) = found else { return };
                found
            }
            11..17 => {
                let count = self.run_of(block).map_or(1, |most| self.drawn(most));
                let mut cells = cells(block..block + count);
                if let Some(part) = self.part(50) {
                    cells = cells.start + part..cells.end - (CELLS - 1 - part);
                }
                if !self.oracle.read(host, RequestId(self.next_request), cells.clone()) {
                    return;
                }
                (Task::Read(cells), client::Work::Read(block, count))
            }
            _ => (Task::Flush(self.oracle.count), client::Work::Flush),
        };
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.tell(|| format!("client {index} {id:?}: {task:?} {work:x?}"));
        self.ground.clients[index].tasks.insert(id, task);
        self.client(index, client::Event::Request(id, work));
    }

    /// Registers that nobody has written before.
    fn fresh(&mut self, registers: usize) -> Vec<u32> {
        let first = self.next_value;
        self.next_value += 16;
        (0..registers as u64).map(|register| random::mix(first + register) as u32 | 1).collect()
    }

    /// One cell of a block, for so many of 100 requests in worlds with patches.
    fn part(&mut self, percent: u64) -> Option<usize> {
        let rng = self.patches.as_mut()?;
        rng.percent(percent).then(|| rng.below(CELLS as u64) as usize)
    }

    fn region_blocks(&self) -> u64 {
        let config = &self.value.config;
        let width = code::width(&config.shape, config.slots.len());
        u64::from(config.shape.region_blocks) * width as u64
    }

    /// From this block to the end of its region, for some requests in worlds with runs.
    fn run_of(&mut self, block: u64) -> Option<u64> {
        let region = self.region_blocks();
        self.runs.as_mut()?.percent(60).then_some(region - block % region)
    }

    /// So many at most.
    fn drawn(&mut self, most: u64) -> u64 {
        self.runs.as_mut().map_or(1, |rng| 1 + rng.below(most))
    }

    /// A write of one cell, if no other host uses it.
    fn patch(&mut self, host: Host, block: u64, part: usize) -> Option<(Task, client::Work)> {
        let config = &self.value.config;
        let length = code::block_bytes(&config.shape, config.slots.len()) / CELLS;
        let cell = cells(block..block + 1).start + part;
        let value = self.fresh(length / 4);
        if !self.oracle.is_free(&(cell..cell + 1)) {
            return None;
        }
        if self.oracle.is_beside(cell, host) {
            self.mark(marks::PATCHED_BY_TWO);
        }
        self.oracle.write(host, cell..cell + 1, &value, self.is_degraded());
        let work = client::Work::Patch(block, part * length, verify::bytes(&value));
        Some((Task::Write(cell..cell + 1), work))
    }

    /// A write of some blocks of one stripe or of whole stripes, if no other host uses them.
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
        if code::place(&config, first).1 == 0
            && let Some(most) = self.run_of(first)
        {
            let width = code::width(&shape, members);
            count = width * self.drawn(most / width as u64) as usize;
        }
        let cells = cells(first..first + count as u64);
        if is_run(&config, &cells) {
            self.mark(marks::RUN_WRITTEN);
        }
        let value = self.fresh(code::block_bytes(&shape, members) / 4 * count);
        if !self.oracle.is_free(&cells) {
            return None;
        }
        self.oracle.write(host, cells.clone(), &value, self.is_degraded());
        let bytes = verify::bytes(&value);
        if shape.level.is_striped() {
            self.mark(match Change::new(&config, first, bytes.len()).plan(&config).0 {
                Way::Whole => marks::FULL_STRIPE,
                Way::Delta => marks::DELTA,
                Way::Rest => marks::REST,
                Way::Decode => marks::DECODE,
            });
        }
        Some((Task::Write(cells), client::Work::Write(first, bytes)))
    }

    /// A request was refused: sometimes an operator looks at it.
    fn refused(&mut self) {
        self.mark(marks::REFUSED);
        // A client is evicted, and a member was not in sync.
        let dead = |mark: &Mark| matches!(mark, Mark::Evicted(_, upto) if upto.0 > 0);
        let evicted =
            self.ground.members.iter().any(|node| node.disk.header.log.marks.iter().any(dead));
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
        let host = &self.ground.candidates[index].host;
        if self.now < host.paused_until {
            return;
        }
        let local = host.skew.at(self.now);
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
                    self.oracle.accepted(stripe * width as u64 + index as u64, config.epoch);
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
            (Task::Write(cells), Ok(_)) => {
                let value = self.oracle.writing(cells.clone());
                let registers = value.len() / cells.len();
                let stripe = code::width(&config.shape, config.slots.len()) * CELLS;
                for (first, value) in
                    cells.clone().step_by(stripe).zip(value.chunks(stripe * registers))
                {
                    let cells = first..first + value.len() / registers;
                    let verdict = self.ground.acknowledged(&config, &cells, value);
                    self.require(verdict);
                }
                let (stripe, _) = code::place(&config, (cells.start / CELLS) as u64);
                self.oracle.written(host, cells, epoch);
                self.sent.remove(&(index, stripe));
                if config.shape.level.is_striped() && self.is_degraded() {
                    self.mark(marks::DEGRADED);
                }
            }
            (Task::Write(cells), Err(Failure::Inconsistent)) => {
                self.refused();
                self.oracle.write_refused(host, cells);
            }
            (Task::Read(cells), Err(Failure::Inconsistent)) => {
                self.refused();
                self.oracle.read_refused((host, id), cells);
            }
            (Task::Read(cells), Ok(bytes)) => self.have_read((host, id), cells, &bytes, epoch),
            (Task::Flush(before), Ok(_)) => {
                for (cells, value) in self.oracle.flushed(host, before) {
                    let verdict = self.ground.flushed(&config, host, &cells, &value);
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

    fn have_read(
        &mut self,
        reader: (Host, RequestId),
        cells: Range<usize>,
        bytes: &[u8],
        epoch: Epoch,
    ) {
        let blocks = cells.start / CELLS..cells.end.div_ceil(CELLS);
        let part = bytes.len() / CELLS / blocks.len();
        let bytes = &bytes[cells.start % CELLS * part..][..cells.len() * part];
        match self.oracle.check(reader, cells, &verify::registers(bytes), epoch) {
            Ok(true) => self.mark(marks::TORN_READ),
            Ok(false) => {}
            Err(story) => self.require(Err(story)),
        }
        let config = &self.value.config;
        let recovered = |block: usize| {
            let (stripe, number) = code::place(config, block as u64);
            let columns = code::columns(config.shape.level, config.slots.len(), stripe);
            config.shape.level.is_striped() && !config.is_in_sync(columns[number])
        };
        let several = blocks.len() > 1;
        if blocks.into_iter().any(recovered) {
            self.mark(if several { marks::RUN_RECOVERED } else { marks::RECOVERED });
        }
    }
}
