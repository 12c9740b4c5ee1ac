//! Judgements on small tables of roles, each a sequence of failures.

use layout::md::superblock::{BadBlockLog, CLEAN, Device, Magic, Reshape};
use layout::md::{Name, Timestamp, Uuid};

use super::*;

/// A superblock of member `number` of a three-slot array, with this count and this table: a digit
/// is a slot, `F` faulty, `-` empty.
fn superblock(number: u32, events: u64, table: &str) -> Superblock {
    let role = |entry: char| match entry {
        'F' => Role::Faulty,
        '-' => Role::Spare,
        digit => Role::Slot(digit.to_digit(10).expect("a slot") as u16),
    };
    Superblock {
        magic: Magic::Md,
        features: Features::NONE,
        set_uuid: Uuid::default(),
        set_name: Name::default(),
        ctime: Timestamp::default(),
        level: 1,
        layout: 0,
        size: 0,
        chunk_sectors: 0,
        raid_disks: 3,
        bitmap_offset: 0,
        reshape: Reshape::default(),
        data_offset: 0,
        data_size: 0,
        super_offset: 8,
        recovery_offset: 0,
        device: Device { number, uuid: Uuid([number as u8; 16]), ..Device::default() },
        bblog: BadBlockLog::default(),
        utime: Timestamp::default(),
        events,
        resync_offset: CLEAN,
        logical_block_size: 0,
        roles: table.chars().map(role).collect(),
    }
}

fn verdict(members: &[(u32, u64, &str)]) -> std::result::Result<Vec<Standing>, Divergence> {
    let superblocks: Vec<_> = members.iter().map(|&(n, e, t)| superblock(n, e, t)).collect();
    judge(&superblocks.iter().collect::<Vec<_>>()).map(|history| history.standings)
}

const fn active(slot: u8) -> Standing {
    Standing::Active(Slot(slot))
}

const GIVEN_UP: Standing = Standing::Stale(StaleReason::GivenUp);

#[test]
fn one_event_behind_is_accepted_only_if_the_freshest_lists_it() {
    let all = [active(0), active(1), active(2)];
    assert_eq!(verdict(&[(0, 9, "012"), (1, 9, "012"), (2, 9, "012")]).unwrap(), all);
    // A crash between superblocks.
    assert_eq!(verdict(&[(0, 9, "012"), (1, 8, "012"), (2, 8, "012")]).unwrap(), all);
    // The same counts, but the member had failed: data lost in the field (linux-raid 2023-11-22).
    let given_up = [active(0), active(1), GIVEN_UP];
    assert_eq!(verdict(&[(0, 9, "01F"), (1, 8, "012"), (2, 8, "012")]).unwrap(), given_up);
    assert_eq!(verdict(&[(0, 9, "01-"), (1, 9, "01-"), (2, 8, "012")]).unwrap(), given_up);
    // Listed, but two behind.
    let behind = [active(0), active(1), Standing::Stale(StaleReason::Behind)];
    assert_eq!(verdict(&[(0, 9, "012"), (1, 8, "012"), (2, 7, "012")]).unwrap(), behind);
}

#[test]
fn a_group_that_went_on_is_freshest_among_equals() {
    // Member 2 alone got the last superblock; the others went on without it, to the same number.
    let members = [(2, 9, "012"), (0, 9, "01F"), (1, 9, "01F")];
    assert_eq!(verdict(&members).unwrap(), [GIVEN_UP, active(0), active(1)]);
}

#[test]
fn two_sides_that_gave_each_other_up_are_two_histories() {
    let divergence = verdict(&[(0, 12, "0FF"), (1, 9, "F12"), (2, 9, "F12")]).unwrap_err();
    assert_eq!(divergence, Divergence { ours: vec![0], theirs: vec![1, 2] });
    let divergence = verdict(&[(1, 9, "-1F"), (0, 9, "0FF")]).unwrap_err();
    assert_eq!((divergence.ours.len(), divergence.theirs.len()), (1, 1));
    // One event apart, and listed by the freshest: but it had removed the freshest.
    let divergence = verdict(&[(1, 12, "012"), (0, 11, "0FF")]).unwrap_err();
    assert_eq!(divergence, Divergence { ours: vec![0], theirs: vec![1] });
}

#[test]
fn a_member_that_failed_later_knew_of_earlier_failures_without_a_history_of_its_own() {
    // 2 failed, then 1, which had seen 2 fail; 0 is left.
    let members = [(0, 20, "0FF"), (1, 14, "01F"), (2, 9, "012")];
    assert_eq!(verdict(&members).unwrap(), [active(0), GIVEN_UP, GIVEN_UP]);
    // All first members were replaced, one after the other; one of them appears again.
    let members = [(3, 40, "FFF012"), (4, 40, "FFF012"), (5, 40, "FFF012"), (1, 7, "012---")];
    assert_eq!(verdict(&members).unwrap()[3], GIVEN_UP);
}

#[test]
fn a_member_that_just_came_back_does_not_turn_the_others_into_another_history() {
    // Member 2 returned as a member in rebuild; only its own superblock was written.
    let mut back = superblock(2, 10, "012");
    back.features = Features::RECOVERY_OFFSET;
    let others = [superblock(0, 9, "01F"), superblock(1, 9, "01F")];
    let judged = judge(&[&back, &others[0], &others[1]]).unwrap();
    assert_eq!(judged.standings, [active(2), active(0), active(1)]);
}

#[test]
fn spares_may_lag_and_failed_members_are_no_spares() {
    let members = [(0, 20, "012-"), (1, 20, "012-"), (2, 20, "012-"), (3, 4, "012-")];
    assert_eq!(verdict(&members).unwrap()[3], Standing::Spare);
    // It held slot 2 once and was removed: its number is free, but its own table lists it.
    assert_eq!(verdict(&[(0, 20, "01--2"), (1, 20, "01--2"), (2, 9, "012")]).unwrap()[2], GIVEN_UP);
    // A spare that was assigned to a slot in the very last commit.
    assert_eq!(verdict(&[(0, 20, "01F2"), (3, 19, "012-")]).unwrap()[1], active(2));
}

#[test]
fn a_number_belongs_to_its_last_member() {
    let mut old = superblock(3, 9, "01F2");
    old.device.uuid = Uuid([99; 16]);
    let members = [superblock(0, 20, "01F2"), superblock(3, 20, "01F2")];
    let judged = judge(&[&old, &members[0], &members[1]]).unwrap();
    assert_eq!(judged.standings[0], Standing::Stale(StaleReason::Replaced));
    assert_eq!(judged.standings[2], active(2));
    let unknown =
        verdict(&[(0, 20, "012"), (1, 20, "012"), (2, 20, "012"), (7, 20, "012")]).unwrap();
    assert_eq!(unknown[3], Standing::Stale(StaleReason::Unknown));
    let elsewhere = verdict(&[(0, 20, "012"), (1, 20, "021")]).unwrap();
    assert_eq!(elsewhere[1], Standing::Stale(StaleReason::Elsewhere(2)));
}

/// One member fails and is re-added, then the other one fails, and then the third is away. The
/// re-added one goes on alone, and the other one is stale, not a split brain.
#[test]
fn a_third_that_both_list_as_active_excludes_a_split_brain() {
    let stale = [active(0), GIVEN_UP];
    assert_eq!(verdict(&[(0, 9, "0F2"), (1, 5, "F12")]).unwrap(), stale);
    // Each without the third, too: split brain.
    assert!(verdict(&[(0, 9, "0FF"), (1, 5, "F1F")]).is_err());
    // It is here, and supports one of them: as before.
    assert!(verdict(&[(0, 9, "0F2"), (1, 5, "F12"), (2, 9, "0F2")]).is_ok());
}

/// A spare was away when its number was given to another disk, which holds a slot and is away now.
#[test]
fn a_spare_is_not_taken_for_the_disk_that_has_its_number_now() {
    let given = [(0, 8, "012"), (1, 8, "012"), (2, 7, "01-")];
    assert_eq!(verdict(&given).unwrap()[2], active(2), "it was just given the slot");
    let away = [(0, 9, "012"), (1, 9, "012"), (2, 7, "01-")];
    assert_eq!(verdict(&away).unwrap()[2], Standing::Stale(StaleReason::Behind));
}

/// Every pair of these, and all three, in any order.
#[test]
fn a_member_that_is_here_and_saw_both_proves_the_order() {
    let members = [(0, 12, "0FF"), (1, 5, "F12"), (2, 9, "0F2")];
    assert_eq!(verdict(&members).unwrap(), [active(0), GIVEN_UP, GIVEN_UP]);
    // No member is left to prove the order.
    assert!(verdict(&members[..2]).is_err());
    // The third supports one of them only.
    assert!(verdict(&[(0, 12, "0FF"), (1, 5, "F12"), (2, 5, "F12")]).is_err());
    assert!(verdict(&[(0, 12, "0FF"), (1, 5, "F1F"), (2, 9, "0F2")]).is_err());
}

/// A member of a mirror of three, with its writes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Copy {
    events: u64,
    table: [bool; 3],
    writes: u32,
}

/// All histories of such a mirror over a few starts. The present members, as far as the engine
/// starts them, go on without the others, write, and perhaps re-add stale ones. The verdict never
/// activates a member that lacks a write of another present one. It does not depend on the order.
/// If one of all three has every write, it is chosen.
#[test]
fn no_life_of_a_mirror_of_three_is_judged_wrong() {
    let first = Copy { events: 1, table: [true; 3], writes: 0 };
    let mut states = std::collections::BTreeSet::from([[first.clone(), first.clone(), first]]);
    let mut judged = 0;
    for step in 0..5u32 {
        let mut next = states.clone();
        for state in &states {
            for there in 1..8usize {
                let there: Vec<usize> = (0..3).filter(|&n| there >> n & 1 == 1).collect();
                let verdict = judge_copies(state, &there);
                judged += 1;
                let Ok((freshest, up)) = verdict else { continue };
                for back in [false, true] {
                    let mut after = state.clone();
                    let events = state[freshest].events + 2;
                    let slots: Vec<usize> = if back { there.clone() } else { up.clone() };
                    let table = [0, 1, 2].map(|n| slots.contains(&n));
                    let writes = state[freshest].writes | 1 << step;
                    slots.iter().for_each(|&n| after[n] = Copy { events, table, writes });
                    next.insert(after);
                }
            }
        }
        states = next;
    }
    assert!(judged > 10_000, "{judged}");
}

/// The freshest of the present members, and the active ones; checked against their writes.
fn judge_copies(
    state: &[Copy; 3],
    there: &[usize],
) -> std::result::Result<(usize, Vec<usize>), ()> {
    let drawn = |n: usize| {
        let Copy { events, table, .. } = &state[n];
        let table: String =
            (0..3).map(|n| if table[n] { char::from(b'0' + n as u8) } else { 'F' }).collect();
        superblock(n as u32, *events, &table)
    };
    let all: Vec<_> = there.iter().map(|&n| drawn(n)).collect();
    let seen = |order: &[usize]| {
        let members: Vec<&Superblock> = order.iter().map(|&at| &all[at]).collect();
        judge(&members).ok().map(|judged| {
            let mut standings: Vec<_> = order.iter().zip(judged.standings).collect();
            standings.sort_by_key(|(at, _)| **at);
            let standings: Vec<_> = standings.into_iter().map(|(_, standing)| standing).collect();
            (members[judged.freshest].events, standings)
        })
    };
    let order: Vec<usize> = (0..there.len()).collect();
    let verdict = seen(&order);
    for turn in 0..there.len() {
        let mut other = order.clone();
        other.rotate_left(turn);
        assert_eq!(seen(&other), verdict, "the order decides");
        other.reverse();
        assert_eq!(seen(&other), verdict, "the order decides");
    }
    // One of them has every write of all, or there is a split brain.
    let union = there.iter().fold(0, |writes, &n| writes | state[n].writes);
    let holds_all = |n: &&usize| state[**n].writes == union;
    let whole: Vec<usize> = there.iter().filter(holds_all).copied().collect();
    let tables = || there.iter().map(|&n| (n, state[n].events, state[n].table)).collect::<Vec<_>>();
    match verdict {
        Some((_, standings)) => {
            let up = there.iter().zip(&standings);
            let up = up.filter(|(_, standing)| matches!(standing, Standing::Active(_)));
            let up: Vec<usize> = up.map(|(&n, _)| n).collect();
            assert!(up.iter().all(|n| whole.contains(n)), "lacks writes: {:?}", tables());
            let freshest = *up.iter().max_by_key(|&&n| state[n].events).expect("the freshest");
            Ok((freshest, up))
        }
        None => {
            let named = there.len() == 3 && !whole.is_empty();
            assert!(!named, "one holds everything: {:?}", tables());
            Err(())
        }
    }
}
