//! The everyday build beside that of packages: the NBD loads on both programs, in turn.

use super::nbd::fio::{self, Load};
use super::nbd::stand::{Options, Server, Stand};
use super::row::{Row, Unit};
use crate::failure::Failure;
use crate::shell;
use serde_json::Value;
use std::path::Path;

/// The least rate of the everyday build, as a share of that of `dist`.
const WANTED: f64 = 0.9;
/// Rounds of a load, each on both programs; odd, for the median.
const ROUNDS: [usize; 2] = [5, 9];
/// How long a load runs in a round.
const MILLIS: u32 = 800;

const LOADS: [Load; 5] = [
    Load::new("write", 1024, 8),
    Load::new("read", 1024, 8),
    Load::new("randwrite", 4, 32),
    Load::new("randread", 4, 32),
    Load::new("randread", 4, 1),
];

/// Levels with their numbers of members.
const LEVELS: [(&str, usize); 3] = [("0", 4), ("5", 5), ("6", 6)];

/// Measures; gives the rows.
pub(super) fn measure(root: &Path, full: bool) -> Result<Vec<Value>, Failure> {
    let everyday = Stand::new(root)?;
    let shipped = Stand::of(shell::shipped(root)?, "dist")?;
    let mut rows = Vec::new();
    for (level, members) in LEVELS {
        let name = format!("raid{level}");
        let start = |stand: &Stand| stand.parapet(&name, level, members, Options::NONE);
        let servers = [start(&everyday)?, start(&shipped)?];
        for server in &servers {
            fio::fill(server)?;
        }
        for load in &LOADS {
            rows.push(side_by_side(&name, load, &servers, ROUNDS[usize::from(full)])?);
        }
    }
    Ok(rows)
}

/// A load on both; which one is first changes with each round.
fn side_by_side(
    array: &str,
    load: &Load,
    [everyday, shipped]: &[Server; 2],
    rounds: usize,
) -> Result<Value, Failure> {
    let unit = if load.is_large() { Unit::Megabytes } else { Unit::Thousands };
    let mut row = Row::more_is_better(&format!("{array}, {}", load.name()), unit);
    row.target(Some(WANTED));
    for round in 0..rounds {
        let rate = |server| Ok::<_, Failure>(fio::run(load, MILLIS, server)?.rate(load));
        let (ours, theirs) = if round % 2 == 0 {
            let ours = rate(everyday)?;
            (ours, rate(shipped)?)
        } else {
            let theirs = rate(shipped)?;
            (rate(everyday)?, theirs)
        };
        row.ours(ours);
        row.peer("dist", theirs);
    }
    Ok(row.finish())
}
