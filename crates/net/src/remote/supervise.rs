//! The life of the connections: watches one, makes the next, replays, gives up.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use io::broken::{Broken, broken};
use io::{Disk, Op, Time, Work};

use super::{
    COOL_DOWN, Connection, FLAP_WINDOW, FLAPS, HOLD, InFlight, QUARANTINE, SLOW, STALL, Shared,
    State, unless,
};

/// Interval at which a live connection is looked at.
const TICK: Duration = Duration::from_millis(500);
/// Pauses between attempts to connect: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Drives connections until the disk is closed.
pub(super) async fn supervise(shared: &Shared) {
    let first = shared.first.borrow_mut().take().expect("`run` is called once");
    let mut breaks = VecDeque::new();
    let mut connection = Some(first);
    while !shared.closed.get() {
        match connection.take() {
            Some(mut live) => {
                watch(shared, &mut live.run).await;
                shared.lose_connection(shared.session.get());
                drop(live);
                note_break(shared, &mut breaks);
            }
            None => {
                let flaps = breaks.len() >= FLAPS && shared.state.get() == State::Missing;
                connection = reconnect(shared, flaps).await;
            }
        }
    }
}

/// Drives a connection until it ends, or is given up, or leaves an operation unanswered for
/// [`STALL`]. Flushes when the disk is idle, and when the unflushed writes fill their memory.
async fn watch(shared: &Shared, run: &mut Pin<Box<dyn Future<Output = ()>>>) {
    let session = shared.session.get();
    let waiting = async {
        loop {
            shared.clock.sleep_until(shared.clock.now() + TICK).await;
            let now = shared.clock.now();
            let oldest = shared.in_flight.borrow().values().map(|(_, since)| now - *since).max();
            let waited = oldest.unwrap_or_default();
            if waited > STALL {
                return;
            }
            if matches!(shared.state.get(), State::Up | State::Slow) {
                shared.set_state(if waited > SLOW { State::Slow } else { State::Up });
            }
        }
    };
    let flushing = async {
        let mut idle_mark = None;
        loop {
            shared.clock.sleep_until(shared.clock.now() + TICK).await;
            let mark = shared.unflushed.borrow().mark();
            let is_empty = shared.unflushed.borrow().is_empty();
            let idle = idle_mark.replace(mark) == Some(mark);
            if !is_empty && (idle || shared.unflushed.borrow().is_half_full()) {
                flush(shared).await;
            }
        }
    };
    let (mut waiting, mut flushing) = (pin!(waiting), pin!(flushing));
    let mut changed = pin!(shared.changed.wait());
    poll_fn(|cx| {
        loop {
            if shared.closed.get() || shared.session.get() != session {
                return Poll::Ready(());
            }
            let _: Poll<()> = flushing.as_mut().poll(cx);
            if waiting.as_mut().poll(cx).is_ready() || run.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if changed.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            changed.set(shared.changed.wait());
        }
    })
    .await;
}

/// Flushes on the current connection; a failure is for the next client's flush to report.
async fn flush(shared: &Shared) {
    let mark = shared.unflushed.borrow().mark();
    let Some(disk) = shared.disk.borrow().clone() else { return };
    let in_flight = InFlight::begin(shared, shared.number(), 0..0);
    let done = disk.submit(Op::flush()).await;
    drop(in_flight);
    if done.result.is_ok() {
        shared.unflushed.borrow_mut().flushed(mark);
    }
}

/// Records a break, and makes the disk missing if it breaks too often.
fn note_break(shared: &Shared, breaks: &mut VecDeque<Time>) {
    let now = shared.clock.now();
    breaks.retain(|&at| now - at < FLAP_WINDOW);
    breaks.push_back(now);
    // An owner that holds longer cannot do without the disk.
    let flaps = breaks.len() >= FLAPS && shared.hold.get() <= HOLD;
    if flaps || !shared.unflushed.borrow().is_complete() {
        shared.give_up();
    }
}

/// Connects again. Gives up holding operations when the time is over, never connecting.
async fn reconnect(shared: &Shared, flaps: bool) -> Option<Connection> {
    let broken_at = shared.clock.now();
    if flaps && !broken(Broken::RemoteFlapsUndamped) {
        sleep(shared, broken_at + COOL_DOWN).await;
    }
    let mut pause = FIRST_PAUSE;
    loop {
        if shared.closed.get() || shared.refused.borrow().is_some() {
            closed(shared).await;
            return None;
        }
        let attempt = connect(shared);
        let found = match shared.state.get() {
            State::Missing => attempt.await,
            _ => {
                let deadline = shared.clock.sleep_until(broken_at + shared.hold.get());
                match unless(attempt, deadline).await {
                    Some(found) => found,
                    None => {
                        shared.give_up();
                        continue;
                    }
                }
            }
        };
        if let Some(connection) = found {
            return Some(connection);
        }
        let now = shared.clock.now();
        if shared.state.get() != State::Missing && now - broken_at >= shared.hold.get() {
            shared.give_up();
        }
        // Different disks of one server do not come all at once.
        let jitter = shared.name.bytes().fold(0_u64, |sum, byte| sum * 31 % 997 + u64::from(byte));
        let jitter = pause.mul_f64(jitter as f64 % 100.0 / 400.0);
        let next = now + pause + jitter;
        let is_missing = shared.state.get() == State::Missing;
        sleep(shared, if is_missing { next } else { next.min(broken_at + shared.hold.get()) })
            .await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// One attempt: connects, compares, replays. None if it failed.
async fn connect(shared: &Shared) -> Option<Connection> {
    let was_missing = shared.state.get() == State::Missing;
    let mut connection = shared.connect.connect().await.ok()?;
    if let Some(why) = difference(shared, &connection) {
        shared.refused.replace(Some(why));
        shared.give_up();
        return None;
    }
    if was_missing {
        // A late write of the old connection must not follow the copy of the array's regions.
        while let Some(until) = ends(shared) {
            let run = &mut connection.run;
            unless(shared.clock.sleep_until(until), run.as_mut()).await?;
        }
    } else {
        let run = &mut connection.run;
        let replaying = replay(shared, &connection.disk);
        if unless(replaying, run.as_mut()).await != Some(true) {
            return None;
        }
    }
    if shared.closed.get() {
        return None;
    }
    shared.disk.replace(Some(Rc::clone(&connection.disk)));
    let is_trusted = !shared.unconfirmed.get();
    shared.set_state(if is_trusted { State::Up } else { State::Returned });
    shared.changed.raise();
    Some(connection)
}

fn ends(shared: &Shared) -> Option<Time> {
    shared.quarantine.borrow_mut().ends(shared.clock.now())
}

/// Says in what the disk that answers now is another one.
fn difference(shared: &Shared, connection: &Connection) -> Option<String> {
    let (old, new) = (shared.limits, connection.disk.limits());
    if connection.identity != shared.identity {
        let (old, new) = (&shared.identity, &connection.identity);
        return Some(format!("another disk answers: its serial was {old:?}, and is {new:?}"));
    }
    if new.bytes < old.bytes {
        return Some(format!("the disk has shrunk from {} to {} bytes", old.bytes, new.bytes));
    }
    if new.logical_block > old.logical_block {
        let (old, new) = (old.logical_block, new.logical_block);
        return Some(format!("its block size was {old}, and is {new} bytes"));
    }
    (new.read_only && !old.read_only).then(|| "the disk has become read-only".into())
}

/// Writes what was acknowledged and not flushed again, and flushes it. False if that failed.
async fn replay(shared: &Shared, disk: &Rc<dyn Disk>) -> bool {
    let (mark, entries) = {
        let unflushed = shared.unflushed.borrow();
        if !unflushed.is_complete() {
            return false;
        }
        (unflushed.mark(), unflushed.entries())
    };
    for entry in entries.iter().filter(|_| !broken(Broken::RemoteNotReplayed)) {
        // One after the other: they may overlap.
        if disk.submit(entry.op()).await.result.is_err() {
            return false;
        }
    }
    if !entries.is_empty() && disk.submit(Op::new(0, Work::Flush)).await.result.is_err() {
        return false;
    }
    shared.unflushed.borrow_mut().flushed(mark);
    true
}

/// Sleeps, unless the disk is closed meanwhile.
async fn sleep(shared: &Shared, until: Time) {
    while !shared.closed.get() && shared.clock.now() < until {
        let changed = shared.changed.wait();
        let _: Option<()> = unless(changed, shared.clock.sleep_until(until)).await;
    }
}

async fn closed(shared: &Shared) {
    while !shared.closed.get() {
        shared.changed.wait().await;
    }
}

impl Shared {
    /// Ends the current connection, if it still is this one: its writes in flight may land later.
    pub(super) fn lose_connection(&self, session: u64) {
        if self.session.get() != session || self.disk.borrow_mut().take().is_none() {
            return;
        }
        for (&number, (written, _)) in &*self.in_flight.borrow() {
            self.suspect(number, written);
        }
        self.session.set(session + 1);
        // One that had returned has not been trusted yet.
        let was_up = matches!(self.state.get(), State::Up | State::Slow);
        self.set_state(if was_up { State::Reconnecting } else { State::Missing });
        self.changed.raise();
    }

    /// Records a write whose outcome is unknown.
    pub(super) fn suspect(&self, number: u64, written: &Range<u64>) {
        if !written.is_empty() {
            let until = self.clock.now() + QUARANTINE;
            self.quarantine.borrow_mut().add(number, written.clone(), until);
        }
    }

    /// Stops holding operations: they fail with `Gone`, and so do later ones.
    pub(super) fn give_up(&self) {
        self.lose_connection(self.session.get());
        if self.state.get() != State::Missing {
            self.losses.set(self.losses.get() + 1);
        }
        let now = self.clock.now();
        let may_be_lost =
            !self.unflushed.borrow().is_empty() || self.quarantine.borrow_mut().ends(now).is_some();
        self.unconfirmed.set(self.unconfirmed.get() || may_be_lost);
        self.unflushed.borrow_mut().forget();
        self.set_state(State::Missing);
        self.changed.raise();
    }
}
