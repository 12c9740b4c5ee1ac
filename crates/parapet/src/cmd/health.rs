//! `parapet health`: one line and an exit status, in the form of monitoring plugins.

use crate::api::{Array, Health, Job, JobKind, List, Problem, State, Verdict};
use crate::client;
use crate::failure::{Exit, Id, Result};
use crate::flags::{AnswerTimeout, Control};
use crate::terminal::Terminal;

/// Report the health of arrays in one line, as a monitoring plugin
///
/// Exit status: 0 ok; 1 warning (degraded but redundant, rebuilding, mismatches or checksum errors
/// found, a member's file deleted); 2 critical (no redundancy left, failed, or its server does not
/// answer); 3 unknown (no such array, permission denied, wrong command line).
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or UUID of the array [default: all arrays]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    control: Control,
    #[command(flatten)]
    timeout: AnswerTimeout,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let health = match arrays(args) {
        Ok(list) => of_all(&list),
        Err(failure) => Health {
            // A server that does not answer serves no data.
            verdict: match failure.id {
                Id::Unreachable => Verdict::Critical,
                _ => Verdict::Unknown,
            },
            message: failure.message,
            performance: String::new(),
        },
    };
    terminal.report(&health);
    Ok(match health.verdict {
        Verdict::Ok => Exit::Done,
        // The statuses of monitoring plugins differ from those of the other verbs: 1, 2 and 3.
        Verdict::Warning => Exit::Failed,
        Verdict::Critical => Exit::Usage,
        Verdict::Unknown => Exit::Refused,
    })
}

fn arrays(args: &Args) -> Result<List> {
    match &args.name {
        Some(name) => {
            let arrays =
                vec![client::find_within(args.control.path(), Some(name), args.timeout.get())?.1];
            Ok(List { arrays, ..List::default() })
        }
        None => client::everything(args.control.path(), args.timeout.get()),
    }
}

fn of_all(list: &List) -> Health {
    let List { arrays, silent, .. } = list;
    if arrays.is_empty() && silent.is_empty() {
        let message = "no array is being served".into();
        return Health { verdict: Verdict::Unknown, message, performance: String::new() };
    }
    let verdict = arrays.iter().map(of_one).max().unwrap_or(Verdict::Unknown);
    let verdict = match silent.len() {
        0 => verdict,
        // The server may be well: this user may not ask it.
        count if count == list.denied && verdict != Verdict::Critical => Verdict::Unknown,
        // A server that does not answer serves no data.
        _ => Verdict::Critical,
    };
    let mut worst_first: Vec<&Array> = arrays.iter().collect();
    worst_first.sort_by_key(|array| std::cmp::Reverse(of_one(array)));
    // Omit healthy arrays while others have problems.
    let reasons_text =
        worst_first.iter().filter(|array| verdict == Verdict::Ok || of_one(array) > Verdict::Ok);
    let reasons_text = reasons_text.map(|array| sentence(array));
    let sentences: Vec<String> = silent.iter().cloned().chain(reasons_text).collect();
    let performance: Vec<String> = arrays.iter().map(performance).collect();
    Health { verdict, message: sentences.join("; "), performance: performance.join(" ") }
}

fn of_one(array: &Array) -> Verdict {
    let full = array.problems.iter().any(|problem| problem.id == "PPT-8019");
    match array.state {
        _ if full => Verdict::Critical,
        State::Failed | State::Critical => Verdict::Critical,
        State::Degraded => Verdict::Warning,
        State::Healthy if calls(array) => Verdict::Warning,
        State::Healthy => Verdict::Ok,
    }
}

/// Returns true if a healthy array needs attention. Repaired read errors do not count.
fn calls(array: &Array) -> bool {
    let problem = array.problems.iter().any(|problem| problem.id != "PPT-8006");
    let scrub = |job: &&Job| matches!(job.kind, JobKind::Check | JobKind::Repair);
    let work = array.job.as_ref().is_some_and(|job| !scrub(&job));
    let trouble = array.spares.iter().any(|spare| spare.trouble.is_some());
    problem || work || trouble || array.redundancy_left < array.redundancy
}

/// Lists all problems, most serious first, then the running job.
fn reasons(array: &Array) -> Vec<String> {
    let mut problems: Vec<&Problem> = array.problems.iter().collect();
    problems.sort_by_key(|problem| severity(problem));
    let problems = problems.into_iter().map(|problem| problem.message.clone());
    let spares = array
        .spares
        .iter()
        .filter_map(|spare| Some(format!("spare {}: {}", spare.name, spare.trouble.as_ref()?)));
    let job = array.job.as_ref().map(|job| format!("{} {:.0} %", job.kind.word(), job.percent));
    problems.chain(spares).chain(job).collect()
}

/// Ranks a problem: data loss comes first, then missing redundancy.
fn severity(problem: &Problem) -> usize {
    const MOST_SERIOUS_FIRST: [&str; 17] = [
        "PPT-8003", "PPT-8019", "PPT-8012", "PPT-8014", "PPT-8002", "PPT-8018", "PPT-8010",
        "PPT-8011", "PPT-8001", "PPT-8004", "PPT-8007", "PPT-8020", "PPT-8005", "PPT-8016",
        "PPT-8017", "PPT-8015", "PPT-8013",
    ];
    let place = MOST_SERIOUS_FIRST.iter().position(|&id| id == problem.id);
    place.unwrap_or(MOST_SERIOUS_FIRST.len())
}

/// Describes the problems, or that there are none, and the running job.
fn sentence(array: &Array) -> String {
    let reasons_text = reasons(array).join(", ");
    match (of_one(array), array.state) {
        (Verdict::Warning, _) if reasons_text.is_empty() => {
            format!("{}: less redundancy than there should be", array.name)
        }
        (_, state) if reasons_text.is_empty() => format!("{} {}", array.name, state.is_word()),
        (_, State::Healthy) => format!("{}: {reasons_text}", array.name),
        (_, state) => format!("{} {}, {reasons_text}", array.name, state.is_word()),
    }
}

/// `'tank_redundancy'=1;;;0;2`: value, warning, critical, least, most.
fn performance(array: &Array) -> String {
    let name = &array.name;
    let spares = array.spares.len();
    let (left, most) = (array.redundancy_left, array.redundancy);
    format!("'{name}_redundancy'={left};;;0;{most} '{name}_spares'={spares};;;0")
}
