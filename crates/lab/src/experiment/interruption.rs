//! An experiment that a person ends: what it has measured is written to where it was asked for, and what to do next is said.
//!
//! The servers and programs that this process has started end with it, so nothing but the result has to be looked after.

use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use signal_hook::consts::TERM_SIGNALS;
use signal_hook::iterator::{Handle, Signals};

use super::options::{Wanted, goes_on};
use super::store::Store;
use crate::screen::Screen;
use crate::{Error, Result};

/// The exit status of a program that a signal has ended, without the signal's number.
const SIGNALLED: i32 = 128;

/// Ends the process on SIGINT and SIGTERM, with a word about what is kept. Until it is dropped.
pub(super) struct Interruption {
    signals: Handle,
    /// `None`: it has ended.
    thread: Option<JoinHandle<()>>,
}

impl Interruption {
    /// # Errors
    /// [`Error::File`] if the operating system refuses to register a handler.
    pub(super) fn watch(store: PathBuf, wanted: Wanted, screen: Screen) -> Result<Interruption> {
        let mut signals = Signals::new(TERM_SIGNALS).map_err(Error::file("watch for signals beside", &store))?;
        let handle = signals.handle();
        let thread = thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                let told = Store::kept(&store).and_then(|result| {
                    wanted.write_part(&result)?;
                    Ok(format!("interrupted: {}", goes_on(&result)))
                });
                screen.note(&told.unwrap_or_else(|error| format!("interrupted: {error}")));
                std::process::exit(SIGNALLED + signal);
            }
        });
        Ok(Interruption { signals: handle, thread: Some(thread) })
    }
}

impl Drop for Interruption {
    fn drop(&mut self) {
        self.signals.close();
        // A signal that came before ends the process: what is a part is written before that, and must not replace the whole.
        if let Some(thread) = self.thread.take() {
            let _has_ended = thread.join();
        }
    }
}
