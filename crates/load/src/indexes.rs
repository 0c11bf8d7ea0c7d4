//! Whether the tables that a load makes get their indexes before the rows or after them.
//!
//! An index that is there is kept up with each row, at a random place; one that is made afterwards is sorted and written in one go, but all rows
//! are read for it once more. Unique keys are always there: they find duplicates.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use spate_connection::Connection;
use xxhash_rust::xxh3::xxh3_64;

use crate::definition::{Shape, index_name, is_one_index};
use crate::error::{Error, Result};
use crate::loader::{Door, Shared, connect, connect_control, convert, lock};
use crate::manifest;
use crate::pieces::Piece;
use crate::refused;
use crate::rows::{Converter, Group, Rows};
use crate::tables::{Name, Table, Tables, show_create};

/// When a new table's indexes are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IndexStrategy {
    /// With the table.
    Before,
    /// When all rows are in it.
    After,
    /// As a sample, and the sizes, suggest.
    #[default]
    Auto,
}

/// What was chosen.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct IndexChoice {
    /// True if indexes are made when all rows are loaded.
    pub after: bool,
    /// Why.
    pub why: String,
}

/// The rows of a sample: enough to take some tenths of a second.
const SAMPLE_ROWS: usize = 20_000;
/// With fewer rows, nothing would be measured.
const SAMPLE_ROWS_MIN: usize = 2_000;
/// Making indexes afterwards must save so much of the time: the sample's indexes are small, and it errs.
const WORTH: f64 = 0.9;

/// Chooses by the first rows of a load, before any table is made for them.
///
/// # Errors
/// Any error of the server.
pub(crate) fn choose(
    shared: &Shared<'_>,
    converter: &mut Converter<'_>,
    piece: &Piece,
    input_bytes: Option<u64>,
) -> Result<IndexChoice> {
    let said = |after: bool, why: &str| Ok(IndexChoice { after, why: why.to_owned() });
    match shared.options.indexes {
        IndexStrategy::Before => return said(false, "as it was said"),
        IndexStrategy::After => return said(true, "as it was said"),
        IndexStrategy::Auto => {}
    }
    if !manifest::owed_indexes(&mut lock(&shared.control), &shared.options.job)?.is_empty() {
        return said(true, "an earlier run, which was interrupted, had begun so");
    }
    let tables = Mutex::new(Tables::new(&shared.options.job, true));
    let rows = convert(shared, &tables, converter, piece)?;
    let rules = &shared.options.layout.rules;
    let is_new = |group: &&Group| lock(&tables).known().any(|table| table.name == group.table && table.is_new);
    let largest = rows.groups.iter().filter(is_new).max_by_key(|group| group.rows.len());
    let Some(group) = largest else {
        return said(false, "the tables are there already");
    };
    let Some(template) = rules[group.rule].template.as_deref().and_then(|name| Name::parse(name).ok()) else {
        return said(false, "the tables are there already");
    };
    let definition = show_create(&mut lock(&shared.control), &template)?.unwrap_or_default();
    let indexes = Shape::of(&definition).indexes;
    if indexes.is_empty() {
        return said(false, "the template has no other indexes than unique ones");
    }
    if group.rows.len() < SAMPLE_ROWS_MIN {
        return said(false, "there are too few rows to measure what indexes cost");
    }
    let pool = lock(&shared.control).query("SELECT @@innodb_buffer_pool_size")?.single_text();
    let pool: u64 = pool.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
    let grown =
        input_bytes.map(|bytes| bytes.saturating_mul(rows.text.len() as u64) / (piece.bytes.len() as u64).max(1));
    if let Some(grown) = grown.filter(|grown| *grown > pool / 2) {
        let why = format!(
            "about {} MB of rows outgrow the server's buffer pool of {} MB: indexes that are kept up with each row would be read and \
             written at random places of the disk",
            grown / 1_000_000,
            pool / 1_000_000
        );
        return Ok(IndexChoice { after: true, why });
    }
    // In Spate's own schema, so that they are in nobody's way; whose they are, the load's lock says.
    let hash = xxh3_64(shared.options.job.as_bytes());
    let names = [1, 2]
        .map(|number| Name { schema: manifest::SCHEMA.to_owned(), table: format!("sample_{hash:016x}_{number}") });
    let mut connection = connect(shared.options)?;
    let drop_both = format!("DROP TABLE IF EXISTS {}, {}", names[0].quoted(), names[1].quoted());
    connection.execute_single(drop_both.as_bytes())?;
    let measured = measure(shared, &mut connection, piece, &rows, group, (&template, &indexes), &names);
    let dropped = connection.execute_single(drop_both.as_bytes());
    let (before, plain, made) = match (measured, dropped) {
        (Ok(measured), Ok(_)) => measured,
        (Err(error), _) if !error.is_transient() => {
            return said(false, &format!("the cost of indexes could not be measured: {error}"));
        }
        (measured, dropped) => {
            dropped?;
            measured?
        }
    };
    let after = (plain + made).as_secs_f64() < before.as_secs_f64() * WORTH;
    let why = format!(
        "{} rows took {:.2} s with their indexes, and {:.2} s without, behind which the indexes took {:.2} s",
        group.rows.len().min(SAMPLE_ROWS),
        before.as_secs_f64(),
        plain.as_secs_f64(),
        made.as_secs_f64()
    );
    Ok(IndexChoice { after, why })
}

/// How long a sample takes with indexes; without; and their making afterwards.
fn measure(
    shared: &Shared<'_>,
    connection: &mut Connection,
    piece: &Piece,
    rows: &Rows,
    group: &Group,
    (template, indexes): (&Name, &[String]),
    names: &[Name; 2],
) -> Result<(Duration, Duration, Duration)> {
    let sample = &group.rows[..group.rows.len().min(SAMPLE_ROWS)];
    let mut timed = |name: &Name, has_indexes: bool| -> Result<Duration> {
        let failed = |error: spate_connection::Error| Error::Table {
            table: name.to_string(),
            why: format!("a sample in it: {error}"),
        };
        let mut execute = |sql: String| connection.execute_single(sql.as_bytes()).map(drop).map_err(failed);
        execute(format!("CREATE TABLE {} LIKE {}", name.quoted(), template.quoted()))?;
        if !has_indexes {
            execute(format!("ALTER TABLE {} {}", name.quoted(), drop_all(indexes)))?;
        }
        // Whatever its engine: nobody needs the sample's rows after a failure.
        let table = Table {
            name: name.clone(),
            columns: vec![],
            visible: vec![],
            never_null: vec![],
            key: vec![],
            rolls_back: true,
            is_new: true,
        };
        let door = Door { table: &table, columns: &piece.whole.columns, duplicates: shared.options.duplicates };
        let begun = Instant::now();
        let is_open = shared.local_files.load(Ordering::Relaxed);
        refused::load(connection, &door, &rows.text, sample, is_open)?;
        connection.execute(b"COMMIT")?;
        Ok(begun.elapsed())
    };
    let before = timed(&names[0], true)?;
    let plain = timed(&names[1], false)?;
    let begun = Instant::now();
    connection.execute_single(format!("ALTER TABLE {} {}", names[1].quoted(), add_all(indexes)).as_bytes())?;
    let made = begun.elapsed();
    Ok((before, plain, made))
}

/// The part of an ALTER TABLE that drops these.
pub(crate) fn drop_all(definitions: &[String]) -> String {
    let dropped = definitions.iter().filter_map(|line| index_name(line)).map(|name| format!("DROP KEY {name}"));
    dropped.collect::<Vec<_>>().join(", ")
}

fn add_all(definitions: &[String]) -> String {
    definitions.iter().map(|definition| format!("ADD {definition}")).collect::<Vec<_>>().join(", ")
}

/// Makes all indexes that tables of this load still lack, on several connections. Returns how many tables got some.
///
/// # Errors
/// Any error of the server: what is missing is made by the next run.
pub(crate) fn make_owed(shared: &Shared<'_>, tell: &(dyn Fn(usize, usize) + Sync)) -> Result<usize> {
    let job = &shared.options.job;
    let owed = manifest::owed_indexes(&mut lock(&shared.control), job)?;
    let total = owed.len();
    let queue = Mutex::new(owed);
    let made = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let work = || -> Result<()> {
        let mut connection = connect_control(shared.options)?;
        loop {
            let next = lock(&queue).pop();
            let Some((schema, table, definitions)) = next else { return Ok(()) };
            if failed.load(Ordering::Relaxed) || shared.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            make(&mut connection, &Name { schema: schema.clone(), table: table.clone() }, &definitions)?;
            spate_archive::stopping_point("load-after-indexes");
            manifest::pay_indexes(&mut connection, job, (&schema, &table))?;
            tell(made.fetch_add(1, Ordering::Relaxed) + 1, total);
        }
    };
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..shared.options.connections.min(total))
            .map(|_| {
                scope.spawn(|| {
                    let worked = work();
                    failed.fetch_or(worked.is_err(), Ordering::Relaxed);
                    worked
                })
            })
            .collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    // The first cause, not that others stopped for it.
    let (stopped, others): (Vec<_>, Vec<_>) =
        results.into_iter().filter_map(std::result::Result::err).partition(|error| matches!(error, Error::Stopped));
    match others.into_iter().chain(stopped).next() {
        Some(error) => Err(error),
        None => Ok(total),
    }
}

/// Makes the indexes that a table lacks.
fn make(connection: &mut Connection, name: &Name, definitions: &[String]) -> Result<()> {
    /// An earlier run that was killed may still be making them, on the server: they are there when the statement's turn has come.
    const CODE_DUPLICATE_NAME: u16 = 1061;
    const ATTEMPTS_MAX: usize = 3;
    for attempt in 1.. {
        let Some(present) = show_create(connection, name)? else { return Ok(()) };
        let present: BTreeSet<String> =
            Shape::of(&present).indexes.iter().filter_map(|line| index_name(line)).collect();
        let is_missing = |line: &&String| index_name(line).is_none_or(|name| !present.contains(&name));
        let missing: Vec<String> = definitions.iter().filter(is_missing).cloned().collect();
        if let Some(wrong) = missing.iter().find(|definition| !is_one_index(definition)) {
            let why = format!("spate_load.load_index holds something else than an index for it: {wrong:?}");
            return Err(Error::Table { table: name.to_string(), why });
        }
        if missing.is_empty() {
            return Ok(());
        }
        let sql = format!("ALTER TABLE {} {}", name.quoted(), add_all(&missing));
        match connection.execute_single(sql.as_bytes()) {
            Ok(_) => return Ok(()),
            Err(error) if error.code() == Some(CODE_DUPLICATE_NAME) && attempt < ATTEMPTS_MAX => {}
            Err(error) => {
                let why = format!(
                    "its indexes cannot be made, and its rows are all there: {error}; the same command tries again"
                );
                return Err(Error::Table { table: name.to_string(), why });
            }
        }
    }
    Ok(())
}
