//! Config strings, masks and reservations, and who may change them.

use super::super::super::wire::access::{Edit, Keyed, Kind, Mask, Reserve};
use super::super::super::wire::query::{BYTES, Directive, MAX_CONFIG_BYTES, Query};
use super::*;

/// The config string in the answer to a query; none if there was no answer.
fn config(bench: &Bench, directive: Directive, text: &[u8]) -> Option<Vec<u8>> {
    let mut argument = Vec::new();
    Query::request(directive, text).put(false, &mut argument);
    let answers = bench.ask(request(command::QUERY, 1), &argument);
    // A change is announced to all; the answer has the tag of its request.
    let of_request = |frame: &&Frame| Header::parse(frame.head()).is_some_and(|it| it.tag == 1);
    let bytes = answers.iter().find(of_request)?.to_vec();
    assert_eq!(Header::parse(&bytes).and_then(|it| it.error), None);
    Some(Query::parse(&bytes[HEADER_BYTES..]).expect("a config string").text)
}

#[test]
fn a_config_string_is_set_compared_and_read() {
    let (bench, _) = Bench::on_memory();
    let set = |directive, text: &[u8]| config(&bench, directive, text);
    assert_eq!(set(Directive::Read, &[0xed; 1024]), Some(vec![]), "what readers send is ignored");
    assert_eq!(set(Directive::SetIfEmpty, b"tank"), Some(b"tank".to_vec()));
    assert_eq!(set(Directive::SetIfEmpty, b"tank"), Some(b"tank".to_vec()), "claimed again");
    let mut other = Vec::new();
    Query::request(Directive::SetIfEmpty, b"pool").put(false, &mut other);
    assert_eq!(bench.error(request(command::QUERY, 2), &other), Error::ConfigPresent as u8);
    assert_eq!(set(Directive::Equal, b"tank"), Some(b"tank".to_vec()));
    assert_eq!(set(Directive::Equal, b"tan"), None);
    assert_eq!(set(Directive::Prefix, b"tan"), Some(b"tank".to_vec()));
    assert_eq!(set(Directive::Prefix, b""), Some(b"tank".to_vec()));
    assert_eq!(set(Directive::Prefix, b"tanks"), None);
    assert_eq!(set(Directive::Set, b""), Some(vec![]));
    assert_eq!(set(Directive::Set, &[7; MAX_CONFIG_BYTES]), Some(vec![7; MAX_CONFIG_BYTES]));
    let kept: Vec<usize> = bench.notes.kept.borrow().iter().map(|it| it.config.len()).collect();
    assert_eq!(kept, [4, 0, MAX_CONFIG_BYTES], "only changes are kept");
}

#[test]
fn a_config_string_is_swapped_if_the_old_one_is_known() {
    let (bench, _) = Bench::on_memory();
    let swap = |old: &[u8], new: &[u8]| {
        let mut argument = Vec::new();
        Query::request(Directive::Swap, old).put(false, &mut argument);
        argument.extend((new.len() as u16).to_be_bytes());
        argument.extend(new);
        argument
    };
    bench.ask(request(command::QUERY, 1), &swap(b"", b"one"));
    assert_eq!(config(&bench, Directive::Read, b""), Some(b"one".to_vec()));
    let error = |argument: &[u8]| bench.error(request(command::QUERY, 2), argument);
    assert_eq!(error(&swap(b"two", b"three")), Error::ConfigPresent as u8);
    assert_eq!(error(&swap(b"one", &[7; MAX_CONFIG_BYTES + 1])), Error::Argument as u8);
    let cut = swap(b"one", &[1; 60]);
    assert_eq!(error(&cut[..BYTES + 3 + 40]), Error::Argument as u8);
}

#[test]
fn clients_that_are_not_on_the_mask_get_silence() {
    let (bench, _) = Bench::on_memory();
    let edit = |edits: Vec<Edit>, tag| {
        let mut argument = Vec::new();
        Mask::Edit(edits).put(&mut argument);
        bench.ask(request(command::MASK, tag), &argument)
    };
    let answer = edit(vec![Edit::Add(CLIENT)], 1).remove(0).to_vec();
    assert_eq!(answer[24..36], [0, 1, 0, 1, 0, 0, 2, 0, 0, 0, 0, 1]);
    let query = [0; BYTES];
    assert_eq!(bench.ask(request(command::QUERY, 2), &query).len(), 1);
    assert!(bench.ask(from_stranger(request(command::QUERY, 2)), &query).is_empty());
    let identify = argument(Ata::plain(super::super::super::wire::ata::opcode::IDENTIFY), &[]);
    assert!(bench.ask(from_stranger(request(command::ATA, 3)), &identify).is_empty());
    // A failed edit changes nothing, and names the directive that failed.
    let edits = vec![Edit::Add(STRANGER), Edit::Remove(CLIENT), Edit::Unknown(9)];
    let answer = edit(edits, 4).remove(0).to_vec();
    assert_eq!(answer[24..28], [0, 1, 2, 2]);
    assert_eq!(bench.ask(request(command::QUERY, 5), &query).len(), 1);
    assert_eq!(bench.notes.kept.borrow().len(), 1);
}

#[test]
fn a_reservation_keeps_others_from_data_but_not_from_identify() {
    let (bench, _) = Bench::on_memory();
    let mut reserve = Vec::new();
    Reserve::Set(vec![CLIENT]).put(&mut reserve);
    let answer = bench.ask(request(command::RESERVE, 1), &reserve).remove(0).to_vec();
    assert_eq!(answer[24..32], [1, 1, 2, 0, 0, 0, 0, 1]);
    let theirs = from_stranger(request(command::ATA, 2));
    let read = argument(Ata::transfer(false, 0, 1), &[]);
    assert_eq!(bench.error(theirs, &read), Error::Reserved as u8);
    assert_eq!(bench.ask(request(command::ATA, 2), &read).len(), 1);
    let identify = Ata::plain(super::super::super::wire::ata::opcode::IDENTIFY);
    let (done, _) = bench.ata(theirs, identify, &[]);
    assert_eq!(done.command, super::super::super::wire::ata::status::READY);
    let mut steal = Vec::new();
    Reserve::Set(vec![STRANGER]).put(&mut steal);
    let stealing = from_stranger(request(command::RESERVE, 3));
    assert_eq!(bench.error(stealing, &steal), Error::Reserved as u8);
}

#[test]
fn keyed_reservations_are_answered_with_the_state() {
    let (bench, _) = Bench::on_memory();
    let ask = |header: Header, request: Keyed| {
        let mut argument = Vec::new();
        request.put(&mut argument);
        bench.ask(header, &argument).remove(0).to_vec()
    };
    let header = request(command::KEYED, 1);
    ask(header, Keyed::Register(5, vec![CLIENT]));
    let answer = ask(header, Keyed::Set(Kind::HolderWrites, 5));
    assert_eq!(answer[24..36], [2, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(answer[36..52], [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 5]);
    let theirs = from_stranger(request(command::ATA, 2));
    let sector = [9; 512];
    assert_eq!(
        bench.error(theirs, &argument(Ata::transfer(true, 0, 1), &sector)),
        Error::Reserved as u8
    );
    assert_eq!(bench.ask(theirs, &argument(Ata::transfer(false, 0, 1), &[])).len(), 1);
}

#[test]
fn without_remote_control_clients_change_nothing() {
    let disk = Rc::new(MemDisk::new(MIB));
    let bench = Bench::new(disk, LunOptions { remote_control: false, ..options() });
    let (mut query, mut mask, mut reserve) = (Vec::new(), Vec::new(), Vec::new());
    Query::request(Directive::Set, b"mine").put(false, &mut query);
    Mask::Edit(vec![Edit::Add(CLIENT)]).put(&mut mask);
    Reserve::Force(vec![CLIENT]).put(&mut reserve);
    assert_eq!(bench.error(request(command::QUERY, 1), &query), Error::Command as u8);
    assert_eq!(bench.error(request(command::RESERVE, 2), &reserve), Error::Command as u8);
    let answer = bench.ask(request(command::MASK, 3), &mask).remove(0).to_vec();
    assert_eq!(answer[24..28], [0, 1, 1, 0]);
    let events: Vec<Event> = bench.notes.events.borrow().iter().map(|it| it.1.clone()).collect();
    let refused = [Part::Config, Part::Reservation, Part::Mask].map(Event::Refused);
    assert_eq!(events, refused);
    assert!(bench.notes.kept.borrow().is_empty());
    let lun = bench.target.lun(SHELF).expect("it is online");
    assert_eq!(*lun.state(), LunState::default());
    // The host allows it while the client is there.
    lun.set_policy(LunPolicy { remote_control: true, ..lun.policy() });
    assert_eq!(config(&bench, Directive::Set, b"mine"), Some(b"mine".to_vec()));
}

#[test]
fn a_change_that_is_not_kept_is_not_made_and_not_answered() {
    let (bench, _) = Bench::on_memory();
    bench.notes.refuses_to_keep.set(true);
    assert_eq!(config(&bench, Directive::SetIfEmpty, b"tank"), None);
    assert!(matches!(&bench.notes.events.borrow()[..], [(CLIENT, Event::NotKept(..))]));
    assert_eq!(config(&bench, Directive::Read, b""), Some(vec![]));
    bench.notes.refuses_to_keep.set(false);
    assert_eq!(config(&bench, Directive::SetIfEmpty, b"tank"), Some(b"tank".to_vec()));
}
