//! Packets: a length of three bytes, a sequence number, the payload. A payload of 16 MiB − 1 continues in the next
//! packet.
//!
//! [`PacketReader`] reads the binlog stream at full speed: it reads the socket in large pieces and returns payloads as
//! slices of its buffer, so a packet costs neither a system call nor an allocation. It is resumable: after a read
//! timeout it keeps all bytes that have arrived, and the next call continues in the middle of the packet.

use std::io::{self, IoSlice, Read, Write};
use std::ops::Range;

/// The payload length that means "the payload continues in the next packet".
const PIECE_LENGTH_MAX: usize = 0xff_ffff;
const HEADER_LENGTH: usize = 4;
/// Bytes read by one system call. At 500 MB/s of binlog this makes 2,000 reads a second.
const BUFFER_LENGTH: usize = 256 * 1024;
/// A joined payload's memory above this is freed before the next packet.
const JOINED_KEPT_MAX: usize = 16 * 1024 * 1024;
/// The first allocation for a joined payload. It doubles as bytes arrive, so an announced length alone costs only this.
const JOINED_STEP: usize = 1024 * 1024;
/// Limit of events and rows: 1 GiB is the upper limit of `max_allowed_packet`, and a dump adds a header.
pub(super) const PAYLOAD_BYTES_MAX: usize = (1 << 30) + 64 * 1024;
/// Limit of packets before the login, and of packets that can only be a status. The largest of them are a greeting or
/// an authentication plugin's data, of some hundred bytes, and an RSA key of less than 4 KiB.
pub(super) const STATUS_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
pub(super) enum ReadError {
    Io(io::Error),
    Malformed(String),
    /// This sequence number came, and that was due.
    OutOfTurn(u8, u8),
}

/// The place of a whole payload in the reader's memory; valid until the next [`PacketReader::fill`].
#[derive(Debug, Clone)]
pub(super) enum Place {
    Buffer(Range<usize>),
    Joined,
}

#[derive(Debug)]
pub(super) struct PacketReader {
    buffer: Box<[u8]>,
    /// `buffer[unread]` has been received, and no caller has got it.
    unread: Range<usize>,
    /// A payload too large for the buffer, incomplete or returned to the caller.
    joined: Vec<u8>,
    state: State,
    sequence: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A payload begins; `joined` is unused.
    First,
    /// `missing` more bytes belong to `joined`, and then another packet if `more`.
    Joining { missing: usize, more: bool },
}

impl PacketReader {
    pub(super) fn new() -> PacketReader {
        PacketReader {
            buffer: vec![0; BUFFER_LENGTH].into_boxed_slice(),
            unread: 0..0,
            joined: Vec::new(),
            state: State::First,
            sequence: None,
        }
    }

    /// From now on the packets' sequence numbers must rise from `first`; `None` disables the check.
    pub(super) fn expect_sequence(&mut self, first: Option<u8>) {
        self.sequence = first;
    }

    /// The next sequence number; 0 if the check is disabled.
    pub(super) fn next_sequence(&self) -> u8 {
        self.sequence.unwrap_or(0)
    }

    pub(super) fn payload(&self, place: &Place) -> &[u8] {
        match place {
            Place::Buffer(range) => &self.buffer[range.clone()],
            Place::Joined => &self.joined,
        }
    }

    /// True if bytes have arrived that no caller has got.
    pub(super) fn has_unread_bytes(&self) -> bool {
        !self.unread.is_empty()
    }

    /// True if the next whole payload is in the buffer.
    pub(super) fn has_buffered_packet(&self) -> bool {
        if self.state != State::First {
            return false;
        }
        match self.buffer[self.unread.clone()] {
            [a, b, c, _sequence, ref rest @ ..] => {
                let length = piece_length([a, b, c]);
                length < PIECE_LENGTH_MAX && length <= rest.len()
            }
            _ => false,
        }
    }

    /// Waits for the next whole payload, of at most `bytes_max` bytes.
    pub(super) fn fill(&mut self, stream: &mut impl Read, bytes_max: usize) -> Result<Place, ReadError> {
        loop {
            match self.state {
                State::First => {
                    if self.joined.capacity() > JOINED_KEPT_MAX {
                        self.joined = Vec::new();
                    }
                    let length = self.fill_header(stream)?;
                    check_length(length, bytes_max)?;
                    if length == PIECE_LENGTH_MAX || HEADER_LENGTH + length > self.buffer.len() {
                        self.joined.clear();
                        self.begin_piece(length)?;
                        continue;
                    }
                    self.fill_buffer(stream, HEADER_LENGTH + length)?;
                    self.check_sequence(self.buffer[self.unread.start + 3])?;
                    let start = self.unread.start + HEADER_LENGTH;
                    self.unread.start = start + length;
                    return Ok(Place::Buffer(start..start + length));
                }
                State::Joining { missing: 0, more: false } => {
                    self.state = State::First;
                    return Ok(Place::Joined);
                }
                State::Joining { missing: 0, more: true } => {
                    let length = self.fill_header(stream)?;
                    check_length(self.joined.len() + length, bytes_max)?;
                    self.begin_piece(length)?;
                }
                State::Joining { missing, more } => self.fill_joined(stream, missing, more)?,
            }
        }
    }

    /// Consumes the header at the front of the buffer; its payload will be read into `joined`.
    fn begin_piece(&mut self, length: usize) -> Result<(), ReadError> {
        self.check_sequence(self.buffer[self.unread.start + 3])?;
        self.unread.start += HEADER_LENGTH;
        self.state = State::Joining { missing: length, more: length == PIECE_LENGTH_MAX };
        Ok(())
    }

    fn fill_joined(&mut self, stream: &mut impl Read, missing: usize, more: bool) -> Result<(), ReadError> {
        let length_before = self.joined.len();
        let here = missing.min(self.unread.len());
        let from = self.unread.start;
        self.joined.extend_from_slice(&self.buffer[from..from + here]);
        self.unread.start += here;
        let wanted = (missing - here).min(self.joined.len().max(JOINED_STEP));
        self.joined.reserve_exact(wanted);
        let outcome = stream.take(wanted as u64).read_to_end(&mut self.joined);
        let arrived = self.joined.len() - length_before;
        self.state = State::Joining { missing: missing - arrived, more };
        match outcome {
            Ok(_) if arrived == here + wanted => Ok(()),
            Ok(_) => Err(ReadError::Io(closed())),
            Err(error) => Err(ReadError::Io(error)),
        }
    }

    /// Makes sure that a header is in the buffer, and returns the length in it.
    fn fill_header(&mut self, stream: &mut impl Read) -> Result<usize, ReadError> {
        self.fill_buffer(stream, HEADER_LENGTH)?;
        let start = self.unread.start;
        Ok(piece_length([self.buffer[start], self.buffer[start + 1], self.buffer[start + 2]]))
    }

    /// Makes sure that `needed` unread bytes are in the buffer, in one piece.
    fn fill_buffer(&mut self, stream: &mut impl Read, needed: usize) -> Result<(), ReadError> {
        if self.unread.is_empty() {
            self.unread = 0..0;
        }
        if self.unread.start + needed > self.buffer.len() {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        while self.unread.len() < needed {
            match stream.read(&mut self.buffer[self.unread.end..]) {
                Ok(0) => return Err(ReadError::Io(closed())),
                Ok(count) => self.unread.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
        Ok(())
    }

    fn check_sequence(&mut self, found: u8) -> Result<(), ReadError> {
        match &mut self.sequence {
            Some(expected) if *expected != found => Err(ReadError::OutOfTurn(found, *expected)),
            Some(expected) => {
                *expected = expected.wrapping_add(1);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn check_length(length: usize, bytes_max: usize) -> Result<(), ReadError> {
    match length <= bytes_max {
        true => Ok(()),
        false => Err(ReadError::Malformed(format!(
            "a packet is longer than {bytes_max} bytes, the most that can be due here"
        ))),
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed it")
}

fn piece_length([a, b, c]: [u8; 3]) -> usize {
    u32::from_le_bytes([a, b, c, 0]) as usize
}

/// Writes one payload, given in parts, as one packet or several, without copying the parts. Returns the sequence number
/// after the last packet.
pub(super) fn write_payload(stream: &mut impl Write, mut sequence: u8, parts: &[&[u8]]) -> io::Result<u8> {
    let mut left: usize = parts.iter().map(|part| part.len()).sum();
    let mut parts = parts.iter().copied();
    let mut part: &[u8] = &[];
    loop {
        let piece = left.min(PIECE_LENGTH_MAX);
        let [a, b, c, ..] = (piece as u32).to_le_bytes();
        let header = [a, b, c, sequence];
        let mut slices = vec![IoSlice::new(&header)];
        let mut missing = piece;
        while missing > 0 {
            if part.is_empty() {
                match parts.next() {
                    Some(next) => part = next,
                    None => break,
                }
            }
            let (now, later) = part.split_at(missing.min(part.len()));
            slices.push(IoSlice::new(now));
            part = later;
            missing -= now.len();
        }
        write_all_slices(stream, &mut slices)?;
        sequence = sequence.wrapping_add(1);
        left -= piece;
        // After a payload that fills its last packet, the protocol requires an empty packet.
        if piece < PIECE_LENGTH_MAX {
            return Ok(sequence);
        }
    }
}

fn write_all_slices(stream: &mut impl Write, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    // With leading empty slices a write of 0 bytes would look like a closed stream.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match stream.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut slices, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns bytes in pieces of `step`, with a timeout before each.
    struct Trickle<'a> {
        bytes: &'a [u8],
        step: usize,
        late: bool,
    }

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.late = !self.late;
            if self.late {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = self.step.min(buffer.len()).min(self.bytes.len());
            buffer[..count].copy_from_slice(&self.bytes[..count]);
            self.bytes = &self.bytes[count..];
            Ok(count)
        }
    }

    fn fill(reader: &mut PacketReader, stream: &mut impl Read) -> Result<Vec<u8>, ReadError> {
        loop {
            match reader.fill(stream, PAYLOAD_BYTES_MAX) {
                Ok(place) => return Ok(reader.payload(&place).to_vec()),
                Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn payload(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index * 31 % 251) as u8).collect()
    }

    #[test]
    fn payload_of_any_size_survives_a_timeout_at_every_read() {
        let lengths = [
            0,
            1,
            BUFFER_LENGTH - HEADER_LENGTH,
            BUFFER_LENGTH - HEADER_LENGTH + 1,
            PIECE_LENGTH_MAX - 1,
            PIECE_LENGTH_MAX,
            PIECE_LENGTH_MAX + 1,
            2 * PIECE_LENGTH_MAX,
            3,
        ];
        let mut bytes = Vec::new();
        let mut sequence = 7;
        for length in lengths {
            let whole = payload(length);
            let (front, back) = whole.split_at(length / 3);
            sequence = write_payload(&mut bytes, sequence, &[front, &[], back]).unwrap();
        }
        let mut reader = PacketReader::new();
        reader.expect_sequence(Some(7));
        let mut stream = Trickle { bytes: &bytes, step: 100_003, late: false };
        for length in lengths {
            assert!(fill(&mut reader, &mut stream).unwrap() == payload(length), "{length}");
        }
        match fill(&mut reader, &mut stream) {
            Err(ReadError::Io(error)) => assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn announced_packet_length_allocates_no_memory() {
        // Two whole pieces and the beginning of a third are announced, and only a little of each arrives.
        let mut bytes = [0xff, 0xff, 0xff, 0].to_vec();
        bytes.extend_from_slice(&[b'x'; 1000]);
        let mut reader = PacketReader::new();
        let mut stream = Trickle { bytes: &bytes, step: 300, late: false };
        for _ in 0..4 {
            let waits = reader.fill(&mut stream, PAYLOAD_BYTES_MAX);
            assert!(matches!(waits, Err(ReadError::Io(ref error)) if error.kind() == io::ErrorKind::WouldBlock));
        }
        assert!(reader.joined.capacity() <= 2 * JOINED_STEP, "{}", reader.joined.capacity());
    }

    #[test]
    fn packet_over_the_limit_is_refused_by_its_header() {
        let mut longer = [0xff, 0xff, 0xff, 0].to_vec();
        longer.resize(HEADER_LENGTH + PIECE_LENGTH_MAX, 0);
        longer.extend_from_slice(&[2, 0, 0, 1]);
        let small = [11, 0, 0, 0].as_slice();
        for (bytes, bytes_max) in [(small, 10), (longer.as_slice(), PIECE_LENGTH_MAX + 1)] {
            let mut stream = bytes;
            let refused = PacketReader::new().fill(&mut stream, bytes_max);
            assert!(matches!(refused, Err(ReadError::Malformed(_))), "{refused:?}");
            let mut stream = bytes;
            let waits = PacketReader::new().fill(&mut stream, bytes_max + 1);
            assert!(matches!(waits, Err(ReadError::Io(_))), "{waits:?}");
        }
    }

    #[test]
    fn memory_of_a_large_packet_is_freed() {
        let large = payload(3 * JOINED_KEPT_MAX);
        let mut bytes = Vec::new();
        write_payload(&mut bytes, 0, &[&large]).unwrap();
        write_payload(&mut bytes, 0, &[b"small"]).unwrap();
        let (mut reader, mut stream) = (PacketReader::new(), bytes.as_slice());
        assert!(fill(&mut reader, &mut stream).unwrap() == large);
        assert_eq!(fill(&mut reader, &mut stream).unwrap(), b"small");
        assert_eq!(reader.joined.capacity(), 0);
    }

    #[test]
    fn packets_out_of_order_are_refused() {
        let mut bytes = Vec::new();
        write_payload(&mut bytes, 1, &[b"a"]).unwrap();
        write_payload(&mut bytes, 3, &[b"b"]).unwrap();
        let mut reader = PacketReader::new();
        reader.expect_sequence(Some(1));
        let mut stream = bytes.as_slice();
        assert_eq!(fill(&mut reader, &mut stream).unwrap(), b"a");
        assert!(matches!(fill(&mut reader, &mut stream), Err(ReadError::OutOfTurn(3, 2))));
    }

    #[test]
    fn buffered_packet_is_found_without_reading() {
        let mut bytes = Vec::new();
        write_payload(&mut bytes, 0, &[b"first"]).unwrap();
        write_payload(&mut bytes, 0, &[b"second"]).unwrap();
        write_payload(&mut bytes, 0, &[b"third"]).unwrap();
        bytes.pop();
        let mut reader = PacketReader::new();
        assert!(!reader.has_buffered_packet());
        let mut stream = bytes.as_slice();
        assert_eq!(fill(&mut reader, &mut stream).unwrap(), b"first");
        assert!(reader.has_buffered_packet());
        assert_eq!(fill(&mut reader, &mut stream).unwrap(), b"second");
        assert!(!reader.has_buffered_packet(), "the third lacks a byte");
    }
}
