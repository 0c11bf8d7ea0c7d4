//! The archive on a healthy disk: a reader reads the written events, from any place.
// A helper of a test may unwrap as the test itself may.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use spate_archive::test_source::SourceFile;
use spate_archive::{Archive, Error, FileSystem, ReadOptions, Seek, SyncPolicy, Waited};
use spate_binlog::GtidPosition;
use support::faulty::FaultyFileSystem;
use support::{DIR, open, seqnos, transactions};

/// Two files: 1–4 in the first, 5–7 in the second; domain 1 is active in 3 and 6.
fn two_files() -> [SourceFile; 2] {
    let mut first = SourceFile::new("bin.000001", &GtidPosition::default());
    first.transaction("0-1-1", 100);
    first.statement("0-1-2", "CREATE TABLE t (a INT PRIMARY KEY)");
    first.transaction("1-1-1", 10);
    first.transaction("0-1-3", 5000);
    first.rotate("bin.000002");
    let mut second = SourceFile::new("bin.000002", &first.position);
    second.timestamp = first.timestamp;
    second.transaction("0-1-4", 100);
    second.transaction("1-1-2", 100);
    second.transaction("0-1-5", 100);
    [first, second]
}

fn archive_of(files: &[SourceFile]) -> (FaultyFileSystem, spate_archive::ArchiveWriter) {
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Always).unwrap();
    for file in files {
        file.send(&mut writer).unwrap();
    }
    writer.flush().unwrap();
    (fs, writer)
}

#[test]
fn file_received_from_its_beginning_equals_the_sources() {
    let files = two_files();
    let (fs, writer) = archive_of(&files);
    for file in &files {
        assert_eq!(fs.read(&Path::new(DIR).join(&file.name)).unwrap(), file.bytes);
    }
    let end = writer.end();
    assert_eq!((end.seqno, &*end.source_file, end.source_position), (7, "bin.000002", files[1].bytes.len() as u64));
    assert_eq!(end.gtid_position.to_string(), "0-1-5,1-1-2");
    assert!(end.gtid_position_known);
    assert_eq!(end.last_gtid.unwrap().to_string(), "0-1-5");
    assert_eq!(writer.archive().tail().durable().seqno, 7);
}

#[test]
fn reader_begins_at_any_seek() {
    let files = two_files();
    let (_, writer) = archive_of(&files);
    let archive = writer.archive();
    assert_eq!(seqnos(archive, &Seek::Earliest), [1, 2, 3, 4, 5, 6, 7]);
    for seqno in 1..=8 {
        assert_eq!(seqnos(archive, &Seek::Seqno(seqno)), (seqno..=7).collect::<Vec<_>>());
    }
    let after = |text: &str| seqnos(archive, &Seek::AfterGtid(text.parse().unwrap()));
    assert_eq!(after(""), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(after("0-1-2"), [3, 4, 5, 6, 7]);
    assert_eq!(after("0-1-2,1-1-1"), [4, 5, 6, 7]);
    assert_eq!(after("0-1-4"), [3, 6, 7]);
    assert_eq!(after("0-1-3,1-1-1"), [5, 6, 7]);
    assert_eq!(after("0-1-5,1-1-1"), [6]);
    assert_eq!(after("0-1-9,1-1-9"), [0; 0]);
    let mut seqno = 0;
    for file in &files {
        for &(offset, _) in &file.transactions {
            seqno += 1;
            let seek = Seek::Source { file: file.name.clone(), position: offset as u64 };
            assert_eq!(seqnos(archive, &seek), (seqno..=7).collect::<Vec<_>>(), "{seek:?}");
        }
        let seek = Seek::Source { file: file.name.clone(), position: 4 };
        assert_eq!(seqnos(archive, &seek).len(), if file.name == "bin.000001" { 7 } else { 3 });
        let seek = Seek::Source { file: file.name.clone(), position: file.bytes.len() as u64 };
        assert_eq!(seqnos(archive, &seek).len(), if file.name == "bin.000001" { 3 } else { 0 });
    }
}

#[test]
fn seek_to_a_missing_place_is_an_error() {
    let files = two_files();
    let (_, writer) = archive_of(&files);
    let archive = writer.archive();
    let source = |file: &str, position| Seek::Source { file: file.into(), position };
    for (seek, text) in [
        (Seek::Seqno(0), "its transactions end at 7"),
        (Seek::Seqno(9), "its transactions end at 7"),
        (source("bin.000009", 4), "it reaches from bin.000001 to bin.000002"),
        (source("bin.000002", 1 << 30), "it ends at bin.000002:"),
        (
            source("bin.000001", files[0].transactions[1].0 as u64 + 1),
            "no transaction or event between two of them that begins there",
        ),
    ] {
        let error = transactions(archive, &seek).unwrap_err();
        assert!(matches!(error, Error::NoSuchPlace { .. }), "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn reader_with_small_blocks_reads_the_same_and_refuses_too_large_events() {
    let files = two_files();
    let (_, writer) = archive_of(&files);
    let expected = transactions(writer.archive(), &Seek::Earliest).unwrap();
    for block_bytes in [1, 19, 20, 100, 4096] {
        let options = ReadOptions { block_bytes, event_bytes_max: 1 << 20 };
        assert_eq!(support::transactions_with(writer.archive(), &Seek::Earliest, options).unwrap(), expected);
    }
    let options = ReadOptions { block_bytes: 100, event_bytes_max: 1000 };
    let error = support::transactions_with(writer.archive(), &Seek::Earliest, options).unwrap_err();
    assert!(matches!(error, Error::EventTooLarge { length: 5023, maximum: 1000, .. }), "{error}");
    assert!(error.to_string().contains("bin.000001 at offset"), "{error}");
}

#[test]
fn transaction_is_found_by_seqno_with_and_without_an_index() {
    let files = two_files();
    let (fs, mut writer) = archive_of(&files);
    writer.sync().unwrap();
    let find = |archive: &Archive| (1..=7).map(|seqno| archive.transaction(seqno).unwrap()).collect::<Vec<_>>();
    let found = find(writer.archive());
    let starts = files.iter().flat_map(|file| file.transactions.iter());
    for (record, &(offset, gtid)) in found.iter().zip(starts) {
        assert_eq!((record.offset, record.gtid), (offset as u64, Some(gtid)));
        assert!(
            record.length > 0 && record.source_end_position == record.end() && record.commit_seconds > 1_700_000_000
        );
    }
    for name in ["bin.000001.index", "bin.000002.index"] {
        fs.delete(&Path::new(DIR).join(name));
    }
    assert_eq!(find(writer.archive()), found);
    assert!(writer.archive().transaction(8).is_err());
    assert!(writer.archive().transaction(0).is_err());
}

#[test]
fn second_writer_is_refused() {
    let (fs, writer) = archive_of(&two_files());
    let error = open(&fs.shared(), SyncPolicy::Os).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    drop(writer);
    open(&fs.shared(), SyncPolicy::Os).unwrap();
}

#[test]
fn second_writer_on_the_real_file_system_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let fs: Arc<dyn FileSystem> = Arc::new(spate_archive::RealFileSystem);
    let options = || support::options(SyncPolicy::Always);
    let mut writer = spate_archive::ArchiveWriter::open(Arc::clone(&fs), dir.path(), options()).unwrap();
    two_files()[0].send(&mut writer).unwrap();
    writer.flush().unwrap();
    let second = spate_archive::ArchiveWriter::open(Arc::clone(&fs), dir.path(), options());
    assert!(matches!(second, Err(Error::Locked { .. })));
    drop(writer);
    let writer = spate_archive::ArchiveWriter::open(fs, dir.path(), options()).unwrap();
    assert_eq!(seqnos(writer.archive(), &Seek::Earliest), [1, 2, 3, 4]);
}

#[test]
fn transaction_is_visible_once_whole_and_flushed() {
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Os).unwrap();
    let file = &two_files()[0];
    let archive: Archive = writer.archive().clone();
    let mut reader = archive.reader(&Seek::Earliest, ReadOptions::default()).unwrap();
    writer.begin_file(&file.name, file.format_event()).unwrap();
    let mut seen = 0;
    for event in file.events_from(0) {
        writer.append(event).unwrap();
        assert!(reader.next_event().unwrap().is_none());
        writer.flush().unwrap();
        while let Some(event) = reader.next_event().unwrap() {
            seen = event.seqno;
        }
        assert_eq!(seen, writer.end().seqno);
        assert_eq!(archive.tail().received().seqno, seen);
        assert_eq!(archive.tail().durable().seqno, 0);
    }
    assert_eq!(reader.wait(Duration::from_millis(1)), Waited::TimedOut);
    writer.sync().unwrap();
    assert_eq!(archive.tail().durable().seqno, 4);
    drop(writer);
    assert_eq!(reader.wait(Duration::from_secs(60)), Waited::Closed);
}

/// An earlier file whose last transaction has no end, although every event is sound. No crash leaves this, but a person
/// may.
#[test]
fn transaction_without_an_end_before_others_is_damage() {
    let files = two_files();
    let mut longer = files[0].clone();
    let (events, end) = (longer.events.len(), longer.bytes.len());
    longer.transaction("0-1-9", 100);
    let cut = longer.events[events + 3];
    let torn = longer.bytes[..cut].to_vec();
    // A format description of a restarted source drops a transaction only at a file's beginning.
    longer.bytes.truncate(cut);
    longer.format(1);
    longer.transaction("0-1-10", 100);
    for bytes in [torn, longer.bytes] {
        let (fs, writer) = archive_of(&files);
        drop(writer);
        fs.overwrite(&Path::new(DIR).join("bin.000001"), bytes);
        let writer = open(&fs.shared(), SyncPolicy::Always).unwrap();
        match transactions(writer.archive(), &Seek::Earliest) {
            Err(Error::Corrupt { path, offset, .. }) => {
                assert!(path.ends_with("bin.000001") && offset > end as u64, "{} {offset}", path.display());
            }
            other => panic!("{other:?}"),
        }
    }
}
