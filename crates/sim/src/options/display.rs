//! The full set of options as a person reads it, one line for each group, before a run begins.
//!
//! Owns no option: structs are destructured without omitting a field, so that a new one must be
//! printed to compile.

use std::fmt;

use array::CacheMode;
use io::Limits;
use layout::Level;
use metadata::Bounds;

use super::{Options, Shape, Size, Wish};
use crate::disk::Build;

/// The cache modes, with their words on the command line.
pub const CACHES: [(CacheMode, &str); 3] =
    [(CacheMode::None, "none"), (CacheMode::Sync, "sync"), (CacheMode::Writeback, "writeback")];

/// The words of the command line, without a blank in front; nothing if all is drawn.
impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wish { level, shards, cache, size, checksums, journal, ruins, stores } = *self;
        let cache = CACHES.into_iter().find(|&(mode, _)| Some(mode) == cache);
        let size = match size {
            Size::Drawn => None,
            Size::Standard => Some("--standard"),
            Size::Full => Some("--full"),
        };
        let words = [
            level.map(|level: Level| format!("--level {}", level.name())),
            shards.map(|shards| format!("--shards {shards}")),
            cache.map(|(_, name)| format!("--cache {name}")),
            size.map(String::from),
            checksums.then(|| "--checksums".into()),
            journal.then(|| "--journal".into()),
            ruins.then(|| "--ruins".into()),
            stores.then(|| "--stores".into()),
        ];
        f.write_str(&words.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

/// Two lines: the array, and the engine's limits.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { layout, chunk_bytes, members, version, bitmap_chunk, consistency, .. } = self;
        let Shape { checksums, journal_bytes, shards, check_reads, cache, bounds, .. } = self;
        let Shape { region_bytes, .. } = self;
        write!(f, "{} {layout} of {members}, chunk {chunk_bytes}", layout.level())?;
        write!(f, ", {shards} shards, region {region_bytes}")?;
        write!(f, ", superblock {version}, bitmap {bitmap_chunk:?}")?;
        write!(f, ", consistency {}", consistency.name())?;
        match journal_bytes {
            0 => write!(f, ", no journal device")?,
            bytes => write!(f, ", journal device of {bytes}")?,
        }
        write!(f, ", checksums {checksums}, reads checked {check_reads}")?;
        match cache {
            CacheMode::None => write!(f, ", no cache")?,
            CacheMode::Sync => write!(f, ", each write flushed")?,
            CacheMode::Writeback => write!(f, ", write-back")?,
        }
        write!(f, "\n  limits: {}", Numbers(bounds))
    }
}

/// The engine's limits.
struct Numbers<'a>(&'a Bounds);

impl fmt::Display for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Bounds {
            units,
            unit_bytes,
            scratch_bytes,
            cache_bytes,
            cache_linger,
            log_bytes,
            checksums_bytes,
            ahead_bytes,
            ahead_rotating_bytes,
            ahead_member_bytes,
            ahead_turn,
            ahead_streams,
            stream_patience,
            keep_bytes,
            member_op_bytes,
            deadline,
            slow_report,
            hedge_floor,
            hedge_percent,
            hedges,
            region_linger,
            clean_delay,
            job_units,
            checkpoint_bytes,
            read_errors,
        } = self.0;
        write!(f, "units {units} of {unit_bytes}, scratch {scratch_bytes}, keep {keep_bytes}")?;
        write!(f, ", cache {cache_bytes} for {cache_linger:?}, patience {stream_patience:?}")?;
        write!(f, ", log {log_bytes}, sums {checksums_bytes}")?;
        write!(f, ", read-ahead {ahead_bytes} or {ahead_rotating_bytes} for {ahead_streams}")?;
        write!(f, ", a member {ahead_member_bytes} for {ahead_turn:?}")?;
        write!(f, ", member op {member_op_bytes}, deadline {deadline:?}")?;
        write!(f, ", slow after {slow_report:?}")?;
        write!(f, ", hedges {hedges} after {hedge_floor:?}, {hedge_percent} %")?;
        write!(f, ", job units {job_units}, checkpoint {checkpoint_bytes}")?;
        write!(f, ", linger {region_linger:?}, clean after {clean_delay:?}")?;
        match read_errors {
            u32::MAX => write!(f, ", read errors unlimited"),
            most => write!(f, ", read errors {most}"),
        }
    }
}

/// The properties of every disk; its size is printed elsewhere.
fn tell_build(f: &mut fmt::Formatter<'_>, build: &Build) -> fmt::Result {
    let Build { limits, fill, latency_us } = build;
    let &Limits {
        bytes: _,
        logical_block,
        physical_block,
        atomic_write,
        optimal,
        zero,
        discard,
        discard_zeroes,
        rotational,
        read_only,
        volatile,
        boot_id,
        epoch,
        store: _,
    } = limits;
    write!(f, "{fill:?}, latency {latency_us} us, volatile {volatile}, zero {zero:?}")?;
    write!(f, ", discard {discard}, discard zeroes {discard_zeroes}")?;
    write!(f, ", blocks {logical_block} on {physical_block}, atomic {atomic_write}")?;
    write!(f, ", optimal {optimal}, rotational {rotational}, read-only {read_only}")?;
    write!(f, ", boot {boot_id}, epoch {epoch}")
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { seed, wish, outer, inner, data_bytes, build, alike, keep, .. } = self;
        let Options { clients, requests, mix, request_sectors, hot_percent, .. } = self;
        let Options { dangers, incidents, faults_most, lies, crashes, garbage, .. } = self;
        let wish = wish.to_string();
        writeln!(f, "options: seed {seed}, {}", if wish.is_empty() { "no wishes" } else { &wish })?;
        writeln!(f, "array: {outer}")?;
        if let Some(inner) = inner {
            writeln!(f, "each member: {inner}")?;
        }
        write!(f, "disks: data bytes {data_bytes:?}, alike {alike}, ")?;
        tell_build(f, build)?;
        write!(f, "\nload: {clients} clients × {requests} requests of up to {request_sectors}")?;
        let [read, write, zero, discard, flush, extents] = mix;
        write!(f, " sectors, mix read {read}, write {write}, zero {zero}, discard {discard}")?;
        writeln!(f, ", flush {flush}, extents {extents}, hot {hot_percent} %")?;
        write!(f, "{incidents} incidents, {lies} lies, {crashes} crashes, garbage {garbage}")?;
        match *faults_most {
            u64::MAX => write!(f, ", faults unlimited")?,
            most => write!(f, ", none on its own after {most} faults")?,
        }
        write!(f, ": {dangers:?}")?;
        if keep.is_all() { Ok(()) } else { write!(f, "\nkept: {keep}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_words_of_the_command_line() {
        assert_eq!(Wish::default().to_string(), "");
        let wish = Wish {
            level: Some(Level::Raid35),
            shards: Some(3),
            cache: Some(CacheMode::Sync),
            size: Size::Full,
            checksums: true,
            journal: true,
            ruins: true,
            stores: true,
        };
        let words = "--level raid3.5 --shards 3 --cache sync --full --checksums --journal --ruins \
                     --stores";
        assert_eq!(wish.to_string(), words);
    }

    /// A run's decisions can be read before it starts.
    #[test]
    fn no_option_is_left_out() {
        let text = Options::draw(17, Wish { checksums: true, ..Wish::default() }).to_string();
        let groups =
            ["options: seed 17, --checksums\n", "array: ", "  limits: ", "disks: ", "load: "];
        assert!(groups.iter().all(|group| text.contains(group)), "{text}");
        let few = ["of up to 512 sectors", "keep 1048576", "patience", "read errors", "cache "];
        assert!(few.iter().all(|words| text.contains(words)), "{text}");
    }
}
