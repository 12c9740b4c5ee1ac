//! What the tests run: every program and test of the workspace, built once in the profile `dev`.
//!
//! Cargo builds a crate again for each other set of features, and the set depends on the packages
//! that are chosen together. So all verbs that test choose the same ones:
//!
//! ```text
//!   cargo build PACKAGES ─┬─▶ parapet, sim, torture, hosts, vm, xstate
//!                         └─▶ the tests of each package     mutants are possible in all of them
//! ```

use crate::failure::Failure;
use crate::shell;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// All packages but this one, which runs meanwhile.
pub(crate) const PACKAGES: &str = "--workspace --exclude xtask --features parapet-sim/broken";
/// All their programs and integration tests. `--tests` would leave out those that a plain `cargo
/// test` leaves out; a pattern of names does not.
pub(crate) const TARGETS: &str = "--lib --bins --test *";

/// Where each program and test is.
pub(crate) struct Artifacts {
    programs: BTreeMap<String, PathBuf>,
    /// By package and target.
    tests: BTreeMap<(String, String), PathBuf>,
}

impl Artifacts {
    /// Builds what has changed.
    pub(crate) fn build(root: &Path) -> Result<Artifacts, Failure> {
        let options = ["--quiet", "--message-format=json-render-diagnostics"];
        let chosen = [PACKAGES, TARGETS].into_iter().flat_map(|words| words.split(' '));
        let words: Vec<_> = ["cargo", "build"].into_iter().chain(options).chain(chosen).collect();
        let messages = shell::output(root, &words)?;
        let mut found = Artifacts { programs: BTreeMap::new(), tests: BTreeMap::new() };
        for line in messages.lines() {
            if let Ok(message) = serde_json::from_str(line) {
                found.note(&message);
            }
        }
        Ok(found)
    }

    fn note(&mut self, message: &Value) {
        let Some(path) = file_of(message) else { return };
        let target = message["target"]["name"].as_str().unwrap_or_default().to_owned();
        if message["profile"]["test"] == true {
            self.tests.insert((package_of(message), target), path);
        } else {
            self.programs.insert(target, path);
        }
    }

    /// The program, or the loadable library, called `name`.
    pub(crate) fn program(&self, name: &str) -> Result<String, Failure> {
        let path = self.programs.get(name);
        path.map(|path| path.display().to_string()).ok_or_else(|| missing(name))
    }

    /// The test `target` of `package`.
    pub(crate) fn test(&self, package: &str, target: &str) -> Result<String, Failure> {
        let path = self.tests.get(&(package.to_owned(), target.to_owned()));
        path.map(|path| path.display().to_string())
            .ok_or_else(|| missing(&format!("{package}: test {target}")))
    }
}

fn missing(name: &str) -> Failure {
    Failure::new(format!("cargo built no {name}"), "run `cargo clean` and try again")
}

/// What a message of cargo says that it has built, if that can be run or loaded.
fn file_of(message: &Value) -> Option<PathBuf> {
    // A library of Rust may have the name of its program.
    let loadable = message["target"]["crate_types"] == serde_json::json!(["cdylib"]);
    let library = message["filenames"][0].as_str().filter(|_| loadable);
    message["executable"].as_str().or(library).map(PathBuf::from)
}

/// The package of a message: the identity ends with `#NAME@VERSION`, or with `NAME#VERSION`.
fn package_of(message: &Value) -> String {
    let identity = message["package_id"].as_str().unwrap_or_default();
    let (before, after) = identity.rsplit_once('#').unwrap_or_default();
    let folder = before.rsplit('/').next().unwrap_or_default();
    after.split_once('@').map_or(folder, |(name, _)| name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn programs_and_tests_of_one_name_are_apart() {
        let mut found = Artifacts { programs: BTreeMap::new(), tests: BTreeMap::new() };
        let message = |test, id: &str, path| {
            let target = json!({"name": "sim", "crate_types": ["bin"]});
            let profile = json!({ "test": test });
            json!({"package_id": id, "target": target, "profile": profile, "executable": path})
        };
        found.note(&message(false, "path+file:///a/crates/sim#parapet-sim@0.1.0", "/t/sim"));
        found.note(&message(true, "path+file:///a/crates/sim#parapet-sim@0.1.0", "/t/sim-1"));
        found.note(&message(true, "path+file:///a/crates/parapet#0.1.0", "/t/sim-2"));
        assert_eq!(found.program("sim").expect("it was built"), "/t/sim");
        assert_eq!(found.test("parapet-sim", "sim").expect("it was built"), "/t/sim-1");
        assert_eq!(found.test("parapet", "sim").expect("it was built"), "/t/sim-2");
        assert!(found.program("vm").is_err() && found.test("vm", "sim").is_err());
    }

    #[test]
    fn a_loadable_library_is_found_by_its_file() {
        let target = json!({"name": "xstate", "crate_types": ["cdylib"]});
        let message = json!({"target": target, "filenames": ["/t/libxstate.so"]});
        assert_eq!(file_of(&message), Some(PathBuf::from("/t/libxstate.so")));
        let library = json!({"target": {"name": "io", "crate_types": ["lib"]}, "filenames": ["a"]});
        assert_eq!(file_of(&library), None);
    }
}
