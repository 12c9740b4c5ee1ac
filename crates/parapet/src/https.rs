//! The client of web servers, over TLS where their URL says so.
//!
//! Follows no redirect, and uses no connection twice.

use std::sync::Arc;
use std::time::Duration;

use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, RootCerts, TlsConfig};

/// The certificates of the authorities that the system trusts.
pub(crate) fn system_roots() -> Vec<Certificate<'static>> {
    let system = rustls_native_certs::load_native_certs().certs;
    system.iter().map(|der| Certificate::from_der(der).to_owned()).collect()
}

/// A client that trusts these authorities, and waits so long for a whole answer.
pub(crate) fn agent(
    roots: Vec<Certificate<'static>>,
    identity: Option<ClientCert>,
    patience: Duration,
) -> Agent {
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .client_cert(identity)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let settings = Agent::config_builder()
        .tls_config(tls)
        .timeout_global(Some(patience))
        .max_idle_connections(0)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("parapet/", env!("CARGO_PKG_VERSION")));
    settings.build().new_agent()
}
