//! Config string, mask list and reservation: what clients can ask, and change where the LUN permits
//! it. A change is answered when the host has kept it.

use std::rc::Rc;

use io::link::HEAD_BYTES;
use io::{Frame, Mac};

use super::super::wire::access::{Keyed, Mask, MaskFault, Reserve};
use super::super::wire::query::{Directive, Query};
use super::super::wire::{Error, HEADER_BYTES, Header, VERSION, command, sectors_of};
use super::flights::MAX_FLIGHTS;
use super::lun::Change;
use super::port::Port;
use super::{Arrival, Event, Lun, LunState, Part, Shared};

/// The firmware version that Query Config reports; no client reads more into it than a number.
const FIRMWARE: u16 = 0x5001;
/// How many requests a client may send at once: a quarter of what the LUN queues.
const BUFFERS: u16 = (MAX_FLIGHTS / 4) as u16;

impl Shared {
    /// Query Config. A comparison that fails is not answered.
    pub(super) fn query(
        self: &Rc<Self>,
        lun: &Rc<Lun>,
        arrival: &Arrival<'_>,
    ) -> Result<(), Error> {
        let argument = argument(arrival);
        let query = Query::parse(&argument);
        let directive = argument.get(5).and_then(|byte| Directive::of(byte & 0x0f));
        let directive = directive.ok_or(Error::Argument)?;
        // Readers send what they like: aoeping a kilobyte of padding.
        let text = match (directive, query) {
            (Directive::Read, _) => Vec::new(),
            (_, query) => query.ok_or(Error::Argument)?.text,
        };
        let present = lun.state().config.clone();
        let new = match directive {
            Directive::Read => None,
            Directive::Equal if present != text => return Ok(()),
            Directive::Prefix if !present.starts_with(&text) => return Ok(()),
            Directive::Equal | Directive::Prefix => None,
            Directive::SetIfEmpty if present == text => None,
            Directive::SetIfEmpty if !present.is_empty() => return Err(Error::ConfigPresent),
            Directive::SetIfEmpty | Directive::Set => Some(text),
            Directive::Swap => Some(swapped(&present, &argument, &text)?),
        };
        let reply = query_reply(arrival.port, directive as u8).ok_or(Error::Unavailable)?;
        match new {
            None => {
                self.answer_with(lun, arrival.port, arrival.header, &reply(lun));
                Ok(())
            }
            Some(config) => {
                let change = move |state: &mut LunState| state.config = config;
                self.change(lun, arrival, Part::Config, change, reply)
            }
        }
    }

    /// MAC mask.
    pub(super) fn mask(self: &Rc<Self>, lun: &Rc<Lun>, arrival: &Arrival<'_>) -> Result<(), Error> {
        let Arrival { port, header, .. } = *arrival;
        let reply = |edited: bool| {
            move |lun: &Lun| {
                let mut reply = Vec::new();
                Mask::put_list(edited, lun.state().masks.list(), &mut reply);
                reply
            }
        };
        let edits = match Mask::parse(&argument(arrival)).ok_or(Error::Argument)? {
            Mask::Read => {
                self.answer_with(lun, port, header, &reply(false)(lun));
                return Ok(());
            }
            Mask::Edit(edits) => edits,
        };
        let mut masks = lun.state().masks.clone();
        let fault = if lun.policy().remote_control {
            masks.edit(&edits).err()
        } else {
            self.host.report(lun.address(), header.source, Event::Refused(Part::Mask));
            Some((MaskFault::Unspecified, 0))
        };
        if let Some((fault, index)) = fault {
            let mut refusal = Vec::new();
            Mask::put_fault(fault, index, &mut refusal);
            self.answer_with(lun, port, header, &refusal);
            return Ok(());
        }
        self.change(lun, arrival, Part::Mask, |state| state.masks = masks, reply(true))
    }

    /// Reserve/Release.
    pub(super) fn reserve(
        self: &Rc<Self>,
        lun: &Rc<Lun>,
        arrival: &Arrival<'_>,
    ) -> Result<(), Error> {
        let request = Reserve::parse(&argument(arrival)).ok_or(Error::Argument)?;
        let mut reservation = lun.state().reservation.clone();
        let client = arrival.header.source;
        let changes = match &request {
            Reserve::Read => Ok(()),
            Reserve::Set(holders) => reservation.set(client, holders.clone(), false),
            Reserve::Force(holders) => reservation.set(client, holders.clone(), true),
        };
        changes.map_err(|_| Error::Reserved)?;
        let is_read = request == Reserve::Read;
        let reply = move |lun: &Lun| {
            let mut reply = Vec::new();
            request.put_answer(lun.state().reservation.holders(), &mut reply);
            reply
        };
        if is_read {
            self.answer_with(lun, arrival.port, arrival.header, &reply(lun));
            return Ok(());
        }
        let change = |state: &mut LunState| state.reservation = reservation;
        self.change(lun, arrival, Part::Reservation, change, reply)
    }

    /// Keyed reservations.
    pub(super) fn keyed(
        self: &Rc<Self>,
        lun: &Rc<Lun>,
        arrival: &Arrival<'_>,
    ) -> Result<(), Error> {
        let request = Keyed::parse(&argument(arrival)).ok_or(Error::Argument)?;
        let mut reservation = lun.state().reservation.clone();
        let outcome = reservation.command(arrival.header.source, &request);
        outcome.map_err(|_| Error::Reserved)?;
        let directive = request.directive();
        let reply = move |lun: &Lun| {
            let mut reply = Vec::new();
            lun.state().reservation.state().put(directive, &mut reply);
            reply
        };
        if request == Keyed::Stat {
            self.answer_with(lun, arrival.port, arrival.header, &reply(lun));
            return Ok(());
        }
        let change = |state: &mut LunState| state.reservation = reservation;
        self.change(lun, arrival, Part::Reservation, change, reply)
    }

    /// Changes a LUN's state for a client, and answers when the host has kept it.
    fn change(
        self: &Rc<Self>,
        lun: &Rc<Lun>,
        arrival: &Arrival<'_>,
        part: Part,
        change: impl FnOnce(&mut LunState),
        reply: impl Fn(&Lun) -> Vec<u8> + 'static,
    ) -> Result<(), Error> {
        let Arrival { port, header, .. } = *arrival;
        let (address, client) = (lun.address(), header.source);
        if !lun.policy().remote_control {
            self.host.report(address, client, Event::Refused(part));
            return Err(Error::Command);
        }
        let Some(turn) = Change::begin(lun) else {
            // The client repeats its request, which is then decided on the new state.
            self.count(|dropped| &mut dropped.overload);
            return Ok(());
        };
        let mut state = lun.state().clone();
        change(&mut state);
        let (shared, lun, port) = (Rc::clone(self), Rc::clone(lun), Rc::clone(port));
        self.tasks.spawn(async move {
            match shared.host.keep(address, &state).await {
                Ok(()) => {
                    lun.set_state(state);
                    shared.host.report(address, client, Event::Changed(part));
                    shared.answer_with(&lun, &port, header, &reply(&lun));
                    if part == Part::Config {
                        shared.ports.borrow().iter().for_each(|port| shared.announce(&lun, port));
                    }
                }
                Err(why) => shared.host.report(address, client, Event::NotKept(part, why)),
            }
            drop(turn);
        });
        Ok(())
    }

    /// Announces a LUN on a port, to the clients that it answers.
    pub(super) fn announce(&self, lun: &Rc<Lun>, port: &Port) {
        if !lun.is_on(&port.name) {
            return;
        }
        let masks = lun.state().masks.list().to_vec();
        let receivers = if masks.is_empty() { vec![Mac::BROADCAST] } else { masks };
        let Some(announcement) = query_reply(port, Directive::Read as u8) else { return };
        let announcement = announcement(lun);
        for source in receivers {
            let header = Header {
                destination: port.link.address(),
                source,
                version: VERSION,
                response: false,
                error: None,
                address: lun.address(),
                command: command::QUERY,
                tag: 0,
            };
            self.answer_with(lun, port, header, &announcement);
        }
    }

    /// Answers with this argument.
    fn answer_with(&self, lun: &Lun, port: &Port, to: Header, argument: &[u8]) {
        let mut bytes = vec![0; HEADER_BYTES];
        to.answer(port.link.address(), lun.address()).put(&mut bytes);
        bytes.extend(argument);
        let frame = match bytes.split_first_chunk::<HEAD_BYTES>() {
            Some((head, rest)) => Frame::with_body(*head, self.pool.copy_of(rest).freeze()),
            None => Frame::new(&bytes),
        };
        self.send(port, frame);
    }
}

/// The answer to Query Config on this port; none if its MTU has no room for a sector.
fn query_reply(port: &Port, directive: u8) -> Option<impl Fn(&Lun) -> Vec<u8> + 'static> {
    let sectors = sectors_of(port.link.state().mtu);
    let reply = move |lun: &Lun| {
        let text = lun.state().config.clone();
        let query = Query { buffers: BUFFERS, firmware: FIRMWARE, sectors, directive, text };
        let mut reply = Vec::new();
        query.put(true, &mut reply);
        reply
    };
    (sectors > 0).then_some(reply)
}

/// The bytes after the header.
fn argument(arrival: &Arrival<'_>) -> Vec<u8> {
    let frame = arrival.frame;
    [frame.head().get(HEADER_BYTES..).unwrap_or_default(), frame.body()].concat()
}

/// The new config string of a swap: `argument` has the old one, then length and bytes of the new.
fn swapped(present: &[u8], argument: &[u8], old: &[u8]) -> Result<Vec<u8>, Error> {
    use super::super::wire::query::{BYTES, MAX_CONFIG_BYTES};
    let rest = argument.get(BYTES + old.len()..).unwrap_or_default();
    let (len, rest) = rest.split_first_chunk::<2>().ok_or(Error::Argument)?;
    let new = rest.get(..u16::from_be_bytes(*len).into()).ok_or(Error::Argument)?;
    if new.len() > MAX_CONFIG_BYTES {
        return Err(Error::Argument);
    }
    if present != old {
        return Err(Error::ConfigPresent);
    }
    Ok(new.to_vec())
}
