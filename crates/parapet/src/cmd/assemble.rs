//! `parapet assemble`: assembles an array, replays its log after a crash, and stops it.

use std::path::PathBuf;
use std::time::Duration;

use io::Clock;
use os::{Signals, Spawner};

use crate::api::Assembled;
use crate::cmd::serve::{self, Sources};
use crate::cmd::wait::Progress;
use crate::daemon::{Daemon, Served, first};
use crate::engine::{self, AssemblyFlags, RunFlags};
use crate::failure::{Exit, Failure, Id, Result};
use crate::terminal::Terminal;

/// Assemble an array, replay its log after a crash, and stop it clean
///
/// Afterwards Linux md can start the array. With --dry-run nothing is written. To use the array,
/// run `parapet serve`.
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
    /// Show the assembled array, write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    assembly: AssemblyFlags,
    #[command(flatten)]
    run: RunFlags,
}

/// Interval of the checks for the end of the recovery.
const GLANCE: Duration = Duration::from_millis(100);
/// No further work is expected if none has started for this long.
const IDLE: Duration = Duration::from_secs(3);

pub(crate) fn run(mut args: Args, terminal: &Terminal) -> Result<Exit> {
    let executor = engine::executor()?;
    let on = executor.spawner();
    let signals = serve::catch(&on)?;
    args.assembly.read_only |= args.dry_run;
    executor.block_on(async {
        let daemon = Daemon::new(&on, None, 1)?;
        let (name, members) = (args.name.as_deref(), &args.members[..]);
        daemon.report_notes();
        let sources = Sources { name, members, scan: args.scan.as_deref() };
        let mut reports = Vec::new();
        for served in sources.gather(&args.assembly, &args.run, &daemon).await? {
            if !args.assembly.read_only {
                wait_until_idle(&daemon, &served, &signals, &on, terminal).await?;
            }
            let mut array = daemon.view(&served);
            // No server remains to accept the command, so start one first.
            for problem in &mut array.problems {
                let action = std::mem::take(&mut problem.action);
                problem.action = format!("parapet serve {} MEMBER…, then {action}", array.name);
            }
            let mut notes = served.notes().to_vec();
            // An array that became read-only is not recovered either.
            let reason = served.read_only().filter(|_| !args.assembly.read_only);
            let settled = !args.assembly.read_only && reason.is_none();
            notes.extend(reason.map(|why| format!("read-only: {why}")));
            reports.push(Assembled { array, notes, settled });
        }
        daemon.end();
        daemon.run(&signals).await?;
        reports.iter().for_each(|report| terminal.report(report));
        Ok(if daemon.lacks_others() { Exit::Failed } else { Exit::Done })
    })
}

/// Waits until no background work is running.
async fn wait_until_idle(
    daemon: &Daemon,
    served: &Served,
    signals: &Signals,
    on: &Spawner,
    terminal: &Terminal,
) -> Result<()> {
    let clock = on.clock();
    let mut progress = Progress::new(terminal);
    let settled = async {
        let mut busy = clock.now();
        loop {
            // Check at least once: the first turn of the keeper finds the work.
            clock.sleep_until(clock.now() + GLANCE).await;
            let array = daemon.view(served);
            let idle = array.job.is_none() && !array.is_filling();
            // Do not wait for a resync that cannot run, as in an array without redundancy left.
            if idle && (array.integrity.unsynced_bytes == 0 || clock.now() - busy >= IDLE) {
                return;
            }
            if !idle {
                busy = clock.now();
            }
            progress.show(&array);
        }
    };
    let interrupted = async {
        signals.next().await;
    };
    let done = first(settled, interrupted).await;
    terminal.undraw();
    if done.is_some() {
        return Ok(());
    }
    daemon.end();
    daemon.run(signals).await?;
    let message = format!("{}: interrupted before the recovery ended", served.name());
    Err(Failure::new(Id::Failed, message, "run it again: it goes on where it stopped"))
}
