//! The replay: statements are read ahead of their time, executed by connections, and measured.
//!
//! With a pace, latency counts from when a statement was *due*, not from when a connection was free for it: a server that stalls is
//! not spared the statements that would have come meanwhile (the error is known as coordinated omission).

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection, quote};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::class::{Class, understand};
use crate::digest::digest_of;
use crate::error::{Error, Result};
use crate::input::{self, InputFormat, LogTable, Steps};
use crate::measure::{Measured, Response, Sums};
use crate::queue::Queue;
use crate::reading::SessionReading;
use crate::recorded::{Recorded, What};
use crate::response_lines::ResponseLines;
use crate::samples::{self, ServerReport};

/// Statements that are read and not executed hold at most so many bytes.
const QUEUED_BYTES_MAX: u64 = 64 << 20;
/// With a pace, statements are read so long before they are due.
const AHEAD: Duration = Duration::from_secs(5);
/// A connection gives so many responses to the collector at once, or those of so long: to wake it for each would cost as much as a small statement.
const RESPONSES_AT_ONCE: usize = 128;
const RESPONSES_KEPT: Duration = Duration::from_millis(100);
/// Such lots of responses on their way to the collector.
const RESPONSES_MAX: usize = 256;
/// Statements on their way to connections that share them.
const SHARED_MAX: usize = 1_000;
/// Only of slower statements the text is kept; in seconds.
const SLOW: f64 = 0.001;
/// Kinds of statements whose text is remembered.
const DIGESTS_MAX: usize = 100_000;

/// How the statements of an input are shared among connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// A connection for each recorded session.
    #[default]
    Sessions,
    /// So many connections; each takes the next statement.
    Threads(usize),
    /// So many connections; each executes all of them.
    Each(usize),
}

/// When statements are executed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// At once, one behind the other.
    Fastest,
    /// As recorded, so many times as fast.
    Recorded(f64),
}

/// Where an input is.
#[derive(Debug, Clone)]
pub enum Place {
    /// In a file.
    File(PathBuf, InputFormat),
    /// In a table of a server.
    Table(Endpoint, LogTable),
}

/// An input.
#[derive(Debug, Clone)]
pub struct InputPlan {
    /// Its name in the report.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// How it is shared.
    pub sharing: Sharing,
}

/// What to replay, and how.
#[derive(Debug, Clone)]
pub struct ReplayOptions {
    /// The server.
    pub server: Endpoint,
    /// It is on this machine.
    pub is_local: bool,
    /// What to replay, at the same time.
    pub inputs: Vec<InputPlan>,
    /// When.
    pub pace: Pace,
    /// Also what writes; without it, sessions are read-only.
    pub writes: bool,
    /// The default schema of sessions whose own is not recorded.
    pub schema: Option<String>,
    /// Connections of [`Sharing::Sessions`] at a time.
    pub sessions_max: usize,
    /// A line for each response goes here.
    pub csv: Option<PathBuf>,
}

/// A replay that has ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// How fast it was to be.
    pub pace: String,
    /// What the responses add up to.
    pub sums: Sums,
    /// Statements that were left out since they write.
    pub skipped_writes: u64,
    /// Statements that concern the server, its accounts, or its files: never replayed.
    pub skipped_of_server: u64,
    /// Statements of which it is in doubt how the server reads them, or that change how it reads others: never replayed.
    #[serde(default)]
    pub skipped_unclear: u64,
    /// Statements were late since too many were waiting, in seconds; their latencies count it.
    pub held_back_seconds: f64,
    /// The server and its disks.
    pub server: ServerReport,
}

/// How far a replay is.
#[derive(Debug, Default)]
pub struct ReplayProgress {
    executed: AtomicU64,
    errors: AtomicU64,
    /// Of the record, milliseconds.
    recorded_ms: AtomicU64,
}

impl ReplayProgress {
    /// Statements that were answered, errors among them, and seconds of the record.
    pub fn now(&self) -> (u64, u64, f64) {
        let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (number(&self.executed), number(&self.errors), number(&self.recorded_ms) as f64 / 1e3)
    }
}

/// A statement on its way to a connection.
struct Task {
    session: u64,
    due: Option<Duration>,
    schema: Option<String>,
    statement: Vec<u8>,
    digest: u64,
    digest_text: Arc<str>,
    is_ordered: bool,
}

struct Replay<'a> {
    options: &'a ReplayOptions,
    begun: Instant,
    progress: &'a ReplayProgress,
    stop: &'a AtomicBool,
    failed: AtomicBool,
    queued_bytes: AtomicU64,
    held_back_ms: AtomicU64,
    skipped_writes: AtomicU64,
    skipped_of_server: AtomicU64,
    skipped_unclear: AtomicU64,
    reading: SessionReading,
}

/// Replays. A signal ends it early; what was measured until then is reported.
///
/// # Errors
/// Of inputs, of connecting, and of writing. An error of a statement is a measurement.
pub fn replay(options: &ReplayOptions, stop: &AtomicBool, progress: &ReplayProgress) -> Result<ReplayReport> {
    // Both are tried before anything is measured.
    for plan in &options.inputs {
        if let Place::File(path, format) = &plan.place
            && path.as_os_str() != "-"
        {
            drop(input::open(path, *format)?);
        }
    }
    let reading = SessionReading::of(&mut Connection::connect(&options.server, &ConnectOptions::new("server"))?)?;
    let replay = Replay {
        options,
        begun: Instant::now() + Duration::from_millis(100),
        progress,
        stop,
        failed: AtomicBool::new(false),
        queued_bytes: AtomicU64::new(0),
        held_back_ms: AtomicU64::new(0),
        skipped_writes: AtomicU64::new(0),
        skipped_of_server: AtomicU64::new(0),
        skipped_unclear: AtomicU64::new(0),
        reading,
    };
    let over = AtomicBool::new(false);
    let (send, receive) = sync_channel(RESPONSES_MAX);
    let (sums, server) = std::thread::scope(|scope| {
        let collector = scope.spawn(|| replay.collect(receive));
        let sampler = scope.spawn(|| samples::watch(&options.server, options.is_local, &over));
        let read: Vec<Result<()>> = std::thread::scope(|workers| {
            let readers: Vec<_> = (0..options.inputs.len())
                .map(|number| {
                    let (replay, send) = (&replay, send.clone());
                    workers.spawn(move || {
                        let read = replay.input(number, &send, workers);
                        replay.failed.fetch_or(read.is_err(), Ordering::AcqRel);
                        read
                    })
                })
                .collect();
            readers.into_iter().filter_map(|reader| reader.join().ok()).collect()
        });
        drop(send);
        over.store(true, Ordering::Release);
        sampler.thread().unpark();
        let sums = collector.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let server = sampler.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        read.into_iter().collect::<Result<()>>()?;
        Ok::<_, Error>((sums?, server?))
    })?;
    if sums.statements == 0 && replay.skipped_writes.load(Ordering::Relaxed) == 0 && !stop.load(Ordering::Relaxed) {
        let why = "it holds no statement that is replayed".to_owned();
        return Err(Error::Nothing { input: "the input".to_owned(), why });
    }
    let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
    Ok(ReplayReport {
        pace: match options.pace {
            Pace::Fastest => "as fast as possible".to_owned(),
            Pace::Recorded(factor) => format!("as recorded, × {factor}"),
        },
        sums,
        skipped_writes: number(&replay.skipped_writes),
        skipped_of_server: number(&replay.skipped_of_server),
        skipped_unclear: number(&replay.skipped_unclear),
        held_back_seconds: number(&replay.held_back_ms) as f64 / 1e3,
        server,
    })
}

fn connect(options: &ReplayOptions, reading: &SessionReading) -> Result<Connection> {
    let mut connection = Connection::connect(&options.server, &ConnectOptions::new("server"))?;
    connection.execute(reading.setting().as_bytes())?;
    if !options.writes {
        connection.execute(b"SET SESSION TRANSACTION READ ONLY")?;
    }
    Ok(connection)
}

impl<'a> Replay<'a> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Acquire)
    }

    fn steps(&self, plan: &InputPlan) -> Result<Steps> {
        match &plan.place {
            Place::File(path, format) => input::open(path, *format),
            Place::Table(server, table) => input::open_table(server, *table),
        }
    }

    /// Reads an input and hands its statements out.
    fn input<'scope, 'env>(
        &'scope self,
        number: usize,
        send: &SyncSender<Vec<Response>>,
        scope: &'scope Scope<'scope, 'env>,
    ) -> Result<()> {
        let plan = &self.options.inputs[number];
        match plan.sharing {
            Sharing::Sessions => self.by_session(number, send, scope),
            Sharing::Threads(threads) => {
                let queue = Arc::new(Queue::new(SHARED_MAX));
                let workers: Vec<_> = (0..threads.max(1))
                    .map(|_| {
                        let (queue, send) = (Arc::clone(&queue), send.clone());
                        scope.spawn(move || {
                            let shared = self.share(number, &queue, &send);
                            if shared.is_err() {
                                queue.close();
                            }
                            shared
                        })
                    })
                    .collect();
                let read = self.fill(plan, &queue);
                queue.close();
                join(workers)?;
                read
            }
            Sharing::Each(threads) => {
                let workers: Vec<_> = (0..threads.max(1))
                    .map(|_| {
                        let send = send.clone();
                        scope.spawn(move || self.all(number, &send))
                    })
                    .collect();
                join(workers)
            }
        }
    }

    /// A connection that executes all statements of an input.
    fn all(&self, number: usize, send: &SyncSender<Vec<Response>>) -> Result<()> {
        let mut executor = Executor::new(self, number)?;
        let mut prepare = Prepare::default();
        for step in self.steps(&self.options.inputs[number])? {
            if self.is_over() {
                break;
            }
            if let Some(task) = self.task(step?, &mut prepare) {
                executor.execute(task, send)?;
            }
        }
        executor.flush(send);
        Ok(())
    }

    /// Reads an input for connections that share it.
    fn fill(&self, plan: &InputPlan, queue: &Queue<Task>) -> Result<()> {
        let mut prepare = Prepare::default();
        for step in self.steps(plan)? {
            let Some(task) = self.task(step?, &mut prepare) else { continue };
            self.wait_until_near(&task);
            if self.is_over() || !queue.push(task) {
                break;
            }
        }
        Ok(())
    }

    /// A connection that takes the next statement.
    fn share(&self, number: usize, queue: &Queue<Task>, send: &SyncSender<Vec<Response>>) -> Result<()> {
        let mut executor = Executor::new(self, number)?;
        while let Some(task) = queue.pop() {
            if !self.is_over() {
                executor.execute(task, send)?;
            }
        }
        executor.flush(send);
        Ok(())
    }

    fn by_session<'scope, 'env>(
        &'scope self,
        number: usize,
        send: &SyncSender<Vec<Response>>,
        scope: &'scope Scope<'scope, 'env>,
    ) -> Result<()> {
        let mut sessions: HashMap<u64, Sender<Task>> = HashMap::new();
        let mut workers = Vec::new();
        let mut prepare = Prepare::default();
        for step in self.steps(&self.options.inputs[number])? {
            let step = step?;
            if self.is_over() {
                break;
            }
            if step.what == What::End {
                sessions.remove(&step.session);
                continue;
            }
            let (session, at) = (step.session, step.at);
            let Some(task) = self.task(step, &mut prepare) else { continue };
            self.wait_until_near(&task);
            self.hold_back(&task);
            self.queued_bytes.fetch_add(task.statement.len() as u64, Ordering::AcqRel);
            if !sessions.contains_key(&session) {
                if sessions.len() >= self.options.sessions_max {
                    let at = at - prepare.first.unwrap_or(at);
                    return Err(Error::Sessions { max: self.options.sessions_max, at });
                }
                let (give, take) = channel::<Task>();
                let send = send.clone();
                workers.push(scope.spawn(move || self.session(number, take, &send)));
                sessions.insert(session, give);
            }
            // A session that failed has told why.
            let _is_there = sessions[&session].send(task);
        }
        drop(sessions);
        join(workers)
    }

    /// A connection that executes the statements of one session.
    fn session(&self, number: usize, take: Receiver<Task>, send: &SyncSender<Vec<Response>>) -> Result<()> {
        let executor = Executor::new(self, number);
        let mut executor = match executor {
            Ok(executor) => executor,
            Err(error) => {
                self.failed.store(true, Ordering::Release);
                return Err(error);
            }
        };
        for task in take {
            self.queued_bytes.fetch_sub(task.statement.len() as u64, Ordering::AcqRel);
            if !self.is_over() {
                executor.execute(task, send)?;
            }
        }
        executor.flush(send);
        Ok(())
    }

    /// A step as a task; `None` for what is not replayed.
    fn task(&self, step: Recorded, prepare: &mut Prepare) -> Option<Task> {
        let What::Statement(statement) = step.what else { return None };
        let first = *prepare.first.get_or_insert(step.at);
        let since = (step.at - first).max(0.0);
        self.progress.recorded_ms.fetch_max((since * 1e3) as u64, Ordering::Relaxed);
        let digest = digest_of(&statement);
        // Statements of one digest differ in their values, and may differ in their class.
        let understood = understand(&statement, &self.reading);
        let skipped = match understood.class {
            Class::Read | Class::Session => None,
            Class::Write if self.options.writes => None,
            Class::Write => Some(&self.skipped_writes),
            Class::Server => Some(&self.skipped_of_server),
            Class::Unclear => Some(&self.skipped_unclear),
        };
        if let Some(skipped) = skipped {
            skipped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if prepare.texts.len() >= DIGESTS_MAX {
            prepare.texts.clear();
        }
        let text = prepare.texts.entry(digest.hash).or_insert_with(|| Arc::from(digest.text));
        let due = match self.options.pace {
            Pace::Fastest => None,
            Pace::Recorded(factor) => Some(Duration::from_secs_f64(since / factor)),
        };
        Some(Task {
            session: step.session,
            due,
            schema: step.schema.or_else(|| self.options.schema.clone()),
            statement,
            digest: digest.hash,
            digest_text: Arc::clone(text),
            is_ordered: understood.is_ordered,
        })
    }

    /// What is due much later need not be in memory.
    fn wait_until_near(&self, task: &Task) {
        const LOOK_EVERY: Duration = Duration::from_millis(200);
        let Some(due) = task.due else { return };
        while !self.is_over() {
            let left = (self.begun + due).saturating_duration_since(Instant::now());
            if left <= AHEAD {
                return;
            }
            std::thread::sleep((left - AHEAD).min(LOOK_EVERY));
        }
    }

    /// Waits while too much is in memory; with a pace, that makes statements late, which is told.
    fn hold_back(&self, task: &Task) {
        const LOOK_EVERY: Duration = Duration::from_millis(1);
        let begun = Instant::now();
        while self.queued_bytes.load(Ordering::Acquire) > QUEUED_BYTES_MAX && !self.is_over() {
            std::thread::sleep(LOOK_EVERY);
        }
        let is_late = task.due.is_some_and(|due| Instant::now() > self.begun + due);
        if is_late {
            self.held_back_ms.fetch_add(begun.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
    }

    /// Adds responses up, and writes them.
    fn collect(&self, receive: Receiver<Vec<Response>>) -> Result<Sums> {
        let inputs = self.options.inputs.iter().map(|plan| {
            let sharing = match plan.sharing {
                Sharing::Sessions => "sessions as recorded".to_owned(),
                Sharing::Threads(threads) => format!("{threads} share them"),
                Sharing::Each(threads) => format!("{threads}, each all of them"),
            };
            (plan.name.clone(), sharing)
        });
        let mut measured = Measured::new(inputs);
        let mut lines = match &self.options.csv {
            Some(path) => Some(ResponseLines::create(path)?),
            None => None,
        };
        for response in receive.into_iter().flatten() {
            self.progress.executed.fetch_add(1, Ordering::Relaxed);
            if response.error.is_some() {
                self.progress.errors.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(lines) = &mut lines {
                lines.write(&response, &self.options.inputs[response.input].name)?;
            }
            measured.add(&response);
        }
        if let Some(lines) = lines {
            lines.end()?;
        }
        Ok(measured.sums())
    }
}

/// What a reader remembers.
#[derive(Default)]
struct Prepare {
    first: Option<f64>,
    texts: HashMap<u64, Arc<str>>,
}

fn join(workers: Vec<std::thread::ScopedJoinHandle<'_, Result<()>>>) -> Result<()> {
    let ended: Vec<Result<()>> = workers
        .into_iter()
        .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        .collect();
    ended.into_iter().collect()
}

/// A connection, and what it knows of its session.
struct Executor<'a> {
    replay: &'a Replay<'a>,
    input: usize,
    connection: Connection,
    schema: Option<String>,
    responses: Vec<Response>,
    flushed: Instant,
}

impl<'a> Executor<'a> {
    fn new(replay: &'a Replay<'a>, input: usize) -> Result<Executor<'a>> {
        let connection = connect(replay.options, &replay.reading)?;
        Ok(Executor { replay, input, connection, schema: None, responses: vec![], flushed: Instant::now() })
    }

    /// Executes a statement when it is due, and tells what came of it.
    fn execute(&mut self, task: Task, send: &SyncSender<Vec<Response>>) -> Result<()> {
        if task.schema.is_some() && task.schema != self.schema {
            let schema = task.schema.clone().unwrap_or_default();
            // A schema that is not there shows in the statement's own error, and may be there for the next.
            let used = self.connection.execute_single(format!("USE {}", quote::identifier(&schema)).as_bytes());
            self.schema = task.schema.clone().filter(|_| used.is_ok());
        }
        let begun = self.replay.begun;
        wait_until(begun + task.due.unwrap_or_default(), self.replay);
        let (mut rows, mut bytes, mut checksum) = (0_u64, 0_u64, 0_u64);
        let start = Instant::now();
        let outcome = self.connection.for_each_row_of_single(&task.statement, |row| {
            let mut hash = 0;
            for value in row.iter() {
                // NULL and an empty text are different.
                let seed = hash ^ value.map_or(1, |value| 2 + value.len() as u64);
                hash = xxh3_64_with_seed(value.unwrap_or_default(), seed);
                bytes += value.map_or(0, <[u8]>::len) as u64;
            }
            rows += 1;
            checksum = match task.is_ordered {
                true => checksum.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash,
                false => checksum.wrapping_add(hash),
            };
            ControlFlow::Continue(())
        });
        let ended = Instant::now();
        let since = |at: Instant| at.checked_duration_since(begun).map_or(0.0, |since| since.as_secs_f64());
        let error = match outcome {
            Ok(_) => None,
            Err(error) => {
                let told = (error.code().unwrap_or(0), error.to_string());
                if error.server_error().is_none() || error.is_connection_lost() {
                    self.connection = connect(self.replay.options, &self.replay.reading)?;
                    self.schema = None;
                }
                Some(told)
            }
        };
        let began = since(start);
        let due = task.due.map_or(began, |due| due.as_secs_f64());
        let is_slow = since(ended) - due > SLOW;
        let response = Response {
            input: self.input,
            session: task.session,
            digest: task.digest,
            digest_text: task.digest_text,
            due,
            began,
            ended: since(ended),
            rows,
            bytes,
            checksum,
            statement_hash: xxh3_64(&task.statement),
            error,
            statement: is_slow.then(|| String::from_utf8_lossy(&task.statement).into_owned()),
        };
        self.responses.push(response);
        if self.responses.len() >= RESPONSES_AT_ONCE || ended - self.flushed > RESPONSES_KEPT {
            self.flush(send);
        }
        Ok(())
    }

    /// Gives the collector what it has not got.
    fn flush(&mut self, send: &SyncSender<Vec<Response>>) {
        self.flushed = Instant::now();
        let responses = std::mem::take(&mut self.responses);
        if !responses.is_empty() && send.send(responses).is_err() {
            // The collector cannot write, and tells why.
            self.replay.failed.store(true, Ordering::Release);
        }
    }
}

/// Sleeps until shortly before, and then looks again and again: a sleep ends some hundred microseconds late.
fn wait_until(due: Instant, replay: &Replay<'_>) {
    const SPARED: Duration = Duration::from_micros(200);
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    while !replay.is_over() {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        match left.checked_sub(SPARED) {
            Some(long) if !long.is_zero() => std::thread::sleep(long.min(LOOK_EVERY)),
            _ => std::thread::yield_now(),
        }
    }
}
