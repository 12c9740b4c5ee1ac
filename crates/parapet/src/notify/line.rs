//! A channel at work: its outbox, and the thread that sends from it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy::alerts::{Channel, Event, Notice, Outbox};

use super::{THREAD, now, send};
use crate::api::ChannelState;

/// See the module.
pub(super) struct Line {
    channel: Channel,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    outbox: Outbox,
    /// No event follows: the thread ends after one attempt for each message.
    is_last: bool,
    is_over: bool,
}

impl Shared {
    /// The state. A thread that panicked left it whole: each change is one call.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Starts the thread of a channel.
    pub(super) fn start(channel: &Channel) -> Line {
        let outbox = Outbox::new(channel.clone());
        let state = Mutex::new(State { outbox, is_last: false, is_over: false });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let own = Arc::clone(&shared);
        let started = std::thread::Builder::new().name(THREAD.into()).spawn(move || run(&own));
        if let Err(error) = started {
            tracing::error!("{}: nobody is told: no thread: {error}", channel.name);
            let mut state = shared.lock();
            (state.is_over, state.is_last) = (true, true);
        }
        Line { channel: channel.clone(), shared }
    }

    /// Its channel.
    pub(super) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Queues an event; never waits for a message in flight.
    pub(super) fn tell(&self, event: &Event) {
        self.shared.lock().outbox.note(event, now());
        self.shared.changed.notify_all();
    }

    /// Ends the thread: each message gets one more attempt.
    pub(super) fn end(&self) {
        let mut state = self.shared.lock();
        state.is_last = true;
        state.outbox.finish(now());
        self.shared.changed.notify_all();
    }

    /// Whether its messages arrive.
    pub(super) fn state(&self) -> ChannelState {
        let state = self.shared.lock();
        let failing = state.outbox.failing();
        ChannelState {
            channel: self.channel.name.clone(),
            trouble: failing.map(|failing| failing.why),
            waiting: state.outbox.waiting() as u64,
            lost: state.outbox.lost(),
        }
    }
}

/// Ends the threads, and waits so long for all of them together.
pub(super) fn finish(lines: &[Line], patience: Duration) {
    lines.iter().for_each(Line::end);
    let limit = Instant::now() + patience;
    for line in lines {
        let left = limit.saturating_duration_since(Instant::now());
        let guard = line.shared.lock();
        let waited = line.shared.changed.wait_timeout_while(guard, left, |state| !state.is_over);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let name = &line.channel.name;
        let count = state.outbox.waiting() as u64 + state.outbox.lost();
        let left = match count {
            1 => "1 message".into(),
            _ => format!("{count} messages"),
        };
        match state.is_over {
            false => tracing::warn!("{name}: still at work, and left behind with {left}"),
            true if count > 0 => tracing::warn!("{name}: not delivered: {left}"),
            true => {}
        }
    }
}

/// The thread: sends what is due, until the last message.
fn run(shared: &Shared) {
    while let Some(notice) = next(shared) {
        // The channel never changes.
        let channel = shared.lock().outbox.channel().clone();
        let result = send(&channel, &notice);
        let mut state = shared.lock();
        match result {
            Ok(()) => state.outbox.sent(),
            Err(undelivered) => {
                let is_known = state.outbox.failing().is_some();
                let is_over = state.outbox.failed(now(), &undelivered.why, undelivered.for_good);
                drop(state);
                log(&channel, &notice, &undelivered.why, is_known && !is_over);
            }
        }
    }
    shared.lock().is_over = true;
    shared.changed.notify_all();
}

/// Waits for the next message; none if no other follows.
fn next(shared: &Shared) -> Option<Notice> {
    let mut state = shared.lock();
    loop {
        let now = now();
        if let Some(notice) = state.outbox.next(now) {
            return Some(notice);
        }
        if state.is_last {
            return None;
        }
        state = match state.outbox.wake() {
            None => shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(at) => {
                let pause = at.saturating_sub(now);
                let waited = shared.changed.wait_timeout(state, pause);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
}

/// Logs a failed attempt; one that repeats another is no news.
fn log(channel: &Channel, notice: &Notice, why: &str, is_repeat: bool) {
    let (array, event, name) = (&notice.event.array, &notice.event.word, &channel.name);
    match is_repeat {
        true => tracing::debug!("{array}: {event}: {name}: not delivered: {why}"),
        false => tracing::error!("{array}: {event}: {name}: not delivered: {why}"),
    }
}
