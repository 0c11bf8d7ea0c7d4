//! The status of a running `replicate`, over a socket in the archive's directory: the account that owns the archive may ask.
//! Unlike a file, it needs no space on a full disk, and its silence says that nobody is there.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use spate_archive::{FILE_MODE, STATUS_SOCKET_NAME};
use spate_replica::status::{Status, StatusReport};

/// Questions that wait to be answered; each takes no time.
const BACKLOG: i32 = 16;

/// How long one who asks may take to read the answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// How often to look whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// Listens in an archive's directory, and cleans up at its end.
pub(crate) struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl StatusSocket {
    /// Listens. The archive's own lock keeps two processes from doing so in one directory; a socket that an earlier one left
    /// behind is removed.
    ///
    /// # Errors
    /// The operating system refuses.
    pub(crate) fn listen(archive: &Path) -> io::Result<StatusSocket> {
        let path = archive.join(STATUS_SOCKET_NAME);
        if UnixStream::connect(short(archive)?.join()).is_ok() {
            let message = "another spate replicate already works on this archive";
            return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
        }
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = listen_privately(&short(archive)?.join())?;
        listener.set_nonblocking(true)?;
        Ok(StatusSocket { listener, path })
    }

    /// Answers until `over`.
    pub(crate) fn serve(&self, status: &Status, over: &AtomicBool) {
        while !over.load(Ordering::Acquire) {
            match self.listener.accept() {
                Ok((stream, _)) => drop(answer(stream, &status.report())),
                Err(_) => std::thread::park_timeout(STOP_CHECK),
            }
        }
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        // A socket left behind is removed by the next one.
        let _left = std::fs::remove_file(&self.path);
    }
}

/// Linux gives the file the mode that the socket has when it is bound, so that there is no moment at which others may connect.
fn listen_privately(path: &Path) -> io::Result<UnixListener> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    fchmod(&socket, Mode::from_raw_mode(FILE_MODE))?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

fn answer(mut stream: UnixStream, report: &StatusReport) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    stream.write_all(serde_json::to_string(report)?.as_bytes())
}

/// Asks the process that works on an archive.
///
/// # Errors
/// Nobody answers.
pub(crate) fn ask(archive: &Path) -> io::Result<StatusReport> {
    let mut stream = UnixStream::connect(short(archive)?.join())?;
    stream.set_read_timeout(Some(WRITE_TIMEOUT))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

/// A directory by its open file: the path of a socket may have no more than 107 bytes.
struct ShortPath {
    directory: std::fs::File,
}

fn short(directory: &Path) -> io::Result<ShortPath> {
    Ok(ShortPath { directory: std::fs::File::open(directory)? })
}

impl ShortPath {
    fn join(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        PathBuf::from(format!("/proc/self/fd/{}/{STATUS_SOCKET_NAME}", self.directory.as_raw_fd()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_owner_may_ask() {
        let directory = tempfile::tempdir().unwrap();
        let socket = StatusSocket::listen(directory.path()).unwrap();
        let mode = std::fs::metadata(&socket.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, FILE_MODE);
        assert!(UnixStream::connect(&socket.path).is_ok());
    }
}
