//! `cargo xtask torture`: the real program, killed for real, on members that lose what was not
//! flushed.
//!
//! The simulator tries the engine; this tries the rest too: the program's own ways of opening,
//! writing and flushing files, its server, and the kernel below. Each round follows from its seed
//! (what is made, and what happens to it; not the moment), and says how to repeat it.
//!
//! ```text
//!   clients ──NBD──▶ parapet serve ──io_uring──▶ kernel ──FUSE──▶ members  (all but the middle
//!      └──── oracle: what each sector may hold                     └─ medium  two live in here)
//! ```

mod client;
mod fio;
mod fuse;
mod load;
mod medium;
mod members;
mod oracle;
mod plan;
mod program;
mod random;
mod round;
mod warden;

use crate::failure::Failure;
use crate::{shell, tools};
use members::Members;
use plan::Plan;
use program::Program;
use random::Random;
use round::{Round, SPARES, Tally};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use warden::Warden;

/// What is asked for.
struct Order {
    rounds: u64,
    /// No round begins after these.
    seconds: Option<u64>,
    seed: u64,
    level: Option<String>,
    /// Built already.
    program: Option<PathBuf>,
    /// Nothing may be in doubt: for an engine without a write hole.
    strict: bool,
    /// In this way the engine is broken (`array/src/broken.rs`), and a round must see it.
    broken: Option<String>,
}

/// `--rounds N`, or as many as begin within `--seconds N`; `--seed S` (the first one), `--level L`,
/// `--program PATH`, `--strict`. `--broken WAY`: the test of the test.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let order = parse(arguments)?;
    if !tools::is_root() {
        println!("NOT TRIED: its members are a file system, which only root may mount");
        return Ok(());
    }
    let root = shell::root()?;
    let program = order.program.clone().map_or_else(|| build(&root, &order), Ok)?;
    let begun = Instant::now();
    let (mut sum, mut rounds) = (Tally::default(), 0);
    let time = || order.seconds.is_none_or(|seconds| begun.elapsed().as_secs() < seconds);
    for seed in (order.seed..order.seed + order.rounds).take_while(|_| time()) {
        rounds += 1;
        let plan = Plan::new(seed, order.level.as_deref());
        let started = Instant::now();
        match one(seed, &plan, &program, order.broken.as_deref()) {
            Ok(tally) if order.strict && tally.doubts + tally.refusals > 0 => {
                return Err(failed(seed, &order, "something is in doubt"));
            }
            Ok(tally) => {
                add(&mut sum, &tally);
                println!("{seed}: {plan}: {:.1} s", started.elapsed().as_secs_f64());
            }
            Err(what) => {
                println!("{seed}: {plan}: FAILED");
                let Some(way) = &order.broken else { return Err(failed(seed, &order, &what)) };
                println!("{way}: seen by round {rounds}: {what}");
                return Ok(());
            }
        }
    }
    report(&sum, rounds, begun.elapsed().as_secs_f64());
    order.broken.map_or(Ok(()), |way| {
        Err(Failure::new(format!("{way}: {rounds} rounds have not seen it"), "try more of them"))
    })
}

fn parse(arguments: &[String]) -> Result<Order, Failure> {
    let usage = |what: String| {
        let takes = "--rounds N, --seconds N, --seed N, --level L, --program PATH, --strict";
        Failure::new(what, format!("it takes {takes} and --broken WAY"))
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let seed = now % 1_000_000 * 1000;
    let (rounds, seconds, level, program) = (10, None, None, None);
    let mut order = Order { rounds, seconds, seed, level, program, strict: false, broken: None };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--strict" {
            order.strict = true;
            continue;
        }
        let value = words.next().ok_or_else(|| usage(format!("{word} of what?")))?;
        let number = || value.parse().map_err(|_| usage(format!("{value:?} is no number")));
        match word.as_str() {
            "--rounds" => order.rounds = number()?,
            "--seconds" => {
                (order.seconds, order.rounds) = (Some(number()?), u64::from(u32::MAX));
            }
            "--seed" => order.seed = number()?,
            "--program" => order.program = std::fs::canonicalize(value).ok(),
            "--broken" => order.broken = Some(value.clone()),
            "--level" if plan::is_level(value) => order.level = Some(value.clone()),
            _ => return Err(usage(format!("what is {word} {value}?"))),
        }
    }
    Ok(order)
}

fn failed(seed: u64, order: &Order, what: &str) -> Failure {
    let level = order.level.iter().map(|level| format!(" --level {level}")).collect::<String>();
    let again = format!("again: cargo xtask torture --rounds 1 --seed {seed}{level}");
    Failure::new(format!("seed {seed}: {what}"), again)
}

/// The program, with all assertions. One that can be broken is kept apart from that which is used.
fn build(root: &Path, order: &Order) -> Result<PathBuf, Failure> {
    let apart: &[_] = match order.broken {
        Some(_) => &["--features", "array/broken", "--target-dir", "target/broken"],
        None => &[],
    };
    shell::built(root, &[&["cargo", "build", "-q", "-p", "parapet"], apart].concat(), "parapet")
}

/// One round, in a folder that goes with it unless it fails.
fn one(seed: u64, plan: &Plan, program: &Path, broken: Option<&str>) -> Result<Tally, String> {
    let told = |failure: Failure| failure.to_string();
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let folder = parent.join(format!("parapet-torture-{}-{seed}", std::process::id()));
    let made = ["run", "members"].map(|name| std::fs::create_dir_all(folder.join(name)));
    made.into_iter().collect::<Result<(), _>>().map_err(|error| error.to_string())?;
    let warden = Warden::new(&folder).map_err(told)?;
    let (place, count) = (folder.join("members"), plan.members + SPARES);
    let (bytes, random) = (plan.member_mebibytes << 20, Random::new(seed, 2));
    let members =
        Members::mount(&place, count, bytes, plan.delay, random, &warden).map_err(told)?;
    let program = Program { path: program, folder: &folder, warden: &warden, broken };
    let mut round = Round::new(plan, program, &members, Random::new(seed, 3));
    let ended = round.run();
    let (tally, story) = (round.tally, std::mem::take(&mut round.story));
    drop(round);
    ended.map(|()| tally).map_err(|what| {
        let mut text = format!("seed {seed}: {plan}\n\n");
        story.iter().for_each(|line| text += &format!("{line}\n"));
        let _ = writeln!(text, "\n{what}");
        let kept = std::fs::create_dir_all(folder.join("images"))
            .and_then(|()| members.save(&folder.join("images")))
            .and_then(|()| std::fs::write(folder.join("story"), &text));
        let place = folder.display();
        match kept {
            Ok(()) => format!("{what}\nits story, log and members lie in {place}"),
            Err(error) => format!("{what}\n{place}: {error}"),
        }
    })
}

fn add(sum: &mut Tally, tally: &Tally) {
    sum.kills += tally.kills;
    sum.cuts += tally.cuts;
    sum.vanished += tally.vanished;
    sum.answers += tally.answers;
    sum.verified += tally.verified;
    sum.at_stake += tally.at_stake;
    sum.lost += tally.lost;
    sum.doubts += tally.doubts;
    sum.refusals += tally.refusals;
}

fn report(sum: &Tally, rounds: u64, seconds: f64) {
    println!();
    println!("{rounds} rounds, {:.2} s each", seconds / rounds.max(1) as f64);
    println!("{} kills, {} power cuts, {} members vanished", sum.kills, sum.cuts, sum.vanished);
    println!("{} of {} unflushed sectors lost", sum.lost, sum.at_stake);
    println!("{} requests answered, {} MiB verified", sum.answers, sum.verified >> 20);
    println!("{} blocks in doubt, {} starts refused", sum.doubts, sum.refusals);
}
