//! Clients that stop in the middle of something.
//!
//! Owns one alarm for a connection, set only while there is something to watch: a partly received
//! request, or unread answers. When it fires, the progress since it was set decides. So a stalled
//! client is found after one to two [`STALL_TIME`]s, and a busy one costs one alarm in that time.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;

use io::{Clock, Completion, Time};

use crate::nbd::limits::{STALL_BYTES, STALL_TIME};

#[derive(Default)]
pub(super) struct Watch {
    alarm: Option<Completion<()>>,
    due: Time,
    /// The state when the alarm was set: the partial request's number and bytes.
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
                if Pin::new(alarm).poll(cx).is_pending() {
                    return false;
                }
                self.alarm = None;
                // If this process itself was stopped, clients get another term.
                let late = clock.now() - self.due >= STALL_TIME;
                let is_half = match (self.half_sent, half_sent) {
                    (Some((old, before)), Some((new, now))) => {
                        old == new && now - before < STALL_BYTES
                    }
                    _ => false,
                };
                let is_unsent = match (self.unsent, unsent) {
                    (Some(before), Some(now)) => now - before < STALL_BYTES,
                    _ => false,
                };
                if !late && (is_half || is_unsent && in_the_way()) {
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
