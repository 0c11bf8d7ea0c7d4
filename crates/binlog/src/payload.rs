//! MySQL's `TRANSACTION_PAYLOAD_EVENT` (40): all events of a transaction in one, perhaps compressed
//! (`binlog_transaction_compression`).
//!
//! Fields (type, length, value; each number length-encoded) up to a zero, then the events, without checksums. Source:
//! MySQL server documentation, "Transaction_payload_event".

use std::io::Read;

use crate::cursor::Cursor;
use crate::header::{EventHeader, HEADER_LENGTH};
use crate::{Error, Result};

const WHAT: &str = "Transaction_payload event";

/// No server writes larger events.
const EVENT_LENGTH_MAX: usize = 1 << 30;

/// Bytes of the buffer that are kept from event to event: the memory of a single large event is freed.
const ROOM_KEPT_MAX: usize = 1 << 20;

const FIELD_END: u64 = 0;
const FIELD_SIZE: u64 = 1;
const FIELD_COMPRESSION: u64 = 2;
const FIELD_PLAIN_SIZE: u64 = 3;

const COMPRESSION_ZSTD: u64 = 0;
const COMPRESSION_NONE: u64 = 255;

/// The events in a payload, one after the other; never more than one of them is in memory.
pub struct PayloadEvents<'a> {
    plain: Box<dyn Read + 'a>,
    /// Bytes that are still to come, by the size that the event announces.
    left: u64,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for PayloadEvents<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PayloadEvents").field("left", &self.left).finish_non_exhaustive()
    }
}

impl<'a> PayloadEvents<'a> {
    /// Reads the fields of an event's body.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Malformed`], or [`Error::Unsupported`] for an unknown compression.
    pub fn open(body: &'a [u8]) -> Result<PayloadEvents<'a>> {
        let mut cursor = Cursor::new(body, WHAT);
        let (mut size, mut compression, mut plain_size) = (None, None, None);
        loop {
            let field = cursor.length_encoded()?;
            if field == FIELD_END {
                break;
            }
            let length = cursor.length_encoded_count()?;
            let mut value = Cursor::new(cursor.take(length)?, WHAT);
            match field {
                FIELD_SIZE => size = Some(value.length_encoded()?),
                FIELD_COMPRESSION => compression = Some(value.length_encoded()?),
                FIELD_PLAIN_SIZE => plain_size = Some(value.length_encoded()?),
                _ => {}
            }
        }
        let payload = cursor.rest();
        if size != Some(payload.len() as u64) {
            return Err(Error::malformed(
                WHAT,
                format!("{} bytes of events, not the announced {size:?}", payload.len()),
            ));
        }
        let (plain, left): (Box<dyn Read + 'a>, u64) = match compression {
            Some(COMPRESSION_ZSTD) => {
                let decoder = zstd::stream::read::Decoder::with_buffer(payload)
                    .map_err(|error| Error::malformed(WHAT, error.to_string()))?;
                let plain_size = plain_size.ok_or_else(|| Error::malformed(WHAT, "it does not give its plain size"))?;
                (Box::new(decoder), plain_size)
            }
            Some(COMPRESSION_NONE) => (Box::new(payload), payload.len() as u64),
            other => return Err(Error::unsupported("compression of a transaction", format!("{other:?}"))),
        };
        Ok(PayloadEvents { plain, left, buffer: Vec::new() })
    }

    /// The next event: its header and its body. `None` after the last one.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the events do not decompress, or their length is not the announced one.
    pub fn next_event(&mut self) -> Result<Option<(EventHeader, &[u8])>> {
        if self.left == 0 {
            return match self.read(1)? {
                0 => Ok(None),
                _ => Err(Error::malformed(WHAT, "it holds more bytes than announced")),
            };
        }
        self.fill(HEADER_LENGTH)?;
        let header = EventHeader::parse(&self.buffer)?;
        let length = header.event_length as usize;
        if length > EVENT_LENGTH_MAX || length as u64 > self.left {
            return Err(Error::malformed(WHAT, format!("an event of {length} bytes, with {} left", self.left)));
        }
        self.left -= length as u64;
        self.fill(length - HEADER_LENGTH)?;
        Ok(Some((header, &self.buffer)))
    }

    fn fill(&mut self, length: usize) -> Result<()> {
        match self.read(length)? {
            all if all == length => Ok(()),
            some => Err(Error::malformed(WHAT, format!("its events end after {some} of {length} bytes"))),
        }
    }

    /// Reads up to `length` bytes into the buffer. It grows with the bytes that come, not with the announced length.
    fn read(&mut self, length: usize) -> Result<usize> {
        self.buffer.clear();
        self.buffer.shrink_to(ROOM_KEPT_MAX);
        let mut part = (&mut self.plain).take(length as u64);
        part.read_to_end(&mut self.buffer).map_err(|error| Error::malformed(WHAT, error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventType;

    fn event(event_type: EventType, body: &[u8]) -> Vec<u8> {
        let header = EventHeader {
            timestamp_seconds: 0,
            event_type,
            server_id: 1,
            event_length: (HEADER_LENGTH + body.len()) as u32,
            next_position: 0,
            flags: 0,
        };
        [&header.encode()[..], body].concat()
    }

    fn payload(events: &[u8], compression: u8) -> Vec<u8> {
        let stored = if compression == 0 { zstd::encode_all(events, 3).unwrap() } else { events.to_vec() };
        let number = |value: usize| [&[253][..], &(value as u32).to_le_bytes()[..3]].concat();
        let compression = if compression == 255 { vec![252, 255, 0] } else { vec![compression] };
        let mut body = Vec::new();
        for (field, value) in [(1, number(stored.len())), (2, compression), (3, number(events.len()))] {
            body.extend_from_slice(&[field, value.len() as u8]);
            body.extend_from_slice(&value);
        }
        body.push(0);
        body.extend_from_slice(&stored);
        body
    }

    fn read(body: &[u8]) -> Result<Vec<(EventType, Vec<u8>)>> {
        let mut events = PayloadEvents::open(body)?;
        let mut found = Vec::new();
        while let Some((header, body)) = events.next_event()? {
            found.push((header.event_type, body.to_vec()));
        }
        Ok(found)
    }

    #[test]
    fn compressed_events_decode_to_the_originals() {
        let events = [
            event(EventType::QUERY, b"BEGIN"),
            event(EventType::WRITE_ROWS_V2, &[7; 3000]),
            event(EventType::XID, b""),
        ];
        for compression in [0, 255] {
            let found = read(&payload(&events.concat(), compression)).unwrap();
            let types: Vec<_> = found.iter().map(|(event_type, body)| (*event_type, body.len())).collect();
            assert_eq!(types, [(EventType::QUERY, 5), (EventType::WRITE_ROWS_V2, 3000), (EventType::XID, 0)]);
        }
    }

    #[test]
    fn payload_damaged_is_a_definite_error() {
        let good = payload(&[event(EventType::QUERY, b"BEGIN"), event(EventType::XID, &[3; 500])].concat(), 0);
        for length in 0..good.len() {
            assert!(read(&good[..length]).is_err(), "{length}");
        }
        let mut longer = good.clone();
        longer.push(0);
        assert!(read(&longer).is_err());
        assert!(read(&payload(&event(EventType::XID, b"")[..10], 0)).is_err());
        assert!(read(&payload(&[0; 40], 255)).is_err());
        assert!(read(&payload(b"", 7)).is_err());
    }
}
