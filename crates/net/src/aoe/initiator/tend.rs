//! Tending the paths: new ones are found, suspect and narrow ones are probed.
//!
//! ```text
//!   every 10 s, and when a port comes up   query ──▶ all     answers: known paths, or new ports
//!                                          IDENTIFY ──▶ new port: the same device? then a path
//!   every second                           READs ──▶ suspect path, one small and one large
//!   every 10 s                             READ ──▶ narrow path, large
//! ```
//!
//! Probes are READs that carry data of their size, as those of Linux, so that they have that size
//! in both directions. Their tags have bit 31: they are not counted.

use io::link::HEAD_BYTES;
use io::{Frame, Mac, Time};

use super::super::discover::{answer, identify_question, question};
use super::super::wire::ata::Ata;
use super::super::wire::identify::Identity;
use super::super::wire::query::Query;
use super::super::wire::{HEADER_BYTES, Header, SECTOR, VERSION, command, sectors_of};
use super::path::{PROBE_EVERY, Path, SMALL_SECTORS};
use super::port::Port;
use super::{Break, MAX_PATHS, Shared, is_same};

/// So many turns of [`PROBE_EVERY`] pass between two questions who is there.
const DISCOVER_TURNS: u64 = 10;
/// The most new ports that are asked at once which device they serve.
const MAX_CANDIDATES: usize = 16;
/// Answers to probes are awaited for so many turns.
const PROBE_TURNS: u64 = 5;
/// The bit of tags that are not counted.
const UNCOUNTED: u32 = 1 << 31;

/// Questions that are not about an operation.
#[derive(Default)]
pub(super) struct Tending {
    turn: u64,
    tag: u32,
    probes: Vec<Probe>,
    candidates: Vec<Candidate>,
}

/// A READ that shows whether a path works.
struct Probe {
    tag: u32,
    path: usize,
    sectors: u8,
    sent: Time,
    turn: u64,
}

/// A port that may be one more of our target.
struct Candidate {
    tag: u32,
    port: usize,
    mac: Mac,
    query: Query,
    turn: u64,
}

impl Tending {
    fn next_tag(&mut self) -> u32 {
        self.tag = self.tag.wrapping_add(1);
        self.tag | UNCOUNTED
    }
}

/// Asks and probes, for ever.
pub(super) async fn tend(shared: &Shared) {
    loop {
        shared.clock.sleep_until(shared.clock.now() + PROBE_EVERY).await;
        let turn = {
            let mut tending = shared.tending.borrow_mut();
            tending.turn += 1;
            let turn = tending.turn;
            tending.probes.retain(|it| turn - it.turn < PROBE_TURNS);
            tending.candidates.retain(|it| turn - it.turn < PROBE_TURNS);
            turn
        };
        if turn.is_multiple_of(DISCOVER_TURNS) {
            (0..shared.ports.len()).for_each(|port| shared.ask(port));
        }
        shared.probe(turn.is_multiple_of(DISCOVER_TURNS));
        shared.submitted.raise();
    }
}

impl Shared {
    /// The state of a port has changed.
    pub(super) fn port_changed(&self, port: usize) {
        let is_up = self.ports[port].is_up();
        let ours = sectors_of(self.ports[port].state.get().mtu);
        for path in self.paths.borrow_mut().iter_mut().filter(|path| path.port == port) {
            path.fit(ours);
            path.trust();
        }
        if is_up {
            self.ask(port);
        } else {
            self.ports[port].outbox.borrow_mut().clear();
        }
        // At once: frames that the port, or its MTU, does not let through are not answered.
        self.send_again(|path, sectors| {
            let path = &self.paths.borrow()[path];
            path.port == port && (!is_up || sectors > path.sectors())
        });
        self.submitted.raise();
    }

    /// Asks at a port who serves the target.
    fn ask(&self, port: usize) {
        let Port { link, outbox, .. } = &self.ports[port];
        if self.ports[port].is_up() {
            outbox.borrow_mut().push_back(question(link.address(), self.address));
        }
    }

    /// Probes suspect paths, and narrow ones if wanted.
    fn probe(&self, narrow_ones: bool) {
        let mut wanted = Vec::new();
        for (at, path) in self.paths.borrow().iter().enumerate() {
            let (small, large) = (path.room().min(SMALL_SECTORS), path.room());
            if small == 0 || !self.ports[path.port].is_up() {
                continue;
            }
            if path.is_suspect() {
                wanted.push((at, small));
            }
            if large > small && (path.is_suspect() || path.is_narrow() && narrow_ones) {
                wanted.push((at, large));
            }
        }
        for (path, sectors) in wanted {
            self.send_probe(path, sectors);
        }
    }

    fn send_probe(&self, at: usize, sectors: u8) {
        let Path { port, mac, .. } = self.paths.borrow()[at];
        let mut tending = self.tending.borrow_mut();
        let (tag, turn, sent) = (tending.next_tag(), tending.turn, self.clock.now());
        tending.probes.push(Probe { tag, path: at, sectors, sent, turn });
        let mut head = [0; HEAD_BYTES];
        let header = Header {
            destination: mac,
            source: self.ports[port].link.address(),
            version: VERSION,
            response: false,
            error: None,
            address: self.address,
            command: command::ATA,
            tag,
        };
        header.put(&mut head);
        Ata::transfer(false, 0, sectors).put(&mut head[HEADER_BYTES..]);
        let padding = self.pool.take_zeroed(usize::from(sectors) * SECTOR).freeze();
        self.ports[port].outbox.borrow_mut().push_back(Frame::with_body(head, padding));
    }

    /// Takes the answer to a probe or to a candidate's question; false if it is neither.
    pub(super) fn accept_probe(&self, header: &Header, frame: &Frame, now: Time) -> bool {
        if header.tag & UNCOUNTED == 0 {
            return false;
        }
        let mut tending = self.tending.borrow_mut();
        if let Some(at) = tending.probes.iter().position(|it| it.tag == header.tag) {
            let Probe { path, sectors, sent, .. } = tending.probes.swap_remove(at);
            // A short answer, such as an error, shows only that small frames pass.
            let is_whole = frame.body().len() >= usize::from(sectors) * SECTOR;
            let sectors = if is_whole { sectors } else { sectors.min(SMALL_SECTORS) };
            self.paths.borrow_mut()[path].heard(now - sent, sectors);
            self.hear(now);
        } else if let Some(at) = tending.candidates.iter().position(|it| it.tag == header.tag) {
            let candidate = tending.candidates.swap_remove(at);
            let identity = Identity::parse(frame.body());
            let is_ours = identity.is_some_and(|it| is_same(&it, &self.identity));
            if header.error.is_none() && header.source == candidate.mac && is_ours {
                self.add_path(&candidate);
            }
        }
        true
    }

    fn add_path(&self, found: &Candidate) {
        let mut paths = self.paths.borrow_mut();
        let is_known = paths.iter().any(|it| (it.port, it.mac) == (found.port, found.mac));
        if !is_known && paths.len() < MAX_PATHS {
            let ours = sectors_of(self.ports[found.port].state.get().mtu);
            let Query { buffers, sectors, .. } = found.query;
            paths.push(Path::new(found.port, found.mac, buffers, sectors, ours));
        }
    }

    /// Takes the answer to the question who serves the target, or an announcement of it.
    pub(super) fn accept_query(&self, port: usize, header: &Header, frame: &Frame, now: Time) {
        let Some(found) = answer(frame) else { return };
        let is_announcement = header.tag == 0;
        let mut was_suspect = false;
        let ours = sectors_of(self.ports[port].state.get().mtu);
        let known =
            self.paths.borrow().iter().position(|it| (it.port, it.mac) == (port, found.mac));
        match known {
            Some(at) => {
                let path = &mut self.paths.borrow_mut()[at];
                path.announced(found.query.buffers, found.query.sectors, ours);
                was_suspect = path.is_suspect();
                if is_announcement {
                    path.trust();
                }
            }
            None => self.ask_candidate(port, found.mac, found.query),
        }
        if is_announcement {
            self.report(Break::Announcement);
            // Frames of a target that was away are not awaited any longer.
            if was_suspect {
                self.send_again(|path, _| Some(path) == known);
            }
        } else {
            self.hear(now);
        }
    }

    /// Asks a port that is not on a path which device it serves.
    fn ask_candidate(&self, port: usize, mac: Mac, query: Query) {
        let mut tending = self.tending.borrow_mut();
        let Tending { candidates, .. } = &*tending;
        let is_asked = candidates.iter().any(|it| (it.port, it.mac) == (port, mac));
        if is_asked || candidates.len() == MAX_CANDIDATES || mac.is_group() {
            return;
        }
        let (tag, turn) = (tending.next_tag(), tending.turn);
        let query = Query { text: Vec::new(), ..query };
        tending.candidates.push(Candidate { tag, port, mac, query, turn });
        let Port { link, outbox, .. } = &self.ports[port];
        let question = identify_question(link.address(), mac, self.address, tag);
        outbox.borrow_mut().push_back(question);
    }
}
