//! All arrays of a machine in one server, by its configuration: `parapet daemon`.
//!
//! ```text
//!    parapet.toml ─▶ settings ──┐
//!    folders, uevents ─▶ arrivals ─▶ start an array, re-add a member ─┐
//!    addresses ────────▶ network ──▶ arrivals                         │
//!    state, clock ─────▶ maintenance ▶ scrub, move a spare, slow down ──┴─▶ Daemon
//! ```
//!
//! Gives the server the orders that a user would give, when `policy` says so. Never decides
//! anything about data.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use io::Signal;

use crate::daemon::{AoePolicy, Daemon, Served};
use crate::engine::{AssemblyFlags, RunFlags};
use crate::failure::Result;
use crate::flags::{SpeedLimits, UNLIMITED};
use crate::size::Size;

mod arrivals;
mod maintenance;
mod network;
mod reload;
pub(crate) mod settings;

use arrivals::Arrivals;
use settings::ArraySettings;

/// See the module.
pub(crate) struct Machine {
    daemon: Rc<Daemon>,
    /// The file of the configuration.
    file: Option<PathBuf>,
    loaded: RefCell<policy::config::Loaded>,
    applied: RefCell<reload::Applied>,
    arrivals: Arrivals,
    maintenance: maintenance::Maintenance,
    network: network::NetworkMembers,
    /// Raised when the folders are to be searched.
    stirred: Signal,
    /// True if everything is to be looked at again.
    anew: Cell<bool>,
}

impl Machine {
    /// Starts every array that is there, and keeps watch from now on.
    pub(crate) async fn start(
        daemon: &Rc<Daemon>,
        file: Option<PathBuf>,
        loaded: policy::config::Loaded,
    ) {
        daemon.notify(&loaded.config.notify, loaded.config.heartbeat.as_ref());
        let aoe = &loaded.config.aoe;
        let (volatile, remote_control) = (aoe.volatile, aoe.remote_control);
        daemon.set_aoe_policy(AoePolicy { volatile, remote_control });
        let machine = Rc::new(Machine {
            daemon: Rc::clone(daemon),
            file,
            applied: RefCell::new(reload::Applied::new(&loaded.config)),
            loaded: RefCell::new(loaded),
            arrivals: Arrivals::default(),
            maintenance: maintenance::Maintenance::default(),
            network: network::NetworkMembers::default(),
            stirred: Signal::new(),
            anew: Cell::new(false),
        });
        let starter = Rc::clone(&machine);
        daemon.manage(Rc::new(move |name| {
            let machine = Rc::clone(&starter);
            Box::pin(async move { machine.start_named(&name).await })
        }));
        {
            let _turn = daemon.turn().await;
            machine.look().await;
            // Local arrays need not wait for servers that do not answer.
            machine.look_at_network().await;
            machine.look().await;
        }
        let on = daemon.spawner();
        let arrivals = Rc::clone(&machine);
        on.spawn_local(async move { arrivals.watch_arrivals().await });
        let uevents = Rc::clone(&machine);
        on.spawn_local(async move { uevents.watch_uevents().await });
        let network = Rc::clone(&machine);
        on.spawn_local(async move { network.watch_network().await });
        let reload = Rc::clone(&machine);
        on.spawn_local(async move { reload.watch_hangups().await });
        on.spawn_local(async move { machine.maintain().await });
    }

    /// Returns the settings of this array.
    fn settings(&self, name: &str, uuid: &str) -> Result<ArraySettings> {
        ArraySettings::of(&self.loaded.borrow(), name, uuid)
    }

    fn flags(settings: &ArraySettings, degraded: bool) -> (AssemblyFlags, RunFlags) {
        let read_only = settings.read_only;
        let assembly = AssemblyFlags { degraded, read_only, ..AssemblyFlags::default() };
        // A limit that is gone from the configuration ends with a reload.
        let speed_max = Some(settings.speed_max.unwrap_or(Size(UNLIMITED)));
        let speed = SpeedLimits { speed_min: settings.speed_min, speed_max };
        (assembly, RunFlags { cache: settings.cache, speed, ..RunFlags::default() })
    }

    /// Offers an array to clients, as its settings say. A part that fails is logged: the others
    /// still serve.
    async fn offer(&self, served: &Rc<Served>, settings: &ArraySettings) {
        let name = served.name();
        let warn = |what: &str, failure| {
            tracing::error!("{name}: {what}: {failure}");
        };
        if settings.export && !self.daemon.is_exported(served) {
            let exported = self.daemon.export(served, None, settings.read_only, false);
            exported.unwrap_or_else(|failure| warn("not exported", failure));
        }
        self.daemon.resume_attachment(served).await;
        for order in settings.orders() {
            let (verb, order) = order;
            if self.daemon.is_offered(served, verb) {
                continue;
            }
            let done = self.daemon.carry_out(served, verb, &order).await;
            match done {
                Ok(message) => tracing::info!("{message}"),
                Err(failure) => warn(verb, failure),
            }
        }
    }
}
