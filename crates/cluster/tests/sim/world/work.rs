//! The workload: each client reads, writes and flushes under the locks of the upper layer.

use cluster::client::{self, Failure};
use cluster::ids::{ClientId, RequestId};

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
                let pieces = self.ground.config.shape;
                let members = self.ground.config.slots.len();
                let count = cluster::code::block_bytes(&pieces, members) / 8;
                let value: Vec<u64> = (0..count as u64)
                    .map(|piece| crate::rng::mix(self.next_value + piece) | 1)
                    .collect();
                self.next_value += 16;
                let degraded = self.is_degraded();
                if !self.oracle.write(host, block as usize, &value, degraded) {
                    return;
                }
                (Task::Write(block), client::Work::Write(block, verify::bytes(&value)))
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
            (Task::Write(block), Ok(_)) => {
                let active = self.oracle.blocks[block as usize].active.clone();
                let (_, value) = active.expect("the writer has the lock");
                let verdict = self.ground.acknowledged(&config, block, &value);
                self.require(verdict);
                self.oracle.written(host, block as usize, epoch);
            }
            (Task::Read(block), Ok(bytes)) => {
                let value: Vec<u64> = bytes.chunks(8).map(crate::medium::number).collect();
                match self.oracle.check((host, id), block as usize, &value, epoch) {
                    Ok(true) => self.mark(marks::TORN_READ),
                    Ok(false) => {}
                    Err(story) => self.require(Err(story)),
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
