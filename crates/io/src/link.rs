//! An Ethernet port: frames as datagrams.
//!
//! **Contract** (checked by `contract::link` against every implementation):
//! - A frame arrives whole or not at all. Frames may be lost, repeated, delayed and reordered, like
//!   on a wire; the port itself keeps the order in which it sends and receives.
//! - Sending never fails for the state of the wire: a port that is down drops the frame.
//! - The port receives frames to its own address and to all (broadcast), never its own.
//! - A received frame is cut at [`HEAD_BYTES`]: what follows starts an aligned buffer, so that a
//!   sector goes to a disk without a copy. Padding to the shortest frame stays on it. A frame of
//!   [`MIN_FRAME_BYTES`] needs no buffer.

use std::collections::VecDeque;
use std::fmt;
use std::io::Result;
use std::str::FromStr;
use std::task::{Context, Poll};

use crate::buf::SharedBuf;

/// Where a frame is cut: the header of ATA over Ethernet, the one protocol whose frames carry
/// sectors.
pub const HEAD_BYTES: usize = 36;

/// The shortest frame, without its checksum; shorter ones are padded with zeros (IEEE 802.3).
pub const MIN_FRAME_BYTES: usize = 60;

/// Bytes of an Ethernet header: destination, source, type.
pub const ETHERNET_BYTES: usize = 14;

/// The address of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Everyone on the wire.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// True for broadcast and multicast addresses: no port sends from one.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Six pairs of hexadecimal digits, with colons, dashes or nothing between them.
impl FromStr for Mac {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Mac, &'static str> {
        let wrong = "not a MAC address such as 02:00:00:00:00:01";
        let separators = |byte: &u8| matches!(byte, b':' | b'-');
        let plain = text.bytes().filter(|byte| !separators(byte)).count();
        if plain != 12 || !matches!(text.len(), 12 | 17) {
            return Err(wrong);
        }
        let digits: Vec<u8> = match text.len() {
            12 => text.bytes().collect(),
            _ if text.bytes().skip(2).step_by(3).all(|byte| separators(&byte)) => {
                text.bytes().filter(|byte| !separators(byte)).collect()
            }
            _ => return Err(wrong),
        };
        let mut mac = Mac::default();
        for (into, pair) in mac.0.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |byte: u8| (byte as char).to_digit(16).ok_or(wrong);
            *into = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Ok(mac)
    }
}

/// One frame, from the destination address to the end of the data.
#[derive(Clone)]
pub struct Frame {
    /// The head; and the rest too, if that is short and not in `body`.
    short: [u8; MIN_FRAME_BYTES],
    short_bytes: u8,
    body: Option<SharedBuf>,
}

impl Frame {
    /// A frame of these bytes alone.
    ///
    /// # Panics
    /// If there are more than [`MIN_FRAME_BYTES`].
    pub fn new(bytes: &[u8]) -> Frame {
        let mut short = [0; MIN_FRAME_BYTES];
        short[..bytes.len()].copy_from_slice(bytes);
        Frame { short, short_bytes: bytes.len() as u8, body: None }
    }

    /// A frame of a full head, and these bytes after it.
    pub fn with_body(head: [u8; HEAD_BYTES], body: SharedBuf) -> Frame {
        Frame { body: Some(body), ..Frame::new(&head) }
    }

    /// The first bytes, at most [`HEAD_BYTES`].
    pub fn head(&self) -> &[u8] {
        &self.short[..HEAD_BYTES.min(self.short_bytes.into())]
    }

    /// The bytes after a full head.
    pub fn body(&self) -> &[u8] {
        match &self.body {
            Some(body) => body,
            None => self.short.get(HEAD_BYTES..self.short_bytes.into()).unwrap_or_default(),
        }
    }

    /// The first `len` bytes after the head, shared; none if there are fewer, or if the frame is so
    /// short that they are not in a buffer.
    pub fn share_body(&self, len: usize) -> Option<SharedBuf> {
        let body = self.body.as_ref().filter(|body| body.len() >= len)?;
        Some(body.slice(0..len))
    }

    /// Bytes of the whole frame.
    pub fn bytes(&self) -> usize {
        self.head().len() + self.body().len()
    }

    /// All its bytes, copied.
    pub fn to_vec(&self) -> Vec<u8> {
        [self.head(), self.body()].concat()
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame of {} bytes: {:02x?}", self.bytes(), self.head())
    }
}

/// The state of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkState {
    /// It has a carrier and is switched on.
    pub up: bool,
    /// The most bytes that a frame carries after its Ethernet header.
    pub mtu: u32,
}

/// A port.
pub trait Link {
    /// Its own address.
    fn address(&self) -> Mac;

    /// Its state now.
    fn state(&self) -> LinkState;

    /// Ready when the state is no longer `seen`, with the new one.
    fn poll_state(&self, cx: &mut Context<'_>, seen: LinkState) -> Poll<LinkState>;

    /// Appends the frames that have arrived, at least one, a batch at most. Pending registers the
    /// waker. Frames of other protocols do not arrive.
    ///
    /// # Errors
    /// The port is gone and will not return.
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Vec<Frame>) -> Poll<Result<()>>;

    /// Takes frames from the front, at least one if there is one, as many as the port has room for.
    /// Pending registers the waker. Shorter frames than [`MIN_FRAME_BYTES`] are padded.
    ///
    /// # Errors
    /// The port is gone and will not return.
    fn poll_send(&self, cx: &mut Context<'_>, frames: &mut VecDeque<Frame>) -> Poll<Result<()>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_is_read_as_it_is_written() {
        let mac = Mac([2, 0, 0xab, 0, 0, 0xff]);
        assert_eq!(mac.to_string(), "02:00:ab:00:00:ff");
        for text in ["02:00:ab:00:00:ff", "02-00-AB-00-00-FF", "0200ab0000ff"] {
            assert_eq!(text.parse(), Ok(mac), "{text}");
        }
        let wrong = [
            "",
            "02:00:ab:00:00",
            "02:00:ab:00:00:fg",
            "020:0:ab:00:00:ff",
            "02:00:ab:00:00:ff:00",
            "0200ab0000f:",
            "é00ab0000ff",
            "02:00:ab:00:00+ff",
            ":::::02:00:ab:00",
        ];
        for text in wrong {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_frame_is_its_head_and_its_body() {
        let pool = crate::Pool::new(0);
        let frame = Frame::with_body([7; HEAD_BYTES], pool.copy_of(&[1, 2, 3]).freeze());
        assert_eq!((frame.bytes(), frame.body()), (39, &[1, 2, 3][..]));
        assert_eq!(frame.share_body(2).as_deref(), Some(&[1, 2][..]));
        assert!(frame.share_body(4).is_none());
        for bytes in [0, 24, HEAD_BYTES, HEAD_BYTES + 1, MIN_FRAME_BYTES] {
            let frame = Frame::new(&vec![1; bytes]);
            assert_eq!((frame.bytes(), frame.to_vec()), (bytes, vec![1; bytes]));
            assert_eq!(frame.head().len(), bytes.min(HEAD_BYTES));
        }
    }
}
