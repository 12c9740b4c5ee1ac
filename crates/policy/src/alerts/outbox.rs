//! What one channel still has to be told, and when.
//!
//! ```text
//!   note ──▶ held, if it repeats an event of the last hour ──▶ with a count, when the hour is over
//!       └──▶ waiting ──▶ in flight ──▶ sent
//!               │            │ ▲
//!               │     failed ▼ │ back-off: 10 s, 20 s, 40 s … 15 min
//!               └──▶ lost: too many, too old, or refused for good; counted, and told with the next
//! ```
//!
//! Every wanted event ends in exactly one place: a message, the count of a message, or the number
//! of lost ones, also over a restart ([`Kept`]). Times are durations since any fixed moment, of a
//! clock that never steps.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use super::{Channel, Event};

mod kept;

pub use kept::Kept;

/// mdadm's word for a test.
pub(super) const TEST: &str = "TestMessage";
/// Messages that wait; further ones push out the oldest of the least severity.
pub const MOST_WAITING: usize = 200;
/// Events that are remembered, so that their repeats are held.
const MOST_REMEMBERED: usize = 1000;
/// First and longest pause before a message is sent again.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(900);
/// A message that could not be delivered for this time is given up.
pub const TOO_OLD: Duration = Duration::from_secs(86_400);
/// Events that come in bursts, each with figures of its own.
const BURSTS: [&str; 5] = ["Repaired", "Slow", "SlowOver", "BadBlock", "ClientError"];
/// Events that begin a problem of a whole array, and those that end it.
const BEGINS: [&str; 2] = ["DegradedArray", "FailedArray"];
const WELL: &str = "Healthy";
const STOPPED: &str = "Stopped";

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The event.
    pub event: Event,
    /// How often it has happened since it was last told, if it is a summary; otherwise 1.
    pub count: u64,
    /// In a reminder, since when the problem lasts.
    pub since: Option<Timestamp>,
    /// Number of events before this one that were not delivered.
    pub lost: u64,
    /// When it was queued.
    noted: Duration,
}

/// A channel whose last message was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Why.
    pub why: String,
    /// Messages that wait for it.
    pub waiting: usize,
}

/// Identifies an event that may repeat: array, word and member.
type Key = (String, String, Option<String>);

/// An event that was told, and its repeats since.
#[derive(Clone, Debug)]
struct Told {
    at: Duration,
    last: Event,
    repeats: u64,
}

/// A problem of an array that lasts.
#[derive(Clone, Debug)]
struct Standing {
    event: Event,
    since: Timestamp,
    remind_at: Option<Duration>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Outbox {
    channel: Channel,
    waiting: VecDeque<Notice>,
    in_flight: Option<Notice>,
    told: BTreeMap<Key, Told>,
    /// By UUID of the array.
    standing: BTreeMap<String, Standing>,
    lost: u64,
    /// Attempts that failed since the last success, and why the last one did.
    failures: u32,
    why: String,
    retry_at: Duration,
    /// Number of changes that a restart must not undo.
    revision: u64,
}

impl Outbox {
    /// An empty one.
    pub fn new(channel: Channel) -> Outbox {
        Outbox {
            channel,
            waiting: VecDeque::new(),
            in_flight: None,
            told: BTreeMap::new(),
            standing: BTreeMap::new(),
            lost: 0,
            failures: 0,
            why: String::new(),
            retry_at: Duration::ZERO,
            revision: 0,
        }
    }

    /// The channel.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Takes over other settings of a channel of the same destination; the next attempt is due,
    /// because they may be a correction.
    pub fn set_channel(&mut self, channel: Channel, now: Duration) {
        self.channel = channel;
        self.retry_at = now;
    }

    /// Takes an event.
    pub fn note(&mut self, event: &Event, now: Duration) {
        let had_problem = self.note_standing(event, now);
        let is_end = had_problem && event.word == WELL;
        if is_end {
            self.tell_repeats(now, |(uuid, ..), _| *uuid == event.uuid);
            self.told.retain(|(uuid, ..), _| *uuid != event.uuid);
        }
        if (self.channel.wants(event) || is_end) && !self.hold(event, now) {
            self.queue(event.clone(), 1, None, now);
        }
    }

    /// Returns the message to send now, if there is one. Ask again after [`Outbox::sent`] or
    /// [`Outbox::failed`].
    pub fn next(&mut self, now: Duration) -> Option<Notice> {
        self.remind(now);
        if let Some(quiet) = self.channel.quiet {
            self.tell_repeats(now, |_, told| told.at + quiet.0 <= now);
            self.told.retain(|_, told| told.at + quiet.0 > now);
        } else if !self.told.is_empty() {
            // Repeats are told from now on.
            self.tell_repeats(now, |_, _| true);
            self.told.clear();
        }
        if self.failures > 0 && now < self.retry_at {
            return None;
        }
        let mut notice = self.in_flight.take().or_else(|| self.waiting.pop_front())?;
        notice.lost = self.lost;
        // A message that must not be sent twice is kept as in flight before it is sent.
        self.revision += u64::from(!self.channel.retries());
        self.in_flight = Some(notice.clone());
        Some(notice)
    }

    /// The message was delivered.
    pub fn sent(&mut self) {
        if let Some(notice) = self.in_flight.take() {
            self.lost -= notice.lost.min(self.lost);
            self.revision += 1;
        }
        (self.failures, self.why) = (0, String::new());
    }

    /// The message was not delivered. Returns true if it is given up: it was refused for good, is
    /// too old, or must not be sent twice.
    pub fn failed(&mut self, now: Duration, why: &str, for_good: bool) -> bool {
        self.why = why.into();
        self.failures = self.failures.saturating_add(1);
        let doublings = self.failures.saturating_sub(1).min(16);
        self.retry_at = now + (FIRST_PAUSE * (1 << doublings)).min(LONGEST_PAUSE);
        let is_old = |notice: &Notice| now.saturating_sub(notice.noted) >= TOO_OLD;
        let is_over = for_good || !self.channel.retries();
        if !is_over && !self.in_flight.as_ref().is_some_and(is_old) {
            return false;
        }
        if is_over {
            // The next message has a chance of its own.
            self.retry_at = now;
        }
        let given_up = self.in_flight.take().map_or(0, |notice| notice.count);
        self.lost = self.lost.saturating_add(given_up);
        self.revision += 1;
        true
    }

    /// When to ask for the next message, if no event comes before.
    pub fn wake(&self) -> Option<Duration> {
        let has_message = self.in_flight.is_some() || !self.waiting.is_empty();
        let retry_at = if self.failures > 0 { self.retry_at } else { Duration::ZERO };
        let message = has_message.then_some(retry_at);
        let quiet = self.channel.quiet.map_or(Duration::ZERO, |quiet| quiet.0);
        let repeats = self.told.values().filter(|told| told.repeats > 0);
        let repeats = repeats.map(|told| told.at + quiet).min();
        let reminder = self.standing.values().filter_map(|standing| standing.remind_at).min();
        [message, repeats, reminder].into_iter().flatten().min()
    }

    /// Queues what is held, because the server stops, and makes the next attempt due.
    pub fn finish(&mut self, now: Duration) {
        self.tell_repeats(now, |_, _| true);
        self.standing.clear();
        self.retry_at = now;
    }

    /// Why the last message was not delivered, if it was not.
    pub fn failing(&self) -> Option<Failing> {
        let (why, waiting) = (self.why.clone(), self.waiting());
        (self.failures > 0).then_some(Failing { why, waiting })
    }

    /// Number of messages that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + usize::from(self.in_flight.is_some())
    }

    /// Number of events that were not delivered, and of which no message has told yet.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Records the begin or end of a problem. Returns true if the array had one.
    fn note_standing(&mut self, event: &Event, now: Duration) -> bool {
        if event.word == WELL || event.word == STOPPED {
            return self.standing.remove(&event.uuid).is_some();
        }
        if !BEGINS.contains(&event.word.as_str()) || !self.channel.wants(event) {
            return self.standing.contains_key(&event.uuid);
        }
        let known = self.standing.get(&event.uuid).map(|standing| standing.since);
        let remind_at = self.channel.remind.map(|remind| now + remind.0);
        let standing =
            Standing { event: event.clone(), since: known.unwrap_or(event.time), remind_at };
        self.standing.insert(event.uuid.clone(), standing);
        known.is_some()
    }

    /// Holds an event back that repeats one of the last time. Returns true if it does.
    fn hold(&mut self, event: &Event, now: Duration) -> bool {
        let Some(quiet) = self.channel.quiet.filter(|_| event.word != TEST) else { return false };
        let key = (event.uuid.clone(), event.word.clone(), event.member.clone());
        if let Some(told) = self.told.get_mut(&key)
            && now < told.at + quiet.0
            && (BURSTS.contains(&event.word.as_str()) || told.last.message == event.message)
        {
            told.repeats += 1;
            told.last = event.clone();
            return true;
        }
        self.tell_repeats(now, |other, _| *other == key);
        if self.told.len() < MOST_REMEMBERED || self.told.contains_key(&key) {
            self.told.insert(key, Told { at: now, last: event.clone(), repeats: 0 });
        }
        false
    }

    /// Queues one message for the repeats of each event that is due.
    fn tell_repeats(&mut self, now: Duration, is_due: impl Fn(&Key, &Told) -> bool) {
        let mut due = Vec::new();
        for (key, told) in &mut self.told {
            if told.repeats > 0 && is_due(key, told) {
                due.push((told.last.clone(), std::mem::take(&mut told.repeats)));
                told.at = now;
            }
        }
        due.into_iter().for_each(|(event, count)| self.queue(event, count, None, now));
    }

    /// Queues the reminders that are due, one for each array at most.
    fn remind(&mut self, now: Duration) {
        let Some(every) = self.channel.remind else { return };
        let mut due = Vec::new();
        for (uuid, standing) in &mut self.standing {
            if standing.remind_at.is_none_or(|at| at > now) {
                continue;
            }
            standing.remind_at = Some(now + every.0);
            let is_it = |notice: &&Notice| notice.since.is_some() && notice.event.uuid == *uuid;
            if self.waiting.iter().chain(&self.in_flight).find(is_it).is_none() {
                due.push((standing.event.clone(), standing.since));
            }
        }
        due.into_iter().for_each(|(event, since)| self.queue(event, 1, Some(since), now));
    }

    fn queue(&mut self, event: Event, count: u64, since: Option<Timestamp>, now: Duration) {
        self.waiting.push_back(Notice { event, count, since, lost: 0, noted: now });
        self.drop_beyond_limit();
        self.revision += 1;
    }

    /// Drops messages beyond the limit, and counts them.
    fn drop_beyond_limit(&mut self) {
        while self.waiting.len() > MOST_WAITING {
            let severities = self.waiting.iter().map(|notice| notice.event.severity);
            let least = severities.enumerate().min_by_key(|&(_, severity)| severity);
            let dropped = least.and_then(|(index, _)| self.waiting.remove(index));
            self.lost = self.lost.saturating_add(dropped.map_or(0, |notice| notice.count));
        }
    }
}

#[cfg(test)]
mod tests;
