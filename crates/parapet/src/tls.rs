//! TLS: certificates from files (`files`), and for NBD connections a stream within a stream.
//!
//! Owns both sides of TLS 1.2 and 1.3 (rustls over `ring`). With a CA, clients must present a
//! certificate that it signed. Reports the subject of a client's certificate, but never decides
//! about access. As a client, it trusts only servers whose certificate the given CA signed for
//! their host name.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{Error, ErrorKind, IoSlice, Read, Result, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use io::Stream;
use net::nbd::Tls;
use net::nbd::client::{ClientTls, Securing};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::failure::{Failure, Id};

#[cfg(feature = "cluster")]
mod claims;
mod files;
#[cfg(any(feature = "cluster", feature = "page"))]
mod renewing;
mod subject;

#[cfg(feature = "cluster")]
pub(crate) use claims::{lifetime, uris};
pub(crate) use files::{Files, certificates};
#[cfg(any(feature = "cluster", feature = "page"))]
pub(crate) use renewing::Renewing;
pub(crate) use subject::subject;

use files::authorities;

/// Bytes read from the network at once: a few records.
const BITE: usize = 64 << 10;

/// A server's TLS configuration. Clones share it.
#[derive(Clone)]
pub(crate) struct Identity {
    config: Arc<ServerConfig>,
}

impl Identity {
    /// Reads the files.
    ///
    /// # Errors
    /// Names the file and its problem.
    pub(crate) fn load(files: &Files) -> crate::failure::Result<Identity> {
        files.config().map(|config| Identity { config: Arc::new(config) })
    }
}

/// A client's TLS configuration for one server.
pub(crate) struct ClientIdentity {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
}

impl ClientIdentity {
    /// Reads the files of a folder, as the NBD URI specification names them: `ca-cert.pem`, and
    /// optionally `client-cert.pem` with `client-key.pem`. `host` is the name that the server's
    /// certificate must have.
    ///
    /// # Errors
    /// Names the file and its problem.
    pub(crate) fn load(folder: &Path, host: &str) -> crate::failure::Result<ClientIdentity> {
        let bad = |path: &Path, why: String| {
            let message = format!("{}: {why}", path.display());
            let action = "put ca-cert.pem, and client-cert.pem with client-key.pem, into the \
                          folder that tls-certificates names";
            Failure::new(Id::Tls, message, action)
        };
        let [ca, certificate, key] =
            ["ca-cert.pem", "client-cert.pem", "client-key.pem"].map(|name| folder.join(name));
        let roots = authorities(&ca).map_err(|why| bad(&ca, why))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(&ca, error.to_string()))?
            .with_root_certificates(roots);
        let config = match certificate.exists() {
            false => builder.with_no_client_auth(),
            true => {
                let chain = certificates(&certificate).map_err(|why| bad(&certificate, why))?;
                let secret = PrivateKeyDer::from_pem_file(&key)
                    .map_err(|error| bad(&key, format!("no private key: {error}")))?;
                builder
                    .with_client_auth_cert(chain, secret)
                    .map_err(|error| bad(&key, error.to_string()))?
            }
        };
        let server = ServerName::try_from(host.to_owned())
            .map_err(|error| bad(folder, format!("{host}: {error}")))?;
        Ok(ClientIdentity { config: Arc::new(config), server })
    }
}

impl ClientTls for ClientIdentity {
    fn secure(&self, stream: Box<dyn Stream>) -> Securing<'_> {
        Box::pin(async move {
            let (config, server) = (Arc::clone(&self.config), self.server.clone());
            connect(config, server, stream).await.map(|(secured, _)| secured)
        })
    }
}

impl Tls for Identity {
    fn accept(&self, stream: Box<dyn Stream>) -> net::nbd::server::Accepting {
        let config = Arc::clone(&self.config);
        Box::pin(async move {
            let (secured, shown) = accept(config, stream).await?;
            Ok((secured, shown.map(|certificate| subject(&certificate).unwrap_or_default())))
        })
    }
}

/// A secured stream, and the certificate that its other end has shown.
pub(crate) type SecuredStream = (Box<dyn Stream>, Option<CertificateDer<'static>>);

/// Agrees on keys with a client.
///
/// # Errors
/// Why there is no agreement; the client has been sent an alert.
pub(crate) async fn accept(
    config: Arc<ServerConfig>,
    stream: Box<dyn Stream>,
) -> Result<SecuredStream> {
    let connection = ServerConnection::new(config).map_err(Error::other)?;
    Ok(Secured::handshake(stream, connection.into()).await?.split())
}

/// Agrees on keys with this server. Under TLS 1.3 it may still refuse our certificate: the first
/// read says so.
///
/// # Errors
/// Why there is no agreement.
pub(crate) async fn connect(
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
    stream: Box<dyn Stream>,
) -> Result<SecuredStream> {
    let connection = ClientConnection::new(config, server).map_err(Error::other)?;
    Ok(Secured::handshake(stream, connection.into()).await?.split())
}

/// The connection under TLS. [`Stream::poll_write`] encrypts its bytes at once and completes when
/// the network has accepted them all: nothing stays buffered.
struct Secured {
    stream: Box<dyn Stream>,
    connection: RefCell<Connection>,
    /// Plain bytes that are encrypted, but not yet completely sent.
    taken: Cell<usize>,
    backlog: RefCell<Backlog>,
}

/// Bytes from the network that are not decrypted yet: rustls limits its input until the plain bytes
/// have been read.
struct Backlog {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Backlog {
    fn new() -> Backlog {
        Backlog { bytes: vec![0; BITE].into(), start: 0, end: 0 }
    }
}

impl Secured {
    /// Agrees on keys with the peer.
    async fn handshake(stream: Box<dyn Stream>, connection: Connection) -> Result<Rc<Secured>> {
        let secured = Rc::new(Secured {
            stream,
            connection: RefCell::new(connection),
            taken: Cell::new(0),
            backlog: RefCell::new(Backlog::new()),
        });
        poll_fn(|cx| secured.poll_handshake(cx)).await?;
        Ok(secured)
    }

    fn split(self: Rc<Secured>) -> SecuredStream {
        let shown = self.connection.borrow().peer_certificates().and_then(<[_]>::first).cloned();
        (Box::new(Shared(self)), shown.map(CertificateDer::into_owned))
    }

    /// Sends the encrypted bytes.
    fn poll_send(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut connection = self.connection.borrow_mut();
        while connection.wants_write() {
            let mut pending = false;
            let mut outlet = Outlet { stream: &*self.stream, cx, pending: &mut pending };
            match connection.write_tls(&mut outlet) {
                Ok(0) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(_) if pending => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Receives and decrypts available bytes; returns 0 at the end of the stream.
    fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Result<usize>> {
        let mut backlog = self.backlog.borrow_mut();
        let Backlog { bytes, start, end } = &mut *backlog;
        if start == end {
            (*start, *end) = (0, ready!(self.stream.poll_read(cx, bytes))?);
        }
        let mut connection = self.connection.borrow_mut();
        let count = connection.read_tls(&mut &bytes[*start..*end])?;
        *start += count;
        if let Err(error) = connection.process_new_packets() {
            drop(connection);
            // Send the alert with the reason; the peer may already have disconnected.
            let _ = self.poll_send(cx);
            return Poll::Ready(Err(Error::new(ErrorKind::InvalidData, error)));
        }
        Poll::Ready(Ok(count))
    }

    fn poll_handshake(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            ready!(self.poll_send(cx))?;
            if !self.connection.borrow().is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_receive(cx))? == 0 {
                return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    fn poll_plain(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<Result<usize>> {
        loop {
            match self.connection.borrow_mut().reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
            ready!(self.poll_receive(cx))?;
            // A key update or an alert needs an answer, but a blocked answer must not block
            // reading.
            let _ = self.poll_send(cx)?;
        }
    }

    fn poll_encrypt(&self, cx: &mut Context<'_>, bytes: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        if self.taken.get() == 0 {
            ready!(self.poll_send(cx))?;
            let taken = self.connection.borrow_mut().writer().write_vectored(bytes)?;
            self.taken.set(taken);
        }
        // The caller repeats the call with the same bytes until they are accepted.
        ready!(self.poll_send(cx))?;
        Poll::Ready(Ok(self.taken.replace(0)))
    }
}

/// Adapts the stream below to the interface of rustls.
struct Outlet<'a, 'b, 'c> {
    stream: &'a dyn Stream,
    cx: &'a mut Context<'b>,
    pending: &'c mut bool,
}

impl Write for Outlet<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> Result<usize> {
        match self.stream.poll_write(self.cx, bytes) {
            Poll::Ready(result) => result,
            Poll::Pending => {
                *self.pending = true;
                Err(ErrorKind::WouldBlock.into())
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

struct Shared(Rc<Secured>);

impl Stream for Shared {
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<Result<usize>> {
        self.0.poll_plain(cx, into)
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        self.0.poll_encrypt(cx, bytes)
    }

    fn poll_close(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.0.connection.borrow_mut().send_close_notify();
        ready!(self.0.poll_send(cx))?;
        self.0.stream.poll_close(cx)
    }
}
