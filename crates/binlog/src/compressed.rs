//! MariaDB's compressed events (`log_bin_compress`): a header byte, the plain length, then a zlib stream.
//!
//! Source: MariaDB knowledge base, "Compressing events to reduce size of the binary log".

use std::io::Read;

use flate2::read::ZlibDecoder;

use crate::cursor::Cursor;
use crate::query::QueryEvent;
use crate::{Error, Result};

const WHAT: &str = "compressed event";

/// The servers refuse events above 1 GiB; a larger plain length is damage, or an attack.
const PLAIN_LENGTH_MAX: usize = 1 << 30;

/// Decompresses `bytes` into `buffer`, replacing its content.
///
/// # Errors
/// [`Error::Malformed`] if the stream is damaged or its length is not the announced one; [`Error::Unsupported`] if it
/// is not zlib.
pub fn decompress(bytes: &[u8], buffer: &mut Vec<u8>) -> Result<()> {
    let mut cursor = Cursor::new(bytes, WHAT);
    let header = cursor.u8()?;
    let algorithm = (header & 0x70) >> 4;
    if header & 0x80 == 0 || algorithm != 0 {
        return Err(Error::unsupported("compression of an event", format!("header byte {header:#04x}")));
    }
    let length_bytes = usize::from(header & 0x07);
    if !(1..=4).contains(&length_bytes) {
        return Err(Error::malformed(WHAT, format!("plain length of {length_bytes} bytes")));
    }
    let plain_length = cursor.take(length_bytes)?.iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
    if plain_length > PLAIN_LENGTH_MAX {
        return Err(Error::malformed(WHAT, format!("plain length of {plain_length} bytes")));
    }
    buffer.clear();
    // Read one byte more than announced, to notice a longer stream. The buffer grows with the bytes that come, because
    // the announced length may be a lie.
    let mut decoder = ZlibDecoder::new(cursor.rest()).take(plain_length as u64 + 1);
    decoder.read_to_end(buffer).map_err(|error| Error::malformed(WHAT, error.to_string()))?;
    if buffer.len() != plain_length {
        return Err(Error::malformed(WHAT, format!("{} bytes, not the announced {plain_length}", buffer.len())));
    }
    Ok(())
}

/// Parses a compressed Query event; its statement is decompressed into `buffer`.
///
/// # Errors
/// Those of [`QueryEvent::parse`] and [`decompress`].
pub fn parse_query<'b>(body: &'b [u8], buffer: &'b mut Vec<u8>) -> Result<QueryEvent<'b>> {
    let query = QueryEvent::parse(body)?;
    decompress(query.statement, buffer)?;
    Ok(QueryEvent { statement: buffer, ..query })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn compress(plain: &[u8], claimed: u32) -> Vec<u8> {
        let mut bytes = vec![0x80 | 4];
        bytes.extend_from_slice(&claimed.to_be_bytes());
        let mut encoder = flate2::write::ZlibEncoder::new(bytes, flate2::Compression::default());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn compressed_statement_is_restored() {
        let plain = vec![7; 100_000];
        let mut buffer = vec![1, 2, 3];
        decompress(&compress(&plain, 100_000), &mut buffer).unwrap();
        assert_eq!(buffer, plain);
    }

    #[test]
    fn compressed_bytes_with_wrong_length_are_an_error() {
        let mut buffer = Vec::new();
        assert!(decompress(&compress(b"hello", 4), &mut buffer).is_err());
        assert!(decompress(&compress(b"hello", 6), &mut buffer).is_err());
    }

    #[test]
    fn compressed_stream_truncated_is_an_error() {
        let bytes = compress(&vec![7; 1000], 1000);
        let mut buffer = Vec::new();
        for length in 0..bytes.len() - 1 {
            assert!(decompress(&bytes[..length], &mut buffer).is_err(), "cut at {length}");
        }
    }
}
