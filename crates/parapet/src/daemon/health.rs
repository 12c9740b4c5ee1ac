//! The health of the disks of members, as the thread that watches them reports it.
//!
//! The thread gives its notes over the control API. Here they become events, and problems of
//! `status`. Decides nothing: `policy::health` does.

use std::path::PathBuf;

use array::status::MemberStatus;
use layout::MemberId;

use super::Served;
use super::orders::{member_of, usage};
use crate::api::{DiskHealth, HealthLevel, MemberDisks, Order, Severity};
use crate::disk_health::{locate, record, whole};
use crate::disks::member_path;
use crate::failure::{Failure, Id, Result};
use crate::local_disks::aside;
use crate::remote::is_remote;

/// The word of the events. mdadm has none for this.
const EVENT: &str = "DiskHealth";

impl Served {
    /// Takes what is known of a member's disk; a change of its level is an event.
    ///
    /// # Errors
    /// If there is no such member.
    pub(super) fn note_health(&self, order: &Order) -> Result<String> {
        let id = self.resolve(member_of(order)?)?;
        let health = order.health.clone().ok_or_else(|| usage("the order has no health"))?;
        let (array, title) = (self.name(), self.title(id));
        let level = health.level;
        let before = self.health.borrow_mut().insert(id, health.clone());
        let sentence = format!("{title}: {}", health.sentence());
        if self.is_news(&title, before.map(|it| it.level), level) {
            let severity = match level {
                HealthLevel::Ok | HealthLevel::Watch => Severity::Info,
                HealthLevel::Suspect => Severity::Warning,
                HealthLevel::Replace | HealthLevel::Fail => Severity::Error,
            };
            match severity {
                Severity::Error => tracing::error!("{array}: {sentence}"),
                Severity::Warning => tracing::warn!("{array}: {sentence}"),
                Severity::Info => tracing::info!("{array}: {sentence}"),
            }
            self.history.note((EVENT, severity), Some(&title), &sentence);
        }
        Ok(format!("{array}: {sentence}"))
    }

    /// True if the level differs from the one that the history has.
    fn is_news(&self, title: &str, before: Option<HealthLevel>, level: HealthLevel) -> bool {
        if let Some(before) = before {
            return before != level;
        }
        // The server may have been restarted since.
        match self.history.latest(EVENT, title) {
            Some(message) => !message.starts_with(&format!("{title}: {}", level.words())),
            None => level != HealthLevel::Ok,
        }
    }

    /// Switches the locate LEDs of a member's disks.
    ///
    /// # Errors
    /// If there is no such member, or no LED.
    pub(super) async fn locate(&self, order: &Order) -> Result<String> {
        let id = self.resolve(member_of(order)?)?;
        let (path, is_off) = (self.local_path(id), order.off);
        let disks = aside(move || path.map_or_else(Vec::new, |path| whole::of(&path))).await?;
        if disks.is_empty() {
            let message = format!("{}: it is on no disk of this machine", self.title(id));
            return Err(Failure::new(Id::WrongState, message, "look for the file, or its server"));
        }
        let switch = move || disks.iter().map(|disk| locate::switch(disk, is_off)).collect();
        let switched: Result<Vec<String>> = aside(switch).await?;
        Ok(format!("{}: {}", self.name(), switched?.join("; ")))
    }

    /// Returns the disks of a member, with their SMART data and its history.
    ///
    /// # Errors
    /// If there is no such member.
    pub(super) async fn disks_of(&self, who: &str) -> Result<MemberDisks> {
        let id = self.resolve(who)?;
        let path = self.local_path(id);
        let disks = aside(move || path.map_or_else(Vec::new, |path| record::of(&path))).await?;
        let (array, uuid) = (self.name().to_owned(), self.uuid().to_owned());
        Ok(MemberDisks { array, uuid, member: self.title(id), disks })
    }

    /// The path of a member on this machine.
    fn local_path(&self, id: MemberId) -> Option<PathBuf> {
        let path = member_path(&self.known(id)?.path);
        Some(path).filter(|path| path.is_absolute() && !is_remote(path))
    }

    /// Returns true if the disk of a member in service may fail.
    pub(crate) fn is_suspect(&self) -> bool {
        let (status, health) = (self.array.status(), self.health.borrow());
        let mut members = status.slots.iter().filter_map(|slot| slot.member.as_ref());
        let level = |member: &MemberStatus| health.get(&member.id).map(|health| health.level);
        members.any(|member| level(member).is_some_and(|level| level >= HealthLevel::Suspect))
    }

    /// Returns what is known of a member's disk.
    pub(super) fn health_of(&self, id: MemberId) -> Option<DiskHealth> {
        self.health.borrow().get(&id).cloned()
    }
}
