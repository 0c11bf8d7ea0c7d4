//! The optional CRC32 in the last four bytes of every event.

use crate::header::HEADER_LENGTH;
use crate::{Error, Result};

/// Bytes that a CRC32 takes at the end of an event.
pub const CHECKSUM_LENGTH: usize = 4;

/// How the events of a file are protected; announced by its format description.
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

    /// Verifies `event` (header to checksum, whole) and returns its body: what is between header and checksum.
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
    let computed = crc32fast::hash(covered);
    if stored == computed { Ok(()) } else { Err(Error::Checksum { stored, computed }) }
}

/// Appends the CRC32 of `event` to it.
pub fn append_crc32(event: &mut Vec<u8>) {
    let computed = crc32fast::hash(event);
    event.extend_from_slice(&computed.to_le_bytes());
}
