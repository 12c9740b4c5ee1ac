//! Grants per second of one coordinator and one member over a real file, each write durable.
//!
//! ```text
//!   GRANTS_FILE=/tmp/member cargo test --release -p parapet-cluster --test grants -- --nocapture
//! ```
//!
//! The file is made, and removed in the end; without `GRANTS_FILE` nothing is measured. Clients
//! keep a number of requests going while marks of other regions are held.
#![allow(missing_docs)]

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use cluster::config::{Config, Level, Mode, Shape, Slot, State};
use cluster::coordinator::{self, Coordinator};
use cluster::decisions::{Outcome, Request, Value, Version};
use cluster::ids::{
    ArrayId, BootId, CandidateId, ClientId, Epoch, GrantId, Incarnation, MemberId, Region, Term,
};
use cluster::member::{self, Member, Peer};
use cluster::message::{Claim, FromClient, FromMember, ToClient, ToMember};
use cluster::timing::Timing;

const CLIENT: (ClientId, Incarnation) = (ClientId(1), Incarnation(1));
const SLOT_BYTES: u64 = 4 << 20;
const AREA_BYTES: usize = 1 << 20;

/// Everything but the network.
struct Rig {
    file: File,
    began: Instant,
    ticked: u64,
    coordinator: Coordinator,
    member: Member,
    value: (Version, Value),
    epoch: Epoch,
    /// Answers to the client.
    told: Vec<ToClient>,
    /// To the member, from it.
    down: VecDeque<ToMember>,
    up: VecDeque<FromMember>,
    /// Writes to the file, and bytes of them.
    writes: (u64, u64),
    store: Option<(u64, u64, Vec<u8>)>,
    held: Vec<Claim>,
}

fn config(regions: u32) -> Config {
    let (level, mode) = (Level::Mirror, Mode::Shared);
    let shape = Shape { level, regions, region_blocks: 1, piece_bytes: 4096, mode };
    let slots = vec![Slot { state: State::InSync, boot: BootId(1) }];
    Config { array: ArrayId(1), epoch: Epoch(1), shape, slots }
}

impl Rig {
    fn new(file: File, regions: u32) -> Rig {
        let value = Value { term: Term(0), leader: CandidateId(9), config: config(regions) };
        let mut out = Vec::new();
        let mut rig = Rig {
            file,
            began: Instant::now(),
            ticked: 0,
            coordinator: Coordinator::start(CandidateId(0), 1, Timing::DEFAULT, 0),
            member: Member::start([&[], &[]], &[0; AREA_BYTES], &mut out),
            value: (Version(1), value),
            epoch: Epoch(0),
            told: Vec::new(),
            down: VecDeque::new(),
            up: VecDeque::new(),
            writes: (0, 0),
            store: None,
            held: Vec::new(),
        };
        rig.member_actions(out);
        // The file's clock starts when a takeover is due.
        while rig.told.is_empty() {
            rig.ticked += Timing::DEFAULT.tick_ms;
            let mut out = Vec::new();
            rig.coordinator.tick(rig.ticked, &mut out);
            rig.coordinator_actions(out);
            rig.client(FromClient::Join);
            rig.run();
        }
        rig
    }

    fn now(&self) -> u64 {
        self.ticked.max(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn client(&mut self, message: FromClient) {
        let mut out = Vec::new();
        let event = coordinator::Event::Client(CLIENT.0, CLIENT.1, message);
        self.coordinator.handle(self.now(), event, &mut out);
        self.coordinator_actions(out);
    }

    fn coordinator_actions(&mut self, out: Vec<coordinator::Action>) {
        for action in out {
            match action {
                coordinator::Action::Client(_, _, _, message) => self.told.push(message),
                coordinator::Action::Member(_, message) => self.down.push_back(message),
                coordinator::Action::Store(number, request) => {
                    if let Request::Cas(_, value) = request {
                        self.value = (Version(self.value.0.0 + 1), value);
                    }
                    let (version, value) = self.value.clone();
                    let event = coordinator::Event::Store(number, Outcome::Done(version, value));
                    let mut more = Vec::new();
                    self.coordinator.handle(self.now(), event, &mut more);
                    self.coordinator_actions(more);
                }
                coordinator::Action::Beat(_) | coordinator::Action::Evicted(..) => {}
            }
        }
    }

    fn member_actions(&mut self, out: Vec<member::Action>) {
        for action in out {
            match action {
                member::Action::Send(_, message) => self.up.push_back(message),
                member::Action::Store { slot, generation, bytes } => {
                    self.store = Some((generation, slot as u64 * SLOT_BYTES, bytes));
                }
                member::Action::Append { at, generation, bytes } => {
                    self.store = Some((generation, 2 * SLOT_BYTES + at as u64, bytes));
                }
                member::Action::Execute(..) => unreachable!("no data here"),
            }
        }
    }

    /// Carries messages until only a write is left, then makes that durable.
    fn run(&mut self) {
        loop {
            if let Some(message) = self.down.pop_front() {
                let mut out = Vec::new();
                let event = member::Event::Message(Peer::Candidate(CandidateId(0)), message);
                self.member.handle(event, &mut out);
                self.member_actions(out);
            } else if let Some(message) = self.up.pop_front() {
                let mut out = Vec::new();
                let event = coordinator::Event::Member(MemberId(0), message);
                self.coordinator.handle(self.now(), event, &mut out);
                self.coordinator_actions(out);
            } else if let Some((generation, at, bytes)) = self.store.take() {
                self.write(at, bytes);
                let mut out = Vec::new();
                self.member.handle(member::Event::Stored(generation), &mut out);
                self.member_actions(out);
            } else {
                return;
            }
        }
    }

    fn write(&mut self, at: u64, mut bytes: Vec<u8>) {
        bytes.resize(bytes.len().next_multiple_of(4096), 0);
        self.file.write_all_at(&bytes, at).expect("the file is writable");
        self.file.sync_data().expect("the file is writable");
        self.writes = (self.writes.0 + 1, self.writes.1 + bytes.len() as u64);
    }

    /// Answers that came, with the tick and the lease's renewal in between.
    fn answers(&mut self) -> Vec<ToClient> {
        self.run();
        let now = self.now();
        if now >= self.ticked + Timing::DEFAULT.tick_ms {
            self.ticked = now;
            let mut out = Vec::new();
            self.coordinator.tick(now, &mut out);
            self.coordinator_actions(out);
            let (held, epoch) = (self.held.clone(), self.epoch);
            let renew = FromClient::Renew { sent_ms: now, term: Term(1), held, epoch };
            self.client(renew);
            self.run();
        }
        std::mem::take(&mut self.told)
    }

    /// Grants in this time, with so many requests at once, while so many marks are held.
    fn measure(&mut self, held: u32, depth: u32, time: Duration) -> u64 {
        let mut next = GrantId(1 << 40);
        for region in 0..held {
            next.0 += 1;
            self.client(FromClient::Want(Region(region), next));
            if region % 512 == 511 || region + 1 == held {
                for answer in self.answers() {
                    if let ToClient::Grant(region, grant) = answer {
                        self.held.push(Claim { region, grant });
                    }
                }
            }
        }
        self.writes = (0, 0);
        let (end, mut count) = (Instant::now() + time, 0);
        for region in held..held + depth {
            next.0 += 1;
            self.client(FromClient::Want(Region(region), next));
        }
        while Instant::now() < end {
            for answer in self.answers() {
                match answer {
                    ToClient::Grant(region, grant) if region.0 >= held => {
                        count += 1;
                        self.client(FromClient::Release(region, grant));
                    }
                    ToClient::Released(region, _) => {
                        next.0 += 1;
                        self.client(FromClient::Want(region, next));
                    }
                    ToClient::Config(config) => self.epoch = config.epoch,
                    _ => {}
                }
            }
        }
        count
    }
}

#[test]
fn grants_per_second() {
    let Some(path) = std::env::var_os("GRANTS_FILE") else { return };
    println!(
        "{:>8} {:>6} {:>10} {:>10} {:>14}",
        "held", "depth", "grants/s", "writes/s", "bytes/write"
    );
    for held in [1, 1000, 20_000, 100_000] {
        for depth in [1, 16, 256] {
            let file = File::options().create(true).truncate(true).write(true).open(&path);
            let mut rig = Rig::new(file.expect("the file can be made"), held + depth);
            let time = Duration::from_secs(2);
            let count = rig.measure(held, depth, time);
            let (writes, bytes) = rig.writes;
            println!(
                "{held:>8} {depth:>6} {:>10} {:>10} {:>14}",
                count / time.as_secs(),
                writes / time.as_secs(),
                bytes / writes.max(1)
            );
        }
    }
    std::fs::remove_file(&path).expect("it is there");
}
