//! Compares the tables of a meeting. One thread cuts them into ranges of keys, and each pair of connections hashes
//! ranges on both servers at once. If the hashes of a range differ, the hashes of its rows show which rows differ.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Atomic};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::catalog::{Catalog, Table, TableName, describe_column_differences, own_columns};
use super::digest::{KeyValues, Range, boundary_sql, count_unhashable_rows, range_hash_sql, row_hashes_sql, show_key};
use super::error::{Error, Result};
use super::meet::Meeting;
use super::report::{DifferingKey, KeyRange, RowDifference, RowDifferences, TableReport, Verdict};
use super::snapshot::RELEASE_LOCKS;
use super::{Progress, ProgressSink, VerifyOptions};
use spate_connection::{Connection, ResultSet};

/// Ranges ready per pair of connections: enough that no pair waits for the next boundary.
const RANGES_READY_PER_PAIR: usize = 4;
/// The size limit of a range of wide rows, so that hashing its rows one by one costs little time and memory.
const RANGE_BYTES_TARGET: u64 = 16 * 1024 * 1024;
const RANGE_ROWS_MIN: u64 = 500;
/// Rows of one side in a differing range whose hashes fit in memory. A range with more rows is halved, for example a
/// last range in which only the replica has many rows.
const KEPT_ROWS_MAX: u64 = 100_000;
/// Memory for the keys and hashes of both sides, for each pair of connections.
const KEPT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Memory for a row beside the bytes of its key and its hash.
const KEPT_ROW_OVERHEAD_BYTES: usize = 100;
/// Server errors that mean "the table was altered after the snapshot was taken".
const TABLE_ALTERED_CODES: [u16; 4] = [1412, 1146, 1054, 1932];

/// A range to compare.
struct Task<'a> {
    name: &'a TableName,
    table: &'a Table,
    /// Number of the range within its table, from 0.
    ordinal: u64,
    range: Range,
}

/// The results of a table so far.
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
            replica_catalog.get(*name).is_some_and(|other| describe_column_differences(table, other).is_empty())
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
    Ok(build_reports(source_catalog, replica_catalog, found))
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
                workers
                    .push(scope.spawn(move || self.stop_on_error(|| self.compare_ranges(source, replica, &receiver))));
            }
            drop(receiver);
            let planned = self.stop_on_error(|| self.plan_ranges(control, tables, &sender));
            drop(sender);
            let mut outcome = planned;
            for worker in workers {
                let worked = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                outcome = outcome.and(worked);
            }
            outcome
        })
    }

    /// Runs `work`; if it fails, stops the other threads.
    fn stop_on_error(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let outcome = work();
        if outcome.is_err() {
            self.is_stopped.store(true, Atomic::Relaxed);
        }
        outcome
    }

    fn plan_ranges<'t>(
        &self,
        control: &mut Connection,
        tables: &[(&'t TableName, &'t Table)],
        sender: &Sender<Task<'t>>,
    ) -> Result<()> {
        for (name, table) in tables {
            let rows = self.rows_per_range(name);
            let mut after: Option<KeyValues> = None;
            for ordinal in 0.. {
                // The boundaries come from the table as it is now, not from the snapshot: any boundary is correct if
                // both sides use the same.
                let up_to = match boundary_sql(name, table, after.as_ref(), rows) {
                    Some(sql) => control.query(&sql).map_err(|error| table_error(name, error))?.rows.into_iter().next(),
                    None => None,
                };
                let up_to = up_to.map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<KeyValues>());
                let is_last = up_to.is_none();
                let range = Range { after: after.take(), up_to: up_to.clone() };
                if sender.send(Task { name, table, ordinal, range }).is_err() {
                    // All workers have stopped, and return the error.
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

    fn compare_ranges(
        &self,
        source: &mut Connection,
        replica: &mut Connection,
        tasks: &Receiver<Task<'_>>,
    ) -> Result<()> {
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
        let Counts { source_rows, replica_rows, are_alike } = hash_range(source, replica, &task, &task.range)?;
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

/// Parses the number of rows of a range from its hash's result.
///
/// # Errors
/// [`Error::Unhashable`] if the server could not hash all of them.
fn parse_row_count(answer: &ResultSet, role: &'static str, name: &TableName) -> Result<u64> {
    let count = answer.text_at(0, 0).and_then(|text| text.parse().ok());
    let (Some(count), Some(sum)) = (count, answer.text_at(0, 1)) else {
        return Err(Error::unexpected(format!("the {role} did not count the rows of {name}")));
    };
    match count_unhashable_rows(&sum) {
        0 => Ok(count),
        rows => Err(Error::Unhashable { role, table: name.to_string(), rows }),
    }
}

/// The number of rows of a range on each side, and whether their hashes are equal.
struct Counts {
    source_rows: u64,
    replica_rows: u64,
    are_alike: bool,
}

/// Hashes a range on both sides at once.
fn hash_range(source: &mut Connection, replica: &mut Connection, task: &Task<'_>, range: &Range) -> Result<Counts> {
    let failed = |error| table_error(task.name, error);
    let sql = range_hash_sql(task.name, task.table, range) + RELEASE_LOCKS;
    source.send_query(sql.as_bytes()).map_err(failed)?;
    replica.send_query(sql.as_bytes()).map_err(failed)?;
    let source_hash = source.receive_rows().map_err(failed)?;
    let replica_hash = replica.receive_rows().map_err(failed)?;
    Ok(Counts {
        source_rows: parse_row_count(&source_hash, "source", task.name)?,
        replica_rows: parse_row_count(&replica_hash, "replica", task.name)?,
        are_alike: source_hash.rows == replica_hash.rows,
    })
}

/// The differing rows of a range, in key order.
#[derive(Default)]
struct Differences {
    rows: u64,
    /// The keys of the first of them, at most `keys_max`.
    keys: Vec<(KeyValues, RowDifference)>,
    keys_max: usize,
}

impl Differences {
    /// Finds the differing rows of a range, and halves a range that has too many rows for memory.
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
        if rows <= KEPT_ROWS_MAX
            && let Some(found) = find_differing_rows(source, replica, task, range)?
        {
            self.rows += found.len() as u64;
            let room = self.keys_max.saturating_sub(self.keys.len());
            self.keys.extend(found.into_iter().take(room));
            return Ok(());
        }
        let fuller = if source_rows > replica_rows { &mut *source } else { &mut *replica };
        let Some(middle) = find_middle(fuller, task, range, rows)? else {
            // The rows are versions of one row, all with the same key.
            self.rows += source_rows.abs_diff(replica_rows).max(1);
            return Ok(());
        };
        let lower = Range { after: range.after.clone(), up_to: Some(middle.clone()) };
        let upper = Range { after: Some(middle), up_to: range.up_to.clone() };
        for half in [lower, upper] {
            let Counts { source_rows, replica_rows, are_alike } = hash_range(source, replica, task, &half)?;
            if !are_alike {
                self.find(source, replica, task, &half, source_rows, replica_rows)?;
            }
        }
        Ok(())
    }
}

/// Finds the key in the middle of a range that has `rows` rows in this session's snapshot; `None` if the range cannot
/// be halved.
fn find_middle(connection: &mut Connection, task: &Task<'_>, range: &Range, rows: u64) -> Result<Option<KeyValues>> {
    let Some(sql) = boundary_sql(task.name, task.table, range.after.as_ref(), rows / 2) else { return Ok(None) };
    let found = connection.query(&(sql + RELEASE_LOCKS)).map_err(|error| table_error(task.name, error))?;
    let middle = found.rows.into_iter().next().map(|row| row.into_iter().map(Option::unwrap_or_default).collect());
    Ok(middle.filter(|key| rows > 1 && Some(key) != range.up_to.as_ref()))
}

/// Finds the differing rows of a range, in key order; `None` if they are too large for memory.
///
/// Keeps the source's keys of the range in memory, but of the replica's only those that differ.
fn find_differing_rows(
    source: &mut Connection,
    replica: &mut Connection,
    task: &Task<'_>,
    range: &Range,
) -> Result<Option<Vec<(KeyValues, RowDifference)>>> {
    let sql = row_hashes_sql(task.name, task.table, range) + RELEASE_LOCKS;
    let mut kept_bytes = 0;
    // A system-versioned table has several rows with one key.
    let mut on_source: HashMap<KeyValues, Vec<Vec<u8>>> = HashMap::new();
    for_each_row_hash(source, &sql, task, &mut kept_bytes, |key, hash| on_source.entry(key).or_default().push(hash))?;
    let mut differences = Vec::new();
    for_each_row_hash(replica, &sql, task, &mut kept_bytes, |key, hash| {
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
    if kept_bytes > KEPT_BYTES_MAX {
        return Ok(None);
    }
    for (key, hashes) in on_source {
        differences.extend(hashes.iter().map(|_| (key.clone(), RowDifference::MissingOnReplica)));
    }
    differences.sort_by(|(left, _), (right, _)| compare_keys(left, right));
    Ok(Some(differences))
}

/// Calls `see` with each row's key and hash, until they are too large for memory.
fn for_each_row_hash(
    connection: &mut Connection,
    sql: &str,
    task: &Task<'_>,
    kept_bytes: &mut usize,
    mut see: impl FnMut(KeyValues, Vec<u8>),
) -> Result<()> {
    let outcome = connection.for_each_row(sql, |row| {
        let mut values: KeyValues = row.iter().map(|value| value.unwrap_or_default().to_vec()).collect();
        *kept_bytes += KEPT_ROW_OVERHEAD_BYTES + values.iter().map(Vec::len).sum::<usize>();
        if *kept_bytes > KEPT_BYTES_MAX {
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

/// Orders keys as people expect: numbers by value, all other values by bytes.
fn compare_keys(left: &KeyValues, right: &KeyValues) -> Ordering {
    let number = |value: &[u8]| std::str::from_utf8(value).ok().and_then(|text| text.parse::<f64>().ok());
    let compare_values = |(left, right): (&Vec<u8>, &Vec<u8>)| match (number(left), number(right)) {
        (Some(left_number), Some(right_number)) => left_number.total_cmp(&right_number).then_with(|| left.cmp(right)),
        _ => left.cmp(right),
    };
    left.iter().zip(right).map(compare_values).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn build_reports(source: &Catalog, replica: &Catalog, mut found: HashMap<TableName, Found>) -> Vec<TableReport> {
    let mut names: Vec<&TableName> = source.keys().chain(replica.keys()).collect();
    names.sort();
    names.dedup();
    let mut reports = Vec::new();
    for name in names {
        let found = found.remove(name).unwrap_or_default();
        let (source_rows, replica_rows) = (found.source_rows, found.replica_rows);
        let (verdict, is_in_snapshot, own_columns) = match (source.get(name), replica.get(name)) {
            (Some(ours), Some(theirs)) => {
                let differences = describe_column_differences(ours, theirs);
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
