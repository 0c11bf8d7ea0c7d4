//! Finds the place where a reader begins.

use std::sync::Arc;

use spate_binlog::{Boundary, Gtid, GtidPosition};

use crate::archive::Archive;
use crate::blocks::ReadOptions;
use crate::covered::Covered;
use crate::follower::FIRST_EVENT_OFFSET;
use crate::index::{IndexReader, TransactionRecord, find_record};
use crate::reader::{ArchiveReader, Shown};
use crate::tail::ArchiveFile;
use crate::{Error, Result};

/// The place where a reader begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seek {
    /// At the archive's first event.
    Earliest,
    /// At the first transaction that this position does not cover. Later covered ones, of other domains, are left out
    /// too.
    AfterGtid(GtidPosition),
    /// At this transaction; with the seqno after the last one, the reader waits for that transaction.
    Seqno(u64),
    /// At the event that begins there in the source's file, between two transactions.
    Source {
        /// The source's file.
        file: String,
        /// The offset in it.
        position: u64,
    },
}

impl Archive {
    /// The place of a transaction and the time of its commit: from the index if that has it, from the file otherwise.
    ///
    /// # Errors
    /// Those of [`Archive::reader`] and of reading.
    pub fn transaction(&self, seqno: u64) -> Result<TransactionRecord> {
        let files = self.files();
        if let Some(file) = files.iter().rev().find(|file| file.start.seqno < seqno)
            && let Some(record) = find_record(self.fs(), &self.path_of(file), file.first_seqno(), seqno)
            && record.end() <= self.visible_length(file)
        {
            return Ok(record);
        }
        let mut reader = self.reader(&Seek::Seqno(seqno), ReadOptions::default())?;
        match reader.next_record()? {
            Some(record) if record.seqno == seqno => Ok(record),
            _ => Err(self.no_such_place(format!("transaction {seqno}"), "its transactions end before that one".into())),
        }
    }

    /// A reader that begins at `seek`.
    ///
    /// # Errors
    /// [`Error::BeginsAfter`], [`Error::NoSuchPlace`] or [`Error::Purged`] if the archive does not have the place;
    /// errors of reading. If a place in the source's file lies inside a transaction, only reading reports it.
    pub fn reader(&self, seek: &Seek, options: ReadOptions) -> Result<ArchiveReader> {
        let files = self.files();
        match seek {
            Seek::Earliest => Ok(self.reader_at(files.first(), Shown::Everything, options)),
            Seek::AfterGtid(position) => self.after_gtid(&files, position, options),
            Seek::Seqno(seqno) => self.at_seqno(&files, *seqno, options),
            Seek::Source { file, position } => self.at_source(&files, file, *position, options),
        }
    }

    fn reader_at(&self, file: Option<&Arc<ArchiveFile>>, shown: Shown, options: ReadOptions) -> ArchiveReader {
        ArchiveReader::at_file(self.clone(), options, file.cloned(), shown)
    }

    fn after_gtid(
        &self,
        files: &[Arc<ArchiveFile>],
        position: &GtidPosition,
        options: ReadOptions,
    ) -> Result<ArchiveReader> {
        let mut covered = Covered::new(position.clone());
        let Some(first) = files.first() else { return Ok(self.reader_at(None, Shown::NotCovered(covered), options)) };
        self.check_begins_before(first, position)?;
        let last_covered = |covered: &Covered| {
            files.iter().rposition(|file| {
                // A relay log may begin in the middle of a transaction.
                let begun = file.start.tracker.gtid().filter(|_| file.start.tracker.in_transaction());
                file.start.position_known
                    && covered.covers_all_before(&file.start)
                    && begun.is_none_or(|event| covered.covers(event.gtid, file.start.seqno))
            })
        };
        // Sequence numbers mostly lead to the right file. If they do not, it can be any other.
        let likely = last_covered(&covered).unwrap_or(0);
        for file in files[likely..].iter().chain(files[..likely].iter().rev()) {
            if covered.is_located() {
                break;
            }
            self.locate(file, &mut covered);
        }
        let file = last_covered(&covered).map_or(first, |index| &files[index]);
        let mut reader = self.reader_at(Some(file), Shown::NotCovered(covered.clone()), options);
        reader.skip_indexed(|record| record.gtid.is_some_and(|gtid| covered.covers(gtid, record.seqno)))?;
        Ok(reader)
    }

    /// Looks in a file's index for the last transactions that a position names.
    fn locate(&self, file: &Arc<ArchiveFile>, covered: &mut Covered) {
        covered.locate_start(&file.start);
        for record in self.records(file) {
            if let Some(gtid) = record.gtid {
                covered.locate(gtid, record.seqno);
            }
        }
    }

    /// The seqno of a transaction, from the indexes; of the latest, if several have the same GTID. `None` if no index
    /// has it.
    pub fn seqno_of(&self, gtid: Gtid) -> Option<u64> {
        let is_it = |record: &TransactionRecord| record.gtid == Some(gtid);
        self.files().iter().rev().find_map(|file| self.records(file).filter(is_it).last()).map(|record| record.seqno)
    }

    fn records(&self, file: &ArchiveFile) -> impl Iterator<Item = TransactionRecord> {
        let visible = self.visible_length(file);
        let index = IndexReader::open(self.fs(), &self.path_of(file), file.first_seqno());
        index.into_iter().flatten().map(|(record, _)| record).take_while(move |record| record.end() <= visible)
    }

    /// Fails if the archive may lack transactions that `position` does not cover.
    fn check_begins_before(&self, first: &Arc<ArchiveFile>, position: &GtidPosition) -> Result<()> {
        let begins_after = |begins: GtidPosition| {
            let dir = self.dir().to_path_buf();
            Error::BeginsAfter { dir, wanted: position.clone(), begins }
        };
        let head = self.state_before_first_transaction(first)?;
        let Some((begins, is_known)) = head else { return Ok(()) };
        if is_known {
            return if position.covers_all(&begins) { Ok(()) } else { Err(begins_after(begins)) };
        }
        // The archive's start position is unknown: the first transaction of each domain or origin must be the next one
        // after `position`, or an earlier one.
        let mut seen = GtidPosition::default();
        let mut reader = self.reader_at(Some(first), Shown::Everything, ReadOptions::default());
        while let Some(event) = reader.next_event()? {
            let Some(gtid) = event.gtid().map(|event| event.gtid).filter(|_| event.boundary == Boundary::Begin) else {
                continue;
            };
            if seen.is_before_all_of(gtid) {
                seen.advance(gtid);
                if position.has_gap_before(gtid) {
                    return Err(begins_after(seen));
                }
            }
        }
        Ok(())
    }

    /// The GTID position before a file's first transaction, and whether it is complete; `None` while there is none.
    fn state_before_first_transaction(&self, file: &Arc<ArchiveFile>) -> Result<Option<(GtidPosition, bool)>> {
        if file.start.position_known {
            return Ok(Some((file.start.gtid_position.clone(), true)));
        }
        let mut reader = self.reader_at(Some(file), Shown::Everything, ReadOptions::default());
        let mut head = (GtidPosition::default(), false);
        while let Some(event) = reader.next_event()? {
            if event.boundary != Boundary::Outside {
                return Ok(Some(head));
            }
            head = (event.gtid_position.clone(), event.is_position_known());
        }
        Ok(None)
    }

    fn at_seqno(&self, files: &[Arc<ArchiveFile>], seqno: u64, options: ReadOptions) -> Result<ArchiveReader> {
        let end = self.tail().received().seqno;
        if seqno == 0 || seqno > end + 1 {
            let why = format!("its transactions end at {end}");
            return Err(self.no_such_place(format!("transaction {seqno}"), why));
        }
        let shown = Shown::FromSeqno(seqno);
        let Some(first) = files.first() else { return Ok(self.reader_at(None, shown, options)) };
        if seqno < first.first_seqno() {
            let dir = self.dir().to_path_buf();
            return Err(Error::Purged { dir, wanted: seqno, first: first.first_seqno() });
        }
        let file = files.iter().rev().find(|file| file.start.seqno < seqno).unwrap_or(first);
        let mut reader = self.reader_at(Some(file), shown, options);
        reader.skip_indexed(|record| record.seqno < seqno)?;
        Ok(reader)
    }

    fn at_source(
        &self,
        files: &[Arc<ArchiveFile>],
        source_file: &str,
        position: u64,
        options: ReadOptions,
    ) -> Result<ArchiveReader> {
        let position = position.max(FIRST_EVENT_OFFSET);
        let wanted = || format!("place {source_file}:{position}");
        let end = self.tail().received();
        if *end.source_file == *source_file && position > end.source_position {
            return Err(self.no_such_place(wanted(), format!("it ends at {source_file}:{}", end.source_position)));
        }
        // A source's file can begin anywhere inside a relay log, so the reader walks the relay log from its beginning.
        let is_relay_log = self.is_relay_log();
        let mut parts = files.iter().filter(|file| is_relay_log || **file.source_name() == *source_file);
        let mut chosen = parts.next();
        for part in parts {
            if !is_relay_log && self.begins_at_or_before(part, position)? {
                chosen = Some(part);
            }
        }
        let Some(file) = chosen else {
            if files.is_empty() {
                // The next transaction will begin there, or before.
                let shown = Shown::FromSource { file: source_file.to_owned(), position, walked: 0 };
                return Ok(self.reader_at(None, shown, options));
            }
            let names = match (files.first(), files.last()) {
                (Some(first), Some(last)) => {
                    format!("it reaches from {} to {}", first.source_name(), last.source_name())
                }
                _ => "it is empty".to_owned(),
            };
            return Err(self.no_such_place(wanted(), names));
        };
        let shown = Shown::FromSource { file: source_file.to_owned(), position, walked: 0 };
        Ok(self.reader_at(Some(file), shown, options))
    }

    /// True if the first event after the head of a part of a source's file begins at or before `position` in the
    /// source's file.
    fn begins_at_or_before(&self, part: &Arc<ArchiveFile>, position: u64) -> Result<bool> {
        let mut reader = self.reader_at(Some(part), Shown::Everything, ReadOptions::default());
        while let Some(event) = reader.next_event()? {
            if event.file.ordinal != part.ordinal {
                break;
            }
            if event.boundary != Boundary::Outside {
                let begin = event.source_end_position.saturating_sub(u64::from(event.header.event_length));
                return Ok(begin <= position);
            }
        }
        Ok(false)
    }
}
