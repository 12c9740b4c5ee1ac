//! ATA commands of a LUN.
//!
//! What a client must learn (past the end, medium error, array failed) goes into the ATA status:
//! Linux fails the request at once. An answer with the AoE error flag would make it repeat the
//! request for minutes.

use std::rc::Rc;

use io::broken::{Broken, broken};
use io::link::{ETHERNET_BYTES, HEAD_BYTES};
use io::{ErrorKind, Frame, Op, SharedBuf};

use super::super::wire::ata::{Ata, error, opcode};
use super::super::wire::smart::{self, Health, feature};
use super::super::wire::{ATA_HEADER_BYTES, Error, HEADER_BYTES, Header, SECTOR};
use super::access::Use;
use super::flights::{Copy, Flight, Payload, Taken};
use super::history::{Content, fingerprint};
use super::port::Port;
use super::{Arrival, Lun, Shared};

// The seam cuts frames where the data of an ATA command begins.
const _: () = assert!(ATA_HEADER_BYTES == HEAD_BYTES);

impl Shared {
    /// Carries out an ATA command.
    pub(super) fn ata(self: &Rc<Self>, lun: &Rc<Lun>, arrival: &Arrival<'_>) -> Result<(), Error> {
        let Arrival { port, header, frame } = *arrival;
        let argument = frame.head().get(HEADER_BYTES..).and_then(Ata::parse);
        let ata = argument.ok_or(Error::Argument)?;
        if ata.command == opcode::IDENTIFY {
            let sector = lun.identity().to_sector();
            self.answer_sector(lun, port, header, ata.done(), &sector);
            return Ok(());
        }
        // Of all commands only that one is meant for whoever is there.
        if header.address.is_broadcast() {
            return Err(Error::Argument);
        }
        match ata.command {
            _ if ata.is_read() || ata.is_write() => self.transfer(lun, arrival, ata),
            opcode::FLUSH | opcode::FLUSH_EXT => {
                self.flush(lun, port, header, ata);
                Ok(())
            }
            opcode::CHECK_POWER => {
                // Active: the sector count says so.
                let done = Ata { sectors: 0xff, ..ata.done() };
                self.answer(lun, port, header, done, None);
                Ok(())
            }
            opcode::SMART => {
                self.smart(lun, port, header, ata);
                Ok(())
            }
            _ => {
                self.answer(lun, port, header, ata.failed(error::ABORTED), None);
                Ok(())
            }
        }
    }

    /// Reads or writes sectors.
    fn transfer(
        self: &Rc<Self>,
        lun: &Rc<Lun>,
        arrival: &Arrival<'_>,
        ata: Ata,
    ) -> Result<(), Error> {
        let Arrival { port, header, frame } = *arrival;
        let bytes = usize::from(ata.sectors) * SECTOR;
        // What the frame can hold, which is more than the announced number.
        let room = (port.link.state().mtu as usize + ETHERNET_BYTES).saturating_sub(HEAD_BYTES);
        if bytes == 0 || bytes > room {
            return Err(Error::Argument);
        }
        let wanted = if ata.is_write() { Use::Write } else { Use::Read };
        if !lun.state().reservation.permits(header.source, wanted) {
            return Err(Error::Reserved);
        }
        let data = match wanted {
            Use::Write => Some(frame.share_body(bytes).ok_or(Error::Argument)?),
            Use::Read => None,
        };
        let first = ata.first_sector();
        if first + u64::from(ata.sectors) > lun.sectors() {
            self.answer(lun, port, header, ata.failed(error::NOT_FOUND), None);
            return Ok(());
        }
        if wanted == Use::Write && lun.is_read_only() {
            self.answer(lun, port, header, ata.failed(error::ABORTED), None);
            return Ok(());
        }
        self.take(lun, Copy { port: Rc::clone(port), header, ata }, data);
        Ok(())
    }

    /// Takes a permitted transfer in, unless it is a copy of another.
    fn take(self: &Rc<Self>, lun: &Rc<Lun>, copy: Copy, data: Option<SharedBuf>) {
        let Header { source, tag, .. } = copy.header;
        let (first, sectors) = (copy.ata.first_sector(), copy.ata.sectors);
        lun.history.borrow_mut().tick(self.now());
        lun.history.borrow_mut().note(source, tag);
        let payload = data.map(|data| Payload { print: fingerprint(&data), data });
        if let Some(Payload { print, .. }) = payload {
            let content = Content { first, sectors, print };
            if lun.history.borrow().is_repeated(source, tag, content)
                && !broken(Broken::AoeLateExecuted)
            {
                self.count(|dropped| &mut dropped.late);
                return self.answer(lun, &copy.port, copy.header, copy.ata.done(), None);
            }
        }
        let flight = Flight::new(first, sectors, payload, copy);
        let taken = lun.flights.borrow_mut().take(flight);
        match taken {
            Taken::Start(serial) => self.note_start(lun, serial),
            Taken::Waits => {}
            Taken::Joined => self.count(|dropped| &mut dropped.repeated),
            Taken::Full => self.count(|dropped| &mut dropped.overload),
        }
    }

    /// Notes a request that has waited for a write, to be started; unless it has turned out to be a
    /// late copy of a write that this one has overwritten.
    fn release(&self, lun: &Rc<Lun>, serial: u64) {
        let is_late = {
            let (flights, history) = (lun.flights.borrow(), lun.history.borrow());
            let content = flights.get(serial).content();
            let is_repeated = |copy: &Copy| {
                let Header { source, tag, .. } = copy.header;
                content.is_some_and(|content| history.is_repeated(source, tag, content))
            };
            flights.get(serial).copies.iter().all(is_repeated)
        };
        if !is_late || broken(Broken::AoeLateExecuted) {
            return self.note_start(lun, serial);
        }
        let (flight, released) = lun.flights.borrow_mut().end(serial);
        for Copy { port, header, ata } in flight.copies {
            self.count(|dropped| &mut dropped.late);
            self.answer(lun, &port, header, ata.done(), None);
        }
        released.into_iter().for_each(|serial| self.release(lun, serial));
    }

    /// Answers a request that the disk has ended, and notes those that waited for it.
    pub(super) fn end(
        &self,
        lun: &Rc<Lun>,
        serial: u64,
        result: Result<(), ErrorKind>,
        data: Option<SharedBuf>,
    ) {
        let (flight, released) = lun.flights.borrow_mut().end(serial);
        lun.history.borrow_mut().tick(self.now());
        let content = flight.content();
        for Copy { port, header, ata } in flight.copies {
            if let (Some(content), Ok(())) = (content, &result) {
                lun.history.borrow_mut().record(header.source, header.tag, content);
            }
            self.answer(lun, &port, header, outcome(ata, result), data.clone());
        }
        released.into_iter().for_each(|serial| self.release(lun, serial));
        if lun.flights.borrow().is_empty() {
            lun.quiet.raise();
        }
    }

    fn flush(self: &Rc<Self>, lun: &Rc<Lun>, port: &Rc<Port>, header: Header, ata: Ata) {
        let answer = lun.disk.submit(Op::flush());
        let (shared, lun, port) = (Rc::clone(self), Rc::clone(lun), Rc::clone(port));
        self.tasks.spawn(async move {
            let result = answer.await.result;
            let outcome = outcome(ata, result.as_ref().map_err(io::Error::kind).copied());
            shared.answer(&lun, &port, header, outcome, None);
        });
    }

    /// SMART. Every answer has a sector: aoeping takes no shorter one, also where ATA has no data.
    fn smart(&self, lun: &Lun, port: &Rc<Port>, header: Header, ata: Ata) {
        let health: Health = self.host.health(lun.address());
        let no_data = [0; SECTOR];
        let is_signed = ata.lba[1..3] == smart::SIGNATURE;
        let (done, sector) = match ata.feature {
            _ if !is_signed => (ata.failed(error::ABORTED), no_data),
            feature::READ_DATA => (ata.done(), health.to_data()),
            feature::READ_THRESHOLDS => (ata.done(), health.to_thresholds()),
            feature::READ_LOG if ata.lba[0] == 0 => (ata.done(), smart::log_directory()),
            feature::ENABLE => (ata.done(), no_data),
            feature::STATUS => {
                let mut done = ata.done();
                if health.failing {
                    done.lba[1..3].copy_from_slice(&smart::FAILING);
                }
                (done, no_data)
            }
            _ => (ata.failed(error::ABORTED), no_data),
        };
        self.answer_sector(lun, port, header, done, &sector);
    }

    fn answer_sector(&self, lun: &Lun, port: &Port, to: Header, ata: Ata, sector: &[u8; SECTOR]) {
        self.answer(lun, port, to, ata, Some(self.pool.copy_of(sector).freeze()));
    }

    fn answer(&self, lun: &Lun, port: &Port, to: Header, ata: Ata, data: Option<SharedBuf>) {
        let mut head = [0; HEAD_BYTES];
        to.answer(port.link.address(), lun.address()).put(&mut head);
        ata.put(&mut head[HEADER_BYTES..]);
        let frame = match data {
            Some(data) => Frame::with_body(head, data),
            None => Frame::new(&head),
        };
        self.send(port, frame);
    }
}

/// The answer to a request that ended like this.
fn outcome(ata: Ata, result: Result<(), ErrorKind>) -> Ata {
    match result {
        Ok(()) => ata.done(),
        Err(ErrorKind::Medium { .. }) => ata.failed(error::UNCORRECTABLE),
        Err(ErrorKind::Refused) => ata.failed(error::ABORTED),
        Err(_) => ata.faulted(),
    }
}
