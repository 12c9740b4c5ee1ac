//! Bytes that no other place has.

/// So many of them.
pub(crate) fn bytes(count: u64) -> Vec<u8> {
    let word = |index: u64| (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..count.div_ceil(8)).flat_map(word).take(count as usize).collect()
}
