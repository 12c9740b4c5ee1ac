//! Answers that nobody waits for any longer.
//!
//! An operation that missed its deadline, and a read that was done another way meanwhile, stay with
//! the member, and so do their buffers, until the member answers or is let go. Here they are looked
//! after:
//!
//! - A *read* that was given up before its deadline still has one: a member that hangs is lost by
//!   it though nobody waits. What it says when it does answer counts for the member's pulse; its
//!   bytes are dropped.
//! - A *write* that missed its deadline is never believed, whatever its answer, and may still land.
//!   The member was lost for it; until the answer is there it must not come back, since the late
//!   write would overwrite what was copied to it meanwhile: `Counters::late_writes`.
//!
//! Never decides to give anything up: that is `member/batch.rs` and `rows/hedge.rs`.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use io::{Completion, Done, ErrorKind, Time};

use crate::member::Member;
use crate::member::latency::Kind;
use crate::shard::Shard;
use crate::shard::message::ToKeeper;

/// An operation whose answer nobody waits for.
pub(crate) struct Laggard {
    pub(crate) member: Rc<Member>,
    pub(crate) answer: Completion<Done>,
    /// When it was sent.
    pub(crate) since: Time,
    pub(crate) bytes: u64,
    pub(crate) writes: bool,
    /// It has missed its deadline, and the member was lost for it.
    pub(crate) missed: bool,
    /// It was sent only to see how long it takes.
    pub(crate) probe: bool,
}

/// The laggards of a shard.
#[derive(Default)]
pub(crate) struct Late {
    laggards: RefCell<Vec<Laggard>>,
    waker: RefCell<Option<Waker>>,
}

impl Late {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.laggards.borrow().len()
    }

    /// True if some have a deadline to come.
    pub(crate) fn is_busy(&self) -> bool {
        self.laggards.borrow().iter().any(|laggard| !laggard.missed)
    }

    /// Takes over what is not waited for any longer.
    pub(crate) fn take(&self, laggards: impl IntoIterator<Item = Laggard>) {
        for laggard in laggards {
            if laggard.writes {
                laggard.member.counters().late_writes.add(1);
            }
            self.laggards.borrow_mut().push(laggard);
        }
        self.wake();
    }

    /// Has them looked at.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

impl Laggard {
    /// One operation less is under way, as far as its member's load goes.
    fn settle(&self) {
        if !self.missed {
            self.member.busy.set(self.member.busy.get() - 1);
        }
    }
}

impl Shard {
    /// Looks after laggards until the shard stops.
    pub(crate) async fn mind_late(self: Rc<Self>) {
        std::future::poll_fn(|cx| {
            if self.is_stopping() {
                return Poll::Ready(());
            }
            let late = &self.late;
            if late.waker.borrow().as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                *late.waker.borrow_mut() = Some(cx.waker().clone());
            }
            let mut laggards = late.laggards.take();
            laggards.retain_mut(|laggard| !self.has_ended(laggard, cx));
            let mut kept = late.laggards.borrow_mut();
            laggards.append(&mut kept);
            *kept = laggards;
            Poll::Pending
        })
        .await;
    }

    /// Takes the answer, if it is there.
    fn has_ended(&self, laggard: &mut Laggard, cx: &mut Context<'_>) -> bool {
        let Poll::Ready(done) = Pin::new(&mut laggard.answer).poll(cx) else { return false };
        let member = &laggard.member;
        laggard.settle();
        if laggard.writes {
            member.counters().late_writes.sub(1);
        }
        if laggard.probe {
            member.pulse.probing.set(false);
        }
        match done.result {
            Ok(()) if !laggard.writes && laggard.bytes > 0 => {
                let now = self.setup.clock.now();
                if member.pulse.add(Kind::Read, laggard.bytes, laggard.since, now) {
                    self.judge_pace();
                }
            }
            // Who reads there next repairs it.
            Err(error) if matches!(error.kind(), ErrorKind::Medium { .. }) => {}
            Err(error) if !laggard.missed => self.lose_late(member, error),
            _ => {}
        }
        true
    }

    /// Loses the members of those that have waited for longer than the deadline, apart from the
    /// time for which this sweep, which was to come at `due`, is late.
    pub(crate) fn sweep_late(&self, due: Time, now: Time, deadline: Duration) {
        let mut overdue = Vec::new();
        for laggard in self.late.laggards.borrow_mut().iter_mut().filter(|l| !l.missed) {
            let lost = now - laggard.since.max(due);
            laggard.since = laggard.since + lost;
            if now - laggard.since >= deadline {
                laggard.settle();
                laggard.missed = true;
                overdue.push(Rc::clone(&laggard.member));
            }
        }
        for member in overdue {
            member.counters().timeouts.add(1);
            let what = format!("{}: no answer within {} s", member.name, deadline.as_secs_f32());
            self.lose_late(&member, io::Error::new(ErrorKind::Timeout, what));
        }
    }

    /// Reports a loss that nobody waits for.
    pub(crate) fn lose_late(&self, member: &Rc<Member>, why: io::Error) {
        if self.view().members().any(|(_, seated)| Rc::ptr_eq(seated, member)) {
            self.post.to_keeper(ToKeeper::Lost { member: member.id, why });
        }
    }
}
