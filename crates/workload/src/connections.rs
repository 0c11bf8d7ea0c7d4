//! The connections that execute statements: how they are opened, and how they are ended when a signal comes while a statement runs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use spate_connection::{ConnectOptions, Connection, Error as ConnectionError, ShutdownHandle};

use crate::error::Result;
use crate::halt::Halt;
use crate::reading::SessionReading;
use crate::replay::ReplayOptions;

/// The server has no place for another connection: of all, or of this account.
const TOO_MANY: [u16; 3] = [1040, 1203, 1226];

/// Opens connections, and knows those that are open.
#[derive(Debug)]
pub(crate) struct Connections<'a> {
    options: &'a ReplayOptions,
    reading: &'a SessionReading,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    handles: HashMap<u64, ShutdownHandle>,
    last: u64,
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct OpenConnection<'a> {
    pub(crate) connection: Connection,
    of: &'a Connections<'a>,
    number: u64,
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.of.lock().handles.remove(&self.number);
    }
}

impl<'a> Connections<'a> {
    pub(crate) fn new(options: &'a ReplayOptions, reading: &'a SessionReading) -> Connections<'a> {
        Connections { options, reading, open: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a connection with a session of the replay.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn open(&'a self) -> Result<OpenConnection<'a>> {
        let mut connection = Connection::connect(&self.options.server, &ConnectOptions::new("server"))?;
        connection.execute(self.reading.setting().as_bytes())?;
        if !self.options.writes {
            connection.execute(b"SET SESSION TRANSACTION READ ONLY")?;
        }
        let handle = connection.shutdown_handle()?;
        let mut open = self.lock();
        open.last += 1;
        let number = open.last;
        open.handles.insert(number, handle);
        Ok(OpenConnection { connection, of: self, number })
    }

    /// Waits until `over`. When the replay ends early, statements that run have a while to end; then their connections are ended.
    pub(crate) fn end_when_over(&self, halt: &Halt, over: &AtomicBool) {
        const LOOK_EVERY: Duration = Duration::from_millis(100);
        const GRACE: Duration = Duration::from_secs(2);
        let mut since = None;
        while !over.load(Ordering::Acquire) {
            std::thread::park_timeout(LOOK_EVERY);
            if halt.is_over() && since.get_or_insert_with(Instant::now).elapsed() > GRACE {
                self.lock().handles.values().for_each(ShutdownHandle::shutdown);
            }
        }
    }
}

/// True if the server refused a connection since it has too many.
pub(crate) fn is_too_many(error: &ConnectionError) -> bool {
    error.code().is_some_and(|code| TOO_MANY.contains(&code))
}
