//! `docs/admin.md` on a machine of its own: every block, in order. Needs root.
//!
//! `PARAPET_INSTALLED` names the root of a machine where the package is installed: its program and
//! its unit are tried then (`cargo xtask package --check`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::world::World;

#[test]
fn every_block_of_the_administrators_story_works() {
    let world = World::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let story = std::fs::read_to_string(here.join("../../docs/admin.md")).unwrap();
    let machine = std::fs::read_to_string(here.join("tests/program/machine.sh")).unwrap();
    let script = world.path("story.sh");
    std::fs::write(&script, format!("{machine}\nset -x\n{}", commands(&story))).unwrap();
    let receivers = here.join("tests/program/receivers");
    let (program, unit) = match std::env::var_os("PARAPET_INSTALLED").map(PathBuf::from) {
        Some(root) => (root.join("usr/bin/parapet"), root.join("lib/systemd/system")),
        None => (env!("CARGO_BIN_EXE_parapet").into(), here.join("../../contrib/systemd")),
    };
    let unit = unit.join("parapet.service");
    let told = world.path("told");
    let errors = std::fs::File::create(&told).unwrap();
    let status = Command::new("unshare")
        .args(["--mount", "--net", "bash"])
        .args([&*script, &world.folder, &program, &unit, &receivers])
        .env_remove("PARAPET_CONTROL")
        .stdin(Stdio::null())
        .stdout(errors.try_clone().unwrap())
        .stderr(errors)
        .status()
        .unwrap();
    let text = || std::fs::read_to_string(&told).unwrap();
    assert!(status.success(), "{}\n{}", text(), world.log());
}

/// The blocks and the directives of a story, as a script.
fn commands(story: &str) -> String {
    let (mut script, mut in_block) = (String::new(), false);
    for line in story.lines() {
        let directive = line.strip_prefix("<!-- test: ").and_then(|it| it.strip_suffix(" -->"));
        match (in_block, directive) {
            (false, Some(directive)) => script += &format!("{directive}\n"),
            (false, None) if line == "```sh" => in_block = true,
            (true, _) if line == "```" => in_block = false,
            (true, _) => script += &format!("{line}\n"),
            (false, None) => {}
        }
    }
    script
}
