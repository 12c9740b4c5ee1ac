//! `parapet page`: metrics and a web page of running servers; and the same inside a server.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use os::Address;
use panel::{Access, Listen, PasswordFile, Running, Servers, Tls, Unprotected};
use rustls::ServerConfig;

use crate::api::{Changed, PageView};
use crate::cmd::serve::catch;
use crate::daemon::first;
use crate::engine;
use crate::failure::{Exit, Failure, Id, Result};
use crate::flags::Control;
use crate::places;
use crate::terminal::Terminal;
use crate::tls::{self, Files, Renewing};

/// Show the served arrays on a web page, with metrics for Prometheus, until stopped
///
/// It is read-only without --actions. An address that other machines reach needs TLS, and a login
/// or client certificates. `serve --page` does the same inside the server.
///
/// For example: parapet page --listen 127.0.0.1:7580
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<PageVerb>,
    /// Address and port, or unix:PATH (mode 0600)
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7580")]
    listen: Listen,
    /// Commands by forms, such as scrub and replace; over TCP they need --login or --tls-ca
    #[arg(long)]
    actions: bool,
    /// Ask for the password of this file, which `parapet page password` makes
    #[arg(long, value_name = "FILE")]
    login: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsFlags,
    #[command(flatten)]
    control: Control,
}

/// TLS of the page.
#[derive(clap::Args)]
#[command(next_help_heading = "TLS")]
struct TlsFlags {
    /// Server certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// CA certificate (PEM); browsers must present a certificate that it signed
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
}

#[derive(Subcommand)]
enum PageVerb {
    /// Store the hash of a password for the page; reads it from the terminal or standard input
    Password(Password),
}

#[derive(clap::Args)]
struct Password {
    /// File to write (mode 0600)
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    if let Some(PageVerb::Password(password)) = &args.verb {
        return set_password(&password.file, terminal);
    }
    let servers = match args.control.path() {
        Some(path) => Servers::At(vec![path.to_owned()]),
        None => Servers::In(places::runtime()),
    };
    let executor = engine::executor()?;
    let signals = catch(&executor.spawner())?;
    let files = [&args.tls.tls_cert, &args.tls.tls_key, &args.tls.tls_ca];
    let [certificate, key, authority] = files.map(Option::as_deref);
    let tls = Files::of(certificate, key, authority)?;
    let wanted = Wanted { actions: args.actions, login: args.login.clone(), tls };
    let (page, address) = start(&args.listen, servers, &wanted)?;
    terminal.report(&PageView { address });
    executor.block_on(signals.next());
    drop(page);
    Ok(Exit::Done)
}

fn set_password(path: &Path, terminal: &Terminal) -> Result<Exit> {
    let password = new_password().map_err(|error| {
        let message = format!("standard input: the password cannot be read: {error}");
        Failure::new(Id::Input, message, "type it, or pipe one line")
    })?;
    PasswordFile::create(path, &password).map_err(|error| of_password(path, &error))?;
    let message = format!("{}: the password is stored", path.display());
    terminal.report(&Changed { message, array: None });
    Ok(Exit::Done)
}

/// Reads a password: twice at a terminal, which does not show it, else one line.
fn new_password() -> std::io::Result<String> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return read_line();
    }
    let other = |failure: Failure| std::io::Error::other(failure.message);
    let executor = engine::executor().map_err(other)?;
    let signals = catch(&executor.spawner()).map_err(other)?;
    let ask = async |words: &str| {
        // Shows again what is typed when it goes out of scope, after Ctrl-C too: a signal is an
        // outcome here, and does not end the process.
        let _silent = os::WithoutEcho::new(&input)?;
        let _ = write!(std::io::stderr(), "{words}: ");
        let typing = os::threads::aside(read_line)?;
        let typed = first(typing, async { _ = signals.next().await }).await;
        let _ = writeln!(std::io::stderr());
        typed.unwrap_or_else(|| Err(std::io::Error::other("interrupted")))
    };
    let (typed, again) = executor.block_on(async {
        Ok::<_, std::io::Error>((ask("New password").await?, ask("The same again").await?))
    })?;
    match typed == again {
        true => Ok(typed),
        false => Err(std::io::Error::other("the two differ")),
    }
}

fn read_line() -> std::io::Result<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

fn of_password(path: &Path, error: &std::io::Error) -> Failure {
    let message = format!("{}: the password file cannot be used: {error}", path.display());
    let path = places::quoted(&path.display().to_string());
    Failure::new(Id::Input, message, format!("parapet page password {path} makes a new one"))
}

/// What a page offers, by its options.
pub(crate) struct Wanted {
    pub(crate) actions: bool,
    pub(crate) login: Option<PathBuf>,
    pub(crate) tls: Option<Files>,
}

impl Wanted {
    /// Reads the files.
    fn access(&self) -> Result<Access> {
        let open =
            |path: &PathBuf| PasswordFile::open(path).map_err(|error| of_password(path, &error));
        let login = self.login.as_ref().map(open).transpose()?;
        let tls = self.tls.clone().map(renewing).transpose()?;
        Ok(Access { actions: self.actions, login, tls })
    }
}

/// TLS from these files, also after they change.
fn renewing(files: Files) -> Result<Tls> {
    let names_clients = files.authority.is_some();
    let renewing = Renewing::load(files, config, "the page")?;
    let config = Arc::new(move || renewing.current());
    Ok(Tls { config, names_clients, subject: tls::subject })
}

/// Offers the one protocol that the page speaks.
fn config(files: &Files) -> Result<Arc<ServerConfig>> {
    let mut config = files.config()?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Starts the page of a server with these control sockets; returns its address too.
///
/// # Errors
/// If there is no control socket, or the address cannot be bound.
pub(crate) fn of_server(
    listen: &Listen,
    control: &[Address],
    wanted: &Wanted,
) -> Result<(Running, String)> {
    let sockets = control.iter().filter_map(|address| match address {
        Address::Unix(path) => Some(places::absolute(path)),
        Address::Tcp(_) => None,
    });
    let sockets: Vec<_> = sockets.collect();
    if sockets.is_empty() {
        let message = "--page: the page reads the control API, and there is no control socket";
        return Err(Failure::new(Id::Usage, message, "add --control unix:PATH"));
    }
    start(listen, Servers::At(sockets), wanted)
}

fn start(listen: &Listen, servers: Servers, wanted: &Wanted) -> Result<(Running, String)> {
    let failed = |error: std::io::Error| {
        let source = error.get_ref().and_then(|source| source.downcast_ref());
        if let Some(&why) = source {
            return unprotected(listen, why);
        }
        let message = format!("{listen}: the page cannot listen: {error}");
        let id = match error.kind() {
            std::io::ErrorKind::AddrInUse => Id::Running,
            _ => Id::Socket,
        };
        Failure::new(id, message, "choose another address")
    };
    if let Listen::Unix(path) = listen {
        places::check_socket(path)?;
        if places::is_control(path) {
            let message = format!("{listen}: *.sock in this folder are control sockets");
            return Err(Failure::new(Id::Usage, message, "leave out .sock"));
        }
    }
    let bound = listen.bind(wanted.access()?).map_err(failed)?;
    let address = bound.address();
    let page = panel::start(bound, servers).map_err(failed)?;
    Ok((page, address))
}

fn unprotected(listen: &Listen, why: Unprotected) -> Failure {
    let action = match why {
        Unprotected::NoTls => {
            "name its certificate (--tls-cert, --page-tls-cert), or use 127.0.0.1:PORT with an SSH \
             tunnel"
        }
        Unprotected::Open | Unprotected::OpenActions => {
            "name a password file (--login, --page-login) or a CA for client certificates \
             (--tls-ca, --page-tls-ca)"
        }
        Unprotected::TlsOnUnix => "leave TLS to the web server in front, or use ADDRESS:PORT",
    };
    Failure::new(Id::Usage, format!("{listen}: {why}"), action)
}
