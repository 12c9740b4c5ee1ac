//! The outside world of the build tool: the checkout, and the programs it starts.

use crate::failure::Failure;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder with the workspace's `Cargo.toml`: the nearest one above the current folder.
pub(crate) fn root() -> Result<PathBuf, Failure> {
    let here = std::env::current_dir()
        .map_err(|error| Failure::new(format!("no current folder: {error}"), "change to one"))?;
    here.ancestors()
        .find(|folder| {
            std::fs::read_to_string(folder.join("Cargo.toml"))
                .is_ok_and(|manifest| manifest.contains("[workspace]"))
        })
        .map(Path::to_path_buf)
        .ok_or_else(|| Failure::new("not inside the project", "run it from the checkout"))
}

/// The cargo that runs us, so that a chosen toolchain stays chosen.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| String::from("cargo"))
}

/// Through cargo it would wait for each build that runs beside it.
fn this_program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("xtask"))
}

/// `words` as a command in `folder`, without standard input. A first word `cargo` is [`cargo`],
/// `cargo xtask` is this program, and `sim` is the simulator that was built beside it.
pub(crate) fn command(folder: &Path, words: &[&str]) -> Command {
    let (program, arguments) = match words {
        ["cargo", "xtask", arguments @ ..] => (this_program(), arguments),
        ["cargo", arguments @ ..] => (PathBuf::from(cargo()), arguments),
        ["sim", arguments @ ..] => (this_program().with_file_name("sim"), arguments),
        [program, arguments @ ..] => (PathBuf::from(program), arguments),
        [] => unreachable!("every command has a first word"),
    };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command
}

/// The command's output, if it succeeds.
pub(crate) fn output(folder: &Path, words: &[&str]) -> Result<String, Failure> {
    let line = words.join(" ");
    let output = command(folder, words)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::new(format!("`{line}`: {error}"), "is it installed?"))?;
    if !output.status.success() {
        return Err(Failure::new(format!("`{line}` failed"), "its messages stand above"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// True if the command starts and succeeds; its output is dropped.
pub(crate) fn succeeds(folder: &Path, words: &[&str]) -> bool {
    command(folder, words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Builds with these words of cargo, and gives where it says that it has put the program, the test,
/// or the loadable library, called `name`.
pub(crate) fn built(folder: &Path, words: &[&str], name: &str) -> Result<PathBuf, Failure> {
    let messages =
        output(folder, &[words, &["--message-format=json-render-diagnostics"]].concat())?;
    let values = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_it = |value: Value| {
        // A library of Rust may have the name of its program.
        let loadable = value["target"]["crate_types"] == serde_json::json!(["cdylib"]);
        let library = value["filenames"][0].as_str().filter(|_| loadable);
        let file = value["executable"].as_str().or(library)?;
        (value["target"]["name"] == name).then(|| PathBuf::from(file))
    };
    values
        .filter_map(of_it)
        .next()
        .ok_or_else(|| Failure::new(format!("cargo built no {name}"), "run `cargo build`"))
}

/// The program as a user of the checkout builds it. All verbs build it by these words: with `-p`,
/// cargo would choose other features of shared crates, and build it anew each time.
pub(crate) fn released(root: &Path) -> Result<PathBuf, Failure> {
    built(root, &["cargo", "build", "-q", "--release", "--bin", "parapet"], "parapet")
}

/// The program as packages have it.
pub(crate) fn shipped(root: &Path) -> Result<PathBuf, Failure> {
    let build = ["cargo", "build", "-q", "--profile", "dist", "--locked", "--bin", "parapet"];
    built(root, &build, "parapet")
}

/// Runs the command with our output as its own.
pub(crate) fn run(folder: &Path, words: &[&str]) -> Result<(), Failure> {
    let line = words.join(" ");
    let status = command(folder, words)
        .status()
        .map_err(|error| Failure::new(format!("`{line}`: {error}"), "is it installed?"))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("`{line}` failed ({status})"), "its messages stand above"))
}

/// Runs a program that prints its own errors.
pub(crate) fn hand_over(folder: &Path, words: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match command(folder, &words).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Failure::reported()),
        Err(error) => Err(Failure::new(format!("{}: {error}", words[0]), "build it again")),
    }
}
