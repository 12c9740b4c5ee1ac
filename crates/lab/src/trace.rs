//! Traces of requests: reads fio's iolog (versions 2 and 3), blkparse's text and the CSV of SNIA
//! (MSR Cambridge), and writes fio's iolog.
//!
//! A trace of several files or devices becomes one of a single disk: each one's addresses follow
//! those of the one before, with a start that is a multiple of 1 MiB.
//!
//! ```text
//!   bytes ─▶ format? ─▶ lines ─▶ requests, in order of time
//! ```
//!
//! Input from outside: an unreadable line is an error with its number, never a panic.

mod blkparse;
mod fio;
mod snia;

use std::collections::BTreeMap;
use std::fmt;

pub use fio::to_iolog;

/// The unit of addresses of a disk.
const SECTOR: u64 = 512;
/// Files and devices start at multiples of this.
const ALIGN: u64 = 1 << 20;
/// Requests of a trace at most.
const REQUESTS_MAX: usize = 50_000_000;
/// The largest request: those of kernels are far below.
const BYTES_MAX: u64 = 64 << 20;

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Make durable what was written.
    Flush,
    /// Discard.
    Discard,
}

/// A request of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// When it was issued, in nanoseconds from the start of the trace.
    pub at_ns: u64,
    /// What it asks for.
    pub kind: Kind,
    /// The first byte; 0 for a flush.
    pub offset: u64,
    /// Its length; 0 for a flush.
    pub bytes: u64,
    /// For a write: durable when answered.
    pub durable: bool,
    /// From its issue to its answer in nanoseconds, if the trace has it.
    pub latency_ns: Option<u64>,
    /// From the answer before it to its issue in nanoseconds, if the trace has it.
    pub think_ns: Option<u64>,
}

/// A trace.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Trace {
    /// In order of time.
    pub requests: Vec<Request>,
    /// The trace has time stamps; without, it can only be replayed closed.
    pub timed: bool,
}

/// The format of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `fio --write_iolog`, versions 2 and 3.
    Fio,
    /// The text of blkparse.
    Blkparse,
    /// `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
    Snia,
}

/// Why a trace cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The line, from 1; 0 if it concerns the whole.
    pub line: usize,
    /// The cause, and what to do.
    pub cause: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "trace: {}", self.cause),
            line => write!(f, "trace: line {line}: {}", self.cause),
        }
    }
}

impl std::error::Error for Error {}

fn error(line: usize, cause: impl Into<String>) -> Error {
    Error { line, cause: cause.into() }
}

/// Reads a trace in any of the formats.
///
/// # Errors
/// If no format fits, a line is unreadable, or there is no request.
pub fn read(bytes: &[u8]) -> Result<Trace, Error> {
    let text = text(bytes)?;
    let format = detect(text).ok_or_else(|| {
        error(
            0,
            "unknown format: neither an iolog of fio, text of blkparse, nor CSV of SNIA\n\
             record one with `fio --write_iolog=FILE` or `blkparse`",
        )
    })?;
    read_as(bytes, format)
}

/// Reads a trace of this format.
///
/// # Errors
/// As [`read`].
pub fn read_as(bytes: &[u8], format: Format) -> Result<Trace, Error> {
    let text = text(bytes)?;
    let trace = match format {
        Format::Fio => fio::read(text),
        Format::Blkparse => blkparse::read(text),
        Format::Snia => snia::read(text),
    }?;
    match trace.requests.is_empty() {
        true => Err(error(0, "no request in it\nrecord a longer trace")),
        false => Ok(trace),
    }
}

fn text(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|cause| {
        let before = &bytes[..cause.valid_up_to()];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        error(line, "no text\na binary trace of blktrace needs `blkparse` first")
    })
}

fn detect(text: &str) -> Option<Format> {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    if first.starts_with("fio version") {
        return Some(Format::Fio);
    }
    if snia::is_line(first) {
        return Some(Format::Snia);
    }
    text.lines().take(100).any(blkparse::is_record).then_some(Format::Blkparse)
}

/// A number of a line, with its name for the error.
fn number(line: usize, name: &str, word: Option<&str>) -> Result<u64, Error> {
    let word = word.ok_or_else(|| error(line, format!("no {name}")))?;
    let parsed = word.parse().ok().filter(|&value: &u64| value < 1 << 62);
    parsed.ok_or_else(|| error(line, format!("{name} is {word:?}, not a number below 2^62")))
}

/// Collects requests of several files or devices.
struct Collector {
    requests: Vec<(Request, usize)>,
    names: BTreeMap<String, usize>,
    /// The end of each one's addresses.
    ends: Vec<u64>,
}

impl Collector {
    fn new() -> Collector {
        Collector { requests: Vec::new(), names: BTreeMap::new(), ends: Vec::new() }
    }

    /// The number of a file or device.
    fn place(&mut self, name: &str) -> usize {
        if let Some(&place) = self.names.get(name) {
            return place;
        }
        self.names.insert(name.into(), self.ends.len());
        self.ends.push(0);
        self.ends.len() - 1
    }

    /// Adds a request, grown to whole sectors. One without bytes is left out.
    fn add(&mut self, line: usize, place: usize, request: Request) -> Result<(), Error> {
        let mut request = request;
        if request.kind == Kind::Flush {
            (request.offset, request.bytes) = (0, 0);
        } else if request.bytes == 0 {
            return Ok(());
        } else {
            let end = (request.offset + request.bytes).next_multiple_of(SECTOR);
            request.offset -= request.offset % SECTOR;
            request.bytes = end - request.offset;
            self.ends[place] = self.ends[place].max(end);
        }
        if request.bytes > BYTES_MAX {
            return Err(error(
                line,
                format!("a request of {} bytes is larger than 64 MiB", request.bytes),
            ));
        }
        if self.requests.len() == REQUESTS_MAX {
            return Err(error(line, format!("more than {REQUESTS_MAX} requests\nsplit the trace")));
        }
        self.requests.push((request, place));
        Ok(())
    }

    /// The trace: in order of time, from 0.
    fn trace(self, timed: bool) -> Result<Trace, Error> {
        let mut starts = Vec::new();
        let mut next = 0u64;
        for end in &self.ends {
            starts.push(next);
            let after = next.checked_add(*end).filter(|&after| after < 1 << 62);
            let after = after.ok_or_else(|| error(0, "its files are larger than 2^62 bytes"))?;
            next = after.next_multiple_of(ALIGN);
        }
        let moved = |(mut request, place): (Request, usize)| {
            if request.kind != Kind::Flush {
                request.offset += starts[place];
            }
            request
        };
        let mut requests: Vec<Request> = self.requests.into_iter().map(moved).collect();
        requests.sort_by_key(|request| request.at_ns);
        let first = requests.first().map_or(0, |request| request.at_ns);
        requests.iter_mut().for_each(|request| request.at_ns -= first);
        Ok(Trace { requests, timed })
    }
}

impl Trace {
    /// The byte after the last one.
    pub fn end(&self) -> u64 {
        self.requests.iter().map(|request| request.offset + request.bytes).max().unwrap_or(0)
    }

    /// Fills in think times from time stamps and latencies, where both are known.
    fn think(&mut self) {
        let mut answered: Option<u64> = None;
        for request in &mut self.requests {
            request.think_ns = answered.map(|at| request.at_ns.saturating_sub(at));
            answered = request.latency_ns.map(|latency| request.at_ns.saturating_add(latency));
        }
    }
}

#[cfg(test)]
mod tests;
