//! Grants when the log is almost full. The simulator tests the drains.

use super::*;
use crate::config::{Config, Level, Shape};
use crate::coordinator::commit::Commit;
use crate::decisions::Version;
use crate::ids::{ArrayId, Epoch, Term};
use crate::message::FromClient;
use crate::room::MOST_MARKS;
use crate::timing::Timing;

const CLIENT: (ClientId, Incarnation) = (ClientId(1), Incarnation(2));

/// A leader of no members: each batch is durable at once. `held` regions are held by others.
fn leader(held: u32) -> Leader {
    let (level, mode) = (Level::Mirror, Mode::Shared);
    let shape = Shape { level, regions: u32::MAX, region_blocks: 1, piece_bytes: 1, mode };
    let (array, epoch, slots) = (ArrayId(1), Epoch(1), Vec::new());
    let config = Config { array, epoch, shape, slots };
    let mut leader = Leader::new(Term(2), Timing::DEFAULT, 0, Version(1), config, MOST_MARKS);
    let marks = (0..held).map(|region| Mark::Held(Region(region), ClientId(7), Incarnation(1)));
    leader.commit = Commit::new(Term(2), marks.collect(), MOST_MARKS);
    leader.reading = None;
    say(&mut leader, FromClient::Renew { sent_ms: 0, term: Term(2), held: vec![], epoch });
    leader
}

/// The grants that follow a message.
fn say(leader: &mut Leader, message: FromClient) -> Vec<Region> {
    let mut out = Vec::new();
    leader.client(0, CLIENT.0, CLIENT.1, message, &mut out);
    // A release is one batch, the grant into its room another one.
    for _ in 0..2 {
        leader.client(0, CLIENT.0, CLIENT.1, FromClient::Release(Region(0), GrantId(0)), &mut out);
    }
    let grants = out.into_iter().filter_map(|action| match action {
        Action::Client(_, _, _, ToClient::Grant(region, _)) => Some(region),
        _ => None,
    });
    grants.collect()
}

#[test]
fn a_grant_beyond_the_limit_waits_for_a_release() {
    let most = u32::try_from(MOST_MARKS).expect("a small number");
    let (one, two, three) = (Region(most), Region(most + 1), Region(most + 2));
    let mut leader = leader(most - 2);
    let want = |region: Region| FromClient::Want(region, GrantId(u64::from(region.0)));
    assert_eq!(say(&mut leader, want(one)), [one], "limit - 1");
    assert_eq!(say(&mut leader, want(two)), [two], "limit");
    // In the order of arrival, not of the regions.
    for region in [three, Region(0)] {
        assert_eq!(say(&mut leader, want(region)), [], "limit + 1");
    }
    assert!(leader.lacks_room());
    let held: Vec<Region> = leader.longest_held().collect();
    assert_eq!(held, [one, two], "one for each request");
    let grant = GrantId(u64::from(one.0));
    assert_eq!(say(&mut leader, FromClient::Release(one, grant)), [three]);
    assert_eq!(leader.longest_held().collect::<Vec<_>>(), [two]);
}
