//! Statements on their way to the applier: small ones are gathered into one packet, none is larger than the replica takes.

use std::cell::RefCell;
use std::sync::mpsc::SyncSender;

use crossbeam_channel::bounded;

use super::command::{Change, Command, Execution, FoundRow, RowCheck};
use crate::halt::{Halt, Result};
use crate::prefetch::ChunkMark;
use spate_replica::Error;
use spate_replica::status::Status;

/// A small batch is sent as one packet up to this size: one round trip from its first statement to its commit.
const JOINED_SQL_BYTES_MAX: usize = 64 << 10;

/// Statements in one packet. Their answers must fit the socket's buffer: the server reads no further while it cannot write.
const JOINED_STATEMENTS_MAX: usize = 256;

/// Left free in a packet, for its own bytes and the server's.
const PACKET_MARGIN_BYTES: usize = 64;

/// While a statement of this size is on its way, nothing else is prepared: a large row is held but once as a statement.
const LARGE_SQL_BYTES: usize = 2 << 20;

/// Where commands go.
enum Output {
    Applier(SyncSender<Command>),
    /// They are kept until they are taken.
    Kept(RefCell<Vec<Command>>),
}

/// The way to the applier.
pub(crate) struct Outlet<'a> {
    output: Output,
    status: &'a Status,
    max_allowed_packet: usize,
    /// Statements that were gathered, each with a semicolon behind it.
    sql: Vec<u8>,
    statements: usize,
    checks: Vec<RowCheck>,
    /// The chunk of rows that was gathered last. `None`: none, or one that is too small to be measured.
    mark: Option<ChunkMark>,
}

impl<'a> Outlet<'a> {
    /// An outlet with nothing in it. `max_allowed_packet` is the replica's, in bytes.
    pub(crate) fn new(output: SyncSender<Command>, status: &'a Status, max_allowed_packet: usize) -> Outlet<'a> {
        Outlet::of(Output::Applier(output), status, max_allowed_packet)
    }

    /// An outlet that keeps everything. Nothing can be asked through it.
    pub(crate) fn keeping(status: &'a Status, max_allowed_packet: usize) -> Outlet<'a> {
        Outlet::of(Output::Kept(RefCell::default()), status, max_allowed_packet)
    }

    fn of(output: Output, status: &'a Status, max_allowed_packet: usize) -> Outlet<'a> {
        Outlet { output, status, max_allowed_packet, sql: Vec::new(), statements: 0, checks: Vec::new(), mark: None }
    }

    /// What it has kept.
    pub(crate) fn take_kept(&mut self) -> Vec<Command> {
        match &mut self.output {
            Output::Applier(_) => vec![],
            Output::Kept(kept) => kept.take(),
        }
    }

    /// The replica's limit of a packet, in bytes.
    pub(crate) fn max_allowed_packet(&self) -> usize {
        self.max_allowed_packet
    }

    /// True if a packet can hold so many bytes of SQL.
    pub(crate) fn fits(&self, sql_bytes: usize) -> bool {
        sql_bytes + PACKET_MARGIN_BYTES <= self.max_allowed_packet
    }

    /// Sends what was gathered if so many more bytes would not fit with it.
    ///
    /// # Errors
    /// [`Halt::StageEnded`].
    pub(crate) fn make_room(&mut self, sql_bytes: usize) -> Result<()> {
        if self.fits(self.sql.len() + sql_bytes) { Ok(()) } else { self.flush(None) }
    }

    /// What is added next is a chunk of rows that is measured, in a packet of its own.
    ///
    /// # Errors
    /// [`Halt::StageEnded`].
    pub(crate) fn mark(&mut self, mark: Option<ChunkMark>) -> Result<()> {
        if self.mark.is_some() && mark.is_some() {
            self.flush(None)?;
        }
        self.mark = mark.or(self.mark);
        Ok(())
    }

    /// Adds a statement, which `write` appends. With a change, which it does, it is sent at once.
    ///
    /// # Errors
    /// [`Halt::StageEnded`]; one that names the change if it is too large.
    pub(crate) fn statement(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>),
        check: Option<RowCheck>,
        change: Option<Change>,
    ) -> Result<()> {
        write(&mut self.sql);
        self.sql.push(b';');
        self.checks.extend(check.map(|check| RowCheck { statement: self.statements, ..check }));
        self.statements += 1;
        let is_full = self.sql.len() > JOINED_SQL_BYTES_MAX || self.statements >= JOINED_STATEMENTS_MAX;
        if change.is_some() || is_full { self.flush(change) } else { Ok(()) }
    }

    /// Returns the gathered statements, with semicolons, if they are short and may commit without a look at their answers; else sends them. With
    /// them, the last chunk of rows among them, which nobody will measure.
    ///
    /// # Errors
    /// As [`Outlet::statement`].
    pub(crate) fn take_for_commit(&mut self) -> Result<(Vec<u8>, usize, Option<ChunkMark>)> {
        if self.sql.len() > JOINED_SQL_BYTES_MAX || !self.checks.is_empty() {
            self.flush(None)?;
        }
        Ok((std::mem::take(&mut self.sql), std::mem::take(&mut self.statements), self.mark.take()))
    }

    /// Sends what was gathered.
    ///
    /// # Errors
    /// As [`Outlet::statement`].
    pub(crate) fn flush(&mut self, change: Option<Change>) -> Result<()> {
        if self.sql.is_empty() {
            return Ok(());
        }
        let mut sql = std::mem::take(&mut self.sql);
        // The last semicolon would begin an empty statement.
        if sql.last() == Some(&b';') {
            sql.pop();
        }
        if !self.fits(sql.len()) {
            return Err(self.too_large(sql.len(), change));
        }
        let is_large = sql.len() > LARGE_SQL_BYTES;
        let (statements, checks) = (std::mem::take(&mut self.statements), std::mem::take(&mut self.checks));
        let mark = self.mark.take();
        self.send(Command::Execute(Execution { sql, statements, change, checks, mark, ..Execution::default() }))?;
        if is_large { self.settle() } else { Ok(()) }
    }

    /// Asks for one row in the session and the transaction of what was gathered, and waits for it: `None` if there is none.
    ///
    /// # Errors
    /// As [`Outlet::statement`].
    pub(crate) fn ask(&mut self, sql: Vec<u8>, change: Option<Change>) -> Result<FoundRow> {
        self.flush(None)?;
        if !self.fits(sql.len()) {
            return Err(self.too_large(sql.len(), change));
        }
        let (answer, answered) = bounded(1);
        self.send(Command::Ask { sql, change, answer })?;
        answered.recv().map_err(|_| Halt::StageEnded)
    }

    /// A statement of our own, sent at once, behind what was gathered.
    ///
    /// # Errors
    /// As [`Outlet::statement`].
    pub(crate) fn plain(&mut self, sql: &[u8]) -> Result<()> {
        self.flush(None)?;
        self.send(Command::Execute(Execution { sql: sql.to_vec(), statements: 1, ..Execution::default() }))
    }

    /// The error of a statement that no packet can hold. Without a change, the batch will be taken apart to find out which one
    /// it is.
    pub(crate) fn too_large(&self, sql_bytes: usize, change: Option<Change>) -> Halt {
        let replica_bytes = self.max_allowed_packet;
        let error = match change {
            None => Error::PacketTooLarge { bytes: sql_bytes, max_allowed_packet: replica_bytes },
            Some(Change { place, what, .. }) => {
                let source_bytes = self.status.source_packet_bytes();
                Error::ChangeTooLarge { place, change: what, bytes: sql_bytes, replica_bytes, source_bytes }
            }
        };
        error.into()
    }

    /// Waits until the applier has no statement left.
    ///
    /// # Errors
    /// [`Halt::StageEnded`].
    pub(crate) fn settle(&self) -> Result<()> {
        if matches!(self.output, Output::Kept(_)) {
            return Ok(());
        }
        let (answer, answered) = bounded(1);
        self.send(Command::Settle(answer))?;
        answered.recv().map_err(|_| Halt::StageEnded)
    }

    /// Sends a command, past what was gathered.
    ///
    /// # Errors
    /// [`Halt::StageEnded`].
    pub(crate) fn send(&self, command: Command) -> Result<()> {
        match &self.output {
            Output::Applier(output) => output.send(command).map_err(|_| Halt::StageEnded),
            Output::Kept(kept) => {
                kept.borrow_mut().push(command);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_measured_chunk_is_a_packet_of_its_own() {
        let status = Status::new(String::new(), String::new(), Box::new(|_, _| {}));
        let mut outlet = Outlet::keeping(&status, 1 << 20);
        for number in 1..=3 {
            outlet.mark(Some(ChunkMark { number, rows: 100, has_lookups: true })).unwrap();
            outlet.statement(|sql| sql.extend_from_slice(b"BINLOG ''"), None, None).unwrap();
        }
        outlet.flush(None).unwrap();
        let numbers: Vec<Option<u64>> = outlet
            .take_kept()
            .into_iter()
            .map(|command| match command {
                Command::Execute(execution) => execution.mark.map(|mark| mark.number),
                _ => None,
            })
            .collect();
        assert_eq!(numbers, [Some(1), Some(2), Some(3)]);
    }
}
