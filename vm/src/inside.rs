//! Commands of this program for a guest, which sees the host's files.
//!
//! Owns the words of its scripts for it. Never runs on the host.

mod attach;
mod exercise;
mod handshake;

use crate::failure::{Failure, Result};

/// Runs the command of a guest's script; does nothing on the host.
pub(crate) fn task(words: &[String]) -> Option<Result> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match *words.as_slice() {
        ["exercise", file, seed, least] => Some(exercise(file, seed, least, None)),
        ["exercise", file, seed, least, until] => Some(exercise(file, seed, least, Some(until))),
        ["attach", server, export, device, connections] => {
            Some(attach(server, export, device, connections))
        }
        _ => None,
    }
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T> {
    word.parse().map_err(|_| Failure::new(format!("{word} is no number")))
}

fn exercise(file: &str, seed: &str, least: &str, until: Option<&str>) -> Result {
    let order = exercise::Order { file: file.as_ref(), seed: number(seed)?, least: number(least)? };
    exercise::run(&order, until.map(str::as_ref))
}

fn attach(server: &str, export: &str, device: &str, connections: &str) -> Result {
    attach::run(server, export, number(device)?, number(connections)?)
}
