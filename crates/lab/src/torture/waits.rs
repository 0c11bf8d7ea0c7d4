//! Kills statements that wait for locks on a server without an option for it: MySQL waits at least a second for locks,
//! and the one driver of all sessions would wait for a lock that only the driver can release.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::sql::Session;

/// A statement that takes longer than this is checked; most such statements wait.
const LOOKED_AT_AFTER: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The server caches its list of transactions, unless no client has read it for a tenth of a second.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(110);

/// The connection that executes a statement now, and the start time.
type Current = Mutex<Option<(u32, Instant)>>;

/// A thread that kills statements which wait for locks.
pub(super) struct WaitEnder {
    current: Arc<Current>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WaitEnder {
    /// Starts to watch the server at `socket`.
    pub(super) fn start(socket: &Path) -> WaitEnder {
        let (current, stop) = (Arc::new(Current::default()), Arc::new(AtomicBool::new(false)));
        let (watched, stopped, socket) = (Arc::clone(&current), Arc::clone(&stop), socket.to_owned());
        let thread = std::thread::spawn(move || watch(&watched, &stopped, &socket));
        WaitEnder { current, stop, thread: Some(thread) }
    }

    /// Runs a statement of a connection while the thread watches it.
    pub(super) fn during<T>(&self, connection: u32, run: impl FnOnce() -> T) -> T {
        self.set(Some((connection, Instant::now())));
        let result = run();
        self.set(None);
        result
    }

    fn set(&self, now: Option<(u32, Instant)>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}

impl Drop for WaitEnder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(current: &Current, stop: &AtomicBool, socket: &Path) {
    let mut session = None;
    while !stop.load(Ordering::Acquire) {
        std::thread::sleep(LOOK_EVERY);
        let now = *current.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((connection, _)) = now.filter(|(_, since)| since.elapsed() > LOOKED_AT_AFTER) else { continue };
        // The server may have crashed and may restart.
        session = session.or_else(|| Session::open(socket, "server 'source'").ok());
        if session.as_mut().is_some_and(|session| end_wait(session, connection).is_err()) {
            session = None;
        }
        std::thread::sleep(LOOK_AGAIN_AFTER);
    }
}

/// Kills the connection's statement if it waits. (If it has just ended, this may kill the next one, which then fails;
/// that is no fault.)
fn end_wait(session: &mut Session, connection: u32) -> crate::Result<()> {
    let waits: Vec<u8> = session.rows(&format!(
        "SELECT 1 FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = {connection} AND trx_state = 'LOCK WAIT'
         UNION ALL SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {connection} AND STATE LIKE 'Waiting for % lock'"
    ))?;
    if waits.is_empty() { Ok(()) } else { session.run(&format!("KILL QUERY {connection}")) }
}
