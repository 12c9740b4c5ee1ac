//! The journal device of an array: the place of its log, and the begin of a session on it.
//!
//! Owns the header of the device, and its entry in the members' headers. Never writes the log
//! (`log::batch`). Never decides whether the device is used: the configuration does.
//!
//! ```text
//!   first commit of a session     device: header of the session, in the copy that the previous
//!                                 session does not need, durable
//!                                 members: headers that name device and session, superblocks
//!   the device is lost            barrier; members flushed; headers that give it up, superblocks;
//!                                 the next batches go to the members
//! ```

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use io::Disk;
use io::broken::{Broken, broken};
use layout::md::{Name, Uuid};
use layout::private::journal::{
    COPIES, DeviceName, HEADER_BYTES, JournalHeader, JournalNote, JournalUse,
};
use layout::{Configuration, MemberId};
use log::LogPlace;

use crate::commit::member_io::MemberIo;
use crate::commit::private::Private;
use crate::commit::{Failures, MetadataWriter};

/// The device that may hold this session's log.
pub struct Journal {
    /// Its identity.
    pub uuid: Uuid,
    /// Path or address, for people.
    pub name: String,
    pub(crate) disk: Rc<dyn Disk>,
    /// The log, in bytes from the start of the device.
    pub(crate) log: Range<u64>,
    /// The index of the header copy for the next session.
    pub(crate) copy: usize,
    /// The other copy does not belong to this array's journal.
    pub(crate) fresh: bool,
    /// The number of this session's log there.
    pub(crate) session: Cell<u64>,
    /// The header of the session is written.
    pub(crate) begun: Cell<bool>,
}

impl Journal {
    /// A new journal on an empty device with this log.
    pub(crate) fn new(name: String, disk: Rc<dyn Disk>, log: Range<u64>, uuid: Uuid) -> Journal {
        let (session, begun) = (Cell::new(0), Cell::new(false));
        Journal { uuid, name, disk, log, copy: 0, fresh: true, session, begun }
    }

    /// Its entry in the members' headers while these have the log.
    pub(crate) fn note(&self) -> JournalNote {
        let name = DeviceName::new(&self.name);
        JournalNote { uuid: self.uuid, name, used: JournalUse::Away }
    }

    /// Writes the header of an empty journal, for an array of this identity and name.
    pub(crate) async fn write_first(&self, reach: &MemberIo, set: (Uuid, Name)) -> io::Result<()> {
        let header = JournalHeader {
            set_uuid: set.0,
            device_uuid: self.uuid,
            set_name: set.1,
            session: 0,
            log: self.log.clone(),
            zone_bytes: 0,
            zones: 0,
        };
        self.write_header(reach, &header).await
    }

    /// Writes its header, durably. On a disk new to the array, the other copy is erased.
    pub(crate) async fn write_header(
        &self,
        reach: &MemberIo,
        header: &JournalHeader,
    ) -> io::Result<()> {
        let end = COPIES.map(|at| at + HEADER_BYTES).into_iter().max();
        let log = &header.log;
        assert!(end <= Some(log.start), "a header up to {end:?} would overwrite the log {log:?}");
        let bytes = header.print(parity::crc32c);
        let writer = reach.of(&self.name, &self.disk);
        if self.fresh {
            let zeros = [0; HEADER_BYTES as usize];
            writer.write(COPIES[1 - self.copy], &zeros, true).await?;
        }
        writer.write(COPIES[self.copy], &bytes, true).await
    }
}

impl MetadataWriter {
    /// The journal device of this session, if there is one.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// The journal device's entry in the array's record; `None` if there is none.
    pub fn journal_note(&self, configuration: &Configuration) -> Option<JournalNote> {
        self.private_of(configuration).journal
    }

    /// The common header contents for this configuration.
    pub(super) fn private_of(&self, configuration: &Configuration) -> Private {
        let mut private = self.private.get();
        let Private { journal: Some(note), begun: true, .. } = &mut private else { return private };
        let uses = configuration.journal.is_some() || broken(Broken::JournalLossUnrecorded);
        let journal = self.journal.as_ref().filter(|_| uses);
        if let Some(journal) = journal {
            note.used = JournalUse::Logging;
            private.log.run = journal.session.get();
        }
        private
    }

    /// Gives up the journal device from the next commit on, even if it returns.
    pub fn give_up_journal(&self) {
        let mut private = self.private.get();
        for note in private.journal.iter_mut().chain(&mut private.next_journal) {
            note.used = JournalUse::GivenUp;
        }
        self.private.set(private);
    }

    /// The place of the log on the journal device, if there is one.
    pub(super) fn journal_place(&self) -> Option<LogPlace> {
        let journal = self.journal.as_ref()?;
        let (offset, bytes) = (journal.log.start, journal.log.end - journal.log.start);
        Some(LogPlace { offset, bytes, session: journal.session.get() })
    }

    /// Writes the header of this session on the journal device, before any member names it.
    pub(super) async fn begin_journal(&self, configuration: &Configuration) -> Failures {
        let private = self.private.get();
        let journal = self.journal.as_ref().filter(|journal| {
            configuration.journal.is_some() && private.begun && !journal.begun.get()
        });
        let Some(journal) = journal.filter(|_| !broken(Broken::JournalHeaderLate)) else {
            return Failures::new();
        };
        let set_name = {
            let state = self.state.borrow();
            let any = state.records.values().next().expect("an array has members");
            any.superblock.set_name
        };
        let header = JournalHeader {
            set_uuid: self.facts.uuid,
            device_uuid: journal.uuid,
            set_name,
            session: journal.session.get(),
            log: journal.log.clone(),
            zone_bytes: private.log.bytes,
            zones: private.log.count,
        };
        let zones = header.zone_bytes * u64::from(header.zones);
        let (room, session) = (header.log.end - header.log.start, header.session);
        assert!(zones <= room, "zones of {zones} bytes in a log of {room} bytes");
        assert!(session != 0, "the log of session 0 counts as empty");
        match journal.write_header(&self.reach, &header).await {
            Ok(()) => {
                journal.begun.set(true);
                Failures::new()
            }
            Err(why) => vec![(MemberId::JOURNAL, why)],
        }
    }
}
