//! Directories in which backups and recoveries work: private, locked as long as somebody is at work there, and removed at the end. What a crash has left is
//! removed by the next run.

use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, Result};

const PRIVATE: u32 = 0o700;
const LOCK: &str = "lock";

/// A directory to work in.
#[derive(Debug)]
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
        let partial = directory.with_file_name(name);
        match std::fs::DirBuilder::new().mode(PRIVATE).create(&partial) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => check_is_ours(&partial)?,
            Err(error) => return Err(Error::file(&partial)(error)),
        }
        let Some(place) = Place::lock(partial.clone())? else {
            return Err(Error::Refused(format!("another recovery is at work in {}", partial.display())));
        };
        for inside in [place.data(), place.logs()] {
            if inside.exists() {
                std::fs::remove_dir_all(&inside).map_err(Error::file(&inside))?;
            }
        }
        place.furnish()
    }

    /// With a name of its own in `parent`, which others may write to.
    pub(crate) fn within(parent: &Path, prefix: &str) -> Result<Place> {
        sweep(parent, prefix);
        let private = std::fs::Permissions::from_mode(PRIVATE);
        let made = tempfile::Builder::new().prefix(prefix).permissions(private).tempdir_in(parent);
        let made = made.map_err(Error::file(parent))?;
        match Place::lock(made.keep())? {
            Some(place) => place.furnish(),
            None => Err(Error::Refused(format!("somebody works in a new directory of ours in {}", parent.display()))),
        }
    }

    /// `None`: somebody is at work there.
    fn lock(directory: PathBuf) -> Result<Option<Place>> {
        let path = directory.join(LOCK);
        let lock = File::create(&path).map_err(Error::file(&path))?;
        // Not made before it is locked: dropped, it would remove what somebody else works with.
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Place { directory, _lock: lock })),
            Err(_) => Ok(None),
        }
    }

    fn furnish(self) -> Result<Place> {
        for inside in [self.data(), self.logs()] {
            std::fs::DirBuilder::new().mode(PRIVATE).create(&inside).map_err(Error::file(&inside))?;
        }
        Ok(self)
    }

    /// All of it.
    pub(crate) fn path(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }

    /// The directory for binlogs, with nothing in it.
    pub(crate) fn empty_logs(&self) -> Result<PathBuf> {
        let logs = self.logs();
        std::fs::remove_dir_all(&logs).map_err(Error::file(&logs))?;
        std::fs::DirBuilder::new().mode(PRIVATE).create(&logs).map_err(Error::file(&logs))?;
        Ok(logs)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // If it cannot be removed now, the next run removes it.
        let _left = std::fs::remove_dir_all(&self.directory);
    }
}

/// Fails if somebody else has made the directory, or may look into it.
fn check_is_ours(directory: &Path) -> Result<()> {
    let found = std::fs::symlink_metadata(directory).map_err(Error::file(directory))?;
    let is_ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
    match is_ours {
        true => Ok(()),
        false => Err(Error::Refused(format!(
            "{} is there, and is no private directory of this user: Spate works there, so look what it is, and remove it",
            directory.display()
        ))),
    }
}

/// Removes what runs have left that were killed: directories of ours that nobody has locked.
fn sweep(parent: &Path, prefix: &str) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let directory = entry.path();
        let is_named_so = entry.file_name().to_string_lossy().starts_with(prefix);
        // One without a lock is just being made.
        if is_named_so && check_is_ours(&directory).is_ok() && directory.join(LOCK).is_file() {
            // Dropped, it is removed; what cannot be locked is at work.
            let _removed = Place::lock(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_has_left_is_removed_by_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let (left, at_work) =
            (Place::within(parent.path(), "x-").unwrap(), Place::within(parent.path(), "x-").unwrap());
        let path = left.path().to_owned();
        std::fs::write(left.data().join("big"), "rows").unwrap();
        flock(&left._lock, FlockOperation::Unlock).unwrap();
        std::mem::forget(left);
        let new = Place::within(parent.path(), "x-").unwrap();
        assert!(!path.exists(), "it was left");
        assert!(at_work.path().exists() && new.path().exists());
    }

    #[test]
    fn a_directory_that_others_may_open_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let wanted = parent.path().join("restored");
        let partial = parent.path().join("restored.partial");
        std::fs::create_dir(&partial).unwrap();
        std::fs::set_permissions(&partial, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Place::beside(&wanted).is_err());
        std::fs::set_permissions(&partial, std::fs::Permissions::from_mode(0o700)).unwrap();
        let place = Place::beside(&wanted).unwrap();
        assert!(Place::beside(&wanted).unwrap_err().to_string().contains("another recovery"));
        drop(place);
        std::os::unix::fs::symlink("/", &partial).unwrap();
        assert!(Place::beside(&wanted).is_err());
    }
}
