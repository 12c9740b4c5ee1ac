//! Replies of the transmission phase, in all three styles.
//!
//! A reply is written for one [`Request`]; the agreed style decides its form. With structured
//! replies everything is sent as chunks: a simple reply is never valid for a READ, and chunks carry
//! a message for people.

use super::{
    EXTENDED_REPLY_MAGIC, Fault, MAX_STRING_BYTES, Malformed, Reader, Request, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC, Style, chunk,
};

/// Bytes of a simple reply's header.
pub const SIMPLE_BYTES: usize = 16;
/// Bytes of a structured chunk's header.
pub const STRUCTURED_BYTES: usize = 20;
/// Bytes of an extended chunk's header.
pub const EXTENDED_BYTES: usize = 32;

/// Appends a reply with success only.
pub fn success(out: &mut Vec<u8>, style: Style, request: &Request) {
    match style {
        Style::Simple => simple(out, 0, request.cookie),
        _ => head(out, style, request, chunk::DONE, chunk::NONE, 0),
    }
}

/// Appends an error reply; `message` is for people, `at` the offset if known.
pub fn error(
    out: &mut Vec<u8>,
    style: Style,
    request: &Request,
    fault: Fault,
    message: &str,
    at: Option<u64>,
) {
    if style == Style::Simple {
        return simple(out, fault as u32, request.cookie);
    }
    let mut end = message.len().min(MAX_STRING_BYTES);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let message = &message.as_bytes()[..end];
    let kind = if at.is_some() { chunk::ERROR_OFFSET } else { chunk::ERROR };
    let length = 6 + message.len() + if at.is_some() { 8 } else { 0 };
    head(out, style, request, chunk::DONE, kind, length as u64);
    out.extend_from_slice(&(fault as u32).to_be_bytes());
    out.extend_from_slice(&(message.len() as u16).to_be_bytes());
    out.extend_from_slice(message);
    if let Some(at) = at {
        out.extend_from_slice(&at.to_be_bytes());
    }
}

/// Appends the header of `length` bytes of read data, which the caller sends after it. The reply is
/// complete with them, so the data must be available.
pub fn data(out: &mut Vec<u8>, style: Style, request: &Request, length: usize) {
    match style {
        Style::Simple => simple(out, 0, request.cookie),
        // A content chunk has at least one byte.
        _ if length == 0 => success(out, style, request),
        _ => {
            head(out, style, request, chunk::DONE, chunk::OFFSET_DATA, 8 + length as u64);
            out.extend_from_slice(&request.offset.to_be_bytes());
        }
    }
}

/// Appends the extents of one metadata context: lengths in bytes, and flags. `done` ends the reply.
///
/// # Panics
/// In simple style, which has no form for it; the session answers EINVAL before.
pub fn status(
    out: &mut Vec<u8>,
    style: Style,
    request: &Request,
    context: u32,
    extents: impl ExactSizeIterator<Item = (u64, u32)>,
    done: bool,
) {
    let count = extents.len();
    let flags = if done { chunk::DONE } else { 0 };
    match style {
        Style::Simple => panic!("block status needs structured replies"),
        Style::Structured => {
            let length = 4 + 8 * count as u64;
            head(out, style, request, flags, chunk::BLOCK_STATUS, length);
            out.extend_from_slice(&context.to_be_bytes());
            for (bytes, status) in extents {
                let bytes = u32::try_from(bytes).expect("compact requests are shorter");
                out.extend_from_slice(&bytes.to_be_bytes());
                out.extend_from_slice(&status.to_be_bytes());
            }
        }
        Style::Extended => {
            let length = 8 + 16 * count as u64;
            head(out, style, request, flags, chunk::BLOCK_STATUS_EXTENDED, length);
            out.extend_from_slice(&context.to_be_bytes());
            out.extend_from_slice(&(count as u32).to_be_bytes());
            for (bytes, status) in extents {
                out.extend_from_slice(&bytes.to_be_bytes());
                out.extend_from_slice(&u64::from(status).to_be_bytes());
            }
        }
    }
}

fn simple(out: &mut Vec<u8>, error: u32, cookie: u64) {
    let mut bytes = [0; SIMPLE_BYTES];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    out.extend_from_slice(&bytes);
}

fn head(out: &mut Vec<u8>, style: Style, request: &Request, flags: u16, kind: u16, length: u64) {
    let mut bytes = [0; EXTENDED_BYTES];
    let extended = style == Style::Extended;
    let magic = if extended { EXTENDED_REPLY_MAGIC } else { STRUCTURED_REPLY_MAGIC };
    bytes[..4].copy_from_slice(&magic.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&request.cookie.to_be_bytes());
    if extended {
        bytes[16..24].copy_from_slice(&request.offset.to_be_bytes());
        bytes[24..32].copy_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&bytes);
    } else {
        let length = u32::try_from(length).expect("payloads are limited far below 4 GiB");
        bytes[16..20].copy_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&bytes[..STRUCTURED_BYTES]);
    }
}

/// A reply's header, as a client reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyHeader {
    /// Which request it answers.
    pub cookie: u64,
    /// The kind of the reply.
    pub form: Form,
}

/// The two forms of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The whole reply; read data follows if `error` is 0.
    Simple {
        /// 0, or a [`Fault`].
        error: u32,
    },
    /// One chunk of a reply.
    Chunk {
        /// Is it the last one?
        done: bool,
        /// See [`chunk`].
        kind: u16,
        /// Bytes of payload that follow.
        length: u64,
    },
}

impl ReplyHeader {
    /// How many bytes the header has that begins with `magic`, if it is one of this style.
    pub fn bytes_after(magic: u32, style: Style) -> Result<usize, Malformed> {
        match (magic, style) {
            (SIMPLE_REPLY_MAGIC, Style::Simple | Style::Structured) => Ok(SIMPLE_BYTES),
            (STRUCTURED_REPLY_MAGIC, Style::Structured) => Ok(STRUCTURED_BYTES),
            (EXTENDED_REPLY_MAGIC, Style::Extended) => Ok(EXTENDED_BYTES),
            _ => Err(Malformed::Magic),
        }
    }

    /// Parses a header; `None` if `bytes` do not hold all of it yet. Also returns its length.
    ///
    /// # Errors
    /// `Magic`.
    pub fn decode(bytes: &[u8], style: Style) -> Result<Option<(ReplyHeader, usize)>, Malformed> {
        let mut reader = Reader::new(bytes);
        let Ok(magic) = reader.u32() else { return Ok(None) };
        let length = ReplyHeader::bytes_after(magic, style)?;
        if bytes.len() < length {
            return Ok(None);
        }
        if magic == SIMPLE_REPLY_MAGIC {
            let error = reader.u32()?;
            let cookie = reader.u64()?;
            return Ok(Some((ReplyHeader { cookie, form: Form::Simple { error } }, length)));
        }
        let (flags, kind, cookie) = (reader.u16()?, reader.u16()?, reader.u64()?);
        let payload = if style == Style::Extended {
            reader.u64()?;
            reader.u64()?
        } else {
            u64::from(reader.u32()?)
        };
        let form = Form::Chunk { done: flags & chunk::DONE != 0, kind, length: payload };
        Ok(Some((ReplyHeader { cookie, form }, length)))
    }
}
