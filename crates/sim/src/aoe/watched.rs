//! The disk behind our target, with the rules of `net::aoe::target::flights` checked at its door.

use std::cell::RefCell;
use std::rc::Rc;

use io::{Clock, Completion, Completions, Disk, Done, Limits, Op, Time, Work};

use crate::disk::SimDisk;
use crate::medium::SECTOR;
use crate::world::World;

/// A write on the disk.
#[derive(Clone, PartialEq, Eq)]
struct Write {
    offset: u64,
    bytes: Vec<u8>,
}

pub(super) struct Watched {
    world: World,
    disk: Rc<SimDisk>,
    answers: Completions<Done>,
    writing: RefCell<Vec<Write>>,
    ended: RefCell<Option<(Time, Write)>>,
    fault: RefCell<Option<String>>,
}

impl Watched {
    pub(super) fn new(world: &World, disk: &Rc<SimDisk>) -> Rc<Watched> {
        Rc::new(Watched {
            world: world.clone(),
            disk: Rc::clone(disk),
            answers: Completions::new(),
            writing: RefCell::default(),
            ended: RefCell::default(),
            fault: RefCell::default(),
        })
    }

    /// The first rule that the target broke, in words.
    pub(super) fn fault(&self) -> Option<String> {
        self.fault.borrow().clone()
    }

    fn check(&self, write: &Write) {
        let end = |it: &Write| it.offset + it.bytes.len() as u64;
        let overlaps = |it: &Write| it.offset < end(write) && write.offset < end(it);
        let sector = write.offset / SECTOR;
        // A longer one may have been divided by its client, and put together again by the target.
        let is_one_frame = write.bytes.len() as u64 == SECTOR;
        let just_ended = Some((self.world.clock.now(), write.clone()));
        let fault = if self.writing.borrow().iter().any(overlaps) {
            format!("order: two writes of sector {sector} are in flight on the disk at once")
        } else if is_one_frame && *self.ended.borrow() == just_ended {
            format!("copy: the write of sector {sector} has waited for a copy of itself")
        } else {
            return;
        };
        self.fault.borrow_mut().get_or_insert(fault);
    }
}

/// As a disk that a target of this process uses; the process ends with it.
pub(super) struct Door(pub(super) Rc<Watched>);

impl Disk for Door {
    fn submit(&self, op: Op) -> Completion<Done> {
        let Work::Write(bufs) = &op.work else { return self.0.disk.submit(op) };
        let bytes = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        let write = Write { offset: op.offset, bytes };
        self.0.check(&write);
        self.0.writing.borrow_mut().push(write.clone());
        let (ticket, completion) = self.0.answers.start();
        let (watched, inner) = (Rc::clone(&self.0), self.0.disk.submit(op));
        self.0.world.executor.spawn("write", async move {
            let done = inner.await;
            let mut writing = watched.writing.borrow_mut();
            if let Some(at) = writing.iter().position(|it| *it == write) {
                writing.swap_remove(at);
            }
            drop(writing);
            watched.ended.replace(Some((watched.world.clock.now(), write)));
            watched.answers.finish(ticket, done);
        });
        completion
    }

    fn limits(&self) -> Limits {
        self.0.disk.limits()
    }
}
