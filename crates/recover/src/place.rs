//! The directory in which a recovery happens: beside the wanted one, locked, and removed at the end.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, Result};

/// The directory in which a recovery happens. Removed at its end.
pub(crate) struct Place {
    directory: PathBuf,
    /// Held as long as this lives.
    _lock: File,
}

impl Place {
    /// Beside the wanted directory, on the same file system.
    pub(crate) fn beside(directory: &Path) -> Result<Place> {
        let mut name = directory.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        Place::at(directory.with_file_name(name))
    }

    pub(crate) fn somewhere() -> Result<Place> {
        let directory = tempfile::Builder::new().prefix("spate-restore-").tempdir();
        Place::at(directory.map_err(Error::file(std::env::temp_dir()))?.keep())
    }

    fn at(directory: PathBuf) -> Result<Place> {
        use std::os::unix::fs::DirBuilderExt;
        const PRIVATE: u32 = 0o700;
        let make = |path: &Path| {
            std::fs::DirBuilder::new().mode(PRIVATE).recursive(true).create(path).map_err(Error::file(path))
        };
        make(&directory)?;
        let lock_path = directory.join("lock");
        let lock = File::create(&lock_path).map_err(Error::file(&lock_path))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Error::Refused(format!("another recovery is at work in {}", directory.display())));
        }
        let place = Place { directory, _lock: lock };
        for inside in [place.data(), place.logs()] {
            if inside.exists() {
                std::fs::remove_dir_all(&inside).map_err(Error::file(&inside))?;
            }
            make(&inside)?;
        }
        Ok(place)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // If it cannot be removed now, the next run removes it.
        let _left = std::fs::remove_dir_all(&self.directory);
    }
}
