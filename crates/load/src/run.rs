//! A load from its beginning to its end: one thread reads and cuts, others convert and load.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use spate_connection::Connection;
use spate_connection::endpoint::Endpoint;

use crate::columns::Columns;
use crate::error::{Error, Result};
use crate::indexes::{self, IndexStrategy};
use crate::input::{self, InputName};
use crate::layout::Layout;
use crate::loader::{Loader, Shared, connect_control, convert, lock};
use crate::manifest::{self, Begun, FileState, Totals};
use crate::pieces::{Piece, Pieces};
use crate::refused::Duplicates;
use crate::rejects::Rejects;
use crate::report::{FileReport, Progress, Report, ShownReject};
use crate::rows::{Converter, shown_record};
use crate::split::Splitter;
use crate::tables::{Name, Tables};

/// A piece is at most so large: a transaction of some hundred thousand rows. More would save no time, and lose more at a crash.
const PIECE_BYTES_MAX: usize = 16 << 20;
/// Below this, each piece's transaction costs more than its rows.
const PIECE_BYTES_MIN: usize = 64 << 10;
/// A piece in a worker's hands takes so many times its size: the bytes, the rows as text, and where each is.
const PIECE_COPIES: usize = 4;
/// A dry run shows so many rejects.
const SHOWN_REJECTS_MAX: usize = 20;
/// So many files may wait for their last pieces: each keeps a file of rejects open.
const ENDING_FILES_MAX: usize = 64;

/// What to load, and how.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The server.
    pub server: Endpoint,
    /// The load's name: files are loaded once under each.
    pub job: String,
    /// The layout, with a rule at least.
    pub layout: Layout,
    /// A hash of the layout's text and of what belongs to it: a file is finished with the layout that it was begun with.
    pub layout_hash: u64,
    /// Connections that load.
    pub connections: usize,
    /// Memory for pieces.
    pub memory_bytes: usize,
    /// What to do with rows whose key is there.
    pub duplicates: Duplicates,
    /// When to make indexes of new tables.
    pub indexes: IndexStrategy,
    /// False: nothing of the load goes into the server's binlog.
    pub writes_binlog: bool,
    /// The time zone of times in the files; `None`: the server's.
    pub time_zone: Option<String>,
    /// Where files of rejects go.
    pub rejects: PathBuf,
    /// Convert only; write nothing.
    pub is_dry: bool,
}

impl LoadOptions {
    fn piece_bytes(&self) -> usize {
        // Each worker has one, one waits for each, and one is being read.
        let pieces = self.connections * (PIECE_COPIES + 1) + 2;
        (self.memory_bytes / pieces).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX)
    }

    fn writers(&self) -> usize {
        // Which of two rows comes later is known only if they come one after the other.
        if self.duplicates == Duplicates::Reject { self.connections.max(1) } else { 1 }
    }
}

/// A file whose pieces are on their way.
struct OpenFile {
    input: InputName,
    id: u64,
    epoch: u64,
    rejects: Rejects,
    /// Pieces that are not loaded.
    pending: AtomicUsize,
    /// Where its data begins.
    start: u64,
    /// Bytes of all inputs that were read before it.
    read_before: u64,
    modified_ns: Option<u64>,
    /// What it was, when it is read.
    read: OnceLock<manifest::Read>,
}

struct Task {
    piece: Piece,
    file: Arc<OpenFile>,
}

/// Loads files. An error that comes once the load has begun is in the report ([`Report::failure`]).
///
/// # Errors
/// Any that prevents a beginning. What is loaded stays loaded; a later run goes on behind it.
pub fn run(options: &LoadOptions, paths: &[PathBuf], stop: &AtomicBool, progress: &Progress) -> Result<Report> {
    let inputs = input::find(paths)?;
    progress.bytes.store(inputs.iter().map(InputName::size).sum::<Option<u64>>().unwrap_or(0), Ordering::Relaxed);
    let begun = Instant::now();
    let load = Load::begin(options, stop, progress)?;
    let loaded = match load.files(&inputs) {
        // What is wrong with one file must not keep the tables of the others without indexes.
        Err(error) if error.is_of_file() => load.make_indexes().and(Err(error)),
        Ok(()) => load.make_indexes(),
        failed => failed,
    };
    Ok(load.end(begun, loaded.err().map(|error| error.to_string())))
}

/// A load that has begun.
pub(crate) struct Load<'a> {
    options: &'a LoadOptions,
    pub(crate) shared: Shared<'a>,
    progress: &'a Progress,
    pub(crate) report: Mutex<Report>,
}

impl<'a> Load<'a> {
    pub(crate) fn begin(options: &'a LoadOptions, stop: &'a AtomicBool, progress: &'a Progress) -> Result<Load<'a>> {
        progress.tell("connecting".to_owned());
        let mut control = connect_control(options)?;
        if !options.is_dry {
            manifest::open(&mut control, &options.job)?;
        }
        let local_files = control.query("SELECT @@GLOBAL.local_infile")?.single_text().as_deref() == Some("1");
        let durability = durability(&mut control, options.writes_binlog)?;
        let door = match local_files {
            true => "LOAD DATA LOCAL",
            false => "INSERT: the server does not allow LOAD DATA LOCAL (local_infile = 0), which would be faster",
        };
        let report = Report {
            job: options.job.clone(),
            dry_run: options.is_dry,
            connections: options.writers(),
            door: door.to_owned(),
            durability,
            ..Report::default()
        };
        let shared = Shared {
            options,
            tables: Mutex::new(Tables::new(&options.job, options.is_dry)),
            control: Mutex::new(control),
            one_by_one: Mutex::new(()),
            is_uncertain: AtomicBool::new(false),
            stop,
            local_files: AtomicBool::new(local_files),
        };
        Ok(Load { options, shared, progress, report: Mutex::new(report) })
    }

    /// Loads some files. In the end, all of them are loaded whole.
    pub(crate) fn files(&self, inputs: &[InputName]) -> Result<()> {
        self.shared.mend_control()?;
        let failed = AtomicBool::new(false);
        let writers = self.options.writers();
        let (send, receive) = sync_channel::<Task>(writers);
        let receive = Arc::new(Mutex::new(receive));
        let (read, worked) = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..writers)
                .map(|_| {
                    let receive = Arc::clone(&receive);
                    let failed = &failed;
                    scope.spawn(move || {
                        let worked = self.work(&receive, failed);
                        failed.fetch_or(worked.is_err(), Ordering::AcqRel);
                        worked
                    })
                })
                .collect();
            drop(receive);
            let read = self.read(inputs, send, &failed);
            failed.fetch_or(read.is_err(), Ordering::AcqRel);
            let join = |worker: ScopedJoinHandle<'_, Result<()>>| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            let worked: Vec<Result<()>> = workers.into_iter().map(join).collect();
            (read, worked)
        });
        // The workers' errors are causes; that the reader and others stopped follows from them.
        let is_cause = |worked: &Result<()>| !matches!(worked, Ok(()) | Err(Error::Stopped));
        let (causes, others): (Vec<_>, Vec<_>) = worked.into_iter().partition(is_cause);
        causes.into_iter().chain(others).collect::<Result<()>>()?;
        // All pieces are loaded now.
        self.end_files(read?)?;
        Ok(())
    }

    fn work(&self, receive: &Mutex<Receiver<Task>>, failed: &AtomicBool) -> Result<()> {
        let rules = &self.options.layout.rules;
        let mut converter = Converter::new(rules, Splitter::of(&self.options.layout.input));
        let mut loader = None;
        loop {
            let task = lock(receive).recv();
            let Ok(Task { piece, file }) = task else { return Ok(()) };
            if failed.load(Ordering::Acquire) {
                return Ok(());
            }
            if self.options.is_dry {
                self.look(&mut converter, &piece)?;
            } else {
                let loader = match &mut loader {
                    Some(loader) => loader,
                    none => none.insert(Loader::new(
                        &self.shared,
                        Converter::new(rules, Splitter::of(&self.options.layout.input)),
                    )?),
                };
                let loaded = loader.load(&piece, file.epoch, &file.rejects)?;
                self.count(loaded.totals, loaded.tables.iter().map(|(name, rows)| (name, *rows)));
            }
            file.pending.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn count<'t>(&self, totals: Totals, tables: impl Iterator<Item = (&'t Name, u64)>) {
        self.progress.add(totals);
        let mut report = lock(&self.report);
        for (table, rows) in tables {
            *report.tables.entry(table.to_string()).or_default() += rows;
        }
    }

    /// A piece of a dry run.
    fn look(&self, converter: &mut Converter<'_>, piece: &Piece) -> Result<()> {
        let rows = convert(&self.shared, &self.shared.tables, converter, piece)?;
        let loaded = rows.groups.iter().map(|group| group.rows.len() as u64).sum();
        let totals = Totals { records: rows.records, loaded, rejected: rows.rejects.len() as u64 };
        self.count(totals, rows.groups.iter().map(|group| (&group.table, group.rows.len() as u64)));
        let mut report = lock(&self.report);
        for reject in &rows.rejects {
            report.first_rejects.push(ShownReject {
                file: piece.whole.input.name.clone(),
                line: reject.line,
                reason: reject.reason.clone(),
                record: shown_record(piece, &reject.record),
            });
        }
        report.first_rejects.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
        report.first_rejects.truncate(SHOWN_REJECTS_MAX);
        Ok(())
    }

    /// Reads all inputs. Returns the files whose pieces may still be on their way.
    fn read(&self, inputs: &[InputName], send: SyncSender<Task>, failed: &AtomicBool) -> Result<Vec<Arc<OpenFile>>> {
        let mut ending: Vec<Arc<OpenFile>> = Vec::new();
        for input in inputs {
            self.progress.tell(format!("loading {}", input.short()));
            let Some((mut pieces, file)) = self.open(input)? else { continue };
            while let Some(piece) = pieces.next()? {
                self.choose_indexes(&piece)?;
                file.pending.fetch_add(1, Ordering::AcqRel);
                self.hand_out(&send, Task { piece, file: Arc::clone(&file) }, failed)?;
                self.check_stop()?;
            }
            while ending.len() >= ENDING_FILES_MAX {
                self.check_stop()?;
                if failed.load(Ordering::Acquire) {
                    return Err(Error::Stopped);
                }
                std::thread::sleep(Duration::from_millis(5));
                ending = self.end_files(ending)?;
            }
            let disk_bytes = self.progress.bytes_read.load(Ordering::Relaxed) - file.read_before;
            let read = manifest::Read {
                data: (file.start, pieces.at()),
                disk_bytes: file.input.size().map(|_| disk_bytes),
                modified_ns: file.modified_ns,
            };
            let _once = file.read.set(read);
            ending.push(file);
        }
        Ok(ending)
    }

    /// Ends the files whose pieces are all loaded, and returns the others.
    fn end_files(&self, ending: Vec<Arc<OpenFile>>) -> Result<Vec<Arc<OpenFile>>> {
        let (ended, others): (Vec<_>, Vec<_>) =
            ending.into_iter().partition(|file| file.pending.load(Ordering::Acquire) == 0);
        for file in ended {
            if self.options.is_dry {
                continue;
            }
            self.shared.mend_control()?;
            let mut control = lock(&self.shared.control);
            let done = manifest::done_pieces(&mut control, file.id)?;
            let kept = file.rejects.settle(|piece| done.contains_key(&piece))?;
            spate_archive::stopping_point("load-before-end");
            let Some(read) = file.read.get() else { continue };
            let totals = manifest::end(&mut control, &file.input, file.id, *read, &done)?;
            let rejects = (kept > 0).then(|| file.rejects.reasons_path().to_owned());
            let rejects_elsewhere = totals.rejected.saturating_sub(kept);
            let name = file.input.name.clone();
            let report = FileReport { file: name, was_loaded: false, totals, rejects, rejects_elsewhere };
            lock(&self.report).files.push(report);
        }
        Ok(others)
    }

    fn check_stop(&self) -> Result<()> {
        if self.shared.stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Hands a piece to a worker. While all are busy it waits, unless one of them has failed.
    fn hand_out(&self, send: &SyncSender<Task>, task: Task, failed: &AtomicBool) -> Result<()> {
        let mut task = task;
        loop {
            if failed.load(Ordering::Acquire) {
                return Err(Error::Stopped);
            }
            match send.try_send(task) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(Error::Stopped),
                Err(TrySendError::Full(back)) => {
                    task = back;
                    self.check_stop()?;
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    /// Opens an input; `None` if it is loaded.
    fn open(&self, input: &InputName) -> Result<Option<(Pieces<'a>, Arc<OpenFile>)>> {
        let options = self.options;
        let (mut id, mut epoch, mut done) = (0, 0, std::collections::BTreeMap::new());
        self.shared.mend_control()?;
        if !options.is_dry {
            let mut control = lock(&self.shared.control);
            match manifest::begin(&mut control, &options.job, input, options.layout_hash)? {
                Begun::Loaded(totals) => {
                    self.progress.bytes_read.fetch_add(input.size().unwrap_or(0), Ordering::Relaxed);
                    let name = input.name.clone();
                    lock(&self.report).files.push(FileReport::loaded_before(name, totals));
                    return Ok(None);
                }
                Begun::Check(state, totals) => {
                    drop(control);
                    return self.check(input, state, totals).map(|()| None);
                }
                Begun::Open(state) => (id, epoch, done) = (state.id, state.epoch, state.done),
            }
            manifest::settle_open(&mut control, input, id)?;
        }
        let bytes_read = &self.progress.bytes_read;
        let (read_before, modified_ns) = (bytes_read.load(Ordering::Relaxed), input.modified_ns());
        let columns = |header: Option<&[String]>| self.columns(header);
        let reading = (bytes_read, self.shared.stop);
        let pieces = Pieces::open(input, id, &options.layout, options.piece_bytes(), reading, columns)?;
        let load = format!("{}\0{}", options.job, lock(&self.shared.control).peer());
        let rejects = Rejects::of(&options.rejects, &load, input, &pieces.whole().header, pieces.has_lines());
        if !options.is_dry {
            rejects.settle(|piece| done.contains_key(&piece))?;
        }
        let pending = AtomicUsize::new(0);
        let start = pieces.at();
        let file = OpenFile {
            input: input.clone(),
            id,
            epoch,
            rejects,
            pending,
            start,
            read_before,
            modified_ns,
            read: OnceLock::new(),
        };
        Ok(Some((pieces.without(done), Arc::new(file))))
    }

    /// The columns of an input with this header.
    fn columns(&self, header: Option<&[String]>) -> std::result::Result<Columns, String> {
        let layout = &self.options.layout;
        let mut of_table = Vec::new();
        if layout.columns.is_empty() && header.is_none() {
            let [rule] = &layout.rules[..] else {
                return Err("without columns in the layout, and without a header, there is one table only".to_owned());
            };
            let columns = Tables::columns_of(&mut lock(&self.shared.control), rule);
            of_table = columns.map_err(|error| error.to_string())?;
        }
        Columns::resolve(layout, header, &of_table)
    }

    /// Before the first piece of all: when indexes of new tables are made.
    fn choose_indexes(&self, piece: &Piece) -> Result<()> {
        if lock(&self.report).indexes.is_some() || self.options.is_dry {
            return Ok(());
        }
        self.progress.tell("measuring what indexes cost".to_owned());
        let splitter = Splitter::of(&self.options.layout.input);
        let mut converter = Converter::new(&self.options.layout.rules, splitter);
        let bytes = self.progress.bytes.load(Ordering::Relaxed);
        let choice = indexes::choose(&self.shared, &mut converter, piece, (bytes > 0).then_some(bytes))?;
        lock(&self.shared.tables).indexes_later = choice.after;
        lock(&self.report).indexes = Some(choice);
        self.progress.tell(format!("loading {}", piece.whole.input.short()));
        Ok(())
    }
}

impl Load<'_> {
    /// Makes the indexes that tables were made without.
    pub(crate) fn make_indexes(&self) -> Result<()> {
        if self.options.is_dry {
            return Ok(());
        }
        let begun = Instant::now();
        let progress = self.progress;
        progress.tell("making indexes".to_owned());
        let made = indexes::make_owed(&self.shared, &|made, all| {
            progress.tell(format!("making indexes: {made} of {all} tables have theirs"));
        })?;
        if made > 0 {
            lock(&self.report).index_seconds += begun.elapsed().as_secs_f64();
        }
        Ok(())
    }

    /// Reads a file that is loaded, and compares it with what was.
    fn check(&self, input: &InputName, state: FileState, totals: Totals) -> Result<()> {
        self.progress.tell(format!("comparing {} with what was loaded of it", input.short()));
        let modified_ns = input.modified_ns();
        let (options, bytes_read) = (self.options, &self.progress.bytes_read);
        let columns = |header: Option<&[String]>| self.columns(header);
        let reading = (bytes_read, self.shared.stop);
        let pieces = Pieces::open(input, state.id, &options.layout, options.piece_bytes(), reading, columns)?;
        let mut pieces = pieces.without(state.done);
        if let Some(piece) = pieces.next()? {
            let why = format!(
                "it was loaded before, and holds something else now from byte {} on: rename it, or use another --name",
                piece.start
            );
            return Err(Error::Manifest { input: input.name.clone(), why });
        }
        manifest::touch(&mut lock(&self.shared.control), state.id, modified_ns)?;
        lock(&self.report).files.push(FileReport::loaded_before(input.name.clone(), totals));
        Ok(())
    }

    /// What was done, and why it is not all.
    pub(crate) fn end(self, begun: Instant, failure: Option<String>) -> Report {
        let mut report = self.report.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !self.shared.local_files.load(Ordering::Relaxed) && report.door.starts_with("LOAD") {
            report.door = "INSERT: the server has closed LOAD DATA LOCAL".to_owned();
        }
        report.seconds = begun.elapsed().as_secs_f64();
        report.bytes = self.progress.bytes().0;
        report.totals = self.progress.totals();
        report.failure = failure;
        let made = std::mem::take(&mut lock(&self.shared.tables).made);
        (report.new_tables, report.new_partitions) = (made.tables, made.partitions);
        report
    }
}

/// What the server keeps of a commit, for people.
fn durability(connection: &mut Connection, writes_binlog: bool) -> Result<String> {
    let found =
        connection.query("SELECT @@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.sync_binlog, @@GLOBAL.log_bin")?;
    let text = |column| found.text_at(0, column).unwrap_or_default();
    let binlog = match (text(2).as_str(), writes_binlog) {
        ("1", true) => format!("in the binlog (sync_binlog = {})", text(1)),
        ("1", false) => "kept out of the binlog: replicas do not get these rows".to_owned(),
        _ => "the server writes no binlog".to_owned(),
    };
    let commits = match text(0).as_str() {
        "1" => "each commit is on disk".to_owned(),
        other => format!(
            "a crash may lose the last second (innodb_flush_log_at_trx_commit = {other}); what it loses is loaded again"
        ),
    };
    Ok(format!("{commits}; {binlog}"))
}
