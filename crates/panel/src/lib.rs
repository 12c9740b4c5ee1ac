//! Prometheus metrics and a web page of served arrays: one more client of the control API.
//!
//! ```text
//!    browser, Prometheus ── HTTP ──▶ server ──▶ html, metrics
//!                                                  │
//!                                   source ──▶ document
//!                                      └── HTTP, JSON ──▶ control sockets
//! ```
//!
//! Runs on a thread of its own with its own executor, so that a slow browser delays no array. Reads
//! the documents `parapet/list/1`, and only the fields that it shows. Never sends a command, never
//! opens a member, never links the engine. Listens on loopback addresses and unix sockets only: it
//! has no login.
#![forbid(unsafe_code)]

mod document;
mod html;
mod listen;
mod map;
mod metrics;
mod server;
mod source;
#[cfg(test)]
mod style;
mod verdict;

use std::io;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

pub use listen::{Bound, Listen};
pub use server::MOST_CONNECTIONS;
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
