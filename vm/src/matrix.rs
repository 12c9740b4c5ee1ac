//! The matrix is run: each cell both ways.
//!
//! ```text
//!             host                   guest                  host                  guest
//!   theirs                           mdadm makes, fills ──▶ ours: reads, writes, ─▶ kernel: same
//!                                                           loses one, rebuilds     bytes, check 0
//!   ours      parapet makes, fills ▶ kernel: same bytes, ─▶ takes it back: same
//!                                    loses one, rebuilds    bytes, scrub 0
//! ```
//!
//! A batch of cells shares the guests: two boots for all of it. Owns the host's part; the guest's
//! is `vm/guest/cells.sh`.

use std::path::{Path, PathBuf};

use crate::cell::{self, Cell, Maker, Record, Way};
use crate::failure::{Failure, Result, ensure};
use crate::jobs::{Shop, again};
use crate::kernel::{self, Kernel};
use crate::outcome::Outcome;
use crate::parapet::{Parapet, Server};
use crate::pattern;

const MEMBER_BYTES: u64 = 10 << 20;
/// Size difference between successive members of an unequal array.
const STEP_BYTES: u64 = 3 << 20;
/// The largest array has at most this many members.
const MOST_BYTES: u64 = 4 * (MEMBER_BYTES + 3 * STEP_BYTES);
/// Trials that share a guest, at most: its boot costs little, its disks' caches do.
const BATCH: usize = 16;
/// Of a slow one, that it ends in time on a busy machine.
const FEW: usize = 4;

/// One of them, in its folder.
struct Trial<'a> {
    way: &'a Way,
    folder: PathBuf,
    program: &'a Path,
}

/// Runs these, a batch at a time.
pub(crate) fn run(ways: &[Way], shop: &Shop<'_>) -> Vec<Outcome> {
    let most = if shop.kernel.is_quick() { BATCH } else { FEW };
    // As many for each worker, of one size.
    let batches = ways.len().div_ceil(most).next_multiple_of(shop.jobs.max(1));
    let batch_of = ways.len().div_ceil(batches.max(1)).max(1);
    shop.work(ways.chunks(batch_of).enumerate(), |(number, ways)| {
        let folder = shop.state.join(format!("batch-{number}{}", shop.kernel.suffix()));
        let what = format!("batch {number}{}", shop.kernel.suffix());
        let outcomes = again(&what, || batch(ways, shop.kernel, shop.program, &folder));
        let outcomes = outcomes.unwrap_or_else(|why| {
            vec![Outcome { name: what, is_skip: false, failure: Some(why.to_string()) }]
        });
        if outcomes.iter().all(|outcome| outcome.failure.is_none()) {
            let _ = std::fs::remove_dir_all(&folder);
        }
        outcomes
    })
}

/// Runs a batch through all four turns.
///
/// # Errors
/// A guest died by itself.
fn batch(ways: &[Way], kernel: &Kernel, program: &Path, folder: &Path) -> Result<Vec<Outcome>> {
    let run = || match kernel.run("cells", folder) {
        Err(failure) if failure.is_of_guest() => Err(failure),
        booted => Ok(booted),
    };
    let trial = |way| Trial { way, folder: folder.join(folder_name(way)), program };
    let trials: Vec<Trial<'_>> = ways.iter().map(trial).collect();
    let mut failures: Vec<Option<Failure>> = trials.iter().map(|_| None).collect();
    let each = |failures: &mut Vec<Option<Failure>>, step: &dyn Fn(&Trial<'_>) -> Result| {
        for (trial, failure) in trials.iter().zip(failures) {
            if failure.is_none() {
                *failure = step(trial).err();
            }
        }
    };
    let ready = pattern_file(folder);
    each(&mut failures, &|trial| {
        ready.as_ref().map_err(|failure| Failure::new(failure.to_string()))?;
        trial.begin()
    });
    let booted = run()?;
    each(&mut failures, &|trial| {
        trial.guest_has(trial.first(), &booted)?;
        trial.between()
    });
    let booted = run()?;
    each(&mut failures, &|trial| match trial.way.maker {
        Maker::Theirs => trial.guest_has("check_again", &booted),
        Maker::Ours => Ok(()),
    });
    let outcome = |(trial, failure): (&Trial<'_>, Option<Failure>)| Outcome {
        name: format!("{}{}", trial.way, kernel.suffix()),
        is_skip: failure.as_ref().is_some_and(Failure::is_skip),
        failure: failure.map(|failure| format!("{failure}\n  in {}", trial.folder.display())),
    };
    Ok(trials.iter().zip(failures).map(outcome).collect())
}

/// No spaces: the guest's scripts would have to quote them.
fn folder_name(way: &Way) -> String {
    way.to_string().replace(' ', "-")
}

fn pattern_file(folder: &Path) -> Result {
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder)?;
    Ok(std::fs::write(folder.join("pattern"), pattern::bytes(MOST_BYTES))?)
}

impl Trial<'_> {
    fn parapet(&self) -> Parapet<'_> {
        Parapet { program: self.program, folder: self.folder.clone() }
    }

    fn member_bytes(&self, index: usize) -> u64 {
        MEMBER_BYTES + if self.way.cell.unequal { index as u64 * STEP_BYTES } else { 0 }
    }

    fn names(&self) -> Vec<String> {
        (0..self.way.cell.members).map(|index| format!("m{index}")).collect()
    }

    /// The host's first turn: creates the members and, if Parapet is the maker, the full array.
    fn begin(&self) -> Result {
        std::fs::create_dir_all(&self.folder)?;
        for (index, name) in self.names().iter().enumerate() {
            self.file(name, self.member_bytes(index))?;
        }
        if self.way.cell.is_redundant() {
            self.file("spare", MEMBER_BYTES)?;
        }
        match self.way.maker {
            Maker::Theirs => self.hand_over(self.first(), ""),
            Maker::Ours => {
                let uuid = self.make()?;
                self.hand_over(self.first(), &uuid)
            }
        }
    }

    fn file(&self, name: &str, bytes: u64) -> Result {
        Ok(std::fs::File::create(self.folder.join(name))?.set_len(bytes)?)
    }

    /// Parapet makes the array, and fills it. Gives its UUID, without colons.
    fn make(&self) -> Result<String> {
        let Cell { layout, metadata, chunk_kib, record, .. } = &self.way.cell;
        let level = layout.level();
        let (name, layout) = (level.name().replace("raid", ""), layout.to_string());
        let chunk = format!("{chunk_kib}K");
        let mut words = vec!["create", "tank", "--yes", "--level", &name, "--metadata", metadata];
        if layout != "none" {
            words.extend(["--layout", &layout]);
        }
        if *chunk_kib > 0 {
            words.extend(["--chunk", &chunk]);
        }
        match record {
            Record::None if self.way.cell.is_redundant() => {
                words.extend(["--consistency", "resync"])
            }
            Record::Ppl => words.extend(["--consistency", "ppl"]),
            _ => {}
        }
        let names = self.names();
        words.extend(names.iter().map(String::as_str));
        let parapet = self.parapet();
        parapet.run(&words)?;
        let server = parapet.serve(&names.iter().map(String::as_str).collect::<Vec<_>>(), &[])?;
        let status = server.order(&["status", "tank"])?;
        let bytes = status["capacity_bytes"].as_u64();
        let bytes =
            bytes.ok_or_else(|| Failure::new(format!("status has no capacity: {status}")))?;
        self.expect_pattern(bytes)?;
        server.fill("expected")?;
        server.wait_until_idle(true)?;
        server.stop()?;
        let uuid = status["uuid"].as_str().unwrap_or_default();
        Ok(uuid.replace([':', '-'], ""))
    }

    fn expect_pattern(&self, bytes: u64) -> Result {
        ensure(bytes <= MOST_BYTES, || format!("an array of {bytes} bytes"))?;
        let mut pattern = std::fs::File::open(self.folder.join("../pattern"))?;
        let mut expected = std::fs::File::create(self.folder.join("expected"))?;
        std::io::copy(&mut std::io::Read::take(&mut pattern, bytes), &mut expected)?;
        Ok(())
    }

    /// The guest's turn: writes its instructions for this cell.
    fn hand_over(&self, what: &str, uuid: &str) -> Result {
        let Cell { layout, members, metadata, chunk_kib, .. } = &self.way.cell;
        let level = layout.level();
        let files = match what {
            "check_again" if self.way.cell.is_redundant() => {
                self.names().join(" ").replace("m1", "spare")
            }
            _ => self.names().join(" "),
        };
        let spare = if self.way.cell.is_redundant() { "spare" } else { "" };
        kernel::set(
            &self.folder,
            &[
                ("level", &level.name().replace("raid", "")),
                ("level_name", level.name()),
                ("metadata", metadata),
                ("members", &members.to_string()),
                ("files", &files),
                ("spare", spare),
                ("chunk", &chunk_kib.to_string()),
                ("layout_name", &cell::detail_layout(*layout)),
                ("policy", self.way.cell.policy()),
                ("flags", &flags(&self.way.cell)),
                ("pattern", "../pattern"),
                ("uuid", uuid),
            ],
        )?;
        Ok(std::fs::write(self.folder.join("turn"), what)?)
    }

    /// The guest's first turn.
    fn first(&self) -> &'static str {
        match self.way.maker {
            Maker::Theirs => "make",
            Maker::Ours => "adopt",
        }
    }

    /// How the guest's turn went.
    fn guest_has(&self, what: &str, booted: &Result) -> Result {
        booted.as_ref().map_err(|failure| Failure::new(failure.to_string()))?;
        let read = |name: &str| {
            std::fs::read_to_string(self.folder.join(format!("{name}.{what}"))).unwrap_or_default()
        };
        let status = read("status");
        ensure(status.trim() == "0", || {
            let log = read("log");
            let from = log.lines().count().saturating_sub(6);
            format!("kernel, {what}: {}", log.lines().skip(from).collect::<Vec<_>>().join("\n    "))
        })
    }

    /// The host's second turn.
    fn between(&self) -> Result {
        let parapet = self.parapet();
        match self.way.maker {
            Maker::Theirs => {
                let names = self.names();
                let server =
                    parapet.serve(&names.iter().map(String::as_str).collect::<Vec<_>>(), &[])?;
                self.work_on(&server)?;
                server.stop()?;
                self.hand_over("check_again", "")
            }
            Maker::Ours => {
                let mut names = self.names();
                if self.way.cell.is_redundant() {
                    names[1] = "spare".into();
                }
                let server =
                    parapet.serve(&names.iter().map(String::as_str).collect::<Vec<_>>(), &[])?;
                server.holds("expected")?;
                if self.way.cell.is_redundant() {
                    server.scrub()?;
                }
                server.stop()?;
                // Its next turn is none.
                Ok(std::fs::remove_file(self.folder.join("cell"))?)
            }
        }
    }

    /// Reads, writes, loses a member, writes, rebuilds, compares all.
    fn work_on(&self, server: &Server<'_>) -> Result {
        server.holds("expected")?;
        server
            .write("expected", &[(4096, 4096, 0x11), (700_000, 300_000, 0x22), (512, 512, 0x33)])?;
        if self.way.cell.is_redundant() {
            server.order(&["fail", "tank", "m1"])?;
            server.write("expected", &[(65_536, 131_072, 0x44), (1_500_160, 2560, 0x55)])?;
            server.holds("expected")?;
            server.order(&["remove", "tank", "m1"])?;
            server.order(&["add", "tank", "spare"])?;
            server.wait_until_idle(true)?;
            server.write("expected", &[(2_000_384, 70_144, 0x66)])?;
            server.scrub()?;
        }
        server.holds("expected")
    }
}

/// Options of `mdadm --create` for layout, chunk, and record.
fn flags(cell: &Cell) -> String {
    let mut words = Vec::new();
    let layout = cell.layout.to_string();
    if layout != "none" {
        words.push(format!("--layout={layout}"));
    }
    if cell.chunk_kib > 0 {
        words.push(format!("--chunk={}", cell.chunk_kib));
    }
    match cell.record {
        Record::Bitmap => words.push("--bitmap=internal".into()),
        Record::Ppl => words.push("--consistency-policy=ppl".into()),
        Record::None if cell.is_redundant() => words.push("--bitmap=none".into()),
        Record::None => {}
    }
    words.join(" ")
}
