//! The flushes of members: all go through here, one after the other.
//!
//! After a failed flush all writes to its member since the last good flush are unknown, whoever
//! sent them. But kernels report each error once (`fsync`): of two concurrent or successive flushes
//! one gets the error of the lost write, and the other a false success. So only one flush runs at a
//! time, and none succeeds after a failed one until the member is added again.
//!
//! Without redundancy a failed member stays where it is, and its metadata goes on being written:
//! nothing is rebuilt on the word of superblocks and bitmap.

use std::cell::RefCell;

use io::broken::{Broken, broken};
use layout::{Family, MemberId};

use crate::commit::async_mutex::Held;
use crate::commit::member_io::all;
use crate::commit::{Failures, MetadataWriter};

/// Why a member's writes are unknown, if they are.
pub(crate) type Failed = RefCell<Option<io::Error>>;

impl MetadataWriter {
    /// Waits until no flush of members is in flight.
    pub async fn turn_to_flush(&self) -> Held<'_> {
        self.flushing.take().await
    }

    /// Why no flush of this member succeeds any more, if so.
    pub fn unflushable(&self, id: MemberId) -> Option<io::Error> {
        let state = self.state.borrow();
        match state.records.get(&id) {
            _ if broken(Broken::FlushErrorForgotten) => None,
            Some(record) => record.flush_failed.borrow().clone(),
            None => Some(super::stranger()),
        }
    }

    /// A flush of this member has failed.
    pub fn set_unflushable(&self, id: MemberId, why: &io::Error) {
        if let Some(record) = self.state.borrow().records.get(&id) {
            record.flush_failed.borrow_mut().get_or_insert(why.clone());
        }
    }

    /// Makes these members' written metadata and data durable.
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
