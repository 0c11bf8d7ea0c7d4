//! `spate follow`: a server replicates from another one by its own replication, from exactly where it stands. What it has and the other lacks is
//! saved, listed and undone first.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use spate_archive::stopping_point;
use spate_binlog::GtidPosition;
use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Vendor};
use spate_replica::asking;
use spate_replica::catalog::Catalog;

use crate::error::{Error, Result};
use crate::history::{History, Surplus};
use crate::steps::{self, Channel, NewSource, ReplicationAccount};
use crate::surplus;
use crate::topology::{Patience, Server, SourceNames, host_and_port, name_of};
use crate::undo::{self, Undone};

/// Who follows whom.
pub struct FollowOptions<'a> {
    /// The server that is to follow.
    pub server: Endpoint,
    /// Its new source.
    pub source: Endpoint,
    /// The address by which it reaches its source; `None`: as this program does.
    pub address: Option<(String, u16)>,
    /// The account with which it replicates; without a name it keeps its own.
    pub account: ReplicationAccount,
    /// Where surplus transactions are saved; `None`: a server that has some is refused.
    pub save: Option<PathBuf>,
    /// This program's id among the server's replicas, while it receives the surplus.
    pub server_id: u32,
    /// Only say what would be done.
    pub is_dry: bool,
    /// Told what is done.
    pub tell: &'a dyn Fn(&str),
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Followed {
    /// The server.
    pub server: String,
    /// Its source.
    pub source: String,
    /// What it had and its source lacked.
    pub surplus: Surplus,
    /// How many net row changes undid it.
    pub undone_changes: u64,
    /// Where the surplus is listed; its binlog files are beside it.
    pub list: Option<PathBuf>,
    /// Where it goes on.
    pub position: String,
}

/// Lets a server follow another. Repeated, it goes on where it was interrupted.
///
/// # Errors
/// [`Error::Surplus`] if surplus transactions cannot be undone; [`Error::Step`] if it does not follow.
pub fn follow(options: &FollowOptions<'_>) -> Result<Followed> {
    let mut server = Server::look(&options.server, "replica", Patience::default())?;
    let source = Server::look(&options.source, "source", Patience::default())?;
    check(&server, &source)?;
    let (host, port) = options.address.clone().or_else(|| host_and_port(&options.source)).ok_or_else(|| {
        Error::step(
            name_of(&options.source),
            "other servers cannot reach it through a socket: name its address with --address HOST:PORT",
        )
    })?;
    let mut followed = Followed {
        server: server.facts.name.clone(),
        source: format!("{host}:{port}"),
        surplus: Surplus { is_exact: true, ..Surplus::default() },
        undone_changes: 0,
        list: None,
        position: String::new(),
    };
    let at_source = SourceNames { address: Some((host.clone(), port)), server_id: Some(source.facts.server_id) };
    if !options.is_dry {
        become_quiet(&mut server, &at_source, options)?;
    }
    let undone = match undo::read(&mut server)? {
        Some(undone) => Some(undone),
        None => undo_surplus(&mut server, &source, options, &mut followed)?,
    };
    if options.is_dry {
        return Ok(followed);
    }
    if let Some(undone) = undone.as_ref().filter(|undone| !undone.is_positioned) {
        set_position(&mut server, undone)?;
        stopping_point("follow-position-set");
        undo::note_positioned(&mut server)?;
    }
    begin_position(&mut server)?;
    server.look_again()?;
    followed.position = server.facts.applied.position.to_string();
    let new = NewSource { host, port, own: GtidPosition::default(), exactly_at: None };
    steps::point(&mut server, None, &new, &options.account)?;
    stopping_point("follow-pointed");
    if undone.is_some() {
        undo::forget(&mut server)?;
        steps::set_read_only(&mut server, true)?;
    }
    (options.tell)(&format!("{} follows {}", followed.server, followed.source));
    Ok(followed)
}

fn check(server: &Server, source: &Server) -> Result<()> {
    let (own, other) = (&server.facts, &source.facts);
    let why = if own.is_mysql != other.is_mysql {
        format!(
            "its own replication cannot follow {}, which is of another vendor: let spate replicate do it",
            other.name
        )
    } else if own.server_id == other.server_id && own.uuid == other.uuid {
        format!("it is the same server as {} (server_id {}), or has the same id", other.name, other.server_id)
    } else if !own.has_gtids || !other.has_gtids {
        "without GTIDs (gtid_mode is not ON) there is no exact position: set gtid_mode=ON on both servers, step by step"
            .to_owned()
    } else if own.checkpoint.is_some() {
        "Spate applies to it: stop that, and hand it over first (spate handover), or go on with spate replicate"
            .to_owned()
    } else if !own.applied.is_complete && !own.is_mysql && own.channels.is_empty() {
        "it has no binlog of all that it has, so it cannot be known what of it its source lacks: set log_bin and log_slave_updates".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::step(own.name.clone(), why))
}

/// Nobody writes to the server any more, and it does not replicate from elsewhere.
fn become_quiet(server: &mut Server, at_source: &SourceNames, options: &FollowOptions<'_>) -> Result<()> {
    // A source whose replicas are gone would wait for them with whatever is done here.
    steps::set_semi_sync_source(server, false)?;
    let fenced = steps::fence(server)?;
    (options.tell)(&format!("{} takes no writes; {} connections were ended", server.facts.name, fenced.killed));
    stopping_point("follow-fenced");
    if server.channel_from(Some(at_source)).is_none()
        && let Some(channel) = server.channel_from(None)
    {
        // What it has received of its old source and not applied is dropped: only what is applied counts.
        steps::steer(server, Channel::Stop, &channel.name)?;
    } else if server.channel_from(Some(at_source)).is_none() && server.facts.channels.len() > 1 {
        return Err(Error::step(
            server.facts.name.clone(),
            "it replicates over several channels: STOP and RESET all but the one that is to follow the new source",
        ));
    }
    server.look_again()?;
    Ok(())
}

fn undo_surplus(
    server: &mut Server,
    source: &Server,
    options: &FollowOptions<'_>,
    followed: &mut Followed,
) -> Result<Option<Undone>> {
    let surplus = server.facts.applied.missing_from(&source.facts.applied);
    followed.surplus = surplus.clone();
    if surplus.is_empty() {
        return Ok(None);
    }
    (options.tell)(&format!("{} has {surplus} that {} lacks", followed.server, followed.source));
    let Some(directory) = options.save.as_ref().filter(|_| !options.is_dry) else {
        if options.is_dry {
            return Ok(None);
        }
        let why = format!(
            "it has {surplus} that its new source lacks; name a directory where they are saved before they are undone: --save DIR"
        );
        return Err(Error::step(followed.server.clone(), why));
    };
    // Nothing may come while rows are compared and undone.
    let channels: Vec<String> = server.facts.channels.iter().map(|channel| channel.name.clone()).collect();
    channels.iter().try_for_each(|name| steps::steer(server, Channel::Stop, name))?;
    surplus::save(&options.server, &server.facts.applied, &surplus, directory, options.server_id, options.tell)?;
    let mut catalog = Catalog::new(asking::connect(
        &options.server,
        &ConnectOptions { read_timeout: Some(Duration::from_secs(60)), ..ConnectOptions::new("replica") },
    )?);
    let (found, list) = surplus::read(&followed.server, directory, &server.facts.applied, &surplus, &mut catalog)?;
    drop(catalog);
    (options.tell)(&format!("they are saved in {} and listed in {}", directory.display(), list.display()));
    followed.list = Some(list);
    if !found.refusals.is_empty() {
        let why = format!("{}. Rebuild this replica from a backup of {}", found.refusals.join("; "), followed.source);
        return Err(Error::Surplus { server: followed.server.clone(), why });
    }
    if found.transactions < surplus.transactions {
        let why = format!(
            "{} of {} are not in its binlog any more (was it purged?). Rebuild this replica from a backup of {}",
            surplus.transactions - found.transactions,
            surplus.transactions,
            followed.source
        );
        return Err(Error::Surplus { server: followed.server.clone(), why });
    }
    followed.surplus.transactions = found.transactions;
    followed.surplus.is_exact = true;
    let undone = Undone {
        position: common_position(&server.facts.applied, &surplus, &found.common, server.vendor()),
        state: common_state(&server.facts.applied, &source.facts.applied, &surplus, &found.common),
        is_positioned: false,
    };
    followed.undone_changes = undo::undo(server, &found, &undone)?;
    (options.tell)(&format!("they are undone by {} row changes", followed.undone_changes));
    Ok(Some(undone))
}

/// The position without the surplus.
fn common_position(history: &History, surplus: &Surplus, read: &GtidPosition, vendor: Vendor) -> String {
    if vendor == Vendor::MariaDb {
        return read.to_string();
    }
    let mut position = GtidPosition::default();
    for (origin, numbers) in history.position.origins() {
        let name = origin.to_string();
        for range in numbers.ranges() {
            let mut first = range.start;
            for missing in surplus.ranges.iter().filter(|missing| missing.origin == name) {
                if missing.last < range.start || missing.first >= range.end {
                    continue;
                }
                position.add_numbers(*origin, first..missing.first.max(first));
                first = missing.last + 1;
            }
            position.add_numbers(*origin, first..range.end.max(first));
        }
    }
    position.to_string()
}

/// MariaDB: the last GTID of each domain and server without the surplus, those of the position last.
fn common_state(history: &History, source: &History, surplus: &Surplus, position: &GtidPosition) -> String {
    let is_last =
        |domain: u32, server: u32| position.domains().any(|gtid| (gtid.domain_id, gtid.server_id) == (domain, server));
    let mut state = Vec::new();
    for (&(domain, server), &last) in &history.origins {
        let name = format!("{domain}-{server}");
        let is_surplus = surplus.ranges.iter().any(|range| range.origin == name);
        let last = if is_surplus { source.origins.get(&(domain, server)).copied() } else { Some(last) };
        if let Some(last) = last.filter(|_| !is_last(domain, server)) {
            state.push(format!("{domain}-{server}-{last}"));
        }
    }
    state.extend(position.domains().map(|gtid| gtid.to_string()));
    state.join(",")
}

/// The server forgets the surplus' GTIDs, and stands where they began.
fn set_position(server: &mut Server, undone: &Undone) -> Result<()> {
    let position = &undone.position;
    let channels: Vec<String> = server.facts.channels.iter().map(|channel| channel.name.clone()).collect();
    channels.iter().try_for_each(|name| steps::steer(server, Channel::Stop, name))?;
    match server.vendor() {
        Vendor::MariaDb => {
            steps::change(server, "RESET MASTER")?;
            stopping_point("follow-reset");
            if !undone.state.is_empty() && server.value("SELECT @@global.log_bin")? == "1" {
                steps::change(server, &format!("SET GLOBAL gtid_binlog_state='{}'", undone.state))?;
            }
            steps::change(server, &format!("SET GLOBAL gtid_slave_pos='{position}'"))?;
        }
        Vendor::MySql => {
            let reset = if server.connection.server_version().is_at_least(8, 2) {
                "RESET BINARY LOGS AND GTIDS"
            } else {
                "RESET MASTER"
            };
            steps::change(server, reset)?;
            stopping_point("follow-reset");
            steps::change(server, &format!("SET GLOBAL gtid_purged='{position}'"))?;
        }
    }
    server.look_again()?;
    Ok(())
}

/// A server of MariaDB that was a source until now stands, as a replica, where its binlog ends.
fn begin_position(server: &mut Server) -> Result<()> {
    server.look_again()?;
    if server.vendor() != Vendor::MariaDb {
        return Ok(());
    }
    let position = server.facts.applied.position.to_string();
    if server.value("SELECT @@global.gtid_slave_pos")? == position
        || server.facts.channels.iter().any(|channel| channel.is_applying)
    {
        return Ok(());
    }
    steps::change(server, &format!("SET GLOBAL gtid_slave_pos='{position}'"))
}
