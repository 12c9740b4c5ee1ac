//! Any server of our client.

use std::cell::RefCell;
use std::rc::Rc;

use io::tasks::complete;
use io::{Completion, Disk, Done, Op, Pool, TaskSet, Work};
use net::nbd::client::{ConnectError, RemoteDisk, connect};
use net::nbd::wire::{
    BlockSizes, Style, answer, greeting, info_block_size, info_export, meta_context, option,
    put_answer,
};

use super::pipe::{self, End};
use crate::Trail;

/// Bytes of the export that the good server offers.
const EXPORT_BYTES: u64 = 1 << 20;
/// All the transmission flags there are.
const ALL_FLAGS: u16 = 0x1dff & !(1 << 1);

/// Our client, and the server's end of its connection.
struct Victim {
    tasks: TaskSet,
    outcome: Rc<RefCell<Option<Result<RemoteDisk, ConnectError>>>>,
    ending: Rc<RefCell<Option<String>>>,
}

impl Victim {
    fn new(bite: usize) -> (Victim, End) {
        let (near, server) = pipe::pair(bite);
        let victim =
            Victim { tasks: TaskSet::new(), outcome: Rc::default(), ending: Rc::default() };
        let (outcome, end) = (Rc::clone(&victim.outcome), Rc::clone(&victim.ending));
        victim.tasks.spawn(async move {
            match connect(Box::new(near), "disk", None, Pool::new(1 << 20)).await {
                Err(error) => drop(outcome.replace(Some(Err(error)))),
                Ok((disk, link)) => {
                    outcome.replace(Some(Ok(disk)));
                    let ending = link.await;
                    end.replace(Some(format!("{ending:?}")));
                }
            }
        });
        (victim, server)
    }

    fn send(&self, server: &End, bytes: &[u8]) {
        server.push(bytes);
        let mut said = Vec::new();
        loop {
            complete(self.tasks.run());
            if !server.pull(&mut said) {
                return;
            }
        }
    }

    /// Why there is no connection, or how it ended; without offsets and the like.
    fn outcome_text(&self) -> String {
        let outcome = self.outcome.borrow();
        let text = match outcome.as_ref() {
            Some(Err(error)) => format!("{error:?}"),
            _ => self.ending.borrow().clone().unwrap_or_default(),
        };
        text.chars().filter(|sign| !sign.is_ascii_digit()).take(60).collect()
    }
}

/// A byte for the setup, one for the operations in flight; then the server's bytes: from its
/// greeting on, or after a valid handshake.
pub(super) fn client(bytes: &[u8]) -> Trail {
    let mut trail = Trail::new();
    let [setup, wanted, said @ ..] = bytes else { return trail };
    let bite = [usize::MAX, 1, 13, 4096][usize::from(setup >> 2 & 3)];
    let (victim, server) = Victim::new(bite);
    let style = match setup & 3 {
        0 => None,
        1 => Some(Style::Simple),
        2 => Some(Style::Structured),
        _ => Some(Style::Extended),
    };
    if let Some(style) = style {
        shake_hands(&victim, &server, style, setup >> 4);
    }
    let mut answers = match victim.outcome.borrow().as_ref() {
        Some(Ok(disk)) => submit(disk, *wanted),
        _ => Vec::new(),
    };
    assert!(style.is_none() || victim.outcome.borrow().is_some(), "a good handshake goes on");
    victim.send(&server, said);
    if answers.is_empty()
        && let Some(Ok(disk)) = victim.outcome.borrow().as_ref()
    {
        let limits = disk.limits();
        assert!(limits.bytes < 1 << 63 && limits.logical_block.is_power_of_two());
        trail.note("connected");
        trail.size(limits.bytes);
        answers = submit(disk, *wanted);
        complete(victim.tasks.run());
    }
    drop(server);
    complete(victim.tasks.run());
    trail.note(victim.outcome_text());
    assert!(!victim.outcome_text().is_empty(), "the server has gone, the client waits");
    for (len, answer) in answers {
        let done = complete(answer).expect("every operation is answered when the link has ended");
        assert_eq!(done.work.len(), len, "the buffers come back as they were");
        trail.note(done.result.as_ref().err().map(io::Error::kind).is_some());
        check(&done, len);
    }
    trail
}

/// Reported extents have no gaps and are within the request.
fn check(done: &Done, asked: u64) {
    if let (Work::Extents { found, .. }, Ok(())) = (&done.work, &done.result) {
        let text: u64 = found.iter().map(|extent| extent.len).sum();
        assert!(found.iter().all(|extent| extent.len > 0), "an extent of no bytes");
        assert!(text > 0 && text <= asked, "{text} bytes told of {asked}");
    }
}

/// Operations by the bits of `wanted`, at least a read. The disk may be of any size: it refuses
/// invalid operations at once.
fn submit(disk: &RemoteDisk, wanted: u8) -> Vec<(u64, Completion<Done>)> {
    let pool = Pool::new(1 << 20);
    let all = [
        Op::read(512, pool.take(1024)),
        Op::write(4096, pool.take(2048).freeze()),
        Op::new(0, Work::Extents { len: 8192, found: Vec::new() }),
        Op::flush(),
        Op::new(0, Work::Zero { len: 4096, unmap: true, fast: wanted & 128 != 0 }),
        Op::new(8192, Work::Discard { len: 4096 }),
        // More than the good server takes at once: cut into pieces.
        Op::read(0, pool.take(160 << 10)),
    ];
    let chosen = all.into_iter().enumerate().filter(|(bit, _)| *bit == 0 || wanted >> bit & 1 == 1);
    chosen.map(|(_, op)| (op.work.len(), disk.submit(op))).collect()
}

/// A correct server's part of the handshake. `variant` changes its offer.
fn shake_hands(victim: &Victim, server: &End, style: Style, variant: u8) {
    let reply = |option, kind, data: &[u8]| {
        let mut bytes = Vec::new();
        put_answer(&mut bytes, option, kind, data);
        victim.send(server, &bytes);
    };
    victim.send(server, &greeting());
    if style == Style::Extended {
        reply(option::EXTENDED_HEADERS, answer::ACK, &[]);
    } else {
        reply(option::EXTENDED_HEADERS, answer::UNSUPPORTED, b"no");
        let agreed = style == Style::Structured;
        let kind = if agreed { answer::ACK } else { answer::UNSUPPORTED };
        reply(option::STRUCTURED_REPLY, kind, &[]);
    }
    if style != Style::Simple {
        if variant & 1 == 0 {
            let context = meta_context(5, "base:allocation");
            reply(option::SET_META_CONTEXT, answer::META_CONTEXT, &context);
        }
        reply(option::SET_META_CONTEXT, answer::ACK, &[]);
    }
    let flags = if variant & 2 == 0 { ALL_FLAGS } else { 5 };
    let sizes = BlockSizes {
        minimum: if variant & 4 == 0 { 512 } else { 1 },
        preferred: 4096,
        maximum: if variant & 8 == 0 { 64 << 10 } else { 32 << 20 },
    };
    reply(option::GO, answer::INFO, &info_export(EXPORT_BYTES, flags));
    reply(option::GO, answer::INFO, &info_block_size(sizes));
    reply(option::GO, answer::ACK, &[]);
}

pub(super) fn conversations() -> Vec<Vec<u8>> {
    let mut whole = vec![0, 0x7f];
    whole.extend(greeting());
    put_answer(&mut whole, option::EXTENDED_HEADERS, answer::UNSUPPORTED, b"no");
    put_answer(&mut whole, option::STRUCTURED_REPLY, answer::ACK, &[]);
    let context = meta_context(5, "base:allocation");
    put_answer(&mut whole, option::SET_META_CONTEXT, answer::META_CONTEXT, &context);
    put_answer(&mut whole, option::SET_META_CONTEXT, answer::ACK, &[]);
    put_answer(&mut whole, option::GO, answer::INFO, &info_export(EXPORT_BYTES, 5));
    put_answer(&mut whole, option::GO, answer::ACK, &[]);
    let mut simple = vec![1, 0];
    simple.extend([0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    simple.extend([0xaa; 1024]);
    let mut data = vec![2, 0];
    data.extend([0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 8]);
    data.extend(512_u64.to_be_bytes());
    data.extend([0xaa; 1024]);
    let mut error = vec![2, 2];
    error.extend([0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8]);
    error.extend([0, 0, 0, 5, 0, 2, b'n', b'o']);
    let mut wide = vec![3, 0];
    wide.extend([0x6e, 0x8a, 0x27, 0x8c, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    wide.extend(512_u64.to_be_bytes());
    wide.extend(12_u64.to_be_bytes());
    wide.extend(512_u64.to_be_bytes());
    wide.extend(1024_u32.to_be_bytes());
    // Every request at once, and a disconnect in the middle.
    vec![whole, simple, data, error, wide, vec![2, 0xff], vec![3 | 4, 0x7f, 0x6e, 0x8a]]
}
