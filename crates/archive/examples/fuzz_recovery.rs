//! Damages archives, opens them as a writer (which recovers) and as another process's directory, and reads all shown
//! events: `fuzz_recovery -- [--seconds N] [--seed N]`.
//!
//! These must hold for any damage: no panic; no endless reading; no event that was never written, unless its own
//! checksum and length are right; whole transactions, counted without a gap while list and index are right; an archive
//! that was opened once opens again, shows the same events, and accepts more.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a tool of the developers, who read its output")]

use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spate_archive::{Archive, ArchiveWriter, DirectoryOptions, ReadOptions, Result, Seek, SyncPolicy, WriterOptions};
use spate_binlog::header::HEADER_LENGTH;
use spate_binlog::{Boundary, ChecksumAlgorithm, EventHeader, GtidPosition};

#[path = "../../binlog/fuzz/mutate.rs"]
mod mutate;
#[path = "../tests/support/mod.rs"]
mod support;

use mutate::{Random, mutate};
use spate_archive::test_source::SourceFile;
use support::DIR;
use support::faulty::FaultyFileSystem;

/// A run takes milliseconds. A run that takes this long is taken for an endless one.
const RUN_MAX: Duration = Duration::from_secs(60);

/// An archive before the damage.
struct Original {
    files: BTreeMap<String, Vec<u8>>,
    /// Bytes of every event in it.
    events: HashSet<Vec<u8>>,
    transactions: u64,
}

/// The effect of the damage on the list and the indexes, which other files are checked against.
#[derive(Debug, Default, Clone, Copy)]
struct Damage {
    /// List or index are wrong under a right checksum, or whole events were moved.
    is_forged: bool,
}

fn main() {
    let seconds = argument("--seconds").unwrap_or(60);
    let first = argument("--seed").unwrap_or_else(|| u64::from(std::process::id()) << 32);
    let originals = originals();
    println!("{} archives, from seed {first} on, for {seconds} s", originals.len());
    let current = Arc::new(AtomicU64::new(first));
    watch(Arc::clone(&current));
    let (mut seed, mut tally) = (first, Tally::default());
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        seed += 1;
        current.store(seed, Ordering::Relaxed);
        if catch_unwind(AssertUnwindSafe(|| run(seed, &originals, &mut tally))).is_err() {
            println!("found with --seed {}", seed - 1);
            std::process::exit(1);
        }
    }
    println!("{} runs, {tally:?}, nothing found", seed - first);
}

/// Counts of the outcomes of the runs, which show that the runs reach all cases.
#[derive(Debug, Default)]
struct Tally {
    opened: u64,
    refused: u64,
    read: u64,
    read_to_an_error: u64,
    events: u64,
}

/// Ends the process if a run does not end.
fn watch(current: Arc<AtomicU64>) {
    std::thread::spawn(move || {
        loop {
            let seed = current.load(Ordering::Relaxed);
            std::thread::sleep(RUN_MAX);
            if current.load(Ordering::Relaxed) == seed {
                println!("no end within {RUN_MAX:?}, with --seed {}", seed.wrapping_sub(1));
                std::process::exit(1);
            }
        }
    });
}

fn run(seed: u64, originals: &[Original], tally: &mut Tally) {
    let mut random = Random::new(seed);
    let original = &originals[random.below(originals.len())];
    let other = &originals[random.below(originals.len())];
    let mut files = original.files.clone();
    let mut damage = Damage::default();
    for _ in 0..=random.below(3) {
        harm(&mut files, other, &mut random, &mut damage);
    }
    let check = Check { known: [&original.events, &other.events], damage, bytes: total(&files) };
    let fs = FaultyFileSystem::default();
    for (name, bytes) in &files {
        fs.overwrite(&Path::new(DIR).join(name), bytes.clone());
    }
    match random.below(2) {
        0 => as_writer(&fs, &check, original, &mut random, tally),
        _ => as_directory(&fs, &check, &mut random, tally),
    }
}

fn as_writer(fs: &FaultyFileSystem, check: &Check<'_>, original: &Original, random: &mut Random, tally: &mut Tally) {
    let Ok(mut writer) = open(fs) else {
        tally.refused += 1;
        return;
    };
    tally.opened += 1;
    let before = check.read(writer.archive(), &Seek::Earliest, tally);
    check.read(writer.archive(), &seek(original, random), tally);
    let seqno = writer.end().seqno;
    let mut more = SourceFile::new("zz.000001", &GtidPosition::default());
    more.transaction("77-7-1", 30);
    if more.send(&mut writer).and_then(|()| writer.flush()).is_err() {
        return;
    }
    assert_eq!(writer.end().seqno, seqno + 1, "one transaction more");
    drop(writer);
    let writer = open(fs);
    let writer = writer.unwrap_or_else(|error| panic!("it was opened and closed, and does not open again: {error}"));
    assert_eq!(writer.end().seqno, seqno + 1, "after opening it again");
    let again = Check { bytes: total_of(fs), ..*check };
    let after = again.read(writer.archive(), &Seek::Earliest, tally);
    if let (Some(before), Some(after)) = (before, after) {
        assert!(after.starts_with(&before), "what was shown once is shown again");
    }
}

fn as_directory(fs: &FaultyFileSystem, check: &Check<'_>, random: &mut Random, tally: &mut Tally) {
    let Ok(archive) = Archive::open(fs.shared(), Path::new(DIR), DirectoryOptions::default()) else {
        tally.refused += 1;
        return;
    };
    tally.opened += 1;
    check.read(&archive, &Seek::Earliest, tally);
    check.read(&archive, &Seek::Seqno(random.below(40) as u64), tally);
}

fn seek(original: &Original, random: &mut Random) -> Seek {
    match random.below(3) {
        0 => Seek::Seqno(random.below(original.transactions as usize + 3) as u64),
        1 => Seek::AfterGtid(format!("0-1-{}", random.below(60)).parse().unwrap()),
        _ => Seek::Source { file: "bin.000002".into(), position: random.below(3000) as u64 },
    }
}

/// The facts against which the read events are checked.
#[derive(Clone, Copy)]
struct Check<'a> {
    known: [&'a HashSet<Vec<u8>>; 2],
    damage: Damage,
    bytes: usize,
}

impl Check<'_> {
    /// Reads to the end or to an error. Returns the events' bytes, unless there was an error.
    fn read(&self, archive: &Archive, seek: &Seek, tally: &mut Tally) -> Option<Vec<Vec<u8>>> {
        let read = self.read_all(archive, seek, tally);
        match read {
            Ok(events) => {
                tally.read += 1;
                Some(events)
            }
            Err(_) => {
                tally.read_to_an_error += 1;
                None
            }
        }
    }

    fn read_all(&self, archive: &Archive, seek: &Seek, tally: &mut Tally) -> Result<Vec<Vec<u8>>> {
        let mut reader = archive.reader(seek, ReadOptions::default())?;
        let mut events = Vec::new();
        let (mut last_seqno, mut is_open) = (None, false);
        while let Some(event) = reader.next_event()? {
            let vouched = || event.format.checksum.verified_body(event.bytes).is_ok();
            assert_eq!(event.header.event_length as usize, event.bytes.len());
            assert!(self.known.iter().any(|known| known.contains(event.bytes)) || vouched(), "made up at {event:?}");
            let begins = matches!(event.boundary, Boundary::Begin | Boundary::Whole);
            if begins {
                assert!(!is_open, "a transaction in another");
                // Some covered transactions may lie between transactions that the position does not cover.
                let has_gaps = matches!(seek, Seek::AfterGtid(_)) || self.damage.is_forged;
                let follows = last_seqno.is_none_or(|last: u64| last.checked_add(1) == Some(event.seqno));
                assert!(follows || has_gaps, "{} after {last_seqno:?}", event.seqno);
                last_seqno = Some(event.seqno);
            }
            is_open = match event.boundary {
                Boundary::Begin => true,
                Boundary::Inside => is_open,
                Boundary::End | Boundary::Whole => false,
                Boundary::Outside => is_open,
            };
            events.push(event.bytes.to_vec());
            assert!(events.len() * HEADER_LENGTH <= self.bytes, "more events than the files have room for");
        }
        assert!(!is_open, "a transaction without its end was shown");
        tally.events += events.len() as u64;
        Ok(events)
    }
}

/// Damages one of the files.
fn harm(files: &mut BTreeMap<String, Vec<u8>>, other: &Original, random: &mut Random, damage: &mut Damage) {
    let names: Vec<String> = files.keys().cloned().collect();
    if names.is_empty() {
        return;
    }
    let name = names[random.below(names.len())].clone();
    let donor = other.files.values().nth(random.below(other.files.len())).unwrap();
    let mut bytes = files.remove(&name).unwrap();
    match random.below(10) {
        0 => mutate(&mut bytes, random),
        1 => bytes.truncate(random.below(bytes.len() + 1)),
        2 => bytes.extend((0..random.below(200)).map(|_| random.next() as u8)),
        3 => bytes.extend(vec![0; random.below(9000)]),
        4 => {
            let at = random.below(bytes.len());
            bytes[at..].fill(0);
        }
        5 => splice(&mut bytes, donor, random),
        6 => {
            // The file is lost: do not write it back.
            return;
        }
        7 => {
            damage.is_forged = true;
            splice_events(&mut bytes, donor, random);
        }
        8 => {
            mutate(&mut bytes, random);
            damage.is_forged |= !is_binlog(&bytes);
            seal(&mut bytes);
        }
        _ => {
            let with = names[random.below(names.len())].clone();
            damage.is_forged = true;
            if let Some(others) = files.get_mut(&with) {
                std::mem::swap(others, &mut bytes);
            }
        }
    }
    files.insert(name, bytes);
}

/// Overwrites or inserts a part of another file.
fn splice(bytes: &mut Vec<u8>, donor: &[u8], random: &mut Random) {
    let from = random.below(donor.len());
    let length = random.below(donor.len() - from);
    let at = random.below(bytes.len());
    let end = if random.below(2) == 0 { at } else { (at + length).min(bytes.len()) };
    bytes.splice(at..end, donor[from..from + length].iter().copied());
}

/// Repeats, drops, exchanges or inserts whole events, each with its checksum.
fn splice_events(bytes: &mut Vec<u8>, donor: &[u8], random: &mut Random) {
    if !is_binlog(bytes) {
        return splice(bytes, donor, random);
    }
    let mut events: Vec<Vec<u8>> = events_of(bytes).map(<[u8]>::to_vec).collect();
    if events.is_empty() {
        return;
    }
    for _ in 0..=random.below(3) {
        let (one, two) = (random.below(events.len()), random.below(events.len()));
        match random.below(4) {
            0 => drop(events.remove(one)),
            1 => events.insert(one, events[two].clone()),
            2 => events.swap(one, two),
            _ => events.extend(events_of(donor).skip(random.below(5)).take(random.below(20)).map(<[u8]>::to_vec)),
        }
        if events.is_empty() {
            break;
        }
    }
    bytes.truncate(4);
    bytes.extend(events.concat());
}

fn is_binlog(bytes: &[u8]) -> bool {
    bytes.starts_with(&spate_binlog::FILE_MAGIC)
}

/// Corrects the checksums of a damaged file.
fn seal(bytes: &mut Vec<u8>) {
    if is_binlog(bytes) {
        let ends: Vec<(usize, usize)> = ranges_of(bytes).collect();
        for (begin, end) in ends {
            if end - begin > 4 {
                let crc = crc32fast::hash(&bytes[begin..end - 4]);
                bytes[end - 4..end].copy_from_slice(&crc.to_le_bytes());
            }
        }
    } else if let Some(end) = bytes.windows(4).rposition(|window| window == b"end\t") {
        let crc = crc32fast::hash(&bytes[..end]);
        bytes.truncate(end);
        bytes.extend(format!("end\t{crc:08x}\n").into_bytes());
    } else {
        for record in bytes.chunks_exact_mut(64) {
            let crc = crc32fast::hash(&record[..60]);
            record[60..].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

fn ranges_of(file: &[u8]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut at = 4;
    std::iter::from_fn(move || {
        let header = EventHeader::parse(file.get(at..)?).ok()?;
        let end = at.checked_add(header.event_length as usize).filter(|&end| end <= file.len())?;
        Some((std::mem::replace(&mut at, end), end))
    })
}

fn events_of(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    ranges_of(file).map(|(begin, end)| &file[begin..end])
}

fn total(files: &BTreeMap<String, Vec<u8>>) -> usize {
    files.values().map(Vec::len).sum()
}

fn total_of(fs: &FaultyFileSystem) -> usize {
    let path = |name: &String| Path::new(DIR).join(name);
    fs.names().iter().filter_map(|name| fs.read(&path(name))).map(|bytes| bytes.len()).sum()
}

fn open(fs: &FaultyFileSystem) -> Result<ArchiveWriter> {
    let options = WriterOptions { sync: SyncPolicy::Always, ..WriterOptions::default() };
    ArchiveWriter::open(fs.shared(), Path::new(DIR), options)
}

/// Archives of servers' files, and some more with several files and without checksums.
fn originals() -> Vec<Original> {
    let mut originals = vec![];
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../binlog/tests/data");
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "bin"));
    paths.sort();
    for path in paths {
        let file = std::fs::read(path).unwrap();
        originals.push(original(|writer| {
            let mut events = events_of(&file);
            writer.begin_file("mariadb-bin.000001", events.next().unwrap())?;
            events.try_for_each(|event| writer.append(event).map(drop))
        }));
    }
    for checksum in [ChecksumAlgorithm::Crc32, ChecksumAlgorithm::None] {
        originals.push(original(|writer| made_up(writer, checksum)));
    }
    originals
}

/// Three files with transactions, statements and two domains.
fn made_up(writer: &mut ArchiveWriter, checksum: ChecksumAlgorithm) -> Result<()> {
    let mut position = GtidPosition::default();
    for number in 1..=3 {
        let mut file = SourceFile::with_checksum(&format!("bin.00000{number}"), &position, checksum);
        for sequence in 1..=8 {
            file.transaction(&format!("0-1-{}", number * 10 + sequence), 20 * sequence);
            file.statement(&format!("5-2-{}", number * 10 + sequence), "CREATE TABLE t (a INT)");
        }
        file.rotate(&format!("bin.00000{}", number + 1));
        file.send(writer)?;
        position = file.position.clone();
    }
    Ok(())
}

fn original(write: impl FnOnce(&mut ArchiveWriter) -> Result<()>) -> Original {
    let fs = FaultyFileSystem::default();
    let mut writer = open(&fs).unwrap();
    write(&mut writer).unwrap();
    writer.flush().unwrap();
    let transactions = writer.end().seqno;
    assert!(transactions > 0);
    drop(writer);
    let dir = Path::new(DIR);
    let names = fs.names().into_iter().filter(|name| !name.ends_with("lock"));
    let files: BTreeMap<String, Vec<u8>> =
        names.map(|name| (name.clone(), fs.read(&dir.join(&name)).unwrap())).collect();
    let binlogs = files.values().filter(|bytes| is_binlog(bytes));
    let events = binlogs.flat_map(|bytes| events_of(bytes).map(<[u8]>::to_vec)).collect();
    Original { files, events, transactions }
}

fn argument(name: &str) -> Option<u64> {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|argument| argument == name)?;
    Some(arguments.get(at + 1).and_then(|value| value.parse().ok()).expect("a number"))
}
