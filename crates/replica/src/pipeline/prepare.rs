//! The second stage: sorts and encodes a batch into the statements that the replica will execute.

use crossbeam_channel::{Receiver, Sender};
use spate_binlog::ChecksumAlgorithm;
use spate_schedule::Item;
use spate_schedule::batch::{Segment, Statement};
use spate_schedule::emit::ChunkWriter;

use super::{Part, PartEnd};
use crate::checkpoint;
use crate::dialect::{Collations, append_binlog, statement_sql};
use crate::error::{Error, Result, TransactionPlace};
use crate::status::BatchStatus;

/// Bytes of events in one `BINLOG` statement. Large enough that the statement's own cost vanishes, small enough that the
/// applier has something to do while the next is being encoded.
const CHUNK_EVENT_BYTES: usize = 384 << 10;

/// A small batch is sent as one packet up to this size: one round trip from its first statement to its commit.
const JOINED_SQL_BYTES_MAX: usize = 64 << 10;

/// Base64 makes four bytes of three; the rest of a packet is for the statement around it.
const PACKET_SHARE: (usize, usize) = (5, 8);

/// What the applier is to do next.
#[derive(Debug)]
pub(crate) enum Command {
    /// Execute this within the open transaction. Nothing of it commits.
    Execute {
        sql: Vec<u8>,
        /// How many statements it holds.
        statements: usize,
        /// What it does; only while a failed batch is being taken apart.
        change: Option<Change>,
    },
    /// Execute what is left of the batch, and commit. Only to be sent once all before has succeeded.
    Commit {
        sql: Vec<u8>,
        statements: usize,
        end: PartEnd,
        oldest_seconds: u32,
        row_changes: u64,
        net_row_changes: u64,
    },
    /// Execute a statement that commits by itself.
    Barrier { intent: String, statement: [Vec<u8>; 3], fulfil: String, end: PartEnd, change: Change },
}

/// One change of one transaction, for messages.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) place: TransactionPlace,
    pub(crate) what: String,
}

/// How to prepare.
pub(crate) struct Preparer {
    pub(crate) input: Receiver<Part>,
    pub(crate) hunger: Sender<()>,
    pub(crate) tickets: Receiver<()>,
    pub(crate) output: Sender<Command>,
    pub(crate) collations: Collations,
    /// The replica's limit, in bytes.
    pub(crate) max_allowed_packet: usize,
    /// Take row changes apart, one a statement, each with a description.
    pub(crate) one_by_one: bool,
}

/// What has been prepared of the open batch.
#[derive(Default)]
struct Pending {
    sql: Vec<u8>,
    /// How many statements `sql` holds.
    statements: usize,
    row_changes: u64,
    net_row_changes: u64,
    has_format: bool,
    /// A part was prepared, and the batch goes on.
    is_open: bool,
}

impl Preparer {
    /// Prepares batches until the stage before is gone.
    ///
    /// # Errors
    /// [`Error::StageEnded`] if the applier is gone; an encoding error.
    pub(crate) fn run(self) -> Result<()> {
        let mut pending = Pending::default();
        loop {
            // A ticket is worth a batch; a batch in several parts needs only one.
            if !pending.is_open && self.tickets.recv().is_err() {
                return Err(Error::StageEnded);
            }
            if self.hunger.send(()).is_err() {
                return Ok(());
            }
            let Ok(part) = self.input.recv() else { return Ok(()) };
            self.part(part, &mut pending)?;
        }
    }

    fn part(&self, part: Part, pending: &mut Pending) -> Result<()> {
        if !pending.has_format {
            pending.has_format = true;
            let format = part.format.encode(part.server_id, ChecksumAlgorithm::None);
            let mut sql = Vec::new();
            append_binlog(&mut sql, &format);
            self.send(Command::Execute { sql, statements: 1, change: None })?;
        }
        if let Some(end) = part.end.as_ref().filter(|end| end.is_barrier) {
            return self.barrier(&part, end);
        }
        pending.is_open = part.end.is_none();
        pending.row_changes += part.batch.statistics.row_changes;
        for item in &part.batch.items {
            match item {
                Item::Rows(segment) => self.segment(segment, &part, pending)?,
                Item::Statement(statement) => self.statement(statement, &part, pending)?,
            }
        }
        let Some(end) = part.end else { return Ok(()) };
        if pending.sql.len() > JOINED_SQL_BYTES_MAX {
            self.flush(pending, None)?;
        }
        let mut sql = std::mem::take(&mut pending.sql);
        // The update of the checkpoint, and COMMIT.
        let statements = std::mem::take(&mut pending.statements) + 2;
        spate_archive::stopping_point("before-checkpoint-update");
        sql.extend_from_slice(end.checkpoint.update_sql().as_bytes());
        sql.extend_from_slice(b";COMMIT");
        let row_changes = std::mem::take(&mut pending.row_changes);
        let net_row_changes = std::mem::take(&mut pending.net_row_changes);
        self.send(Command::Commit {
            sql,
            statements,
            end,
            oldest_seconds: part.oldest_seconds,
            row_changes,
            net_row_changes,
        })
    }

    fn segment(&self, segment: &Segment, part: &Part, pending: &mut Pending) -> Result<()> {
        let mut changes = self.one_by_one.then(|| segment.ordered().iter().flat_map(|ordered| ordered.describe()));
        let chunk_bytes_max = match self.one_by_one {
            true => 1,
            false => CHUNK_EVENT_BYTES.min(self.max_allowed_packet * PACKET_SHARE.0 / PACKET_SHARE.1),
        };
        let writer =
            ChunkWriter::new(chunk_bytes_max, part.server_id, |events: &[u8]| -> std::result::Result<(), EmitError> {
                append_binlog(&mut pending.sql, events);
                pending.sql.push(b';');
                pending.statements += 1;
                let what = changes.as_mut().and_then(Iterator::next);
                let change = what.map(|what| Change { place: part.place.clone(), what });
                if change.is_some() || pending.sql.len() > JOINED_SQL_BYTES_MAX {
                    self.flush(pending, change).map_err(EmitError::Stage)?;
                }
                Ok(())
            });
        let written = (|| {
            let mut writer = writer;
            writer.segment(segment)?;
            writer.finish()
        })();
        match written {
            Ok(net_row_changes) => pending.net_row_changes += net_row_changes,
            Err(EmitError::Stage(error)) => return Err(error),
            Err(EmitError::Schedule(error)) => return Err(Error::Transaction { place: part.place.clone(), error }),
        }
        Ok(())
    }

    fn statement(&self, statement: &Statement, part: &Part, pending: &mut Pending) -> Result<()> {
        self.flush(pending, None)?;
        let change = self.one_by_one.then(|| change(statement, part));
        pending.net_row_changes += 1;
        for sql in statement_sql(statement, &self.collations) {
            self.send(Command::Execute { sql, statements: 0, change: change.clone() })?;
        }
        Ok(())
    }

    fn barrier(&self, part: &Part, end: &PartEnd) -> Result<()> {
        let statements = part.batch.items.iter().filter_map(|item| match item {
            Item::Statement(statement) => Some(statement),
            Item::Rows(_) => None,
        });
        let mut statements = statements.collect::<Vec<_>>();
        let (Some(statement), 1) = (statements.pop(), part.batch.items.len()) else {
            let what = "a transaction that commits by itself and is not a single statement".to_owned();
            let why = "CREATE TABLE … SELECT and the like are not supported yet; let native replication apply it, \
                       then go on after it";
            let error = spate_schedule::Error::Refused { what, why: why.to_owned() };
            return Err(Error::Transaction { place: part.place.clone(), error });
        };
        if statement.error_code != 0 {
            let why = format!("it ended with error {} on the source", statement.error_code);
            let error =
                spate_schedule::Error::Refused { what: spate_schedule::statement::excerpt(&statement.sql), why };
            return Err(Error::Transaction { place: part.place.clone(), error });
        }
        self.send(Command::Barrier {
            intent: checkpoint::intent_sql(&part.place.gtid, &end.checkpoint, &statement.sql),
            statement: statement_sql(statement, &self.collations),
            fulfil: checkpoint::fulfil_sql(&end.checkpoint),
            end: end.clone(),
            change: change(statement, part),
        })
    }

    fn flush(&self, pending: &mut Pending, change: Option<Change>) -> Result<()> {
        if pending.sql.is_empty() {
            return Ok(());
        }
        let mut sql = std::mem::take(&mut pending.sql);
        // The last semicolon would begin an empty statement.
        if sql.last() == Some(&b';') {
            sql.pop();
        }
        if sql.len() >= self.max_allowed_packet {
            return Err(Error::PacketTooLarge { bytes: sql.len(), max_allowed_packet: self.max_allowed_packet });
        }
        let statements = std::mem::take(&mut pending.statements);
        self.send(Command::Execute { sql, statements, change })
    }

    fn send(&self, command: Command) -> Result<()> {
        self.output.send(command).map_err(|_| Error::StageEnded)
    }
}

fn change(statement: &Statement, part: &Part) -> Change {
    Change { place: part.place.clone(), what: spate_schedule::statement::excerpt(&statement.sql) }
}

enum EmitError {
    Schedule(spate_schedule::Error),
    Stage(Error),
}

impl From<spate_schedule::Error> for EmitError {
    fn from(error: spate_schedule::Error) -> EmitError {
        EmitError::Schedule(error)
    }
}

/// The status of a batch that took `milliseconds`.
pub(crate) fn batch_status(end: &PartEnd, row_changes: u64, net_row_changes: u64, milliseconds: f64) -> BatchStatus {
    BatchStatus { transactions: end.transactions, row_changes, net_row_changes, milliseconds }
}
