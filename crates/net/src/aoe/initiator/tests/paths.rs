//! Paths that end, shrink, come up and lose large frames; and writes whose copies are on the way.

use io::link::MIN_FRAME_BYTES;

use super::super::super::FRAME_LIFETIME;
use super::super::super::wire::ata::Ata;
use super::super::super::wire::{HEADER_BYTES, Header, VERSION, command};
use super::*;

/// Both wires of a stand, our port first.
fn ports(stand: &Stand, wire: usize) -> [Rc<BadLink>; 2] {
    [Rc::clone(&stand.links[2 * wire]), Rc::clone(&stand.links[2 * wire + 1])]
}

fn pause(stand: &Stand, span: Duration) {
    stand.run(stand.clock.sleep_until(stand.clock.now() + span));
}

fn write(initiator: &Initiator, offset: u64, len: usize, byte: u8) -> Completion<Done> {
    let mut buf = Pool::new(0).take(len);
    buf.fill(byte);
    initiator.submit(Op::write(offset, buf.freeze()))
}

fn read(stand: &Stand, initiator: &Initiator, offset: u64, len: usize) -> Vec<u8> {
    let done = stand.run(initiator.submit(Op::read(offset, Pool::new(0).take(len))));
    done.result.expect("a path works");
    let IoWork::Read(bufs) = done.work else { panic!("not a read") };
    bufs[0].to_vec()
}

/// A target without history on one port: it keeps what comes, and carries it out when it is told.
struct Foreign {
    stand: Stand,
    initiator: Initiator,
    kept: RefCell<Vec<Frame>>,
}

impl Foreign {
    /// With our own target until the initiator is open, and by hand from then on.
    fn new() -> Foreign {
        let stand = Stand::new(1, 9000, (0, 0, 0), 5);
        let initiator = stand.open();
        stand.target.stop();
        pause(&stand, Duration::from_millis(1));
        Foreign { stand, initiator, kept: RefCell::default() }
    }

    /// Lets time pass, and returns the writes that came: tag and first byte of data.
    fn writes(&self, span: Duration) -> Vec<(u32, u8)> {
        pause(&self.stand, span);
        let mut frames = Vec::new();
        let cx = &mut Context::from_waker(Waker::noop());
        while self.stand.links[1].port.poll_receive(cx, &mut frames).is_ready() {}
        frames.retain(|frame| {
            let header = Header::parse(frame.head()).expect("a header");
            header.command == command::ATA && header.tag >> 31 == 0
        });
        let tag = |frame: &Frame| Header::parse(frame.head()).expect("a header").tag;
        let writes = frames.iter().map(|frame| (tag(frame), frame.body()[0])).collect();
        self.kept.borrow_mut().append(&mut frames);
        writes
    }

    /// Answers the copy with this tag.
    fn answer(&self, tag: u32) {
        let kept = self.kept.borrow();
        let header = |frame: &Frame| Header::parse(frame.head()).expect("a header");
        let frame = kept.iter().find(|frame| header(frame).tag == tag).expect("it came");
        let ata = Ata::parse(&frame.head()[HEADER_BYTES..]).expect("a transfer");
        let mut bytes = [0; MIN_FRAME_BYTES];
        header(frame).answer(self.stand.links[1].address(), LUN).put(&mut bytes);
        ata.done().put(&mut bytes[HEADER_BYTES..]);
        self.stand.links[0].port.deliver(&bytes);
        pause(&self.stand, Duration::from_micros(1));
    }
}

#[test]
fn sectors_are_written_again_when_every_copy_is_answered() {
    let foreign = Foreign::new();
    let first = write(&foreign.initiator, 0, 4096, 1);
    let copies = foreign.writes(Duration::from_millis(400));
    assert_eq!(copies.len(), 2, "it is overdue after 250 ms: {copies:?}");
    foreign.answer(copies[1].0);
    foreign.stand.run(first).result.expect("a copy was answered");
    let second = write(&foreign.initiator, 1024, 512, 2);
    let other = write(&foreign.initiator, 4096, 512, 3);
    let apart = foreign.writes(Duration::from_millis(1));
    assert_eq!(apart.iter().map(|it| it.1).collect::<Vec<_>>(), [3], "other sectors do not wait");
    foreign.answer(apart[0].0);
    foreign.stand.run(other).result.expect("answered");
    foreign.answer(copies[0].0);
    let freed = foreign.writes(Duration::from_millis(1));
    assert_eq!(freed.iter().map(|it| it.1).collect::<Vec<_>>(), [2], "both copies were answered");
    foreign.answer(freed[0].0);
    foreign.stand.run(second).result.expect("answered");
}

#[test]
fn sectors_are_written_again_when_a_copy_is_too_old_to_arrive() {
    let foreign = Foreign::new();
    let first = write(&foreign.initiator, 0, 4096, 1);
    let copies = foreign.writes(Duration::from_millis(400));
    foreign.answer(copies[1].0);
    foreign.stand.run(first).result.expect("a copy was answered");
    let _second = write(&foreign.initiator, 0, 4096, 2);
    let early = foreign.writes(FRAME_LIFETIME - Duration::from_millis(500));
    assert_eq!(early, [], "the first copy may still be in the wire");
    assert_eq!(foreign.writes(Duration::from_millis(200))[0].1, 2);
}

#[test]
fn the_copies_of_a_write_that_missed_its_deadline_are_awaited_too() {
    let foreign = Foreign::new();
    let mut op = Op::write(0, Pool::new(0).take_zeroed(512).freeze());
    op.deadline = Some(foreign.stand.clock.now() + Duration::from_millis(50));
    let done = foreign.stand.run(foreign.initiator.submit(op));
    assert_eq!(done.result.expect_err("not answered").kind(), ErrorKind::Timeout);
    foreign.writes(Duration::ZERO);
    let _second = write(&foreign.initiator, 0, 512, 2);
    assert_eq!(foreign.writes(Duration::from_millis(1800)), []);
    assert_eq!(foreign.writes(Duration::from_millis(300))[0].1, 2);
}

#[test]
fn overlapping_writes_are_sent_in_the_order_in_which_they_came() {
    let foreign = Foreign::new();
    let answers: Vec<_> = (1..=3).map(|byte| write(&foreign.initiator, 512, 1024, byte)).collect();
    for (byte, answer) in (1..=3).zip(answers) {
        let sent = foreign.writes(Duration::from_millis(1));
        assert_eq!(sent.iter().map(|it| it.1).collect::<Vec<_>>(), [byte]);
        foreign.answer(sent[0].0);
        foreign.stand.run(answer).result.expect("answered");
    }
}

#[test]
fn tags_do_not_come_again_soon() {
    let mut work = Work::default();
    let mut tags: Vec<u32> = (0..300_000).map(|_| work.next_tag()).collect();
    let counts = tags.windows(2).all(|pair| (pair[1] >> 16) == ((pair[0] >> 16) + 1) & 0x7fff);
    assert!(counts, "the upper half counts frames");
    assert!(tags.iter().all(|tag| tag >> 31 == 0));
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), 300_000);
}

#[test]
fn a_port_that_ends_does_not_end_the_disk() {
    let stand = Stand::new(2, 1500, (0, 0, 0), 3);
    let initiator = stand.open();
    stand.links[0].gone.set(true);
    stand.links[0].port.deliver(&[0; 60]);
    stand.run(write(&initiator, 0, 65536, 7)).result.expect("the other port works");
    assert!(read(&stand, &initiator, 0, 65536).iter().all(|byte| *byte == 7));
    assert!(initiator.0.ports[0].gone.get());
}

#[test]
fn when_every_port_has_ended_operations_fail() {
    let stand = Stand::new(1, 1500, (0, 0, 0), 3);
    let clock = Rc::clone(&stand.clock) as Rc<dyn Clock>;
    let opening = Initiator::open(LUN, stand.ours(), clock, Pool::new(1 << 20));
    let initiator = stand.run(opening).expect("the target is found");
    stand.links[0].gone.set(true);
    let pending = write(&initiator, 0, 512, 1);
    stand.run(initiator.run()).expect_err("no port is left");
    for answer in [pending, write(&initiator, 0, 512, 1)] {
        let error = stand.run(answer).result.expect_err("no port is left");
        assert_eq!(error.kind(), ErrorKind::Gone);
    }
}

#[test]
fn a_link_that_is_down_is_left_at_once() {
    let stand = Stand::new(2, 1500, (0, 0, 0), 3);
    let initiator = stand.open();
    let [ours, _] = ports(&stand, 0);
    // Frames are lost from now on; the state follows while they are awaited.
    ours.cut.set(true);
    let answer = write(&initiator, 0, 4096, 7);
    pause(&stand, Duration::from_millis(1));
    ours.port.set_state(LinkState { up: false, mtu: 1500 });
    let start = stand.clock.now();
    stand.run(answer).result.expect("the other path works");
    assert!(stand.clock.now() - start < Duration::from_millis(10), "no timeout was awaited");
    for _ in 0..50 {
        stand.run(write(&initiator, 0, 4096, 7)).result.expect("the other path works");
    }
    assert_eq!(ours.late.borrow().len(), 0, "nothing is sent through a link that is down");
    ours.cut.set(false);
    ours.port.set_state(LinkState { up: true, mtu: 1500 });
    pause(&stand, Duration::from_millis(1));
    initiator.0.turn.set(1);
    stand.run(write(&initiator, 0, 512, 7)).result.expect("both paths work");
    assert_eq!(initiator.0.turn.get(), 0, "it is used again");
}

#[test]
fn frames_fit_an_mtu_that_shrinks() {
    let stand = Stand::new(1, 9000, (0, 0, 0), 3);
    let initiator = stand.open();
    let [ours, theirs] = ports(&stand, 0);
    let answer = write(&initiator, 0, 64 << 10, 5);
    // The frames are in the wire, and are lost there.
    pause(&stand, Duration::from_nanos(1));
    for port in [ours, theirs] {
        port.port.set_state(LinkState { up: true, mtu: 1500 });
    }
    let start = stand.clock.now();
    stand.run(answer).result.expect("the frames are divided");
    assert!(stand.clock.now() - start < Duration::from_millis(50), "no timeout was awaited");
    assert!(read(&stand, &initiator, 0, 64 << 10).iter().all(|byte| *byte == 5));
}

#[test]
fn a_wire_that_loses_large_frames_is_used_with_small_ones() {
    let stand = Stand::new(1, 9000, (0, 0, 0), 3);
    let initiator = stand.open();
    let [ours, theirs] = ports(&stand, 0);
    [&ours, &theirs].iter().for_each(|port| port.hole.set(1514));
    stand.run(write(&initiator, 0, 64 << 10, 5)).result.expect("small frames pass");
    assert!(initiator.0.paths.borrow()[0].is_narrow());
    let start = stand.clock.now();
    assert!(read(&stand, &initiator, 0, 64 << 10).iter().all(|byte| *byte == 5));
    assert!(stand.clock.now() - start < Duration::from_millis(100), "no frame is lost any more");
    [&ours, &theirs].iter().for_each(|port| port.hole.set(usize::MAX));
    pause(&stand, Duration::from_secs(11));
    assert!(!initiator.0.paths.borrow()[0].is_narrow(), "a large probe has passed");
}

#[test]
fn a_new_path_is_found_and_a_forged_one_is_not() {
    let stand = Stand::new(2, 1500, (0, 0, 0), 3);
    let [ours, _] = ports(&stand, 1);
    ours.cut.set(true);
    let initiator = stand.open();
    assert_eq!(initiator.0.paths.borrow().len(), 1);
    ours.cut.set(false);
    pause(&stand, Duration::from_secs(11));
    assert_eq!(initiator.0.paths.borrow().len(), 2, "asked for every ten seconds");
    let stand = Stand::new(1, 1500, (0, 0, 0), 3);
    let initiator = stand.open();
    let mut query = vec![0; MIN_FRAME_BYTES];
    let header = Header {
        destination: Mac::BROADCAST,
        source: Mac([2, 9, 9, 9, 9, 9]),
        version: VERSION,
        response: true,
        error: None,
        address: LUN,
        command: command::QUERY,
        tag: 0,
    };
    header.put(&mut query);
    stand.links[0].port.deliver(&query);
    pause(&stand, Duration::from_secs(3));
    assert_eq!(initiator.0.paths.borrow().len(), 1, "it does not answer who it is");
}

#[test]
fn silence_and_announcements_are_reported() {
    let stand = Stand::new(1, 1500, (0, 0, 0), 3);
    let initiator = stand.open();
    let [ours, theirs] = ports(&stand, 0);
    pause(&stand, Duration::from_secs(3));
    let mut broke = pin!(initiator.broke());
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(broke.as_mut().poll(cx).is_pending(), "nothing is asked, so nothing is silent");
    ours.cut.set(true);
    let answer = write(&initiator, 0, 512, 1);
    pause(&stand, SILENCE - Duration::from_millis(10));
    assert!(broke.as_mut().poll(cx).is_pending());
    assert_eq!(stand.run(broke), Break::Silence);
    let again = initiator.broke();
    ours.cut.set(false);
    stand.run(answer).result.expect("the wire is back");
    theirs.port.set_state(LinkState { up: true, mtu: 1400 });
    assert_eq!(stand.run(again), Break::Announcement, "and the same silence is reported once");
}
