//! The task that takes the answers of orphaned operations. It reports members that never answer as
//! lost.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use io::{ErrorKind, Time};

use crate::member::Member;
use crate::member::latency::Kind;
use crate::member::orphans::Orphan;
use crate::rows::engine::Engine;
use crate::shard::message::ToKeeper;

impl Engine {
    /// Collects orphaned operations until the shard stops.
    pub(crate) async fn run_orphans(self: Rc<Self>) {
        std::future::poll_fn(|cx| {
            if self.is_stopping() {
                return Poll::Ready(());
            }
            let late = &self.late;
            if late.waker.borrow().as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                *late.waker.borrow_mut() = Some(cx.waker().clone());
            }
            let mut orphans = late.orphans.take();
            orphans.retain_mut(|orphan| !self.has_ended(orphan, cx));
            let mut kept = late.orphans.borrow_mut();
            orphans.append(&mut kept);
            *kept = orphans;
            Poll::Pending
        })
        .await;
    }

    /// Takes the answer if it has arrived.
    fn has_ended(&self, orphan: &mut Orphan, cx: &mut Context<'_>) -> bool {
        let Poll::Ready(done) = Pin::new(&mut orphan.answer).poll(cx) else { return false };
        let member = &orphan.member;
        orphan.end_load();
        if orphan.writes {
            member.counters().late_writes.sub(1);
        }
        if orphan.probe {
            member.latency_stats.probing.set(false);
        }
        match done.result {
            Ok(()) if !orphan.writes && orphan.bytes > 0 => {
                let now = self.setup.clock.now();
                member.counters().durations[0].add(now - orphan.since);
                if member.latency_stats.add(Kind::Read, orphan.bytes, orphan.since, now) {
                    self.judge_latency();
                }
            }
            // The next read of the block repairs it.
            Err(error) if error.is_medium() => {}
            Err(error) if !orphan.missed => self.lose_late(member, error),
            _ => {}
        }
        true
    }

    /// Reports members as lost whose operations have passed the deadline. The sweep was due at
    /// `due`; its own delay does not count against them.
    pub(crate) fn sweep_late(&self, due: Time, now: Time, deadline: Duration) {
        let mut overdue = Vec::new();
        for orphan in self.late.orphans.borrow_mut().iter_mut().filter(|l| !l.missed) {
            let lost = now - orphan.since.max(due);
            orphan.since = orphan.since + lost;
            if now - orphan.since >= deadline {
                orphan.end_load();
                orphan.missed = true;
                overdue.push(Rc::clone(&orphan.member));
            }
        }
        for member in overdue {
            member.counters().timeouts.add(1);
            let what = format!("{}: no answer within {} s", member.name, deadline.as_secs_f32());
            self.lose_late(&member, io::Error::new(ErrorKind::Timeout, what));
        }
    }

    /// Reports a loss outside any request.
    pub(crate) fn lose_late(&self, member: &Rc<Member>, why: io::Error) {
        if self.view().members().any(|(_, assigned)| Rc::ptr_eq(assigned, member)) {
            self.post.to_keeper(ToKeeper::Lost { member: member.id, why });
        }
    }
}
