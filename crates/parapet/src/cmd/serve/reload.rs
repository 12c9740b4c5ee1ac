//! The outlets of a server change while it serves: clients stay connected.

use super::Outlets;
use crate::daemon::Daemon;
use crate::failure::Result;
use crate::tls::Identity;

impl Outlets {
    /// Reads what a reload needs before anything changes: the addresses, and the certificates.
    ///
    /// # Errors
    /// An address that is named twice, or a file that cannot be used.
    pub(crate) fn prepare(&self) -> Result<Option<Identity>> {
        self.check()?;
        self.tls.identity()
    }

    /// Requires TLS, or none, of NBD clients that connect from now on.
    pub(crate) fn change_tls(&self, tls: Option<&Identity>, daemon: &Daemon) {
        daemon.require_tls(tls);
        self.warn(daemon);
    }

    /// Starts the web page anew, with the settings of these outlets. If that fails, the page of
    /// the outlets `old` starts again.
    ///
    /// # Errors
    /// Why the new page does not start.
    pub(crate) async fn change_page(&self, old: &Outlets, daemon: &Daemon) -> Result<()> {
        daemon.own_clients().end_page().await;
        self.start_page(daemon).map(drop).inspect_err(|_| {
            if let Err(failure) = old.start_page(daemon) {
                tracing::error!("{failure}");
            }
        })
    }

    /// Watches disks with the settings of these outlets from now on.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub(crate) async fn change_watcher(&self, daemon: &Daemon) -> Result<()> {
        daemon.own_clients().end_watcher().await;
        self.start_watcher(daemon)
    }
}
