//! What is asked of each server in one round: who it is, what it has, and from where it replicates.

use std::collections::BTreeMap;
use std::time::Duration;

use spate_binlog::{GtidPosition, MariaDbGtid};
use spate_connection::endpoint::{Address, Endpoint};
use spate_connection::{ConnectOptions, Connection, Vendor, quote};
use spate_replica::{asking, checkpoint, gtids};

use crate::channels::{MARIADB_COLUMNS, MYSQL_COLUMNS, OLD_MYSQL_COLUMNS, ask_binlog_filters, ask_channels};
use crate::error::{Error, Result};
use crate::exclusion;
use crate::history::History;

pub use crate::channels::ChannelFacts;

/// How long a server may take to let somebody connect, and to answer a question.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// To connect and log in.
    pub connect: Duration,
    /// To answer.
    pub answer: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { connect: Duration::from_secs(5), answer: Duration::from_secs(60) }
    }
}

/// What a server says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerFacts {
    /// `host:port`, or the path of its socket.
    pub name: String,
    /// True for MySQL.
    pub is_mysql: bool,
    /// Its version.
    pub version: String,
    /// Its id among servers that replicate.
    pub server_id: u32,
    /// MySQL's UUID; empty on MariaDB.
    pub uuid: String,
    /// True if ordinary accounts cannot write.
    pub is_read_only: bool,
    /// True if it has a binlog, and logs what it replicates.
    pub logs_all: bool,
    /// True if all its transactions have GTIDs.
    pub has_gtids: bool,
    /// True if row images are whole (`binlog_row_image=FULL`).
    pub has_full_images: bool,
    /// What its binlog leaves out, as `Binlog_Do_DB=d`.
    pub binlog_filters: Vec<String>,
    /// What it has applied.
    pub applied: History,
    /// What it has applied or received: its relay logs too.
    pub received: History,
    /// MariaDB: the position of everything in its binlog. MySQL: the set of all that it has executed.
    pub logged: GtidPosition,
    /// Its own replication.
    pub channels: Vec<ChannelFacts>,
    /// Where Spate stands that applies to it; `None` if Spate does not.
    pub checkpoint: Option<GtidPosition>,
    /// True if what Spate applies has the source's GTIDs in its binlog (`--consistency transaction`).
    pub keeps_gtids: bool,
    /// MariaDB: the domain of what is written to it.
    pub domain_id: u32,
}

/// A server that answers.
#[derive(Debug)]
pub struct Server {
    /// How it is reached.
    pub endpoint: Endpoint,
    /// A session on it.
    pub connection: Connection,
    /// What it said when it was asked last.
    pub facts: ServerFacts,
}

/// A short name of a server for people.
pub fn name_of(endpoint: &Endpoint) -> String {
    endpoint.address().map_or_else(|_| endpoint.to_string(), |address| address.to_string())
}

/// Host and port of a server, as other servers may reach it; `None` for a socket.
pub fn host_and_port(endpoint: &Endpoint) -> Option<(String, u16)> {
    match endpoint.address() {
        Ok(Address::Tcp { host, port }) => Some((host, port)),
        _ => None,
    }
}

impl Server {
    /// Connects and asks.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn look(endpoint: &Endpoint, role: &str, patience: Patience) -> Result<Server> {
        let options = ConnectOptions {
            connect_timeout: patience.connect,
            login_timeout: patience.connect,
            read_timeout: Some(patience.answer),
            write_timeout: Some(patience.answer),
            ..ConnectOptions::new(role)
        };
        let mut connection = asking::connect(endpoint, &options)?;
        let facts = ask(&mut connection, endpoint)?;
        Ok(Server { endpoint: endpoint.clone(), connection, facts })
    }

    /// Asks again.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn look_again(&mut self) -> Result<&ServerFacts> {
        self.facts = ask(&mut self.connection, &self.endpoint)?;
        Ok(&self.facts)
    }

    /// Executes a statement.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn execute(&mut self, sql: &str) -> Result<()> {
        self.connection.execute(sql.as_bytes())?;
        Ok(())
    }

    /// The single value that a question has.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn value(&mut self, sql: &str) -> Result<String> {
        Ok(self.connection.query(sql)?.single_text().unwrap_or_default())
    }

    /// Its vendor.
    pub fn vendor(&self) -> Vendor {
        self.connection.server_version().vendor
    }

    /// The channel that replicates from this server; the only one if none of them is known to.
    pub fn channel_from(&self, source: Option<&SourceNames>) -> Option<ChannelFacts> {
        self.facts.channel_from(source)
    }
}

/// By what a channel's source is recognised.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceNames {
    /// Host and port of its endpoint.
    pub address: Option<(String, u16)>,
    /// Its server id, if it answered.
    pub server_id: Option<u32>,
}

impl SourceNames {
    fn is_of(&self, channel: &ChannelFacts) -> bool {
        let by_id = self.server_id.is_some_and(|id| id != 0 && id == channel.source_server_id);
        let is_address = |(host, port): &(String, u16)| *host == channel.source_host && *port == channel.source_port;
        by_id || self.address.as_ref().is_some_and(is_address)
    }
}

impl ServerFacts {
    /// The channel that replicates from this server; without a server to look for, the only one.
    pub fn channel_from(&self, source: Option<&SourceNames>) -> Option<ChannelFacts> {
        match source {
            Some(source) => self.channels.iter().find(|channel| source.is_of(channel)).cloned(),
            None if self.channels.len() == 1 => self.channels.first().cloned(),
            None => None,
        }
    }

    /// True if a channel's source is known to have written something of what this server has; also if the channel does not say who its source is.
    pub fn knows_source_of(&self, channel: &ChannelFacts) -> bool {
        match self.is_mysql {
            true => {
                let uuid = channel.source_uuid.to_ascii_lowercase();
                self.received.position.origins().any(|(origin, _)| origin.to_string().starts_with(&uuid))
            }
            false => {
                let id = channel.source_server_id;
                id == 0 || self.received.origins.keys().any(|&(_, server)| server == id)
            }
        }
    }

    /// True if what Spate applies is in its binlog under other GTIDs than the source's.
    pub fn has_own_gtids(&self) -> bool {
        self.checkpoint.is_some() && !self.keeps_gtids
    }
}

fn ask(connection: &mut Connection, endpoint: &Endpoint) -> Result<ServerFacts> {
    let mut facts = match connection.server_version().vendor {
        Vendor::MariaDb => ask_mariadb(connection)?,
        Vendor::MySql => ask_mysql(connection)?,
    };
    let excluded = exclusion::ask(connection)?;
    facts.received.excluded = excluded.clone();
    facts.applied.excluded = excluded;
    facts.name = name_of(endpoint);
    facts.version = connection.server_version().to_string();
    Ok(facts)
}

fn parse(connection: &Connection, text: &str) -> Result<GtidPosition> {
    let position = text.split_whitespace().collect::<String>().parse();
    position.map_err(|error: spate_binlog::Error| {
        Error::step(connection.peer().to_string(), format!("its GTID position cannot be read: {error}"))
    })
}

/// Where Spate stands, without making its schema.
fn ask_checkpoint(connection: &mut Connection) -> Result<Option<GtidPosition>> {
    let present = connection.query(
        "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'spate' AND TABLE_NAME = 'checkpoint'",
    )?;
    if present.single_text().as_deref() != Some("1") {
        return Ok(None);
    }
    Ok(checkpoint::read(connection)?.map(|checkpoint| checkpoint.gtid_position))
}

fn ask_mariadb(connection: &mut Connection) -> Result<ServerFacts> {
    let answer = connection.query(
        "SELECT @@server_id, @@global.read_only, @@global.log_bin, @@global.log_slave_updates, \
         @@global.gtid_slave_pos, @@global.gtid_binlog_pos, @@global.gtid_binlog_state, @@global.binlog_row_image, \
         @@global.gtid_domain_id",
    )?;
    let text = |column| answer.text_at(0, column).unwrap_or_default();
    let server_id: u32 = text(0).parse().unwrap_or(0);
    let (slave, logged) = (parse(connection, &text(4))?, parse(connection, &text(5))?);
    let logs = text(2) == "1";
    let logs_all = logs && text(3) == "1";
    let state: Vec<MariaDbGtid> = text(6).split(',').filter_map(|gtid| gtid.trim().parse().ok()).collect();
    let (is_read_only, row_image, domain_id) = (text(1) != "0", text(7), text(8).parse().unwrap_or(0));
    let checkpoint = ask_checkpoint(connection)?;
    // What Spate writes by itself to any server, in a domain made of its id, is nothing that others could lack.
    let is_of_people = |gtid: &MariaDbGtid| gtid.domain_id != gtids::own_domain(gtid.server_id);
    let keeps_gtids = checkpoint.as_ref().is_some_and(|checkpoint| {
        let is_logged = |gtid: MariaDbGtid| {
            state.iter().any(|logged| {
                (logged.domain_id, logged.server_id) == (gtid.domain_id, gtid.server_id)
                    && logged.sequence >= gtid.sequence
            })
        };
        logs_all && checkpoint.domains().all(is_logged)
    });
    let mut applied = match &checkpoint {
        Some(checkpoint) if !keeps_gtids => History::of_position(checkpoint.clone()),
        _ => {
            // A server that never was a replica has all that it has in its binlog.
            let is_complete = logs_all || logs && slave.is_empty();
            let mut applied = History { is_complete, ..History::default() };
            slave.domains().filter(is_of_people).for_each(|gtid| applied.add(gtid));
            state.iter().copied().filter(is_of_people).for_each(|gtid| applied.add(gtid));
            applied
        }
    };
    if applied.is_complete {
        applied.oldest = oldest_in_binlog(connection)?;
    }
    let channels = ask_channels(connection, "SHOW ALL SLAVES STATUS", &MARIADB_COLUMNS)?;
    let mut received = applied.clone();
    // A channel of which both threads are stopped drops its relay logs when either is started, and asks its source for them again.
    for channel in channels.iter().filter(|channel| channel.is_receiving || channel.is_applying) {
        parse(connection, &channel.received)?.domains().filter(is_of_people).for_each(|gtid| received.add(gtid));
    }
    Ok(ServerFacts {
        server_id,
        is_read_only,
        logs_all,
        has_gtids: true,
        has_full_images: row_image.eq_ignore_ascii_case("FULL"),
        binlog_filters: ask_binlog_filters(connection, "SHOW MASTER STATUS")?,
        applied,
        received,
        logged,
        channels,
        checkpoint,
        keeps_gtids,
        domain_id,
        ..ServerFacts::default()
    })
}

/// The last number of each domain before the server's oldest binlog file.
fn oldest_in_binlog(connection: &mut Connection) -> Result<BTreeMap<u32, u64>> {
    const FIRST_EVENT: u32 = 4;
    let files = connection.query("SHOW BINARY LOGS").map_err(|error| {
        spate_replica::Error::from(error)
            .with_missing_privilege("list its binlog files", "GRANT BINLOG MONITOR ON *.* TO <the user of Spate>")
    })?;
    let Some(first) = files.text_at(0, 0) else { return Ok(BTreeMap::new()) };
    let sql = format!("SELECT BINLOG_GTID_POS({}, {FIRST_EVENT})", quote::text(&first));
    let position = connection.query(&sql)?.single_text().unwrap_or_default();
    Ok(parse(connection, &position)?.domains().map(|gtid| (gtid.domain_id, gtid.sequence)).collect())
}

fn ask_mysql(connection: &mut Connection) -> Result<ServerFacts> {
    let updates =
        if connection.server_version().is_at_least(8, 0) { "log_replica_updates" } else { "log_slave_updates" };
    let answer = connection.query(&format!(
        "SELECT @@server_id, @@server_uuid, @@global.read_only OR @@global.super_read_only, @@global.log_bin, \
         @@global.{updates}, @@global.gtid_executed, @@global.gtid_mode, @@global.binlog_row_image"
    ))?;
    let text = |column| answer.text_at(0, column).unwrap_or_default();
    let executed = parse(connection, &text(5))?;
    let (uuid, own) = (text(1), text(1).to_ascii_lowercase());
    let checkpoint = ask_checkpoint(connection)?;
    let keeps_gtids = checkpoint.as_ref().is_some_and(|checkpoint| executed.covers_all(checkpoint));
    let mut applied = History::of_position(executed.clone());
    if let Some(checkpoint) = &checkpoint {
        // What Spate writes by itself has the server's own GTIDs, which no other server needs.
        applied.position = without_origin(&executed, &own);
        applied.position.advance_to(checkpoint);
    }
    let version = connection.server_version();
    let (statement, columns) = match version.is_at_least(8, 1) {
        true => ("SHOW REPLICA STATUS", &MYSQL_COLUMNS),
        false => ("SHOW SLAVE STATUS", &OLD_MYSQL_COLUMNS),
    };
    let binlog_status = if version.is_at_least(8, 2) { "SHOW BINARY LOG STATUS" } else { "SHOW MASTER STATUS" };
    let channels = ask_channels(connection, statement, columns)?;
    let mut received = applied.clone();
    for channel in &channels {
        received.position.advance_to(&parse(connection, &channel.received)?);
    }
    Ok(ServerFacts {
        is_mysql: true,
        server_id: text(0).parse().unwrap_or(0),
        uuid,
        is_read_only: text(2) == "1",
        logs_all: text(3) == "1" && text(4) == "1",
        has_gtids: text(6) == "ON",
        has_full_images: text(7).eq_ignore_ascii_case("FULL"),
        binlog_filters: ask_binlog_filters(connection, binlog_status)?,
        applied,
        received,
        logged: executed,
        channels,
        checkpoint,
        keeps_gtids,
        ..ServerFacts::default()
    })
}

/// A set without the transactions of one server.
pub(crate) fn without_origin(set: &GtidPosition, uuid: &str) -> GtidPosition {
    let mut rest = GtidPosition::default();
    for (origin, numbers) in set.origins() {
        if !origin.to_string().starts_with(uuid) {
            numbers.ranges().for_each(|range| rest.add_numbers(*origin, range.clone()));
        }
    }
    rest
}
