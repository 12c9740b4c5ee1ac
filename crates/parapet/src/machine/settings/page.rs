//! The section `[page]`: each address has the protection that it needs.

use panel::{Listen, Protection, Unprotected};
use policy::config::Loaded;

use super::{mistake, parsed};
use crate::failure::Result;

/// Tests the section.
///
/// # Errors
/// A text that means nothing, or an address without protection.
pub(super) fn check(loaded: &Loaded) -> Result<()> {
    let page = &loaded.config.page;
    let Some(text) = &page.listen else { return Ok(()) };
    let listen = parsed(loaded, "page.listen", text, |text| text.parse::<Listen>())?;
    let protection = Protection {
        tls: page.tls_cert.is_some(),
        client_certificates: page.tls_ca.is_some(),
        login: page.login.is_some(),
    };
    protection.check(&listen, page.actions).map_err(|why| {
        let (key, text, remedy) = match why {
            Unprotected::NoTls => ("page.listen", text.as_str(), "add page.tls_cert"),
            Unprotected::Open => ("page.listen", text.as_str(), "add page.login or page.tls_ca"),
            Unprotected::OpenActions => ("page.actions", "true", "add page.login or page.tls_ca"),
            Unprotected::TlsOnUnix => ("page.listen", text.as_str(), "leave out page.tls_cert"),
        };
        mistake(loaded, key, text, &format!("{why}; {remedy}"))
    })
}
