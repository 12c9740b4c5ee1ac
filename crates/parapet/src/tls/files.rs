//! The files of a TLS server, and their renewal.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

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
    pub(crate) fn client(&self) -> Result<ClientConfig> {
        let chain = certificates(&self.certificate).map_err(|why| bad(&self.certificate, why))?;
        let key = private_key(&self.key)?;
        let roots = match &self.authority {
            Some(path) => authorities(path).map_err(|why| bad(path, why))?,
            None => RootCertStore::empty(),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(&self.certificate, error.to_string()))?
            .with_root_certificates(roots);
        let config = builder.with_client_auth_cert(chain, key);
        config.map_err(|error| bad(&self.key, error.to_string()))
    }

    /// What changes with the content of a file: inode, size, time of the last change. None for a
    /// file that is missing.
    fn stamps(&self) -> Vec<Option<(u64, u64, i64, i64)>> {
        let files = [&self.certificate, &self.key].into_iter().chain(&self.authority);
        let stamp = |path: &PathBuf| {
            let stat = std::fs::metadata(path).ok()?;
            Some((stat.ino(), stat.len(), stat.mtime(), stat.mtime_nsec()))
        };
        files.map(stamp).collect()
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

/// A configuration that follows its files: a renewed certificate needs no restart.
pub(crate) struct Renewing<C> {
    files: Files,
    read: fn(&Files) -> Result<C>,
    /// For the log.
    reader: &'static str,
    state: Mutex<State<C>>,
}

struct State<C> {
    /// Of the files that were read last, whether they were of use or not.
    stamps: Vec<Option<(u64, u64, i64, i64)>>,
    config: C,
}

impl<C: Clone> Renewing<C> {
    /// Reads the files.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn load(
        files: Files,
        read: fn(&Files) -> Result<C>,
        reader: &'static str,
    ) -> Result<Renewing<C>> {
        let stamps = files.stamps();
        let state = Mutex::new(State { stamps, config: read(&files)? });
        Ok(Renewing { files, read, reader, state })
    }

    /// Returns the files that it follows.
    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// Returns the configuration for a new connection. Reads the files again if they have changed;
    /// while they are of no use, the old ones hold: certificate and key may change one by one.
    pub(crate) fn current(&self) -> C {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = self.files.stamps();
        if stamps != state.stamps {
            state.stamps = stamps;
            let (certificate, reader) = (self.files.certificate.display(), self.reader);
            match (self.read)(&self.files) {
                Ok(config) => {
                    state.config = config;
                    tracing::info!("{certificate}: {reader} has read its certificate again");
                }
                Err(failure) => {
                    tracing::error!("{reader} keeps its old certificate: {failure}");
                }
            }
        }
        state.config.clone()
    }
}
