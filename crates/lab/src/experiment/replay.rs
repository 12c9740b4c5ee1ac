//! The replay of a trace.
//!
//! Open: each request at its time, scaled. It keeps the load; a slower array queues. Closed: the
//! next request when fewer than `depth` are in flight, after the recorded think time. It keeps the
//! dependence; think times that the trace does not have are 0.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use io::{Clock, Op, Time, Work};

use super::Fault;
use super::outcome::Direction;
use super::schema::{Replay, TraceChoice};
use super::tasks::Crowd;
use super::workers::Target;
use crate::trace::{Kind, Request, Trace};

/// Requests in flight of an open replay at most.
const IN_FLIGHT_MAX: usize = 100_000;
/// Their bytes at most: they take memory.
const IN_FLIGHT_BYTES_MAX: u64 = 4 << 30;

/// Refuses a trace that does not fit the array.
pub(super) fn check(trace: &Trace, choice: &TraceChoice, capacity: u64) -> Result<(), Fault> {
    if choice.replay == Replay::Open && !trace.timed {
        let cause = "the trace has no times";
        return Err(Fault::new("load.trace.replay", cause, "write replay = \"closed\""));
    }
    let longest = trace.requests.iter().map(|request| request.bytes).max().unwrap_or(0);
    let end = trace.end();
    if longest > capacity || (end > capacity && !choice.fold) {
        let cause = format!("the trace reaches {end} bytes, the array has {capacity}");
        return Err(Fault::new("load.trace", cause, "use larger disks, or write fold = true"));
    }
    Ok(())
}

/// Replays the trace; requests of a time from `until` on are not sent.
pub(super) async fn run(
    target: &Target,
    trace: &Trace,
    choice: &TraceChoice,
    until: Time,
    crowd: &Rc<Crowd>,
) -> Result<(), Fault> {
    let clock = target.world.clock();
    let start = clock.now();
    let in_flight = Rc::new(Cell::new(0u64));
    let scaled = |nanos: u64| {
        let scaled = u128::from(nanos) * 100 / u128::from(choice.time_scale);
        Duration::from_nanos(u64::try_from(scaled).unwrap_or(u64::MAX >> 2))
    };
    for request in &trace.requests {
        match choice.replay {
            Replay::Open => {
                clock.sleep_until(start + scaled(request.at_ns)).await;
                if crowd.left() >= IN_FLIGHT_MAX || in_flight.get() > IN_FLIGHT_BYTES_MAX {
                    let cause = format!("{} requests wait: the array is too slow", crowd.left());
                    let hint = "lower `time_scale`, or write replay = \"closed\"";
                    return Err(Fault::new("load.trace", cause, hint));
                }
            }
            Replay::Closed => {
                crowd.fewer_than(choice.depth).await;
                while in_flight.get() > IN_FLIGHT_BYTES_MAX {
                    crowd.fewer_than(crowd.left()).await;
                }
                if let Some(think) = request.think_ns {
                    clock.sleep_until(clock.now() + scaled(think)).await;
                }
            }
        }
        if clock.now() >= until || target.recorder.errors().0 > 0 {
            break;
        }
        let (target, request, in_flight) = (target.clone(), *request, Rc::clone(&in_flight));
        in_flight.set(in_flight.get() + request.bytes);
        crowd.spawn(async move {
            send(&target, &request).await;
            in_flight.set(in_flight.get() - request.bytes);
        });
    }
    crowd.fewer_than(1).await;
    Ok(())
}

async fn send(target: &Target, request: &Request) {
    let offset = folded(request, target.disk.limits().bytes);
    let (direction, op) = match request.kind {
        Kind::Read => (Direction::Read, target.op(false, offset, request.bytes)),
        Kind::Write => (Direction::Write, target.op(true, offset, request.bytes)),
        Kind::Flush => (Direction::Sync, Op::flush()),
        Kind::Discard => (Direction::Trim, Op::new(offset, Work::Discard { len: request.bytes })),
    };
    let op = if request.durable { op.with_fua() } else { op };
    target.send(direction, op).await;
}

/// The address within the array.
fn folded(request: &Request, capacity: u64) -> u64 {
    let room = capacity - request.bytes + 512;
    request.offset % (room - room % 512).max(512)
}
