//! `parapet serve-disk`: a disk of this host as a member of a cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::cluster::roles::Role;
use ::cluster::session::Label;
use ::io::{Clock, ErrorKind};
use net::cluster::area;
use net::cluster::member::MemberServer;
use os::{Options, Spawner};

use crate::api::{ClusterServing, SignatureView};
use crate::cluster::file::{Endpoint, address};
use crate::cluster::host::{self, Exposure, until_stopped};
use crate::cluster::keys::{Keys, TlsFlags};
use crate::cluster::links::spawn;
use crate::cmd::serve::catch;
use crate::disks::{self, Opened};
use crate::engine;
use crate::failure::{Exit, Failure, Id, Result};
use crate::flags::Overwrite;
use crate::probe::{self, contents};
use crate::systemd;
use crate::terminal::Terminal;

/// Serve a disk of this host as a member of a cluster
///
/// A disk with other content is refused. An empty one waits for `parapet cluster create`, which
/// erases it. Ends when the disk fails: the cluster then goes on without this member.
///
/// For example: parapet serve-disk /dev/sdb --listen unix:/run/parapet/sdb.sock
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Disk or file
    #[arg(value_name = "DISK")]
    disk: PathBuf,
    /// Where coordinators and clients connect: unix:PATH (mode 0600) or ADDRESS:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Endpoint,
    #[command(flatten)]
    exposure: Exposure,
    #[command(flatten)]
    tls: TlsFlags,
    #[command(flatten)]
    overwrite: Overwrite,
}

/// The name of a member's label among the signatures.
const MEMBER: &str = "parapet_cluster_member";
/// Between two looks whether the disk hangs.
const GLANCE: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let keys = args.tls.files()?.map(Keys::load).transpose()?;
    keys.as_ref().map_or(Ok(()), |keys| keys.require(Role::Member))?;
    args.exposure.check(&args.listen, keys.as_ref())?;
    let executor = engine::executor()?;
    let on = executor.spawner();
    let signals = catch(&on)?;
    executor.block_on(async {
        let opened = disks::open_one(&args.disk, &Options::default(), &on).await?;
        let server = start(&opened, args, &on).await?;
        let serving = server.clone();
        let serve = async move |session| serving.serve(session).await;
        let address =
            Some(host::receive(&args.listen, keys.as_ref(), &on, serve).await?.to_string());
        let label = server.label();
        let what = words(&args.disk.display().to_string(), label.as_ref());
        tracing::info!("{what}");
        systemd::ready(&what);
        let (pid, role, array) = (std::process::id(), "disk".into(), label.map(|it| it.name));
        let (watched, path, clock) = (server.clone(), args.disk.clone(), on.clock());
        on.spawn_local(async move { watch(&watched, &path, &*clock).await });
        terminal.report(&ClusterServing { pid, role, array, what, address, attached: None });
        match until_stopped(&signals, server.failed()).await {
            Some(error) => Err(of_disk(&opened, &error)),
            None => {
                let flushed = server.flush().await;
                flushed.map(|()| Exit::Done).map_err(|error| of_disk(&opened, &error))
            }
        }
    })
}

/// The server of a member, or of a disk that may be formatted.
async fn start(opened: &Opened, args: &Args, on: &Spawner) -> Result<MemberServer> {
    let disk = opened.disk.clone();
    let label = area::label(&*disk).await;
    let allowed = &args.overwrite.overwrite_signature;
    let leaves = |signature: &SignatureView| signature.name == MEMBER;
    let leaves = allowed.iter().any(|allowed| allowed.on(&opened.path).is_some_and(leaves));
    if matches!(label, Ok(Some(_))) && !leaves {
        let started = MemberServer::start(disk, on.clock(), spawn(on)).await;
        return started.map_err(|error| of_disk(opened, &error));
    }
    let mut found = contents(opened).await?;
    match label {
        Ok(_) => {}
        Err(error) if error.kind() != ErrorKind::Refused => return Err(of_disk(opened, &error)),
        Err(error) if disk.limits().bytes < area::DATA_AT => return Err(of_disk(opened, &error)),
        Err(_) if !found.signatures.is_empty() => {}
        // Bytes that no table knows.
        Err(_) => found.signatures.push(SignatureView { name: "data".into(), offset: 0 }),
    }
    probe::refuse_unnamed([(opened.path.as_path(), &found)], allowed)?;
    Ok(MemberServer::unformatted(disk, on.clock(), spawn(on)))
}

/// Logs when the disk hangs, and when it goes on.
async fn watch(server: &MemberServer, disk: &Path, clock: &dyn Clock) {
    let mut hung = false;
    loop {
        clock.sleep_until(clock.now() + GLANCE).await;
        let hangs = server.hangs();
        match (hung, hangs) {
            (false, true) => tracing::warn!(
                "{}: the disk does not answer: the cluster goes on without this member, if it can",
                disk.display()
            ),
            (true, false) => tracing::info!("{}: the disk answers again", disk.display()),
            _ => {}
        }
        hung = hangs;
    }
}

fn words(disk: &str, label: Option<&Label>) -> String {
    match label {
        Some(label) => {
            format!("{disk} is member {} of {}, of {}", label.member.0, label.members, label.name)
        }
        None => format!("{disk} waits for `parapet cluster create` or `replace`"),
    }
}

fn of_disk(opened: &Opened, error: &::io::Error) -> Failure {
    let message = format!("{}: {error}", opened.path.display());
    Failure::new(
        Id::Input,
        message,
        "see the system's log; the cluster goes on without this member",
    )
}
