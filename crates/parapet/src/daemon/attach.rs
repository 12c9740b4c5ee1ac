//! Arrays as local disks: `parapet attach`.

use std::rc::Rc;

use ::io::Disk;
use array::CacheMode;

use super::{Daemon, Served};
use crate::api::{AttachedView, Order};
use crate::failure::{Failure, Id, Result};
use crate::local_disks::Source;

impl Daemon {
    /// Makes the array a local disk.
    pub(super) async fn order_attach(&self, served: &Served, order: &Order) -> Result<String> {
        let name = served.name();
        if let Some(attached) = self.attached_view(served) {
            let message = format!("{name} is attached as {}", attached.path);
            return Err(Failure::new(Id::WrongState, message, format!("parapet detach {name}")));
        }
        let attached = self.local_disks.attach(&source_of(served), order.how.as_deref()).await?;
        Ok(format!("{name}: attached as {} ({})", attached.path, attached.device))
    }

    /// Takes the local disk over that an earlier server of this array has left.
    pub(crate) async fn resume_attachment(&self, served: &Served) {
        self.local_disks.resume(&source_of(served)).await;
    }

    /// Takes the local disk away, unless it is in use.
    pub(super) async fn order_detach(&self, served: &Served) -> Result<String> {
        let name = served.name();
        let Some(attached) = self.attached_view(served) else {
            let message = format!("{name} is not attached");
            return Err(Failure::new(Id::WrongState, message, format!("parapet attach {name}")));
        };
        self.local_disks.detach(served.uuid()).await?;
        Ok(format!("{name}: {} is detached", attached.path))
    }

    /// Leaves all local disks to the next server; takes those away that cannot be left.
    pub(super) async fn leave_attachments(&self) {
        for served in self.arrays() {
            self.local_disks.leave(served.uuid()).await;
        }
    }

    /// Describes the array's local disk.
    pub(super) fn attached_view(&self, served: &Served) -> Option<AttachedView> {
        self.local_disks.view(served.uuid())
    }
}

/// A server that keeps acknowledged writes in its memory must not be succeeded under a file system.
fn source_of(served: &Served) -> Source {
    Source {
        uuid: served.uuid().into(),
        name: served.name().into(),
        disk: Rc::new(served.array.clone()),
        writers: served.writers().clone(),
        read_only: served.array.limits().read_only || served.read_only().is_some(),
        survives_restart: served.story.cache != CacheMode::Writeback,
    }
}
