//! Uses a file in every way, at random, and checks that it always has its last content.
//!
//! The expected content is in memory. Reads come from the page cache or, after it was dropped, from
//! the device. The seed determines all steps, so that a failure can be reproduced; the last steps
//! are printed with it.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate};
use rustix::io::Errno;

use crate::failure::{Failure, Result, ensure};
use crate::random::Random;

/// The largest that the file becomes.
const MOST_BYTES: usize = 3 << 20;
/// The largest that is read or written at once.
const SPAN_BYTES: usize = 128 << 10;
/// Direct I/O starts and ends on such a border, in memory and on disk.
const BLOCK: usize = 4096;
/// Interval of progress reports.
const STEPS: u64 = 20;
/// Number of last steps printed on a failure.
const HISTORY: usize = 12;

pub(super) struct Order<'a> {
    pub(super) file: &'a Path,
    pub(super) seed: u64,
    /// The minimum number of steps.
    pub(super) least: u64,
}

/// Runs until `least` steps are done and `until` exists. Writes the number of steps to
/// `progress.SEED`, and finally the expected content to `model.SEED`, both in the current folder.
pub(super) fn run(order: &Order<'_>, until: Option<&Path>) -> Result {
    let mut exercise = Exercise::new(order)?;
    let mut done = 0;
    let progress = format!("progress.{}", order.seed);
    while done < order.least || until.is_some_and(|file| !file.exists()) {
        exercise.step().map_err(|failure| {
            let history: Vec<String> = exercise.history.iter().cloned().collect();
            let name = order.file.display();
            Failure::new(format!("{name}, step {done}: {failure}; after {}", history.join(", ")))
        })?;
        done += 1;
        if done % STEPS == 0 {
            std::fs::write(&progress, done.to_string())?;
        }
    }
    exercise.forget()?;
    exercise.compare(0, exercise.model.len())?;
    Ok(std::fs::write(format!("model.{}", order.seed), &exercise.model)?)
}

struct Exercise {
    file: File,
    /// The same file past the page cache.
    direct: File,
    model: Vec<u8>,
    random: Random,
    history: VecDeque<String>,
}

impl Exercise {
    fn new(order: &Order<'_>) -> Result<Exercise> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(order.file)?;
        let past = OFlags::DIRECT.bits().cast_signed();
        let direct = File::options().read(true).write(true).custom_flags(past).open(order.file)?;
        let random = Random::new(order.seed);
        Ok(Exercise { file, direct, model: vec![], random, history: VecDeque::new() })
    }

    fn below(&mut self, most: usize) -> usize {
        self.random.below(most)
    }

    fn note(&mut self, what: &str, at: usize, len: usize) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(format!("{what} {len} at {at}"));
    }

    /// A place that ends below `most`, in units of `unit`; its length may be 0.
    fn place(&mut self, most: usize, unit: usize) -> (usize, usize) {
        let at = self.below(most / unit + 1);
        let len = self.below((most / unit - at).min(SPAN_BYTES / unit) + 1);
        (at * unit, len * unit)
    }

    fn step(&mut self) -> Result {
        let held = self.model.len();
        match self.below(20) {
            0..5 => {
                let (at, len) = self.place(MOST_BYTES, 1);
                self.note("write", at, len);
                let bytes = self.noise(at, len);
                self.file.write_all_at(&bytes, at as u64)?;
            }
            5..8 => {
                let (at, len) = self.place(MOST_BYTES, BLOCK);
                self.note("write past the cache", at, len);
                let bytes = self.noise(at, len);
                let mut room = vec![0; len + BLOCK];
                let aligned = aligned(&mut room, len);
                aligned.copy_from_slice(&bytes);
                self.direct.write_all_at(aligned, at as u64)?;
            }
            8..12 => {
                let (at, len) = self.place(held, 1);
                self.note("read", at, len);
                self.compare(at, len)?;
            }
            12..14 => {
                let (at, len) = self.place(held, BLOCK);
                self.note("read past the cache", at, len);
                let mut room = vec![0; len + BLOCK];
                let found = aligned(&mut room, len);
                self.direct.read_exact_at(found, at as u64)?;
                same(found, &self.model[at..at + len], at)?;
            }
            14 => {
                let len = self.below(MOST_BYTES + 1);
                self.note("truncate to", 0, len);
                self.file.set_len(len as u64)?;
                self.model.resize(len, 0);
            }
            15 => self.clear("punch", FallocateFlags::PUNCH_HOLE)?,
            16 => self.clear("zero", FallocateFlags::ZERO_RANGE)?,
            17 => {
                self.note("sync", 0, held);
                self.file.sync_data()?;
            }
            18 => {
                self.note("forget", 0, held);
                self.forget()?;
            }
            _ => {
                let (at, len) = self.place(held, 1);
                self.note("forget, read", at, len);
                self.forget()?;
                self.compare(at, len)?;
            }
        }
        Ok(())
    }

    /// New bytes for this place, in the model already.
    fn noise(&mut self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend(self.below(usize::MAX).to_le_bytes());
        }
        bytes.truncate(len);
        if len > 0 {
            self.model.resize(self.model.len().max(at + len), 0);
            self.model[at..at + len].copy_from_slice(&bytes);
        }
        bytes
    }

    /// Part of the file is zeros from here on, in whichever way.
    fn clear(&mut self, what: &str, how: FallocateFlags) -> Result {
        let (at, len) = self.place(self.model.len(), 1);
        self.note(what, at, len);
        if len > 0 {
            let done =
                fallocate(&self.file, how | FallocateFlags::KEEP_SIZE, at as u64, len as u64);
            match done {
                // OCFS2 cannot do it in one.
                Err(Errno::OPNOTSUPP) if how == FallocateFlags::ZERO_RANGE => {
                    self.file.write_all_at(&vec![0; len], at as u64)?;
                }
                done => done.map_err(std::io::Error::from)?,
            }
            self.model[at..at + len].fill(0);
        }
        Ok(())
    }

    /// All is on the device, and comes from there from here on.
    fn forget(&self) -> Result {
        self.file.sync_all()?;
        Ok(fadvise(&self.file, 0, None, Advice::DontNeed).map_err(std::io::Error::from)?)
    }

    fn compare(&self, at: usize, len: usize) -> Result {
        let size = self.file.metadata()?.len();
        ensure(size == self.model.len() as u64, || {
            format!("the file has {size} bytes, not {}", self.model.len())
        })?;
        let mut found = vec![0; len];
        self.file.read_exact_at(&mut found, at as u64)?;
        same(&found, &self.model[at..at + len], at)
    }
}

fn same(found: &[u8], expected: &[u8], at: usize) -> Result {
    // Byte by byte would take seconds on an emulated processor.
    if found == expected {
        return Ok(());
    }
    let differ = found.iter().zip(expected).position(|(found, expected)| found != expected);
    let Some(first) = differ else { return Ok(()) };
    let count = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
    let (have, want) = (found[first], expected[first]);
    let first = at + first;
    Err(Failure::new(format!("{count} bytes differ: at {first} is {have:#x}, not {want:#x}")))
}

/// This many bytes of it that begin on a border; it is [`BLOCK`] larger.
fn aligned(room: &mut [u8], len: usize) -> &mut [u8] {
    let start = room.as_ptr().align_offset(BLOCK);
    &mut room[start..start + len]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_byte_is_found_and_reported() {
        let expected: Vec<u8> = (0..=255).collect();
        let mut found = expected.clone();
        assert!(same(&found, &expected, 0).is_ok());
        found[7] = 9;
        let message = same(&found, &expected, 1000).expect_err("it differs").to_string();
        assert_eq!(message, "1 bytes differ: at 1007 is 0x9, not 0x7");
    }

    #[test]
    fn direct_io_begins_on_a_border() {
        let mut room = vec![0; 3 * BLOCK];
        let part = aligned(&mut room, 2 * BLOCK);
        assert_eq!((part.as_ptr() as usize % BLOCK, part.len()), (0, 2 * BLOCK));
    }
}
