//! Arrays that move between Parapet and the real kernel driver, both ways. `cargo xtask interop`
//! builds the program and runs this.
//!
//! ```text
//!   main ── matrix ── cell       the arrays, and the steps for each
//!     │        └───── parapet    the program on the host
//!     ├────── kernel             a guest: vm/guest/*.sh with mdadm and md
//!     └────── inside             commands of this program for a guest
//! ```
//!
//! Owns the tests with real kernels. Never shipped.
#![forbid(unsafe_code)]

mod capture;
mod cell;
mod failure;
mod golden;
mod inside;
mod jobs;
mod kernel;
mod matrix;
mod outcome;
mod parapet;
mod pattern;
mod random;
mod stories;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use failure::{Failure, Result};
use jobs::Shop;
use kernel::{Kernel, NEWER, Newer};

const USAGE: &str = "\
usage: vm --program PATH [OPTION]...

Move arrays between the program and real kernels, in virtual machines.

  --program PATH   the program under test
  --cache FOLDER   keep downloaded kernels here [parapet-kernels in the temporary folder]
  --preload FILE   start user-mode Linux with this library [none]
  --slice          run a representative part only
  --only TEXT      run the cases and stories only whose name contains TEXT
  --jobs N         number of virtual machines at once [one for each core]
  --skips-pass     do not fail for features that a kernel lacks
  --list           print the names and exit
  --golden FOLDER  write golden images into this folder instead";

/// The command line.
struct Order {
    program: PathBuf,
    /// Folder of downloaded kernels.
    cache: PathBuf,
    /// `vm/xstate`, for user-mode Linux.
    preload: Option<PathBuf>,
    slice: bool,
    only: Option<String>,
    jobs: usize,
    /// A feature missing in a kernel is no failure.
    skips_pass: bool,
    list: bool,
    /// The folder for golden images, if requested.
    golden: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|word| matches!(word.as_str(), "--help" | "-h")) {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if let Some(task) = inside::task(&arguments) {
        return task.map_or_else(report_failure, |()| ExitCode::SUCCESS);
    }
    match order(&arguments).and_then(|order| run(&order)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => report_failure(failure),
    }
}

fn report_failure(failure: Failure) -> ExitCode {
    eprintln!("vm: {failure}");
    ExitCode::FAILURE
}

fn order(arguments: &[String]) -> Result<Order> {
    let usage = || Failure::new(USAGE);
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut order = Order {
        program: PathBuf::new(),
        cache: std::env::temp_dir().join("parapet-kernels"),
        preload: None,
        slice: false,
        only: None,
        jobs,
        skips_pass: false,
        list: false,
        golden: None,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(usage);
        match word.as_str() {
            "--program" => order.program = PathBuf::from(value()?),
            "--cache" => order.cache = PathBuf::from(value()?),
            "--preload" => order.preload = Some(PathBuf::from(value()?)),
            "--only" => order.only = Some(value()?.clone()),
            "--jobs" => order.jobs = value()?.parse().map_err(|_| usage())?,
            "--golden" => order.golden = Some(PathBuf::from(value()?)),
            "--slice" => order.slice = true,
            "--skips-pass" => order.skips_pass = true,
            "--list" => order.list = true,
            _ => return Err(usage()),
        }
    }
    Ok(order)
}

/// Returns true if everything passed.
fn run(order: &Order) -> Result<bool> {
    let mut ways = if order.slice { cell::slice() } else { cell::all() };
    let mut newer_ways = if order.slice { vec![] } else { cell::newer() };
    let mut stories = if order.slice { stories::slice() } else { stories::all() };
    if let Some(text) = &order.only {
        stories.extend(stories::figures().into_iter().filter(|_| text.starts_with("figures")));
        ways.retain(|way| way.to_string().contains(text));
        newer_ways.retain(|way| format!("{way}{NEWER}").contains(text));
        stories.retain(|story| story.name.contains(text));
    }
    if order.list {
        ways.iter().for_each(|way| println!("{way}"));
        newer_ways.iter().for_each(|way| println!("{way}{NEWER}"));
        stories.iter().for_each(|story| println!("{}", story.name));
        return Ok(true);
    }
    let program = order.program.canonicalize().map_err(|_| {
        Failure::new(format!("{}: program not found\n\n{USAGE}", order.program.display()))
    })?;
    let memory = PathBuf::from("/dev/shm");
    let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let state = parent.join(format!("parapet-vm-{}", std::process::id()));
    std::fs::create_dir_all(&state)?;
    let kernel = Kernel::uml(order.preload.clone())?;
    let count = ways.len() + newer_ways.len();
    println!("{count} of the matrix, {} stories, on Linux {}", stories.len(), kernel.release);
    // apt takes no relative folders.
    let newer = Newer::new(std::path::absolute(&order.cache)?, state.clone());
    let (program, state) = (program.as_path(), state.as_path());
    let shop = Shop { kernel: &kernel, newer: &newer, program, state, jobs: order.jobs };
    if let Some(folder) = &order.golden {
        return Ok(outcome::close(&golden::make(&shop, folder), order.skips_pass));
    }
    let mut outcomes = matrix::run(&ways, &shop);
    if !ways.is_empty() {
        println!("\n{}", table::of(&ways, &outcomes));
    }
    if !newer_ways.is_empty() {
        let kernel = newer.get()?;
        outcomes.extend(matrix::run(&newer_ways, &Shop { kernel: &kernel, ..shop }));
    }
    outcomes.extend(stories::run(&stories, &shop));
    let good = outcome::close(&outcomes, order.skips_pass);
    if good {
        let _ = std::fs::remove_dir_all(state);
    }
    Ok(good)
}
