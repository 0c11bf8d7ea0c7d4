//! Reads a directory that another process writes: a server's binlogs or relay logs, or another process's archive.
//!
//! This module writes nothing there. It walks the files to find the data that an index would hold. The walk verifies no
//! checksums: a reader verifies every event that it shows. A transaction that has no end in the files (its source
//! crashed, or sent it again) is recorded as abandoned; a transaction that has no end yet is not visible.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use spate_binlog::{Boundary, EventType, FILE_MAGIC, FormatDescription};

use crate::archive::Archive;
use crate::follower::{FIRST_EVENT_OFFSET, Follower};
use crate::fs::FileSystem;
use crate::index::TransactionRecord;
use crate::list::{FileFacts, FileList};
use crate::position::{LogEnd, Received};
use crate::scan::{Scan, Stop, is_whole_after, scan_file, start_of};
use crate::tail::ArchiveFile;
use crate::walked::{DirectoryOptions, End, Walked};
use crate::{Error, Result};

/// A file as the directory shows it; `listed` if the directory is an archive.
#[derive(Debug)]
struct Found {
    name: String,
    listed: Option<FileFacts>,
}

impl Archive {
    /// Opens a directory for reading only: an archive, or the binlogs or relay logs of a server, with or without their
    /// index. Walks it once without verifying; readers verify the events that they show. [`Archive::refresh`] finds
    /// later events.
    ///
    /// # Errors
    /// [`Error::NotAnArchive`] if it holds no such files, or several sets of them; [`Error::Inconsistent`] if a file is
    /// missing between others; [`Error::Corrupt`]; [`Error::Io`].
    pub fn open(fs: Arc<dyn FileSystem>, dir: &Path, options: DirectoryOptions) -> Result<Archive> {
        let start = Follower::new(Arc::from(""), 0, None);
        let end = Mutex::new(End { file: None, offset: 0, follower: start, last: None });
        let archive = Archive::with_walk(fs, dir, Walked { options, end });
        archive.refresh()?;
        Ok(archive)
    }

    /// True if the directory holds relay logs.
    pub(crate) fn is_relay_log(&self) -> bool {
        let end = |walked: &Walked| walked.end.lock().unwrap_or_else(PoisonError::into_inner).follower.is_relay_log();
        self.walked().is_some_and(end)
    }

    /// Looks for new events in a directory that was opened for reading only. True if there is more than before.
    ///
    /// # Errors
    /// As [`Archive::open`].
    pub fn refresh(&self) -> Result<bool> {
        let Some(walked) = self.walked() else { return Ok(false) };
        let mut end = walked.end.lock().unwrap_or_else(PoisonError::into_inner);
        let found = find_files(self.fs(), self.dir(), &walked.options)?;
        let mut walk = Walk::new(self, &end)?;
        walk.run(&found)?;
        let before = (end.file.as_ref().map(|file| file.ordinal), end.offset);
        *end = walk.finish();
        Ok(before != (end.file.as_ref().map(|file| file.ordinal), end.offset))
    }
}

/// One pass over the new events.
struct Walk<'a> {
    archive: &'a Archive,
    follower: Follower,
    last: Option<TransactionRecord>,
    /// The files walked in this pass, the first of which may be known already, and how far each reaches.
    files: Vec<(Arc<ArchiveFile>, u64)>,
    is_first_known: bool,
    ordinal: u64,
    /// The beginning of the transaction that is being walked; `None` between transactions.
    begin: Option<Begin>,
}

/// The state before a transaction. The walk goes back to it if the transaction has no end yet.
#[derive(Clone)]
struct Begin {
    /// Index in `Walk::files`.
    file: usize,
    offset: u64,
    source_file: Arc<str>,
    source_position: u64,
    format: Option<Arc<FormatDescription>>,
}

impl<'a> Walk<'a> {
    fn new(archive: &'a Archive, end: &End) -> Result<Walk<'a>> {
        Ok(Walk {
            archive,
            follower: end.follower.clone(),
            last: end.last,
            files: end.file.iter().map(|file| (Arc::clone(file), end.offset)).collect(),
            is_first_known: end.file.is_some(),
            ordinal: end.file.as_ref().map_or(0, |file| file.ordinal),
            begin: None,
        })
    }

    fn run(&mut self, found: &[Found]) -> Result<()> {
        let mut next = 0;
        if let Some((current, _)) = self.files.first() {
            let Some(at) = found.iter().position(|file| *file.name == **current.name()) else {
                let path = self.archive.path_of(current);
                return Err(Error::Inconsistent {
                    path,
                    why: "the file was removed while it was being followed".into(),
                });
            };
            self.walk_file(&found[at], at + 1 == found.len())?;
            next = at + 1;
        }
        for (index, file) in found.iter().enumerate().skip(next) {
            self.enter_file(file);
            self.walk_file(file, index + 1 == found.len())?;
        }
        Ok(())
    }

    fn enter_file(&mut self, found: &Found) {
        self.ordinal += 1;
        if self.follower.tracker.in_transaction() && !self.follower.is_relay_log() {
            self.abandon(self.files.len(), FIRST_EVENT_OFFSET);
        }
        let source_name = found.listed.as_ref().map_or(&found.name, |listed| &listed.source_name);
        match &found.listed {
            Some(listed) => {
                self.follower = start_of(&listed.source_name, listed.first_seqno, listed.start.clone());
            }
            None => self.follower.enter_file(&Arc::from(source_name.as_str())),
        }
        let file = ArchiveFile::new(self.ordinal, &found.name, self.follower.clone());
        self.files.push((Arc::new(file), FIRST_EVENT_OFFSET));
    }

    /// Walks the last of `files` from where it was left to its end.
    fn walk_file(&mut self, found: &Found, is_last: bool) -> Result<()> {
        let Some((file, offset)) = self.files.last().cloned() else { return Ok(()) };
        let path = self.archive.path_of(&file);
        let handle = self.archive.fs().open_read(&path).map_err(Error::io("open", &path))?;
        let length = handle.length().map_err(Error::io("read", &path))?;
        if found.listed.is_some() && !is_last {
            // Another process's archive begins a file only when the one before is complete.
            self.reach(length);
            return Ok(());
        }
        let mut scan = Scan::open(self.archive.fs(), &path, offset, length, false)?;
        let mut is_encrypted = false;
        loop {
            let (was_inside, begin_position) = (self.follower.tracker.in_transaction(), self.follower.source_position);
            match scan.step(&mut self.follower)? {
                Ok(Some((raw, boundary))) => {
                    is_encrypted |= raw.header.event_type == EventType::START_ENCRYPTION;
                    self.record_boundary(was_inside, boundary, raw.offset, begin_position);
                    if matches!(boundary, Boundary::End | Boundary::Whole) {
                        self.last = Some(self.follower.record(&raw.header, scan.offset()));
                        self.begin = None;
                    }
                }
                Ok(None) => break,
                Err(stop) => {
                    self.check_stop(&path, length, &file, stop, is_encrypted)?;
                    break;
                }
            }
        }
        self.reach(scan.offset());
        Ok(())
    }

    /// Records the beginnings of transactions. Abandons a transaction that has no end: another transaction began, or
    /// its source restarted.
    fn record_boundary(&mut self, was_inside: bool, boundary: Boundary, offset: u64, source_position: u64) {
        let begins = matches!(boundary, Boundary::Begin | Boundary::Whole);
        if was_inside && (begins || boundary == Boundary::Outside) {
            self.abandon(self.files.len() - 1, offset);
        }
        if boundary == Boundary::Begin {
            self.begin = Some(Begin {
                file: self.files.len() - 1,
                offset,
                source_file: Arc::clone(&self.follower.source_file),
                source_position,
                format: self.follower.format.clone(),
            });
        }
    }

    /// Marks everything from the current beginning to `offset` of file `end` as abandoned.
    fn abandon(&mut self, end: usize, offset: u64) {
        let Some(begin) = self.begin.take() else { return };
        for (index, (file, length)) in self.files.iter().enumerate().skip(begin.file) {
            let from = if index == begin.file { begin.offset } else { FIRST_EVENT_OFFSET };
            let to = if index == end { offset } else { *length };
            if from < to {
                file.abandon(from..to);
            }
        }
    }

    /// Accepts a file that ends in the middle of an event: its writer was killed, or is just writing. Any other stop is
    /// damage.
    fn check_stop(&self, path: &Path, length: u64, file: &ArchiveFile, stop: Stop, is_encrypted: bool) -> Result<()> {
        if is_encrypted {
            let why = "it is encrypted; read it through its server".to_owned();
            return Err(Error::corrupt(path, stop.offset)(spate_binlog::Error::Unsupported {
                what: "binlog file",
                why,
            }));
        }
        let fs = self.archive.fs();
        let follower = &self.follower;
        let stop = self.find_first_bad_event(path, stop)?;
        if stop.is_torn && !is_whole_after(fs, path, follower, stop.offset, length, std::iter::empty())? {
            return Ok(());
        }
        // The walk did not verify: the first bad event may stand before the one that stopped the walk.
        let first = scan_file(fs, path, &file.start, length, drop)?.stop.unwrap_or(stop);
        Err(Error::corrupt(path, first.offset)(first.source))
    }

    /// Finds the first bad event of the unfinished transaction. A wrong length in it can stop the walk only after the
    /// events that would prove the damage.
    fn find_first_bad_event(&self, path: &Path, stop: Stop) -> Result<Stop> {
        let mut follower = self.follower.clone();
        follower.abandon_transaction();
        let from = match &self.begin {
            Some(begin) if begin.file + 1 == self.files.len() => {
                follower.restore_format(begin.format.clone());
                begin.offset
            }
            Some(_) => FIRST_EVENT_OFFSET,
            None => return Ok(stop),
        };
        let mut scan = Scan::open(self.archive.fs(), path, from, stop.offset, true)?;
        loop {
            match scan.step(&mut follower)? {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(stop),
                Err(earlier) => return Ok(earlier),
            }
        }
    }

    fn reach(&mut self, offset: u64) {
        if let Some((_, length)) = self.files.last_mut() {
            *length = offset;
        }
    }

    /// Publishes the files up to the end of the last whole transaction.
    fn finish(mut self) -> End {
        if let Some(begin) = self.begin.take()
            && self.follower.abandon_transaction()
        {
            self.follower.source_file = begin.source_file;
            self.follower.source_position = begin.source_position;
            self.follower.restore_format(begin.format);
            self.files.truncate(begin.file + 1);
            self.reach(begin.offset);
        }
        let Some((file, offset)) = self.files.last().cloned() else {
            return End { file: None, offset: 0, follower: self.follower, last: self.last };
        };
        let finished = self.files.len() - 1;
        for (file, length) in &self.files[..finished] {
            file.seal(*length);
        }
        let received = Received(LogEnd {
            seqno: self.follower.seqno,
            file_ordinal: file.ordinal,
            file: Arc::clone(file.name()),
            offset,
            source_file: Arc::clone(&self.follower.source_file),
            source_position: self.follower.source_position,
            last_gtid: self.last.and_then(|record| record.gtid),
            gtid_position: Arc::new(self.follower.gtid_position.clone()),
            gtid_position_known: self.follower.position_known,
            commit_seconds: self.last.map_or(0, |record| record.commit_seconds),
        });
        let new = self.files.iter().skip(usize::from(self.is_first_known)).map(|(file, _)| Arc::clone(file));
        let new: Vec<_> = new.collect();
        self.archive.tail().update(|state| {
            state.files.extend(new);
            state.received = received;
        });
        End { file: Some(file), offset, follower: self.follower, last: self.last }
    }
}

/// The directory's files in order.
fn find_files(fs: &dyn FileSystem, dir: &Path, options: &DirectoryOptions) -> Result<Vec<Found>> {
    if let Some(list) = FileList::load(fs, dir)? {
        let found = list.files.into_iter();
        return Ok(found.map(|listed| Found { name: listed.name.clone(), listed: Some(listed) }).collect());
    }
    let not_an_archive = |why| Error::NotAnArchive { dir: dir.to_path_buf(), why };
    let mut sets = find_numbered_binlogs(fs, dir)?;
    let files = match &options.base_name {
        Some(base_name) => sets.remove(base_name),
        None if sets.len() > 1 => {
            let names = sets.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(not_an_archive(format!(
                "it holds several sets of binlog files; choose one with --base-name: {names}"
            )));
        }
        None => sets.pop_first().map(|(_, files)| files),
    };
    let Some(files) = files else {
        let of = options.base_name.as_ref().map_or(String::new(), |base_name| format!(" of {base_name}"));
        return Err(not_an_archive(format!("it holds no binlog files{of}")));
    };
    let numbers: Vec<u64> = files.keys().copied().collect();
    for pair in numbers.windows(2) {
        if pair[0] + 1 != pair[1] {
            let path = dir.join(&files[&pair[1]]);
            let why = format!("the file with number {} before it is missing", pair[1] - 1);
            return Err(Error::Inconsistent { path, why });
        }
    }
    Ok(files.into_values().map(|name| Found { name, listed: None }).collect())
}

/// Finds files that begin as a binlog and whose names end in a number: by base name, then by number.
fn find_numbered_binlogs(fs: &dyn FileSystem, dir: &Path) -> Result<BTreeMap<String, BTreeMap<u64, String>>> {
    let mut sets: BTreeMap<String, BTreeMap<u64, String>> = BTreeMap::new();
    for name in fs.list(dir).map_err(Error::io("list", dir))? {
        let Some((base, number)) = name.rsplit_once('.') else { continue };
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let Ok(number) = number.parse() else { continue };
        if is_binlog(fs, &dir.join(&name))? {
            sets.entry(base.to_owned()).or_default().insert(number, name);
        }
    }
    Ok(sets)
}

fn is_binlog(fs: &dyn FileSystem, path: &Path) -> Result<bool> {
    let file = fs.open_read(path).map_err(Error::io("open", path))?;
    let mut magic = [0; FILE_MAGIC.len()];
    let filled = file.read_at(0, &mut magic).map_err(Error::io("read", path))?;
    Ok(filled == magic.len() && magic == FILE_MAGIC)
}
