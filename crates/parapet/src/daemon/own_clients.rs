//! The clients of the control API that run inside the server, each on a thread of its own: the web
//! page and the watcher of disks.
//!
//! Owns the threads. One that is replaced ends before its successor begins: two watchers would
//! both act, and two pages cannot have one address.

use std::cell::RefCell;

use crate::disk_health;

/// See the module.
#[derive(Default)]
pub(crate) struct OwnClients {
    page: RefCell<Option<panel::Running>>,
    watcher: RefCell<Option<disk_health::Running>>,
}

impl OwnClients {
    /// Takes a page that was started.
    pub(crate) fn set_page(&self, page: panel::Running) {
        self.page.replace(Some(page));
    }

    /// Takes a watcher that was started.
    pub(crate) fn set_watcher(&self, watcher: disk_health::Running) {
        self.watcher.replace(Some(watcher));
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
