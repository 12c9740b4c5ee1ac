//! Whether a server shows its arrays on a web page, and to whom.

use std::path::PathBuf;

use os::Address;
use panel::{Listen, Running};
use policy::config::Loaded;

use crate::cmd::page::{self, Wanted};
use crate::failure::Result;
use crate::machine::settings;
use crate::tls::Files;

/// The web page of a server.
#[derive(clap::Args)]
pub(super) struct PageFlags {
    /// Show the arrays on a web page, with metrics for Prometheus: address and port, such as
    /// 127.0.0.1:7580, or unix:PATH (mode 0600). An address that other machines reach needs TLS,
    /// and --page-login or --page-tls-ca
    #[arg(long, value_name = "ADDRESS")]
    page: Option<Listen>,
    /// Commands on the web page, by forms; over TCP they need --page-login or --page-tls-ca
    #[arg(long, requires = "page")]
    page_actions: bool,
    /// The web page asks for the password of this file, which `parapet page password` makes
    #[arg(long, value_name = "FILE", requires = "page")]
    page_login: Option<PathBuf>,
    /// Certificate of the web page (PEM), for TLS
    #[arg(long, value_name = "FILE", requires_all = ["page", "page_tls_key"])]
    page_tls_cert: Option<PathBuf>,
    /// Private key of this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "page_tls_cert")]
    page_tls_key: Option<PathBuf>,
    /// CA certificate (PEM); browsers must present a certificate that it signed
    #[arg(long, value_name = "FILE", requires = "page_tls_cert")]
    page_tls_ca: Option<PathBuf>,
}

impl PageFlags {
    /// As a configuration says.
    ///
    /// # Errors
    /// A text that means nothing, with its place.
    pub(super) fn configured(loaded: &Loaded) -> Result<PageFlags> {
        let page = &loaded.config.page;
        let listen = |text: &String| settings::parsed(loaded, "page.listen", text, |t| t.parse());
        let file = |path: &Option<String>| path.as_ref().map(PathBuf::from);
        Ok(PageFlags {
            page: page.listen.as_ref().map(listen).transpose()?,
            page_actions: page.actions,
            page_login: file(&page.login),
            page_tls_cert: file(&page.tls_cert),
            page_tls_key: file(&page.tls_key),
            page_tls_ca: file(&page.tls_ca),
        })
    }

    /// Starts the page, if there is to be one, of a server with these control sockets. Returns its
    /// address too.
    ///
    /// # Errors
    /// If there is no control socket, or the address cannot be bound.
    pub(super) fn start(&self, control: &[Address]) -> Result<Option<(Running, String)>> {
        let Some(listen) = &self.page else { return Ok(None) };
        let files = [&self.page_tls_cert, &self.page_tls_key, &self.page_tls_ca];
        let [certificate, key, authority] = files.map(Option::as_deref);
        let wanted = Wanted {
            actions: self.page_actions,
            login: self.page_login.clone(),
            tls: Files::of(certificate, key, authority)?,
        };
        page::of_server(listen, control, &wanted).map(Some)
    }
}
