//! Parses the words of users: names, sockets, signatures.
//!
//! Opens no files and asks no server. Depends on nothing else in the program: the fuzzer compiles
//! this file by itself.

use std::net::SocketAddr;

use layout::md::NAME_BYTES;

/// Checks that a name is valid for a file and an export, or returns why not.
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

/// Parses `PORT` on the loopback address, `:PORT` on every address, or `ADDRESS:PORT`. None if the
/// address is a host name, which the caller must resolve.
///
/// # Errors
/// If the port is invalid.
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

/// Parses a signature and its offset, `ext4@0x438`; none if the format is different.
pub(crate) fn signature(text: &str) -> Option<(&str, u64)> {
    let (name, offset) = text.split_once('@')?;
    let offset = match offset.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => offset.parse(),
    };
    Some((name, offset.ok()?))
}
