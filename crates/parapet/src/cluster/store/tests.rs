//! The registers, alone and under the protocol.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use cluster::config::{Config, Level, Mode, Shape, Slot, State};
use cluster::coordinator::{Action, Coordinator, Event};
use cluster::ids::{BootId, CandidateId};
use cluster::timing::Timing;

use super::*;

mod etcd;

const ARRAY: ArrayId = ArrayId(0xa1);

/// A content that differs from others of another term.
fn value(term: u64) -> Value {
    let (level, mode) = (Level::Fragments, Mode::Shared);
    let shape = Shape { level, regions: 4, region_blocks: 8, piece_bytes: 2048, mode };
    let slots = vec![Slot { state: State::InSync, boot: BootId(1) }; 3];
    let config = Config { array: ARRAY, epoch: Epoch(1), shape, slots };
    Value { term: Term(term), leader: CandidateId(0), config }
}

/// A folder under `target/tmp` that ends with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let program = std::env::current_exe().unwrap();
        let target = program.ancestors().nth(3).unwrap();
        let folder = target.join(format!("tmp/store-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An executor that asks the store at a place.
struct Desk {
    executor: os::Executor,
    store: Rc<dyn Store>,
}

impl Desk {
    fn at(place: &Place) -> Desk {
        let executor = os::Executor::new(os::Config::default()).unwrap();
        let store = place.open(ARRAY, executor.clock()).unwrap();
        Desk { executor, store }
    }

    fn ask(&self, request: Request) -> Outcome {
        self.executor.block_on(self.store.ask(request))
    }

    /// Reads what must be there.
    fn read(&self) -> (Version, Value) {
        match self.ask(Request::Read) {
            Outcome::Done(version, value) => (version, value),
            other => panic!("{other:?}"),
        }
    }

    fn replace(&self, version: Version, term: u64) -> Outcome {
        self.ask(Request::Cas(version, value(term)))
    }
}

/// What each store promises.
fn keeps_the_contract(place: &Place) {
    let failure = place.read(ARRAY).unwrap_err();
    assert_eq!(failure.id, Id::Missing, "{failure}");
    place.create(ARRAY, &value(0)).unwrap();
    let failure = place.create(ARRAY, &value(0)).unwrap_err();
    assert_eq!(failure.id, Id::Signature, "{failure}");
    let (one, two) = (Desk::at(place), Desk::at(place));
    let (first, now) = one.read();
    assert_eq!(now, value(0));
    let Outcome::Done(second, now) = one.replace(first, 1) else { panic!("not replaced") };
    assert!(second > first);
    assert_eq!(now, value(1));
    let conflict = Outcome::Conflict(second, value(1));
    assert_eq!(two.replace(first, 2), conflict, "another one was faster");
    assert_eq!(two.replace(Version(second.0 + 1), 2), conflict, "a version to come");
    assert_eq!(two.read(), (second, value(1)));
    let Outcome::Done(third, _) = two.replace(second, 1) else { panic!("not replaced") };
    assert!(third > second, "the same content has a new version");
    assert_eq!(one.replace(second, 3), Outcome::Conflict(third, value(1)));
    let failure = place.remove(ArrayId(7)).unwrap_err();
    assert!(matches!(failure.id, Id::Foreign | Id::Missing), "{failure}");
    place.remove(ARRAY).unwrap();
    assert_eq!(one.ask(Request::Read), Outcome::Unknown, "a register that vanished");
    assert_eq!(one.replace(third, 4), Outcome::Unknown, "nor is it made again");
    assert_eq!(place.read(ARRAY).unwrap_err().id, Id::Missing);
}

/// Threads count with the register. Returns how often the outcome was unknown.
fn admits_one_racer_at_a_time(place: &Place) -> u64 {
    const RACERS: u64 = 4;
    const ROUNDS: u64 = 10;
    place.create(ARRAY, &value(0)).unwrap();
    let (done, unknown) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..RACERS {
            scope.spawn(|| {
                let desk = Desk::at(place);
                let mut rounds = 0;
                let mut outcome = desk.ask(Request::Read);
                while rounds < ROUNDS {
                    outcome = match outcome {
                        Outcome::Unknown => {
                            unknown.fetch_add(1, Ordering::Relaxed);
                            desk.ask(Request::Read)
                        }
                        Outcome::Done(version, now) | Outcome::Conflict(version, now) => {
                            let next = desk.replace(version, now.term.0 + 1);
                            if let Outcome::Done(..) = next {
                                rounds += 1;
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                            next
                        }
                    };
                }
            });
        }
    });
    let (done, unknown) = (done.into_inner(), unknown.into_inner());
    let counted = place.read(ARRAY).unwrap().term.0;
    assert!(
        (done..=done + unknown).contains(&counted),
        "{counted}: {done} done, {unknown} unknown"
    );
    place.remove(ARRAY).unwrap();
    unknown
}

/// One candidate leads, then another, with the membership that the register has.
fn candidates_take_over(place: &Place) {
    place.create(ARRAY, &value(0)).unwrap();
    let desk = Desk::at(place);
    let mut now = 0;
    for me in 0..2 {
        let mut candidate = Coordinator::start(CandidateId(me), 3, Timing::DEFAULT, now);
        let mut actions = Vec::new();
        while candidate.leads().is_none() {
            now += Timing::DEFAULT.takeover_ms;
            candidate.tick(now, &mut actions);
            while let Some(action) = actions.pop() {
                if let Action::Store(number, request) = action {
                    let outcome = desk.ask(request);
                    candidate.handle(now, Event::Store(number, outcome), &mut actions);
                }
            }
            assert!(now < 1_000_000, "candidate {me} never leads");
        }
        let term = candidate.leads().unwrap();
        let stored = place.read(ARRAY).unwrap();
        assert_eq!((stored.term, stored.leader), (term, CandidateId(me)));
        assert!(term.0 > u64::from(me));
        assert_eq!(stored.config, value(0).config);
    }
    place.remove(ARRAY).unwrap();
}

#[test]
fn a_file_is_a_register() {
    let folder = Folder::new("register");
    let place = Place::parse(&format!("file:{}/sub/pool", folder.0.display())).unwrap();
    keeps_the_contract(&place);
    assert_eq!(admits_one_racer_at_a_time(&place), 0);
    candidates_take_over(&place);
}

fn damaged(path: &Path, place: &Place, bytes: &[u8]) -> Failure {
    std::fs::write(path, bytes).unwrap();
    place.read(ARRAY).unwrap_err()
}

#[test]
fn a_damaged_file_is_no_register_and_not_no_register_either() {
    let folder = Folder::new("damage");
    let path = folder.0.join("pool");
    let place = Place::File(path.clone());
    place.create(ARRAY, &value(3)).unwrap();
    let desk = Desk::at(&place);
    let (version, _) = desk.read();
    let good = std::fs::read(&path).unwrap();
    for end in 0..good.len() {
        assert_eq!(damaged(&path, &place, &good[..end]).id, Id::Verification, "{end} bytes");
    }
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        assert_eq!(damaged(&path, &place, &bytes).id, Id::Verification, "byte {at}");
    }
    let long = [&good[..], &[0]].concat();
    let failure = damaged(&path, &place, &long);
    let text = format!(
        "file:{}: the register is damaged: frame: trailing bytes; restore its latest backup",
        path.display()
    );
    assert_eq!(failure.to_string(), text);
    assert_eq!(desk.replace(version, 4), Outcome::Unknown);
    assert_eq!(std::fs::read(&path).unwrap(), long, "and nothing is written over it");
    assert_eq!(place.create(ARRAY, &value(0)).unwrap_err().id, Id::Signature);
}

#[test]
fn an_older_content_is_not_taken_for_the_membership() {
    let folder = Folder::new("older");
    let path = folder.0.join("pool");
    let place = Place::File(path.clone());
    place.create(ARRAY, &value(1)).unwrap();
    let backup = std::fs::read(&path).unwrap();
    let desk = Desk::at(&place);
    let (version, _) = desk.read();
    let Outcome::Done(version, _) = desk.replace(version, 2) else { panic!("not replaced") };
    let newest = std::fs::read(&path).unwrap();
    std::fs::write(&path, backup).unwrap();
    assert_eq!(desk.ask(Request::Read), Outcome::Unknown);
    // An older content under a newer version.
    let later = Decided { version: Version(version.0 + 1), value: value(1) };
    std::fs::write(&path, wire::encode(&later)).unwrap();
    assert_eq!(desk.ask(Request::Read), Outcome::Unknown);
    assert_eq!(desk.replace(version, 3), Outcome::Unknown);
    std::fs::write(&path, newest).unwrap();
    assert_eq!(desk.read(), (version, value(2)));
    assert_eq!(place.read(ArrayId(7)).unwrap_err().id, Id::Foreign);
}

#[test]
fn places_are_read_as_they_are_written() {
    assert_eq!(Place::parse("file:/var/lib/p").unwrap().to_string(), "file:/var/lib/p");
    for text in ["", "file:", "/var/lib/p", "nfs:/p"] {
        assert!(Place::parse(text).is_err(), "{text}");
    }
}
