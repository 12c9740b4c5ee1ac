//! Completions with live values: a shell asks the program, and the program asks the servers.
//!
//! ```text
//!    shell ── PARAPET_COMPLETE=bash parapet -- WORD… ──▶ clap_complete ──▶ arrays, members
//!    parapet completions bash: the lines that tell the shell to do so          │
//!                                                     control sockets ◀────────┘
//! ```

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ValueHint;
use clap::{Arg, Command, CommandFactory};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, EnvCompleter, Shells};

use crate::api::{Array, Member};
use crate::client;
use crate::flags::{Cli, unix_path};

/// Its value is the name of the asking shell.
const VARIABLE: &str = "PARAPET_COMPLETE";
/// A user waits for completions.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers a shell and ends the program, if a shell has started it.
pub(crate) fn answer() {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// Returns what a shell must run to ask the program for completions; `None` for an unknown shell.
pub(crate) fn registration(shell: &str) -> Option<String> {
    let shells = Shells::builtins();
    let mut text = Vec::new();
    let shell: &dyn EnvCompleter = shells.completer(shell)?;
    shell.write_registration(VARIABLE, "parapet", "parapet", "parapet", &mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The command line, with values of the moment.
fn command() -> Command {
    live(Cli::command())
}

fn live(command: Command) -> Command {
    // Only the verbs that send requests to a server have this option.
    let is_request = command.get_arguments().any(|arg| arg.get_id() == "control");
    let value = move |arg: Arg| match (value_name(&arg).as_str(), is_request) {
        ("NAME", true) => arg.add(ArgValueCandidates::new(arrays)),
        ("MEMBER", true) => arg.add(ArgValueCandidates::new(members)),
        ("DISK" | "FILE" | "IMAGE" | "DEVICE", _) => arg.value_hint(ValueHint::FilePath),
        ("DIR", _) => arg.value_hint(ValueHint::DirPath),
        _ => arg,
    };
    command.mut_args(value).mut_subcommands(live)
}

fn value_name(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    names.first().map_or_else(String::new, ToString::to_string)
}

fn arrays() -> Vec<CompletionCandidate> {
    let help = |array: &Array| format!("{}, {}", array.level, array.state.word());
    served().iter().map(|it| candidate(&it.name, help(it))).collect()
}

/// Members of the array that the command line names, or else of all.
fn members() -> Vec<CompletionCandidate> {
    let words = words();
    let mut arrays = served();
    if arrays.iter().any(|array| words.contains(&array.name)) {
        arrays.retain(|array| words.contains(&array.name));
    }
    arrays.iter().flat_map(members_of).collect()
}

fn members_of(array: &Array) -> Vec<CompletionCandidate> {
    let in_slots = array.slots.iter().filter_map(|slot| {
        let member = slot.member.as_ref()?;
        Some(candidate(&slot.slot.to_string(), member.name.clone()))
    });
    let path = |member: &Member, help: &str| candidate(&member.name, help.into());
    let spares = array.spares.iter().map(|member| path(member, "spare"));
    let faulty = array.faulty.iter().map(|member| path(member, "faulty"));
    in_slots.chain(spares).chain(faulty).collect()
}

fn candidate(value: &str, help: String) -> CompletionCandidate {
    CompletionCandidate::new(value).help(Some(help.into()))
}

/// Nothing if no server answers: a shell cannot show an error.
fn served() -> Vec<Array> {
    let list = client::everything(control().as_deref(), PATIENCE);
    list.map(|list| list.arrays).unwrap_or_default()
}

/// The server that the command line names.
fn control() -> Option<PathBuf> {
    let words = words();
    let after = |word: &String| word == "--control";
    let written = words.iter().position(after).and_then(|at| words.get(at + 1).cloned());
    let joined = || words.iter().find_map(|word| word.strip_prefix("--control=").map(Into::into));
    let named = written.or_else(joined).or_else(|| std::env::var("PARAPET_CONTROL").ok())?;
    unix_path(&named).ok()
}

/// The words to complete: they follow the `--` of the shell's call.
fn words() -> Vec<String> {
    let words = std::env::args_os().skip_while(|word| word != OsStr::new("--")).skip(1);
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_is_told_to_ask_the_program() {
        for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
            let text = registration(shell).unwrap();
            assert!(text.contains(VARIABLE) && text.contains("parapet"), "{shell}: {text}");
        }
        assert!(registration("dash").is_none());
    }

    #[test]
    fn values_are_live_only_where_a_server_is_asked() {
        let command = command();
        let arg = |verb: &str, id: &str| {
            let verb = command.find_subcommand(verb).unwrap();
            verb.get_arguments().find(|arg| arg.get_id() == id).unwrap().clone()
        };
        let is_live = |verb, id| arg(verb, id).get::<ArgValueCandidates>().is_some();
        assert!(is_live("fail", "name") && is_live("fail", "member") && is_live("jobs", "name"));
        assert!(!is_live("create", "name") && !is_live("add", "disk"));
        assert_eq!(arg("add", "disk").get_value_hint(), ValueHint::FilePath);
    }
}
