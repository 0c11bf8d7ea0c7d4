//! The few operations that the archive asks of a file system, so that tests can make each of them fail.
//!
//! Invariant that the archive relies on: the bytes written to a file survive a crash once [`FileHandle::sync`] has
//! returned without error, and the file's name once [`FileSystem::sync_dir`] has. Before that, any of them may be lost.
//!
//! A binlog holds rows, and statements with passwords: no other account of the machine may open the files that
//! [`RealFileSystem`] creates, even under a permissive umask.

use std::any::Any;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The mode of a directory that Spate creates: only Spate's account may list it and open its files.
pub const DIRECTORY_MODE: u32 = 0o700;
/// The mode of a file that Spate creates: only Spate's account may read and write it.
pub const FILE_MODE: u32 = 0o600;
/// The mode bits of all accounts but the owner's.
pub(crate) const OTHERS: u32 = 0o077;

/// Operations on directories and on the names of files.
pub trait FileSystem: fmt::Debug + Send + Sync {
    /// Creates a directory and its parents; the directory may exist already.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// The names in a directory, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Opens a file for reading.
    fn open_read(&self, path: &Path) -> io::Result<Box<dyn FileHandle>>;
    /// Opens a file for reading and writing.
    fn open_write(&self, path: &Path) -> io::Result<Box<dyn FileHandle>>;
    /// Creates an empty file for reading and writing; truncates a file that exists.
    fn create(&self, path: &Path) -> io::Result<Box<dyn FileHandle>>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Renames a file, and replaces a file of the new name atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes an exclusive lock on a file (created if missing) until the returned value is dropped; `None` if the lock
    /// is held already.
    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn Any + Send>>>;
}

/// One open file.
pub trait FileHandle: fmt::Debug + Send + Sync {
    /// The file's length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `bytes`. After an error, any part of them may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Truncates the file to `length` bytes.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Makes the file's bytes and length durable.
    fn sync(&self) -> io::Result<()>;
}

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFileSystem;

impl FileSystem for RealFileSystem {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // Names that are not UTF-8 and things that are not files cannot be the archive's.
            if let (Ok(name), true) = (entry.file_name().into_string(), entry.path().is_file()) {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn FileHandle>> {
        Ok(Box::new(RealFile(File::open(path)?)))
    }

    fn open_write(&self, path: &Path) -> io::Result<Box<dyn FileHandle>> {
        Ok(Box::new(RealFile(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FileHandle>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
        // A file that existed keeps its mode until it is set.
        if file.metadata()?.permissions().mode() & OTHERS != 0 {
            // Not every file system knows modes. The warning of `Exposure` covers those that do not.
            let _ = file.set_permissions(Permissions::from_mode(FILE_MODE));
        }
        Ok(Box::new(RealFile(file)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn Any + Send>>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(RealLock(file)))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// A locked file. Dropping it unlocks explicitly: closing alone frees the lock only when no child process, between its
/// fork and its exec, still has a copy of the descriptor.
struct RealLock(File);

impl Drop for RealLock {
    fn drop(&mut self) {
        // A drop cannot report an error, and closing follows.
        let _ = self.0.unlock();
    }
}

#[derive(Debug)]
struct RealFile(File);

impl FileHandle for RealFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn created_files_are_closed_to_other_accounts() {
        let directory = tempfile::tempdir().unwrap();
        let (outer, inner) = (directory.path().join("outer"), directory.path().join("outer/inner"));
        RealFileSystem.create_dir(&inner).unwrap();
        assert_eq!((mode(&outer), mode(&inner)), (0o700, 0o700));

        RealFileSystem.create(&inner.join("new")).unwrap();
        assert_eq!(mode(&inner.join("new")), 0o600);
        let _lock = RealFileSystem.try_lock(&inner.join("lock")).unwrap().unwrap();
        assert_eq!(mode(&inner.join("lock")), 0o600);
    }

    #[test]
    fn replaced_file_is_private_and_existing_directory_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (made, file) = (directory.path().join("made"), directory.path().join("made/file"));
        fs::create_dir(&made).unwrap();
        fs::set_permissions(&made, Permissions::from_mode(0o755)).unwrap();
        RealFileSystem.create_dir(&made).unwrap();
        assert_eq!(mode(&made), 0o755);

        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        RealFileSystem.create(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
    }
}
