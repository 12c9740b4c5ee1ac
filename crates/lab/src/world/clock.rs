//! Virtual time: the moment of the world, the local time of the core that works, and the agenda.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use io::{Clock, Completion, Cost, Time, Timers};

/// Wall-clock time at the start: 2026-01-01, in microseconds since 1970.
const START_UNIX_MICROS: u64 = 1_767_225_600_000_000;

/// How long a core works; all zero: its work is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuCosts {
    /// A call into the kernel, in nanoseconds.
    pub syscall_ns: u64,
    /// A request taken apart, planned and answered, in nanoseconds.
    pub request_ns: u64,
    /// An operation of a member, in nanoseconds.
    pub member_op_ns: u64,
    /// A frame of a network, sent or received, in nanoseconds.
    pub frame_ns: u64,
    /// A byte copied, in picoseconds.
    pub copy_ps: u64,
    /// A byte read by a parity kernel, in picoseconds.
    pub parity_ps: u64,
    /// A byte read by a checksum, in picoseconds.
    pub checksum_ps: u64,
}

impl CpuCosts {
    fn of(&self, cost: Cost, bytes: u64) -> u64 {
        let moved = |picos: u64| bytes.saturating_mul(picos) / 1000;
        match cost {
            Cost::Syscall => self.syscall_ns,
            Cost::Request => self.request_ns,
            Cost::Copy => moved(self.copy_ps),
            Cost::Parity => moved(self.parity_ps),
            Cost::Checksum => moved(self.checksum_ps),
        }
    }
}

/// The clock of a [`World`](super::World).
#[derive(Default)]
pub struct VirtualClock {
    /// The moment of the world.
    global: Cell<Time>,
    /// During a poll: that moment, and the work that the core has done since.
    local: Cell<Time>,
    costs: Cell<CpuCosts>,
    timers: Timers,
    agenda: RefCell<BinaryHeap<Reverse<(Time, u64, usize)>>>,
    /// The next moment of each station on the agenda; other entries of it are void.
    next: RefCell<Vec<Option<Time>>>,
    order: Cell<u64>,
}

impl VirtualClock {
    /// Charges an operation of a member to the core that works.
    pub fn charge_member_op(&self) {
        self.work(self.costs.get().member_op_ns);
    }

    /// Charges frames of a network to the core that works.
    pub fn charge_frames(&self, frames: u64) {
        self.work(self.costs.get().frame_ns * frames);
    }

    fn work(&self, nanos: u64) {
        self.local.set(Time(self.local.get().0 + nanos));
    }

    /// The moment of the world: when the poll began.
    pub(super) fn global(&self) -> Time {
        self.global.get()
    }

    /// A core with these costs begins to work.
    pub(super) fn begin_work(&self, costs: CpuCosts) {
        self.costs.set(costs);
    }

    /// The core has ended its work, at this time.
    pub(super) fn end_work(&self) -> Time {
        self.costs.set(CpuCosts::default());
        self.local.replace(self.global.get())
    }

    /// Puts a station on the agenda.
    pub(super) fn schedule(&self, at: Time, station: usize) {
        let at = at.max(self.global.get());
        let mut next = self.next.borrow_mut();
        if next.len() <= station {
            next.resize(station + 1, None);
        }
        if next[station].is_some_and(|earlier| earlier <= at) {
            return;
        }
        next[station] = Some(at);
        let order = self.order.replace(self.order.get() + 1);
        self.agenda.borrow_mut().push(Reverse((at, order, station)));
    }

    /// The next moment of the agenda.
    fn next_on_agenda(&self) -> Option<Time> {
        let (mut agenda, next) = (self.agenda.borrow_mut(), self.next.borrow());
        while let Some(&Reverse((at, _, station))) = agenda.peek() {
            if next[station] == Some(at) {
                return Some(at);
            }
            agenda.pop();
        }
        None
    }

    /// Leaps to the next moment: of the agenda, a timer, or `core`. False if there is none.
    pub(super) fn leap(&self, core: Option<Time>) -> bool {
        let moments = [core, self.timers.next(), self.next_on_agenda()];
        let Some(at) = moments.into_iter().flatten().min() else { return false };
        let at = at.max(self.global.get());
        self.global.set(at);
        self.local.set(at);
        self.timers.fire(at);
        true
    }

    /// Takes a station off the agenda whose moment has come.
    pub(super) fn due_station(&self) -> Option<usize> {
        if self.next_on_agenda()? > self.global.get() {
            return None;
        }
        let Reverse((_, _, station)) = self.agenda.borrow_mut().pop()?;
        self.next.borrow_mut()[station] = None;
        Some(station)
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        self.local.get()
    }

    fn sleep_until(&self, at: Time) -> Completion<()> {
        if at <= self.now() {
            return Completion::ready(());
        }
        self.timers.sleep_until(at)
    }

    fn unix_micros(&self) -> u64 {
        START_UNIX_MICROS + self.now().0 / 1000
    }

    fn charge(&self, cost: Cost, bytes: u64) {
        self.work(self.costs.get().of(cost, bytes));
    }
}
