//! The ordered list of the archive's files: a small text file that is replaced as a whole.
//!
//! ```text
//! spate-archive 1
//! file <tab> local name <tab> source's name <tab> first seqno <tab> GTID position before it, or ? if unknown
//! purge <tab> local name
//! end <tab> CRC32 of everything above, in hexadecimal
//! ```
//! A file is listed before it is created and unlisted (`purge`) before it is removed, so a crash leaves no file in the
//! directory that the list does not explain.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

use spate_binlog::GtidPosition;

use crate::fs::{FileSystem, RealFileSystem};
use crate::names::{LIST_NAME, NEW_LIST_NAME, check_local_name, check_source_name};
use crate::{Error, Result};

const FIRST_LINE: &str = "spate-archive 1";

/// One binlog file of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFacts {
    /// Its name in the archive's directory.
    pub name: String,
    /// The name of the source's file.
    pub source_name: String,
    /// The ordinal of its first transaction.
    pub first_seqno: u64,
    /// The GTID position before the file's first transaction; `None` if it was unknown when the file was begun.
    pub start: Option<GtidPosition>,
}

/// Makes a directory that holds these binlog files an archive: gives it their list. For files that come back from a backup.
///
/// # Errors
/// [`Error::Inconsistent`] if a name cannot be that of a file of an archive, or the directory has a list; [`Error::Io`].
pub fn write_list(dir: &Path, files: &[FileFacts]) -> Result<()> {
    let fs = &RealFileSystem;
    let path = dir.join(LIST_NAME);
    let inconsistent = |why: String| Error::Inconsistent { path: path.clone(), why };
    for file in files {
        check_local_name(&file.name).map_err(inconsistent)?;
        check_source_name(&file.source_name).map_err(inconsistent)?;
    }
    if FileList::load(fs, dir)?.is_some() {
        return Err(inconsistent("there is one already".into()));
    }
    FileList { files: files.to_vec(), purging: Vec::new() }.store(fs, dir)
}

/// The content of the list on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileList {
    pub(crate) files: Vec<FileFacts>,
    /// Files whose removal has begun.
    pub(crate) purging: Vec<String>,
}

impl FileList {
    /// Reads the list; `None` if the directory has none.
    pub(crate) fn load(fs: &dyn FileSystem, dir: &Path) -> Result<Option<FileList>> {
        let path = dir.join(LIST_NAME);
        let file = match fs.open_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("open", &path)(error)),
        };
        let length = file.length().map_err(Error::io("read", &path))?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        let filled = file.read_at(0, &mut bytes).map_err(Error::io("read", &path))?;
        bytes.truncate(filled);
        FileList::parse(&bytes).map(Some).map_err(|why| Error::Inconsistent { path, why })
    }

    /// Replaces the list on disk, durably. A crash before this returns leaves the old list or the new one.
    pub(crate) fn store(&self, fs: &dyn FileSystem, dir: &Path) -> Result<()> {
        let new = dir.join(NEW_LIST_NAME);
        let path = dir.join(LIST_NAME);
        let file = fs.create(&new).map_err(Error::write(&new, 0))?;
        file.write_at(0, self.text().as_bytes()).map_err(Error::write(&new, 0))?;
        file.sync().map_err(Error::sync(&new))?;
        fs.rename(&new, &path).map_err(Error::write(&path, 0))?;
        fs.sync_dir(dir).map_err(Error::sync(dir))
    }

    fn text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for file in &self.files {
            let start = file.start.as_ref().map_or_else(|| "?".to_owned(), GtidPosition::to_string);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "file\t{}\t{}\t{}\t{start}", file.name, file.source_name, file.first_seqno);
        }
        for name in &self.purging {
            let _ = writeln!(text, "purge\t{name}");
        }
        let crc = crc32fast::hash(text.as_bytes());
        let _ = writeln!(text, "end\t{crc:08x}");
        text
    }

    fn parse(bytes: &[u8]) -> std::result::Result<FileList, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "the list is not text".to_owned())?;
        let end = text.rfind("end\t").ok_or("the list has no end")?;
        let (above, last) = text.split_at(end);
        let crc = last.strip_prefix("end\t").map(str::trim_end).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        if crc != Some(crc32fast::hash(above.as_bytes())) {
            return Err("the list's checksum does not match".into());
        }
        let mut lines = above.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(format!("the list does not begin with '{FIRST_LINE}'"));
        }
        let mut list = FileList::default();
        for line in lines {
            list.parse_line(line).ok_or_else(|| format!("cannot understand the line '{line}'"))?;
        }
        list.check()?;
        Ok(list)
    }

    /// Refuses a list that Spate never writes, even if its checksum is right. For example, if a file stood in it twice,
    /// the next opening would miss the events appended to that file.
    fn check(&self) -> std::result::Result<(), String> {
        let mut names = HashSet::new();
        for name in self.files.iter().map(|file| &file.name).chain(&self.purging) {
            check_local_name(name)?;
            if !names.insert(name) {
                return Err(format!("the file '{name}' stands in it twice"));
            }
        }
        self.files.iter().try_for_each(|file| check_source_name(&file.source_name))?;
        match self.files.windows(2).find(|pair| pair[1].first_seqno < pair[0].first_seqno) {
            Some([_, file]) => Err(format!("the file '{}' begins before the one that it follows", file.name)),
            _ => Ok(()),
        }
    }

    fn parse_line(&mut self, line: &str) -> Option<()> {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields.as_slice() {
            ["file", name, source_name, first_seqno, start] => self.files.push(FileFacts {
                name: (*name).to_owned(),
                source_name: (*source_name).to_owned(),
                first_seqno: first_seqno.parse().ok()?,
                start: if *start == "?" { None } else { Some(start.parse().ok()?) },
            }),
            ["purge", name] => self.purging.push((*name).to_owned()),
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> FileList {
        let file = |name: &str, start: Option<&str>| FileFacts {
            name: name.into(),
            source_name: "bin.000001".into(),
            first_seqno: 7,
            start: start.map(|text| text.parse().unwrap()),
        };
        FileList {
            files: vec![file("bin.000001", None), file("bin.000001.part2", Some("0-1-5,1-2-9")), file("x", Some(""))],
            purging: vec!["bin.000000".into()],
        }
    }

    #[test]
    fn index_records_are_read_as_written() {
        let list = sample();
        assert_eq!(FileList::parse(list.text().as_bytes()), Ok(list));
    }

    #[test]
    fn list_with_flipped_bit_or_truncated_is_refused() {
        let text = sample().text().into_bytes();
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // The case of a hexadecimal digit and the final line feed carry nothing.
            let result = FileList::parse(&flipped);
            assert!(result.is_err() || result == Ok(sample()), "bit {bit}");
        }
        for length in 0..text.len() - 1 {
            assert!(FileList::parse(&text[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn list_that_spate_never_writes_is_refused() {
        let why = |change: fn(&mut FileList)| {
            let mut list = sample();
            change(&mut list);
            FileList::parse(list.text().as_bytes()).unwrap_err()
        };
        assert!(why(|list| list.files[1].name = "bin.000001".into()).contains("'bin.000001' stands in it twice"));
        assert!(why(|list| list.purging.push("x".into())).contains("twice"));
        assert!(why(|list| list.files[2].name = "../x".into()).contains("\"../x\" cannot be"));
        assert!(why(|list| list.files[2].source_name = "../x".into()).contains("\"../x\" cannot be"));
        assert!(why(|list| list.files[1].first_seqno = 6).contains("'bin.000001.part2' begins before"));
    }
}
