//! Captured workloads: logs in files, tables of a server, and timed statements.

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection, Vendor};

use crate::binlog::Binlogs;
use crate::error::{Error, Result};
use crate::general_log::{Commands, GeneralLog};
use crate::halt::Halt;
use crate::lines::{Lines, number_of_seconds, seconds_of};
use crate::recorded::{Extent, Recorded, Schema};
use crate::replay::{Place, Sharing};
use crate::slow_log::SlowLog;
use crate::source::{Source, is_read_once};

/// What a captured workload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InputFormat {
    /// As its first lines say.
    #[default]
    Auto,
    /// A general log.
    GeneralLog,
    /// A slow log.
    SlowLog,
    /// Timed statements: CSV with a header that names `time`, `statement`, and perhaps `session` and `schema`.
    Csv,
    /// An archive, or any directory of binlogs: the statements that it has the text of.
    Binlog,
}

/// Where a server keeps what it logs in tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTable {
    /// `mysql.general_log`.
    General,
    /// `mysql.slow_log`.
    Slow,
    /// `performance_schema.events_statements_history_long`.
    History,
}

/// Steps, in the order in which they were recorded.
pub(crate) type Steps = Box<dyn Iterator<Item = Result<Recorded>> + Send>;

/// Opens an input for the first of its readers.
///
/// # Errors
/// As [`open_again`]; [`Error::Nothing`] if it has several readers, and can be read only once.
pub(crate) fn open_first(place: &Place, sharing: Sharing, halt: &Halt) -> Result<Steps> {
    match (place, sharing) {
        (Place::File(path, _), Sharing::Each(readers)) if readers > 1 && is_read_once(path) => {
            let why = format!(
                "it can be read only once, and each of {readers} connections needs all of it: copy it into a file, or leave --each out"
            );
            Err(Error::Nothing { input: path.display().to_string(), why })
        }
        _ => open_again(place, halt),
    }
}

/// Opens an input. What is not there yet ends when the replay is over.
///
/// # Errors
/// [`Error::File`]; [`Error::Nothing`] if it is no log, or if a table is empty; any error of a server.
pub(crate) fn open_again(place: &Place, halt: &Halt) -> Result<Steps> {
    match place {
        Place::File(path, format) => open(path, *format, halt),
        Place::Table(server, table) => open_table(server, *table),
    }
}

fn open(path: &Path, format: InputFormat, halt: &Halt) -> Result<Steps> {
    if format == InputFormat::Binlog || format == InputFormat::Auto && path.is_dir() {
        return Ok(Box::new(Binlogs::open(path)?));
    }
    let source = Source::open(path, halt)?;
    let (format, source) = match format {
        InputFormat::Auto => recognize(source)?,
        format => (format, source),
    };
    match format {
        InputFormat::GeneralLog => Ok(Box::new(GeneralLog::new(Lines::new(source)))),
        InputFormat::SlowLog => Ok(Box::new(SlowLog::new(Lines::new(source)))),
        _ => csv_steps(source),
    }
}

/// Looks at the first lines, which the source then has again.
fn recognize(mut source: Source) -> Result<(InputFormat, Source)> {
    const LINES_MAX: usize = 50;
    const LINE_BYTES_MAX: u64 = 1 << 20;
    let mut seen = Vec::new();
    let mut found = None;
    for number in 0..LINES_MAX {
        let start = seen.len();
        let mut limited = Read::by_ref(&mut source.reader).take(LINE_BYTES_MAX);
        let read = limited.read_until(b'\n', &mut seen).map_err(|error| Error::file(&source.path, error))?;
        found = format_of(number, &seen[start..]);
        if read == 0 || found.is_some() {
            break;
        }
    }
    let why = "it is neither a general log, nor a slow log, nor a directory of binlogs, nor CSV with the columns time and statement; say --format if it is";
    match found {
        Some(format) => Ok((format, source.put_back(seen))),
        None => Err(Error::Nothing { input: source.path.display().to_string(), why: why.to_owned() }),
    }
}

fn format_of(number: usize, line: &[u8]) -> Option<InputFormat> {
    const COMMANDS: [&str; 6] = ["\tQuery\t", "\tConnect\t", " Query\t", " Connect\t", " Execute\t", " Prepare\t"];
    let text = String::from_utf8_lossy(&line[..line.len().min(300)]).into_owned();
    let header = text.to_lowercase();
    match () {
        () if text.starts_with("# Time: ") || text.starts_with("# User@Host: ") => Some(InputFormat::SlowLog),
        () if number == 0 && ["statement", "time", ","].iter().all(|part| header.contains(part)) => {
            Some(InputFormat::Csv)
        }
        () if COMMANDS.iter().any(|word| text.contains(word)) => Some(InputFormat::GeneralLog),
        () => None,
    }
}

fn csv_steps(source: Source) -> Result<Steps> {
    let path: PathBuf = source.path;
    let wrong = |line: u64, why: String| Error::Log { path: path.clone(), line, why };
    let mut reader = csv::Reader::from_reader(source.reader);
    let header = reader.headers().map_err(|error| wrong(1, error.to_string()))?.clone();
    let column = |name: &str| header.iter().position(|found| found.eq_ignore_ascii_case(name));
    let (Some(time), Some(statement)) = (column("time"), column("statement")) else {
        return Err(wrong(1, "the header names no columns time and statement".to_owned()));
    };
    let (session, schema) = (column("session"), column("schema"));
    Ok(Box::new(reader.into_byte_records().filter_map(move |record| {
        let wrong = |line: u64, why: String| Some(Err(Error::Log { path: path.clone(), line, why }));
        let record = match record {
            Ok(record) => record,
            Err(error) => return wrong(error.position().map_or(0, csv::Position::line), error.to_string()),
        };
        let line = record.position().map_or(0, csv::Position::line);
        let text = |column: Option<usize>| column.and_then(|column| record.get(column)).map(String::from_utf8_lossy);
        let time = text(Some(time)).unwrap_or_default();
        let Some(at) = number_of_seconds(&time).or_else(|| seconds_of(&time)) else {
            return wrong(line, format!("{time:?} is no time"));
        };
        let session = text(session).map_or(Ok(0), |text| text.trim().parse::<u64>());
        let Ok(session) = session else { return wrong(line, "the session is a number".to_owned()) };
        let schema = text(schema).map(|text| text.into_owned()).filter(|text| !text.is_empty()).map(Schema::of);
        Recorded::statement(at, session, schema, record.get(statement).unwrap_or_default()).map(Ok)
    })))
}

/// Reads a table of a server's log, all of it into memory.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn open_table(server: &Endpoint, table: LogTable) -> Result<Steps> {
    let mut connection = Connection::connect(server, &ConnectOptions::new("captured"))?;
    let sql = match table {
        LogTable::General => {
            "SELECT CAST(event_time AS CHAR), thread_id, command_type, argument, NULL FROM mysql.general_log ORDER BY event_time"
        }
        LogTable::Slow => match connection.server_version().vendor {
            Vendor::MariaDb => {
                "SELECT CAST(start_time AS CHAR), thread_id, 'Query', sql_text, db FROM mysql.slow_log ORDER BY start_time"
            }
            // Its start_time is when it ended.
            Vendor::MySql => {
                "SELECT CAST(SUBTIME(start_time, query_time) AS CHAR), thread_id, 'Query', sql_text, db FROM mysql.slow_log \
                 ORDER BY SUBTIME(start_time, query_time)"
            }
        },
        LogTable::History => {
            "SELECT TIMER_START / 1e12, THREAD_ID, 'Query', SQL_TEXT, CURRENT_SCHEMA \
             FROM performance_schema.events_statements_history_long WHERE SQL_TEXT IS NOT NULL \
             AND (NESTING_EVENT_TYPE IS NULL OR NESTING_EVENT_TYPE <> 'STATEMENT') AND EVENT_NAME <> 'statement/com/Prepare' \
             ORDER BY TIMER_START"
        }
    };
    let has_schema = table != LogTable::General;
    let text_bytes_max = match table {
        LogTable::History => connection.query("SELECT @@GLOBAL.performance_schema_max_sql_text_length")?.single_text(),
        LogTable::General | LogTable::Slow => None,
    };
    let text_bytes_max = text_bytes_max.and_then(|text| text.parse().ok()).unwrap_or(usize::MAX);
    // It may write this behind what it has cut.
    let is_cut = |text: &[u8]| text.len() >= text_bytes_max || table == LogTable::History && text.ends_with(b"...");
    let mut steps = Vec::new();
    let mut wrong = None;
    let mut commands = Commands::default();
    connection.for_each_row(sql, |row| {
        let text = |column| row.get(column).map(String::from_utf8_lossy);
        let time = text(0).unwrap_or_default();
        let Some(at) = number_of_seconds(&time).or_else(|| seconds_of(&time)) else {
            wrong.get_or_insert(time.into_owned());
            return std::ops::ControlFlow::Break(());
        };
        let session = text(1).and_then(|text| text.parse().ok()).unwrap_or_default();
        let statement = row.get(3).unwrap_or_default();
        let step = commands.step(at, session, &text(2).unwrap_or_default(), statement);
        let schema = has_schema.then(|| Schema::of(text(4).unwrap_or_default()));
        let extent = if is_cut(statement) { Extent::Cut } else { Extent::Whole };
        steps.extend(step.map(|step| Recorded { schema: schema.or(step.schema), extent, ..step }));
        std::ops::ControlFlow::Continue(())
    })?;
    if let Some(time) = wrong {
        return Err(Error::Nothing { input: format!("{table:?}"), why: format!("{time:?} is no time") });
    }
    if steps.is_empty() {
        let why = "the table is empty: logging into tables is SET GLOBAL log_output = 'TABLE', and general_log or slow_query_log = ON; the \
                   history needs its consumer";
        return Err(Error::Nothing { input: format!("{table:?}"), why: why.to_owned() });
    }
    Ok(Box::new(steps.into_iter().map(Ok)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::recorded::What;

    fn steps(path: &Path) -> Vec<Result<Recorded>> {
        open(path, InputFormat::Auto, &Halt::new(&Arc::default())).unwrap().collect()
    }

    #[test]
    fn timed_statements_are_csv() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("timed.csv");
        let text =
            "time,session,statement\n0.5,1,\"SELECT 1,\n2;\"\n1,2,SELECT 3\nsoon,1,x\ninf,1,x\n1e300,1,x\nnan,1,x\n";
        std::fs::write(&path, text).unwrap();
        let steps = steps(&path);
        let first = steps[0].as_ref().unwrap();
        assert_eq!((first.at, first.session, &first.what), (0.5, 1, &What::Statement(b"SELECT 1,\n2".to_vec())));
        for (step, line, time) in [(2, 5, "soon"), (3, 6, "inf"), (4, 7, "1e300"), (5, 8, "nan")] {
            let error = steps[step].as_ref().unwrap_err().to_string();
            assert!(error.ends_with(&format!("timed.csv, line {line}: {time:?} is no time")), "{error}");
        }
    }

    /// A pipe is read once, from its beginning, though its first lines are looked at.
    #[test]
    fn a_pipe_is_read_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let place = Place::File(path.clone(), InputFormat::Auto);
        let refused = open_first(&place, Sharing::Each(2), &Halt::new(&Arc::default())).err().unwrap();
        assert!(refused.to_string().contains("it can be read only once"), "{refused}");
        let writer = std::thread::spawn({
            let path = path.clone();
            move || std::fs::write(path, "time,statement\n0,SELECT 1\n1,SELECT 2\n").unwrap()
        });
        let steps = steps(&path);
        writer.join().unwrap();
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[1].as_ref().unwrap().what, What::Statement(b"SELECT 2".to_vec()));
    }

    #[test]
    fn a_pipe_without_a_writer_ends_with_the_replay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let stop = Arc::new(AtomicBool::new(false));
        let halt = Halt::new(&stop);
        let waiting = std::thread::spawn(move || open(&path, InputFormat::Csv, &halt).is_err());
        std::thread::sleep(std::time::Duration::from_millis(150));
        assert!(!waiting.is_finished());
        stop.store(true, Ordering::Relaxed);
        assert!(waiting.join().unwrap(), "it has no header");
    }
}
