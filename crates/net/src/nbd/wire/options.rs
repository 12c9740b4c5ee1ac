//! Payloads of options and their answers.

use super::{EXPORT_NAME_ZEROES, Malformed, Reader, info};

/// Block sizes of an export, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSizes {
    /// Smallest unit: a power of two up to 64 KiB.
    pub minimum: u32,
    /// Best unit: a power of two, at least 512 and `minimum`.
    pub preferred: u32,
    /// Most bytes in one payload, at least `preferred`.
    pub maximum: u32,
}

/// The data of an INFO reply: size and flags.
pub fn info_export(bytes: u64, flags: u16) -> [u8; 12] {
    let mut data = [0; 12];
    data[..2].copy_from_slice(&info::EXPORT.to_be_bytes());
    data[2..10].copy_from_slice(&bytes.to_be_bytes());
    data[10..].copy_from_slice(&flags.to_be_bytes());
    data
}

/// The data of an INFO reply: block sizes.
pub fn info_block_size(sizes: BlockSizes) -> [u8; 14] {
    let mut data = [0; 14];
    data[..2].copy_from_slice(&info::BLOCK_SIZE.to_be_bytes());
    data[2..6].copy_from_slice(&sizes.minimum.to_be_bytes());
    data[6..10].copy_from_slice(&sizes.preferred.to_be_bytes());
    data[10..].copy_from_slice(&sizes.maximum.to_be_bytes());
    data
}

/// The data of an INFO reply: name or description.
pub fn info_text(kind: u16, text: &str) -> Vec<u8> {
    [&kind.to_be_bytes()[..], text.as_bytes()].concat()
}

/// The data of a SERVER reply.
pub fn server_entry(name: &str, description: &str) -> Vec<u8> {
    let mut data = counted(name);
    data.extend_from_slice(description.as_bytes());
    data
}

/// A string behind its 32-bit length.
fn counted(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

/// The answer to EXPORT_NAME; the zero bytes are for clients that did not decline them.
pub fn export_name_answer(bytes: u64, flags: u16, zeroes: bool) -> Vec<u8> {
    let mut data = [&bytes.to_be_bytes()[..], &flags.to_be_bytes()].concat();
    data.resize(data.len() + if zeroes { EXPORT_NAME_ZEROES } else { 0 }, 0);
    data
}

/// The data of a META_CONTEXT reply.
pub fn meta_context(id: u32, name: &str) -> Vec<u8> {
    [&id.to_be_bytes()[..], name.as_bytes()].concat()
}

/// The data of INFO and GO.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice<'a> {
    /// The export's name; empty for the default one.
    pub name: &'a str,
    /// Which information the client asks for.
    pub requests: Vec<u16>,
}

impl<'a> Choice<'a> {
    /// Takes the data of INFO or GO apart.
    ///
    /// # Errors
    /// Whatever is wrong with the lengths or the name.
    pub fn decode(data: &'a [u8]) -> Result<Choice<'a>, Malformed> {
        let mut reader = Reader::new(data);
        let name = reader.counted_string()?;
        let count = reader.u16()?;
        let requests = (0..count).map(|_| reader.u16()).collect::<Result<Vec<_>, _>>()?;
        reader.end()?;
        Ok(Choice { name, requests })
    }

    /// The data, as a client sends it.
    pub fn encode(&self) -> Vec<u8> {
        let mut data = counted(self.name);
        data.extend_from_slice(&(self.requests.len() as u16).to_be_bytes());
        self.requests.iter().for_each(|request| data.extend_from_slice(&request.to_be_bytes()));
        data
    }
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queries<'a> {
    /// The export's name.
    pub name: &'a str,
    /// Contexts, or patterns for them.
    pub queries: Vec<&'a str>,
}

impl<'a> Queries<'a> {
    /// Takes the data apart; at most `limit` queries.
    ///
    /// # Errors
    /// `Long` if there are more queries, and whatever is wrong with the lengths or strings.
    pub fn decode(data: &'a [u8], limit: usize) -> Result<Queries<'a>, Malformed> {
        let mut reader = Reader::new(data);
        let name = reader.counted_string()?;
        let count = reader.u32()? as usize;
        if count > limit {
            return Err(Malformed::Long);
        }
        let queries = (0..count).map(|_| reader.counted_string()).collect::<Result<Vec<_>, _>>()?;
        reader.end()?;
        Ok(Queries { name, queries })
    }

    /// The data, as a client sends it.
    pub fn encode(&self) -> Vec<u8> {
        let mut data = counted(self.name);
        data.extend_from_slice(&(self.queries.len() as u32).to_be_bytes());
        self.queries.iter().for_each(|query| data.extend_from_slice(&counted(query)));
        data
    }
}
