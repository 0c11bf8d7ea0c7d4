//! The server: it plays the given dialogues, one connection after the other.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use rcgen::KeyPair;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::SILENCE_MAX;
use super::dialogues::framed;

/// The server's dialogue on the next connection.
pub(crate) enum Play {
    /// Sends all of this at once.
    Bytes {
        bytes: Vec<u8>,
        is_local: bool,
    },
    Tls(TlsPlay),
}

pub(crate) struct TlsPlay {
    pub(crate) greeting: Vec<u8>,
    pub(crate) config: Arc<ServerConfig>,
    /// Packets after the client's response.
    pub(crate) packets: Vec<Vec<u8>>,
    pub(crate) damage: Option<Damage>,
}

/// The damage to the byte at this offset of the server's TLS stream.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Damage {
    Changed { at: usize, by: u8 },
    Cut { at: usize },
}

/// The server's observations.
pub(crate) struct Seen {
    pub(crate) received: Vec<u8>,
    /// The damage was done.
    pub(crate) is_damaged: bool,
}

/// Either kind of socket.
trait Socket: Read + Write {
    fn end_writing(&self);
}

impl Socket for TcpStream {
    fn end_writing(&self) {
        let _already_closed = self.shutdown(Shutdown::Write);
    }
}

impl Socket for UnixStream {
    fn end_writing(&self) {
        let _already_closed = self.shutdown(Shutdown::Write);
    }
}

pub(crate) fn serve(tcp: &TcpListener, unix: &UnixListener, play: Play) -> Seen {
    match play {
        Play::Bytes { bytes, is_local: true } => {
            let (stream, _) = unix.accept().unwrap();
            send(stream, &bytes)
        }
        Play::Bytes { bytes, is_local: false } => {
            let (stream, _) = tcp.accept().unwrap();
            send(stream, &bytes)
        }
        Play::Tls(play) => {
            let (stream, _) = tcp.accept().unwrap();
            stream.set_read_timeout(Some(SILENCE_MAX)).unwrap();
            let mut stream = Damaging { stream, damage: play.damage, position: 0, is_active: false, is_damaged: false };
            let mut received = Vec::new();
            // The client may close the connection at any point.
            let _given_up = serve_tls(&mut stream, &play, &mut received);
            stream.stream.end_writing();
            let _until_it_closes = stream.stream.read_to_end(&mut Vec::new());
            Seen { received, is_damaged: stream.is_damaged }
        }
    }
}

fn send(mut stream: impl Socket, bytes: &[u8]) -> Seen {
    let _not_read = stream.write_all(bytes);
    stream.end_writing();
    let mut received = Vec::new();
    let _until_it_closes = stream.read_to_end(&mut received);
    Seen { received, is_damaged: false }
}

fn serve_tls(stream: &mut Damaging, play: &TlsPlay, received: &mut Vec<u8>) -> io::Result<()> {
    stream.write_all(&play.greeting)?;
    stream.read_exact(&mut [0; 36])?;
    stream.is_active = true;
    let connection = ServerConnection::new(play.config.clone()).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    for packet in &play.packets {
        let mut piece = [0; 1000];
        let count = stream.read(&mut piece)?;
        received.extend_from_slice(&piece[..count]);
        if count < 4 {
            return Ok(());
        }
        stream.write_all(&framed(packet, piece[3].wrapping_add(1)))?;
        stream.flush()?;
    }
    stream.sock.stream.end_writing();
    stream.read_to_end(received).map(drop)
}

/// A socket that changes one written byte, or stops writing at that byte.
struct Damaging {
    stream: TcpStream,
    damage: Option<Damage>,
    position: usize,
    is_active: bool,
    is_damaged: bool,
}

impl Read for Damaging {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }
}

impl Write for Damaging {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut bytes = bytes.to_vec();
        let length = bytes.len();
        let here = self.position..self.position + length;
        match self.damage {
            Some(Damage::Changed { at, by })
                if self.is_active && here.contains(&at) && !is_in_version(&bytes, at - self.position) =>
            {
                bytes[at - self.position] ^= by;
                self.is_damaged = true;
            }
            Some(Damage::Cut { at }) if self.is_active && at < here.end => {
                bytes.truncate(at.saturating_sub(self.position));
                self.is_damaged = true;
            }
            _ => {}
        }
        if self.is_active {
            self.position += length;
        }
        self.stream.write_all(&bytes)?;
        if bytes.len() < length {
            self.stream.end_writing();
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// True for the version in a record's header, which TLS 1.3 ignores (RFC 8446, section 5.1). rustls writes whole
/// records.
fn is_in_version(records: &[u8], at: usize) -> bool {
    let mut begin = 0;
    while let Some([_, _, _, high, low]) = records.get(begin..begin + 5) {
        if (begin + 1..begin + 3).contains(&at) {
            return true;
        }
        begin += 5 + usize::from(u16::from_be_bytes([*high, *low]));
    }
    false
}

/// Sends a certificate without parsing it: rustls would refuse to send a damaged one.
#[derive(Debug)]
struct Shown(Arc<CertifiedKey>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

pub(crate) fn server_config(certificate: Vec<u8>, key: &KeyPair) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signer = provider.key_provider.load_private_key(key).unwrap();
    let shown = CertifiedKey::new(vec![CertificateDer::from(certificate)], signer);
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Shown(Arc::new(shown))));
    Arc::new(config)
}
