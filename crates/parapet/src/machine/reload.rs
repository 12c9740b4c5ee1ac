//! Reads the configuration again on SIGHUP, while clients stay connected.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::{Machine, settings};
use crate::failure::Result;
use crate::flags;

impl Machine {
    /// Reloads at each SIGHUP.
    pub(super) async fn watch_hangups(self: Rc<Self>) {
        loop {
            self.daemon.hung_up().await;
            match self.reload().await {
                Ok(()) => tracing::info!("configuration reloaded"),
                Err(failure) => {
                    tracing::error!("configuration not reloaded, the old one holds: {failure}");
                }
            }
        }
    }

    async fn reload(&self) -> Result<()> {
        let loaded = settings::read(self.file.as_deref())?;
        let old = self.loaded.replace(loaded).config;
        let new = self.loaded.borrow().config.clone();
        self.daemon.notify(&new.notify, new.heartbeat.as_ref());
        let known: BTreeSet<&String> = old.nbd.listen.iter().collect();
        for text in new.nbd.listen.iter().filter(|text| !known.contains(text)) {
            // `settings::read` has tested it.
            let Ok(address) = flags::address(text) else { continue };
            if let Err(failure) = self.daemon.serve_nbd(&address).await {
                tracing::error!("{failure}");
            }
        }
        let is_gone = old.nbd.listen.iter().any(|text| !new.nbd.listen.contains(text));
        let tls = (&old.nbd.tls_cert, &old.nbd.tls_key, &old.nbd.tls_ca)
            != (&new.nbd.tls_cert, &new.nbd.tls_key, &new.nbd.tls_ca);
        let threads = old.arrays.threads != new.arrays.threads;
        if is_gone
            || tls
            || threads
            || old.aoe != new.aoe
            || old.page != new.page
            || old.health != new.health
        {
            tracing::warn!(
                "addresses that are gone, TLS, threads, [aoe], [page] and [health] change at the \
                 next start of the daemon"
            );
        }
        for served in self.daemon.arrays() {
            let own = self.settings(served.name(), served.uuid())?;
            let (_, run) = Machine::flags(&own, false);
            run.limit(&served.array);
            if served.inside().is_none() {
                self.offer(&served, &own).await;
            }
        }
        self.anew.set(true);
        self.stirred.raise();
        Ok(())
    }
}
