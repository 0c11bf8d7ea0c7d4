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
use crate::exclusion;
use crate::fence;
use crate::history::{History, Surplus};
use crate::steps::{self, Channel, NewSource, ReplicationAccount};
use crate::surplus;
use crate::topology::{ChannelFacts, Patience, Server, SourceNames, host_and_port, name_of};
use crate::undo::{self, Undone};

/// Who follows whom.
pub struct FollowOptions<'a> {
    /// The server that is to follow.
    pub server: Endpoint,
    /// Its new source.
    pub source: Endpoint,
    /// The address by which it reaches its source; `None`: as this program does.
    pub address: Option<(String, u16)>,
    /// The channel that the new source takes; `None`: the one without a name, if no other can be meant.
    pub channel: Option<String>,
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
    // First the server: what it gets from its source meanwhile, the source has.
    let mut server = Server::look(&options.server, "replica", Patience::default())?;
    let mut source = Server::look(&options.source, "source", Patience::default())?;
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
    followed.surplus = server.facts.applied.missing_from(&source.facts.applied);
    if !followed.surplus.is_empty() {
        (options.tell)(&format!("{} has {} that {} lacks", followed.server, followed.surplus, followed.source));
    }
    if options.is_dry {
        return Ok(followed);
    }
    let running: Vec<ChannelFacts> =
        server.facts.channels.iter().filter(|channel| channel.is_receiving && channel.is_applying).cloned().collect();
    let interrupted = undo::read(&mut server)?;
    if interrupted.is_none() {
        check_surplus(&followed, &source, options)?;
    }
    check_channels(&server, &source, &at_source, options)?;
    become_quiet(&mut server, &at_source, options)?;
    let ended = end_quietly(&mut server, &mut source, options, interrupted, &mut followed);
    let has_undone = ended.inspect_err(|_| {
        let name = &followed.server;
        (options.tell)(&format!("{name} stays read_only, since it may have what {} lacks", followed.source));
    })?;
    begin_position(&mut server)?;
    server.look_again()?;
    followed.position = server.facts.applied.position.to_string();
    let new = NewSource { host, port, own: GtidPosition::default(), exactly_at: None };
    let old = replaced_channel(&server, options);
    if !old.source_host.is_empty() && (&old.source_host, old.source_port) != (&new.host, new.port) {
        let from = format!("{}:{}", old.source_host, old.source_port);
        (options.tell)(&format!("{} replicates no more from {from}", followed.server));
    }
    steps::point(&mut server, Some(old), has_undone, &new, &options.account)?;
    stopping_point("follow-pointed");
    if has_undone {
        undo::forget(&mut server)?;
        fence::set_read_only(&mut server, true)?;
    }
    // All were stopped if something was undone; those of other sources go on.
    server.look_again()?;
    for channel in running {
        let now = server.facts.channels.iter().find(|now| now.name == channel.name);
        if now.is_some_and(|now| !now.is_receiving || !now.is_applying) {
            steps::steer(&mut server, Channel::Start, &channel.name)?;
        }
    }
    (options.tell)(&format!("{} follows {}", followed.server, followed.source));
    Ok(followed)
}

fn check(server: &Server, source: &Server) -> Result<()> {
    let (own, other) = (&server.facts, &source.facts);
    let names = SourceNames { address: host_and_port(&server.endpoint), server_id: Some(own.server_id) };
    let why = if own.is_mysql != other.is_mysql {
        format!(
            "its own replication cannot follow {}, which is of another vendor: let spate replicate do it",
            other.name
        )
    } else if own.server_id == other.server_id && own.uuid == other.uuid {
        format!("it is the same server as {} (server_id {}), or has the same id", other.name, other.server_id)
    } else if source.channel_from(Some(&names)).is_some_and(|channel| channel.is_receiving || channel.is_applying) {
        format!(
            "{} replicates from it: are --replica and --source swapped? To let it be the source, spate promote",
            other.name
        )
    } else if !own.is_read_only && other.is_read_only {
        format!(
            "it takes writes, and {} does not (read_only): are --replica and --source swapped? If not, SET GLOBAL read_only=1 on it first",
            other.name
        )
    } else if !own.binlog_filters.is_empty() {
        format!(
            "its binlog leaves something out ({}), so what it has and its source lacks cannot be known",
            own.binlog_filters.join(", ")
        )
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

/// What is known before anything is changed.
fn check_surplus(followed: &Followed, source: &Server, options: &FollowOptions<'_>) -> Result<()> {
    let surplus = &followed.surplus;
    let why = if surplus.is_empty() {
        return Ok(());
    } else if options.save.is_none() {
        format!(
            "it has {surplus} that its new source lacks; name a directory where they are saved before they are undone: --save DIR"
        )
    } else if source.facts.is_read_only {
        format!(
            "it has {surplus} that {} lacks, which is read_only itself: they are undone only for the server that takes writes. Are --replica and \
             --source swapped?",
            followed.source
        )
    } else if !surplus.is_exact {
        format!(
            "it has {surplus} of servers that {} does not know, so it cannot be said whether they are new or long known to all. Rebuild this replica from \
             a backup of {0}",
            followed.source
        )
    } else {
        return Ok(());
    };
    Err(Error::step(followed.server.clone(), why))
}

/// The channel that the new source takes: the one that is named, or the one without a name. What else a server replicates goes on.
fn replaced_channel(server: &Server, options: &FollowOptions<'_>) -> ChannelFacts {
    let name = options.channel.as_deref().unwrap_or_default();
    let known = server.facts.channels.iter().find(|channel| channel.name == name).cloned();
    known.unwrap_or_else(|| ChannelFacts { name: name.to_owned(), ..ChannelFacts::default() })
}

fn check_channels(
    server: &Server,
    source: &Server,
    at_source: &SourceNames,
    options: &FollowOptions<'_>,
) -> Result<()> {
    if server.channel_from(Some(at_source)).is_some() || options.channel.is_some() {
        return Ok(());
    }
    // A channel with a name is for something of its own, and so is one whose source the new source has nothing of.
    let is_in_doubt = |channel: &&ChannelFacts| !channel.name.is_empty() || !source.facts.knows_source_of(channel);
    let in_doubt: Vec<String> = server
        .facts
        .channels
        .iter()
        .filter(is_in_doubt)
        .map(|channel| format!("'{}' (from {}:{})", channel.name, channel.source_host, channel.source_port))
        .collect();
    if in_doubt.is_empty() {
        return Ok(());
    }
    let what = format!(
        "it replicates over {}, which may be meant to stay: name the channel that the new source takes, with --channel NAME; --channel '' is the one \
         without a name",
        in_doubt.join(", ")
    );
    Err(Error::step(server.facts.name.clone(), what))
}

/// The server has nothing that its source lacks. True if something was undone for that.
fn end_quietly(
    server: &mut Server,
    source: &mut Server,
    options: &FollowOptions<'_>,
    interrupted: Option<Undone>,
    followed: &mut Followed,
) -> Result<bool> {
    let mut has_undone = false;
    if let Some(undone) = interrupted {
        set_position(server, &undone)?;
        has_undone = true;
    }
    if let Some(undone) = undo_surplus(server, source, options, followed)? {
        set_position(server, &undone)?;
        has_undone = true;
    }
    stopping_point("follow-position-set");
    Ok(has_undone)
}

/// Nobody writes to the server any more, and it does not replicate from elsewhere.
fn become_quiet(server: &mut Server, at_source: &SourceNames, options: &FollowOptions<'_>) -> Result<()> {
    // A source whose replicas are gone would wait for them with whatever is done here.
    steps::set_semi_sync_source(server, false)?;
    let fenced = fence::fence(server)?;
    let name = &server.facts.name;
    (options.tell)(&format!("{name} takes no writes; {} connections were ended", fenced.killed));
    if fenced.had_events {
        (options.tell)(&format!(
            "{name} executes no events any more (event_scheduler=OFF): let those sleep that ran while it was the source (ALTER EVENT … DISABLE ON SLAVE), \
             before you turn it on"
        ));
    }
    if fenced.keeps_events {
        return Err(Error::step(
            name.clone(),
            "it executes events, and those of accounts with READ_ONLY ADMIN would write: SET GLOBAL event_scheduler=OFF there, which the account of Spate \
             may not",
        ));
    }
    stopping_point("follow-fenced");
    let channel = replaced_channel(server, options);
    if server.channel_from(Some(at_source)).is_none() && !channel.source_host.is_empty() {
        // What it has received of its old source and not applied is dropped: only what is applied counts.
        steps::steer(server, Channel::Stop, &channel.name)?;
    }
    Ok(())
}

fn undo_surplus(
    server: &mut Server,
    source: &mut Server,
    options: &FollowOptions<'_>,
    followed: &mut Followed,
) -> Result<Option<Undone>> {
    // The server first, as always: its source has what it has got from there.
    let mut compare = |server: &mut Server| -> Result<Surplus> {
        server.look_again()?;
        source.look_again()?;
        Ok(server.facts.applied.missing_from(&source.facts.applied))
    };
    if compare(server)?.is_empty() {
        return Ok(None);
    }
    // Nothing may come while rows are compared and undone.
    let channels: Vec<String> = server.facts.channels.iter().map(|channel| channel.name.clone()).collect();
    channels.iter().try_for_each(|name| steps::steer(server, Channel::Stop, name))?;
    let surplus = compare(server)?;
    if surplus.is_empty() {
        return Ok(None);
    }
    if surplus != followed.surplus {
        (options.tell)(&format!("{} has {surplus} that {} lacks", followed.server, followed.source));
    }
    followed.surplus = surplus.clone();
    check_surplus(followed, source, options)?;
    let Some(parent) = &options.save else { return Ok(None) };
    let directory =
        &surplus::save(&options.server, &server.facts.applied, &surplus, parent, options.server_id, options.tell)?;
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
        state: common_state(&server.facts.applied, &surplus, &found.common),
    };
    exclusion::note(source, &server.facts.applied, &surplus)?;
    stopping_point("follow-noted");
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
fn common_state(history: &History, surplus: &Surplus, position: &GtidPosition) -> String {
    let is_last =
        |domain: u32, server: u32| position.domains().any(|gtid| (gtid.domain_id, gtid.server_id) == (domain, server));
    let mut state = Vec::new();
    for (&(domain, server), &last) in &history.origins {
        let name = format!("{domain}-{server}");
        let of_surplus = surplus.ranges.iter().filter(|range| range.origin == name);
        let last = of_surplus.map(|range| range.known.unwrap_or(0)).min().unwrap_or(last);
        if last > 0 && !is_last(domain, server) {
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
            // What is in relay logs counts as received, and would not be asked for again.
            for channel in server.facts.channels.clone().iter().filter(|channel| channel.is_by_gtid) {
                steps::steer(server, Channel::ForgetReceived, &channel.name)?;
            }
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
