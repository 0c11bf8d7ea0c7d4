//! Opens an archive after its last writer ended, also by a crash.
//!
//! Recovery reads and verifies what of the last file was not surely synced; the files before it were synced when the next one was begun. It
//! truncates a last transaction that was never synced, because a crash can have torn it. It reports damage that no
//! crash explains: a bad event with whole transactions after it, or a bad event that was synced.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use spate_binlog::GtidPosition;

use crate::follower::{FIRST_EVENT_OFFSET, Follower};
use crate::fs::{FileHandle, FileSystem};
use crate::index::{IndexReader, IndexWriter, TransactionRecord, index_path, is_complete, synced};
use crate::list::{FileFacts, FileList};
use crate::scan::{Noted, Scanned, is_whole_after, scan_file, scan_file_behind, start_of};
use crate::stopping::stopping_point;
use crate::tail::ArchiveFile;
use crate::{Error, Result};

/// The archive as recovery leaves it.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) list: FileList,
    pub(crate) files: VecDeque<Arc<ArchiveFile>>,
    /// The state after the last event.
    pub(crate) follower: Follower,
    pub(crate) last: Option<TransactionRecord>,
    pub(crate) current: Option<RecoveredFile>,
}

/// The last file, ready to be appended to.
#[derive(Debug)]
pub(crate) struct RecoveredFile {
    pub(crate) file: Arc<ArchiveFile>,
    pub(crate) handle: Box<dyn FileHandle>,
    pub(crate) index: IndexWriter,
    pub(crate) length: u64,
    pub(crate) is_aligned: bool,
    pub(crate) has_transactions: bool,
}

/// Recovers the archive in `dir`, whose lock the caller holds. `start` is the GTID position at which an archive without
/// files begins.
pub(crate) fn recover(fs: &dyn FileSystem, dir: &Path, start: Option<GtidPosition>) -> Result<Recovered> {
    let list = match FileList::load(fs, dir)? {
        Some(list) => list,
        None => {
            refuse_foreign_files(fs, dir)?;
            FileList::default()
        }
    };
    let list = finish_purges(fs, dir, list)?;
    let list = drop_empty_file(fs, dir, list)?;
    let mut files = VecDeque::new();
    for (index, listed) in list.files.iter().enumerate() {
        let start = start_of(&listed.source_name, listed.first_seqno, listed.start.clone());
        files.push_back(Arc::new(ArchiveFile::new(index as u64 + 1, &listed.name, start)));
    }
    for (pair, file) in list.files.windows(2).zip(&files) {
        seal_earlier_file(fs, dir, file, &pair[1])?;
    }
    let Some(file) = files.back().cloned() else {
        let follower = Follower::new(Arc::from(""), 0, start);
        return Ok(Recovered { list, files, follower, last: None, current: None });
    };
    let (current, scanned) = recover_last_file(fs, dir, file)?;
    fs.sync_dir(dir).map_err(Error::sync(dir))?;
    Ok(Recovered { list, files, follower: scanned.follower, last: scanned.last, current: Some(current) })
}

/// Refuses a directory that has binlog files but no list: another program writes it.
fn refuse_foreign_files(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    for name in fs.list(dir).map_err(Error::io("list", dir))? {
        let path = dir.join(&name);
        let file = fs.open_read(&path).map_err(Error::io("open", &path))?;
        let mut magic = [0; spate_binlog::FILE_MAGIC.len()];
        let filled = file.read_at(0, &mut magic).map_err(Error::io("read", &path))?;
        if filled == magic.len() && magic == spate_binlog::FILE_MAGIC {
            let why = format!("it holds a binlog file, {name}, but is not an archive; choose an empty directory");
            return Err(Error::NotAnArchive { dir: dir.to_path_buf(), why });
        }
    }
    Ok(())
}

/// Removes the files whose purge a crash interrupted.
pub(crate) fn finish_purges(fs: &dyn FileSystem, dir: &Path, mut list: FileList) -> Result<FileList> {
    if list.purging.is_empty() {
        return Ok(list);
    }
    for name in &list.purging {
        let path = dir.join(name);
        remove_if_there(fs, &index_path(&path))?;
        remove_if_there(fs, &path)?;
    }
    fs.sync_dir(dir).map_err(Error::sync(dir))?;
    list.purging.clear();
    list.store(fs, dir)?;
    Ok(list)
}

fn remove_if_there(fs: &dyn FileSystem, path: &Path) -> Result<()> {
    match fs.remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Drops the last listed file if it has no format description. A file is listed before it is created, so a crash can
/// leave it empty or missing.
fn drop_empty_file(fs: &dyn FileSystem, dir: &Path, mut list: FileList) -> Result<FileList> {
    let Some(listed) = list.files.last() else { return Ok(list) };
    let path = dir.join(&listed.name);
    let length = match fs.open_read(&path) {
        Ok(file) => file.length().map_err(Error::io("read", &path))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(Error::io("open", &path)(error)),
    };
    let synced = synced(fs, &path, listed.first_seqno);
    if synced.end > length {
        let why = format!("the file has {length} bytes, but {} were synced to it", synced.end);
        return Err(Error::Inconsistent { path, why });
    }
    if synced.end > 0 || has_format(fs, &path, listed, length)? {
        return Ok(list);
    }
    list.files.pop();
    list.store(fs, dir)?;
    remove_if_there(fs, &index_path(&path))?;
    remove_if_there(fs, &path)?;
    Ok(list)
}

fn has_format(fs: &dyn FileSystem, path: &Path, listed: &FileFacts, length: u64) -> Result<bool> {
    if length <= FIRST_EVENT_OFFSET {
        return Ok(false);
    }
    let start = start_of(&listed.source_name, listed.first_seqno, None);
    match scan_head(fs, path, start, length) {
        Ok(has_format) => Ok(has_format),
        // Keep the file, so that it is reported as damage, unless it is blank: a file system can leave a file that was
        // never synced in that state.
        Err(Error::Corrupt { .. }) => Ok(!is_blank(fs, path)?),
        Err(other) => Err(other),
    }
}

fn is_blank(fs: &dyn FileSystem, path: &Path) -> Result<bool> {
    let file = fs.open_read(path).map_err(Error::io("open", path))?;
    let mut head = [0; 4096];
    let filled = file.read_at(0, &mut head).map_err(Error::io("read", path))?;
    Ok(head[..filled].iter().all(|&byte| byte == 0))
}

fn scan_head(fs: &dyn FileSystem, path: &Path, mut start: Follower, length: u64) -> Result<bool> {
    let mut scan = crate::scan::Scan::open(fs, path, FIRST_EVENT_OFFSET, length, true)?;
    match scan.step(&mut start)? {
        Ok(taken) => Ok(taken.is_some()),
        Err(stop) if stop.is_torn => is_whole_after(fs, path, &start, stop.offset, length, std::iter::empty()),
        Err(stop) => Err(Error::corrupt(path, stop.offset)(stop.source)),
    }
}

/// Checks a file that another one follows, and repairs its index if needed.
fn seal_earlier_file(fs: &dyn FileSystem, dir: &Path, file: &ArchiveFile, next: &FileFacts) -> Result<()> {
    let path = dir.join(&**file.name());
    let handle = fs.open_read(&path).map_err(Error::io("open", &path))?;
    let length = handle.length().map_err(Error::io("read", &path))?;
    file.seal(length);
    let expected = next.first_seqno.saturating_sub(file.first_seqno());
    if is_complete(fs, &path, file.first_seqno(), expected, length) {
        return Ok(());
    }
    let mut records = Vec::new();
    let scanned = scan_file(fs, &path, &file.start, length, |record| records.push(record))?;
    if let Some(stop) = scanned.stop {
        return Err(Error::corrupt(&path, stop.offset)(stop.source));
    }
    if records.len() as u64 != expected {
        let why = format!("it holds {} transactions, but the list says {expected}", records.len());
        return Err(Error::Inconsistent { path, why });
    }
    let mut index = IndexWriter::create(fs, &path, file.first_seqno())?;
    stopping_point("rebuilding-earlier-index");
    index.append(&records, true)
}

fn recover_last_file(fs: &dyn FileSystem, dir: &Path, file: Arc<ArchiveFile>) -> Result<(RecoveredFile, Scanned)> {
    let path = dir.join(&**file.name());
    let handle = fs.open_write(&path).map_err(Error::io("open", &path))?;
    let length = handle.length().map_err(Error::io("read", &path))?;
    let synced = synced(fs, &path, file.first_seqno());
    if synced.end > length {
        let why = format!("the file has {length} bytes, but {} were synced to it", synced.end);
        return Err(Error::Inconsistent { path, why });
    }
    let mut comparison = Comparison::new(fs, &path, file.first_seqno());
    // What was synced, no crash has torn. Whoever reads it verifies it.
    let index = IndexReader::open(fs, &path, file.first_seqno()).into_iter().flatten();
    let durable = index.take(synced.transactions).map(|(record, _)| record);
    let mut scanned = scan_file_behind(fs, &path, &file.start, length, durable, |noted| comparison.note(noted))?;
    if let Some(stop) = scanned.stop.take() {
        let index = IndexReader::open(fs, &path, file.first_seqno()).into_iter().flatten();
        let hints = index.map(|(record, _)| record.offset);
        // `drop_empty_file` has removed a last file without a format description.
        let was_durable = stop.offset < synced.end || stop.offset == FIRST_EVENT_OFFSET;
        if was_durable || is_whole_after(fs, &path, &scanned.follower, stop.offset, length, hints)? {
            return Err(Error::corrupt(&path, stop.offset)(stop.source));
        }
    }
    if scanned.whole_end < length {
        stopping_point("before-recovery-truncation");
        handle.truncate(scanned.whole_end).map_err(Error::io("truncate", &path))?;
        stopping_point("after-recovery-truncation");
    }
    handle.sync().map_err(Error::sync(&path))?;
    let index = comparison.rebuild(fs, &path, file.first_seqno())?;
    let (length, is_aligned, has_transactions) = (scanned.whole_end, scanned.is_aligned, scanned.last.is_some());
    Ok((RecoveredFile { file, handle, index, length, is_aligned, has_transactions }, scanned))
}

/// Compares the index with the file's transactions.
struct Comparison {
    index: Option<IndexReader>,
    /// Records of the index that are right, and whose transactions are durable by it.
    right: u64,
    /// The records that are to follow them.
    missing: Vec<TransactionRecord>,
}

impl Comparison {
    fn new(fs: &dyn FileSystem, path: &Path, first_seqno: u64) -> Comparison {
        Comparison { index: IndexReader::open(fs, path, first_seqno), right: 0, missing: Vec::new() }
    }

    fn note(&mut self, noted: Noted) {
        match noted {
            // They are the index's own.
            Noted::Known(count, last) => {
                self.right = count;
                self.index.iter_mut().for_each(|index| index.jump(count, &last));
            }
            Noted::Read(record) => self.compare(record),
        }
    }

    fn compare(&mut self, record: TransactionRecord) {
        if self.missing.is_empty() && self.index.as_mut().and_then(Iterator::next) == Some((record, true)) {
            self.right += 1;
        } else {
            self.missing.push(record);
        }
    }

    /// Writes the missing records, as durable: the whole file is synced by now.
    fn rebuild(self, fs: &dyn FileSystem, path: &Path, first_seqno: u64) -> Result<IndexWriter> {
        let mut index = match self.index {
            Some(_) => IndexWriter::resume(fs, path, self.right)?,
            None => IndexWriter::create(fs, path, first_seqno)?,
        };
        if !self.missing.is_empty() {
            stopping_point("rebuilding-last-index");
            index.append(&self.missing, true)?;
        }
        Ok(index)
    }
}
