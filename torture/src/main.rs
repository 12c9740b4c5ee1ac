//! `torture`: kills the real program, on members that lose unflushed writes.
//!
//! The simulator tests the engine alone; this tests the program around it: how it opens, writes and
//! flushes files, its server, and the kernel below. A round follows from its seed (the array and
//! the faults, not the exact moments) and prints the command that repeats it. Started by
//! `cargo xtask torture`, which builds the program first.
//!
//! ```text
//!   clients ──NBD──▶ parapet serve ──io_uring──▶ kernel ──FUSE──▶ members  (this process is
//!      └──── oracle: the values a sector may hold                  └─ medium   both ends)
//! ```
#![forbid(unsafe_code)]

mod fio;
mod fuse;
mod load;
mod medium;
mod members;
mod options;
mod oracle;
mod plan;
mod program;
mod round;

use members::Members;
use options::Options;
use parapet_torture::process_group::ProcessGroup;
use parapet_torture::random::Random;
use plan::Plan;
use program::Program;
use round::{Round, SPARES, Tally};
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|word| matches!(word.as_str(), "--help" | "-h")) {
        println!("{}", options::USAGE);
        return ExitCode::SUCCESS;
    }
    match Options::parse(&arguments).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("torture: {what}");
            ExitCode::FAILURE
        }
    }
}

/// Runs rounds until one fails, or until their number or their time is exhausted.
fn run(options: &Options) -> Result<(), String> {
    let begun = Instant::now();
    let (mut sum, mut rounds) = (Tally::default(), 0);
    let time = || options.seconds.is_none_or(|seconds| begun.elapsed().as_secs() < seconds);
    for seed in (options.seed..options.seed + options.rounds).take_while(|_| time()) {
        rounds += 1;
        let plan = Plan::new(seed, options.level.as_deref());
        let started = Instant::now();
        match one(seed, &plan, options) {
            Ok(tally) if options.strict && tally.unverified + tally.refusals > 0 => {
                return Err(failed(seed, options, "a block or a start is unverified"));
            }
            Ok(tally) => {
                add(&mut sum, &tally);
                println!("{seed}: {plan}: {:.1} s", started.elapsed().as_secs_f64());
            }
            Err(what) => {
                println!("{seed}: {plan}: FAILED");
                let Some(way) = &options.broken else { return Err(failed(seed, options, &what)) };
                println!("{way}: detected by round {rounds}: {what}");
                return Ok(());
            }
        }
    }
    report(&sum, rounds, begun.elapsed().as_secs_f64());
    options.broken.as_ref().map_or(Ok(()), |way| {
        Err(format!("{way}: not detected in {rounds} rounds; run more of them"))
    })
}

fn failed(seed: u64, options: &Options, what: &str) -> String {
    let level = options.level.iter().map(|level| format!(" --level {level}")).collect::<String>();
    format!("seed {seed}: {what}; repeat: cargo xtask torture --rounds 1 --seed {seed}{level}")
}

/// One round, in a folder that is removed unless the round fails.
fn one(seed: u64, plan: &Plan, options: &Options) -> Result<Tally, String> {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let folder = parent.join(format!("parapet-torture-{}-{seed}", std::process::id()));
    let made = ["run", "members"].map(|name| std::fs::create_dir_all(folder.join(name)));
    made.into_iter().collect::<Result<(), _>>().map_err(|error| error.to_string())?;
    let group = ProcessGroup::new(&folder)?;
    let (place, count) = (folder.join("members"), plan.members + SPARES);
    let (bytes, random) = (plan.member_mebibytes << 20, Random::new(seed, 2));
    let members = Members::mount(&place, count, bytes, plan.delay, random, &group)?;
    let broken = options.broken.as_deref();
    let program = Program { path: &options.program, folder: &folder, group: &group, broken };
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
            Ok(()) => format!("{what}\nstory, log and members are kept in {place}"),
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
    sum.unverified += tally.unverified;
    sum.refusals += tally.refusals;
}

fn report(sum: &Tally, rounds: u64, seconds: f64) {
    println!();
    println!("{rounds} rounds, {:.2} s each", seconds / rounds.max(1) as f64);
    println!("{} kills, {} power cuts, {} members vanished", sum.kills, sum.cuts, sum.vanished);
    println!("{} of {} unflushed sectors lost", sum.lost, sum.at_stake);
    println!("{} requests answered, {} MiB verified", sum.answers, sum.verified >> 20);
    println!("{} blocks unverified, {} starts refused", sum.unverified, sum.refusals);
}
