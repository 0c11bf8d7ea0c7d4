//! A data directory as a tar stream, and back.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// What belongs to one running server only: a restored one makes its own.
const LEFT_OUT: [&str; 5] = ["auto.cnf", "mysql.sock", "mysqld.pid", "ib_buffer_pool", "lost+found"];
/// Directories below one another, at most: a server's own are two or three deep.
const DEPTH_MAX: usize = 32;
/// Bytes that a file is read and written by.
const BLOCK_BYTES: usize = 1 << 20;

/// One file or directory, below the data directory.
#[derive(Debug)]
pub(crate) struct Entry {
    path: PathBuf,
    is_directory: bool,
    pub(crate) bytes: u64,
}

/// Everything that is to be stored, in the order of the paths.
///
/// # Errors
/// [`Error::Refused`] if something leads out of the directory: it would be missing in the base.
pub(crate) fn files(directory: &Path, stop: &AtomicBool) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    walk(directory, Path::new(""), 0, &mut found, stop)?;
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

fn walk(root: &Path, below: &Path, depth: usize, found: &mut Vec<Entry>, stop: &AtomicBool) -> Result<()> {
    let here = root.join(below);
    if stop.load(Ordering::Acquire) {
        return Err(Error::Stopped);
    }
    if depth > DEPTH_MAX {
        return Err(Error::Refused(format!("{}: more than {DEPTH_MAX} directories in one another", here.display())));
    }
    for entry in std::fs::read_dir(&here).map_err(Error::file(&here))? {
        let entry = entry.map_err(Error::file(&here))?;
        let path = below.join(entry.file_name());
        let is_left_out = depth == 0 && LEFT_OUT.iter().any(|name| entry.file_name() == *name);
        if is_left_out {
            continue;
        }
        let kind = entry.file_type().map_err(Error::file(entry.path()))?;
        let metadata = entry.metadata().map_err(Error::file(entry.path()))?;
        if kind.is_dir() {
            found.push(Entry { path: path.clone(), is_directory: true, bytes: 0 });
            walk(root, &path, depth + 1, found, stop)?;
        } else if kind.is_file() {
            if is_of_elsewhere(&path) {
                let why = "it leads to a tablespace outside the data directory, which would not be part of the base";
                return Err(Error::Refused(format!("{}: {why}", entry.path().display())));
            }
            found.push(Entry { path, is_directory: false, bytes: metadata.size() });
        } else if kind.is_symlink() {
            let why = "it is a link, and what it leads to would not be part of the base: tables and tablespaces outside the data directory \
                       cannot be backed up this way";
            return Err(Error::Refused(format!("{}: {why}", entry.path().display())));
        }
    }
    Ok(())
}

/// True for a file in which MariaDB says where a tablespace is: a recovered server would open the live one's.
fn is_of_elsewhere(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("isl"))
}

/// Writes the files as a tar stream.
pub(crate) fn pack(directory: &Path, files: &[Entry], out: impl Write) -> Result<()> {
    let mut builder = tar::Builder::new(BufWriter::with_capacity(BLOCK_BYTES, out));
    builder.mode(tar::HeaderMode::Deterministic);
    builder.sparse(false);
    for entry in files {
        let path = directory.join(&entry.path);
        let packed = match entry.is_directory {
            true => builder.append_dir(&entry.path, &path),
            false => File::open(&path).and_then(|mut file| builder.append_file(&entry.path, &mut file)),
        };
        packed.map_err(Error::file(&path))?;
    }
    let written = builder.into_inner().and_then(|mut out| out.flush());
    written.map_err(Error::file("the stream of the base"))
}

/// Unpacks a tar stream into an empty directory. Nothing of it can lead out of that.
pub(crate) fn unpack(stream: &mut dyn Read, directory: &Path) -> Result<()> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    const PRIVATE_DIRECTORY: u32 = 0o700;
    const PRIVATE_FILE: u32 = 0o640;
    let mut archive = tar::Archive::new(BufReader::with_capacity(BLOCK_BYTES, stream));
    let broken = Error::file("the stream of the base");
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(Error::file("the stream of the base"))?;
        let below = entry.path().map_err(Error::file("the stream of the base"))?.into_owned();
        let is_inside = below.components().all(|part| matches!(part, Component::Normal(_)));
        let path = directory.join(&below);
        let kind = entry.header().entry_type();
        if !is_inside || !(kind.is_file() || kind.is_dir()) || is_of_elsewhere(&below) {
            let why = "the base holds an entry that is no file of a data directory";
            return Err(Error::Refused(format!("{}: {why}", below.display())));
        }
        if kind.is_dir() {
            let made = std::fs::DirBuilder::new().mode(PRIVATE_DIRECTORY).recursive(true).create(&path);
            made.map_err(Error::file(&path))?;
            continue;
        }
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(&path);
        let mut file = file.map_err(Error::file(&path))?;
        std::io::copy(&mut entry, &mut file).map_err(Error::file(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_comes_back_as_it_was() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(from.path().join("shop")).unwrap();
        std::fs::create_dir(from.path().join("empty")).unwrap();
        std::fs::write(from.path().join("shop/orders.ibd"), vec![7; 3_000_000]).unwrap();
        std::fs::write(from.path().join("ibdata1"), b"x").unwrap();
        std::fs::write(from.path().join("auto.cnf"), b"server-uuid=x").unwrap();
        let stop = AtomicBool::new(false);
        let mut stream = Vec::new();
        pack(from.path(), &files(from.path(), &stop).unwrap(), &mut stream).unwrap();
        unpack(&mut &stream[..], to.path()).unwrap();
        assert_eq!(std::fs::read(to.path().join("shop/orders.ibd")).unwrap(), vec![7; 3_000_000]);
        assert_eq!(std::fs::read(to.path().join("ibdata1")).unwrap(), b"x");
        assert!(to.path().join("empty").is_dir());
        assert!(!to.path().join("auto.cnf").exists());
    }

    #[test]
    fn a_stream_cannot_write_outside() {
        let to = tempfile::tempdir().unwrap();
        for (name, kind) in [("../outside", tar::EntryType::Regular), ("link", tar::EntryType::Symlink)] {
            let mut header = tar::Header::new_gnu();
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(kind);
            header.set_size(0);
            header.set_cksum();
            let mut stream = header.as_bytes().to_vec();
            stream.resize(stream.len() + 1024, 0);
            assert!(unpack(&mut &stream[..], to.path()).is_err(), "{name}");
        }
        assert!(!to.path().parent().unwrap().join("outside").exists());
    }

    #[test]
    fn links_are_refused() {
        let from = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/hostname", from.path().join("outside.ibd")).unwrap();
        assert!(files(from.path(), &AtomicBool::new(false)).unwrap_err().to_string().contains("outside.ibd"));
        std::fs::remove_file(from.path().join("outside.ibd")).unwrap();
        std::fs::write(from.path().join("t.isl"), "/elsewhere/t.ibd").unwrap();
        assert!(files(from.path(), &AtomicBool::new(false)).unwrap_err().to_string().contains("t.isl"));
    }
}
