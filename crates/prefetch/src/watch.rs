//! Watches the applier: where it is, whether it runs, and how fast it is with and without reading ahead.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use spate_archive::Archive;
use spate_connection::Connection;
use spate_replica::Result;

use crate::Tell;
use crate::pursuit::Pursuit;
use crate::trial::{Trial, Verdict};
use spate_replica::native::{self, Place};

/// The watching thread.
pub(crate) struct Watcher<'a> {
    pub(crate) channel: Option<&'a str>,
    pub(crate) archive: &'a Archive,
    pub(crate) pursuit: &'a Pursuit,
    /// Set while to read ahead.
    pub(crate) is_on: &'a AtomicBool,
    /// Set when the session is over.
    pub(crate) over: &'a AtomicBool,
    pub(crate) always: bool,
    pub(crate) look_every: Duration,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) tell: &'a Tell<'a>,
}

impl Watcher<'_> {
    /// Watches until the session is over, or ends it.
    ///
    /// # Errors
    /// Any error of the connection, or of the relay logs.
    pub(crate) fn run(self, connection: &mut Connection) -> Result<()> {
        let watched = self.watch(connection);
        self.pursuit.end();
        self.over.store(true, Ordering::Release);
        watched
    }

    fn watch(&self, connection: &mut Connection) -> Result<()> {
        let mut trial = Trial::default();
        let mut last: Option<(Place, Instant)> = None;
        while !self.over.load(Ordering::Acquire) && !self.stop.load(Ordering::Acquire) {
            let native = native::look(connection, self.channel)?;
            let now = Instant::now();
            self.pursuit.arrive(&native.place);
            if !native.applies {
                if !native.error.is_empty() {
                    (self.tell)(&format!("the server's own replication has stopped: {}", native.error));
                }
                return Ok(());
            }
            if let Some((before, at)) = &last
                && before.file == native.place.file
            {
                let bytes = native.place.position.saturating_sub(before.position);
                let verdict = trial.watch(bytes, now - *at, self.pursuit.has_drained());
                self.say(verdict);
                self.is_on.store(self.always || trial.is_on(), Ordering::Relaxed);
            }
            last = Some((native.place, now));
            self.archive.refresh()?;
            thread::sleep(self.look_every);
        }
        Ok(())
    }

    fn say(&self, verdict: Option<Verdict>) {
        match verdict {
            Some(Verdict::Rests(gain)) => {
                (self.tell)(&format!(
                    "reading ahead rests for a minute: with it, the applier is {gain:.2} times as fast"
                ));
            }
            Some(Verdict::Helps(gain)) => {
                (self.tell)(&format!("with reading ahead, the applier is {gain:.2} times as fast"));
            }
            None => {}
        }
    }
}
