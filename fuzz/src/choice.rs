//! Bytes as a stream of choices: how a structured input is made of plain ones.
//!
//! Mutating bytes mutates the choices, and every input is valid: missing bytes at the end count as
//! zeros.

/// Chooses by the bytes it was given.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// Choices from these bytes.
    pub fn new(bytes: &'a [u8]) -> Choices<'a> {
        Choices(bytes)
    }

    /// True if nothing is left: from here on everything is zero.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// The next eight bytes, least significant first.
    pub fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, place| word | u64::from(self.byte()) << (8 * place))
    }

    /// A number below `count`, which must be 1 to 256.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// All the rest.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}
