//! The limits of AoE, each at limit - 1, limit and limit + 1; docs/limits.md lists them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use io::contract::HandClock;
use io::tasks::complete;
use io::{
    Clock, Completion, Completions, Disk, Done, Limits, Link, Mac, MemDisk, MemWire, Op, Pool,
    TaskSet,
};
use net::aoe::initiator::MAX_PATHS;
use net::aoe::target::access::{Conflict, MAX_KEYS, MAX_MACS, Masks, Reservation};
use net::aoe::target::{Event, Keeping, MAX_FLIGHTS};
use net::aoe::wire::access::{Edit, Keyed, MaskFault};
use net::aoe::wire::ata::Ata;
use net::aoe::wire::query::{Directive, MAX_CONFIG_BYTES, Query};
use net::aoe::wire::smart::Health;
use net::aoe::wire::{ATA_HEADER_BYTES, HEADER_BYTES, Header, VERSION, command};
use net::aoe::{Address, Host, Initiator, Lun, LunOptions, LunState, Target};

const CLIENT: Mac = Mac([2, 0, 0, 0, 0, 1]);
const TARGET: Mac = Mac([2, 0, 0, 0, 0, 2]);
const LUN: Address = Address { shelf: 1, slot: 0 };

fn mac(number: usize) -> Mac {
    let [.., high, low] = number.to_be_bytes();
    Mac([2, 1, 0, 0, high, low])
}

#[test]
fn config_bytes() {
    for (len, fits) in
        [(MAX_CONFIG_BYTES - 1, true), (MAX_CONFIG_BYTES, true), (MAX_CONFIG_BYTES + 1, false)]
    {
        let mut bytes = Vec::new();
        Query::request(Directive::Set, &vec![7; len]).put(false, &mut bytes);
        assert_eq!(Query::parse(&bytes).is_some(), fits, "{len}");
    }
}

#[test]
fn macs() {
    for (count, fits) in [(MAX_MACS - 1, true), (MAX_MACS, true), (MAX_MACS + 1, false)] {
        let edits: Vec<Edit> = (0..count).map(|it| Edit::Add(mac(it))).collect();
        let expected = if fits { Ok(()) } else { Err((MaskFault::Full, MAX_MACS)) };
        assert_eq!(Masks::default().edit(&edits), expected, "{count}");
        let holders = (0..count).map(mac).collect();
        let set = Reservation::default().set(CLIENT, holders, true);
        assert_eq!(set, if fits { Ok(()) } else { Err(Conflict) }, "{count}");
    }
}

#[test]
fn keys() {
    for (count, fits) in [(MAX_KEYS - 1, true), (MAX_KEYS, true), (MAX_KEYS + 1, false)] {
        let mut reservation = Reservation::default();
        let register = |it| Keyed::Register(it as u64, vec![mac(it)]);
        let last = (1..=count).map(|it| reservation.command(CLIENT, &register(it))).last();
        assert_eq!(last, Some(if fits { Ok(()) } else { Err(Conflict) }), "{count}");
        assert_eq!(reservation.registrations().len(), count.min(MAX_KEYS));
    }
}

/// A disk that answers nothing.
#[derive(Default)]
struct Silent {
    asked: RefCell<Vec<Op>>,
    answers: Completions<Done>,
}

impl Disk for Silent {
    fn submit(&self, op: Op) -> Completion<Done> {
        self.asked.borrow_mut().push(op);
        self.answers.start().1
    }

    fn limits(&self) -> Limits {
        Limits::plain(1 << 30)
    }
}

struct Nobody;

impl Host for Nobody {
    fn health(&self, _: Address) -> Health {
        Health::default()
    }

    fn keep(&self, _: Address, _: &LunState) -> Keeping {
        Box::pin(async { Ok(()) })
    }

    fn report(&self, _: Address, _: Mac, _: Event) {}
}

/// A read of one sector.
fn read(number: usize) -> Vec<u8> {
    let header = Header {
        destination: TARGET,
        source: CLIENT,
        version: VERSION,
        response: false,
        error: None,
        address: LUN,
        command: command::ATA,
        tag: number as u32,
    };
    let mut frame = vec![0; ATA_HEADER_BYTES];
    header.put(&mut frame);
    // Not adjacent: those go to the disk as one.
    Ata::transfer(false, 2 * number as u64, 1).put(&mut frame[HEADER_BYTES..]);
    frame
}

fn lun(disk: Rc<dyn Disk>) -> Rc<Lun> {
    let options = LunOptions {
        serial: String::new(),
        model: String::new(),
        firmware: String::new(),
        ports: Vec::new(),
        read_only: false,
        volatile: false,
        remote_control: false,
    };
    Rc::new(Lun::new(LUN, disk, options, LunState::default(), Pool::new(0)))
}

#[test]
fn paths() {
    for count in [MAX_PATHS - 1, MAX_PATHS, MAX_PATHS + 1] {
        let (wire, tasks, clock) = (MemWire::new(), TaskSet::new(), Rc::new(HandClock::default()));
        let target = Target::new(Rc::new(Nobody), Pool::new(0));
        tasks.spawn(target.run());
        target.online(lun(Rc::new(MemDisk::new(1 << 20))));
        for number in 0..count {
            let serving = target.serve("eth0", wire.port(mac(number), 1500));
            tasks.spawn(async move { serving.await.unwrap() });
        }
        let found = Rc::new(Cell::new(None));
        let (into, port) = (Rc::clone(&found), wire.port(CLIENT, 1500) as Rc<dyn Link>);
        let opening =
            Initiator::open(LUN, vec![port], Rc::clone(&clock) as Rc<dyn Clock>, Pool::new(0));
        tasks.spawn(async move { into.set(Some(opening.await.unwrap().paths())) });
        while found.get().is_none() {
            complete(tasks.run());
            if let Some(next) = clock.next() {
                clock.move_to(next);
            }
        }
        assert_eq!(found.get(), Some(count.min(MAX_PATHS)));
    }
}

#[test]
fn requests() {
    for (count, dropped) in [(MAX_FLIGHTS - 1, 0), (MAX_FLIGHTS, 0), (MAX_FLIGHTS + 1, 1)] {
        let (wire, tasks, disk) = (MemWire::new(), TaskSet::new(), Rc::new(Silent::default()));
        let (port, client) = (wire.port(TARGET, 1500), wire.port(CLIENT, 1500));
        let target = Target::new(Rc::new(Nobody), Pool::new(0));
        tasks.spawn(target.run());
        let serving = target.serve("eth0", Rc::clone(&port) as Rc<dyn Link>);
        tasks.spawn(async move { serving.await.unwrap() });
        complete(tasks.run());
        target.online(lun(Rc::clone(&disk) as Rc<dyn Disk>));
        for number in 0..count {
            port.deliver(&read(number));
        }
        complete(tasks.run());
        assert_eq!(disk.asked.borrow().len(), count - dropped);
        assert_eq!(target.dropped().overload, dropped as u64);
        // Nothing but the announcement: no error for being busy.
        let mut frames = Vec::new();
        complete(poll_fn(|cx| {
            let _ = client.poll_receive(cx, &mut frames);
            Poll::Ready(())
        }));
        assert_eq!(frames.len(), 1);
    }
}
