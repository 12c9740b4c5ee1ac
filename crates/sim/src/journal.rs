//! The journal device of an array: its faults in use, and its state at the next start.
//!
//! ```text
//!   while it runs    gone, hung, slow, full, write errors       the array always continues
//!   at a start       present · absent · an old copy in its place · a new one, if abandoned
//! ```
//!
//! Owns its budget: an array that starts without a needed device is like one with a bitmap, until
//! its own record says otherwise (`logged::logs_cover_crash`). An old copy never has the session
//! that the members name: it lost durable data, and a single copy of a log does not tolerate that.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use io::Disk;

use crate::covered::{self, Raw, long};
use crate::disk::{Build, SimDisk, WriteFault};
use crate::incident::Director;
use crate::medium::Fill;
use crate::node::Node;
use crate::{logged, mark};
use random::Rng;

/// Where a journal device has the two copies of its header, and the session in each.
const COPIES: [u64; 2] = [4096, 8192];
const SESSION: usize = 80;

/// The journal device of a node, as people see it.
#[derive(Default)]
pub struct Journal {
    /// The device, if the array has one.
    pub disk: RefCell<Option<Rc<SimDisk>>>,
    /// It is present at the next start.
    pub there: Cell<bool>,
    /// It becomes the journal device again at the next start.
    pub wanted: Cell<bool>,
    /// The array has given it up.
    pub lost: Cell<bool>,
    /// It was harmed, ever.
    pub harmed: Cell<bool>,
    /// Its content at some moment.
    copy: RefCell<Option<Vec<u8>>>,
}

impl Journal {
    /// True if the device, there or not, has the session that these members name, if they do.
    pub fn has_session(&self, slots: &BTreeMap<usize, Raw>) -> bool {
        let Some(named) = logged::journal_session(slots) else { return true };
        let disk = self.disk.borrow();
        disk.as_ref().is_some_and(|disk| {
            let session = |at: u64| {
                let mut header = [0; 128];
                disk.peek(at, &mut header);
                long(&header, SESSION)
            };
            COPIES.into_iter().any(|at| session(at) == named)
        })
    }

    /// The device, if present.
    pub fn present(&self) -> Option<Rc<SimDisk>> {
        self.disk.borrow().clone().filter(|_| self.there.get())
    }
}

impl Director {
    /// Something happens to the journal device.
    pub(crate) fn fault_journal(&self, node: &Rc<Node>, chance: u64) {
        let Some(disk) = node.journal.present() else { return };
        let mut rng = Rng::stream(chance, "harm of a journal", 0);
        let what = rng.below(7);
        self.note(|| format!("INCIDENT {}: journal {}: {what}", node.name, disk.name));
        if what == 0 {
            let mut copy = vec![0; disk.limits().bytes as usize];
            disk.peek(0, &mut copy);
            *node.journal.copy.borrow_mut() = Some(copy);
            return;
        }
        if what == 1 {
            // A device that misses the deadline at a start counts as absent: that would be harm.
            let slowest = node.slowest(self.build.latency_us);
            return disk.set_slow(rng.pick(&[2, 5, 20]).min(slowest));
        }
        self.mark(mark::JOURNAL_HARMED);
        self.stage.world.trace.fault();
        node.journal.harmed.set(true);
        match what {
            2 => disk.set_gone(true),
            3 => disk.set_write_fault(Some(WriteFault::NoSpace)),
            4 => {
                disk.set_hung(true);
                let millis = rng.pick(&[0, 5, 100]);
                if millis > 0 {
                    let world = self.stage.world.clone();
                    let again = async move {
                        world.pause(millis * 1000).await;
                        disk.set_hung(false);
                    };
                    self.stage.world.executor.spawn("end of a journal's hang", again);
                }
            }
            5 => disk.set_unreadable(12288, 64 << 10, true),
            _ => disk.set_write_fault(Some(WriteFault::All)),
        }
    }

    /// Before an assembly: is the device present, and unchanged?
    pub(crate) fn check_journal(&self, node: &Rc<Node>, mended_percent: u64) {
        let journal = &node.journal;
        let Some(disk) = journal.disk.borrow().clone() else { return };
        let mut rng = self.stage.world.rng("journal", node.lives.get());
        if disk.has_fault() && rng.percent(mended_percent) {
            disk.clear_faults();
        }
        let there = !disk.has_fault() && rng.percent(85);
        journal.there.set(there);
        let slots = covered::slots(&node.sim_disks());
        let named = logged::journal_session(&slots);
        if let Some(copy) = journal.copy.borrow().as_ref().filter(|_| there && rng.percent(50)) {
            let knows = |at: u64| Some(long(&copy[at as usize..], SESSION)) == named;
            if !COPIES.into_iter().any(knows) {
                self.note(|| format!("    {} is an old copy", disk.name));
                self.mark(mark::JOURNAL_OLD);
                disk.poke(0, copy);
            }
        }
        if !there {
            self.note(|| format!("    journal {} is left out", disk.name));
            self.mark(mark::JOURNAL_AWAY);
        }
        journal.wanted.set(false);
        if journal.lost.get() && rng.percent(60) {
            if rng.percent(50) || !there {
                let build = Build { fill: Fill::Zeros, ..self.build };
                let mut build = build;
                build.limits.bytes = disk.limits().bytes;
                *journal.disk.borrow_mut() = Some(self.stage.world.disk(build));
                *journal.copy.borrow_mut() = None;
            }
            if let Some(disk) = &*journal.disk.borrow() {
                // Nobody names an unreadable one.
                disk.clear_faults();
            }
            journal.there.set(true);
            journal.wanted.set(true);
        }
        if named.is_some() && !(journal.there.get() && journal.has_session(&slots)) {
            // Its unique content is lost.
            node.corrupt_log();
        }
    }
}
