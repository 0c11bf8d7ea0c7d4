//! The optional CRC32 in the last four bytes of every event.

use crate::header::{EventType, FLAG_IN_USE, HEADER_LENGTH};
use crate::{Error, Result};

/// Bytes that a CRC32 takes at the end of an event.
pub const CHECKSUM_LENGTH: usize = 4;

/// The checksum algorithm of a file's events; its format description announces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChecksumAlgorithm {
    /// No checksum.
    #[default]
    None,
    /// CRC32 (IEEE), little endian, over the whole event before it.
    Crc32,
}

impl ChecksumAlgorithm {
    /// Bytes at the end of each event that are not its body.
    pub fn trailer_length(self) -> usize {
        match self {
            ChecksumAlgorithm::None => 0,
            ChecksumAlgorithm::Crc32 => CHECKSUM_LENGTH,
        }
    }

    /// Verifies `event` (header to checksum, whole) and returns its body: the bytes between header and checksum.
    ///
    /// # Errors
    /// [`Error::Checksum`] on a mismatch, [`Error::Truncated`] if there is no room for header and checksum.
    pub fn verified_body(self, event: &[u8]) -> Result<&[u8]> {
        let body = self.body(event)?;
        if self == ChecksumAlgorithm::Crc32 {
            verify_crc32(event)?;
        }
        Ok(body)
    }

    /// The body of `event` without verifying it, for bytes that were verified before.
    ///
    /// # Errors
    /// [`Error::Truncated`] if there is no room for header and checksum.
    pub fn body(self, event: &[u8]) -> Result<&[u8]> {
        let needed = HEADER_LENGTH + self.trailer_length();
        if event.len() < needed {
            return Err(Error::Truncated { what: "event", needed, available: event.len() });
        }
        Ok(&event[HEADER_LENGTH..event.len() - self.trailer_length()])
    }
}

/// Checks the CRC32 in the last four bytes of `event`.
///
/// # Errors
/// [`Error::Checksum`] on a mismatch, [`Error::Truncated`] with fewer than four bytes.
pub fn verify_crc32(event: &[u8]) -> Result<()> {
    let Some((covered, stored)) = event.split_last_chunk::<CHECKSUM_LENGTH>() else {
        return Err(Error::Truncated { what: "event", needed: CHECKSUM_LENGTH, available: event.len() });
    };
    let stored = u32::from_le_bytes(*stored);
    let computed =
        if is_in_use_format_description(covered) { hash_without_in_use(covered) } else { crc32fast::hash(covered) };
    if stored == computed { Ok(()) } else { Err(Error::Checksum { stored, computed }) }
}

const TYPE_OFFSET: usize = 4;
const FLAGS_OFFSET: usize = 17;

/// A server sets "in use" in the format description of the file that it writes, and clears it when it closes the file.
/// It does not change the checksum either time: that is always the checksum of the event without the flag.
fn is_in_use_format_description(covered: &[u8]) -> bool {
    covered.len() >= HEADER_LENGTH
        && covered[TYPE_OFFSET] == EventType::FORMAT_DESCRIPTION.0
        && covered[FLAGS_OFFSET] & FLAG_IN_USE as u8 != 0
}

fn hash_without_in_use(covered: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&covered[..FLAGS_OFFSET]);
    hasher.update(&[covered[FLAGS_OFFSET] & !(FLAG_IN_USE as u8)]);
    hasher.update(&covered[FLAGS_OFFSET + 1..]);
    hasher.finalize()
}

/// Appends the CRC32 of `event` to it.
pub fn append_crc32(event: &mut Vec<u8>) {
    let computed = crc32fast::hash(event);
    event.extend_from_slice(&computed.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FormatDescription;

    fn format_description() -> Vec<u8> {
        let format = FormatDescription {
            server_version: "10.11.19-MariaDB-log".into(),
            created_seconds: 1,
            post_header_lengths: vec![0; 171],
            checksum: ChecksumAlgorithm::Crc32,
        };
        format.encode(1, ChecksumAlgorithm::Crc32)
    }

    #[test]
    fn format_description_of_a_file_in_use_verifies() {
        let mut event = format_description();
        verify_crc32(&event).unwrap();
        event[FLAGS_OFFSET] |= FLAG_IN_USE as u8;
        verify_crc32(&event).unwrap();
        assert!(FormatDescription::parse(&event).is_ok());
    }

    #[test]
    fn flipped_bit_is_a_checksum_mismatch() {
        let event = format_description();
        for bit in 0..event.len() * 8 {
            if bit == FLAGS_OFFSET * 8 {
                continue;
            }
            let mut flipped = event.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(verify_crc32(&flipped), Err(Error::Checksum { .. })), "bit {bit}");
        }
    }
}
