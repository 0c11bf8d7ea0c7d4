//! Reads an archive: events in order, across files, of whole transactions only.

use std::sync::Arc;
use std::time::Duration;

use spate_binlog::{Boundary, EventHeader, FormatDescription, GtidEvent, GtidPosition};

use crate::archive::Archive;
use crate::blocks::{EventBlocks, Next, RawEvent, ReadOptions};
use crate::covered::Covered;
use crate::follower::{FIRST_EVENT_OFFSET, Follower};
use crate::index::{IndexReader, TransactionRecord};
use crate::scan::begins_transaction;
use crate::tail::{ArchiveFile, Waited};
use crate::{Error, Result};

/// One event, borrowed from the reader's buffer until the next call.
#[derive(Debug, Clone, Copy)]
pub struct ArchivedEvent<'a> {
    /// The event's header.
    pub header: EventHeader,
    /// Header, body and checksum, as the source sent them. The checksum was verified.
    pub bytes: &'a [u8],
    /// The bytes between header and checksum.
    pub body: &'a [u8],
    /// Its place in its transaction.
    pub boundary: Boundary,
    /// The transaction that it belongs to; for [`Boundary::Outside`], the last one before it (0 if none).
    pub seqno: u64,
    /// The local file.
    pub file: &'a Arc<ArchiveFile>,
    /// The offset in the local file at which it begins.
    pub offset: u64,
    /// The source's file; empty in a relay log that does not name it.
    pub source_file: &'a Arc<str>,
    /// The offset in the source's file at which it ends; artificial events do not move this.
    pub source_end_position: u64,
    /// The format description that its layout follows.
    pub format: &'a Arc<FormatDescription>,
    /// The GTID position after every transaction that has ended up to and including this event.
    pub gtid_position: &'a GtidPosition,
    follower: &'a Follower,
}

impl ArchivedEvent<'_> {
    /// True if `gtid_position` covers everything before the event, not only the transactions that the archive saw.
    pub fn is_position_known(&self) -> bool {
        self.follower.position_known
    }

    /// The GTID event of the transaction last begun; `None` if it has none.
    pub fn gtid(&self) -> Option<GtidEvent> {
        self.follower.tracker.gtid()
    }
}

/// The place from which events are shown.
#[derive(Debug)]
pub(crate) enum Shown {
    /// From the current event on.
    Everything,
    /// From the first event of this transaction on.
    FromSeqno(u64),
    /// From the event that begins there in the source's file.
    FromSource {
        file: String,
        position: u64,
        /// The end of the last event of that file that the reader passed; 0 before the first.
        walked: u64,
    },
    /// All transactions that a position does not cover.
    NotCovered(Covered),
}

/// A forward reader. It never sees more than [`crate::Tail::received`] says, so it may run beside the writer.
#[derive(Debug)]
pub struct ArchiveReader {
    archive: Archive,
    options: ReadOptions,
    file: Option<Arc<ArchiveFile>>,
    blocks: Option<EventBlocks>,
    follower: Follower,
    shown: Shown,
    /// True if the current transaction is not shown.
    is_hidden: bool,
    /// The reader is in an abandoned range.
    is_abandoned: bool,
}

impl ArchiveReader {
    /// Begins at the beginning of `file`; with `None`, at the beginning of the archive's first file once there is one.
    pub(crate) fn at_file(
        archive: Archive,
        options: ReadOptions,
        file: Option<Arc<ArchiveFile>>,
        shown: Shown,
    ) -> ArchiveReader {
        let follower = file.as_ref().map_or_else(|| Follower::new(Arc::from(""), 0, None), |file| file.start.clone());
        // A caller chooses a file that begins inside a transaction only if that transaction is not to be shown.
        let is_hidden =
            matches!(shown, Shown::FromSeqno(_) | Shown::FromSource { .. }) || follower.tracker.in_transaction();
        ArchiveReader { archive, options, file, blocks: None, follower, shown, is_hidden, is_abandoned: false }
    }

    /// The next event, or `None` if everything received so far was read: [`ArchiveReader::wait`] for more.
    ///
    /// # Errors
    /// [`Error::Corrupt`] names file and offset of the first damaged event; [`Error::EventTooLarge`];
    /// [`Error::Purged`] if the reader fell behind the purge; [`Error::Io`].
    pub fn next_event(&mut self) -> Result<Option<ArchivedEvent<'_>>> {
        loop {
            let Some((raw, boundary)) = self.step()? else { return Ok(None) };
            if !self.show(&raw, boundary)? {
                continue;
            }
            return self.lend(raw, boundary).map(Some);
        }
    }

    /// Waits until there is more to read.
    pub fn wait(&self, timeout: Duration) -> Waited {
        let ordinal = self.file.as_ref().map_or(0, |file| file.ordinal);
        self.archive.tail().wait_beyond(ordinal, self.offset(), timeout)
    }

    /// The GTID position after every transaction that has ended so far.
    pub fn gtid_position(&self) -> &GtidPosition {
        &self.follower.gtid_position
    }

    /// The transaction last begun; 0 before the first.
    pub fn seqno(&self) -> u64 {
        self.follower.seqno
    }

    /// The local file that is being read; `None` while the archive has none.
    pub fn file(&self) -> Option<&Arc<ArchiveFile>> {
        self.file.as_ref()
    }

    /// Offset of the next event in the local file.
    pub fn offset(&self) -> u64 {
        self.blocks.as_ref().map_or(0, EventBlocks::offset)
    }

    /// The source's file and the end of the last event in it.
    pub fn source_position(&self) -> (&Arc<str>, u64) {
        (&self.follower.source_file, self.follower.source_position)
    }

    /// Takes the next event of the file or of the next one, shown or not.
    #[inline]
    fn step(&mut self) -> Result<Option<(RawEvent, Boundary)>> {
        loop {
            let Some(blocks) = &mut self.blocks else {
                if self.enter_file()? {
                    continue;
                }
                return Ok(None);
            };
            match blocks.next()? {
                Next::Event(raw) => {
                    let event = blocks.bytes(raw.range.clone());
                    let taken = self.follower.take(&raw.header, event, raw.offset, !self.is_hidden);
                    let boundary = taken.map_err(Error::corrupt(blocks.path(), raw.offset))?;
                    return Ok(Some((raw, boundary)));
                }
                Next::Limit => {
                    if !self.pass_limit()? {
                        return Ok(None);
                    }
                }
                Next::Torn(error) => {
                    let (path, offset) = (blocks.path().to_path_buf(), blocks.offset());
                    if !self.pass_limit()? {
                        return Err(Error::Corrupt { path, offset, source: error });
                    }
                }
            }
        }
    }

    /// Decides whether to show the event that was just taken.
    #[inline]
    fn show(&mut self, raw: &RawEvent, boundary: Boundary) -> Result<bool> {
        if self.is_abandoned {
            return Ok(false);
        }
        if let Shown::Everything = self.shown {
            return Ok(true);
        }
        self.decide(raw, boundary)
    }

    #[cold]
    fn decide(&mut self, raw: &RawEvent, boundary: Boundary) -> Result<bool> {
        let begins = matches!(boundary, Boundary::Begin | Boundary::Whole);
        match &mut self.shown {
            Shown::Everything => return Ok(true),
            Shown::FromSeqno(seqno) if begins && self.follower.seqno >= *seqno => {}
            Shown::FromSeqno(_) => return Ok(false),
            Shown::FromSource { .. } => {
                if !self.reaches_source(raw, boundary)? {
                    return Ok(false);
                }
            }
            Shown::NotCovered(covered) => {
                if begins {
                    let gtid = self.follower.tracker.gtid().map(|event| event.gtid);
                    let seqno = self.follower.seqno;
                    self.is_hidden = gtid.is_some_and(|gtid| covered.covers_next(gtid, seqno));
                }
                let is_hidden = self.is_hidden;
                if matches!(boundary, Boundary::End | Boundary::Whole) {
                    self.is_hidden = false;
                }
                return Ok(!is_hidden);
            }
        }
        self.shown = Shown::Everything;
        self.is_hidden = false;
        self.verify(raw)?;
        Ok(true)
    }

    /// True if the event begins, between two transactions, at the wanted place in the source's file. If the place is
    /// the file's end, the first event after the file counts.
    fn reaches_source(&mut self, raw: &RawEvent, boundary: Boundary) -> Result<bool> {
        let is_inside = matches!(boundary, Boundary::Inside | Boundary::End);
        let (here, end) = (Arc::clone(&self.follower.source_file), self.follower.source_position);
        let begin = self.follower.source_begin(&raw.header);
        let Shown::FromSource { file, position, walked } = &mut self.shown else { return Ok(true) };
        if *here != **file {
            let is_past = *walked > 0 && !is_inside;
            if !is_past || *walked == *position {
                return Ok(is_past);
            }
        } else if raw.header.next_position == 0 || raw.header.is_artificial() || begin < *position {
            *walked = end;
            return Ok(false);
        } else if begin == *position && !is_inside {
            return Ok(true);
        }
        let why =
            format!("it has no transaction or event between two of them that begins there, the next is {here}:{begin}");
        let wanted = format!("place {file}:{position}");
        Err(self.archive.no_such_place(wanted, why))
    }

    /// Verifies the checksum of an event that was hidden until just now.
    fn verify(&self, raw: &RawEvent) -> Result<()> {
        let Some(blocks) = &self.blocks else { return Ok(()) };
        let checked = self.follower.checksum().verified_body(blocks.bytes(raw.range.clone()));
        checked.map(drop).map_err(Error::corrupt(blocks.path(), raw.offset))
    }

    fn lend(&self, raw: RawEvent, boundary: Boundary) -> Result<ArchivedEvent<'_>> {
        let (Some(blocks), Some(file), Some(format)) = (&self.blocks, &self.file, &self.follower.format) else {
            // `step` has just read an event from that file, with that format.
            let why = "an event without a file or a format";
            return Err(Error::malformed(self.archive.dir(), raw.offset, "reader", why));
        };
        let bytes = blocks.bytes(raw.range);
        let body = self.follower.body(bytes).map_err(Error::corrupt(blocks.path(), raw.offset))?;
        Ok(ArchivedEvent {
            header: raw.header,
            bytes,
            body,
            boundary,
            seqno: self.follower.seqno,
            file,
            offset: raw.offset,
            source_file: &self.follower.source_file,
            source_end_position: self.follower.source_position,
            format,
            gtid_position: &self.follower.gtid_position,
            follower: &self.follower,
        })
    }

    /// Opens the current file, or the archive's first. False if there is none, or nothing in it yet.
    fn enter_file(&mut self) -> Result<bool> {
        if self.file.is_none() {
            let first = self.archive.tail().lock().files.front().cloned();
            let Some(first) = first else { return Ok(false) };
            self.follower = first.start.clone();
            if let Shown::NotCovered(covered) = &mut self.shown {
                covered.locate_start(&first.start);
            }
            self.file = Some(first);
        }
        let Some(file) = self.file.clone() else { return Ok(false) };
        let limit = self.archive.visible_length(&file);
        if limit <= FIRST_EVENT_OFFSET {
            return Ok(false);
        }
        let path = self.archive.path_of(&file);
        let opened = EventBlocks::open(self.archive.fs(), &path, self.options, FIRST_EVENT_OFFSET);
        let mut blocks = opened.map_err(|error| self.archive.purged_or(error, &file))?;
        let (limit, is_abandoned) = file.next_limit(FIRST_EVENT_OFFSET, limit);
        blocks.raise_limit(limit);
        self.is_abandoned = is_abandoned;
        self.blocks = Some(blocks);
        Ok(true)
    }

    /// Passes the limit, in this file or into the next one. False if there is nothing more yet.
    #[cold]
    fn pass_limit(&mut self) -> Result<bool> {
        let (Some(file), Some(blocks)) = (&self.file, &mut self.blocks) else { return Ok(false) };
        // Ask this before the length: a file that is sealed by now has its final length.
        let is_sealed = file.sealed_length().is_some();
        let visible = self.archive.visible_length(file);
        if visible > blocks.limit() {
            let (limit, is_abandoned) = file.next_limit(blocks.limit(), visible);
            self.is_abandoned = is_abandoned;
            blocks.raise_limit(limit);
            return Ok(true);
        }
        if !is_sealed || blocks.offset() < blocks.limit() {
            return Ok(false);
        }
        let Some(next) = self.archive.file_after(file) else { return Ok(false) };
        if self.follower.tracker.in_transaction() && !self.is_abandoned && !self.follower.is_relay_log() {
            let why = "a transaction has no end, and another file follows";
            return Err(Error::malformed(blocks.path(), blocks.offset(), "binlog file", why));
        }
        self.follower.enter_file(&next.source_name);
        if next.start.seqno != self.follower.seqno {
            let (wanted, first) = (self.follower.seqno + 1, next.first_seqno());
            return Err(Error::Purged { dir: self.archive.dir().to_path_buf(), wanted, first });
        }
        self.file = Some(next);
        self.blocks = None;
        self.is_abandoned = false;
        Ok(true)
    }

    /// Reads on to the end of the next transaction, and returns its record.
    pub(crate) fn next_record(&mut self) -> Result<Option<TransactionRecord>> {
        while let Some(event) = self.next_event()? {
            if matches!(event.boundary, Boundary::End | Boundary::Whole) {
                let end = event.offset + u64::from(event.header.event_length);
                return Ok(Some(event.follower.record(&event.header, end)));
            }
        }
        Ok(None)
    }

    /// Skips the current file's first transactions as long as `skip` returns true and the index is right. `skip` must
    /// return true only for transactions that are not to be shown.
    pub(crate) fn skip_indexed(&mut self, skip: impl Fn(&TransactionRecord) -> bool) -> Result<()> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        let visible = self.archive.visible_length(&file);
        let index = IndexReader::open(self.archive.fs(), &self.archive.path_of(&file), file.first_seqno());
        let records = index.into_iter().flatten().map(|(record, _)| record);
        let mut records = records.take_while(|record| record.end() <= visible && skip(record));
        let Some(first) = records.next() else { return Ok(()) };
        while self.blocks.is_none() || self.offset() < first.offset {
            let is_there = if self.blocks.is_none() { self.enter_file()? } else { self.step()?.is_some() };
            if !is_there {
                return Ok(());
            }
        }
        let (offset, follower) = (self.offset(), self.follower.clone());
        // The reader reads the last of them, as a proof that the index belongs to this file.
        let mut last = first;
        for record in records {
            self.follower.pass(&last);
            last = record;
        }
        let Some(blocks) = &mut self.blocks else { return Ok(()) };
        let is_true = offset == first.offset && begins_transaction(blocks, &self.follower, &last)?;
        if !is_true {
            self.follower = follower;
        }
        blocks.jump(if is_true { last.offset } else { offset });
        Ok(())
    }
}
