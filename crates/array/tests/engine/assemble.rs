//! An array is stopped and assembled again, through the public interface alone.

use std::cell::Cell;
use std::rc::Rc;

use io::tasks::complete;
use io::{Clock, Completion, Cost, MemDisk, Time};
use layout::{Layout, Level, Mode};
use metadata::ErrorKind;
use metadata::assemble::{Candidate, Note, Options, assemble, survey};
use metadata::commit::Random;
use metadata::create::{NewArray, create};

struct Still;

fn clock() -> Rc<dyn Clock> {
    Rc::new(Still)
}

impl Clock for Still {
    fn now(&self) -> Time {
        Time(0)
    }

    fn sleep_until(&self, _: Time) -> Completion<()> {
        Completion::never()
    }

    fn unix_micros(&self) -> u64 {
        1_700_000_000_000_123
    }

    fn charge(&self, _: Cost, _: u64) {}
}

fn random() -> Random {
    let state = Cell::new(0_u8);
    Rc::new(move |bytes| {
        bytes.iter_mut().for_each(|byte| *byte = state.replace(state.get().wrapping_add(101)));
    })
}

fn members(count: usize) -> Vec<Candidate> {
    let disk = |index| Candidate::new(Rc::new(MemDisk::new(8 << 20)), format!("m{index}"));
    (0..count).map(disk).collect()
}

#[test]
fn members_find_their_slots_in_any_order_and_by_any_name() {
    let members = members(6);
    let mut new = NewArray::new("host:vault", Layout::default_for(Level::Raid6, 5), 64 << 10);
    new.spares = 1;
    new.zeroed = true;
    let random = random();
    let made = complete(create(&new, members.clone(), &clock(), &*random)).unwrap().unwrap();
    let found = complete(survey(members.clone(), &clock())).unwrap();
    let group = found.arrays.get(&made.uuid).expect("it was created");
    assert_eq!((group.candidates.len(), group.name.as_str()), (6, "vault"));

    let mut shuffled = members.clone();
    shuffled.rotate_left(4);
    shuffled.swap(1, 3);
    for candidate in &mut shuffled {
        candidate.name = format!("/by-id/{}", candidate.name);
    }
    for name in ["vault", "host:vault"] {
        let options = Options { name: Some(name.into()), ..Options::default() };
        let assembling = assemble(shuffled.clone(), &options, Rc::new(Still), Rc::clone(&random));
        let assembly = complete(assembling).unwrap().unwrap();
        assert_eq!(assembly.facts(), &made);
        for (slot, assignment) in assembly.configuration.slots.iter().enumerate() {
            let id = assignment.member.expect("all members are present");
            let joined = assembly.members.iter().find(|joined| joined.id == id).unwrap();
            assert_eq!(joined.name, format!("/by-id/m{slot}"));
            assert!(Rc::ptr_eq(&joined.disk, &members[slot].disk));
        }
        assert_eq!(assembly.notes, [Note::Spare { name: "/by-id/m5".into() }]);
        assert!(assembly.read_only_reason.is_none());
    }
}

#[test]
fn a_reader_may_be_asked_for() {
    let members = members(2);
    let new = NewArray::new("data", Layout::Raid1, 0);
    let random = random();
    complete(create(&new, members.clone(), &clock(), &*random)).unwrap().unwrap();
    let options = Options { read_only: true, ..Options::default() };
    let assembling = assemble(members, &options, Rc::new(Still), Rc::clone(&random));
    let assembly = complete(assembling).unwrap().unwrap();
    assert_eq!(assembly.configuration.mode, Mode::ReadOnly);
    assert_eq!(
        assembly.recovered.unsynced.bytes(),
        assembly.geometry.capacity(),
        "never synced yet"
    );
    let nobody = assemble(Vec::new(), &options, Rc::new(Still), random);
    let error = complete(nobody).unwrap().err().expect("no disk is given");
    assert_eq!(error.kind(), ErrorKind::Refused);
}
