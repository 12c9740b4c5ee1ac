//! An NBD client: one connection over a unix socket, any number of requests in flight.
//!
//! Written from the protocol document alone (`doc/proto.md` of the NBD project: fixed newstyle,
//! EXPORT_NAME, simple replies), so that it does not share the server's mistakes.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longer than this, and the server hangs.
const PATIENCE: Duration = Duration::from_secs(40);

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT";
const FIXED_NEWSTYLE_NO_ZEROES: u32 = 3;
const EXPORT_NAME: u32 = 1;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const FUA: u16 = 1;

/// A request.
pub enum Ask<'a> {
    /// Read these bytes.
    Read {
        /// In bytes.
        offset: u64,
        /// In bytes.
        len: u32,
    },
    /// Write these bytes.
    Write {
        /// In bytes.
        offset: u64,
        /// The content.
        bytes: &'a [u8],
        /// Durable when answered.
        fua: bool,
    },
    /// Write zeros.
    Zeros {
        /// In bytes.
        offset: u64,
        /// In bytes.
        len: u32,
        /// Durable when answered.
        fua: bool,
    },
    /// Make all answered writes durable.
    Flush,
}

/// A connection.
pub struct Client {
    stream: UnixStream,
}

impl Client {
    /// Connects to the export of this name.
    ///
    /// # Errors
    /// Nobody listens, or there is no such export: the server hangs up.
    pub fn connect(socket: &Path, export: &str) -> Result<Client> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        if &greeting[..16] != GREETING {
            return Err(Error::new(ErrorKind::InvalidData, "this is no NBD server"));
        }
        let mut hello = FIXED_NEWSTYLE_NO_ZEROES.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT");
        hello.extend(EXPORT_NAME.to_be_bytes());
        hello.extend((export.len() as u32).to_be_bytes());
        hello.extend(export.as_bytes());
        stream.write_all(&hello)?;
        // Size and flags, both already known.
        stream.read_exact(&mut [0; 10])?;
        Ok(Client { stream })
    }

    /// Changes how long an answer may take.
    ///
    /// # Errors
    /// If the socket refuses.
    pub fn set_patience(&self, patience: Duration) -> Result<()> {
        self.stream.set_read_timeout(Some(patience))?;
        self.stream.set_write_timeout(Some(patience))
    }

    /// Sends a request under a number of one's own.
    pub fn send(&mut self, cookie: u64, ask: &Ask<'_>) -> Result<()> {
        let (command, fua, offset, len, payload): (u16, bool, u64, u32, &[u8]) = match *ask {
            Ask::Read { offset, len } => (0, false, offset, len, &[]),
            Ask::Write { offset, bytes, fua } => (1, fua, offset, bytes.len() as u32, bytes),
            Ask::Flush => (3, false, 0, 0, &[]),
            Ask::Zeros { offset, len, fua } => (6, fua, offset, len, &[]),
        };
        let mut request = Vec::with_capacity(28 + payload.len());
        request.extend(REQUEST_MAGIC.to_be_bytes());
        request.extend((if fua { FUA } else { 0 }).to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(payload);
        self.stream.write_all(&request)
    }

    /// The next answer: its request, and the error number, 0 for success. The bytes of a read
    /// follow: [`Client::take`].
    pub fn answer(&mut self) -> Result<(u64, u32)> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        let word = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().expect("four"));
        if word(0) != REPLY_MAGIC {
            return Err(Error::new(ErrorKind::InvalidData, "this is no reply"));
        }
        Ok((u64::from(word(8)) << 32 | u64::from(word(12)), word(4)))
    }

    /// The bytes of a read that went well.
    pub fn take(&mut self, len: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads, and waits for it: the bytes, or the error's number.
    pub fn read(&mut self, offset: u64, len: u32) -> Result<std::result::Result<Vec<u8>, u32>> {
        self.send(0, &Ask::Read { offset, len })?;
        match self.answer()?.1 {
            0 => self.take(len).map(Ok),
            errno => Ok(Err(errno)),
        }
    }
}
