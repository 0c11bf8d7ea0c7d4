//! Unusual streams of a source: connections in the middle, repeated heads, gaps, clashing names. And readers beside the
//! writer, purges, and events that must be refused.
// A helper of a test may unwrap as the test itself may.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::time::Duration;

use spate_archive::test_source::{SourceFile, make_event};
use spate_archive::{
    Appended, Applied, ArchiveWriter, DirectoryOptions, Error, ReadOptions, Retention, Seek, SyncPolicy, Waited,
    WriterOptions,
};
use spate_binlog::header::FLAG_ARTIFICIAL;
use spate_binlog::{Boundary, ChecksumAlgorithm, EventType, GtidPosition};
use support::faulty::{Fault, FaultyFileSystem};
use support::{DIR, open, seqnos, transactions};

fn file_of(name: &str, sequences: std::ops::RangeInclusive<u64>, before: &GtidPosition) -> SourceFile {
    let mut file = SourceFile::new(name, before);
    file.timestamp += *sequences.start() as u32;
    for sequence in sequences {
        file.transaction(&format!("0-1-{sequence}"), 100);
    }
    file
}

fn names(writer: &ArchiveWriter) -> Vec<String> {
    writer.archive().files().iter().map(|file| file.name().to_string()).collect()
}

fn open_at(fs: &FaultyFileSystem, start: &str) -> ArchiveWriter {
    let start_position = Some(start.parse().unwrap());
    ArchiveWriter::open(fs.shared(), Path::new(DIR), WriterOptions { start_position, ..WriterOptions::default() })
        .unwrap()
}

#[test]
fn reconnect_within_a_file_continues_the_same_local_file() {
    let file = file_of("bin.000001", 1..=9, &GtidPosition::default());
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Os).unwrap();
    for next in 1..=9 {
        // The source sends two events of the next transaction, then the connection is lost.
        let offset = file.transactions[next - 1].0;
        let until = file.transactions.get(next).map_or(file.bytes.len(), |&(offset, _)| offset);
        writer.begin_file(&file.name, file.format_event()).unwrap();
        for number in 1..file.events.len() {
            let at = file.events[number];
            let is_head = at < file.transactions[0].0;
            if is_head || at >= offset && at < until {
                let appended = writer.append(file.event_at(number)).unwrap();
                assert_eq!(appended == Appended::AlreadyThere, is_head && next > 1);
            }
        }
        if next < 9 {
            writer.append(file.event_at(file.events.binary_search(&until).unwrap())).unwrap();
        }
        if next % 2 == 0 {
            writer.flush().unwrap();
        }
        assert_eq!(writer.discard_partial_transaction().unwrap(), next < 9);
        assert_eq!(writer.end().source_position, until as u64);
    }
    writer.flush().unwrap();
    assert_eq!(names(&writer), ["bin.000001"]);
    assert_eq!(fs.read(&Path::new(DIR).join("bin.000001")).unwrap(), file.bytes);
}

#[test]
fn repeated_end_of_the_file_before_is_followed() {
    let mut first = file_of("bin.000001", 1..=3, &GtidPosition::default());
    first.rotate("bin.000002");
    let second = file_of("bin.000002", 4..=5, &first.position);
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Os).unwrap();
    first.send(&mut writer).unwrap();
    writer.begin_file(&second.name, second.format_event()).unwrap();
    writer.append(second.event_at(1)).unwrap();
    drop(writer);
    let mut writer = open(&fs.shared(), SyncPolicy::Os).unwrap();
    let rotate = *first.events.last().unwrap();
    first.send_head_and_from(&mut writer, rotate).unwrap();
    second.send(&mut writer).unwrap();
    writer.flush().unwrap();
    assert_eq!(names(&writer), ["bin.000001", "bin.000002"]);
    assert_eq!(seqnos(writer.archive(), &Seek::Earliest), [1, 2, 3, 4, 5]);
    assert_eq!(fs.read(&Path::new(DIR).join("bin.000002")).unwrap(), second.bytes);
}

#[test]
fn archive_begun_at_a_gtid_knows_its_beginning_and_resume_position() {
    let file = file_of("bin.000042", 1..=9, &GtidPosition::default());
    let fs = FaultyFileSystem::default();
    let mut writer = open_at(&fs, "0-1-4");
    file.send_head_and_from(&mut writer, file.transactions[4].0).unwrap();
    writer.sync().unwrap();
    for _ in 0..2 {
        let end = writer.end();
        assert_eq!((end.gtid_position.to_string(), end.gtid_position_known), ("0-1-9".into(), true));
        assert_eq!((end.seqno, end.source_position), (5, file.bytes.len() as u64));
        let archive = writer.archive();
        assert_eq!(seqnos(archive, &Seek::AfterGtid("0-1-4".parse().unwrap())), [1, 2, 3, 4, 5]);
        assert_eq!(seqnos(archive, &Seek::AfterGtid("0-1-6".parse().unwrap())), [3, 4, 5]);
        for missing in ["", "0-1-3", "1-1-9"] {
            let error = transactions(archive, &Seek::AfterGtid(missing.parse().unwrap())).unwrap_err();
            assert!(matches!(error, Error::BeginsAfter { .. }), "{error}");
            assert!(error.to_string().contains("begins at GTID position '0-1-4'"), "{error}");
        }
        let source = |position| Seek::Source { file: "bin.000042".into(), position };
        assert_eq!(seqnos(archive, &source(file.transactions[6].0 as u64)), [3, 4, 5]);
        let error = transactions(archive, &source(file.transactions[2].0 as u64)).unwrap_err();
        assert!(matches!(error, Error::NoSuchPlace { .. }), "{error}");
        drop(writer);
        writer = open_at(&fs, "0-1-4");
    }
    // The next connection repeats the head, which cannot be compared by offset here.
    let mut longer = file.clone();
    longer.transaction("0-1-10", 50);
    longer.send_head_and_from(&mut writer, longer.transactions[9].0).unwrap();
    writer.flush().unwrap();
    assert_eq!(names(&writer), ["bin.000042"]);
    assert_eq!(seqnos(writer.archive(), &Seek::Earliest), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn archive_with_unknown_start_position_compares_sequence_numbers() {
    let file = file_of("bin.000042", 1..=9, &GtidPosition::default());
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Os).unwrap();
    writer.begin_file(&file.name, file.format_event()).unwrap();
    for event in file.events_from(file.transactions[4].0) {
        writer.append(event).unwrap();
    }
    writer.flush().unwrap();
    assert!(!writer.end().gtid_position_known);
    assert_eq!(seqnos(writer.archive(), &Seek::AfterGtid("0-1-4".parse().unwrap())), [1, 2, 3, 4, 5]);
    assert_eq!(seqnos(writer.archive(), &Seek::AfterGtid("0-1-8".parse().unwrap())), [5]);
    let error = transactions(writer.archive(), &Seek::AfterGtid("0-1-3".parse().unwrap())).unwrap_err();
    assert!(matches!(error, Error::BeginsAfter { .. }), "{error}");
}

#[test]
fn other_source_with_the_same_file_name_gets_another_local_file() {
    let first = file_of("bin.000001", 1..=3, &GtidPosition::default());
    let mut other = SourceFile::new("bin.000001", &first.position);
    other.server_id = 2;
    other.transaction("0-2-4", 10);
    other.transaction("0-2-5", 10);
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Os).unwrap();
    first.send(&mut writer).unwrap();
    other.send(&mut writer).unwrap();
    writer.flush().unwrap();
    assert_eq!(names(&writer), ["bin.000001", "bin.000001.part2"]);
    drop(writer);
    let writer = open(&fs.shared(), SyncPolicy::Os).unwrap();
    assert_eq!(seqnos(writer.archive(), &Seek::Earliest), [1, 2, 3, 4, 5]);
    assert_eq!(seqnos(writer.archive(), &Seek::AfterGtid("0-2-4".parse().unwrap())), [5]);
    assert_eq!(fs.read(&Path::new(DIR).join("bin.000001.part2")).unwrap(), other.bytes);
}

#[test]
fn gap_between_transactions_begins_another_local_file() {
    let mut file = file_of("bin.000001", 1..=3, &GtidPosition::default());
    file.transaction("1-1-1", 10);
    file.transaction("0-1-4", 10);
    file.transaction("0-1-5", 10);
    let fs = FaultyFileSystem::default();
    let mut writer = open_at(&fs, "1-1-1");
    writer.begin_file(&file.name, file.format_event()).unwrap();
    let (gap, after) = (file.transactions[3].0, file.transactions[4].0);
    for number in 1..file.events.len() {
        if !(gap..after).contains(&file.events[number]) {
            writer.append(file.event_at(number)).unwrap();
        }
    }
    writer.flush().unwrap();
    assert_eq!(names(&writer), ["bin.000001", "bin.000001.part2"]);
    assert_eq!(fs.read(&Path::new(DIR).join("bin.000001")).unwrap(), file.bytes[..gap]);
    assert_eq!(writer.end().source_position, file.bytes.len() as u64);
    assert_eq!(seqnos(writer.archive(), &Seek::AfterGtid("0-1-3,1-1-1".parse().unwrap())), [4, 5]);
    let last = Seek::Source { file: "bin.000001".into(), position: file.transactions[5].0 as u64 };
    assert_eq!(seqnos(writer.archive(), &last), [5]);
}

#[test]
fn rejected_events_change_nothing() {
    let file = file_of("bin.000001", 1..=3, &GtidPosition::default());
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Os).unwrap();
    assert!(matches!(writer.append(file.event_at(1)), Err(Error::Rejected { .. })), "no file was begun");
    for name in ["../up", "", "..", "a/b", "a\nb", "-rf", "archive.list", "x.index", "status.socket", &"x".repeat(201)]
    {
        assert!(matches!(writer.begin_file(name, file.format_event()), Err(Error::Rejected { .. })), "{name}");
    }
    let mut flipped = file.format_event().to_vec();
    flipped[30] ^= 1;
    assert!(matches!(writer.begin_file("bin.000001", &flipped), Err(Error::Rejected { .. })));
    writer.begin_file(&file.name, file.format_event()).unwrap();
    for number in 1..file.events.len() {
        let event = file.event_at(number);
        let mut flipped = event.to_vec();
        flipped[event.len() / 2] ^= 4;
        let mut longer = event.to_vec();
        longer.push(0);
        for wrong in [&flipped[..], &event[..event.len() - 1], &longer, &event[..5], &[], file.format_event()] {
            let error = writer.append(wrong).unwrap_err();
            assert!(matches!(error, Error::Rejected { .. }) && !error.is_transient() && !error.is_fatal(), "{error}");
            assert!(error.to_string().contains("bin.000001 at offset"), "{error}");
        }
        assert!(matches!(writer.append(event).unwrap(), Appended::Stored(_)));
        let artificial =
            make_event(EventType::ROTATE, 1, 0, 0, b"\x04\0\0\0\0\0\0\0bin.000001", file.checksum, FLAG_ARTIFICIAL);
        assert_eq!(writer.append(&artificial).unwrap(), Appended::Artificial);
    }
    let first = file.transactions[0].0;
    let last = file.transactions[2].0;
    let error = writer.append(file.event_at(file.events.binary_search(&last).unwrap())).unwrap_err();
    assert!(error.to_string().contains("transaction 0-1-3 is in the archive already"), "{error}");
    writer.flush().unwrap();
    assert_eq!(fs.read(&Path::new(DIR).join("bin.000001")).unwrap(), file.bytes);
    assert!(first < last);
}

#[test]
fn event_larger_than_the_buffer_is_written_and_its_memory_freed() {
    let mut file = SourceFile::new("bin.000001", &GtidPosition::default());
    file.transaction("0-1-1", 3_000_000);
    file.transaction("0-1-2", 10);
    let fs = FaultyFileSystem::default();
    let options = WriterOptions { buffer_bytes_max: 1000, ..WriterOptions::default() };
    let mut writer = ArchiveWriter::open(fs.shared(), Path::new(DIR), options).unwrap();
    file.send(&mut writer).unwrap();
    assert!(writer.pending_bytes() <= 1000);
    writer.flush().unwrap();
    let options = ReadOptions { block_bytes: 4096, event_bytes_max: 4 << 20 };
    let seen = support::transactions_with(writer.archive(), &Seek::Earliest, options).unwrap();
    assert_eq!(seen.len(), 2);
}

#[test]
fn reader_beside_the_writer_sees_every_transaction_once_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    let mut position = GtidPosition::default();
    for number in 0..8u64 {
        let mut file = file_of(&format!("bin.{number:06}"), number * 500 + 1..=number * 500 + 500, &position);
        position = file.position.clone();
        file.rotate(&format!("bin.{:06}", number + 1));
        files.push(file);
    }
    let fs = std::sync::Arc::new(spate_archive::RealFileSystem);
    let mut writer = ArchiveWriter::open(fs, dir.path(), support::options(SyncPolicy::Os)).unwrap();
    let archive = writer.archive().clone();
    let watcher = std::thread::spawn({
        let archive = archive.clone();
        move || archive.tail().wait_durable(4000, Duration::from_secs(60))
    });
    let reader = std::thread::spawn(move || {
        let mut reader =
            archive.reader(&Seek::Earliest, ReadOptions { block_bytes: 3000, event_bytes_max: 1 << 20 }).unwrap();
        let mut ended = 0;
        loop {
            while let Some(event) = reader.next_event().unwrap() {
                if event.boundary == Boundary::End {
                    assert_eq!(event.seqno, ended + 1);
                    assert_eq!(event.gtid().unwrap().gtid.number(), event.seqno);
                    assert_eq!(event.gtid_position.to_string(), format!("0-1-{}", event.seqno));
                    ended = event.seqno;
                }
            }
            match reader.wait(Duration::from_secs(60)) {
                Waited::Ready => {}
                Waited::Closed => return ended,
                Waited::TimedOut => panic!("nothing came"),
            }
        }
    });
    for file in &files {
        writer.begin_file(&file.name, file.format_event()).unwrap();
        for (count, event) in file.events_from(0).enumerate() {
            writer.append(event).unwrap();
            if count % 7 == 0 {
                writer.flush().unwrap();
            }
        }
    }
    writer.sync().unwrap();
    assert_eq!(watcher.join().unwrap(), Waited::Ready);
    drop(writer);
    assert_eq!(reader.join().unwrap(), 4000);
}

fn five_files(fs: &FaultyFileSystem) -> ArchiveWriter {
    let mut writer = open(&fs.shared(), SyncPolicy::Os).unwrap();
    let mut position = GtidPosition::default();
    for number in 1..=5 {
        let file = file_of(&format!("bin.00000{number}"), number * 10 - 9..=number * 10, &position);
        position = file.position.clone();
        file.send(&mut writer).unwrap();
    }
    writer.flush().unwrap();
    writer
}

#[test]
fn purge_keeps_unapplied_and_retained_files() {
    let now = 1_700_000_000 + 30;
    let bounds = |bytes_max, age_seconds_max| Retention { bytes_max, age_seconds_max };
    let file_bytes = five_files(&FaultyFileSystem::default()).archive().total_bytes().unwrap() / 5;
    for (retention, applied, left) in [
        (bounds(None, None), 0, 5),
        (bounds(None, None), 19, 4),
        (bounds(None, None), 20, 3),
        (bounds(None, None), 99, 1),
        (bounds(Some(u64::MAX), None), 99, 5),
        (bounds(Some(file_bytes * 5 / 2), None), 99, 2),
        (bounds(Some(0), None), 35, 2),
        (bounds(None, Some(1000)), 99, 5),
        // File n's last transaction committed 10 n + 1 seconds after the beginning.
        (bounds(None, Some(0)), 99, 3),
        (bounds(Some(u64::MAX), Some(0)), 99, 3),
        (bounds(None, Some(10)), 99, 4),
    ] {
        let fs = FaultyFileSystem::default();
        let mut writer = five_files(&fs);
        let purged = writer.purge(&retention, Applied(applied), now).unwrap();
        assert_eq!(names(&writer).len(), left, "{retention:?}, applied {applied}");
        assert_eq!(purged.files, 5 - left);
        assert_eq!(fs.names().iter().filter(|name| name.starts_with("bin.")).count(), 2 * left);
        let first = (5 - left as u64) * 10 + 1;
        assert_eq!(seqnos(writer.archive(), &Seek::Earliest), (first..=50).collect::<Vec<_>>());
        if first > 1 {
            let error = transactions(writer.archive(), &Seek::Seqno(1)).unwrap_err();
            assert!(matches!(error, Error::Purged { wanted: 1, first: found, .. } if found == first), "{error}");
            let error = transactions(writer.archive(), &Seek::AfterGtid("0-1-5".parse().unwrap())).unwrap_err();
            assert!(matches!(error, Error::BeginsAfter { .. }), "{error}");
        }
        let before: GtidPosition = format!("0-1-{}", first - 1).parse().unwrap();
        if first > 1 {
            assert_eq!(seqnos(writer.archive(), &Seek::AfterGtid(before)).len(), 51 - first as usize);
        }
        drop(writer);
        let writer = open(&fs.shared(), SyncPolicy::Os).unwrap();
        assert_eq!(seqnos(writer.archive(), &Seek::Earliest), (first..=50).collect::<Vec<_>>());
        assert_eq!(writer.end().seqno, 50);
    }
}

#[test]
fn crash_during_a_purge_leaves_a_whole_archive_and_no_stray_files() {
    for at in 0.. {
        let fs = FaultyFileSystem::default();
        let mut writer = five_files(&fs);
        writer.sync().unwrap();
        fs.fault_in(at, Fault::Crash);
        let is_done = writer.purge(&Retention::default(), Applied(20), 0).is_ok();
        for choice in [0, 1, 2, usize::MAX] {
            let after = fs.after_crash(|bound| choice.min(bound - 1));
            let writer = open(&after.shared(), SyncPolicy::Os).unwrap();
            let first = seqnos(writer.archive(), &Seek::Earliest)[0];
            assert!(first == 1 || first == 21, "{first}");
            let left = after.names().iter().filter(|name| name.starts_with("bin.")).count();
            assert_eq!(left, if first == 1 { 10 } else { 6 });
        }
        if is_done {
            assert!(at > 5);
            break;
        }
    }
}

#[test]
fn reader_that_fell_behind_a_purge_gets_an_error() {
    let fs = FaultyFileSystem::default();
    let mut writer = five_files(&fs);
    let mut fast = writer.archive().reader(&Seek::Earliest, ReadOptions::default()).unwrap();
    let mut waiting = writer.archive().reader(&Seek::Earliest, ReadOptions::default()).unwrap();
    assert!(fast.next_event().unwrap().is_some());
    writer.purge(&Retention::default(), Applied(20), 0).unwrap();
    assert!(matches!(waiting.next_event(), Err(Error::Purged { wanted: 1, first: 21, .. })));
    let error = loop {
        match fast.next_event() {
            Ok(event) => assert!(event.unwrap().seqno <= 10),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Purged { wanted: 11, first: 21, .. }), "{error}");
}

#[test]
fn archive_opened_for_reading_beside_its_writer_refreshes() {
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Os).unwrap();
    let mut first = file_of("bin.000001", 1..=3, &GtidPosition::default());
    first.rotate("bin.000002");
    let second = file_of("bin.000002", 4..=6, &first.position);
    first.send(&mut writer).unwrap();
    writer.flush().unwrap();
    let before = fs.names();
    let archive = spate_archive::Archive::open(fs.shared(), Path::new(DIR), DirectoryOptions::default()).unwrap();
    let mut reader = archive.reader(&Seek::AfterGtid("0-1-1".parse().unwrap()), ReadOptions::default()).unwrap();
    let mut seen = Vec::new();
    let mut collect = |seen: &mut Vec<u64>| {
        while let Some(event) = reader.next_event().unwrap() {
            if event.boundary == Boundary::End {
                seen.push(event.seqno);
            }
        }
    };
    collect(&mut seen);
    assert_eq!(seen, [2, 3]);
    assert!(!archive.refresh().unwrap());
    assert_eq!(fs.names(), before);
    writer.begin_file(&second.name, second.format_event()).unwrap();
    for event in second.events_from(0) {
        writer.append(event).unwrap();
        writer.flush().unwrap();
        archive.refresh().unwrap();
        collect(&mut seen);
        assert_eq!(*seen.last().unwrap(), writer.end().seqno);
    }
    assert_eq!(seen, [2, 3, 4, 5, 6]);
    assert_eq!(archive.tail().received().gtid_position.to_string(), "0-1-6");
    assert_eq!(archive.tail().durable().seqno, 0, "a stranger cannot know what is durable");
}

#[test]
fn new_archive_in_a_foreign_directory_is_refused() {
    let fs = FaultyFileSystem::default();
    fs.overwrite(&Path::new(DIR).join("mariadb-bin.000001"), SourceFile::new("x", &GtidPosition::default()).bytes);
    let error = open(&fs.shared(), SyncPolicy::Os).unwrap_err();
    assert!(matches!(error, Error::NotAnArchive { .. }), "{error}");
    assert_eq!(ChecksumAlgorithm::Crc32.trailer_length(), 4);
}
