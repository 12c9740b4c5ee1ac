//! Arrays at the limits of a mask of data indices: the intent log protects the last data slot like
//! the first.

use array::Array;
use layout::private::Consistency;
use layout::{Layout, Level, MAX_SLOTS, Stripe};
use metadata::assemble::Note;
use metadata::create::NewArray;

use crate::world::{Fault, World, pattern};

const CHUNK: u64 = 4096;

/// Data slots at the limits, as numbers of members, for each level with a log.
fn borders(level: Level) -> impl Iterator<Item = usize> {
    let parity = if level == Level::Raid6 { 2 } else { 1 };
    let members = [63, 64, 65, 66, 127].map(|data| (data + parity).min(MAX_SLOTS));
    members.into_iter()
}

struct Wide {
    world: World,
    array: Array,
    what: String,
    /// Bytes of a stripe.
    stripe: u64,
}

impl Wide {
    /// An array whose first stripe is full of a durable pattern.
    fn filled(level: Level, members: usize, policy: Consistency, journal: bool) -> Wide {
        let what = format!("{level} of {members} members, {policy:?}, journal device {journal}");
        let world = World::new(members + usize::from(journal), 6 << 20);
        let layout = Layout::default_for(level, members);
        let consistency = Some(policy);
        let new = NewArray { zeroed: true, consistency, ..NewArray::new("wide", layout, CHUNK) };
        match journal {
            true => world.create_journaled(&new).expect("the array is created"),
            false => world.create(&new),
        }
        let array = world.start();
        let stripe = array.geometry().stripe_bytes();
        world.write(&array, 0, &pattern(0, stripe as usize, 1)).expect("the array is healthy");
        world.flush(&array);
        Wide { world, array, what, stripe }
    }

    fn holder(&self, index: u64) -> usize {
        self.array.geometry().stripe(Stripe(0)).data(index as usize).index()
    }

    /// Writes the data indices from `from` on, holds one of the writes back, and crashes. Then
    /// loses the members of the indices in `lost`. Every unwritten block must be as it was.
    fn cut(self, from: u64, held: u64, lost: &[u64]) {
        let Wide { world, array, what, stripe } = &self;
        let missing: Vec<usize> = lost.iter().map(|&index| self.holder(index)).collect();
        let disk = &world.disks[self.holder(held)];
        disk.break_with(Fault::HungFrom(world.data_offset()));
        let start = from * CHUNK;
        let write = world.begin(array, start, &pattern(start, (stripe - start) as usize, 2));
        assert_eq!(disk.is_holding(), 1, "{what}: the write is cut");
        drop(write);
        let (world, what, stripe) = (self.world, self.what, self.stripe);
        world.crash(self.array);
        let assembly = world.assemble_without(&missing);
        let assembly = assembly.unwrap_or_else(|why| panic!("{what}: {why}"));
        let bad = |note: &Note| matches!(note, Note::LogUnusable { .. } | Note::Unusable { .. });
        assert!(!assembly.notes.iter().any(bad), "{what}: {:?}", assembly.notes);
        let array = Array::start(assembly, &world.host);
        for index in 0..from {
            let at = index * CHUNK;
            let found = world.read(&array, at, CHUNK as usize);
            let found = found.unwrap_or_else(|why| panic!("{what}: index {index}: {why}"));
            assert!(found == pattern(at, CHUNK as usize, 1), "{what}: index {index} has changed");
        }
        for index in from..stripe / CHUNK {
            let at = index * CHUNK;
            let Ok(found) = world.read(&array, at, CHUNK as usize) else {
                assert!(lost.contains(&index), "{what}: index {index} is there, and an error");
                continue;
            };
            let either = [1, 2].map(|salt| pattern(at, CHUNK as usize, salt));
            assert!(either.contains(&found), "{what}: index {index} is neither old nor new");
        }
    }
}

#[test]
fn a_torn_write_to_the_last_data_slots_changes_no_other_block() {
    for level in [Level::Raid4, Level::Raid5, Level::Raid6] {
        for members in borders(level) {
            for count in [1, 2] {
                let wide = Wide::filled(level, members, Consistency::Intent, false);
                let last = wide.stripe / CHUNK - 1;
                let lost: &[u64] = if level == Level::Raid6 { &[5, 60] } else { &[5] };
                wide.cut(last + 1 - count, last, lost);
            }
        }
    }
}

#[test]
fn the_new_data_of_the_last_data_slots_is_logged() {
    for (policy, journal) in [(Consistency::Journal, false), (Consistency::Journal, true)] {
        for members in borders(Level::Raid5) {
            let wide = Wide::filled(Level::Raid5, members, policy, journal);
            let last = wide.stripe / CHUNK - 1;
            wide.cut(last - 1, last, &[5]);
        }
    }
}

/// The new data of a slot without a member exists only in parity, and is logged.
#[test]
fn a_write_to_a_last_slot_without_a_member_survives_a_crash() {
    for level in [Level::Raid5, Level::Raid6] {
        for members in borders(level) {
            let wide = Wide::filled(level, members, Consistency::Intent, false);
            let last = wide.stripe / CHUNK - 1;
            let missing = wide.holder(last);
            wide.world.disks[missing].break_with(Fault::Gone);
            let at = last * CHUNK;
            wide.world
                .write(&wide.array, at, &pattern(at, 4096, 3))
                .expect("the array starts with one missing member");
            wide.world.flush(&wide.array);
            let (world, what) = (wide.world, wide.what);
            world.crash(wide.array);
            let array = world.start_without(&[missing]);
            let found = world.read(&array, at, 4096).expect("the data was flushed");
            assert!(found == pattern(at, 4096, 3), "{what}");
        }
    }
}
