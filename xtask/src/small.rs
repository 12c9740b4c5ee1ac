//! `cargo xtask small`: the program without its optional parts (docs/decisions/0038-features.md).
//!
//! Counts what it depends on, builds it in a folder of its own, so that `target/debug` keeps the
//! whole program, runs its quickstart, and tries everything that it must refuse.

use crate::failure::Failure;
use crate::shell;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Lines of `cargo tree`, as users count them: repeated packages too.
const MOST_LINES: usize = 100;
const TREE: &str = "cargo tree -p parapet -e normal --no-default-features --prefix none";
const LINT: &str = "cargo clippy -q -p parapet --no-default-features -- -D warnings";
/// The demonstration runs once: what touches no byte is not optimised for it.
const BUILD: &str = "cargo build -q -p parapet --no-default-features --target-dir target/small \
    --config profile.dev.package.parapet-array.opt-level=0 \
    --config profile.dev.package.parapet-metadata.opt-level=0 \
    --config profile.dev.package.parapet-net.opt-level=0";

/// The feature that each command line needs.
const REFUSED: &[(&str, &str)] = &[
    ("cluster", "cluster status tank.toml"),
    ("cluster", "serve-disk --help"),
    ("cluster", "quickstart --cluster"),
    ("lab", "lab disks"),
    ("lab", "plan 6x4TB:nearline"),
    ("lab", "help plan"),
    ("lab", "create tank --level 1 model:hd501lj:a model:hd501lj:b --new-files 16M --yes"),
    ("lab", "examine model:hd501lj:a"),
    ("notify", "notify test"),
    ("notify", "serve --scan . --notify https://localhost/"),
    ("notify", "config check --config notify.toml"),
    ("notify", "daemon --config heartbeat.toml"),
    ("page", "page --json"),
    ("page", "serve --scan . --page=127.0.0.1:0 --page-actions"),
    ("page", "config check --config page.toml"),
];

/// Configurations with one section each.
const SECTIONS: &[(&str, &str)] = &[
    ("notify.toml", "[[notify]]\nkind = \"exec\"\nname = \"hook\"\nprogram = \"/bin/true\"\n"),
    ("heartbeat.toml", "[heartbeat]\nurl = \"https://localhost/\"\n"),
    ("page.toml", "[page]\nactions = true\n"),
];

/// Takes no argument.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if !arguments.is_empty() {
        return Err(Failure::new("small takes no argument", "leave it out"));
    }
    let root = shell::root()?;
    let lines = distinct(&shell::output(&root, &words(TREE))?);
    println!("{lines} lines of dependencies, {MOST_LINES} at most");
    if lines > MOST_LINES {
        let remedy = "move the new dependency behind a feature, or remove it";
        return Err(Failure::new(format!("`{TREE}`: {lines} lines"), remedy));
    }
    shell::run(&root, &words(LINT))?;
    let program = shell::built(&root, &words(BUILD), "parapet")?;
    let folder = Folder::new()?;
    demonstrate(&program, &folder)?;
    REFUSED.iter().try_for_each(|(feature, line)| refuses(&program, &folder, feature, line))?;
    println!("quickstart succeeds; {} command lines are refused", REFUSED.len());
    Ok(())
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn distinct(lines: &str) -> usize {
    lines.lines().collect::<std::collections::BTreeSet<_>>().len()
}

/// A folder in memory, removed at the end; `scratch` removes that of a killed run.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, Failure> {
        let folder = PathBuf::from(format!("/dev/shm/parapet-small-{}", std::process::id()));
        let write = |(name, text): &(&str, &str)| std::fs::write(folder.join(name), text);
        std::fs::create_dir(&folder)
            .and_then(|()| SECTIONS.iter().try_for_each(write))
            .map_err(|error| Failure::new(format!("{}: {error}", folder.display()), "make room"))?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The next run of the tests removes it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn ran(program: &Path, folder: &Folder, line: &str) -> Result<Output, Failure> {
    let program = program.to_string_lossy();
    let output = shell::command(&folder.0, &[vec![&*program], words(line)].concat()).output();
    output.map_err(|error| Failure::new(format!("{program}: {error}"), "build it again"))
}

/// Runs the demonstration of the quickstart: an array is made, written over NBD, loses two members,
/// is rebuilt, and read back.
fn demonstrate(program: &Path, folder: &Folder) -> Result<(), Failure> {
    let output = ran(program, folder, "quickstart --demo --dir demo --quiet --json")?;
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    if output.status.success() && shown["data"]["wrong_bytes"] == 0 {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(format!("quickstart failed: {shown} {said}"), "run it without --quiet"))
}

/// Checks that a command line is refused as a usage error that names the feature.
fn refuses(program: &Path, folder: &Folder, feature: &str, line: &str) -> Result<(), Failure> {
    let output = ran(program, folder, line)?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let reason = format!("this program was built without the feature `{feature}`");
    if output.status.code() == Some(2) && said.contains(&reason) {
        return Ok(());
    }
    let what = format!("`parapet {line}` says ({}): {said}", output.status);
    Err(Failure::new(what, format!("let it say: {reason}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_lines_count_once() {
        assert_eq!(distinct("b v1\na v1\nb v1 (*)\nb v1\n"), 3);
    }
}
