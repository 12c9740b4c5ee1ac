//! The client's handshake.
//!
//! Asks for TLS, if the host provides it; for extended headers, else structured replies; then for
//! `base:allocation`; then GO with block sizes. A server refuses options that it lacks, and the
//! handshake continues. Never sends EXPORT_NAME: a server without GO is too old to be a member.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use io::{Boxed, Completions, Pool, Stream};

use super::{Link, Pieces, Remote, RemoteDisk, Shared};
use crate::nbd::context::MetaContext;
use crate::nbd::wire::{
    self, AnswerHeader, Choice, Malformed, OPTION_REPLY_HEADER_BYTES, Queries, Reader, Style,
    answer, flags, handshake, info, option,
};
use crate::transfer::{fill, send};

/// Replies to one option, and bytes in one of them: more is an attack.
const MAX_ANSWERS: usize = 64;
const MAX_ANSWER_BYTES: u32 = 16 << 10;

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// The stream ended or broke.
    Vanished(std::io::Error),
    /// The server does not speak as the protocol says.
    Misbehaved(&'static str),
    /// The server refuses; its error number (see [`answer`]) and its message.
    Refused(u32, String),
    /// The server lacks a feature that a disk needs.
    Unfit(&'static str),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Vanished(error) => write!(f, "the connection broke: {error}"),
            ConnectError::Misbehaved(what) => write!(f, "the server broke the protocol: {what}"),
            ConnectError::Refused(number, message) => {
                write!(f, "the server refused ({:#x}): {message}", number)
            }
            ConnectError::Unfit(what) => write!(f, "the server cannot be used: {what}"),
        }
    }
}

impl std::error::Error for ConnectError {}

impl From<std::io::Error> for ConnectError {
    fn from(error: std::io::Error) -> ConnectError {
        ConnectError::Vanished(error)
    }
}

impl From<Malformed> for ConnectError {
    fn from(_: Malformed) -> ConnectError {
        ConnectError::Misbehaved("a malformed reply to an option")
    }
}

/// TLS, as the host provides it.
pub trait ClientTls {
    /// Begins the TLS handshake on a connection whose server agreed to it, and returns the secured
    /// stream. Fails if the server's certificate is not trusted.
    fn secure(&self, stream: Box<dyn Stream>) -> Securing<'_>;
}

/// See [`ClientTls::secure`].
pub type Securing<'a> = Pin<Box<dyn Future<Output = std::io::Result<Box<dyn Stream>>> + 'a>>;

/// Negotiates the export `name` (empty: the default one) over `stream`, with TLS if it is given.
/// The host sets a deadline.
///
/// # Errors
/// Why there is no connection; the stream is closed then. Never continues in plain text where TLS
/// is given.
pub fn connect<'a>(
    mut stream: Box<dyn Stream>,
    name: &'a str,
    tls: Option<&'a dyn ClientTls>,
    pool: Pool,
) -> Boxed<'a, Result<(RemoteDisk, Link), ConnectError>> {
    Box::pin(async move {
        let mut greeting = [0; 18];
        fill(&*stream, &mut greeting).await?;
        let mut reader = Reader::new(&greeting);
        if reader.u64()? != wire::GREETING_MAGIC || reader.u64()? != wire::OPTION_MAGIC {
            return Err(ConnectError::Misbehaved("not the greeting of a newstyle server"));
        }
        let offered = reader.u16()?;
        if offered & handshake::FIXED_NEWSTYLE == 0 {
            return Err(ConnectError::Unfit("it cannot answer options"));
        }
        let wanted = handshake::FIXED_NEWSTYLE | offered & handshake::NO_ZEROES;
        send(&*stream, &u32::from(wanted).to_be_bytes()).await?;

        if let Some(tls) = tls {
            match ask(&*stream, option::STARTTLS, &[], &mut |_, _| Ok(())).await? {
                Ok(()) => stream = tls.secure(stream).await?,
                Err(_) => return Err(ConnectError::Unfit("it offers no TLS")),
            }
        }
        let style = if agree(&*stream, option::EXTENDED_HEADERS).await? {
            Style::Extended
        } else if agree(&*stream, option::STRUCTURED_REPLY).await? {
            Style::Structured
        } else {
            Style::Simple
        };
        let allocation = if style == Style::Simple { None } else { choose(&*stream, name).await? };
        let remote = go(&*stream, name, Remote { style, allocation, ..Remote::UNKNOWN }).await?;
        let pieces = Pieces::new(remote, pool).into();
        let shared = Rc::new(Shared { pieces, answers: Completions::new() });
        let disk = RemoteDisk { limits: remote.limits(), remote, shared: Rc::clone(&shared) };
        Ok((disk, Link::new(stream, shared, remote)))
    })
}

impl Remote {
    /// Before the server has said anything: the protocol's default block sizes.
    const UNKNOWN: Remote = Remote {
        style: Style::Simple,
        bytes: 0,
        flags: 0,
        allocation: None,
        minimum: 1,
        preferred: 4096,
        maximum: 32 << 20,
    };

    fn check(self) -> Result<Remote, ConnectError> {
        let unfit = |what| Err(ConnectError::Unfit(what));
        let sizes = (self.minimum, self.preferred, self.maximum);
        let ordered = sizes.0 <= sizes.1 && sizes.1 <= sizes.2;
        if !self.has(flags::HAS_FLAGS) {
            return unfit("it sent no export information");
        }
        if self.bytes >= 1 << 63 {
            return unfit("the export's size is impossible");
        }
        if !self.minimum.is_power_of_two() || self.minimum > 1 << 16 {
            return unfit("its minimum block size is impossible");
        }
        if !self.preferred.is_power_of_two() || self.preferred < 512 || !ordered {
            return unfit("its block sizes are impossible");
        }
        if !self.has(flags::SEND_FLUSH) && !self.has(flags::READ_ONLY) {
            return unfit("it cannot make writes durable");
        }
        Ok(self)
    }
}

/// Handles the replies before the last one: their kind, and their data.
type Take<'a> = dyn FnMut(u32, &[u8]) -> Result<(), Malformed> + 'a;

/// Sends an option; calls `each` with every reply before the last. Success if the last one is an
/// ACK, else the server's refusal.
async fn ask(
    stream: &dyn Stream,
    option: u32,
    data: &[u8],
    each: &mut Take<'_>,
) -> Result<Result<(), (u32, String)>, ConnectError> {
    let mut bytes = Vec::new();
    wire::put_option(&mut bytes, option, data);
    send(stream, &bytes).await?;
    for _ in 0..MAX_ANSWERS {
        let mut header = [0; OPTION_REPLY_HEADER_BYTES];
        fill(stream, &mut header).await?;
        let header = AnswerHeader::decode(&header)?;
        if header.option != option {
            return Err(ConnectError::Misbehaved("an answer to another option"));
        }
        if header.length > MAX_ANSWER_BYTES {
            return Err(ConnectError::Misbehaved("an answer that is too long"));
        }
        let mut data = vec![0; header.length as usize];
        fill(stream, &mut data).await?;
        match header.kind {
            answer::ACK => return Ok(Ok(())),
            kind if kind & answer::ERROR != 0 => {
                return Ok(Err((kind, String::from_utf8_lossy(&data).into_owned())));
            }
            kind => each(kind, &data)?,
        }
    }
    Err(ConnectError::Misbehaved("too many answers to one option"))
}

/// Sends an option without data; true if the server agrees.
async fn agree(stream: &dyn Stream, option: u32) -> Result<bool, ConnectError> {
    Ok(ask(stream, option, &[], &mut |_, _| Ok(())).await?.is_ok())
}

/// Chooses `base:allocation`; gives its number if the server has it.
async fn choose(stream: &dyn Stream, name: &str) -> Result<Option<u32>, ConnectError> {
    let wanted = MetaContext::Allocation.name();
    let data = Queries { name, queries: vec![wanted] }.encode();
    let mut id = None;
    let mut take = |kind, data: &[u8]| {
        let mut reader = Reader::new(data);
        if kind == answer::META_CONTEXT {
            let number = reader.u32()?;
            if reader.text()? == wanted {
                id = Some(number);
            }
        }
        Ok(())
    };
    let agreed = ask(stream, option::SET_META_CONTEXT, &data, &mut take).await?.is_ok();
    Ok(id.filter(|_| agreed))
}

async fn go(stream: &dyn Stream, name: &str, start: Remote) -> Result<Remote, ConnectError> {
    let data = Choice { name, requests: vec![info::BLOCK_SIZE] }.encode();
    let mut remote = start;
    let mut take = |kind, data: &[u8]| {
        let mut reader = Reader::new(data);
        if kind != answer::INFO {
            return Ok(());
        }
        match reader.u16()? {
            info::EXPORT => (remote.bytes, remote.flags) = (reader.u64()?, reader.u16()?),
            info::BLOCK_SIZE => {
                (remote.minimum, remote.preferred) = (reader.u32()?, reader.u32()?);
                remote.maximum = reader.u32()?;
            }
            _ => {}
        }
        Ok(())
    };
    match ask(stream, option::GO, &data, &mut take).await? {
        Ok(()) => remote.check(),
        Err((kind, message)) => Err(ConnectError::Refused(kind, message)),
    }
}
