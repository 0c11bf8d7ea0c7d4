//! Taking over from the server's own replication, and handing back to it.
//!
//! ```text
//! native applies ──stop──▶ stopped ──use its relay logs, park──▶ parked ──checkpoint──▶ Spate applies
//!       ▲                                                          │
//!       └──────────── begin ◀── unpark ◀── forget checkpoint ◀── tell coordinates
//! ```
//! Where a takeover stands is not noted anywhere: it shows on the server. So each can be interrupted anywhere, and repeated. Whoever has
//! applied more, the server's replication or Spate, is right; if each has something that the other lacks, nothing is done.

mod relay;
mod turns;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use spate_archive::{purge_asides, set_aside, stopping_point};
use spate_binlog::{Gtid, GtidPosition};
use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection, Vendor};
use spate_receive::patience::connect_with_retry;
use spate_receive::source::{SourcePlace, resolve_start};
use spate_replica::applier_lock::ApplierLock;
use spate_replica::checkpoint::{self, Checkpoint};
use spate_replica::native::{self, Channel, Place, Threads};
use spate_replica::new_source;
use spate_replica::status::Status;
use spate_replica::until::Start;
use spate_replica::{Result, asking, journal, own_schema};

pub use turns::{Turns, take_turns};

use crate::ahead::{has_gone_beyond, is_native_ahead, place_text, server_uuid, unsuitable};
use crate::handover::{self, Handover};
use crate::replicate::ReplicateOptions;

/// How long the server's own replication may take to show that it runs.
const BEGIN_PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Stops the server's own replication from the source, and begins Spate's checkpoint where it was.
///
/// # Errors
/// [`spate_replica::Error::Unsuitable`] names what Spate would not do as it does, or its error; a missing privilege names the GRANT.
pub fn take_over(options: &ReplicateOptions, name: Option<&str>, status: &Status, stop: &AtomicBool) -> Result<()> {
    let mut connection = asking::connect(&options.applying.replica, &ConnectOptions::new("replica"))?;
    let channel = native::look(&mut connection, name)?;
    check(&connection, &channel)?;
    check_settings(&mut connection, &channel)?;
    check_other_channels(&mut connection, &channel)?;
    check_own_gtids(&mut connection, options)?;
    silence(&mut connection)?;
    own_schema::create(&mut connection)?;
    let _until_the_connection_ends = ApplierLock::take(&mut connection)?;
    own_schema::upgrade(&mut connection)?;
    let mut source = connect_with_retry(&options.intake.source, status, stop)?;
    check_source(&mut source, &mut connection, &channel, stop)?;
    native::stop(&mut connection, &channel.name, Threads::Appliers)?;
    stopping_point("takeover-stopped");
    let taken = take_over_stopped(&mut connection, &mut source, options, &channel, (status, stop));
    let mut is_let_go =
        || native::look(&mut connection, Some(&channel.name)).is_ok_and(|now| !now.is_parked() && !now.applies);
    if taken.is_err() && channel.applies && is_let_go() {
        // What is refused goes on as before. Why it is refused matters more than an error of this.
        let threads = if channel.receives { Threads::All } else { Threads::Appliers };
        let _started = native::start(&mut connection, &channel.name, threads);
    }
    taken
}

/// The same, once the channel's appliers are stopped.
fn take_over_stopped(
    connection: &mut Connection,
    source: &mut Connection,
    options: &ReplicateOptions,
    channel: &Channel,
    (status, stop): (&Status, &AtomicBool),
) -> Result<()> {
    // With GTIDs, what the appliers have executed is a set, and may have gaps.
    if connection.server_version().vendor == Vendor::MySql && !channel.by_gtid && !channel.is_parked() {
        native::close_gaps(connection, &channel.name)?;
        await_closed_gaps(connection, channel, stop)?;
        native::stop(connection, &channel.name, Threads::Appliers)?;
    }
    // What was executed until then counts.
    let channel = native::look(connection, Some(&channel.name))?;
    check(connection, &channel)?;
    let executed = executed(connection, source, &channel)?;
    let known = checkpoint::read(connection)?;
    let begins = match &known {
        None => true,
        Some(known) => is_native_ahead(connection, known, &executed)?,
    };
    if let Some(known) = known.as_ref().filter(|_| !channel.is_parked())
        && is_native_ahead(connection, &executed, known)?
    {
        let why = format!(
            "Spate's checkpoint there ({}) is ahead of its own replication ({}), which was not taken over: if Spate has applied that there, go on \
             with spate replicate; if the replica was made anew since, remove the schema spate there first",
            place_text(known),
            place_text(&executed)
        );
        return Err(unsuitable(connection, why));
    }
    if begins && journal::read(connection)?.is_some() {
        let why = "an earlier run of Spate was interrupted in the midst of something that cannot be rolled back, and its own \
                   replication went on meanwhile: see spate.intent there";
        return Err(unsuitable(connection, why.to_owned()));
    }
    native::stop(connection, &channel.name, Threads::All)?;
    if begins {
        begin_archive_anew(connection, options, &executed, status)?;
    }
    if begins && !channel.is_parked() {
        let mut confirms = |place: &Place| {
            let start = Start::File { file: place.file.clone(), position: place.position };
            resolve_start(source, &start).is_ok_and(|found| found.gtid_position == executed.gtid_position)
        };
        let used = relay::use_received(connection, &channel, &executed, options, &mut confirms);
        status.note(
            "takeover",
            &used.unwrap_or_else(|why| format!("its relay logs are not used, and all comes from the source: {why}")),
        );
    }
    stopping_point("takeover-relay-logs");
    // First, so that a channel is never parked while the checkpoint is an older one.
    if begins {
        new_source::take_away(connection)?;
        checkpoint::begin(connection, &executed)?;
    }
    stopping_point("takeover-checkpoint");
    native::park(connection, &channel.name, None)?;
    stopping_point("takeover-parked");
    let place = if begins { &executed } else { known.as_ref().unwrap_or(&executed) };
    status.note(
        "takeover",
        &format!(
            "the replica's own replication is stopped and parked; Spate goes on after GTID position '{}' ({}:{})",
            place.gtid_position, place.source_file, place.source_position
        ),
    );
    Ok(())
}

/// Sets the archive aside if it ends before the place where Spate begins: what is between them is applied, and the source may not have it any
/// more.
fn begin_archive_anew(
    connection: &mut Connection,
    options: &ReplicateOptions,
    executed: &Checkpoint,
    status: &Status,
) -> Result<()> {
    let Some(end) = relay::archive_end(options)? else { return Ok(()) };
    let is_behind = match (end.place_without_gtid(), executed.place_without_gtid()) {
        (Some(_), None) => true,
        _ => is_native_ahead(connection, &end, executed).unwrap_or(true),
    };
    if !is_behind {
        return Ok(());
    }
    let aside = set_aside(&options.archive_dir)?;
    stopping_point("takeover-archive-set-aside");
    if let Some(aside) = aside {
        let message = format!("the archive ends before the takeover's place, and is now {}", aside.display());
        status.note("takeover", &message);
    }
    if let Some(retention) = &options.retention {
        purge_asides(&options.archive_dir, retention)?;
    }
    Ok(())
}

/// Spate applies everything, as soon as it can; and nothing that is broken is taken over.
fn check(connection: &Connection, channel: &Channel) -> Result<()> {
    if !channel.error.is_empty() {
        let why =
            format!("its own replication has stopped with an error, which must be mended first: {}", channel.error);
        return Err(unsuitable(connection, why));
    }
    if channel.delay_seconds != 0 && !channel.is_parked() {
        let why = format!(
            "its own replication waits {} seconds on purpose (MASTER_DELAY, SOURCE_DELAY), and Spate would not: set that to 0 first",
            channel.delay_seconds
        );
        return Err(unsuitable(connection, why));
    }
    // MySQL's gaps are closed on the way to another one.
    if ["Master", "Source", "Relay", "Gtid", "SQL_BEFORE_GTIDS", "SQL_AFTER_GTIDS"].contains(&channel.until.as_str()) {
        let why = format!(
            "its own replication was told to stop at a place (UNTIL, by {}), and Spate would go on: start it without one first",
            channel.until
        );
        return Err(unsuitable(connection, why));
    }
    if channel.uses_current_position {
        let why = "it asks its source for what follows all in its own binlog (MASTER_USE_GTID=current_pos), where Spate's changes have GTIDs \
                   that the source does not know: set MASTER_USE_GTID=slave_pos first";
        return Err(unsuitable(connection, why.to_owned()));
    }
    if !channel.filters.is_empty() {
        let why = format!(
            "its own replication leaves out or rewrites some of what the source logs, and Spate applies all: {}",
            channel.filters.join(", ")
        );
        return Err(unsuitable(connection, why));
    }
    Ok(())
}

/// Spate applies with its own rights, and all of it.
fn check_settings(connection: &mut Connection, channel: &Channel) -> Result<()> {
    let settings = native::applier_settings(connection, &channel.name)?;
    if settings.is_empty() {
        return Ok(());
    }
    let why =
        format!("its own replication is told to apply in a way in which Spate would not: {}", settings.join(", "));
    Err(unsuitable(connection, why))
}

/// One channel at a time is Spate's.
fn check_other_channels(connection: &mut Connection, channel: &Channel) -> Result<()> {
    let others = native::look_at_all(connection)?;
    match others.iter().find(|other| other.name != channel.name && other.is_parked()) {
        Some(other) => {
            let name = &other.name;
            let why = format!(
                "Spate has taken over its channel '{name}': hand that back first (spate handback --channel '{name}')"
            );
            Err(unsuitable(connection, why))
        }
        None => Ok(()),
    }
}

/// Keeps Spate's own tables out of MariaDB's binlog, whose GTIDs could be in the way of the server's own replication. An account that may not is
/// only missed where gtid_strict_mode is on.
fn silence(connection: &mut Connection) -> Result<()> {
    if connection.server_version().vendor == Vendor::MariaDb {
        match connection.execute(b"SET SESSION sql_log_bin=0") {
            Err(error) if error.server_error().is_none() || error.is_transient() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// What Spate applies has GTIDs of the replica's own in its binlog. With MariaDB's gtid_strict_mode, they must not be in a domain of the source's:
/// the server's own replication could not go on behind them.
fn check_own_gtids(connection: &mut Connection, options: &ReplicateOptions) -> Result<()> {
    let keeps_gtids = options.applying.parallel.is_some();
    if connection.server_version().vendor != Vendor::MariaDb || options.applying.without_replica_binlog || keeps_gtids {
        return Ok(());
    }
    let answer = connection.query(
        "SELECT @@global.gtid_domain_id, @@global.gtid_slave_pos, @@global.log_bin AND @@global.gtid_strict_mode",
    )?;
    let text = |column| answer.text_at(0, column).unwrap_or_default();
    let (domain, position, is_strict) = (text(0), text(1), text(2) == "1");
    let is_shared = position.split(',').any(|gtid| gtid.split('-').next() == Some(&*domain));
    if !is_strict || !is_shared {
        return Ok(());
    }
    let why = format!(
        "it logs what Spate applies under GTIDs of its own in the domain {domain}, which is one of the source's, and with gtid_strict_mode its \
         own replication could not go on after that: take over with --no-replica-binlog, or give the replica a gtid_domain_id of its own"
    );
    Err(unsuitable(connection, why))
}

/// The channel must be the one from this source. A server learns its source's id when it connects to it.
fn check_source(source: &mut Connection, replica: &mut Connection, channel: &Channel, stop: &AtomicBool) -> Result<()> {
    let id = source.query("SELECT @@server_id")?.single_text().unwrap_or_default();
    let known = match channel.knows_source() {
        true => channel.source_server_id.clone(),
        // It was compared when it was parked, and its place is not asked for.
        false if channel.is_parked() => return Ok(()),
        // With GTIDs it need not be started for this, which it may refuse after a crash.
        false if channel.by_gtid && !channel.source_uuid.is_empty() && channel.source_uuid == server_uuid(source)? => {
            return Ok(());
        }
        false => ask_source(replica, channel, stop)?,
    };
    if known == id {
        return Ok(());
    }
    let why = format!(
        "its channel '{}' replicates from the server with id {known}, and --source has the id {id}: name the same source, or another \
         --channel",
        channel.name
    );
    Err(unsuitable(replica, why))
}

/// Lets a channel that was not connected since the server began connect to its source. Returns the source's id.
fn ask_source(connection: &mut Connection, channel: &Channel, stop: &AtomicBool) -> Result<String> {
    native::start(connection, &channel.name, Threads::Receiver)?;
    let mut known = String::new();
    let asked = look_until(connection, channel, stop, |now| {
        known.clone_from(&now.source_server_id);
        now.knows_source()
    });
    if !channel.receives {
        native::stop(connection, &channel.name, Threads::Receiver)?;
    }
    asked.map(|_| known)
}

/// Waits until MySQL's appliers have closed their gaps. They look for that when they begin another transaction, so those that have nothing
/// left to begin do not stop by themselves.
fn await_closed_gaps(connection: &mut Connection, channel: &Channel, stop: &AtomicBool) -> Result<()> {
    let closed = look_until(connection, channel, stop, |now| !now.applies || now.has_applied_all)?;
    check(connection, &closed)
}

/// Looks at a channel until it is as wanted.
fn look_until(
    connection: &mut Connection,
    channel: &Channel,
    stop: &AtomicBool,
    mut is_wanted: impl FnMut(&Channel) -> bool,
) -> Result<Channel> {
    let begun = Instant::now();
    loop {
        let now = native::look(connection, Some(&channel.name))?;
        if is_wanted(&now) {
            return Ok(now);
        }
        let errors = [&*now.error, &*now.receive_error].into_iter().find(|error| !error.is_empty());
        let why = match errors {
            Some(error) => error.to_owned(),
            None if stop.load(Ordering::Acquire) => "stopped meanwhile".to_owned(),
            None if begun.elapsed() > BEGIN_PATIENCE => format!("nothing came of it within {BEGIN_PATIENCE:?}"),
            None => {
                thread::sleep(LOOK_EVERY);
                continue;
            }
        };
        return Err(unsuitable(connection, format!("its own replication was started, and did not go on: {why}")));
    }
}

/// Where the server's own replication stands.
fn executed(connection: &mut Connection, source: &mut Connection, channel: &Channel) -> Result<Checkpoint> {
    let (vendor, place) = (connection.server_version().vendor, channel.place.clone());
    if channel.by_gtid {
        let variable = if vendor == Vendor::MariaDb { "gtid_slave_pos" } else { "gtid_executed" };
        let text = connection.query(&format!("SELECT @@global.{variable}"))?.single_text().unwrap_or_default();
        let mut gtid_position: GtidPosition =
            text.parse().map_err(|error| unsuitable(connection, format!("its {variable}: {error}")))?;
        gtid_position = match vendor {
            Vendor::MariaDb => of_source(source, &gtid_position)?,
            Vendor::MySql => of_sources_servers(source, &text)?,
        };
        return Ok(Checkpoint { gtid_position, ..Checkpoint::default() });
    }
    let start = Start::File { file: place.file.clone(), position: place.position };
    let SourcePlace { gtid_position, .. } = resolve_start(source, &start)?;
    // The place is kept beside the GTIDs: by it, the server's own replication goes on.
    let (source_file, source_position) = (place.file, place.position);
    Ok(Checkpoint { gtid_position, source_file, source_position, ..Checkpoint::default() })
}

/// The part of a MariaDB replica's position that is this source's: other channels have domains of their own.
fn of_source(source: &mut Connection, position: &GtidPosition) -> Result<GtidPosition> {
    let text = source.query("SELECT @@global.gtid_binlog_state")?.single_text().unwrap_or_default();
    let has_domain = |domain_id: u32| {
        let domains = text.split(',').filter_map(|gtid| gtid.trim().split('-').next()?.parse::<u32>().ok());
        domains.into_iter().any(|domain| domain == domain_id)
    };
    let mut part = GtidPosition::default();
    for gtid in position.domains().filter(|gtid| has_domain(gtid.domain_id)) {
        part.advance(Gtid::MariaDb(gtid));
    }
    Ok(part)
}

/// The same of MySQL's: other channels' transactions are of servers that the source knows nothing of.
fn of_sources_servers(source: &mut Connection, executed: &str) -> Result<GtidPosition> {
    let known = source.query("SELECT @@global.gtid_executed")?.single_text().unwrap_or_default();
    let server = |part: &str| part.trim().split(':').next().unwrap_or_default().to_ascii_lowercase();
    let servers: Vec<String> = known.split(',').map(server).collect();
    let parts: Vec<&str> = executed.split(',').map(str::trim).filter(|part| servers.contains(&server(part))).collect();
    parts.join(",").parse().map_err(|error| unsuitable(source, format!("its gtid_executed: {error}")))
}

/// What was handed back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Handback {
    /// The channel.
    pub channel: String,
    /// Where Spate had ended; `None` if an earlier handback was interrupted after it had told the server.
    pub handover: Option<Handover>,
    /// How long the server's own replication took to begin, in seconds.
    pub began_after_seconds: f64,
}

/// Lets the server's own replication go on where Spate has ended. Nobody may be applying meanwhile.
///
/// # Errors
/// [`spate_replica::Error::Locked`] while a Spate applies; [`spate_replica::Error::Unsuitable`] if it runs already, or does not begin; a missing
/// privilege names the GRANT.
pub fn hand_back(replica: &Endpoint, name: Option<&str>) -> Result<Handback> {
    let mut connection = asking::connect(replica, &ConnectOptions::new("replica"))?;
    let channel = native::look(&mut connection, name)?;
    if channel.applies && !channel.is_parked() {
        return Err(unsuitable(&connection, "its own replication runs already".to_owned()));
    }
    silence(&mut connection)?;
    own_schema::create(&mut connection)?;
    let _until_the_connection_ends = ApplierLock::take(&mut connection)?;
    let known = checkpoint::read(&mut connection)?;
    if let Some(known) = &known
        && has_gone_beyond(&mut connection, &channel, known)?
    {
        let why = "its own replication has applied more than Spate since the takeover: there is nothing to hand back. Take over again, or set \
                   its delay to 0 (MASTER_DELAY, SOURCE_DELAY) and START it";
        return Err(unsuitable(&connection, why.to_owned()));
    }
    if !channel.is_parked() {
        let why = format!(
            "Spate has not taken over its channel '{}', so that there is nothing to hand back: name another one (--channel), or end Spate's work \
             with spate handover and start replication by hand",
            channel.name
        );
        return Err(unsuitable(&connection, why));
    }
    native::stop(&mut connection, &channel.name, Threads::All)?;
    // Without a checkpoint, an earlier handback was interrupted after it had told the server.
    let handover = known.as_ref().map(|_| handover::tell(&mut connection)).transpose()?;
    stopping_point("handback-told");
    if let Some(known) = known.as_ref().filter(|_| !channel.by_gtid) {
        if known.source_file.is_empty() {
            let why = "it replicates by file and offset, and Spate's checkpoint has none: name its place by CHANGE MASTER or CHANGE \
                       REPLICATION SOURCE, after spate handover";
            return Err(unsuitable(&connection, why.to_owned()));
        }
        let place = Place { file: known.source_file.clone(), position: known.source_position };
        native::park(&mut connection, &channel.name, Some(&place))?;
        stopping_point("handback-placed");
    }
    // From here on, what the server says is right.
    checkpoint::forget(&mut connection)?;
    stopping_point("handback-forgotten");
    let begun = Instant::now();
    native::unpark(&mut connection, &channel)?;
    stopping_point("handback-unparked");
    // A source that refuses says so only after the connection: twice, to be sure.
    let mut times = 0;
    look_until(&mut connection, &channel, &AtomicBool::new(false), |now| {
        let is_well = now.applies && now.is_connected && now.seconds_behind.is_some() && now.error.is_empty();
        times = if is_well { times + 1 } else { 0 };
        times > 2
    })?;
    Ok(Handback { channel: channel.name, handover, began_after_seconds: begun.elapsed().as_secs_f64() })
}
