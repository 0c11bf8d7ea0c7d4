//! Support of the archive's tests: a builder of binlog files, and a file system that fails on demand.
#![allow(dead_code, unreachable_pub)]

pub mod faulty;
pub mod server;

use std::path::Path;
use std::sync::Arc;

use spate_archive::{Archive, ArchiveWriter, FileSystem, ReadOptions, Seek, SyncPolicy, WriterOptions};
use spate_binlog::Boundary;

pub const DIR: &str = "/archive";

pub fn options(sync: SyncPolicy) -> WriterOptions {
    WriterOptions { sync, ..WriterOptions::default() }
}

pub fn open(fs: &Arc<dyn FileSystem>, sync: SyncPolicy) -> spate_archive::Result<ArchiveWriter> {
    ArchiveWriter::open(Arc::clone(fs), Path::new(DIR), options(sync))
}

/// One transaction as a reader sees it: seqno, GTID, the bytes of its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub seqno: u64,
    pub gtid: String,
    pub bytes: Vec<u8>,
}

/// Reads all transactions from `seek` to the end.
pub fn transactions(archive: &Archive, seek: &Seek) -> spate_archive::Result<Vec<Seen>> {
    transactions_with(archive, seek, ReadOptions::default())
}

pub fn transactions_with(archive: &Archive, seek: &Seek, options: ReadOptions) -> spate_archive::Result<Vec<Seen>> {
    let mut reader = archive.reader(seek, options)?;
    let mut seen: Vec<Seen> = Vec::new();
    let mut is_open = false;
    while let Some(event) = reader.next_event()? {
        match event.boundary {
            Boundary::Begin | Boundary::Whole => {
                assert!(!is_open, "a transaction begins inside another");
                let gtid = event.gtid().map(|event| event.gtid.to_string()).unwrap_or_default();
                seen.push(Seen { seqno: event.seqno, gtid, bytes: event.bytes.to_vec() });
                is_open = event.boundary == Boundary::Begin;
            }
            Boundary::Inside | Boundary::End => {
                assert!(is_open, "an event of a transaction that has not begun");
                let last = seen.last_mut().unwrap();
                assert_eq!(last.seqno, event.seqno);
                last.bytes.extend_from_slice(event.bytes);
                is_open = event.boundary == Boundary::Inside;
            }
            Boundary::Outside => {}
        }
    }
    assert!(!is_open, "a transaction without its end was shown");
    Ok(seen)
}

pub fn seqnos(archive: &Archive, seek: &Seek) -> Vec<u64> {
    transactions(archive, seek).unwrap().iter().map(|seen| seen.seqno).collect()
}
