//! What the definitions of tables mean for replication. The replica is asked, whose account sees all of them; a replica that
//! was made from the source has the same.

use std::collections::BTreeSet;

use super::{Finding, Place, list_some_of};
use spate_connection::{Connection, ResultSet, Vendor};
use spate_replica::Result;
use spate_replica::foreign_keys::{self, ForeignKey};

const REPLICA: Place = Place::Replica;

/// Tables of users, in a question about `information_schema`.
const OF_USERS: &str = "TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema', 'spate')";

fn column(rows: &ResultSet, index: usize) -> impl Iterator<Item = String> + '_ {
    (0..rows.rows.len()).filter_map(move |row| rows.text_at(row, index))
}

/// Tables without a key that identifies a row.
pub(super) fn keys(replica: &mut Connection) -> Result<Vec<Finding>> {
    let all = replica.query(&format!(
        "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) FROM information_schema.TABLES \
         WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND {OF_USERS} ORDER BY 1"
    ))?;
    // Of each unique key: whether one of its columns may be NULL.
    let unique = replica.query(&format!(
        "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME), INDEX_NAME, SUM(NULLABLE = 'YES') FROM information_schema.STATISTICS \
         WHERE NON_UNIQUE = 0 AND {OF_USERS} GROUP BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME"
    ))?;
    let with_key: BTreeSet<String> = (0..unique.rows.len())
        .filter(|&row| unique.text_at(row, 2).as_deref() == Some("0"))
        .filter_map(|row| unique.text_at(row, 0))
        .collect();
    let without: Vec<String> = column(&all, 0).filter(|table| !with_key.contains(table)).collect();
    Ok(vec![match without.is_empty() {
        true => Finding::ok("keys", REPLICA, format!("each of {} tables has one", all.rows.len())),
        false => Finding::warning(
            "keys",
            REPLICA,
            format!(
                "{} of {} tables have no primary key and no unique key without NULLs: {}",
                without.len(),
                all.rows.len(),
                list_some_of(&without)
            ),
        )
        .advise("Their changes cost more: give them a primary key"),
    }])
}

/// Tables whose engine cannot roll back.
pub(super) fn engines(replica: &mut Connection) -> Result<Vec<Finding>> {
    let rows = replica.query(&format!(
        "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME, ' (', ENGINE, ')') FROM information_schema.TABLES \
         WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND {OF_USERS} AND ENGINE NOT IN \
         (SELECT ENGINE FROM information_schema.ENGINES WHERE TRANSACTIONS = 'YES') ORDER BY 1"
    ))?;
    let names: Vec<String> = column(&rows, 0).collect();
    Ok(vec![match names.is_empty() {
        true => Finding::ok("engines", REPLICA, "all tables can roll back"),
        false => Finding::warning(
            "engines",
            REPLICA,
            format!("{} tables cannot roll back: {}", names.len(), list_some_of(&names)),
        )
        .advise(
            "Their changes are applied in order, in batches of their own; ALTER TABLE … ENGINE=InnoDB makes them fold",
        ),
    }])
}

/// Engines that tables of the source have and the replica does not. (The source's account may not see all of its tables.)
pub(super) fn missing_engines(source: &mut Connection, replica: &mut Connection) -> Result<Vec<Finding>> {
    let enabled = replica.query("SELECT ENGINE FROM information_schema.ENGINES WHERE SUPPORT IN ('YES', 'DEFAULT')")?;
    let enabled: BTreeSet<String> = column(&enabled, 0).map(|engine| engine.to_lowercase()).collect();
    let used = source.query(&format!(
        "SELECT ENGINE, CONCAT(TABLE_SCHEMA, '.', TABLE_NAME, ' (', ENGINE, ')') FROM information_schema.TABLES \
         WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE') AND ENGINE IS NOT NULL AND {OF_USERS} ORDER BY 2"
    ))?;
    let is_missing =
        |row: &usize| used.text_at(*row, 0).is_some_and(|engine| !enabled.contains(&engine.to_lowercase()));
    let names: Vec<String> = (0..used.rows.len()).filter(is_missing).filter_map(|row| used.text_at(row, 1)).collect();
    Ok(vec![match names.is_empty() {
        true => Finding::ok("engines", Place::Both, "the replica has those of all tables"),
        false => Finding::error(
            "engines",
            Place::Both,
            format!("the replica lacks the engine of {} tables: {}", names.len(), list_some_of(&names)),
        )
        .advise("Install or enable it on the replica, or let these tables have another"),
    }])
}

/// What tables and accounts of the source may use and the replica lacks: engines, types, functions, parsers, ways to log in.
pub(super) fn plugins(source: &mut Connection, replica: &mut Connection) -> Result<Vec<Finding>> {
    let check = "plugins";
    if source.server_version().vendor != replica.server_version().vendor {
        return Ok(vec![]);
    }
    const ACTIVE: &str = "SELECT CONCAT(PLUGIN_NAME, ' (', LOWER(PLUGIN_TYPE), ')') FROM information_schema.PLUGINS WHERE PLUGIN_STATUS = 'ACTIVE' \
        AND PLUGIN_TYPE IN ('STORAGE ENGINE', 'DATA TYPE', 'FUNCTION', 'FTPARSER', 'AUTHENTICATION') ORDER BY 1";
    let of_replica: BTreeSet<String> = column(&replica.query(ACTIVE)?, 0).collect();
    let missing: Vec<String> = column(&source.query(ACTIVE)?, 0).filter(|name| !of_replica.contains(name)).collect();
    Ok(vec![match missing.is_empty() {
        true => Finding::ok(check, Place::Both, "the replica has those of the source"),
        false => Finding::warning(check, Place::Both, format!("the replica lacks {}", list_some_of(&missing))).advise(
            "Where tables or accounts of the source use them, replication will stop: install them on the replica, too",
        ),
    }])
}

/// Foreign keys whose actions the engine carries out by itself.
pub(super) fn cascades(replica: &mut Connection) -> Result<Vec<Finding>> {
    let is_of_users = |key: &ForeignKey| !["mysql", "sys", "spate"].contains(&&*key.child.schema);
    let names: BTreeSet<String> = foreign_keys::read(replica)?
        .into_iter()
        .filter(|key| key.has_action && is_of_users(key))
        .map(|key| format!("{}.{}", key.child.schema, key.child.table))
        .collect();
    let names = Vec::from_iter(names);
    let version = replica.server_version();
    // Since then it writes what they do to its binlog, unless innodb_native_foreign_keys is ON.
    let advice = match version.vendor == Vendor::MySql && version.is_at_least(9, 6) {
        true => {
            "What the source's foreign keys do is in its binlog, and is applied with them switched off: one that only the replica has \
             changes nothing there"
        }
        false => "They work; changes of these tables and of those they refer to are applied in order and do not fold",
    };
    Ok(vec![match names.is_empty() {
        true => Finding::ok("cascades", REPLICA, "no foreign key changes rows by itself"),
        false => Finding::warning(
            "cascades",
            REPLICA,
            format!(
                "foreign keys with CASCADE or SET NULL change rows of {} tables: {}",
                names.len(),
                list_some_of(&names)
            ),
        )
        .advise(advice),
    }])
}

/// Collations that the source uses and the replica does not know.
pub(super) fn collations(source: &mut Connection, replica: &mut Connection) -> Result<Vec<Finding>> {
    let check = "collations";
    let used = source.query(&format!(
        "SELECT DISTINCT COLLATION_NAME FROM information_schema.COLUMNS WHERE COLLATION_NAME IS NOT NULL AND {OF_USERS} \
         UNION SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME NOT IN \
         ('mysql', 'sys', 'information_schema', 'performance_schema', 'spate') UNION SELECT @@global.collation_server"
    ))?;
    let known = replica.query("SELECT * FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY")?;
    // MariaDB since 10.10 has the name that tables show in a column of its own.
    let names = ["COLLATION_NAME", "FULL_COLLATION_NAME"];
    let known: BTreeSet<String> =
        (0..known.rows.len()).flat_map(|row| names.map(|name| known.text(row, name))).flatten().collect();
    let unknown: Vec<String> = column(&used, 0).filter(|name| !known.contains(name)).collect();
    Ok(vec![match unknown.is_empty() {
        true => Finding::ok(check, Place::Both, format!("the replica knows the {} that the source uses", used.rows.len())),
        false => Finding::warning(check, Place::Both, format!("the replica does not know {}", list_some_of(&unknown)))
            .advise("Definitions that name them will be refused there: use a replica that knows them, or others on the source"),
    }])
}
