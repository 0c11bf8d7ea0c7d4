//! Walks one binlog file from an event on, up to the first bytes that are not a whole, sound event.

use std::path::Path;
use std::sync::Arc;

use spate_binlog::header::{EventType, HEADER_LENGTH};
use spate_binlog::{Boundary, EventHeader};

use crate::blocks::{EventBlocks, Next, RawEvent, ReadOptions};
use crate::follower::{FIRST_EVENT_OFFSET, Follower};
use crate::fs::FileSystem;
use crate::index::TransactionRecord;
use crate::{Error, Result};

/// Why a walk ended before the end of the file.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) offset: u64,
    pub(crate) source: spate_binlog::Error,
    /// True if the event's header promises more bytes than the file has, as at the end of a file whose writer was
    /// killed.
    pub(crate) is_torn: bool,
}

/// Walks events of one file.
#[derive(Debug)]
pub(crate) struct Scan {
    blocks: EventBlocks,
    /// True if checksums are verified, which reads every byte once more.
    pub(crate) verify: bool,
}

impl Scan {
    /// Opens the file at `path`, which ends at `length`, at `offset`.
    pub(crate) fn open(fs: &dyn FileSystem, path: &Path, offset: u64, length: u64, verify: bool) -> Result<Scan> {
        let mut blocks = EventBlocks::open(fs, path, ReadOptions::default(), length)?;
        blocks.jump(offset);
        Ok(Scan { blocks, verify })
    }

    /// Offset of the next event.
    pub(crate) fn offset(&self) -> u64 {
        self.blocks.offset()
    }

    /// Takes the next event. `Ok(Ok(None))` at the end of the file.
    pub(crate) fn step(
        &mut self,
        follower: &mut Follower,
    ) -> Result<std::result::Result<Option<(RawEvent, Boundary)>, Stop>> {
        let raw = match self.blocks.next() {
            Ok(Next::Event(raw)) => raw,
            Ok(Next::Limit) => return Ok(Ok(None)),
            Ok(Next::Torn(source)) => return Ok(Err(Stop { offset: self.offset(), source, is_torn: true })),
            Err(Error::Corrupt { offset, source, .. }) => return Ok(Err(Stop { offset, source, is_torn: false })),
            Err(other) => return Err(other),
        };
        let event = self.blocks.bytes(raw.range.clone());
        match follower.take(&raw.header, event, raw.offset, self.verify) {
            Ok(boundary) => Ok(Ok(Some((raw, boundary)))),
            Err(source) => Ok(Err(Stop { offset: raw.offset, source, is_torn: false })),
        }
    }
}

/// True if the transaction of this record begins at its place; `follower` is the state before it.
pub(crate) fn begins_transaction(
    blocks: &mut EventBlocks,
    follower: &Follower,
    record: &TransactionRecord,
) -> Result<bool> {
    blocks.jump(record.offset);
    let raw = match blocks.next() {
        Ok(Next::Event(raw)) => raw,
        Ok(_) | Err(Error::Corrupt { .. } | Error::EventTooLarge { .. }) => return Ok(false),
        Err(other) => return Err(other),
    };
    let mut follower = follower.clone();
    let taken = follower.take(&raw.header, blocks.bytes(raw.range), raw.offset, true);
    let gtid = follower.tracker.gtid().map(|event| event.gtid);
    let begins = matches!(taken, Ok(Boundary::Begin | Boundary::Whole));
    Ok(begins && gtid == record.gtid && follower.seqno == record.seqno)
}

/// What a walk through a file tells of its transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noted {
    /// Its first ones, so many, of which this is the last, were known.
    Known(u64, TransactionRecord),
    /// This one was read.
    Read(TransactionRecord),
}

/// The result of recovery's walk through a file.
#[derive(Debug)]
pub(crate) struct Scanned {
    /// The state at `whole_end`.
    pub(crate) follower: Follower,
    /// The end of the last event that is in no unfinished transaction.
    pub(crate) whole_end: u64,
    pub(crate) last: Option<TransactionRecord>,
    /// True if every event has the offset that it had in the source's file.
    pub(crate) is_aligned: bool,
    pub(crate) stop: Option<Stop>,
}

/// Walks and verifies a whole file, and passes the record of each transaction to `note`.
pub(crate) fn scan_file(
    fs: &dyn FileSystem,
    path: &Path,
    start: &Follower,
    length: u64,
    mut note: impl FnMut(TransactionRecord),
) -> Result<Scanned> {
    scan_file_behind(fs, path, start, length, std::iter::empty(), |noted| match noted {
        Noted::Read(record) => note(record),
        Noted::Known(..) => {}
    })
}

/// The same, but does not walk through the transactions of these records, which are the file's first, but for the last of them, which shows that they
/// are of this file.
pub(crate) fn scan_file_behind(
    fs: &dyn FileSystem,
    path: &Path,
    start: &Follower,
    length: u64,
    mut known: impl Iterator<Item = TransactionRecord>,
    mut note: impl FnMut(Noted),
) -> Result<Scanned> {
    let mut scan = Scan::open(fs, path, FIRST_EVENT_OFFSET, length, true)?;
    let mut walked =
        Scanned { follower: start.clone(), whole_end: FIRST_EVENT_OFFSET, last: None, is_aligned: true, stop: None };
    let mut source_position = walked.follower.source_position;
    let mut first_known = known.next();
    loop {
        if let Some(first) = first_known.take_if(|first| first.offset == scan.offset())
            && first.seqno == walked.follower.seqno + 1
            && !walked.follower.is_relay_log()
            && let Some(noted) = walked.pass_known(&mut scan, first, &mut known)?
        {
            source_position = walked.follower.source_position;
            note(noted);
        }
        let (raw, boundary) = match scan.step(&mut walked.follower)? {
            Ok(Some(taken)) => taken,
            Ok(None) => break,
            Err(stop) => {
                walked.stop = Some(stop);
                break;
            }
        };
        let end = scan.offset();
        walked.is_aligned &= raw.header.next_position == end as u32;
        if matches!(boundary, Boundary::End | Boundary::Whole) {
            let record = walked.follower.record(&raw.header, end);
            walked.last = Some(record);
            note(Noted::Read(record));
        }
        if !walked.follower.tracker.in_transaction() {
            walked.whole_end = end;
            source_position = walked.follower.source_position;
        }
    }
    walked.follower.abandon_transaction();
    walked.follower.source_position = source_position;
    Ok(walked)
}

impl Scanned {
    /// Passes over known transactions, of which `first` begins here, up to the last of them. `None`: there are no others, or the last is not in this file,
    /// and the walk goes on here.
    fn pass_known(
        &mut self,
        scan: &mut Scan,
        first: TransactionRecord,
        known: &mut impl Iterator<Item = TransactionRecord>,
    ) -> Result<Option<Noted>> {
        let (mut follower, mut is_aligned, mut count) = (self.follower.clone(), self.is_aligned, 0);
        let (mut passed, mut last) = (None, first);
        for next in known {
            follower.pass(&last);
            is_aligned &= last.end() == last.source_end_position;
            count += 1;
            passed = Some(std::mem::replace(&mut last, next));
        }
        let Some(passed) = passed else { return Ok(None) };
        if !begins_transaction(&mut scan.blocks, &follower, &last)? {
            scan.blocks.jump(first.offset);
            return Ok(None);
        }
        scan.blocks.jump(last.offset);
        (self.follower, self.is_aligned) = (follower, is_aligned);
        (self.whole_end, self.last) = (last.offset, Some(passed));
        Ok(Some(Noted::Known(count, passed)))
    }
}

/// True if a whole transaction, with right checksums, stands anywhere after the bad event at `offset`: then the file
/// was damaged there, not torn by a crash.
///
/// `hints` are offsets at which transactions begin, according to the index. Every later byte is tried as the beginning
/// of a GTID event.
pub(crate) fn is_whole_after(
    fs: &dyn FileSystem,
    path: &Path,
    follower: &Follower,
    offset: u64,
    length: u64,
    hints: impl Iterator<Item = u64>,
) -> Result<bool> {
    for hint in hints {
        if hint > offset && is_transaction_at(fs, path, follower, hint, length)? {
            return Ok(true);
        }
    }
    let has_format = follower.format.is_some();
    if has_format && follower.checksum() == spate_binlog::ChecksumAlgorithm::None {
        return follow_length(fs, path, follower, offset, length);
    }
    let file = fs.open_read(path).map_err(Error::io("open", path))?;
    let mut window = vec![0; usize::try_from(length - offset).unwrap_or(usize::MAX).min(1 << 20)];
    let mut at = offset + 1;
    while at + (HEADER_LENGTH as u64) < length {
        let filled = file.read_at(at, &mut window).map_err(Error::io("read", path))?;
        let bytes = &window[..filled];
        for start in 0..filled.saturating_sub(HEADER_LENGTH) {
            // Without a format, the beginning of a transaction is enough.
            let begins = is_gtid_event(&bytes[start..]);
            if begins && (!has_format || is_transaction_at(fs, path, follower, at + start as u64, length)?) {
                return Ok(true);
            }
        }
        if at + filled as u64 >= length {
            break;
        }
        // The last bytes of a window begin the next one, so no event falls between two.
        at += filled.saturating_sub(GTID_EVENT_LENGTH_MAX).max(1) as u64;
    }
    Ok(false)
}

/// Header, names, numbers, flags, XA id or commit id, times, extra fields, checksum: no GTID event is longer.
const GTID_EVENT_LENGTH_MAX: usize = 512;

fn is_gtid_event(bytes: &[u8]) -> bool {
    if !EventType(bytes[4]).is_gtid() {
        return false;
    }
    let Ok(header) = EventHeader::parse(bytes) else { return false };
    let length = header.event_length as usize;
    length <= GTID_EVENT_LENGTH_MAX
        && bytes.get(..length).is_some_and(|event| spate_binlog::checksum::verify_crc32(event).is_ok())
}

/// Tries the event after the bad one. Without checksums only the bad event's own length says where the next event
/// begins.
fn follow_length(fs: &dyn FileSystem, path: &Path, follower: &Follower, offset: u64, length: u64) -> Result<bool> {
    let file = fs.open_read(path).map_err(Error::io("open", path))?;
    let mut header = [0; HEADER_LENGTH];
    let filled = file.read_at(offset, &mut header).map_err(Error::io("read", path))?;
    match EventHeader::parse(&header[..filled]) {
        Ok(header) => is_transaction_at(fs, path, follower, offset + u64::from(header.event_length), length),
        Err(_) => Ok(false),
    }
}

fn is_transaction_at(fs: &dyn FileSystem, path: &Path, follower: &Follower, offset: u64, length: u64) -> Result<bool> {
    if offset >= length {
        return Ok(false);
    }
    let mut follower = follower.clone();
    follower.abandon_transaction();
    let mut scan = Scan::open(fs, path, offset, length, true)?;
    while let Ok(Some((_, boundary))) = scan.step(&mut follower)? {
        if matches!(boundary, Boundary::End | Boundary::Whole) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes the state before the first event of a file.
pub(crate) fn start_of(source_name: &str, first_seqno: u64, start: Option<spate_binlog::GtidPosition>) -> Follower {
    Follower::new(Arc::from(source_name), first_seqno.saturating_sub(1), start)
}
