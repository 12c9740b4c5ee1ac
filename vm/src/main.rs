//! Arrays that move between Parapet and the real kernel driver, both ways. `cargo xtask interop`
//! builds the program and runs this.
//!
//! ```text
//!   main ── matrix ── cell       which arrays there are, and what is done with each
//!     │        └───── parapet    the program on the host
//!     └────── kernel             a guest: vm/guest/*.sh with mdadm and md
//! ```
//!
//! Owns what is tried with real kernels. Never part of what is shipped.
#![forbid(unsafe_code)]

mod cell;
mod failure;
mod golden;
mod jobs;
mod kernel;
mod matrix;
mod outcome;
mod parapet;
mod pattern;
mod stories;

use std::path::PathBuf;
use std::process::ExitCode;

use failure::{Failure, Result};
use jobs::Shop;
use kernel::Kernel;

const USAGE: &str = "usage: vm --program PATH [--slice] [--only TEXT] [--jobs N] [--list] \
                     [--golden FOLDER]";

/// What is asked for.
struct Order {
    program: PathBuf,
    slice: bool,
    only: Option<String>,
    jobs: usize,
    list: bool,
    /// Where golden images go, if they are to be made.
    golden: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match order(&arguments).and_then(|order| run(&order)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("vm: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn order(arguments: &[String]) -> Result<Order> {
    let usage = || Failure::new(USAGE);
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let (program, slice, only, list, golden) = Default::default();
    let mut order = Order { program, slice, only, jobs, list, golden };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(usage);
        match word.as_str() {
            "--program" => order.program = PathBuf::from(value()?),
            "--only" => order.only = Some(value()?.clone()),
            "--jobs" => order.jobs = value()?.parse().map_err(|_| usage())?,
            "--golden" => order.golden = Some(PathBuf::from(value()?)),
            "--slice" => order.slice = true,
            "--list" => order.list = true,
            _ => return Err(usage()),
        }
    }
    Ok(order)
}

/// True if all is well.
fn run(order: &Order) -> Result<bool> {
    let mut cells = if order.slice { cell::slice() } else { cell::all() };
    let mut stories = stories::all();
    if let Some(text) = &order.only {
        cells.retain(|cell| cell.to_string().contains(text));
        stories.retain(|story| story.name.contains(text));
    }
    if order.list {
        cells.iter().for_each(|cell| println!("{cell}"));
        stories.iter().for_each(|story| println!("{}", story.name));
        return Ok(true);
    }
    let program = order
        .program
        .canonicalize()
        .map_err(|_| Failure::new(format!("no program {}; {USAGE}", order.program.display())))?;
    let memory = PathBuf::from("/dev/shm");
    let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let state = parent.join(format!("parapet-vm-{}", std::process::id()));
    std::fs::create_dir_all(&state)?;
    let kernel = Kernel::find()?;
    println!("{} cells, {} stories, on Linux {}", cells.len(), stories.len(), kernel.release);
    let shop = Shop { kernel: &kernel, program: &program, state: &state, jobs: order.jobs };
    let outcomes = match &order.golden {
        Some(folder) => golden::make(&shop, folder),
        None => [matrix::run(&cells, &shop), stories::run(&stories, &shop)].concat(),
    };
    let good = outcome::close(&outcomes);
    if good {
        let _ = std::fs::remove_dir_all(&state);
    }
    Ok(good)
}
