//! The sidecar index of a binlog file: one fixed-size record per transaction.
//!
//! The index is never the truth: it can always be rebuilt from the binlog file. It is not synced. A record whose
//! `durable` bit is set was written after the fsync that covered its transaction had returned. So recovery knows that a
//! crash cannot have lost the bytes of that transaction, nor those before it.
//!
//! Layout (little endian). Header, as long as a record: magic `SPATEIDX`, version u32, record length u32, first seqno
//! u64, zeros, CRC32 of the bytes before it. Record, 112 bytes: seqno, offset, length, source end position, GTID number
//! (u64 each), commit seconds, flags (u32 each), origin of the GTID (60 bytes: on MariaDB domain and server, u32 each;
//! on MySQL the UUID, the tag's length, u8, and the tag), CRC32 of the 108 bytes before it.

use std::path::{Path, PathBuf};

use spate_binlog::gtid::Origin;
use spate_binlog::{Gtid, MariaDbGtid, MySqlGtid};

use crate::fs::{FileHandle, FileSystem};
use crate::names::INDEX_SUFFIX;
use crate::stopping::stopping_point;
use crate::{Error, Result};

/// Bytes of a record, and of the header.
pub(crate) const RECORD_LENGTH: usize = 112;
const MAGIC: [u8; 8] = *b"SPATEIDX";
const VERSION: u32 = 2;
const FLAG_MARIADB: u32 = 1;
const FLAG_DURABLE: u32 = 2;
const FLAG_MYSQL: u32 = 4;
/// The offset of the GTID's origin in a record.
const ORIGIN_OFFSET: usize = 48;
/// The offset of a tag in a record, after a UUID and the tag's length.
const TAG_OFFSET: usize = ORIGIN_OFFSET + 16 + 1;
const CRC_OFFSET: usize = RECORD_LENGTH - 4;

/// The place of one transaction in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionRecord {
    /// The transaction's ordinal in the archive, from 1.
    pub seqno: u64,
    /// The offset of its first event in the local file.
    pub offset: u64,
    /// Bytes from its first event to the end of its last.
    pub length: u64,
    /// The end of its last event in the source's file.
    pub source_end_position: u64,
    /// Its GTID; `None` if the source gave it none.
    pub gtid: Option<Gtid>,
    /// When it committed, in seconds since 1970, by the source's clock: the time stamp of its last event.
    pub commit_seconds: u32,
}

impl TransactionRecord {
    /// The offset after its last event in the local file.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    fn encode(&self, durable: bool) -> [u8; RECORD_LENGTH] {
        let mut bytes = [0; RECORD_LENGTH];
        let number = self.gtid.map_or(0, |gtid| gtid.number());
        let longs = [self.seqno, self.offset, self.length, self.source_end_position, number];
        for (slot, value) in bytes[..40].chunks_exact_mut(8).zip(longs) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
        let vendor = match self.gtid {
            None => 0,
            Some(Gtid::MariaDb(gtid)) => {
                bytes[ORIGIN_OFFSET..ORIGIN_OFFSET + 4].copy_from_slice(&gtid.domain_id.to_le_bytes());
                bytes[ORIGIN_OFFSET + 4..ORIGIN_OFFSET + 8].copy_from_slice(&gtid.server_id.to_le_bytes());
                FLAG_MARIADB
            }
            Some(Gtid::MySql(gtid)) => {
                let tag = gtid.origin.tag().as_bytes();
                bytes[ORIGIN_OFFSET..TAG_OFFSET - 1].copy_from_slice(gtid.origin.uuid());
                bytes[TAG_OFFSET - 1] = tag.len() as u8;
                bytes[TAG_OFFSET..TAG_OFFSET + tag.len()].copy_from_slice(tag);
                FLAG_MYSQL
            }
        };
        let words = [self.commit_seconds, vendor | if durable { FLAG_DURABLE } else { 0 }];
        for (slot, value) in bytes[40..ORIGIN_OFFSET].chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
        seal(&mut bytes);
        bytes
    }

    /// The record and its durable bit; `None` if the bytes are not those of a record.
    fn decode(bytes: &[u8; RECORD_LENGTH]) -> Option<(TransactionRecord, bool)> {
        if !is_sealed(bytes) {
            return None;
        }
        let (number, flags) = (read_u64(bytes, 32), read_u32(bytes, 44));
        let gtid = match flags & (FLAG_MARIADB | FLAG_MYSQL) {
            FLAG_MARIADB => {
                let (domain_id, server_id) = (read_u32(bytes, ORIGIN_OFFSET), read_u32(bytes, ORIGIN_OFFSET + 4));
                Some(Gtid::MariaDb(MariaDbGtid { domain_id, server_id, sequence: number }))
            }
            FLAG_MYSQL => {
                let uuid = *bytes[ORIGIN_OFFSET..].first_chunk()?;
                let tag = bytes[TAG_OFFSET..CRC_OFFSET].get(..usize::from(bytes[TAG_OFFSET - 1]))?;
                Some(Gtid::MySql(MySqlGtid { origin: Origin::new(uuid, tag).ok()?, number }))
            }
            _ => None,
        };
        let record = TransactionRecord {
            seqno: read_u64(bytes, 0),
            offset: read_u64(bytes, 8),
            length: read_u64(bytes, 16),
            source_end_position: read_u64(bytes, 24),
            gtid,
            commit_seconds: read_u32(bytes, 40),
        };
        Some((record, flags & FLAG_DURABLE != 0))
    }
}

/// The path of the index of the binlog file at `path`.
pub(crate) fn index_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(INDEX_SUFFIX);
    PathBuf::from(name)
}

/// Reads the last record of the index of `binlog`; `None` if it is damaged or does not fit its place among the records.
pub(crate) fn last_record(fs: &dyn FileSystem, binlog: &Path, first_seqno: u64) -> Option<TransactionRecord> {
    let file = fs.open_read(&index_path(binlog)).ok()?;
    let records = (file.length().ok()? / RECORD_LENGTH as u64).checked_sub(1)?;
    record_at(&*file, first_seqno, first_seqno + records.checked_sub(1)?)
}

/// Reads the record of transaction `seqno` in the index of `binlog`; `None` if the index does not have it.
pub(crate) fn find_record(
    fs: &dyn FileSystem,
    binlog: &Path,
    first_seqno: u64,
    seqno: u64,
) -> Option<TransactionRecord> {
    record_at(&*fs.open_read(&index_path(binlog)).ok()?, first_seqno, seqno)
}

fn record_at(file: &dyn FileHandle, first_seqno: u64, seqno: u64) -> Option<TransactionRecord> {
    let mut bytes = [0; RECORD_LENGTH];
    let slot = seqno.checked_sub(first_seqno)?.checked_add(1)?;
    let filled = file.read_at(slot.checked_mul(RECORD_LENGTH as u64)?, &mut bytes).ok()?;
    let (record, _) = TransactionRecord::decode(&bytes).filter(|_| filled == RECORD_LENGTH)?;
    (record.seqno == seqno).then_some(record)
}

/// True if the index of `binlog`, a file of `length` bytes with that many transactions, has the right length, beginning and end.
/// Damage in between only costs a reader that meets it a walk through the file.
pub(crate) fn is_complete(
    fs: &dyn FileSystem,
    binlog: &Path,
    first_seqno: u64,
    transactions: u64,
    length: u64,
) -> bool {
    let Some(mut reader) = IndexReader::open(fs, binlog, first_seqno) else { return false };
    let has_length = reader.file.length().is_ok_and(|bytes| bytes == (transactions + 1) * RECORD_LENGTH as u64);
    if !has_length || transactions == 0 {
        return has_length;
    }
    let last = record_at(&*reader.file, first_seqno, first_seqno + transactions - 1);
    reader.next().is_some() && last.is_some_and(|record| record.end() <= length)
}

/// What was on disk when a record was written that says so. All before it in the file was, too.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Synced {
    /// Transactions, from the file's first on.
    pub(crate) transactions: usize,
    /// The end of the last; 0 if there is none.
    pub(crate) end: u64,
}

/// What the index of `binlog` says of what was synced.
pub(crate) fn synced(fs: &dyn FileSystem, binlog: &Path, first_seqno: u64) -> Synced {
    let records = IndexReader::open(fs, binlog, first_seqno).into_iter().flatten().enumerate();
    let last = records.filter(|(_, (_, durable))| *durable).last();
    last.map(|(index, (record, _))| Synced { transactions: index + 1, end: record.end() }).unwrap_or_default()
}

/// Reads an index from its beginning, up to the first record that is damaged or out of order: records and durable bits.
#[derive(Debug)]
pub(crate) struct IndexReader {
    file: Box<dyn FileHandle>,
    next_seqno: u64,
    /// End of the last record's transaction.
    end: u64,
    offset: u64,
    chunk: Vec<u8>,
    /// Bytes of `chunk` that were returned already.
    used: usize,
}

/// Records read at a time: 112 KiB.
const CHUNK_RECORDS: usize = 1024;

impl IndexReader {
    /// `None` if there is no such index.
    pub(crate) fn open(fs: &dyn FileSystem, binlog: &Path, first_seqno: u64) -> Option<IndexReader> {
        let file = fs.open_read(&index_path(binlog)).ok()?;
        let mut head = [0; RECORD_LENGTH];
        let filled = file.read_at(0, &mut head).ok()?;
        let is_index = filled == RECORD_LENGTH && head == encode_header(first_seqno);
        let offset = RECORD_LENGTH as u64;
        is_index.then_some(IndexReader { file, next_seqno: first_seqno, end: 0, offset, chunk: Vec::new(), used: 0 })
    }

    /// Goes on behind the first records, so many, of which this is the last.
    pub(crate) fn jump(&mut self, records: u64, last: &TransactionRecord) {
        self.offset = (records + 1) * RECORD_LENGTH as u64;
        (self.next_seqno, self.end) = (last.seqno + 1, last.end());
        self.chunk.clear();
        self.used = 0;
    }
}

impl Iterator for IndexReader {
    type Item = (TransactionRecord, bool);

    fn next(&mut self) -> Option<(TransactionRecord, bool)> {
        if self.used == self.chunk.len() {
            self.chunk.resize(CHUNK_RECORDS * RECORD_LENGTH, 0);
            let filled = self.file.read_at(self.offset, &mut self.chunk).unwrap_or(0);
            self.chunk.truncate(filled - filled % RECORD_LENGTH);
            self.offset += self.chunk.len() as u64;
            self.used = 0;
        }
        let bytes = self.chunk[self.used..].first_chunk::<RECORD_LENGTH>()?;
        let (record, durable) = TransactionRecord::decode(bytes)?;
        if record.seqno != self.next_seqno || record.offset < self.end {
            return None;
        }
        self.used += RECORD_LENGTH;
        self.next_seqno += 1;
        self.end = record.end();
        Some((record, durable))
    }
}

/// Writes the index of one binlog file.
#[derive(Debug)]
pub(crate) struct IndexWriter {
    file: Box<dyn FileHandle>,
    path: PathBuf,
    length: u64,
}

impl IndexWriter {
    /// Begins an empty index of `binlog`; truncates one that exists.
    pub(crate) fn create(fs: &dyn FileSystem, binlog: &Path, first_seqno: u64) -> Result<IndexWriter> {
        let path = index_path(binlog);
        let file = fs.create(&path).map_err(Error::write(&path, 0))?;
        file.write_at(0, &encode_header(first_seqno)).map_err(Error::write(&path, 0))?;
        Ok(IndexWriter { file, path, length: RECORD_LENGTH as u64 })
    }

    /// Continues an index whose first `records` records are right, and truncates the others.
    pub(crate) fn resume(fs: &dyn FileSystem, binlog: &Path, records: u64) -> Result<IndexWriter> {
        let path = index_path(binlog);
        let file = fs.open_write(&path).map_err(Error::io("open", &path))?;
        let length = (records + 1) * RECORD_LENGTH as u64;
        if file.length().map_err(Error::io("read", &path))? > length {
            file.truncate(length).map_err(Error::io("truncate", &path))?;
        }
        Ok(IndexWriter { file, path, length })
    }

    /// Adds records. After an error the same call may be repeated: it writes all of `records` again.
    pub(crate) fn append(&mut self, records: &[TransactionRecord], durable: bool) -> Result<()> {
        let mut bytes = Vec::with_capacity(records.len() * RECORD_LENGTH);
        for record in records {
            bytes.extend_from_slice(&record.encode(durable));
        }
        stopping_point("before-index-append");
        self.file.write_at(self.length, &bytes).map_err(Error::write(&self.path, self.length))?;
        self.length += bytes.len() as u64;
        stopping_point("after-index-append");
        Ok(())
    }
}

fn encode_header(first_seqno: u64) -> [u8; RECORD_LENGTH] {
    let mut bytes = [0; RECORD_LENGTH];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(RECORD_LENGTH as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&first_seqno.to_le_bytes());
    seal(&mut bytes);
    bytes
}

fn seal(bytes: &mut [u8; RECORD_LENGTH]) {
    let crc = crc32fast::hash(&bytes[..CRC_OFFSET]);
    bytes[CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
}

fn is_sealed(bytes: &[u8; RECORD_LENGTH]) -> bool {
    read_u32(bytes, CRC_OFFSET) == crc32fast::hash(&bytes[..CRC_OFFSET])
}

fn read_u32(bytes: &[u8; RECORD_LENGTH], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn read_u64(bytes: &[u8; RECORD_LENGTH], at: usize) -> u64 {
    u64::from(read_u32(bytes, at)) | u64::from(read_u32(bytes, at + 4)) << 32
}
