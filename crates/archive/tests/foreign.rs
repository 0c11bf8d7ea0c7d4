//! Directories of binlogs and relay logs of other programs. The tests make the files, so that they hold rare cases.
// A helper of a test may unwrap as the test itself may.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;

use spate_archive::test_source::{SourceFile, make_event};
use spate_archive::{Archive, DirectoryOptions, Error, ReadOptions, Seek};
use spate_binlog::header::{FLAG_ARTIFICIAL, FLAG_RELAY_LOG};
use spate_binlog::{Boundary, EventType, GtidPosition};
use support::faulty::FaultyFileSystem;
use support::{DIR, seqnos, transactions};

fn put(fs: &FaultyFileSystem, name: &str, bytes: &[u8]) {
    fs.overwrite(&Path::new(DIR).join(name), bytes.to_vec());
}

fn open(fs: &FaultyFileSystem) -> spate_archive::Result<Archive> {
    Archive::open(fs.shared(), Path::new(DIR), DirectoryOptions::default())
}

fn numbered(sequences: std::ops::RangeInclusive<u64>, before: &GtidPosition) -> SourceFile {
    let mut file = SourceFile::new("ignored", before);
    for sequence in sequences {
        file.transaction(&format!("0-1-{sequence}"), 50);
    }
    file
}

/// A relay log: its own format description, then the source's events.
struct RelayLog {
    bytes: Vec<u8>,
}

impl RelayLog {
    fn new() -> RelayLog {
        let mut own = SourceFile::new("own", &GtidPosition::default()).format_event().to_vec();
        own.truncate(own.len() - 4);
        own[17] |= FLAG_RELAY_LOG as u8;
        spate_binlog::checksum::append_crc32(&mut own);
        RelayLog { bytes: [&spate_binlog::FILE_MAGIC[..], &own].concat() }
    }

    /// A connection to the source: fake rotate, then a format description that is not the source's start.
    fn connect(&mut self, source: &SourceFile, position: usize) -> &mut RelayLog {
        let body = [&(position as u64).to_le_bytes()[..], source.name.as_bytes()].concat();
        let rotate = make_event(EventType::ROTATE, 1, 0, 0, &body, source.checksum, FLAG_ARTIFICIAL);
        self.push(&rotate).push(source.format_event())
    }

    fn push(&mut self, event: &[u8]) -> &mut RelayLog {
        self.bytes.extend_from_slice(event);
        self
    }

    fn push_all(&mut self, source: &SourceFile, from: usize, until: usize) -> &mut RelayLog {
        self.push(&source.bytes[from..until])
    }
}

#[test]
fn foreign_files_are_found_by_magic_and_ordered_by_number() {
    let fs = FaultyFileSystem::default();
    let mut position = GtidPosition::default();
    for number in [8, 9, 10, 11u64] {
        let file = numbered(number * 10..=number * 10 + 4, &position);
        position = file.position.clone();
        put(&fs, &format!("bin.{number:06}"), &file.bytes);
    }
    put(&fs, "bin.index", b"./bin.000008\n");
    put(&fs, "bin.000012", b"not a binlog");
    put(&fs, "ibdata1", &[0; 100]);
    put(&fs, "notes.txt", &spate_binlog::FILE_MAGIC);
    let before = fs.names();
    let archive = open(&fs).unwrap();
    assert_eq!(seqnos(&archive, &Seek::Earliest), (1..=20).collect::<Vec<_>>());
    assert_eq!(seqnos(&archive, &Seek::Seqno(8)), (8..=20).collect::<Vec<_>>());
    assert_eq!(seqnos(&archive, &Seek::AfterGtid("0-1-102".parse().unwrap())), [14, 15, 16, 17, 18, 19, 20]);
    assert_eq!(archive.tail().received().gtid_position, position.into());
    assert_eq!(fs.names(), before);
    fs.delete(&Path::new(DIR).join("bin.000010"));
    let error = open(&fs).unwrap_err();
    assert!(error.to_string().contains("the file with number 10 before it is missing"), "{error}");
}

#[test]
fn several_sets_of_files_need_a_base_name() {
    let fs = FaultyFileSystem::default();
    assert!(matches!(open(&fs), Err(Error::NotAnArchive { .. })));
    put(&fs, "a.000001", &numbered(1..=2, &GtidPosition::default()).bytes);
    put(&fs, "b.000001", &numbered(1..=3, &GtidPosition::default()).bytes);
    let error = open(&fs).unwrap_err();
    assert!(error.to_string().contains("a, b"), "{error}");
    let named = |name: &str| DirectoryOptions { base_name: Some(name.into()) };
    let archive = Archive::open(fs.shared(), Path::new(DIR), named("b")).unwrap();
    assert_eq!(seqnos(&archive, &Seek::Earliest), [1, 2, 3]);
    assert!(Archive::open(fs.shared(), Path::new(DIR), named("c")).is_err());
}

#[test]
fn live_file_is_read_to_its_last_whole_transaction_and_followed() {
    let fs = FaultyFileSystem::default();
    let file = numbered(1..=4, &GtidPosition::default());
    let mut archive = None;
    let mut last = 0;
    for length in (file.events[1]..=file.bytes.len()).step_by(3).chain([file.bytes.len()]) {
        put(&fs, "bin.000001", &file.bytes[..length]);
        let archive = archive.get_or_insert_with(|| open(&fs).unwrap());
        archive.refresh().unwrap();
        let whole = file.transactions.iter().skip(1).filter(|&&(begin, _)| begin <= length).count() as u64;
        let whole = if length == file.bytes.len() { 4 } else { whole };
        assert_eq!(archive.tail().received().seqno, whole, "{length} bytes");
        last = seqnos(archive, &Seek::Earliest).len() as u64;
        assert_eq!(last, whole);
    }
    assert_eq!(last, 4);
}

#[test]
fn transaction_cut_by_a_source_crash_is_not_shown() {
    let first = numbered(1..=3, &GtidPosition::default());
    // The source crashed in the third transaction, and executed it again after its restart.
    for cut in first.transactions[2].0..first.bytes.len() {
        let fs = FaultyFileSystem::default();
        put(&fs, "bin.000001", &first.bytes[..cut]);
        let second = numbered(3..=5, &"0-1-2".parse().unwrap());
        put(&fs, "bin.000002", &second.bytes);
        let archive = open(&fs).unwrap();
        let gtids: Vec<_> =
            transactions(&archive, &Seek::Earliest).unwrap().into_iter().map(|seen| seen.gtid).collect();
        assert_eq!(gtids, ["0-1-1", "0-1-2", "0-1-3", "0-1-4", "0-1-5"], "{cut}");
        assert_eq!(seqnos(&archive, &Seek::Seqno(3)), [3, 4, 5]);
        assert_eq!(archive.tail().received().seqno, 5);
    }
}

#[test]
fn damage_in_foreign_file_is_reported_at_its_place() {
    let first = numbered(1..=3, &GtidPosition::default());
    let second = numbered(4..=6, &first.position);
    for (name, file, other_name, other) in
        [("bin.000001", &first, "bin.000002", &second), ("bin.000002", &second, "bin.000001", &first)]
    {
        for bit in (0..file.bytes.len() * 8).step_by(3) {
            let fs = FaultyFileSystem::default();
            let mut flipped = file.bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            put(&fs, name, &flipped);
            put(&fs, other_name, &other.bytes);
            let number = file.events.iter().rposition(|&begin| begin <= bit / 8);
            let offset = number.map_or(0, |number| file.events[number]) as u64;
            let result = open(&fs).and_then(|archive| transactions(&archive, &Seek::Earliest));
            match result {
                Err(Error::Corrupt { path, offset: found, .. }) => {
                    assert_eq!((path, found), (Path::new(DIR).join(name), offset), "bit {bit}");
                }
                // Without its magic bytes it is not a binlog file: then it is a missing file, or the directory has
                // none.
                _ if bit < 32 => {}
                Ok(_) if bit == (file.events[0] + 17) * 8 => {}
                // Damage of the last event's length or type looks like a transaction that has not ended yet.
                Ok(seen) if offset >= file.transactions[2].0 as u64 => {
                    assert!(seen.len() >= 2, "bit {bit}");
                }
                Ok(seen) => panic!("{name}, bit {bit}, offset {offset}: {} seen", seen.len()),
                Err(error) => panic!("{name}, bit {bit}, offset {offset}: {error}"),
            }
        }
    }
}

#[test]
fn relay_log_names_source_places_through_rotations_and_reconnects() {
    let mut first = numbered(1..=3, &GtidPosition::default());
    first.name = "bin.000041".into();
    first.rotate("bin.000042");
    let mut second = numbered(4..=6, &first.position);
    second.name = "bin.000042".into();
    let fs = FaultyFileSystem::default();
    // The first relay log ends in the middle of 0-1-2. The connection is lost in 0-1-5, and the source then sends its
    // rest.
    let cut = first.events[first.events.binary_search(&first.transactions[1].0).unwrap() + 2];
    let mut log = RelayLog::new();
    log.connect(&first, 4).push_all(&first, first.events[1], cut);
    put(&fs, "relay.000001", &log.bytes);
    let lost = second.events[second.events.binary_search(&second.transactions[1].0).unwrap() + 1];
    let mut log = RelayLog::new();
    log.push_all(&first, cut, first.bytes.len()).connect(&second, 4).push_all(&second, second.events[1], lost);
    log.connect(&second, lost).push_all(&second, lost, second.bytes.len());
    put(&fs, "relay.000002", &log.bytes);
    let archive = open(&fs).unwrap();
    let mut reader = archive.reader(&Seek::Earliest, ReadOptions::default()).unwrap();
    let mut ends = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        if event.boundary == Boundary::End {
            let place = format!("{}:{}", event.source_file, event.source_end_position);
            ends.push((event.seqno, event.gtid().unwrap().gtid.to_string(), place));
        }
    }
    let end_of = |file: &SourceFile, index: usize| {
        let end = file.transactions.get(index + 1).map_or(file.bytes.len(), |&(begin, _)| begin);
        format!("{}:{end}", file.name)
    };
    let rotate = *first.events.last().unwrap();
    let expected: Vec<_> = (0..6)
        .map(|index| {
            let place = match index {
                2 => format!("bin.000041:{rotate}"),
                0..=2 => end_of(&first, index),
                _ => end_of(&second, index - 3),
            };
            (index as u64 + 1, format!("0-1-{}", index + 1), place)
        })
        .collect();
    assert_eq!(ends, expected);
    for seqno in 1..=6 {
        assert_eq!(seqnos(&archive, &Seek::Seqno(seqno)), (seqno..=6).collect::<Vec<_>>());
    }
    assert_eq!(seqnos(&archive, &Seek::AfterGtid("0-1-4".parse().unwrap())), [5, 6]);
    let place = |file: &str, position: usize| Seek::Source { file: file.into(), position: position as u64 };
    assert_eq!(seqnos(&archive, &place("bin.000041", first.transactions[1].0)), [2, 3, 4, 5, 6]);
    assert_eq!(seqnos(&archive, &place("bin.000042", second.transactions[2].0)), [6]);
    assert_eq!(seqnos(&archive, &place("bin.000042", 4)), [4, 5, 6]);
    assert_eq!(seqnos(&archive, &place("bin.000041", first.bytes.len())), [4, 5, 6]);
}

#[test]
fn relay_log_with_repeated_beginning_shows_transaction_once() {
    let mut source = numbered(1..=4, &GtidPosition::default());
    source.name = "bin.000001".into();
    let begin = source.transactions[2].0;
    let number = source.events.binary_search(&begin).unwrap();
    for extra in 1..=3 {
        let cut = source.events[number + extra];
        for is_in_next_file in [false, true] {
            let fs = FaultyFileSystem::default();
            let mut log = RelayLog::new();
            log.connect(&source, 4).push_all(&source, source.events[1], cut);
            if is_in_next_file {
                put(&fs, "relay.000001", &log.bytes);
                // The reader must show no event of the transaction before its second beginning.
                assert_eq!(seqnos(&open(&fs).unwrap(), &Seek::Earliest), [1, 2]);
                log = RelayLog::new();
            }
            log.connect(&source, begin).push_all(&source, begin, source.bytes.len());
            put(&fs, if is_in_next_file { "relay.000002" } else { "relay.000001" }, &log.bytes);
            let archive = open(&fs).unwrap();
            let seen = transactions(&archive, &Seek::Earliest).unwrap();
            let bytes: Vec<u8> = seen.iter().flat_map(|seen| seen.bytes.clone()).collect();
            assert!(bytes == source.bytes[source.transactions[0].0..], "{extra}, {is_in_next_file}");
            assert_eq!(seen.iter().map(|seen| seen.seqno).collect::<Vec<_>>(), [1, 2, 3, 4]);
            assert_eq!(seqnos(&archive, &Seek::Seqno(3)), [3, 4]);
        }
    }
}

#[test]
fn relay_log_with_purged_beginning_starts_at_first_whole_transaction() {
    let mut source = numbered(1..=4, &GtidPosition::default());
    source.name = "bin.000001".into();
    let begin = source.events.binary_search(&source.transactions[1].0).unwrap();
    for inside in 1..=3 {
        let fs = FaultyFileSystem::default();
        let mut log = RelayLog::new();
        log.push_all(&source, source.events[begin + inside], source.bytes.len());
        put(&fs, "relay.000007", &log.bytes);
        let archive = open(&fs).unwrap();
        let gtids: Vec<_> =
            transactions(&archive, &Seek::Earliest).unwrap().into_iter().map(|seen| seen.gtid).collect();
        assert_eq!(gtids, ["0-1-3", "0-1-4"]);
        assert_eq!(seqnos(&archive, &Seek::AfterGtid("0-1-2".parse().unwrap())), [1, 2]);
        let error = transactions(&archive, &Seek::AfterGtid("0-1-1".parse().unwrap())).unwrap_err();
        assert!(matches!(error, Error::BeginsAfter { .. }), "{error}");
    }
}

#[test]
fn relay_log_is_followed_while_a_transaction_spans_files() {
    let mut source = numbered(1..=3, &GtidPosition::default());
    source.name = "bin.000001".into();
    let number = source.events.binary_search(&source.transactions[1].0).unwrap();
    let cut = source.events[number + 2];
    let fs = FaultyFileSystem::default();
    let mut log = RelayLog::new();
    log.connect(&source, 4).push_all(&source, source.events[1], cut);
    put(&fs, "relay.000001", &log.bytes);
    let archive = open(&fs).unwrap();
    let mut reader = archive.reader(&Seek::Earliest, ReadOptions::default()).unwrap();
    let mut seen = 0;
    let mut collect = || {
        while let Some(event) = reader.next_event().unwrap() {
            seen = if event.boundary == Boundary::End { event.seqno } else { seen };
        }
        seen
    };
    assert_eq!(collect(), 1);
    let mut log = RelayLog::new();
    put(&fs, "relay.000002", &log.bytes);
    archive.refresh().unwrap();
    assert_eq!(collect(), 1);
    log.push_all(&source, cut, source.events[number + 3]);
    put(&fs, "relay.000002", &log.bytes);
    assert!(!archive.refresh().unwrap());
    assert_eq!(collect(), 1);
    log.push_all(&source, source.events[number + 3], source.bytes.len());
    put(&fs, "relay.000002", &log.bytes);
    assert!(archive.refresh().unwrap());
    assert_eq!(collect(), 3);
}
