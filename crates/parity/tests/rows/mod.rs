//! Rows of random data at chosen alignments, for the tests. Owns no expectation.
#![allow(dead_code)] // each test file uses its part

pub(crate) mod agreement;

use parity::Term;

/// Marsaglia's xorshift64: reproducible, never seeded by the world.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// `size` bytes at an odd address, with guards on both sides that must stay as they are.
#[derive(Clone)]
pub(crate) struct Bytes {
    room: Vec<u8>,
    offset: usize,
    size: usize,
}

const GUARD: u8 = 0xa5;
const MARGIN: usize = 80;

impl Bytes {
    pub(crate) fn new(size: usize, offset: usize) -> Self {
        let mut bytes = Self { room: vec![GUARD; MARGIN + size + MARGIN], offset, size };
        bytes.get_mut().fill(0x5e); // never what a verb should leave behind by doing nothing
        bytes
    }

    pub(crate) fn get(&self) -> &[u8] {
        &self.room[self.offset..][..self.size]
    }

    pub(crate) fn get_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.offset..][..self.size]
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let (before, after) = (&self.room[..self.offset], &self.room[self.offset + self.size..]);
        let untouched = before.iter().chain(after).all(|&byte| byte == GUARD);
        assert!(untouched || std::thread::panicking(), "a kernel wrote outside its slice");
    }
}

pub(crate) struct Row {
    pub(crate) exponents: Vec<u8>,
    pub(crate) size: usize,
    offset: usize,
    blocks: Vec<Bytes>,
}

impl Row {
    /// Blocks of random bytes; block i lies `offset` + i bytes off its allocation, modulo the
    /// margin.
    pub(crate) fn new(random: &mut Random, exponents: Vec<u8>, size: usize, offset: usize) -> Self {
        let mut row = Self { exponents, size, offset, blocks: Vec::new() };
        for index in 0..row.exponents.len() {
            let mut block = Bytes::new(size, (offset + index) % MARGIN);
            block.get_mut().fill_with(|| random.next() as u8);
            row.blocks.push(block);
        }
        row
    }

    pub(crate) fn terms(&self) -> Vec<Term<'_>> {
        self.exponents.iter().copied().zip(self.sources()).collect()
    }

    pub(crate) fn sources(&self) -> Vec<&[u8]> {
        self.blocks.iter().map(Bytes::get).collect()
    }

    /// Room for a result of this row.
    pub(crate) fn spare(&self) -> Bytes {
        Bytes::new(self.size, (self.offset + 7) % MARGIN)
    }

    /// One more random block.
    pub(crate) fn another(&self, random: &mut Random) -> Bytes {
        let mut block = self.spare();
        block.get_mut().fill_with(|| random.next() as u8);
        block
    }
}
