//! `cargo xtask loads`: programs of users on disks that are not there.
//!
//! ```text
//!   sysbench, bonnie++, fio, tar, cp ─▶ ext4 ─▶ parapet attach ─▶ array ─▶ model:DISK:FILE …
//! ```
//!
//! Members are modelled disks in real time with their data in memory; beside them the same programs
//! on this machine's own disk, on an array, on btrfs and on a plain file. Times of other people's
//! work on this machine show in the figures; nothing here fails for being slow, except `--agree`.

mod agree;
mod programs;
mod stand;
mod table;

use crate::failure::Failure;
use crate::shell;
use crate::tools::{self, Purpose};
use programs::{Load, Scale};
use stand::{Stand, Target};
use table::{Row, Table};

/// Targets and loads that belong together.
struct Preset {
    name: &'static str,
    what: &'static str,
    targets: &'static [Target],
    loads: &'static [Load],
}

/// An array of modelled disks.
const fn modelled(
    title: &'static str,
    level: &'static str,
    disk: &'static str,
    disks: usize,
) -> Target {
    Target::Modelled { title, level, disk, disks }
}

const PRESETS: &[Preset] = &[
    Preset {
        name: "r1",
        what: "RAID 3.5 of order 1 and 2 beside one disk (Cheetah 9LP, 10,000 rpm): untar, cp",
        targets: &[
            modelled("one disk", "linear", "cheetah9lp", 1),
            modelled("RAID 3.5 ×3", "3.5", "cheetah9lp", 3),
            modelled("RAID 3.5 ×5", "3.5", "cheetah9lp", 5),
        ],
        loads: &[Load::Untar, Load::Copy],
    },
    Preset {
        name: "r2",
        what: "RAID 10 of four and six Cheetah 15K.5: sysbench, 16 KiB random writes",
        targets: &[
            modelled("RAID 10 ×4", "10", "cheetah-15k5", 4),
            modelled("RAID 10 ×6", "10", "cheetah-15k5", 6),
        ],
        loads: &[Load::Sysbench],
    },
    Preset {
        name: "r5",
        what: "ten SpinPoint HD501LJ at RAID 0, 5, 6, 10: a mail server, streams",
        targets: &[
            modelled("RAID 0 ×10", "0", "hd501lj", 10),
            modelled("RAID 5 ×10", "5", "hd501lj", 10),
            modelled("RAID 6 ×10", "6", "hd501lj", 10),
            modelled("RAID 10 ×10", "10", "hd501lj", 10),
        ],
        loads: &[Load::Mail, Load::Streams],
    },
    Preset {
        name: "local",
        what: "this machine's own disk: RAID 5 of four files, btrfs RAID 5, ext4 on a plain file",
        targets: &[Target::OwnArray, Target::OwnBtrfs, Target::OwnFile],
        loads: &[Load::Untar, Load::Copy, Load::Sysbench, Load::Mail, Load::Streams],
    },
];

const USAGE: &str = "loads [PRESET…] [--full] [--list], or loads --agree";

/// Runs the presets named, or all. `--full` takes the parameters of the reference systems,
/// `--agree` compares real with virtual time instead.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if has("--list") {
        PRESETS.iter().for_each(|preset| println!("{:<6} {}", preset.name, preset.what));
        return Ok(());
    }
    let flags = ["--full", "--agree"];
    let names: Vec<&String> =
        arguments.iter().filter(|argument| !flags.contains(&argument.as_str())).collect();
    let known = |name: &String| PRESETS.iter().any(|preset| preset.name == *name);
    if let Some(stranger) = names.iter().find(|name| !known(name)) {
        return Err(Failure::new(format!("{stranger:?} is no preset"), format!("usage: {USAGE}")));
    }
    tools::ensure(Purpose::Loads)?;
    if !tools::is_root() {
        return Err(Failure::new("only root mounts and runs before others", "run it as root"));
    }
    let root = shell::root()?;
    let stand = Stand::new(&root)?;
    if has("--agree") {
        return agree::run(&stand);
    }
    let scale = if has("--full") { Scale::FULL } else { Scale::SHORT };
    let mut tables = Vec::new();
    for preset in PRESETS {
        if names.is_empty() || names.iter().any(|name| *name == preset.name) {
            tables.push(measure(preset, &stand, &scale)?);
            // At once: the next preset may not come to its end.
            let file = table::keep(&root, &tables)?;
            println!("\n{}\nfigures: {}", tables[tables.len() - 1], file.display());
        }
    }
    Ok(())
}

fn measure(preset: &Preset, stand: &Stand, scale: &Scale) -> Result<Table, Failure> {
    println!("\n==> {}: {}", preset.name, preset.what);
    let mut table = Table::new(preset.name, preset.what, scale.name);
    for target in preset.targets {
        let mut mounted = stand.mount(target)?;
        let mut row = Row::new(target.title());
        for load in preset.loads {
            for figure in load.run(stand, &mut mounted, scale)? {
                println!("{}: {figure}", target.title());
                row.add(figure);
            }
        }
        mounted.close()?;
        table.add(row);
    }
    Ok(table)
}
