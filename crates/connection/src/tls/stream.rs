//! [`TlsStream`]: a socket with TLS on it, blocking, resumable after read timeouts like the socket itself.
//!
//! rustls reads the network in pieces of 4 KiB. A binlog stream deserves better, so the socket is read in large pieces
//! and rustls takes its records out of that buffer.

use std::io::{self, IoSlice, Read, Write};
use std::ops::Range;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::super::stream::Socket;

/// Of one system call.
const BUFFER_LENGTH: usize = 256 * 1024;

/// Invariant: `unread` are the bytes of `incoming` that rustls has not taken yet.
#[derive(Debug)]
pub(in super::super) struct TlsStream {
    socket: Socket,
    session: ClientConnection,
    incoming: Box<[u8]>,
    unread: Range<usize>,
}

impl TlsStream {
    /// Shakes hands over a connected socket.
    ///
    /// # Errors
    /// What the socket says; a `rustls::Error` inside of one if TLS failed.
    pub(super) fn begin(
        mut socket: Socket,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<TlsStream> {
        let mut session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(TlsStream { socket, session, incoming: vec![0; BUFFER_LENGTH].into_boxed_slice(), unread: 0..0 })
    }

    pub(in super::super) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(in super::super) fn socket_mut(&mut self) -> &mut Socket {
        &mut self.socket
    }

    /// The certificate that the server has shown.
    pub(super) fn server_certificate(&self) -> &[u8] {
        self.session.peer_certificates().and_then(|chain| chain.first()).map_or(&[], |certificate| certificate.as_ref())
    }

    /// Such as `TLSv1.3`.
    pub(super) fn version(&self) -> String {
        match self.session.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3".to_owned(),
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2".to_owned(),
            other => format!("{other:?}"),
        }
    }

    /// Gives rustls what has arrived, or waits for something to arrive. `false` is the end of the stream.
    fn take_in(&mut self) -> io::Result<bool> {
        if self.unread.is_empty() {
            self.send_out()?;
            let count = loop {
                match self.socket.read(&mut self.incoming) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    count => break count?,
                }
            };
            self.unread = 0..count;
        }
        let mut bytes = &self.incoming[self.unread.clone()];
        let taken = self.session.read_tls(&mut bytes)?;
        self.unread.start += taken;
        self.session.process_new_packets().map_err(io::Error::other)?;
        Ok(taken > 0)
    }

    fn send_out(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Read for TlsStream {
    /// As much as has arrived, at least one byte; none at the end. Whether the server said goodbye does not matter: the layer
    /// above knows where a stream may end.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        loop {
            match self.session.reader().read(&mut buffer[filled..]) {
                Ok(0) => return Ok(filled),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(filled),
                Err(error) => return Err(error),
            }
            if filled == buffer.len() || filled > 0 && self.unread.is_empty() {
                return Ok(filled);
            }
            match self.take_in() {
                Ok(true) => {}
                Ok(false) => return Ok(filled),
                // rustls says it again the next time.
                Err(_) if filled > 0 => return Ok(filled),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    /// After an error, nobody knows how much has gone: the connection is of no more use.
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let count = self.session.writer().write_vectored(slices)?;
        self.send_out()?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_out()
    }
}
