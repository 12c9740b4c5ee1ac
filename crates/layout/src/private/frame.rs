//! The common frame of our headers: 4 KiB that begin with magic, version and checksum, with zeros
//! in all space for later versions.
//!
//! Never interprets the fields between: that is the business of each header.

use super::HEADER_BYTES;
use crate::md::Crc32c;
use crate::md::field::{Fault, Field, ParseError};

/// The frame of one kind of header.
pub(super) struct Frame {
    /// Its name for people.
    pub(super) structure: &'static str,
    pub(super) magic: u64,
    pub(super) version: u32,
    /// Its table: `magic`, `version` and `crc32c` come first; whatever is called `pad…` is zero.
    pub(super) fields: &'static [Field],
}

impl Frame {
    /// The header at the start of `bytes`, if its frame is right.
    ///
    /// # Errors
    /// The first field that is wrong; [`Fault::Magic`] if there is no such header.
    pub(super) fn open<'a>(&self, bytes: &'a [u8], crc32c: Crc32c) -> Result<&'a [u8], ParseError> {
        let [magic, version, crc, ..] = self.fields else { unreachable!("a frame's table") };
        let Some(bytes) = bytes.get(..HEADER_BYTES as usize) else {
            let have = bytes.len() as u64;
            return Err(self.rest().wrong(self.structure, HEADER_BYTES, Fault::Truncated { have }));
        };
        let found = magic.get(bytes);
        if found != self.magic {
            return Err(magic.wrong(self.structure, found, Fault::Magic));
        }
        let (found, expected) = (version.get(bytes), u64::from(self.version));
        if found != expected {
            return Err(version.wrong(self.structure, found, Fault::Unequal { expected }));
        }
        let (stored, computed) = (crc.get(bytes), checksum(*crc, bytes, crc32c));
        if stored != computed {
            return Err(crc.wrong(self.structure, stored, Fault::Checksum { computed }));
        }
        let pads = self.fields.iter().filter(|field| field.name.starts_with("pad")).copied();
        for pad in pads.chain([self.rest()]) {
            let mut found = pad.bytes(bytes).iter().enumerate();
            if let Some((index, &byte)) = found.find(|&(_, &byte)| byte != 0) {
                let field = Field { offset: pad.offset + index, ..pad };
                return Err(field.wrong(self.structure, u64::from(byte), Fault::Reserved));
            }
        }
        Ok(bytes)
    }

    /// Adds the frame to a header whose fields are written.
    pub(super) fn close(&self, bytes: &mut [u8], crc32c: Crc32c) {
        let [magic, version, ..] = self.fields else { unreachable!("a frame's table") };
        magic.put(bytes, self.magic);
        version.put(bytes, self.version.into());
        self.seal(bytes, crc32c);
    }

    /// Writes the checksum alone.
    pub(super) fn seal(&self, bytes: &mut [u8], crc32c: Crc32c) {
        let [_, _, crc, ..] = self.fields else { unreachable!("a frame's table") };
        let checksum = checksum(*crc, bytes, crc32c);
        crc.put(bytes, checksum);
    }

    /// The bytes after the table.
    fn rest(&self) -> Field {
        let offset = self.fields.iter().map(|field| field.offset + field.size).max().unwrap_or(0);
        Field { name: "rest", offset, size: HEADER_BYTES as usize - offset }
    }
}

/// CRC-32C of the whole header, its own field taken as zero.
fn checksum(field: Field, bytes: &[u8], crc32c: Crc32c) -> u64 {
    let (before, rest) = bytes.split_at(field.offset);
    let zero = [0; 4];
    crc32c(crc32c(crc32c(0, before), &zero), &rest[zero.len()..]).into()
}
