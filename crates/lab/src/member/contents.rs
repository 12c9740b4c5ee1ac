//! The bytes of a modelled disk: only pages that are not all zeros.

use std::collections::BTreeMap;

use io::{Op, Work};

const PAGE: usize = 4096;

/// True if all bytes are zero; at the speed of memory.
fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; PAGE] = [0; PAGE];
    bytes.chunks(PAGE).all(|part| *part == ZEROS[..part.len()])
}

#[derive(Default)]
pub(super) struct Contents {
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
}

impl Contents {
    /// Fills the buffers of a read, and keeps what a write brings.
    pub(super) fn perform(&mut self, op: &mut Op) {
        let mut at = op.offset;
        match &mut op.work {
            Work::Read(bufs) => {
                for buf in bufs {
                    self.read(at, buf);
                    at += buf.len() as u64;
                }
            }
            Work::Write(bufs) => {
                for buf in bufs {
                    self.write(at, buf);
                    at += buf.len() as u64;
                }
            }
            Work::Zero { len, .. } | Work::Discard { len } => self.zero(at, *len),
            Work::Flush | Work::Extents { .. } => {}
        }
    }

    fn read(&self, at: u64, into: &mut [u8]) {
        into.fill(0);
        let end = at + into.len() as u64;
        for (&page, bytes) in self.pages.range(at / PAGE as u64..end.div_ceil(PAGE as u64)) {
            let start = page * PAGE as u64;
            let (from, to) = (at.max(start), end.min(start + PAGE as u64));
            let part = &bytes[(from - start) as usize..(to - start) as usize];
            into[(from - at) as usize..(to - at) as usize].copy_from_slice(part);
        }
    }

    fn write(&mut self, mut at: u64, mut bytes: &[u8]) {
        if is_zero(bytes) {
            return self.zero(at, bytes.len() as u64);
        }
        while !bytes.is_empty() {
            let (page, within) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let (part, rest) = bytes.split_at(bytes.len().min(PAGE - within));
            if is_zero(part) {
                self.zero(at, part.len() as u64);
            } else {
                let kept = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE]));
                kept[within..within + part.len()].copy_from_slice(part);
            }
            at += part.len() as u64;
            bytes = rest;
        }
    }

    fn zero(&mut self, at: u64, len: u64) {
        let end = at + len;
        let mut empty = Vec::new();
        for (&page, bytes) in self.pages.range_mut(at / PAGE as u64..end.div_ceil(PAGE as u64)) {
            let start = page * PAGE as u64;
            let (from, to) = (at.max(start), end.min(start + PAGE as u64));
            bytes[(from - start) as usize..(to - start) as usize].fill(0);
            if is_zero(&bytes[..]) {
                empty.push(page);
            }
        }
        for page in empty {
            self.pages.remove(&page);
        }
    }

    /// Bytes of the pages that are kept.
    pub(super) fn kept_bytes(&self) -> u64 {
        (self.pages.len() * PAGE) as u64
    }
}
