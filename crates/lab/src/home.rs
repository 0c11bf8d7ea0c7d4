//! The laboratory's directory: caches, named sandboxes, and the files of the current run.
//!
//! ```text
//! .spate/pristine/<server build>/    a data directory as the server's installer makes it
//!        datasets/<key>/             the same with a sysbench data set in it
//!        backlogs/<key>/             a source that has written, kept by `race --reuse-backlog`
//!        sandboxes/<name>/           servers that outlive the command that started them
//!        experiments/<name>/         the runs of an experiment that has not ended yet
//!        work/<process>/             what a running command needs; removed at its end, or by the next command
//! ```
//! It is readable by its owner only: a program that reaches a sandbox's socket is root in that server.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::process::ProcessIdentity;
use crate::{Error, Result};

/// Names another place than `.spate` in the current directory.
pub const HOME_VARIABLE: &str = "SPATE_LAB_DIRECTORY";

/// The laboratory's directory.
#[derive(Debug, Clone)]
pub struct LabHome {
    root: PathBuf,
}

/// A directory for the files of this process; removed when dropped.
#[derive(Debug)]
pub struct WorkDirectory {
    path: PathBuf,
}

impl LabHome {
    /// Opens (and creates) the directory named by `SPATE_LAB_DIRECTORY`, else `.spate` in the current directory.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn open() -> Result<LabHome> {
        LabHome::at(&std::env::var_os(HOME_VARIABLE).map_or_else(|| PathBuf::from(".spate"), PathBuf::from))
    }

    /// Opens (and creates) `root`, and removes the files of killed commands.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn at(root: &Path) -> Result<LabHome> {
        create_private_directory(root)?;
        let root = root.canonicalize().map_err(Error::file("resolve", root))?;
        let home = LabHome { root };
        for directory in ["pristine", "datasets", "backlogs", "sandboxes", "experiments", "work"] {
            create_private_directory(&home.root.join(directory))?;
        }
        home.remove_abandoned_work();
        Ok(home)
    }

    /// Where the pristine data directory of a server build is cached.
    pub fn pristine(&self, key: &str) -> PathBuf {
        self.root.join("pristine").join(key)
    }

    /// Where the data sets are.
    pub fn datasets(&self) -> PathBuf {
        self.root.join("datasets")
    }

    /// Where a data set is cached.
    pub fn dataset(&self, key: &str) -> PathBuf {
        self.root.join("datasets").join(key)
    }

    /// Where a backlog is kept.
    pub fn backlog(&self, key: &str) -> PathBuf {
        self.root.join("backlogs").join(key)
    }

    /// The directory of the named sandboxes.
    pub fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    /// Where the runs of an experiment are kept until it has ended.
    pub fn experiment(&self, key: &str) -> PathBuf {
        self.root.join("experiments").join(key)
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A new directory for this run.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn work(&self) -> Result<WorkDirectory> {
        let own = ProcessIdentity::own().map_or_else(|| "0-0".into(), |own| format!("{}-{}", own.id, own.start_ticks));
        let parent = self.root.join("work");
        let path = (0..).map(|ordinal| parent.join(format!("{own}-{ordinal}"))).find(|path| {
            // Another thread of this process may take the same ordinal; the thread that creates it has it.
            !matches!(DirBuilder::new().mode(0o700).create(path), Err(error) if error.kind() == io::ErrorKind::AlreadyExists)
        });
        let path = path.unwrap_or(parent);
        create_private_directory(&path)?;
        Ok(WorkDirectory { path })
    }

    /// Removes everything that is kept to be used again.
    ///
    /// # Errors
    /// [`Error::InUse`] while another command runs, which may use it; [`Error::File`].
    pub fn remove_caches(&self) -> Result<()> {
        let own = ProcessIdentity::own();
        let entries = fs::read_dir(self.root.join("work")).into_iter().flatten().flatten();
        let mut owners = entries.filter_map(|entry| owner_of_work(&entry.file_name().to_string_lossy()));
        if let Some(other) = owners.find(|owner| owner.is_running() && Some(*owner) != own) {
            let what = format!("{} (process {})", self.root.display(), other.id);
            return Err(Error::InUse { what });
        }
        for directory in ["pristine", "datasets", "backlogs", "experiments"] {
            let path = self.root.join(directory);
            fs::remove_dir_all(&path).map_err(Error::file("remove", &path))?;
            create_private_directory(&path)?;
        }
        Ok(())
    }

    /// Removes work directories whose process has ended. Failures do not matter: the next command retries.
    fn remove_abandoned_work(&self) {
        let Ok(entries) = fs::read_dir(self.root.join("work")) else { return };
        for entry in entries.flatten() {
            if owner_of_work(&entry.file_name().to_string_lossy()).is_none_or(|owner| !owner.is_running()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// The process that a work directory's name contains.
fn owner_of_work(name: &str) -> Option<ProcessIdentity> {
    let mut parts = name.split('-').map(str::parse::<u64>);
    let id = u32::try_from(parts.next()?.ok()?).ok()?;
    Some(ProcessIdentity { id, start_ticks: parts.next()?.ok()? })
}

impl WorkDirectory {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Refuses if the disk of `directory` has not so many bytes free.
///
/// # Errors
/// [`Error::DiskTooSmall`], [`Error::File`].
pub fn need_disk(directory: &Path, needed: u64) -> Result<()> {
    let disk =
        rustix::fs::statvfs(directory).map_err(|error| Error::file("look at the disk of", directory)(error.into()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < needed {
        return Err(Error::DiskTooSmall { path: directory.to_owned(), free, needed });
    }
    Ok(())
}

/// Creates a directory (and its parents) that only its owner can enter.
///
/// # Errors
/// [`Error::File`].
pub fn create_private_directory(path: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(Error::file("create the directory", path))
}

/// Copies a directory with its contents and waits until it is on disk, so that later writes disturb no measurement. A file system that can
/// share blocks shares them: that takes no time.
///
/// # Errors
/// [`Error::File`].
pub fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    create_private_directory(to)?;
    for entry in fs::read_dir(from).map_err(Error::file("list", from))? {
        let entry = entry.map_err(Error::file("list", from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(Error::file("look at", &path))?;
        if kind.is_dir() {
            copy_directory(&path, &target)?;
        } else if kind.is_file() && !share_blocks(&path, &target)? {
            fs::copy(&path, &target).map_err(Error::file("copy to", &target))?;
            File::open(&target).and_then(|file| file.sync_all()).map_err(Error::file("sync", &target))?;
        }
    }
    Ok(())
}

/// Makes `target` a file with the blocks of `path`; false if the file system cannot.
fn share_blocks(path: &Path, target: &Path) -> Result<bool> {
    let from = File::open(path).map_err(Error::file("open", path))?;
    let mode = from.metadata().map_err(Error::file("look at", path))?.permissions();
    let to = File::create(target).map_err(Error::file("create", target))?;
    to.set_permissions(mode).map_err(Error::file("set the mode of", target))?;
    Ok(rustix::fs::ioctl_ficlone(&to, &from).is_ok())
}

/// Removes a directory with all that is in it, if there is one.
///
/// # Errors
/// [`Error::File`].
pub fn remove_if_there(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file("remove", directory)(error)),
        _ => Ok(()),
    }
}

/// Moves a finished directory to its place in a cache. If another process was first, its copy stays and ours is
/// removed.
///
/// # Errors
/// [`Error::File`].
pub fn publish_directory(from: &Path, to: &Path) -> Result<()> {
    match fs::rename(from, to) {
        Err(_) if to.is_dir() => fs::remove_dir_all(from).map_err(Error::file("remove", from)),
        result => result.map_err(Error::file("move to", to)),
    }
}

/// Writes a state file.
///
/// # Errors
/// [`Error::File`], [`Error::State`].
pub fn write_state<T: Serialize>(path: &Path, state: &T) -> Result<()> {
    let text = serde_json::to_vec_pretty(state).map_err(|source| Error::State { path: path.to_owned(), source })?;
    write_whole(path, &text)
}

/// Writes a file so that a reader finds the old one or the new one, and never a half.
///
/// # Errors
/// [`Error::File`].
pub fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(Error::file("create the directory", parent))?;
    }
    // A device or a pipe is not replaced by a file.
    if path.exists() && !path.is_file() {
        return fs::write(path, content).map_err(Error::file("write to", path));
    }
    let half_written = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = File::create(&half_written)?;
        file.write_all(content)?;
        file.sync_all()
    };
    write().map_err(Error::file("write", &half_written))?;
    fs::rename(&half_written, path).map_err(Error::file("write", path))
}

/// Reads a state file.
///
/// # Errors
/// [`Error::File`], [`Error::State`].
pub fn read_state<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read(path).map_err(Error::file("read", path))?;
    serde_json::from_slice(&text).map_err(|source| Error::State { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn work_directory_of_dead_process_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let home = LabHome::at(root.path()).unwrap();
        let abandoned = root.path().join("work/4194999-1-0");
        fs::create_dir(&abandoned).unwrap();
        let (first, second) = (home.work().unwrap(), home.work().unwrap());
        assert_ne!(first.path(), second.path());
        LabHome::at(root.path()).unwrap();
        assert!(!abandoned.exists());
        assert!(first.path().is_dir());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn caches_that_another_command_may_use_are_kept() {
        let root = tempfile::tempdir().unwrap();
        let home = LabHome::at(root.path()).unwrap();
        let mut other = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = ProcessIdentity::of(other.id()).unwrap();
        fs::create_dir(root.path().join(format!("work/{}-{}-0", process.id, process.start_ticks))).unwrap();
        fs::create_dir(home.dataset("kept")).unwrap();
        let message = home.remove_caches().unwrap_err().to_string();
        assert!(message.contains("another command") && message.contains(&process.id.to_string()), "{message}");
        assert!(home.dataset("kept").is_dir());
        other.kill().unwrap();
        other.wait().unwrap();
        home.remove_caches().unwrap();
        assert!(!home.dataset("kept").exists());
    }

    #[test]
    fn lab_directory_is_private() {
        let root = tempfile::tempdir().unwrap();
        LabHome::at(&root.path().join("home")).unwrap();
        let mode = fs::metadata(root.path().join("home/sandboxes")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn copied_directory_shares_no_files() {
        let root = tempfile::tempdir().unwrap();
        let (from, to) = (root.path().join("from"), root.path().join("to"));
        fs::create_dir_all(from.join("inner")).unwrap();
        fs::write(from.join("inner/file"), "before").unwrap();
        copy_directory(&from, &to).unwrap();
        fs::write(from.join("inner/file"), "after").unwrap();
        assert_eq!(fs::read_to_string(to.join("inner/file")).unwrap(), "before");
    }

    #[test]
    fn first_published_directory_wins() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("place");
        for content in ["first", "second"] {
            let made = root.path().join(content);
            fs::create_dir(&made).unwrap();
            fs::write(made.join("content"), content).unwrap();
            publish_directory(&made, &place).unwrap();
            assert!(!made.exists());
        }
        assert_eq!(fs::read_to_string(place.join("content")).unwrap(), "first");
    }
}
