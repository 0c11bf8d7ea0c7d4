//! Records that were not loaded: two files for each input. `….rejects.csv` says of each record where it stood, why it was not loaded, and
//! what it was. `….rejects` has just the records, byte for byte: they can be corrected there and loaded again by the same layout.
//!
//! A piece's rejects are written to the first before the piece is committed; what is there of a piece that was not committed is dropped
//! when the next run begins, or at the end. The second is made of the first at the end of a run.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use csv::ByteRecord;
use rustix::fs::OFlags;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};
use crate::input::InputName;
use crate::pieces::Piece;
use crate::rows::Reject;

/// The end of the names of files of records.
pub(crate) const RECORDS: &str = ".rejects";
/// The end of the names of files of reasons.
pub(crate) const REASONS: &str = ".rejects.csv";

const HEADER: [&str; 6] = ["file", "line", "byte", "reason", "piece", "record"];
const BYTE: usize = 2;
const PIECE: usize = 4;
const RECORD: usize = 5;

/// The rejects of a piece in the file of reasons.
#[derive(Debug)]
struct Attempt {
    range: Range<u64>,
    /// The first byte of its last record in the input.
    last: u64,
}

/// The files of one input.
#[derive(Debug)]
pub(crate) struct Rejects {
    records_path: PathBuf,
    reasons_path: PathBuf,
    /// The input's header, which the records' file gets, too.
    header: Vec<u8>,
    has_lines: bool,
    file: Mutex<Option<File>>,
}

impl Rejects {
    /// The files of an input in a directory; `load` is its name, and its server's. Nothing is made until a record is rejected.
    pub(crate) fn of(directory: &Path, load: &str, input: &InputName, header: &[u8], has_lines: bool) -> Rejects {
        // Each load has files of its own: what another one has put aside is not its business.
        let hash = xxh3_64(format!("{load}\0{}", input.name).as_bytes());
        let name = format!("{}-{hash:016x}", input.short());
        Rejects {
            records_path: directory.join(format!("{name}{RECORDS}")),
            reasons_path: directory.join(format!("{name}{REASONS}")),
            header: header.to_vec(),
            has_lines,
            file: Mutex::new(None),
        }
    }

    /// The file of reasons.
    pub(crate) fn reasons_path(&self) -> &Path {
        &self.reasons_path
    }

    /// Drops what is of pieces that are not loaded, and what was written twice; then writes the file of records. Returns how many there are.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(crate) fn settle(&self, is_loaded: impl Fn(u64) -> bool) -> Result<u64> {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if !self.reasons_path.exists() {
            return Ok(0);
        }
        let mut kept = self.attempts()?;
        kept.retain(|piece, _| is_loaded(*piece));
        if kept.is_empty() {
            for path in [&self.reasons_path, &self.records_path] {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(Error::file(path, error)),
                    _ => {}
                }
            }
            return Ok(0);
        }
        let open = |range: &Range<u64>| {
            let mut file = File::open(&self.reasons_path)?;
            file.seek(SeekFrom::Start(range.start))?;
            Ok::<_, std::io::Error>(BufReader::new(file.take(range.end - range.start)))
        };
        let mut count = 0;
        replace(&self.records_path, |records| {
            records.write_all(&self.header)?;
            for attempt in kept.values() {
                let mut reasons = csv::ReaderBuilder::new().has_headers(false).from_reader(open(&attempt.range)?);
                let mut reason = ByteRecord::new();
                while reasons.read_byte_record(&mut reason)? {
                    let record = reason.get(RECORD).unwrap_or_default();
                    records.write_all(record)?;
                    // The last record of a file may lack its end.
                    if self.has_lines && !record.ends_with(b"\n") && !record.ends_with(b"\r") {
                        records.write_all(b"\n")?;
                    }
                    count += 1;
                }
            }
            Ok(())
        })?;
        replace(&self.reasons_path, |reasons| {
            reasons.write_all(format!("{}\n", HEADER.join(",")).as_bytes())?;
            kept.values().try_for_each(|attempt| std::io::copy(&mut open(&attempt.range)?, reasons).map(drop))
        })?;
        Ok(count)
    }

    /// Where the last attempt of each piece is in the file of reasons: all of it is written at once.
    fn attempts(&self) -> Result<BTreeMap<u64, Attempt>> {
        let failed = |error: csv::Error| Error::file(&self.reasons_path, std::io::Error::other(error));
        let mut reader = csv::ReaderBuilder::new().from_path(&self.reasons_path).map_err(failed)?;
        reader.byte_headers().map_err(failed)?;
        let mut attempts: BTreeMap<u64, Attempt> = BTreeMap::new();
        let mut reason = ByteRecord::new();
        loop {
            let begin = reader.position().byte();
            // A crash may have cut the last reason; its piece was not committed.
            if !matches!(reader.read_byte_record(&mut reason), Ok(true)) {
                return Ok(attempts);
            }
            let number = |column: usize| std::str::from_utf8(reason.get(column)?).ok()?.parse::<u64>().ok();
            let (Some(byte), Some(piece)) = (number(BYTE), number(PIECE)) else { continue };
            let end = reader.position().byte();
            let attempt = attempts.entry(piece).or_insert_with(|| Attempt { range: begin..begin, last: byte });
            // Behind another piece's, or at an earlier record, another attempt begins.
            if attempt.range.end != begin || (attempt.range.start != begin && byte <= attempt.last) {
                attempt.range.start = begin;
            }
            attempt.range.end = end;
            attempt.last = byte;
        }
    }

    /// Writes a piece's rejects, so that they survive a crash.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(crate) fn write(&self, piece: &Piece, rejects: &[Reject]) -> Result<()> {
        if rejects.is_empty() {
            return Ok(());
        }
        let failed = |error| Error::file(&self.reasons_path, error);
        let mut reasons = csv::Writer::from_writer(Vec::new());
        for reject in rejects {
            let record = piece.bytes.get(reject.record.clone()).unwrap_or_default();
            let byte = piece.start + reject.record.start as u64;
            let fields: [&[u8]; HEADER.len()] = [
                piece.whole.input.name.as_bytes(),
                &reject.line.to_string().into_bytes(),
                &byte.to_string().into_bytes(),
                reject.reason.as_bytes(),
                &piece.start.to_string().into_bytes(),
                record,
            ];
            reasons.write_record(fields).map_err(|error| failed(std::io::Error::other(error)))?;
        }
        let bytes = reasons.into_inner().map_err(|error| failed(error.into_error()))?;
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match &mut *file {
            Some(file) => file,
            none => none.insert(self.open().map_err(failed)?),
        };
        file.write_all(&bytes).and_then(|()| file.sync_data()).map_err(failed)
    }

    fn open(&self) -> std::io::Result<File> {
        if let Some(directory) = self.reasons_path.parent() {
            fs::create_dir_all(directory)?;
        }
        // Records may be private, and an account that can write into the directory must not redirect them.
        let no_links = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let mut file =
            OpenOptions::new().create(true).append(true).mode(0o600).custom_flags(no_links).open(&self.reasons_path)?;
        if !file.metadata()?.is_file() {
            return Err(std::io::Error::other("it is there, and no file"));
        }
        if file.metadata()?.len() == 0 {
            file.write_all(format!("{}\n", HEADER.join(",")).as_bytes())?;
        }
        Ok(file)
    }
}

/// Replaces a file at once by a new one, which nobody else can read.
fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let written = || {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let new = tempfile::Builder::new().prefix(".spate-load-").suffix(".tmp").tempfile_in(directory)?;
        let mut file = BufWriter::new(new.as_file().try_clone()?);
        write(&mut file)?;
        file.into_inner()?.sync_all()?;
        new.persist(path).map(drop).map_err(|error| error.error)
    };
    written().map_err(|error| Error::file(path, error))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::columns::Columns;
    use crate::layout::Layout;
    use crate::pieces::Whole;

    fn piece(start: u64, bytes: &[u8]) -> Piece {
        let layout = Layout::default();
        let whole = Whole {
            input: InputName::of(Path::new("-")).unwrap(),
            id: 1,
            columns: Columns::resolve(&layout, None, &["a".to_owned()]).unwrap(),
            header: vec![],
        };
        Piece { whole: Arc::new(whole), start, first_line: 1, bytes: bytes.to_vec(), is_last: false }
    }

    fn reject(record: std::ops::Range<usize>) -> Reject {
        Reject { record, line: 1, reason: "wrong, \"very\" wrong".to_owned() }
    }

    #[test]
    fn rejects_of_pieces_that_were_not_committed_are_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let input = InputName::of(Path::new("-")).unwrap();
        let rejects = || Rejects::of(directory.path(), "job on server", &input, b"a,b\n", true);
        let first = rejects();
        first.write(&piece(4, b"1,\xff\n2,\"x\ny\"\n"), &[reject(0..4), reject(4..12)]).unwrap();
        first.write(&piece(16, b"3,z\n"), &[reject(0..4)]).unwrap();
        drop(first);
        // The second piece comes again, in another size, and twice.
        let second = rejects();
        second.settle(|piece| piece == 4).unwrap();
        second.write(&piece(16, b"3,z\n4,z"), &[reject(0..4), reject(4..7)]).unwrap();
        second.write(&piece(16, b"3,z\n4,z"), &[reject(0..4), reject(4..7)]).unwrap();
        second.settle(|piece| [4, 16].contains(&piece)).unwrap();
        assert_eq!(fs::read(&second.records_path).unwrap(), b"a,b\n1,\xff\n2,\"x\ny\"\n3,z\n4,z\n");
        let reasons = fs::read_to_string(second.reasons_path()).unwrap_err();
        assert_eq!(reasons.kind(), std::io::ErrorKind::InvalidData, "the record's bytes are as they were");
        second.settle(|_| false).unwrap();
        assert!(!second.reasons_path().exists() && !second.records_path.exists());
    }
}
