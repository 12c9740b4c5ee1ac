//! Frames on their way: out by a path with room, again if they are overdue, and their answers.

use io::link::HEAD_BYTES;
use io::{ErrorKind, Frame, Time};

use super::super::wire::ata::{Ata, error, opcode, status};
use super::super::wire::{self, HEADER_BYTES, Header, VERSION, command};
use super::operation::{Next, Piece};
use super::{BEAT, Copy, InFlight, Shared, Work};

impl Shared {
    /// Sends as much as the paths take.
    pub(super) fn pump(&self) {
        loop {
            let now = self.clock.now();
            let Some(path) = self.free_path(now) else { return };
            let sectors = self.paths.borrow()[path].sectors();
            let mut work = self.work.borrow_mut();
            let work = &mut *work;
            let number = match work.again.pop_front() {
                Some(number) if !work.frames.contains_key(&number) => continue,
                Some(number) => number,
                None => match self.make_frame(work, sectors) {
                    Some(number) => number,
                    None => return,
                },
            };
            if work.frames[&number].piece.ata.sectors > sectors {
                self.divide(work, number, sectors);
                continue;
            }
            self.transmit(work, number, path, now);
        }
    }

    /// The next path after the last one that takes a frame; a suspect one only if all are.
    fn free_path(&self, now: Time) -> Option<usize> {
        let paths = self.paths.borrow();
        let is_usable =
            |at: &usize| self.ports[paths[*at].port].is_up() && paths[*at].sectors() > 0;
        let after = |step| (self.turn.get() + step) % paths.len();
        let order = || (1..=paths.len()).map(after).filter(is_usable);
        let is_suspect = order().all(|at| paths[at].is_suspect());
        order().find(|&at| paths[at].is_suspect() == is_suspect && paths[at].takes(now))
    }

    /// Makes the next frame of the first operation that has one.
    fn make_frame(&self, work: &mut Work, sectors: u8) -> Option<u64> {
        let mut at = 0;
        while let Some(&number) = work.unsent.get(at) {
            let Some(mut operation) = work.operations.remove(&number) else {
                work.unsent.remove(at);
                continue;
            };
            let waits = operation.must_wait(|earlier| work.operations.contains_key(&earlier));
            let next = match waits {
                true => Next::Blocked,
                false => {
                    operation.next_piece(sectors, |sectors| work.unsettled.blocks(sectors, number))
                }
            };
            work.operations.insert(number, operation);
            match next {
                Next::Blocked => at += 1,
                Next::Nothing => drop(work.unsent.remove(at)),
                Next::Piece(piece) => return Some(put(work, number, piece)),
            }
        }
        None
    }

    /// Replaces a frame by several of at most so many sectors, to be sent at once.
    fn divide(&self, work: &mut Work, number: u64, sectors: u8) {
        let InFlight { operation, piece, .. } = self.forget(work, number);
        let whole = work.operations.get_mut(&operation).expect("it ends with its frames");
        for part in whole.divide(&piece, sectors).into_iter().rev() {
            let part = put(work, operation, part);
            work.again.push_front(part);
        }
    }

    fn transmit(&self, work: &mut Work, number: u64, path: usize, now: Time) {
        let tag = work.next_tag();
        let mut paths = self.paths.borrow_mut();
        let overdue = now + paths[path].sent(now);
        self.turn.set(path);
        let (port, mac) = (&self.ports[paths[path].port], paths[path].mac);
        let frame = work.frames.get_mut(&number).expect("it was looked up by the caller");
        let operation = work.operations.get(&frame.operation).expect("it ends with its frames");
        frame.copies.push(Copy { tag, path, sent: now, counts: true });
        frame.overdue = Some(overdue);
        work.tags.insert(tag, number);
        let header = Header {
            destination: mac,
            source: port.link.address(),
            version: VERSION,
            response: false,
            error: None,
            address: self.address,
            command: command::ATA,
            tag,
        };
        let mut head = [0; HEAD_BYTES];
        header.put(&mut head);
        frame.piece.ata.put(&mut head[HEADER_BYTES..]);
        let frame = match operation.payload(&frame.piece, &self.pool) {
            Some(data) => Frame::with_body(head, data),
            None => Frame::new(&head),
        };
        port.outbox.borrow_mut().push_back(frame);
    }

    /// Takes a frame from the wire.
    pub(super) fn accept(&self, port: usize, frame: &Frame) {
        let Some(header) = Header::parse(frame.head()) else { return };
        if !header.response || header.address != self.address {
            return;
        }
        let now = self.clock.now();
        match header.command {
            command::ATA if !self.accept_probe(&header, frame, now) => {
                self.accept_answer(&header, frame, now);
            }
            command::QUERY => self.accept_query(port, &header, frame, now),
            _ => {}
        }
    }

    /// Takes the answer to a frame of an operation.
    fn accept_answer(&self, header: &Header, frame: &Frame, now: Time) {
        let Some(ata) = frame.head().get(HEADER_BYTES..).and_then(Ata::parse) else { return };
        let mut work = self.work.borrow_mut();
        let work = &mut *work;
        let Some(&number) = work.tags.get(&header.tag) else {
            if work.unsettled.answered(header.tag) {
                self.hear(now);
            }
            return;
        };
        let in_flight = work.frames.get_mut(&number).expect("its tags end with it");
        let piece = &in_flight.piece;
        let mut outcome = match header.error.map(wire::Error::of) {
            // It may serve later: the frame is sent again until its deadline.
            Some(Some(wire::Error::Unavailable)) => None,
            Some(Some(wire::Error::Reserved)) => Some(Err(ErrorKind::Fenced)),
            Some(_) => Some(Err(ErrorKind::Refused)),
            None if ata.command & status::BAD != 0 => Some(Err(piece.fault(ata.feature))),
            None => Some(Ok(())),
        };
        if piece.ata.is_read() && outcome == Some(Ok(())) && frame.body().len() < piece.bytes() {
            outcome = None;
        }
        self.hear(now);
        let sectors = piece.ata.sectors;
        work.tags.remove(&header.tag);
        let at = in_flight.copies.iter().position(|copy| copy.tag == header.tag);
        let copy = in_flight.copies.remove(at.expect("a tag in use is a copy's"));
        {
            let path = &mut self.paths.borrow_mut()[copy.path];
            match copy.counts {
                true => path.answered(now - copy.sent, sectors),
                false => path.heard(now - copy.sent, sectors),
            }
        }
        if let Some(outcome) = outcome {
            let in_flight = self.forget(work, number);
            self.end_frame(work, &in_flight, ata, frame.body(), outcome);
        }
    }

    /// Gives the outcome of a frame to its operation.
    fn end_frame(
        &self,
        work: &mut Work,
        in_flight: &InFlight,
        ata: Ata,
        data: &[u8],
        outcome: Result<(), ErrorKind>,
    ) {
        let InFlight { operation: number, piece, .. } = in_flight;
        let operation = work.operations.get_mut(number).expect("it ends with its frames");
        if outcome == Err(ErrorKind::Refused)
            && ata.feature & error::ABORTED != 0
            && piece.ata.command == opcode::FLUSH_EXT
        {
            operation.flush_the_short_way();
            work.unsent.push_back(*number);
            return;
        }
        operation.end_piece(piece, data, outcome, self.address);
        self.finish_if_done(work, *number);
    }

    /// Removes a frame. Its copies that were sent and not answered may still arrive.
    fn forget(&self, work: &mut Work, number: u64) -> InFlight {
        let in_flight = work.frames.remove(&number).expect("it was looked up by the caller");
        let mut paths = self.paths.borrow_mut();
        let (mut tags, mut sent) = (Vec::new(), Time::default());
        for copy in &in_flight.copies {
            work.tags.remove(&copy.tag);
            let path = &mut paths[copy.path];
            if copy.counts {
                path.given_up();
            }
            // What has not left our outbox never will.
            let mut outbox = self.ports[path.port].outbox.borrow_mut();
            let waiting = outbox.len();
            outbox.retain(|frame| Header::parse(frame.head()).is_none_or(|it| it.tag != copy.tag));
            if outbox.len() == waiting {
                tags.push(copy.tag);
                sent = sent.max(copy.sent);
            }
        }
        if in_flight.piece.ata.is_write() {
            work.unsettled.add(in_flight.piece.sectors(), in_flight.operation, tags, sent);
        }
        in_flight
    }

    fn finish_if_done(&self, work: &mut Work, number: u64) {
        let operation = work.operations.get_mut(&number).expect("the caller has it");
        if !operation.is_done() {
            return;
        }
        if operation.needs_flush() {
            operation.flush();
            work.unsent.push_back(number);
            return;
        }
        let operation = work.operations.remove(&number).expect("just looked up");
        let (ticket, done) = operation.end();
        self.answers.finish(ticket, done);
    }

    /// Sends overdue frames again, and fails operations that are past their deadline.
    fn look_at_the_clock(&self) {
        let now = self.clock.now();
        let mut work = self.work.borrow_mut();
        let work = &mut *work;
        work.unsettled.expire(now);
        for (&number, frame) in &mut work.frames {
            if frame.overdue.is_none_or(|overdue| overdue > now) {
                continue;
            }
            // None if the target has answered that it cannot serve now.
            if let Some(copy) = frame.copies.last_mut().filter(|copy| copy.counts) {
                copy.counts = false;
                let sectors = frame.piece.ata.sectors;
                self.paths.borrow_mut()[copy.path].timed_out(copy.sent, now, sectors);
            }
            frame.overdue = None;
            work.again.push_back(number);
        }
        let late = work.operations.iter().filter(|(_, it)| it.deadline() <= now);
        let late: Vec<u64> = late.map(|(&number, _)| number).collect();
        for number in late {
            let frames = work.frames.iter().filter(|(_, frame)| frame.operation == number);
            let frames: Vec<u64> = frames.map(|(&frame, _)| frame).collect();
            for frame in frames {
                self.forget(work, frame);
            }
            let operation = work.operations.remove(&number).expect("just listed");
            let why = format!("aoe:{}: no answer in time", self.address);
            let (ticket, done) = operation.give_up(ErrorKind::Timeout, why);
            self.answers.finish(ticket, done);
        }
        self.listen(work, now);
    }

    /// Sends frames again, of so many sectors, whose newest copies went by a path that does not
    /// carry them now.
    pub(super) fn send_again(&self, is_concerned: impl Fn(usize, u8) -> bool) {
        let mut work = self.work.borrow_mut();
        let work = &mut *work;
        for (&number, frame) in &mut work.frames {
            let Some(copy) = frame.copies.last_mut() else { continue };
            if frame.overdue.is_none() || !is_concerned(copy.path, frame.piece.ata.sectors) {
                continue;
            }
            if std::mem::take(&mut copy.counts) {
                self.paths.borrow_mut()[copy.path].given_up();
            }
            frame.overdue = None;
            work.again.push_back(number);
        }
    }
}

/// Adds a frame that was not sent yet.
fn put(work: &mut Work, operation: u64, piece: Piece) -> u64 {
    let number = work.number();
    let frame = InFlight { operation, piece, copies: Vec::new(), overdue: None };
    work.frames.insert(number, frame);
    number
}

/// Looks for timeouts while there is work.
pub(super) async fn beat(shared: &Shared) {
    loop {
        while shared.work.borrow().operations.is_empty() {
            shared.quiet.since.set(None);
            shared.submitted.wait().await;
        }
        shared.clock.sleep_until(shared.clock.now() + BEAT).await;
        shared.look_at_the_clock();
        shared.submitted.raise();
    }
}
