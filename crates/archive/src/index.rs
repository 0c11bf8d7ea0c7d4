//! The sidecar index of a binlog file: one fixed-size record per transaction.
//!
//! The index is a convenience and a witness, never the truth: it can always be rebuilt from the binlog file. It is not
//! synced. A record whose `durable` bit is set was written after the fsync that covered its transaction had returned, so
//! recovery knows from it which bytes a power cut cannot excuse.
//!
//! Layout (little endian). Header, 64 bytes: magic `SPATEIDX`, version u32, record length u32, first seqno u64, zeros, CRC32
//! of the 60 bytes before it. Record, 64 bytes: seqno, offset, length, source end position, GTID sequence (u64 each), GTID
//! domain, GTID server, commit seconds, flags, zero, CRC32 of the 60 bytes before it (u32 each).

use std::path::{Path, PathBuf};

use spate_binlog::Gtid;

use crate::fs::{FileHandle, FileSystem};
use crate::{Error, Result};

/// Bytes of a record, and of the header.
pub(crate) const RECORD_LENGTH: usize = 64;
const MAGIC: [u8; 8] = *b"SPATEIDX";
const VERSION: u32 = 1;
const FLAG_GTID: u32 = 1;
const FLAG_DURABLE: u32 = 2;
const CRC_OFFSET: usize = RECORD_LENGTH - 4;

/// Where one transaction stands in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionRecord {
    /// Its ordinal in the archive, from 1.
    pub seqno: u64,
    /// Offset of its first event in the local file.
    pub offset: u64,
    /// Bytes from its first event to the end of its last.
    pub length: u64,
    /// The end of its last event in the source's file.
    pub source_end_position: u64,
    /// Its GTID, if it has one.
    pub gtid: Option<Gtid>,
    /// When it committed, in seconds since 1970, by the source's clock: the time stamp of its last event.
    pub commit_seconds: u32,
}

impl TransactionRecord {
    /// Offset behind its last event in the local file.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    fn encode(&self, durable: bool) -> [u8; RECORD_LENGTH] {
        let gtid = self.gtid.unwrap_or(Gtid { domain_id: 0, server_id: 0, sequence: 0 });
        let flags = if self.gtid.is_some() { FLAG_GTID } else { 0 } | if durable { FLAG_DURABLE } else { 0 };
        let mut bytes = [0; RECORD_LENGTH];
        let longs = [self.seqno, self.offset, self.length, self.source_end_position, gtid.sequence];
        for (slot, value) in bytes[..40].chunks_exact_mut(8).zip(longs) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
        let words = [gtid.domain_id, gtid.server_id, self.commit_seconds, flags];
        for (slot, value) in bytes[40..56].chunks_exact_mut(4).zip(words) {
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
        let flags = word(bytes, 52);
        let gtid = Gtid { domain_id: word(bytes, 40), server_id: word(bytes, 44), sequence: long(bytes, 32) };
        let record = TransactionRecord {
            seqno: long(bytes, 0),
            offset: long(bytes, 8),
            length: long(bytes, 16),
            source_end_position: long(bytes, 24),
            gtid: (flags & FLAG_GTID != 0).then_some(gtid),
            commit_seconds: word(bytes, 48),
        };
        Some((record, flags & FLAG_DURABLE != 0))
    }
}

/// What could be read of an index: the records up to the first one that is damaged or out of order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadedIndex {
    pub(crate) records: Vec<TransactionRecord>,
    /// The end of the last transaction known to be on disk when its record was written; 0 if none is.
    pub(crate) durable_end: u64,
    /// False if the file is missing, or holds anything beyond `records`.
    pub(crate) is_clean: bool,
}

/// Name of the index of the binlog file at `path`.
pub(crate) fn index_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".index");
    PathBuf::from(name)
}

/// Reads the index of `binlog`. Whatever is wrong with it only makes the result shorter.
pub(crate) fn load_index(fs: &dyn FileSystem, binlog: &Path, first_seqno: u64) -> LoadedIndex {
    let mut loaded = LoadedIndex::default();
    let Ok(file) = fs.open_read(&index_path(binlog)) else { return loaded };
    let Ok(length) = file.length() else { return loaded };
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    let Ok(filled) = file.read_at(0, &mut bytes) else { return loaded };
    bytes.truncate(filled);
    let Some((head, tail)) = bytes.split_first_chunk::<RECORD_LENGTH>() else { return loaded };
    if *head != header(first_seqno) {
        return loaded;
    }
    let (chunks, rest) = tail.as_chunks::<RECORD_LENGTH>();
    let mut end = 0;
    for chunk in chunks {
        let Some((record, durable)) = TransactionRecord::decode(chunk) else { return loaded };
        if record.seqno != first_seqno + loaded.records.len() as u64 || record.offset < end {
            return loaded;
        }
        end = record.end();
        if durable {
            loaded.durable_end = end;
        }
        loaded.records.push(record);
    }
    loaded.is_clean = rest.is_empty();
    loaded
}

/// Writes the index of one binlog file, record after record.
#[derive(Debug)]
pub(crate) struct IndexWriter {
    file: Box<dyn FileHandle>,
    path: PathBuf,
    length: u64,
}

impl IndexWriter {
    /// Begins the index of `binlog` anew.
    pub(crate) fn create(fs: &dyn FileSystem, binlog: &Path, first_seqno: u64) -> Result<IndexWriter> {
        let path = index_path(binlog);
        let file = fs.create(&path).map_err(Error::write(&path, 0))?;
        file.write_at(0, &header(first_seqno)).map_err(Error::write(&path, 0))?;
        Ok(IndexWriter { file, path, length: RECORD_LENGTH as u64 })
    }

    /// Goes on with an index that was loaded clean and holds `records` records.
    pub(crate) fn resume(fs: &dyn FileSystem, binlog: &Path, records: usize) -> Result<IndexWriter> {
        let path = index_path(binlog);
        let file = fs.open_write(&path).map_err(Error::io("open", &path))?;
        Ok(IndexWriter { file, path, length: ((records + 1) * RECORD_LENGTH) as u64 })
    }

    /// Adds records. After an error nothing counts as added, and the same call may be repeated.
    pub(crate) fn append(&mut self, records: &[TransactionRecord], durable: bool) -> Result<()> {
        let mut bytes = Vec::with_capacity(records.len() * RECORD_LENGTH);
        for record in records {
            bytes.extend_from_slice(&record.encode(durable));
        }
        self.file.write_at(self.length, &bytes).map_err(Error::write(&self.path, self.length))?;
        self.length += bytes.len() as u64;
        Ok(())
    }
}

fn header(first_seqno: u64) -> [u8; RECORD_LENGTH] {
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
    word(bytes, CRC_OFFSET) == crc32fast::hash(&bytes[..CRC_OFFSET])
}

fn word(bytes: &[u8; RECORD_LENGTH], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8; RECORD_LENGTH], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}
