//! Notes of transactions that were undone on a server. A server may give their numbers to others, once it is the source again; a third one that has kept
//! the old ones would then look as if it lacked nothing and had nothing of its own. So the source logs, before they are undone, that its history does
//! not have them: a server that follows it has the note, and a server that has the transactions has not.

use std::collections::BTreeMap;

use spate_connection::{Connection, quote};
use spate_replica::own_schema;

use crate::error::Result;
use crate::history::{Excluded, History, Surplus};
use crate::topology::Server;

/// Not Spate's own schema, which concerns one server alone: these notes are for all that follow.
const SCHEMA: &str = "spate_failover";

const CREATE: &str = "CREATE TABLE IF NOT EXISTS spate_failover.excluded (\
     note CHAR(36) CHARACTER SET ascii NOT NULL, origin VARCHAR(100) CHARACTER SET ascii NOT NULL, first_number BIGINT UNSIGNED NOT NULL, \
     last_number BIGINT UNSIGNED NOT NULL, noted TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (note, origin, first_number)) \
     ENGINE=InnoDB COMMENT='transactions that this history does not have: spate follow undid them where they were'";

const GRANT: &str = "GRANT CREATE, SELECT, INSERT ON spate_failover.* TO <the user of Spate>";

/// The notes that a server has.
pub(crate) fn ask(connection: &mut Connection) -> Result<BTreeMap<String, Vec<Excluded>>> {
    let mut notes: BTreeMap<String, Vec<Excluded>> = BTreeMap::new();
    let there = connection.query(
        "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'spate_failover' AND TABLE_NAME = 'excluded' \
         AND TABLE_TYPE = 'BASE TABLE'",
    )?;
    if there.single_text().as_deref() != Some("1") {
        return Ok(notes);
    }
    let found =
        connection.query("SELECT note, origin, first_number, last_number FROM spate_failover.excluded").map_err(
            |error| spate_replica::Error::from(error).with_missing_privilege("read what servers have undone", GRANT),
        )?;
    for row in 0..found.rows.len() {
        let text = |column| found.text_at(row, column).unwrap_or_default();
        let number = |column| text(column).parse().unwrap_or(0u64);
        let excluded = Excluded { origin: text(1), first: number(2).max(1), last: number(3) };
        notes.entry(text(0)).or_default().push(excluded);
    }
    Ok(notes)
}

/// Lets a source log that its history does not have these transactions of another server.
pub(crate) fn note(source: &mut Server, server: &History, surplus: &Surplus) -> Result<()> {
    let wanted: Vec<Excluded> = surplus
        .ranges
        .iter()
        .map(|range| Excluded {
            origin: range.origin.clone(),
            first: range.known.map_or(range.first, |known| known + 1),
            last: range.last,
        })
        .collect();
    // A run that was interrupted has noted them already.
    let is_noted = |(note, excluded): (&String, &Vec<Excluded>)| {
        !server.excluded.contains_key(note) && wanted.iter().all(|wanted| excluded.contains(wanted))
    };
    if source.facts.applied.excluded.iter().any(is_noted) {
        return Ok(());
    }
    own_schema::create_tables(&mut source.connection, SCHEMA, &[("excluded", CREATE)], GRANT)?;
    let note = source.value("SELECT UUID()")?;
    let rows: Vec<String> = wanted
        .iter()
        .map(|Excluded { origin, first, last }| {
            format!("({}, {}, {first}, {last})", quote::text(&note), quote::text(origin))
        })
        .collect();
    let sql = format!(
        "INSERT INTO spate_failover.excluded (note, origin, first_number, last_number) VALUES {}",
        rows.join(", ")
    );
    let noted = source.connection.execute(sql.as_bytes());
    noted.map_err(|error| spate_replica::Error::from(error).with_missing_privilege("note what is undone", GRANT))?;
    Ok(())
}
