//! The socket under a connection. TLS will be a third kind of [`Stream`]: everything above it only reads and writes.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::endpoint::Address;

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
