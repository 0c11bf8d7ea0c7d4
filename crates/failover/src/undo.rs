//! Undoing surplus transactions: first the rows are compared with what the surplus left, then its folded inverse is applied, in one transaction.

use std::collections::BTreeSet;

use spate_archive::stopping_point;
use spate_binlog::encode::{ColumnBitmap, RowsEventEncoder, RowsLayout, append_table_map, mark_statement_end};
use spate_binlog::rows::{FLAG_NO_CHECK_CONSTRAINT_CHECKS, FLAG_NO_FOREIGN_KEY_CHECKS};
use spate_binlog::{ChecksumAlgorithm, FormatDescription, GtidPosition, MariaDbGtid, RowsKind, RowsVersion};
use spate_connection::{Connection, Vendor, quote};
use spate_replica::dialect::{OWN_GTIDS, append_binlog, session_settings};
use spate_replica::own_schema;
use spate_schedule::TablePlan;
use spate_schedule::emit::ChunkWriter;
use spate_schedule::fold::TableFold;

use crate::error::{Error, Result};
use crate::surplus::Found;
use crate::topology::Server;

/// Bytes of events in one BINLOG statement.
const CHUNK_BYTES: usize = 256 << 10;

/// Says, in the server's own state, that its surplus is undone, and where it goes on; removed once it follows.
pub(crate) const CREATE_UNDONE: &str = "CREATE TABLE IF NOT EXISTS spate.undone (\
     id TINYINT UNSIGNED NOT NULL PRIMARY KEY, gtid_position MEDIUMTEXT CHARACTER SET ascii NOT NULL, \
     gtid_state MEDIUMTEXT CHARACTER SET ascii NOT NULL, gtids_before MEDIUMTEXT CHARACTER SET ascii NOT NULL) ENGINE=InnoDB \
     COMMENT='surplus transactions that spate follow has undone'";

/// Where a server goes on whose surplus is undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Undone {
    /// The position before the surplus.
    pub(crate) position: String,
    /// MariaDB: the last GTID of each domain and server before the surplus.
    pub(crate) state: String,
}

/// All GTIDs that a server says it has.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Gtids {
    /// MariaDB: the state of its binlog. MySQL: all that it has executed.
    logged: BTreeSet<String>,
    /// MariaDB: where it stands as a replica.
    applied: BTreeSet<String>,
}

impl Gtids {
    fn of(logged: &str, applied: &str) -> Gtids {
        let split = |text: &str| {
            let each = text.split(',').map(|gtid| gtid.split_whitespace().collect::<String>().to_ascii_lowercase());
            each.filter(|gtid| !gtid.is_empty()).collect()
        };
        Gtids { logged: split(logged), applied: split(applied) }
    }

    fn ask(server: &mut Server) -> Result<Gtids> {
        let sql = match server.vendor() {
            Vendor::MariaDb => "SELECT @@global.gtid_binlog_state, @@global.gtid_slave_pos",
            Vendor::MySql => "SELECT @@global.gtid_executed, ''",
        };
        let found = server.connection.query(sql)?;
        let text = |column| found.text_at(0, column).unwrap_or_default();
        Ok(Gtids::of(&text(0), &text(1)))
    }

    fn join(&self) -> String {
        let join = |gtids: &BTreeSet<String>| gtids.iter().cloned().collect::<Vec<_>>().join(",");
        format!("{}/{}", join(&self.logged), join(&self.applied))
    }
}

/// What an interrupted run has undone and not brought to its end: the rows are as before the surplus, the GTIDs are not yet. `None` if there is nothing
/// like that, or the server has gone on since: then all must be looked at again.
pub(crate) fn read(server: &mut Server) -> Result<Option<Undone>> {
    let there = server.value(
        "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'spate' AND TABLE_NAME = 'undone'",
    )?;
    if there != "1" {
        return Ok(None);
    }
    let rows =
        server.connection.query("SELECT gtid_position, gtid_state, gtids_before FROM spate.undone WHERE id = 0")?;
    if rows.rows.is_empty() {
        return Ok(None);
    }
    let text = |column| rows.text_at(0, column).unwrap_or_default();
    let undone = Undone { position: text(0), state: text(1) };
    // They become parts of statements, and others may have written to the table.
    let is_mariadb =
        |text: &str| text.split(',').filter(|gtid| !gtid.is_empty()).all(|gtid| gtid.parse::<MariaDbGtid>().is_ok());
    let is_well = match server.vendor() {
        Vendor::MariaDb => is_mariadb(&undone.position) && is_mariadb(&undone.state),
        Vendor::MySql => undone.state.is_empty() && undone.position.parse::<GtidPosition>().is_ok(),
    };
    if !is_well {
        let what = "spate.undone holds what is no GTID: somebody else has written there. Look who may; DELETE FROM spate.undone";
        return Err(Error::step(server.facts.name.clone(), what));
    }
    let now = Gtids::ask(server)?;
    let end = match server.vendor() {
        Vendor::MariaDb => Gtids::of(&undone.state, &undone.position),
        Vendor::MySql => Gtids::of(&undone.position, ""),
    };
    // They are set in steps: first there are none.
    let is_between = now.logged.is_empty() || now.logged == end.logged && server.vendor() == Vendor::MariaDb;
    if now == end || !(now.join() == text(2) || is_between) {
        forget(server)?;
        return Ok(None);
    }
    Ok(Some(undone))
}

/// Forgets what was undone: the server follows its source.
pub(crate) fn forget(server: &mut Server) -> Result<()> {
    if server.vendor() == Vendor::MySql {
        server.execute("SET GLOBAL super_read_only=0")?;
    }
    server.execute("SET SESSION sql_log_bin=0; DELETE FROM spate.undone; SET SESSION sql_log_bin=1")
}

/// Makes all rows as they were before the surplus, and notes it in the same transaction. Nothing of it is logged.
pub(crate) fn undo(server: &mut Server, found: &Found, undone: &Undone) -> Result<u64> {
    let Some(format) = &found.format else {
        return Err(surplus(server, "the saved binlog is empty"));
    };
    let inverse = found.inverse.fold().map_err(|error| surplus(server, error.to_string()))?;
    begin_session(server, format)?;
    own_schema::create_tables(&mut server.connection, "spate", &[("undone", CREATE_UNDONE)], own_schema::GRANT)?;
    let version = RowsVersion::of(format);
    for (number, fold) in found.inverse.forward().folds().iter().enumerate() {
        fill_scratch(server, number, fold, version)?;
    }
    server.execute("BEGIN")?;
    let done = apply(server, found, &inverse, version, undone);
    match done {
        Ok(changes) => {
            stopping_point("follow-undone-uncommitted");
            server.execute("COMMIT")?;
            stopping_point("follow-undone");
            drop_scratch(server, found.inverse.forward().folds().len())?;
            Ok(changes)
        }
        Err(error) => {
            // Why it cannot be undone matters more than an error of this.
            let _rolled_back =
                server.execute("ROLLBACK").and_then(|()| drop_scratch(server, found.inverse.forward().folds().len()));
            Err(error)
        }
    }
}

fn surplus(server: &Server, why: impl Into<String>) -> Error {
    Error::Surplus { server: server.facts.name.clone(), why: why.into() }
}

fn begin_session(server: &mut Server, format: &FormatDescription) -> Result<()> {
    let modes = match server.vendor() {
        Vendor::MariaDb => "SELECT @@global.slave_exec_mode, @@global.slave_run_triggers_for_rbr",
        Vendor::MySql if server.connection.server_version().is_at_least(8, 0) => {
            "SELECT @@global.replica_exec_mode, 'NO'"
        }
        Vendor::MySql => "SELECT @@global.slave_exec_mode, 'NO'",
    };
    let found = server.connection.query(modes)?;
    let mode = |column| found.text_at(0, column).unwrap_or_default().to_ascii_uppercase();
    if mode(0) != "STRICT" {
        let why = "with slave_exec_mode=IDEMPOTENT it would not say if a row is not as they left it: SET GLOBAL slave_exec_mode=STRICT first";
        return Err(surplus(server, why));
    }
    if mode(1) != "NO" {
        let why = "with slave_run_triggers_for_rbr triggers would change more rows: SET GLOBAL slave_run_triggers_for_rbr=NO first";
        return Err(surplus(server, why));
    }
    let settings = session_settings(server.connection.server_version());
    server.execute(&settings)?;
    if server.vendor() == Vendor::MySql {
        server.execute("SET GLOBAL super_read_only=0")?;
    }
    server.execute("SET SESSION sql_log_bin=0")?;
    let mut sql = Vec::new();
    append_binlog(&mut sql, &format.encode(server.facts.server_id, ChecksumAlgorithm::None));
    let grant = match server.vendor() {
        Vendor::MariaDb => "GRANT BINLOG REPLAY ON *.* TO <the user of Spate>",
        Vendor::MySql => "GRANT REPLICATION_APPLIER ON *.* TO <the user of Spate>",
    };
    let told = server.connection.execute(&sql);
    told.map_err(|error| spate_replica::Error::from(error).with_missing_privilege("replay row images", grant))?;
    if server.vendor() == Vendor::MySql {
        server.execute(OWN_GTIDS)?;
    }
    Ok(())
}

fn scratch_name(number: usize) -> String {
    format!("undo_{number}")
}

fn drop_scratch(server: &mut Server, count: usize) -> Result<()> {
    (0..count).try_for_each(|number| server.execute(&format!("DROP TABLE IF EXISTS spate.{}", scratch_name(number))))
}

/// A table of the same definition gets the rows as the surplus left them.
fn fill_scratch(server: &mut Server, number: usize, fold: &TableFold, version: RowsVersion) -> Result<()> {
    let plan = fold.plan();
    let (name, scratch) = (&plan.definition.name, scratch_name(number));
    let table = quote::qualified(&name.schema, &name.table);
    server.execute(&format!("DROP TABLE IF EXISTS spate.{scratch}; CREATE TABLE spate.{scratch} LIKE {table}"))?;
    let changes = fold.net_changes().map_err(|error| surplus(server, error.to_string()))?;
    let mut images: Vec<&[u8]> = Vec::new();
    let mut bytes = 0;
    for image in changes.rows_left() {
        images.push(image);
        bytes += image.len();
        if bytes > CHUNK_BYTES {
            insert_into_scratch(server, plan, &scratch, &std::mem::take(&mut images), version)?;
            bytes = 0;
        }
    }
    insert_into_scratch(server, plan, &scratch, &images, version)
}

fn insert_into_scratch(
    server: &mut Server,
    plan: &TablePlan,
    scratch: &str,
    images: &[&[u8]],
    version: RowsVersion,
) -> Result<()> {
    const TABLE_ID: u64 = 1;
    if images.is_empty() {
        return Ok(());
    }
    let Some(body) = renamed_map(plan, scratch) else {
        return Err(surplus(server, format!("the table map of {} is shorter than its names", plan.definition.name)));
    };
    let mut events = Vec::new();
    let id = server.facts.server_id;
    let encoded = append_table_map(&mut events, &body, TABLE_ID, id);
    encoded.map_err(|error| surplus(server, error.to_string()))?;
    let all = ColumnBitmap::all(plan.map.columns.len());
    let flags = FLAG_NO_FOREIGN_KEY_CHECKS | FLAG_NO_CHECK_CONSTRAINT_CHECKS;
    let layout = RowsLayout::Plain(version);
    let encoder = RowsEventEncoder::begin(&mut events, RowsKind::Insert, TABLE_ID, id, flags, (&all, &all), layout);
    images.iter().for_each(|image| events.extend_from_slice(image));
    let event = encoder.finish(&mut events);
    mark_statement_end(&mut events, event);
    replay(&mut server.connection, &events)
}

/// The table's map under the name of its scratch table.
fn renamed_map(plan: &TablePlan, scratch: &str) -> Option<Vec<u8>> {
    /// Table id and flags.
    const PREFIX: usize = 8;
    let map = &plan.map;
    // Each name has its length before it and a zero after it.
    let names_end = PREFIX + map.schema.len() + map.table.len() + 4;
    let mut renamed = map.body.get(..PREFIX)?.to_vec();
    for name in ["spate", scratch] {
        renamed.push(name.len() as u8);
        renamed.extend_from_slice(name.as_bytes());
        renamed.push(0);
    }
    renamed.extend_from_slice(map.body.get(names_end..)?);
    Some(renamed)
}

fn replay(connection: &mut Connection, events: &[u8]) -> Result<()> {
    let mut sql = Vec::new();
    append_binlog(&mut sql, events);
    connection.execute(&sql)?;
    Ok(())
}

fn apply(
    server: &mut Server,
    found: &Found,
    inverse: &spate_schedule::segment::Segment,
    version: RowsVersion,
    undone: &Undone,
) -> Result<u64> {
    for (number, fold) in found.inverse.forward().folds().iter().enumerate() {
        compare(server, number, fold)?;
    }
    let name = server.facts.name.clone();
    let server_id = server.facts.server_id;
    let connection = &mut server.connection;
    let sink = |events: &[u8]| replay(connection, events).map_err(Halted::from);
    let mut writer = ChunkWriter::new(CHUNK_BYTES, server_id, version, sink);
    let written = writer.segment(inverse).and_then(|()| writer.finish());
    let changes = written.map_err(|error| match error {
        Halted::Server(error) => Error::Surplus {
            server: name.clone(),
            why: format!("the server refuses a change that undoes them, so a row is not as they left it: {error}"),
        },
        Halted::Encode(error) => Error::Surplus { server: name.clone(), why: error.to_string() },
    })?;
    let before = Gtids::ask(server)?.join();
    let sql = format!(
        "REPLACE INTO spate.undone (id, gtid_position, gtid_state, gtids_before) VALUES (0, {}, {}, {})",
        quote::text(&undone.position),
        quote::text(&undone.state),
        quote::text(&before)
    );
    server.execute(&sql)?;
    Ok(changes)
}

/// Why a change was not written.
enum Halted {
    Server(Error),
    Encode(spate_schedule::Error),
}

impl From<Error> for Halted {
    fn from(error: Error) -> Halted {
        Halted::Server(error)
    }
}

impl From<spate_schedule::Error> for Halted {
    fn from(error: spate_schedule::Error) -> Halted {
        Halted::Encode(error)
    }
}

/// Checks that the table's rows are as the surplus left them, with locks that keep them so.
fn compare(server: &mut Server, number: usize, fold: &TableFold) -> Result<()> {
    let definition = &fold.plan().definition;
    let table = quote::qualified(&definition.name.schema, &definition.name.table);
    let column = |number: &usize| quote::identifier(&definition.columns[*number].name);
    let is_text = |kind: &str| {
        let kind = kind.to_ascii_lowercase();
        ["char", "text", "enum", "set"].iter().any(|word| kind.contains(word)) && !kind.contains("binary")
    };
    let equal = |number: &usize| {
        let name = column(number);
        match is_text(&definition.columns[*number].column_type) {
            true => format!("CAST(t.{name} AS BINARY) <=> CAST(s.{name} AS BINARY)"),
            false => format!("t.{name} <=> s.{name}"),
        }
    };
    let key: Vec<String> = definition.row_key.iter().map(&equal).collect();
    let others: Vec<usize> =
        (0..definition.columns.len()).filter(|number| !definition.row_key.contains(number)).collect();
    let rest: Vec<String> = others.iter().map(equal).collect();
    let rest = if rest.is_empty() { "TRUE".to_owned() } else { rest.join(" AND ") };
    let names: Vec<String> = definition.row_key.iter().map(|number| format!("s.{}", column(number))).collect();
    let first_of_key = column(&definition.row_key[0]);
    let sql = format!(
        "SELECT {} FROM spate.{} s LEFT JOIN {table} t ON {} WHERE t.{first_of_key} IS NULL OR NOT ({rest}) LIMIT 1 FOR UPDATE",
        names.join(", "),
        scratch_name(number),
        key.join(" AND ")
    );
    let found = server.connection.query(&sql)?;
    if found.rows.is_empty() {
        return Ok(());
    }
    let key: Vec<String> = definition
        .row_key
        .iter()
        .enumerate()
        .map(|(place, number)| {
            format!("{}={}", definition.columns[*number].name, found.text_at(0, place).unwrap_or_default())
        })
        .collect();
    let why = format!(
        "the row of {} with {} is not as they left it: somebody has changed it without the binlog",
        definition.name,
        key.join(", ")
    );
    Err(surplus(server, why))
}
