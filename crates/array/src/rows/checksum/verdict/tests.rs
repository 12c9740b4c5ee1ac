//! Every input of the tables, and the properties of the results.

use super::*;

#[test]
fn a_block_is_replaced_only_by_bytes_that_something_confirms() {
    use Repair::{Block, Both, Entry, Neither};
    let suspects = [Suspect::Parity, Suspect::Behind, Suspect::Other];
    let row = |recovered| suspects.map(|suspect| repair(recovered, suspect));
    // The entry confirms them.
    assert_eq!(row(Recovered::FitsEntry), [Block; 3]);
    // The block confirms them: its bytes stay.
    assert_eq!(row(Recovered::EqualsBlock), [Entry; 3]);
    // The data's own entries confirm them, or the generations; else nothing is written.
    assert_eq!(row(Recovered::Neither), [Both, Both, Neither]);
}

const GENERATIONS: [Option<u32>; 5] = [None, Some(4), Some(5), Some(u32::MAX), Some(1 << 20)];

/// Calls `each` with all lists of `len` of these.
fn lists<T: Copy>(of: &[T], len: usize, each: &mut impl FnMut(&[T])) {
    for number in 0..of.len().pow(len as u32) {
        let at = |place: usize| of[number / of.len().pow(place as u32) % of.len()];
        each(&(0..len).map(at).collect::<Vec<T>>());
    }
}

/// True if this copy has lost no write that another one has.
fn is_newest(copy: usize, all: &[Option<u32>]) -> bool {
    let own = all[copy].expect("only known generations name a copy");
    all.iter().all(|other| own.wrapping_sub(other.expect("known")) <= APART_MAX)
}

fn check_choice(alike: &[usize], all: &[Option<u32>], resolved: bool) {
    let choice = choose(alike, resolved, || all.to_vec());
    let Some(Choice { source, named }) = choice else {
        return assert!(alike.is_empty(), "{alike:?}: a copy that can be read counts");
    };
    let story = format!("{alike:?} {all:?} {resolved}: {choice:?}");
    let votes = |copy: usize| alike.iter().filter(|&&other| other == alike[copy]).count();
    let wins = |copy: usize| alike.len() > 2 && 2 * votes(copy) > alike.len();
    assert!(named || source == 0, "a guess is the first: {story}");
    assert!(resolved || !named, "a member is named though copies never agreed: {story}");
    if resolved && (0..alike.len()).any(wins) {
        assert!(named && wins(source), "the majority counts before generations: {story}");
    } else if named {
        assert!(is_newest(source, all), "the named member has lost no write: {story}");
        for copy in (0..alike.len()).filter(|&copy| alike[copy] != alike[source]) {
            assert!(!is_newest(copy, all), "an unnamed member has lost a write: {story}");
        }
    }
}

#[test]
fn of_all_copies_the_majority_is_valid_else_the_newest_else_the_first() {
    let mut cases = 0;
    for len in 0..=4 {
        lists(&[0, 1, 2], len, &mut |alike| {
            lists(&GENERATIONS, len, &mut |all| {
                for resolved in [false, true] {
                    check_choice(alike, all, resolved);
                    cases += 1;
                }
            });
        });
    }
    assert!(cases > 100_000, "{cases}");
}

#[test]
fn of_torn_copies_only_matching_ones_are_valid_and_the_newest_first() {
    for len in 0..=4 {
        lists(&[false, true], len, &mut |fit| {
            lists(&GENERATIONS, len, &mut |all| {
                let story = format!("{fit:?} {all:?}");
                let choice = choose_fitting(fit, |copy| all[copy]);
                assert_eq!(choice.is_some(), fit.contains(&true), "{story}");
                let Some(choice) = choice else { return };
                assert!(fit[choice], "{story}");
                let fitting: Vec<_> = (0..len).filter(|&copy| fit[copy]).collect();
                let known = fitting.iter().all(|&copy| all[copy].is_some());
                let own: Vec<_> = fitting.iter().map(|&copy| all[copy]).collect();
                let at = fitting.iter().position(|&copy| copy == choice).expect("the value fits");
                let distinct = known && (0..own.len()).any(|copy| is_newest(copy, &own));
                assert!(if distinct { is_newest(at, &own) } else { at == 0 }, "{story}: {choice}");
            });
        });
    }
}

#[test]
fn the_copy_with_most_writes_is_the_newest() {
    assert_eq!(newest_copies(&[Some(4), Some(5), Some(5)]), Some(vec![1, 2]));
    assert_eq!(newest_copies(&[Some(u32::MAX), Some(1)]), Some(vec![1]), "round the corner");
    assert_eq!(newest_copies(&[Some(5), Some(5)]), None);
    assert_eq!(newest_copies(&[Some(5), None]), None);
    assert_eq!(newest_copies(&[Some(5), Some(1 << 20)]), None, "made anew");
}
