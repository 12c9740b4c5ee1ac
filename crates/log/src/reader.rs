//! The reader of the log: finds the rows that a crash may have torn, from the bytes of every zone.
//!
//! Decides which batches may be missing in a zone: torn ones, which were never acknowledged, and
//! released ones. Any other unreadable batch makes the log untrusted.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;

use io::broken::{Broken, broken};
use layout::md::ParseError;
use layout::plan::Roles;
use layout::private::LogShape;
use layout::private::log::{BATCH_ALIGNMENT, Batch, Entry, Record, Syndrome};
use layout::{Configuration, Geometry, MemberId, RangeSet, Slot, SlotSet, Stripe};

use crate::expected::Expected;
use crate::solve::{Partial, TornRow};
use crate::verdict::{Copies, Kind, Lacking, Verdict, verdict};

/// The reason why a log is not trusted.
pub struct Untrusted {
    /// For people.
    pub why: String,
    /// The member with that log, if all other logs can be trusted without it.
    pub of: Option<MemberId>,
}

impl From<String> for Untrusted {
    fn from(why: String) -> Untrusted {
        Untrusted { why, of: None }
    }
}

/// A log to be read.
pub struct Source<'a> {
    /// The name of its disk.
    pub name: &'a str,
    /// Its member; `None` for the journal device.
    pub of: Option<(MemberId, Slot)>,
    /// Its zones and sessions.
    pub shape: LogShape,
}

impl Source<'_> {
    /// The session number in its batches.
    fn session(&self) -> u64 {
        if self.of.is_some() { self.shape.session } else { self.shape.run }
    }

    /// Marks this log as untrusted.
    pub fn untrusted(&self, why: impl Display) -> Untrusted {
        let of = self.of.map(|(id, _)| id);
        Untrusted { why: format!("the log of {} {why}", self.name), of }
    }
}

/// A zone of a log.
pub struct Zone<'a> {
    /// The log.
    pub log: &'a Source<'a>,
    /// All bytes of the zone.
    pub bytes: &'a [u8],
}

/// The assignment of members to slots.
pub struct Holders<'a> {
    /// The members of all slots.
    pub configuration: &'a Configuration,
    /// The epoch in which each member got its slot ([`LogShape::since`]).
    pub since: BTreeMap<Slot, u32>,
}

impl Holders<'_> {
    /// True if the member of this slot got it after this record was written, and so does not have
    /// it.
    fn came_after(&self, slot: Slot, record: &Record) -> bool {
        let since = self.since.get(&slot).is_some_and(|&since| since > record.epoch);
        since && !broken(Broken::JoinedMustHave)
    }
}

/// A batch, and its start in its member's zone.
pub type Found = (Batch, usize);

/// The readable batches of a session in the bytes of a zone, by sequence number. A batch with a
/// wrong checksum is ignored: a crash may have interrupted its write.
///
/// # Errors
/// A batch with a right checksum cannot be parsed. It was written completely, so it may be needed:
/// the log is damaged, or another version of the program wrote it.
pub fn scan(
    zone_bytes: &[u8],
    session: u64,
    zone: u32,
) -> Result<BTreeMap<u64, Found>, ParseError> {
    let mut found = BTreeMap::new();
    let mut at = 0;
    while at < zone_bytes.len() {
        let bytes = &zone_bytes[at..];
        let ours = Batch::bytes_of(bytes, session);
        let batch = match ours.map(|_| Batch::parse(bytes, parity::crc32c)) {
            Some(Err(error)) if !error.may_be_torn() && !broken(Broken::UnparsableUnwritten) => {
                return Err(error);
            }
            batch => batch.and_then(Result::ok),
        };
        let step = match batch.filter(|batch| batch.header.zone == zone) {
            None => BATCH_ALIGNMENT,
            Some(batch) => {
                let step = batch.bytes.next_multiple_of(BATCH_ALIGNMENT);
                found.insert(batch.header.sequence, (batch, at));
                step
            }
        };
        at += step as usize;
    }
    Ok(found)
}

/// The batches of a zone from `tail` on, among those `found` on one member.
///
/// # Errors
/// A batch that must exist is missing.
fn batches(
    zone: &Zone<'_>,
    mut found: BTreeMap<u64, Found>,
    tail: u64,
) -> Result<BTreeMap<u64, Found>, Untrusted> {
    let Some((_, (newest, _))) = found.last_key_value() else { return Ok(found) };
    let newest = newest.header;
    found.retain(|&sequence, _| sequence >= tail);
    let mut at = newest;
    while at.previous >= tail && at.previous > 0 {
        match found.get(&at.previous) {
            Some((batch, _)) => at = batch.header,
            None if at.previous > newest.durable => break,
            None => return Err(zone.log.untrusted("is damaged")),
        }
    }
    Ok(found)
}

/// The live batches of a zone on each member, with their starts. The latest tail on any member is
/// valid for all. Members with an older tail can only lack batches that were torn, over batches
/// that are no longer live.
fn each_batches(
    logs: &[Zone<'_>],
    zone: u32,
) -> Result<(u64, Vec<BTreeMap<u64, Found>>), Untrusted> {
    let scanned = |own: &Zone<'_>| {
        let found = scan(own.bytes, own.log.session(), zone);
        found.map_err(|error| own.log.untrusted(format_args!("is damaged: {error}")))
    };
    let found: Vec<_> = logs.iter().map(scanned).collect::<Result<_, _>>()?;
    let tail_of = |found: &BTreeMap<u64, Found>| {
        found.last_key_value().map_or(0, |(_, (newest, _))| newest.header.tail)
    };
    let latest = found.iter().map(tail_of).max().unwrap_or(0);
    let each = logs.iter().zip(found).map(|(own, found)| {
        let tail = if broken(Broken::OwnTailOnly) { tail_of(&found) } else { latest };
        batches(own, found, tail)
    });
    Ok((latest, each.collect::<Result<_, _>>()?))
}

/// One row of one batch, from each parity member that has it.
#[derive(Default)]
struct Both<'a> {
    p: Option<(&'a Zone<'a>, usize, &'a Entry)>,
    q: Option<(&'a Zone<'a>, usize, &'a Entry)>,
    /// The slots whose members have it.
    slots: SlotSet,
}

impl Both<'_> {
    /// Checks that both parity members got the same record, except for the parity in it.
    fn check(&self) -> Result<(), Untrusted> {
        let row = |record: &Record| {
            let Record { len, stripes, first, count, partial, zeros, .. } = *record;
            (len, stripes, first, count, partial, zeros)
        };
        match (self.p, self.q) {
            (Some((.., p)), Some((zone, _, q))) if row(&p.record) != row(&q.record) => {
                Err(zone.log.untrusted("contradicts what another member has of the same row"))
            }
            _ => Ok(()),
        }
    }
}

/// The newest record of every row in a zone, from all logs that have the zone.
///
/// # Errors
/// The reason why one of the logs is not trusted.
pub fn torn_rows(
    logs: &[Zone<'_>],
    zone: u32,
    holders: &Holders<'_>,
    geometry: &Geometry,
) -> Result<(Vec<TornRow>, Expected), Untrusted> {
    let (tail, each) = each_batches(logs, zone)?;
    let each: Vec<_> = logs.iter().zip(each).collect();
    let mut sequences: Vec<u64> =
        each.iter().flat_map(|(_, found)| found.keys().copied()).collect();
    sequences.sort_unstable();
    sequences.dedup();
    let mut covered: BTreeMap<u64, RangeSet> = BTreeMap::new();
    let (mut torn_rows, mut expected) = (Vec::new(), Expected::default());
    for sequence in sequences.into_iter().rev().take_while(|&sequence| sequence >= tail) {
        let mut rows: BTreeMap<(u64, u64), Both<'_>> = BTreeMap::new();
        for (log, found) in &each {
            let Some((batch, at)) = found.get(&sequence) else { continue };
            for entry in &batch.entries {
                check(&entry.record, geometry)?;
                expected.add(entry, geometry);
                let both = rows.entry((entry.record.stripe, entry.record.start)).or_default();
                both.slots = log.log.of.map_or(both.slots, |(_, slot)| both.slots.with(slot));
                match entry.record.syndrome {
                    Syndrome::P => both.p = Some((log, *at, entry)),
                    Syndrome::Q => both.q = Some((log, *at, entry)),
                }
            }
        }
        for both in rows.values() {
            both.check()?;
            let verdict = judge(both, logs, holders, geometry);
            if verdict != Verdict::Unwritten {
                add_torn_rows(
                    both,
                    &mut covered,
                    (verdict == Verdict::Torn).then_some(&mut torn_rows),
                );
            }
        }
    }
    Ok((torn_rows, expected))
}

/// Checks that the record lies within the array.
fn check(record: &Record, geometry: &Geometry) -> Result<(), String> {
    let stripes = record.stripe.checked_add(record.stripes.into());
    let inside = stripes.is_some_and(|end| end <= geometry.stripes())
        && record.start.saturating_add(record.len) <= geometry.chunk_bytes()
        && usize::from(record.first) + usize::from(record.count) <= geometry.data_count();
    let what = || format!("the log has a record of stripe {}, which does not exist", record.stripe);
    inside.then_some(()).ok_or_else(what)
}

/// The verdict on a record, by the members that have it.
///
/// A member may lack the record because it got its slot later. If it holds the row now, it was
/// rebuilt after the row was written, and the commit that recorded this flushed every member. Such
/// a record could not repair the row: it has one syndrome, and two members may be lost again.
fn judge(
    both: &Both<'_>,
    logs: &[Zone<'_>],
    holders: &Holders<'_>,
    geometry: &Geometry,
) -> Verdict {
    let device = logs.iter().any(|zone| zone.log.of.is_none());
    let (_, _, entry) = both.p.or(both.q).expect("a row comes from a log record");
    let record = &entry.record;
    let copies = match () {
        () if !record.paired && !record.zeros => Copies::One,
        () if device => Copies::Device,
        () => Copies::Several,
    };
    let (kind, lacking) = if record.zeros {
        let must: SlotSet = holders.since.keys().copied().collect();
        let must = must.intersection(holders.configuration.in_sync());
        (Kind::Zeros, must.difference(both.slots))
    } else {
        let roles = Roles::of(&geometry.stripe(Stripe(record.stripe)), geometry.slots());
        let end = (record.stripe + 1) * geometry.stripe_bytes();
        let readable = |slot: &Slot| holders.configuration.is_readable(*slot, end);
        let lacks = |slot: Option<Slot>, one: bool| slot.filter(|slot| !one && readable(slot));
        let lacking = [lacks(Some(roles.p), both.p.is_some()), lacks(roles.q, both.q.is_some())];
        let whole = record.partial || usize::from(record.count) == geometry.data_count();
        let kind = match () {
            () if whole => Kind::Parity,
            () if parity_came_after(&roles, holders, record, readable) => Kind::ParityRemade,
            () => Kind::PastParity,
        };
        (kind, lacking.into_iter().flatten().collect())
    };
    let lacking = match () {
        () if lacking.is_empty() => Lacking::None,
        () if lacking.iter().all(|slot| holders.came_after(slot, record)) => Lacking::Later,
        () => Lacking::Present,
    };
    verdict(kind, copies, lacking)
}

/// True for data written without parity if all present parity was computed later.
fn parity_came_after(
    roles: &Roles,
    holders: &Holders<'_>,
    record: &Record,
    readable: impl Fn(&Slot) -> bool,
) -> bool {
    let parity: Vec<Slot> = roles.parity().iter().filter(readable).collect();
    !parity.is_empty() && parity.iter().all(|&slot| holders.came_after(slot, record))
}

/// Marks older records of a row as covered, and adds the parts that no newer record covers to
/// `torn_rows`.
fn add_torn_rows(
    both: &Both<'_>,
    covered: &mut BTreeMap<u64, RangeSet>,
    mut torn_rows: Option<&mut Vec<TornRow>>,
) {
    let (log, at, entry) = both.p.or(both.q).expect("a row comes from a log record");
    let record = entry.record;
    for stripe in record.stripe..record.stripe + u64::from(record.stripes) {
        let known = covered.entry(stripe).or_default();
        let mut open: RangeSet = std::iter::once(record.start..record.start + record.len).collect();
        known.iter().for_each(|range| open.remove(range));
        known.insert(record.start..record.start + record.len);
        let Some(torn_rows) = &mut torn_rows else { continue };
        for Range { start, end } in open.iter() {
            let within = (start - record.start) as usize..(end - record.start) as usize;
            let partial = |from: Option<(&Zone<'_>, usize, &Entry)>| {
                let (log, at, entry) = from?;
                if !entry.record.partial {
                    return Some(Partial::Zero);
                }
                let from = at + entry.syndrome.start;
                let bytes = &log.bytes[from + within.start..from + within.end];
                Some(Partial::Bytes(bytes.to_vec()))
            };
            let logged = record.logged_indices().enumerate().map(|(place, index)| {
                let from = at + entry.data.start + place * record.len as usize;
                (index, log.bytes[from + within.start..from + within.end].to_vec())
            });
            torn_rows.push(TornRow {
                record,
                stripe,
                start,
                len: end - start,
                checks: entry.checks.clone(),
                p: partial(both.p),
                q: partial(both.q),
                logged: logged.collect(),
            });
        }
    }
}

#[cfg(test)]
mod tests;
