//! Compares all tables of two servers by `CHECKSUM TABLE … EXTENDED`, which reads every row.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sandbox::Sandbox;
use crate::sql::quote;
use crate::{Result, threads};

/// Each table's checksum, by `schema.table`; `None` for a table that could not be read.
pub type Checksums = BTreeMap<String, Option<u64>>;

/// Schemas of the servers themselves, and Spate's own on the replica: never replicated.
const OWN_SCHEMAS: &str = "'mysql', 'sys', 'information_schema', 'performance_schema', 'spate'";

/// Checksums of all tables, read over as many connections as there are processors.
///
/// # Errors
/// [`crate::Error::Sql`].
pub fn checksums(server: &Sandbox) -> Result<Checksums> {
    let tables: Vec<(String, String)> = server.connect()?.rows(&format!(
        "SELECT table_schema, table_name FROM information_schema.tables
         WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ({OWN_SCHEMAS})"
    ))?;
    let readers = std::thread::available_parallelism().map_or(2, usize::from).min(tables.len().max(1));
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Checksums::new()));
    std::thread::scope(|scope| {
        let read = || -> Result<()> {
            let mut session = server.connect()?;
            while let Some((schema, table)) = tables.get(next.fetch_add(1, Ordering::Relaxed)) {
                let statement = format!("CHECKSUM TABLE {}.{} EXTENDED", quote(schema), quote(table));
                let rows: Vec<(String, Option<u64>)> = session.rows(&statement)?;
                let checksum = rows.first().and_then(|(_, checksum)| *checksum);
                found
                    .lock()
                    .unwrap_or_else(|poisoned| poisoned.into_inner())
                    .insert(format!("{schema}.{table}"), checksum);
            }
            Ok(())
        };
        let handles: Vec<_> = (0..readers).map(|_| scope.spawn(read)).collect();
        threads::all_ended(handles.into_iter().map(std::thread::ScopedJoinHandle::join))
    })?;
    Ok(found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

/// The tables that are not proven equal: they differ, are on one side only, or are unreadable.
pub fn different_tables(source: &Checksums, replica: &Checksums) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = source.keys().chain(replica.keys()).collect();
    let equal =
        |name: &String| matches!((source.get(name), replica.get(name)), (Some(Some(a)), Some(Some(b))) if a == b);
    names.into_iter().filter(|name| !equal(name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_checksums_are_identical() {
        let sums = |pairs: &[(&str, Option<u64>)]| pairs.iter().map(|(name, sum)| (name.to_string(), *sum)).collect();
        let source: Checksums =
            sums(&[("a.same", Some(1)), ("a.other", Some(2)), ("a.missing", Some(3)), ("a.null", None)]);
        let replica = sums(&[("a.same", Some(1)), ("a.other", Some(9)), ("a.extra", Some(4)), ("a.null", None)]);
        assert_eq!(different_tables(&source, &replica), ["a.extra", "a.missing", "a.null", "a.other"]);
        assert!(different_tables(&source, &source).contains(&"a.null".to_owned()));
    }
}
