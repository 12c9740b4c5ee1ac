//! A flash disk: dies with time lines of their own, channels, a buffer, cleaning.
//!
//! ```text
//!   read   command ─▶ die senses each page ─▶ channel ─▶ bus ─▶ answer
//!   write  command ─▶ bus ─▶ buffer ─▶ answer
//!                              └─ page by page to the die that is free first
//! ```
//!
//! A read waits for what its die does. Cleaning makes a host's page cost several programs (see
//! [`amplification`]); sequential writes leave no valid pages behind, and cost one.
//!
//! The disk is full of data: a read of a page that nobody has written takes as long as another.

pub mod amplification;
mod die;
mod entry;

use std::collections::VecDeque;

use random::mix;

use super::agenda::Agenda;
use super::{Answer, Kind, Model, Nanos, Request, SECTOR};
use crate::station::Bus;
use die::Die;
pub use entry::FlashEntry;

/// The parameters of a flash disk.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    /// Size in sectors.
    pub sectors: u64,
    /// Rate of the disk's bus, bytes per second.
    pub bus_rate: u64,
    /// Time of a command on the bus.
    pub command: Nanos,
    /// Number of dies.
    pub dies: usize,
    /// Number of channels.
    pub channels: usize,
    /// Rate of a channel, bytes per second.
    pub channel_rate: u64,
    /// Bytes of a page of a die.
    pub page: u64,
    /// Sensing times of pages: with three bits in a cell a third of the pages has each.
    pub read: Vec<Nanos>,
    /// Time of a program.
    pub program: Nanos,
    /// Time of an erase.
    pub erase: Nanos,
    /// Pages that an erase frees.
    pub block_pages: u32,
    /// Time to suspend a program or an erase for a read; `None` if reads wait.
    pub suspend: Option<Nanos>,
    /// Bytes of the write buffer.
    pub buffer: u64,
    /// From the bytes of a write in the buffer to its answer.
    pub acknowledge: Nanos,
    /// Programs for a page of random writes, in thousandths; 1000 for a fresh disk.
    pub amplification: u64,
    /// Bytes that random writes may use before they amplify: the spare of a fresh disk.
    pub fresh: u64,
    /// The buffer survives a power cut: a flush has nothing to do.
    pub protected: bool,
    /// Time of a flush, besides emptying an unprotected buffer.
    pub flush: Nanos,
}

/// Ends of write streams that count as sequential when they go on.
const STREAMS: usize = 8;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A page is sensed.
    Sensed { read: u32, die: u32, bytes: u32 },
    /// It has crossed the channel.
    Crossed { read: u32, bytes: u32 },
    /// It has crossed the bus.
    Sent { read: u32 },
    /// A write has crossed the bus.
    Received { sector: u64, sectors: u32, durable: bool, tag: u64 },
    /// A program or erase was to end.
    Programmed { die: u32, host: u32 },
    /// A die has finished its reads.
    Retry,
    /// The host has an answer.
    Reply { tag: u64 },
}

/// A read whose pages are not all sent.
#[derive(Clone, Copy, Debug)]
struct Read {
    tag: u64,
    pages: u32,
}

/// A write in the buffer, or before it.
#[derive(Clone, Copy, Debug)]
struct Write {
    sector: u64,
    sectors: u32,
    durable: bool,
    tag: u64,
}

/// A flash disk. See the module's description.
#[derive(Debug)]
pub struct Flash {
    spec: Spec,
    bus: Bus,
    channels: Vec<Bus>,
    dies: Vec<Die>,
    reads: Vec<Read>,
    vacant: Vec<u32>,
    /// Bytes in the buffer, those being programmed included.
    buffered: u64,
    /// Of these, bytes that no die has taken.
    pending: u64,
    /// Copies that cleaning owes, in thousandths of a page.
    copies: u64,
    fresh: u64,
    streams: [u64; STREAMS],
    throttled: VecDeque<Write>,
    /// Bytes that entered the buffer, and that were programmed, ever.
    entered: u64,
    programmed: u64,
    /// Waits until so many bytes are programmed, in order.
    flushes: VecDeque<(u64, u64)>,
    retry: Option<Nanos>,
    agenda: Agenda<Event>,
    answers: Vec<Answer>,
}

impl Flash {
    /// An idle disk.
    ///
    /// # Panics
    /// If the parameters have no die, channel, page or rate.
    pub fn new(spec: Spec) -> Flash {
        assert!(spec.dies > 0 && spec.channels > 0, "a flash disk has dies and channels");
        assert!(spec.page >= SECTOR && !spec.read.is_empty(), "a flash disk has pages");
        let channel = Bus::new(spec.channel_rate, 0);
        Flash {
            bus: Bus::new(spec.bus_rate, 0),
            channels: vec![channel; spec.channels],
            dies: vec![Die::default(); spec.dies],
            reads: Vec::new(),
            vacant: Vec::new(),
            buffered: 0,
            pending: 0,
            copies: 0,
            fresh: spec.fresh,
            streams: [u64::MAX; STREAMS],
            throttled: VecDeque::new(),
            entered: 0,
            programmed: 0,
            flushes: VecDeque::new(),
            retry: None,
            agenda: Agenda::new(),
            answers: Vec::new(),
            spec,
        }
    }

    fn take_read(&mut self, now: Nanos, request: &Request) {
        let (from, to) = (request.sector * SECTOR, request.end() * SECTOR);
        let pages = from / self.spec.page..to.div_ceil(self.spec.page);
        let read = Read { tag: request.tag, pages: (pages.end - pages.start) as u32 };
        let number = self.vacant.pop().unwrap_or(self.reads.len() as u32);
        match self.reads.get_mut(number as usize) {
            Some(place) => *place = read,
            None => self.reads.push(read),
        }
        for page in pages {
            let (start, end) = (page * self.spec.page, (page + 1) * self.spec.page);
            let bytes = (to.min(end) - from.max(start)) as u32;
            let die = (page % self.dies.len() as u64) as usize;
            let level = (mix(page) % self.spec.read.len() as u64) as usize;
            let sensed = self.dies[die].read(
                now + self.spec.command,
                self.spec.read[level],
                self.spec.suspend,
            );
            self.agenda.add(sensed, Event::Sensed { read: number, die: die as u32, bytes });
        }
    }

    fn take_flush(&mut self, now: Nanos, tag: u64) {
        if self.spec.protected {
            return self.agenda.add(now + self.spec.flush, Event::Reply { tag });
        }
        self.flushes.push_back((self.entered, tag));
        self.settle_flushes(now);
        self.program(now);
    }

    fn settle_flushes(&mut self, now: Nanos) {
        while let Some(&(goal, tag)) = self.flushes.front()
            && self.programmed >= goal
        {
            self.flushes.pop_front();
            self.agenda.add(now + self.spec.flush, Event::Reply { tag });
        }
    }

    /// Takes waiting writes into the buffer while there is room.
    fn admit(&mut self, now: Nanos) {
        while let Some(&write) = self.throttled.front() {
            let bytes = u64::from(write.sectors) * SECTOR;
            // A write of more than the buffer passes through it alone.
            if self.buffered > 0 && self.buffered + bytes > self.spec.buffer {
                break;
            }
            self.throttled.pop_front();
            self.buffered += bytes;
            self.pending += bytes;
            self.entered += bytes;
            self.owe(write.sector, write.sectors);
            if write.durable && !self.spec.protected {
                self.flushes.push_back((self.entered, write.tag));
            } else {
                self.agenda.add(now + self.spec.acknowledge, Event::Reply { tag: write.tag });
            }
        }
        self.program(now);
    }

    /// Counts the copies that a write causes later, unless it goes on with a stream.
    fn owe(&mut self, sector: u64, sectors: u32) {
        let end = sector + u64::from(sectors);
        if let Some(stream) = self.streams.iter_mut().find(|stream| **stream == sector) {
            *stream = end;
            return;
        }
        self.streams.rotate_right(1);
        self.streams[0] = end;
        let bytes = u64::from(sectors) * SECTOR;
        let free = bytes.min(self.fresh);
        self.fresh -= free;
        self.copies += (bytes - free) * (self.spec.amplification - 1000) / self.spec.page;
    }

    /// Gives pages of the buffer and of cleaning to idle dies.
    fn program(&mut self, now: Nanos) {
        loop {
            let copy = self.copies >= 1000;
            // A flush does not wait for a page to fill.
            let some = self.pending >= self.spec.page
                || (self.pending > 0 && (!self.flushes.is_empty() || !self.throttled.is_empty()));
            if !copy && !some {
                return;
            }
            let idle = self.dies.iter().enumerate().filter(|(_, die)| die.is_idle());
            let Some((index, die)) = idle.min_by_key(|(_, die)| die.free_at()) else { return };
            if die.free_at() > now {
                let at = die.free_at();
                if self.retry.is_none_or(|retry| retry > at) {
                    self.retry = Some(at);
                    self.agenda.add(at, Event::Retry);
                }
                return;
            }
            let host = if copy { 0 } else { self.pending.min(self.spec.page) };
            self.start(now, index, host);
        }
    }

    /// A die programs a page: of the host, or a copy, which it reads itself.
    fn start(&mut self, now: Nanos, index: usize, host: u64) {
        let channels = self.channels.len();
        let crossed = match host {
            0 => now + self.spec.read[0],
            bytes => self.channels[index % channels].carry(now, bytes),
        };
        if host == 0 {
            self.copies -= 1000;
        }
        self.pending -= host;
        let die = &mut self.dies[index];
        die.programs += 1;
        let mut until = crossed + self.spec.program;
        if die.programs == self.spec.block_pages {
            die.programs = 0;
            until += self.spec.erase;
        }
        die.start(crossed, until);
        let host = host as u32;
        self.agenda.add(until, Event::Programmed { die: index as u32, host });
    }

    fn happen(&mut self, now: Nanos, event: Event) {
        match event {
            Event::Sensed { read, die, bytes } => {
                let channel = die as usize % self.channels.len();
                let crossed = self.channels[channel].carry(now, u64::from(bytes));
                self.agenda.add(crossed, Event::Crossed { read, bytes });
            }
            Event::Crossed { read, bytes } => {
                let sent = self.bus.carry(now, u64::from(bytes));
                self.agenda.add(sent, Event::Sent { read });
            }
            Event::Sent { read } => {
                let pending = &mut self.reads[read as usize];
                pending.pages -= 1;
                if pending.pages == 0 {
                    self.answers.push(Answer { tag: pending.tag, at: now });
                    self.vacant.push(read);
                }
            }
            Event::Received { sector, sectors, durable, tag } => {
                self.throttled.push_back(Write { sector, sectors, durable, tag });
                self.admit(now);
            }
            Event::Programmed { die, host } => self.programmed(now, die, host),
            Event::Retry => {
                self.retry = None;
                self.program(now);
            }
            Event::Reply { tag } => self.answers.push(Answer { tag, at: now }),
        }
    }

    fn programmed(&mut self, now: Nanos, die: u32, host: u32) {
        if let Some(later) = self.dies[die as usize].finish(now) {
            return self.agenda.add(later, Event::Programmed { die, host });
        }
        self.buffered -= u64::from(host);
        self.programmed += u64::from(host);
        self.settle_flushes(now);
        self.admit(now);
    }

    fn run(&mut self, now: Nanos) {
        while let Some((at, event)) = self.agenda.take(now) {
            self.happen(at, event);
        }
    }
}

impl Model for Flash {
    fn submit(&mut self, now: Nanos, request: Request) {
        assert!(request.end() <= self.sectors(), "{request:?} reaches beyond the disk");
        self.run(now);
        match request.kind {
            Kind::Read => self.take_read(now, &request),
            Kind::Flush => self.take_flush(now, request.tag),
            Kind::Write => {
                let Request { tag, sector, sectors, durable, .. } = request;
                let bytes = u64::from(sectors) * SECTOR;
                let received = self.bus.carry(now + self.spec.command, bytes);
                self.agenda.add(received, Event::Received { sector, sectors, durable, tag });
            }
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        let answered = self.answers.first().map(|answer| answer.at);
        [answered, self.agenda.next()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Nanos, answers: &mut Vec<Answer>) {
        self.run(now);
        answers.append(&mut self.answers);
    }

    fn sectors(&self) -> u64 {
        self.spec.sectors
    }
}
