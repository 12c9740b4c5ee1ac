//! The expected content of an array, sector by sector.
//!
//! Every write has a number, its *tag*, and fills each sector with bytes unique to this tag and
//! sector. So a sector reveals its write, and an unwritten one is recognized.

use crate::trail::Trail;

pub(super) const SECTOR: u64 = 512;

/// The possible content of a sector.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Sector {
    /// The last write that was acknowledged; 0 for zeros.
    last: u32,
    /// Writes since then that failed or were cut off: theirs may have landed.
    also: Vec<u32>,
    /// Unknown.
    unknown: bool,
}

impl Sector {
    fn of(last: u32) -> Sector {
        Sector { last, ..Sector::default() }
    }

    fn may_hold(&self, tag: u32) -> bool {
        self.unknown || tag == self.last || self.also.contains(&tag)
    }
}

/// The possible content of an array.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Model {
    sectors: Vec<Sector>,
}

/// The result of a read: a tag for each sector, or none if it is unreadable.
#[derive(Clone, Default)]
pub(super) struct Reading {
    pub(super) tags: Vec<Option<u32>>,
}

impl Model {
    /// Zeros.
    pub(super) fn new(bytes: u64) -> Model {
        Model { sectors: vec![Sector::default(); (bytes / SECTOR) as usize] }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.sectors.len() as u64 * SECTOR
    }

    fn range(&mut self, offset: u64, len: u64) -> impl Iterator<Item = &mut Sector> {
        let (first, count) = ((offset / SECTOR) as usize, (len / SECTOR) as usize);
        self.sectors.iter_mut().skip(first).take(count)
    }

    /// A write was acknowledged.
    pub(super) fn written(&mut self, offset: u64, len: u64, tag: u32) {
        self.range(offset, len).for_each(|sector| *sector = Sector::of(tag));
    }

    /// A write failed, or was cut off.
    pub(super) fn attempted(&mut self, offset: u64, len: u64, tag: u32) {
        self.range(offset, len).for_each(|sector| sector.also.push(tag));
    }

    /// The first wrong sector: its offset, its allowed and its actual content.
    pub(super) fn contradiction(&self, reading: &Reading) -> Option<String> {
        let pairs = self.sectors.iter().zip(&reading.tags).enumerate();
        let mut wrong = pairs.filter_map(|(index, (sector, tag))| {
            let tag = (*tag)?;
            (!sector.may_hold(tag)).then(|| {
                format!("byte {}: {sector:?} was expected, {tag} is there", index as u64 * SECTOR)
            })
        });
        wrong.next()
    }

    /// A value read once stays.
    pub(super) fn fix_read_values(&mut self, reading: &Reading) {
        for (sector, tag) in self.sectors.iter_mut().zip(&reading.tags) {
            if let Some(tag) = tag {
                *sector = Sector::of(*tag);
            }
        }
    }

    /// Anything.
    pub(super) fn unknown(bytes: u64) -> Model {
        let sector = Sector { unknown: true, ..Sector::default() };
        Model { sectors: vec![sector; (bytes / SECTOR) as usize] }
    }

    /// Notes how much can be read.
    pub(super) fn note(reading: &Reading, trail: &mut Trail) {
        let missing = reading.tags.iter().filter(|tag| tag.is_none()).count();
        trail.size(missing as u64);
    }
}

/// The tag of unwritten content.
pub(super) const INVENTED: u32 = u32::MAX;

/// The words of a sector after its tag.
fn words(tag: u32, sector: u64) -> impl Iterator<Item = u64> {
    let seed = u64::from(tag) << 40 ^ sector;
    let mixed = (seed ^ seed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let first = if tag == 0 { 0 } else { mixed ^ mixed >> 32 | 1 };
    let step = if tag == 0 { 0 } else { 0x94d0_49bb_1331_11eb };
    (0..SECTOR / 8 - 1).map(move |place| first.wrapping_add(place.wrapping_mul(step)))
}

/// The bytes that a write with this tag puts there.
pub(super) fn pattern(tag: u32, offset: u64, len: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len as usize);
    for sector in offset / SECTOR..(offset + len) / SECTOR {
        bytes.extend(u64::from(tag).to_le_bytes());
        words(tag, sector).for_each(|word| bytes.extend(word.to_le_bytes()));
    }
    bytes
}

/// The write of these bytes.
pub(super) fn tag_of(offset: u64, bytes: &[u8]) -> u32 {
    let (head, rest) = bytes.split_at(8);
    let head: [u8; 8] = head.try_into().expect("eight of them");
    let tag = u64::from_le_bytes(head) as u32;
    let mut pairs = words(tag, offset / SECTOR).zip(rest.chunks_exact(8));
    let right = pairs.all(|(word, chunk)| chunk == word.to_le_bytes());
    if right && head[4..] == [0; 4] { tag } else { INVENTED }
}
