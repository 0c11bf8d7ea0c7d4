//! The last stage: one connection to the replica, which executes what was prepared and commits it with its checkpoint.
//!
//! The session runs without autocommit, so nothing that it sends can become permanent before a COMMIT is sent; and a COMMIT
//! is only sent when every statement before it has succeeded. A deadlock that rolls back the transaction under statements
//! still in flight therefore does no harm: what they do is rolled back when the session ends.

use std::collections::VecDeque;
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use spate_archive::stopping_point;

use super::PartEnd;
use super::prepare::{Change, Command, batch_status};
use crate::applier_lock::PING_EVERY;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::status::Status;
use crate::wire::{self, Connection};

/// Statements sent and not yet answered. Enough that the server never waits for us; few, since each is held in its buffers.
const IN_FLIGHT_MAX: usize = 3;

pub(crate) struct Applier<'a> {
    connection: Connection,
    input: Receiver<Command>,
    tickets: Sender<()>,
    status: &'a Status,
    progress: &'a Progress,
    /// When the open batch began.
    began: Option<Instant>,
    /// What the statements in flight do, oldest first.
    changes: VecDeque<Option<Change>>,
}

impl<'a> Applier<'a> {
    /// An applier over a connection that holds the lock.
    pub(crate) fn new(
        connection: Connection,
        input: Receiver<Command>,
        tickets: Sender<()>,
        status: &'a Status,
        progress: &'a Progress,
    ) -> Applier<'a> {
        Applier { connection, input, tickets, status, progress, began: None, changes: VecDeque::new() }
    }

    /// Applies until the stage before is gone; what it left behind unfinished is rolled back with the connection.
    ///
    /// # Errors
    /// [`Error::Batch`] or [`Error::Change`] if the replica refuses something; an error of the connection.
    pub(crate) fn run(mut self) -> Result<()> {
        self.connection.execute(b"SET SESSION autocommit=0")?;
        while let Some(command) = self.next_command()? {
            match command {
                Command::Execute { sql, statements, change } => {
                    self.begin();
                    self.send(&sql, statements, change)?;
                    stopping_point("amid-statements");
                }
                Command::Commit { sql, statements, end, oldest_seconds, row_changes, net_row_changes } => {
                    let began = self.begin();
                    self.status.applying(oldest_seconds);
                    self.commit(&sql, statements)?;
                    stopping_point("after-commit");
                    let milliseconds = began.elapsed().as_secs_f64() * 1e3;
                    self.committed(end, row_changes, net_row_changes, milliseconds);
                }
                Command::Barrier { intent, statement, fulfil, end, change } => {
                    let began = self.begin();
                    self.status.applying(end.checkpoint.source_seconds as u32);
                    self.barrier(&intent, &statement, &fulfil, change)?;
                    let milliseconds = began.elapsed().as_secs_f64() * 1e3;
                    self.committed(end, 0, 0, milliseconds);
                }
            }
        }
        Ok(())
    }

    /// Waits for the next command, and meanwhile keeps the session alive. `None`: there will be none.
    fn next_command(&mut self) -> Result<Option<Command>> {
        loop {
            match self.input.recv_timeout(PING_EVERY) {
                Ok(command) => return Ok(Some(command)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {
                    while self.connection.in_flight() > 0 {
                        self.receive()?;
                    }
                    self.connection.execute(b"DO 0")?;
                }
            }
        }
    }

    fn begin(&mut self) -> Instant {
        *self.began.get_or_insert_with(Instant::now)
    }

    fn send(&mut self, sql: &[u8], statements: usize, change: Option<Change>) -> Result<()> {
        while self.connection.in_flight() >= IN_FLIGHT_MAX {
            self.receive()?;
        }
        self.connection.send_statements(sql, statements)?;
        self.changes.push_back(change);
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        let change = self.changes.pop_front().flatten();
        let answer = self.connection.receive_result();
        answer.map(drop).map_err(|error| refused(error, change))
    }

    fn commit(&mut self, sql: &[u8], statements: usize) -> Result<()> {
        while self.connection.in_flight() > 0 {
            self.receive()?;
        }
        stopping_point("before-commit");
        self.connection.send_statements(sql, statements)?;
        stopping_point("after-commit-sent");
        self.connection.receive_result().map(drop).map_err(|error| refused(error, None))
    }

    fn barrier(&mut self, intent: &str, statement: &[Vec<u8>; 3], fulfil: &str, change: Change) -> Result<()> {
        while self.connection.in_flight() > 0 {
            self.receive()?;
        }
        let [before, sql, after] = statement;
        stopping_point("before-intent");
        self.connection.execute(intent.as_bytes())?;
        self.connection.execute(b"COMMIT")?;
        stopping_point("after-intent");
        // A statement that could not begin leaves no doubt behind.
        if let Err(error) = self.connection.execute(before).and_then(|_| self.connection.execute(sql)) {
            let is_clear = error.server_error().is_some_and(|error| !error.is_transient());
            if is_clear && self.connection.execute(after).is_ok() {
                crate::checkpoint::drop_intent(&mut self.connection)?;
                self.connection.execute(b"COMMIT")?;
            }
            return Err(refused(error, Some(change)));
        }
        stopping_point("before-fulfilment");
        self.connection.execute(after)?;
        self.connection.execute(fulfil.as_bytes())?;
        stopping_point("after-fulfilment");
        Ok(())
    }

    fn committed(&mut self, end: PartEnd, row_changes: u64, net_row_changes: u64, milliseconds: f64) {
        self.progress.applied(end.checkpoint.seqno);
        let batch = batch_status(&end, row_changes, net_row_changes, milliseconds);
        self.status.applied(&end.checkpoint, Some(&batch));
        self.began = None;
        // The preparing stage may be gone already, at the end of a run.
        let _is_gone = self.tickets.try_send(());
    }
}

/// Gives a server's refusal its place, if that is known; otherwise the next session takes the batch apart.
fn refused(source: wire::Error, change: Option<Change>) -> Error {
    if source.server_error().is_none() || source.is_transient() {
        return source.into();
    }
    match change {
        Some(Change { place, what }) => {
            let advice = advice(source.code());
            Error::Change { place, change: what, source, advice }
        }
        None => Error::Batch { source },
    }
}

/// What to do about a refused change, told by the server's error number.
fn advice(code: Option<u16>) -> &'static str {
    match code {
        Some(1032) => {
            "The row is missing on the replica: somebody deleted it there, or the replica began at a wrong position"
        }
        Some(1062) => {
            "The row is on the replica already: somebody wrote there, or the replica began at a wrong position"
        }
        Some(1146) => "The table is missing on the replica",
        Some(1153) => "Raise max_allowed_packet on the replica",
        Some(1205 | 1213) => "Other sessions write to the replica",
        Some(1290 | 1836) => "The replica is read-only for this user: it needs the privilege READ_ONLY ADMIN",
        Some(1044 | 1142 | 1143 | 1227 | 1370) => "The user of Spate lacks a privilege on the replica",
        _ => "Compare the replica with the source (spate verify)",
    }
}
