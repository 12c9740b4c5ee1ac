//! `docs/admin.md` on a machine of its own: every block, in order. Needs root.

use std::path::Path;
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
    let unit = here.join("../../contrib/systemd/parapet.service");
    let receivers = here.join("tests/program/receivers");
    let program = env!("CARGO_BIN_EXE_parapet");
    let told = world.path("told");
    let errors = std::fs::File::create(&told).unwrap();
    let status = Command::new("unshare")
        .args(["--mount", "--net", "bash"])
        .args([&*script, &world.folder, Path::new(program), &unit, &receivers])
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
