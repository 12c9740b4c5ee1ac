//! Rows to measure on, and the clock. Owns no verdict.
#![allow(dead_code)] // each bench uses its part

use std::time::{Duration, Instant};

use parity::Term;

/// A geometry and a place: `data` blocks of `block_bytes` with two parity blocks, over as many
/// rows as are measured in turn.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) place: &'static str,
    pub(crate) data: usize,
    pub(crate) block_bytes: usize,
    rows: usize,
}

/// Memory of a row set that no cache holds.
const MEMORY_BYTES: usize = 384 << 20;

impl Shape {
    /// One row of 16 KiB blocks, over and over: it stays in L2.
    pub(crate) fn in_l2(data: usize) -> Self {
        Self { place: "L2", data, block_bytes: 16 << 10, rows: 1 }
    }

    /// 64 KiB blocks, never the same twice within [`MEMORY_BYTES`].
    pub(crate) fn in_memory(data: usize) -> Self {
        let block_bytes = 64 << 10;
        let rows = MEMORY_BYTES / (block_bytes * (data + 4));
        Self { place: "memory", data, block_bytes, rows }
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [4, 8, 10].into_iter().flat_map(|data| [Self::in_l2(data), Self::in_memory(data)])
    }
}

/// Random bytes for all rows of a shape, page-aligned as the engine's buffers are.
pub(crate) struct Room {
    shape: Shape,
    bytes: Vec<u8>,
}

/// One row, taken apart: data; P, Q, and two spare blocks for results or new data.
pub(crate) struct Row<'a> {
    pub(crate) terms: Vec<Term<'a>>,
    pub(crate) sources: Vec<&'a [u8]>,
    pub(crate) parity: [&'a mut [u8]; 4],
}

/// Rows that are used in turn.
pub(crate) struct Stage<'a> {
    pub(crate) shape: Shape,
    rows: Vec<Row<'a>>,
    turn: usize,
}

const PAGE: usize = 4096;

impl Room {
    pub(crate) fn new(shape: Shape) -> Self {
        let total = shape.rows * (shape.data + 4) * shape.block_bytes;
        let mut bytes = vec![0; total + PAGE];
        let aligned = bytes.as_ptr().align_offset(PAGE);
        let mut seed = 88_172_645_463_325_252_u64;
        for word in bytes[aligned..].as_chunks_mut::<8>().0 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            *word = seed.to_le_bytes();
        }
        Self { shape, bytes }
    }

    pub(crate) fn stage(&mut self) -> Stage<'_> {
        let Shape { data, block_bytes, rows, .. } = self.shape;
        let aligned = self.bytes.as_ptr().align_offset(PAGE);
        let rows = self.bytes[aligned..]
            .chunks_exact_mut((data + 4) * block_bytes)
            .take(rows)
            .map(|bytes| Row::new(bytes, data, block_bytes))
            .collect();
        Stage { shape: self.shape, rows, turn: 0 }
    }
}

impl<'a> Row<'a> {
    fn new(bytes: &'a mut [u8], data: usize, block_bytes: usize) -> Self {
        let (data, parity) = bytes.split_at_mut(data * block_bytes);
        let sources: Vec<&[u8]> = data.chunks_exact(block_bytes).collect();
        let mut parity = parity.chunks_exact_mut(block_bytes);
        let parity = std::array::from_fn(|_| parity.next().expect("a row has four more blocks"));
        Self { terms: (0..).zip(sources.iter().copied()).collect(), sources, parity }
    }
}

impl<'a> Stage<'a> {
    pub(crate) fn next(&mut self) -> &mut Row<'a> {
        self.turn = (self.turn + 1) % self.rows.len();
        &mut self.rows[self.turn]
    }
}

/// Seconds per call of `run`, over about `at_least`.
pub(crate) fn seconds(at_least: Duration, mut run: impl FnMut()) -> f64 {
    let (start, mut calls) = (Instant::now(), 0u32);
    loop {
        for _ in 0..16 {
            run();
        }
        calls += 16;
        let spent = start.elapsed();
        if spent >= at_least {
            return spent.as_secs_f64() / f64::from(calls);
        }
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
