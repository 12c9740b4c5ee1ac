//! Frames: round trips, every cut and every changed byte.

use super::*;
use crate::record::Log;

fn samples() -> Vec<FromClient> {
    let claim = Claim { region: Region(3), grant: GrantId(9) };
    vec![
        FromClient::Join,
        FromClient::Renew { sent_ms: 5, term: Term(2), held: vec![claim; 3], epoch: Epoch(4) },
        FromClient::Want(Region(1), GrantId(2)),
        FromClient::Release(Region(1), GrantId(2)),
        FromClient::Unreachable(MemberId(1), OpId(7)),
    ]
}

#[test]
fn frames_come_back() {
    for sample in samples() {
        let frame = encode(&sample);
        assert_eq!(decode::<FromClient>(&frame), Ok((sample, frame.len())));
        assert_eq!(decode::<ToClient>(&frame).err(), Some(Malformed::Version));
    }
    let mark = Mark::Held(Region(1), ClientId(2), Incarnation(3));
    let log = Log { at: Position { term: Term(1), seq: 2 }, marks: BTreeSet::from([mark]) };
    let orders = [
        Order::Install(log),
        Order::Append(7, vec![Record { set: false, mark: Mark::Stale(MemberId(1), Region(2)) }]),
        Order::Raise(DiskId(6), Epoch(3), vec![(ClientId(1), Incarnation(2))]),
    ];
    for order in orders {
        let message = ToMember::Control(Term(3), order);
        let frame = encode(&message);
        assert_eq!(decode(&frame), Ok((message, frame.len())));
    }
}

#[test]
fn a_cut_or_changed_frame_is_refused() {
    for sample in samples() {
        let frame = encode(&sample);
        for length in 0..frame.len() {
            assert!(decode::<FromClient>(&frame[..length]).is_err(), "cut at {length}");
        }
        for index in 0..frame.len() {
            let mut changed = frame.clone();
            changed[index] ^= 0x40;
            assert!(decode::<FromClient>(&changed).is_err(), "byte {index}");
        }
    }
}

/// Level 3.5 keeps the bytes that it had before levels 5 and 6. Those are for one host at a time.
#[test]
fn configurations_of_all_levels() {
    let config = |level, mode| {
        let shape = Shape { level, regions: 1, region_blocks: 2, piece_bytes: 3, mode };
        let slots = vec![Slot { state: State::InSync, boot: BootId(1) }; 4];
        Config { array: ArrayId(7), epoch: Epoch(5), shape, slots }
    };
    let bytes = |config: &Config| {
        let mut bytes = Vec::new();
        config.put(&mut bytes);
        bytes
    };
    let (shared, alone) = (Mode::Shared, Mode::Exclusive);
    let fragments = bytes(&config(Level::Fragments, shared));
    assert_eq!(fragments[24..38], [1, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0]);
    for level in [Level::Mirror, Level::Fragments, Level::Raid5, Level::Raid6] {
        for mode in [shared, alone] {
            let config = config(level, mode);
            let back = Config::take(&mut &bytes(&config)[..]);
            let legal = mode == alone || !level.is_striped();
            assert_eq!(back, if legal { Ok(config) } else { Err(Malformed::Value) });
        }
    }
}

#[test]
fn a_long_list_allocates_nothing() {
    let mut body = vec![1];
    body.extend([0; 16]);
    body.extend(u32::MAX.to_le_bytes());
    assert_eq!(FromClient::take(&mut &body[..]), Err(Malformed::Value));
}
