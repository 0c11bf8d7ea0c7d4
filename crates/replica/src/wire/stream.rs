//! The socket under a connection, in the clear or with TLS on it: everything above a [`Stream`] only reads and writes.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt;

use super::tls::TlsStream;
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

/// Bytes to and from a server, in the clear or through TLS.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream>),
}

impl Stream {
    pub(super) fn connect(address: &Address, timeout: Duration) -> io::Result<Stream> {
        Ok(Stream::Plain(Socket::connect(address, timeout)?))
    }

    fn socket(&self) -> &Socket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.socket(),
        }
    }

    /// `None` waits for ever.
    pub(super) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self.socket() {
            Socket::Tcp(stream) => stream.set_read_timeout(timeout),
            Socket::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// `None` waits for ever.
    pub(super) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self.socket() {
            Socket::Tcp(stream) => stream.set_write_timeout(timeout),
            Socket::Unix(stream) => stream.set_write_timeout(timeout),
        }
    }

    /// True if nobody but this machine can listen in.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.socket(), Socket::Unix(_))
    }

    pub(super) fn shutdown_handle(&self) -> io::Result<ShutdownHandle> {
        self.socket().try_clone().map(ShutdownHandle)
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write_vectored(slices),
            Stream::Tls(stream) => stream.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The socket itself, whatever is spoken over it.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn connect(address: &Address, timeout: Duration) -> io::Result<Socket> {
        match address {
            Address::Unix(path) => Ok(Socket::Unix(UnixStream::connect(path)?)),
            Address::Tcp { host, port } => {
                let mut error = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, timeout) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            notice_death(&stream)?;
                            return Ok(Socket::Tcp(stream));
                        }
                        Err(failed) => error = failed,
                    }
                }
                Err(error)
            }
        }
    }

    /// The same socket once more, for the TLS layer to take over or for another thread to shut it down.
    pub(super) fn try_clone(&self) -> io::Result<Socket> {
        match self {
            Socket::Tcp(stream) => stream.try_clone().map(Socket::Tcp),
            Socket::Unix(stream) => stream.try_clone().map(Socket::Unix),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write_vectored(slices),
            Socket::Unix(stream) => stream.write_vectored(slices),
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

impl ShutdownHandle {
    /// Shuts the socket down in both directions. A connection that is already gone is no error.
    pub fn shutdown(&self) {
        let _already_gone = match &self.0 {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}
