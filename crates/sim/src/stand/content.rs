//! The content of an array, sector by sector, by write.

use crate::medium::SECTOR;
use crate::pattern::Value;

/// The write that a sector holds; 0 is the initial content.
pub type Origin = u8;

/// A sector whose read failed.
pub const ERROR: Origin = 254;
/// A sector with content that nobody wrote there.
pub const ALIEN: Origin = 255;
/// Writes are numbered up to this.
pub const LAST: Origin = 7;

/// The bytes that each write puts into each sector of an array.
pub struct Patterns(Vec<Vec<u8>>);

impl Patterns {
    /// For an array of `capacity` bytes.
    pub fn new(capacity: u64) -> Patterns {
        let of = |origin: Origin| {
            let mut bytes = vec![0; capacity as usize];
            for (sector, bytes) in bytes.chunks_exact_mut(SECTOR as usize).enumerate() {
                Value::of(u64::from(origin) + 1, sector as u64).fill(bytes);
            }
            bytes
        };
        Patterns((0..=LAST).map(of).collect())
    }

    /// The content of a write.
    ///
    /// # Panics
    /// If there is no such write, or the range is not within the array.
    pub fn bytes(&self, origin: Origin, offset: u64, len: u64) -> &[u8] {
        &self.0[usize::from(origin)][offset as usize..(offset + len) as usize]
    }

    /// The bytes of an array whose sectors hold these writes.
    pub fn whole(&self, content: &[Origin]) -> Vec<u8> {
        let mut whole = Vec::with_capacity(content.len() * SECTOR as usize);
        for (&origin, at) in content.iter().zip((0..).step_by(SECTOR as usize)) {
            whole.extend_from_slice(self.bytes(origin, at, SECTOR));
        }
        whole
    }

    /// The writes in these bytes, read at an offset.
    pub fn recognize(&self, offset: u64, bytes: &[u8], origins: &mut Vec<Origin>) {
        for (sector, at) in bytes.chunks_exact(SECTOR as usize).zip((offset..).step_by(512)) {
            // The write's number is in the sector: only one pattern need be compared.
            let likely = sector[4].checked_sub(1).filter(|origin| *origin <= LAST);
            let found = likely.filter(|origin| self.bytes(*origin, at, SECTOR) == sector);
            origins.push(found.unwrap_or(ALIEN));
        }
    }
}

/// The content of a sector, in words.
pub fn name(origin: Origin) -> String {
    match origin {
        0 => "what was there at first".into(),
        ERROR => "an error".into(),
        ALIEN => "content never written there".into(),
        write => format!("write {write}"),
    }
}
