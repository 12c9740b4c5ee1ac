//! What happens to an array that is being served, and to the files under it.
//!
//! Remembers why members were lost, and looks whether files are still there:
//!
//! ```text
//!   cut        bytes are lost                       failed at once
//!   deleted    nothing is lost while it is open:    kept, and told of; a spare takes over while it
//!              the last chance to save the bytes    serves; failed when the server stops, so that
//!                                                   the next start does not miss it
//! ```
//!
//! Never decides whether a member can be spared: the engine refuses to lose data.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use array::status::{Event, EventKind, MemberStatus, SlotState};
use io::{Clock, Time};
use jiff::Timestamp;
use layout::{MemberId, Mode};

use super::job_rate::Seen;
use super::served::Known;
use super::{Served, first};
use crate::api::State;

/// How often it is looked whether files are still there.
const LOOK: Duration = Duration::from_secs(2);

/// What a person can do about it, in one sentence.
pub(super) const DELETED: &str =
    "its file was deleted; it works until the server stops, then its bytes are lost";

/// What is known of an array's members beyond what the engine keeps.
#[derive(Default)]
pub(super) struct Watched {
    /// How many events were looked at.
    seen: u64,
    /// How members were lost, by name.
    losses: BTreeMap<String, Loss>,
    /// The slot that each member was last seen in.
    slots: BTreeMap<MemberId, usize>,
    /// Errors that were counted when `parapet clear` was last ordered: read, write, checksum.
    cleared: BTreeMap<MemberId, [u64; 3]>,
    /// The scrub whose findings were told of: when it ended.
    pub(super) scrub: Option<u64>,
    /// How the array was when that was last told, and how many more members could be lost.
    pub(super) state: Option<(State, usize)>,
    /// Members that were told of already.
    told: BTreeSet<MemberId>,
}

/// How a member was lost.
#[derive(Clone)]
pub(super) struct Loss {
    /// The cause, in words.
    pub(super) why: String,
    /// When.
    pub(super) at: Timestamp,
    /// The slot that it held.
    pub(super) slot: Option<usize>,
}

impl Loss {
    fn of(event: Event) -> Loss {
        let at = i64::try_from(event.unix_micros / 1_000_000).ok();
        let at = at.and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or_default();
        Loss { why: event.text, at, slot: event.slot.map(|slot| slot.index()) }
    }
}

/// Read, write and checksum errors of a member since the start.
fn errors(status: &MemberStatus) -> [u64; 3] {
    let writes = status.write_errors + status.timeouts;
    [status.read_errors, writes, status.checksum_errors]
}

impl Served {
    /// Looks at the latest events: who was lost, and why.
    pub(super) fn learn(&self) {
        let (log, mut watched) = (self.array.log(), self.watched.borrow_mut());
        let events = log.since(watched.seen);
        watched.seen = log.count();
        for slot in &self.array.status().slots {
            for member in slot.member.iter() {
                watched.slots.insert(member.id, slot.slot.index());
            }
        }
        for event in events {
            let Some(member) = event.member.clone() else { continue };
            match event.kind {
                EventKind::Fail | EventKind::TakenOut => {
                    drop(watched.losses.insert(member, Loss::of(event)));
                }
                EventKind::SpareAdded | EventKind::Readded => drop(watched.losses.remove(&member)),
                _ => {}
            }
        }
    }

    /// How a member that holds no place was lost, if it was while the array was served.
    pub(super) fn loss_of(&self, known: &Known) -> Option<Loss> {
        self.learn();
        self.watched.borrow().losses.get(&known.path.display().to_string()).cloned()
    }

    /// The slot that a member was last seen in.
    pub(super) fn last_slot(&self, id: MemberId) -> Option<usize> {
        self.watched.borrow().slots.get(&id).copied()
    }

    /// Read, write and checksum errors of a member since they were last cleared.
    pub(super) fn errors_since_clear(&self, status: &MemberStatus) -> [u64; 3] {
        let (mut now, watched) = (errors(status), self.watched.borrow());
        // A member that came back counts from zero.
        let before = watched.cleared.get(&status.id).copied().unwrap_or_default();
        now.iter_mut().zip(before).for_each(|(now, before)| *now = now.saturating_sub(before));
        now
    }

    /// Counts the errors of this member, or of all, from zero again.
    pub(super) fn clear_errors(&self, only: Option<MemberId>) {
        let mut watched = self.watched.borrow_mut();
        for (id, _) in self.all_known() {
            let Some(status) = self.array.member(id) else { continue };
            if only.is_none_or(|only| only == id) {
                watched.cleared.insert(id, errors(&status));
            }
        }
    }

    /// A member begins anew under this number: its errors are counted from zero.
    pub(super) fn forget_errors(&self, id: MemberId) {
        self.watched.borrow_mut().cleared.remove(&id);
    }

    /// Looks after members whose files are cut or deleted.
    pub(super) async fn watch_members(self: Rc<Self>, clock: &dyn Clock) {
        loop {
            let pause = clock.sleep_until(clock.now() + LOOK);
            if first(pause, self.until_stopped()).await.is_none() {
                return;
            }
            self.sample_job_rate(clock.now());
            self.tell_state();
            let faulty = self.faulty();
            for (id, member) in self.all_known() {
                let Some(file) = member.file.as_ref().filter(|_| !faulty.contains(&id)) else {
                    continue;
                };
                file.look();
                if file.is_gone() {
                    self.fail_cut(id, &member).await;
                } else if file.is_deleted() {
                    self.save_deleted(id, &member).await;
                }
            }
        }
    }

    /// Looks how far background work is.
    pub(super) fn sample_job_rate(&self, now: Time) {
        self.job_rate.see(now, self.array.status().job.as_ref().map(Seen::of));
    }

    /// True the first time a member is asked for.
    fn is_news(&self, id: MemberId) -> bool {
        self.watched.borrow_mut().told.insert(id)
    }

    /// Fails a member that has lost bytes, before they are relied on.
    async fn fail_cut(&self, id: MemberId, member: &Known) {
        let (array, path) = (self.name(), member.path.display().to_string());
        let news = self.is_news(id);
        if news {
            tracing::error!("{array}: {path}: cut while in use, or unplugged: failed");
        }
        // Superblocks cannot be written now: whoever reads what is not there is told.
        if self.array.status().mode == Mode::ReadOnly {
            return;
        }
        // A disk that was unplugged has its bytes; a file that was cut has lost some for good.
        let lost = match member.is_file() {
            true => self.array.lose_truncated(id).await,
            false => self.array.lose(id).await,
        };
        if let Err(error) = lost
            && news
        {
            tracing::error!("{array}: {path}: kept all the same: {error}");
        }
    }

    /// Lets a spare take over from a deleted file while its bytes are still there.
    async fn save_deleted(&self, id: MemberId, member: &Known) {
        let (array, path) = (self.name(), member.path.display().to_string());
        if self.is_news(id) {
            tracing::error!("{array}: {path}: {DELETED}: parapet replace it now");
        }
        let status = self.array.status();
        let mut slots = status.slots.iter();
        let slot = slots.find(|slot| slot.member.as_ref().is_some_and(|member| member.id == id));
        let Some(slot) = slot.filter(|slot| slot.state == SlotState::InSync) else { return };
        let sound = |id: MemberId| self.known(id).is_some_and(|known| !known.is_deleted());
        let Some(spare) = status.spares.iter().find(|spare| sound(spare.id)) else { return };
        // Not while another slot is rebuilt; it is tried again.
        if let Err(refusal) = self.array.replace(slot.slot, spare.id).await {
            tracing::debug!("{array}: {path}: not replaced yet: {refusal}");
        }
    }

    /// Takes deleted files out, as far as they can be spared, before they are closed: so it is on
    /// record, and the next start does without them unasked.
    pub(super) async fn fail_deleted(&self) {
        if self.array.status().mode != Mode::ReadWrite {
            return;
        }
        let faulty = self.faulty();
        for (id, member) in self.all_known() {
            if faulty.contains(&id) || !member.is_deleted() {
                continue;
            }
            let (array, path) = (self.name(), member.path.display().to_string());
            match self.array.lose(id).await {
                Ok(()) => tracing::warn!("{array}: {path}: deleted: taken out at the end"),
                Err(error) => tracing::error!("{array}: {path}: deleted, and needed: {error}"),
            }
        }
    }
}

impl Known {
    /// True if its file has no name any more.
    pub(super) fn is_deleted(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.is_deleted())
    }
}
