//! Compares the tables of a meeting: one thread cuts them into ranges of keys, and each pair of connections hashes ranges
//! on both servers at once. Where the hashes differ, the rows' own hashes tell which rows.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Atomic};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::catalog::{Catalog, Table, TableName, column_differences, own_columns};
use super::digest::{KeyValues, Range, boundary_sql, range_hash_sql, row_hashes_sql, show_key, unhashable_rows};
use super::error::{Error, Result};
use super::meet::Meeting;
use super::report::{DifferingKey, KeyRange, RowDifference, RowDifferences, TableReport, Verdict};
use super::snapshot::LET_GO;
use super::{Progress, ProgressSink, VerifyOptions};
use spate_connection::{Connection, ResultSet};

/// Ranges ready per pair of connections: enough that nobody waits for the next boundary.
const RANGES_READY_PER_PAIR: usize = 4;
/// A range of wide rows is cut short at about this size, so that its rows' hashes cost no noticeable memory or time.
const RANGE_BYTES_TARGET: u64 = 16 * 1024 * 1024;
const RANGE_ROWS_MIN: u64 = 500;
/// Rows of one side in a differing range whose hashes may be held. A range with more, such as one behind whose end the replica alone has
/// rows, is halved.
const HELD_ROWS_MAX: u64 = 100_000;
/// The same in bytes, of keys and hashes of both sides; for each pair of connections.
const HELD_BYTES_MAX: usize = 32 * 1024 * 1024;
/// What holding a row costs beside the bytes of its key and its hash.
const HELD_ROW_OVERHEAD_BYTES: usize = 100;
/// Server errors that mean "the table is not what it was when the snapshot was taken".
const TABLE_ALTERED_CODES: [u16; 4] = [1412, 1146, 1054, 1932];

/// A range to be compared.
struct Task<'a> {
    name: &'a TableName,
    table: &'a Table,
    /// Counts the table's ranges from 0.
    ordinal: u64,
    range: Range,
}

#[derive(Default)]
struct Found {
    source_rows: u64,
    replica_rows: u64,
    rows_differ: u64,
    keys_kept: usize,
    ranges: BTreeMap<u64, DifferingRange>,
}

struct DifferingRange {
    range: Range,
    source_rows: u64,
    replica_rows: u64,
    keys: Vec<DifferingKey>,
}

struct Comparison<'a> {
    options: &'a VerifyOptions,
    progress: ProgressSink<'a>,
    sizes: HashMap<TableName, (u64, u64)>,
    rows_estimated: u64,
    rows_compared: AtomicU64,
    is_stopped: AtomicBool,
    found: Mutex<HashMap<TableName, Found>>,
}

/// Compares all tables of a meeting.
pub(super) fn compare(
    meeting: &mut Meeting,
    sizes: HashMap<TableName, (u64, u64)>,
    options: &VerifyOptions,
    progress: ProgressSink<'_>,
) -> Result<Vec<TableReport>> {
    let Meeting { source, replica, source_control, source_catalog, replica_catalog, .. } = meeting;
    let (source_catalog, replica_catalog) = (&*source_catalog, &*replica_catalog);
    let alike: Vec<(&TableName, &Table)> = source_catalog
        .iter()
        .filter(|(name, table)| {
            replica_catalog.get(*name).is_some_and(|other| column_differences(table, other).is_empty())
        })
        .collect();
    let comparison = Comparison {
        options,
        progress,
        rows_estimated: alike.iter().filter_map(|(name, _)| sizes.get(*name)).map(|(rows, _)| rows).sum(),
        sizes,
        rows_compared: AtomicU64::new(0),
        is_stopped: AtomicBool::new(false),
        found: Mutex::new(HashMap::new()),
    };
    comparison.run(&alike, source, replica, source_control)?;
    let found = comparison.found.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(reports(source_catalog, replica_catalog, found))
}

impl Comparison<'_> {
    fn run(
        &self,
        tables: &[(&TableName, &Table)],
        source: &mut [Connection],
        replica: &mut [Connection],
        control: &mut Connection,
    ) -> Result<()> {
        let (sender, receiver) = bounded(RANGES_READY_PER_PAIR * source.len());
        thread::scope(|scope| {
            let mut workers = Vec::new();
            for (source, replica) in source.iter_mut().zip(replica) {
                let receiver = receiver.clone();
                workers.push(scope.spawn(move || self.stopping(|| self.work(source, replica, &receiver))));
            }
            drop(receiver);
            let planned = self.stopping(|| self.plan(control, tables, &sender));
            drop(sender);
            let mut outcome = planned;
            for worker in workers {
                let worked = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                outcome = outcome.and(worked);
            }
            outcome
        })
    }

    /// The first that fails stops the others.
    fn stopping(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let outcome = work();
        if outcome.is_err() {
            self.is_stopped.store(true, Atomic::Relaxed);
        }
        outcome
    }

    fn plan<'t>(
        &self,
        control: &mut Connection,
        tables: &[(&'t TableName, &'t Table)],
        sender: &Sender<Task<'t>>,
    ) -> Result<()> {
        for (name, table) in tables {
            let rows = self.rows_per_range(name);
            let mut after: Option<KeyValues> = None;
            for ordinal in 0.. {
                // The boundaries come from the table as it is now, not from the snapshot. It does not matter where a table
                // is cut, only that both sides are cut alike.
                let up_to = match boundary_sql(name, table, after.as_ref(), rows) {
                    Some(sql) => control.query(&sql).map_err(|error| table_error(name, error))?.rows.into_iter().next(),
                    None => None,
                };
                let up_to = up_to.map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<KeyValues>());
                let is_last = up_to.is_none();
                let range = Range { after: after.take(), up_to: up_to.clone() };
                if sender.send(Task { name, table, ordinal, range }).is_err() {
                    // All workers have stopped; they say why.
                    return Ok(());
                }
                if is_last {
                    break;
                }
                after = up_to;
            }
        }
        Ok(())
    }

    fn rows_per_range(&self, name: &TableName) -> u64 {
        let row_bytes = self.sizes.get(name).map_or(0, |(_, bytes)| *bytes).max(1);
        let wanted = self.options.range_rows.max(1);
        wanted.min((RANGE_BYTES_TARGET / row_bytes).max(RANGE_ROWS_MIN))
    }

    fn work(&self, source: &mut Connection, replica: &mut Connection, tasks: &Receiver<Task<'_>>) -> Result<()> {
        for task in tasks {
            if self.is_stopped.load(Atomic::Relaxed) {
                return Ok(());
            }
            self.compare_range(source, replica, task)?;
            (self.progress)(&Progress::Comparing {
                rows_compared: self.rows_compared.load(Atomic::Relaxed),
                rows_estimated: self.rows_estimated,
            });
        }
        Ok(())
    }

    fn compare_range(&self, source: &mut Connection, replica: &mut Connection, task: Task<'_>) -> Result<()> {
        let Counts { source_rows, replica_rows, are_alike } = hash(source, replica, &task, &task.range)?;
        self.rows_compared.fetch_add(source_rows, Atomic::Relaxed);
        let mut differences = Differences { keys_max: self.options.differing_keys_max, ..Differences::default() };
        if !are_alike && task.table.key.is_some() {
            differences.find(source, replica, &task, &task.range, source_rows, replica_rows)?;
        }

        let mut all = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.entry(task.name.clone()).or_default();
        found.source_rows += source_rows;
        found.replica_rows += replica_rows;
        if !are_alike {
            found.rows_differ += differences.rows;
            let room = self.options.differing_keys_max.saturating_sub(found.keys_kept);
            let keys: Vec<DifferingKey> = differences
                .keys
                .into_iter()
                .take(room)
                .map(|(key, difference)| DifferingKey { key: show_key(task.table, &key), difference })
                .collect();
            found.keys_kept += keys.len();
            found.ranges.insert(task.ordinal, DifferingRange { range: task.range, source_rows, replica_rows, keys });
        }
        Ok(())
    }
}

fn table_error(name: &TableName, error: spate_connection::Error) -> Error {
    match error.code() {
        Some(code) if TABLE_ALTERED_CODES.contains(&code) => Error::TableAltered { table: name.to_string() },
        _ => Error::Wire(error),
    }
}

/// The number of rows in the answer to a range's hash, all of which must have been hashed.
fn counted(answer: &ResultSet, role: &'static str, name: &TableName) -> Result<u64> {
    let count = answer.text_at(0, 0).and_then(|text| text.parse().ok());
    let (Some(count), Some(sum)) = (count, answer.text_at(0, 1)) else {
        return Err(Error::unexpected(format!("the {role} did not count the rows of {name}")));
    };
    match unhashable_rows(&sum) {
        0 => Ok(count),
        rows => Err(Error::Unhashable { role, table: name.to_string(), rows }),
    }
}

/// How many rows of a range each side has, and whether they are the same.
struct Counts {
    source_rows: u64,
    replica_rows: u64,
    are_alike: bool,
}

/// Hashes a range on both sides at once.
fn hash(source: &mut Connection, replica: &mut Connection, task: &Task<'_>, range: &Range) -> Result<Counts> {
    let failed = |error| table_error(task.name, error);
    let sql = range_hash_sql(task.name, task.table, range) + LET_GO;
    source.send_query(sql.as_bytes()).map_err(failed)?;
    replica.send_query(sql.as_bytes()).map_err(failed)?;
    let source_hash = source.receive_rows().map_err(failed)?;
    let replica_hash = replica.receive_rows().map_err(failed)?;
    Ok(Counts {
        source_rows: counted(&source_hash, "source", task.name)?,
        replica_rows: counted(&replica_hash, "replica", task.name)?,
        are_alike: source_hash.rows == replica_hash.rows,
    })
}

/// The rows behind a differing range, in key order.
#[derive(Default)]
struct Differences {
    rows: u64,
    /// The first of them.
    keys: Vec<(KeyValues, RowDifference)>,
    keys_max: usize,
}

impl Differences {
    /// Finds the rows of a range that differs, in halves if it has too many to be held.
    fn find(
        &mut self,
        source: &mut Connection,
        replica: &mut Connection,
        task: &Task<'_>,
        range: &Range,
        source_rows: u64,
        replica_rows: u64,
    ) -> Result<()> {
        let rows = source_rows.max(replica_rows);
        if rows <= HELD_ROWS_MAX
            && let Some(found) = differing_rows(source, replica, task, range)?
        {
            self.rows += found.len() as u64;
            let room = self.keys_max.saturating_sub(self.keys.len());
            self.keys.extend(found.into_iter().take(room));
            return Ok(());
        }
        let fuller = if source_rows > replica_rows { &mut *source } else { &mut *replica };
        let Some(middle) = middle(fuller, task, range, rows)? else {
            // Versions of one row: nothing tells them apart.
            self.rows += source_rows.abs_diff(replica_rows).max(1);
            return Ok(());
        };
        let lower = Range { after: range.after.clone(), up_to: Some(middle.clone()) };
        let upper = Range { after: Some(middle), up_to: range.up_to.clone() };
        for half in [lower, upper] {
            let Counts { source_rows, replica_rows, are_alike } = hash(source, replica, task, &half)?;
            if !are_alike {
                self.find(source, replica, task, &half, source_rows, replica_rows)?;
            }
        }
        Ok(())
    }
}

/// The key in the middle of a range that has so many rows in this session's snapshot; `None` if the range cannot be cut there.
fn middle(connection: &mut Connection, task: &Task<'_>, range: &Range, rows: u64) -> Result<Option<KeyValues>> {
    let Some(sql) = boundary_sql(task.name, task.table, range.after.as_ref(), rows / 2) else { return Ok(None) };
    let found = connection.query(&(sql + LET_GO)).map_err(|error| table_error(task.name, error))?;
    let middle = found.rows.into_iter().next().map(|row| row.into_iter().map(Option::unwrap_or_default).collect());
    Ok(middle.filter(|key| rows > 1 && Some(key) != range.up_to.as_ref()))
}

/// Finds the rows behind a differing range, in key order. Holds the source's keys of the range; rows that are only on the
/// replica are not held before they are known to differ. `None` if they are too large to be held.
fn differing_rows(
    source: &mut Connection,
    replica: &mut Connection,
    task: &Task<'_>,
    range: &Range,
) -> Result<Option<Vec<(KeyValues, RowDifference)>>> {
    let sql = row_hashes_sql(task.name, task.table, range) + LET_GO;
    let mut held_bytes = 0;
    // A system-versioned table has several rows with one key.
    let mut on_source: HashMap<KeyValues, Vec<Vec<u8>>> = HashMap::new();
    each_row_hash(source, &sql, task, &mut held_bytes, |key, hash| on_source.entry(key).or_default().push(hash))?;
    let mut differences = Vec::new();
    each_row_hash(replica, &sql, task, &mut held_bytes, |key, hash| {
        let Some(hashes) = on_source.get_mut(&key) else {
            differences.push((key, RowDifference::MissingOnSource));
            return;
        };
        let same = hashes.iter().position(|other| *other == hash);
        if same.is_none() {
            differences.push((key.clone(), RowDifference::Contents));
        }
        hashes.swap_remove(same.unwrap_or(0));
        if hashes.is_empty() {
            on_source.remove(&key);
        }
    })?;
    if held_bytes > HELD_BYTES_MAX {
        return Ok(None);
    }
    for (key, hashes) in on_source {
        differences.extend(hashes.iter().map(|_| (key.clone(), RowDifference::MissingOnReplica)));
    }
    differences.sort_by(|(left, _), (right, _)| compare_keys(left, right));
    Ok(Some(differences))
}

/// Shows each row's key and hash, until those shown are too large to be held.
fn each_row_hash(
    connection: &mut Connection,
    sql: &str,
    task: &Task<'_>,
    held_bytes: &mut usize,
    mut see: impl FnMut(KeyValues, Vec<u8>),
) -> Result<()> {
    let outcome = connection.for_each_row(sql, |row| {
        let mut values: KeyValues = row.iter().map(|value| value.unwrap_or_default().to_vec()).collect();
        *held_bytes += HELD_ROW_OVERHEAD_BYTES + values.iter().map(Vec::len).sum::<usize>();
        if *held_bytes > HELD_BYTES_MAX {
            return ControlFlow::Break(());
        }
        if let Some(hash) = values.pop() {
            see(values, hash);
        }
        ControlFlow::Continue(())
    });
    outcome.map_err(|error| table_error(task.name, error))?;
    Ok(())
}

/// For people: numbers by value, everything else by bytes.
fn compare_keys(left: &KeyValues, right: &KeyValues) -> Ordering {
    let number = |value: &[u8]| std::str::from_utf8(value).ok().and_then(|text| text.parse::<f64>().ok());
    let compare_values = |(left, right): (&Vec<u8>, &Vec<u8>)| match (number(left), number(right)) {
        (Some(left_number), Some(right_number)) => left_number.total_cmp(&right_number).then_with(|| left.cmp(right)),
        _ => left.cmp(right),
    };
    left.iter().zip(right).map(compare_values).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn reports(source: &Catalog, replica: &Catalog, mut found: HashMap<TableName, Found>) -> Vec<TableReport> {
    let mut names: Vec<&TableName> = source.keys().chain(replica.keys()).collect();
    names.sort();
    names.dedup();
    let mut reports = Vec::new();
    for name in names {
        let found = found.remove(name).unwrap_or_default();
        let (source_rows, replica_rows) = (found.source_rows, found.replica_rows);
        let (verdict, is_in_snapshot, own_columns) = match (source.get(name), replica.get(name)) {
            (Some(ours), Some(theirs)) => {
                let differences = column_differences(ours, theirs);
                let verdict = match differences.is_empty() {
                    true => row_verdict(ours, found),
                    false => Verdict::ColumnsDiffer { differences },
                };
                let own = own_columns(ours, theirs).into_iter().map(str::to_owned).collect();
                (verdict, ours.is_transactional && theirs.is_transactional, own)
            }
            (Some(ours), None) => (Verdict::MissingOnReplica, ours.is_transactional, vec![]),
            (None, theirs) => (Verdict::MissingOnSource, theirs.is_some_and(|table| table.is_transactional), vec![]),
        };
        let TableName { schema, table } = name.clone();
        reports.push(TableReport { schema, table, verdict, own_columns, source_rows, replica_rows, is_in_snapshot });
    }
    reports
}

fn row_verdict(table: &Table, found: Found) -> Verdict {
    if found.ranges.is_empty() {
        return Verdict::Identical;
    }
    let mut differences = RowDifferences { rows: found.rows_differ, ..RowDifferences::default() };
    let mut next_ordinal = None;
    for (ordinal, differing) in found.ranges {
        let show = |key: &Option<KeyValues>| key.as_ref().map(|key| show_key(table, key));
        match differences.ranges.last_mut() {
            // Neighbouring ranges are shown as one.
            Some(last) if next_ordinal == Some(ordinal) => {
                last.up_to = show(&differing.range.up_to);
                last.source_rows += differing.source_rows;
                last.replica_rows += differing.replica_rows;
            }
            _ => differences.ranges.push(KeyRange {
                after: show(&differing.range.after),
                up_to: show(&differing.range.up_to),
                source_rows: differing.source_rows,
                replica_rows: differing.replica_rows,
            }),
        }
        differences.keys.extend(differing.keys);
        next_ordinal = Some(ordinal + 1);
    }
    Verdict::RowsDiffer(differences)
}
