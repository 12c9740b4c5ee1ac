//! The handshake with an NBD server: the export's properties, until the kernel takes the
//! connection.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::failure::{Failure, Result, ensure};

const SERVER_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Fixed newstyle, and no zeros after it.
const FLAGS: u32 = 3;
const GO: u32 = 7;
const ACK: u32 = 1;
const INFO: u32 = 3;
const INFO_EXPORT: u16 = 0;

/// A connection that is ready for requests.
pub(super) struct Ready {
    pub(super) stream: TcpStream,
    pub(super) bytes: u64,
    /// The server's features.
    pub(super) flags: u16,
}

/// Connects to this export.
///
/// # Errors
/// There is no server, or it does not have it.
pub(super) fn connect(server: &str, export: &str) -> Result<Ready> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    let known = u64_of(&mut stream)? == SERVER_MAGIC && u64_of(&mut stream)? == OPTION_MAGIC;
    ensure(known, || "this is no NBD server".into())?;
    array::<2>(&mut stream)?;
    let mut words = FLAGS.to_be_bytes().to_vec();
    words.extend(OPTION_MAGIC.to_be_bytes());
    words.extend(GO.to_be_bytes());
    words.extend((export.len() as u32 + 6).to_be_bytes());
    words.extend((export.len() as u32).to_be_bytes());
    words.extend(export.as_bytes());
    words.extend([0, 0]);
    stream.write_all(&words)?;
    let mut described = None;
    loop {
        ensure(u64_of(&mut stream)? == REPLY_MAGIC, || "it answers in another way".into())?;
        let [_, kind, len] = [(); 3].map(|()| array::<4>(&mut stream).map(u32::from_be_bytes));
        let (kind, len) = (kind?, len?);
        let mut body = vec![0; len.min(1 << 16) as usize];
        stream.read_exact(&mut body)?;
        match (kind, body.as_slice()) {
            (ACK, _) => break,
            (INFO, [a, b, rest @ ..]) if u16::from_be_bytes([*a, *b]) == INFO_EXPORT => {
                let (bytes, flags) =
                    rest.split_first_chunk::<8>().ok_or_else(|| Failure::new("too short"))?;
                let flags = flags.first_chunk::<2>().ok_or_else(|| Failure::new("too short"))?;
                described = Some((u64::from_be_bytes(*bytes), u16::from_be_bytes(*flags)));
            }
            (INFO, _) => {}
            _ => {
                let why = String::from_utf8_lossy(&body).into_owned();
                return Err(Failure::new(format!("{export} is refused: {kind:#x} {why}")));
            }
        }
    }
    let (bytes, flags) =
        described.ok_or_else(|| Failure::new("it does not say how large it is"))?;
    Ok(Ready { stream, bytes, flags })
}

fn array<const N: usize>(stream: &mut TcpStream) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn u64_of(stream: &mut TcpStream) -> Result<u64> {
    array(stream).map(u64::from_be_bytes)
}
