//! The state of an array's export on its members: reads it, and keeps a new one.
//!
//! Runs beside the engine: the state has a place of its own in the private area, which nothing else
//! writes. Never decides about membership; the caller names the members.

use std::ops::Range;
use std::rc::Rc;

use io::{Boxed, Clock, Disk};
use layout::md::Uuid;
use layout::private::export::{EXPORT_BYTES, ExportCopy, ExportState, places};

use crate::assemble::probe;
use crate::bounds::Bounds;
use crate::commit::member_io::MemberIo;
use crate::error::{Error, Result};

/// What the members of an array hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FoundExport {
    /// The newest copy; none if there is none.
    pub latest: Option<ExportCopy>,
    /// Members whose copies are damaged or cannot be read, by name, with the fault.
    pub damaged: Vec<(String, String)>,
    /// Members that have no room for a copy, by name.
    pub without_room: Vec<String>,
}

/// The place on a member of this array where copies are kept; none if it has no private area.
async fn place(
    reach: &MemberIo,
    (name, disk): (&str, &Rc<dyn Disk>),
    uuid: Uuid,
) -> Result<Option<[Range<u64>; 2]>> {
    let found = probe::look(reach, disk, name, Some(uuid)).await;
    let found = found.map_err(|why| Error::refused(format!("{name}: {why}")))?;
    if found.superblock.set_uuid != uuid {
        return Err(Error::refused(format!("{name}: it is a member of another array")));
    }
    Ok(found.map.private_parts().map(|parts| places(&parts.history)))
}

/// Reads the state of an array's export from these members.
///
/// A member that cannot be read does not hide the others: its copies count as damaged.
pub fn read<'a>(
    members: &'a [(String, Rc<dyn Disk>)],
    uuid: Uuid,
    clock: &'a Rc<dyn Clock>,
) -> Boxed<'a, FoundExport> {
    Box::pin(async move {
        let reach = MemberIo::within(Rc::clone(clock), Bounds::default().deadline);
        let mut found = FoundExport::default();
        for (name, disk) in members {
            let places = match place(&reach, (name, disk), uuid).await {
                Ok(Some(places)) => places,
                Ok(None) => {
                    found.without_room.push(name.clone());
                    continue;
                }
                Err(why) => {
                    found.damaged.push((name.clone(), why.to_string()));
                    continue;
                }
            };
            let (mut own, mut faults) = (None::<ExportCopy>, Vec::new());
            for place in places {
                let read = reach.read(&**disk, place).await.map_err(|why| why.to_string());
                let copy = read.and_then(|bytes| {
                    ExportCopy::parse(&bytes, &uuid, parity::crc32c).map_err(|why| why.to_string())
                });
                match copy {
                    Ok(copy) => own = newer(own, copy),
                    Err(why) => faults.push(why),
                }
            }
            // A write that a crash interrupted damages one copy; the other one is the state before
            // it.
            if let (None, Some(fault)) = (&own, faults.pop()) {
                found.damaged.push((name.clone(), fault));
            }
            found.latest = newer(found.latest, own);
        }
        found
    })
}

fn newer(one: Option<ExportCopy>, other: Option<ExportCopy>) -> Option<ExportCopy> {
    one.into_iter().chain(other).max_by_key(|copy| copy.generation)
}

/// Keeps a state on these members, durably; returns how many have it.
///
/// # Errors
/// A member failed. Others may have the new state.
pub fn write<'a>(
    members: &'a [(String, Rc<dyn Disk>)],
    (uuid, generation): (Uuid, u64),
    state: &'a ExportState,
    clock: &'a Rc<dyn Clock>,
) -> Boxed<'a, Result<usize>> {
    Box::pin(async move {
        let reach = MemberIo::within(Rc::clone(clock), Bounds::default().deadline);
        let copy = ExportCopy { set_uuid: uuid, generation, state: state.clone() };
        let bytes = copy.print(parity::crc32c);
        assert_eq!(bytes.len() as u64, EXPORT_BYTES, "a copy that does not fit its place");
        let mut kept = 0;
        for (name, disk) in members {
            let Some(places) = place(&reach, (name, disk), uuid).await? else { continue };
            let failed = |why| Error::refused(format!("{name}: the export's state")).because(why);
            let writer = reach.of(name, disk);
            let at = places[ExportCopy::place(generation)].start;
            writer.write(at, &bytes, false).await.map_err(failed)?;
            writer.flush().await.map_err(failed)?;
            kept += 1;
        }
        Ok(kept)
    })
}
