//! `parapet page`: metrics and a web page of running servers; and the same inside a server.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use os::Address;
use panel::{Access, Listen, PasswordFile, Running, Servers};

use crate::api::{Changed, PageView};
use crate::cmd::serve::catch;
use crate::engine;
use crate::failure::{Exit, Failure, Id, Result};
use crate::flags::Control;
use crate::places;
use crate::terminal::Terminal;

/// Show the served arrays on a web page, with metrics for Prometheus, until stopped
///
/// It listens on a loopback address or a unix socket only, and is read-only without --actions.
/// `serve --page` does the same inside the server.
///
/// For example: parapet page --listen 127.0.0.1:7580
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<PageVerb>,
    /// Loopback address and port, or unix:PATH (mode 0600)
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7580")]
    listen: Listen,
    /// Commands by forms, such as scrub and replace; over TCP they need --login
    #[arg(long)]
    actions: bool,
    /// Ask for the password of this file, which `parapet page password` makes
    #[arg(long, value_name = "FILE")]
    login: Option<PathBuf>,
    #[command(flatten)]
    control: Control,
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
    let wanted = Wanted { actions: args.actions, login: args.login.clone() };
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
    let line = || {
        let mut line = String::new();
        input.lock().read_line(&mut line)?;
        Ok(line.trim_end_matches(['\n', '\r']).to_owned())
    };
    if !input.is_terminal() {
        return line();
    }
    let ask = |words: &str| {
        let _ = write!(std::io::stderr(), "{words}: ");
        let typed = os::without_echo(&input, line)?;
        let _ = writeln!(std::io::stderr());
        typed
    };
    let (first, second) = (ask("New password")?, ask("The same again")?);
    match first == second {
        true => Ok(first),
        false => Err(std::io::Error::other("the two differ")),
    }
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
}

impl Wanted {
    fn access(&self) -> Result<Access> {
        let open =
            |path: &PathBuf| PasswordFile::open(path).map_err(|error| of_password(path, &error));
        let login = self.login.as_ref().map(open).transpose()?;
        Ok(Access { actions: self.actions, login })
    }
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
    let access = wanted.access()?;
    let bound = listen.bind().map_err(failed)?;
    let address = bound.address();
    let page = panel::start(bound, servers, access).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => {
            let message = format!("{listen}: the page has no login: {error}");
            let action = "name a password file (--login, --page-login), or listen on unix:PATH";
            Failure::new(Id::Usage, message, action)
        }
        _ => failed(error),
    })?;
    Ok((page, address))
}
