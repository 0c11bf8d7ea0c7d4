//! The archive on a failing disk. After any crash it is a prefix of the sent events, in whole transactions, and has all
//! durable ones. A full disk loses nothing. A reader never returns a flipped bit.
// A helper of a test may unwrap as the test itself may.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use spate_archive::test_source::SourceFile;
use spate_archive::{ArchiveWriter, Error, Result, Seek, SyncPolicy};
use spate_binlog::{ChecksumAlgorithm, GtidPosition};
use support::faulty::{Fault, FaultyFileSystem};
use support::{DIR, Seen, open, transactions};

/// Three files of transactions of various sizes, the last of which is being written.
fn history(checksum: ChecksumAlgorithm) -> Vec<SourceFile> {
    let mut position = GtidPosition::default();
    let mut sequence = 0;
    let mut files = Vec::new();
    for number in 1..=3 {
        let mut file = SourceFile::with_checksum(&format!("bin.00000{number}"), &position, checksum);
        file.timestamp += number * 100;
        for size in [10, 700, 40, 3000, 90] {
            sequence += 1;
            match size {
                40 => file.statement(&format!("0-1-{sequence}"), "CREATE TABLE t (a INT)"),
                _ => file.transaction(&format!("0-1-{sequence}"), size),
            }
        }
        position = file.position.clone();
        if number < 3 {
            file.rotate(&format!("bin.00000{}", number + 1));
        }
        files.push(file);
    }
    files
}

/// The transactions that a reader sees of a history that was received without a failure.
fn expected(files: &[SourceFile]) -> Vec<Seen> {
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Os).unwrap();
    for file in files {
        file.send(&mut writer).unwrap();
    }
    writer.flush().unwrap();
    transactions(writer.archive(), &Seek::Earliest).unwrap()
}

/// Sends the events that the archive does not have yet, as a source would on a connection with the archive's GTID
/// position. Flushes every few events.
fn send_rest(files: &[SourceFile], writer: &mut ArchiveWriter, flush_every: usize) -> Result<()> {
    let reached = writer.end().gtid_position;
    let mut count = 0;
    let first = files.iter().rposition(|file| file.transactions.first().is_some_and(|&(_, gtid)| reached.covers(gtid)));
    for file in &files[first.unwrap_or(0)..] {
        writer.begin_file(&file.name, file.format_event())?;
        let head = file.transactions[0].0;
        let next = file.transactions.iter().find(|&&(_, gtid)| !reached.covers(gtid));
        let from = next.map_or(file.bytes.len(), |&(offset, _)| offset);
        let rotate = if next.is_none() { file.events.last().copied() } else { None };
        for &offset in &file.events[1..] {
            if offset >= head && offset < from && Some(offset) != rotate {
                continue;
            }
            let number = file.events.binary_search(&offset).unwrap();
            writer.append(file.event_at(number))?;
            count += 1;
            if count % flush_every == 0 {
                writer.flush()?;
            }
        }
        writer.flush()?;
    }
    writer.sync()
}

fn local(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// Opens the archive as after a restart, and compares it with the sent events.
fn check_prefix(fs: &FaultyFileSystem, all: &[Seen], durable: u64, context: &str) -> ArchiveWriter {
    let writer = open(&fs.shared(), SyncPolicy::Always).unwrap_or_else(|error| panic!("{context}: {error}"));
    let seen = transactions(writer.archive(), &Seek::Earliest).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(seen, all[..seen.len()], "{context}");
    assert!(seen.len() as u64 >= durable, "{context}: {durable} were durable, {} are left", seen.len());
    assert_eq!(writer.end().seqno, seen.len() as u64, "{context}");
    writer
}

#[test]
fn crash_at_any_change_leaves_a_durable_prefix() {
    let files = history(ChecksumAlgorithm::Crc32);
    let all = expected(&files);
    for policy in [SyncPolicy::Always, SyncPolicy::Os] {
        for at in 0.. {
            let fs = FaultyFileSystem::default();
            fs.fault_in(at, Fault::Crash);
            let mut writer = match open(&fs.shared(), policy) {
                Ok(writer) => writer,
                Err(error) => panic!("an empty archive opens without a change: {error}"),
            };
            let sent = send_rest(&files, &mut writer, 3);
            let durable = writer.archive().tail().durable().seqno;
            for seed in 0..6u64 {
                let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at as u64;
                let after = fs.after_crash(|bound| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    match seed {
                        0 => 0,
                        1 => bound - 1,
                        _ => (random >> 33) as usize % bound,
                    }
                });
                let context = format!("{policy:?}, crash at change {at}, seed {seed}");
                let mut writer = check_prefix(&after, &all, durable, &context);
                send_rest(&files, &mut writer, 3).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert_eq!(transactions(writer.archive(), &Seek::Earliest).unwrap(), all, "{context}");
                for file in &files {
                    assert!(after.read(&local(&file.name)).unwrap() == file.bytes, "{context}");
                }
            }
            if sent.is_ok() {
                assert_eq!(durable, all.len() as u64);
                break;
            }
        }
    }
}

#[test]
fn crash_during_recovery_is_recovered() {
    let files = history(ChecksumAlgorithm::Crc32);
    let all = expected(&files);
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Os).unwrap();
    send_rest(&files, &mut writer, 1000).unwrap();
    drop(writer);
    let last = local("bin.000003");
    let torn = fs.read(&last).unwrap();
    for at in 0.. {
        // The last transaction is torn and no index says that it was durable.
        let fs = fs.after_crash(|bound| bound - 1);
        fs.overwrite(&last, torn[..torn.len() - 5].to_vec());
        fs.delete(&local("bin.000003.index"));
        fs.delete(&local("bin.000001.index"));
        fs.fault_in(at, Fault::Crash);
        let opened = open(&fs.shared(), SyncPolicy::Os);
        let is_done = opened.is_ok();
        drop(opened);
        for choice in [0, usize::MAX] {
            let after = fs.after_crash(|bound| choice.min(bound - 1));
            check_prefix(&after, &all, 14, &format!("crash at change {at} of recovery, {choice}"));
        }
        if is_done {
            assert!(at > 3, "recovery makes changes");
            break;
        }
    }
}

#[test]
fn full_disk_loses_nothing_and_retry_succeeds() {
    let files = history(ChecksumAlgorithm::Crc32);
    let all = expected(&files);
    for room in [0, 1, 111, 112, 1000, 5000] {
        for at in 0..40 {
            let fs = FaultyFileSystem::default();
            let mut writer = open(&fs.shared(), SyncPolicy::Always).unwrap();
            fs.fault_in(at, Fault::DiskFull(room));
            let retry = |writer: &mut ArchiveWriter, call: &mut dyn FnMut(&mut ArchiveWriter) -> Result<()>| {
                if let Err(error) = call(writer) {
                    assert!(matches!(error, Error::DiskFull { .. }) && error.is_transient(), "{error}");
                    let received = writer.archive().tail().received().seqno;
                    let seen = transactions(writer.archive(), &Seek::Earliest).unwrap();
                    assert_eq!(seen, all[..received as usize]);
                    fs.heal();
                    call(writer).unwrap();
                }
            };
            for file in &files {
                retry(&mut writer, &mut |writer| writer.begin_file(&file.name, file.format_event()));
                for event in file.events_from(0) {
                    retry(&mut writer, &mut |writer| writer.append(event).map(drop));
                }
                retry(&mut writer, &mut ArchiveWriter::flush);
            }
            assert_eq!(transactions(writer.archive(), &Seek::Earliest).unwrap(), all);
            for file in &files {
                assert!(fs.read(&local(&file.name)).unwrap() == file.bytes, "room {room}, at {at}");
            }
            drop(writer);
            check_prefix(&fs, &all, all.len() as u64, "after a full disk");
        }
    }
}

#[test]
fn failed_sync_is_fatal_and_writer_accepts_no_more() {
    let files = history(ChecksumAlgorithm::Crc32);
    let mut failures = 0;
    for at in 0..60 {
        let fs = FaultyFileSystem::default();
        let mut writer = open(&fs.shared(), SyncPolicy::Always).unwrap();
        fs.fault_in(at, Fault::SyncFails);
        let Err(error) = send_rest(&files, &mut writer, 3) else { continue };
        failures += 1;
        assert!(matches!(error, Error::SyncFailed { .. }) && error.is_fatal() && !error.is_transient(), "{error}");
        let durable = writer.archive().tail().durable();
        let again = [writer.flush(), writer.sync(), writer.append(files[0].event_at(1)).map(drop)];
        for error in again.into_iter().chain([writer.begin_file("bin.000009", files[0].format_event())]) {
            assert!(matches!(error, Err(Error::Poisoned { .. })), "{error:?}");
        }
        assert_eq!(writer.archive().tail().durable(), durable);
    }
    assert!(failures > 30, "{failures}");
}

#[test]
fn reader_reports_every_flipped_bit_at_its_event() {
    let files = history(ChecksumAlgorithm::Crc32);
    let all = expected(&files);
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Os).unwrap();
    send_rest(&files, &mut writer, 1000).unwrap();
    let file = &files[1];
    for bit in (0..file.bytes.len() * 8).filter(|bit| *bit < 4096 || bit % 7 == 0) {
        let mut flipped = file.bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs.overwrite(&local(&file.name), flipped);
        let number = file.events.iter().rposition(|&begin| begin <= bit / 8);
        let offset = number.map_or(0, |number| file.events[number]);
        // The "in use" flag of a format description is not damage.
        if bit == (file.events[0] + 17) * 8 {
            assert_eq!(transactions(writer.archive(), &Seek::Earliest).unwrap(), all);
            continue;
        }
        let error = transactions(writer.archive(), &Seek::Earliest).unwrap_err();
        let Error::Corrupt { path, offset: found, .. } = &error else { panic!("bit {bit}: {error}") };
        assert_eq!((path.as_path(), *found), (local(&file.name).as_path(), offset as u64), "bit {bit}: {error}");
    }
}

#[test]
fn damage_that_no_crash_explains_stops_opening_or_reading_and_names_the_place() {
    let files = history(ChecksumAlgorithm::Crc32);
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Os).unwrap();
    send_rest(&files, &mut writer, 1000).unwrap();
    drop(writer);
    let file = &files[2];
    let last_transaction = file.transactions.last().unwrap().0;
    for has_index in [true, false] {
        for bit in (0..file.bytes.len() * 8).filter(|bit| *bit < 4096 || bit % 7 == 0) {
            let fs = fs.after_crash(|bound| bound - 1);
            let mut flipped = file.bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs.overwrite(&local(&file.name), flipped);
            if !has_index {
                fs.delete(&local(&format!("{}.index", file.name)));
            }
            let number = file.events.iter().rposition(|&begin| begin <= bit / 8);
            let offset = number.map_or(0, |number| file.events[number]);
            let opened = open(&fs.shared(), SyncPolicy::Os);
            match opened {
                Err(Error::Corrupt { path, offset: found, .. }) => {
                    assert_eq!((path, found), (local(&file.name), offset as u64), "bit {bit}");
                }
                Err(error) => panic!("bit {bit}: {error}"),
                // Without an index, a bad last transaction cannot be distinguished from one that a crash tore.
                Ok(_) if !has_index && offset >= last_transaction => {}
                Ok(_) if bit == (file.events[0] + 17) * 8 => {}
                // What was surely synced is not read again, but for the last transaction: whoever reads it finds the damage.
                Ok(writer) if has_index && offset < last_transaction => {
                    let error = transactions(writer.archive(), &Seek::Earliest).unwrap_err();
                    let Error::Corrupt { path, offset: found, .. } = &error else { panic!("bit {bit}: {error}") };
                    assert_eq!((path.as_path(), *found), (local(&file.name).as_path(), offset as u64), "bit {bit}");
                }
                Ok(_) => panic!("bit {bit} at offset {offset} went unnoticed, index: {has_index}"),
            }
        }
    }
}

#[test]
fn file_that_lost_durable_bytes_stops_opening() {
    let files = history(ChecksumAlgorithm::Crc32);
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Always).unwrap();
    send_rest(&files, &mut writer, 3).unwrap();
    drop(writer);
    for length in 0..files[2].bytes.len() {
        let fs = fs.after_crash(|bound| bound - 1);
        fs.overwrite(&local("bin.000003"), files[2].bytes[..length].to_vec());
        let error = open(&fs.shared(), SyncPolicy::Always).unwrap_err();
        assert!(matches!(error, Error::Inconsistent { .. }), "{length}: {error}");
        assert!(error.to_string().contains("bin.000003"), "{error}");
    }
}

#[test]
fn index_lost_or_damaged_is_rebuilt() {
    let files = history(ChecksumAlgorithm::Crc32);
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Always).unwrap();
    send_rest(&files, &mut writer, 3).unwrap();
    drop(writer);
    for file in &files {
        let path = local(&format!("{}.index", file.name));
        let live = fs.read(&path).unwrap();
        const RECORD: usize = 112;
        assert_eq!(live.len(), RECORD * 6, "a header and five records");
        let mut damages = vec![None, Some(Vec::new()), Some(vec![7; 1000])];
        damages.extend((1..live.len()).step_by(29).map(|length| Some(live[..length].to_vec())));
        // Of a file that another one follows, recovery checks only the length, beginning and end of the index.
        let is_last = file.name == "bin.000003";
        let middle = 2 * RECORD..live.len() - RECORD;
        for at in (0..live.len()).filter(|at| is_last || !middle.contains(at)) {
            let mut flipped = live.clone();
            flipped[at] ^= 0x10;
            damages.push(Some(flipped));
        }
        let mut longer = live.clone();
        longer.extend_from_slice(&live[RECORD..2 * RECORD]);
        damages.push(Some(longer));
        for damage in damages {
            match &damage {
                None => fs.delete(&path),
                Some(bytes) => fs.overwrite(&path, bytes.clone()),
            }
            drop(open(&fs.shared(), SyncPolicy::Always).unwrap());
            assert_eq!(fs.read(&path).unwrap(), live, "{damage:?}");
        }
    }
}

/// Each record is whole, and names a true place; only, the first transaction is left out, and those behind it have the numbers before theirs.
#[test]
fn index_without_the_first_transaction_is_rebuilt() {
    const RECORD: usize = 112;
    let files = history(ChecksumAlgorithm::Crc32);
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Always).unwrap();
    send_rest(&files, &mut writer, 3).unwrap();
    drop(writer);
    let path = local("bin.000003.index");
    let live = fs.read(&path).unwrap();
    let records: Vec<&[u8]> = live.chunks(RECORD).collect();
    let mut shifted = records[0].to_vec();
    for (earlier, record) in records[1..].iter().zip(&records[2..]) {
        let mut record = [&earlier[..8], &record[8..RECORD - 4]].concat();
        record.extend_from_slice(&crc32fast::hash(&record).to_le_bytes());
        shifted.extend_from_slice(&record);
    }
    fs.overwrite(&path, shifted);
    let archive = open(&fs.shared(), SyncPolicy::Always).unwrap();
    assert_eq!(fs.read(&path).unwrap(), live);
    assert_eq!(transactions(archive.archive(), &Seek::Seqno(1)).unwrap(), expected(&files));
}

/// Where the source sends faster than it is synced, records are written that do not say so; one behind them does.
#[test]
fn what_is_before_a_synced_transaction_is_not_read_again() {
    const RECORD: usize = 112;
    const FLAGS: usize = 44;
    const DURABLE: u8 = 2;
    let files = history(ChecksumAlgorithm::Crc32);
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Always).unwrap();
    send_rest(&files, &mut writer, 3).unwrap();
    drop(writer);
    let path = local("bin.000003.index");
    let mut index = fs.read(&path).unwrap();
    let count = index.len() / RECORD;
    for record in index.chunks_mut(RECORD).take(count - 1).skip(1) {
        assert_ne!(record[FLAGS] & DURABLE, 0);
        record[FLAGS] &= !DURABLE;
        let crc = crc32fast::hash(&record[..RECORD - 4]);
        record[RECORD - 4..].copy_from_slice(&crc.to_le_bytes());
    }
    fs.overwrite(&path, index.clone());
    let archive = open(&fs.shared(), SyncPolicy::Always).unwrap();
    assert_eq!(transactions(archive.archive(), &Seek::Earliest).unwrap(), expected(&files));
    drop(archive);
    assert_eq!(fs.read(&path).unwrap(), index);
}

#[test]
fn stale_index_is_not_followed() {
    let files = history(ChecksumAlgorithm::Crc32);
    let all = expected(&files);
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Always).unwrap();
    send_rest(&files, &mut writer, 3).unwrap();
    // An index of another file with as many transactions, its first seqno made to fit by the same way of writing.
    let mut other = SourceFile::new("bin.000001", &GtidPosition::default());
    for sequence in 1..=5 {
        other.transaction(&format!("0-1-{sequence}"), 123);
    }
    let other_fs = FaultyFileSystem::default();
    let mut other_writer = open(&other_fs.shared(), SyncPolicy::Always).unwrap();
    other.send(&mut other_writer).unwrap();
    other_writer.sync().unwrap();
    let live = fs.read(&local("bin.000001.index")).unwrap();
    let mut damages = vec![other_fs.read(&local("bin.000001.index")).unwrap(), Vec::new(), vec![7; 1000]];
    damages.extend((0..live.len()).step_by(7).map(|at| {
        let mut flipped = live.clone();
        flipped[at] ^= 0x10;
        flipped
    }));
    for (damage, bytes) in damages.into_iter().enumerate() {
        fs.overwrite(&local("bin.000001.index"), bytes);
        for seqno in 1..=15 {
            let seen = transactions(writer.archive(), &Seek::Seqno(seqno)).unwrap();
            assert_eq!(seen, all[seqno as usize - 1..], "from {seqno}, damage {damage}");
            let after = format!("0-1-{seqno}").parse().unwrap();
            let seen = transactions(writer.archive(), &Seek::AfterGtid(after)).unwrap();
            assert_eq!(seen, all[seqno as usize..], "after {seqno}, damage {damage}");
        }
    }
}

#[test]
fn files_without_checksums_recover() {
    let files = history(ChecksumAlgorithm::None);
    let all = expected(&files);
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs.shared(), SyncPolicy::Os).unwrap();
    send_rest(&files, &mut writer, 3).unwrap();
    drop(writer);
    fs.delete(&local("bin.000003.index"));
    for length in (0..files[2].bytes.len()).rev().step_by(7) {
        let fs = fs.after_crash(|bound| bound - 1);
        fs.overwrite(&local("bin.000003"), files[2].bytes[..length].to_vec());
        check_prefix(&fs, &all, 10, &format!("{length} bytes"));
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send(usize),
    Flush,
    Sync,
    Disconnect,
    Crash(Vec<usize>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1usize..12).prop_map(Step::Send),
        4 => Just(Step::Flush),
        2 => Just(Step::Sync),
        2 => Just(Step::Disconnect),
        1 => prop::collection::vec(0usize..10_000, 40).prop_map(Step::Crash),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// The source disconnects and the machine stops at random moments: no durable transaction is lost, none is
    /// duplicated, and in the end the archive equals the source's history.
    #[test]
    fn archive_after_random_faults_is_a_prefix_and_completes(steps in steps(), buffer in 1usize..4000) {
        let files = history(ChecksumAlgorithm::Crc32);
        let all = expected(&files);
        let mut fs = FaultyFileSystem::default();
        let open_small = |fs: &FaultyFileSystem| {
            let options = spate_archive::WriterOptions { buffer_bytes_max: buffer, ..support::options(SyncPolicy::Os) };
            ArchiveWriter::open(fs.shared(), Path::new(DIR), options).unwrap()
        };
        let mut writer = open_small(&fs);
        let mut stream = stream_from(&files, &writer);
        for step in steps {
            match step {
                Step::Send(count) => for _ in 0..count {
                    match stream.pop() {
                        Some(Sent::Begin(file)) => writer.begin_file(&files[file].name, files[file].format_event()).unwrap(),
                        Some(Sent::Event(file, number)) => drop(writer.append(files[file].event_at(number)).unwrap()),
                        None => {}
                    }
                },
                Step::Flush => writer.flush().unwrap(),
                Step::Sync => writer.sync().unwrap(),
                Step::Disconnect => {
                    writer.discard_partial_transaction().unwrap();
                    stream = stream_from(&files, &writer);
                }
                Step::Crash(choices) => {
                    let durable = writer.archive().tail().durable().seqno;
                    drop(writer);
                    let mut choices = choices.into_iter().cycle();
                    fs = fs.after_crash(|bound| choices.next().unwrap_or(0) % bound);
                    drop(check_prefix(&fs, &all, durable, "crash"));
                    writer = open_small(&fs);
                    stream = stream_from(&files, &writer);
                }
            }
        }
        writer.discard_partial_transaction().unwrap();
        send_rest(&files, &mut writer, 5).unwrap();
        prop_assert_eq!(transactions(writer.archive(), &Seek::Earliest).unwrap(), all);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Damage of any kind to any file: no panic, no endless loop, and a reader shows only events that were sent.
    #[test]
    fn archive_with_any_damage_is_an_error_or_a_prefix(
        name in prop::sample::select(vec!["bin.000001", "bin.000002", "bin.000003", "bin.000003.index", "archive.list"]),
        begin in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 1..40),
        is_cut in any::<bool>(),
    ) {
        let files = history(ChecksumAlgorithm::Crc32);
        let all = expected(&files);
        let fs = FaultyFileSystem::default();
        let mut writer = open(&fs.shared(), SyncPolicy::Always).unwrap();
        send_rest(&files, &mut writer, 100).unwrap();
        drop(writer);
        let mut damaged = fs.read(&local(name)).unwrap();
        let begin = begin.index(damaged.len());
        let end = damaged.len().min(begin + bytes.len());
        damaged[begin..end].copy_from_slice(&bytes[..end - begin]);
        if is_cut {
            damaged.truncate(end);
        }
        fs.overwrite(&local(name), damaged);
        let is_shown_right = |archive: &spate_archive::Archive| match transactions(archive, &Seek::Earliest) {
            Ok(seen) => all.starts_with(&seen),
            Err(error) => matches!(error, Error::Corrupt { .. } | Error::Inconsistent { .. } | Error::Purged { .. }),
        };
        let options = spate_archive::DirectoryOptions::default();
        if let Ok(archive) = spate_archive::Archive::open(fs.shared(), Path::new(DIR), options) {
            prop_assert!(is_shown_right(&archive), "read-only");
        }
        if let Ok(writer) = open(&fs.shared(), SyncPolicy::Always) {
            prop_assert!(is_shown_right(writer.archive()), "recovered");
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Sent {
    Begin(usize),
    Event(usize, usize),
}

/// The events that a source sends to a replica at the writer's end, in reverse order.
fn stream_from(files: &[SourceFile], writer: &ArchiveWriter) -> Vec<Sent> {
    let reached = writer.end().gtid_position;
    let mut stream = Vec::new();
    let covers_first = |file: &SourceFile| reached.covers(file.transactions[0].1);
    let first = files.iter().rposition(covers_first).unwrap_or(0);
    for (index, file) in files.iter().enumerate().skip(first) {
        stream.push(Sent::Begin(index));
        let mut is_wanted = true;
        for number in 1..file.events.len() {
            let offset = file.events[number];
            if let Ok(at) = file.transactions.binary_search_by_key(&offset, |&(begin, _)| begin) {
                is_wanted = !reached.covers(file.transactions[at].1);
            } else if number + 1 == file.events.len() && index + 1 < files.len() {
                is_wanted = true;
            }
            if is_wanted {
                stream.push(Sent::Event(index, number));
            }
        }
    }
    stream.reverse();
    stream
}
