//! The flushes of members: all go through this module, one after the other.
//!
//! After a failed flush, every write to the member since its last good flush is in an unknown
//! state. But kernels report each error only once (`fsync`). Of two flushes, concurrent or in
//! sequence, one gets the error and the other a false success. So there is only one flush at a
//! time, and none succeeds after a failed one until the member is admitted again.
//!
//! Without redundancy a failed member stays in its slot, and its metadata is still written:
//! superblocks and bitmap never cause a rebuild there.

use std::cell::RefCell;

use io::broken::{Broken, broken};
use layout::{Family, MemberId};

use crate::commit::async_mutex::Held;
use crate::commit::member_io::all;
use crate::commit::{Failures, MetadataWriter};

/// The error of a failed flush of a member.
pub(crate) type Failed = RefCell<Option<io::Error>>;

impl MetadataWriter {
    /// Waits for the turn to flush members.
    pub async fn turn_to_flush(&self) -> Held<'_> {
        self.flushing.take().await
    }

    /// The reason if no flush of this member can succeed any more.
    pub fn unflushable(&self, id: MemberId) -> Option<io::Error> {
        let state = self.state.borrow();
        match state.records.get(&id) {
            _ if broken(Broken::FlushErrorForgotten) => None,
            Some(record) => record.flush_failed.borrow().clone(),
            None => Some(super::expelled_error()),
        }
    }

    /// Records that a flush of this member has failed.
    pub fn set_unflushable(&self, id: MemberId, why: &io::Error) {
        if let Some(record) = self.state.borrow().records.get(&id) {
            record.flush_failed.borrow_mut().get_or_insert(why.clone());
        }
    }

    /// Makes the metadata and data written to these members durable.
    pub async fn flush(&self, members: &[MemberId]) -> Failures {
        let _turn = self.turn_to_flush().await;
        let plain = self.geometry.family() == Family::Plain;
        let flushes = self.records(members, &Failures::new()).into_iter();
        let flushes = flushes.map(|(id, record)| async move {
            if let Some(why) = self.unflushable(id).filter(|_| !plain) {
                return Some((id, why));
            }
            let why = record.writer(&self.reach).flush().await.err()?;
            self.set_unflushable(id, &why);
            Some((id, why))
        });
        all(flushes).await.into_iter().flatten().collect()
    }
}
