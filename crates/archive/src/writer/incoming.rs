//! Decides where the events of an announced source file go: to the last local file, or to a new one.

use std::path::Path;
use std::sync::Arc;

use spate_binlog::{EventHeader, EventType, FILE_MAGIC, FormatDescription};

use super::{ArchiveWriter, CurrentFile, WholeEnd};
use crate::index::{IndexWriter, index_path};
use crate::list::FileFacts;
use crate::names::check_source_name;
use crate::stopping::stopping_point;
use crate::tail::ArchiveFile;
use crate::{Error, Result};

/// A source file that was announced.
#[derive(Debug)]
pub(crate) struct Incoming {
    source_file: String,
    format_event: Vec<u8>,
    format_header: EventHeader,
    format: FormatDescription,
}

impl Incoming {
    pub(crate) fn new(dir: &Path, source_file: &str, format_event: &[u8]) -> Result<Incoming> {
        let rejected = |source| Error::Rejected {
            path: dir.to_path_buf(),
            offset: 0,
            source_file: source_file.escape_debug().to_string(),
            source,
        };
        check_source_name(source_file)
            .map_err(|why| rejected(spate_binlog::Error::Malformed { what: "binlog file name", why }))?;
        let format = FormatDescription::parse(format_event).map_err(rejected)?;
        let format_header = EventHeader::parse(format_event).map_err(rejected)?;
        Ok(Incoming { source_file: source_file.to_owned(), format_event: format_event.to_vec(), format_header, format })
    }
}

impl ArchiveWriter {
    /// Finds the place of the first events after an announcement. False if the archive has the event already.
    ///
    /// After a reconnect the source repeats the head of its file, and sometimes the end of the file before. An event is
    /// known if a local file of the same name has the same bytes at the same offset.
    pub(crate) fn place(&mut self, header: &EventHeader, event: &[u8]) -> Result<bool> {
        let Some(incoming) = self.incoming.take() else { return Ok(true) };
        if self.continues_current(&incoming, header) {
            return Ok(true);
        }
        if self.is_known(&incoming, header, event)? {
            self.incoming = Some(incoming);
            return Ok(false);
        }
        let created = self.create_file(&incoming);
        if created.is_err() {
            self.incoming = Some(incoming);
        }
        created.map(|()| true)
    }

    fn continues_current(&self, incoming: &Incoming, header: &EventHeader) -> bool {
        let Some(current) = &self.current else { return false };
        let has_same_format = self.follower.format.as_ref().is_some_and(|format| {
            format.checksum == incoming.format.checksum && format.server_version == incoming.format.server_version
        });
        **current.file.source_name() == *incoming.source_file
            && has_same_format
            && source_begin(header) == self.follower.source_position as u32
    }

    fn is_known(&self, incoming: &Incoming, header: &EventHeader, event: &[u8]) -> Result<bool> {
        let begin = u64::from(source_begin(header));
        for file in self.archive.files().iter().rev().filter(|file| **file.source_name() == *incoming.source_file) {
            if begin + event.len() as u64 > self.archive.visible_length(file) {
                continue;
            }
            let mut bytes = vec![0; event.len()];
            self.archive.read_at(file, begin, &mut bytes)?;
            if bytes == event {
                return Ok(true);
            }
        }
        // A local file that began in the middle of the source's file cannot be compared by offset. But the head of the
        // source's file carries no changes.
        let is_head = matches!(
            header.event_type,
            EventType::GTID_LIST
                | EventType::PREVIOUS_GTIDS
                | EventType::BINLOG_CHECKPOINT
                | EventType::START_ENCRYPTION
        );
        let is_current = self
            .current
            .as_ref()
            .is_some_and(|current| **current.file.source_name() == *incoming.source_file && !current.is_aligned);
        Ok(is_head && is_current && u64::from(header.next_position) <= self.follower.source_position)
    }

    /// Ends a local file before a gap between two transactions, and begins another one after it, so that a local file
    /// keeps the source's offsets. A source may leave out events that were not asked for.
    pub(crate) fn split_at_gap(&mut self, header: &EventHeader) -> Result<()> {
        let Some(current) = &self.current else { return Ok(()) };
        let is_gap = source_begin(header) != self.follower.source_position as u32;
        if !is_gap || !current.is_aligned || !current.has_transactions || self.follower.tracker.in_transaction() {
            return Ok(());
        }
        let path = current.path.clone();
        let mut length = [0; 4];
        self.write_pending()?;
        let format_offset = FILE_MAGIC.len() as u64;
        self.archive.read_at(&self.current_file(), format_offset + 9, &mut length)?;
        let mut format = vec![0; u32::from_le_bytes(length) as usize];
        self.archive.read_at(&self.current_file(), format_offset, &mut format)?;
        let source_file = self.follower.source_file.to_string();
        let incoming = Incoming::new(&path, &source_file, &format)?;
        self.create_file(&incoming)
    }

    /// Begins a local file. Readers see no change until this has returned without error.
    pub(crate) fn create_file(&mut self, incoming: &Incoming) -> Result<()> {
        self.sync()?;
        let name = self.find_free_name(&incoming.source_file)?;
        let mut follower = self.follower.clone();
        follower.enter_file(&Arc::from(incoming.source_file.as_str()));
        let ordinal = self.archive.files().last().map_or(1, |last| last.ordinal + 1);
        let file = Arc::new(ArchiveFile::new(ordinal, &name, follower.clone()));
        let format_offset = FILE_MAGIC.len() as u64;
        if let Err(source) = follower.take(&incoming.format_header, &incoming.format_event, format_offset, true) {
            let why = source.to_string();
            return Err(self.malformed(why));
        }
        self.list.files.push(FileFacts {
            name: name.clone(),
            source_name: incoming.source_file.clone(),
            first_seqno: file.first_seqno(),
            start: follower.position_known.then(|| follower.gtid_position.clone()),
        });
        let created = self.create_listed_file(Arc::clone(&file), incoming);
        let created = self.poison_if_fatal(created);
        if created.is_err() {
            // The list on disk may name a file that is not there: recovery drops it, and the next store replaces the
            // list. Remove the created file, so that the next attempt can use its name. If the file cannot be removed,
            // that attempt finds another name.
            self.list.files.pop();
            let path = self.archive.path_of(&file);
            let _ = self.archive.fs().remove(&index_path(&path));
            let _ = self.archive.fs().remove(&path);
        }
        let current = created?;
        if let Some(finished) = self.current.replace(current) {
            finished.file.seal(finished.flushed);
        }
        let length = format_offset + incoming.format_event.len() as u64;
        self.pending.extend_from_slice(&FILE_MAGIC);
        self.pending.extend_from_slice(&incoming.format_event);
        self.whole_end = WholeEnd { offset: length, source_position: follower.source_position };
        self.follower = follower;
        self.archive.tail().update(|state| state.files.push_back(file));
        Ok(())
    }

    fn create_listed_file(&mut self, file: Arc<ArchiveFile>, incoming: &Incoming) -> Result<CurrentFile> {
        let dir = self.archive.dir().to_path_buf();
        self.list.store(self.archive.fs(), &dir)?;
        stopping_point("archive-file-listed");
        let path = self.archive.path_of(&file);
        let handle = self.archive.fs().create(&path).map_err(Error::write(&path, 0))?;
        stopping_point("archive-file-created");
        let index = IndexWriter::create(self.archive.fs(), &path, file.first_seqno())?;
        self.archive.fs().sync_dir(&dir).map_err(Error::sync(&dir))?;
        stopping_point("archive-file-indexed");
        let length = (FILE_MAGIC.len() + incoming.format_event.len()) as u32;
        let is_aligned = incoming.format_header.next_position == length;
        Ok(CurrentFile { file, path, handle, index, flushed: 0, is_aligned, has_transactions: false })
    }

    /// Finds a free local name: the source's name for its file, or that name with the number of a part if it is taken.
    fn find_free_name(&self, source_file: &str) -> Result<String> {
        let dir = self.archive.dir();
        let there = self.archive.fs().list(dir).map_err(Error::io("list", dir))?;
        let is_free = |name: &String| !there.contains(name) && self.list.files.iter().all(|file| file.name != *name);
        let parts = (2u64..).map(|part| format!("{source_file}.part{part}"));
        let name = std::iter::once(source_file.to_owned()).chain(parts).find(is_free);
        name.ok_or_else(|| self.malformed(format!("no name is free for {source_file}")))
    }

    fn current_file(&self) -> Arc<ArchiveFile> {
        match &self.current {
            Some(current) => Arc::clone(&current.file),
            None => Arc::new(ArchiveFile::new(0, "", self.follower.clone())),
        }
    }
}

/// The offset in the source's file at which an event begins, modulo 2³².
fn source_begin(header: &EventHeader) -> u32 {
    header.next_position.wrapping_sub(header.event_length)
}
