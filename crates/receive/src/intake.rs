//! The connection to the source: requests its binlog as a replica does, and writes every event into the archive.
//!
//! After each disconnect it resumes at the archive's end, so no event is lost or stored twice. The MariaDB knowledge
//! base describes the protocol: "Replication protocol", "COM_BINLOG_DUMP", "Semi-sync".

mod dump;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use spate_archive::{ArchiveWriter, LogEnd, check_source_name, stopping_point};
use spate_binlog::header::{EventHeader, EventType};
use spate_binlog::session::RotateEvent;
use spate_binlog::{ChecksumAlgorithm, FormatDescription, GtidPosition};

use self::dump::Dump;
use crate::retention::Purger;
use crate::source::{find_mariadb_file_after, find_oldest_binlog};
use spate_connection::backoff::Backoff;
use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection, Vendor};
use spate_replica::asking;
use spate_replica::status::Status;
use spate_replica::{Error, Result};

/// Precedes each event of a semi-synchronous stream; the next byte says whether the source wants an acknowledgement.
const SEMI_SYNC_MAGIC: u8 = 0xef;

/// A source that sends nothing for this long counts as lost.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Time between two attempts to write to a full disk.
pub(crate) const DISK_FULL_RETRY: Duration = Duration::from_secs(1);

/// The error code with which the server refuses any request that its binlog cannot serve.
const CODE_CANNOT_SERVE: u16 = 1236;

/// Part of the server's message about a file that is truncated within an event.
const TRUNCATED_END: &str = "truncated in the middle of event";

/// How to receive.
#[derive(Debug, Clone)]
pub struct IntakeOptions {
    /// The source.
    pub source: Endpoint,
    /// Our server id; it must differ from those of the source and its other replicas.
    pub server_id: u32,
    /// Where an empty archive begins if the source's transactions have no GTIDs: its file and an offset in it. `None`
    /// if they have GTIDs, or if the archive is not empty.
    pub start_place: Option<(String, u64)>,
    /// Acknowledge transactions semi-synchronously once they are durable.
    pub semi_sync: bool,
}

/// Receives until stopped.
pub struct Intake<'a> {
    /// How to receive.
    pub options: &'a IntakeOptions,
    /// Writes the received events.
    pub writer: ArchiveWriter,
    /// Gets the progress and the errors.
    pub status: &'a Status,
    /// Set when the process is to end.
    pub stop: &'a AtomicBool,
    /// Stop once the archive reaches this position; `None`: receive until `stop` is set.
    pub until: Option<GtidPosition>,
    /// Removes archive files that nobody needs; `None` keeps all.
    pub retention: Option<Purger<'a>>,
    /// Gets the handle that ends the connection, so that a stop need not wait for the source's next packet.
    pub interrupt: &'a Interrupt,
}

/// Ends the intake's connection from another thread.
#[derive(Debug, Default)]
pub struct Interrupt(Mutex<Option<spate_connection::ShutdownHandle>>);

impl Interrupt {
    /// Ends the connection that is open now. The caller sets the stop flag first.
    pub fn now(&self) {
        if let Some(handle) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            handle.shutdown();
        }
    }

    fn arm(&self, connection: &Connection) -> Result<()> {
        let handle = connection.shutdown_handle()?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        Ok(())
    }
}

/// An open stream of events, and its state.
struct Stream {
    connection: Connection,
    is_semi_sync: bool,
    checksum: ChecksumAlgorithm,
    /// The source's file that the next events are from, as its last rotate event announced it.
    source_file: String,
    last_packet_at: Instant,
}

/// A packet, split into its parts.
struct Packet<'a> {
    event: &'a [u8],
    wants_acknowledgement: bool,
}

impl Intake<'_> {
    /// Receives until stopped; reconnects after each disconnect, and reports it in the status.
    ///
    /// # Errors
    /// A definite error: of the login, of the source's binlog, of the archive.
    pub fn run(mut self) -> Result<()> {
        let mut backoff = Backoff::default();
        while !self.stop.load(Ordering::Acquire) {
            self.status.intake("connecting");
            let (began, begin_position) = (Instant::now(), self.writer.end().gtid_position);
            let Err(error) = self.receive() else { break };
            self.writer.discard_partial_transaction()?;
            if self.stop.load(Ordering::Acquire) {
                break;
            }
            if !error.is_transient() {
                self.status.intake("stopped");
                self.status.error("intake", error.to_string());
                return Err(error);
            }
            backoff.note_success_after(began.elapsed());
            if self.writer.end().gtid_position != begin_position {
                // The connection delivered transactions: count failures from here.
                backoff = Backoff::default();
            }
            let delay = backoff.next_delay();
            self.status.intake(format!("waiting: {error}"));
            self.status.error("intake", format!("{error}; trying again until it answers"));
            backoff.wait(delay, self.stop);
        }
        self.writer.sync()?;
        self.status.intake("stopped");
        Ok(())
    }

    /// Receives over one connection, from its first to its last packet.
    fn receive(&mut self) -> Result<()> {
        let end = self.writer.end();
        let mut stream = self.open(&end)?;
        self.status.intake("receiving");
        while !self.stop.load(Ordering::Acquire) {
            if self.until.as_ref().is_some_and(|until| self.writer.end().gtid_position.covers_all(until)) {
                self.flush()?;
                return Ok(());
            }
            if !stream.connection.has_buffered_packet() {
                self.flush()?;
            }
            self.receive_packet(&mut stream)?;
        }
        Ok(())
    }

    fn receive_packet(&mut self, stream: &mut Stream) -> Result<()> {
        let peer = stream.connection.peer().clone();
        let packet = match stream.connection.next_packet() {
            Ok(Some(payload)) => {
                split_packet(payload, stream.is_semi_sync).map_err(|error| stream_damaged(&peer, "a packet", error))?
            }
            Ok(None) => {
                return Err(
                    spate_connection::Error::Lost { peer, error: std::io::ErrorKind::UnexpectedEof.into() }.into()
                );
            }
            Err(error) if error.is_timeout() => {
                if stream.last_packet_at.elapsed() > SILENCE_MAX {
                    return Err(error.into());
                }
                return self.flush();
            }
            Err(error) => return Err(self.explain_stream_error(error, &stream.source_file)),
        };
        stream.last_packet_at = Instant::now();
        self.status.received_bytes(packet.event.len() as u64);
        let header = EventHeader::parse(packet.event).map_err(|error| stream_damaged(&peer, "an event", error))?;
        let place = || format!("{} at {}:{}", header.event_type, stream.source_file, header.next_position);
        let damaged = |error| stream_damaged(&peer, &place(), error);
        match header.event_type {
            EventType::HEARTBEAT | EventType::HEARTBEAT_V2 => return Ok(()),
            EventType::ROTATE if header.is_artificial() => {
                let body = stream.checksum.verified_body(packet.event).map_err(damaged)?;
                stream.source_file = parse_announced_file(body).map_err(damaged)?;
                return Ok(());
            }
            EventType::FORMAT_DESCRIPTION => {
                stream.checksum = FormatDescription::parse(packet.event).map_err(damaged)?.checksum;
                let file = stream.source_file.clone();
                self.write_with_space(|writer| writer.begin_file(&file, packet.event))?;
                return self.purge_if_due();
            }
            _ => {}
        }
        self.write_with_space(|writer| writer.append(packet.event).map(drop))?;
        if packet.wants_acknowledgement {
            self.write_with_space(ArchiveWriter::sync)?;
            let mut acknowledgement = vec![SEMI_SYNC_MAGIC];
            acknowledgement.extend_from_slice(&u64::from(header.next_position).to_le_bytes());
            acknowledgement.extend_from_slice(stream.source_file.as_bytes());
            stopping_point("before-acknowledgement");
            stream.connection.write_packet_raw(&acknowledgement)?;
            stopping_point("after-acknowledgement");
        }
        Ok(())
    }

    /// Removes files that nobody needs, if the next check is due.
    fn purge_if_due(&mut self) -> Result<()> {
        let Some(mut retaining) = self.retention.take() else { return Ok(()) };
        let purged = self.write_with_space(|writer| retaining.purge_if_due(writer));
        self.retention = Some(retaining);
        purged
    }

    fn flush(&mut self) -> Result<()> {
        self.purge_if_due()?;
        let is_due = self.writer.sync_due_in().is_some_and(|due| due.is_zero());
        if self.writer.pending_bytes() == 0 && !is_due {
            return Ok(());
        }
        self.write_with_space(ArchiveWriter::flush)?;
        self.status.received(&self.writer.end());
        Ok(())
    }

    /// Retries `write` for as long as the disk is full: the intake pauses, and the applier continues.
    fn write_with_space(
        &mut self,
        mut write: impl FnMut(&mut ArchiveWriter) -> spate_archive::Result<()>,
    ) -> Result<()> {
        let mut was_full = false;
        loop {
            match write(&mut self.writer) {
                Ok(()) => break,
                Err(error) if error.is_fatal() => crash(&error),
                Err(error @ spate_archive::Error::DiskFull { .. }) if !self.stop.load(Ordering::Acquire) => {
                    was_full = true;
                    self.status.intake(format!("waiting: {error}"));
                    self.status.error("intake", error.to_string());
                    Backoff::default().wait(DISK_FULL_RETRY, self.stop);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if was_full {
            self.status.intake("receiving");
            self.status.note("intake", "there is space on the archive's disk again: receiving");
        }
        Ok(())
    }

    /// Connects and requests the binlog after `end`.
    fn open(&self, end: &LogEnd) -> Result<Stream> {
        let Dump { connection, is_semi_sync, checksum } = dump::begin(self.options, end, self.status)?;
        self.interrupt.arm(&connection)?;
        Ok(Stream { connection, is_semi_sync, checksum, source_file: String::new(), last_packet_at: Instant::now() })
    }

    /// True if the intake can resume after a file that is truncated within an event.
    ///
    /// A MariaDB that crashes while it writes leaves a file that is truncated within a transaction. Its recovery rolls
    /// that transaction back, and each replica that reads the file gets an error. If the next file begins at the
    /// archive's end, no transaction is missing between them, and the intake resumes by GTID in the next file.
    fn can_resume_after_truncation(&self, connection: &mut Connection, file: &str) -> Result<bool> {
        if connection.server_version().vendor != Vendor::MariaDb {
            return Ok(false);
        }
        let Some((next, position)) = find_mariadb_file_after(connection, file)? else { return Ok(false) };
        if *self.writer.end().gtid_position != position {
            return Ok(false);
        }
        let message =
            format!("the source's {file} is truncated within an event, as a crash leaves it: resuming with {next}");
        self.status.note("intake", &message);
        Ok(true)
    }

    /// Turns the error that the source sent instead of an event of `file` into the intake's own error.
    fn explain_stream_error(&self, error: spate_connection::Error, file: &str) -> Error {
        let Some(server_error) = error.server_error().filter(|error| error.code == CODE_CANNOT_SERVE) else {
            return Error::from(error).with_missing_privilege("send its binlog", dump::GRANT);
        };
        let message = server_error.message.clone();
        let options = ConnectOptions { read_timeout: Some(SILENCE_MAX), ..ConnectOptions::new("source") };
        let mut second_connection = asking::connect(&self.options.source, &options).map_err(Error::from);
        if let (Ok(connection), true) = (&mut second_connection, message.contains(TRUNCATED_END)) {
            match self.can_resume_after_truncation(connection, file) {
                Ok(true) => {
                    let truncated = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, message);
                    return spate_connection::Error::Lost { peer: connection.peer().clone(), error: truncated }.into();
                }
                Ok(false) => {}
                Err(error) => return error,
            }
        }
        let oldest = second_connection.and_then(|mut connection| find_oldest_binlog(&mut connection));
        Error::Purged {
            source_server: format!("source ({})", self.options.source),
            wanted: (*self.writer.end().gtid_position).clone(),
            message,
            oldest: oldest.map_or_else(|_| "unknown".to_owned(), |oldest| oldest.to_string()),
        }
    }
}

fn split_packet(payload: &[u8], is_semi_sync: bool) -> spate_binlog::Result<Packet<'_>> {
    let truncated = || spate_binlog::Error::Truncated { what: "packet", needed: 3, available: payload.len() };
    match (is_semi_sync, payload) {
        (true, [0, SEMI_SYNC_MAGIC, flag, event @ ..]) => Ok(Packet { event, wants_acknowledgement: *flag & 1 != 0 }),
        (false, [0, event @ ..]) => Ok(Packet { event, wants_acknowledgement: false }),
        _ => Err(truncated()),
    }
}

/// Parses the name of the file that the next events are from, and checks it before any message or path contains it.
fn parse_announced_file(body: &[u8]) -> spate_binlog::Result<String> {
    let file = RotateEvent::parse(body)?.file;
    let malformed = |why| spate_binlog::Error::Malformed { what: "the binlog file's name", why };
    check_source_name(file).map_err(malformed)?;
    Ok(file.to_owned())
}

fn stream_damaged(peer: &spate_connection::Peer, what: &str, error: spate_binlog::Error) -> Error {
    Error::Stream { peer: peer.to_string(), what: what.to_owned(), error }
}

/// Aborts the process: after a fatal error the disk's content is unknown, and only a restart reads it again.
fn crash(error: &spate_archive::Error) -> ! {
    use std::io::Write;
    let _ignored = writeln!(std::io::stderr(), "spate: {error}. Ending at once; a restart recovers");
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_file_with_hostile_name_is_refused() {
        let announced = |name: &str| parse_announced_file(&[&4u64.to_le_bytes(), name.as_bytes()].concat());
        assert_eq!(announced("mariadb-bin.000001").unwrap(), "mariadb-bin.000001");
        for name in ["status.socket", "archive.list", "..", "a/b", "-rf", "", "a\u{1b}[2Jb", &"x".repeat(300)] {
            let why = announced(name).unwrap_err().to_string();
            assert!(!why.chars().any(char::is_control), "{why:?}");
        }
    }
}
