//! Replication that goes where a promotion says: see [`spate_replica::new_source`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use spate_binlog::{GtidPosition, MariaDbGtid};
use spate_connection::backoff::Backoff;
use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection, Vendor, quote};
use spate_receive::patience::connect_with_retry;
use spate_replica::checkpoint;
use spate_replica::new_source::{self, Identity, NewSource, archive_of};
use spate_replica::status::Status;
use spate_replica::until::Until;
use spate_replica::{Error, Result, asking, own_schema, temporary};

use crate::ahead::unsuitable;
use crate::handover;
use crate::replicate::{Ended, ReplicateOptions, replicate};

/// How often the replica is asked. A promotion waits for longer than this.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// As [`replicate`], from the source that the last promotion has named, or else that of the options; also when that becomes another one on the way. Each
/// source that a promotion has named has an archive of its own below the directory of the options.
///
/// # Errors
/// [`Error::Unsuitable`] if the server that was named is not the one that was promoted, or lacks something that the replica has; any other definite error,
/// which says what to do.
pub fn replicate_from_the_promoted(options: &ReplicateOptions, status: &Status, stop: &AtomicBool) -> Result<Ended> {
    let mut options = options.clone();
    loop {
        let named = ask_with_retries(&options.applying.replica, status, stop)?;
        let current = from_named(&options, named.as_ref());
        if let Some(named) = &named {
            status.source(current.intake.source.to_string());
            check_place(&current)?;
            let mut source = connect_with_retry(&current.intake.source, status, stop)?;
            let mut replica = asking::connect(&current.applying.replica, &ConnectOptions::new("replica"))?;
            check_fits(&mut source, &mut replica, named)?;
            if !current.archive_dir.exists() {
                // The old source's sessions have ended, and with them their temporary tables.
                asking::log_nothing(&mut replica, "follow promotions")?;
                temporary::forget_all(&mut replica)?;
            }
            let (host, port, archive) = (&named.host, named.port, current.archive_dir.display());
            status.note("intake", &format!("since a promotion, the source is {host}:{port}; its archive is {archive}"));
        }
        let over = AtomicBool::new(false);
        let (ended, newer) = thread::scope(|scope| {
            let watcher = Watcher { replica: &options.applying.replica, named: named.as_ref(), status };
            let over = &over;
            let watching = scope.spawn(move || watcher.watch(stop, over));
            let ending = Ending(over);
            let ended = replicate(&current, status, over);
            drop(ending);
            watching.thread().unpark();
            (ended, watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        match ended {
            Ok(Ended::Stopped) if newer => {}
            Err(error) if newer => status.error("applier", error.to_string()),
            ended => return ended,
        }
        // An answer about the run before the first one.
        options.applying.interrupted = None;
    }
}

/// Sets the flag, whatever ends.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The options, from the source that was named.
fn from_named(options: &ReplicateOptions, named: Option<&NewSource>) -> ReplicateOptions {
    let mut current = options.clone();
    if let Some(named) = named {
        current.intake.source = current.intake.source.moved_to(&named.host, named.port);
    }
    current.archive_dir = archive_of(&options.archive_dir, named);
    current
}

/// A file of the old source says nothing about the new one's.
fn check_place(current: &ReplicateOptions) -> Result<()> {
    match &current.until {
        Until::File { file, .. } => Err(Error::Unsuitable {
            peer: current.intake.source.to_string(),
            why: format!("--until file:{file} names a file of the source before the promotion: name a GTID"),
        }),
        _ => Ok(()),
    }
}

/// Whether the server that was reached is the one that was promoted, and has everything that the replica has.
fn check_fits(source: &mut Connection, replica: &mut Connection, named: &NewSource) -> Result<()> {
    let found = Identity::of(source)?;
    if found != named.identity {
        let why = format!(
            "it is not the server that was promoted, whose server_id is {} {}: its address leads elsewhere from here. Let spate promote run again with \
             --address",
            named.identity.server_id, named.identity.server_uuid
        );
        return Err(unsuitable(source, why));
    }
    let Some(checkpoint) = checkpoint::read(replica)? else { return Ok(()) };
    if checkpoint.gtid_position.is_empty() {
        let why = "its checkpoint has no GTIDs, so no place of another source is known to be the same".to_owned();
        return Err(unsuitable(replica, why));
    }
    if let Some(what) = handover::unfinished(replica, &checkpoint)? {
        let why = format!(
            "{what}, and the new source may not have that: let spate replicate finish it from the archive before (without --follow-promotions, \
             --until gtid: and the end of that archive)"
        );
        return Err(unsuitable(replica, why));
    }
    let lacking = lacking(source, &checkpoint.gtid_position)?;
    if lacking.is_empty() {
        return Ok(());
    }
    let why = format!(
        "it lacks what the replica has applied ({lacking}), so the replica cannot follow it: rebuild the replica from a backup of this server"
    );
    Err(unsuitable(source, why))
}

/// What a server has never had of these transactions; empty if it has all.
fn lacking(source: &mut Connection, position: &GtidPosition) -> Result<String> {
    match source.server_version().vendor {
        Vendor::MySql => {
            let set = quote::text(&position.to_string());
            let lacks = source.query(&format!("SELECT GTID_SUBTRACT({set}, @@GLOBAL.gtid_executed)"))?;
            Ok(lacks.single_text().unwrap_or_default().replace('\n', ""))
        }
        Vendor::MariaDb => {
            let row = source.query("SELECT @@GLOBAL.gtid_binlog_state, @@GLOBAL.gtid_slave_pos")?;
            let listed = |column| -> Vec<MariaDbGtid> {
                let text = row.text_at(0, column).unwrap_or_default();
                text.split(',').filter_map(|gtid| gtid.trim().parse().ok()).collect()
            };
            // Numbers of a domain and a server rise. Without a binlog from before, a server that was restored knows its place only.
            let (logged, restored) = (listed(0), listed(1));
            let origin = |gtid: &MariaDbGtid| (gtid.domain_id, gtid.server_id);
            let has = |wanted: &MariaDbGtid| {
                logged.iter().any(|gtid| origin(gtid) == origin(wanted) && gtid.sequence >= wanted.sequence)
                    || restored.contains(wanted)
            };
            let lacks = position.domains().filter(|gtid| !has(gtid)).map(|gtid| gtid.to_string());
            Ok(lacks.collect::<Vec<_>>().join(","))
        }
    }
}

fn ask(replica: &Endpoint) -> Result<(Connection, Option<NewSource>)> {
    let mut connection = asking::connect(replica, &ConnectOptions::new("replica"))?;
    asking::log_nothing(&mut connection, "follow promotions")?;
    let named = new_source::read(&mut connection)?;
    Ok((connection, named))
}

/// A replica that is not there is waited for. Where Spate has not begun, what was said to another replication does not count.
fn ask_with_retries(replica: &Endpoint, status: &Status, stop: &AtomicBool) -> Result<Option<NewSource>> {
    let mut backoff = Backoff::default();
    loop {
        let asked = ask(replica).and_then(|(mut connection, named)| match named {
            Some(named) => {
                own_schema::create(&mut connection)?;
                Ok(checkpoint::read(&mut connection)?.map(|_| named))
            }
            None => Ok(None),
        });
        match asked {
            Err(error) if error.is_transient() && !stop.load(Ordering::Acquire) => {
                status.error("applier", format!("{error}; trying again until it works"));
                let delay = backoff.next_delay();
                backoff.wait(delay, stop);
            }
            asked => return asked,
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
        let mut session = None;
        let mut told = String::new();
        let mut received = false;
        while !over.load(Ordering::Acquire) {
            if stop.load(Ordering::Acquire) {
                over.store(true, Ordering::Release);
                return false;
            }
            if asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY) {
                asked = Some(Instant::now());
                let looked = self.look(&mut session, received);
                // Twice in a row: between the two, the source would have refused.
                received = self.status.report().intake == "receiving";
                match looked {
                    Ok(true) => {
                        over.store(true, Ordering::Release);
                        return true;
                    }
                    Ok(false) => told.clear(),
                    Err(error) => {
                        session = None;
                        let error = format!("promotions are not seen: {error}");
                        if told != error {
                            self.status.error("promotion", error.clone());
                            told = error;
                        }
                    }
                }
            }
            thread::park_timeout(LOOK_EVERY);
        }
        false
    }

    /// True if there is a new address. `received`: the source sent something at the look before.
    fn look(&self, session: &mut Option<Connection>, received: bool) -> Result<bool> {
        let (mut connection, found) = match session.take() {
            Some(mut connection) => {
                let found = new_source::read(&mut connection)?;
                (connection, found)
            }
            None => ask(self.replica)?,
        };
        let number = |source: &NewSource| source.number;
        let is_newer = found.is_some() && found.as_ref().map(number) != self.named.map(number);
        let is_untold = found.as_ref().is_some_and(|found| !found.is_followed);
        if let Some(named) = self.named.filter(|_| is_untold && !is_newer)
            && received
            && self.status.report().intake == "receiving"
        {
            new_source::follow(&mut connection, named)?;
        }
        *session = Some(connection);
        Ok(is_newer)
    }
}
