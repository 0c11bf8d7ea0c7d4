//! A recovery: a base, the archive's transactions up to the wanted one, folded, on a server of our own.
//!
//! Everything happens in a directory beside the wanted one, which takes its place at the end: what was interrupted is no data directory, and is
//! removed by the next run.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use spate_archive::{Archive, stopping_point};
use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection, Vendor, quote};
use spate_operate::{ApplyOptions, Ended, apply_archive, handover};
use spate_replica::checkpoint::{self, Checkpoint};
use spate_replica::status::Status;
use spate_replica::{asking, own_schema};
use spate_schedule::EventStates;

use crate::chain;
use crate::choice::{Chosen, choose};
use crate::chunks;
use crate::error::{Error, Result};
use crate::goal::{self, Found, Goal, Resolved};
use crate::later::{self, Later};
use crate::manifest::{self, Base, Method};
use crate::place::Place;
use crate::programs::Programs;
use crate::progress::Progress;
use crate::scratch::{Scratch, ScratchOptions};
use crate::sealing::Identities;
use crate::single::{self, Copied, OnlyTable};
use crate::target::Target;
use crate::tree;

/// How to recover.
#[derive(Debug)]
pub struct RestoreOptions {
    /// Which base. `None`: the newest before the goal.
    pub base: Option<String>,
    /// The binlog: an archive, or any directory of binlogs, instead of what was shipped to the target.
    pub archive: Option<PathBuf>,
    /// Names the binlogs in that directory, if it holds several sets.
    pub base_name: Option<String>,
    /// Where to end.
    pub goal: Goal,
    /// Keys of what is encrypted.
    pub identities: Identities,
    /// Where the server's programs are.
    pub programs: Programs,
    /// For the server's buffer pool, and as much for Spate.
    pub memory_bytes: u64,
    /// Further options of the server that restores.
    pub server_options: Vec<String>,
    /// The restored server is to go on as a replica of Spate's: its checkpoint stays, and it does not execute the source's events.
    pub becomes_replica: bool,
}

/// What was recovered.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Restored {
    /// The base's name.
    pub base: String,
    /// Where the base stood.
    pub base_position: String,
    /// The GTID position that was reached; empty without GTIDs.
    pub gtid_position: String,
    /// The source's file,
    pub source_file: String,
    /// and the offset in it.
    pub source_position: u64,
    /// Transactions that were applied to the base,
    pub transactions: u64,
    /// and their row changes,
    pub row_changes: u64,
    /// of which so many are left when they are folded.
    pub net_row_changes: u64,
    /// Seconds for the binlog: fetching it, and finding the end in it.
    pub binlog_seconds: f64,
    /// Seconds for the base's data.
    pub base_seconds: f64,
    /// Seconds for the transactions.
    pub apply_seconds: f64,
    /// Seconds for all.
    pub seconds: f64,
    /// The first transaction that is not in it. `None`: everything is.
    pub excluded: Option<Found>,
    /// Transactions behind that which touch the same rows. `None`: nobody asked.
    pub later: Option<Later>,
    /// Single tables that were copied.
    pub copied: Vec<Copied>,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// What all parts of a recovery work with.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// Where bases are, and logs as a rule.
    pub target: &'a Target,
    /// Others look at how far it is.
    pub progress: &'a Progress,
    /// The same while transactions are applied.
    pub status: &'a Status,
    /// Somebody wants to stop.
    pub stop: &'a AtomicBool,
}

/// Recovers into a new data directory.
///
/// # Errors
/// Any; nothing is in `directory` then.
pub fn to_directory(directory: &Path, options: &RestoreOptions, around: Around<'_>) -> Result<Restored> {
    let began = Instant::now();
    check_is_free(directory)?;
    let place = Place::beside(directory)?;
    let (mut restored, scratch) = recover(&place, options, around)?;
    around.progress.begin("stopping the restored server");
    scratch.drop_account()?;
    scratch.stop()?;
    stopping_point("before-restored-rename");
    if directory.is_dir() {
        std::fs::remove_dir(directory).map_err(Error::file(directory))?;
    }
    std::fs::rename(place.data(), directory).map_err(Error::file(directory))?;
    sync_directory(directory.parent().unwrap_or(Path::new("/")))?;
    stopping_point("after-restored-rename");
    restored.seconds = began.elapsed().as_secs_f64();
    Ok(restored)
}

/// Recovers in a directory for a while, and copies single tables from there to a server that is in use.
///
/// # Errors
/// Any; a table that was not copied as a whole is not there.
pub fn single_tables(
    work: &Path,
    live: &Endpoint,
    tables: &[OnlyTable],
    options: &RestoreOptions,
    around: Around<'_>,
) -> Result<Restored> {
    let began = Instant::now();
    let mut connection = asking::connect(live, &ConnectOptions::new("server"))?;
    single::check(&mut connection, tables)?;
    let place = Place::within(work, "spate-single-")?;
    let (mut restored, scratch) = recover(&place, options, around)?;
    around.progress.begin("copying tables");
    restored.copied = single::copy(&scratch, live, tables, around.stop)?;
    scratch.stop()?;
    restored.seconds = began.elapsed().as_secs_f64();
    Ok(restored)
}

/// Recovers in a directory for a while, checks every table there, and lets `look` use the running server, which is a replica of Spate's with a
/// checkpoint.
///
/// # Errors
/// Any, also [`Error::Refused`] that names the tables which are not sound, and those of `look`.
pub fn verify<T>(
    work: &Path,
    options: &RestoreOptions,
    around: Around<'_>,
    look: impl FnOnce(&Endpoint, &Restored) -> Result<T>,
) -> Result<(Restored, Checked, T)> {
    let began = Instant::now();
    let place = Place::within(work, "spate-verify-")?;
    let (mut restored, scratch) = recover(&place, options, around)?;
    around.progress.begin("checking tables");
    let checked = check_tables(&mut scratch.connect()?, around.stop)?;
    let looked = look(scratch.endpoint(), &restored)?;
    scratch.stop()?;
    restored.seconds = began.elapsed().as_secs_f64();
    Ok((restored, checked, looked))
}

/// What a look at all tables of a recovered server found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Tables that the server itself finds sound.
    pub tables: u64,
    /// Rows in them, by its rough statistics.
    pub rows_estimated: u64,
}

/// Has the server check each table: pages, indexes, their order.
fn check_tables(connection: &mut Connection, stop: &AtomicBool) -> Result<Checked> {
    let rows = connection.query(
        "SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(TABLE_ROWS, 0) FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE' AND \
         TABLE_SCHEMA NOT IN ('information_schema', 'performance_schema', 'sys', 'spate') ORDER BY 1, 2",
    )?;
    let (mut checked, mut broken) = (Checked::default(), Vec::new());
    for row in 0..rows.rows.len() {
        let (Some(schema), Some(table)) = (rows.text_at(row, 0), rows.text_at(row, 1)) else { continue };
        if stop.load(Ordering::Acquire) {
            return Err(Error::Stopped);
        }
        let answer = connection.query(&format!("CHECK TABLE {}", quote::qualified(&schema, &table)))?;
        let last = answer.rows.len().saturating_sub(1);
        let (kind, text) =
            (answer.text(last, "Msg_type").unwrap_or_default(), answer.text(last, "Msg_text").unwrap_or_default());
        // Engines that cannot check say so in a note.
        let is_sound =
            kind.eq_ignore_ascii_case("note") || kind.eq_ignore_ascii_case("status") && text.eq_ignore_ascii_case("OK");
        match is_sound {
            true => checked.tables += 1,
            false => broken.push(format!("{schema}.{table}: {text}")),
        }
        checked.rows_estimated += rows.text_at(row, 2).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    }
    match broken.is_empty() {
        true => Ok(checked),
        false => Err(Error::Refused(format!("tables of the recovered server are not sound: {}", broken.join("; ")))),
    }
}

/// Applies what is behind a base to a server that holds the base already. It is a replica of Spate's then, with a checkpoint.
///
/// # Errors
/// Any; what was applied stays, and the next run goes on behind it.
pub fn to_replica(replica: &Endpoint, options: &RestoreOptions, around: Around<'_>) -> Result<Restored> {
    let began = Instant::now();
    let mut connection = asking::connect(replica, &ConnectOptions::new("replica"))?;
    let place = Place::within(&std::env::temp_dir(), "spate-restore-")?;
    let Chosen { base, binlog, warnings } = choose(&place, options, around)?;
    let Some(archive) = binlog else {
        return Err(Error::Refused("there is no binlog behind the base: nothing could be applied".into()));
    };
    let binlog_seconds = began.elapsed().as_secs_f64();
    let mut restored = Restored { binlog_seconds, warnings, ..Restored::of(&base) };
    let begin = match is_there(&mut connection, &base, options)? {
        Some(checkpoint) => checkpoint,
        None => chain::place(&archive, &base.position, &base, &options.goal)?,
    };
    let resolved = goal::resolve(&options.goal, &archive, &begin)?;
    let server = Served { endpoint: replica, is_there: &|| true };
    apply(server, &archive, &begin, &resolved, options, around, &mut restored)?;
    restored.seconds = began.elapsed().as_secs_f64();
    Ok(restored)
}

/// Whether the server holds the base: the checkpoint of an earlier run, or nothing that contradicts.
fn is_there(connection: &mut Connection, base: &Base, options: &RestoreOptions) -> Result<Option<Checkpoint>> {
    own_schema::create(connection)?;
    if let Some(checkpoint) = checkpoint::read(connection)? {
        return Ok(Some(checkpoint));
    }
    if connection.server_version().vendor == Vendor::MySql && !base.position.gtid.is_empty() {
        let set = quote::text(&base.position.gtid);
        let differs = connection.query(&format!(
            "SELECT CONCAT(GTID_SUBTRACT({set}, @@global.gtid_executed), GTID_SUBTRACT(@@global.gtid_executed, {set}))"
        ))?;
        return match differs.single_text().unwrap_or_default().is_empty() {
            true => Ok(None),
            false => Err(Error::Refused(format!(
                "the replica's gtid_executed is not that of the base {} ('{}'): restore the base there first",
                base.id, base.position.gtid
            ))),
        };
    }
    match options.base {
        Some(_) => Ok(None),
        None => Err(Error::Refused(format!(
            "nothing on the replica shows that it holds the base {}: if it does, say so with --base {}",
            base.id, base.id
        ))),
    }
}

impl Restored {
    fn of(base: &Base) -> Restored {
        Restored {
            base: base.id.clone(),
            base_position: base.position.to_string(),
            gtid_position: base.position.gtid.clone(),
            source_file: base.position.file.clone(),
            source_position: base.position.offset,
            ..Restored::default()
        }
    }
}

fn check_is_free(directory: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    if directory.file_name().is_none() {
        return Err(Error::Refused(format!("{} cannot be a new directory", directory.display())));
    }
    if let Ok(found) = std::fs::symlink_metadata(directory) {
        let parent = std::fs::metadata(directory.parent().unwrap_or(Path::new("/"))).map_err(Error::file(directory))?;
        if found.is_symlink() || found.dev() != parent.dev() {
            return Err(Error::Refused(format!(
                "{} is a link or a mount point, which a new directory cannot replace: name a directory in it",
                directory.display()
            )));
        }
    }
    match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::file(directory)(error)),
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(Error::Refused(format!(
                "{} is not empty: a recovery makes a new data directory, and overwrites none",
                directory.display()
            ))),
        },
    }
}

fn sync_directory(directory: &Path) -> Result<()> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    File::open(directory).and_then(|opened| opened.sync_all()).map_err(Error::file(directory))
}

/// The recovered server, running, at the goal.
fn recover(place: &Place, options: &RestoreOptions, around: Around<'_>) -> Result<(Restored, Scratch)> {
    let began = Instant::now();
    let Chosen { base, binlog: archive, warnings } = choose(place, options, around)?;
    let mut restored = Restored { warnings, ..Restored::of(&base) };
    let (begin, doubt) = match &archive {
        None => (None, None),
        Some(archive) => match chain::place(archive, &base.position, &base, &options.goal) {
            Ok(begin) => (Some(begin), None),
            // It may be a replica's, with a place in its source's binlog.
            Err(error) if base.has_own_schema => (None, Some(error)),
            Err(error) => return Err(error),
        },
    };
    let mut resolved = match (&archive, &begin) {
        (Some(archive), Some(begin)) => Some(goal::resolve(&options.goal, archive, begin)?),
        _ => None,
    };
    restored.binlog_seconds = began.elapsed().as_secs_f64();
    let data_began = Instant::now();
    let data = place.data();
    fetch_data(&base, &data, options, around)?;
    around.progress.begin("starting a server on the base");
    let scratch_options = ScratchOptions {
        buffer_pool_bytes: options.memory_bytes,
        server_options: options.server_options.clone(),
        is_fresh: false,
    };
    let scratch = Scratch::start(&options.programs, &base.server, &data, &scratch_options, around.stop)?;
    restored.base_seconds = data_began.elapsed().as_secs_f64();
    let Some(archive) = archive else {
        restored.warnings.push("there is no binlog behind the base: what is restored is the base itself".into());
        return Ok((restored, scratch));
    };
    let mut connection = scratch.connect()?;
    let begin = match (begin, doubt) {
        (Some(begin), _) => {
            if base.has_own_schema {
                own_schema::forget(&mut connection)?;
            }
            begin
        }
        (None, doubt) => {
            let begin =
                own_place(&mut connection, &archive, &base, &options.goal).map_err(|error| doubt.unwrap_or(error))?;
            resolved = Some(goal::resolve(&options.goal, &archive, &begin)?);
            restored.warnings.push(format!(
                "the base is of a replica of Spate's: its own checkpoint ('{}') says where it stands in this binlog",
                begin.gtid_position
            ));
            begin
        }
    };
    let Some(resolved) = resolved else { return Err(Error::Refused("the end was not found".into())) };
    let server = Served { endpoint: scratch.endpoint(), is_there: &|| scratch.is_running() };
    apply(server, &archive, &begin, &resolved, options, around, &mut restored)?;
    if let Some(excluded) = &restored.excluded {
        let is_mistake = matches!(options.goal, Goal::BeforeGtid(_) | Goal::BeforeStatement(_));
        if is_mistake {
            around.progress.begin("looking for what touches the same rows later");
            restored.later = Some(later::touching(&archive, excluded, &mut connection, around.stop)?);
        }
    }
    finish(&mut connection, &scratch, &base, options, &mut restored)?;
    Ok((restored, scratch))
}

/// What a replica of Spate's says of its place, if the archive has that.
fn own_place(connection: &mut Connection, archive: &Archive, base: &Base, goal: &Goal) -> Result<Checkpoint> {
    own_schema::create(connection)?;
    let Some(checkpoint) = checkpoint::read(connection)? else {
        return Err(Error::Foreign { base: base.id.clone(), why: "and it has no checkpoint of Spate's".into() });
    };
    let position = manifest::Position {
        gtid: checkpoint.gtid_position.to_string(),
        file: checkpoint.source_file.clone(),
        offset: checkpoint.source_position,
        server_seconds: checkpoint.source_seconds,
    };
    chain::place(archive, &position, base, goal)?;
    Ok(checkpoint)
}

/// The server to which transactions are applied.
#[derive(Clone, Copy)]
struct Served<'a> {
    endpoint: &'a Endpoint,
    /// False if it has gone, and will not come back.
    is_there: &'a (dyn Fn() -> bool + Sync),
}

/// Applies, and does not wait for a server that will not come back.
fn apply_watched(
    server: Served<'_>,
    archive: &Archive,
    begin: &Checkpoint,
    resolved: &Resolved,
    applying: &ApplyOptions,
    around: Around<'_>,
) -> Result<Ended> {
    const LOOK_EVERY: Duration = Duration::from_millis(200);
    let (over, gone, stop) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                let has_gone = !(server.is_there)();
                gone.fetch_or(has_gone, Ordering::AcqRel);
                stop.fetch_or(has_gone || around.stop.load(Ordering::Acquire), Ordering::AcqRel);
                std::thread::park_timeout(LOOK_EVERY);
            }
        });
        let applied = apply_archive(applying, archive, begin, &resolved.until, around.status, &stop);
        over.store(true, Ordering::Release);
        watching.thread().unpark();
        match gone.load(Ordering::Acquire) {
            true => {
                Err(Error::Refused("the server that is restored has ended: by itself, or somebody has ended it".into()))
            }
            false => Ok(applied?),
        }
    })
}

fn apply(
    server: Served<'_>,
    archive: &Archive,
    begin: &Checkpoint,
    resolved: &Resolved,
    options: &RestoreOptions,
    around: Around<'_>,
    restored: &mut Restored,
) -> Result<()> {
    let began = Instant::now();
    restored.warnings.extend(resolved.warnings.iter().cloned());
    restored.excluded = resolved.excluded.clone();
    around.progress.begin("");
    // The server takes the source's place, unless it is to go on as a replica.
    let events = if options.becomes_replica { EventStates::Disabled } else { EventStates::Kept };
    let applying = ApplyOptions { events, ..ApplyOptions::new(server.endpoint.clone(), options.memory_bytes) };
    let applied = apply_watched(server, archive, begin, resolved, &applying, around)?;
    if applied == Ended::Stopped {
        return Err(Error::Stopped);
    }
    let report = around.status.report();
    restored.transactions = report.counters.transactions;
    restored.row_changes = report.counters.row_changes;
    restored.net_row_changes = report.counters.net_row_changes;
    restored.gtid_position = report.positions.applied.gtid.clone();
    restored.source_file = report.positions.applied.file.clone();
    restored.source_position = report.positions.applied.position;
    restored.apply_seconds = began.elapsed().as_secs_f64();
    if matches!(options.goal, Goal::Gtid(_)) {
        // Until the last of them came, others of other domains have come, too.
        restored.excluded = goal::after(archive, &report.positions.applied.gtid)?;
    }
    stopping_point("after-restored-apply");
    Ok(())
}

/// Makes the server know what it holds, and removes what only the recovery needed.
fn finish(
    connection: &mut Connection,
    scratch: &Scratch,
    base: &Base,
    options: &RestoreOptions,
    restored: &mut Restored,
) -> Result<()> {
    handover::hand_over(scratch.endpoint())?;
    if options.becomes_replica {
        return Ok(());
    }
    // Whatever holds a lock is named by the server's error, soon.
    connection.execute(b"SET SESSION lock_wait_timeout = 60, innodb_lock_wait_timeout = 60")?;
    let prepared = connection.query("XA RECOVER")?.rows.len();
    if prepared > 0 {
        restored.warnings.push(format!(
            "{prepared} XA transactions are prepared, as they were on the source: COMMIT or ROLLBACK them by their XID (XA RECOVER). They hold locks in \
             the schema spate, which therefore stays: DROP DATABASE spate afterwards"
        ));
        return Ok(());
    }
    match base.has_own_schema {
        true => own_schema::forget(connection)?,
        false => drop(connection.execute(b"DROP DATABASE spate")?),
    }
    Ok(())
}

/// Fetches the base's data, and makes them a data directory.
fn fetch_data(base: &Base, data: &Path, options: &RestoreOptions, around: Around<'_>) -> Result<()> {
    let Around { target, progress, stop, .. } = around;
    progress.expect(base.bytes().0);
    progress.begin("fetching the base");
    let under = base.place();
    chunks::read(target, &under, &base.chunks, &options.identities, progress, stop, |stream| match base.method {
        Method::MariadbBackup => crate::prepare::unpack(&options.programs, stream, data),
        Method::Clone | Method::Snapshot => tree::unpack(stream, data),
    })?;
    stopping_point("after-restored-data");
    if base.method == Method::MariadbBackup {
        progress.begin("preparing the base");
        crate::prepare::prepare(&options.programs, &base.server, data, options.memory_bytes)?;
    }
    Ok(())
}
