//! The buffer pool as it was: its pages are listed when a data set is frozen, and each server on a copy loads the pages of this list.

use std::fs;
use std::time::Duration;

use crate::dataset::BEAT_SCHEMA;
use crate::sandbox::Sandbox;
use crate::sql::{Session, quote};
use crate::{Error, Result, threads};

/// The server's list of pages, in its data directory.
pub(crate) const LIST: &str = "ib_buffer_pool";
/// Time limit of a dump or a load.
const LIMIT: Duration = Duration::from_secs(1_800);

/// Reads every index of every table (its rows, where it has none) of the data set once, and lists the pages that are in the pool then, the latest first.
pub(crate) fn keep(server: &Sandbox) -> Result<()> {
    let mut session = server.connect()?;
    for (schema, table, index) in indexes(&mut session)? {
        let (schema, table) = (quote(&schema), quote(&table));
        let by = index.map_or_else(String::new, |index| format!(" FORCE INDEX ({})", quote(&index)));
        session.run(&format!("SELECT COUNT(*) FROM {schema}.{table}{by}"))?;
    }
    session.run("SET GLOBAL innodb_buffer_pool_dump_pct = 100")?;
    session.run("SET GLOBAL innodb_buffer_pool_dump_now = 1")?;
    wait(&mut session, "Innodb_buffer_pool_dump_status")
}

/// Loads the listed pages, as many of the latest as the pool takes, and opens the tables.
///
/// # Errors
/// [`Error::Sql`]; [`Error::TimedOut`]; [`Error::ColdBufferPool`] if the pool is not full afterwards.
pub(crate) fn load(server: &Sandbox) -> Result<()> {
    /// Some of the listed pages may be gone or not needed, such as those of rows that are purged.
    const LOADED_PER_HUNDRED: u64 = 90;
    let list = server.data_directory().join(LIST);
    let listed = fs::read(&list).map_err(Error::file("read", &list))?;
    let listed = listed.iter().filter(|byte| **byte == b'\n').count() as u64;
    let mut session = server.connect()?;
    session.run("SET GLOBAL innodb_buffer_pool_load_now = 1")?;
    wait(&mut session, "Innodb_buffer_pool_load_status")?;
    // The server keeps so many pages free for others.
    let free: u64 = session.value("SELECT @@GLOBAL.innodb_lru_scan_depth")?;
    let wanted = listed.min(session.status("Innodb_buffer_pool_pages_total")?.saturating_sub(free));
    let loaded = session.status("Innodb_buffer_pool_pages_data")?;
    if loaded < wanted * LOADED_PER_HUNDRED / 100 {
        return Err(Error::ColdBufferPool { list, wanted, loaded });
    }
    let mut tables = indexes(&mut session)?;
    tables.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
    tables.iter().try_for_each(|(schema, table, _)| {
        session.run(&format!("SELECT 1 FROM {}.{} LIMIT 0", quote(schema), quote(table)))
    })
}

/// Schema, table and index, by these. A table without an index has a row of its own.
fn indexes(session: &mut Session) -> Result<Vec<(String, String, Option<String>)>> {
    session.rows(&format!(
        "SELECT DISTINCT table_schema, table_name, index_name
         FROM information_schema.tables LEFT JOIN information_schema.statistics USING (table_schema, table_name)
         WHERE table_type = 'BASE TABLE' AND (table_schema LIKE 'bench%' OR table_schema = '{BEAT_SCHEMA}') ORDER BY 1, 2, 3"
    ))
}

/// Waits until a dump or a load has ended.
fn wait(session: &mut Session, status: &str) -> Result<()> {
    threads::wait_until("the buffer pool's pages", LIMIT, || {
        let words = session.status_text(status)?;
        Ok(if words.contains("completed") { Ok(()) } else { Err(format!("{status}: {words}")) })
    })
}
