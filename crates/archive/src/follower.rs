//! The state of a stream of events: format, transactions, seqnos, source and GTID positions.
//!
//! Writer, recovery and readers all walk events with a [`Follower`], so all of them count transactions in the same way.

use std::sync::Arc;

use spate_binlog::gtid::mariadb::parse_gtid_list;
use spate_binlog::gtid::mysql::parse_previous_gtids;
use spate_binlog::header::FLAG_RELAY_LOG;
use spate_binlog::{
    Boundary, BoundaryTracker, ChecksumAlgorithm, EventHeader, EventType, FormatDescription, GtidPosition,
};

use crate::index::TransactionRecord;

/// Offset of a binlog file's first event.
pub(crate) const FIRST_EVENT_OFFSET: u64 = spate_binlog::FILE_MAGIC.len() as u64;

/// The state between two events.
#[derive(Debug, Clone)]
pub(crate) struct Follower {
    /// The last format description met; `None` before the first.
    pub(crate) format: Option<Arc<FormatDescription>>,
    checksum: ChecksumAlgorithm,
    pub(crate) tracker: BoundaryTracker,
    /// The transaction last begun; 0 before the first.
    pub(crate) seqno: u64,
    pub(crate) source_file: Arc<str>,
    /// The end of the last event in the source's file.
    pub(crate) source_position: u64,
    /// The position after every transaction that has ended.
    pub(crate) gtid_position: GtidPosition,
    /// True if `gtid_position` covers everything before this place, not only the transactions that the follower saw.
    pub(crate) position_known: bool,
    /// True if the file is a relay log: its own format description said so.
    is_relay_log: bool,
    /// The place where the source continues after the rotate event at the end of its file; `None` without such an
    /// event.
    next_source: Option<(Arc<str>, u64)>,
    /// True once a GTID event was seen.
    has_seen_gtid: bool,
    /// The offset in the local file at which the transaction last begun begins.
    pub(crate) begin_offset: u64,
}

impl Follower {
    /// The state before the first event of an archive whose first file comes from `source_file`.
    pub(crate) fn new(source_file: Arc<str>, seqno: u64, start: Option<GtidPosition>) -> Follower {
        Follower {
            format: None,
            checksum: ChecksumAlgorithm::None,
            tracker: BoundaryTracker::default(),
            seqno,
            source_file,
            source_position: FIRST_EVENT_OFFSET,
            position_known: start.is_some(),
            gtid_position: start.unwrap_or_default(),
            is_relay_log: false,
            next_source: None,
            has_seen_gtid: false,
            begin_offset: 0,
        }
    }

    /// Continues at the beginning of another local file. A relay log continues the source's file and the transaction of
    /// the relay log before it; a binlog file begins with neither.
    pub(crate) fn enter_file(&mut self, source_file: &Arc<str>) {
        self.format = None;
        if !self.is_relay_log {
            self.source_file = Arc::clone(source_file);
            self.source_position = FIRST_EVENT_OFFSET;
            self.abandon_transaction();
        }
    }

    /// Drops a transaction that has no end in this stream. Returns true if there was one.
    pub(crate) fn abandon_transaction(&mut self) -> bool {
        let had = self.tracker.in_transaction();
        if had {
            self.tracker.reset();
            self.seqno -= 1;
        }
        had
    }

    /// Takes the next whole event. Verifies its checksum if `verify` is true.
    ///
    /// A relay log can hold the beginning of a transaction whose source crashed or sent it again from its beginning.
    /// The next beginning of a transaction drops that unfinished one.
    pub(crate) fn take(
        &mut self,
        header: &EventHeader,
        event: &[u8],
        offset: u64,
        verify: bool,
    ) -> spate_binlog::Result<Boundary> {
        if let Some((file, position)) = self.next_source.take() {
            (self.source_file, self.source_position) = (file, position);
        }
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            return self.take_format(header, event);
        }
        if self.format.is_none() {
            let why = format!("the file begins with {}, not with a format description", header.event_type);
            return Err(spate_binlog::Error::Malformed { what: "binlog file", why });
        }
        let body = if verify { self.checksum.verified_body(event)? } else { self.checksum.body(event)? };
        match header.event_type {
            EventType::ROTATE => {
                self.take_rotate(header, body)?;
                self.advance_source(header);
                return Ok(if self.tracker.in_transaction() { Boundary::Inside } else { Boundary::Outside });
            }
            EventType::GTID_LIST => self.take_start(header, &parse_gtid_list(body)?),
            EventType::PREVIOUS_GTIDS => self.take_start(header, &parse_previous_gtids(body)?),
            other if other.is_gtid() => {
                self.has_seen_gtid = true;
                if self.is_relay_log {
                    self.abandon_transaction();
                }
            }
            _ if self.is_headless() => {
                self.advance_source(header);
                return Ok(Boundary::Outside);
            }
            _ => {}
        }
        let boundary = self.tracker.observe(header, body)?;
        self.advance_source(header);
        match boundary {
            Boundary::Begin | Boundary::Whole => {
                self.seqno += 1;
                self.begin_offset = offset;
            }
            Boundary::End => {
                if let Some(event) = self.tracker.gtid() {
                    self.gtid_position.advance(event.gtid);
                }
            }
            Boundary::Inside | Boundary::Outside => {}
        }
        Ok(boundary)
    }

    /// Passes over a whole transaction that is known without having been read.
    pub(crate) fn pass(&mut self, record: &TransactionRecord) {
        self.seqno = record.seqno;
        self.source_position = record.source_end_position;
        if let Some(gtid) = record.gtid {
            self.has_seen_gtid = true;
            self.gtid_position.advance(gtid);
        }
    }

    /// The body of an event that [`Follower::take`] has accepted.
    pub(crate) fn body<'a>(&self, event: &'a [u8]) -> spate_binlog::Result<&'a [u8]> {
        // A format description always has room for a checksum, even if it announces none.
        let is_format = event.get(4) == Some(&EventType::FORMAT_DESCRIPTION.0);
        let checksum = if is_format { ChecksumAlgorithm::Crc32 } else { self.checksum };
        checksum.body(event)
    }

    /// True if the file's own format description said that it is a relay log.
    pub(crate) fn is_relay_log(&self) -> bool {
        self.is_relay_log
    }

    /// Restores an earlier format of the same file.
    pub(crate) fn restore_format(&mut self, format: Option<Arc<FormatDescription>>) {
        self.checksum = format.as_ref().map_or(ChecksumAlgorithm::None, |format| format.checksum);
        self.format = format;
    }

    /// The checksum algorithm of the events from here on.
    pub(crate) fn checksum(&self) -> ChecksumAlgorithm {
        self.checksum
    }

    /// The index record of the transaction that has just ended at `end` in the local file.
    pub(crate) fn record(&self, header: &EventHeader, end: u64) -> TransactionRecord {
        TransactionRecord {
            seqno: self.seqno,
            offset: self.begin_offset,
            length: end.saturating_sub(self.begin_offset),
            source_end_position: self.source_position,
            gtid: self.tracker.gtid().map(|event| event.gtid),
            commit_seconds: header.timestamp_seconds,
        }
    }

    /// The offset in the source's file at which the event that was just taken begins.
    pub(crate) fn source_begin(&self, header: &EventHeader) -> u64 {
        self.source_position.saturating_sub(u64::from(header.event_length))
    }

    fn take_format(&mut self, header: &EventHeader, event: &[u8]) -> spate_binlog::Result<Boundary> {
        let format = FormatDescription::parse(event)?;
        let is_own = header.flags & FLAG_RELAY_LOG != 0;
        if is_own && !self.is_relay_log {
            // Only a rotate event of the source can tell the file that this is a part of.
            self.is_relay_log = true;
            self.source_file = Arc::from("");
        }
        if !is_own && !self.is_relay_log && self.format.is_some() && self.tracker.in_transaction() {
            let why = "a format description inside a transaction".to_owned();
            return Err(spate_binlog::Error::Malformed { what: "binlog file", why });
        }
        if !is_own && format.created_seconds != 0 {
            // The source was restarted: it never finishes the transaction.
            self.abandon_transaction();
        }
        self.checksum = format.checksum;
        self.format = Some(Arc::new(format));
        if !is_own && !header.is_artificial() {
            self.advance_source(header);
        }
        Ok(if self.tracker.in_transaction() { Boundary::Inside } else { Boundary::Outside })
    }

    /// In a relay log, the source's rotate events name the source's next file; the relay log's own rotate events do
    /// not.
    fn take_rotate(&mut self, header: &EventHeader, body: &[u8]) -> spate_binlog::Result<()> {
        let is_own = header.flags & FLAG_RELAY_LOG != 0;
        if !self.is_relay_log || is_own {
            return Ok(());
        }
        let (position, name) = parse_rotate(body)?;
        if header.is_artificial() {
            (self.source_file, self.source_position) = (Arc::from(name), position);
        } else {
            self.next_source = Some((Arc::from(name), position));
        }
        Ok(())
    }

    /// Takes the position at the beginning of a source's file, which may be before the archive's own beginning. A relay
    /// log's own position is ignored: it holds only the transactions that its replica received.
    fn take_start(&mut self, header: &EventHeader, start: &GtidPosition) {
        let is_own = header.flags & FLAG_RELAY_LOG != 0;
        if !header.is_artificial() && !is_own && !self.tracker.in_transaction() {
            self.gtid_position.advance_to(start);
            self.position_known = true;
        }
    }

    /// True if the relay logs before this one were purged and the current events are the rest of a transaction that
    /// began there: MariaDB begins each transaction with a GTID since version 10. Such a rest does not count as a
    /// transaction.
    fn is_headless(&self) -> bool {
        let begins_with_gtid =
            |format: &Arc<FormatDescription>| format.is_mariadb() && !format.server_version.starts_with("5.");
        self.is_relay_log && !self.has_seen_gtid && self.format.as_ref().is_some_and(begins_with_gtid)
    }

    fn advance_source(&mut self, header: &EventHeader) {
        let is_own = self.is_relay_log && header.flags & FLAG_RELAY_LOG != 0;
        if header.next_position != 0 && !header.is_artificial() && !is_own {
            self.source_position = extend_position(self.source_position, header.next_position);
        }
    }
}

/// Extends `next` to the 64-bit position that follows `previous`: headers hold positions modulo 2³².
pub(crate) fn extend_position(previous: u64, next: u32) -> u64 {
    const HALF: u64 = 1 << 31;
    let same_era = (previous & !u64::from(u32::MAX)) | u64::from(next);
    if same_era < previous && previous - same_era > HALF { same_era + (1 << 32) } else { same_era }
}

/// Parses the position and the name of the next file.
pub(crate) fn parse_rotate(body: &[u8]) -> spate_binlog::Result<(u64, &str)> {
    let what = "Rotate event";
    let Some((position, name)) = body.split_first_chunk::<8>() else {
        return Err(spate_binlog::Error::Truncated { what, needed: 8, available: body.len() });
    };
    let name = std::str::from_utf8(name)
        .map_err(|_| spate_binlog::Error::Malformed { what, why: "the file's name is not text".into() })?;
    Ok((u64::from_le_bytes(*position), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_positions_rise_beyond_four_gigabytes() {
        assert_eq!(extend_position(4, 256), 256);
        assert_eq!(extend_position(0xffff_fff0, 0x10), 0x1_0000_0010);
        assert_eq!(extend_position(0x1_0000_0010, 0x20), 0x1_0000_0020);
        // A small step backwards is not a wrap: a relay log may repeat events.
        assert_eq!(extend_position(1000, 900), 900);
    }
}
