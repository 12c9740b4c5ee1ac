//! fio's iolog (fio's documentation, "Trace file format").
//!
//! Version 2: `FILE add|open|close`, `FILE read|write|trim|sync|datasync OFFSET LENGTH`, and
//! `FILE wait MICROSECONDS`. Version 3: each line starts with its time, no `wait`. fio 3.33 counts
//! this time in microseconds.

use std::fmt::Write;

use super::{Collector, Error, Kind, Request, Trace, error, number};

pub(super) fn read(text: &str) -> Result<Trace, Error> {
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let head = lines.find(|(_, line)| !line.is_empty());
    let stamped = match head {
        Some((_, "fio version 2 iolog")) => false,
        Some((_, "fio version 3 iolog")) => true,
        Some((line, other)) => {
            let cause =
                format!("{other:?} is no iolog of version 2 or 3\nrecord it with a newer fio");
            return Err(error(line, cause));
        }
        None => return Err(error(0, "empty")),
    };
    let mut log =
        Log { collector: Collector::new(), stamped, at_us: 0, wait_us: None, waits: false };
    for (line, text) in lines.filter(|(_, line)| !line.is_empty()) {
        log.take(line, text)?;
    }
    log.collector.trace(stamped || log.waits)
}

struct Log {
    collector: Collector,
    stamped: bool,
    at_us: u64,
    /// Waits since the last request.
    wait_us: Option<u64>,
    waits: bool,
}

impl Log {
    fn take(&mut self, line: usize, text: &str) -> Result<(), Error> {
        // The file's name is before the action and may contain spaces.
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let mut rest = &words[..];
        if self.stamped {
            self.at_us = number(line, "time", words.first().copied())?;
            rest = &words[1..];
        }
        let action = (1..rest.len()).find(|&index| is_action(rest[index], rest.len() - index - 1));
        let Some(action) = action else {
            let cause = format!("{text:?} has no file and action with its numbers");
            return Err(error(line, cause));
        };
        let place = self.collector.place(&rest[..action].join(" "));
        let mut numbers = rest[action + 1..].iter().copied();
        let kind = match rest[action] {
            "read" => Kind::Read,
            "write" => Kind::Write,
            "trim" => Kind::Discard,
            "sync" | "datasync" | "sync_file_range" => Kind::Flush,
            "wait" => return self.wait(line, number(line, "wait", numbers.next())?),
            _ => return Ok(()),
        };
        let offset = number(line, "offset", numbers.next())?;
        let bytes = number(line, "length", numbers.next())?;
        let at_ns = self.at_us.checked_mul(1000).filter(|&at| at < 1 << 62);
        let request = Request {
            at_ns: at_ns.ok_or_else(|| error(line, "a time beyond 2^62 ns"))?,
            kind,
            offset,
            bytes,
            durable: false,
            latency_ns: None,
            think_ns: self.wait_us.take().and_then(|us| us.checked_mul(1000)),
        };
        self.collector.add(line, place, request)
    }

    fn wait(&mut self, line: usize, micros: u64) -> Result<(), Error> {
        let at = self.at_us.checked_add(micros).filter(|&at| at < 1 << 52);
        self.at_us = at.ok_or_else(|| error(line, "waits of more than 2^52 µs"))?;
        self.wait_us = Some(self.wait_us.unwrap_or(0) + micros);
        self.waits = true;
        Ok(())
    }
}

/// True if the word is an action and as many words follow as it has.
fn is_action(word: &str, numbers: usize) -> bool {
    match word {
        "add" | "open" | "close" => numbers == 0,
        "wait" => numbers == 1 || numbers == 2,
        "read" | "write" | "trim" | "sync" | "datasync" | "sync_file_range" => numbers == 2,
        _ => false,
    }
}

/// The trace as fio's iolog, version 2, on this file or device.
///
/// fio ignores waits below 100 µs and counts a wait from the request before it, so they are
/// gathered until they count.
///
/// # Errors
/// If the name of the file is empty or has spaces: fio would read another one.
pub fn to_iolog(trace: &Trace, file: &str) -> Result<String, Error> {
    if file.is_empty() || file.contains(|c: char| c.is_whitespace() || c == ':') {
        return Err(error(0, format!("{file:?} cannot be a file of an iolog\nuse a plain name")));
    }
    let mut text = format!("fio version 2 iolog\n{file} add\n{file} open\n");
    let mut at_us = 0;
    for request in &trace.requests {
        let wait = (request.at_ns / 1000).saturating_sub(at_us);
        if trace.timed && wait >= 100 {
            let _ = writeln!(text, "{file} wait {wait} 0");
            at_us += wait;
        }
        let action = match request.kind {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Discard => "trim",
            Kind::Flush => "sync",
        };
        let _ = writeln!(text, "{file} {action} {} {}", request.offset, request.bytes);
        if request.durable {
            let _ = writeln!(text, "{file} datasync 0 0");
        }
    }
    let _ = writeln!(text, "{file} close");
    Ok(text)
}
