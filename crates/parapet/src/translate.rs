//! `parapet help mdadm` and `parapet help zpool`: commands of other tools, and Parapet's.

use std::ffi::OsString;
use std::fmt::Write;

/// Commands of a tool, each with Parapet's.
struct Topic {
    tool: &'static str,
    commands: &'static [(&'static str, &'static str)],
}

const TOPICS: [Topic; 2] = [
    Topic {
        tool: "mdadm",
        commands: &[
            ("mdadm --create /dev/md0 -l 6 -n 5 DISK…", "parapet create NAME --level 6 DISK…"),
            ("mdadm --assemble --scan", "parapet serve --scan /dev --nbd unix:PATH"),
            ("mdadm --assemble --readonly …", "parapet import DISK…"),
            ("mount /dev/md0 DIR", "parapet attach NAME; mount /dev/parapet/NAME DIR"),
            ("cat /proc/mdstat", "parapet list"),
            ("mdadm --detail /dev/md0", "parapet status NAME"),
            ("mdadm --examine DISK", "parapet examine DISK"),
            ("mdadm --monitor", "parapet events NAME --follow; parapet health"),
            ("mdadm /dev/md0 --fail DISK", "parapet fail NAME DISK"),
            ("mdadm /dev/md0 --remove DISK", "parapet remove NAME DISK"),
            ("mdadm /dev/md0 --add DISK", "parapet add NAME DISK"),
            ("mdadm /dev/md0 --re-add DISK", "parapet re-add NAME DISK"),
            ("mdadm /dev/md0 --replace OLD --with NEW", "parapet replace NAME OLD NEW"),
            ("mdadm --action=check /dev/md0", "parapet scrub NAME"),
            ("mdadm --action=repair /dev/md0", "parapet scrub NAME repair"),
            ("mdadm --wait /dev/md0", "parapet wait NAME"),
            ("echo 50000 > …/md/sync_speed_max", "parapet speed NAME --speed-max 50M"),
            ("mdadm --stop /dev/md0", "parapet stop NAME"),
            ("mdadm --zero-superblock DISK…", "parapet destroy NAME DISK…"),
            ("mdadm --grow", "not in this version; Linux can, on the same disks"),
        ],
    },
    Topic {
        tool: "zpool",
        commands: &[
            ("zpool create NAME raidz2 DISK…", "parapet create NAME --level 6 DISK…"),
            ("zpool import -a", "parapet serve --scan /dev --nbd unix:PATH"),
            ("zpool import -o readonly=on NAME", "parapet import DISK…"),
            ("zpool export NAME", "parapet stop NAME"),
            ("zpool list", "parapet list"),
            ("zpool status NAME", "parapet status NAME"),
            ("zpool status -x", "parapet health"),
            ("zpool iostat -v NAME 2", "parapet iostat NAME -i 2"),
            ("zpool events, zpool history", "parapet events NAME"),
            ("zpool offline NAME DISK", "parapet fail NAME DISK"),
            ("zpool online NAME DISK", "parapet re-add NAME DISK"),
            ("zpool replace NAME OLD NEW", "parapet replace NAME OLD NEW"),
            ("zpool attach, zpool add … spare DISK", "parapet add NAME DISK"),
            ("zpool detach NAME DISK", "parapet remove NAME DISK"),
            ("zpool scrub NAME, zpool scrub -s", "parapet scrub NAME, parapet scrub NAME stop"),
            ("zpool wait NAME", "parapet wait NAME"),
            ("zpool clear NAME", "parapet clear NAME"),
            ("zpool destroy NAME", "parapet destroy NAME DISK…"),
            ("zpool import -D", "parapet undestroy"),
            ("zpool labelclear DISK", "parapet destroy NAME DISK"),
        ],
    },
];

/// The text for a command line of `help` and the name of a tool.
pub(crate) fn help(words: impl Iterator<Item = OsString>) -> Option<String> {
    let words: Vec<OsString> = words.collect();
    let [help, tool] = &words[..] else { return None };
    let topic = TOPICS.iter().find(|topic| help == "help" && tool == topic.tool)?;
    let width = topic.commands.iter().map(|(theirs, _)| theirs.chars().count()).max()?;
    let mut text = String::new();
    for (theirs, ours) in topic.commands {
        let _ = writeln!(text, "{theirs:width$}  {ours}");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::flags::Cli;

    #[test]
    fn every_command_of_ours_exists() {
        let cli = Cli::command();
        for (_, ours) in TOPICS.iter().flat_map(|topic| topic.commands) {
            let verbs = ours.split("parapet ").skip(1).filter(|rest| !rest.starts_with('/'));
            for verb in verbs.filter_map(|rest| rest.split([' ', ';', ',']).next()) {
                assert!(cli.find_subcommand(verb).is_some(), "{ours}: {verb}");
            }
        }
    }

    #[test]
    fn only_the_names_of_tools_are_topics() {
        let ask = |words: &[&str]| help(words.iter().map(OsString::from));
        assert!(ask(&["help", "mdadm"]).is_some_and(|text| text.contains("parapet re-add")));
        assert!(ask(&["help", "zpool"]).is_some_and(|text| text.contains("zpool import -D")));
        for words in [&["help", "create"][..], &["help"], &["mdadm"], &["status", "mdadm"]] {
            assert!(ask(words).is_none(), "{words:?}");
        }
    }
}
