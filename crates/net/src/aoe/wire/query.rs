//! The argument of Query Config.

use super::VERSION;

/// Bytes before the config string.
pub const BYTES: usize = 8;
/// The most bytes of a config string.
pub const MAX_CONFIG_BYTES: usize = 1024;
/// The fewest buffers a target may announce: Linux halves the number for its first window.
pub const MIN_BUFFERS: u16 = 2;

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Directive {
    /// Answer with the string.
    Read = 0,
    /// Answer only if the string is equal.
    Equal = 1,
    /// Answer only if the string begins like this.
    Prefix = 2,
    /// Set it, if there is none yet or the same.
    SetIfEmpty = 3,
    /// Set it.
    Set = 4,
    /// Set it, if the old one is as given (Coraid's addition).
    Swap = 5,
}

/// The argument, of requests and of answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    /// How many requests the target queues; 0 in requests.
    pub buffers: u16,
    /// The target's firmware; 0 in requests.
    pub firmware: u16,
    /// The most sectors in a frame; 0 in requests. An answer of 0 means 2.
    pub sectors: u8,
    /// The directive's number.
    pub directive: u8,
    /// The config string.
    pub text: Vec<u8>,
}

impl Directive {
    /// The directive of this number.
    pub fn of(number: u8) -> Option<Directive> {
        use Directive::{Equal, Prefix, Read, Set, SetIfEmpty, Swap};
        [Read, Equal, Prefix, SetIfEmpty, Set, Swap].into_iter().find(|it| *it as u8 == number)
    }
}

impl Query {
    /// A request.
    pub fn request(directive: Directive, text: &[u8]) -> Query {
        let directive = directive as u8;
        Query { buffers: 0, firmware: 0, sectors: 0, directive, text: text.to_vec() }
    }

    /// The argument at the start of `bytes`. Nothing if the string is longer than
    /// [`MAX_CONFIG_BYTES`], or than the frame.
    pub fn parse(bytes: &[u8]) -> Option<Query> {
        let (&[b0, b1, f0, f1, sectors, directive, l0, l1], rest) =
            bytes.split_first_chunk::<BYTES>()?;
        let len = u16::from_be_bytes([l0, l1]).into();
        let text = rest.get(..len).filter(|text| text.len() <= MAX_CONFIG_BYTES)?;
        Some(Query {
            buffers: u16::from_be_bytes([b0, b1]),
            firmware: u16::from_be_bytes([f0, f1]),
            sectors,
            directive: directive & 0x0f,
            text: text.to_vec(),
        })
    }

    /// Appends the argument, as it stands in an answer (with the version) or in a request.
    pub fn put(&self, response: bool, into: &mut Vec<u8>) {
        let version = if response { VERSION << 4 } else { 0 };
        into.extend(self.buffers.to_be_bytes());
        into.extend(self.firmware.to_be_bytes());
        into.extend([self.sectors, version | self.directive]);
        into.extend((self.text.len() as u16).to_be_bytes());
        into.extend(&self.text);
    }
}
