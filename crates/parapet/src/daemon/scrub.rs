//! Scrubs: the orders of users, and a record that outlives the server.
//!
//! `STATE/scrub/UUID` says when the array was last compared as a whole, and how far a scrub came
//! that was interrupted: by an order, a lost member, or the end of the server.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use array::status::JobStatus;
use array::{Array, JobKind, ScrubResult};
use io::{Clock, Time};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::keep::Writer;
use super::orders::{of_engine, usage};
use super::{Daemon, Served};
use crate::api::{Order, Part, ScrubRecord};
use crate::failure::{Failure, Id, Result};
use crate::{atomic_file, places};

/// How long a scrub may take to start, and the interval of the checks.
const BEGINNING: Duration = Duration::from_secs(5);
const BEAT: Duration = Duration::from_millis(1);
/// The position of a running scrub is stored this often: a crash repeats so much of it.
const STORED_EVERY: Duration = Duration::from_secs(60);

/// What is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// When the array was first served.
    first_served: Timestamp,
    /// End of the last complete scrub.
    completed: Option<Timestamp>,
    /// Where an interrupted scrub goes on, in bytes of the array; 0 if none was interrupted.
    position: u64,
    /// True if that scrub was a repair.
    repair: bool,
    /// When a user stopped that scrub: the schedule must not start it again at once.
    stopped: Option<Timestamp>,
}

impl Record {
    fn new() -> Record {
        let (completed, position, repair, stopped) = (None, 0, false, None);
        Record { first_served: Timestamp::now(), completed, position, repair, stopped }
    }

    /// Notes the end of a scrub.
    fn end(&mut self, scrub: &ScrubResult) {
        let micros = i64::try_from(scrub.unix_micros).unwrap_or(0);
        if scrub.complete {
            self.completed = Timestamp::from_microsecond(micros).ok();
            self.position = 0;
        } else {
            (self.position, self.repair) = (scrub.range.end, scrub.repair);
        }
    }
}

/// The record of an array.
pub(super) struct Scrubs {
    record: RefCell<Record>,
    writer: RefCell<Option<Writer>>,
    stored: Cell<Option<(Record, Time)>>,
}

impl Scrubs {
    /// Reads the record of this array.
    pub(super) fn open(array: &str, uuid: &str) -> Scrubs {
        let path = places::state().join("scrub").join(uuid.replace(':', ""));
        let record = load(array, &path).unwrap_or_else(Record::new);
        let (name, mut reported) = (array.to_owned(), false);
        let store = move |text: &str| {
            if let Err(error) = atomic_file::replace(&path, text.as_bytes())
                && !std::mem::replace(&mut reported, true)
            {
                tracing::warn!("{name}: {}: scrubs are not kept: {error}", path.display());
            }
        };
        let writer = Writer::start(store);
        let writer = writer.inspect_err(|error| {
            tracing::warn!("{array}: scrubs are not kept: no thread: {error}");
        });
        Scrubs { record: record.into(), writer: RefCell::new(writer.ok()), stored: Cell::default() }
    }

    /// A record that ends with the server.
    pub(super) fn unkept() -> Scrubs {
        Scrubs { record: Record::new().into(), writer: RefCell::default(), stored: Cell::default() }
    }

    /// Notes the end of a scrub.
    pub(super) fn end(&self, scrub: &ScrubResult) {
        self.record.borrow_mut().end(scrub);
        self.store();
    }

    fn store(&self) {
        if let (Some(writer), Ok(text)) =
            (&*self.writer.borrow(), serde_json::to_string(&*self.record.borrow()))
        {
            writer.send(text);
        }
    }

    /// Waits until the record is written, for a while: nothing follows.
    pub(super) fn close(&self) {
        if !self.writer.take().is_none_or(Writer::close) {
            tracing::warn!("the last scrub is not kept: the state folder does not answer");
        }
    }

    /// Returns the record as the API shows it.
    pub(super) fn view(&self) -> ScrubRecord {
        let record = self.record.borrow();
        ScrubRecord { completed: record.completed, position_bytes: record.position }
    }
}

impl Served {
    /// Notes how far a running scrub is.
    pub(super) fn note_scrub_position(&self, now: Time) {
        let status = self.array.status();
        let Some(job) = status.job.filter(is_whole_scrub) else { return };
        let mut record = self.scrubs.record.borrow_mut();
        // A scrub covers the array from its first byte to the end.
        record.position = status.capacity_bytes.saturating_sub(job.total_bytes) + job.done_bytes;
        record.repair = job.kind == JobKind::Repair;
        let stored = self.scrubs.stored.get();
        let is_due = stored.is_none_or(|(_, at)| now - at >= STORED_EVERY);
        if is_due && stored.is_none_or(|(before, _)| before != *record) {
            self.scrubs.stored.set(Some((*record, now)));
            drop(record);
            self.scrubs.store();
        }
    }

    /// Returns the array as the schedule sees it; `scheduled` if the running scrub is its own.
    pub(crate) fn scrub_standing(&self, scheduled: bool) -> policy::schedule::Standing {
        use policy::schedule::{Standing, Work};
        let (status, record) = (self.array.status(), *self.scrubs.record.borrow());
        let is_whole = super::view::own_state(&status) == crate::api::State::Healthy;
        let work = match status.job.as_ref().map(is_whole_scrub) {
            Some(true) if scheduled => Work::Scheduled,
            None if is_whole && status.mode == layout::Mode::ReadWrite => Work::Idle,
            _ => Work::Other,
        };
        let last = record.completed.unwrap_or(record.first_served);
        let is_suspect = self.is_suspect();
        match record.stopped {
            Some(stopped) => Standing { last: last.max(stopped), position: 0, work, is_suspect },
            None if record.position >= status.capacity_bytes => {
                Standing { last, position: 0, work, is_suspect }
            }
            None => Standing { last, position: record.position, work, is_suspect },
        }
    }
}

impl Daemon {
    /// Starts, stops or resumes a scrub.
    pub(super) async fn scrub(&self, served: &Served, order: &Order) -> Result<String> {
        let (name, record) = (served.name(), *served.scrubs.record.borrow());
        match (order.scrub.as_deref().unwrap_or("check"), order.part) {
            (what @ ("check" | "repair"), Some(part)) => {
                self.start_part(served, what == "repair", part).await
            }
            (what @ ("check" | "repair"), None) => {
                self.start_scrub(served, what == "repair", 0).await
            }
            ("resume", None) if record.position == 0 => {
                let message = format!("{name}: no scrub was interrupted");
                let action = format!("parapet scrub {name} starts one");
                Err(Failure::new(Id::WrongState, message, action))
            }
            ("resume", None) => self.start_scrub(served, record.repair, record.position).await,
            ("stop", None) => {
                let is_part = served.array.status().job.is_some_and(|job| job.is_part);
                self.pause_scrub(served)?;
                if is_part {
                    return Ok(format!("{name}: the scrub of a part is being stopped"));
                }
                served.scrubs.record.borrow_mut().stopped = Some(Timestamp::now());
                Ok(format!(
                    "{name}: the scrub is being stopped; parapet scrub {name} resume continues it"
                ))
            }
            _ => Err(usage(
                "a scrub is `check`, `repair`, `stop` or `resume`; a part has the first two",
            )),
        }
    }

    /// Stops the running scrub, to go on later.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn pause_scrub(&self, served: &Served) -> Result<()> {
        served.array.stop_scrub().map_err(of_engine)
    }

    /// Starts a scrub at this byte of the array.
    ///
    /// # Errors
    /// If other work runs, or the array has nothing to compare.
    pub(crate) async fn start_scrub(
        &self,
        served: &Served,
        repair: bool,
        from: u64,
    ) -> Result<String> {
        let (name, what) = (served.name(), if repair { "repair" } else { "check" });
        self.begin(served, what, |array| array.scrub_from(repair, from)).await?;
        served.scrubs.record.borrow_mut().stopped = None;
        let guess = match repair && served.array.geometry().redundancy() == 1 {
            true => {
                "; with one parity or two copies it cannot be told which member is wrong: it is a \
                 guess"
            }
            false => "",
        };
        let begun = match from {
            0 => "has begun".into(),
            from => format!("goes on at {}", crate::size::Size(from)),
        };
        let how = format!("parapet when {name} shows how far it is");
        Ok(format!("{name}: the {what} {begun}{guess}; {how}"))
    }

    /// Starts a scrub of a part of the array.
    async fn start_part(&self, served: &Served, repair: bool, part: Part) -> Result<String> {
        let (name, what) = (served.name(), if repair { "repair" } else { "check" });
        let Part { array_offset, bytes } = part;
        let range = array_offset..array_offset.saturating_add(bytes);
        self.begin(served, what, |array| array.scrub_part(repair, range)).await?;
        let size = crate::size::Size(bytes);
        Ok(format!("{name}: the {what} of {size} at {array_offset} of the array has begun"))
    }

    /// Starts a scrub, and waits until it has begun: a caller that waits for its end must not look
    /// before.
    async fn begin(
        &self,
        served: &Served,
        what: &str,
        start: impl FnOnce(&Array) -> metadata::Result<()>,
    ) -> Result<()> {
        refuse_busy(served)?;
        let ended = || {
            let status = served.array.status();
            [status.last_scrub, status.last_part].map(|scrub| scrub.map(|it| it.unix_micros))
        };
        let before = ended();
        start(&served.array).map_err(of_engine)?;
        let clock = self.spawner.clock();
        let deadline = clock.now() + BEGINNING;
        let begun = || served.array.status().job.is_some() || ended() != before;
        while !begun() {
            if clock.now() >= deadline {
                let message = format!("{}: the {what} has not begun", served.name());
                let action = "parapet status shows the reason";
                return Err(Failure::new(Id::WrongState, message, action));
            }
            clock.sleep_until(clock.now() + BEAT).await;
        }
        Ok(())
    }
}

/// Refuses while another job runs; only a scrub can be cancelled.
fn refuse_busy(served: &Served) -> Result<()> {
    let Some(job) = served.array.status().job else { return Ok(()) };
    let name = served.name();
    let (what, action) = match job.kind {
        JobKind::Check | JobKind::Repair => {
            ("scrub", format!("parapet wait {name} --for scrub; or parapet scrub {name} stop"))
        }
        JobKind::Checksum => ("checksumming", format!("parapet wait {name} --for idle")),
        JobKind::Resync => ("resync", format!("parapet wait {name} --for resync")),
        JobKind::Rebuild(_) => ("rebuild", format!("parapet wait {name} --for whole")),
        JobKind::Replace(_) => ("replacement", format!("parapet wait {name} --for rebuild")),
    };
    let message = format!("{name}: a {what} is under way");
    Err(Failure::new(Id::WrongState, message, action))
}

/// True for a scrub of the whole array, also one that goes on where it was stopped.
fn is_whole_scrub(job: &JobStatus) -> bool {
    matches!(job.kind, JobKind::Check | JobKind::Repair) && !job.is_part
}

/// Reads a record. A damaged one is reported, and begins anew.
fn load(array: &str, path: &Path) -> Option<Record> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!("{array}: {}: earlier scrubs: {error}", path.display());
            return None;
        }
    };
    let record = serde_json::from_slice(&text);
    record.inspect_err(|error| tracing::warn!("{array}: {}: damaged: {error}", path.display())).ok()
}
