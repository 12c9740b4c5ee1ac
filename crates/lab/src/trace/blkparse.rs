//! The text of blkparse: `maj,min cpu sequence seconds pid action rwbs sector + sectors [process]`.
//!
//! Requests are taken when they are queued (Q), or issued (D) where a trace has no Q. A completion
//! (C) of the same kind and sectors gives the latency.

use std::collections::{BTreeMap, VecDeque};

use super::{Collector, Error, Kind, Request, SECTOR, Trace, error, number};

/// True if the line is an event, not a summary.
pub(super) fn is_record(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let device = words.next().and_then(|word| word.split_once(','));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    device.is_some_and(|(major, minor)| digits(major) && digits(minor))
        && words.next().is_some_and(digits)
        && words.next().is_some_and(digits)
        && words.next().is_some_and(|time| seconds(time).is_some())
}

/// `12.000345678` in nanoseconds.
fn seconds(word: &str) -> Option<u64> {
    let (whole, fraction) = word.split_once('.')?;
    if fraction.len() != 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: u64 = fraction.parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(1_000_000_000)?.checked_add(nanos).filter(|&at| at < 1 << 62)
}

/// Which kind of request a field `rwbs` names; `None` for those that move no data.
struct Rwbs {
    preflush: bool,
    kind: Option<Kind>,
    durable: bool,
}

/// Letters: `F` before the direction is a flush, after it FUA; S, M, A are hints.
fn rwbs(text: &str) -> Rwbs {
    let letters = text.trim_start_matches('F');
    let kind = match letters.chars().next() {
        Some('R') => Some(Kind::Read),
        Some('W') => Some(Kind::Write),
        Some('D') => Some(Kind::Discard),
        _ => None,
    };
    Rwbs { preflush: text.starts_with('F'), kind, durable: letters.contains('F') }
}

/// Device, kind, first sector, sectors.
type Key = (usize, char, u64, u64);

struct Event {
    line: usize,
    place: usize,
    at_ns: u64,
    rwbs: String,
    sector: u64,
    sectors: u64,
}

pub(super) fn read(text: &str) -> Result<Trace, Error> {
    let mut collector = Collector::new();
    let (mut queued, mut issued) = (Vec::new(), Vec::new());
    let mut completed: BTreeMap<Key, VecDeque<u64>> = BTreeMap::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| is_record(line)) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let Some((action, event)) = event(index + 1, &words, &mut collector)? else { continue };
        match action {
            "Q" => queued.push(event),
            "D" => issued.push(event),
            _ => completed.entry(key(&event)).or_default().push_back(event.at_ns),
        }
    }
    let answers = !completed.is_empty();
    let mut events = if queued.is_empty() { issued } else { queued };
    events.sort_by_key(|event| event.at_ns);
    for event in events {
        let answer = completed.get_mut(&key(&event)).and_then(|times| {
            while times.front().is_some_and(|&at| at < event.at_ns) {
                times.pop_front();
            }
            times.pop_front()
        });
        add(&mut collector, &event, answer)?;
    }
    let mut trace = collector.trace(true)?;
    if answers {
        trace.think();
    }
    Ok(trace)
}

fn key(event: &Event) -> Key {
    let kind = event.rwbs.trim_start_matches('F').chars().next().unwrap_or('F');
    (event.place, kind, event.sector, event.sectors)
}

/// The action and the event of a line, if it concerns a request.
fn event<'a>(
    line: usize,
    words: &[&'a str],
    collector: &mut Collector,
) -> Result<Option<(&'a str, Event)>, Error> {
    let [device, _, _, time, pid, action, rest @ ..] = words else {
        return Err(error(line, "no action: the line is cut"));
    };
    number(line, "process id", Some(pid))?;
    if !matches!(*action, "Q" | "D" | "C") {
        return Ok(None);
    }
    let at_ns = seconds(time).ok_or_else(|| error(line, format!("{time:?} is no time")))?;
    let Some((rwbs, rest)) = rest.split_first() else {
        return Err(error(line, "no kind of request (rwbs): the line is cut"));
    };
    let place = collector.place(device);
    // A flush has no sectors: `FWS [process]`, or `FWS 0 [0]` when it completes.
    let (sector, sectors) = match rest {
        [sector, "+", sectors, ..] => {
            (number(line, "sector", Some(sector))?, number(line, "length", Some(sectors))?)
        }
        _ if rwbs.starts_with('F') => (0, 0),
        _ => return Ok(None),
    };
    if sector >= 1 << 52 || sectors >= 1 << 30 {
        return Err(error(line, format!("sectors {sector} + {sectors} are beyond any disk")));
    }
    let rwbs = rwbs.to_string();
    Ok(Some((action, Event { line, place, at_ns, rwbs, sector, sectors })))
}

fn add(collector: &mut Collector, event: &Event, answer: Option<u64>) -> Result<(), Error> {
    let Rwbs { preflush, kind, durable } = rwbs(&event.rwbs);
    let latency_ns = answer.map(|at| at - event.at_ns);
    let request = |kind, offset, bytes, durable| Request {
        at_ns: event.at_ns,
        kind,
        offset,
        bytes,
        durable,
        latency_ns,
        think_ns: None,
    };
    if preflush {
        collector.add(event.line, event.place, request(Kind::Flush, 0, 0, false))?;
    }
    if let Some(kind) = kind
        && event.sectors > 0
    {
        let (offset, bytes) = (event.sector * SECTOR, event.sectors * SECTOR);
        let request = request(kind, offset, bytes, durable && kind == Kind::Write);
        collector.add(event.line, event.place, request)?;
    }
    Ok(())
}
