//! The second stage: sorts and encodes a batch into the statements that the replica will execute.

use crossbeam_channel::{Receiver, Sender, bounded};
use spate_binlog::{ChecksumAlgorithm, RowsVersion, Xid};
use spate_schedule::definition::{FoldPolicy, OrderedReason};
use spate_schedule::emit::{ChunkWriter, Swept};
use spate_schedule::item::{FileBlock, LoadFile};
use spate_schedule::segment::{OrderedRows, Segment};
use spate_schedule::sequence::SequenceSetting;
use spate_schedule::temporary::TemporaryTables;
use spate_schedule::{Alone, Item, RowChange, Statement, TablePlan};

use super::{Part, PartEnd};
use crate::dialect::{
    BINLOG_OF_HALVES, BINLOG_OF_HALVES_STATEMENTS, Collations, OWN_GTIDS, append_binlog, binlog_half_sql,
    binlog_half_sql_bytes, binlog_sql_bytes, first_half, load_sql, statement_sql,
};
use crate::error::{Error, Result, TransactionPlace};
use crate::journal::{self, Intent, IntentKind};
use crate::privileges;
use crate::records;
use crate::status::{BatchStatus, Status};
use crate::sweep::{Surplus, Sweep, Sweeper};
use crate::wire::{self, quote};

/// Bytes of events in one `BINLOG` statement. Large enough that the statement's own cost vanishes, small enough that the
/// applier has something to do while the next is being encoded.
const CHUNK_EVENT_BYTES: usize = 384 << 10;

/// A small batch is sent as one packet up to this size: one round trip from its first statement to its commit.
const JOINED_SQL_BYTES_MAX: usize = 64 << 10;

/// Base64 makes four bytes of three; the rest of a packet is for the statement around it.
const PACKET_SHARE: (usize, usize) = (5, 8);

/// Left free in a packet, for its own bytes and the server's.
const PACKET_MARGIN_BYTES: usize = 64;

/// While a statement of this size is on its way, nothing else is prepared: a large row is held but once as a statement.
const LARGE_SQL_BYTES: usize = 2 << 20;

/// Lock wait timeout, deadlock, and a deadlock in an XA transaction.
const CONCURRENCY_CODES: [u16; 3] = [1205, 1213, 1614];

/// What the applier is to do next.
#[derive(Debug)]
pub(crate) enum Command {
    /// Execute this within the open transaction.
    Execute(Execution),
    /// Keep a block of a file that a LOAD DATA will read.
    LoadBlock(FileBlock),
    /// Execute a LOAD DATA.
    Load(Execution, LoadFile),
    /// Note what cannot be rolled back, before it is executed.
    Intend(Box<Intent>),
    /// Answer once all before has succeeded, and is no longer held.
    Settle(Sender<()>),
    /// Execute this outside of the open transaction.
    ExecuteApart(Execution),
    /// Execute what follows in a session of its own, which begins with these statements.
    OpenBranch(Vec<Vec<u8>>),
    /// See to it that the XA transaction of that session has a change.
    MarkBranch(Xid),
    /// End that session, and go on in the first.
    CloseBranch,
    /// Delete rows of a table without a key, and answer what was deleted beyond. Nothing of it commits.
    Sweep { sweep: Sweep, answer: Sender<Surplus> },
    /// The batch has a statement that may lock us out: look after its commit.
    WatchAccount(Change),
    /// Copy the temporary tables that statements to come may use.
    KeepTemporary(TemporaryTables),
    /// Execute what is left of the batch, and commit. Only to be sent once all before has succeeded.
    Commit {
        sql: Vec<u8>,
        statements: usize,
        end: PartEnd,
        oldest_seconds: u32,
        row_changes: u64,
        net_row_changes: u64,
    },
}

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
    /// It cannot be rolled back: all before it must have succeeded, and nothing may follow until it has.
    pub(crate) is_careful: bool,
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

/// One change of one transaction, for messages.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) place: TransactionPlace,
    pub(crate) what: String,
    /// The row change, if it is one: a repair needs it.
    pub(crate) row: Option<Box<RowChange>>,
}

/// How to prepare.
pub(crate) struct Preparer<'a> {
    pub(crate) input: Receiver<Part>,
    pub(crate) hunger: Sender<()>,
    pub(crate) tickets: Receiver<()>,
    pub(crate) output: Sender<Command>,
    pub(crate) collations: Collations,
    pub(crate) status: &'a Status,
    /// What the replica's vendor replays.
    pub(crate) replica_rows: RowsVersion,
    /// The replica's limit, in bytes.
    pub(crate) max_allowed_packet: usize,
    /// Take row changes apart, one a statement, each with a description.
    pub(crate) one_by_one: bool,
    /// Copies of the source's temporary tables were kept before.
    pub(crate) has_temporary_copies: bool,
    /// The replica is part of a ring: its binlog must say which server a change comes from.
    pub(crate) is_in_ring: bool,
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
    /// What was noted before the batch's changes.
    intent: Option<IntentKind>,
    /// Something of the batch changes the replica's data.
    has_changes: bool,
    /// The server that the applier's session was last told to log changes for.
    origin: Option<u32>,
    /// The source's temporary tables, and who has used them in the batch.
    temporary: TemporaryTables,
    has_temporary_copies: bool,
}

impl Preparer<'_> {
    /// Prepares batches until the stage before is gone.
    ///
    /// # Errors
    /// [`Error::StageEnded`] if the applier is gone; an encoding error.
    pub(crate) fn run(self) -> Result<()> {
        let mut pending = Pending { has_temporary_copies: self.has_temporary_copies, ..Pending::default() };
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
            self.check_vendor(&part)?;
            for sql in format_sql(&part) {
                self.send(Command::Execute(Execution { sql, statements: 1, ..Execution::default() }))?;
            }
        }
        self.tell_origin(&part, pending)?;
        self.intend(&part, pending)?;
        pending.is_open = part.end.is_none();
        pending.row_changes += part.batch.statistics.row_changes;
        pending.has_changes |= !part.batch.items.is_empty() || part.batch.alone.is_some();
        pending.temporary.open.clone_from(&part.batch.temporary.open);
        pending.temporary.used_by.extend(&part.batch.temporary.used_by);
        for item in &part.batch.items {
            match item {
                Item::Rows(segment) => self.segment(segment, &part, pending)?,
                Item::Statement(statement) => self.statement(statement, &part, pending)?,
                Item::LoadBlock(block) => self.send(Command::LoadBlock(block.clone()))?,
                Item::Sequence(setting) => self.plain(sequence_sql(setting).as_bytes(), pending)?,
                Item::Undo => self.plain(b"ROLLBACK", pending)?,
            }
        }
        match part.end {
            Some(end) => self.end(part.batch.alone.as_ref(), end, part.oldest_seconds, pending),
            None => Ok(()),
        }
    }

    /// Row events of one vendor are nothing that a server of the other executes.
    fn check_vendor(&self, part: &Part) -> Result<()> {
        if RowsVersion::of(&part.format) == self.replica_rows {
            return Ok(());
        }
        let why =
            format!("it cannot replay the row events of {}, which is of the other vendor", part.format.server_version);
        Err(Error::Unsuitable { peer: "replica".to_owned(), why })
    }

    /// Has a note made of what the batch is about to do, if that cannot be rolled back.
    fn intend(&self, part: &Part, pending: &mut Pending) -> Result<()> {
        let Some(kind) = intent_kind(part) else { return Ok(()) };
        // Rows that cannot be rolled back may come in several parts; the note must cover what it stands for.
        if pending.intent.is_some_and(|noted| noted != IntentKind::IrrevocableRows) {
            return Ok(());
        }
        pending.intent = Some(kind);
        let statement = part.batch.items.iter().find_map(|item| match item {
            Item::Statement(statement) => Some(statement),
            _ => None,
        });
        self.send(Command::Intend(Box::new(Intent {
            kind,
            checkpoint: part.reached.clone(),
            gtid: part.place.gtid.clone(),
            database: statement.map(|statement| statement.database.clone()).unwrap_or_default(),
            statement: match &part.batch.alone {
                Some(Alone::XaPrepare(xid) | Alone::XaEnd(xid)) => xid.to_string().into_bytes(),
                _ => statement.map(|statement| statement.sql.clone()).unwrap_or_default(),
            },
            fingerprint: String::new(),
        })))?;
        match &part.batch.alone {
            Some(Alone::XaPrepare(xid)) => {
                let mut statements = format_sql(part);
                statements.push(format!("XA START {xid}").into_bytes());
                if self.is_in_ring {
                    statements.insert(0, origin_sql(part));
                }
                self.send(Command::OpenBranch(statements))
            }
            _ => Ok(()),
        }
    }

    fn end(&self, alone: Option<&Alone>, end: PartEnd, oldest_seconds: u32, pending: &mut Pending) -> Result<()> {
        if let Some(Alone::XaPrepare(xid)) = alone {
            self.flush(pending, None)?;
            self.send(Command::MarkBranch(xid.clone()))?;
            self.plain(format!("XA END {xid}").as_bytes(), pending)?;
            self.plain(format!("XA PREPARE {xid}").as_bytes(), pending)?;
            self.send(Command::CloseBranch)?;
        }
        self.keep_temporary(pending)?;
        if pending.sql.len() > JOINED_SQL_BYTES_MAX {
            self.flush(pending, None)?;
        }
        let mut sql = std::mem::take(&mut pending.sql);
        // The update of the checkpoint, and COMMIT.
        let mut statements = std::mem::take(&mut pending.statements) + 2;
        spate_archive::stopping_point("before-checkpoint-update");
        for skipped in &end.skipped {
            statements += 1;
            sql.extend_from_slice(records::skip_sql(skipped).as_bytes());
            sql.push(b';');
        }
        sql.extend_from_slice(end.checkpoint.update_sql().as_bytes());
        if pending.intent.take().is_some() {
            statements += 1;
            sql.push(b';');
            sql.extend_from_slice(journal::forget_sql().as_bytes());
        }
        sql.extend_from_slice(b";COMMIT");
        // A checkpoint alone would go round the ring for ever.
        if !std::mem::take(&mut pending.has_changes) && self.is_in_ring {
            statements += 2;
            sql = [b"SET SESSION sql_log_bin=0;", sql.as_slice(), b";SET SESSION sql_log_bin=1"].concat();
        }
        let row_changes = std::mem::take(&mut pending.row_changes);
        let net_row_changes = std::mem::take(&mut pending.net_row_changes);
        self.send(Command::Commit { sql, statements, end, oldest_seconds, row_changes, net_row_changes })
    }

    /// Has copies made of the temporary tables that the batch has used and leaves behind.
    fn keep_temporary(&self, pending: &mut Pending) -> Result<()> {
        let used_by = std::mem::take(&mut pending.temporary.used_by);
        let open = pending.temporary.open.clone();
        let is_outdated = open.is_empty() == pending.has_temporary_copies || !used_by.is_empty() && !open.is_empty();
        if !is_outdated {
            return Ok(());
        }
        self.flush(pending, None)?;
        pending.has_temporary_copies = !open.is_empty();
        self.send(Command::KeepTemporary(TemporaryTables { open, used_by }))
    }

    /// In a ring, the replica logs a change under the id of the server that it comes from.
    fn tell_origin(&self, part: &Part, pending: &mut Pending) -> Result<()> {
        if !self.is_in_ring || pending.is_open || pending.origin == Some(part.server_id) {
            return Ok(());
        }
        pending.origin = Some(part.server_id);
        self.send(Command::Execute(Execution { sql: origin_sql(part), statements: 1, ..Execution::default() }))
    }

    fn segment(&self, segment: &Segment, part: &Part, pending: &mut Pending) -> Result<()> {
        self.warn_of_missing_keys(segment);
        let swept = self.sweep(segment, pending)?;
        let version = RowsVersion::of(&part.format);
        let mut changes = self.one_by_one.then(|| {
            let rows = |ordered: &'_ OrderedRows| {
                ordered.describe().into_iter().zip(ordered.row_changes(part.server_id, version))
            };
            segment.ordered().iter().flat_map(rows)
        });
        let chunk_bytes_max = match self.one_by_one {
            true => 1,
            false => CHUNK_EVENT_BYTES.min(self.max_allowed_packet * PACKET_SHARE.0 / PACKET_SHARE.1),
        };
        let writer = ChunkWriter::new(
            chunk_bytes_max,
            part.server_id,
            version,
            |events: &[u8]| -> std::result::Result<(), EmitError> {
                let what = changes.as_mut().and_then(Iterator::next);
                let change =
                    what.map(|(what, row)| Change { place: part.place.clone(), what, row: Some(Box::new(row)) });
                self.chunk(events, change, pending).map_err(EmitError::Stage)
            },
        );
        let written = (|| {
            let mut writer = writer;
            writer.segment_after(segment, &swept)?;
            writer.finish()
        })();
        match written {
            Ok(net_row_changes) => pending.net_row_changes += net_row_changes,
            Err(EmitError::Stage(error)) => return Err(error),
            Err(EmitError::Schedule(error)) => return Err(Error::Transaction { place: part.place.clone(), error }),
        }
        Ok(())
    }

    fn chunk(&self, events: &[u8], change: Option<Change>, pending: &mut Pending) -> Result<()> {
        let sql_bytes = binlog_sql_bytes(events.len());
        if !self.fits(sql_bytes) {
            self.flush(pending, None)?;
            return self.halves(events, change);
        }
        if !self.fits(pending.sql.len() + sql_bytes) {
            self.flush(pending, None)?;
        }
        append_binlog(&mut pending.sql, events);
        pending.sql.push(b';');
        pending.statements += 1;
        match change.is_some() || pending.sql.len() > JOINED_SQL_BYTES_MAX {
            true => self.flush(pending, change),
            false => Ok(()),
        }
    }

    /// Sends events that are too large for one packet in two.
    fn halves(&self, events: &[u8], change: Option<Change>) -> Result<()> {
        let (first, second) = events.split_at(first_half(events.len()));
        let sql_bytes = binlog_half_sql_bytes(first.len().max(second.len()));
        if !self.fits(sql_bytes) {
            return Err(self.too_large(binlog_sql_bytes(events.len()), change));
        }
        for (half, events) in [first, second].into_iter().enumerate() {
            let execution = Execution { sql: binlog_half_sql(half, events), statements: 1, ..Execution::default() };
            self.send(Command::Execute(execution))?;
            self.settle()?;
        }
        let (sql, statements) = (BINLOG_OF_HALVES.to_vec(), BINLOG_OF_HALVES_STATEMENTS);
        self.send(Command::Execute(Execution { sql, statements, change, ..Execution::default() }))
    }

    fn fits(&self, sql_bytes: usize) -> bool {
        sql_bytes + PACKET_MARGIN_BYTES <= self.max_allowed_packet
    }

    /// Without a change, the batch will be taken apart to find out which one it is.
    fn too_large(&self, sql_bytes: usize, change: Option<Change>) -> Error {
        let replica_bytes = self.max_allowed_packet;
        match change {
            None => Error::PacketTooLarge { bytes: sql_bytes, max_allowed_packet: replica_bytes },
            Some(Change { place, what, .. }) => {
                let source_bytes = self.status.source_packet_bytes();
                Error::ChangeTooLarge { place, change: what, bytes: sql_bytes, replica_bytes, source_bytes }
            }
        }
    }

    /// Waits until the applier has no statement left.
    fn settle(&self) -> Result<()> {
        let (answer, answered) = bounded(1);
        self.send(Command::Settle(answer))?;
        answered.recv().map_err(|_| Error::StageEnded)
    }

    /// Deletes what is to be deleted from tables without a key, where one pass costs less than the server's search.
    fn sweep(&self, segment: &Segment, pending: &mut Pending) -> Result<Vec<Swept>> {
        let mut swept = Vec::new();
        for (number, multiset) in segment.multisets().iter().enumerate() {
            let Some(sweeper) = Sweeper::of(multiset, self.max_allowed_packet) else { continue };
            self.flush(pending, None)?;
            // The images are needed to insert again what was deleted beyond, so they wait here rather than in the queue.
            let surplus = sweeper.each(|sweep| {
                let (answer, answered) = bounded(1);
                self.send(Command::Sweep { sweep, answer })?;
                answered.recv().map_err(|_| Error::StageEnded)
            })?;
            pending.net_row_changes += multiset.deletes();
            swept.push(Swept { multiset: number, surplus });
        }
        Ok(swept)
    }

    fn warn_of_missing_keys(&self, segment: &Segment) {
        let ordered = segment.ordered().iter().map(OrderedRows::plan);
        let plans = segment.multisets().iter().map(|multiset| &**multiset.plan()).chain(ordered);
        // Of a table that the same transaction creates, the replica was not asked.
        let is_known = |plan: &&TablePlan| plan.policy != FoldPolicy::Ordered(OrderedReason::JustCreated);
        for plan in plans.filter(is_known).filter(|plan| plan.definition.row_key.is_empty()) {
            self.status.table_without_key(&plan.definition.name.to_string());
        }
    }

    fn statement(&self, statement: &Statement, part: &Part, pending: &mut Pending) -> Result<()> {
        self.flush(pending, None)?;
        let change = self.one_by_one.then(|| change(statement, part));
        pending.net_row_changes += 1;
        if privileges::concerns_accounts(&statement.sql) {
            self.send(Command::WatchAccount(self::change(statement, part)))?;
        }
        if let Some(Alone::XaEnd(xid)) = &part.batch.alone {
            if self.is_in_ring {
                let sql = origin_sql(part);
                self.send(Command::ExecuteApart(Execution { sql, statements: 1, ..Execution::default() }))?;
            }
            let sql = statement.sql.clone();
            self.send(Command::ExecuteApart(Execution { sql, change, ..Execution::default() }))?;
            return self.plain(journal::ended_sql(xid).as_bytes(), pending);
        }
        // A session that is inside an XA transaction or a plain one cannot do more than roll back; a definition can.
        let is_careful = part.batch.alone.is_some();
        let execution = |sql: Vec<u8>| Execution { sql, change: change.clone(), is_careful, ..Execution::default() };
        let [before, sql, after] = statement_sql(statement, &self.collations);
        if let Some(large) = [&before, &sql].into_iter().find(|sql| !self.fits(sql.len())) {
            return Err(self.too_large(large.len(), change));
        }
        let expected = expected(statement);
        if let Expected::Failure(code) = expected
            && wire::ServerError::is_transient_code(code)
        {
            let why = format!("it was interrupted on the source with error {code}, and nobody knows how far it got");
            let what = spate_schedule::statement::excerpt(&statement.sql);
            let error = spate_schedule::Error::Refused { what, why };
            return Err(Error::Transaction { place: part.place.clone(), error });
        }
        self.send(Command::Execute(execution(before)))?;
        self.send(match &statement.load {
            None => Command::Execute(Execution { expected, ..execution(sql) }),
            Some(load) => Command::Load(Execution { expected, ..execution(load_sql(statement, load)) }, load.clone()),
        })?;
        self.send(Command::Execute(execution(after)))
    }

    /// A statement of our own.
    fn plain(&self, sql: &[u8], pending: &mut Pending) -> Result<()> {
        self.flush(pending, None)?;
        self.send(Command::Execute(Execution { sql: sql.to_vec(), statements: 1, ..Execution::default() }))
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
        if !self.fits(sql.len()) {
            return Err(self.too_large(sql.len(), change));
        }
        let is_large = sql.len() > LARGE_SQL_BYTES;
        let statements = std::mem::take(&mut pending.statements);
        self.send(Command::Execute(Execution { sql, statements, change, ..Execution::default() }))?;
        if is_large { self.settle() } else { Ok(()) }
    }

    fn send(&self, command: Command) -> Result<()> {
        self.output.send(command).map_err(|_| Error::StageEnded)
    }
}

fn intent_kind(part: &Part) -> Option<IntentKind> {
    match &part.batch.alone {
        Some(Alone::Definition) => Some(IntentKind::Definition),
        Some(Alone::CreateSelect) => Some(IntentKind::CreateSelect),
        Some(Alone::XaPrepare(_)) => Some(IntentKind::XaPrepare),
        Some(Alone::XaEnd(_)) => Some(IntentKind::XaEnd),
        Some(Alone::Irrevocable) => Some(IntentKind::Irrevocable),
        // Nothing of it stays that would do harm a second time.
        Some(Alone::RolledBack) => None,
        None if !part.batch.has_irrevocable_rows => None,
        None => {
            let is_unclear = part.batch.items.iter().any(|item| match item {
                Item::Rows(segment) => segment.has_irrevocable_rows_without_key(),
                _ => false,
            });
            Some(if is_unclear { IntentKind::Irrevocable } else { IntentKind::IrrevocableRows })
        }
    }
}

fn expected(statement: &Statement) -> Expected {
    match statement.error_code {
        0 if spate_schedule::statement::drops_tables(&statement.sql) => Expected::Gone,
        0 => Expected::Success,
        // Whether a statement had to wait for another's locks is nothing that it does.
        code if CONCURRENCY_CODES.contains(&code) => Expected::Success,
        code => Expected::Failure(code),
    }
}

fn sequence_sql(setting: &SequenceSetting) -> String {
    let name = quote::qualified(&setting.name.schema, &setting.name.table);
    format!("DO SETVAL({name}, {}, {}, {})", setting.value, u8::from(setting.is_used), setting.round)
}

/// Tells a session where the changes come from that it will log.
fn origin_sql(part: &Part) -> Vec<u8> {
    format!("SET SESSION server_id={}", part.server_id).into_bytes()
}

/// Tells a session how the source lays out its events.
fn format_sql(part: &Part) -> Vec<Vec<u8>> {
    let mut sql = Vec::new();
    append_binlog(&mut sql, &part.format.encode(part.server_id, ChecksumAlgorithm::None));
    match part.format.is_mariadb() {
        true => vec![sql],
        false => vec![sql, OWN_GTIDS.into()],
    }
}

fn change(statement: &Statement, part: &Part) -> Change {
    Change { place: part.place.clone(), what: spate_schedule::statement::excerpt(&statement.sql), row: None }
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
