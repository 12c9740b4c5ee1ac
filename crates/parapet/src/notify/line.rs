//! A channel at work: its outbox, the thread that sends from it, and the thread that keeps it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use policy::alerts::{Channel, Event, Kept, Notice, Outbox};

use super::{THREAD, keeper, now, send};
use crate::api::ChannelState;

/// How long a message waits for the state folder, which may hang: to be restored at the start, or
/// to be kept before a program runs.
const STORE_PATIENCE: Duration = Duration::from_secs(2);
/// Events that wait at the start for those of the server before.
const MOST_EARLY: usize = 200;

/// See the module.
pub(super) struct Line {
    shared: Arc<Shared>,
}

/// What the threads of a line share.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
}

/// The state of a line.
pub(super) struct State {
    pub(super) outbox: Outbox,
    /// Events that come after those of the server before, until these are read: a repeat of them
    /// is no news.
    early: Option<Vec<Event>>,
    /// The revision of the outbox that is on disk; none if nothing is kept.
    pub(super) stored: Option<u64>,
    /// No event follows: the threads end after one attempt for each message.
    is_last: bool,
    /// The sender has ended.
    pub(super) is_over: bool,
    /// The keeper has ended.
    pub(super) is_closed: bool,
}

impl State {
    /// Takes what the server before has left, and then what happened since the start.
    fn restore(&mut self, left: Vec<Kept>) {
        let wall = jiff::Timestamp::now();
        left.into_iter().for_each(|kept| self.outbox.restore(kept, now(), wall));
        for event in self.early.take().into_iter().flatten() {
            self.outbox.note(&event, now());
        }
    }
}

impl Shared {
    /// The state. A thread that panicked left it whole: each change is one call.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change of the state, for so long.
    pub(super) fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        pause: Duration,
        is_awaited: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout_while(state, pause, is_awaited);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Takes what the server before has left. `stored` if changes are kept from now on.
    pub(super) fn restore(&self, left: Vec<Kept>, stored: Option<u64>) {
        let mut state = self.lock();
        state.restore(left);
        state.stored = stored;
        self.changed.notify_all();
    }
}

impl Line {
    /// Starts the threads of a channel.
    pub(super) fn start(channel: &Channel) -> Line {
        let outbox = Outbox::new(channel.clone());
        let state = State {
            outbox,
            early: Some(Vec::new()),
            stored: None,
            is_last: false,
            is_over: false,
            is_closed: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let spawn = |work: fn(&Shared)| {
            let own = Arc::clone(&shared);
            std::thread::Builder::new().name(THREAD.into()).spawn(move || work(&own)).map(drop)
        };
        if let Err(error) = spawn(keeper::run) {
            tracing::warn!("{}: alerts are not kept: no thread: {error}", channel.name);
            shared.lock().is_closed = true;
            shared.restore(Vec::new(), None);
        }
        if let Err(error) = spawn(run) {
            tracing::error!("{}: nobody is told: no thread: {error}", channel.name);
            let mut state = shared.lock();
            (state.is_over, state.is_last) = (true, true);
        }
        Line { shared }
    }

    /// Its channel.
    pub(super) fn channel(&self) -> Channel {
        self.shared.lock().outbox.channel().clone()
    }

    /// Takes over other settings of a channel of the same destination.
    pub(super) fn change(&self, channel: &Channel) {
        self.shared.lock().outbox.set_channel(channel.clone(), now());
        self.shared.changed.notify_all();
    }

    /// Queues an event; never waits for a message in flight.
    pub(super) fn tell(&self, event: &Event) {
        let mut state = self.shared.lock();
        match &mut state.early {
            Some(early) if early.len() < MOST_EARLY => early.push(event.clone()),
            _ => state.outbox.note(event, now()),
        }
        self.shared.changed.notify_all();
    }

    /// Ends the threads: each message gets one more attempt.
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
            channel: state.outbox.channel().name.clone(),
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
        let pause = limit.saturating_duration_since(Instant::now());
        let is_busy = |state: &mut State| !state.is_over || !state.is_closed;
        let state = line.shared.wait(line.shared.lock(), pause, is_busy);
        log_rest(&state);
    }
}

/// Logs what was not delivered when the server stops.
fn log_rest(state: &State) {
    let messages = |count: u64| match count {
        1 => "1 message".to_owned(),
        _ => format!("{count} messages"),
    };
    let (name, outbox) = (&state.outbox.channel().name, &state.outbox);
    let (waiting, lost) = (outbox.waiting() as u64, outbox.lost());
    let is_kept = state.stored == Some(outbox.revision());
    let rest = match is_kept {
        true => format!("{} for the next start", messages(waiting)),
        false => messages(waiting),
    };
    match state.is_over {
        false => tracing::warn!("{name}: still at work, and left behind with {rest}"),
        true if waiting > 0 => tracing::warn!("{name}: not delivered: {rest}"),
        true => {}
    }
    if state.is_over && lost > 0 {
        tracing::warn!("{name}: given up: {}", messages(lost));
    }
}

/// The thread: sends what is due, until the last message.
fn run(shared: &Shared) {
    {
        let is_starting = |state: &mut State| state.early.is_some();
        // A state folder that hangs must not silence the channel.
        shared.wait(shared.lock(), STORE_PATIENCE, is_starting).restore(Vec::new());
    }
    while let Some((channel, notice)) = next(shared) {
        let result = send(&channel, &notice);
        let mut state = shared.lock();
        match result {
            Ok(()) => {
                state.outbox.sent();
                shared.changed.notify_all();
            }
            Err(undelivered) => {
                let is_known = state.outbox.failing().is_some();
                let is_over = state.outbox.failed(now(), &undelivered.why, undelivered.for_good);
                shared.changed.notify_all();
                drop(state);
                log(&channel, &notice, &undelivered.why, is_known && !is_over);
            }
        }
    }
    shared.lock().is_over = true;
    shared.changed.notify_all();
}

/// Waits for the next message; none if no other follows.
fn next(shared: &Shared) -> Option<(Channel, Notice)> {
    let mut state = shared.lock();
    loop {
        let now = now();
        if let Some(notice) = state.outbox.next(now) {
            let channel = state.outbox.channel().clone();
            if !channel.retries() {
                shared.changed.notify_all();
                let wanted = state.outbox.revision();
                let is_older = |state: &mut State| state.stored.is_some_and(|it| it < wanted);
                drop(shared.wait(state, STORE_PATIENCE, is_older));
            }
            return Some((channel, notice));
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
