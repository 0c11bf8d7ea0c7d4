//! Replication that goes where a promotion says: see [`spate_replica::new_source`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use spate_connection::backoff::Backoff;
use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection};
use spate_replica::new_source::{self, NewSource};
use spate_replica::status::Status;
use spate_replica::{Result, asking};

use crate::replicate::{Ended, ReplicateOptions, replicate};

/// How often the replica is asked. A promotion waits for longer than this.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// As [`replicate`], from the source that the last promotion has named, or else that of the options; also when that becomes another one on the way. Each
/// source that a promotion has named has an archive of its own below the directory of the options.
///
/// # Errors
/// A definite error, which says what to do.
pub fn replicate_from_the_promoted(options: &ReplicateOptions, status: &Status, stop: &AtomicBool) -> Result<Ended> {
    loop {
        let named = ask_with_retries(&options.applying.replica, status, stop)?;
        let current = from_named(options, named.as_ref());
        if let Some(named) = &named {
            status.source(current.intake.source.to_string());
            let (host, port, archive) = (&named.host, named.port, current.archive_dir.display());
            status.note("intake", &format!("since a promotion, the source is {host}:{port}; its archive is {archive}"));
        }
        let over = AtomicBool::new(false);
        let (ended, newer) = thread::scope(|scope| {
            let watcher = Watcher { replica: &options.applying.replica, named: named.as_ref(), status };
            let over = &over;
            let watching = scope.spawn(move || watcher.watch(stop, over));
            let ended = replicate(&current, status, over);
            over.store(true, Ordering::Release);
            watching.thread().unpark();
            (ended, watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        match ended {
            Ok(Ended::Stopped) if newer => {}
            Err(error) if newer => status.error("applier", error.to_string()),
            ended => return ended,
        }
    }
}

/// The options, from the source that was named.
fn from_named(options: &ReplicateOptions, named: Option<&NewSource>) -> ReplicateOptions {
    let mut current = options.clone();
    if let Some(named) = named {
        current.intake.source = current.intake.source.moved_to(&named.host, named.port);
        // No binlog file has such a name.
        current.archive_dir.push(format!("promoted-{}", named.number));
    }
    current
}

fn ask(replica: &Endpoint) -> Result<(Connection, Option<NewSource>)> {
    let mut connection = asking::connect(replica, &ConnectOptions::new("replica"))?;
    asking::log_nothing(&mut connection, "follow promotions")?;
    let named = new_source::read(&mut connection)?;
    Ok((connection, named))
}

/// A replica that is not there is waited for.
fn ask_with_retries(replica: &Endpoint, status: &Status, stop: &AtomicBool) -> Result<Option<NewSource>> {
    let mut backoff = Backoff::default();
    loop {
        match ask(replica) {
            Err(error) if error.is_transient() && !stop.load(Ordering::Acquire) => {
                status.error("applier", format!("{error}; trying again until it works"));
                let delay = backoff.next_delay();
                backoff.wait(delay, stop);
            }
            asked => return asked.map(|(_, named)| named),
        }
    }
}

/// Looks for the next promotion.
struct Watcher<'a> {
    replica: &'a Endpoint,
    named: Option<&'a NewSource>,
    status: &'a Status,
}

impl Watcher<'_> {
    /// Until `over`, which it sets itself on a new address, and when `stop` is set. True if there is a new address.
    fn watch(&self, stop: &AtomicBool, over: &AtomicBool) -> bool {
        const LOOK_EVERY: Duration = Duration::from_millis(50);
        let mut asked: Option<Instant> = None;
        let mut connection = None;
        let mut is_told = self.named.is_none_or(|named| named.is_followed);
        while !over.load(Ordering::Acquire) {
            if stop.load(Ordering::Acquire) {
                over.store(true, Ordering::Release);
                return false;
            }
            if asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY) {
                asked = Some(Instant::now());
                match self.look(&mut connection, &mut is_told) {
                    Ok(true) => {
                        over.store(true, Ordering::Release);
                        return true;
                    }
                    Ok(false) => {}
                    // Replication itself waits for a replica that is not there, and says so.
                    Err(error) if error.is_transient() => connection = None,
                    Err(error) => {
                        connection = None;
                        self.status.error("promotion", error.to_string());
                    }
                }
            }
            thread::park_timeout(LOOK_EVERY);
        }
        false
    }

    /// True if there is a new address.
    fn look(&self, connection: &mut Option<Connection>, is_told: &mut bool) -> Result<bool> {
        let found = match connection {
            Some(connection) => new_source::read(connection)?,
            None => {
                let (made, found) = ask(self.replica)?;
                *connection = Some(made);
                found
            }
        };
        if let Some(found) = &found
            && self.named.is_none_or(|named| named.number != found.number)
        {
            return Ok(true);
        }
        if let (Some(named), Some(connection), false) = (self.named, connection, *is_told)
            && self.status.report().intake == "receiving"
        {
            new_source::follow(connection, named)?;
            *is_told = true;
        }
        Ok(false)
    }
}
