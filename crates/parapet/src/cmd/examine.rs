//! `parapet examine`: shows superblocks and signatures on any disks.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use layout::Level;
use layout::md::superblock::{MAX_DEVICES, Role};
use layout::md::{Features, SECTOR, Superblock};
use layout::private::Tag;
use metadata::examine::{Examination, FoundJournal, FoundSuperblock};
use os::{Options, Spawner};

use crate::api::{
    Examined, ExaminedDisk, JournalView, LogView, PrivateView, SignatureView, SuperblockView,
};
use crate::failure::{Exit, Result};
use crate::terminal::Terminal;
use crate::{disks, engine};

/// Show superblocks and other signatures on disks
///
/// Reads only, and works on disks in use. Exit status 5 if a disk has no valid superblock and is no
/// journal device.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Block devices or files
    #[arg(value_name = "DISK", required = true)]
    disks: Vec<PathBuf>,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    let executor = engine::executor()?;
    let on = executor.spawner();
    let options = Options { read_only: true, lock: false, ..Options::default() };
    let mut examined = Examined { disks: Vec::new() };
    let mut failures = Vec::new();
    for path in &args.disks {
        match executor.block_on(look(path, &options, &on)) {
            Ok(disk) => examined.disks.push(disk),
            Err(failure) => {
                let (path, faults) = (path.display().to_string(), vec![failure.message.clone()]);
                let (superblocks, journal, signatures) = Default::default();
                let disk =
                    ExaminedDisk { path, bytes: 0, superblocks, journal, faults, signatures };
                examined.disks.push(disk);
                failures.push(failure);
            }
        }
    }
    // An unreadable disk must not hide the others.
    if failures.len() == args.disks.len() {
        return Err(failures.remove(0));
    }
    terminal.report(&examined);
    let is_known = |disk: &ExaminedDisk| !disk.superblocks.is_empty() || disk.journal.is_some();
    let all = examined.disks.iter().all(is_known);
    Ok(if all { Exit::Done } else { Exit::Unknown })
}

async fn look(path: &Path, options: &Options, on: &Spawner) -> Result<ExaminedDisk> {
    let opened = disks::open_one(path, options, on).await?;
    let found =
        metadata::examine::examine(&*opened.disk, &opened.clock).await.map_err(|error| {
            let source = std::io::Error::other(error.to_string());
            crate::failure::of_path(path, &source)
        })?;
    Ok(view(path.display().to_string(), &found))
}

fn view(path: String, found: &Examination) -> ExaminedDisk {
    let (mut superblocks, mut faults) = (Vec::new(), Vec::new());
    for trace in &found.superblocks {
        match &trace.superblock {
            Ok(superblock) => superblocks.push(view_superblock(trace, superblock)),
            Err(error) => {
                faults
                    .push(format!("{} superblock at byte {}: {error}", trace.format, trace.offset));
            }
        }
    }
    if found.superblocks.is_empty() && found.journal.is_none() {
        faults.push("no superblock".into());
    }
    let signatures = found.signatures.iter().map(SignatureView::of).collect();
    let journal = found.journal.as_ref().map(view_journal);
    ExaminedDisk { path, bytes: found.bytes, superblocks, journal, faults, signatures }
}

fn view_journal(found: &FoundJournal) -> JournalView {
    let header = &found.header;
    JournalView {
        uuid: header.device_uuid.to_string(),
        array_uuid: header.set_uuid.to_string(),
        array_name: header.set_name.to_string(),
        log_bytes: header.log.end - header.log.start,
        log: found.log.map(|log| LogView {
            zones: header.zones,
            zone_bytes: header.zone_bytes,
            batches: log.batches,
            records: log.records,
            damage: log.damage.map(|error| error.to_string()),
        }),
    }
}

fn view_superblock(trace: &FoundSuperblock, superblock: &Superblock) -> SuperblockView {
    let layout = trace.layout.as_ref();
    let map = trace.map.as_ref().and_then(|map| map.as_ref().ok());
    let recovering = superblock.features.contains(Features::RECOVERY_OFFSET);
    let bad_blocks = trace.bad_blocks.as_ref().and_then(|found| found.as_ref().ok());
    SuperblockView {
        version: trace.format.to_string(),
        offset: trace.offset,
        array_uuid: superblock.set_uuid.to_string(),
        array_name: superblock.set_name.to_string(),
        member_uuid: superblock.device.uuid.to_string(),
        level: layout.map_or_else(|_| superblock.level.to_string(), |l| l.level().to_string()),
        layout: layout.map_or_else(Clone::clone, ToString::to_string),
        chunk_bytes: u64::from(superblock.chunk_sectors) * SECTOR,
        slots: superblock.raid_disks,
        role: engine::role_word(superblock.own_role()),
        events: superblock.events,
        created: time(superblock.ctime.seconds()),
        updated: time(superblock.utime.seconds()),
        clean: superblock.is_clean(),
        data_offset: superblock.data_offset * SECTOR,
        data_bytes: map.map_or(superblock.data_size * SECTOR, |map| map.data.end - map.data.start),
        recovered_bytes: recovering.then_some(superblock.recovery_offset * SECTOR),
        slot_states: slot_states(superblock),
        bitmap_chunk_bytes: trace.bitmap.as_ref().and_then(|found| {
            found.header.as_ref().ok().map(|header| u64::from(header.chunk_bytes))
        }),
        dirty_bits: trace.bitmap.as_ref().map(|found| found.dirty),
        bad_blocks: bad_blocks.map_or(0, |found| found.blocks.ranges().len() as u64),
        private: view_private(trace),
        remarks: trace.remarks.clone(),
    }
}

fn view_private(trace: &FoundSuperblock) -> PrivateView {
    let private = trace.private.as_ref();
    let header = private.and_then(|found| found.header.as_ref().ok());
    PrivateView {
        private_area: header.is_some(),
        // Report nothing if there never was a header and none is needed.
        private_fault: private
            .filter(|found| found.latest.is_some() || needs_header(trace))
            .and_then(|found| found.header.as_ref().err())
            .map(ToString::to_string),
        consistency: header
            .or_else(|| private.and_then(|found| found.latest.as_ref()))
            .map(|header| header.consistency.into()),
        journal: header.and_then(|header| header.journal).map(Into::into),
        checksums: header.is_some_and(|header| header.checksums_from.is_some()),
        log: header.zip(private.and_then(|found| found.log)).map(|(header, found)| LogView {
            zones: header.log.zones,
            zone_bytes: header.log.zone_bytes,
            batches: found.batches,
            records: found.records,
            damage: found.damage.map(|error| error.to_string()),
        }),
    }
}

/// Returns true if Parapet wrote this superblock last and would have written a header with it.
fn needs_header(trace: &FoundSuperblock) -> bool {
    let ours = |superblock: &Superblock| Tag::of(superblock.utime).is_some();
    let parity = |layout: &layout::Layout| {
        matches!(layout.level(), Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid35)
    };
    trace.superblock.as_ref().is_ok_and(ours) && trace.layout.as_ref().is_ok_and(parity)
}

/// Prints `A` for each slot with a member, `.` for each one without.
fn slot_states(superblock: &Superblock) -> String {
    let letter = |slot: u16| if superblock.roles.contains(&Role::Slot(slot)) { 'A' } else { '.' };
    let slots = superblock.raid_disks.min(MAX_DEVICES as u32) as u16;
    (0..slots).map(letter).collect()
}

fn time(seconds: u64) -> Timestamp {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}
