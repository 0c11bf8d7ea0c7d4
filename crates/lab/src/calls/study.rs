//! The study of loading: the same records by the study's own way, by one LOAD DATA a day, and by `spate load`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use comfy_table::Table;
use serde::Serialize;

use super::{CallsPlan, FIELDS, RECORD_BYTES, layout, template, write_records};
use crate::home::{LabHome, create_private_directory};
use crate::sandbox::{Lifetime, Sandbox, pristine_data};
use crate::screen::{Screen, megabytes, table, thousands};
use crate::server_options::{Durability, ServerOptions};
use crate::sql::Session;
use crate::version::ServerBinaries;
use crate::{Error, Result, spate_program};

/// The disk that a way takes at its peak, with the records or the delimited ones, in percent of the records.
const DISK_PERCENT: u64 = 320;
/// The server's memory for rows.
const BUFFER_POOL_MIB: u64 = 1024;
const REDO_LOG_MIB: u64 = 1024;

/// Steps of the study's own way.
pub(super) const ONE_TABLE: &str = "LOAD DATA into one table";
pub(super) const PROCEDURE: &str = "the procedure dispatches it into a table a day";
pub(super) const INDEXES: &str = "indexes";

/// What to do.
#[derive(Debug, Clone)]
pub struct StudyPlan {
    /// The records.
    pub calls: CallsPlan,
    /// Options of `spate load`.
    pub load_options: Vec<String>,
    /// The ways, in their order.
    pub ways: Vec<WayName>,
    /// The study's own way is stopped after so long. `None`: it runs to its end.
    pub limit: Option<Duration>,
}

/// A way to load the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WayName {
    /// The study's own: delimiters, one table for all, a procedure, the indexes
    Staging,
    /// One LOAD DATA a day, of files that somebody has prepared
    ByDay,
    /// spate load
    Spate,
}

/// A step of a way.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// What was done.
    pub what: String,
    /// How long it took.
    pub seconds: f64,
}

/// One way to load all records.
#[derive(Debug, Clone, Serialize)]
pub struct Way {
    /// Which it is.
    #[serde(skip)]
    pub way: WayName,
    /// Its name.
    pub name: String,
    /// Its steps, in order.
    pub steps: Vec<Step>,
    /// All of them together; of a way that was stopped, until then.
    pub seconds: f64,
    /// True if it was stopped at the limit: it takes longer than `seconds`, and its rows are not known.
    pub stopped: bool,
    /// The rows that are in tables.
    pub rows: u64,
    /// A sum over all rows of all tables.
    pub checksum: String,
}

/// The result.
#[derive(Debug, Clone, Serialize)]
pub struct StudyResult {
    /// The server's version.
    pub server: String,
    /// Bytes of the file of records.
    pub bytes: u64,
    /// Records in it.
    pub records: u64,
    /// The ways.
    pub ways: Vec<Way>,
}

impl StudyResult {
    /// True if all ways led to the same rows.
    pub fn all_identical(&self) -> bool {
        let ended: Vec<&Way> = self.ways.iter().filter(|way| !way.stopped).collect();
        ended.windows(2).all(|pair| (pair[0].rows, &pair[0].checksum) == (pair[1].rows, &pair[1].checksum))
    }

    /// For people.
    pub fn to_table(&self) -> Table {
        let spate = self.ways.iter().find(|way| way.way == WayName::Spate).map(|way| way.seconds);
        let mut rows = Vec::new();
        for way in &self.ways {
            for step in &way.steps {
                rows.push(vec![way.name.clone(), step.what.clone(), format!("{:.1}", step.seconds), String::new()]);
            }
            let more = if way.stopped { "> " } else { "" };
            let rate = spate.map_or_else(String::new, |spate| format!("{more}{:.1} × spate load", way.seconds / spate));
            let all =
                if way.stopped { "all: stopped".to_owned() } else { format!("all: {} rows", thousands(way.rows)) };
            rows.push(vec![way.name.clone(), all, format!("{more}{:.1}", way.seconds), rate]);
        }
        table(&["way", "step", "seconds", "ratio"], 2, rows)
    }

    /// What was loaded, and into what.
    pub fn summary(&self) -> String {
        let same = if self.all_identical() { "all tables identical" } else { "THE TABLES DIFFER" };
        format!("{}: {} records, {}; {same}", self.server, thousands(self.records), megabytes(self.bytes))
    }
}

struct Study<'a> {
    home: &'a LabHome,
    binaries: &'a ServerBinaries,
    directory: &'a Path,
    calls: CallsPlan,
    records: PathBuf,
    limit: Option<Duration>,
    screen: &'a Screen,
}

/// Kills a session when its time is over.
struct Watchman {
    over: Arc<AtomicBool>,
    killed: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Watchman {
    fn start(server: &Sandbox, watched: &mut Session, limit: Duration) -> Result<Watchman> {
        let (id, mut own): (u64, Session) = (watched.value("SELECT CONNECTION_ID()")?, server.connect()?);
        let (over, killed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (ending, done) = (Arc::clone(&over), Arc::clone(&killed));
        let deadline = Instant::now() + limit;
        let thread = std::thread::spawn(move || {
            while !ending.load(Ordering::Acquire) {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    done.store(true, Ordering::Release);
                    return own.run(&format!("KILL {id}"));
                }
                std::thread::park_timeout(left);
            }
            Ok(())
        });
        Ok(Watchman { over, killed, thread: Some(thread) })
    }

    fn has_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }
}

impl Drop for Watchman {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ended = thread.join();
        }
    }
}

/// Makes the records and loads them in each way, each into a server of its own. `measured` sees what is measured after each way.
///
/// # Errors
/// Those of the servers and of the program; [`Error::DiskTooSmall`] before anything is done.
pub fn run(
    home: &LabHome,
    binaries: &ServerBinaries,
    plan: &StudyPlan,
    directory: &Path,
    screen: &Screen,
    mut measured: impl FnMut(&StudyResult) -> Result<()>,
) -> Result<StudyResult> {
    screen.claim_disk(directory, plan.calls.records * RECORD_BYTES as u64 / 100 * DISK_PERCENT)?;
    let records = directory.join("calls.dat");
    let study = Study { home, binaries, directory, calls: plan.calls, records, limit: plan.limit, screen };
    let mut result =
        StudyResult { server: binaries.full_version.clone(), bytes: 0, records: plan.calls.records, ways: vec![] };
    for way in &plan.ways {
        // Each way leaves the disk to the next one. The same seed makes the same records.
        result.bytes = study.make_records()?;
        result.ways.push(match way {
            WayName::Staging => study.by_staging_table()?,
            WayName::ByDay => study.by_day()?,
            WayName::Spate => study.by_spate(&plan.load_options)?,
        });
        measured(&result)?;
    }
    Ok(result)
}

impl Study<'_> {
    /// The bytes of their file.
    fn make_records(&self) -> Result<u64> {
        let bar = self.screen.count_bar("records are made", self.calls.records);
        write_records(self.calls, &self.records, &mut |number| bar.set_position(number))?;
        bar.finish_and_clear();
        Ok(std::fs::metadata(&self.records).map_err(Error::file("read", &self.records))?.len())
    }

    /// What the study's own program did: it puts delimiters between the fields and leaves damaged records out. The file, and how long it took.
    fn prepare_all(&self) -> Result<(PathBuf, f64)> {
        let step = self.screen.spinner("delimiters are put into the records");
        let all = self.directory.join("all.csv");
        let begun = Instant::now();
        let mut out = BufWriter::new(File::create(&all).map_err(Error::file("create", &all))?);
        self.each_line(|line, _day| out.write_all(line).map_err(Error::file("write to", &all)))?;
        out.flush().map_err(Error::file("write to", &all))?;
        step.finish_and_clear();
        Ok((all, begun.elapsed().as_secs_f64()))
    }

    /// The same, a file a day. The files, and how long it took.
    fn prepare_by_day(&self) -> Result<(BTreeMap<String, PathBuf>, f64)> {
        let step = self.screen.spinner("delimiters are put into the records, a file a day");
        let begun = Instant::now();
        let mut files: BTreeMap<String, (PathBuf, BufWriter<File>)> = BTreeMap::new();
        let directory = self.directory;
        self.each_line(|line, day| {
            if !files.contains_key(day) {
                let path = directory.join(format!("{day}.csv"));
                let file = File::create(&path).map_err(Error::file("create", &path))?;
                files.insert(day.to_owned(), (path, BufWriter::new(file)));
            }
            let Some((path, file)) = files.get_mut(day) else { return Ok(()) };
            file.write_all(line).map_err(Error::file("write to", path))
        })?;
        let mut by_day = BTreeMap::new();
        for (day, (path, mut file)) in files {
            file.flush().map_err(Error::file("write to", &path))?;
            by_day.insert(day, path);
        }
        step.finish_and_clear();
        Ok((by_day, begun.elapsed().as_secs_f64()))
    }

    /// Removes the records, which no step of the way reads any more.
    fn discard_records(&self) -> Result<()> {
        std::fs::remove_file(&self.records).map_err(Error::file("remove", &self.records))
    }

    /// Calls `see` with each whole record, delimited, and its day.
    fn each_line(&self, mut see: impl FnMut(&[u8], &str) -> Result<()>) -> Result<()> {
        let path = &self.records;
        let mut reader = BufReader::with_capacity(1 << 20, File::open(path).map_err(Error::file("open", path))?);
        let (mut record, mut line) = (Vec::new(), Vec::new());
        loop {
            record.clear();
            if reader.read_until(b'\n', &mut record).map_err(Error::file("read", path))? == 0 {
                return Ok(());
            }
            line.clear();
            if let Some(day) = delimit(&record, &mut line) {
                see(&line, &day)?;
            }
        }
    }

    fn server(&self, name: &str) -> Result<Sandbox> {
        let vendor = self.binaries.vendor();
        let options = ServerOptions::base(vendor, 1)
            .with("innodb-buffer-pool-size", format!("{BUFFER_POOL_MIB}M"))
            .with("local-infile", 1)
            .with_redo_log_mib(vendor, REDO_LOG_MIB)
            .with_durability(Durability::Durable);
        let directory = self.directory.join(name);
        create_private_directory(&directory)?;
        let pristine = pristine_data(self.home, self.binaries)?;
        let server = Sandbox::restore(self.binaries, &pristine, &directory, &options, Lifetime::Ours)?;
        let mut session = server.connect()?;
        template().iter().try_for_each(|sql| session.run(sql))?;
        Ok(server)
    }

    fn session(server: &Sandbox) -> Result<Session> {
        let mut session = server.connect()?;
        session.run("SET SESSION sql_log_bin = 0")?;
        session.run("USE cdr")?;
        Ok(session)
    }

    /// (a): one table for all, a procedure that dispatches it, and the indexes.
    fn by_staging_table(&self) -> Result<Way> {
        let (all, seconds) = self.prepare_all()?;
        self.discard_records()?;
        let server = self.server("staging")?;
        let mut session = Study::session(&server)?;
        let mut steps = vec![Step { what: "put delimiters into the records".to_owned(), seconds }];
        let left = self.limit.map(|limit| limit.saturating_sub(Duration::from_secs_f64(seconds)));
        let watchman = left.map(|left| Watchman::start(&server, &mut session, left)).transpose()?;
        let begun = Instant::now();
        match self.dispatch(&all, &mut session, &mut steps) {
            Ok(()) => {}
            Err(_) if watchman.as_ref().is_some_and(Watchman::has_killed) => {
                drop(watchman);
                return stopped_way(steps, seconds + begun.elapsed().as_secs_f64(), server);
            }
            Err(error) => return Err(error),
        }
        drop(watchman);
        self.end(WayName::Staging, STAGING_NAME, steps, server)
    }

    /// All that a server does of the study's way.
    fn dispatch(&self, all: &Path, session: &mut Session, steps: &mut Vec<Step>) -> Result<()> {
        let columns: Vec<String> = FIELDS.iter().map(|(name, _, sql_type)| format!("{name} {sql_type}")).collect();
        session.run(&format!("CREATE TABLE staging ({})", columns.join(", ")))?;
        self.step(steps, ONE_TABLE, || session.run(&load_sql(all, "staging")))?;
        std::fs::remove_file(all).map_err(Error::file("remove", all))?;
        session.run(DISPATCH)?;
        self.step(steps, PROCEDURE, || session.run("CALL dispatch()"))?;
        self.step(steps, "the one table is dropped", || session.run("DROP TABLE staging"))?;
        self.step(steps, INDEXES, || {
            tables_of_days(session)?.iter().try_for_each(|table| {
                session.run(&format!(
                    "ALTER TABLE {table} ADD KEY by_caller (caller, start_time), ADD KEY by_called (called, start_time), \
                     ADD KEY by_cell (cell, start_time)"
                ))
            })
        })
    }

    /// (b): what a person prepares who knows the days.
    fn by_day(&self) -> Result<Way> {
        let (files, seconds) = self.prepare_by_day()?;
        self.discard_records()?;
        let server = self.server("by-day")?;
        let mut session = Study::session(&server)?;
        let mut steps = Vec::new();
        self.step(&mut steps, "one LOAD DATA a day (files prepared by hand)", || {
            files.iter().try_for_each(|(day, path)| {
                session.run(&format!("CREATE TABLE calls_{day} LIKE calls_template"))?;
                session.run(&load_sql(path, &format!("calls_{day}")))
            })
        })?;
        for path in files.values() {
            std::fs::remove_file(path).map_err(Error::file("remove", path))?;
        }
        self.end(WayName::ByDay, &format!("one LOAD DATA a day (beside {seconds:.1} s of preparation)"), steps, server)
    }

    /// (c).
    fn by_spate(&self, options: &[String]) -> Result<Way> {
        let server = self.server("spate")?;
        let layout_path = self.directory.join("calls.toml");
        std::fs::write(&layout_path, layout()).map_err(Error::file("write", &layout_path))?;
        let mut steps = Vec::new();
        self.step(&mut steps, "spate load", || {
            spate_program::load(&server, &layout_path, &self.records, self.directory, options).map(drop)
        })?;
        self.discard_records()?;
        self.end(WayName::Spate, "spate load", steps, server)
    }

    fn step(&self, steps: &mut Vec<Step>, what: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let shown = self.screen.spinner(what);
        let begun = Instant::now();
        work()?;
        steps.push(Step { what: what.to_owned(), seconds: begun.elapsed().as_secs_f64() });
        shown.finish_and_clear();
        Ok(())
    }

    /// Adds up all rows, and removes the server, which is not needed any more.
    fn end(&self, way: WayName, name: &str, steps: Vec<Step>, server: Sandbox) -> Result<Way> {
        let shown = self.screen.spinner("all rows are compared");
        let mut session = Study::session(&server)?;
        let columns: Vec<&str> = FIELDS.iter().map(|(name, _, _)| *name).collect();
        let (mut rows, mut checksum) = (0, Vec::new());
        for table in tables_of_days(&mut session)? {
            // Two sums: rows that are twice there show in one of them.
            let sql = format!(
                "SELECT CONCAT_WS(':', COUNT(*), COALESCE(BIT_XOR({crc}), 0), COALESCE(SUM({crc}), 0)) FROM {table}",
                crc = format!("CRC32(CONCAT_WS('#', {}, ISNULL(imei), ISNULL(network)))", columns.join(", "))
            );
            let of_day: String = session.value(&sql)?;
            rows += of_day.split(':').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
            checksum.push(format!("{table}:{of_day}"));
        }
        let directory = server.stop()?;
        std::fs::remove_dir_all(&directory).map_err(Error::file("remove", &directory))?;
        shown.finish_and_clear();
        let seconds = steps.iter().map(|step| step.seconds).sum();
        let checksum = checksum.join(" ");
        Ok(Way { way, name: name.to_owned(), steps, seconds, stopped: false, rows, checksum })
    }
}

/// The study's own way, as it is told.
const STAGING_NAME: &str = "delimiters, LOAD DATA, procedure, indexes";

/// The study's way, stopped after so long. Its server has nothing that anybody needs.
fn stopped_way(mut steps: Vec<Step>, seconds: f64, server: Sandbox) -> Result<Way> {
    let ended: f64 = steps.iter().map(|step| step.seconds).sum();
    steps.push(Step { what: "the next step, until it was stopped".to_owned(), seconds: seconds - ended });
    let directory = server.kill();
    std::fs::remove_dir_all(&directory).map_err(Error::file("remove", &directory))?;
    let (rows, checksum) = (0, String::new());
    Ok(Way { way: WayName::Staging, name: STAGING_NAME.to_owned(), steps, seconds, stopped: true, rows, checksum })
}

/// As the study's procedure: a table a day, without the indexes that come later.
const DISPATCH: &str = "CREATE PROCEDURE dispatch() BEGIN \
    DECLARE done INT DEFAULT 0; DECLARE one DATE; \
    DECLARE days CURSOR FOR SELECT DISTINCT DATE(start_time) FROM staging; \
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = 1; \
    OPEN days; \
    each_day: LOOP FETCH days INTO one; IF done THEN LEAVE each_day; END IF; \
      SET @day = DATE_FORMAT(one, '%Y%m%d'), @begin = one; \
      SET @sql = CONCAT('CREATE TABLE calls_', @day, ' LIKE calls_template'); PREPARE s FROM @sql; EXECUTE s; \
      SET @sql = CONCAT('ALTER TABLE calls_', @day, ' DROP KEY by_caller, DROP KEY by_called, DROP KEY by_cell'); PREPARE s FROM @sql; EXECUTE s; \
      SET @sql = CONCAT('INSERT INTO calls_', @day, ' SELECT * FROM staging WHERE start_time >= ? AND start_time < ? + INTERVAL 1 DAY'); \
      PREPARE s FROM @sql; EXECUTE s USING @begin, @begin; COMMIT; \
    END LOOP; END";

/// The tables of days that there are, in the order of the days.
fn tables_of_days(session: &mut Session) -> Result<Vec<String>> {
    session.rows(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'cdr' AND table_name REGEXP '^calls_[0-9]{8}$' \
         ORDER BY table_name",
    )
}

fn load_sql(path: &Path, table: &str) -> String {
    format!("LOAD DATA INFILE '{}' INTO TABLE {table} FIELDS TERMINATED BY ','", path.display())
}

/// Writes a record with delimiters, as LOAD DATA reads it; its day. `None` if it is damaged.
fn delimit(record: &[u8], line: &mut Vec<u8>) -> Option<String> {
    if record.len() != RECORD_BYTES {
        return None;
    }
    let mut at = 0;
    let mut day = None;
    for (number, (name, width, sql_type)) in FIELDS.iter().enumerate() {
        let field = record[at..at + width].trim_ascii();
        at += width;
        if number > 0 {
            line.push(b',');
        }
        let is_number = field.iter().all(u8::is_ascii_digit);
        match *name {
            "start_time" => {
                if &field[4..6] > b"12".as_slice() {
                    return None;
                }
                let part = |from: usize, to: usize| std::str::from_utf8(&field[from..to]).unwrap_or_default();
                let (date, time) = ((part(0, 4), part(4, 6), part(6, 8)), (part(8, 10), part(10, 12), part(12, 14)));
                let written = write!(line, "{}-{}-{} {}:{}:{}", date.0, date.1, date.2, time.0, time.1, time.2);
                written.ok()?;
                day = Some(format!("{}{}{}", date.0, date.1, date.2));
            }
            "cost" => {
                line.extend_from_slice(&field[..8]);
                line.push(b'.');
                line.extend_from_slice(&field[8..]);
            }
            _ if field.is_empty() && !sql_type.contains("NOT NULL") => line.extend_from_slice(b"\\N"),
            _ if sql_type.contains("INT") && !is_number => return None,
            _ => line.extend_from_slice(field),
        }
    }
    line.push(b'\n');
    day
}
