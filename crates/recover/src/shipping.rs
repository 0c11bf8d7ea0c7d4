//! The archive's files in a target: shipped as they grow, and fetched for a recovery.
//!
//! ```text
//! logs/<lineage>/lineage.json                       where the archive is
//! logs/<lineage>/<first seqno>/file.json            a binlog file: its names, and what is before it
//! logs/<lineage>/<first seqno>/<from>-<to>-<hash>   its bytes from..to, with 8 digits of their SHA-256
//! logs/<lineage>/<first seqno>/end.json             it is complete: its length and its last transaction
//! ```
//! A *lineage* is one unbroken run of an archive. Its name is in the archive's directory; when the archive was recreated, or has lost what was shipped, the
//! next one begins, and so must the next base.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use spate_archive::{
    Archive, ArchiveFile, BACKUP_ID_NAME, DirectoryOptions, FileFacts, RealFileSystem, stopping_point,
};
use spate_binlog::GtidPosition;

use crate::error::{Error, Result};
use crate::manifest;
use crate::progress::Progress;
use crate::sealing::{self, Identities, Recipients};
use crate::target::Target;

/// Where logs are in a target.
pub(crate) const LOGS: &str = "logs";
/// Plain bytes of a part, at most: it is in memory plain and sealed.
const PART_BYTES: u64 = 32 << 20;
/// A complete file in more parts than it needs, by this many, is stored again in large ones: it was shipped while it grew.
const SURPLUS_PARTS_MAX: usize = 16;
/// Digits of a hash in a part's name: enough to notice that an archive was rewritten.
const HASH_DIGITS: usize = 8;

/// What was shipped by one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Shipped {
    /// Where to.
    pub lineage: String,
    /// Bytes of binlog that this run has stored.
    pub bytes: u64,
    /// How far the target has the archive: the last transaction's ordinal,
    pub seqno: u64,
    /// the GTID position,
    pub gtid_position: String,
    /// and the source's file
    pub source_file: String,
    /// with the offset in it.
    pub source_position: u64,
    /// Why this run has begun another lineage, so that a base must follow. `None`: it has not.
    pub broken: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Lineage {
    format: u32,
    id: String,
    began: Timestamp,
    archive: String,
}

/// A file's facts, as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FileObject {
    name: String,
    source_name: String,
    first_seqno: u64,
    /// `None`: unknown.
    start: Option<String>,
    /// SHA-256 of its first bytes, which say when it was begun.
    head: String,
}

/// A complete file, as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct EndObject {
    bytes: u64,
    last_seqno: u64,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    object: String,
    from: u64,
    to: u64,
    hash: String,
}

/// A file in a target.
#[derive(Debug, Clone)]
pub(crate) struct StoredFile {
    under: String,
    facts: FileObject,
    /// `None`: it is not complete.
    end: Option<EndObject>,
    parts: Vec<Part>,
}

const FORMAT: u32 = 1;
/// Lineages that an archive remembers.
const LINEAGES_MAX: usize = 32;
/// A format description event, and the GTIDs before the file, as a rule.
const HEAD_BYTES: u64 = 256;

impl StoredFile {
    /// The position before its first transaction. `None`: unknown.
    pub(crate) fn start(&self) -> Option<GtidPosition> {
        self.facts.start.as_ref().and_then(|text| text.parse().ok())
    }

    pub(crate) fn source_name(&self) -> &str {
        &self.facts.source_name
    }

    pub(crate) fn first_seqno(&self) -> u64 {
        self.facts.first_seqno
    }

    /// The parts that make the file, from its beginning, and where they end. Of several that begin at a place, the longest.
    fn chain(&self) -> (Vec<&Part>, u64) {
        let (mut chain, mut at) = (Vec::new(), 0);
        while let Some(next) = self.parts.iter().filter(|part| part.from == at).max_by_key(|part| part.to) {
            at = next.to;
            chain.push(next);
        }
        (chain, at)
    }

    /// Everything of it, by name.
    pub(crate) fn objects(&self) -> Vec<String> {
        let own = ["file.json", "end.json"].map(|name| format!("{}/{name}", self.under));
        self.parts.iter().map(|part| part.object.clone()).chain(own).collect()
    }
}

fn parse_part(object: &str, name: &str) -> Option<Part> {
    let mut words = name.split('-');
    let (from, to, hash) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?);
    (words.next().is_none() && from < to).then(|| Part { object: object.to_owned(), from, to, hash: hash.to_owned() })
}

/// A lineage in a target.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stored {
    pub(crate) lineage: String,
    /// By their first transaction.
    pub(crate) files: Vec<StoredFile>,
    /// What cannot be read of others.
    pub(crate) damaged: Vec<String>,
}

/// The lineages of a target, in the order in which they began.
pub(crate) fn stored(target: &Target) -> Result<Vec<Stored>> {
    #[derive(Default)]
    struct Seen {
        has_facts: bool,
        has_end: bool,
        parts: Vec<Part>,
    }
    let mut files: BTreeMap<(String, String), Seen> = BTreeMap::new();
    for listed in target.list(LOGS)? {
        let words: Vec<&str> = listed.name.split('/').collect();
        let [_, lineage, file, name] = words[..] else { continue };
        let seen = files.entry((lineage.to_owned(), file.to_owned())).or_default();
        match name {
            "file.json" => seen.has_facts = true,
            "end.json" => seen.has_end = true,
            _ => seen.parts.extend(parse_part(&listed.name, name)),
        }
    }
    let mut lineages: BTreeMap<String, Stored> = BTreeMap::new();
    for ((lineage, file), seen) in files {
        let under = format!("{LOGS}/{lineage}/{file}");
        // A crash may leave parts of a file whose removal has begun.
        if !seen.has_facts {
            continue;
        }
        let stored = lineages.entry(lineage.clone()).or_insert_with(|| Stored { lineage, ..Stored::default() });
        match stored_file(target, under, seen.has_end, seen.parts) {
            Ok(file) => stored.files.push(file),
            Err(error @ Error::Damaged { .. }) => stored.damaged.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    Ok(lineages.into_values().collect())
}

fn stored_file(target: &Target, under: String, has_end: bool, parts: Vec<Part>) -> Result<StoredFile> {
    let facts: FileObject = read_json(target, &format!("{under}/file.json"))?;
    let end = has_end.then(|| read_json(target, &format!("{under}/end.json"))).transpose()?;
    Ok(StoredFile { under, facts, end, parts })
}

fn read_json<T: serde::de::DeserializeOwned>(target: &Target, name: &str) -> Result<T> {
    serde_json::from_slice(&target.get(name)?).map_err(|error| target.damaged(name, error.to_string()))
}

fn write_json<T: Serialize>(target: &Target, name: &str, value: &T) -> Result<()> {
    let text = serde_json::to_vec_pretty(value).map_err(|error| Error::Refused(error.to_string()))?;
    target.put(name, text)
}

/// Ships what the archive has and the target has not. The archive may be growing meanwhile.
///
/// # Errors
/// Any; what was shipped stays, and the next run goes on behind it.
pub fn ship(
    directory: &Path,
    target: &Target,
    recipients: &Recipients,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<Shipped> {
    let archive = Archive::open(Arc::new(RealFileSystem), directory, DirectoryOptions::default())?;
    let files = archive.files();
    progress.begin("looking at what is there");
    let known = known_lineages(directory)?;
    let all = stored(target)?;
    let others = all.len();
    let ours = all.into_iter().rev().find(|stored| known.contains(&stored.lineage));
    let (lineage, mut there, broken) = match ours {
        Some(Stored { lineage, files: there, damaged }) => {
            let why = match damaged.into_iter().next() {
                Some(damaged) => Some(damaged),
                None => contradiction(&archive, &files, &there)?,
            };
            match why {
                None => (lineage, there, None),
                Some(why) => (begin_lineage(directory, target)?, Vec::new(), Some(why)),
            }
        }
        None => {
            let why = (others > 0).then(|| {
                format!("the target has binlogs of {others} others, and nothing here says that this archive goes on behind one of them")
            });
            (begin_lineage(directory, target)?, Vec::new(), why)
        }
    };
    // What is not on disk may be gone after a crash of this machine, and come again as something else.
    sync(&archive, &files)?;
    let ship = Shipping { archive: &archive, target, recipients, progress, stop, lineage: &lineage };
    let mut bytes = 0;
    let first_due = there.last().map_or(0, StoredFile::first_seqno);
    for (index, file) in files.iter().enumerate().filter(|(_, file)| file.first_seqno() >= first_due) {
        let known = there
            .iter()
            .position(|stored| stored.first_seqno() == file.first_seqno() && *stored.facts.name == **file.name());
        let known = known.map(|place| there.swap_remove(place));
        bytes += ship.file(file, files.get(index + 1), known)?;
    }
    let end = archive.tail().received();
    Ok(Shipped {
        lineage,
        bytes,
        seqno: end.seqno,
        gtid_position: end.gtid_position.to_string(),
        source_file: end.source_file.to_string(),
        source_position: end.source_position,
        broken,
    })
}

/// The archive's lineages, one for each target, and those before.
fn known_lineages(directory: &Path) -> Result<Vec<String>> {
    let path = directory.join(BACKUP_ID_NAME);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Error::file(path)(error)),
    }
}

fn begin_lineage(directory: &Path, target: &Target) -> Result<String> {
    let began = Timestamp::now();
    let id = manifest::new_id(began)?;
    let archive = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned()).display().to_string();
    write_json(
        target,
        &format!("{LOGS}/{id}/lineage.json"),
        &Lineage { format: FORMAT, id: id.clone(), began, archive },
    )?;
    let (path, new) = (directory.join(BACKUP_ID_NAME), directory.join("backup.id.new"));
    let mut all = known_lineages(directory)?;
    all.push(id.clone());
    // One is enough for each target, and nobody has many.
    let first = all.len().saturating_sub(LINEAGES_MAX);
    let written = std::fs::File::create(&new).and_then(|mut file| {
        writeln!(file, "{}", all[first..].join("\n"))?;
        file.sync_all()?;
        std::fs::rename(&new, &path)
    });
    written.map_err(Error::file(&path))?;
    stopping_point("after-backup-lineage");
    Ok(id)
}

/// Whether the archive is another than what was shipped of it. `None`: it goes on.
fn contradiction(archive: &Archive, files: &[Arc<ArchiveFile>], there: &[StoredFile]) -> Result<Option<String>> {
    let Some(last) = there.last() else { return Ok(None) };
    let (chain, shipped_to) = last.chain();
    let Some(file) =
        files.iter().find(|file| file.first_seqno() == last.first_seqno() && **file.name() == *last.facts.name)
    else {
        let next = files.first().map_or(0, |file| file.first_seqno());
        return Ok(match &last.end {
            Some(end) if next == end.last_seqno + 1 => None,
            _ => Some(format!(
                "the archive's file {} was removed, or recreated, before all of it was backed up; it begins now with {}",
                last.facts.name,
                files.first().map_or("nothing".to_owned(), |file| file.name().to_string())
            )),
        });
    };
    if head_of(archive, file)? != last.facts.head {
        return Ok(Some(format!("the archive's file {} is another than the one that was backed up", file.name())));
    }
    if archive.visible_length(file) < shipped_to {
        return Ok(Some(format!("the archive's file {} is shorter than what was backed up of it", file.name())));
    }
    if let Some(part) = chain.last() {
        let plain = read_range(archive, file, part.from, part.to)?;
        if !sealing::hash(&plain).starts_with(&part.hash) {
            return Ok(Some(format!(
                "the archive's file {} holds something else between {} and {} than what was backed up",
                file.name(),
                part.from,
                part.to
            )));
        }
    }
    Ok(None)
}

fn head_of(archive: &Archive, file: &ArchiveFile) -> Result<String> {
    let length = archive.visible_length(file).min(HEAD_BYTES);
    // Shorter ones grow.
    match length < HEAD_BYTES {
        true => Ok(String::new()),
        false => Ok(sealing::hash(&read_range(archive, file, 0, length)?)),
    }
}

fn read_range(archive: &Archive, file: &ArchiveFile, from: u64, to: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(usize::MAX)];
    archive.read_at(file, from, &mut bytes)?;
    Ok(bytes)
}

/// Only the last file may have bytes that are not on disk.
fn sync(archive: &Archive, files: &[Arc<ArchiveFile>]) -> Result<()> {
    let Some(last) = files.last() else { return Ok(()) };
    let path = archive.path_of(last);
    std::fs::File::open(&path).and_then(|file| file.sync_data()).map_err(Error::file(&path))
}

struct Shipping<'a> {
    archive: &'a Archive,
    target: &'a Target,
    recipients: &'a Recipients,
    progress: &'a Progress,
    stop: &'a AtomicBool,
    lineage: &'a str,
}

impl Shipping<'_> {
    /// Ships what is new of a file, and returns how many bytes that are.
    fn file(&self, file: &Arc<ArchiveFile>, next: Option<&Arc<ArchiveFile>>, known: Option<StoredFile>) -> Result<u64> {
        let under = format!("{LOGS}/{}/{:020}", self.lineage, file.first_seqno());
        let length = self.archive.visible_length(file);
        if known.as_ref().is_some_and(|known| known.end.is_some()) || length < HEAD_BYTES && next.is_none() {
            return Ok(0);
        }
        self.progress.begin(format!("storing {}", file.name()));
        let known = match known {
            Some(known) => known,
            None => {
                let FileFacts { name, source_name, first_seqno, start } = file.facts();
                let start = start.map(|start| start.to_string());
                let facts = FileObject { name, source_name, first_seqno, start, head: head_of(self.archive, file)? };
                write_json(self.target, &format!("{under}/file.json"), &facts)?;
                StoredFile { under: under.clone(), facts, end: None, parts: Vec::new() }
            }
        };
        let (chain, begin) = known.chain();
        let parts_before = chain.len();
        self.parts(file, &under, begin, length)?;
        if let Some(next) = next {
            if parts_before > SURPLUS_PARTS_MAX {
                self.parts(file, &under, 0, length)?;
            }
            stopping_point("before-backup-file-end");
            let end = EndObject { bytes: length, last_seqno: next.first_seqno() - 1 };
            write_json(self.target, &format!("{under}/end.json"), &end)?;
            if parts_before > SURPLUS_PARTS_MAX {
                for part in known.parts.iter().filter(|part| part.to - part.from < PART_BYTES && part.to != length) {
                    self.target.delete(&part.object)?;
                }
            }
        }
        Ok(length - begin)
    }

    fn parts(&self, file: &ArchiveFile, under: &str, begin: u64, length: u64) -> Result<()> {
        let mut from = begin;
        while from < length {
            if self.stop.load(Ordering::Acquire) {
                return Err(Error::Stopped);
            }
            let to = length.min(from + PART_BYTES);
            let plain = read_range(self.archive, file, from, to)?;
            let hash = &sealing::hash(&plain)[..HASH_DIGITS];
            let sealed = sealing::seal(&plain, self.recipients)?;
            self.progress.stored(plain.len() as u64, sealed.len() as u64);
            self.target.put(&format!("{under}/{from:016}-{to:016}-{hash}"), sealed)?;
            stopping_point("after-backup-part");
            from = to;
        }
        Ok(())
    }
}

/// Fetches files of a lineage into an empty directory, which becomes an archive.
///
/// # Errors
/// The reason, for people, if something is missing between the first and the last of them.
pub(crate) fn fetch(
    target: &Target,
    files: &[StoredFile],
    identities: &Identities,
    directory: &Path,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<std::result::Result<(), String>> {
    let mut listed = Vec::with_capacity(files.len());
    for (index, file) in files.iter().enumerate() {
        let (chain, end) = file.chain();
        let facts = &file.facts;
        if let Some(next) = files.get(index + 1) {
            let Some(stored_end) = &file.end else {
                return Ok(Err(format!(
                    "the file {} was not stored to its end, and {} follows it",
                    facts.name, next.facts.name
                )));
            };
            if stored_end.bytes != end {
                return Ok(Err(format!(
                    "of the file {}, bytes from {end} to {} are missing",
                    facts.name, stored_end.bytes
                )));
            }
            if stored_end.last_seqno + 1 != next.first_seqno() {
                return Ok(Err(format!("files between {} and {} are missing", facts.name, next.facts.name)));
            }
        }
        progress.begin(format!("fetching {}", facts.name));
        let start = match &facts.start {
            None => None,
            Some(text) => {
                Some(text.parse::<GtidPosition>().map_err(|error| target.damaged(&file.under, error.to_string()))?)
            }
        };
        listed.push(FileFacts {
            name: facts.name.clone(),
            source_name: facts.source_name.clone(),
            first_seqno: facts.first_seqno,
            start,
        });
        spate_archive::check_source_name(&facts.name).map_err(|why| target.damaged(&file.under, why))?;
        let path = directory.join(&facts.name);
        let mut out = std::fs::File::create_new(&path).map_err(Error::file(&path))?;
        for part in chain {
            if stop.load(Ordering::Acquire) {
                return Err(Error::Stopped);
            }
            let sealed = target.get(&part.object)?;
            let bytes = usize::try_from(part.to - part.from).unwrap_or(usize::MAX).min(2 * PART_BYTES as usize);
            let plain = sealing::open(&sealed, identities, bytes).map_err(|why| target.damaged(&part.object, why))?;
            if plain.len() as u64 != part.to - part.from || !sealing::hash(&plain).starts_with(&part.hash) {
                return Err(target.damaged(&part.object, "it holds other bytes than its name says"));
            }
            progress.stored(plain.len() as u64, sealed.len() as u64);
            out.write_all(&plain).map_err(Error::file(&path))?;
        }
    }
    spate_archive::write_list(directory, &listed)?;
    Ok(Ok(()))
}

/// A lineage, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Its name.
    pub lineage: String,
    /// Binlog files.
    pub files: usize,
    /// Bytes of binlog.
    pub bytes: u64,
    /// The first file of the source.
    pub first_file: String,
    /// The last file of the source.
    pub last_file: String,
    /// The GTID position before the first; `?` if it is unknown.
    pub start: String,
    /// What cannot be read of it.
    pub damaged: Vec<String>,
}

/// The lineages of a target.
///
/// # Errors
/// [`Error::Target`], [`Error::Damaged`].
pub fn summary(target: &Target) -> Result<Vec<Summary>> {
    let summarized = stored(target)?.into_iter().map(|Stored { lineage, files, damaged }| {
        let (bytes, first_file, last_file) = reach(&files);
        let start = files.first().and_then(StoredFile::start).map_or("?".to_owned(), |start| start.to_string());
        Summary { lineage, files: files.len(), bytes, first_file, last_file, start, damaged }
    });
    Ok(summarized.collect())
}

/// Which of two lineages of one server reaches further: by the GTIDs before its last file, then by names and bytes.
pub(crate) fn compare_ends(one: &[StoredFile], other: &[StoredFile]) -> std::cmp::Ordering {
    let (Some(one), Some(other)) = (one.last(), other.last()) else { return one.len().cmp(&other.len()) };
    if let (Some(one), Some(other)) = (one.start(), other.start()) {
        match (one.covers_all(&other), other.covers_all(&one)) {
            (true, false) => return std::cmp::Ordering::Greater,
            (false, true) => return std::cmp::Ordering::Less,
            _ => {}
        }
    }
    let end = |file: &StoredFile| (file.source_name().len(), file.source_name().to_owned(), file.chain().1);
    end(one).cmp(&end(other))
}

/// How far a lineage reaches, for people: bytes, and the first and last file of the source.
pub(crate) fn reach(files: &[StoredFile]) -> (u64, String, String) {
    let bytes = files.iter().map(|file| file.chain().1).sum();
    let name = |file: Option<&StoredFile>| file.map(|file| file.source_name().to_owned()).unwrap_or_default();
    (bytes, name(files.first()), name(files.last()))
}
