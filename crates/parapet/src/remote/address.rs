//! Addresses of disks on other machines, as users write them in place of a path.
//!
//! ```text
//!   aoe:1.0@eth1,eth2                       AoE target 1.0, through two interfaces
//!   nbd://host:10809/export                 NBD server; port and export may be left out
//!   nbd+unix:///export?socket=/run/nbd.sock NBD server on a unix socket
//!   nbds://…  nbds+unix://…                 the same with TLS; ?tls-certificates=DIR
//! ```
//!
//! The NBD forms are those of the NBD project's URI specification. Connects to nothing.

use std::fmt;
use std::path::{Path, PathBuf};

use net::aoe;

/// The port that the NBD specification assigns.
const NBD_PORT: u16 = 10809;
/// Longest export name that NBD allows, in bytes.
const EXPORT_BYTES: usize = 4096;

/// The address of a disk on another machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RemoteAddress {
    /// An AoE target.
    Aoe(AoeAddress),
    /// An export of an NBD server.
    Nbd(NbdAddress),
}

/// An AoE target, and the interfaces that lead to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AoeAddress {
    pub(crate) target: aoe::Address,
    /// Not empty, each once.
    pub(crate) interfaces: Vec<String>,
}

/// An export of an NBD server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NbdAddress {
    pub(crate) server: NbdServer,
    /// The export's name; empty for the server's default.
    pub(crate) export: String,
    /// Only with TLS.
    pub(crate) tls: bool,
    /// The folder with `ca-cert.pem`, and `client-cert.pem` with `client-key.pem`.
    pub(crate) certificates: Option<PathBuf>,
}

/// Where an NBD server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NbdServer {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// Returns true if the text names a disk on another machine, not a path.
pub(crate) fn is_remote(path: &Path) -> bool {
    path.to_str().is_some_and(|text| {
        let schemes = ["aoe:", "nbd:", "nbds:", "nbd+unix:", "nbds+unix:"];
        schemes.iter().any(|scheme| text.starts_with(scheme))
    })
}

impl RemoteAddress {
    /// Parses an address.
    ///
    /// # Errors
    /// The fault, in words, with the form that is meant.
    pub(crate) fn parse(text: &str) -> Result<RemoteAddress, String> {
        match text.strip_prefix("aoe:") {
            Some(rest) => AoeAddress::parse(rest).map(RemoteAddress::Aoe),
            None => NbdAddress::parse(text).map(RemoteAddress::Nbd),
        }
    }

    /// Returns true if both addresses name the same disk, perhaps by other ways.
    pub(crate) fn is_same_disk(&self, other: &RemoteAddress) -> bool {
        match (self, other) {
            (RemoteAddress::Aoe(a), RemoteAddress::Aoe(b)) => a.target == b.target,
            (RemoteAddress::Nbd(a), RemoteAddress::Nbd(b)) => {
                (&a.server, &a.export) == (&b.server, &b.export)
            }
            _ => false,
        }
    }
}

impl AoeAddress {
    fn parse(text: &str) -> Result<AoeAddress, String> {
        let wrong = "write it as aoe:SHELF.SLOT@INTERFACE, for example aoe:1.0@eth1,eth2";
        let (target, interfaces) = text.split_once('@').ok_or(wrong)?;
        let target: aoe::Address = target.parse().map_err(|why| format!("{why}; {wrong}"))?;
        let interfaces = self::interfaces(interfaces)?;
        Ok(AoeAddress { target, interfaces })
    }
}

/// Parses a list of network interfaces: `eth1,eth2`.
///
/// # Errors
/// The fault, in words.
pub(crate) fn interfaces(text: &str) -> Result<Vec<String>, String> {
    let interfaces: Vec<String> = text.split(',').map(str::to_owned).collect();
    if interfaces.iter().any(String::is_empty) {
        return Err("write interfaces as eth1 or eth1,eth2".into());
    }
    let twice = |name: &String| interfaces.iter().filter(|it| *it == name).count() > 1;
    if interfaces.iter().any(twice) {
        return Err("an interface is named twice".into());
    }
    Ok(interfaces)
}

impl NbdAddress {
    fn parse(text: &str) -> Result<NbdAddress, String> {
        let wrong = "write it as nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH";
        let (scheme, rest) = text.split_once("://").ok_or(wrong)?;
        let (tls, unix) = match scheme {
            "nbd" => (false, false),
            "nbds" => (true, false),
            "nbd+unix" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(wrong.into()),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let export = decoded(export)?;
        if export.len() > EXPORT_BYTES {
            return Err(format!("an export's name has at most {EXPORT_BYTES} bytes"));
        }
        let (mut socket, mut certificates) = (None, None);
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let value = PathBuf::from(decoded(value)?);
            match key {
                "socket" => socket = Some(value),
                "tls-certificates" if tls => certificates = Some(value),
                _ => return Err(format!("{key} is no parameter of {scheme}")),
            }
        }
        let server = match (unix, socket) {
            (true, Some(path)) if authority.is_empty() && !path.as_os_str().is_empty() => {
                NbdServer::Unix(std::path::absolute(&path).unwrap_or(path))
            }
            (false, None) => self::tcp(authority).ok_or(wrong)?,
            _ => return Err(wrong.into()),
        };
        let whole = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        Ok(NbdAddress { server, export, tls, certificates: certificates.map(whole) })
    }
}

/// Parses `HOST`, `HOST:PORT` or `[IPV6]:PORT`.
fn tcp(authority: &str) -> Option<NbdServer> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = port.map_or(Ok(NBD_PORT), str::parse).ok()?;
    (!host.is_empty()).then(|| NbdServer::Tcp { host: host.into(), port })
}

/// Replaces `%20` by the byte that it stands for.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?}: % stands before two hexadecimal digits");
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = after;
            continue;
        }
        let digits = after.first_chunk::<2>().ok_or_else(wrong)?;
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| format!("{text:?} is not UTF-8"))
}

/// The inverse of [`decoded`]: everything that could end a part of a URI is escaped.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:@+,=".contains(&byte);
    let mut out = String::new();
    for byte in text.bytes() {
        match plain(byte) {
            true => out.push(byte.into()),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteAddress::Aoe(it) => write!(f, "aoe:{}@{}", it.target, it.interfaces.join(",")),
            RemoteAddress::Nbd(it) => it.fmt(f),
        }
    }
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, export) = (if self.tls { "nbds" } else { "nbd" }, encoded(&self.export));
        let mut parameters = Vec::new();
        match &self.server {
            NbdServer::Tcp { host, port } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                let port = if *port == NBD_PORT { String::new() } else { format!(":{port}") };
                write!(f, "{scheme}://{host}{port}/{export}")?;
            }
            NbdServer::Unix(path) => {
                write!(f, "{scheme}+unix:///{export}")?;
                parameters.push(format!("socket={}", encoded(&path.to_string_lossy())));
            }
        }
        let folder = self.certificates.iter().map(|folder| folder.to_string_lossy());
        parameters.extend(folder.map(|it| format!("tls-certificates={}", encoded(&it))));
        if parameters.is_empty() { Ok(()) } else { write!(f, "?{}", parameters.join("&")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in [
            "aoe:1.0@eth1",
            "aoe:65534.254@eth1,br0.7",
            "nbd://host/",
            "nbd://10.0.0.1:10810/tank",
            "nbd://[fe80::1]:1/a/b",
            "nbds://host/x?tls-certificates=/etc/pki/nbd",
            "nbd+unix:///?socket=/run/nbd.sock",
            "nbds+unix:///a%3Fb%20c?socket=/run/a%26b&tls-certificates=/c",
        ] {
            assert!(is_remote(Path::new(text)), "{text}");
            assert_eq!(RemoteAddress::parse(text).unwrap().to_string(), text);
        }
        let short = [("nbd://host", "nbd://host/"), ("nbd://host:10809/", "nbd://host/")];
        for (short, whole) in short {
            assert_eq!(RemoteAddress::parse(short).unwrap().to_string(), whole);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "aoe:",
            "aoe:1.0",
            "aoe:1.0@",
            "aoe:1@eth1",
            "aoe:1.0@eth1,eth1",
            "aoe:1.0@eth1,",
            "aoe:4095.0@eth1",
            "aoe:65535.0@eth1",
            "aoe:1.255@eth1",
            "nbd:",
            "nbd:host",
            "nbd://",
            "nbd:///x",
            "nbd://host:x/",
            "nbd://host:65536/",
            "nbd://[::1/",
            "nbd://host/%",
            "nbd://host/%zz",
            "nbd://host/%ff",
            "nbd://host/x?y=z",
            "nbd://host/x?socket=/a",
            "nbd+unix:///x",
            "nbd+unix://host/x?socket=/a",
            "nbd+unix:///x?socket=",
            "nbd://host/?tls-certificates=/a",
        ] {
            assert!(RemoteAddress::parse(text).is_err(), "{text}");
        }
        let long = |bytes: usize| RemoteAddress::parse(&format!("nbd://h/{}", "x".repeat(bytes)));
        assert!(long(EXPORT_BYTES - 1).is_ok() && long(EXPORT_BYTES).is_ok());
        assert!(long(EXPORT_BYTES + 1).is_err());
        for path in ["/dev/sda", "./aoe:1.0", "tank", "array:tank", ""] {
            assert!(!is_remote(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn one_disk_may_have_several_addresses() {
        let same = |a: &str, b: &str| {
            RemoteAddress::parse(a).unwrap().is_same_disk(&RemoteAddress::parse(b).unwrap())
        };
        assert!(same("aoe:1.0@eth1", "aoe:1.0@eth2"));
        assert!(!same("aoe:1.0@eth1", "aoe:1.1@eth1"));
        assert!(same("nbd://host/x", "nbds://host/x") && !same("nbd://host/x", "nbd://host/y"));
        assert!(!same("nbd://host/x", "aoe:1.0@eth1"));
    }
}
