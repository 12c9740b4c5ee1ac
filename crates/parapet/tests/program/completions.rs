//! Completions in a real shell, of arrays that are served.

use std::path::Path;

use crate::world::World;

/// Runs the function that the script has defined, as the shell does when a user presses Tab after
/// these words. Each line of the output is a candidate.
const PRESS_TAB: &str = r#"
PATH=$1:$PATH; shift
source <(parapet completions bash)
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9
_clap_complete_parapet parapet "${COMP_WORDS[COMP_CWORD]}" 2>/dev/null
printf '%s\n' "${COMPREPLY[@]}"
"#;

fn candidates(world: &World, words: &[&str]) -> Vec<String> {
    let folder = Path::new(env!("CARGO_BIN_EXE_parapet")).parent().unwrap().to_str().unwrap();
    let call = ["bash", "-c", PRESS_TAB, "bash", folder, "parapet"];
    let out = world.tool_of(&[&call[..], words].concat());
    let values = out.lines().map(|line| line.trim_end().to_owned());
    values.filter(|value| !value.starts_with('-')).collect()
}

#[test]
fn a_shell_knows_the_arrays_and_their_members() {
    let world = World::new();
    let members = world.create("6", 4, &["--spare", "s0"]);
    assert!(candidates(&world, &["fail", ""]).is_empty(), "nothing is served yet");
    let mut names: Vec<&str> = members.iter().map(String::as_str).collect();
    names.push("s0");
    let server = world.start(&[&["serve", "tank"], &names[..], &["--json"]].concat());
    assert_eq!(candidates(&world, &["fail", ""]), ["tank"]);
    assert_eq!(candidates(&world, &["jobs", "t"]), ["tank"]);
    let spare = world.path("s0").display().to_string();
    assert_eq!(candidates(&world, &["fail", "tank", ""]), ["0", "1", "2", "3", &spare]);
    assert_eq!(candidates(&world, &["replace", "tank", "0", "s0"]), ["s0"]);
    assert_eq!(candidates(&world, &["wait", "--for", "re"]), ["rebuild", "resync"]);
    assert_eq!(candidates(&world, &["und"]), ["undestroy"]);
    assert_eq!(server.terminate(), 0);
}
