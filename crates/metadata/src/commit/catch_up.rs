//! Members that a crash has left one event behind: the first commit begins by bringing them up to
//! date.
//!
//! ```text
//!              crash           the next commit              crash        result
//!   a.img   23 ─────▶ 24       header 25 replaces 23's,     25           the freshest
//!   b.img   23 ─────▶ 23       header 25 replaces 23's,     23           two behind: left out,
//!                                                                        and without a header
//! ```
//!
//! Everything that the superblocks of a commit claim is durable on every member before the first of
//! them is written. So members that missed only their superblock get it here, with the number and
//! the tag of the others, before anything with the next number is written. A change of policy by
//! the user is not part of that old commit: features and places stay as found.

use io::broken::{Broken, broken};
use layout::md::Superblock;
use layout::{Configuration, MemberId};

use crate::commit::member_io::all;
use crate::commit::record::Record;
use crate::commit::{Failures, MetadataWriter, Opened};

/// The unfinished part of the last commit before the start.
pub(super) struct Behind {
    /// The members without its superblock, and the ones they have.
    members: Vec<(MemberId, Superblock)>,
    /// A superblock of that commit.
    latest: Superblock,
    /// The configuration at the start, with each member's progress.
    start: Configuration,
}

impl Behind {
    /// `None` if every member that has a slot has the freshest superblock.
    pub(super) fn of(opened: &Opened) -> Option<Behind> {
        let Opened { found, configuration, latest, .. } = opened;
        let missed = |(_, id)| {
            let found = found.get(&id).filter(|found| found.events < latest.events)?;
            Some((id, found.clone()))
        };
        let members: Vec<_> = configuration.assigned().filter_map(missed).collect();
        let (latest, start) = (latest.clone(), configuration.clone());
        let some = !members.is_empty() && !broken(Broken::BehindStays);
        some.then_some(Behind { members, latest, start })
    }

    /// The superblock of the last commit for a member that missed it.
    fn draw(&self, metadata: &MetadataWriter, id: MemberId, mut record: Record) -> Superblock {
        let latest = &self.latest;
        let now = metadata.events();
        assert_eq!(latest.events, now, "the superblock of an old event after that of {now}");
        let found = self.members.iter().find(|(member, _)| *member == id);
        let found = found.map_or(&record.superblock, |(_, found)| found).clone();
        record.superblock = Superblock { features: latest.features, ..found };
        Superblock {
            roles: latest.roles.clone(),
            events: latest.events,
            utime: latest.utime,
            resync_offset: latest.resync_offset,
            ..metadata.draw_own(&self.start, id, &record)
        }
    }
}

impl MetadataWriter {
    /// Writes the superblock of the last commit to the members that missed it and still hold a
    /// slot.
    ///
    /// # Errors
    /// The members that could not be written.
    pub(super) async fn catch_up(&self, configuration: &Configuration) -> Result<(), Failures> {
        let Some(behind) = self.behind.take() else { return Ok(()) };
        let members = behind.members.iter().map(|(id, _)| *id);
        let members: Vec<_> = members.filter(|&id| configuration.slot_of(id).is_some()).collect();
        let writes = self.records(&members, &Failures::new()).into_iter().map(|(id, record)| {
            let superblock = behind.draw(self, id, record.clone());
            async move {
                let written = record.write_superblock(&self.reach, &superblock).await;
                written.map_err(|why| (id, why)).err()
            }
        });
        let failures: Failures = all(writes).await.into_iter().flatten().collect();
        if failures.is_empty() {
            return Ok(());
        }
        self.behind.replace(Some(behind));
        Err(failures)
    }
}
