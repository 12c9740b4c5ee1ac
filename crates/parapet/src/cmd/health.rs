//! `parapet health`: one line and an exit status, as monitoring plugins speak.

use crate::api::{Array, Health, Member, State, Verdict};
use crate::client;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// Say in one line whether all is well, as a monitoring plugin
///
/// Exit status: 0 ok; 1 warning (degraded but redundant, rebuilding, mismatches found,
/// a member's file deleted); 2 critical
/// (no redundancy left, or failed); 3 unknown.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The array, by name or UUID; all arrays if left out
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    control: Control,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let health = match arrays(args) {
        Ok(arrays) => of_all(&arrays),
        Err(failure) => Health {
            verdict: Verdict::Unknown,
            message: failure.message,
            performance: String::new(),
        },
    };
    terminal.report(&health);
    Ok(match health.verdict {
        Verdict::Ok => Exit::Done,
        // Plugins' statuses, not those of the other verbs: 1, 2 and 3.
        Verdict::Warning => Exit::Failed,
        Verdict::Critical => Exit::Usage,
        Verdict::Unknown => Exit::Refused,
    })
}

fn arrays(args: &Args) -> Result<Vec<Array>> {
    match &args.name {
        Some(name) => Ok(vec![client::find(args.control.path(), Some(name))?.1]),
        None => client::everything(args.control.path()).map(|list| list.arrays),
    }
}

fn of_all(arrays: &[Array]) -> Health {
    if arrays.is_empty() {
        let message = "no array is being served".into();
        return Health { verdict: Verdict::Unknown, message, performance: String::new() };
    }
    let verdict = arrays.iter().map(of_one).max().unwrap_or(Verdict::Unknown);
    let worst = arrays.iter().filter(|array| of_one(array) == verdict);
    let sentences: Vec<String> = worst.map(sentence).collect();
    let performance: Vec<String> = arrays.iter().map(performance).collect();
    Health { verdict, message: sentences.join("; "), performance: performance.join(" ") }
}

fn of_one(array: &Array) -> Verdict {
    let mismatches = array.last_scrub.as_ref().is_some_and(|scrub| scrub.mismatches > 0);
    let seated = array.slots.iter().filter_map(|slot| slot.member.as_ref());
    let troubled = |member: &Member| member.trouble.is_some() || member.bad_bytes > 0;
    let trouble = seated.chain(&array.spares).any(troubled);
    match array.state {
        State::Failed | State::Critical => Verdict::Critical,
        State::Degraded => Verdict::Warning,
        State::Healthy if array.job.is_some() || mismatches || trouble => Verdict::Warning,
        State::Healthy if array.redundancy_left < array.redundancy => Verdict::Warning,
        State::Healthy => Verdict::Ok,
    }
}

fn sentence(array: &Array) -> String {
    let problem = array.problems.first().map(|problem| format!(", {}", problem.message));
    format!("{} is {}{}", array.name, array.state.word(), problem.unwrap_or_default())
}

/// `'tank_redundancy'=1;;;0;2`: value, warning, critical, least, most.
fn performance(array: &Array) -> String {
    let name = &array.name;
    let spares = array.spares.len();
    let (left, most) = (array.redundancy_left, array.redundancy);
    format!("'{name}_redundancy'={left};;;0;{most} '{name}_spares'={spares};;;0")
}
