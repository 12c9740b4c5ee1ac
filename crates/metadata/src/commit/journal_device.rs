//! The journal device of an array: where its log lies, and how a session begins on it.
//!
//! Owns the header of the device, and its fields in the members' headers. Never writes the log
//! (`crate::log`), never decides whether the device is used: the configuration does.
//!
//! ```text
//!   first commit of a session     device: header of the session, in the copy that the one before
//!                                 does not need, durable
//!                                 members: headers that name device and session, superblocks
//!   it is lost                    barrier; members flushed; headers that give it up, superblocks
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

/// The device that this session's log may lie on.
pub struct Journal {
    /// Its identity.
    pub uuid: Uuid,
    /// Path or address, for people.
    pub name: String,
    pub(crate) disk: Rc<dyn Disk>,
    /// The log, in bytes from the start of the device.
    pub(crate) log: Range<u64>,
    /// Which copy of its header the next session's goes into.
    pub(crate) copy: usize,
    /// The other copy's content belongs to no journal of this array.
    pub(crate) fresh: bool,
    /// The number of this session's log there.
    pub(crate) session: Cell<u64>,
    /// Its header says so.
    pub(crate) begun: Cell<bool>,
}

impl Journal {
    /// A new journal on an empty device with this log.
    pub(crate) fn new(name: String, disk: Rc<dyn Disk>, log: Range<u64>, uuid: Uuid) -> Journal {
        let (session, begun) = (Cell::new(0), Cell::new(false));
        Journal { uuid, name, disk, log, copy: 0, fresh: true, session, begun }
    }

    /// The members' header fields for it while it does not have their log.
    pub(crate) fn note(&self) -> JournalNote {
        let name = DeviceName::new(&self.name);
        JournalNote { uuid: self.uuid, name, used: JournalUse::Away }
    }

    /// Writes the header of a journal that nothing was logged on yet, for an array of this identity
    /// and name.
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

    /// Writes its header, durably. Of an array that was something else before, the other copy goes.
    pub(crate) async fn write_header(
        &self,
        reach: &MemberIo,
        header: &JournalHeader,
    ) -> io::Result<()> {
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

    /// The state of the array's journal device in its record; `None` if there is none.
    pub fn journal_note(&self, configuration: &Configuration) -> Option<JournalNote> {
        self.private_of(configuration).journal
    }

    /// The common header fields of the members under this configuration.
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

    /// From the next commit on the journal device is not used any more, not even when it is back.
    pub fn give_up_journal(&self) {
        let mut private = self.private.get();
        for note in private.journal.iter_mut().chain(&mut private.next_journal) {
            note.used = JournalUse::GivenUp;
        }
        self.private.set(private);
    }

    /// Where the log lies on the journal device, if there is one.
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
        match journal.write_header(&self.reach, &header).await {
            Ok(()) => {
                journal.begun.set(true);
                Failures::new()
            }
            Err(why) => vec![(MemberId::JOURNAL, why)],
        }
    }
}
