//! A connection that executes statements when they are due, and tells what came of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spate_connection::{Seen, quote};
use xxhash_rust::xxh3::xxh3_64;

use crate::answer::Answer;
use crate::connections::{Connections, OpenConnection, is_too_many};
use crate::error::Error;
use crate::gathered::Gathered;
use crate::halt::Halt;
use crate::measure::Response;
use crate::pace::Clock;
use crate::recorded::Schema;

/// A connection gives so many responses to the collector at once, or those of so long.
const RESPONSES_AT_ONCE: usize = 128;
const RESPONSES_KEPT: Duration = Duration::from_millis(100);
/// Only of slower statements the text is kept; in seconds.
const SLOW: f64 = 0.001;
/// A connection is opened so long before its first statement is due: a login is no part of a statement's latency.
const CONNECT_AHEAD: Duration = Duration::from_millis(50);
/// A server has a place some time after a connection was closed.
const PLACE_WAIT_MAX: Duration = Duration::from_secs(1);

/// A statement on its way to a connection.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) session: u64,
    pub(crate) due: Option<Duration>,
    pub(crate) schema: Schema,
    /// The schema that a USE chooses.
    pub(crate) uses: Option<String>,
    pub(crate) may_drop_schema: bool,
    pub(crate) statement: Vec<u8>,
    pub(crate) digest: u64,
    pub(crate) digest_text: Arc<str>,
    pub(crate) is_ordered: bool,
}

/// What all connections of a replay share.
#[derive(Debug, Clone)]
pub(crate) struct Shared<'a> {
    pub(crate) connections: &'a Connections<'a>,
    pub(crate) halt: Halt,
    pub(crate) clock: Clock,
    pub(crate) responses: &'a Gathered,
}

/// A connection, and what it knows of its session.
pub(crate) struct Executor<'a> {
    shared: Shared<'a>,
    input: usize,
    /// Statements of several sessions come to it.
    is_shared: bool,
    /// Opened for the first statement.
    connection: Option<OpenConnection<'a>>,
    /// The connection's default schema; unknown if it must be chosen again before the next statement.
    schema: Schema,
    responses: Vec<Response>,
    flushed: Instant,
}

impl Drop for Executor<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

impl<'a> Executor<'a> {
    pub(crate) fn new(shared: Shared<'a>, input: usize, is_shared: bool) -> Executor<'a> {
        let flushed = Instant::now();
        Executor { shared, input, is_shared, connection: None, schema: Schema::Absent, responses: vec![], flushed }
    }

    /// The session begins again: the next statement has a new connection.
    pub(crate) fn reset(&mut self) {
        self.connection = None;
        self.schema = Schema::Absent;
    }

    /// Executes a statement when it is due.
    pub(crate) fn execute(&mut self, task: Task) {
        let due = task.due.unwrap_or_default();
        let mut refused = None;
        if self.connection.is_none() {
            self.shared.clock.wait_until_near(due, CONNECT_AHEAD);
            refused = self.connect();
        }
        let Some(mut open) = self.connection.take() else {
            if let Some(refused) = refused {
                self.shared.clock.wait_until(due);
                let start = Instant::now();
                self.respond(&task, [start, start], (0, 0, 0, 0), Some(refused));
            }
            return;
        };
        self.choose_schema(&mut open, &task.schema);
        self.shared.clock.wait_until(due);
        if self.shared.halt.is_over() {
            return;
        }
        let mut answer = Answer::new(task.is_ordered);
        let start = Instant::now();
        let outcome = open.connection.for_each_result_of_single(&task.statement, &mut |seen| match seen {
            Seen::Columns(columns) => answer.begin_result(columns),
            Seen::Row(row) => answer.row(&row),
        });
        let ended = Instant::now();
        let (rows, bytes) = (answer.rows, answer.bytes);
        let (figures, error) = match outcome {
            Ok(outcome) => {
                let checksum = answer.checksum(outcome.statements, outcome.affected_rows);
                ((rows, bytes, outcome.affected_rows, checksum), None)
            }
            Err(error) => {
                let is_lost = error.server_error().is_none() || error.is_connection_lost();
                if is_lost && self.shared.halt.is_over() {
                    // Its end was not the server's doing.
                    return;
                }
                let told = (error.code().unwrap_or(0), error.to_string());
                if is_lost {
                    drop(open);
                    self.reset();
                    self.respond(&task, [start, ended], (rows, bytes, 0, answer.checksum(0, 0)), Some(told));
                    return;
                }
                ((rows, bytes, 0, answer.checksum(0, 0)), Some(told))
            }
        };
        match &task.uses {
            Some(name) if error.is_none() => self.schema = Schema::of(name),
            _ if task.may_drop_schema => self.schema = Schema::Unknown,
            _ => {}
        }
        self.connection = Some(open);
        self.respond(&task, [start, ended], figures, error);
    }

    /// Opens the connection. Returns the server's refusal if it has too many; any other error ends the replay.
    fn connect(&mut self) -> Option<(u16, String)> {
        const RETRY_EVERY: Duration = Duration::from_millis(50);
        let begun = Instant::now();
        while !self.shared.halt.is_over() {
            match self.shared.connections.open() {
                Ok(connection) => {
                    self.connection = Some(connection);
                    return None;
                }
                // A recorded session's statements are errors then. Those that share an input would take them away from the others.
                Err(Error::Connection(error)) if is_too_many(&error) && !self.is_shared => {
                    if begun.elapsed() > PLACE_WAIT_MAX {
                        return Some((error.code().unwrap_or(0), error.to_string()));
                    }
                    std::thread::sleep(RETRY_EVERY);
                }
                Err(error) => self.shared.halt.fail(error),
            }
        }
        None
    }

    /// Chooses the schema that the statement was recorded in. Where it had none, or one that is not there, no other may take its place: its names would mean
    /// other tables. A connection that has had a schema cannot be without; then it is in one that nobody can write to.
    fn choose_schema(&mut self, open: &mut OpenConnection<'_>, wanted: &Schema) {
        const WITHOUT_TABLES: &str = "information_schema";
        let mut choose =
            |name: &str| open.connection.execute_single(format!("USE {}", quote::identifier(name)).as_bytes()).is_ok();
        match wanted {
            // The session's own statements chose it.
            Schema::Unknown if !self.is_shared => {}
            Schema::Unknown | Schema::Absent if self.schema == Schema::Absent => {}
            wanted if *wanted == self.schema => {}
            Schema::Named(name) if choose(name) => self.schema = wanted.clone(),
            Schema::Named(_) if self.schema == Schema::Absent => {}
            _ => {
                if choose(WITHOUT_TABLES) {
                    self.schema = Schema::of(WITHOUT_TABLES);
                }
            }
        }
    }

    /// `figures` are rows, bytes, rows that were changed, and the checksum.
    fn respond(
        &mut self,
        task: &Task,
        [start, ended]: [Instant; 2],
        (rows, bytes, affected_rows, checksum): (u64, u64, u64, u64),
        error: Option<(u16, String)>,
    ) {
        let clock = &self.shared.clock;
        let (began, ended_s) = (clock.seconds_until(start), clock.seconds_until(ended));
        let due = task.due.map_or(began, |due| due.as_secs_f64());
        let is_slow = ended_s - due > SLOW;
        self.responses.push(Response {
            input: self.input,
            session: task.session,
            digest: task.digest,
            digest_text: Arc::clone(&task.digest_text),
            due,
            began,
            ended: ended_s,
            rows,
            bytes,
            affected_rows,
            checksum,
            statement_hash: xxh3_64(&task.statement),
            error,
            statement: is_slow.then(|| String::from_utf8_lossy(&task.statement).into_owned()),
        });
        if self.responses.len() >= RESPONSES_AT_ONCE || ended - self.flushed > RESPONSES_KEPT {
            self.flush();
        }
    }

    /// Gives the collector what it has not got.
    fn flush(&mut self) {
        self.flushed = Instant::now();
        if !self.responses.is_empty() {
            self.shared.responses.add(&mut self.responses);
        }
    }
}
