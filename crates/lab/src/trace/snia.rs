//! The CSV of SNIA's block traces, as MSR Cambridge: `Timestamp,Hostname,DiskNumber,Type,Offset,
//! Size,ResponseTime`. Times are units of 100 ns, addresses and sizes bytes.

use super::{Collector, Error, Kind, Request, Trace, error, number};

/// Nanoseconds of a unit of time.
const TICK_NS: u64 = 100;

/// True if the line looks like one of the format, or its header.
pub(super) fn is_line(line: &str) -> bool {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    fields.len() == 7 && (is_header(line) || kind(fields[3]).is_some())
}

fn is_header(line: &str) -> bool {
    line.to_ascii_lowercase().starts_with("timestamp,")
}

fn kind(word: &str) -> Option<Kind> {
    match word.to_ascii_lowercase().as_str() {
        "read" | "r" => Some(Kind::Read),
        "write" | "w" => Some(Kind::Write),
        _ => None,
    }
}

pub(super) fn read(text: &str) -> Result<Trace, Error> {
    let mut collector = Collector::new();
    let mut first: Option<u64> = None;
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let records =
        lines.filter(|(number, line)| !(line.is_empty() || *number == 1 && is_header(line)));
    for (line, text) in records {
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        let &[time, host, disk, word, offset, size, response] = &fields[..] else {
            return Err(error(line, format!("{} fields instead of 7", fields.len())));
        };
        let kind = kind(word)
            .ok_or_else(|| error(line, format!("type {word:?} is neither Read nor Write")))?;
        let time = number(line, "timestamp", Some(time))?;
        // Lines are nearly in order: a little earlier than the first one is possible.
        let start = *first.get_or_insert(time.saturating_sub(1 << 30));
        let ticks = time.saturating_sub(start).checked_mul(TICK_NS).filter(|&at| at < 1 << 62);
        let request = Request {
            at_ns: ticks.ok_or_else(|| error(line, "a timestamp far from the first one"))?,
            kind,
            offset: number(line, "offset", Some(offset))?,
            bytes: number(line, "size", Some(size))?,
            durable: false,
            latency_ns: number(line, "response time", Some(response))?.checked_mul(TICK_NS),
            think_ns: None,
        };
        let place = collector.place(&format!("{host},{disk}"));
        collector.add(line, place, request)?;
    }
    let mut trace = collector.trace(true)?;
    trace.think();
    Ok(trace)
}
