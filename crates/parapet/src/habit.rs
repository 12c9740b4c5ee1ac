//! Advice for verbs that Parapet does not have: those of other tools, and misspelt ones.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::flags::Cli;

/// Verbs that users of mdadm, zpool and similar tools type, and the command for each purpose here.
const HABITS: &[(&[&str], &str)] = &[
    (
        &["top", "watch"],
        "to watch an array: parapet status NAME --watch 2; parapet iostat NAME -i 2",
    ),
    (&["monitor", "check"], "to monitor: parapet health; to compare all data: parapet scrub NAME"),
    (&["stat", "show", "query", "info", "mdstat"], "parapet status NAME, or parapet examine DISK"),
    (&["spare", "add-spare"], "parapet add NAME DISK"),
    (&["zero-superblock", "labelclear", "wipe"], "parapet destroy NAME MEMBER…"),
    (&["export"], "to stop an array: parapet stop NAME; to serve it: parapet serve NAME MEMBER…"),
    (&["run", "up"], "parapet serve NAME MEMBER… --nbd ADDRESS"),
    (&["eject", "down"], "parapet stop NAME"),
    (&["make"], "parapet create NAME --level LEVEL DISK…"),
    (&["repair"], "parapet scrub NAME repair"),
    (&["resilver", "progress"], "parapet when NAME"),
    (&["log"], "parapet events NAME; the log of `parapet serve` has commands, too"),
    (&["grow", "resize", "reshape", "expand"], "this version cannot change the shape of an array"),
    (&["rename"], "this version cannot rename an array"),
];

/// Maximum number of wrong letters in a misspelt verb.
const MOST_WRONG: usize = 2;

/// Replaces the parser's guesses at an unknown verb by advice that fits.
pub(crate) fn advised(mut error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let Some(ContextValue::String(verb)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let tip = advice(verb);
    error.remove(ContextKind::SuggestedSubcommand);
    error.remove(ContextKind::Suggested);
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn advice(verb: &str) -> Option<String> {
    let verb = verb.trim_start_matches('-').to_lowercase();
    if let Some((_, tip)) = HABITS.iter().find(|(verbs, _)| verbs.contains(&verb.as_str())) {
        return Some((*tip).into());
    }
    let verbs = Cli::command();
    let near = verbs.get_subcommands().map(|known| (distance(&verb, known.get_name()), known));
    let (wrong, nearest) = near.min_by_key(|(wrong, _)| *wrong)?;
    let is_near = wrong <= MOST_WRONG && wrong * 2 < verb.chars().count();
    is_near.then(|| format!("a similar verb exists: {}", nearest.get_name()))
}

/// Returns the number of letters to insert, delete or replace to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for column in 0..other.len() {
            let replaced = diagonal + usize::from(letter != other[column]);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_only_verbs_that_exist() {
        let verbs = Cli::command();
        for (typed, tip) in HABITS {
            for (_, rest) in
                tip.match_indices("parapet ").map(|(at, word)| tip.split_at(at + word.len()))
            {
                let verb = rest.split([' ', ';', '`']).next().unwrap();
                assert!(verbs.find_subcommand(verb).is_some(), "{tip}");
            }
            for typed in *typed {
                assert!(verbs.find_subcommand(typed).is_none(), "{typed} is a verb");
            }
        }
    }

    #[test]
    fn a_misspelt_verb_is_guessed_and_a_strange_one_is_not() {
        assert_eq!(advice("staus").unwrap(), "a similar verb exists: status");
        assert_eq!(advice("replce").unwrap(), "a similar verb exists: replace");
        assert_eq!(advice("--repair").unwrap(), "parapet scrub NAME repair");
        assert!(advice("top").unwrap().contains("parapet status NAME --watch"));
        for strange in ["foo", "fix", "policy", "locate", "x"] {
            assert_eq!(advice(strange), None, "{strange}");
        }
    }
}
