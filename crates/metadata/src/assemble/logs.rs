//! Reads the intent logs of members and of the journal device, zone by zone. `log::reader` parses
//! them. Never writes.

use std::ops::Range;

use io::Disk;
use layout::private::{LogShape, PrivateHeader};
use layout::{Geometry, MemberId, Slot};
use log::expected::Expected;
use log::reader::{Holders, Source, Untrusted, Zone, torn_rows};
use log::solve::TornRow;

use crate::assemble::probe::MemberProbe;
use crate::commit::member_io::{MemberIo, all};

/// A log to be read.
pub(super) struct Log<'a> {
    source: Source<'a>,
    disk: &'a dyn Disk,
    /// Bytes from the start of the disk.
    place: Range<u64>,
}

impl<'a> Log<'a> {
    /// The log of a member.
    pub(super) fn of_member(
        (found, slot, header): (&'a MemberProbe, Slot, &PrivateHeader),
    ) -> Log<'a> {
        let of = Some((MemberId(found.superblock.device.number), slot));
        let source = Source { name: &found.name, of, shape: header.log };
        Log { source, disk: &*found.disk, place: header.parts.log.clone() }
    }

    /// The log of a journal device.
    pub(super) fn of_device(
        (name, disk): (&'a str, &'a dyn Disk),
        place: Range<u64>,
        shape: LogShape,
    ) -> Log<'a> {
        Log { source: Source { name, of: None, shape }, disk, place }
    }
}

/// Reads every log and combines their records.
pub(super) async fn read(
    reach: &MemberIo,
    logs: &[Log<'_>],
    holders: &Holders<'_>,
    geometry: &Geometry,
) -> Result<(Vec<TornRow>, Expected), Untrusted> {
    let shape = logs.first().map_or(LogShape::default(), |log| log.source.shape);
    let zone = |log: &Log<'_>| (log.source.shape.zones, log.source.shape.zone_bytes);
    if logs.iter().any(|log| zone(log) != (shape.zones, shape.zone_bytes)) {
        return Err("the members disagree on the size of the log's zones".to_string().into());
    }
    let (mut rows, mut expected) = (Vec::new(), Expected::default());
    for zone in 0..shape.zones {
        let reads = logs.iter().map(|log| async move {
            let start = log.place.start + u64::from(zone) * shape.zone_bytes;
            let bytes = reach.load(log.disk, start..start + shape.zone_bytes).await;
            bytes.map_err(|why| log.source.untrusted(format!("cannot be read: {why}")))
        });
        let bytes = all(reads).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        let zones = logs.iter().zip(&bytes);
        let zones: Vec<_> = zones.map(|(log, bytes)| Zone { log: &log.source, bytes }).collect();
        let (found, says) = torn_rows(&zones, zone, holders, geometry)?;
        rows.extend(found);
        expected.absorb(says);
    }
    Ok((rows, expected))
}
