//! `parapet wait`: waits until background work is done, and shows its progress.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use io::{Clock, Time};
use os::Spawner;

use crate::api::{Array, Job, JobKind, SlotState, Waited, When};
use crate::client;
use crate::cmd::serve;
use crate::daemon::first;
use crate::engine;
use crate::failure::{Exit, Failure, Id, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// Interval of the requests to the server.
const PACE: Duration = Duration::from_millis(250);
/// Without a terminal, print a line after this many percent.
const STEP_PERCENT: f64 = 5.0;

/// Wait for background work to finish
///
/// Ctrl-C ends the wait; the work continues.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or UUID of the array [default: the only one]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Condition
    #[arg(long = "for", value_name = "WHAT", default_value = "idle")]
    what: What,
    /// Give up after this time; the work continues
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    #[command(flatten)]
    control: Control,
}

/// Problem ids of arrays with missing members, and of arrays out of sync.
const SHORT: &[&str] = &["PPT-8001", "PPT-8002", "PPT-8003"];
const UNSYNCED: &[&str] = &["PPT-8010", "PPT-8011"];

/// What to wait for.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// No background work
    Idle,
    /// No rebuild or replacement
    Rebuild,
    /// All data in sync
    Resync,
    /// No scrub
    Scrub,
    /// Every slot has a member in sync
    Whole,
}

impl What {
    fn is_reached(self, array: &Array) -> bool {
        let kind = array.job.as_ref().map(|job| job.kind);
        let filling = array.is_filling();
        match self {
            What::Idle => kind.is_none() && !filling && !array.is_syncing(),
            What::Rebuild => !matches!(kind, Some(JobKind::Rebuild | JobKind::Replace)) && !filling,
            What::Resync => kind != Some(JobKind::Resync) && array.integrity.unsynced_bytes == 0,
            What::Scrub => !matches!(kind, Some(JobKind::Check | JobKind::Repair)),
            What::Whole => array.slots.iter().all(|slot| slot.state == SlotState::InSync),
        }
    }

    /// Refuses to wait for a state that the array cannot reach by itself.
    fn refuse_unreachable(self, array: &Array) -> Result<()> {
        let (why, ids) = match self {
            What::Whole => (array.stays_short(), SHORT.to_vec()),
            What::Resync => (array.stays_unsynced(), [SHORT, UNSYNCED].concat()),
            What::Idle | What::Rebuild | What::Scrub => return Ok(()),
        };
        let Some(why) = why else { return Ok(()) };
        let mut problems = array.problems.iter();
        let known = problems.find(|problem| ids.contains(&problem.id.as_str()));
        let action = known
            .map(|problem| problem.action.clone())
            .unwrap_or_else(|| format!("parapet status {} shows how it is", array.name));
        Err(Failure::new(Id::WrongState, why, action))
    }
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let executor = engine::executor()?;
    let on = executor.spawner();
    let signals = serve::catch(&on)?;
    let detached = async {
        signals.next().await;
    };
    let outcome = executor.block_on(first(wait(args, terminal, &on), detached));
    outcome.unwrap_or_else(|| {
        terminal.undraw();
        let action = "the work goes on; parapet when shows how far it is";
        Err(Failure::new(Id::TimedOut, "stopped waiting", action))
    })
}

async fn wait(args: &Args, terminal: &Terminal, on: &Spawner) -> Result<Exit> {
    let clock = on.clock();
    let began = Instant::now();
    let end = args.timeout.map(|seconds| clock.now() + Duration::from_secs(seconds));
    let (path, name) = (args.control.path().map(Path::to_owned), args.name.clone());
    let find = move || client::find(path.as_deref(), name.as_deref());
    let (client, mut array) = with_timeout(find, end, on).await?;
    let mut progress = Progress::new(terminal);
    while !args.what.is_reached(&array) {
        if let Err(refusal) = args.what.refuse_unreachable(&array) {
            terminal.undraw();
            return Err(refusal);
        }
        if args.timeout.is_some_and(|seconds| began.elapsed() >= Duration::from_secs(seconds)) {
            terminal.undraw();
            let message = timeout_message(&array, began.elapsed(), terminal);
            let action = "the work goes on; parapet when shows how far it is";
            return Err(Failure::new(Id::TimedOut, message, action));
        }
        progress.show(&array);
        clock.sleep_until(clock.now() + PACE).await;
        let (client, uuid) = (client.clone(), array.uuid.clone());
        array = with_timeout(move || client.array(&uuid), end, on).await?;
    }
    terminal.undraw();
    let seconds = (began.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    terminal.report(&Waited { name: array.name.clone(), seconds, array });
    Ok(Exit::Done)
}

/// `tank: gave up after 5 s; rebuild 7.8 % …`.
fn timeout_message(array: &Array, after: Duration, terminal: &Terminal) -> String {
    let job = array.job.as_ref().map(|job| job.sentence(&terminal.page()));
    let job = job.unwrap_or_else(|| "nothing is being done in the background".into());
    format!("{}: gave up after {} s; {job}", array.name, after.as_secs())
}

/// Sends a request to the server, with a timeout: it may not answer.
async fn with_timeout<T: Send + 'static>(
    ask: impl FnOnce() -> Result<T> + Send + 'static,
    end: Option<Time>,
    on: &Spawner,
) -> Result<T> {
    let answer = os::threads::aside(ask).map_err(|error| {
        let message = format!("no thread can be had: {error}");
        Failure::new(Id::Failed, message, "see the limit of processes")
    })?;
    let Some(end) = end else { return answer.await };
    // Allow one more interval for a late answer; the caller then checks the time limit.
    let grace = end.max(on.clock().now() + PACE);
    first(answer, on.clock().sleep_until(grace)).await.unwrap_or_else(|| {
        let action = "see what keeps it: its log, and the disks that it waits for";
        Err(Failure::new(Id::TimedOut, "the server has not answered in time", action))
    })
}

/// Progress. On a terminal, standard error shows one line, redrawn; otherwise one line for each
/// step. With `--json`, standard output gets a line of JSON for each step.
pub(crate) struct Progress<'a> {
    terminal: &'a Terminal,
    shown: Option<(JobKind, f64)>,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(terminal: &'a Terminal) -> Progress<'a> {
        Progress { terminal, shown: None }
    }

    /// Shows the progress of the array's job.
    pub(crate) fn show(&mut self, array: &Array) {
        // A job that has just begun does not report its size yet.
        let job = array.job.as_ref().filter(|job| job.total_bytes > 0);
        let Some(job) = job.filter(|_| !self.terminal.is_quiet()) else { return };
        if self.terminal.is_moving() {
            return self.terminal.draw(&bar(job), &job.sentence(&self.terminal.page()));
        }
        let due = self.shown.is_none_or(|(kind, percent)| {
            kind != job.kind || job.percent >= percent + STEP_PERCENT || job.percent < percent
        });
        if !due {
            return;
        }
        self.shown = Some((job.kind, job.percent));
        if self.terminal.is_json() {
            let (name, uuid) = (array.name.clone(), array.uuid.clone());
            let when = When { name, uuid, job: Some(job.clone()), expected: None };
            return self.terminal.stream(&when);
        }
        self.terminal.say(format!("{}: {}", array.name, job.sentence(&self.terminal.page())));
    }
}

fn bar(job: &Job) -> String {
    let full = (job.percent / 5.0) as usize;
    format!("[{}{}]", "#".repeat(full.min(20)), "-".repeat(20 - full.min(20)))
}
