//! The target on a wire in memory, beside a client that sends frames by hand.

mod control;
mod hostile;
mod order;
mod runs;
mod transfers;

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use io::link::HEAD_BYTES;
use io::tasks::complete;
use io::{Disk, Frame, Link, Mac, MemDisk, MemLink, MemWire, Pool, TaskSet};

use super::super::wire::ata::Ata;
use super::super::wire::smart::Health;
use super::super::wire::{Address, HEADER_BYTES, Header, VERSION, command};
use super::*;

const SHELF: Address = Address { shelf: 1, slot: 0 };
const TARGET: Mac = Mac([2, 0, 0, 0, 1, 0]);
const OTHER_PORT: Mac = Mac([2, 0, 0, 0, 1, 1]);
const CLIENT: Mac = Mac([2, 0, 0, 0, 0, 1]);
const STRANGER: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// Keeps what the target reports and wants kept.
#[derive(Default)]
struct Notes {
    health: RefCell<Health>,
    kept: RefCell<Vec<LunState>>,
    events: RefCell<Vec<(Mac, Event)>>,
    refuses_to_keep: Cell<bool>,
}

impl Host for Notes {
    fn health(&self, _: Address) -> Health {
        *self.health.borrow()
    }

    fn keep(&self, _: Address, state: &LunState) -> Keeping {
        if self.refuses_to_keep.get() {
            return Box::pin(async { Err("the members are full".to_owned()) });
        }
        self.kept.borrow_mut().push(state.clone());
        Box::pin(async { Ok(()) })
    }

    fn report(&self, _: Address, client: Mac, event: Event) {
        self.events.borrow_mut().push((client, event));
    }
}

/// A target with one LUN on two ports, and two clients, on one wire.
struct Bench {
    notes: Rc<Notes>,
    target: Target,
    tasks: TaskSet,
    ports: [Rc<MemLink>; 2],
    client: Rc<MemLink>,
    stranger: Rc<MemLink>,
}

fn options() -> LunOptions {
    LunOptions {
        serial: "0123".into(),
        model: "Parapet".into(),
        firmware: "0.1.0".into(),
        ports: Vec::new(),
        read_only: false,
        volatile: false,
        remote_control: true,
    }
}

const MIB: u64 = 1 << 20;

impl Bench {
    fn new(disk: Rc<dyn Disk>, options: LunOptions) -> Bench {
        let wire = MemWire::new();
        let notes = Rc::new(Notes::default());
        let target = Target::new(Rc::clone(&notes) as Rc<dyn Host>, Pool::new(MIB as usize));
        let ports = [wire.port(TARGET, 9000), wire.port(OTHER_PORT, 9000)];
        let client = wire.port(CLIENT, 9000);
        let stranger = wire.port(STRANGER, 9000);
        let tasks = TaskSet::new();
        let running = target.run();
        tasks.spawn(running);
        for (name, port) in ["eth0", "eth1"].into_iter().zip(&ports) {
            let serving = target.serve(name, Rc::clone(port) as Rc<dyn Link>);
            tasks.spawn(async move { serving.await.expect("the port is there") });
        }
        let bench = Bench { notes, target, tasks, ports, client, stranger };
        bench.settle();
        let state = LunState::default();
        bench.target.online(Rc::new(Lun::new(SHELF, disk, options, state, Pool::new(0))));
        bench.settle();
        bench
    }

    fn on_memory() -> (Bench, Rc<MemDisk>) {
        let disk = Rc::new(MemDisk::new(MIB));
        (Bench::new(Rc::clone(&disk) as Rc<dyn Disk>, options()), disk)
    }

    /// Lets the target do all it can.
    fn settle(&self) {
        assert_eq!(complete(self.tasks.run()), None, "the target serves until it is stopped");
    }

    /// All frames that have arrived at a client.
    fn inbox(link: &MemLink) -> Vec<Frame> {
        let mut frames = Vec::new();
        let receive = poll_fn(|cx| {
            let _ = link.poll_receive(cx, &mut frames);
            Poll::Ready(())
        });
        complete(receive).expect("ready");
        frames
    }

    /// Sends a request of `client` to one of the ports, and returns what came back to it.
    fn ask(&self, header: Header, argument: &[u8]) -> Vec<Frame> {
        let client = if header.source == STRANGER { &self.stranger } else { &self.client };
        Bench::inbox(client);
        self.send(header, argument);
        Bench::inbox(client)
    }

    fn send(&self, header: Header, argument: &[u8]) {
        let mut bytes = vec![0; HEADER_BYTES];
        header.put(&mut bytes);
        bytes.extend(argument);
        let to = |port: &&Rc<MemLink>| {
            header.destination.is_group() || port.address() == header.destination
        };
        self.ports.iter().filter(to).for_each(|port| port.deliver(&bytes));
        self.settle();
    }

    /// The only answer to an ATA request: its argument and its data.
    fn ata(&self, header: Header, ata: Ata, data: &[u8]) -> (Ata, Vec<u8>) {
        let answers = self.ask(header, &argument(ata, data));
        let [answer] = &answers[..] else { panic!("{} answers to {ata:?}", answers.len()) };
        let got = Header::parse(answer.head()).expect("a header");
        assert_eq!((got.error, got.response, got.tag), (None, true, header.tag));
        assert_eq!((got.address, got.destination), (SHELF, header.source));
        let ata = Ata::parse(&answer.head()[HEADER_BYTES..]).expect("an argument");
        (ata, answer.body().to_vec())
    }

    /// The AoE error that a request gets; panics if it gets another answer, or none.
    fn error(&self, header: Header, argument: &[u8]) -> u8 {
        let answers = self.ask(header, argument);
        let [answer] = &answers[..] else { panic!("{} answers", answers.len()) };
        Header::parse(answer.head()).and_then(|it| it.error).expect("an error")
    }
}

fn argument(ata: Ata, data: &[u8]) -> Vec<u8> {
    let mut argument = vec![0; HEAD_BYTES - HEADER_BYTES];
    ata.put(&mut argument);
    argument.extend(data);
    argument
}

/// The header of a request of [`CLIENT`] to [`SHELF`].
fn request(command: u8, tag: u32) -> Header {
    Header {
        destination: TARGET,
        source: CLIENT,
        version: VERSION,
        response: false,
        error: None,
        address: SHELF,
        command,
        tag,
    }
}

fn from_stranger(header: Header) -> Header {
    Header { source: STRANGER, ..header }
}

#[test]
fn the_target_announces_its_luns() {
    let (bench, _) = Bench::on_memory();
    let announcements = Bench::inbox(&bench.client);
    assert_eq!(announcements.len(), 2, "one on each port");
    for frame in announcements {
        let header = Header::parse(frame.head()).expect("a header");
        assert_eq!((header.tag, header.response, header.address), (0, true, SHELF));
        assert_eq!((header.command, header.destination), (command::QUERY, Mac::BROADCAST));
        assert_eq!(frame.head()[28], 16, "sectors of a frame at MTU 9000");
        assert!(frame.bytes() >= 60, "clients drop shorter frames");
    }
}

#[test]
fn a_port_that_changes_its_mtu_announces_again() {
    let (bench, _) = Bench::on_memory();
    Bench::inbox(&bench.client);
    for (mtu, sectors) in [(1500, 2), (4200, 8), (500, 0)] {
        bench.ports[0].set_state(io::LinkState { up: true, mtu });
        bench.settle();
        let frames = Bench::inbox(&bench.client);
        let announced: Vec<u8> = frames.iter().map(|frame| frame.head()[28]).collect();
        let expected = if sectors == 0 { vec![] } else { vec![sectors] };
        assert_eq!(announced, expected, "MTU {mtu}");
    }
}

#[test]
fn a_lun_that_goes_offline_is_silent() {
    let (bench, _) = Bench::on_memory();
    complete(bench.target.offline(SHELF)).expect("nothing is in flight");
    let identify = argument(Ata::plain(super::super::wire::ata::opcode::IDENTIFY), &[]);
    assert!(bench.ask(request(command::ATA, 1), &identify).is_empty());
}

#[test]
fn frames_that_are_not_requests_get_no_answer() {
    let (bench, _) = Bench::on_memory();
    let identify = argument(Ata::plain(super::super::wire::ata::opcode::IDENTIFY), &[]);
    let good = request(command::ATA, 1);
    assert_eq!(bench.ask(good, &identify).len(), 1);
    let silent = [
        ("an answer", Header { response: true, ..good }),
        ("of the target itself", Header { source: OTHER_PORT, ..good }),
        ("of a group", Header { source: Mac([3, 0, 0, 0, 0, 1]), ..good }),
        ("for another shelf", Header { address: Address { shelf: 2, slot: 0 }, ..good }),
        ("for another slot", Header { address: Address { shelf: 1, slot: 1 }, ..good }),
    ];
    for (what, header) in silent {
        assert!(bench.ask(header, &identify).is_empty(), "{what}");
    }
    bench.ports[0].deliver(&[0xff; 20]);
    bench.settle();
    let version = Header { version: 2, ..good };
    assert_eq!(bench.error(version, &identify), Error::Version as u8);
    assert_eq!(bench.error(Header { command: 9, ..good }, &identify), Error::Command as u8);
}

#[test]
fn a_lun_is_served_on_its_ports_only() {
    let ports = vec!["eth1".to_owned()];
    let disk = Rc::new(MemDisk::new(MIB));
    let bench = Bench::new(disk, LunOptions { ports, ..options() });
    assert_eq!(Bench::inbox(&bench.client).len(), 1, "announced on that port");
    let identify = argument(Ata::plain(super::super::wire::ata::opcode::IDENTIFY), &[]);
    let header = request(command::ATA, 1);
    assert!(bench.ask(header, &identify).is_empty());
    assert_eq!(bench.ask(Header { destination: OTHER_PORT, ..header }, &identify).len(), 1);
}

#[test]
fn a_target_whose_driver_is_dropped_lets_go_of_its_disk() {
    let disk = Rc::new(MemDisk::new(MIB));
    let bench = Bench::new(Rc::clone(&disk) as Rc<dyn Disk>, options());
    assert!(Rc::strong_count(&disk) > 1);
    drop(bench);
    assert_eq!(Rc::strong_count(&disk), 1);
}

#[test]
fn the_target_stops_when_it_is_stopped() {
    let (bench, _) = Bench::on_memory();
    bench.target.stop();
    assert_eq!(complete(bench.tasks.run()), Some(()));
}
