//! Commands from the preparing stage to the applier.

use crossbeam_channel::Sender;
use spate_binlog::{RowsKind, Xid};
use spate_schedule::item::{FileBlock, LoadFile};
use spate_schedule::needs::CreatedRoutine;
use spate_schedule::temporary::TemporaryTables;
use spate_schedule::{RowChange, TableName};

use super::PartEnd;
use crate::prefetch::ChunkMark;
use crate::sweep::{Left, Sweep};
use spate_replica::TransactionPlace;
use spate_replica::journal::Intent;
use spate_replica::status::BatchStatus;

/// What the applier is to do next.
#[derive(Debug)]
pub(crate) enum Command {
    /// Execute this within the open transaction.
    Execute(Execution),
    /// Wait until another has applied everything up to this transaction.
    AwaitTurn(u64),
    /// Keep a block of a file that a LOAD DATA will read.
    LoadBlock(FileBlock),
    /// Execute a LOAD DATA.
    Load(Execution, LoadFile),
    /// Note a part that cannot be rolled back, before anything of it is executed.
    Intend(Box<Intent>),
    /// Answer once all before has succeeded, and is no longer held.
    Settle(Sender<()>),
    /// Execute this outside of the open transaction.
    ExecuteApart(Execution),
    /// Execute a definition that was noted, in the session for definitions.
    Define(Definition),
    /// Execute the next commands in a session of its own, which begins with these statements.
    OpenBranch(Vec<Vec<u8>>),
    /// See to it that the XA transaction of that session has a change.
    MarkBranch(Xid),
    /// End that session, and go on in the first.
    CloseBranch,
    /// Delete or update rows of a table without a key in one pass, and answer with the images that are left. Nothing of it commits.
    Sweep { sweep: Sweep, answer: Sender<Left> },
    /// Answer with the values of one row that this finds; `None` if there is none.
    Ask { sql: Vec<u8>, change: Option<Change>, answer: Sender<FoundRow> },
    /// The batch has a statement that may lock us out: look after its commit.
    WatchAccount(Change),
    /// The statement before has created this routine: give its definer the privileges that a server gives.
    GiveToCreator(CreatedRoutine),
    /// Make the source's temporary tables again. Before anything else of a session.
    RestoreTemporary,
    /// Copy the temporary tables that statements to come may use.
    KeepTemporary(TemporaryTables),
    /// Execute what is left of the batch, and commit. Only to be sent once all before has succeeded.
    Commit(Commit),
}

impl Command {
    /// True if everything that was sent before must have its answer first.
    pub(crate) fn needs_answers(&self) -> bool {
        match self {
            Command::Execute(_)
            | Command::AwaitTurn(_)
            | Command::LoadBlock(_)
            | Command::Intend(_)
            | Command::Define(_)
            | Command::WatchAccount(_)
            | Command::Commit(_) => false,
            Command::Load(..)
            | Command::Settle(_)
            | Command::ExecuteApart(_)
            | Command::OpenBranch(_)
            | Command::MarkBranch(_)
            | Command::CloseBranch
            | Command::Sweep { .. }
            | Command::Ask { .. }
            | Command::GiveToCreator(_)
            | Command::RestoreTemporary
            | Command::KeepTemporary(_) => true,
        }
    }
}

/// A definition for the session that executes nothing else.
#[derive(Debug)]
pub(crate) struct Definition {
    /// Of the transaction that it is.
    pub(crate) seqno: u64,
    /// What brings the session into the state of the source's.
    pub(crate) before: Vec<Vec<u8>>,
    /// The source's statement.
    pub(crate) sql: Vec<u8>,
    /// How it should end.
    pub(crate) expected: Expected,
    /// What it does; only while a failed batch is being taken apart.
    pub(crate) change: Option<Change>,
}

/// The end of a batch.
#[derive(Debug)]
pub(crate) struct Commit {
    /// What is left to execute before COMMIT, each with a semicolon behind it.
    pub(crate) sql: Vec<u8>,
    /// The last chunk of rows in it. `None`: there is none.
    pub(crate) mark: Option<ChunkMark>,
    /// The note of the definition that comes next, to be committed with it. `None`: nothing is noted.
    pub(crate) note: Option<Box<Intent>>,
    /// A definition follows at once, for which another session can be set up while this has no answer.
    pub(crate) is_before_definition: bool,
    /// What it executes before COMMIT is of other tables than the definition before it: the replica may execute both at the same time.
    pub(crate) is_beside: bool,
    /// All before COMMIT was sent.
    pub(crate) is_sent: bool,
    /// What is to be executed behind COMMIT, each with a semicolon before it.
    pub(crate) after: Vec<u8>,
    /// How many statements all that is, with COMMIT and without the note.
    pub(crate) statements: usize,
    pub(crate) end: PartEnd,
    /// Commit time of the batch's first transaction on the source, in seconds since 1970.
    pub(crate) oldest_seconds: f64,
    pub(crate) row_changes: u64,
    pub(crate) net_row_changes: u64,
}

impl Commit {
    /// The status of the batch, which took `milliseconds`.
    pub(crate) fn status(&self, milliseconds: f64) -> BatchStatus {
        BatchStatus {
            transactions: self.end.transactions,
            row_changes: self.row_changes,
            net_row_changes: self.net_row_changes,
            milliseconds,
        }
    }
}

/// The values of a row, if there is one; `None` among them is NULL.
pub(crate) type FoundRow = Option<Vec<Option<Vec<u8>>>>;

/// Statements to execute.
#[derive(Debug, Default)]
pub(crate) struct Execution {
    pub(crate) sql: Vec<u8>,
    /// How many statements `sql` holds; 0 if there may be any number.
    pub(crate) statements: usize,
    /// What it does; only while a failed batch is being taken apart.
    pub(crate) change: Option<Change>,
    /// How it should end.
    pub(crate) expected: Expected,
    /// How many rows some of the statements must have found.
    pub(crate) checks: Vec<RowCheck>,
    /// It cannot be rolled back: all before it must have succeeded, and nothing may follow until it has.
    pub(crate) is_careful: bool,
    /// It holds text of the source: the server must take it as one statement, whatever it holds.
    pub(crate) is_single: bool,
    /// It is certain that it does not release the session's lock.
    pub(crate) keeps_lock: bool,
    /// The chunk of rows that it is. `None`: it is none that is measured.
    pub(crate) mark: Option<ChunkMark>,
}

/// How a statement should end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Expected {
    /// It succeeds.
    #[default]
    Success,
    /// It fails with this error, as it did on the source.
    Failure(u16),
    /// It succeeds, or a table that it drops is gone already.
    Gone,
}

/// The counts that a statement must report. With others, a row was missing, or there was one too many, and nothing commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowCheck {
    /// Which of the statements that were sent together, from 0.
    pub(crate) statement: usize,
    /// How many rows it was to change.
    pub(crate) rows: u64,
    /// What it does to them.
    pub(crate) kind: RowsKind,
    /// How many warnings it is to have, if that matters: any other was an inexact conversion.
    pub(crate) warnings: Option<u16>,
    /// The table, for messages.
    pub(crate) table: TableName,
}

/// One change of one transaction, for messages.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) place: TransactionPlace,
    pub(crate) what: String,
    /// Several appliers were interrupted, and some of them have applied their rows of the transaction.
    pub(crate) has_shares: bool,
    /// The row change, if it is one: a repair needs it.
    pub(crate) row: Option<Box<RowChange>>,
}
