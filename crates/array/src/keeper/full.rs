//! Members whose store has no space for what is to be written.
//!
//! Such a member has all that it had, so it can be read. It is lost only if the array can write
//! without it, and without every other member that will run out of space with it. Otherwise the
//! array is *full*: nothing is written any more, all members keep their slots, and nothing is put
//! on record. A new start, once there is space, finishes the interrupted rows from the intent log,
//! as after a crash.
//!
//! Only writes fail so. A failed flush has lost data, whatever the reason.

use io::broken::{Broken, broken};
use layout::{Configuration, MemberId, Mode};

use crate::keeper::Keeper;
use crate::status::EventKind;

/// A member that failed, and why.
type Loss = (MemberId, io::Error);

impl Keeper {
    /// Takes lost members out; those out of space stay if the array cannot write without them.
    pub(super) fn take_out_all(&self, next: &mut Configuration, losses: &[Loss]) {
        let stays = self.fills_up(next, losses);
        for loss in losses {
            if !(stays && is_short(next, loss)) {
                self.take_out(next, loss.0);
            }
        }
        if stays && next.mode != Mode::Broken {
            next.mode = Mode::Full;
        }
    }

    /// True if the members of `losses` that are out of space stay: the array could not be written
    /// without them and those that share a store with them.
    pub(super) fn fills_up(&self, now: &Configuration, losses: &[Loss]) -> bool {
        let store = |id: MemberId| self.home.member(id).map_or(0, |member| member.limits.store);
        let short: Vec<&Loss> = losses.iter().filter(|loss| is_short(now, loss)).collect();
        let stores: Vec<u64> = short
            .iter()
            .map(|(id, _)| store(*id))
            .filter(|&s| s != 0 && !broken(Broken::StoreUnasked))
            .collect();
        let shares = |id: &MemberId| stores.contains(&store(*id));
        let mut without = now.clone();
        losses.iter().for_each(|(id, _)| self.take_out(&mut without, *id));
        now.assigned()
            .map(|(_, id)| id)
            .filter(shares)
            .for_each(|id| self.take_out(&mut without, id));
        !short.is_empty() && (now.mode == Mode::Full || without.mode == Mode::Broken)
    }

    /// Tells that the array is full, once.
    pub(super) fn note_full(&self, now: &Configuration, losses: &[Loss]) {
        if now.mode.is_final() {
            return;
        }
        let short = losses.iter().find(|loss| is_short(now, loss));
        let (id, why) = short.expect("a full array has a member without space");
        let text = format!("{why}: writes fail, reads go on; free space and restart the array");
        self.note(EventKind::Full, Some(*id), text);
    }
}

/// True if a member that holds all of its slot has only found no space.
fn is_short(now: &Configuration, (id, why): &Loss) -> bool {
    let whole = |(slot, replacement): (layout::Slot, bool)| {
        !replacement && now.slots[slot.index()].recovered.is_none()
    };
    why.kind() == io::ErrorKind::NoSpace && now.slot_of(*id).is_some_and(whole)
}
