//! Words that users write: names, sockets, signatures. Text to values, and nothing else.
//!
//! Opens and asks nothing, and knows nothing of the rest of the program: the fuzzer compiles this
//! file by itself.

use std::net::SocketAddr;

use layout::md::NAME_BYTES;

/// A name that can be a file's and an export's, or why not.
pub(crate) fn name(name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES {
        return Err(format!("a name has 1 to {NAME_BYTES} characters"));
    }
    if name.starts_with(['.', '-']) || !name.chars().all(plain) {
        return Err(
            "a name is made of letters, digits and . _ - +, and begins with none of . -".into()
        );
    }
    Ok(name.into())
}

/// `PORT` on the loopback address, `:PORT` on every address, `ADDRESS:PORT`; nothing if the address
/// is a name that somebody else must look up.
///
/// # Errors
/// If what should be a port is none.
pub(crate) fn socket(text: &str) -> Result<Option<SocketAddr>, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(Some(SocketAddr::from(([127, 0, 0, 1], port))));
    }
    if let Some(port) = text.strip_prefix(':') {
        let port = port.parse::<u16>().map_err(|_| format!("{port:?} is no port"))?;
        return Ok(Some(SocketAddr::from(([0_u16; 8], port))));
    }
    Ok(text.parse().ok())
}

/// What was found on a disk and where, `ext4@0x438`; nothing if it is not written so.
pub(crate) fn signature(text: &str) -> Option<(&str, u64)> {
    let (name, offset) = text.split_once('@')?;
    let offset = match offset.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => offset.parse(),
    };
    Some((name, offset.ok()?))
}
