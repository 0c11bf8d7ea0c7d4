//! The socket under a connection. TLS will be a third kind of [`Stream`]: everything above it only reads and writes.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt;

use crate::endpoint::Address;

/// On a connection that is silent for this long, the kernel asks whether the other side is still there …
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);

/// … and again after this time …
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// … and takes it to be gone after so many questions without an answer. However long a statement takes, a server that is
/// there answers: its kernel does.
const KEEPALIVE_PROBES: u32 = 4;

/// Bytes that the other side has not acknowledged for this long are lost, and the connection with them.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(super) fn connect(address: &Address, timeout: Duration) -> io::Result<Stream> {
        match address {
            Address::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path)?)),
            Address::Tcp { host, port } => {
                let mut error = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, timeout) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            notice_death(&stream)?;
                            return Ok(Stream::Tcp(stream));
                        }
                        Err(failed) => error = failed,
                    }
                }
                Err(error)
            }
        }
    }

    /// `None` waits for ever.
    pub(super) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// `None` waits for ever.
    pub(super) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_write_timeout(timeout),
            Stream::Unix(stream) => stream.set_write_timeout(timeout),
        }
    }

    /// True if nobody but this machine can listen in.
    pub(super) fn is_local(&self) -> bool {
        matches!(self, Stream::Unix(_))
    }

    pub(super) fn shutdown_handle(&self) -> io::Result<ShutdownHandle> {
        match self {
            Stream::Tcp(stream) => Ok(ShutdownHandle(Socket::Tcp(stream.try_clone()?))),
            Stream::Unix(stream) => Ok(ShutdownHandle(Socket::Unix(stream.try_clone()?))),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write_vectored(slices),
            Stream::Unix(stream) => stream.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes the kernel find out when the other side, or the way to it, is gone without a word.
fn notice_death(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MAX.as_millis() as u32)?;
    Ok(())
}

/// Ends a connection from another thread: whoever waits on it gets an error at once.
#[derive(Debug)]
pub struct ShutdownHandle(Socket);

/// What is to be shut down is always the socket itself, whatever is spoken over it.
#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl ShutdownHandle {
    /// Shuts the socket down in both directions. A connection that is already gone is no error.
    pub fn shutdown(&self) {
        let _already_gone = match &self.0 {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}
