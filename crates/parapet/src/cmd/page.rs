//! `parapet page`: metrics and a web page of running servers; and the same inside a server.

use os::Address;
use panel::{Listen, Running, Servers};

use crate::api::PageView;
use crate::cmd::serve::catch;
use crate::engine;
use crate::failure::{Exit, Failure, Id, Result};
use crate::flags::Control;
use crate::places;
use crate::terminal::Terminal;

/// Show the served arrays on a web page, with metrics for Prometheus, until stopped
///
/// The page is read-only and has no login: it listens on a loopback address or a unix socket only.
/// `serve --page` does the same inside the server.
///
/// For example: parapet page --listen 127.0.0.1:7580
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Loopback address and port, or unix:PATH (mode 0600)
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7580")]
    listen: Listen,
    #[command(flatten)]
    control: Control,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let servers = match args.control.path() {
        Some(path) => Servers::At(vec![path.to_owned()]),
        None => Servers::In(places::runtime()),
    };
    let executor = engine::executor()?;
    let signals = catch(&executor.spawner())?;
    let (page, address) = start(&args.listen, servers)?;
    terminal.report(&PageView { address });
    executor.block_on(signals.next());
    drop(page);
    Ok(Exit::Done)
}

/// Starts the page of a server with these control sockets; returns its address too.
///
/// # Errors
/// If there is no control socket, or the address cannot be bound.
pub(crate) fn of_server(listen: &Listen, control: &[Address]) -> Result<(Running, String)> {
    let sockets = control.iter().filter_map(|address| match address {
        Address::Unix(path) => Some(places::absolute(path)),
        Address::Tcp(_) => None,
    });
    let sockets: Vec<_> = sockets.collect();
    if sockets.is_empty() {
        let message = "--page: the page reads the control API, and there is no control socket";
        return Err(Failure::new(Id::Usage, message, "add --control unix:PATH"));
    }
    start(listen, Servers::At(sockets))
}

fn start(listen: &Listen, servers: Servers) -> Result<(Running, String)> {
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
    let bound = listen.bind().map_err(failed)?;
    let address = bound.address();
    let page = panel::start(bound, servers).map_err(failed)?;
    Ok((page, address))
}
