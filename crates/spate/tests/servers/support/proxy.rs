//! A network between the program and a server, on which things go wrong.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

/// How often a thread that waits for bytes looks whether its connection is still to live.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How much is passed on at once.
const CHUNK_BYTES: usize = 32 << 10;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToServer,
    FromServer,
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// As if the other side had closed it (FIN).
    Closed,
    /// As if the other side had crashed (RST): what it has not read yet is lost.
    Reset,
}

/// Where a connection is to be cut, once.
#[derive(Debug, Clone)]
pub enum Place {
    /// After so many bytes of a connection.
    Bytes(u64),
    /// So many bytes after the beginning of the next occurrence of this text.
    Text(&'static str, usize),
}

/// A cut that is still to come.
#[derive(Debug, Clone)]
pub struct Trap {
    pub way: Way,
    pub place: Place,
    pub cut: Cut,
}

#[derive(Debug, Default)]
struct Network {
    /// The next connection to pass the first trap's place is cut there.
    traps: VecDeque<Trap>,
    /// Nothing moves, and nobody is told.
    is_stalled: bool,
    /// Connections up to this number are stalled for ever.
    lost_up_to: usize,
    /// How late each chunk comes.
    delay: Duration,
    /// 0: as many as come.
    bytes_per_second: u64,
    connections: usize,
}

/// Listens on a port of its own and passes everything on to a server's, unless told otherwise. Ends with the value.
#[derive(Debug)]
pub struct Proxy {
    pub port: u16,
    network: Arc<Mutex<Network>>,
    is_over: Arc<AtomicBool>,
}

/// One connection through the proxy.
struct Connection {
    number: usize,
    client: TcpStream,
    server: TcpStream,
    network: Arc<Mutex<Network>>,
    is_over: Arc<AtomicBool>,
    /// Both directions end.
    is_cut: AtomicBool,
}

impl Proxy {
    pub fn start(server_port: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (network, is_over) = (Arc::new(Mutex::new(Network::default())), Arc::new(AtomicBool::new(false)));
        let proxy = Proxy { port, network: Arc::clone(&network), is_over: Arc::clone(&is_over) };
        thread::spawn(move || {
            for client in listener.incoming() {
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                // A server that is down refuses; dropping the client's connection tells it so.
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", server_port))) else {
                    continue;
                };
                let number = {
                    let mut network = lock(&network);
                    network.connections += 1;
                    network.connections
                };
                let (network, is_over) = (Arc::clone(&network), Arc::clone(&is_over));
                Connection { number, client, server, network, is_over, is_cut: AtomicBool::new(false) }.begin();
            }
        });
        proxy
    }

    /// Cuts a connection where it next comes to this place.
    pub fn trap(&self, way: Way, place: Place, cut: Cut) {
        lock(&self.network).traps.push_back(Trap { way, place, cut });
    }

    /// True once every trap has cut a connection.
    pub fn is_sprung(&self) -> bool {
        lock(&self.network).traps.is_empty()
    }

    /// From now on nothing moves, on old connections and new ones; or it does again.
    pub fn stall(&self, is_stalled: bool) {
        lock(&self.network).is_stalled = is_stalled;
    }

    /// Loses the connections that there are: nothing moves on them any more, and neither side is told. New ones work.
    pub fn lose_connections(&self) {
        let mut network = lock(&self.network);
        network.lost_up_to = network.connections;
    }

    /// Everything comes late, and slowly.
    pub fn slow_down(&self, delay: Duration, bytes_per_second: u64) {
        let mut network = lock(&self.network);
        (network.delay, network.bytes_per_second) = (delay, bytes_per_second);
    }

    /// How many connections there have been.
    pub fn connections(&self) -> usize {
        lock(&self.network).connections
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the thread that listens.
        let _refused = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn lock(network: &Mutex<Network>) -> MutexGuard<'_, Network> {
    network.lock().unwrap()
}

impl Connection {
    fn begin(self) {
        for stream in [&self.client, &self.server] {
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(LOOK_EVERY)).unwrap();
        }
        let this = Arc::new(self);
        let other = Arc::clone(&this);
        thread::spawn(move || this.pass(Way::ToServer));
        thread::spawn(move || other.pass(Way::FromServer));
    }

    /// Passes bytes one way until the connection ends. The last of both ways closes the sockets.
    fn pass(&self, way: Way) {
        let (mut from, mut to) = match way {
            Way::ToServer => (&self.client, &self.server),
            Way::FromServer => (&self.server, &self.client),
        };
        let mut passed = Passed::default();
        let mut buffer = vec![0; CHUNK_BYTES];
        while !self.is_cut.load(Ordering::Acquire) && !self.is_over.load(Ordering::Acquire) {
            if self.is_frozen() {
                thread::sleep(LOOK_EVERY);
                continue;
            }
            let count = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(_) => break,
            };
            self.dawdle(count);
            // What was on its way when the network stopped is not delivered either.
            while self.is_frozen() && !self.is_over.load(Ordering::Acquire) {
                thread::sleep(LOOK_EVERY);
            }
            let trap = self.sprung(way, &passed, &buffer[..count]);
            let whole = trap.as_ref().map_or(count, |(_, keep)| *keep);
            if to.write_all(&buffer[..whole]).is_err() {
                break;
            }
            if let Some((cut, _)) = trap {
                self.cut(cut);
                return;
            }
            passed.add(&buffer[..count]);
        }
        // The other direction ends by itself, with what is still on its way.
        let _is_gone = to.shutdown(Shutdown::Write);
        if way == Way::FromServer {
            self.is_cut.store(true, Ordering::Release);
        }
    }

    fn is_frozen(&self) -> bool {
        let network = lock(&self.network);
        network.is_stalled || self.number <= network.lost_up_to
    }

    fn dawdle(&self, bytes: usize) {
        let (delay, rate) = {
            let network = lock(&self.network);
            (network.delay, network.bytes_per_second)
        };
        thread::sleep(delay);
        if rate > 0 {
            thread::sleep(Duration::from_secs_f64(bytes as f64 / rate as f64));
        }
    }

    /// Takes the first trap if its place is within these bytes: how to cut, and how many bytes still pass.
    fn sprung(&self, way: Way, passed: &Passed, bytes: &[u8]) -> Option<(Cut, usize)> {
        let mut network = lock(&self.network);
        let trap = network.traps.front().filter(|trap| trap.way == way)?;
        let keep = passed.find(&trap.place, bytes)?;
        let trap = network.traps.pop_front()?;
        Some((trap.cut, keep))
    }

    fn cut(&self, cut: Cut) {
        for stream in [&self.client, &self.server] {
            match cut {
                Cut::Closed => drop(stream.shutdown(Shutdown::Both)),
                // The reset is sent when the socket is closed, which is at once.
                Cut::Reset => set_socket_linger(stream, Some(Duration::ZERO)).unwrap(),
            }
        }
        self.is_cut.store(true, Ordering::Release);
    }
}

/// What went one way already.
#[derive(Debug, Default)]
struct Passed {
    bytes: u64,
    /// The last bytes, in which a text may have begun.
    tail: Vec<u8>,
}

impl Passed {
    const TAIL_BYTES: usize = 64;

    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.tail.extend_from_slice(bytes);
        let superfluous = self.tail.len().saturating_sub(Self::TAIL_BYTES);
        self.tail.drain(..superfluous);
    }

    /// How many of `bytes`, which come next, are before `place`, if that is among them.
    fn find(&self, place: &Place, bytes: &[u8]) -> Option<usize> {
        let end = self.bytes + bytes.len() as u64;
        match place {
            Place::Bytes(count) => (self.bytes..end).contains(count).then(|| (count - self.bytes) as usize),
            Place::Text(text, after) => {
                let begun = self.tail.len().min(text.len() - 1);
                let joined = [&self.tail[self.tail.len() - begun..], bytes].concat();
                let at = joined.windows(text.len()).position(|window| window == text.as_bytes())?;
                Some((at + after).saturating_sub(begun).min(bytes.len()))
            }
        }
    }
}
