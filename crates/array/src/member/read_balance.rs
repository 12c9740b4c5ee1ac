//! Read balancing between copies: a stream stays with its copy, a new one goes to the least busy
//! one.
//!
//! A read that begins at the end of an earlier one belongs to its stream and reads the same copy,
//! so that each member sees sequential reads. The table has more streams than an array has copies:
//! a third reader on two copies does not displace the first two.

use std::cell::RefCell;

use layout::{Place, Places};

use crate::member::Member;

/// Streams remembered at once.
const STREAMS: usize = 32;

/// A stream leaves its copy when that has more operations in flight than the idlest one plus this.
const PATIENCE: u32 = 8;

/// The same where members rotate: leaving costs seeks on two of them, and a stream's own
/// read-ahead is more operations than [`PATIENCE`].
const ROTATING_PATIENCE: u32 = 64;

pub(crate) struct Balancer {
    streams: RefCell<Streams>,
    patience: u32,
}

#[derive(Default)]
struct Streams {
    table: [Stream; STREAMS],
    turn: u64,
}

#[derive(Clone, Copy, Default)]
struct Stream {
    next: u64,
    copy: usize,
    used: u64,
}

impl Balancer {
    pub(crate) fn new(rotational: bool) -> Balancer {
        let patience = if rotational { ROTATING_PATIENCE } else { PATIENCE };
        Balancer { streams: RefCell::default(), patience }
    }

    /// The copy to read for `len` bytes from `array_offset`. `member` returns the member of a place
    /// that is readable now. `None` if there is none.
    pub(crate) fn choose<'a>(
        &self,
        array_offset: u64,
        len: u64,
        places: &Places,
        member: impl Fn(Place) -> Option<&'a Member>,
    ) -> Option<Place> {
        let mut streams = self.streams.borrow_mut();
        streams.turn += 1;
        let turn = streams.turn;
        let busy = |copy: usize| member(places.copy(copy)).map(|member| member.busy.get());
        let idlest = (0..places.count())
            .filter_map(|copy| {
                let member = member(places.copy(copy))?;
                let distance = member.head.get().abs_diff(places.copy(copy).member_offset);
                Some((member.busy.get(), distance, copy))
            })
            .min()?;
        let known = streams.table.iter().position(|s| s.used > 0 && s.next == array_offset);
        let copy = match known.map(|at| streams.table[at].copy) {
            Some(copy) if busy(copy).is_some_and(|busy| busy <= idlest.0 + self.patience) => copy,
            _ => idlest.2,
        };
        let at = known.unwrap_or_else(|| {
            let oldest = streams.table.iter().enumerate().min_by_key(|(_, s)| s.used);
            oldest.expect("the table is not empty").0
        });
        streams.table[at] = Stream { next: array_offset + len, copy, used: turn };
        let place = places.copy(copy);
        if let Some(member) = member(place) {
            member.head.set(place.member_offset + len);
        }
        Some(place)
    }
}
