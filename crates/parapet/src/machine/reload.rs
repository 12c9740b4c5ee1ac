//! Reads the configuration again on SIGHUP, while clients stay connected.
//!
//! ```text
//!    SIGHUP ─▶ read, parse, open certificates ─▶ a mistake: nothing changes
//!                            └─▶ channels, TLS, addresses, AoE, page, watcher, arrays
//!                                     └─▶ what fails: logged, tried again by the next reload
//! ```

use std::path::PathBuf;
use std::rc::Rc;

use io::{Disk, Op};
use policy::Config;
use policy::config::Loaded;

use super::{Machine, settings};
use crate::cmd::serve::Outlets;
use crate::daemon::AoePolicy;
use crate::failure::Result;
use crate::flags::{self, Control};
use crate::{remote, systemd};

/// What of a configuration the server has carried out: what has failed keeps its former setting.
#[derive(Default)]
pub(super) struct Applied(Config);

impl Applied {
    /// All of the configuration that the server was started with.
    pub(super) fn new(config: &Config) -> Applied {
        Applied(config.clone())
    }

    fn outlets(&self) -> Result<Outlets> {
        let mut loaded = Loaded::default();
        loaded.config = self.0.clone();
        outlets(&loaded)
    }
}

/// The outlets of a configuration; the control socket stays.
fn outlets(loaded: &Loaded) -> Result<Outlets> {
    Outlets::configured(loaded, Control { control: None })
}

impl Machine {
    /// Reloads at each SIGHUP.
    pub(super) async fn watch_hangups(self: Rc<Self>) {
        loop {
            self.daemon.hung_up().await;
            let outcome = match self.reload().await {
                Ok(later) => {
                    later.iter().for_each(|what| tracing::warn!("{what}"));
                    tracing::info!("configuration reloaded");
                    [vec!["configuration reloaded".to_owned()], later].concat().join("; ")
                }
                Err(failure) => {
                    let outcome =
                        format!("configuration not reloaded, the old one holds: {failure}");
                    tracing::error!("{outcome}");
                    outcome
                }
            };
            systemd::status(&outcome);
        }
    }

    /// Carries out the configuration as it is now. Returns what waits for a restart.
    async fn reload(&self) -> Result<Vec<String>> {
        let loaded = settings::read(self.file.as_deref())?;
        let new = loaded.config.clone();
        let outlets = outlets(&loaded)?;
        let tls = outlets.prepare()?;
        let old = self.loaded.replace(loaded).config;
        self.daemon.notify(&new.notify, new.heartbeat.as_ref());
        outlets.change_tls(tls.as_ref(), &self.daemon);
        let mut applied = self.applied.take();
        self.change_listeners(&mut applied.0.nbd.listen, &new.nbd.listen).await;
        self.change_aoe(&mut applied.0.aoe, &new.aoe).await;
        self.change_own_clients(&mut applied, &outlets, &new).await;
        self.applied.replace(applied);
        self.change_arrays(&old).await?;
        Ok(self.later(&old, &new))
    }

    /// Opens the addresses that are new, and closes those that are gone.
    async fn change_listeners(&self, open: &mut Vec<String>, wanted: &[String]) {
        // `settings::read` has tested them.
        let parsed = |text: &String| flags::address(text).ok();
        for text in open.extract_if(.., |text| !wanted.contains(text)) {
            parsed(&text).iter().for_each(|address| self.daemon.close_nbd(address));
            tracing::info!("{text}: no new NBD clients");
        }
        for text in wanted {
            let Some(address) = parsed(text).filter(|_| !open.contains(text)) else { continue };
            match self.daemon.serve_nbd(&address).await {
                Ok(()) => open.push(text.clone()),
                Err(failure) => tracing::error!("{failure}"),
            }
        }
    }

    /// Changes what holds for all AoE exports.
    async fn change_aoe(&self, old: &mut policy::config::Aoe, new: &policy::config::Aoe) {
        if old == new {
            return;
        }
        let (volatile, remote_control) = (new.volatile, new.remote_control);
        self.daemon.set_aoe_policy(AoePolicy { volatile, remote_control });
        if old.volatile && !volatile {
            self.flush_aoe().await;
        }
        *old = new.clone();
    }

    /// Makes durable what AoE clients were told is written.
    async fn flush_aoe(&self) {
        for served in self.daemon.arrays() {
            if !self.daemon.is_offered(&served, "online") {
                continue;
            }
            if let Err(error) = served.array.submit(Op::flush()).await.result {
                tracing::error!("{}: AoE: earlier writes are not durable: {error}", served.name());
            }
        }
    }

    /// Restarts the page and the watcher of disks, where their settings have changed.
    async fn change_own_clients(&self, applied: &mut Applied, outlets: &Outlets, new: &Config) {
        if applied.0.page != new.page {
            let changed = match applied.outlets() {
                Ok(old) => outlets.change_page(&old, &self.daemon).await,
                Err(failure) => Err(failure),
            };
            match changed {
                Ok(()) => applied.0.page = new.page.clone(),
                Err(failure) => tracing::error!("[page] is not changed: {failure}"),
            }
        }
        if applied.0.health != new.health {
            match outlets.change_watcher(&self.daemon).await {
                Ok(()) => applied.0.health = new.health.clone(),
                Err(failure) => tracing::error!("[health]: disks are not watched: {failure}"),
            }
        }
    }

    /// Offers the arrays as their sections say now.
    async fn change_arrays(&self, old: &Config) -> Result<()> {
        for served in self.daemon.arrays() {
            let own = self.settings(served.name(), served.uuid())?;
            // One that was named before and is away was removed by a user, or is awaited.
            let known = old.of(served.name(), served.uuid()).network_members;
            let known: Vec<String> = known.iter().map(|text| remote::normal(text)).collect();
            let is_new = |path: &&PathBuf| !known.iter().any(|text| path.as_os_str() == &**text);
            let new: Vec<PathBuf> = own.network_members.iter().filter(is_new).cloned().collect();
            self.await_network(&served, &new);
            let (_, run) = Machine::flags(&own, false);
            run.limit(&served.array);
            if served.inside().is_none() {
                self.offer(&served, &own).await;
            }
        }
        self.anew.set(true);
        self.stirred.raise();
        self.reload_network();
        Ok(())
    }

    /// Names the settings that cannot change while clients are connected.
    fn later(&self, old: &Config, new: &Config) -> Vec<String> {
        let mut later = Vec::new();
        let threads = self.daemon.threads();
        if usize::from(new.arrays.threads) != threads {
            later.push(format!(
                "arrays.threads: {threads} until the daemon is started again: systemctl restart \
                 parapet"
            ));
        }
        for served in self.daemon.arrays() {
            let (name, uuid) = (served.name(), served.uuid());
            let keys = old.of(name, uuid).later(&new.of(name, uuid));
            if !keys.is_empty() {
                let keys = keys.join(", ");
                later.push(format!(
                    "array.{name}: {keys}: as before until the array is started again: parapet \
                     stop {name}, parapet start {name}"
                ));
            }
        }
        later
    }
}
