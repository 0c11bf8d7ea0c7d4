//! The socket under a connection, with or without TLS. All code above a [`Stream`] only reads and writes.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{self, PollFd, PollFlags, Timespec};
use rustix::net::sockopt;

use super::tls::TlsStream;
use crate::endpoint::Address;

/// After this time without bytes the kernel sends the first keepalive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);

/// Time between two keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// After this many probes without an answer the connection is lost. A long statement is no danger: the server's kernel
/// answers the probes.
const KEEPALIVE_PROBES: u32 = 4;

/// If the other side does not acknowledge bytes for this long, the connection is lost.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);

/// Bytes to and from a server, in the clear or through TLS.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Connects within `timeout`. Reading and writing fail from `deadline` on, until [`Stream::lift_deadline`].
    pub(super) fn connect(address: &Address, timeout: Duration, deadline: Instant) -> io::Result<Stream> {
        Ok(Stream::Plain(Socket::connect(address, timeout, deadline)?))
    }

    fn socket(&self) -> &Socket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.socket(),
        }
    }

    fn socket_mut(&mut self) -> &mut Socket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.socket_mut(),
        }
    }

    /// `None`: no limit.
    pub(super) fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket_mut().set_read_timeout(timeout)
    }

    /// `None`: no limit.
    pub(super) fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket_mut().set_write_timeout(timeout)
    }

    /// Removes the deadline: from now on only single reads and writes have limits.
    pub(super) fn lift_deadline(&mut self) -> io::Result<()> {
        self.socket_mut().lift_deadline()
    }

    /// True if the bytes do not leave this machine.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.socket().kind, SocketKind::Unix(_))
    }

    pub(super) fn shutdown_handle(&self) -> io::Result<ShutdownHandle> {
        self.socket().kind.try_clone().map(ShutdownHandle)
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

/// The socket itself, below TLS.
#[derive(Debug)]
pub(super) struct Socket {
    kind: SocketKind,
    /// All reads and writes fail from this time on; `None`: no deadline.
    deadline: Option<Instant>,
    /// How long one read may wait; `None`: no limit.
    read_timeout: Option<Duration>,
    /// How long one write may wait; `None`: no limit.
    write_timeout: Option<Duration>,
}

#[derive(Debug)]
enum SocketKind {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn connect(address: &Address, timeout: Duration, deadline: Instant) -> io::Result<Socket> {
        let kind = SocketKind::connect(address, timeout, deadline)?;
        Ok(Socket { kind, deadline: Some(deadline), read_timeout: None, write_timeout: None })
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.read_timeout = timeout;
        self.kind.set_read_timeout(timeout)
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.write_timeout = timeout;
        self.kind.set_write_timeout(timeout)
    }

    fn lift_deadline(&mut self) -> io::Result<()> {
        self.deadline = None;
        self.kind.set_read_timeout(self.read_timeout)?;
        self.kind.set_write_timeout(self.write_timeout)
    }

    /// A second handle to the socket, for the TLS layer or for another thread to shut it down.
    pub(super) fn try_clone(&self) -> io::Result<Socket> {
        Ok(Socket { kind: self.kind.try_clone()?, ..*self })
    }
}

/// How long the next read or write may wait.
fn wait_max(timeout: Option<Duration>, deadline: Instant) -> io::Result<Duration> {
    let left = time_left(deadline)?;
    Ok(timeout.map_or(left, |timeout| timeout.min(left)))
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Waits until there is something to read. A thread that waits within a read of a Unix socket, Linux wakes also when the other side takes what was
/// sent to it: twice for each statement, in the server's time.
fn wait_for_bytes(stream: &UnixStream, timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    match event::poll(&mut [PollFd::new(stream, PollFlags::IN)], timeout.as_ref())? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let timeout = match self.deadline {
            Some(deadline) => Some(wait_max(self.read_timeout, deadline)?),
            None => self.read_timeout,
        };
        match &mut self.kind {
            SocketKind::Tcp(stream) => {
                if self.deadline.is_some() {
                    stream.set_read_timeout(timeout)?;
                }
                stream.read(buffer)
            }
            SocketKind::Unix(stream) => {
                wait_for_bytes(stream, timeout)?;
                stream.read(buffer)
            }
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(deadline) = self.deadline {
            self.kind.set_write_timeout(Some(wait_max(self.write_timeout, deadline)?))?;
        }
        match &mut self.kind {
            SocketKind::Tcp(stream) => stream.write_vectored(slices),
            SocketKind::Unix(stream) => stream.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SocketKind {
    fn connect(address: &Address, timeout: Duration, deadline: Instant) -> io::Result<SocketKind> {
        match address {
            Address::Unix(path) => Ok(SocketKind::Unix(UnixStream::connect(path)?)),
            Address::Tcp { host, port } => {
                let mut error = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, timeout.min(time_left(deadline)?)) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            enable_keepalive(&stream)?;
                            return Ok(SocketKind::Tcp(stream));
                        }
                        Err(failed) => error = failed,
                    }
                }
                Err(error)
            }
        }
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            SocketKind::Tcp(stream) => stream.set_read_timeout(timeout),
            SocketKind::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            SocketKind::Tcp(stream) => stream.set_write_timeout(timeout),
            SocketKind::Unix(stream) => stream.set_write_timeout(timeout),
        }
    }

    fn try_clone(&self) -> io::Result<SocketKind> {
        match self {
            SocketKind::Tcp(stream) => stream.try_clone().map(SocketKind::Tcp),
            SocketKind::Unix(stream) => stream.try_clone().map(SocketKind::Unix),
        }
    }
}

/// Makes the kernel detect that the other side, or the network, has failed silently.
fn enable_keepalive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MAX.as_millis() as u32)?;
    Ok(())
}

/// Ends a connection from another thread. A thread that waits on the connection gets an error at once.
#[derive(Debug)]
pub struct ShutdownHandle(SocketKind);

impl ShutdownHandle {
    /// Shuts the socket down in both directions. A connection that has already ended is no error.
    pub fn shutdown(&self) {
        let _already_ended = match &self.0 {
            SocketKind::Tcp(stream) => stream.shutdown(Shutdown::Both),
            SocketKind::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}
