//! The replay: statements are read ahead of their time, executed by connections, and measured.
//!
//! With a pace, latency counts from when a statement was *due*, not from when a connection was free for it: a server that stalls is
//! not spared the statements that would have come meanwhile (the error is known as coordinated omission).
//!
//! Invariant: once statements are executed, the replay ends with a report of them, whatever fails.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection};

use crate::apart::OwnTables;
use crate::class::{Class, understand};
use crate::connections::Connections;
use crate::definitions::is_schema_of_server;
use crate::digest::Digester;
use crate::error::{Error, Result};
use crate::executor::{Shared, Task};
use crate::gathered::Gathered;
use crate::halt::Halt;
use crate::input::{self, InputFormat, LogTable, Steps};
use crate::measure::{Measured, Sums};
use crate::output::Output;
use crate::pace::{self, Clock};
use crate::reading::SessionReading;
use crate::recorded::{Extent, Recorded, Schema, What};
use crate::response_lines::ResponseLines;
use crate::samples::{self, ServerReport};
use crate::schemas::Schemas;

/// Statements that are read and not executed hold at most so many bytes.
const QUEUED_BYTES_MAX: u64 = 64 << 20;
/// With a pace, statements are read so long before they are due.
const AHEAD: Duration = Duration::from_secs(5);
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
    /// Connections of [`Sharing::Sessions`] at a time, for each input.
    pub sessions_max: usize,
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
    /// Statements of which it is in doubt how the server reads them, or whether they are whole, or that change how others are read: never replayed.
    #[serde(default)]
    pub skipped_unclear: u64,
    /// Statements that need their own session, of an input whose statements are shared, where writes are replayed.
    #[serde(default)]
    pub skipped_of_session: u64,
    /// Statements were late since too many were waiting, in seconds; their latencies count it.
    pub held_back_seconds: f64,
    /// The server and its disks.
    pub server: ServerReport,
    /// Why it ended before its inputs did. What it measured until then is in the report; `None`: it came to the end, or a signal ended it.
    #[serde(default)]
    pub failure: Option<String>,
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

/// What the readers, connections and the collector share.
pub(crate) struct Replay<'a> {
    options: &'a ReplayOptions,
    reading: &'a SessionReading,
    shared: Shared<'a>,
    progress: &'a ReplayProgress,
    queued_bytes: AtomicU64,
    held_back_ms: AtomicU64,
    skipped: Skipped,
}

/// Statements that were left out.
#[derive(Debug, Default)]
struct Skipped {
    writes: AtomicU64,
    of_server: AtomicU64,
    unclear: AtomicU64,
    of_session: AtomicU64,
}

/// Replays; a line for each response goes into `csv`. A signal raises `stop` and ends it early.
///
/// # Errors
/// Of inputs, of connecting, and of writing, as long as nothing was measured; later they are in the report ([`ReplayReport::failure`]). An error of a
/// statement is a measurement.
pub fn replay(
    options: &ReplayOptions,
    csv: Option<Output>,
    stop: &Arc<AtomicBool>,
    progress: &ReplayProgress,
) -> Result<ReplayReport> {
    let halt = Halt::new(stop);
    // All are opened before anything is executed.
    let lines = csv.map(ResponseLines::new).transpose()?;
    let mut steps = Vec::new();
    for plan in &options.inputs {
        let opened = input::open_first(&plan.place, plan.sharing, &halt);
        if halt.is_stopped() {
            return Err(Error::Stopped);
        }
        steps.push(opened?);
    }
    let mut watching = Connection::connect(&options.server, &ConnectOptions::new("server"))?;
    let reading = SessionReading::of(&mut watching)?;
    let connections = Connections::new(options, &reading);
    let responses = Gathered::default();
    let clock = Clock::new(halt.clone());
    let replay = Replay {
        options,
        reading: &reading,
        shared: Shared { connections: &connections, halt: halt.clone(), clock, responses: &responses },
        progress,
        queued_bytes: AtomicU64::new(0),
        held_back_ms: AtomicU64::new(0),
        skipped: Skipped::default(),
    };
    let (sums, server) = replay.run(steps, lines, watching);
    let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let Skipped { writes, of_server, unclear, of_session } = &replay.skipped;
    let failure = halt.take_failure();
    if sums.statements == 0 {
        if let Some(failure) = failure {
            return Err(failure);
        }
        if [writes, of_server, unclear, of_session].into_iter().map(number).sum::<u64>() == 0 && !halt.is_stopped() {
            let why = "it holds no statement that is replayed".to_owned();
            return Err(Error::Nothing { input: "the input".to_owned(), why });
        }
    }
    Ok(ReplayReport {
        pace: match options.pace {
            Pace::Fastest => "as fast as possible".to_owned(),
            Pace::Recorded(factor) => format!("as recorded, × {factor}"),
        },
        sums,
        skipped_writes: number(writes),
        skipped_of_server: number(of_server),
        skipped_unclear: number(unclear),
        skipped_of_session: number(of_session),
        held_back_seconds: number(&replay.held_back_ms) as f64 / 1e3,
        server,
        failure: failure.map(|failure| failure.to_string()),
    })
}

impl<'a> Replay<'a> {
    /// Reads, executes and measures, until all is done or the replay is over.
    fn run(&self, steps: Vec<Steps>, lines: Option<ResponseLines>, watching: Connection) -> (Sums, ServerReport) {
        let (halt, over) = (self.halt(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let collector = scope.spawn(|| self.collect(lines));
            let sampler = scope.spawn(|| samples::watch(watching, self.options.is_local, &over));
            let ender = scope.spawn(|| self.shared.connections.end_when_over(halt, &over));
            std::thread::scope(|workers| {
                for (number, steps) in steps.into_iter().enumerate() {
                    workers.spawn(move || {
                        match self.input(number, steps, workers) {
                            Err(error @ Error::Sessions { .. }) => halt.fail(error),
                            // What was read before is executed, and so are the other inputs.
                            Err(error) => halt.note(error),
                            Ok(()) => {}
                        }
                    });
                }
            });
            self.shared.responses.close();
            over.store(true, Ordering::Release);
            sampler.thread().unpark();
            ender.thread().unpark();
            let sums = collector.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let server = sampler.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let server = server.unwrap_or_else(|error| {
                halt.fail(error);
                ServerReport::default()
            });
            (sums, server)
        })
    }

    pub(crate) fn halt(&self) -> &Halt {
        &self.shared.halt
    }

    pub(crate) fn shared(&self) -> Shared<'a> {
        self.shared.clone()
    }

    pub(crate) fn sharing(&self, input: usize) -> Sharing {
        self.options.inputs[input].sharing
    }

    pub(crate) fn sessions_max(&self) -> usize {
        self.options.sessions_max
    }

    /// Opens an input once more.
    pub(crate) fn open(&self, input: usize) -> Result<Steps> {
        input::open_again(&self.options.inputs[input].place, self.halt())
    }

    /// A step as a task; `None` for what is not replayed.
    pub(crate) fn task(&self, step: Recorded, prepare: &mut Prepare) -> Option<Task> {
        if step.what == What::End {
            prepare.schemas.end(step.session);
        }
        let What::Statement(statement) = step.what else { return None };
        let first = *prepare.first.get_or_insert(step.at);
        let since = (step.at - first).max(0.0);
        self.progress.recorded_ms.fetch_max((since * 1e3) as u64, Ordering::Relaxed);
        // Statements of one digest differ in their values, and may differ in their class.
        let tokens = self.reading.tokens(&statement);
        let understood = understand(tokens.as_deref(), self.reading);
        let is_apart = self.options.writes && prepare.is_shared;
        let needs_session =
            is_apart && tokens.as_deref().is_some_and(|tokens| prepare.own.need_session(tokens, &understood));
        let schema = prepare.schemas.of_statement(step.session, step.schema, understood.uses.as_deref());
        let schema = match (schema, &self.options.schema) {
            (Schema::Unknown, Some(name)) => Schema::of(name),
            (schema, _) => schema,
        };
        let skipped = match (understood.class, step.extent) {
            // A part of one that reads does no harm.
            (_, Extent::Cut) | (Class::Write, Extent::Doubtful) => Some(&self.skipped.unclear),
            (class, _) => self.skips(class, &schema),
        };
        if let Some(skipped) = skipped.or_else(|| needs_session.then_some(&self.skipped.of_session)) {
            skipped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let digest = prepare.digester.digest(tokens.as_deref().unwrap_or_default());
        if prepare.texts.len() >= DIGESTS_MAX {
            prepare.texts.clear();
        }
        let text = prepare.texts.entry(digest).or_insert_with(|| Arc::from(prepare.digester.text()));
        let due = match self.options.pace {
            Pace::Fastest => None,
            Pace::Recorded(factor) => Some(pace::due(since, factor)),
        };
        Some(Task {
            session: step.session,
            due,
            schema,
            uses: understood.uses,
            may_drop_schema: understood.may_drop_schema,
            statement,
            digest,
            digest_text: Arc::clone(text),
            is_ordered: understood.is_ordered,
        })
    }

    /// What counts a statement that is left out; `None` if it is replayed.
    fn skips(&self, class: Class, schema: &Schema) -> Option<&AtomicU64> {
        let is_of_server = matches!(schema, Schema::Named(name) if is_schema_of_server(name));
        match class {
            Class::Read | Class::Session => None,
            Class::Write if self.options.writes && !is_of_server => None,
            Class::Write if self.options.writes => Some(&self.skipped.of_server),
            Class::Write => Some(&self.skipped.writes),
            Class::Server => Some(&self.skipped.of_server),
            Class::Unclear => Some(&self.skipped.unclear),
        }
    }

    /// What is due much later need not be in memory.
    pub(crate) fn wait_until_near(&self, task: &Task) {
        if let Some(due) = task.due {
            self.shared.clock.wait_until_near(due, AHEAD);
        }
    }

    /// Waits while too much is in memory.
    pub(crate) fn hold_back(&self, task: &Task) {
        const LOOK_EVERY: Duration = Duration::from_millis(1);
        self.delayed(task, || {
            while self.queued_bytes.load(Ordering::Acquire) > QUEUED_BYTES_MAX && !self.halt().is_over() {
                std::thread::sleep(LOOK_EVERY);
            }
        });
    }

    /// Waits before a statement; with a pace, that may make it late, which is told.
    pub(crate) fn delayed<T>(&self, task: &Task, wait: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let waited = wait();
        if task.due.is_some_and(|due| self.shared.clock.left(due).is_zero()) {
            self.held_back_ms.fetch_add(begun.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
        waited
    }

    /// The statement is in memory from here on.
    pub(crate) fn queue(&self, task: &Task) {
        self.queued_bytes.fetch_add(task.statement.len() as u64, Ordering::AcqRel);
    }

    /// A connection has taken it.
    pub(crate) fn unqueue(&self, task: &Task) {
        self.queued_bytes.fetch_sub(task.statement.len() as u64, Ordering::AcqRel);
    }

    /// Adds responses up, and writes them. What cannot be written ends the replay, and is measured all the same.
    fn collect(&self, mut lines: Option<ResponseLines>) -> Sums {
        let inputs = self.options.inputs.iter().map(|plan| {
            let sharing = match plan.sharing {
                Sharing::Sessions => "sessions as recorded".to_owned(),
                Sharing::Threads(threads) => format!("{threads} share them"),
                Sharing::Each(threads) => format!("{threads}, each all of them"),
            };
            (plan.name.clone(), sharing)
        });
        let mut measured = Measured::new(inputs);
        while let Some(responses) = self.shared.responses.take() {
            for response in &responses {
                self.progress.executed.fetch_add(1, Ordering::Relaxed);
                if response.error.is_some() {
                    self.progress.errors.fetch_add(1, Ordering::Relaxed);
                }
                let name = &self.options.inputs[response.input].name;
                if let Some(Err(error)) = lines.as_mut().map(|lines| lines.write(response, name)) {
                    self.halt().fail(error);
                    lines = None;
                }
                measured.add(response);
            }
        }
        if let Some(Err(error)) = lines.map(ResponseLines::end) {
            self.halt().fail(error);
        }
        measured.sums()
    }
}

/// What a reader remembers.
#[derive(Default)]
pub(crate) struct Prepare {
    first: Option<f64>,
    digester: Digester,
    texts: HashMap<u64, Arc<str>>,
    schemas: Schemas,
    /// Connections share the statements of several sessions.
    is_shared: bool,
    own: OwnTables,
}

impl Prepare {
    /// For connections that share statements.
    pub(crate) fn shared() -> Prepare {
        Prepare { is_shared: true, ..Prepare::default() }
    }

    /// When the first statement was, in seconds of the record.
    pub(crate) fn first(&self) -> Option<f64> {
        self.first
    }
}
