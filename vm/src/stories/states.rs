//! Arrays during a rebuild, a replacement or a loss; flags and lists of members.
//!
//! One side creates the state; the other must understand it, continue from it, and preserve all
//! flags and lists.

use std::os::unix::fs::FileExt;

use layout::md::Features;
use layout::md::superblock::Role;
use serde_json::Value;

use super::handover::{NAMES, full};
use crate::failure::{Failure, Result, ensure};
use crate::parapet::Server;
use crate::pattern;
use crate::stories::{BLOCK, MEMBER_BYTES, Stage, Story};

const fn story(name: &'static str, run: fn(&Stage<'_>) -> Result) -> Story {
    Story { name, run }
}

/// How a spare is filled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Rebuild,
    Replace,
}

use How::{Rebuild, Replace};

impl How {
    fn word(self) -> &'static str {
        match self {
            Rebuild => "rebuild",
            Replace => "replace",
        }
    }
}

pub(super) const STORIES: &[Story] = &[
    story("kernel stops a rebuild, raid1", |stage| kernel_stops(stage, Rebuild, RAID1)),
    story("kernel stops a rebuild, raid10", |stage| kernel_stops(stage, Rebuild, RAID10)),
    story("kernel stops a rebuild, raid5", |stage| kernel_stops(stage, Rebuild, RAID5)),
    story("kernel stops a rebuild, raid6", |stage| kernel_stops(stage, Rebuild, RAID6)),
    story("kernel stops a replacement, raid1", |stage| kernel_stops(stage, Replace, RAID1)),
    story("kernel stops a replacement, raid10", |stage| kernel_stops(stage, Replace, RAID10)),
    story("kernel stops a replacement, raid6", |stage| kernel_stops(stage, Replace, RAID6)),
    story("parapet stops a rebuild, raid1", |stage| parapet_stops(stage, Rebuild, RAID1)),
    story("parapet stops a rebuild, raid10", |stage| parapet_stops(stage, Rebuild, RAID10)),
    story("parapet stops a rebuild, raid6", |stage| parapet_stops(stage, Rebuild, RAID6)),
    story("parapet stops a replacement, raid1", |stage| parapet_stops(stage, Replace, RAID1)),
    story("parapet stops a replacement, raid5", |stage| parapet_stops(stage, Replace, RAID5)),
    story("kernel stops a resync, raid1", |stage| kernel_stops_resync(stage, RAID1)),
    story("kernel stops a resync, raid10", |stage| kernel_stops_resync(stage, RAID10)),
    story("kernel stops a resync, raid5", |stage| kernel_stops_resync(stage, RAID5)),
    story("kernel stops a resync, raid6", |stage| kernel_stops_resync(stage, RAID6)),
    story("parapet stops a resync, raid1", |stage| parapet_stops_resync(stage, RAID1)),
    story("parapet stops a resync, raid10", |stage| parapet_stops_resync(stage, RAID10)),
    story("parapet stops a resync, raid5", |stage| parapet_stops_resync(stage, RAID5)),
    story("a spare of the kernel's takes over in parapet", kernels_spare),
    story("a spare of parapet's takes over in the kernel", parapets_spare),
    story("parapet takes back who left the kernel, raid1", |stage| back_to_us(stage, RAID1)),
    story("parapet takes back who left the kernel, raid10", |stage| back_to_us(stage, RAID10)),
    story("parapet takes back who left the kernel, raid5", |stage| back_to_us(stage, RAID5)),
    story("kernel takes back who left parapet, raid1", |stage| back_to_them(stage, RAID1)),
    story("kernel takes back who left parapet, raid10", |stage| back_to_them(stage, RAID10)),
    story("kernel takes back who left parapet, raid6", |stage| back_to_them(stage, RAID6)),
    story("kernel's bad blocks, raid1", |stage| kernels_bad(stage, RAID1)),
    story("kernel's bad blocks, raid10", |stage| kernels_bad(stage, RAID10)),
    story("kernel's bad blocks, raid5", |stage| kernels_bad(stage, RAID5)),
    story("kernel's bad blocks, raid6", |stage| kernels_bad(stage, RAID6)),
    story("blocks that parapet could not rebuild", lost),
    story("write-mostly and failfast", flags),
];

/// The kind of array.
#[derive(Clone, Copy)]
struct Kind {
    level: &'static str,
    members: usize,
    /// Bytes of the array for each byte of a member.
    gain: u64,
    /// How Parapet is to keep it.
    policy: &'static str,
}

const RAID1: Kind = Kind { level: "1", members: 2, gain: 1, policy: "bitmap" };
const RAID10: Kind = Kind { level: "10", members: 4, gain: 2, policy: "bitmap" };
const RAID5: Kind = Kind { level: "5", members: 4, gain: 3, policy: "intent" };
const RAID6: Kind = Kind { level: "6", members: 5, gain: 3, policy: "intent" };

impl Kind {
    fn names(self) -> &'static [&'static str] {
        &NAMES[..self.members]
    }

    fn flags(self) -> &'static str {
        match self.level {
            "1" => "--bitmap=internal --bitmap-chunk=64K --delay=1",
            _ => "--bitmap=internal --bitmap-chunk=64K --delay=1 --chunk=64",
        }
    }

    /// The present members when `spare` is in the second slot, or being rebuilt.
    fn with_spare(self, how: How) -> Vec<&'static str> {
        let mut names = self.names().to_vec();
        match how {
            Rebuild => names[1] = "spare",
            Replace => names.push("spare"),
        }
        names
    }
}

/// Adds a disk that holds data: `noise` fills it.
const NOISE: &str = "--overwrite-signature=data@0x0";

/// A file of noise: only written data can be mistaken for content.
fn noise(stage: &Stage<'_>, name: &str) -> Result {
    let mut bytes = pattern::bytes(MEMBER_BYTES);
    bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
    Ok(std::fs::write(stage.path(name), bytes)?)
}

/// How far a member is filled, in sectors of its data.
fn filled(stage: &Stage<'_>, name: &str, how: How) -> Result<u64> {
    let superblock = stage.superblock(name)?;
    let mut features = Features::RECOVERY_OFFSET;
    if how == Replace {
        features = features.with(Features::REPLACEMENT);
    }
    ensure(superblock.features.contains(features), || format!("{name} is not being filled"))?;
    let (done, all) = (superblock.recovery_offset, superblock.size);
    ensure(done > 0 && done < all, || format!("{name} is filled up to {done} of {all} sectors"))?;
    Ok(done)
}

/// The name of a member's file; `-` if there is no member.
fn name_of(member: &Value) -> &str {
    member["name"].as_str().map_or("-", |path| path.rsplit('/').next().unwrap_or(path))
}

/// The member of that name in `status`.
fn member<'a>(status: &'a Value, name: &str) -> Result<&'a Value> {
    let slots = status["slots"].as_array().into_iter().flatten();
    let mut members = slots.flat_map(|slot| [&slot["member"], &slot["replacement"]]);
    let found = members.find(|found| name_of(found) == name);
    found.ok_or_else(|| Failure::new(format!("{name} has no slot: {status}")))
}

/// How much was written to it, by Parapet.
fn written(status: &Value, name: &str) -> Result<u64> {
    Ok(member(status, name)?["written_bytes"].as_u64().unwrap_or(u64::MAX))
}

/// The kernel fills half of a spare; Parapet fills the rest, and trusts only that half.
fn kernel_stops(stage: &Stage<'_>, how: How, kind: Kind) -> Result {
    noise(stage, "spare")?;
    let more = [("how", how.word()), ("until", "12288")];
    stage.kernel_makes("half", (kind.level, kind.flags()), kind.names(), &more)?;
    let done = filled(stage, "spare", how)? * 512;
    let all = stage.superblock("spare")?.size * 512;
    let server = stage.parapet.serve(&kind.with_spare(how), &["--speed-max", "16K"])?;
    let status = server.order(&["status", "tank"])?;
    let job = &status["job"];
    ensure(job["kind"] == how.word(), || format!("it does not go on: {status}"))?;
    let left = (all - done) * kind.gain;
    ensure(job["total_bytes"] == left, || format!("{left} bytes are left to do: {job}"))?;
    server.holds("before")?;
    server.write("before", &[(4096, 65_536, 0x11), (8 << 20, 65_536, 0x22)])?;
    server.order(&["speed", "tank", "--speed-max", "off"])?;
    let status = server.wait_until_idle(true)?;
    let (written, most) = (written(&status, "spare")?, all - done + (1 << 20));
    ensure(written < most, || format!("{written} bytes were written to fill {}", all - done))?;
    server.scrub()?;
    server.holds("before")?;
    server.stop()?;
    stage.kernel_takes("sound", &kind.with_spare(Rebuild), &[])
}

/// The reverse.
fn parapet_stops(stage: &Stage<'_>, how: How, kind: Kind) -> Result {
    let server = full(stage, (kind.level, kind.policy), kind.names())?;
    noise(stage, "spare")?;
    server.order(&["speed", "tank", "--speed-max", "2M"])?;
    match how {
        Rebuild => {
            server.order(&["fail", "tank", "m1"])?;
            server.order(&["remove", "tank", "m1"])?;
            server.write("before", &[(4096, 65_536, 0x11), (8 << 20, 65_536, 0x22)])?;
            server.order(&["add", "tank", "spare", NOISE])?;
        }
        Replace => drop(server.order(&["replace", "tank", "m1", "spare", NOISE])?),
    }
    under_way(&server)?;
    server.stop()?;
    let done = filled(stage, "spare", how)?;
    let left = (stage.superblock("spare")?.size - done) * 512;
    let more = [("from", &*done.to_string()), ("most", &*(left + (1 << 20)).to_string())];
    stage.kernel_takes("goes_on", &kind.with_spare(how), &more)?;
    let server = stage.parapet.serve(&kind.with_spare(Rebuild), &[])?;
    server.holds("before")?;
    server.scrub()?;
    server.stop()
}

/// Waits until a third of the work is done.
fn under_way(server: &Server<'_>) -> Result {
    loop {
        let status = server.order(&["status", "tank"])?;
        let job = &status["job"];
        ensure(!job.is_null(), || "it is done already".into())?;
        if job["done_bytes"].as_u64() > job["total_bytes"].as_u64().map(|all| all / 3) {
            return Ok(());
        }
    }
}

/// The sync position of the array and its end: sectors of members, or of RAID 10.
fn synced(stage: &Stage<'_>, kind: Kind) -> Result<(u64, u64)> {
    let superblock = stage.superblock("m0")?;
    let all = superblock.size * if kind.level == "10" { kind.gain } else { 1 };
    let done = superblock.resync_offset;
    ensure(done > 0 && done < all, || format!("it is in sync up to {done} of {all}"))?;
    Ok((done, all))
}

/// The kernel resyncs a part of an array; Parapet goes on from there.
fn kernel_stops_resync(stage: &Stage<'_>, kind: Kind) -> Result {
    let flags = if kind.level == "1" { "--bitmap=none" } else { "--bitmap=none --chunk=64" };
    stage.kernel_makes("resync", (kind.level, flags), kind.names(), &[("until", "12288")])?;
    let (done, all) = synced(stage, kind)?;
    // The last member holds parity, or a second copy, of stripe 160 there.
    let last = kind.names()[kind.members - 1];
    let at = stage.superblock(last)?.data_offset * 512 + 160 * (64 << 10);
    let file = std::fs::File::options().write(true).open(stage.path(last))?;
    file.write_all_at(&[0xee; 4096], at)?;
    let server = stage.parapet.serve(kind.names(), &["--speed-max", "16K"])?;
    let status = server.order(&["status", "tank"])?;
    let job = &status["job"];
    let gain = if kind.level == "10" { 1 } else { kind.gain };
    let left = (all - done) * 512 * gain;
    let goes_on = job["kind"] == "resync" && job["total_bytes"] == left;
    ensure(goes_on, || format!("{left} bytes are to be synced, and not: {job}"))?;
    server.order(&["speed", "tank", "--speed-max", "off"])?;
    server.wait_until_idle(true)?;
    server.scrub()?;
    server.holds("before")?;
    server.stop()?;
    stage.kernel_takes("sound", kind.names(), &[])
}

/// Parapet dies while it writes, and is stopped while it syncs all; the kernel goes on.
fn parapet_stops_resync(stage: &Stage<'_>, kind: Kind) -> Result {
    full(stage, (kind.level, "resync"), kind.names())?.die_writing("after")?;
    let server = stage.parapet.serve(kind.names(), &["--speed-max", "2M"])?;
    under_way(&server)?;
    server.stop()?;
    let (done, _) = synced(stage, kind)?;
    stage.kernel_takes("resumes", kind.names(), &[("from", &done.to_string())])?;
    stage.allowed(|_| true).map(drop)
}

const SPARES: [&str; 2] = ["s0", "s1"];

/// The role of a member by its own superblock, from `parapet examine`.
fn role(stage: &Stage<'_>, name: &str) -> Result<String> {
    let examined = stage.parapet.run(&["examine", name])?;
    let role = &examined["disks"][0]["superblocks"][0]["role"];
    Ok(role.as_str().unwrap_or_default().to_owned())
}

/// Checks all roles: the names of the slots' members, of spares, and of failed members.
fn expect_slots(
    server: &Server<'_>,
    slots: &[&str],
    spares: &[&str],
    faulty: &[&str],
) -> Result<Value> {
    let status = server.order(&["status", "tank"])?;
    let list = |what: &str| status[what].as_array().cloned().unwrap_or_default();
    let names =
        |members: Vec<Value>| members.iter().map(|m| name_of(m).to_owned()).collect::<Vec<_>>();
    let assigned = list("slots").iter().map(|slot| slot["member"].clone()).collect();
    let found = [names(assigned), names(list("spares")), names(list("faulty"))];
    let wanted = [slots, spares, faulty].map(<[&str]>::to_vec);
    ensure(found == wanted, || format!("slots, spares, faulty: {found:?}, not {wanted:?}"))?;
    Ok(status)
}

/// The kernel has a spare, and a member that is faulty: that one stays out.
fn kernels_spare(stage: &Stage<'_>) -> Result {
    SPARES.iter().try_for_each(|name| noise(stage, name))?;
    stage.kernel_makes("spares", (RAID6.level, RAID6.flags()), RAID6.names(), &[])?;
    // The kernel chooses which of them takes over.
    let (used, idle) = match stage.superblock("s0")?.own_role() {
        Role::Slot(1) => ("s0", "s1"),
        _ => ("s1", "s0"),
    };
    for (name, wanted) in [(used, "slot 1"), (idle, "spare"), ("m0", "slot 0")] {
        let role = role(stage, name)?;
        ensure(role == wanted, || format!("{name} is examined to be: {role}, not {wanted}"))?;
    }
    let all = ["m0", "m1", "m2", "m3", "m4", "s0", "s1"];
    let server = stage.parapet.serve(&all, &[])?;
    expect_slots(&server, &["m0", used, "m2", "m3", "m4"], &[idle], &[])?;
    server.holds("before")?;
    server.order(&["fail", "tank", "m2"])?;
    server.write("before", &[(4096, 65_536, 0x11), (8 << 20, 65_536, 0x22)])?;
    server.wait_until_idle(true)?;
    expect_slots(&server, &["m0", used, idle, "m3", "m4"], &[], &["m2"])?;
    server.scrub()?;
    server.holds("before")?;
    server.stop()?;
    stage.kernel_takes("takes_over", &all, &[("out", "m1 m2"), ("lost", "")])
}

/// The reverse.
fn parapets_spare(stage: &Stage<'_>) -> Result {
    let server = full(stage, (RAID6.level, RAID6.policy), RAID6.names())?;
    for name in SPARES {
        noise(stage, name)?;
        server.order(&["add", "tank", name, NOISE])?;
    }
    server.order(&["fail", "tank", "m1"])?;
    server.write("before", &[(4096, 65_536, 0x11), (8 << 20, 65_536, 0x22)])?;
    server.wait_until_idle(true)?;
    expect_slots(&server, &["m0", "s0", "m2", "m3", "m4"], &["s1"], &["m1"])?;
    server.stop()?;
    let all = ["m0", "m1", "m2", "m3", "m4", "s0", "s1"];
    stage.kernel_takes("takes_over", &all, &[("out", "m1"), ("lost", "m2")])?;
    let server = stage.parapet.serve(&all, &[])?;
    expect_slots(&server, &["m0", "s0", "s1", "m3", "m4"], &[], &[])?;
    server.holds("before")?;
    server.scrub()?;
    server.stop()
}

/// More than the changes while a member was absent, and less than all of it.
const MOST_COPIED: u64 = 5 << 20;

/// A member that the kernel has removed comes back to Parapet, by the bitmap.
fn back_to_us(stage: &Stage<'_>, kind: Kind) -> Result {
    stage.kernel_makes("leaves", (kind.level, kind.flags()), kind.names(), &[])?;
    // It is present, and no member.
    let server = stage.parapet.serve(kind.names(), &[])?;
    let mut slots = kind.names().to_vec();
    slots[1] = "-";
    expect_slots(&server, &slots, &[], &[])?;
    server.holds("before")?;
    server.write("before", &[(4096, 65_536, 0x11)])?;
    server.order(&["re-add", "tank", "m1"])?;
    let status = server.wait_until_idle(true)?;
    let written = written(&status, "m1")?;
    ensure(written < MOST_COPIED, || format!("{written} bytes were copied to m1"))?;
    server.scrub()?;
    server.holds("before")?;
    server.stop()?;
    stage.kernel_takes("sound", kind.names(), &[])
}

/// The reverse.
fn back_to_them(stage: &Stage<'_>, kind: Kind) -> Result {
    stage.kernel_makes("filled", (kind.level, kind.flags()), kind.names(), &[])?;
    let server = stage.parapet.serve(kind.names(), &[])?;
    server.order(&["fail", "tank", "m1"])?;
    server.order(&["remove", "tank", "m1"])?;
    server.write("before", &[(4096, 65_536, 0x11), (8 << 20, 1 << 20, 0x22)])?;
    server.stop()?;
    let mut left = kind.names().to_vec();
    left.remove(1);
    stage.kernel_takes("comes_back", &left, &[("most", &MOST_COPIED.to_string())])?;
    let server = stage.parapet.serve(kind.names(), &[])?;
    server.holds("before")?;
    server.scrub()?;
    server.stop()
}

/// Bad blocks of the second member: the sector of its data, and how many.
const BAD: [(u64, u64); 2] = [(4096, 16), (9000, 8)];

/// Blocks listed by the kernel are not read, and stay listed until they are written.
fn kernels_bad(stage: &Stage<'_>, kind: Kind) -> Result {
    let lines = BAD.map(|(sector, count)| format!("{sector} {count}")).join("\n");
    let more = [("bad", &*lines)];
    stage.kernel_makes("bad", (kind.level, kind.flags()), kind.names(), &more)?;
    let data = stage.superblock("m1")?.data_offset;
    let file = std::fs::File::options().write(true).open(stage.path("m1"))?;
    for (sector, count) in BAD {
        file.write_all_at(&vec![0xee; count as usize * 512], (data + sector) * 512)?;
    }
    let listed = |list: &[(u64, u64)]| {
        let line = |(sector, count): &(u64, u64)| format!("{} {count}", data + sector);
        list.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    let server = stage.parapet.serve(kind.names(), &[])?;
    server.holds("before")?;
    let status = server.order(&["status", "tank"])?;
    let bad = &member(&status, "m1")?["bad_bytes"];
    ensure(bad == 24 * 512, || format!("m1 has {bad} bad bytes"))?;
    // All of the stripes round the first of them.
    let round = BAD[0].0 * 512 / (64 << 10) * (64 << 10) * kind.gain;
    server.write("before", &[(round, (64 << 10) * kind.gain, 0x11)])?;
    server.holds("before")?;
    server.stop()?;
    let left = listed(&BAD[1..]);
    let as_left = |left: &str, check: &str| {
        let more = [("left", left), ("policy", ""), ("check", check)];
        stage.kernel_takes("as_left", kind.names(), &more)
    };
    as_left(&left, "")?;
    // A repair restores listed blocks while redundancy has their content.
    let server = stage.parapet.serve(kind.names(), &[])?;
    server.order(&["scrub", "tank", "repair"])?;
    server.wait_until_idle(true)?;
    server.stop()?;
    as_left("", "yes")
}

/// A member is lost, and another one has bad blocks: the rows of both cannot be rebuilt. Both sides
/// report exactly these blocks.
fn lost(stage: &Stage<'_>) -> Result {
    let lines = BAD.map(|(sector, count)| format!("{sector} {count}")).join("\n");
    stage.kernel_makes("bad", (RAID5.level, RAID5.flags()), RAID5.names(), &[("bad", &lines)])?;
    noise(stage, "spare")?;
    let server = stage.parapet.serve(RAID5.names(), &[])?;
    server.order(&["fail", "tank", "m2"])?;
    server.order(&["remove", "tank", "m2"])?;
    server.order(&["add", "tank", "spare", NOISE])?;
    let status = server.wait_until_idle(true)?;
    let bad = &member(&status, "spare")?["bad_bytes"];
    ensure(bad == 24 * 512, || format!("the new member has {bad} bad bytes"))?;
    let blocks = stage.read("before")?.len() / BLOCK;
    let lost = server.unreadable(BLOCK, blocks)?;
    server.stop()?;
    // Where the second bad block is, `m1` holds the parity: it costs one block, the first two each.
    ensure(lost.len() == 5, || format!("these blocks cannot be read: {lost:?}"))?;
    let names = ["m0", "m1", "spare", "m3"];
    let data = stage.superblock("spare")?.data_offset;
    let left = BAD.map(|(sector, count)| format!("{} {count}", data + sector)).join("\n");
    stage.kernel_takes("lost", &names, &[("left", &left)])?;
    let (before, content) = (stage.read("before")?, stage.read("content")?);
    let differs = before.chunks(BLOCK).zip(content.chunks(BLOCK)).enumerate();
    let differs = differs.filter(|(_, (before, content))| before != content);
    let differs: Vec<usize> = differs.map(|(number, _)| number).collect();
    ensure(differs == lost, || format!("the kernel cannot read {differs:?}, we {lost:?}"))?;
    // A rewritten block is good. (The kernel would fail a write to two bad ones.)
    let server = stage.parapet.serve(&names, &[])?;
    server.fill("before")?;
    server.holds("before")?;
    server.stop()?;
    for name in ["m1", "spare"] {
        let examined = stage.parapet.run(&["examine", name])?;
        let bad = &examined["disks"][0]["superblocks"][0]["bad_blocks"];
        ensure(bad == 0, || format!("{name} has {bad} bad blocks still"))?;
    }
    stage.kernel_takes("sound", &names, &[])
}

/// Parapet preserves flags that it does not use.
fn flags(stage: &Stage<'_>) -> Result {
    stage.kernel_makes("flags", (RAID1.level, RAID1.flags()), RAID1.names(), &[])?;
    let server = stage.parapet.serve(RAID1.names(), &[])?;
    server.holds("before")?;
    server.write("before", &[(4096, 65_536, 0x11)])?;
    server.order(&["fail", "tank", "m1"])?;
    server.order(&["remove", "tank", "m1"])?;
    server.write("before", &[(8 << 20, 65_536, 0x22)])?;
    server.order(&["re-add", "tank", "m1"])?;
    server.wait_until_idle(true)?;
    server.scrub()?;
    server.stop()?;
    stage.kernel_takes("still_flagged", RAID1.names(), &[])
}
