//! Bytes of row images as numbers. Of more than eight bytes, the highest are lost.

/// A little-endian integer whose highest bit is its sign.
pub(crate) fn sign_extended(bytes: &[u8]) -> i64 {
    let unused_bits = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    ((little_endian(bytes) << unused_bits) as i64) >> unused_bits
}

/// A little-endian unsigned integer.
pub(crate) fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// A big-endian unsigned integer.
pub(crate) fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}
