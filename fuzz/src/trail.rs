//! The events of an input, as one number.
//!
//! Owns the hash. Bodies record events (a refused field, the end of a session) in few different
//! values: a trail that differs for every input is useless.

use std::fmt::{self, Debug, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether events are also printed: for one input under analysis.
static ALOUD: AtomicBool = AtomicBool::new(false);

/// Prints events from now on.
pub fn aloud() {
    ALOUD.store(true, Ordering::Relaxed);
}

/// Prints a line, if anybody listens.
pub fn tell(line: impl FnOnce() -> String) {
    if ALOUD.load(Ordering::Relaxed) {
        println!("  {}", line());
    }
}

/// A fingerprint of the events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Trail(u64);

/// FNV-1a: short, and good enough to distinguish trails.
const START: u64 = 0xcbf2_9ce4_8422_2325;
const FACTOR: u64 = 0x0000_0100_0000_01b3;

impl Trail {
    /// Nothing has happened.
    pub fn new() -> Trail {
        Trail(START)
    }

    /// Something has.
    pub fn note(&mut self, what: impl Debug) {
        tell(|| format!("{what:?}"));
        write!(self, "{what:?};").expect("a hash takes any text");
    }

    /// The number of bits of a number: a new magnitude matters, a difference of one does not.
    pub fn size(&mut self, number: u64) {
        self.note(64 - number.leading_zeros());
    }
}

impl Default for Trail {
    fn default() -> Trail {
        Trail::new()
    }
}

impl fmt::Write for Trail {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(FACTOR);
        }
        Ok(())
    }
}
