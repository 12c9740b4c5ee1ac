//! A LUN: a disk with an address, and the state that its clients may change.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

use io::{Disk, Pool, Signal};

use super::super::wire::identify::{Identity, MAX_LBA48};
use super::super::wire::query::MAX_CONFIG_BYTES;
use super::super::wire::{Address, SECTOR};
use super::access::{Masks, Reservation};
use super::flights::Flights;
use super::history::History;
use crate::bytewise::Bytewise;

/// How a LUN is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LunOptions {
    /// At most 20 bytes, the same whenever and wherever this disk is served.
    pub serial: String,
    /// At most 40 bytes.
    pub model: String,
    /// At most 8 bytes.
    pub firmware: String,
    /// The ports it is served on, by name; all if there is none.
    pub ports: Vec<String>,
    /// Writes are refused.
    pub read_only: bool,
    /// Answer writes before they are durable, until [`Lun::set_policy`].
    pub volatile: bool,
    /// Clients may change config string, mask and reservation, until [`Lun::set_policy`].
    pub remote_control: bool,
}

/// What a host may change of a LUN while clients use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LunPolicy {
    /// Answer writes before they are durable.
    pub volatile: bool,
    /// Clients may change config string, mask and reservation.
    pub remote_control: bool,
}

/// What clients can change of a LUN. The host keeps it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LunState {
    /// At most [`MAX_CONFIG_BYTES`].
    pub config: Vec<u8>,
    /// The clients it answers.
    pub masks: Masks,
    /// Who has reserved it.
    pub reservation: Reservation,
}

/// A served LUN.
pub struct Lun {
    address: Address,
    options: LunOptions,
    policy: Cell<LunPolicy>,
    pub(super) disk: Bytewise,
    state: RefCell<LunState>,
    pub(super) flights: RefCell<Flights>,
    pub(super) history: RefCell<History>,
    /// Requests in flight that are given to the disk at the end of this batch of frames.
    pub(super) starting: RefCell<Vec<u64>>,
    /// Raised when the last request in flight has ended.
    pub(super) quiet: Signal,
    /// A change of the state is being kept. Others wait, by being repeated.
    changing: Cell<bool>,
}

impl Lun {
    /// Serves `disk` at this address; memory for unaligned requests comes from `pool`.
    ///
    /// # Panics
    /// If the address is not usable, or the config string too long.
    pub fn new(
        address: Address,
        disk: Rc<dyn Disk>,
        options: LunOptions,
        state: LunState,
        pool: Pool,
    ) -> Lun {
        assert!(address.is_usable(), "no client finds a LUN at {address}");
        assert!(state.config.len() <= MAX_CONFIG_BYTES, "a config string that no frame carries");
        let LunOptions { volatile, remote_control, .. } = options;
        Lun {
            address,
            options,
            policy: Cell::new(LunPolicy { volatile, remote_control }),
            disk: Bytewise::new(disk, pool),
            state: RefCell::new(state),
            flights: RefCell::default(),
            history: RefCell::default(),
            starting: RefCell::default(),
            quiet: Signal::new(),
            changing: Cell::new(false),
        }
    }

    /// Its address.
    pub fn address(&self) -> Address {
        self.address
    }

    /// What holds now of its policy.
    pub fn policy(&self) -> LunPolicy {
        self.policy.get()
    }

    /// Gives it another policy: it holds for requests that are given to the disk from now on.
    /// Writes that were answered before they were durable stay so until a flush.
    pub fn set_policy(&self, policy: LunPolicy) {
        self.policy.set(policy);
    }

    /// What clients can change of it.
    pub fn state(&self) -> Ref<'_, LunState> {
        self.state.borrow()
    }

    /// Gives it another state, which the host keeps.
    pub fn set_state(&self, state: LunState) {
        self.state.replace(state);
    }

    /// Its size in sectors. A rest of less than 8 sectors is not served: clients would fall back to
    /// single sectors.
    pub fn sectors(&self) -> u64 {
        let sectors = self.disk.limits().bytes / SECTOR as u64;
        (sectors / 8 * 8).min(MAX_LBA48)
    }

    /// True if writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.options.read_only || self.disk.limits().read_only
    }

    /// True if it is served on the port of this name.
    pub(super) fn is_on(&self, port: &str) -> bool {
        self.options.ports.is_empty() || self.options.ports.iter().any(|name| name == port)
    }

    /// How it describes itself.
    pub fn identity(&self) -> Identity {
        let limits = self.disk.limits();
        Identity {
            serial: self.options.serial.clone(),
            model: self.options.model.clone(),
            firmware: self.options.firmware.clone(),
            sectors: self.sectors(),
            physical_block: limits.physical_block,
            rotational: limits.rotational,
        }
    }

    /// Completes when no request is in flight.
    pub(super) async fn idle(&self) {
        while !self.flights.borrow().is_empty() {
            self.quiet.wait().await;
        }
    }
}

/// A change of a LUN's state that is being kept, by a client's request or by the host; ends when
/// dropped.
pub struct Change(Rc<Lun>);

impl Change {
    /// Begins one, unless another is being kept.
    pub fn begin(lun: &Rc<Lun>) -> Option<Change> {
        // Lazily: a change that is dropped ends.
        (!lun.changing.replace(true)).then(|| Change(Rc::clone(lun)))
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.0.changing.set(false);
    }
}
