//! Captured workloads: logs in files, tables of a server, and timed statements.

use std::path::{Path, PathBuf};

use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection};

use crate::binlog::Binlogs;
use crate::error::{Error, Result};
use crate::general_log::{Commands, GeneralLog};
use crate::lines::{Lines, seconds_of};
use crate::recorded::Recorded;
use crate::slow_log::SlowLog;

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

/// Opens a file.
///
/// # Errors
/// [`Error::File`]; [`Error::Nothing`] if it is no log.
pub(crate) fn open(path: &Path, format: InputFormat) -> Result<Steps> {
    match format {
        InputFormat::GeneralLog => Ok(Box::new(GeneralLog::new(Lines::open(path)?))),
        InputFormat::SlowLog => Ok(Box::new(SlowLog::new(Lines::open(path)?))),
        InputFormat::Csv => csv_steps(path),
        InputFormat::Binlog => Ok(Box::new(Binlogs::open(path)?)),
        InputFormat::Auto if path.is_dir() => open(path, InputFormat::Binlog),
        InputFormat::Auto => {
            let format = recognize(path)?;
            open(path, format)
        }
    }
}

/// Looks at the first lines of a file.
fn recognize(path: &Path) -> Result<InputFormat> {
    const LINES_MAX: usize = 50;
    let unknown = |why: &str| Error::Nothing { input: path.display().to_string(), why: why.to_owned() };
    if path.as_os_str() == "-" {
        return Err(unknown("say --format: standard input cannot be looked at beforehand"));
    }
    let mut lines = Lines::open(path)?;
    for number in 0..LINES_MAX {
        let Some(line) = lines.next()? else { break };
        let text = String::from_utf8_lossy(&line[..line.len().min(300)]).into_owned();
        if text.starts_with("# Time: ") || text.starts_with("# User@Host: ") {
            return Ok(InputFormat::SlowLog);
        }
        let header = text.to_lowercase();
        if number == 0 && header.contains("statement") && header.contains("time") && header.contains(',') {
            return Ok(InputFormat::Csv);
        }
        if ["\tQuery\t", "\tConnect\t", " Query\t", " Connect\t", " Execute\t", " Prepare\t"]
            .iter()
            .any(|word| text.contains(word))
        {
            return Ok(InputFormat::GeneralLog);
        }
    }
    Err(unknown(
        "it is neither a general log, nor a slow log, nor a directory of binlogs, nor CSV with the columns time and statement; say --format if it is",
    ))
}

fn csv_steps(path: &Path) -> Result<Steps> {
    let wrong = |line: u64, why: String| Error::Log { path: path.to_owned(), line, why };
    let mut reader = csv::Reader::from_reader(ReadLines::open(path)?);
    let header = reader.headers().map_err(|error| wrong(1, error.to_string()))?.clone();
    let column = |name: &str| header.iter().position(|found| found.eq_ignore_ascii_case(name));
    let (Some(time), Some(statement)) = (column("time"), column("statement")) else {
        return Err(wrong(1, "the header names no columns time and statement".to_owned()));
    };
    let (session, schema) = (column("session"), column("schema"));
    let path: PathBuf = path.to_owned();
    Ok(Box::new(reader.into_byte_records().filter_map(move |record| {
        let wrong = |line: u64, why: String| Some(Err(Error::Log { path: path.clone(), line, why }));
        let record = match record {
            Ok(record) => record,
            Err(error) => return wrong(error.position().map_or(0, csv::Position::line), error.to_string()),
        };
        let line = record.position().map_or(0, csv::Position::line);
        let text = |column: Option<usize>| column.and_then(|column| record.get(column)).map(String::from_utf8_lossy);
        let time = text(Some(time)).unwrap_or_default();
        let Some(at) = time.trim().parse::<f64>().ok().or_else(|| seconds_of(&time)) else {
            return wrong(line, format!("{time:?} is no time"));
        };
        let session = text(session).map_or(Ok(0), |text| text.trim().parse::<u64>());
        let Ok(session) = session else { return wrong(line, "the session is a number".to_owned()) };
        let schema = text(schema).map(|text| text.into_owned()).filter(|text| !text.is_empty());
        Recorded::statement(at, session, schema, record.get(statement).unwrap_or_default()).map(Ok)
    })))
}

/// A file, or standard input, as bytes.
struct ReadLines(Box<dyn std::io::Read + Send>);

impl ReadLines {
    fn open(path: &Path) -> Result<ReadLines> {
        Ok(ReadLines(match path.as_os_str() == "-" {
            true => Box::new(std::io::stdin()),
            false => Box::new(std::fs::File::open(path).map_err(|error| Error::file(path, error))?),
        }))
    }
}

impl std::io::Read for ReadLines {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
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
        LogTable::Slow => {
            "SELECT CAST(start_time AS CHAR), thread_id, 'Query', sql_text, db FROM mysql.slow_log ORDER BY start_time"
        }
        LogTable::History => {
            "SELECT TIMER_START / 1e12, THREAD_ID, 'Query', SQL_TEXT, CURRENT_SCHEMA \
             FROM performance_schema.events_statements_history_long WHERE SQL_TEXT IS NOT NULL ORDER BY TIMER_START"
        }
    };
    let mut steps = Vec::new();
    let mut commands = Commands::default();
    connection.for_each_row(sql, |row| {
        let text = |column| row.get(column).map(String::from_utf8_lossy);
        let time = text(0).unwrap_or_default();
        let at = time.parse().ok().or_else(|| seconds_of(&time)).unwrap_or_default();
        let session = text(1).and_then(|text| text.parse().ok()).unwrap_or_default();
        let step = commands.step(at, session, &text(2).unwrap_or_default(), row.get(3).unwrap_or_default());
        let schema = text(4).map(|text| text.into_owned()).filter(|text| !text.is_empty());
        steps.extend(step.map(|step| Recorded { schema: schema.or(step.schema), ..step }));
        std::ops::ControlFlow::Continue(())
    })?;
    if steps.is_empty() {
        let why = "the table is empty: logging into tables is SET GLOBAL log_output = 'TABLE', and general_log or slow_query_log = ON; the \
                   history needs its consumer";
        return Err(Error::Nothing { input: format!("{table:?}"), why: why.to_owned() });
    }
    Ok(Box::new(steps.into_iter().map(Ok)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::What;

    #[test]
    fn timed_statements_are_csv() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("timed.csv");
        std::fs::write(&path, "time,session,statement\n0.5,1,\"SELECT 1,\n2;\"\n1,2,SELECT 3\nsoon,1,x\n").unwrap();
        assert_eq!(recognize(&path).unwrap(), InputFormat::Csv);
        let steps: Vec<_> = open(&path, InputFormat::Auto).unwrap().collect();
        let first = steps[0].as_ref().unwrap();
        assert_eq!((first.at, first.session, &first.what), (0.5, 1, &What::Statement(b"SELECT 1,\n2".to_vec())));
        assert!(steps[2].as_ref().unwrap_err().to_string().contains("line 5: \"soon\" is no time"));
    }
}
