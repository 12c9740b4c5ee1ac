//! The files of a TLS server.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::failure::{Failure, Id, Result};

/// Files that a TLS server needs.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// The server's certificate, and its chain (PEM).
    pub(crate) certificate: PathBuf,
    /// Its private key (PEM).
    pub(crate) key: PathBuf,
    /// CA for client certificates (PEM); without it, clients need none.
    pub(crate) authority: Option<PathBuf>,
}

impl Files {
    /// Returns the files of these options; none if no file is named.
    ///
    /// # Errors
    /// If a certificate has no key, or a CA no certificate.
    pub(crate) fn of(
        certificate: Option<&Path>,
        key: Option<&Path>,
        authority: Option<&Path>,
    ) -> Result<Option<Files>> {
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some(Files {
                certificate: certificate.to_owned(),
                key: key.to_owned(),
                authority: authority.map(Path::to_owned),
            })),
            (None, None) if authority.is_none() => Ok(None),
            _ => {
                let message = "TLS needs a certificate and its key";
                Err(Failure::new(Id::Usage, message, "name both, beside a CA too"))
            }
        }
    }

    /// Reads the files for a server.
    ///
    /// # Errors
    /// Names the file and its problem.
    pub(crate) fn config(&self) -> Result<ServerConfig> {
        let chain = certificates(&self.certificate).map_err(|why| bad(&self.certificate, why))?;
        let key = private_key(&self.key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(&self.certificate, error.to_string()))?;
        let builder = match &self.authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = authorities(path).map_err(|why| bad(path, why))?;
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                    .build()
                    .map_err(|error| bad(path, error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        builder.with_single_cert(chain, key).map_err(|error| bad(&self.key, error.to_string()))
    }

    /// Reads the files for a process that connects to servers whose certificate the same CA signed.
    ///
    /// # Errors
    /// Names the file and its problem.
    #[cfg(feature = "cluster")]
    pub(crate) fn client(&self) -> Result<rustls::ClientConfig> {
        let chain = certificates(&self.certificate).map_err(|why| bad(&self.certificate, why))?;
        let key = private_key(&self.key)?;
        let roots = match &self.authority {
            Some(path) => authorities(path).map_err(|why| bad(path, why))?,
            None => RootCertStore::empty(),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(&self.certificate, error.to_string()))?
            .with_root_certificates(roots);
        let config = builder.with_client_auth_cert(chain, key);
        config.map_err(|error| bad(&self.key, error.to_string()))
    }
}

fn bad(path: &Path, why: String) -> Failure {
    let message = format!("{}: {why}", path.display());
    Failure::new(Id::Tls, message, "give PEM files: certificate, key and, for clients, CA")
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let key = PrivateKeyDer::from_pem_file(path).map_err(|error| {
        let message = format!("{}: no private key: {error}", path.display());
        Failure::new(Id::Tls, message, "give a PEM file that this user can read")
    })?;
    // A group may share keys, as Debian's `ssl-cert` does.
    if std::fs::metadata(path).is_ok_and(|stat| stat.mode() & 0o007 != 0) {
        let message = format!("{}: other users can read the private key", path.display());
        return Err(Failure::new(Id::Tls, message, "chmod 600, and make a new key"));
    }
    Ok(key)
}

/// Reads the certificates of a PEM file.
pub(crate) fn certificates(
    path: &Path,
) -> std::result::Result<Vec<CertificateDer<'static>>, String> {
    let parsed = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
    let all: std::result::Result<Vec<_>, _> = parsed.collect();
    let all = all.map_err(|error| error.to_string())?;
    if all.is_empty() { Err("no certificate in it".into()) } else { Ok(all) }
}

/// Reads the certificates of a PEM file as those of CAs.
pub(super) fn authorities(path: &Path) -> std::result::Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(roots)
}
