//! `parapet serve`: runs arrays, in the foreground.

use std::path::PathBuf;
use std::rc::Rc;

use clap::ValueEnum;
use net::nbd::limits::{DEFAULT_MEMORY, MAX_PAYLOAD};
use net::nbd::wire::MAX_STRING_BYTES;
use os::{Address, Listener, Signals, Spawner, Stdio};
use policy::config::Loaded;

use crate::api::Serving;
use crate::daemon::{AoeExport, AoePolicy, Daemon};
use crate::engine::{self, AssemblyFlags, RunFlags};
use crate::failure::{Exit, Failure, Id, Result, of_path};
use crate::flags::{Control, address};
use crate::machine::settings;
use crate::size::Size;
use crate::terminal::Terminal;
use crate::{notify, places, systemd, tls};

mod health;
#[cfg(feature = "page")]
mod page;
mod reload;
pub(crate) mod sources;

#[cfg(not(feature = "page"))]
use crate::absent::page;
pub(crate) use sources::{Sources, members_among, resting};

/// More threads than any current machine can use.
const MAX_THREADS: i64 = 256;

/// Serve arrays in the foreground until stopped
///
/// For example: parapet serve tank /dev/sd[b-g] --nbd unix:/run/tank.nbd --nbd tcp:192.0.2.1:10809
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or UUID of the array [default with --scan: all arrays found]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Members of the array
    #[arg(value_name = "MEMBER", conflicts_with = "scan")]
    members: Vec<PathBuf>,
    /// Folder to search for members (files and block devices)
    #[arg(long, value_name = "DIR")]
    scan: Option<PathBuf>,
    /// Export name [default: the array's name]
    #[arg(long, value_name = "NAME", value_parser = export_name)]
    export_name: Option<String>,
    /// Number of threads; each serves a part of the regions and of the clients
    #[arg(long, value_name = "COUNT", default_value = "1",
        value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS))]
    threads: u16,
    #[command(flatten)]
    outlets: Outlets,
    #[command(flatten)]
    assembly: AssemblyFlags,
    #[command(flatten)]
    run: RunFlags,
}

/// Where a server is to be reached.
#[derive(clap::Args)]
pub(crate) struct Outlets {
    /// NBD address: unix:PATH (mode 0600), tcp:ADDRESS:PORT or tcp:PORT; may be repeated
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    nbd: Vec<Address>,
    /// Memory limit for the requests of all NBD clients, 32M or more; further requests wait
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = nbd_memory)]
    nbd_memory: Size,
    /// ATA over Ethernet export; may be repeated. NAME= is the array, if there are several. Without
    /// SHELF.SLOT, the address is the one kept with the array, and it is online if it was
    #[arg(long, value_name = "[NAME=][SHELF.SLOT]@INTERFACE[,INTERFACE]")]
    aoe: Vec<AoeExport>,
    /// Answer AoE writes before they are durable: a power cut loses data that clients believe safe
    #[arg(long)]
    aoe_volatile: bool,
    /// AoE clients may change config strings, masks and reservations: any host on the wire can
    #[arg(long)]
    aoe_remote_control: bool,
    /// Serve one NBD client over standard input and output, then exit
    #[arg(long)]
    stdio: bool,
    #[command(flatten)]
    notify: notify::NotifyFlags,
    #[command(flatten)]
    control: Control,
    #[command(flatten)]
    page: page::PageFlags,
    #[command(flatten)]
    health: health::Flags,
    #[command(flatten)]
    tls: TlsFlags,
}

/// A size with room for the largest request.
fn nbd_memory(text: &str) -> std::result::Result<Size, String> {
    let size: Size = text.parse()?;
    let least = u64::from(MAX_PAYLOAD);
    if size.0 < least {
        return Err(format!("at least {} MiB: one request may be that large", least >> 20));
    }
    Ok(size)
}

/// Parses an export name that a client can request.
fn export_name(text: &str) -> std::result::Result<String, String> {
    let bytes = text.len();
    if bytes > MAX_STRING_BYTES {
        return Err(format!("{bytes} bytes: NBD clients can name at most {MAX_STRING_BYTES}"));
    }
    Ok(text.into())
}

/// TLS for NBD clients.
#[derive(clap::Args)]
#[command(next_help_heading = "TLS")]
struct TlsFlags {
    /// TLS for NBD clients [default: require, if a certificate is given]
    #[arg(long, value_name = "WHEN")]
    tls: Option<TlsMode>,
    /// Server certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// CA certificate (PEM); clients must present a certificate that it signed
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TlsMode {
    /// Refuse clients without TLS
    Require,
    /// Serve without TLS
    Off,
}

impl TlsFlags {
    fn identity(&self) -> Result<Option<tls::Identity>> {
        if self.tls == Some(TlsMode::Off) {
            return Ok(None);
        }
        let files = [&self.tls_cert, &self.tls_key, &self.tls_ca];
        let [certificate, key, authority] = files.map(Option::as_deref);
        let files = tls::Files::of(certificate, key, authority)?;
        if files.is_none() && self.tls == Some(TlsMode::Require) {
            let action = "say --tls-cert and --tls-key";
            return Err(Failure::new(Id::Usage, "TLS needs a certificate and its key", action));
        }
        files.map(|files| tls::Identity::load(&files)).transpose()
    }
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    let take_in = async |daemon: &Rc<Daemon>| take_in_all(&args, daemon).await;
    args.outlets.serve(args.threads.into(), terminal, take_in)
}

impl Outlets {
    /// Returns the outlets of a configuration.
    ///
    /// # Errors
    /// A text that means nothing, with its place.
    pub(crate) fn configured(loaded: &Loaded, control: Control) -> Result<Outlets> {
        let config = &loaded.config;
        let address = |text: &String| settings::parsed(loaded, "nbd.listen", text, address);
        let file = |path: &Option<String>| path.as_ref().map(PathBuf::from);
        let nbd = &config.nbd;
        let (tls_cert, tls_key) = (file(&nbd.tls_cert), file(&nbd.tls_key));
        Ok(Outlets {
            nbd: nbd.listen.iter().map(address).collect::<Result<_>>()?,
            nbd_memory: Size(DEFAULT_MEMORY),
            aoe: Vec::new(),
            aoe_volatile: config.aoe.volatile,
            aoe_remote_control: config.aoe.remote_control,
            stdio: false,
            // The manager of the daemon has them.
            notify: notify::NotifyFlags::default(),
            control,
            page: page::PageFlags::configured(loaded)?,
            health: health::Flags::configured(&config.health),
            tls: TlsFlags { tls: None, tls_cert, tls_key, tls_ca: file(&nbd.tls_ca) },
        })
    }

    /// Returns true if no client can connect.
    pub(crate) fn is_none(&self) -> bool {
        self.nbd.is_empty() && self.aoe.is_empty() && !self.stdio
    }

    /// Creates a server. It adds the arrays, reports them, and serves them until it is stopped.
    ///
    /// # Errors
    /// If no array can be added, or a socket or disk cannot be opened.
    pub(crate) fn serve(
        &self,
        threads: usize,
        terminal: &Terminal,
        take_in: impl AsyncFnOnce(&Rc<Daemon>) -> Result<()>,
    ) -> Result<Exit> {
        self.check()?;
        os::threads::raise_open_files();
        let executor = engine::executor()?;
        let on = executor.spawner();
        let signals = catch(&on)?;
        // Report configuration errors before opening anything.
        let tls = self.tls.identity()?;
        let daemon = Daemon::with_memory(&on, tls, threads, self.nbd_memory.0)?;
        daemon.notify(self.notify.channels()?, None);
        executor.block_on(async {
            let opened = match take_in(&daemon).await {
                Ok(()) => self.open(&daemon, &on).await,
                Err(failure) => Err(failure),
            };
            let page = match opened.and_then(|()| self.start_own_clients(&daemon)) {
                Ok(page) => page,
                Err(failure) => {
                    // Stop the started arrays in order, then report the failure.
                    let _ = daemon.close().await;
                    daemon.own_clients().end();
                    return Err(failure);
                }
            };
            self.warn(&daemon);
            let serving = Serving { page, ..serving(&daemon) };
            if self.stdio {
                let stdio = Stdio::take(&on).map_err(|error| {
                    let message = format!("standard input and output: {error}");
                    Failure::new(Id::Socket, message, "connect both to the NBD client")
                })?;
                terminal.preview(&serving);
                daemon.serve_only(Box::new(stdio));
            } else {
                terminal.report(&serving);
            }
            systemd::ready(&format!("serving {} arrays", serving.arrays.len()));
            let ended = daemon.run(&signals).await;
            daemon.own_clients().end();
            ended
        })?;
        Ok(Exit::Done)
    }

    /// Refuses an address that is named twice.
    fn check(&self) -> Result<()> {
        let resolved = |address: &Address| match address {
            Address::Unix(path) => Address::Unix(places::absolute(path)),
            Address::Tcp(address) => Address::Tcp(*address),
        };
        let control = self.control.path().map(|path| Address::Unix(path.to_owned()));
        let mut seen = Vec::new();
        for address in self.nbd.iter().chain(&control).map(resolved) {
            // The kernel chooses another port each time for port 0.
            let is_any = matches!(address, Address::Tcp(tcp) if tcp.port() == 0);
            if !is_any && seen.contains(&address) {
                let message = format!("{address}: this address is given twice");
                return Err(Failure::new(Id::Usage, message, "give each address once"));
            }
            seen.push(address);
        }
        Ok(())
    }

    /// Starts the web page and the watcher of disks, where they are wanted. Returns the address of
    /// the page.
    fn start_own_clients(&self, daemon: &Daemon) -> Result<Option<String>> {
        let page = self.start_page(daemon)?;
        self.start_watcher(daemon)?;
        Ok(page)
    }

    /// Starts the web page, if there is to be one. Returns its address.
    fn start_page(&self, daemon: &Daemon) -> Result<Option<String>> {
        let Some((page, address)) = self.page.start(&daemon.control_addresses())? else {
            return Ok(None);
        };
        daemon.own_clients().set_page(page);
        Ok(Some(address))
    }

    /// Starts to watch disks, if they are to be watched.
    fn start_watcher(&self, daemon: &Daemon) -> Result<()> {
        let watcher = self.health.start(&daemon.control_addresses())?;
        watcher.into_iter().for_each(|watcher| daemon.own_clients().set_watcher(watcher));
        Ok(())
    }

    /// Warns of addresses that admit too many clients, or none.
    fn warn(&self, daemon: &Daemon) {
        let addresses = daemon.nbd_addresses();
        for address in &addresses {
            let is_open = matches!(address, Address::Tcp(tcp) if !tcp.ip().is_loopback());
            if is_open && !daemon.is_secure() {
                tracing::warn!(
                    "{address}: NBD without TLS: anyone who reaches this address can read and \
                     write; see --tls-cert and --tls-ca"
                );
            }
        }
        if addresses.is_empty() && self.aoe.is_empty() && !self.stdio && !daemon.is_managed() {
            tracing::warn!("no address: no client can connect; add --nbd unix:PATH");
        }
    }

    /// Takes a socket of this server's earlier run, if it is still to serve its address.
    fn take_stored(&self, kind: &str, listener: Listener, daemon: &Rc<Daemon>) {
        let Some(address) = listener.address() else { return };
        let control = self.control.path().map(|path| Address::Unix(path.to_owned()));
        match kind {
            "control" if control.as_ref() == Some(&address) => daemon.listen_on(listener),
            "nbd" if self.nbd.contains(&address) => daemon.accept_nbd(listener, Some(address)),
            _ => systemd::forget(kind, &address),
        }
    }

    /// Opens the sockets.
    async fn open(&self, daemon: &Rc<Daemon>, on: &Spawner) -> Result<()> {
        let activated = os::socket::activated(on).map_err(|error| {
            let message = format!("a socket from systemd: {error}");
            Failure::new(Id::Socket, message, "use ListenStream= and Accept=no")
        })?;
        for (name, listener) in activated {
            match systemd::stored_kind(&name) {
                Some(kind) => self.take_stored(kind, listener, daemon),
                None if name == "control" => daemon.listen_on(listener),
                None => daemon.accept_nbd(listener, None),
            }
        }
        let stored = daemon.nbd_addresses();
        for address in self.nbd.iter().filter(|address| !stored.contains(address)) {
            daemon.serve_nbd(address).await?;
        }
        let (volatile, remote_control) = (self.aoe_volatile, self.aoe_remote_control);
        daemon.set_aoe_policy(AoePolicy { volatile, remote_control });
        daemon.serve_aoe(&self.aoe).await?;
        if let Some(path) = self.control.path() {
            if daemon.control_addresses().contains(&Address::Unix(path.to_owned())) {
                return Ok(());
            }
            return daemon.listen(path, places::is_control(path)).await;
        }
        if !daemon.control_addresses().is_empty() || self.stdio {
            return Ok(());
        }
        let folder = places::runtime();
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700);
        builder.create(&folder).map_err(|error| {
            let mut failure = of_path(&folder, &error);
            failure.action = "say where: --control unix:PATH".into();
            failure
        })?;
        for array in daemon.views() {
            let name = places::file_name(&array.name, &array.uuid);
            let path = places::control_of(&name);
            daemon.listen(&path, true).await.map_err(|mut failure| {
                if failure.id == Id::Running {
                    // `list` searches all sockets in the folder.
                    let second = path.with_file_name(format!("{name}-2.sock"));
                    let second = places::quoted(&format!("unix:{}", second.display()));
                    failure.action +=
                        &format!("; for another array of this name: --control {second}");
                }
                failure
            })?;
        }
        Ok(())
    }
}

/// Returns a handle that receives signals from now on.
pub(crate) fn catch(on: &Spawner) -> Result<Signals> {
    Signals::catch(on).map_err(|error| {
        Failure::new(Id::Failed, format!("signals: {error}"), "see the limit of open files")
    })
}

/// Reports the addresses once everything is open.
pub(crate) fn serving(daemon: &Daemon) -> Serving {
    let words = |addresses: Vec<Address>| addresses.iter().map(ToString::to_string).collect();
    Serving {
        pid: std::process::id(),
        arrays: daemon.views(),
        nbd: words(daemon.nbd_addresses()),
        aoe: daemon.aoe_addresses(),
        control: words(daemon.control_addresses()),
        tls: daemon.is_secure(),
        page: None,
    }
}

async fn take_in_all(args: &Args, daemon: &Rc<Daemon>) -> Result<()> {
    let (name, members) = (args.name.as_deref(), &args.members[..]);
    let sources = Sources { name, members, scan: args.scan.as_deref() };
    let arrays = sources.gather(&args.assembly, &args.run, daemon).await?;
    if arrays.len() > 1 && args.export_name.is_some() {
        let message = "several arrays cannot have one export name";
        return Err(Failure::new(Id::Usage, message, "leave --export-name out"));
    }
    // The default export must not depend on which arrays could start.
    let alone = arrays.len() == 1 && !daemon.lacks_others();
    for served in arrays {
        let name = args.export_name.as_deref();
        daemon.export(&served, name, args.assembly.read_only, alone)?;
        daemon.resume_attachment(&served).await;
    }
    Ok(())
}
