//! Measures how fast the archive writes and reads events:
//! `cargo run --release -p spate-archive --example throughput [MiB]`.
//!
//! The events are like those of an OLTP load: small transactions of a GTID, a table map, a rows event and an XID.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use spate_archive::{
    Archive, ArchiveWriter, DirectoryOptions, ReadOptions, RealFileSystem, Result, Seek, SyncPolicy, WriterOptions,
};
use spate_binlog::checksum::append_crc32;
use spate_binlog::header::HEADER_LENGTH;
use spate_binlog::{ChecksumAlgorithm, EventHeader, EventType, FILE_MAGIC, FormatDescription};

fn main() -> Result<()> {
    let megabytes: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(500);
    let dir = std::env::temp_dir().join(format!("spate-throughput-{}", std::process::id()));
    let result = measure(&dir, megabytes << 20);
    // Remove the directory also after an error. An error of the measurement is reported before one of the removal.
    let _ = std::fs::remove_dir_all(&dir);
    result
}

fn measure(dir: &Path, bytes: usize) -> Result<()> {
    let options = WriterOptions { sync: SyncPolicy::Os, ..WriterOptions::default() };
    let mut writer = ArchiveWriter::open(Arc::new(RealFileSystem), dir, options.clone())?;
    let (format, events) = events(bytes);
    report("write", bytes, || {
        writer.begin_file("bin.000001", &format)?;
        for (count, event) in events.iter().enumerate() {
            writer.append(event)?;
            if count % 1000 == 0 {
                writer.flush()?;
            }
        }
        writer.flush()
    })?;
    drop(events);
    let archive = writer.archive().clone();
    report("read, verified", bytes, || read(&archive, &Seek::Earliest))?;
    report("seek to the last tenth", bytes / 10, || {
        read(&archive, &Seek::Seqno(archive.tail().received().seqno / 10 * 9))
    })?;
    report("sync", bytes, || writer.sync())?;
    drop(writer);
    report("recover", bytes, || ArchiveWriter::open(Arc::new(RealFileSystem), dir, options).map(drop))?;
    std::fs::remove_file(dir.join("archive.list")).map_err(|source| spate_archive::Error::Io {
        action: "remove",
        path: dir.join("archive.list"),
        source,
    })?;
    report("open as a directory", bytes, || {
        Archive::open(Arc::new(RealFileSystem), dir, DirectoryOptions::default()).map(drop)
    })
}

fn read(archive: &Archive, seek: &Seek) -> Result<()> {
    let mut reader = archive.reader(seek, ReadOptions::default())?;
    let mut bytes = 0;
    while let Some(event) = reader.next_event()? {
        bytes += std::hint::black_box(event.body).len();
    }
    std::hint::black_box(bytes);
    Ok(())
}

fn report(what: &str, bytes: usize, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    work()?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{what:24} {:8.1} MB/s ({seconds:.3} s)", bytes as f64 / 1e6 / seconds);
    Ok(())
}

fn events(bytes: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let format = FormatDescription {
        server_version: "10.11.19-MariaDB".into(),
        created_seconds: 0,
        post_header_lengths: vec![0; 171],
        checksum: ChecksumAlgorithm::Crc32,
    };
    let format = format.encode(1, ChecksumAlgorithm::Crc32);
    let mut events = Vec::new();
    let mut position = FILE_MAGIC.len() + format.len();
    let mut sequence = 0u64;
    while position < bytes {
        sequence += 1;
        let gtid = [&sequence.to_le_bytes()[..], &[0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0]].concat();
        let bodies = [
            (EventType::GTID_MARIADB, gtid),
            (EventType::TABLE_MAP, vec![1; 40]),
            (EventType::UPDATE_ROWS_V1, vec![2; 420]),
            (EventType::TABLE_MAP, vec![1; 40]),
            (EventType::WRITE_ROWS_V1, vec![2; 220]),
            (EventType::XID, vec![0; 8]),
        ];
        for (event_type, body) in bodies {
            let event_length = (HEADER_LENGTH + body.len() + 4) as u32;
            position += event_length as usize;
            let next_position = position as u32;
            let header =
                EventHeader { timestamp_seconds: 1, event_type, server_id: 1, event_length, next_position, flags: 0 };
            let mut event = header.encode().to_vec();
            event.extend_from_slice(&body);
            append_crc32(&mut event);
            events.push(event);
        }
    }
    (format, events)
}
