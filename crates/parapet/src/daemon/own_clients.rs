//! The clients of the control API that run inside the server, each on a thread of its own: the web
//! page and the watcher of disks.
//!
//! Owns the threads. One that is replaced ends before its successor begins: two watchers would
//! both act, and two pages cannot have one address.

use std::cell::RefCell;

/// A thread that ends when this is dropped.
type Running = Box<dyn Send>;

/// See the module.
#[derive(Default)]
pub(crate) struct OwnClients {
    page: RefCell<Option<Running>>,
    watcher: RefCell<Option<Running>>,
}

impl OwnClients {
    /// Takes a page that was started.
    pub(crate) fn set_page(&self, page: impl Send + 'static) {
        self.page.replace(Some(Box::new(page)));
    }

    /// Takes a watcher that was started.
    pub(crate) fn set_watcher(&self, watcher: impl Send + 'static) {
        self.watcher.replace(Some(Box::new(watcher)));
    }

    /// Ends the page, while the arrays are served.
    pub(crate) async fn end_page(&self) {
        drop_aside(self.page.take()).await;
    }

    /// Ends the watcher, while the arrays are served.
    pub(crate) async fn end_watcher(&self) {
        drop_aside(self.watcher.take()).await;
    }

    /// Ends all, at the end of the server.
    pub(crate) fn end(&self) {
        drop((self.watcher.take(), self.page.take()));
    }
}

/// Waits for the end of a thread on another one: it may be asking this thread for an answer.
async fn drop_aside<T: Send + 'static>(running: Option<T>) {
    let Some(running) = running else { return };
    // Without a thread to spare, it is dropped here.
    if let Ok(ended) = os::threads::aside(move || drop(running)) {
        ended.await;
    }
}
