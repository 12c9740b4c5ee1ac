//! Writes to the state folder, on a thread of their own.
//!
//! The folder may lie on the array itself, and the thread of the array must not wait for that.

use std::sync::mpsc;
use std::time::Duration;

/// How long the state folder may take to store what is left at the end.
const PATIENCE: Duration = Duration::from_secs(5);

/// A thread that stores texts, in their order.
pub(super) struct Writer {
    texts: mpsc::Sender<String>,
    /// Ends when the last text is stored.
    ended: mpsc::Receiver<()>,
}

impl Writer {
    /// Starts a thread that passes each text to `store`.
    ///
    /// # Errors
    /// If the machine cannot start it.
    pub(super) fn start(mut store: impl FnMut(&str) + Send + 'static) -> std::io::Result<Writer> {
        let ((texts, received), (ending, ended)) = (mpsc::channel::<String>(), mpsc::channel());
        let thread = std::thread::Builder::new().name("parapet-history".into());
        thread.spawn(move || {
            received.iter().for_each(|text| store(&text));
            drop(ending);
        })?;
        Ok(Writer { texts, ended })
    }

    /// Stores this text, later.
    pub(super) fn send(&self, text: String) {
        // The thread lives as long as the sender.
        let _ = self.texts.send(text);
    }

    /// Waits until everything is stored, for a while. Returns whether it is.
    pub(super) fn close(self) -> bool {
        drop(self.texts);
        // Disconnected: it has ended.
        self.ended.recv_timeout(PATIENCE) != Err(mpsc::RecvTimeoutError::Timeout)
    }
}
