//! A member's server: gate, drain, durable header, append area.
//!
//! ```text
//!   request ──▶ gate ──▶ medium ──▶ answer         order ──▶ staged ──▶ slot 0 | slot 1 ──▶ answer
//!                │         │                                   │        (by turns, CRC)      ▲
//!                │ refused │ running ───────── drained ────────│──────────────────────────────┘
//!                ▼         ▼                                   ▼
//!             Refused    ends                             gate closes at once
//! ```
//!
//! An order takes effect on the gate at once. Its answer waits until the header is durable *and*
//! every running request that the gate would now refuse has ended: those cannot be recalled. So an
//! answer means that nothing refused will change the medium, even after a restart.
//!
//! A batch of the grant log is appended (`append`). Anything else, and a batch that does not fit,
//! is a new header.
//!
//! A disk of epoch 0 is *blank*: it was never a member. Only an order for this very disk raises it.
//!
//! Invariants: epoch, term, boot and least incarnations never decrease. A request is executed only
//! if its boot, epoch and incarnation are those in force, and *durably* in force.

use std::collections::{BTreeMap, BTreeSet};

use crate::append::{self, Entry};
use crate::broken::{Broken, broken};
use crate::ids::{BootId, CandidateId, ClientId, DiskId, Epoch, Incarnation, OpId, Term};
use crate::message::{Answer, FromMember, Io, Order, Refusal, Stamp, ToMember, Who};
use crate::record::{Log, Position, Record};
use crate::wire::{self, Frame, Malformed, Wire};

/// The sender of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Peer {
    /// A client.
    Client(ClientId),
    /// A coordinator.
    Candidate(CandidateId),
}

/// A request that the medium executes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct IoId(pub u64);

/// An input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A message.
    Message(Peer, ToMember),
    /// The header or the entry of this generation is durable.
    Stored(u64),
    /// The medium has executed a request; bytes of a read.
    Finished(IoId, Vec<u8>),
}

/// An output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Write the header to a slot and flush it; one `Store` or `Append` at a time.
    Store {
        /// 0 or 1.
        slot: usize,
        /// To report when it is durable.
        generation: u64,
        /// The header.
        bytes: Vec<u8>,
    },
    /// Write an entry to the append area and flush it.
    Append {
        /// Byte of the area.
        at: usize,
        /// To report when it is durable.
        generation: u64,
        /// The entry.
        bytes: Vec<u8>,
    },
    /// Execute a request on the medium. Writes may stay volatile until a flush.
    Execute(IoId, Stamp, Io),
    /// Send a message.
    Send(Peer, FromMember),
}

/// What a restart preserves: the header and the log area.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Increments with every version of it.
    pub generation: u64,
    /// The disk; increments with every start.
    pub boot: BootId,
    /// The highest term heard of.
    pub term: Term,
    /// The epoch.
    pub epoch: Epoch,
    /// Lower incarnations are refused.
    pub least: BTreeMap<ClientId, Incarnation>,
    /// The grant log.
    pub log: Log,
}

wire::structures! { Header { generation, boot, term, epoch, least, log } }

impl Frame for Header {
    const KIND: u16 = 5;
}

impl Header {
    /// Of a disk that was just formatted.
    pub fn fresh(disk: DiskId) -> Header {
        Header { generation: 1, boot: BootId::unserved(disk), ..Header::default() }
    }

    /// The newest valid one of the two slots, and its slot; a fresh one if none is.
    pub fn newest(slots: [&[u8]; 2]) -> (usize, Header) {
        let read = |slot: &[u8]| wire::decode::<Header>(slot).ok().map(|(header, _)| header);
        let found = slots.into_iter().enumerate();
        let found = found.filter_map(|(slot, bytes)| Some((slot, read(bytes)?)));
        found.max_by_key(|(_, header)| header.generation).unwrap_or_default()
    }
}

/// An executed request, or one in execution, of one origin.
#[derive(Default)]
struct Window {
    floor: OpId,
    /// True once executed.
    ops: BTreeMap<OpId, bool>,
}

struct Running {
    peer: Peer,
    stamp: Stamp,
    write: bool,
}

/// An answer that waits for the header and for running requests.
struct Waiting {
    generation: u64,
    drain: BTreeSet<IoId>,
    peer: Peer,
    message: FromMember,
}

/// What is being written.
enum Storing {
    Header(Box<Header>),
    /// The area is in use up to this byte then.
    Entry(Entry, usize),
}

/// The state machine.
pub struct Member {
    /// In force at the gate; newer than `stable` while something is being written.
    staged: Header,
    stable: Header,
    /// Batches since the last write began, while they are the only change.
    pending: Option<Vec<Record>>,
    /// Where the last header is: generations may be skipped, so their parity does not tell.
    slot: usize,
    /// Bytes of the append area, and bytes in use.
    area: usize,
    end: usize,
    storing: Option<Storing>,
    running: BTreeMap<IoId, Running>,
    windows: BTreeMap<Who, Window>,
    waiting: Vec<Waiting>,
    next_io: u64,
    /// Probes of leaders that can serve the array, since its start.
    beats: u64,
}

impl Member {
    /// Starts from the two slots of the header and the append area, whose length stays. Nothing is
    /// served until the new boot is durable.
    pub fn start(slots: [&[u8]; 2], area: &[u8], out: &mut Vec<Action>) -> Member {
        let (slot, mut stable) = Header::newest(slots);
        append::replay(&mut stable, area);
        let mut staged = stable.clone();
        staged.generation += 1;
        staged.boot = staged.boot.next();
        let mut member = Member {
            staged,
            stable,
            pending: None,
            slot,
            area: area.len(),
            end: 0,
            storing: None,
            running: BTreeMap::new(),
            windows: BTreeMap::new(),
            waiting: Vec::new(),
            next_io: 0,
            beats: 0,
        };
        member.store(out);
        member
    }

    /// The header that a restart would find.
    pub fn durable(&self) -> &Header {
        &self.stable
    }

    /// Handles an event.
    pub fn handle(&mut self, event: Event, out: &mut Vec<Action>) {
        match event {
            // The boot is not durable yet: two starts might use one number.
            Event::Message(..) if self.stable.boot != self.staged.boot => {}
            Event::Message(peer, ToMember::Data(stamp, io)) => self.request(peer, stamp, io, out),
            Event::Message(peer, ToMember::Control(term, order)) => {
                self.order(peer, term, order, out);
            }
            Event::Stored(generation) => self.stored(generation),
            Event::Finished(io, bytes) => self.finished(io, bytes, out),
        }
        self.store(out);
        self.answer(out);
    }

    fn stored(&mut self, generation: u64) {
        match self.storing.take().expect("something is being written") {
            Storing::Header(header) => {
                self.slot = self.next_slot(generation);
                (self.stable, self.end) = (*header, 0);
            }
            Storing::Entry(entry, end) => {
                entry.apply(&mut self.stable);
                self.end = end;
            }
        }
        assert_eq!(self.stable.generation, generation, "one write at a time");
    }

    fn request(&mut self, peer: Peer, stamp: Stamp, io: Io, out: &mut Vec<Action>) {
        if let Err(refusal) = self.gate(&stamp, true) {
            out.push(Action::Send(peer, FromMember::Refused(stamp.op, refusal)));
            return;
        }
        let window = self.windows.entry(stamp.who).or_default();
        window.floor = window.floor.max(stamp.floor);
        window.ops = window.ops.split_off(&window.floor);
        let write = matches!(io, Io::Write(..));
        if write && !broken(Broken::CopiesExecuted) {
            if stamp.op < window.floor {
                return;
            }
            match window.ops.get(&stamp.op) {
                Some(true) => {
                    out.push(Action::Send(peer, FromMember::Done(stamp.op, Vec::new())));
                    return;
                }
                Some(false) => return,
                None => window.ops.insert(stamp.op, false),
            };
        }
        if io == Io::Check {
            out.push(Action::Send(peer, FromMember::Done(stamp.op, Vec::new())));
            return;
        }
        let id = IoId(self.next_io);
        self.next_io += 1;
        self.running.insert(id, Running { peer, stamp, write });
        out.push(Action::Execute(id, stamp, io));
    }

    /// Whether a request may run. `durably`: the epoch must also survive a restart.
    fn gate(&self, stamp: &Stamp, durably: bool) -> Result<(), Refusal> {
        if stamp.boot != self.staged.boot && !broken(Broken::BootUnchecked) {
            return Err(Refusal::Boot(self.staged.boot));
        }
        match stamp.who {
            Who::Client(client, incarnation) => {
                let least = self.staged.least.get(&client).copied().unwrap_or_default();
                if incarnation < least && !broken(Broken::FenceUnchecked) {
                    return Err(Refusal::Fenced);
                }
            }
            Who::Coordinator(term) if term != self.staged.term => {
                if !broken(Broken::OldResyncRuns) {
                    return Err(Refusal::Term(self.staged.term));
                }
            }
            Who::Coordinator(_) => {}
        }
        let epoch = if durably { self.stable.epoch } else { self.staged.epoch };
        let fits = stamp.epoch == self.staged.epoch && stamp.epoch == epoch;
        if fits || broken(Broken::EpochUnchecked) { Ok(()) } else { Err(Refusal::Epoch(epoch)) }
    }

    fn finished(&mut self, io: IoId, bytes: Vec<u8>, out: &mut Vec<Action>) {
        let Some(Running { peer, stamp, write }) = self.running.remove(&io) else { return };
        if write && let Some(window) = self.windows.get_mut(&stamp.who) {
            window.ops.entry(stamp.op).and_modify(|executed| *executed = true);
        }
        self.waiting.iter_mut().for_each(|waiting| {
            waiting.drain.remove(&io);
        });
        out.push(Action::Send(peer, FromMember::Done(stamp.op, bytes)));
    }

    fn order(&mut self, peer: Peer, term: Term, order: Order, out: &mut Vec<Action>) {
        if term < self.staged.term && !broken(Broken::TermUnchecked) {
            let answer = Answer::Deposed(self.staged.term, self.beats);
            out.push(Action::Send(peer, FromMember::Control(term, self.staged.boot, answer)));
            return;
        }
        if term > self.staged.term {
            self.staged.term = term;
            self.changed();
        }
        let answer = self.adopt(term, order);
        let refused = |running: &Running| self.gate(&running.stamp, false).is_err();
        let drain = self.running.iter().filter(|(_, running)| refused(running));
        let drain = match broken(Broken::NoDrain) {
            true => BTreeSet::new(),
            false => drain.map(|(&io, _)| io).collect(),
        };
        let generation =
            if broken(Broken::AnswersBeforeDurable) { 0 } else { self.staged.generation };
        let message = FromMember::Control(term, self.staged.boot, answer);
        // A copy of an order adds nothing to the answer that already waits.
        if self.waiting.iter().any(|other| (other.peer, &other.message) == (peer, &message)) {
            return;
        }
        self.waiting.push(Waiting { generation, drain, peer, message });
    }

    fn adopt(&mut self, term: Term, order: Order) -> Answer {
        match order {
            Order::Probe(serves) => {
                self.beats += u64::from(serves);
                Answer::Alive(self.staged.epoch)
            }
            Order::ReadLog => Answer::LogIs(self.staged.epoch, self.staged.log.clone()),
            Order::Raise(disk, ..)
                if !self.staged.boot.is_of(disk) && !broken(Broken::RaisesOtherDisk) =>
            {
                Answer::Alive(self.staged.epoch)
            }
            Order::Raise(_, epoch, fences) => {
                if epoch > self.staged.epoch {
                    self.staged.epoch = epoch;
                    self.changed();
                }
                fences.into_iter().for_each(|(client, least)| self.fence(client, least));
                Answer::Raised(self.staged.epoch)
            }
            Order::Fence(client, least) => {
                self.fence(client, least);
                Answer::Fenced(client, least)
            }
            Order::Install(log) => {
                if log.at.term == term && log.at > self.staged.log.at {
                    self.staged.log = log;
                    self.changed();
                }
                Answer::Appended(self.staged.log.at)
            }
            Order::Append(seq, records) => {
                let at = Position { term, seq };
                let before = seq.checked_sub(1).map(|seq| Position { term, seq });
                if before == Some(self.staged.log.at) {
                    self.staged.log.apply(at, &records);
                    // Only appends since the last write: another one.
                    if let Some(pending) = &mut self.pending {
                        pending.extend(records);
                    } else if self.is_written() {
                        self.pending = Some(records);
                    }
                    self.staged.generation += 1;
                }
                Answer::Appended(self.staged.log.at)
            }
        }
    }

    /// Only a header can say what has changed.
    fn changed(&mut self) {
        self.pending = None;
        self.staged.generation += 1;
    }

    /// True if the last write, which may be on its way, contains everything.
    fn is_written(&self) -> bool {
        let last = match &self.storing {
            None => self.stable.generation,
            Some(Storing::Header(header)) => header.generation,
            Some(Storing::Entry(entry, _)) => entry.generation,
        };
        last == self.staged.generation
    }

    fn fence(&mut self, client: ClientId, least: Incarnation) {
        let before = self.staged.least.get(&client).copied();
        let least = before.unwrap_or_default().max(least);
        if before != Some(least) {
            self.staged.least.insert(client, least);
            self.changed();
        }
        self.windows.retain(|who, _| match *who {
            Who::Client(id, incarnation) => id != client || incarnation >= least,
            Who::Coordinator(term) => term >= self.staged.term,
        });
    }

    /// The slot without the newest durable header.
    fn next_slot(&self, generation: u64) -> usize {
        match (broken(Broken::OneSlot), broken(Broken::SlotByNumber)) {
            (true, _) => 0,
            (_, true) => usize::from(generation % 2 == 1),
            _ => 1 - self.slot,
        }
    }

    /// Writes what has changed, one write at a time: an entry, or a header to the other slot.
    fn store(&mut self, out: &mut Vec<Action>) {
        if self.storing.is_some() || self.is_written() {
            return;
        }
        let generation = self.staged.generation;
        if let Some(records) = self.pending.take() {
            let entry = Entry { generation, at: self.staged.log.at, records };
            if self.append(entry, out) {
                return;
            }
        }
        let slot = self.next_slot(generation);
        out.push(Action::Store { slot, generation, bytes: wire::encode(&self.staged) });
        self.storing = Some(Storing::Header(Box::new(self.staged.clone())));
    }

    /// Writes an entry, if it fits.
    fn append(&mut self, entry: Entry, out: &mut Vec<Action>) -> bool {
        let bytes = wire::encode(&entry);
        let length = append::taken(bytes.len());
        let full = self.end + length > self.area;
        if full && broken(Broken::FullAreaDrops) {
            entry.apply(&mut self.stable);
            return true;
        }
        let wrap = full && broken(Broken::AreaWraps) && length <= self.area;
        let at = if wrap { 0 } else { self.end };
        if full && !wrap {
            return false;
        }
        out.push(Action::Append { at, generation: entry.generation, bytes });
        self.storing = Some(Storing::Entry(entry, at + length));
        true
    }

    fn answer(&mut self, out: &mut Vec<Action>) {
        let generation = self.stable.generation;
        self.waiting.retain(|waiting| {
            let ready = waiting.generation <= generation && waiting.drain.is_empty();
            if ready {
                out.push(Action::Send(waiting.peer, waiting.message.clone()));
            }
            !ready
        });
    }
}

#[cfg(test)]
mod tests;
