//! The server's own replication: where it is, where its relay logs are, how it is stopped, parked, and begun again.
//!
//! A channel is *parked* by a delay of 68 years. It is written where the server keeps the channel's settings, so that the server cannot apply
//! anything by itself after a restart either, while somebody else applies.

mod relay_logs;

use spate_connection::{Connection, ResultSet, Vendor, quote};

use crate::{Error, Result};

pub use relay_logs::{RelayLogs, relay_logs};

/// The delay of a parked channel, in seconds: the largest that the servers take.
pub const PARKED_SECONDS: u64 = 2_147_483_647;

/// A place in the source's binlog. Files of one source sort by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Name of the binlog file.
    pub file: String,
    /// Offset in it, in bytes.
    pub position: u64,
}

impl Place {
    /// True if everything before `other` is before this.
    pub fn has_reached(&self, other: &Place) -> bool {
        let key = |place: &Place| (place.file.len(), place.file.clone(), place.position);
        key(self) >= key(other)
    }
}

/// What MySQL says, to a session and of a channel, while it cannot start a channel that has lost relay logs: a server that is killed while it
/// removes them is left with an index of files that are gone.
const RELAY_LOGS_LOST: [u16; 2] = [1872, 13124];

/// What the server says of one of its channels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Channel {
    /// Its name; empty for the one without a name.
    pub name: String,
    /// All before it is executed: where several threads apply, the oldest of their unfinished transactions.
    pub place: Place,
    /// The relay log that is being executed.
    pub relay_log: String,
    /// True if it applies what it has.
    pub applies: bool,
    /// True if it receives from the source.
    pub receives: bool,
    /// True if it is connected to its source.
    pub is_connected: bool,
    /// True if it asks for what follows all that is in the replica's own binlog (MariaDB's current_pos).
    pub uses_current_position: bool,
    /// Why it has stopped applying; empty if nothing is wrong.
    pub error: String,
    /// Why it does not receive; empty if nothing is wrong.
    pub receive_error: String,
    /// Where it was told to stop, as the server says it; empty or `None` if nowhere.
    pub until: String,
    /// True if it has applied all that it has received, and waits for more.
    pub has_applied_all: bool,
    /// How many seconds behind the source it says that it is.
    pub seconds_behind: Option<u64>,
    /// How long it waits before it applies, in seconds.
    pub delay_seconds: u64,
    /// True if it asks its source for GTIDs, and not for a file and an offset.
    pub by_gtid: bool,
    /// The id of its source's server.
    pub source_server_id: String,
    /// The UUID of its source's server, which MySQL keeps beyond its end; empty if it is not known.
    pub source_uuid: String,
    /// Settings by which it applies something else than the source has logged, as `name=value`.
    pub filters: Vec<String>,
}

impl Channel {
    /// True if it has been connected to its source since the server began, and knows the source's id.
    pub fn knows_source(&self) -> bool {
        !matches!(&*self.source_server_id, "" | "0")
    }

    /// True if it waits for somebody else who applies.
    pub fn is_parked(&self) -> bool {
        self.delay_seconds == PARKED_SECONDS
    }
}

/// How the vendor calls what it says.
struct Names {
    statement: &'static str,
    channel: &'static str,
    file: &'static str,
    position: &'static str,
    applies: &'static str,
    receives: &'static str,
    behind: &'static str,
    state: &'static str,
    source_server_id: &'static str,
    source_uuid: &'static str,
    by_gtid: &'static str,
}

fn names(connection: &Connection) -> Names {
    let version = connection.server_version();
    let old = Names {
        statement: "SHOW SLAVE STATUS",
        channel: "Channel_Name",
        file: "Relay_Master_Log_File",
        position: "Exec_Master_Log_Pos",
        applies: "Slave_SQL_Running",
        receives: "Slave_IO_Running",
        behind: "Seconds_Behind_Master",
        state: "Slave_SQL_Running_State",
        source_server_id: "Master_Server_Id",
        source_uuid: "Master_UUID",
        by_gtid: "Auto_Position",
    };
    match version.vendor {
        Vendor::MariaDb => {
            Names { statement: "SHOW ALL SLAVES STATUS", channel: "Connection_name", by_gtid: "Using_Gtid", ..old }
        }
        Vendor::MySql if version.is_at_least(8, 1) => Names {
            statement: "SHOW REPLICA STATUS",
            file: "Relay_Source_Log_File",
            position: "Exec_Source_Log_Pos",
            applies: "Replica_SQL_Running",
            receives: "Replica_IO_Running",
            behind: "Seconds_Behind_Source",
            state: "Replica_SQL_Running_State",
            source_server_id: "Source_Server_Id",
            source_uuid: "Source_UUID",
            ..old
        },
        Vendor::MySql => old,
    }
}

/// Asks for one channel. `None` takes the only one.
///
/// # Errors
/// [`Error::Unsuitable`] if there is no such channel, or none is named and there are several; any error of the connection.
pub fn look(connection: &mut Connection, channel: Option<&str>) -> Result<Channel> {
    let names = names(connection);
    let answer = connection.query(names.statement)?;
    let unsuitable =
        |connection: &Connection, why: String| Error::Unsuitable { peer: connection.peer().to_string(), why };
    let channels: Vec<String> =
        (0..answer.rows.len()).map(|row| answer.text(row, names.channel).unwrap_or_default()).collect();
    let row = match channel {
        Some(wanted) => channels.iter().position(|name| name == wanted),
        None if channels.len() > 1 => {
            let why = format!("it replicates over several channels: name one with --channel ({})", quoted(&channels));
            return Err(unsuitable(connection, why));
        }
        None => (!channels.is_empty()).then_some(0),
    };
    let Some(row) = row else {
        let why = match channel {
            Some(wanted) => format!("it has no channel '{wanted}'; its channels are: {}", quoted(&channels)),
            None => "it does not replicate by itself (SHOW REPLICA STATUS is empty)".to_owned(),
        };
        return Err(unsuitable(connection, why));
    };
    Ok(parse(&answer, row, &names))
}

fn quoted(channels: &[String]) -> String {
    channels.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

/// Columns by which a channel leaves something out, or puts it elsewhere; empty where all is applied as the source has logged it. Both vendors call them so.
pub const FILTERS: [&str; 10] = [
    "Replicate_Do_DB",
    "Replicate_Ignore_DB",
    "Replicate_Do_Table",
    "Replicate_Ignore_Table",
    "Replicate_Wild_Do_Table",
    "Replicate_Wild_Ignore_Table",
    "Replicate_Rewrite_DB",
    "Replicate_Ignore_Server_Ids",
    "Replicate_Do_Domain_Ids",
    "Replicate_Ignore_Domain_Ids",
];
/// Another such column: how the source is reached.
const NETWORK: &str = "Network_Namespace";

fn parse(answer: &ResultSet, row: usize, names: &Names) -> Channel {
    let text = |column: &str| answer.text(row, column).unwrap_or_default();
    let number = |column: &str| text(column).parse().unwrap_or(0);
    let by_gtid = !matches!(text(names.by_gtid).as_str(), "No" | "0" | "");
    let has_lost_relay_logs = RELAY_LOGS_LOST.iter().any(|&code| number("Last_SQL_Errno") == u64::from(code));
    let error = match has_lost_relay_logs {
        false => text("Last_SQL_Error"),
        // Nobody needs them.
        true if by_gtid || number("SQL_Delay") == PARKED_SECONDS => String::new(),
        true => what_helps(&text(names.channel), &text("Last_SQL_Error")),
    };
    let filters =
        FILTERS.iter().chain([&NETWORK]).map(|&name| (name, text(name))).filter(|(_, value)| !value.is_empty());
    Channel {
        name: text(names.channel),
        place: Place { file: text(names.file), position: number(names.position) },
        relay_log: text("Relay_Log_File"),
        applies: text(names.applies) == "Yes",
        receives: text(names.receives) != "No",
        is_connected: text(names.receives) == "Yes",
        uses_current_position: text(names.by_gtid) == "Current_Pos",
        error: presentable(&error),
        receive_error: presentable(&text("Last_IO_Error")),
        until: text("Until_Condition"),
        has_applied_all: text(names.state).contains("has read all relay log"),
        seconds_behind: answer.text(row, names.behind).and_then(|seconds| seconds.parse().ok()),
        delay_seconds: number("SQL_Delay"),
        by_gtid,
        source_server_id: text(names.source_server_id),
        source_uuid: text(names.source_uuid),
        filters: filters.map(|(name, value)| format!("{name}={value}")).collect(),
    }
}

/// A server's error without the literals of the statement in it, which may be passwords, and on one line.
fn presentable(error: &str) -> String {
    const STATEMENT: &str = "Query: '";
    let (text, statement) = match error.split_once(STATEMENT) {
        Some((text, statement)) => (text, Some(statement.strip_suffix('\'').unwrap_or(statement))),
        None => (error, None),
    };
    let mut shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if let Some(statement) = statement {
        shown += &spate_sql::excerpt(statement.as_bytes());
    }
    shown
}

/// Settings of MySQL's appliers that its status does not show, as `name=value`: with which account's rights a channel applies, and what of the
/// source's it refuses or changes.
///
/// # Errors
/// A missing privilege names the GRANT; any error of the connection.
pub fn applier_settings(connection: &mut Connection, name: &str) -> Result<Vec<String>> {
    const USUAL: [(&str, &[&str]); 4] = [
        ("PRIVILEGE_CHECKS_USER", &[""]),
        ("REQUIRE_ROW_FORMAT", &["", "NO"]),
        ("REQUIRE_TABLE_PRIMARY_KEY_CHECK", &["", "STREAM"]),
        ("ASSIGN_GTIDS_TO_ANONYMOUS_TRANSACTIONS_TYPE", &["", "OFF"]),
    ];
    if connection.server_version().vendor == Vendor::MariaDb {
        // Of all channels, and of transactions that the source has marked.
        let value =
            connection.query("SELECT @@global.replicate_events_marked_for_skip")?.single_text().unwrap_or_default();
        return Ok(match value.as_str() {
            "REPLICATE" | "" => vec![],
            _ => vec![format!("replicate_events_marked_for_skip={value}")],
        });
    }
    let sql = format!(
        "SELECT * FROM performance_schema.replication_applier_configuration WHERE CHANNEL_NAME = {}",
        channel_name(name)
    );
    let grant = "GRANT SELECT ON performance_schema.replication_applier_configuration TO <the user of Spate>";
    let answer = connection.query(&sql);
    let answer =
        answer.map_err(|error| Error::from(error).with_missing_privilege("see how a channel applies", grant))?;
    let unusual = USUAL.iter().filter_map(|(name, usual)| {
        let value = answer.text(0, name).unwrap_or_default();
        (!answer.rows.is_empty() && !usual.contains(&value.as_str())).then(|| format!("{name}={value}"))
    });
    Ok(unusual.collect())
}

/// A channel's name as these statements want it: a plain literal, which stays one in a session of Spate's for questions.
fn channel_name(name: &str) -> String {
    format!("'{}'", name.replace('\\', "\\\\").replace('\'', "''"))
}

/// Part of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// What applies.
    Appliers,
    /// What receives.
    Receiver,
    /// Both.
    All,
}

/// `STOP` or `START` of a channel's threads.
fn command(vendor: Vendor, verb: &str, name: &str, threads: Threads) -> String {
    let threads = match threads {
        Threads::Appliers => " SQL_THREAD",
        Threads::Receiver => " IO_THREAD",
        Threads::All => "",
    };
    match vendor {
        Vendor::MariaDb => format!("{verb} SLAVE {}{threads}", channel_name(name)),
        Vendor::MySql => format!("{verb} REPLICA{threads} FOR CHANNEL {}", channel_name(name)),
    }
}

/// What the account needs to steer the server's own replication.
fn grant(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::MariaDb => "GRANT REPLICATION SLAVE ADMIN ON *.* TO <the user of Spate>",
        Vendor::MySql => "GRANT REPLICATION_SLAVE_ADMIN ON *.* TO <the user of Spate>",
    }
}

fn execute(connection: &mut Connection, sql: &str, what: &'static str) -> Result<()> {
    let vendor = connection.server_version().vendor;
    let executed = connection.execute(sql.as_bytes());
    executed.map_err(|error| Error::from(error).with_missing_privilege(what, grant(vendor)))?;
    Ok(())
}

/// Stops threads of a channel, and waits until they have stopped. Several appliers stop at one place.
///
/// # Errors
/// A missing privilege names the GRANT; any error of the connection.
pub fn stop(connection: &mut Connection, name: &str, threads: Threads) -> Result<()> {
    let sql = command(connection.server_version().vendor, "STOP", name, threads);
    execute(connection, &sql, "stop its own replication")
}

/// Asks for all channels. An account that may not see them is shown none.
///
/// # Errors
/// Any error of the connection.
pub fn look_at_all(connection: &mut Connection) -> Result<Vec<Channel>> {
    const ACCESS_DENIED: u16 = 1227;
    let names = names(connection);
    let answer = match connection.query(names.statement) {
        Err(error) if error.code() == Some(ACCESS_DENIED) => return Ok(vec![]),
        answer => answer?,
    };
    Ok((0..answer.rows.len()).map(|row| parse(&answer, row, &names)).collect())
}

/// Stops parked channels that the server has started again with itself: they would receive, and never apply. An account that may not see
/// channels leaves them: they cost disk, and change nothing.
///
/// # Errors
/// A missing privilege names the GRANT; any error of the connection.
pub fn stop_parked(connection: &mut Connection) -> Result<()> {
    for channel in look_at_all(connection)? {
        if channel.is_parked() && (channel.applies || channel.receives) {
            stop(connection, &channel.name, Threads::All)?;
        }
    }
    Ok(())
}

/// What a start needs a privilege for.
const STARTING: &str = "start its own replication";

/// Starts threads of a channel.
///
/// # Errors
/// A missing privilege names the GRANT; what the server refuses.
pub fn start(connection: &mut Connection, name: &str, threads: Threads) -> Result<()> {
    let sql = command(connection.server_version().vendor, "START", name, threads);
    execute_start(connection, &sql, name)
}

/// Executes what starts a channel, and says what helps one that has lost relay logs.
fn execute_start(connection: &mut Connection, sql: &str, name: &str) -> Result<()> {
    execute(connection, sql, STARTING).map_err(|error| match has_lost_relay_logs(&error) {
        true => Error::Unsuitable { peer: connection.peer().to_string(), why: what_helps(name, &error.to_string()) },
        false => error,
    })
}

fn has_lost_relay_logs(error: &Error) -> bool {
    matches!(error, Error::Wire(error) if error.code().is_some_and(|code| RELAY_LOGS_LOST.contains(&code)))
}

fn what_helps(name: &str, error: &str) -> String {
    let name = channel_name(name);
    format!(
        "it cannot start its channel {name}, because its index of relay logs names files that are gone, as after a kill while it removed them \
         ({error}). Let it receive them again: with GTIDs by RESET REPLICA FOR CHANNEL {name}; without, note Relay_Source_Log_File and \
         Exec_Source_Log_Pos of SHOW REPLICA STATUS first, and name them after it by CHANGE REPLICATION SOURCE TO SOURCE_LOG_FILE=..., \
         SOURCE_LOG_POS=... FOR CHANNEL {name}"
    )
}

/// Lets MySQL's appliers, after they were killed, execute what the oldest of them had not yet. They stop by themselves then.
///
/// # Errors
/// A missing privilege names the GRANT; what the server refuses.
pub fn close_gaps(connection: &mut Connection, name: &str) -> Result<()> {
    let sql = format!("START REPLICA SQL_THREAD UNTIL SQL_AFTER_MTS_GAPS FOR CHANNEL {}", channel_name(name));
    execute_start(connection, &sql, name)
}

/// Parks a channel that is stopped, `place` is where it is to go on; `None`: where it is.
///
/// # Errors
/// A missing privilege names the GRANT; what the server refuses.
pub fn park(connection: &mut Connection, name: &str, place: Option<&Place>) -> Result<()> {
    let sql = delay_sql(connection.server_version().vendor, name, PARKED_SECONDS, place);
    execute(connection, &sql, "change its own replication")
}

/// Takes a parked channel back, and starts it: with one packet, so that nobody can be interrupted in between.
///
/// # Errors
/// A missing privilege names the GRANT; what the server refuses.
pub fn unpark(connection: &mut Connection, channel: &Channel) -> Result<()> {
    let vendor = connection.server_version().vendor;
    let change = delay_sql(vendor, &channel.name, 0, None);
    let start = command(vendor, "START", &channel.name, Threads::All);
    match execute(connection, &format!("{change};{start}"), STARTING) {
        // With GTIDs it needs none of its relay logs: it asks for what it has not executed.
        Err(error) if has_lost_relay_logs(&error) && channel.by_gtid => {
            let reset = format!("RESET REPLICA FOR CHANNEL {}", channel_name(&channel.name));
            execute(connection, &format!("{reset};{start}"), STARTING)
        }
        // Its place was written before, and with it an index without the files.
        Err(error) if has_lost_relay_logs(&error) => {
            let why = format!(
                "it cannot start its channel '{}' before it is restarted, because its relay logs were removed in part when it was killed \
                 ({error}): restart the server, then hand back again",
                channel.name
            );
            Err(Error::Unsuitable { peer: connection.peer().to_string(), why })
        }
        other => other,
    }
}

fn delay_sql(vendor: Vendor, name: &str, seconds: u64, place: Option<&Place>) -> String {
    let name = channel_name(name);
    let place = |file: &str, position: &str| {
        let place = place.map(|place| format!(", {file}={}, {position}={}", quote::text(&place.file), place.position));
        place.unwrap_or_default()
    };
    match vendor {
        Vendor::MariaDb => {
            let place = place("MASTER_LOG_FILE", "MASTER_LOG_POS");
            format!("CHANGE MASTER {name} TO MASTER_DELAY={seconds}{place}")
        }
        Vendor::MySql => {
            let place = place("SOURCE_LOG_FILE", "SOURCE_LOG_POS");
            format!("CHANGE REPLICATION SOURCE TO SOURCE_DELAY={seconds}{place} FOR CHANNEL {name}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_shown_without_literals_and_on_one_line() {
        let error = "Error 'Operation CREATE USER failed for 'bob'@'%'' on query.\nDefault database: ''. \
                     Query: 'CREATE USER bob IDENTIFIED BY 'topsecret\x1b[2J''";
        let shown = presentable(error);
        assert!(
            shown.starts_with("Error 'Operation CREATE USER failed for 'bob'@'%'' on query. Default database"),
            "{shown}"
        );
        assert!(shown.contains("CREATE USER bob") && !shown.contains("topsecret"), "{shown}");
        assert!(!shown.chars().any(char::is_control), "{shown}");
        assert_eq!(presentable(""), "");
    }

    #[test]
    fn places_compare_by_number_of_the_file() {
        let place = |file: &str, position| Place { file: file.to_owned(), position };
        assert!(place("b.1000000", 4).has_reached(&place("b.999999", 500)));
        assert!(place("b.000002", 4).has_reached(&place("b.000002", 4)));
        assert!(!place("b.000001", 900).has_reached(&place("b.000002", 4)));
    }
}
