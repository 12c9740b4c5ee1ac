//! The replay verdict on a logged row: a table by the copies of its record.
//!
//! ```text
//!   record of         written to       a member lacks it     verdict    why
//!   ────────────────  ───────────────  ────────────────────  ─────────  ──────────────────────────
//!   data, parity      any              any                   durable    all parity of the row was
//!   remade since                                                        computed after the write
//!   any               any              none                  torn
//!   any               journal device   any                   torn       a batch is one write
//!   data and parity   one member       one that has the row  durable    rebuilt after the write by
//!                                                                       a flushed commit
//!   data past parity  one member       any                   torn       no parity contradicts it
//!   any               several members  only later ones       durable    rebuilt after the write
//!   any               several members  one of that time      unwritten  the batch was not durable
//! ```
//!
//! The first matching line applies. Replay repeats a *torn* row. A *durable* row stays as it is,
//! and so do older records of it. An *unwritten* record is ignored: no row was written under it.

use io::broken::{Broken, broken};

/// The subject of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Data of a row, with its parity.
    Parity,
    /// Data of a row whose parity was discarded before: no syndrome.
    PastParity,
    /// The same, and all present parity of the row was computed later.
    ParityRemade,
    /// Whole stripes that become zeros.
    Zeros,
}

/// The destination of the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copies {
    /// One parity member only.
    One,
    /// Every member that must have it.
    Several,
    /// The journal device, in one write.
    Device,
}

/// Members that hold the row now without a copy of the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lacking {
    /// None: every member has a copy, or does not hold the row.
    None,
    /// Only members that got their slot after the record was written.
    Later,
    /// At least one member that was present when the record was written.
    Present,
}

/// The action of replay for the row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The batch was never durable, so the row was not written.
    Unwritten,
    /// The row is durable, also for older records of it.
    Durable,
    /// A crash may have torn the row: replay repeats the write.
    Torn,
}

/// The verdict on a record.
pub fn verdict(kind: Kind, copies: Copies, lacking: Lacking) -> Verdict {
    match (kind, copies, lacking) {
        (Kind::ParityRemade, ..) => Verdict::Durable,
        (_, _, Lacking::None) | (_, Copies::Device, _) => Verdict::Torn,
        (Kind::Parity, Copies::One, _) if broken(Broken::FilledTakenForCut) => Verdict::Torn,
        (Kind::Parity, Copies::One, _) => Verdict::Durable,
        (Kind::PastParity, Copies::One, _) => Verdict::Torn,
        (_, _, Lacking::Later) => Verdict::Durable,
        (_, _, Lacking::Present) if broken(Broken::PairUnchecked) => Verdict::Torn,
        (_, _, Lacking::Present) => Verdict::Unwritten,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 4] = [Kind::Parity, Kind::PastParity, Kind::ParityRemade, Kind::Zeros];
    const COPIES: [Copies; 3] = [Copies::One, Copies::Several, Copies::Device];
    const LACKING: [Lacking; 3] = [Lacking::None, Lacking::Later, Lacking::Present];

    fn all() -> impl Iterator<Item = (Kind, Copies, Lacking)> {
        KINDS.into_iter().flat_map(|kind| {
            COPIES
                .into_iter()
                .flat_map(move |copies| LACKING.map(|lacking| (kind, copies, lacking)))
        })
    }

    /// Each kind of record, with `None`, `Later`, `Present` for `One`, `Several`, `Device`.
    #[test]
    fn every_record_has_a_verdict() {
        let letter = |verdict| match verdict {
            Verdict::Unwritten => 'u',
            Verdict::Durable => 'd',
            Verdict::Torn => 't',
        };
        let row = |kind| {
            let of = |copies| LACKING.map(|lacking| letter(verdict(kind, copies, lacking)));
            COPIES.map(|copies| of(copies).into_iter().collect::<String>()).join(" ")
        };
        assert_eq!(KINDS.map(row), ["tdd tdu ttt", "ttt tdu ttt", "ddd ddd ddd", "tdu tdu ttt"]);
    }

    #[test]
    fn a_record_is_dropped_only_if_a_member_that_must_have_it_does_not() {
        for (kind, copies, lacking) in all() {
            if verdict(kind, copies, lacking) == Verdict::Unwritten {
                assert_eq!(lacking, Lacking::Present, "{kind:?} {copies:?}");
                assert_ne!(copies, Copies::Device, "{kind:?}: a batch there is one write");
            }
        }
    }

    #[test]
    fn a_row_is_called_durable_only_after_something_was_filled_or_computed_since() {
        for (kind, copies, lacking) in all() {
            if verdict(kind, copies, lacking) == Verdict::Durable && kind != Kind::ParityRemade {
                let filled = lacking == Lacking::Later || copies == Copies::One;
                assert!(filled && lacking != Lacking::None, "{kind:?} {copies:?} {lacking:?}");
            }
        }
    }

    #[test]
    fn a_record_on_every_member_is_replayed() {
        for (kind, copies, _) in all().filter(|&(kind, ..)| kind != Kind::ParityRemade) {
            assert_eq!(verdict(kind, copies, Lacking::None), Verdict::Torn, "{kind:?} {copies:?}");
        }
    }
}
