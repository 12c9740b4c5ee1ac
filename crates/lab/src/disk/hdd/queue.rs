//! Requests that wait for the heads, and which of them is next.

use std::ops::Range;

use super::super::geometry::Place;
use super::super::{Nanos, Request};
use super::arm::Arm;
use super::{Kind, Order};

/// How a disk orders what waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueSpec {
    /// The order.
    pub order: Order,
    /// A request that has waited this long is next, whatever the order says.
    pub age_limit: Option<Nanos>,
    /// Only so many of the oldest requests are considered. Consumer disks reorder few.
    pub considered: usize,
}

/// The heads wait at most this part of a revolution for the next read of a stream.
const STREAM_WAIT: u64 = 2;

/// A request that waits for the heads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) request: Request,
    pub(super) place: Place,
    pub(super) arrived: Nanos,
    /// The controller has decoded it: the arm may start.
    pub(super) ready: Nanos,
}

/// The queue, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    waiting: Vec<Waiting>,
}

impl Queue {
    pub(super) fn push(&mut self, waiting: Waiting) {
        self.waiting.push(waiting);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn take(&mut self, index: usize) -> Waiting {
        self.waiting.remove(index)
    }

    /// Takes out all requests of which `is_wanted` holds, oldest first.
    pub(super) fn extract(&mut self, mut is_wanted: impl FnMut(&Request) -> bool) -> Vec<Request> {
        let out = self.waiting.extract_if(.., |waiting| is_wanted(&waiting.request));
        out.map(|waiting| waiting.request).collect()
    }

    /// The next request and its cost; `ahead` tells when a running read-ahead would reach a read.
    pub(super) fn choose(
        &self,
        spec: &QueueSpec,
        arm: &Arm,
        now: Nanos,
        ahead: impl Fn(&Request) -> Option<Nanos>,
    ) -> Option<(usize, Nanos)> {
        let oldest = self.waiting.first()?;
        let cost = |waiting: &Waiting| {
            let start = now.max(waiting.ready);
            let write = waiting.request.kind == Kind::Write;
            let way = arm.way(&waiting.place, write, start).time() + (start - now);
            ahead(&waiting.request).map_or(way, |at| way.min(at.saturating_sub(now)))
        };
        if self.is_overdue(spec, now) || spec.order == Order::Arrival || self.waiting.len() == 1 {
            return Some((0, cost(oldest)));
        }
        let considered = self.waiting.iter().take(spec.considered.max(1)).enumerate();
        if spec.order == Order::Elevator {
            let at = arm.at.cylinder;
            // Upwards from the arm, then from the lowest again.
            let key = |waiting: &Waiting| (waiting.place.cylinder < at, waiting.request.sector);
            let (index, next) = considered.min_by_key(|(_, waiting)| key(waiting))?;
            return Some((index, cost(next)));
        }
        considered.map(|(index, waiting)| (index, cost(waiting))).min_by_key(|&(_, cost)| cost)
    }
    /// The next read of a stream and its cost, if the heads reach it soon.
    ///
    /// A stream with gaps (a member of a RAID 5 passes over parity) would tear by cost alone: a
    /// read of another track may come by first, and the one that was passed over costs a revolution
    /// later. So the heads stay on a stream, and pass over its gaps.
    pub(super) fn stream(
        &self,
        spec: &QueueSpec,
        arm: &Arm,
        now: Nanos,
        window: Range<u64>,
    ) -> Option<(usize, Nanos)> {
        if self.is_overdue(spec, now) || spec.order != Order::Shortest {
            return None;
        }
        let considered = self.waiting.iter().take(spec.considered.max(1)).enumerate();
        let in_window = considered.filter(|(_, waiting)| {
            waiting.request.kind == Kind::Read && window.contains(&waiting.request.sector)
        });
        let (index, next) = in_window.min_by_key(|(_, waiting)| waiting.request.sector)?;
        let start = now.max(next.ready);
        let cost = arm.way(&next.place, false, start).time() + (start - now);
        (cost <= arm.geometry.revolution() / STREAM_WAIT).then_some((index, cost))
    }

    fn is_overdue(&self, spec: &QueueSpec, now: Nanos) -> bool {
        let waited = self.waiting.first().map_or(0, |oldest| now - oldest.arrived);
        spec.age_limit.is_some_and(|limit| waited > limit)
    }
}
