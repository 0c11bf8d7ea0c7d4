//! What a proxy asks: `GET /source/HOST:PORT` is answered 200 if that server is the source and takes writes, `GET /replica/HOST:PORT` if it follows
//! the source; else 503. Also 503 if this watcher has not looked for longer than the stated time.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// What a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The source, which takes writes.
    Source,
    /// Follows the source.
    Replica,
    /// Neither.
    Other,
}

/// The roles as they were seen last.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    seen: Mutex<Option<(Instant, BTreeMap<String, Role>)>>,
}

impl Roles {
    pub(crate) fn set(&self, roles: BTreeMap<String, Role>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), roles));
    }

    fn is(&self, path: &str, age_max: Duration) -> bool {
        let mut parts = path.trim_start_matches('/').splitn(2, '/');
        let wanted = match parts.next() {
            Some("source") => Role::Source,
            Some("replica") => Role::Replica,
            _ => return false,
        };
        let name = parts.next().unwrap_or_default();
        match &*self.seen.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((at, roles)) => at.elapsed() < age_max && roles.get(name) == Some(&wanted),
            None => false,
        }
    }
}

/// How long one who asks may take. A proxy does not wait longer either.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many may ask at the same time.
const CONNECTIONS_MAX: usize = 128;

/// A question is a line and a few headers.
const QUESTION_BYTES_MAX: usize = 8 << 10;

/// Answers until `over`. Nobody who asks can hold up others, or the end, for longer than [`PATIENCE`].
pub(crate) fn serve(address: &str, roles: &Roles, age_max: Duration, over: &AtomicBool) -> Result<()> {
    const LOOK_EVERY: Duration = Duration::from_millis(10);
    let listener = TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|source| Error::Io { action: format!("listen at {address} (--check-listen)"), source })?;
    let open = AtomicUsize::new(0);
    thread::scope(|scope| {
        while !over.load(Ordering::Acquire) {
            match listener.accept() {
                Ok((stream, _)) if open.load(Ordering::Acquire) < CONNECTIONS_MAX => {
                    open.fetch_add(1, Ordering::AcqRel);
                    let begun = thread::Builder::new().spawn_scoped(scope, || {
                        // Who asked may be gone.
                        let _unheard = answer(stream, roles, age_max);
                        open.fetch_sub(1, Ordering::AcqRel);
                    });
                    if begun.is_err() {
                        open.fetch_sub(1, Ordering::AcqRel);
                    }
                }
                // Closed: a proxy asks again.
                Ok(_) => {}
                Err(_) => thread::sleep(LOOK_EVERY),
            }
        }
    });
    Ok(())
}

/// Reads one question as far as its headers end, answers, and closes the connection.
fn answer(mut stream: TcpStream, roles: &Roles, age_max: Duration) -> std::io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut question = Vec::new();
    let mut buffer = [0; 1024];
    while !question.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || question.len() > QUESTION_BYTES_MAX {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        question.extend_from_slice(&buffer[..count]);
    }
    let line = String::from_utf8_lossy(&question);
    let mut words = line.split_ascii_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (code, text) = match method {
        "GET" | "HEAD" | "OPTIONS" if roles.is(path, age_max) => ("200 OK", "yes\n"),
        "GET" | "HEAD" | "OPTIONS" => ("503 Service Unavailable", "no\n"),
        _ => ("405 Method Not Allowed", "ask with GET\n"),
    };
    let body = if method == "HEAD" { "" } else { text };
    let length = text.len();
    write!(
        stream,
        "HTTP/1.1 {code}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_role_that_is_asked_for_is_confirmed() {
        let roles = Roles::default();
        let age = Duration::from_secs(60);
        assert!(!roles.is("/source/a:1", age));
        roles.set(BTreeMap::from([("a:1".to_owned(), Role::Source), ("b:1".to_owned(), Role::Replica)]));
        assert!(roles.is("/source/a:1", age) && roles.is("/replica/b:1", age));
        assert!(!roles.is("/replica/a:1", age) && !roles.is("/source/b:1", age) && !roles.is("/", age));
        assert!(!roles.is("/source/a:1", Duration::ZERO));
    }

    fn ask(address: &str, question: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(question).unwrap();
        let mut text = String::new();
        let _may_be_closed = stream.read_to_string(&mut text);
        text
    }

    /// Connections that send no end, and never read, hold up neither other questions nor the end.
    #[test]
    fn nobody_holds_up_others() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let (roles, over) = (Roles::default(), AtomicBool::new(false));
        roles.set(BTreeMap::from([("a:1".to_owned(), Role::Source)]));
        thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&address, &roles, Duration::from_secs(60), &over));
            while TcpStream::connect(&address).is_err() {
                thread::sleep(Duration::from_millis(5));
            }
            let mut slow = Vec::new();
            let mut is_quick = |_| {
                for question in [
                    &b"POST / HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n"[..],
                    b"GET /source/a:1",
                    b"",
                    &[b'x'; 20_000],
                ] {
                    let mut stream = TcpStream::connect(&address).unwrap();
                    let _may_be_closed = stream.write_all(question);
                    slow.push(stream);
                }
                let begun = Instant::now();
                assert!(ask(&address, b"GET /source/a:1 HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 OK\r\n"));
                assert!(ask(&address, b"OPTIONS /source/b:1 HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 503"));
                assert!(ask(&address, b"PUT /source/a:1 HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 405"));
                begun.elapsed() < PATIENCE
            };
            // The machine may be busy with others during one of them.
            assert!((0..5).any(&mut is_quick));
            let begun = Instant::now();
            over.store(true, Ordering::Release);
            serving.join().unwrap().unwrap();
            assert!(begun.elapsed() < PATIENCE * 3);
        });
    }
}
