//! `cargo xtask plots`: draws the plots of docs/lab.md, from the experiments in docs/lab and the
//! reference system R4. Equal sources give equal plots.

use crate::failure::Failure;
use crate::shell;
use std::path::Path;

/// A command of the program, and the plots of it that the manual shows.
struct Source {
    command: &'static [&'static str],
    plots: &'static [&'static str],
}

const SOURCES: [Source; 3] = [
    Source {
        command: &["report", "docs/lab/depth.toml", "--depths", "1,2,4,8,16,32"],
        plots: &["latency-by-depth", "random-reads-heads-disk0"],
    },
    Source {
        command: &["report", "docs/lab/rebuild.toml"],
        plots: &["failure-and-rebuild-throughput-over-time"],
    },
    Source { command: &["seeds", "R4"], plots: &["r4-cells"] },
];

/// Runs the verb.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if let Some(unknown) = arguments.first() {
        return Err(Failure::new(format!("unknown argument {unknown:?}"), "it takes none"));
    }
    let root = shell::root()?;
    let program = shell::released(&root)?.display().to_string();
    let drawn = root.join("target/plots");
    let folder = drawn.display().to_string();
    for Source { command, plots } in &SOURCES {
        let words = [&[program.as_str(), "lab"], *command, &["--svg", &folder]].concat();
        shell::output(&root, &words)?;
        for plot in *plots {
            copy(&drawn, &root.join("docs/img"), plot)?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path, plot: &str) -> Result<(), Failure> {
    let file = format!("{plot}.svg");
    std::fs::create_dir_all(to)
        .and_then(|()| std::fs::copy(from.join(&file), to.join(&file)))
        .map(|_| println!("docs/img/{file}"))
        .map_err(|error| Failure::new(format!("{file}: {error}"), "is its experiment's name new?"))
}
