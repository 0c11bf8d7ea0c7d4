//! Inputs: files, compressed or not, and standard input. What they hold is addressed by the byte after decompression.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use crate::error::{Error, Result};

/// How much is read at once: enough that a disk's sequential speed is reached.
const READ_BYTES: usize = 256 << 10;

/// Standard input, among the names of files.
const STANDARD_INPUT: &str = "-";

/// Where records come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputName {
    /// The path; `-` is standard input.
    path: PathBuf,
    /// The name in the manifest: the path from the root.
    pub name: String,
}

impl InputName {
    /// The input of a name on the command line.
    ///
    /// # Errors
    /// [`Error::File`] if there is no such file.
    pub fn of(path: &Path) -> Result<InputName> {
        if path.as_os_str() == STANDARD_INPUT {
            return Ok(InputName { path: path.to_owned(), name: "standard input".to_owned() });
        }
        // What a shell puts in the place of a file has no path of its own.
        let whole = match path.canonicalize() {
            Err(_) if path.exists() => std::path::absolute(path),
            whole => whole,
        }
        .map_err(|error| Error::file(path, error))?;
        let name = whole.to_str().ok_or_else(|| {
            Error::file(path, io::Error::other("its name is not UTF-8, and cannot be kept on the server: rename it"))
        })?;
        Ok(InputName { path: whole.clone(), name: name.to_owned() })
    }

    /// True for standard input.
    pub fn is_standard_input(&self) -> bool {
        self.path.as_os_str() == STANDARD_INPUT
    }

    /// The last part of the name, for files that belong to it.
    pub(crate) fn short(&self) -> String {
        match self.is_standard_input() {
            true => "standard-input".to_owned(),
            false => {
                let name = self.path.file_name().unwrap_or_default().to_string_lossy();
                // With what is put behind it, it must remain a file's name.
                name.chars().take(50).collect()
            }
        }
    }

    /// Its size on disk, in bytes; `None` for what has none.
    pub(crate) fn size(&self) -> Option<u64> {
        let is_file = |metadata: &Metadata| metadata.is_file();
        std::fs::metadata(&self.path).ok().filter(is_file).map(|metadata| metadata.len())
    }

    /// When it was modified, in nanoseconds; `None` for what has no such time.
    pub(crate) fn modified_ns(&self) -> Option<u64> {
        let metadata = std::fs::metadata(&self.path).ok().filter(Metadata::is_file)?;
        let since = metadata.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        u64::try_from(since.as_nanos()).ok()
    }

    /// Opens it at the beginning. What is read of the disk is added to `bytes_read`. Whoever waits for a pipe's bytes, looks whether to stop.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Stopped`].
    pub(crate) fn open<'a>(&self, bytes_read: &Arc<AtomicU64>, stop: &'a AtomicBool) -> Result<Input<'a>> {
        let failed = |error| if is_stop(&error) { Error::Stopped } else { Error::file(&self.path, error) };
        let file = match self.is_standard_input() {
            true => rustix::io::dup(rustix::stdio::stdin()).map(File::from).map_err(io::Error::from),
            // The opening of a pipe would wait for a writer.
            false => OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&self.path),
        }
        .map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(failed(io::Error::other("it is a directory")));
        }
        let bytes = Arc::clone(bytes_read);
        Input::of(Counted { of: Patient { file, stop }, bytes }).map_err(failed)
    }
}

/// All inputs that the command line names: files, and what directories hold, in the order of their names.
///
/// # Errors
/// [`Error::File`].
pub fn find(paths: &[PathBuf]) -> Result<Vec<InputName>> {
    let mut found: Vec<InputName> = Vec::new();
    for path in paths {
        if path.as_os_str() != STANDARD_INPUT && path.is_dir() {
            for path in files_of(path)? {
                found.push(InputName::of(&path)?);
            }
        } else {
            found.push(InputName::of(path)?);
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|input| seen.insert(input.name.clone()));
    Ok(found)
}

/// The files in a directory that are data: neither hidden, nor on their way, nor rejects.
pub(crate) fn files_of(directory: &Path) -> Result<Vec<PathBuf>> {
    const ON_THEIR_WAY: [&str; 4] = ["tmp", "part", "partial", "filepart"];
    let failed = |error| Error::file(directory, error);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        let is_rejects = name.ends_with(crate::rejects::RECORDS) || name.ends_with(crate::rejects::REASONS);
        // The owner of a link may not be allowed to read its target.
        let is_file = path.symlink_metadata().is_ok_and(|metadata| metadata.is_file());
        if is_file && !name.starts_with('.') && !ON_THEIR_WAY.contains(&extension.as_str()) && !is_rejects {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// The bytes of an input, decompressed.
pub(crate) struct Input<'a>(Box<dyn Read + Send + 'a>);

impl<'a> Input<'a> {
    /// Looks at the first bytes: gzip and zstd are known by them.
    fn of(mut reader: impl Read + Send + 'a) -> io::Result<Input<'a>> {
        const GZIP: [u8; 2] = [0x1f, 0x8b];
        const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
        let mut first = Vec::with_capacity(ZSTD.len());
        Read::by_ref(&mut reader).take(ZSTD.len() as u64).read_to_end(&mut first)?;
        let (is_gzip, is_zstd) = (first.starts_with(&GZIP), first.starts_with(&ZSTD));
        let whole = io::Cursor::new(first).chain(reader);
        Ok(Input(match (is_gzip, is_zstd) {
            (true, _) => Box::new(flate2::bufread::MultiGzDecoder::new(buffered(whole))),
            (_, true) => Box::new(zstd::Decoder::with_buffer(buffered(whole))?),
            _ => Box::new(whole),
        }))
    }
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

fn buffered<R: Read>(reader: R) -> BufReader<R> {
    BufReader::with_capacity(READ_BYTES, reader)
}

/// Waits for bytes, and looks meanwhile whether to stop.
struct Patient<'a> {
    file: File,
    stop: &'a AtomicBool,
}

impl Read for Patient<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::other(Stop));
            }
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&LOOK_EVERY)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                looked => looked?,
            };
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                read => return read,
            }
        }
    }
}

/// The error of a reader that has been told to stop.
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
struct Stop;

/// True if nothing is wrong with the input, but the reader has been told to stop.
pub(crate) fn is_stop(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Stop>())
}

/// Counts what is read.
struct Counted<R> {
    of: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.of.read(buffer)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
