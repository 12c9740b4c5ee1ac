//! `parapet cluster client`: the array of a cluster as an NBD export or a disk of this host.
//!
//! ```text
//!   NBD clients ──▶ nbd::Server ──▶ ClientDisk ──▶ members
//!   local disk ──▶ LocalDisks ──────────╯╰───────▶ coordinators
//! ```
//!
//! Each start is a new *incarnation*, durable before it joins: a number that was used once must not
//! come back after an eviction. The clock keeps it rising when the state folder is lost.
//!
//! After an eviction the process stays and fails every request. If it ended, a service manager
//! would start it again under the file system whose caches are stale.

mod local;

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use ::cluster::config::Config;
use ::cluster::ids::{ClientId, Incarnation, MemberId};
use ::cluster::roles::Role;
use ::cluster::session::{Ask, Told, Welcome};
use ::io::{Clock, Disk, Op, Pool};
use net::bytewise::Writers;
use net::cluster::client::ClientDisk;
use net::nbd::{Catalogue, Export, Server};
use os::{Signals, Spawner};

use self::local::{Local, Place};
use super::status::{PATIENCE, level_word};
use crate::api::ClusterServing;
use crate::atomic_file;
use crate::cluster::file::{Cluster, ClusterArg, Endpoint, address};
use crate::cluster::host::{self, until_stopped};
use crate::cluster::links::{self, ask, spawn, unexpected};
use crate::cmd::attach::How;
use crate::cmd::serve::catch;
use crate::daemon::first;
use crate::engine;
use crate::failure::{Exit, Failure, Id, Result, of_path};
use crate::local_disks::LocalDisks;
use crate::places;
use crate::size::Size;
use crate::systemd;
use crate::terminal::Terminal;

/// Use a cluster's array on this host: as a local disk, over NBD, or both
///
/// Each host has an id of its own. Once the cluster has evicted it, all requests fail until its
/// disk is unmounted and this process is started again. At SIGTERM it waits until its local disk
/// is free; a second signal ends the wait.
///
/// For example: parapet cluster client pool.toml --id 1 --attach; mount /dev/parapet/pool /mnt
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArg,
    /// Id of this host in the cluster
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    id: u32,
    /// NBD address: unix:PATH (mode 0600) or ADDRESS:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = address, required_unless_present = "attach")]
    nbd: Option<Endpoint>,
    /// Make the array a disk of this host: /dev/parapet/NAME. Needs root
    #[arg(long)]
    attach: bool,
    /// Way of the kernel's requests to this process, as for parapet attach
    #[arg(long, value_name = "WAY", requires = "attach")]
    how: Option<How>,
}

/// Memory for payloads and for client requests that are not whole blocks.
const POOL_BYTES: usize = 32 << 20;
/// Between two rounds of questions to the coordinators.
const PAUSE: Duration = Duration::from_millis(200);
/// How long clients may take at the end to receive their answers.
const CLIENTS: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let cluster = args.cluster.read()?;
    cluster.require(Role::Client(ClientId(args.id)))?;
    let executor = engine::executor()?;
    let on = executor.spawner();
    let signals = catch(&on)?;
    executor.block_on(async {
        let welcomed = until_stopped(&signals, welcome(&cluster, &on)).await;
        let Some(config) = welcomed.transpose()? else { return Ok(Exit::Done) };
        let place = match args.attach {
            true => Some(Place::take(&cluster).await?),
            false => None,
        };
        let incarnation = next_incarnation(&cluster, args.id)?;
        let disk = join(args.id, incarnation, &config, &cluster, &on);
        let evicted = run_on(&disk, args.id, &on);
        let (pool, writers) = (Pool::new(POOL_BYTES), Writers::default());
        let described = format!("{}, {}", cluster.name, level_word(config.shape.level));
        let export = Export::new(&cluster.name, Rc::new(disk.clone()), pool.clone());
        let export = export.beside(&writers).described(described);
        let catalogue = Rc::new(Catalogue::new([Rc::new(export)]));
        let server = Server::new(catalogue, on.clock(), pool.clone());
        let address = match &args.nbd {
            Some(at) => Some(serve(&server, at, &on).await?),
            None => None,
        };
        let mut local = None;
        if let Some(place) = place {
            let (how, disks) = (args.how.map(How::word), LocalDisks::new(&on, &pool, &server));
            let attached = Local::attach(place, how, (&disk, &writers), disks);
            // It may wait for members.
            match until_stopped(&signals, attached).await {
                Some(attached) => local = Some(attached?),
                None => return leave(&disk, &cluster, &signals, &on).await,
            }
        }
        let size = Size(disk.limits().bytes);
        let what = format!("client {} of {}, {size}", args.id, cluster.name);
        systemd::ready(&what);
        let (pid, role) = (std::process::id(), "client".into());
        let (array, attached) = (Some(cluster.name.clone()), local.as_ref().map(Local::view));
        terminal.report(&ClusterServing { pid, role, array, what, address, attached });
        // Evicted or not: only a signal ends it.
        until_stopped(&signals, std::future::pending::<()>()).await;
        if let Some(local) = local {
            local.end(&signals, &on).await;
        }
        let clock = on.clock();
        first(server.shutdown(), clock.sleep_until(clock.now() + CLIENTS)).await;
        if evicted.get() {
            return Err(excluded(args.id));
        }
        leave(&disk, &cluster, &signals, &on).await
    })
}

/// The configuration, from the coordinator that leads; waits for one.
async fn welcome(cluster: &Cluster, on: &Spawner) -> Result<Config> {
    let (hello, clock) = (cluster.operator(MemberId(0)), on.clock());
    let mut said = false;
    loop {
        let mut last = String::new();
        for address in cluster.candidates() {
            let told = ask(&address, &hello, &Ask::Welcome, Some(PATIENCE), on).await;
            let Welcome { name, config, .. } = match told {
                Ok(Told::Welcome(welcome)) => welcome,
                Ok(told) => {
                    last = unexpected(&address, told).message;
                    continue;
                }
                Err(failure) => {
                    last = failure.message;
                    continue;
                }
            };
            if config.array == cluster.array && config.slots.len() == cluster.members.len() {
                return Ok(config);
            }
            let message = format!("{address}: it coordinates another array, {name}");
            return Err(Failure::new(Id::Foreign, message, "check the cluster file"));
        }
        if !said {
            tracing::warn!("{}: no coordinator leads yet: waiting ({last})", cluster.name);
            said = true;
        }
        clock.sleep_until(clock.now() + PAUSE).await;
    }
}

/// The number of this start: above all earlier ones, durably.
fn next_incarnation(cluster: &Cluster, id: u32) -> Result<Incarnation> {
    let path = state_file(cluster, id);
    let before = match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().parse::<u32>().map_err(|_| {
            let message = format!("{}: it does not hold a number", path.display());
            Failure::new(Id::Input, message, "remove the file: the clock gives a higher one")
        })?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(of_path(&path, &error)),
    };
    let now = jiff::Timestamp::now().as_second();
    let next = Incarnation(u32::try_from(now).unwrap_or(0)).max(Incarnation(before).next());
    if next > Incarnation::LAST {
        let message = format!("{}: no start number follows {before}", path.display());
        let hint = "remove the file if the number is wrong; else give this host another --id";
        return Err(Failure::new(Id::Input, message, hint));
    }
    let Incarnation(number) = next;
    let stored = atomic_file::replace(&path, format!("{number}\n").as_bytes());
    stored.map_err(|error| of_path(&path, &error))?;
    Ok(next)
}

fn state_file(cluster: &Cluster, id: u32) -> PathBuf {
    places::state().join(format!("cluster/{:032x}-client-{id}", cluster.array.0))
}

/// Starts the client, with its connections.
fn join(
    id: u32,
    incarnation: Incarnation,
    config: &Config,
    cluster: &Cluster,
    on: &Spawner,
) -> ClientDisk {
    let who = (ClientId(id), incarnation);
    let disk = ClientDisk::start(who, config, cluster.timing, on.clock(), spawn(on));
    for (member, to) in cluster.slots() {
        let disk = disk.clone();
        let connected = async move |stream| disk.connect_member(member, stream).await;
        links::keep(format!("member {}", member.0), to, on, connected);
    }
    for to in cluster.candidates() {
        let disk = disk.clone();
        let connected = async move |stream| disk.connect_coordinator(stream).await;
        links::keep("coordinator".into(), to, on, connected);
    }
    disk
}

async fn serve(server: &Server, at: &Endpoint, on: &Spawner) -> Result<String> {
    if at.is_open() {
        tracing::warn!("{at}: NBD without TLS: anyone who reaches this address can read and write");
    }
    let server = server.clone();
    let address = host::listen(&at.0, on, async move |socket, origin| {
        let Some(serving) = server.admit(Box::new(socket), 0, origin.as_str()) else { return };
        let ending = serving.await;
        tracing::debug!(origin, ?ending, "an NBD client has gone");
    });
    Ok(address.await?.to_string())
}

/// Lets the client tick. The cell tells whether the cluster has evicted it.
fn run_on(disk: &ClientDisk, id: u32, on: &Spawner) -> Rc<Cell<bool>> {
    let (disk, evicted) = (disk.clone(), Rc::new(Cell::new(false)));
    let told = Rc::clone(&evicted);
    on.spawn_local(async move {
        disk.run().await;
        told.set(true);
        let what = "the cluster has evicted this client: all requests fail now";
        tracing::error!(
            "{what}; unmount the disk, then start this process again; check that no other host \
             uses --id {id}"
        );
        systemd::status(what);
    });
    evicted
}

fn excluded(id: u32) -> Failure {
    let message = format!("client {id}: the cluster evicted it");
    Failure::new(Id::Failed, message, "the next start is a new incarnation")
}

/// Makes all writes durable and gives the regions back, so that nothing has to be resynced.
async fn leave(
    disk: &ClientDisk,
    cluster: &Cluster,
    signals: &Signals,
    on: &Spawner,
) -> Result<Exit> {
    let clock = on.clock();
    let timing = &cluster.timing;
    let idle = Duration::from_millis(timing.idle_ms + 5 * timing.tick_ms);
    let parting = async {
        let flushed = disk.submit(Op::flush()).await.result;
        clock.sleep_until(clock.now() + idle).await;
        flushed
    };
    let limit = clock.sleep_until(clock.now() + CLIENTS + idle);
    match until_stopped(signals, first(parting, limit)).await.flatten() {
        Some(Ok(())) => Ok(Exit::Done),
        Some(Err(error)) => {
            let message = format!("{}: the last flush failed: {error}", cluster.name);
            Err(Failure::new(Id::Failed, message, "check the data of this host's users"))
        }
        None => {
            let message = "the last flush has no answer: unflushed writes may be lost";
            Err(Failure::new(Id::Failed, message, "the cluster resyncs the regions of this client"))
        }
    }
}
