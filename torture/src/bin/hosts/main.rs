//! `hosts`: a cluster of real processes on hosts, which are killed, paused and cut off.
//!
//! The simulator of the cluster tests the protocol alone; this tests everything around it: three
//! etcds, members, coordinators and clients as processes, TCP between network namespaces, and the
//! clock. Started by `cargo xtask hosts`, which builds the program first.
//!
//! ```text
//!   host 1                    host 2                    host 3
//!   load ─NBD─▶ client        load ─NBD─▶ client        load ─NBD─▶ client
//!    │          coordinator    │          coordinator    │          coordinator
//!    │          member, etcd   │          member, etcd   │          member, etcd
//!    └─ history: the values that each 512 bytes may hold, and the longest request
//! ```
#![forbid(unsafe_code)]

mod drill;
mod fault;
mod history;
mod load;
mod network;
mod options;
mod processes;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use drill::{Drill, Row};
use fault::{FAULTS, Fault, PAIRS};
use network::Network;
use options::Options;
use parapet_torture::process_group::ProcessGroup;
use processes::Processes;

/// I/O shall not stand still for longer: cluster file systems restart a host after a minute.
const TARGET: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |words: &[&str]| arguments.iter().any(|word| words.contains(&word.as_str()));
    if has(&["--help", "-h"]) {
        println!("{}", options::USAGE);
        return ExitCode::SUCCESS;
    }
    if has(&["--list"]) {
        let names = FAULTS.iter().map(|fault| fault.name).chain(PAIRS.iter().copied());
        names.for_each(|name| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    match Options::parse(&arguments).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("hosts: {what}");
            ExitCode::FAILURE
        }
    }
}

/// Runs in a folder that is removed, unless the run fails.
fn run(options: &Options) -> Result<(), String> {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let folder = parent.join(format!("parapet-hosts-{}", std::process::id()));
    let made = std::fs::create_dir_all(folder.join("run"));
    made.map_err(|error| format!("{}: {error}", folder.display()))?;
    let group = ProcessGroup::new(&folder)?;
    let ended = in_folder(options, &folder, &group);
    ended.map_err(|what| {
        let _ = std::fs::write(folder.join("story"), &what);
        let (seed, place) = (options.seed, folder.display());
        format!("seed {seed}: {what}\nlogs are kept in {place}")
    })
}

fn in_folder(options: &Options, folder: &Path, group: &ProcessGroup) -> Result<(), String> {
    let network = Network::new(options.members(), group)?;
    let processes = Processes::start(options, folder, &network, group)?;
    let mut drill = Drill::new(options, processes)?;
    let begun = Instant::now();
    println!("{:<34} {:<5} {:>7} {:>7} {:>7}", "fault", "host", "stall", "fenced", "healed");
    let (mut count, mut over) = (0, 0);
    let mut one = |drill: &mut Drill<'_>, faults: &[&'static Fault]| {
        let names: Vec<&str> = faults.iter().map(|fault| fault.name).collect();
        let row = drill.run(faults).map_err(|what| format!("{}: {what}", names.join("+")))?;
        if let Some(row) = row {
            count += 1;
            over += u64::from(row.stall > TARGET);
            print(&row);
        }
        Ok::<(), String>(())
    };
    let in_time = |seconds| begun.elapsed().as_secs() < seconds;
    for faults in chosen(options)?.iter().take_while(|_| options.seconds.is_none_or(in_time)) {
        one(&mut drill, faults)?;
    }
    while options.seconds.is_some_and(in_time) {
        let faults = drill.choose();
        one(&mut drill, &faults)?;
    }
    let answers = drill.court.answers.load(Ordering::Relaxed);
    drill.finish();
    let limit = TARGET.as_secs();
    println!("{count} faults, {answers} answers, no violation; {over} stalls over {limit} s");
    Ok(())
}

/// The named faults: the chosen ones, or all, and pairs.
fn chosen(options: &Options) -> Result<Vec<Vec<&'static Fault>>, String> {
    let all = FAULTS.iter().map(|fault| fault.name).chain(PAIRS.iter().copied());
    let names: Vec<&str> = match options.only.is_empty() {
        true => all.collect(),
        false => options.only.iter().map(String::as_str).collect(),
    };
    let faults = |name: &str| fault::named(name).ok_or(format!("no fault {name}: see --list"));
    names.into_iter().map(faults).collect()
}

fn print(row: &Row) {
    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    let fenced = row.fenced.map_or("-".into(), seconds);
    let mark = if row.stall > TARGET { "  over the target" } else { "" };
    let Row { name, hosts, .. } = row;
    let (stall, healed) = (seconds(row.stall), seconds(row.healed));
    println!("{name:<34} {hosts:<5} {stall:>7} {fenced:>7} {healed:>7}{mark}");
}
