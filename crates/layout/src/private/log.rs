//! The intent log: the rows being written, and the data needed to replay them.
//!
//! Owns the form of a batch of records. Never writes a log, never replays one.
//!
//! # Why
//!
//! A partial write changes data and parity of a row on different members. A crash in between leaves
//! parity that matches no version of the data (the *write hole*): if a member is then lost, its
//! block in the row is wrong, although nobody wrote it. So before data and parity are written, each
//! parity member logs its part of the row's syndrome *without* the blocks being written:
//!
//! ```text
//!   row      D0    D1    D2    D3     P           Q              D1 is being written
//!            ──    ▓▓    ──    ──
//!   on P's member:  p′ = D0 ⊕ D2 ⊕ D3             of the blocks that stay as they are
//!   on Q's member:  q′ = g⁰·D0 ⊕ g²·D2 ⊕ g³·D3
//! ```
//!
//! From p′ and q′ the unwritten blocks of any two lost members can be computed, whichever writes
//! arrived; then parity is recomputed. md's partial parity log does the same with P alone
//! (`drivers/md/raid5-ppl.c`); Q extends it to RAID 6. If several blocks of a row change, or a
//! member is missing, the record also holds CRCs of the new blocks: a lost written block is
//! recovered only if it matches. In arrays with checksums each check comes with the block's old
//! table entry: after a crash the block matches one of the two, and the table, written later, may
//! hold either. Data for a slot without a member is logged itself: its only other place is parity.
//!
//! # Form
//!
//! ```text
//!   zone   | batch 7 | batch 8 | … free … | batch 5 | batch 6 |      a ring, one for each shard
//!
//!   batch  | header | records | checks | syndromes, data … |         from a multiple of 4096 on
//!            64 B     40 or      4 or 12 B  as the records say
//!                     48 B each
//! ```
//!
//! Records name data indices in a mask. Its width is the batch's [`Form`]: arrays with at most 64
//! data slots write the narrow form, larger ones the wide form. Both forms are read.
//!
//! A batch is one write on each member that has a part in it. It names its predecessor on the same
//! member, the oldest batch that still matters (*tail*), and the newest one that was durable
//! everywhere when it was written. So a reader can distinguish a damaged batch from an incomplete
//! one.

use alloc::vec::Vec;
use core::ops::Range;

use super::checksums::ChecksumEntry;
use crate::md::Crc32c;
use crate::md::field::{Fault, ParseError, fields};

fields! { 64;
    MAGIC     "magic"     0  8
    SESSION   "session"   8  8
    SEQUENCE  "sequence"  16 8
    TAIL      "tail"      24 8
    DURABLE   "durable"   32 8
    PREVIOUS  "previous"  40 8
    BYTES     "bytes"     48 4
    RECORDS   "records"   52 4
    ZONE      "zone"      56 4
    CRC       "crc32c"    60 4
}

pub(crate) mod record {
    use crate::md::field::fields;
    fields! { 48;
        STRIPE  "stripe"  0  8
        STRIPES "stripes" 8  4
        START   "start"   12 4
        SECTORS "sectors" 16 4
        FIRST   "first"   20 2
        COUNT   "count"   22 2
        FLAGS   "flags"   24 4
        EPOCH   "epoch"   28 4
        LOGGED  "logged"  32 8
        HIGH    "logged_high" 40 8
    }
    pub(crate) use at::*;
}

/// Batches begin at multiples of this, and are written in multiples of it.
pub const BATCH_ALIGNMENT: u64 = 4096;
/// The bytes of data that one check stands for, cut at multiples of it within a chunk.
pub const CHECK_BYTES: u64 = 4096;

const STRUCTURE: &str = "intent log";
const HEADER_BYTES: usize = 64;
const CHECK_SIZE: usize = 4;
const SECTOR: u64 = 512;

/// The format version of a batch: how many data indices the mask of its records has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// Version 1, magic `Pintents`: records of 40 bytes, data indices 0 to 63.
    #[default]
    Narrow,
    /// Version 2, magic `Pintent2`: records of 48 bytes, data indices 0 to 127.
    Wide,
}

impl Form {
    /// Both.
    pub const ALL: [Form; 2] = [Form::Narrow, Form::Wide];

    /// The form that an array with this many data slots writes.
    ///
    /// # Panics
    /// If no form has this many indices.
    pub const fn of(data_count: usize) -> Form {
        assert!(data_count <= Form::Wide.indices() as usize, "more data slots than a log can name");
        if data_count <= Form::Narrow.indices() as usize { Form::Narrow } else { Form::Wide }
    }

    /// How many data indices a record can name.
    pub const fn indices(self) -> u32 {
        match self {
            Form::Narrow => u64::BITS,
            Form::Wide => u128::BITS,
        }
    }

    const fn magic(self) -> u64 {
        match self {
            Form::Narrow => u64::from_le_bytes(*b"Pintents"),
            Form::Wide => u64::from_le_bytes(*b"Pintent2"),
        }
    }

    /// The form of a batch that begins with these bytes, if one does.
    fn read(header: &[u8]) -> Option<Form> {
        let magic = at::MAGIC.get(header);
        Form::ALL.into_iter().find(|form| form.magic() == magic)
    }

    const fn record_bytes(self) -> usize {
        match self {
            Form::Narrow => record::HIGH.offset,
            Form::Wide => record::HIGH.offset + record::HIGH.size,
        }
    }
}

const _: () = assert!(crate::MAX_SLOTS <= Form::Wide.indices() as usize);

/// The header of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// Of the member, since it was taken into service: [`super::LogShape::session`].
    pub session: u64,
    /// Counts the batches of a zone, from 1.
    pub sequence: u64,
    /// The oldest batch of the zone that may still matter: all rows of older ones are durable.
    pub tail: u64,
    /// This batch and all older ones were on all their members when this one was written.
    pub durable: u64,
    /// The batch before this one on this member; 0 for none.
    pub previous: u64,
    /// The zone.
    pub zone: u32,
}

/// Which syndrome a record carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Syndrome {
    /// XOR, on P's member.
    P,
    /// Σ gⁱ·D in GF(2⁸), on Q's member.
    Q,
}

/// One row that was about to be written: the same range of offsets in all chunks of a stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The stripe; the first one if there are several.
    pub stripe: u64,
    /// How many stripes: more than 1 only for whole stripes that become zeros.
    pub stripes: u32,
    /// First byte of the row, from the start of the chunk: a multiple of 512.
    pub start: u64,
    /// Bytes of the row on one member: a multiple of 512.
    pub len: u64,
    /// The first data index that is written.
    pub first: u16,
    /// How many data indices are written.
    pub count: u16,
    /// The member with this record.
    pub syndrome: Syndrome,
    /// The other parity member has one too, of the same batch: without it the write never began.
    pub paired: bool,
    /// The partial syndrome follows; else it is zero: all data of the row is written.
    pub partial: bool,
    /// A CRC-32C of each [`CHECK_BYTES`] of the new data follows.
    pub checked: bool,
    /// After these checks, for each the two words of the entry that the checksum table has had for
    /// the block so far ([`super::checksums::ChecksumEntry`]).
    pub checksummed: bool,
    /// Data indices, one bit each, whose new data follows.
    pub logged: u128,
    /// The new data is zeros.
    pub zeros: bool,
    /// Number of membership changes since the start. A member whose log began after that many
    /// changes ([`super::LogShape::since`]) was not present to get this record.
    pub epoch: u32,
}

const FLAG_Q: u32 = 1;
const FLAG_PARTIAL: u32 = 2;
const FLAG_CHECKED: u32 = 4;
const FLAG_ZEROS: u32 = 8;
const FLAG_PAIRED: u32 = 16;
const FLAG_CHECKSUMMED: u32 = 32;
const FLAGS: u32 =
    FLAG_Q | FLAG_PARTIAL | FLAG_CHECKED | FLAG_ZEROS | FLAG_PAIRED | FLAG_CHECKSUMMED;

impl Record {
    /// Whole stripes, `first..first + count`, with this much data become zeros.
    pub const fn of_zeros(first: u64, count: u32, chunk_bytes: u64, data_count: u16) -> Record {
        Record {
            stripe: first,
            stripes: count,
            start: 0,
            len: chunk_bytes,
            first: 0,
            count: data_count,
            syndrome: Syndrome::P,
            paired: false,
            partial: false,
            checked: false,
            checksummed: false,
            logged: 0,
            zeros: true,
            epoch: 0,
        }
    }

    /// The ranges of a chunk that have a check each, as offsets from the start of the row.
    pub fn blocks(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let (start, end) = (self.start, self.start + self.len);
        let mut at = start;
        core::iter::from_fn(move || {
            let next = ((at / CHECK_BYTES + 1) * CHECK_BYTES).min(end);
            let block = at - start..next - start;
            (at < end).then(|| at = next)?;
            Some(block)
        })
    }

    /// How many checks follow.
    pub fn checks(&self) -> usize {
        if !self.checked {
            return 0;
        }
        let first = self.start / CHECK_BYTES;
        let blocks = (self.start + self.len).div_ceil(CHECK_BYTES) - first;
        blocks as usize * usize::from(self.count)
    }

    /// How many words follow: checks, and entries of the checksum table.
    pub fn words(&self) -> usize {
        self.checks() * if self.checksummed { 3 } else { 1 }
    }

    /// Bytes of syndrome and data that follow.
    pub fn payload_bytes(&self) -> u64 {
        self.len * (u64::from(self.partial) + u64::from(self.logged.count_ones()))
    }

    fn flags(&self) -> u32 {
        let flag = |is: bool, flag| if is { flag } else { 0 };
        flag(self.syndrome == Syndrome::Q, FLAG_Q)
            | flag(self.partial, FLAG_PARTIAL)
            | flag(self.checked, FLAG_CHECKED)
            | flag(self.zeros, FLAG_ZEROS)
            | flag(self.paired, FLAG_PAIRED)
            | flag(self.checksummed, FLAG_CHECKSUMMED)
    }

    /// The data indices that are written.
    pub fn written(&self) -> Range<usize> {
        usize::from(self.first)..usize::from(self.first) + usize::from(self.count)
    }

    /// The data indices whose new data follows, in order.
    pub fn logged_indices(&self) -> impl Iterator<Item = usize> + use<> {
        let logged = self.logged;
        (0..u128::BITS as usize).filter(move |index| logged >> index & 1 == 1)
    }

    fn put(&self, form: Form, bytes: &mut [u8]) {
        record::STRIPE.put(bytes, self.stripe);
        record::STRIPES.put(bytes, self.stripes.into());
        record::START.put(bytes, self.start / SECTOR);
        record::SECTORS.put(bytes, self.len / SECTOR);
        record::FIRST.put(bytes, self.first.into());
        record::COUNT.put(bytes, self.count.into());
        record::FLAGS.put(bytes, self.flags().into());
        record::EPOCH.put(bytes, self.epoch.into());
        record::LOGGED.put(bytes, self.logged as u64);
        let high = (self.logged >> u64::BITS) as u64;
        match form {
            Form::Narrow => assert!(high == 0, "a narrow record cannot name data index 64"),
            Form::Wide => record::HIGH.put(bytes, high),
        }
    }

    fn get(form: Form, bytes: &[u8]) -> Result<Record, ParseError> {
        let flags = record::FLAGS.get_u32(bytes);
        let has = |flag| flags & flag != 0;
        let high = if form == Form::Wide { record::HIGH.get(bytes) } else { 0 };
        let found = Record {
            stripe: record::STRIPE.get(bytes),
            stripes: record::STRIPES.get_u32(bytes),
            start: record::START.get(bytes) * SECTOR,
            len: record::SECTORS.get(bytes) * SECTOR,
            first: record::FIRST.get(bytes) as u16,
            count: record::COUNT.get(bytes) as u16,
            syndrome: if has(FLAG_Q) { Syndrome::Q } else { Syndrome::P },
            paired: has(FLAG_PAIRED),
            partial: has(FLAG_PARTIAL),
            checked: has(FLAG_CHECKED),
            checksummed: has(FLAG_CHECKSUMMED),
            logged: u128::from(high) << u64::BITS | u128::from(record::LOGGED.get(bytes)),
            zeros: has(FLAG_ZEROS),
            epoch: record::EPOCH.get_u32(bytes),
        };
        let wrong = |field: crate::md::Field, value, why| {
            Err(field.wrong(STRUCTURE, value, Fault::Refused(why)))
        };
        if flags & !FLAGS != 0 {
            return wrong(record::FLAGS, flags.into(), "has unknown bits");
        }
        for field in [record::STRIPES, record::SECTORS, record::COUNT] {
            if field.get(bytes) == 0 {
                return wrong(field, 0, "must not be 0");
            }
        }
        if found.written().end > form.indices() as usize {
            return wrong(
                record::COUNT,
                found.count.into(),
                "names more indices than the form has",
            );
        }
        let mut logged = found.logged_indices();
        if !logged.all(|index| found.written().contains(&index)) {
            return wrong(record::LOGGED, found.logged as u64, "includes unwritten indices");
        }
        if found.checksummed && !found.checked {
            return wrong(record::FLAGS, flags.into(), "has sums and no checks");
        }
        let several = found.stripes > 1;
        if several && (!found.zeros || found.payload_bytes() > 0 || found.checked) {
            return wrong(record::STRIPES, found.stripes.into(), "only zeros span stripes");
        }
        Ok(found)
    }
}

/// Bytes of header, records and checks of a batch, padded to a sector: the payload begins there.
pub const fn head_bytes(form: Form, records: usize, checks: usize) -> usize {
    (words_at(form, records) + checks * CHECK_SIZE).next_multiple_of(SECTOR as usize)
}

/// Where the checks of a batch begin.
const fn words_at(form: Form, records: usize) -> usize {
    HEADER_BYTES + records * form.record_bytes()
}

/// Puts record `index` into the head of a batch.
///
/// # Panics
/// If a reader would refuse the record: the batch would count as damaged after a crash.
pub fn put_record(form: Form, head: &mut [u8], index: usize, record: &Record) {
    let at = words_at(form, index);
    let bytes = &mut head[at..at + form.record_bytes()];
    record.put(form, bytes);
    assert!(Record::get(form, bytes).as_ref() == Ok(record), "not a record: {record:?}");
}

/// Puts check `index`, or another word (counted over all records of the batch), into the head of a
/// batch of this many records.
pub fn put_check(form: Form, head: &mut [u8], records: usize, index: usize, check: u32) {
    let at = words_at(form, records) + index * CHECK_SIZE;
    assert!(at + CHECK_SIZE <= head.len(), "a check beyond the head would be lost");
    head[at..at + CHECK_SIZE].copy_from_slice(&check.to_le_bytes());
}

/// Puts the header into the head of a batch, after all other parts. `payload` is the part after the
/// head.
pub fn seal<'a>(
    form: Form,
    head: &mut [u8],
    header: &BatchHeader,
    records: usize,
    payload: impl Iterator<Item = &'a [u8]> + Clone,
    crc32c: Crc32c,
) {
    let bytes = head.len() + payload.clone().map(<[u8]>::len).sum::<usize>();
    let BatchHeader { sequence, tail, durable, previous, .. } = *header;
    let follows = tail <= sequence && durable < sequence && previous < sequence;
    assert!(follows && header.session != 0, "a reader would refuse the batch: {header:?}");
    assert!(records > 0 || head.len() == head_bytes(form, 0, 0), "checks without a record");
    at::MAGIC.put(head, form.magic());
    at::SESSION.put(head, header.session);
    at::SEQUENCE.put(head, header.sequence);
    at::TAIL.put(head, header.tail);
    at::DURABLE.put(head, header.durable);
    at::PREVIOUS.put(head, header.previous);
    at::BYTES.put(head, bytes as u64);
    at::RECORDS.put(head, records as u64);
    at::ZONE.put(head, header.zone.into());
    at::CRC.put(head, 0);
    let crc = payload.fold(crc32c(0, head), crc32c);
    at::CRC.put(head, crc.into());
}

/// A batch as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Its format version.
    pub form: Form,
    /// Its header.
    pub header: BatchHeader,
    /// Its bytes, without the padding to [`BATCH_ALIGNMENT`].
    pub bytes: u64,
    /// Its records.
    pub entries: Vec<Entry>,
}

/// A record with its data. Ranges are bytes from the start of the batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The record.
    pub record: Record,
    /// Checks of the new data, index by index, block by block; empty where there are none.
    pub checks: Vec<u32>,
    /// For each check, the checksum table's old entry; empty without checksums.
    pub olds: Vec<ChecksumEntry>,
    /// The partial syndrome; empty where it is zero.
    pub syndrome: Range<usize>,
    /// The new data, index by index; empty where none is logged.
    pub data: Range<usize>,
}

impl Batch {
    /// The length of a batch, from its first 4096 bytes alone, if these begin one of this session.
    /// The rest may be damaged: [`Batch::parse`] checks it.
    pub fn bytes_of(start: &[u8], session: u64) -> Option<u64> {
        let is_one = start.len() >= HEADER_BYTES
            && Form::read(start).is_some()
            && at::SESSION.get(start) == session;
        is_one.then(|| at::BYTES.get(start))
    }

    /// Reads a batch from the start of `bytes`, which may go on behind it.
    ///
    /// # Errors
    /// The first field that is wrong; [`Fault::Magic`] if there is no batch here.
    pub fn parse(bytes: &[u8], crc32c: Crc32c) -> Result<Batch, ParseError> {
        let truncated = |needed: u64| {
            let have = bytes.len() as u64;
            Err(at::BYTES.wrong(STRUCTURE, needed, Fault::Truncated { have }))
        };
        if bytes.len() < HEADER_BYTES {
            return truncated(HEADER_BYTES as u64);
        }
        let Some(form) = Form::read(bytes) else {
            return Err(at::MAGIC.wrong(STRUCTURE, at::MAGIC.get(bytes), Fault::Magic));
        };
        let (used, count) = (at::BYTES.get(bytes), at::RECORDS.get(bytes));
        if used > bytes.len() as u64 || used < HEADER_BYTES as u64 {
            return truncated(used);
        }
        let whole = &bytes[..used as usize];
        let stored = at::CRC.get(whole);
        let (before, rest) = whole.split_at(at::CRC.offset);
        let computed = u64::from(crc32c(crc32c(crc32c(0, before), &[0; 4]), &rest[4..]));
        if stored != computed {
            return Err(at::CRC.wrong(STRUCTURE, stored, Fault::Checksum { computed }));
        }
        if HEADER_BYTES as u64 + count * form.record_bytes() as u64 > used {
            return Err(at::RECORDS.wrong(STRUCTURE, count, Fault::Above { most: used }));
        }
        let header = BatchHeader {
            session: at::SESSION.get(whole),
            sequence: at::SEQUENCE.get(whole),
            tail: at::TAIL.get(whole),
            durable: at::DURABLE.get(whole),
            previous: at::PREVIOUS.get(whole),
            zone: at::ZONE.get_u32(whole),
        };
        if header.session == 0 {
            let fault = Fault::Refused("no log has session 0");
            return Err(at::SESSION.wrong(STRUCTURE, 0, fault));
        }
        let BatchHeader { sequence, tail, durable, previous, .. } = header;
        if tail > sequence || durable >= sequence || previous >= sequence {
            let fault = Fault::Refused("does not follow the batches that the header names");
            return Err(at::SEQUENCE.wrong(STRUCTURE, sequence, fault));
        }
        let entries = entries(form, whole, count as usize)?;
        Ok(Batch { form, header, bytes: used, entries })
    }
}

/// The records of a batch, each with its checks and the places of its payload.
fn entries(form: Form, whole: &[u8], count: usize) -> Result<Vec<Entry>, ParseError> {
    let (rows, table) = whole[HEADER_BYTES..].split_at(count * form.record_bytes());
    let rows = rows.chunks(form.record_bytes());
    let records = rows.map(|row| Record::get(form, row)).collect::<Result<Vec<Record>, _>>()?;
    let words =
        records.iter().map(Record::words).try_fold(0_usize, |checksum, n| checksum.checked_add(n));
    let payload = records.iter().map(Record::payload_bytes).try_fold(0_u64, u64::checked_add);
    let used = whole.len() as u64;
    let conflict = Fault::Conflict("not what the records say");
    let wrong = || at::BYTES.wrong(STRUCTURE, used, conflict);
    let words = words.filter(|&words| words <= whole.len()).ok_or_else(wrong)?;
    let mut at = head_bytes(form, count, words);
    if payload.and_then(|payload| payload.checked_add(at as u64)) != Some(used) {
        return Err(wrong());
    }
    let mut table = table.chunks_exact(CHECK_SIZE);
    let entry = |record: Record| {
        let words = table.by_ref().take(record.words());
        let words = words.map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let mut checks: Vec<u32> = words.collect();
        let olds = checks.split_off(record.checks());
        let olds =
            olds.chunks_exact(2).map(|old| ChecksumEntry { checksum: old[0], generation: old[1] });
        let olds = olds.collect();
        let mut next = |bytes: u64| {
            let range = at..at + bytes as usize;
            at = range.end;
            range
        };
        let syndrome = next(if record.partial { record.len } else { 0 });
        let data = next(record.len * u64::from(record.logged.count_ones()));
        Entry { record, checks, olds, syndrome, data }
    };
    Ok(records.into_iter().map(entry).collect())
}

#[cfg(test)]
mod tests;
