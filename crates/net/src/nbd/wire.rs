//! Every byte of the NBD protocol, both directions.
//!
//! Source: the protocol document of the NBD project (`doc/proto.md`, public domain), its branch for
//! extended headers included. All numbers are big-endian.
//!
//! ```text
//! handshake   S  NBDMAGIC IHAVEOPT flags16
//!             C  flags32
//!             C  IHAVEOPT option32 length32 data…                  (any number of times)
//!             S  reply-magic64 option32 kind32 length32 data…
//!
//! compact     C  magic32 flags16 command16 cookie64 offset64 length32  payload…
//!   simple    S  magic32 error32 cookie64                              data…
//!   chunk     S  magic32 flags16 kind16 cookie64 length32              payload…
//!
//! extended    C  magic32 flags16 command16 cookie64 offset64 length64  payload…
//!   chunk     S  magic32 flags16 kind16 cookie64 offset64 length64     payload…
//! ```
//!
//! Owns all constants, encoders and decoders. Never reads a stream, never decides anything.
//! Invariant: a [`Reader`] never reads past the bytes it was given, whatever the lengths inside
//! claim.

mod options;
pub mod reply;
#[cfg(test)]
mod tests;

pub use options::*;

/// First magic number of the server's greeting, `NBDMAGIC`.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second magic number of the greeting, and the one before each option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Before each reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Before each compact request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Before each extended request.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// Before each simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Before each chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// Before each chunk of an extended reply.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Bytes of an option's header.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes of the header of a reply to an option.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;
/// Bytes of a compact request without its payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of an extended request without its payload.
pub const EXTENDED_REQUEST_BYTES: usize = 32;
/// Zero bytes after the answer to EXPORT_NAME, for clients that did not set
/// [`handshake::NO_ZEROES`].
pub const EXPORT_NAME_ZEROES: usize = 124;
/// No name, query or message may be longer.
pub const MAX_STRING_BYTES: usize = 4096;

/// Flags of the greeting and of the client's answer to it.
pub mod handshake {
    /// Options are answered, not only EXPORT_NAME.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// No zero bytes after the answer to EXPORT_NAME.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Options a client may send.
pub mod option {
    /// Choose an export; no error can be reported.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// Name the exports.
    pub const LIST: u32 = 3;
    /// Go on under TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and begin transmission.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Name the metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use extended headers.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Kinds of replies to options; errors have the top bit.
pub mod answer {
    /// Done.
    pub const ACK: u32 = 1;
    /// One export.
    pub const SERVER: u32 = 2;
    /// One piece of information about an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The top bit of every error.
    pub const ERROR: u32 = 1 << 31;
    /// Unknown option.
    pub const UNSUPPORTED: u32 = ERROR | 1;
    /// Not allowed here.
    pub const POLICY: u32 = ERROR | 2;
    /// Malformed or out of order.
    pub const INVALID: u32 = ERROR | 3;
    /// TLS first.
    pub const TLS_REQUIRED: u32 = ERROR | 5;
    /// No such export.
    pub const UNKNOWN: u32 = ERROR | 6;
    /// The server is going away.
    pub const SHUTDOWN: u32 = ERROR | 7;
    /// Too large to process.
    pub const TOO_BIG: u32 = ERROR | 9;
    /// Extended headers are in use, which rules this out.
    pub const EXTENDED_REQUIRED: u32 = ERROR | 10;
}

/// Kinds of information about an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The canonical name.
    pub const NAME: u16 = 1;
    /// A sentence for people.
    pub const DESCRIPTION: u16 = 2;
    /// Block sizes.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags of an export.
pub mod flags {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH works.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// FUA works.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Distance costs time.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// TRIM works.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES works.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// DF works.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers all connections.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE is understood.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// FAST_ZERO is understood.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
    /// BLOCK_STATUS may name the contexts it wants in a payload.
    pub const BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;
}

/// Commands of the transmission phase.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write.
    pub const WRITE: u16 = 1;
    /// End the session.
    pub const DISCONNECT: u16 = 2;
    /// Make answered writes durable.
    pub const FLUSH: u16 = 3;
    /// These bytes are not needed any more.
    pub const TRIM: u16 = 4;
    /// These bytes will be needed soon.
    pub const CACHE: u16 = 5;
    /// Write zeros.
    pub const WRITE_ZEROES: u16 = 6;
    /// Stored data and holes.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a command.
pub mod command_flag {
    /// Durable before the answer.
    pub const FUA: u16 = 1 << 0;
    /// WRITE_ZEROES may not give the space back.
    pub const NO_HOLE: u16 = 1 << 1;
    /// READ is answered in one chunk.
    pub const DF: u16 = 1 << 2;
    /// BLOCK_STATUS is answered with one extent.
    pub const REQUEST_ONE: u16 = 1 << 3;
    /// WRITE_ZEROES fails rather than be slow.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// The length is that of a payload (extended headers only).
    pub const PAYLOAD_LENGTH: u16 = 1 << 5;
}

/// Kinds of reply chunks.
pub mod chunk {
    /// Nothing but the end.
    pub const NONE: u16 = 0;
    /// Offset and bytes.
    pub const OFFSET_DATA: u16 = 1;
    /// Offset and length of zeros.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents with 32-bit lengths.
    pub const BLOCK_STATUS: u16 = 5;
    /// Extents with 64-bit lengths.
    pub const BLOCK_STATUS_EXTENDED: u16 = 6;
    /// The top bit of every error.
    pub const ERROR_BIT: u16 = 1 << 15;
    /// The request failed.
    pub const ERROR: u16 = ERROR_BIT | 1;
    /// The request failed at an offset.
    pub const ERROR_OFFSET: u16 = ERROR_BIT | 2;
    /// Flag of the last chunk of a reply.
    pub const DONE: u16 = 1 << 0;
}

/// Flags of `base:allocation`.
pub mod allocation {
    /// Not stored.
    pub const HOLE: u32 = 1 << 0;
    /// Reads as zeros.
    pub const ZERO: u32 = 1 << 1;
}

/// Which headers the two sides agreed on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Style {
    /// Compact requests, simple replies.
    #[default]
    Simple,
    /// Compact requests, structured replies.
    Structured,
    /// Extended requests and replies.
    Extended,
}

/// Error numbers that NBD allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Fault {
    /// Read-only.
    Permission = 1,
    /// The disk failed.
    Io = 5,
    /// No memory; never sent.
    NoMemory = 12,
    /// The request makes no sense.
    Invalid = 22,
    /// No space, or a write past the end.
    NoSpace = 28,
    /// Too long.
    Overflow = 75,
    /// Zeroing would not be fast.
    NotFast = 95,
    /// The server is going away.
    Shutdown = 108,
}

impl Fault {
    /// The server's error; unknown numbers count as `Invalid`, as the protocol asks.
    pub fn from_wire(number: u32) -> Fault {
        use Fault::*;
        let known = [Permission, Io, NoMemory, Invalid, NoSpace, Overflow, NotFast, Shutdown];
        known.into_iter().find(|fault| *fault as u32 == number).unwrap_or(Invalid)
    }
}

/// Why bytes could not be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// A length inside claims more bytes than there are.
    Short,
    /// Bytes are left over.
    Trailing,
    /// A string over [`MAX_STRING_BYTES`].
    Long,
    /// A string that is not UTF-8, or has a NUL.
    Text,
    /// A magic number is wrong.
    Magic,
}

/// Takes bytes apart from the front, and never reads past them.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of these bytes.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// `Short` if there are fewer.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// The next 16-bit number.
    ///
    /// # Errors
    /// `Short`.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next 32-bit number.
    ///
    /// # Errors
    /// `Short`.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next 64-bit number.
    ///
    /// # Errors
    /// `Short`.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    /// The next `count` bytes as a string.
    ///
    /// # Errors
    /// `Short`, `Long` or `Text`, looked for in this order.
    pub fn string(&mut self, count: usize) -> Result<&'a str, Malformed> {
        let bytes = self.bytes(count)?;
        if count > MAX_STRING_BYTES {
            return Err(Malformed::Long);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Malformed::Text)?;
        if text.contains('\0') { Err(Malformed::Text) } else { Ok(text) }
    }

    /// A 32-bit length and a string of that length.
    ///
    /// # Errors
    /// As [`string`](Reader::string).
    pub fn counted_string(&mut self) -> Result<&'a str, Malformed> {
        let count = self.u32()?;
        self.string(count as usize)
    }

    /// All the rest as a string.
    ///
    /// # Errors
    /// As [`string`](Reader::string).
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        self.string(self.rest.len())
    }

    /// Makes sure that nothing is left.
    ///
    /// # Errors
    /// `Trailing`.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::Trailing) }
    }
}

/// The server's greeting: fixed newstyle, no zeros needed.
pub fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&GREETING_MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    let flags = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
    bytes[16..].copy_from_slice(&flags.to_be_bytes());
    bytes
}

/// Appends an option, as a client sends it.
pub fn put_option(out: &mut Vec<u8>, option: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

/// An option's header: the option, and the length of its data.
///
/// # Errors
/// `Magic`; `Short` never, with a whole header.
pub fn option_header(bytes: &[u8; OPTION_HEADER_BYTES]) -> Result<(u32, u32), Malformed> {
    let mut reader = Reader::new(bytes);
    if reader.u64()? != OPTION_MAGIC {
        return Err(Malformed::Magic);
    }
    Ok((reader.u32()?, reader.u32()?))
}

/// Appends a reply to an option.
pub fn put_answer(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

/// The header of a reply to an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnswerHeader {
    /// The option it answers.
    pub option: u32,
    /// See [`answer`].
    pub kind: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

impl AnswerHeader {
    /// Takes a header apart.
    ///
    /// # Errors
    /// `Magic`.
    pub fn decode(bytes: &[u8; OPTION_REPLY_HEADER_BYTES]) -> Result<AnswerHeader, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u64()? != OPTION_REPLY_MAGIC {
            return Err(Malformed::Magic);
        }
        Ok(AnswerHeader { option: reader.u32()?, kind: reader.u32()?, length: reader.u32()? })
    }
}

/// A request of the transmission phase, without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// See [`command_flag`].
    pub flags: u16,
    /// See [`command`].
    pub command: u16,
    /// The client's name for it, echoed in the reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes of the range, or of the payload.
    pub length: u64,
}

impl Request {
    /// Bytes of a request's header.
    pub fn header_bytes(style: Style) -> usize {
        if style == Style::Extended { EXTENDED_REQUEST_BYTES } else { REQUEST_BYTES }
    }

    /// Takes a header apart; `bytes` may hold more.
    ///
    /// # Errors
    /// `Magic`, or `Short`.
    pub fn decode(bytes: &[u8], style: Style) -> Result<Request, Malformed> {
        let mut reader = Reader::new(bytes);
        let extended = style == Style::Extended;
        let magic = if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
        if reader.u32()? != magic {
            return Err(Malformed::Magic);
        }
        let (flags, command) = (reader.u16()?, reader.u16()?);
        let (cookie, offset) = (reader.u64()?, reader.u64()?);
        let length = if extended { reader.u64()? } else { u64::from(reader.u32()?) };
        Ok(Request { flags, command, cookie, offset, length })
    }

    /// Appends the header. A compact header has room for 32 bits of length only.
    pub fn encode(&self, style: Style, out: &mut Vec<u8>) {
        let mut bytes = [0; EXTENDED_REQUEST_BYTES];
        let extended = style == Style::Extended;
        let magic = if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
        bytes[..4].copy_from_slice(&magic.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        if extended {
            bytes[24..32].copy_from_slice(&self.length.to_be_bytes());
        } else {
            let length =
                u32::try_from(self.length).expect("the caller checked for compact headers");
            bytes[24..28].copy_from_slice(&length.to_be_bytes());
        }
        out.extend_from_slice(&bytes[..Request::header_bytes(style)]);
    }
}
