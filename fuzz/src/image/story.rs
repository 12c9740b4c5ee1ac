//! The life of an array through several sessions, and its invariants.
//!
//! Each session continues the state of an earlier one; so sessions form a tree, and each disk
//! remembers its last session.
//!
//! ```text
//!   0 ── 1 ── 2        a session with some of the disks serves the state of one earlier session
//!         └── 3        in which one of these took part: the latest, where all are on one line;
//!                      wholly one of them, or nothing at all, where they are not (2 and 3)
//! ```
//!
//! 1. A read returns data of that one state, or an error: never mixed (I8), never invented (I5).
//! 2. After a clean stop, with every disk of it present and undamaged, all data can be read.
//! 3. A value read once stays (I4).
//! 4. Acknowledged data is there.
//!
//! Once a disk has been made to lie, only 4 is asked for, and only within the session (copies and
//! parity may contradict each other from the start), and that nothing panics or hangs.

use std::rc::Rc;

use io::Disk;
use layout::md::Version;
use layout::{Layout, Raid0Layout, Raid5Layout, Raid6Layout};
use metadata::assemble::{Candidate, Options, assemble, survey};
use metadata::create::{NewArray, create};
use metadata::examine::examine;

use super::disk::Image;
use super::edit::{self, Nature};
use super::model::{Model, Reading};
use super::session::Session;
use super::world::World;
use crate::Trail;
use crate::choice::Choices;
use crate::trail::tell;

/// A layout, how many members, how many of them are spares.
type Shape = (Layout, usize, usize);

/// The shapes of arrays here.
pub(super) const SHAPES: &[Shape] = &[
    (Layout::Raid1, 2, 0),
    (Layout::Raid1, 3, 0),
    (Layout::Raid10 { near: 2, far: 1, offset: false }, 4, 0),
    (Layout::Raid4, 3, 0),
    (Layout::Raid5(Raid5Layout::LeftSymmetric), 3, 0),
    (Layout::Raid5(Raid5Layout::RightAsymmetric), 5, 1),
    (Layout::Raid6(Raid6Layout::LeftSymmetric), 4, 0),
    (Layout::Raid6(Raid6Layout::LeftSymmetric), 6, 1),
    (Layout::Raid10 { near: 1, far: 2, offset: false }, 3, 0),
    (Layout::Raid10 { near: 1, far: 2, offset: true }, 4, 0),
    (Layout::Raid0(Raid0Layout::Original), 3, 0),
    (Layout::Linear, 2, 0),
    (Layout::Raid35 { order: 1 }, 3, 0),
    (Layout::Raid35 { order: 2 }, 5, 0),
];

/// Smallest members that have room for everything, and a little data.
const MEMBER_BYTES: u64 = (3 << 20) + DATA_BYTES;
const DATA_BYTES: u64 = 64 << 10;

/// A disk, and the last session that it took part in.
struct Member {
    name: String,
    image: Rc<Image>,
    old: Image,
    last: usize,
    damaged: bool,
}

/// A session that wrote, or may have.
struct Record {
    state: Model,
    parent: usize,
    takers: Vec<usize>,
    clean: bool,
}

struct Story<'a> {
    world: World,
    choices: Choices<'a>,
    trail: Trail,
    members: Vec<Member>,
    records: Vec<Record>,
    forged: bool,
    tag: u32,
}

/// The body: see above.
pub(super) fn run(bytes: &[u8]) -> Trail {
    if bytes.is_empty() {
        return Trail::new();
    }
    let mut choices = Choices::new(bytes);
    let shape = choices.pick(SHAPES);
    let sessions = 1 + choices.below(4);
    let mut story = Story::new(shape, choices);
    for index in 0..=sessions {
        let last = index == sessions;
        story.session(last);
        for _ in 0..story.choices.below(3) {
            story.edit();
        }
        story.look();
        if story.choices.is_over() && !last {
            story.session(true);
            break;
        }
    }
    story.trail
}

impl<'a> Story<'a> {
    /// A new array on disks of zeros.
    fn new((layout, disks, spares): Shape, mut choices: Choices<'a>) -> Story<'a> {
        let world = World::default();
        let kind = choices.byte();
        let chunk = match layout {
            Layout::Raid1 => 0,
            _ => [4096, 16 << 10][usize::from(kind & 1)],
        };
        let mut new = NewArray::new("tank", layout, chunk);
        new.version = Version::ALL[usize::from(kind >> 1) % 3];
        new.zeroed = kind & 32 == 0;
        new.spares = spares;
        if !matches!(layout, Layout::Raid0(_) | Layout::Linear) {
            new.size_bytes = Some(DATA_BYTES);
        }
        if kind & 64 != 0 {
            new.bitmap = None;
        }
        let member = |number: usize| {
            let bytes = MEMBER_BYTES + (number as u64) * 4096 * u64::from(kind >> 7);
            let (image, old) = (Rc::new(Image::new(bytes)), Image::new(bytes));
            Member { name: format!("m{number}"), image, old, last: 0, damaged: false }
        };
        let members: Vec<Member> = (0..disks).map(member).collect();
        let candidates = members.iter().map(Member::candidate).collect();
        let clock = world.clock();
        let created = world.wait(create(&new, candidates, &clock, &*world.random()));
        let facts = created.expect("a sound array can be made");
        let mut trail = Trail::new();
        trail.note((layout, new.version, new.zeroed));
        let state = Model::new(facts.capacity);
        let record = Record { state, parent: 0, takers: (0..disks).collect(), clean: true };
        Story { world, choices, trail, members, records: vec![record], forged: false, tag: 0 }
    }

    /// One session, with all disks or with the chosen ones.
    fn session(&mut self, all: bool) {
        let chosen = if all { u8::MAX } else { !self.choices.byte() };
        let flags = if all { 1 } else { self.choices.byte() };
        let there: Vec<usize> =
            (0..self.members.len()).filter(|index| chosen >> index & 1 == 1).collect();
        let options = Options {
            degraded: flags & 0x80 == 0,
            force_dirty_degraded: flags & 0x40 != 0 && flags & 0x20 != 0,
            read_only: flags & 0x10 != 0 && flags & 8 != 0,
            ..Options::default()
        };
        // After an order to continue without parity no data is expected.
        self.forged |= options.force_dirty_degraded;
        let mut candidates: Vec<Candidate> =
            there.iter().map(|&index| self.members[index].candidate()).collect();
        if flags & 4 != 0 {
            candidates.reverse();
        }
        let (clock, random) = (self.world.clock(), self.world.random());
        let assembled = self.world.wait(assemble(candidates, &options, clock, random));
        self.trail.note(("assembled", assembled.is_ok(), there.len()));
        tell(|| match &assembled {
            Ok(assembly) => {
                let notes = assembly.notes.iter().map(|note| format!("\n      {note}"));
                format!("session of {there:?}, flags {flags:#x}{}", notes.collect::<String>())
            }
            Err(error) => format!("session of {there:?} refused: {error}"),
        });
        let assembly = match assembled {
            Ok(assembly) => assembly,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                self.trail.note(error.kind());
                let owed = self.is_owed(&there) && options.degraded;
                assert!(!owed, "it was stopped in order, all is there, and it is refused: {error}");
                return;
            }
        };
        let joined = assembly
            .members
            .iter()
            .filter_map(|member| self.members.iter().position(|known| known.name == member.name));
        let takers: Vec<usize> = joined.collect();
        let owed = self.is_owed(&there);
        let session = Session::start(&self.world, assembly, 1 + usize::from(flags >> 1 & 1));
        self.use_it(session, takers, &there, owed);
    }

    /// True if everything must be readable: no lies, the latest session stopped cleanly, all its
    /// disks are present and undamaged, and no other disk contradicts.
    fn is_owed(&self, there: &[usize]) -> bool {
        let lasts: Vec<usize> = there.iter().map(|&index| self.members[index].last).collect();
        let Some(&newest) = lasts.iter().max() else { return false };
        let record = &self.records[newest];
        let whole = record.takers.iter().all(|taker| there.contains(taker));
        let unharmed = there.iter().all(|&index| !self.members[index].damaged);
        let one_line = lasts.iter().all(|&last| self.is_above(last, newest));
        !self.forged && record.clean && whole && unharmed && one_line
    }

    /// True if `older` is `newer` or one of those it came from.
    fn is_above(&self, older: usize, mut newer: usize) -> bool {
        while newer > older {
            newer = self.records[newer].parent;
        }
        newer == older
    }

    /// Reads, asks, reads again, stops or crashes.
    fn use_it(&mut self, session: Session, takers: Vec<usize>, there: &[usize], owed: bool) {
        let reading = session.read();
        Model::note(&reading, &mut self.trail);
        let (parent, mut state) = match self.forged {
            true => (0, Model::unknown(session.bytes)),
            false => self.judged(&session, &reading, there),
        };
        if owed {
            let unread = reading.tags.iter().position(Option::is_none);
            assert_eq!(unread, None, "it was stopped in order, all is there: a sector is an error");
        }
        if !self.forged {
            state.fix_read_values(&reading);
        }
        session.requests(&mut self.choices, &mut state, &mut self.tag, &mut self.trail);
        let again = session.read();
        if let Some(wrong) = state.contradiction(&again) {
            panic!("what was acknowledged is not there: {wrong}");
        }
        if !self.forged {
            state.fix_read_values(&again);
        }
        let crash = self.choices.flag();
        if crash {
            session.cut_off(&mut self.choices, &mut state, &mut self.tag);
            for member in &mut self.members {
                // The array continues with the old disks, which are never seen again.
                member.image = Rc::new(member.image.copy());
            }
        }
        let clean = session.stop() && !crash;
        self.trail.note(("left", clean));
        let record = self.records.len();
        takers.iter().for_each(|&taker| self.members[taker].last = record);
        self.records.push(Record { state, parent, takers, clean });
    }

    /// The earlier session that matches the reads; panics if there is none.
    fn judged(&self, session: &Session, reading: &Reading, there: &[usize]) -> (usize, Model) {
        let last = |&index: &usize| self.members[index].last;
        let mut lasts: Vec<usize> = there.iter().map(last).collect();
        lasts.sort_unstable();
        lasts.dedup();
        // A state that an undamaged disk proves outdated is outdated. A damaged disk may be
        // ignored.
        let sound = there.iter().filter(|&&index| !self.members[index].damaged);
        let known: Vec<usize> = sound.map(last).collect();
        let is_past =
            |older: usize| known.iter().any(|&newer| newer != older && self.is_above(older, newer));
        let mut wrong = Vec::new();
        for leaf in lasts.into_iter().rev().filter(|&older| !is_past(older)) {
            let state = &self.records[leaf].state;
            assert_eq!(session.bytes, state.bytes(), "an array of another size");
            match state.contradiction(reading) {
                None => return (leaf, state.clone()),
                Some(why) => wrong.push(format!("session {leaf}: {why}")),
            }
        }
        let invented = Session::invented(reading);
        panic!("no state that ever was (invented: {invented}): {}", wrong.join("; "));
    }

    fn edit(&mut self) {
        let index = self.choices.below(self.members.len());
        let member = &mut self.members[index];
        let twice = member.damaged;
        let nature = edit::edit(&mut member.image, &member.old, &mut self.choices, &mut self.trail);
        match nature {
            Nature::Harmless => {}
            Nature::Damage => member.damaged = true,
            Nature::Lie => self.forged = true,
        }
        // Two damages together may look like something sound again.
        self.forged |= twice;
        if self.choices.flag() {
            let member = &mut self.members[index];
            member.old = member.image.copy();
        }
    }

    /// A person looks at the disks.
    fn look(&mut self) {
        let clock = self.world.clock();
        for member in &self.members {
            let found = self.world.wait(examine(&*member.image, &clock));
            let count = found.map_or(0, |found| found.superblocks.len());
            self.trail.note(("examined", count));
        }
        let candidates = self.members.iter().map(Member::candidate).collect();
        let survey = self.world.wait(survey(candidates, &clock));
        self.trail.note((survey.arrays.len(), survey.damaged.len(), survey.others.len()));
    }
}

impl Member {
    fn candidate(&self) -> Candidate {
        let disk: Rc<dyn Disk> = Rc::clone(&self.image) as _;
        Candidate::new(disk, self.name.clone())
    }
}
