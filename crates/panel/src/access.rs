//! What a page offers and to whom, and what its address demands.
//!
//! | address | must have |
//! |---|---|
//! | `unix:PATH` (mode 0600) | nothing; TLS is refused |
//! | loopback | a login or client certificates, for actions |
//! | any other | TLS, and a login or client certificates |
//!
//! Every user of this machine reaches a loopback address, and everybody a network does.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::ServerConfig;

use crate::listen::Listen;
use crate::password::PasswordFile;

/// What a page offers, and to whom.
#[derive(Clone, Default)]
pub struct Access {
    /// Browsers may give commands to the arrays.
    pub actions: bool,
    /// The password that the page asks for; without one, whoever reaches the page sees it.
    pub login: Option<PasswordFile>,
    /// TLS; without it, the page speaks plain HTTP.
    pub tls: Option<Tls>,
}

/// TLS of a page.
#[derive(Clone)]
pub struct Tls {
    /// Returns the configuration for a new connection: certificates are renewed.
    pub config: Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>,
    /// The configuration demands client certificates.
    pub names_clients: bool,
    /// Returns the subject of a client's certificate (DER), for the log.
    pub subject: fn(&[u8]) -> Option<String>,
}

/// What protects a page.
#[derive(Clone, Copy, Default, Debug)]
pub struct Protection {
    /// TLS.
    pub tls: bool,
    /// Client certificates, which need TLS.
    pub client_certificates: bool,
    /// A password.
    pub login: bool,
}

/// Why a page may not be served at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unprotected {
    /// Other machines reach it, and it has no TLS.
    NoTls,
    /// Other machines reach it, and it lets everybody in.
    Open,
    /// It takes commands over TCP, and from everybody.
    OpenActions,
    /// TLS on a unix socket.
    TlsOnUnix,
}

impl Access {
    /// What protects the page.
    pub(crate) fn protection(&self) -> Protection {
        Protection {
            tls: self.tls.is_some(),
            client_certificates: self.tls.as_ref().is_some_and(|tls| tls.names_clients),
            login: self.login.is_some(),
        }
    }
}

impl Protection {
    /// Checks that this is enough for an address.
    ///
    /// # Errors
    /// What is missing.
    pub fn check(self, listen: &Listen, actions: bool) -> Result<(), Unprotected> {
        let knows_clients = self.login || self.client_certificates;
        match listen {
            Listen::Unix(_) if self.tls => Err(Unprotected::TlsOnUnix),
            Listen::Unix(_) => Ok(()),
            Listen::Tcp(address) if !address.ip().is_loopback() && !self.tls => {
                Err(Unprotected::NoTls)
            }
            Listen::Tcp(address) if !address.ip().is_loopback() && !knows_clients => {
                Err(Unprotected::Open)
            }
            Listen::Tcp(_) if actions && !knows_clients => Err(Unprotected::OpenActions),
            Listen::Tcp(_) => Ok(()),
        }
    }
}

impl fmt::Display for Unprotected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unprotected::NoTls => "not a loopback address, and the page has no TLS",
            Unprotected::Open => {
                "not a loopback address, and the page asks for neither a login nor a client \
                 certificate"
            }
            Unprotected::OpenActions => "actions over TCP need a login or client certificates",
            Unprotected::TlsOnUnix => "a page on a unix socket has no TLS",
        })
    }
}

impl std::error::Error for Unprotected {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_demands_its_protection() {
        let with = |tls, client_certificates, login| Protection { tls, client_certificates, login };
        let (bare, tls) = (with(false, false, false), with(true, false, false));
        let (login, both) = (with(false, false, true), with(true, false, true));
        let named = with(true, true, false);
        let check = |listen: &str, protection: Protection, actions| {
            protection.check(&listen.parse().unwrap(), actions).err()
        };
        for open in ["192.0.2.1:7580", "0.0.0.0:7580", "[::]:7580", "[2001:db8::1]:1"] {
            for actions in [false, true] {
                assert_eq!(check(open, bare, actions), Some(Unprotected::NoTls), "{open}");
                assert_eq!(check(open, login, actions), Some(Unprotected::NoTls), "{open}");
                assert_eq!(check(open, tls, actions), Some(Unprotected::Open), "{open}");
                assert_eq!(check(open, both, actions), None, "{open}");
                assert_eq!(check(open, named, actions), None, "{open}");
            }
        }
        for own in ["127.0.0.1:7580", "[::1]:0", "127.9.9.9:1"] {
            assert_eq!(check(own, bare, false), None);
            assert_eq!(check(own, bare, true), Some(Unprotected::OpenActions));
            assert_eq!(check(own, tls, true), Some(Unprotected::OpenActions));
            assert_eq!(check(own, login, true), None);
            assert_eq!(check(own, named, true), None);
        }
        assert_eq!(check("unix:/x", bare, true), None);
        assert_eq!(check("unix:/x", both, false), Some(Unprotected::TlsOnUnix));
    }
}
