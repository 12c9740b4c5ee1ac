//! What a restart must not lose of an outbox: the messages, and what was told lately.
//!
//! ```text
//!   waiting    ──▶ waiting
//!   in flight  ──▶ waiting: it may not have arrived; or lost, where it must not be sent twice
//!   told       ──▶ told: its repeats are held, also those of the next server
//! ```
//!
//! Times are those of the wall clock here, since the other clock begins anew.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{MOST_REMEMBERED, Notice, Outbox, Told};
use crate::alerts::Event;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    in_flight: Option<Message>,
    waiting: Vec<Message>,
    told: Vec<Repeated>,
    /// Messages that were not delivered, and of which none has told yet.
    lost: u64,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    event: Event,
    count: u64,
    since: Option<Timestamp>,
    noted: Timestamp,
}

/// An event that was told, and its repeats since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Repeated {
    last: Event,
    at: Timestamp,
    repeats: u64,
}

impl Kept {
    /// True if a restart would lose nothing without it.
    pub fn is_empty(&self) -> bool {
        *self == Kept::default()
    }

    /// Number of messages.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + usize::from(self.in_flight.is_some())
    }
}

/// The same moment of both clocks.
#[derive(Clone, Copy)]
struct Now(Duration, Timestamp);

impl Now {
    fn timestamp(self, time: Duration) -> Timestamp {
        let age = SignedDuration::try_from(self.0.saturating_sub(time)).unwrap_or_default();
        self.1.checked_sub(age).unwrap_or(Timestamp::MIN)
    }

    /// A clock that was set back makes nothing younger than new.
    fn duration(self, time: Timestamp) -> Duration {
        let age = Duration::try_from(self.1.duration_since(time)).unwrap_or_default();
        self.0.saturating_sub(age)
    }
}

impl Outbox {
    /// Changes whenever [`Outbox::kept`] has to be stored again. The repeats of an event that was
    /// told change nothing: they are stored with the next message.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// What to keep; `wall` is the time on the wall clock.
    pub fn kept(&self, now: Duration, wall: Timestamp) -> Kept {
        let now = Now(now, wall);
        let message = |notice: &Notice| Message {
            event: notice.event.clone(),
            count: notice.count,
            since: notice.since,
            noted: now.timestamp(notice.noted),
        };
        let repeated = |told: &Told| Repeated {
            last: told.last.clone(),
            at: now.timestamp(told.at),
            repeats: told.repeats,
        };
        Kept {
            in_flight: self.in_flight.as_ref().map(message),
            waiting: self.waiting.iter().map(message).collect(),
            told: self.told.values().map(repeated).collect(),
            lost: self.lost,
        }
    }

    /// Takes over what another outbox has left.
    pub fn restore(&mut self, kept: Kept, now: Duration, wall: Timestamp) {
        let now = Now(now, wall);
        let Kept { in_flight, waiting, told, lost } = kept;
        self.lost = self.lost.saturating_add(lost);
        let in_flight = match in_flight {
            Some(message) if !self.channel.retries() => {
                self.lost = self.lost.saturating_add(message.count);
                None
            }
            in_flight => in_flight,
        };
        let notice = |message: Message| Notice {
            event: message.event,
            count: message.count,
            since: message.since,
            lost: 0,
            noted: now.duration(message.noted),
        };
        let older = in_flight.into_iter().chain(waiting).map(notice);
        self.waiting = older.chain(std::mem::take(&mut self.waiting)).collect();
        self.drop_beyond_limit();
        let room = MOST_REMEMBERED.saturating_sub(self.told.len());
        for Repeated { last, at, repeats } in told.into_iter().take(room) {
            let key = (last.uuid.clone(), last.word.clone(), last.member.clone());
            let told = Told { at: now.duration(at), last, repeats };
            self.told.entry(key).or_insert(told);
        }
        self.revision += 1;
    }
}
