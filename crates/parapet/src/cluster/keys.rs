//! The certificate of a process of a cluster, for the connections that it makes and accepts.
//!
//! ```text
//!   CA of the cluster ──signs──▶ certificate: addresses, roles as URIs (parapet:client-1)
//!
//!   a process that connects   CA, address, and the role that it wants to reach
//!   a process that accepts    CA; `net::cluster::door` compares the roles with the first frame
//! ```
//!
//! Both ends show a certificate. Sessions are never resumed: each connection verifies certificates
//! anew, so that one that has expired, or whose CA was removed, opens nothing.

use std::io::{Error, ErrorKind};
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use ::cluster::roles::{Holder, Role};
use ::io::Stream;
use net::cluster::door::{Accepting, Guard};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::server::NoServerSessionStorage;
use rustls::{ClientConfig, ServerConfig};

use crate::failure::{Failure, Id, Result};
use crate::tls::{self, Files, Renewing};

/// Before the name of a role, among the URIs of a certificate.
const SCHEME: &str = "parapet:";
/// A certificate that expires in less than this is worth a warning.
const SOON: u64 = 30 * 86_400;

/// The options of a process that has no cluster file to name its certificate.
#[derive(clap::Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsFlags {
    /// Certificate of this process (PEM), as `parapet cluster key` makes it; TLS is required then
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_ca"])]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// CA certificate of the cluster (PEM): it has signed the certificates of all processes
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
}

impl TlsFlags {
    /// The files, if any is named.
    ///
    /// # Errors
    /// If some are missing.
    pub(crate) fn files(&self) -> Result<Option<Files>> {
        let files = [&self.tls_cert, &self.tls_key, &self.tls_ca];
        let [certificate, key, authority] = files.map(Option::as_deref);
        Files::of(certificate, key, authority)
    }
}

/// The certificate of this process, and its CA. Follows its files.
pub(crate) struct Keys(Renewing<Configs>);

/// The configurations of one state of the files.
#[derive(Clone)]
struct Configs {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    roles: Vec<Role>,
}

impl Keys {
    /// Reads the files.
    ///
    /// # Errors
    /// Names the file and its problem.
    pub(crate) fn load(files: Files) -> Result<Rc<Keys>> {
        let loaded = Renewing::load(files, configs, "this process")?;
        Ok(Rc::new(Keys(loaded)))
    }

    /// Returns its files.
    pub(crate) fn files(&self) -> &Files {
        self.0.files()
    }

    /// Refuses to work in a role that the certificate does not have: the others would do so, with
    /// no more than a line in their logs.
    ///
    /// # Errors
    /// `Tls`.
    pub(crate) fn require(&self, role: Role) -> Result<()> {
        let holder = Holder::Of(self.0.current().roles);
        if holder.has(role) {
            return Ok(());
        }
        let message = format!("{holder} does not allow the role {role}");
        let action = format!("make another: parapet cluster key FOLDER NAME {role}");
        Err(Failure::new(Id::Tls, message, action))
    }

    /// Secures a connection to a server at this address, which must have this role.
    ///
    /// # Errors
    /// If the server is another one, or does not speak TLS.
    pub(crate) async fn connect(
        &self,
        stream: Box<dyn Stream>,
        address: IpAddr,
        role: Role,
    ) -> std::io::Result<Box<dyn Stream>> {
        let server = ServerName::IpAddress(address.into());
        let (stream, shown) = tls::connect(self.0.current().client, server, stream).await?;
        let holder = Holder::Of(shown.map(|certificate| roles(&certificate)).unwrap_or_default());
        if !holder.has(role) {
            let why = format!("the server is no {role}: it shows {holder}");
            return Err(Error::new(ErrorKind::PermissionDenied, why));
        }
        Ok(stream)
    }
}

impl Guard for Keys {
    fn accept(&self, stream: Box<dyn Stream>) -> Accepting {
        let config = self.0.current().server;
        Box::pin(async move {
            let (stream, shown) = tls::accept(config, stream).await?;
            let roles = shown.map(|certificate| roles(&certificate)).unwrap_or_default();
            Ok((stream, Holder::Of(roles)))
        })
    }
}

/// The URI of a role.
pub(crate) fn uri(role: Role) -> String {
    format!("{SCHEME}{role}")
}

/// The roles of a verified certificate.
fn roles(certificate: &[u8]) -> Vec<Role> {
    let uris = tls::uris(certificate);
    uris.iter().filter_map(|uri| uri.strip_prefix(SCHEME)?.parse().ok()).collect()
}

fn configs(files: &Files) -> Result<Configs> {
    let (mut server, mut client) = (files.config()?, files.client()?);
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    client.resumption = Resumption::disabled();
    let path = files.certificate.display();
    let of_no_use =
        |why: String, action: &str| Failure::new(Id::Tls, format!("{path}: {why}"), action);
    let chain = tls::certificates(&files.certificate);
    let own = chain.map_err(|why| of_no_use(why, "give a PEM file"))?.swap_remove(0);
    let now = jiff::Timestamp::now().as_second().cast_unsigned();
    let valid = tls::lifetime(&own)
        .ok_or_else(|| of_no_use("not an X.509 certificate".into(), "give a PEM file"))?;
    if now < valid.start {
        let why = format!("the certificate is valid from {}", date(valid.start));
        return Err(of_no_use(why, "set the clock of this host"));
    }
    if now >= valid.end {
        let why = format!("the certificate expired on {}", date(valid.end));
        return Err(of_no_use(why, "make a new one: parapet cluster key"));
    }
    if valid.end - now < SOON {
        tracing::warn!("{path}: the certificate expires on {}", date(valid.end));
    }
    let roles = roles(&own);
    Ok(Configs { server: Arc::new(server), client: Arc::new(client), roles })
}

fn date(seconds: u64) -> String {
    let time = jiff::Timestamp::from_second(seconds.cast_signed());
    time.map_or_else(|_| "an unknown day".into(), |time| time.strftime("%Y-%m-%d").to_string())
}
