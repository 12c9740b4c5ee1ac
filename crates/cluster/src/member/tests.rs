//! The member's own writes: which slot a header goes to. The simulator tests the rest.

use super::*;

fn raise(member: &mut Member, epoch: u64, out: &mut Vec<Action>) {
    let order = ToMember::Control(Term(1), Order::Raise(DiskId(0), Epoch(epoch), Vec::new()));
    member.handle(Event::Message(Peer::Candidate(CandidateId(0)), order), out);
}

/// Makes the header that is being written durable.
fn write(member: &mut Member, slots: &mut [Vec<u8>; 2], out: &mut Vec<Action>) -> usize {
    let stored = out.drain(..).find_map(|action| match action {
        Action::Store { slot, generation, bytes } => Some((slot, generation, bytes)),
        _ => None,
    });
    let (slot, generation, bytes) = stored.expect("a header is being written");
    slots[slot] = bytes;
    member.handle(Event::Stored(generation), out);
    slot
}

/// Several orders during one write become one header, whose generation skips numbers. It must not
/// overwrite the newest durable one: the write may be torn.
#[test]
fn a_header_never_overwrites_the_newest_one() {
    let (mut slots, mut out) = ([Vec::new(), Vec::new()], Vec::new());
    let mut member = Member::start([&[], &[]], &[], &mut out);
    let mut last = write(&mut member, &mut slots, &mut out);
    for epoch in [1, 4, 7] {
        raise(&mut member, epoch, &mut out);
        raise(&mut member, epoch + 1, &mut out);
        raise(&mut member, epoch + 2, &mut out);
        for expected in [epoch, epoch + 2] {
            let slot = write(&mut member, &mut slots, &mut out);
            assert_ne!(slot, last);
            assert_eq!(Header::newest([&slots[0], &slots[1]]).1.epoch, Epoch(expected));
            last = slot;
        }
    }
}
