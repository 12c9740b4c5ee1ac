//! A whole cluster in memory: the deaths of members and clients, and long requests.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs)]

#[allow(dead_code)]
#[path = "cluster/rig.rs"]
mod rig;

use cluster::config::{Level, Slot, State};
use cluster::ids::{ClientId, Incarnation};
use cluster::session::{Ask, Told};
use io::{Disk, Op, Pool};
use net::cluster::client::WINDOW;
use rig::{BLOCK, Rig};

#[test]
fn two_clients_go_on_while_a_member_dies_and_comes_back() {
    [Level::Fragments, Level::Raid5].into_iter().for_each(go_on);
}

fn go_on(level: Level) {
    let rig = Rig::new(level);
    let coordinator = rig.coordinator();
    let (one, two) = (rig.client(1, &coordinator), rig.client(2, &coordinator));
    rig.write(&one, 0, 1);
    rig.write(&two, 9, 2);
    assert_eq!((rig.read(&two, 0), rig.read(&one, 9)), (1, 2));
    rig.run(&one, Op::flush());

    rig.kill(1);
    rig.write(&one, 1, 3);
    rig.write(&two, 17, 4);
    assert_eq!((rig.read(&two, 1), rig.read(&one, 17), rig.read(&two, 0)), (3, 4, 1));
    let state = |member: usize| coordinator.report().config.unwrap().slots[member].state;
    assert_eq!(state(1), State::Missing);

    rig.start(1);
    rig.until(|| state(1) == State::InSync && coordinator.report().active);
    // Each block is on it: another member may go.
    rig.kill(0);
    for (block, value) in [(0, 1), (1, 3), (9, 2), (17, 4)] {
        assert_eq!((rig.read(&one, block), rig.read(&two, block)), (value, value));
    }
}

/// The client's cluster file has an address at which another disk is.
#[test]
fn a_client_says_that_another_disk_answers() {
    let mut rig = Rig::new(Level::Fragments);
    let coordinator = rig.coordinator();
    let client = rig.client(1, &coordinator);
    rig.write(&client, 0, 1);
    rig.kill(2);
    rig.put_blank(2);
    rig.start(2);
    rig.write(&client, 0, 2);
    let other = |why: &String| why.contains("another disk answers");
    assert!(rig.endings.borrow().iter().any(other), "{:?}", rig.endings);
    assert_eq!(coordinator.report().config.unwrap().slots[2].state, State::Rebuilding);
    assert_eq!(rig.read(&client, 0), 2);
}

/// Each takes memory, and time of every member.
#[test]
fn few_blocks_of_many_large_requests_are_under_way_at_once() {
    let rig = Rig::new(Level::Fragments);
    let client = rig.client(1, &rig.coordinator());
    let requests = 2 * WINDOW as usize / 32;
    let write = |_| {
        let content = Pool::new(0).copy_of(&[7; 32 * BLOCK]);
        client.submit(Op::write(0, content.freeze()))
    };
    let mut answers: Vec<_> = (0..requests).map(write).collect();
    rig.until(|| {
        assert!(client.waiting() <= WINDOW, "{} are", client.waiting());
        answers.retain_mut(|answer| answer.take_ready().is_none());
        answers.is_empty()
    });
    // Four regions, each in a part of its own.
    let whole = rig.run(&client, Op::read(0, Pool::new(0).take(32 * BLOCK))).into_buf();
    assert!(whole.iter().all(|byte| *byte == 7));
}

#[test]
fn an_evicted_client_fails_and_the_other_goes_on() {
    let rig = Rig::new(Level::Fragments);
    let coordinator = rig.coordinator();
    let (one, two) = (rig.client(1, &coordinator), rig.client(2, &coordinator));
    rig.write(&one, 0, 1);
    let answer = rig.ask(&coordinator, &Ask::Evict(ClientId(1)));
    assert_eq!(answer, Told::Evicted(Incarnation(1)));
    let failed = rig.done(&one, Op::read(0, Pool::new(0).take(BLOCK))).result.unwrap_err();
    assert_eq!(failed.kind(), io::ErrorKind::Fenced);
    rig.write(&two, 1, 2);
    assert_eq!((rig.read(&two, 0), rig.read(&two, 1)), (1, 2));
    rig.until(|| coordinator.report().unsync == 0);
}

/// RAID 5: one write of seven blocks ends in the middle of a stripe and starts in one.
#[test]
fn a_long_write_is_cut_where_stripes_end() {
    let rig = Rig::new(Level::Raid5);
    let coordinator = rig.coordinator();
    let (one, two) = (rig.client(1, &coordinator), rig.client(2, &coordinator));
    (0..10).for_each(|block| rig.write(&one, block, 1));
    let bytes: Vec<u8> = (2..9).flat_map(|value| [value; BLOCK]).collect();
    rig.run(&two, Op::write(BLOCK as u64, Pool::new(0).copy_of(&bytes).freeze()));
    let content = |disk| (0..10).map(|block| rig.read(disk, block)).collect::<Vec<u8>>();
    assert_eq!(content(&one), [1, 2, 3, 4, 5, 6, 7, 8, 1, 1]);
    rig.kill(2);
    assert_eq!(content(&one), [1, 2, 3, 4, 5, 6, 7, 8, 1, 1]);
    assert_eq!(one.limits().bytes, 4 * 8 * 2 * BLOCK as u64);
}

/// RAID 5: a client is evicted that was writing while a member is missing.
#[test]
fn an_inconsistent_region_fails_until_the_loss_is_accepted() {
    let rig = Rig::new(Level::Raid5);
    let coordinator = rig.coordinator();
    let (one, two) = (rig.client(1, &coordinator), rig.client(2, &coordinator));
    (0..4).for_each(|block| rig.write(&one, block, 1));
    rig.write(&two, 20, 2);
    rig.kill(0);
    rig.write(&one, 1, 3);
    assert_eq!(rig.ask(&coordinator, &Ask::Evict(ClientId(1))), Told::Evicted(Incarnation(1)));
    rig.until(|| coordinator.report().holes == 1);
    // Stripe 0 is blocks 0 and 1 and the parity, in the order of members; stripe 1 is turned.
    let failed = rig.done(&two, Op::read(0, Pool::new(0).take(BLOCK))).result.unwrap_err();
    assert_eq!(failed.kind(), io::ErrorKind::Medium { offset: 0, len: BLOCK as u64 });
    let zeros = Pool::new(0).copy_of(&[0; BLOCK]).freeze();
    assert!(rig.done(&two, Op::write(BLOCK as u64, zeros)).result.is_err());
    // What lies on members in sync is read, and other regions are written.
    assert_eq!((rig.read(&two, 1), rig.read(&two, 20)), (3, 2));
    rig.write(&two, 21, 4);
    assert_eq!(rig.ask(&coordinator, &Ask::AcceptLoss), Told::Accepted(1));
    rig.until(|| coordinator.report().unsync == 0);
    // No write was under way: parity is right.
    assert_eq!((rig.read(&two, 0), rig.read(&two, 1), rig.read(&two, 2)), (1, 3, 1));
    rig.write(&two, 0, 5);
    rig.start(0);
    let whole = |slot: &Slot| slot.state == State::InSync;
    rig.until(|| coordinator.report().config.unwrap().slots.iter().all(whole));
    assert_eq!((rig.read(&two, 0), rig.read(&two, 1)), (5, 3));
}
