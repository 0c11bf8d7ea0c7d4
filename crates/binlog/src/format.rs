//! The format description event: version, server, header lengths and checksum of the events that follow.

use crate::checksum::{CHECKSUM_LENGTH, ChecksumAlgorithm, verify_crc32};
use crate::cursor::Cursor;
use crate::header::{EventHeader, EventType, HEADER_LENGTH};
use crate::{Error, Result};

const SERVER_VERSION_LENGTH: usize = 50;
const WHAT: &str = "format description event";

/// Bytes of the body before the list of event types: versions, time, header length.
const FIXED_LENGTH: usize = 2 + SERVER_VERSION_LENGTH + 4 + 1;

/// The layout of the events after a format description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatDescription {
    /// Version string of the server that wrote the file, such as `10.11.19-MariaDB-log`.
    pub server_version: String,
    /// The time when the server started, in seconds since 1970, if this is its first file since then; else 0.
    pub created_seconds: u32,
    /// Length of the type-specific header of each event type, the first entry being type 1.
    pub post_header_lengths: Vec<u8>,
    /// The checksum algorithm of the events after this one.
    pub checksum: ChecksumAlgorithm,
}

impl FormatDescription {
    /// Parses and verifies a whole event, header to checksum.
    ///
    /// Since MySQL 5.6 and MariaDB 5.3 the event ends with the algorithm's byte and always has room for a checksum.
    ///
    /// # Errors
    /// Any error of this crate; binlog versions other than 4 and servers that know no checksums are
    /// [`Error::Unsupported`].
    pub fn parse(event: &[u8]) -> Result<FormatDescription> {
        let header = EventHeader::parse(event)?;
        if header.event_type != EventType::FORMAT_DESCRIPTION {
            return Err(Error::malformed(WHAT, format!("its type is {}", header.event_type)));
        }
        if header.event_length as usize != event.len() {
            return Err(Error::malformed(WHAT, "its length field does not match its length"));
        }
        let mut cursor = Cursor::new(&event[HEADER_LENGTH..], WHAT);
        let binlog_version = cursor.u16()?;
        if binlog_version != 4 {
            return Err(Error::unsupported("binlog version", binlog_version.to_string()));
        }
        let version = cursor.take(SERVER_VERSION_LENGTH)?;
        let version_end = version.iter().position(|&b| b == 0).unwrap_or(version.len());
        let server_version = String::from_utf8_lossy(&version[..version_end]).into_owned();
        if !knows_checksums(&server_version) {
            return Err(Error::unsupported("server version without event checksums", server_version));
        }
        let created_seconds = cursor.u32()?;
        let header_length = cursor.u8()?;
        if usize::from(header_length) != HEADER_LENGTH {
            return Err(Error::unsupported("event header length", header_length.to_string()));
        }
        let tail = cursor.rest();
        let Some(types) = tail.len().checked_sub(1 + CHECKSUM_LENGTH) else {
            return Err(Error::Truncated { what: WHAT, needed: 1 + CHECKSUM_LENGTH, available: tail.len() });
        };
        let checksum = match tail[types] {
            0 => ChecksumAlgorithm::None,
            1 => ChecksumAlgorithm::Crc32,
            other => return Err(Error::unsupported("checksum algorithm", other.to_string())),
        };
        if let Err(mismatch) = verify_crc32(event) {
            // The event always has a checksum. But a source that announces none zeroes these fields for a replica that
            // connects in the middle of a file, and does not update the checksum. A flipped bit in the announcement
            // must not pass for that, so the event's length must match its entry in the list of types.
            let is_patched = header.next_position == 0 || created_seconds == 0;
            let own_entry = tail[..types].get(usize::from(EventType::FORMAT_DESCRIPTION.0) - 1);
            let is_complete = own_entry.is_some_and(|&length| usize::from(length) == FIXED_LENGTH + types);
            if checksum == ChecksumAlgorithm::Crc32 || !is_patched || !is_complete || verifies_as_crc32(event) {
                return Err(mismatch);
            }
        }
        Ok(FormatDescription { server_version, created_seconds, post_header_lengths: tail[..types].to_vec(), checksum })
    }

    /// True if a MariaDB server wrote the file.
    pub fn is_mariadb(&self) -> bool {
        self.server_version.contains("MariaDB")
    }

    /// Length of the type-specific header of `event_type`, in bytes; `None` if the writer did not know the type.
    pub fn post_header_length(&self, event_type: EventType) -> Option<usize> {
        let index = usize::from(event_type.0).checked_sub(1)?;
        self.post_header_lengths.get(index).map(|&length| usize::from(length))
    }

    /// Encodes a whole event that announces `checksum` for the events after it, as a replay session needs at its start.
    pub fn encode(&self, server_id: u32, checksum: ChecksumAlgorithm) -> Vec<u8> {
        let length =
            HEADER_LENGTH + 2 + SERVER_VERSION_LENGTH + 4 + 1 + self.post_header_lengths.len() + 1 + CHECKSUM_LENGTH;
        let header = EventHeader {
            timestamp_seconds: 0,
            event_type: EventType::FORMAT_DESCRIPTION,
            server_id,
            event_length: length as u32,
            next_position: 0,
            flags: 0,
        };
        let mut event = Vec::with_capacity(length);
        event.extend_from_slice(&header.encode());
        event.extend_from_slice(&4u16.to_le_bytes());
        let mut version = [0; SERVER_VERSION_LENGTH];
        let used = self.server_version.len().min(SERVER_VERSION_LENGTH - 1);
        version[..used].copy_from_slice(&self.server_version.as_bytes()[..used]);
        event.extend_from_slice(&version);
        event.extend_from_slice(&self.created_seconds.to_le_bytes());
        event.push(HEADER_LENGTH as u8);
        event.extend_from_slice(&self.post_header_lengths);
        event.push(match checksum {
            ChecksumAlgorithm::None => 0,
            ChecksumAlgorithm::Crc32 => 1,
        });
        crate::checksum::append_crc32(&mut event);
        event
    }
}

/// True for servers that end this event with the checksum algorithm: MySQL since 5.6, MariaDB since 5.3. Older ones
/// have other bytes there.
fn knows_checksums(server_version: &str) -> bool {
    let mut numbers = server_version.split(|character: char| !character.is_ascii_digit());
    let mut number = || numbers.next().and_then(|text| text.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (number(), number()) else { return false };
    let minor_min = if server_version.contains("MariaDB") { 3 } else { 6 };
    major > 5 || (major == 5 && minor >= minor_min)
}

/// True if the checksum of `event` is right once its algorithm says CRC32.
fn verifies_as_crc32(event: &[u8]) -> bool {
    let mut event = event.to_vec();
    let algorithm = event.len() - CHECKSUM_LENGTH - 1;
    event[algorithm] = 1;
    verify_crc32(&event).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(server_version: &str) -> FormatDescription {
        FormatDescription {
            server_version: server_version.to_owned(),
            created_seconds: 0,
            post_header_lengths: vec![8; 171],
            checksum: ChecksumAlgorithm::Crc32,
        }
    }

    #[test]
    fn encoded_events_parse() {
        let plain = description("10.11.19-MariaDB-log");
        let event = plain.encode(7, ChecksumAlgorithm::Crc32);
        assert_eq!(FormatDescription::parse(&event).unwrap(), plain);
    }

    #[test]
    fn format_description_of_server_without_checksums_is_refused() {
        for version in ["5.5.62-log", "5.2.14-MariaDB", "4.1.2", "", "mysql"] {
            let event = description(version).encode(7, ChecksumAlgorithm::Crc32);
            assert!(FormatDescription::parse(&event).is_err(), "{version}");
        }
        for version in ["5.6.10-log", "5.5.68-MariaDB", "8.0.40", "9.7.0", "11.8.2-MariaDB"] {
            let event = description(version).encode(7, ChecksumAlgorithm::Crc32);
            assert!(FormatDescription::parse(&event).is_ok(), "{version}");
        }
    }

    fn event(checksum: ChecksumAlgorithm, created_seconds: u32) -> Vec<u8> {
        let mut post_header_lengths = vec![0; 171];
        post_header_lengths[14] = 57 + 171;
        let server_version = "10.11.19-MariaDB-log".into();
        FormatDescription { server_version, created_seconds, post_header_lengths, checksum }.encode(1, checksum)
    }

    #[test]
    fn absent_checksum_is_believed_only_without_another_reason() {
        let none = event(ChecksumAlgorithm::None, 7);
        assert_eq!(FormatDescription::parse(&none).unwrap().checksum, ChecksumAlgorithm::None);
        // A source zeroes the time and does not update the checksum, which it does not announce.
        let mut patched = none.clone();
        patched[71..75].fill(0);
        assert_eq!(FormatDescription::parse(&patched).unwrap().checksum, ChecksumAlgorithm::None);
        let mut flipped = event(ChecksumAlgorithm::Crc32, 0);
        let algorithm = flipped.len() - 5;
        flipped[algorithm] = 0;
        assert!(FormatDescription::parse(&flipped).is_err());
    }

    #[test]
    fn format_description_length_unlike_its_list_of_types_is_refused() {
        let event = event(ChecksumAlgorithm::Crc32, 0);
        for length in (19..event.len()).chain(event.len() + 1..event.len() + 600) {
            let mut other = event.clone();
            other.resize(length, 0);
            other[9..13].copy_from_slice(&(length as u32).to_le_bytes());
            assert!(FormatDescription::parse(&other).is_err(), "{length}");
        }
    }
}
