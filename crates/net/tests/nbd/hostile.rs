//! Servers that lie: the client ends the link, every operation fails, nothing panics.

use std::cell::RefCell;
use std::rc::Rc;

use io::tasks::complete;
use io::{Completion, Disk, Done, ErrorKind, Op, Pool, TaskSet, Work};
use net::nbd::client::{ConnectError, RemoteDisk, connect};
use net::nbd::wire::{BlockSizes, answer, info_block_size, info_export, meta_context, put_answer};

use crate::mix::Dice;
use crate::pipe::{self, End};
use crate::world::{hex, pool};

const SIZES: BlockSizes = BlockSizes { minimum: 512, preferred: 4096, maximum: 1 << 20 };

/// A client, and the server's end of its stream.
struct Victim {
    tasks: TaskSet,
    server: End,
    outcome: Rc<RefCell<Option<Result<RemoteDisk, ConnectError>>>>,
    ending: Rc<RefCell<Option<String>>>,
}

impl Victim {
    fn new() -> Victim {
        let (near, server) = pipe::pair(1 << 30, usize::MAX);
        let (tasks, outcome) = (TaskSet::new(), Rc::new(RefCell::new(None)));
        let (place, ending) = (Rc::clone(&outcome), Rc::new(RefCell::new(None)));
        let end = Rc::clone(&ending);
        tasks.spawn(async move {
            match connect(Box::new(near), "disk", None, Pool::new(1 << 20)).await {
                Err(error) => drop(place.replace(Some(Err(error)))),
                Ok((disk, link)) => {
                    place.replace(Some(Ok(disk)));
                    let ending = link.await;
                    end.replace(Some(format!("{ending:?}")));
                }
            }
        });
        Victim { tasks, server, outcome, ending }
    }

    fn send(&self, bytes: &[u8]) -> Vec<u8> {
        self.server.push(bytes);
        complete(self.tasks.run());
        self.server.pull()
    }

    /// A whole handshake with structured replies.
    fn connected(sizes: BlockSizes, bytes: u64, flags: u16) -> Victim {
        let victim = Victim::new();
        victim.send(&greeting());
        victim.send(&refusal(11));
        victim.send(&ack(8));
        let mut reply = Vec::new();
        put_answer(&mut reply, 10, answer::META_CONTEXT, &meta_context(5, "base:allocation"));
        reply.extend(ack(10));
        victim.send(&reply);
        let mut reply = Vec::new();
        put_answer(&mut reply, 7, answer::INFO, &info_export(bytes, flags));
        put_answer(&mut reply, 7, answer::INFO, &info_block_size(sizes));
        reply.extend(ack(7));
        victim.send(&reply);
        victim
    }

    fn submit(&self, work: Work) -> Completion<Done> {
        let outcome = self.outcome.borrow();
        let Some(Ok(disk)) = outcome.as_ref() else { panic!("not connected") };
        let answer = disk.submit(Op::new(512, work));
        complete(self.tasks.run());
        answer
    }

    fn failure(&self) -> Option<String> {
        let outcome = self.outcome.borrow();
        outcome.as_ref().and_then(|it| it.as_ref().err()).map(|error| format!("{error:?}"))
    }
}

fn greeting() -> Vec<u8> {
    hex("4e42444d41474943 49484156454f5054 0003")
}

fn ack(option: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_answer(&mut bytes, option, answer::ACK, &[]);
    bytes
}

fn refusal(option: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_answer(&mut bytes, option, answer::UNSUPPORTED, b"no");
    bytes
}

#[test]
fn impossible_exports_are_refused() {
    let sized = |minimum, preferred, maximum| BlockSizes { minimum, preferred, maximum };
    let cases = [
        (SIZES, 1 << 20, 5, None),
        (SIZES, 1 << 63, 5, Some("size")),
        (SIZES, u64::MAX, 5, Some("size")),
        (SIZES, 1 << 20, 0, Some("no export information")),
        (SIZES, 1 << 20, 1, Some("durable")),
        (sized(0, 4096, 1 << 20), 1 << 20, 5, Some("minimum")),
        (sized(3, 4096, 1 << 20), 1 << 20, 5, Some("minimum")),
        (sized(1 << 17, 1 << 17, 1 << 20), 1 << 20, 5, Some("minimum")),
        (sized(512, 0, 1 << 20), 1 << 20, 5, Some("sizes")),
        (sized(4096, 512, 1 << 20), 1 << 20, 5, Some("sizes")),
        (sized(512, 4096, 0), 1 << 20, 5, Some("sizes")),
        (sized(1, 1, 1), 1 << 20, 5, Some("sizes")),
    ];
    for (sizes, bytes, flags, expected) in cases {
        let failure = Victim::connected(sizes, bytes, flags).failure();
        match expected {
            None => assert_eq!(failure, None),
            Some(word) => assert!(failure.unwrap().contains(word), "{sizes:?} {bytes} {flags}"),
        }
    }
}

#[test]
fn malformed_handshakes_are_refused() {
    let mut long = ack(11);
    long[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
    let mut endless = Vec::new();
    (0..100).for_each(|_| put_answer(&mut endless, 11, answer::INFO, &[]));
    let cases = [
        hex("4e42444d41474943 00420281861253aa 0003"),
        [greeting(), ack(3)].concat(),
        [greeting(), long].concat(),
        [greeting(), endless].concat(),
        [greeting(), vec![0xff; 64]].concat(),
    ];
    for bytes in cases {
        let victim = Victim::new();
        victim.send(&bytes);
        assert!(victim.failure().unwrap().starts_with("Misbehaved"));
    }
}

/// Chunks for the only request, whose cookie is 0: a read or a status of 1024 bytes at 512.
#[test]
fn lies_about_data_end_the_link() {
    let read = || Work::Read(vec![pool().take(1024)]);
    let status = || Work::Extents { len: 1024, found: Vec::new() };
    let data = |offset: &str, count: usize| {
        let length = format!("{:08x}", 8 + count);
        let data = "aa".repeat(count);
        hex(&["668e33ef 0001 0001 0000000000000000", &length, offset, &data].concat())
    };
    let cases: [(Work, Vec<u8>, &str); 13] = [
        (read(), data("0000000000000000", 1024), "before"),
        (read(), data("0000000000000400", 1024), "beyond"),
        (read(), data("ffffffffffffff00", 1024), "beyond"),
        (read(), data("0000000000000200", 512), "not complete"),
        (read(), data("0000000000000200", 2048), "no sense"),
        (read(), hex("668e33ef 0001 0000 0000000000000000 00000000"), "not complete"),
        (read(), hex("668e33ef 0001 0000 0000000000000007 00000000"), "no request"),
        (read(), hex("668e33ef 0001 0000 0000000100000000 00000000"), "no request"),
        (read(), hex("67446698 00000000 0000000000000000"), "simple"),
        (read(), hex("668e33ef 0001 0001 0000000000000000 ffffffff"), "no sense"),
        (read(), hex("668e33ef 0001 8001 0000000000000000 7fffffff"), "no sense"),
        (status(), hex("668e33ef 0001 0005 0000000000000000 0000000c 00000009"), "not chosen"),
        (
            status(),
            hex("668e33ef 0001 0005 0000000000000000 0000000c 00000005 00000000 00000000"),
            "unrequested or empty",
        ),
    ];
    for (work, bytes, expected) in cases {
        let victim = Victim::connected(SIZES, 1 << 20, 5);
        let mut answer = victim.submit(work);
        victim.send(&bytes);
        let done = answer.take_ready().expect("the member has failed");
        assert_eq!(done.result.unwrap_err().kind(), ErrorKind::Gone);
        let ending = victim.ending.borrow().clone().unwrap();
        assert!(ending.contains(expected), "{expected}: {ending}");
        let later = victim.submit(Work::Flush).take_ready().expect("at once");
        assert_eq!(later.result.unwrap_err().kind(), ErrorKind::Gone);
    }
}

#[test]
fn overlapping_data_is_not_trusted() {
    let victim = Victim::connected(SIZES, 1 << 20, 5);
    let mut answer = victim.submit(Work::Read(vec![pool().take(1024)]));
    let hole = |flags: &str, offset: &str, length: &str| {
        hex(&["668e33ef", flags, "0002 0000000000000000 0000000c", offset, length].concat())
    };
    victim.send(&hole("0000", "0000000000000200", "00000200"));
    assert!(answer.take_ready().is_none());
    victim.send(&hole("0001", "0000000000000300", "00000200"));
    assert!(answer.take_ready().unwrap().result.is_err());
}

#[test]
fn errors_and_holes_are_understood() {
    let victim = Victim::connected(SIZES, 1 << 20, 5);
    let mut answer = victim.submit(Work::Read(vec![pool().copy_of(&[9; 1024])]));
    victim.send(&hex("668e33ef 0001 0002 0000000000000000 0000000c 0000000000000200 00000400"));
    let done = answer.take_ready().unwrap();
    assert_eq!(done.into_buf()[..], [0; 1024]);
    // The slot is used again, in its next generation.
    let mut answer = victim.submit(Work::Read(vec![pool().take(1024)]));
    victim.send(&hex("668e33ef 0001 8001 0000000100000000 00000008 0000001c 0002 6e6f"));
    assert_eq!(answer.take_ready().unwrap().result.unwrap_err().kind(), ErrorKind::NoSpace);
}

#[test]
fn noise_never_panics() {
    for seed in 0..300 {
        let dice = &mut Dice(seed);
        let victim = Victim::connected(SIZES, 1 << 20, 5);
        let mut answer = victim.submit(Work::Read(vec![pool().take(4096)]));
        // Noise behind a header that is right.
        let mut bytes = hex("668e33ef 0000 0001 0000000000000000 00000210 0000000000000200");
        bytes[5] = dice.roll(2) as u8;
        bytes[7] = dice.roll(7) as u8;
        bytes[6] = [0, 0x80][dice.roll(2) as usize];
        bytes.extend((0..dice.roll(4000)).map(|_| dice.roll(256) as u8));
        victim.send(&bytes);
        drop(victim);
        assert!(answer.take_ready().is_some(), "seed {seed}: every operation ends");
    }
}
