//! Arrays that Parapet does not run: it names the reason and the remedy, and loses nothing; and
//! arrays that it only reads.
//!
//! The kernel that made such an array finishes its work, or undoes it as Parapet advises; then the
//! array is like any other. Formats that no kernel here can make are made by hand, and labelled so.

use std::os::unix::fs::FileExt;

use layout::md::{Features, Superblock};
use serde_json::Value;

use super::handover::NAMES;
use crate::failure::{Failure, Result, ensure};
use crate::stories::{SUPERBLOCK_AT, Stage, Story};

const fn story(name: &'static str, run: fn(&Stage<'_>) -> Result) -> Story {
    Story { name, run }
}

pub(super) const STORIES: &[Story] = &[
    story("refused: reshape under way", reshape),
    story("refused: journal device", journal),
    story("refused: clustered bitmap, made by hand", clustered),
    story("refused: unknown feature, made by hand", unknown),
    story("refused: ddf", |stage| container(stage, "ddf", "DDF")),
    story("refused: imsm", |stage| container(stage, "imsm", "IMSM")),
    story("only read: lockless bitmap, made by hand", lockless),
    story("only read: 0.90, raid0", |stage| old(stage, "old_raid0", ("", ""))),
    story("only read: 0.90, raid1", |stage| old(stage, "plain", ("1", "--bitmap=none"))),
    story("only read: 0.90, raid5", |stage| {
        old(stage, "plain", ("5", "--bitmap=internal --chunk=64"))
    }),
    story("kept: logical block size, made by hand", stamp),
];

const KIND: (&str, &str) = ("5", "--bitmap=internal --bitmap-chunk=64K --delay=1 --chunk=64");
const WITHOUT_BITMAP: (&str, &str) = ("5", "--bitmap=none --chunk=64");
const MEMBERS: &[&str] = NAMES.first_chunk::<3>().expect("there are five");
const WITH_SPARE: [&str; 4] = ["m0", "m1", "m2", "spare"];

/// The members' content.
struct Held<'a>(Vec<(&'a str, Vec<u8>)>);

impl<'a> Held<'a> {
    fn by(stage: &Stage<'_>, names: &[&'a str]) -> Result<Held<'a>> {
        let held = names.iter().map(|&name| Ok((name, stage.read(name)?)));
        Ok(Held(held.collect::<Result<_>>()?))
    }

    /// Not a byte of it has changed.
    fn assert_unchanged(&self, stage: &Stage<'_>) -> Result {
        for (name, bytes) in &self.0 {
            let now = stage.read(name)?;
            let first = now.iter().zip(bytes).position(|(now, before)| now != before);
            let same = first.is_none() && now.len() == bytes.len();
            ensure(same, || format!("{name} was written to at byte {first:?}"))?;
        }
        Ok(())
    }
}

/// Parapet neither assembles nor serves these, says so in these words, and writes nothing.
fn refused(stage: &Stage<'_>, names: &[&str], words: &[&str]) -> Result {
    let held = Held::by(stage, names)?;
    let says = |verb: &str, why: Option<Failure>| {
        let why = why.map(|why| why.to_string());
        let why = why.ok_or_else(|| Failure::new(format!("it is not refused: {verb}")))?;
        let matches = words.iter().all(|word| why.contains(word));
        ensure(matches, || format!("{verb} says {why}, and not {words:?}"))
    };
    says("assemble", stage.parapet.run(&[&["assemble", "tank"], names].concat()).err())?;
    says("serve", stage.parapet.serve(names, &[]).err())?;
    says("serve", stage.parapet.serve(names, &["--degraded"]).err())?;
    held.assert_unchanged(stage)
}

/// `parapet examine`'s remarks on a member contain these words.
fn examined(stage: &Stage<'_>, name: &str, words: &[&str]) -> Result {
    let examined = stage.parapet.run(&["examine", name])?;
    let remarks = examined["disks"][0]["superblocks"][0]["remarks"].to_string();
    let matches = words.iter().all(|word| remarks.contains(word));
    ensure(matches, || format!("examine remarks {remarks} on {name}, and not {words:?}"))
}

/// Parapet accepts the array with the expected content, and hands it back.
fn taken(stage: &Stage<'_>, names: &[&str]) -> Result {
    let server = stage.parapet.serve(names, &[])?;
    server.holds("before")?;
    server.write("before", &[(4096, 65_536, 0x11), (8 << 20, 4096, 0x22)])?;
    server.scrub()?;
    server.stop()?;
    stage.kernel_takes("sound", names, &[])
}

fn reshape(stage: &Stage<'_>) -> Result {
    stage.files(&["spare"], crate::stories::MEMBER_BYTES)?;
    stage.kernel_makes("reshape", WITHOUT_BITMAP, MEMBERS, &[("until", "8192")])?;
    let superblock = stage.superblock("m0")?;
    let on_the_way = superblock.features.contains(Features::RESHAPE)
        && superblock.reshape.position > 0
        && superblock.raid_disks == 4;
    ensure(on_the_way, || format!("it is not being reshaped: {superblock:?}"))?;
    refused(stage, &WITH_SPARE, &["being reshaped", "let Linux finish that"])?;
    examined(stage, "m0", &["being reshaped", "3 to 4"])?;
    stage.kernel_takes("reshaped", &WITH_SPARE, &[("pattern", "pattern"), ("grow", "")])?;
    taken(stage, &WITH_SPARE)
}

fn journal(stage: &Stage<'_>) -> Result {
    stage.files(&["spare"], crate::stories::MEMBER_BYTES)?;
    stage.kernel_makes("journal", WITHOUT_BITMAP, MEMBERS, &[])?;
    let words = ["has a journal device", "mdadm", "--fail", "--remove", "consistency_policy"];
    refused(stage, &WITH_SPARE, &words)?;
    refused(stage, MEMBERS, &words)?;
    stage.kernel_takes("unjournal", &WITH_SPARE, &[])?;
    taken(stage, MEMBERS)
}

/// Changes the superblocks of members.
fn patch(stage: &Stage<'_>, change: impl Fn(&mut Superblock)) -> Result {
    for name in MEMBERS {
        let mut superblock = stage.superblock(name)?;
        change(&mut superblock);
        let file = std::fs::File::options().write(true).open(stage.path(name))?;
        file.write_all_at(&superblock.print(), SUPERBLOCK_AT)?;
    }
    Ok(())
}

/// Gives the bitmaps of members another version.
fn patch_bitmap(stage: &Stage<'_>, version: u32) -> Result {
    for name in MEMBERS {
        let at = SUPERBLOCK_AT as i64 + i64::from(stage.superblock(name)?.bitmap_offset) * 512;
        let file = std::fs::File::options().write(true).open(stage.path(name))?;
        file.write_all_at(&version.to_le_bytes(), at as u64 + 4)?;
    }
    Ok(())
}

fn clustered(stage: &Stage<'_>) -> Result {
    stage.kernel_makes("filled", KIND, MEMBERS, &[])?;
    patch(stage, |superblock| superblock.features = superblock.features.with(Features::CLUSTERED))?;
    patch_bitmap(stage, 5)?;
    refused(stage, MEMBERS, &["cluster of Linux machines", "not supported"])
}

fn unknown(stage: &Stage<'_>) -> Result {
    stage.kernel_makes("filled", KIND, MEMBERS, &[])?;
    let feature = Features(1 << 20);
    patch(stage, |superblock| superblock.features = superblock.features.with(feature))?;
    refused(stage, MEMBERS, &["features that are not known here", "newer Parapet"])
}

fn container(stage: &Stage<'_>, format: &str, name: &str) -> Result {
    let names = &NAMES[..2];
    stage.files(names, 48 << 20)?;
    let members = names.len().to_string();
    let more =
        [("level", "1"), ("metadata", format), ("members", &*members), ("pattern", "pattern")];
    stage.kernel_takes("container", names, &more)?;
    refused(stage, names, &[name, "not supported", "let Linux"])?;
    // Nor does a new array take the place of the old one.
    let held = Held::by(stage, names)?;
    let made = stage.parapet.run(&[&["create", "new", "--yes", "--level", "1"], names].concat());
    let why = made.err().map(|why| why.to_string()).unwrap_or_default();
    ensure(why.contains("would be overwritten"), || format!("create says {why:?}"))?;
    held.assert_unchanged(stage)
}

/// Reads the array, and refuses writes; no byte of the members changes.
fn only_read(stage: &Stage<'_>, array: &str, why: &str) -> Result {
    let held = Held::by(stage, MEMBERS)?;
    let server = stage.parapet.serve_called(array, MEMBERS, &[])?;
    let status = server.order(&["status", array])?;
    ensure(status["writable"] == Value::Bool(false), || format!("it is writable: {status}"))?;
    server.holds("before")?;
    std::fs::copy(stage.path("before"), stage.path("scratch"))?;
    let written = server.write("scratch", &[(4096, 4096, 0x11)]);
    ensure(written.is_err(), || "it takes writes".into())?;
    server.kill()?;
    let log = stage.text("server.log")?;
    ensure(log.contains("read-only") && log.contains(why), || format!("it says {log}"))?;
    let assembled = stage.parapet.run(&[&["assemble", array], MEMBERS].concat())?;
    let settled = &assembled["settled"];
    ensure(*settled == Value::Bool(false), || format!("assemble says: {assembled}"))?;
    let server = stage.parapet.serve_called(array, MEMBERS, &["--read-only"])?;
    server.holds("before")?;
    server.kill()?;
    held.assert_unchanged(stage)
}

fn lockless(stage: &Stage<'_>) -> Result {
    stage.kernel_makes("filled", KIND, MEMBERS, &[])?;
    patch_bitmap(stage, 6)?;
    only_read(stage, "tank", "lockless bitmap")?;
    // Which parts of a member can be relied on only that bitmap knows.
    let held = Held::by(stage, &MEMBERS[1..])?;
    let why = stage.parapet.serve(&MEMBERS[1..], &["--degraded"]).err();
    let why = why.map(|why| why.to_string()).unwrap_or_default();
    let matches = why.contains("lockless bitmap") && why.contains("let Linux assemble it");
    ensure(matches, || format!("with a member missing it says {why:?}"))?;
    held.assert_unchanged(stage)
}

/// An array of version 0.90.
fn old(stage: &Stage<'_>, script: &str, how: (&str, &str)) -> Result {
    stage.kernel_makes(script, how, MEMBERS, &[("metadata", "0.90")])?;
    let examined = stage.parapet.run(&["examine", "m0"])?;
    let superblock = &examined["disks"][0]["superblocks"][0];
    let version = &superblock["version"];
    ensure(version == "md 0.90", || format!("it is of version {version}"))?;
    only_read(stage, superblock["array_uuid"].as_str().unwrap_or_default(), "old version 0.90")
}

/// Linux 6.19 writes the size of a block where older kernels want 0.
fn stamp(stage: &Stage<'_>) -> Result {
    const BLOCK_BYTES: u32 = 4096;
    stage.kernel_makes("filled", KIND, MEMBERS, &[])?;
    patch(stage, |superblock| superblock.logical_block_size = BLOCK_BYTES)?;
    examined(stage, "m1", &["blocks of 4096 bytes", "6.19", "older kernels"])?;
    let server = stage.parapet.serve(MEMBERS, &[])?;
    server.holds("before")?;
    server.order(&["fail", "tank", "m1"])?;
    server.write("before", &[(4096, 65_536, 0x11), (8 << 20, 4096, 0x22)])?;
    server.order(&["re-add", "tank", "m1"])?;
    server.wait_until_idle(true)?;
    server.scrub()?;
    server.stop()?;
    for name in MEMBERS {
        let found = stage.superblock(name)?.logical_block_size;
        ensure(found == BLOCK_BYTES, || format!("{name} has {found} for a block"))?;
    }
    // Without it, it is an array for the kernel that there is.
    patch(stage, |superblock| superblock.logical_block_size = 0)?;
    stage.kernel_takes("sound", MEMBERS, &[])
}
