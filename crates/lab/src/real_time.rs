//! A modelled disk in real time: data on any disk, answers when the modelled disk would answer.
//!
//! ```text
//!   Op ─┬─▶ store: moves the data at once ──────────────┐
//!       └─▶ model: when would the disk answer? ─ sleep ─┴─▶ answer, at the later of the two
//! ```
//!
//! The model sees the moments at which operations really arrive, and its own events at the moments
//! that it names: a driver that wakes late delays an answer, never the heads. The store must be
//! faster than the model, or its own times show.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use io::{
    Clock, Completion, Completions, Disk, Done, Error, Limits, Op, Signal, Ticket, Time, Work,
    ZeroSupport,
};

use crate::disk::catalogue::Built;
use crate::disk::{Answer, Model, Nanos, SECTOR};
use crate::member::{BLOCK, requests};

/// See the module. The host drives [`RealTimeDisk::run`]; it ends after this is dropped.
pub struct RealTimeDisk(Rc<Inner>);

struct Inner {
    store: Rc<dyn Disk>,
    clock: Rc<dyn Clock>,
    /// The model's time 0.
    start: Time,
    limits: Limits,
    model: RefCell<Box<dyn Model>>,
    /// Operations in flight by their tags, which ascend.
    pending: RefCell<BTreeMap<u64, Pending>>,
    answers: RefCell<Vec<Answer>>,
    completions: Completions<Done>,
    tags: Cell<u64>,
    submitted: Signal,
    dropped: Cell<bool>,
}

struct Pending {
    data: Data,
    ticket: Ticket,
    /// Requests to the model without an answer.
    requests: usize,
}

enum Data {
    Moving(Completion<Done>),
    Moved(Done),
}

impl Pending {
    fn is_over(&self) -> bool {
        self.requests == 0 && matches!(self.data, Data::Moved(_))
    }
}

impl RealTimeDisk {
    /// A modelled disk whose data is in `store`. It has the smaller of both sizes.
    pub fn new(built: Built, store: Rc<dyn Disk>, clock: Rc<dyn Clock>) -> RealTimeDisk {
        let Built { model, rotational, volatile } = built;
        let own = store.limits();
        let limits = Limits {
            bytes: own.bytes.min(model.sectors() * SECTOR / BLOCK * BLOCK),
            // The model rewrites no part of a sector: its sectors are not larger.
            physical_block: own.logical_block.max(SECTOR as u32),
            rotational,
            volatile,
            // As a modelled disk in virtual time: zeros are written, nothing is discarded.
            zero: ZeroSupport::Written,
            discard: false,
            discard_zeroes: false,
            ..own
        };
        RealTimeDisk(Rc::new(Inner {
            store,
            start: clock.now(),
            clock,
            limits,
            model: RefCell::new(model),
            pending: RefCell::default(),
            answers: RefCell::default(),
            completions: Completions::new(),
            tags: Cell::new(0),
            submitted: Signal::new(),
            dropped: Cell::new(false),
        }))
    }

    /// Answers operations until the disk is dropped and the last of them has its answer.
    pub fn run(&self) -> impl Future<Output = ()> + use<> {
        let inner = Rc::clone(&self.0);
        async move {
            let mut submitted = pin!(inner.submitted.wait());
            let mut alarm: Option<(Time, Completion<()>)> = None;
            poll_fn(|cx| {
                while submitted.as_mut().poll(cx).is_ready() {
                    submitted.set(inner.submitted.wait());
                }
                inner.turn(cx, &mut alarm)
            })
            .await;
        }
    }
}

impl Inner {
    /// The model's time.
    fn model_time(&self) -> Nanos {
        (self.clock.now() - self.start).as_nanos() as Nanos
    }

    /// Gives all answers that are due, and sets the alarm for the next one.
    fn turn(&self, cx: &mut Context<'_>, alarm: &mut Option<(Time, Completion<()>)>) -> Poll<()> {
        loop {
            self.advance();
            self.look_at_data(cx);
            self.finish();
            let is_idle = self.pending.borrow().is_empty();
            if is_idle && self.dropped.get() {
                return Poll::Ready(());
            }
            // What an idle disk does by itself, the next operation catches up with.
            let event = self.model.borrow().next_event().filter(|_| !is_idle);
            let Some(event) = event else {
                *alarm = None;
                return Poll::Pending;
            };
            let at = Time(self.start.0 + event);
            if alarm.as_ref().is_none_or(|(set, _)| *set != at) {
                *alarm = Some((at, self.clock.sleep_until(at)));
            }
            if let Some((_, sleep)) = alarm
                && Pin::new(sleep).poll(cx).is_pending()
            {
                return Poll::Pending;
            }
            *alarm = None;
        }
    }

    fn advance(&self) {
        let now = self.model_time();
        self.model.borrow_mut().advance(now, &mut self.answers.borrow_mut());
    }

    fn look_at_data(&self, cx: &mut Context<'_>) {
        for entry in self.pending.borrow_mut().values_mut() {
            if let Data::Moving(moving) = &mut entry.data
                && let Poll::Ready(done) = Pin::new(moving).poll(cx)
            {
                entry.data = Data::Moved(done);
            }
        }
    }

    /// Answers operations that are over: in the model's order, then those whose data was late.
    fn finish(&self) {
        let mut over = Vec::new();
        {
            let mut pending = self.pending.borrow_mut();
            let late: Vec<u64> =
                pending.iter().filter(|(_, it)| it.is_over()).map(|(&tag, _)| tag).collect();
            for answer in self.answers.borrow_mut().drain(..) {
                let Some(entry) = pending.get_mut(&answer.tag) else { continue };
                entry.requests -= 1;
                if entry.is_over() {
                    over.extend(pending.remove(&answer.tag));
                }
            }
            over.extend(late.iter().filter_map(|tag| pending.remove(tag)));
        }
        for Pending { data, ticket, .. } in over {
            if let Data::Moved(done) = data {
                self.completions.finish(ticket, done);
            }
        }
    }
}

impl Disk for RealTimeDisk {
    fn submit(&self, op: Op) -> Completion<Done> {
        let inner = &self.0;
        if let Some(fault) = inner.limits.check(&op) {
            return Completion::ready(Done::failed(op.work, Error::refused(fault)));
        }
        if let Work::Zero { fast: true, .. } = op.work {
            let error = Error::refused("zeros are not faster than writing them");
            return Completion::ready(Done::failed(op.work, error));
        }
        let is_free = matches!(op.work, Work::Extents { .. });
        if is_free || (op.work.is_empty() && !matches!(op.work, Work::Flush)) {
            return inner.store.submit(op);
        }
        let tag = inner.tags.replace(inner.tags.get() + 1);
        let requests = requests(tag, &op);
        inner.advance();
        let now = inner.model_time();
        for &request in &requests {
            inner.model.borrow_mut().submit(now, request);
        }
        let (ticket, completion) = inner.completions.start();
        let data = Data::Moving(inner.store.submit(op));
        let entry = Pending { data, ticket, requests: requests.len() };
        inner.pending.borrow_mut().insert(tag, entry);
        inner.submitted.raise();
        completion
    }

    fn limits(&self) -> Limits {
        self.0.limits
    }
}

impl Drop for RealTimeDisk {
    fn drop(&mut self) {
        self.0.dropped.set(true);
        self.0.submitted.raise();
    }
}

#[cfg(test)]
mod tests;
