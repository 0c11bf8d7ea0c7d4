//! The laboratory's directory: caches, named sandboxes, and the files of the current run.
//!
//! ```text
//! .spate/pristine/<server build>/    a data directory as the server's installer makes it
//!        datasets/<key>/             the same with a sysbench data set in it
//!        backlogs/<key>/             a source that has written, kept by `race --reuse-backlog`
//!        sandboxes/<name>/           servers that outlive the command that started them
//!        experiments/<name>/         the runs of an experiment that has not ended yet
//!        work/<process>/             what a running command needs; removed at its end, or by the next command
//!        spate-lab                   says that the directory is the laboratory's, which removes things from it
//! ```
//! It is readable by its owner only: a program that reaches a sandbox's socket is root in that server. What somebody else can write to is not used at all.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};

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
    /// Its marker, locked together with others as long as a command uses the directory.
    lock: Arc<File>,
}

/// A directory for the files of this process; removed when dropped.
#[derive(Debug)]
pub struct WorkDirectory {
    path: PathBuf,
    /// Held as long as it is needed; another command, also one that cannot see this process, removes what nobody holds.
    _lock: File,
}

/// The file that says that a directory is the laboratory's.
const MARKER: &str = "spate-lab";
const MARKER_TEXT: &str = "`spate lab` keeps its files here, and removes what it does not need any more.\n";
/// What is in the directory.
const PARTS: [&str; 6] = ["pristine", "datasets", "backlogs", "sandboxes", "experiments", "work"];

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
    /// [`Error::NotOurs`] if it is somebody else's, or holds other files; [`Error::File`].
    pub fn at(root: &Path) -> Result<LabHome> {
        create_private_directory(root)?;
        let root = root.canonicalize().map_err(Error::file("resolve", root))?;
        claim(&root)?;
        let marker = root.join(MARKER);
        let lock = File::open(&marker).map_err(Error::file("open", &marker))?;
        share(&lock, &marker)?;
        let home = LabHome { root, lock: Arc::new(lock) };
        for directory in PARTS {
            let part = home.root.join(directory);
            create_private_directory(&part)?;
            if !fs::symlink_metadata(&part).is_ok_and(|data| data.is_dir()) {
                return Err(Error::NotOurs { path: part, why: "it is a link to another place".to_owned() });
            }
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
        for ordinal in 0_u32.. {
            let path = parent.join(format!("{own}-{ordinal}"));
            // Another thread may take the same ordinal: the one that locks it has it.
            let Some(lock) = try_lock(&path.with_extension(LOCK))? else { continue };
            if path.exists() {
                continue;
            }
            create_private_directory(&path)?;
            return Ok(WorkDirectory { path, _lock: lock });
        }
        Err(Error::InUse { what: parent.display().to_string() })
    }

    /// Removes everything that is kept to be used again.
    ///
    /// # Errors
    /// [`Error::InUse`] while another command runs, which may use it; [`Error::File`].
    pub fn remove_caches(&self) -> Result<()> {
        let marker = self.root.join(MARKER);
        if !locks(&self.lock, FlockOperation::NonBlockingLockExclusive, &marker)? {
            return Err(Error::InUse { what: self.root.display().to_string() });
        }
        let removed = self.remove_kept_parts();
        share(&self.lock, &marker)?;
        removed
    }

    fn remove_kept_parts(&self) -> Result<()> {
        for directory in ["pristine", "datasets", "backlogs", "experiments"] {
            let path = self.root.join(directory);
            fs::remove_dir_all(&path).map_err(Error::file("remove", &path))?;
            create_private_directory(&path)?;
        }
        Ok(())
    }

    /// Removes work directories that no process holds. Failures do not matter: the next command retries.
    fn remove_abandoned_work(&self) {
        for path in self.works() {
            let lock = path.with_extension(LOCK);
            // Held while it is removed.
            if let Ok(Some(_held)) = try_lock(&lock) {
                let _ = fs::remove_dir_all(&path);
                let _ = fs::remove_file(&lock);
            }
        }
    }

    /// The work directories of all commands: nothing else is looked at.
    fn works(&self) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(self.root.join("work")).into_iter().flatten().flatten();
        let is_work =
            |name: &str| name.split('-').count() == 3 && name.split('-').all(|part| part.parse::<u64>().is_ok());
        entries.filter(move |entry| is_work(&entry.file_name().to_string_lossy())).map(|entry| entry.path())
    }
}

/// The extension of the file that is locked as long as the directory beside it is needed.
const LOCK: &str = "lock";

/// Locks the marker together with the other commands that use the directory.
fn share(lock: &File, marker: &Path) -> Result<()> {
    match locks(lock, FlockOperation::NonBlockingLockShared, marker)? {
        true => Ok(()),
        false => Err(Error::InUse { what: "the directory: it cleans it".to_owned() }),
    }
}

/// Locks an open file without waiting; false if another holds it.
fn locks(file: &File, operation: FlockOperation, path: &Path) -> Result<bool> {
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(Error::file("lock", path)(error.into())),
    }
}

/// Locks a file, which it creates; `None` if another holds it. The lock ends with the file that is returned.
///
/// # Errors
/// [`Error::File`].
pub fn try_lock(path: &Path) -> Result<Option<File>> {
    loop {
        let opened = File::options().create(true).truncate(false).write(true).open(path);
        let file = opened.map_err(Error::file("open", path))?;
        if !locks(&file, FlockOperation::NonBlockingLockExclusive, path)? {
            return Ok(None);
        }
        // Whoever held it before may have removed the file: then this one is nobody's any more.
        let is_same =
            |data: fs::Metadata| file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (data.dev(), data.ino()));
        if fs::metadata(path).is_ok_and(is_same) {
            return Ok(Some(file));
        }
    }
}

/// Makes a directory the laboratory's, or refuses: it removes what is in it.
fn claim(root: &Path) -> Result<()> {
    let refuse = |why: &str| Error::NotOurs { path: root.to_owned(), why: why.to_owned() };
    let data = fs::metadata(root).map_err(Error::file("look at", root))?;
    if data.uid() != rustix::process::geteuid().as_raw() {
        return Err(refuse("it must belong to you"));
    }
    let list = || -> Result<Vec<OsString>> {
        let entries = fs::read_dir(root).map_err(Error::file("list", root))?;
        Ok(entries.flatten().map(|entry| entry.file_name()).collect())
    };
    let names = list()?;
    if names.is_empty() {
        fs::set_permissions(root, Permissions::from_mode(0o700)).map_err(Error::file("set the mode of", root))?;
        // What somebody has put there before it was closed is not ours; what another command of ours has is.
        if list()?.iter().any(|name| name != MARKER && !PARTS.iter().any(|part| name == part)) {
            return Err(refuse("somebody else has written to it"));
        }
    } else if data.mode() & 0o077 != 0 {
        return Err(refuse("it must be closed to everybody else (mode 0700)"));
    }
    let marker = root.join(MARKER);
    if marker.is_file() {
        return Ok(());
    }
    // Those of older laboratories hold nothing else.
    if !names.iter().all(|name| PARTS.iter().any(|part| name == part)) {
        return Err(refuse("it holds files of others"));
    }
    fs::write(&marker, MARKER_TEXT).map_err(Error::file("write", &marker))
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
        let _ = fs::remove_file(self.path.with_extension(LOCK));
    }
}

/// Bytes that are free on the disk of `directory`.
///
/// # Errors
/// [`Error::File`].
pub fn free_disk(directory: &Path) -> Result<u64> {
    let disk = rustix::fs::statvfs(directory);
    let disk = disk.map_err(|error| Error::file("look at the disk of", directory)(error.into()))?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// What a server takes whose tables are small, with its redo log and its binlogs.
pub(crate) const SMALL_SERVER_BYTES: u64 = 400 << 20;

/// Refuses if the disk of `directory` has not so many bytes free.
///
/// # Errors
/// [`Error::DiskTooSmall`], [`Error::File`].
pub fn need_disk(directory: &Path, needed: u64) -> Result<()> {
    let free = free_disk(directory)?;
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

/// The same, into a directory that has its name only when it is whole.
///
/// # Errors
/// [`Error::File`].
pub fn copy_directory_whole(from: &Path, to: &Path) -> Result<()> {
    let half = to.with_extension("half");
    remove_if_there(&half)?;
    copy_directory(from, &half)?;
    fs::rename(&half, to).map_err(Error::file("move to", to))
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
    let write = || -> io::Result<()> {
        let mut file = half_written(path, None)?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        file.persist(path.canonicalize().as_deref().unwrap_or(path))?;
        Ok(())
    };
    write().map_err(Error::file("write", path))
}

/// A file beside `path`, in which it can be written until it is whole. It has the mode `mode`, else the one that `path` has, else the usual one.
///
/// # Errors
/// Those of the file system.
pub fn half_written(path: &Path, mode: Option<u32>) -> io::Result<tempfile::NamedTempFile> {
    const USUAL_MODE: u32 = 0o666;
    let place = path.canonicalize();
    let path = place.as_deref().unwrap_or(path);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let existing = fs::metadata(path).ok().map(|data| data.permissions());
    let existing = existing.filter(|_| mode.is_none());
    let wanted = existing.clone().unwrap_or_else(|| Permissions::from_mode(mode.unwrap_or(USUAL_MODE)));
    let file = tempfile::Builder::new().prefix(".spate-").permissions(wanted).tempfile_in(parent)?;
    if let Some(existing) = existing {
        file.as_file().set_permissions(existing)?;
    }
    Ok(file)
}

/// Reads a file that may be anybody's: of a larger one, or of one that never ends, nothing.
///
/// # Errors
/// [`Error::File`].
pub fn read_at_most(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut text));
    read.map_err(Error::file("read", path))?;
    if text.len() as u64 > bytes_max {
        let why = io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {bytes_max} bytes"));
        return Err(Error::file("read", path)(why));
    }
    Ok(text)
}

/// Reads a state file.
///
/// # Errors
/// [`Error::File`], [`Error::State`].
pub fn read_state<T: DeserializeOwned>(path: &Path) -> Result<T> {
    /// A run of an experiment has the longest, with its series.
    const BYTES_MAX: u64 = 64 << 20;
    let text = read_at_most(path, BYTES_MAX)?;
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
        let (abandoned, foreign) = (root.path().join("work/4194999-1-0"), root.path().join("work/thesis"));
        fs::create_dir(&abandoned).unwrap();
        fs::create_dir(&foreign).unwrap();
        let (first, second) = (home.work().unwrap(), home.work().unwrap());
        assert_ne!(first.path(), second.path());
        LabHome::at(root.path()).unwrap();
        assert!(!abandoned.exists() && foreign.exists());
        assert!(first.path().is_dir());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn caches_that_another_command_may_use_are_kept() {
        let root = tempfile::tempdir().unwrap();
        let home = LabHome::at(root.path()).unwrap();
        let other = LabHome::at(root.path()).unwrap();
        fs::create_dir(home.dataset("kept")).unwrap();
        let message = home.remove_caches().unwrap_err().to_string();
        assert!(message.contains("another command"), "{message}");
        assert!(home.dataset("kept").is_dir());
        drop(other);
        home.remove_caches().unwrap();
        assert!(!home.dataset("kept").exists());
    }

    #[test]
    fn directory_of_others_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let foreign = root.path().join("project");
        fs::create_dir_all(foreign.join("work/thesis")).unwrap();
        fs::set_permissions(&foreign, Permissions::from_mode(0o755)).unwrap();
        let message = LabHome::at(&foreign).unwrap_err().to_string();
        assert!(message.contains("mode 0700"), "{message}");
        fs::set_permissions(&foreign, Permissions::from_mode(0o700)).unwrap();
        fs::write(foreign.join("notes"), "").unwrap();
        let message = LabHome::at(&foreign).unwrap_err().to_string();
        assert!(message.contains("files of others") && message.contains("project"), "{message}");
        assert!(foreign.join("work/thesis").is_dir());
        // An older laboratory's, and one that is there already.
        fs::remove_file(foreign.join("notes")).unwrap();
        LabHome::at(&foreign).unwrap();
        fs::write(foreign.join("notes"), "").unwrap();
        LabHome::at(&foreign).unwrap();
    }

    #[test]
    fn file_is_written_whole_and_keeps_its_mode() {
        let root = tempfile::tempdir().unwrap();
        let (page, other, link) = (root.path().join("a.html"), root.path().join("a.new"), root.path().join("link"));
        fs::write(&page, "old").unwrap();
        fs::write(&other, "of somebody").unwrap();
        fs::set_permissions(&page, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&page, &link).unwrap();
        write_whole(&link, b"new").unwrap();
        assert_eq!(
            (fs::read_to_string(&page).unwrap(), fs::read_to_string(&other).unwrap()),
            ("new".into(), "of somebody".into())
        );
        assert_eq!(fs::metadata(&page).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 3, "nothing is left");
        assert!(write_whole(root.path(), b"x").is_err());
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
