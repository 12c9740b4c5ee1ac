//! Prometheus metrics and a web page of served arrays: one more client of the control API.
//!
//! ```text
//!    browser, Prometheus ── HTTP ──▶ server ──▶ routes ──▶ html, forms, metrics
//!                                                 │  │
//!                     session, password ◀── login ┘  └──▶ source ──▶ document
//!                                                           └── HTTP, JSON ──▶ control sockets
//! ```
//!
//! Runs on a thread of its own with its own executor, so that a slow browser delays no array. Reads
//! the documents `parapet/list/1`, `parapet/history/1` and `parapet/member-disks/1`, and only the
//! fields that it shows. Never opens a member, never links the engine. Listens on loopback
//! addresses and unix sockets; on other addresses with TLS and a login or client certificates only
//! (`access`).
//!
//! Gives no command unless [`Access::actions`] is set. Then each command is a form of its own page,
//! with the token of a session (`session`), and the ladder of the command line (`action`).
#![forbid(unsafe_code)]

mod access;
mod action;
mod chart;
mod disk;
mod document;
mod forms;
mod html;
mod listen;
mod map;
mod metrics;
mod password;
mod routes;
mod server;
mod session;
mod source;
#[cfg(test)]
mod style;
mod verdict;

use std::io;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

pub use access::{Access, Protection, Tls, Unprotected};
pub use listen::{Bound, Listen};
pub use password::{LEAST_PASSWORD_BYTES, MOST_PASSWORD_BYTES, PasswordFile};
pub use routes::MOST_FORM_BYTES;
pub use server::{MOST_CONNECTIONS, MOST_HANDSHAKES};
pub use session::{MOST_FAILED_LOGINS, MOST_SESSIONS};
pub use source::Servers;

/// A page that is being served, until this is dropped.
pub struct Running {
    /// Dropped to stop the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Serves metrics and page of these servers on a thread of its own.
///
/// # Errors
/// If the thread or its executor cannot be started.
pub fn start(bound: Bound, servers: Servers) -> io::Result<Running> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let work = move || {
        runtime.spawn(server::serve(bound, servers));
        // An error means that the other half was dropped: stop.
        let _ = runtime.block_on(stopped);
    };
    let thread = std::thread::Builder::new().name("parapet-panel".into()).spawn(work)?;
    Ok(Running { stop: Some(stop), thread: Some(thread) })
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the page must not disturb the shutdown of the arrays.
            let _ = thread.join();
        }
    }
}
