//! Faults injected into a simulated disk, and queries about them.
//!
//! Owns a run's commands; `disk.rs` applies them to operations.

use std::ops::Range;
use std::time::Duration;

use io::{Clock, Disk, Time};

use super::SimDisk;
use crate::medium::SECTOR;

/// How writes fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteFault {
    /// All of them, and parts of them land.
    All,
    /// All of them: the store is full.
    NoSpace,
    /// Those that begin in these bytes.
    Within(u64, u64),
}

/// The fate of a silently faulty write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stray {
    /// It never lands.
    Lost,
    /// It is written this many bytes further on, within the same disk.
    Elsewhere(u64),
}

impl SimDisk {
    /// From now on nothing is answered but with `Gone`; or the disk is back, if it has power.
    pub fn set_gone(&self, gone: bool) {
        self.damage.gone.set(gone || self.unplugged.get());
    }

    /// Restores its power and reopens it.
    pub fn plug(&self) {
        self.unplugged.set(false);
    }

    /// True if it has lost its power and was not reopened: it stays lost.
    pub fn is_unplugged(&self) -> bool {
        self.unplugged.get()
    }

    /// From now on nothing is answered; or everything that waits is.
    pub fn set_hung(&self, hung: bool) {
        self.damage.hung.set(hung);
        if !hung {
            self.damage.hung_below.set(self.flights.borrow().next());
            let waiting: Vec<u64> = self.flights.borrow().numbers().collect();
            for flight in waiting {
                // An entry that is on the agenda already comes twice; the second finds nothing.
                let due = self.clock.now() + self.latency() + self.extra_delay();
                self.clock.schedule(due, self.entry(flight));
            }
        }
    }

    /// From now on every write fails; or works again.
    pub fn set_write_error(&self, failing: bool) {
        self.set_write_fault(failing.then_some(WriteFault::All));
    }

    /// From now on writes fail so; or work again.
    pub fn set_write_fault(&self, fault: Option<WriteFault>) {
        self.damage.write_fault.set(fault);
    }

    /// The next flush fails, and with it go writes that it should have made durable.
    pub fn set_flush_fault(&self) {
        self.damage.flush_fault.set(true);
    }

    /// From now on flushes are answered without effect; or with effect again, starting with the
    /// skipped ones.
    pub fn set_lying(&self, lying: bool) {
        self.damage.lying.set(lying);
        if !lying {
            let mut medium = self.medium.borrow_mut();
            let versions = medium.versions();
            medium.flush(versions);
            self.flights.borrow_mut().cover_less(usize::MAX);
        }
    }

    /// The next write of data, which lies here, goes astray.
    pub fn set_stray(&self, stray: Stray, data: Range<u64>) {
        *self.data.borrow_mut() = data;
        self.damage.stray.set(Some(stray));
    }

    /// Writes go where they should.
    pub fn stop_straying(&self) {
        self.damage.stray.set(None);
    }

    /// Writes that have gone astray.
    pub fn strayed(&self) -> u64 {
        self.strayed.get()
    }

    /// From now on operations take this many times as long.
    pub fn set_slow(&self, factor: u64) {
        self.damage.slow.set(factor.max(1));
    }

    /// These bytes cannot be read until they are written; not even then if `stuck`.
    pub fn set_unreadable(&self, offset: u64, len: u64, stuck: bool) {
        let sectors = offset / SECTOR..(offset + len).div_ceil(SECTOR);
        self.damage.unreadable.borrow_mut().extend(sectors.clone());
        if stuck {
            self.damage.stuck.borrow_mut().extend(sectors);
        }
    }

    /// Everything is lost but these bytes, the superblock of this event.
    pub fn leave_label(&self, bytes: Range<u64>, events: u64) {
        self.damage.label.set(Some(events));
        self.punch(0, bytes.start);
        self.punch(bytes.end, self.limits().bytes - bytes.end);
    }

    /// True if a superblock of this event is all that is left.
    pub fn is_label(&self, events: u64) -> bool {
        self.damage.label.get() == Some(events)
    }

    /// Lifts all damage; hung operations are answered.
    pub fn clear_faults(&self) {
        self.set_gone(false);
        self.damage.write_fault.set(None);
        self.damage.flush_fault.set(false);
        self.damage.shaky_until.set(Time(0));
        self.damage.stray.set(None);
        self.damage.slow.set(1);
        self.damage.unreadable.borrow_mut().clear();
        self.damage.stuck.borrow_mut().clear();
        if self.damage.hung.get() {
            self.set_hung(false);
        }
    }

    /// True if something is wrong that may yet cost the array this member.
    pub fn has_fault(&self) -> bool {
        let damage = &self.damage;
        damage.gone.get()
            || damage.hung.get()
            // Operations that waited for the end of a hang may still miss their deadline.
            || self.flights.borrow().first() < damage.hung_below.get()
            || damage.write_fault.get().is_some()
            || damage.flush_fault.get()
            || !damage.unreadable.borrow().is_empty()
            || self.is_short()
    }

    /// True if it gives no answer but that it is gone.
    pub fn is_gone(&self) -> bool {
        self.damage.gone.get()
    }

    /// The sectors that cannot be read.
    pub fn unreadable_sectors(&self) -> Vec<u64> {
        self.damage.unreadable.borrow().iter().copied().collect()
    }

    /// True if its last fault may be unnoticed yet.
    pub fn may_have_fault(&self) -> bool {
        self.clock.now() < self.damage.shaky_until.get()
    }

    /// For this many microseconds it is unreliable: its fault may yet be noticed.
    pub fn set_shaky(&self, micros: u64) {
        self.damage.shaky_until.set(self.clock.now() + Duration::from_micros(micros));
    }

    /// How many sectors cannot be read.
    pub fn unreadable(&self) -> usize {
        self.damage.unreadable.borrow().len()
    }
}
