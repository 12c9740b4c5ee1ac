//! Bytes that no other place has.

/// Their number.
pub(crate) fn bytes(count: u64) -> Vec<u8> {
    let word = |index: u64| (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..count.div_ceil(8)).flat_map(word).take(count as usize).collect()
}

/// This many blocks of 4 KiB, each its own number from 1, repeated: small when compressed.
pub(crate) fn numbers(blocks: usize) -> Vec<u8> {
    (1..=blocks as u64).flat_map(|number| number.to_le_bytes().repeat(512)).collect()
}
