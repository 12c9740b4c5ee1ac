//! Loads for a comparison: files with the workers of experiments, some built in.

use serde::Deserialize;

use crate::experiment::schema::{LoadChoice, Pattern, Size, WorkerChoice};
use crate::experiment::{Fault, of_toml};

/// A load.
#[derive(Clone, PartialEq, Debug)]
pub struct PlannedLoad {
    /// Its name.
    pub name: String,
    /// Writes are answered when they are durable, as after `fsync`.
    pub durable: bool,
    /// Its workers. Without a zone they use as many bytes as the smallest layout holds.
    pub workers: Vec<WorkerChoice>,
    /// Zones shrink to that size: the loads that come with the program fit all disks.
    pub(super) shrinks: bool,
}

/// The file of a load.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    #[serde(default)]
    durable: bool,
    load: LoadChoice,
}

/// Names and files of loads that come with the program.
const BUILT_IN: [(&str, &str); 4] = [
    ("mail", include_str!("../../data/loads/mail.toml")),
    ("oltp", include_str!("../../data/loads/oltp.toml")),
    ("stream", include_str!("../../data/loads/stream.toml")),
    ("backup", include_str!("../../data/loads/backup.toml")),
];

impl PlannedLoad {
    /// Names of the loads that come with the program.
    pub fn built_in_names() -> [&'static str; 4] {
        BUILT_IN.map(|(name, _)| name)
    }

    /// A load that comes with the program.
    ///
    /// # Panics
    /// Never: a test reads them all.
    pub fn built_in(name: &str) -> Option<PlannedLoad> {
        let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        let load = PlannedLoad::read(name, text).expect("the loads are part of the program");
        Some(PlannedLoad { shrinks: true, ..load })
    }

    /// A load from the text of a file, named after the file if it has no name of its own.
    ///
    /// # Errors
    /// If the text is no TOML, has an unknown key, or a value that cannot be.
    pub fn read(file: &str, text: &str) -> Result<PlannedLoad, Fault> {
        let read = || {
            let file: File = toml::from_str(text).map_err(|cause| of_toml(text, &cause))?;
            file.load.check()?;
            if file.load.trace.is_some() {
                let hint = "write [[load.worker]], or replay it: parapet lab replay";
                return Err(Fault::new("load.trace", "no layouts are compared by a trace", hint));
            }
            Ok(file)
        };
        let found = read().map_err(|fault| fault.within(file))?;
        let name = found.name.unwrap_or_else(|| file.into());
        let workers = found.load.workers;
        Ok(PlannedLoad { name, durable: found.durable, workers, shrinks: false })
    }

    /// What is measured if the user has no load: streams, and small requests at random offsets.
    pub fn usual() -> [PlannedLoad; 4] {
        let load = |name: &str, worker| {
            let workers = vec![worker];
            PlannedLoad { name: name.into(), durable: false, workers, shrinks: true }
        };
        let worker = |pattern, (count, depth), size, write_percent| WorkerChoice {
            pattern,
            count,
            write_percent,
            size: Size(size),
            depth,
            start: Size(0),
            zone: None,
        };
        // One file with read-ahead or a page cache, and 32 clients.
        let stream = |writes| worker(Pattern::Sequential, (1, 8), 1 << 20, writes);
        let small = |writes| worker(Pattern::Random, (32, 1), 4 << 10, writes);
        [
            load("read", stream(0)),
            load("write", stream(100)),
            load("4K reads", small(0)),
            load("4K writes", small(100)),
        ]
    }

    /// The largest request.
    pub(super) fn largest(&self) -> u64 {
        self.workers.iter().map(|worker| worker.size.0).max().unwrap_or(0)
    }

    /// Its workers on disks with this many bytes.
    pub(super) fn on(&self, bytes: u64) -> Vec<WorkerChoice> {
        let fitted = |worker: &WorkerChoice| {
            let rest = Size(bytes.saturating_sub(worker.start.0));
            let zone =
                worker.zone.map_or(rest, |zone| if self.shrinks { zone.min(rest) } else { zone });
            WorkerChoice { zone: Some(zone), ..worker.clone() }
        };
        self.workers.iter().map(fitted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_load_can_be_read() {
        for name in PlannedLoad::built_in_names() {
            let load = PlannedLoad::built_in(name).expect("built in");
            assert!(!load.workers.is_empty() && load.name.len() > 5, "{name}");
        }
        assert_eq!(PlannedLoad::built_in("none"), None);
    }

    #[test]
    fn faults_name_the_file_and_the_key() {
        let worker = "[[load.worker]]\npattern = \"random\"\n";
        for (text, part) in [
            (format!("{worker}size = \"1000B\""), "load.worker[0].size: not a multiple"),
            (format!("{worker}size = \"4KiB\"\ncount = 0"), "load.worker[0].count"),
            (format!("{worker}size = \"4KiB\"\nspeed = 1"), "line 4: speed: unknown field"),
            ("hardware = 1".into(), "line 1: hardware: unknown field"),
            ("[load.trace]\nfile = \"t\"".into(), "load.trace: no layouts"),
            ("durable = true".into(), "missing field `load`"),
        ] {
            let fault = PlannedLoad::read("a.toml", &text).expect_err(part).to_string();
            assert!(fault.starts_with("a.toml: ") && fault.contains(part), "{fault}");
        }
        let load = PlannedLoad::read("a.toml", &format!("{worker}size = \"4KiB\"")).expect("valid");
        assert_eq!((load.name.as_str(), load.durable), ("a.toml", false));
    }

    #[test]
    fn zones_are_the_same_on_every_layout() {
        let text = "[[load.worker]]\npattern = \"random\"\nsize = \"4KiB\"\n";
        let zone = |load: &PlannedLoad| load.on(1 << 30)[0].zone;
        let load = PlannedLoad::read("a.toml", text).expect("valid");
        assert_eq!(zone(&load), Some(Size(1 << 30)), "what all layouts hold");
        let zoned = format!("{text}zone = \"1TB\"");
        let load = PlannedLoad::read("a.toml", &zoned).expect("valid");
        assert_eq!(zone(&load), load.workers[0].zone, "the engine refuses it");
        let mail = PlannedLoad::built_in("mail").expect("built in");
        assert_eq!(zone(&mail), Some(Size(1 << 30)), "shrunk");
        assert_eq!(mail.on(1 << 40), mail.workers);
    }
}
