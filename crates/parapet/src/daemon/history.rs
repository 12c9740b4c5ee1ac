//! The history of an array: its latest events, kept over restarts.
//!
//! One line of JSON for each event, in `STATE/history/UUID`.
//!
//! A line that a crash has cut is ignored; other lines that do not parse are reported as damage.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use jiff::Timestamp;

use super::keep::Writer;
use crate::api::{HistoryEntry, Severity};
use crate::{notify, places};

/// The events that are kept.
const KEPT: usize = 1000;
/// A file with more lines than this is shortened at the start of the server.
const LONG: usize = 4 * KEPT;

/// See the module.
#[derive(Default)]
pub(super) struct History {
    entries: RefCell<VecDeque<HistoryEntry>>,
    writer: RefCell<Option<Writer>>,
    /// Name and UUID of the array, and who is told of its events.
    told: RefCell<Option<(String, String, Rc<notify::Handle>)>>,
}

impl History {
    /// Opens the history of the array of this name and UUID.
    pub(super) fn open(array: &str, uuid: &str) -> History {
        let path = places::state().join("history").join(uuid.replace(':', ""));
        let entries = load(array, &path);
        let mut log = Log { array: array.into(), path, file: None, reported: false };
        let writer = Writer::start(move |line| log.append(line));
        let writer = writer.inspect_err(|error| {
            tracing::warn!("{array}: events are not kept: no thread: {error}");
        });
        let writer = writer.ok();
        let (entries, writer) = (RefCell::new(entries), RefCell::new(writer));
        History { entries, writer, told: RefCell::default() }
    }

    /// A history that ends with the server.
    pub(super) fn unkept() -> History {
        History::default()
    }

    /// Tells somebody of each event from now on.
    pub(super) fn tell(&self, array: &str, uuid: &str, alerts: &Rc<notify::Handle>) {
        self.told.replace(Some((array.into(), uuid.into(), Rc::clone(alerts))));
    }

    /// Adds an event.
    pub(super) fn note(
        &self,
        (event, severity): (&str, Severity),
        member: Option<&str>,
        message: &str,
    ) {
        let mut entries = self.entries.borrow_mut();
        let entry = HistoryEntry {
            number: entries.back().map_or(1, |last| last.number + 1),
            time: Timestamp::now(),
            event: event.into(),
            severity,
            member: member.map(String::from),
            message: message.into(),
        };
        if let (Some(writer), Ok(line)) = (&*self.writer.borrow(), serde_json::to_string(&entry)) {
            writer.send(line);
        }
        if let Some((array, uuid, alerts)) = &*self.told.borrow() {
            alerts.tell(array, uuid, &entry);
        }
        if entries.len() == KEPT {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// The message of the latest event of this name about this member.
    pub(super) fn latest(&self, event: &str, member: &str) -> Option<String> {
        let entries = self.entries.borrow();
        let is_it = |it: &&HistoryEntry| it.event == event && it.member.as_deref() == Some(member);
        entries.iter().rev().find(is_it).map(|entry| entry.message.clone())
    }

    /// Waits until all events are written, for a while: nothing follows.
    pub(super) fn close(&self) {
        if !self.writer.take().is_none_or(Writer::close) {
            tracing::warn!("the last events are not kept: the state folder does not answer");
        }
    }

    /// The events after the one of this number.
    pub(super) fn after(&self, number: u64) -> Vec<HistoryEntry> {
        self.entries.borrow().iter().filter(|entry| entry.number > number).cloned().collect()
    }
}

/// Reads the latest events of a file.
fn load(array: &str, path: &Path) -> VecDeque<HistoryEntry> {
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => return VecDeque::new(),
        Err(error) => {
            tracing::warn!("{array}: {}: earlier events: {error}", path.display());
            return VecDeque::new();
        }
    };
    let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
    let lines: Vec<&str> = whole.lines().collect();
    let latest = &lines[lines.len().saturating_sub(KEPT)..];
    let entries: VecDeque<HistoryEntry> =
        latest.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let damaged = latest.len() - entries.len();
    if damaged > 0 {
        tracing::warn!("{array}: {}: {damaged} lines are damaged", path.display());
    }
    if lines.len() > LONG
        && let Err(error) = replace(path, &latest.join("\n"))
    {
        tracing::warn!("{array}: {}: it cannot be shortened: {error}", path.display());
    }
    entries
}

fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, format!("{text}\n"))?;
    fs::rename(&new, path)
}

/// The file of a history.
struct Log {
    array: String,
    path: PathBuf,
    file: Option<File>,
    /// True once an error was reported.
    reported: bool,
}

impl Log {
    fn append(&mut self, line: &str) {
        if let Err(error) = self.try_append(line)
            && !std::mem::replace(&mut self.reported, true)
        {
            tracing::warn!("{}: {}: events are not kept: {error}", self.array, self.path.display());
        }
    }

    fn try_append(&mut self, line: &str) -> std::io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                fs::create_dir_all(self.path.parent().unwrap_or(Path::new("/")))?;
                ends_line(&self.path)?;
                let options = File::options().create(true).append(true).open(&self.path);
                self.file.insert(options?)
            }
        };
        file.write_all(format!("{line}\n").as_bytes())
    }
}

/// Ends a line that a crash has cut, so that the next one stands for itself.
fn ends_line(path: &Path) -> std::io::Result<()> {
    match fs::read(path) {
        Ok(bytes) if !bytes.is_empty() && !bytes.ends_with(b"\n") => {
            File::options().append(true).open(path)?.write_all(b"\n")
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
