//! A socket with packets on it, before and after the login: where I/O errors become [`Error`]s that name the peer.

use std::io;
use std::time::Duration;

use super::error::{Error, Peer, Result};
use super::packet::{PacketReader, Place, ReadError, STATUS_BYTES_MAX, write_payload};
use super::result::{is_error, parse_error};
use super::stream::Stream;
use super::tls;

/// How long to wait for the reason after a write has failed.
const LAST_ERROR_TIMEOUT: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: Peer,
    pub(super) stream: Stream,
    reader: PacketReader,
    /// The sequence number with which the answer behind the one that is due begins.
    next_answer: Option<u8>,
}

impl Link {
    pub(super) fn new(peer: Peer, stream: Stream) -> Link {
        Link { peer, stream, reader: PacketReader::new(), next_answer: None }
    }

    /// Waits for the next payload, which may have so many bytes; [`Link::payload`] shows it.
    pub(super) fn receive(&mut self, bytes_max: usize) -> Result<Place> {
        self.reader.fill(&mut self.stream, bytes_max).map_err(|error| match error {
            ReadError::Io(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Error::Timeout { peer: self.peer.clone() }
            }
            ReadError::Io(error) => self.lost(error),
            ReadError::Malformed(why) => self.protocol(why),
            // MariaDB and MySQL send no error then.
            ReadError::OutOfTurn(found, _) if self.next_answer == Some(found) => {
                let why = "it has left a packet of statements unfinished, as after KILL QUERY between two of them";
                self.lost(io::Error::other(why))
            }
            ReadError::OutOfTurn(found, due) => {
                self.protocol(format!("packet {found} arrived where packet {due} was due"))
            }
        })
    }

    pub(super) fn payload(&self, place: &Place) -> &[u8] {
        self.reader.payload(place)
    }

    /// Sends one payload. Returns the sequence number that an answer to it begins with.
    pub(super) fn send(&mut self, sequence: u8, parts: &[&[u8]]) -> Result<u8> {
        write_payload(&mut self.stream, sequence, parts).map_err(|error| self.lost(error))
    }

    pub(super) fn expect_sequence(&mut self, first: Option<u8>) {
        self.reader.expect_sequence(first);
    }

    /// If the answer that is due does not come to its end, one follows that begins so.
    pub(super) fn expect_answer_behind(&mut self, first: Option<u8>) {
        self.next_answer = first;
    }

    /// The sequence number due next, from either side.
    pub(super) fn next_sequence(&self) -> u8 {
        self.reader.next_sequence()
    }

    pub(super) fn has_buffered_packet(&self) -> bool {
        self.reader.has_buffered_packet()
    }

    /// What an I/O error means: TLS speaks up through these too.
    pub(super) fn lost(&self, error: io::Error) -> Error {
        match tls::refusal(&error) {
            Some(alert) => self.insecure(tls::explain_alert(alert, self.peer.role())),
            None => Error::Lost { peer: self.peer.clone(), error },
        }
    }

    pub(super) fn insecure(&self, why: String) -> Error {
        Error::Insecure { peer: self.peer.clone(), why }
    }

    /// True if the server has sent bytes that no caller has read.
    pub(super) fn has_unread_bytes(&self) -> bool {
        self.reader.has_unread_bytes()
    }

    pub(super) fn protocol(&self, why: impl Into<String>) -> Error {
        Error::Protocol { peer: self.peer.clone(), why: why.into() }
    }

    /// Looks, after a failed write, for the error that the server may have sent before it closed the connection.
    pub(super) fn read_last_error(&mut self, failure: Error) -> Error {
        if self.stream.set_read_timeout(Some(LAST_ERROR_TIMEOUT)).is_err() {
            return failure;
        }
        self.expect_sequence(None);
        match self.receive(STATUS_BYTES_MAX) {
            Err(refused @ Error::Insecure { .. }) => refused,
            Ok(place) if is_error(self.payload(&place)) => match parse_error(self.payload(&place), 0) {
                Some(error) => Error::Server { peer: self.peer.clone(), error },
                None => failure,
            },
            _ => failure,
        }
    }
}
