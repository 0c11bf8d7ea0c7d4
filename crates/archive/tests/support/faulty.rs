//! A file system in memory that fails on demand, and that can show its state after a power cut.

use std::any::Any;
use std::collections::{BTreeMap, HashSet};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use spate_archive::{FileHandle, FileSystem};

/// The kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The machine stops: this operation and all later ones fail.
    Crash,
    /// The disk has room for this many more bytes, until [`FaultyFileSystem::heal`].
    DiskFull(usize),
    /// The next sync fails, once.
    SyncFails,
}

#[derive(Debug, Clone)]
enum FileChange {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

#[derive(Debug, Clone)]
enum NameChange {
    Set(PathBuf, usize),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

#[derive(Debug, Clone, Default)]
struct Inode {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    unsynced: Vec<FileChange>,
}

#[derive(Debug, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    unsynced_names: Vec<NameChange>,
    locks: HashSet<PathBuf>,
    operations: usize,
    fault_at: Option<(usize, Fault)>,
    room: Option<usize>,
    is_crashed: bool,
}

/// A handle; clones share the same files.
#[derive(Debug, Clone, Default)]
pub struct FaultyFileSystem(Arc<Mutex<State>>);

impl FaultyFileSystem {
    pub fn shared(&self) -> Arc<dyn FileSystem> {
        Arc::new(self.clone())
    }

    /// Makes `fault` happen at the `operation`-th change from now on (0 is the next).
    pub fn fault_in(&self, operation: usize, fault: Fault) {
        let mut state = self.state();
        state.fault_at = Some((state.operations + operation, fault));
    }

    /// Gives the disk room again.
    pub fn heal(&self) {
        let mut state = self.state();
        state.room = None;
        state.fault_at = None;
    }

    /// Changes and syncs so far.
    pub fn operations(&self) -> usize {
        self.state().operations
    }

    /// The state after a power cut: all synced changes, and, per file and for the names, some of the unsynced changes
    /// in order, the last of them torn. `choose(n)` picks a number below `n`.
    pub fn after_crash(&self, mut choose: impl FnMut(usize) -> usize) -> FaultyFileSystem {
        let state = self.state();
        let mut after = State::default();
        for inode in &state.inodes {
            let mut bytes = inode.synced.clone();
            let kept = choose(inode.unsynced.len() + 1);
            for change in &inode.unsynced[..kept] {
                apply(&mut bytes, change);
            }
            if let Some(FileChange::Write(offset, written)) = inode.unsynced.get(kept) {
                let torn = choose(written.len() + 1);
                apply(&mut bytes, &FileChange::Write(*offset, written[..torn].to_vec()));
            }
            after.inodes.push(Inode { synced: bytes.clone(), bytes, unsynced: Vec::new() });
        }
        let mut names = state.synced_names.clone();
        for change in &state.unsynced_names[..choose(state.unsynced_names.len() + 1)] {
            apply_name(&mut names, change);
        }
        after.synced_names = names.clone();
        after.names = names;
        FaultyFileSystem(Arc::new(Mutex::new(after)))
    }

    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(path).map(|&inode| state.inodes[inode].bytes.clone())
    }

    /// Replaces a file's bytes without the archive's knowledge.
    pub fn overwrite(&self, path: &Path, bytes: Vec<u8>) {
        let mut state = self.state();
        state.inodes.push(Inode { synced: bytes.clone(), bytes, unsynced: Vec::new() });
        let inode = state.inodes.len() - 1;
        state.names.insert(path.into(), inode);
        state.synced_names.insert(path.into(), inode);
    }

    pub fn delete(&self, path: &Path) {
        let mut state = self.state();
        state.names.remove(path);
        state.synced_names.remove(path);
    }

    pub fn names(&self) -> Vec<String> {
        self.state().names.keys().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Counts a change, and fails it if it is the chosen one.
    fn change(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        let now = state.operations;
        state.operations += 1;
        if let Some((at, fault)) = state.fault_at
            && now >= at
        {
            match fault {
                Fault::Crash => state.is_crashed = true,
                Fault::DiskFull(room) => {
                    state.room = Some(room);
                    state.fault_at = None;
                }
                Fault::SyncFails => {}
            }
        }
        if state.is_crashed { Err(Error::other("the machine stopped")) } else { Ok(state) }
    }

    fn sync_change(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.change()?;
        if let Some((at, Fault::SyncFails)) = state.fault_at
            && state.operations > at
        {
            state.fault_at = None;
            return Err(Error::other("input/output error"));
        }
        Ok(state)
    }
}

fn apply(bytes: &mut Vec<u8>, change: &FileChange) {
    match change {
        FileChange::Truncate(length) => bytes.resize(*length as usize, 0),
        FileChange::Write(offset, written) => {
            let end = *offset as usize + written.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*offset as usize..end].copy_from_slice(written);
        }
    }
}

fn apply_name(names: &mut BTreeMap<PathBuf, usize>, change: &NameChange) {
    match change {
        NameChange::Set(path, inode) => drop(names.insert(path.clone(), *inode)),
        NameChange::Remove(path) => drop(names.remove(path)),
        NameChange::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
    }
}

impl FileSystem for FaultyFileSystem {
    fn create_dir(&self, _dir: &Path) -> Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let state = self.state();
        let in_dir = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(in_dir.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect())
    }

    fn open_read(&self, path: &Path) -> Result<Box<dyn FileHandle>> {
        let state = self.state();
        let inode = *state.names.get(path).ok_or(ErrorKind::NotFound)?;
        Ok(Box::new(FaultyFile { fs: self.clone(), inode }))
    }

    fn open_write(&self, path: &Path) -> Result<Box<dyn FileHandle>> {
        self.open_read(path)
    }

    fn create(&self, path: &Path) -> Result<Box<dyn FileHandle>> {
        let mut state = self.change()?;
        if state.room == Some(0) {
            return Err(ErrorKind::StorageFull.into());
        }
        if let Some(&inode) = state.names.get(path) {
            state.inodes[inode].bytes.clear();
            state.inodes[inode].unsynced.push(FileChange::Truncate(0));
            return Ok(Box::new(FaultyFile { fs: self.clone(), inode }));
        }
        state.inodes.push(Inode::default());
        let inode = state.inodes.len() - 1;
        let change = NameChange::Set(path.into(), inode);
        apply_name(&mut state.names, &change);
        state.unsynced_names.push(change);
        Ok(Box::new(FaultyFile { fs: self.clone(), inode }))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let mut state = self.change()?;
        if state.names.remove(path).is_none() {
            return Err(ErrorKind::NotFound.into());
        }
        state.unsynced_names.push(NameChange::Remove(path.into()));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.change()?;
        let change = NameChange::Rename(from.into(), to.into());
        apply_name(&mut state.names, &change);
        state.unsynced_names.push(change);
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> Result<()> {
        let mut state = self.sync_change()?;
        state.synced_names = state.names.clone();
        state.unsynced_names.clear();
        Ok(())
    }

    fn try_lock(&self, path: &Path) -> Result<Option<Box<dyn Any + Send>>> {
        let mut state = self.state();
        if !state.locks.insert(path.into()) {
            return Ok(None);
        }
        Ok(Some(Box::new(Lock { fs: self.clone(), path: path.into() })))
    }
}

struct Lock {
    fs: FaultyFileSystem,
    path: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.fs.state().locks.remove(&self.path);
    }
}

#[derive(Debug)]
struct FaultyFile {
    fs: FaultyFileSystem,
    inode: usize,
}

impl FileHandle for FaultyFile {
    fn length(&self) -> Result<u64> {
        Ok(self.fs.state().inodes[self.inode].bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let state = self.fs.state();
        let bytes = &state.inodes[self.inode].bytes;
        let from = bytes.get(offset as usize..).unwrap_or_default();
        let count = from.len().min(buffer.len());
        buffer[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write_at(&self, offset: u64, written: &[u8]) -> Result<()> {
        let mut state = self.fs.change()?;
        let room = state.room.unwrap_or(usize::MAX);
        let fits = written.len().min(room);
        let change = FileChange::Write(offset, written[..fits].to_vec());
        let inode = &mut state.inodes[self.inode];
        apply(&mut inode.bytes, &change);
        inode.unsynced.push(change);
        if let Some(room) = &mut state.room {
            *room -= fits;
        }
        if fits < written.len() { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn truncate(&self, length: u64) -> Result<()> {
        let mut state = self.fs.change()?;
        let inode = &mut state.inodes[self.inode];
        let change = FileChange::Truncate(length);
        apply(&mut inode.bytes, &change);
        inode.unsynced.push(change);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.fs.sync_change()?;
        let inode = &mut state.inodes[self.inode];
        inode.synced = inode.bytes.clone();
        inode.unsynced.clear();
        Ok(())
    }
}
