//! The steps of a failover, each on one server. Each looks at the server first, so that it can be repeated.

use std::thread;
use std::time::{Duration, Instant};

use spate_binlog::{Gtid, GtidPosition};
use spate_connection::endpoint::Secret;
use spate_connection::{Vendor, quote};
use spate_replica::{asking, checkpoint, gtids};

use crate::error::{Error, Result};
use crate::history::History;
use crate::topology::{ChannelFacts, Server, ServerFacts, SourceNames};

/// How often a server is looked at that is waited for.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often one who waits makes sure that it may go on waiting: well within the shortest lease.
const GUARD_EVERY: Duration = Duration::from_millis(500);

/// How long a server's own replication may take to show that it runs.
const FOLLOW_PATIENCE: Duration = Duration::from_secs(30);

/// The account with which servers replicate from each other.
#[derive(Debug, Clone, Default)]
pub struct ReplicationAccount {
    /// Its name; `None` keeps what the channel has.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// True if its connections must use TLS.
    pub requires_tls: bool,
}

/// Gives or takes the role of a semi-synchronous source, where a server has the other role, that of a semi-synchronous replica. A replica with both
/// would wait for acknowledgements of what it applies. True if something was changed.
///
/// # Errors
/// A missing privilege names the GRANT; any error of the connection.
pub fn set_semi_sync_source(server: &mut Server, is_source: bool) -> Result<bool> {
    let found = server.connection.query(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('rpl_semi_sync_master_enabled', 'rpl_semi_sync_slave_enabled', \
         'rpl_semi_sync_source_enabled', 'rpl_semi_sync_replica_enabled')",
    )?;
    let (mut of_source, mut is_on, mut is_replica) = (None, false, false);
    for row in 0..found.rows.len() {
        let (name, value) = (found.text_at(row, 0).unwrap_or_default(), found.text_at(row, 1).unwrap_or_default());
        match name.contains("master") || name.contains("source") {
            true => (of_source, is_on) = (Some(name), value == "ON"),
            false => is_replica |= value == "ON",
        }
    }
    let Some(name) = of_source.filter(|_| is_replica && is_on != is_source) else { return Ok(false) };
    change(server, &format!("SET GLOBAL {name}={}", u8::from(is_source)))?;
    Ok(true)
}

/// `STOP`, `START` of a channel's threads, or what forgets a channel.
fn channel_sql(vendor: Vendor, what: Channel, name: &str) -> String {
    let name = literal(name);
    match (vendor, what) {
        (Vendor::MariaDb, Channel::StopReceiver) => format!("STOP SLAVE {name} IO_THREAD"),
        (Vendor::MariaDb, Channel::StartReceiver) => format!("START SLAVE {name} IO_THREAD"),
        (Vendor::MariaDb, Channel::StartApplier) => format!("START SLAVE {name} SQL_THREAD"),
        (Vendor::MariaDb, Channel::Stop) => format!("STOP SLAVE {name}"),
        (Vendor::MariaDb, Channel::Start) => format!("START SLAVE {name}"),
        (Vendor::MariaDb, Channel::Forget) => format!("RESET SLAVE {name} ALL"),
        (Vendor::MySql, Channel::StopReceiver) => format!("STOP REPLICA IO_THREAD FOR CHANNEL {name}"),
        (Vendor::MySql, Channel::StartReceiver) => format!("START REPLICA IO_THREAD FOR CHANNEL {name}"),
        (Vendor::MySql, Channel::StartApplier) => format!("START REPLICA SQL_THREAD FOR CHANNEL {name}"),
        (Vendor::MySql, Channel::Stop) => format!("STOP REPLICA FOR CHANNEL {name}"),
        (Vendor::MySql, Channel::Start) => format!("START REPLICA FOR CHANNEL {name}"),
        (Vendor::MySql, Channel::Forget) => format!("RESET REPLICA ALL FOR CHANNEL {name}"),
        (Vendor::MariaDb, Channel::ForgetReceived) => format!("RESET SLAVE {name}"),
        (Vendor::MySql, Channel::ForgetReceived) => format!("RESET REPLICA FOR CHANNEL {name}"),
    }
}

/// What is done with a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    StopReceiver,
    StartReceiver,
    StartApplier,
    Stop,
    Start,
    Forget,
    /// Forgets what it has received and not applied, and keeps its source.
    ForgetReceived,
}

/// Does that.
pub(crate) fn steer(server: &mut Server, what: Channel, name: &str) -> Result<()> {
    let sql = channel_sql(server.vendor(), what, name);
    let grant = match server.vendor() {
        Vendor::MariaDb => "GRANT REPLICATION SLAVE ADMIN, RELOAD ON *.* TO <the user of Spate>",
        Vendor::MySql => "GRANT REPLICATION_SLAVE_ADMIN, RELOAD ON *.* TO <the user of Spate>",
    };
    let done = server.connection.execute(sql.as_bytes());
    done.map_err(|error| spate_replica::Error::from(error).with_missing_privilege("steer its own replication", grant))?;
    Ok(())
}

/// Waits until a server has applied all that it has received from the channel's source, and everything in `wanted`.
///
/// # Errors
/// [`Error::Step`] if its replication stops, or does not get there in time.
pub fn drain(
    server: &mut Server,
    names: Option<&SourceNames>,
    wanted: Option<&History>,
    patience: Duration,
    guard: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    let mut guarded = Instant::now();
    let mut times = 0;
    loop {
        if guarded.elapsed() >= GUARD_EVERY {
            guard()?;
            guarded = Instant::now();
        }
        server.look_again()?;
        let Some(channel) = server.channel_from(names) else { return Ok(()) };
        let name = server.facts.name.clone();
        if !channel.error.is_empty() {
            return Err(Error::step(name, format!("its own replication has stopped: {}", channel.error)));
        }
        if !channel.is_applying {
            steer(server, Channel::StartApplier, &channel.name)?;
        }
        let has_received = wanted.is_none_or(|wanted| server.facts.received.has_all_of(wanted));
        let has_applied = server.facts.applied.has_all_of(&server.facts.received);
        // The state that it has applied all is told a moment before the last transaction's GTID.
        times = if has_received && has_applied && channel.has_applied_all { times + 1 } else { 0 };
        if times > 1 {
            return Ok(());
        }
        if Instant::now() > deadline {
            let lacks = match wanted {
                Some(wanted) => wanted.missing_from(&server.facts.applied),
                None => server.facts.received.missing_from(&server.facts.applied),
            };
            let why = match channel.receive_error.as_str() {
                "" => String::new(),
                error => format!("; it does not receive: {error}"),
            };
            let what = format!(
                "after {} s it still lacks {lacks}{why}. Wait longer with --drain-seconds, or look why it does not go on",
                patience.as_secs()
            );
            return Err(Error::step(name, what));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// True if a new source's binlog does not hold any more what another server has not applied.
pub(crate) fn has_purged(source: &mut Server, other: &ServerFacts) -> Result<bool> {
    let applied = &other.applied.position;
    match source.vendor() {
        Vendor::MySql => {
            let lacks = source.value(&format!("SELECT GTID_SUBTRACT(@@global.gtid_purged, '{applied}')"))?;
            Ok(!lacks.is_empty())
        }
        Vendor::MariaDb => {
            let reached =
                |domain| applied.domains().find(|gtid| gtid.domain_id == domain).map_or(0, |gtid| gtid.sequence);
            Ok(source.facts.applied.oldest.iter().any(|(&domain, &last)| last > reached(domain)))
        }
    }
}

/// Ends a server's own replication from its old source for good.
///
/// # Errors
/// A missing privilege names the GRANT; any error of the connection.
pub fn detach(server: &mut Server, channel: &ChannelFacts) -> Result<()> {
    steer(server, Channel::Stop, &channel.name)?;
    steer(server, Channel::Forget, &channel.name)?;
    server.look_again()?;
    Ok(())
}

/// A source that others are pointed at.
#[derive(Debug, Clone)]
pub struct NewSource {
    /// The host by which other servers reach it.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What it has logged under GTIDs that the old source has not: other servers must neither ask for it nor apply it.
    pub own: GtidPosition,
    /// The old source's position at which others must stand exactly, since its GTIDs are not in this one's binlog; `None` if they are.
    pub exactly_at: Option<GtidPosition>,
}

/// Lets a server's own replication follow another server, by the channel `old` or one without a name, and waits until it runs. A channel that follows it
/// already goes on where it is, unless the server's position was moved.
///
/// # Errors
/// [`Error::Step`] if it does not; a missing privilege names the GRANT.
pub fn point(
    server: &mut Server,
    old: Option<ChannelFacts>,
    is_moved: bool,
    source: &NewSource,
    account: &ReplicationAccount,
) -> Result<()> {
    let at_new = SourceNames { address: Some((source.host.clone(), source.port)), server_id: None };
    let known = server.channel_from(Some(&at_new));
    let channel = match known.clone().filter(|channel| !is_moved && channel.tells_gtids) {
        Some(channel) => channel,
        None => {
            let channel = known.or(old).unwrap_or_default();
            let has_channel = server.facts.channels.iter().any(|known| known.name == channel.name);
            if has_channel {
                steer(server, Channel::Stop, &channel.name)?;
            }
            tell_own(server, source)?;
            let sql = change_source_sql(server.vendor(), &channel.name, source, account);
            change(server, &sql)?;
            channel
        }
    };
    steer(server, Channel::Start, &channel.name)?;
    await_follow(server, &at_new)
}

/// Makes known that what the new source logged by itself is nothing to ask for.
fn tell_own(server: &mut Server, source: &NewSource) -> Result<()> {
    if source.own.is_empty() && source.exactly_at.is_none() {
        return Ok(());
    }
    match server.vendor() {
        Vendor::MySql => {
            let missing = server.value(&format!("SELECT GTID_SUBTRACT('{}', @@global.gtid_executed)", source.own))?;
            let missing: String = missing.split_whitespace().collect();
            if missing.is_empty() { Ok(()) } else { change(server, &format!("SET GLOBAL gtid_purged='+{missing}'")) }
        }
        Vendor::MariaDb => {
            let mut position: GtidPosition = match &source.exactly_at {
                Some(_) => GtidPosition::default(),
                None => server.value("SELECT @@global.gtid_slave_pos")?.parse().unwrap_or_default(),
            };
            source.own.domains().for_each(|gtid| position.advance(Gtid::MariaDb(gtid)));
            change(server, &format!("SET GLOBAL gtid_slave_pos='{position}'"))
        }
    }
}

pub(crate) fn change(server: &mut Server, sql: &str) -> Result<()> {
    let grant = match server.vendor() {
        Vendor::MariaDb => {
            "GRANT REPLICATION SLAVE ADMIN, REPLICATION MASTER ADMIN, RELOAD ON *.* TO <the user of Spate>"
        }
        Vendor::MySql => "GRANT REPLICATION_SLAVE_ADMIN, SYSTEM_VARIABLES_ADMIN ON *.* TO <the user of Spate>",
    };
    let done = server.connection.execute(sql.as_bytes());
    done.map_err(|error| {
        spate_replica::Error::from(error).with_missing_privilege("change its own replication", grant)
    })?;
    Ok(())
}

fn change_source_sql(vendor: Vendor, channel: &str, source: &NewSource, account: &ReplicationAccount) -> String {
    let (host, port) = (literal(&source.host), source.port);
    let name = literal(channel);
    let user = account.user.as_deref().map(literal);
    let password = account.password.as_ref().map(|password| literal(password.expose()));
    let or_none =
        |option: Option<String>, key: &str| option.map_or_else(String::new, |value| format!(", {key}={value}"));
    match vendor {
        Vendor::MariaDb => {
            let tls = if account.requires_tls { ", MASTER_SSL=1" } else { "" };
            let account = or_none(user, "MASTER_USER") + &or_none(password, "MASTER_PASSWORD");
            format!(
                "CHANGE MASTER {name} TO MASTER_HOST={host}, MASTER_PORT={port}{account}{tls}, MASTER_USE_GTID=slave_pos"
            )
        }
        Vendor::MySql => {
            let tls = match (&account.user, account.requires_tls) {
                (_, true) => ", SOURCE_SSL=1",
                (Some(_), false) => ", GET_SOURCE_PUBLIC_KEY=1",
                (None, false) => "",
            };
            let account = or_none(user, "SOURCE_USER") + &or_none(password, "SOURCE_PASSWORD");
            format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST={host}, SOURCE_PORT={port}{account}{tls}, SOURCE_AUTO_POSITION=1 \
                 FOR CHANNEL {name}"
            )
        }
    }
}

/// A plain literal: these statements take no expression.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// Waits until a channel is connected, applies, and has no error; it must be so twice.
fn await_follow(server: &mut Server, names: &SourceNames) -> Result<()> {
    const TIMES: usize = 3;
    let deadline = Instant::now() + FOLLOW_PATIENCE;
    let mut times = 0;
    loop {
        server.look_again()?;
        let channel = server.channel_from(Some(names)).unwrap_or_default();
        let is_well = channel.is_connected && channel.is_applying && channel.error.is_empty();
        times = if is_well { times + 1 } else { 0 };
        if times >= TIMES {
            return Ok(());
        }
        let error = [&channel.error, &channel.receive_error].into_iter().find(|error| !error.is_empty());
        if Instant::now() > deadline || !channel.error.is_empty() {
            let what = match error {
                Some(error) => format!("it was pointed at its new source, and does not follow it: {error}"),
                None => format!("it was pointed at its new source, and does not follow it within {FOLLOW_PATIENCE:?}"),
            };
            return Err(Error::step(server.facts.name.clone(), what));
        }
        thread::sleep(LOOK_EVERY * 2);
    }
}

/// What a server that Spate applied to has logged under GTIDs of its own.
pub(crate) fn own_of(server: &mut Server) -> Result<GtidPosition> {
    Ok(match server.vendor() {
        Vendor::MySql => {
            let others = crate::topology::without_origin(&server.facts.logged, &server.facts.uuid.to_ascii_lowercase());
            let missing = server.value(&format!("SELECT GTID_SUBTRACT(@@global.gtid_executed, '{others}')"))?;
            missing.split_whitespace().collect::<String>().parse().unwrap_or_default()
        }
        Vendor::MariaDb => {
            let keeps = server.facts.keeps_gtids;
            let own_domain = gtids::own_domain(server.facts.server_id);
            let mut own = GtidPosition::default();
            let logged = server.facts.logged.clone();
            let wanted = logged.domains().filter(|gtid| !keeps || gtid.domain_id == own_domain);
            wanted.for_each(|gtid| own.advance(Gtid::MariaDb(gtid)));
            own
        }
    })
}

/// MariaDB: raises the number of the domain that is written to above all of the old source's, by a transaction of Spate's own that changes
/// nothing else, so that no server meets numbers that fall.
pub(crate) fn bump_number(server: &mut Server) -> Result<()> {
    if server.vendor() != Vendor::MariaDb || server.facts.keeps_gtids || !server.facts.logs_all {
        return Ok(());
    }
    let domain = server.facts.domain_id;
    let of_domain = |position: &GtidPosition| {
        position.domains().find(|gtid| gtid.domain_id == domain).map_or(0, |gtid| gtid.sequence)
    };
    let reached = server.facts.checkpoint.as_ref().map_or(0, of_domain);
    if reached >= of_domain(&server.facts.logged) {
        server.execute(&format!("SET SESSION gtid_seq_no={}", reached + 1))?;
        server.execute("REPLACE INTO spate.session (what, connection_id) VALUES ('promoted', 0)")?;
    }
    Ok(())
}

/// Forgets where Spate stood: what the server says is right from here on.
pub(crate) fn forget_checkpoint(server: &mut Server) -> Result<()> {
    bump_number(server)?;
    // Nobody who follows this server needs to know.
    asking::without_log(&mut server.connection, "forget where Spate stood", checkpoint::forget)?;
    Ok(())
}

/// Stops what receives. The appliers run before and after it: MariaDB drops the relay logs of a channel whose threads are both stopped.
///
/// # Errors
/// A missing privilege names the GRANT; any error of the connection.
pub(crate) fn stop_receiver(server: &mut Server, channel: &ChannelFacts) -> Result<()> {
    if !channel.is_applying {
        steer(server, Channel::StartApplier, &channel.name)?;
    }
    steer(server, Channel::StopReceiver, &channel.name)
}

/// Quotes a value for people's commands.
pub(crate) fn shell(text: &str) -> String {
    if text.chars().all(|c| c.is_ascii_alphanumeric() || "@:/._-".contains(c)) {
        text.to_owned()
    } else {
        quote::text(text)
    }
}
