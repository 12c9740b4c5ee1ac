//! Parapet's only build tool: `cargo xtask VERB`.
//!
//! Owns the project's tooling: checks, tests, benchmarks, house rules. Never shipped, and depends
//! on none of the project's crates, so that it builds first and in seconds.
#![forbid(unsafe_code)]

mod artifacts;
mod bench;
mod deny;
mod failure;
mod fuzz;
mod hosts;
mod interop;
mod lanes;
mod loads;
mod mutants;
mod nightly;
mod package;
mod plots;
mod scratch;
mod shell;
mod small;
mod steps;
mod test;
mod tidy;
mod tools;
mod torture;

use failure::Failure;
use std::process::ExitCode;

/// A command of `cargo xtask`.
struct Verb {
    name: &'static str,
    what: &'static str,
    run: fn(&[String]) -> Result<(), Failure>,
}

const VERBS: &[Verb] = &[
    Verb {
        name: "test",
        what: "install the tools and run all tests; or --quick, STEP…, --list",
        run: test::run,
    },
    Verb { name: "tidy", what: "check the house rules (docs/style.md); --list", run: tidy::run },
    Verb {
        name: "tools",
        what: "install the tools of the tests; bench: those of the benchmarks",
        run: tools::run,
    },
    Verb {
        name: "fuzz",
        what: "fuzz the parsers and protocols; --seconds N, TARGET…, --list",
        run: fuzz::run,
    },
    Verb {
        name: "bench",
        what: "compare with the peers and write docs/bench; or NAME…, --list",
        run: bench::run,
    },
    Verb {
        name: "loads",
        what: "run programs on arrays of modelled disks; PRESET…, --full, --list, --agree",
        run: loads::run,
    },
    Verb {
        name: "torture",
        what: "kill the program and cut the power of members under load; --help",
        run: torture::run,
    },
    Verb {
        name: "hosts",
        what: "kill, pause and cut off the hosts of a cluster under load; --help, --list",
        run: hosts::run,
    },
    Verb {
        name: "interop",
        what: "move arrays between Parapet and real kernels; --slice, --only TEXT, --list",
        run: interop::run,
    },
    Verb {
        name: "mutants",
        what: "check that the simulator detects engine mutants; or NAME…, --quick, --list",
        run: mutants::run,
    },
    Verb { name: "nightly", what: "run the long tests; --hours N [8], --list", run: nightly::run },
    Verb {
        name: "deny",
        what: "check licences, bans, sources and advisories of dependencies; or CHECK…",
        run: deny::run,
    },
    Verb {
        name: "small",
        what: "check the program without its optional parts: dependencies, quickstart, refusals",
        run: small::run,
    },
    Verb { name: "plots", what: "draw the plots of docs/lab.md from docs/lab", run: plots::run },
    Verb {
        name: "package",
        what: "make a Debian package, a static archive, with --image an OCI image; --check",
        run: package::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let asked = arguments.first().map_or("", String::as_str);
    let Some(verb) = VERBS.iter().find(|verb| verb.name == asked) else {
        return usage(asked);
    };
    match (verb.run)(&arguments[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure.has_news() {
                eprintln!("xtask {}: {failure}", verb.name);
            }
            ExitCode::FAILURE
        }
    }
}

/// Prints the verbs: to standard output if asked for, else as an error (exit code 2).
fn usage(asked: &str) -> ExitCode {
    let mut text = String::from("usage: cargo xtask VERB [ARGUMENT…]\n\n");
    for verb in VERBS {
        text += &format!("  {:<7} {}\n", verb.name, verb.what);
    }
    if matches!(asked, "help" | "-h" | "--help") {
        print!("{text}");
        return ExitCode::SUCCESS;
    }
    if !asked.is_empty() {
        eprintln!("xtask: unknown verb {asked:?}\n");
    }
    eprint!("{text}");
    ExitCode::from(2)
}
