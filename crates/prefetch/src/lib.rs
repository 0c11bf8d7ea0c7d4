//! Reads ahead of a server's own replication: takes the relay logs from disk, and reads the pages that the applier is about to need, so
//! that it finds them in memory.
//!
//! ```text
//! relay logs ─► gather and fold (`ahead.rs`) ─► lookups ─► readers (`readers.rs`)
//!                      ▲ near enough, not too near, does it help?
//!                 watcher (`watch.rs`): where the applier is, how fast (`pursuit.rs`, `trial.rs`)
//! ```
//! It changes nothing on the server. Whatever fails here is only missed.

mod ahead;
mod counters;
mod memory;
mod pursuit;
mod readers;
mod recent;
mod statements;
mod trial;
mod watch;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use spate_apply::gather::{Gatherer, Gathering};
use spate_apply::halt::Halt;
use spate_apply::limits::BatchLimits;
use spate_apply::plan::SessionPlan;
use spate_archive::{Archive, DirectoryOptions, ReadOptions, RealFileSystem, Seek};
use spate_connection::backoff::Backoff;
use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection};
use spate_replica::catalog::Catalog;
use spate_replica::checkpoint::Checkpoint;
use spate_replica::status::Status;
use spate_replica::until::Until;
use spate_replica::{Error, Result, asking};
use spate_schedule::BatchBuilder;

pub use counters::{Counted, Counters};

use ahead::{Ahead, Known, Tables};
use pursuit::{Pursuit, Reach};
use readers::{Reader, Unreadable};
use recent::Recent;
use spate_replica::native::{self, Place};
use watch::Watcher;

/// Transactions in one batch. What is folded together is asked for once; a larger batch is nearer when its first rows are asked for.
const BATCH_TRANSACTIONS: u64 = 50;
/// Bytes of one batch.
const BATCH_BYTES: usize = 16 << 20;
/// How long one batch is gathered.
const BATCH_TIME: Duration = Duration::from_millis(20);
/// Queries that wait for a reader, for each reader.
const QUERIES_WAITING: usize = 4;
/// How long to wait before reading again where it could not go on.
const RESTART_AFTER: Duration = Duration::from_millis(500);
/// How long an applier with an error may take to stop. (Some servers keep the error of an attempt that was repeated.)
const STOPPING_MAX: Duration = Duration::from_secs(5);
/// How soon to look at it again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Tells people something.
pub type Tell<'a> = dyn Fn(&str) + Sync + 'a;

/// What to read ahead of, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server whose own replication is to be helped; on this machine.
    pub replica: Endpoint,
    /// The channel. `None`: the only one.
    pub channel: Option<String>,
    /// Connections that read.
    pub threads: usize,
    /// Seconds of the source's time to stay ahead at most.
    pub seconds_max: u64,
    /// Row changes nearer than this before the applier are left alone.
    pub rows_min: u64,
    /// How often the applier's place is looked at.
    pub look_every: Duration,
    /// Read ahead without trying out whether it helps.
    pub always: bool,
}

/// Reads ahead until stopped.
///
/// # Errors
/// [`Error::Unsuitable`] if there is nothing to read ahead of; what the server refuses. What passes by itself is waited for.
pub fn run(options: &Options, counters: &Counters, tell: &Tell<'_>, stop: &AtomicBool) -> Result<()> {
    let mut backoff = Backoff::default();
    let mut is_first = true;
    while !stop.load(Ordering::Acquire) {
        match one_session(options, counters, tell, stop, is_first) {
            Ok(()) => backoff = Backoff::default(),
            Err(error) if error.is_transient() => tell(&format!("{error}; trying again until it works")),
            Err(error) => return Err(error),
        }
        is_first = false;
        let delay = backoff.next_delay();
        backoff.wait(delay.min(RESTART_AFTER), stop);
    }
    Ok(())
}

/// One session: from the applier's place until something ends it.
fn one_session(
    options: &Options,
    counters: &Counters,
    tell: &Tell<'_>,
    stop: &AtomicBool,
    is_first: bool,
) -> Result<()> {
    let mut watching = connect(options)?;
    let channel = options.channel.as_deref();
    let mut native = native::look(&mut watching, channel)?;
    if is_first {
        // A worker has failed, and the applier that coordinates it is about to stop.
        let until = Instant::now() + STOPPING_MAX;
        while native.applies && !native.error.is_empty() && Instant::now() < until && !stop.load(Ordering::Acquire) {
            thread::sleep(LOOK_AGAIN_AFTER);
            native = native::look(&mut watching, channel)?;
        }
    }
    if !native.applies {
        return match native.error.as_str() {
            // Somebody has to see to that, and has been told if it happened meanwhile.
            error if is_first && !error.is_empty() => Err(stopped(&watching, error)),
            _ => Ok(()),
        };
    }
    let logs = native::relay_logs(&mut watching, &native)?;
    let directory = DirectoryOptions { base_name: Some(logs.base_name) };
    let archive = Archive::open(Arc::new(RealFileSystem), &logs.directory, directory)?;
    let Place { file, position } = native.place.clone();
    let from = Checkpoint { source_file: file.clone(), source_position: position, ..Checkpoint::default() };
    let reader = match archive.reader(&Seek::Source { file, position }, ReadOptions::default()) {
        Ok(reader) => reader,
        // The applier has gone on, or nothing has come yet.
        Err(spate_archive::Error::NoSuchPlace { .. } | spate_archive::Error::Purged { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let (pursuit, unreadable, over) = (Pursuit::default(), Unreadable::default(), AtomicBool::new(false));
    let is_on = AtomicBool::new(options.always);
    pursuit.arrive(&native.place);
    let (queries_in, queries) = bounded(QUERIES_WAITING * options.threads);
    let limits = BatchLimits {
        transactions_max: BATCH_TRANSACTIONS,
        memory_bytes_max: BATCH_BYTES,
        duration_max: BATCH_TIME,
        ..BatchLimits::NONE
    };
    let plan = SessionPlan::new(limits, Until::Forever);
    let status = Status::new(String::new(), String::new(), Box::new(|_, _| {}));
    let gathering = Gathering { archive: &archive, plan: &plan, status: &status, stop: &over, uneven: None };
    let known = RefCell::new(Known::new(Catalog::new(connect(options)?)));
    let rows_in_memory = memory::rows_in_memory(&mut watching)?;
    let ahead = Ahead {
        known: &known,
        recent: Recent::new(rows_in_memory),
        pursuit: &pursuit,
        queries: queries_in,
        vendor: watching.server_version().vendor,
        reach: Reach { seconds: options.seconds_max, row_changes: rows_in_memory },
        rows_min: options.rows_min,
        is_on: &is_on,
        unreadable: &unreadable,
        counters,
        row_changes: 0,
    };
    let tables = Tables { known: &known };
    let gatherer = Gatherer::new(gathering, BatchBuilder::new(), tables, ahead, from);
    counters::add(&counters.restarts, 1);
    thread::scope(|scope| {
        for _ in 0..options.threads {
            let (queries, pursuit, unreadable) = (queries.clone(), &pursuit, &unreadable);
            let reader = Reader { replica: &options.replica, queries, pursuit, unreadable, counters, tell };
            scope.spawn(move || reader.run());
        }
        drop(queries);
        let watcher = Watcher {
            channel,
            archive: &archive,
            pursuit: &pursuit,
            is_on: &is_on,
            over: &over,
            always: options.always,
            look_every: options.look_every,
            stop,
            tell,
        };
        let watched = scope.spawn(move || watcher.run(&mut watching));
        let gathered = gatherer.run(reader);
        pursuit.end();
        over.store(true, Ordering::Release);
        let watched = watched.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match gathered {
            // What cannot be gathered now can once the applier is past it.
            Ok(_) | Err(_) if stop.load(Ordering::Acquire) => Ok(()),
            Err(Halt::Failed(error)) if error.is_transient() => Err(error),
            Ok(_) | Err(_) => watched,
        }
    })
}

fn connect(options: &Options) -> Result<Connection> {
    Ok(asking::connect(&options.replica, &ConnectOptions::new("replica"))?)
}

fn stopped(connection: &Connection, error: &str) -> Error {
    let why = format!("its SQL thread has stopped with an error, which must be mended first: {error}");
    Error::Unsuitable { peer: connection.peer().to_string(), why }
}
