//! Clients that stop in the middle of something.
//!
//! Owns one alarm for a connection, set only while there is something to watch: a request that has
//! been sent by half, or answers that are not taken. When it rings, what has moved since it was set
//! decides. So a client that stalls is found after one [`STALL_TIME`] at least and two at most, and
//! a busy one costs one alarm in that time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use io::{Clock, Completion, Time};

use crate::nbd::limits::{STALL_BYTES, STALL_TIME};

#[derive(Default)]
pub(super) struct Watch {
    alarm: Option<Completion<()>>,
    due: Time,
    /// What was seen when the alarm was set: the half-sent request's number and bytes.
    half_sent: Option<(u64, u64)>,
    /// Bytes of answers sent, if any waited.
    unsent: Option<u64>,
}

impl Watch {
    /// True if the client has stalled. `in_the_way`: the answers that it does not take keep others
    /// from memory.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        clock: &dyn Clock,
        half_sent: Option<(u64, u64)>,
        unsent: Option<u64>,
        in_the_way: impl Fn() -> bool,
    ) -> bool {
        loop {
            if let Some(alarm) = &mut self.alarm {
                if let Poll::Pending = Pin::new(alarm).poll(cx) {
                    return false;
                }
                self.alarm = None;
                // If this process itself was stopped, clients get another term.
                let late = clock.now() - self.due >= STALL_TIME;
                let half = matches!((self.half_sent, half_sent), (Some((old, before)), Some((new, now)))
                    if old == new && now - before < STALL_BYTES);
                let still = matches!((self.unsent, unsent), (Some(before), Some(now))
                    if now - before < STALL_BYTES);
                if !late && (half || still && in_the_way()) {
                    return true;
                }
            }
            if half_sent.is_none() && unsent.is_none() {
                return false;
            }
            (self.half_sent, self.unsent) = (half_sent, unsent);
            self.due = clock.now() + STALL_TIME;
            self.alarm = Some(clock.sleep_until(self.due));
        }
    }
}
