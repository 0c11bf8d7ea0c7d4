//! Binlog files as a MariaDB source would write and send them.
#![allow(missing_docs, clippy::unwrap_used, reason = "for tests")]

use crate::{ArchiveWriter, Result};
use spate_binlog::checksum::append_crc32;
use spate_binlog::header::{FLAG_ARTIFICIAL, HEADER_LENGTH};
use spate_binlog::{
    ChecksumAlgorithm, EventHeader, EventType, FormatDescription, Gtid, GtidEvent, GtidPosition, MariaDbGtid,
};

/// One binlog file of a made-up source.
#[derive(Debug, Clone)]
pub struct SourceFile {
    pub name: String,
    pub checksum: ChecksumAlgorithm,
    pub server_id: u32,
    /// The file's content on the source's disk.
    pub bytes: Vec<u8>,
    /// The offset in `bytes` at which each event begins.
    pub events: Vec<usize>,
    /// The offset at which each transaction begins, and its GTID.
    pub transactions: Vec<(usize, Gtid)>,
    pub timestamp: u32,
    pub position: GtidPosition,
}

impl SourceFile {
    pub fn new(name: &str, position: &GtidPosition) -> SourceFile {
        SourceFile::with_checksum(name, position, ChecksumAlgorithm::Crc32)
    }

    pub fn with_checksum(name: &str, position: &GtidPosition, checksum: ChecksumAlgorithm) -> SourceFile {
        let mut file = SourceFile {
            name: name.into(),
            checksum,
            server_id: 1,
            bytes: spate_binlog::FILE_MAGIC.to_vec(),
            events: Vec::new(),
            transactions: Vec::new(),
            timestamp: 1_700_000_000,
            position: position.clone(),
        };
        file.format(0);
        file.gtid_list();
        file
    }

    pub fn format(&mut self, created_seconds: u32) {
        let mut post_header_lengths = vec![0; 171];
        post_header_lengths[14] = 57 + 171;
        let format = FormatDescription {
            server_version: "10.11.19-MariaDB-log".into(),
            created_seconds,
            post_header_lengths,
            checksum: self.checksum,
        };
        let mut event = format.encode(self.server_id, self.checksum);
        event.truncate(event.len() - 4);
        let end = (self.bytes.len() + event.len() + 4) as u32;
        event[13..17].copy_from_slice(&end.to_le_bytes());
        append_crc32(&mut event);
        self.events.push(self.bytes.len());
        self.bytes.extend_from_slice(&event);
    }

    pub fn event(&mut self, event_type: EventType, body: &[u8]) {
        let event = make_event(event_type, self.server_id, self.timestamp, self.bytes.len(), body, self.checksum, 0);
        self.events.push(self.bytes.len());
        self.bytes.extend_from_slice(&event);
    }

    pub fn gtid_list(&mut self) {
        let gtids: Vec<MariaDbGtid> = self.position.domains().collect();
        let mut body = (gtids.len() as u32).to_le_bytes().to_vec();
        for gtid in gtids {
            body.extend_from_slice(&gtid.domain_id.to_le_bytes());
            body.extend_from_slice(&gtid.server_id.to_le_bytes());
            body.extend_from_slice(&gtid.sequence.to_le_bytes());
        }
        self.event(EventType::GTID_LIST, &body);
    }

    pub fn gtid(&mut self, gtid: MariaDbGtid, flags: u8) {
        self.transactions.push((self.bytes.len(), Gtid::MariaDb(gtid)));
        let mut body = gtid.sequence.to_le_bytes().to_vec();
        body.extend_from_slice(&gtid.domain_id.to_le_bytes());
        body.push(flags);
        body.extend_from_slice(&[0; 6]);
        self.server_id = gtid.server_id;
        self.event(EventType::GTID_MARIADB, &body);
        self.position.advance(Gtid::MariaDb(gtid));
    }

    /// GTID, some rows, XID.
    pub fn transaction(&mut self, gtid: &str, row_bytes: usize) {
        self.timestamp += 1;
        self.gtid(gtid.parse().unwrap(), GtidEvent::TRANSACTIONAL);
        let fill = (self.timestamp % 251) as u8;
        self.event(EventType::TABLE_MAP, &[fill; 30]);
        self.event(EventType::WRITE_ROWS_V1, &vec![fill; row_bytes]);
        self.event(EventType::XID, &7u64.to_le_bytes());
    }

    /// GTID and one statement.
    pub fn statement(&mut self, gtid: &str, statement: &str) {
        self.timestamp += 1;
        self.gtid(gtid.parse().unwrap(), GtidEvent::STANDALONE | GtidEvent::DDL);
        let mut body = vec![0; 8];
        body.push(4);
        body.extend_from_slice(&[0; 4]);
        body.extend_from_slice(b"test\0");
        body.extend_from_slice(statement.as_bytes());
        self.event(EventType::QUERY, &body);
    }

    pub fn rotate(&mut self, next: &str) {
        let mut body = 4u64.to_le_bytes().to_vec();
        body.extend_from_slice(next.as_bytes());
        self.event(EventType::ROTATE, &body);
    }

    /// Bytes of the format description event.
    pub fn format_event(&self) -> &[u8] {
        self.event_at(0)
    }

    /// Bytes of the event with that number.
    pub fn event_at(&self, number: usize) -> &[u8] {
        let end = self.events.get(number + 1).copied().unwrap_or(self.bytes.len());
        &self.bytes[self.events[number]..end]
    }

    /// The events after the format description that begin at or after `offset`.
    pub fn events_from(&self, offset: usize) -> impl Iterator<Item = &[u8]> {
        (1..self.events.len()).filter(move |&number| self.events[number] >= offset).map(|number| self.event_at(number))
    }

    /// Sends the whole file.
    pub fn send(&self, writer: &mut ArchiveWriter) -> Result<()> {
        writer.begin_file(&self.name, self.format_event())?;
        for event in self.events_from(0) {
            writer.append(event)?;
        }
        Ok(())
    }

    /// Sends the file as to a replica that connects with a GTID position: the head, then the events at or after
    /// `offset`.
    pub fn send_head_and_from(&self, writer: &mut ArchiveWriter, offset: usize) -> Result<()> {
        writer.begin_file(&self.name, self.format_event())?;
        let first = self.transactions.first().map_or(usize::MAX, |&(begin, _)| begin);
        for number in 1..self.events.len() {
            if self.events[number] < first || self.events[number] >= offset {
                writer.append(self.event_at(number))?;
            }
        }
        Ok(())
    }
}

/// Makes an event whose header gives the offset right after it as the next position.
pub fn make_event(
    event_type: EventType,
    server_id: u32,
    timestamp_seconds: u32,
    offset: usize,
    body: &[u8],
    checksum: ChecksumAlgorithm,
    flags: u16,
) -> Vec<u8> {
    let length = HEADER_LENGTH + body.len() + checksum.trailer_length();
    let is_artificial = flags & FLAG_ARTIFICIAL != 0;
    let header = EventHeader {
        timestamp_seconds,
        event_type,
        server_id,
        event_length: length as u32,
        next_position: if is_artificial { 0 } else { (offset + length) as u32 },
        flags,
    };
    let mut event = header.encode().to_vec();
    event.extend_from_slice(body);
    if checksum == ChecksumAlgorithm::Crc32 {
        append_crc32(&mut event);
    }
    event
}
