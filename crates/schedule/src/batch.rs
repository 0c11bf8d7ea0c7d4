//! Batches: consecutive transactions, gathered event by event into one transaction of the replica.

mod rows;
mod transactions;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use spate_binlog::header::{EventHeader, EventType, FLAG_IGNORABLE};
use spate_binlog::load::{ExecuteLoadQuery, LoadBlock};
use spate_binlog::query::StatusVariables;
use spate_binlog::session::{IntvarEvent, RandEvent, UserVarEvent};
use spate_binlog::{GtidEvent, QueryEvent, RowsKind, Xid, compressed, table_map};
use spate_sql::{Servers, SqlText};

use crate::definition::{TableDefinition, TableName};
use crate::difference::Contradiction;
use crate::error::Surprise;
use crate::fold::Helper;
use crate::fold::helpers::Helpers;
use crate::item::{Alone, FileBlock, Item, LoadFile, Statement, StatementContext};
use crate::known::KnownTables;
use crate::opened::OpenedTables;
use crate::outdated::Outdated;
use crate::plan::TablePlan;
use crate::rewrite::EventStates;
use crate::row_session::RowSession;
use crate::segment::Segment;
use crate::sequence::Settings;
use crate::shards::Passed;
use crate::statement::{self, StatementClass};
use crate::temporary::{Origins, TemporaryTable, TemporaryTables};
pub use crate::transaction::BatchStatistics;
use crate::transaction::{GtidFlags, OpenTransaction};
use crate::versioning::{self, LastMoment, LastMoments};
use crate::{Error, Result};

/// The most plans that are kept: a source gives a table another id whenever it reopens it, so nothing else bounds their
/// number. A dropped plan is made again from the next table map.
const PLANS_MAX: usize = 16 << 10;

/// The most columns in the plans that are kept: some hundred bytes each.
const PLANNED_COLUMNS_MAX: usize = 128 << 10;

/// How often a batch is cut around partial images that must be applied in order, so that folding continues after them.
/// From then on their tables stay in order: cuts cost all tables some of their folding.
const CUTS_AROUND_ORDERED_MAX: usize = 64;

/// Consecutive transactions, or a part of one that is too large for memory.
#[derive(Debug, Default)]
pub struct Batch {
    /// The items to apply, in order.
    pub items: Vec<Item>,
    /// Its size in the source's events.
    pub statistics: BatchStatistics,
    /// The reason why it holds only one transaction, or a part of one; `None` for an ordinary batch.
    pub alone: Option<Alone>,
    /// True if it changes rows of tables whose engine cannot roll back.
    pub has_irrevocable_rows: bool,
    /// Its row changes are all in the source's order.
    pub is_unfolded: bool,
    /// MySQL: the `explicit_defaults_for_timestamp` to create its temporary tables with. `None` if the source gave the
    /// same value before, or none. All parts of a batch have the same value.
    pub explicit_defaults: Option<bool>,
    /// The temporary tables of the source's sessions at its end.
    pub temporary: TemporaryTables,
}

impl Batch {
    /// True if it is nothing but changes of rows that can be rolled back, in a session that needs nothing for them: other connections may apply
    /// something else beside it.
    pub fn is_of_rows(&self) -> bool {
        self.alone.is_none()
            && !self.has_irrevocable_rows
            && self.explicit_defaults.is_none()
            && self.temporary.open.is_empty()
            && self.temporary.used_by.is_empty()
            && self.items.iter().all(|item| item.rows().is_some())
    }

    /// Its changes of rows.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.items.iter().filter_map(Item::rows)
    }

    /// The first statement of the source. `None`: it has only rows.
    pub fn statement(&self) -> Option<&Statement> {
        self.items.iter().find_map(|item| match item {
            Item::Statement(statement) => Some(statement),
            _ => None,
        })
    }
}

/// The builder's answer to an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Taken.
    Taken,
    /// Not taken: first [`BatchBuilder::learn`] this table, then give the event again.
    NeedsDefinition(TableName),
    /// Not taken: the source has opened these tables for one statement, perhaps because of foreign keys that the engine
    /// carries out. Check that the known foreign keys are still the current ones, then give the event again.
    NeedsForeignKeys,
}

/// Builds batches from events. The caller, which knows the time, decides when a batch ends.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    rules: Rules,
    tables: Tables,
    gathered: Gathered,
    transaction: OpenTransaction,
    /// The values that the next statement uses.
    context: Vec<StatementContext>,
    /// What the source's sessions have left behind.
    sessions: Sessions,
    /// The same at the end of the batch last taken, in which temporary tables were open, and what had been said of defaults.
    taken: (BTreeSet<TemporaryTable>, Option<bool>),
    /// The number of the statement whose rows come: see [`crate::keyless::KeylessRows::take`].
    statement: u32,
    /// The last statement that changed a table whose history is divided by numbers of rows.
    counted: Option<u32>,
    /// When the event that is being taken was logged, in seconds since 1970.
    event_seconds: u32,
    buffers: Buffers,
    /// Threads that fold large tables.
    helpers: Helpers,
}

/// How changes are taken, as the replica and both servers' versions need it.
#[derive(Debug, Default)]
struct Rules {
    never_folds: bool,
    /// Rows of different transactions are not folded into each other.
    keeps_transactions_apart: bool,
    /// True if row changes fire the replica's triggers.
    fires_triggers: bool,
    /// True if the replica may have tables that are system-versioned by transactions.
    numbers_transactions: bool,
    /// The servers that have to read statements alike.
    servers: Servers,
    events: EventStates,
    last_moments: LastMoments,
    /// Whose rows of the current transaction are applied already. `None`: nobody's.
    passed: Option<Passed>,
}

/// Tables as the replica defines them and the source maps them.
#[derive(Debug, Default)]
struct Tables {
    known: KnownTables,
    /// Why the last transaction that did so turned out to be [`Surprise::Redefined`].
    contradiction: Option<Contradiction>,
    /// By the ids of table maps. `None`: a table whose rows are left out.
    plans: HashMap<u64, Option<Arc<TablePlan>>>,
    /// Columns in `plans`.
    planned_columns: usize,
    /// Tables that the open statement has a map of, and the replica does not have.
    absent: HashMap<u64, TableName>,
    opened: OpenedTables,
}

/// The open batch.
#[derive(Debug, Default)]
struct Gathered {
    batch: Batch,
    /// Bytes of memory that `batch` holds.
    batch_memory_bytes: usize,
    segment: Segment,
    segment_memory_bytes: usize,
    /// What sequences are set to behind the segment.
    sequences: Settings,
    /// How often partial images of it had to be applied in order.
    ordered_partial: usize,
}

/// What the source's sessions leave behind for those that come.
#[derive(Debug, Default)]
struct Sessions {
    temporary: TemporaryTables,
    origins: Origins,
    /// What MySQL's events have said last of `explicit_defaults_for_timestamp`. `None`: nothing yet.
    defaults: Option<bool>,
}

/// Memory that is used again.
#[derive(Debug, Default)]
struct Buffers {
    rows: Vec<u8>,
    query: Vec<u8>,
}

impl BatchBuilder {
    /// A builder that knows no table yet.
    pub fn new() -> BatchBuilder {
        BatchBuilder::default()
    }

    /// Has so many other threads fold large tables; each of these is to be run in one. The batches stay the same.
    pub fn fold_beside(&mut self, helpers: usize) -> Vec<Helper> {
        let helpers_out;
        (self.helpers, helpers_out) = Helpers::new(helpers);
        helpers_out
    }

    /// Folds the next batch without help: in the last one that was not taken, changes of a row contradict each other.
    pub fn fold_alone(&mut self) {
        self.helpers.rest();
    }

    /// Applies every row change in the source's order, unfolded, to find the transaction at which a batch failed.
    pub fn never_fold(&mut self) {
        self.rules.never_folds = true;
    }

    /// Folds within transactions only: in a batch of several, each is applied behind the one before.
    pub fn keep_transactions_apart(&mut self) {
        self.rules.keeps_transactions_apart = true;
    }

    /// Makes row changes fire the replica's triggers. Each trigger sees every change in the source's order, and finds
    /// the source's rows in other tables. Its own changes are checked as in the source's session.
    pub fn fire_triggers(&mut self) {
        self.rules.never_folds = true;
        self.rules.fires_triggers = true;
    }

    /// Says that the replica has tables whose rows keep the numbers of the transactions that changed them. The source
    /// logs their changes as statements, in any format, so each transaction with a statement becomes a batch of its
    /// own.
    pub fn number_transactions(&mut self) {
        self.rules.numbers_transactions = true;
    }

    /// Says whether the server is to execute the source's events.
    pub fn treat_events(&mut self, events: EventStates) {
        self.rules.events = events;
    }

    /// Says whose rows of the next transaction are applied already: they are left out.
    pub fn pass_over(&mut self, passed: Option<Passed>) {
        self.rules.passed = passed;
    }

    /// Sets the server that has written the statements, and the server that will execute them. A text that the two
    /// would read in different ways is a doubt. Until this is set, a text that any two servers would read in different
    /// ways is one.
    pub fn read_for(&mut self, servers: Servers) {
        self.rules.servers = servers;
    }

    /// Sets the last moments of time stamps on the source and on the replica: current rows of system-versioned tables
    /// end then.
    pub fn time_stamps_reach(&mut self, source: LastMoment, replica: LastMoment) {
        self.rules.last_moments = LastMoments { source, replica };
    }

    /// Takes a table's definition that was read from the replica for the next event: a difference from the source's
    /// table map is a fact then.
    pub fn learn(&mut self, definition: TableDefinition) {
        self.tables.known.learn(definition);
    }

    /// Takes a table's definition that was read ahead. If it differs from the source's table map, the builder asks for
    /// it again.
    pub fn learn_ahead(&mut self, definition: TableDefinition) {
        self.tables.known.learn_ahead(definition);
    }

    /// The tables that were found to differ from the source's since this was last called.
    pub fn take_differing(&mut self) -> Vec<Contradiction> {
        self.tables.known.take_facts()
    }

    /// Why the last transaction that did so turned out to be [`Surprise::Redefined`].
    pub fn contradiction(&self) -> Option<&Contradiction> {
        self.tables.contradiction.as_ref()
    }

    /// Takes the table map for which the answer was [`Answer::NeedsDefinition`], although the replica has no such
    /// table: rows that follow are an error. (A statement may have opened, and not changed, a table that was dropped
    /// before the statement was logged.)
    ///
    /// # Errors
    /// [`Error::Binlog`] if the table map cannot be read.
    pub fn absent(&mut self, name: TableName, table_map: &[u8]) -> Result<()> {
        let table_id = table_map::table_id(table_map)?;
        self.tables.plans.remove(&table_id);
        self.tables.absent.insert(table_id, name);
        Ok(())
    }

    /// Forgets all definitions, since DDL may have changed them.
    pub fn forget_definitions(&mut self) {
        self.tables.opened.doubt();
        self.tables.known.clear();
        self.forget_plans();
    }

    /// Forgets the definitions that are out of date.
    pub fn forget(&mut self, outdated: &Outdated) {
        match outdated {
            Outdated::Nothing => {}
            Outdated::All => self.forget_definitions(),
            some => {
                self.tables.known.forget(some);
                self.tables.plans.retain(|_, plan| plan.as_ref().is_none_or(|plan| !some.includes(&plan.definition)));
                self.tables.planned_columns =
                    self.tables.plans.values().flatten().map(|plan| plan.map.columns.len()).sum();
            }
        }
    }

    /// The definitions that the current transaction makes out of date.
    pub fn outdated(&self) -> &Outdated {
        &self.transaction.outdated
    }

    /// The first statement of the open batch. `None`: it has none yet.
    pub fn open_statement(&self) -> Option<&Statement> {
        self.gathered.batch.statement()
    }

    /// Takes the next event: its header, and its body without checksum.
    ///
    /// # Errors
    /// A definite [`Error`]; the batch is then of no use.
    pub fn event(&mut self, header: &EventHeader, body: &[u8]) -> Result<Answer> {
        let answer = self.take_event(header, body)?;
        self.check_helpers().map(|()| answer)
    }

    /// Has everything folded that was given to other threads: to be called before a batch is taken.
    ///
    /// # Errors
    /// [`Surprise::Contradicts`] if that could not be done beside each other.
    pub fn gather_in(&mut self) -> Result<()> {
        self.bring_home();
        self.check_helpers()
    }

    fn check_helpers(&self) -> Result<()> {
        match self.helpers.contradicts {
            true => Err(Error::TurnedOut(Surprise::Contradicts)),
            false => Ok(()),
        }
    }

    fn bring_home(&mut self) {
        if let Some(row_changes) = self.helpers.bring_home(self.gathered.segment.folds_mut()) {
            self.gathered.batch.statistics.row_changes += row_changes;
            self.gathered.segment_memory_bytes = self.gathered.segment.memory_bytes();
        }
    }

    fn take_event(&mut self, header: &EventHeader, body: &[u8]) -> Result<Answer> {
        self.gathered.batch.statistics.event_bytes += u64::from(header.event_length);
        self.event_seconds = header.timestamp_seconds;
        if self.transaction.gtid.is_announced {
            self.resolve(header, body)?;
        }
        match header.event_type {
            EventType::GTID_MARIADB => {
                let gtid = GtidEvent::parse_mariadb(header.server_id, body)?;
                let transaction = OpenTransaction {
                    gtid: GtidFlags { flags: Some(gtid.flags), extra_flags: gtid.extra_flags, is_announced: false },
                    xid: Xid::of_gtid_event(body)?,
                    ..OpenTransaction::default()
                };
                self.begin_transaction(transaction);
            }
            EventType::GTID_MYSQL | EventType::GTID_TAGGED_MYSQL | EventType::ANONYMOUS_GTID => {
                let gtid = GtidFlags { is_announced: true, ..GtidFlags::default() };
                self.transaction = OpenTransaction { gtid, is_mysql: true, ..OpenTransaction::default() };
            }
            EventType::TABLE_MAP => return self.table_map(body),
            EventType::QUERY => self.query(header, QueryEvent::parse(body)?)?,
            EventType::QUERY_COMPRESSED => {
                let mut buffer = std::mem::take(&mut self.buffers.query);
                let query = compressed::parse_query(body, &mut buffer)?;
                self.query(header, query)?;
                self.buffers.query = buffer;
            }
            EventType::INTVAR => self.context.push(StatementContext::Intvar(IntvarEvent::parse(body)?)),
            EventType::RAND => self.context.push(StatementContext::Rand(RandEvent::parse(body)?)),
            EventType::USER_VAR => self.context.push(StatementContext::user_variable(&UserVarEvent::parse(body)?)?),
            EventType::BEGIN_LOAD_QUERY => self.load_block(LoadBlock::parse(body)?, true),
            EventType::APPEND_BLOCK => self.load_block(LoadBlock::parse(body)?, false),
            EventType::DELETE_FILE => self.load_block(LoadBlock { bytes: &[], ..LoadBlock::parse(body)? }, true),
            EventType::EXECUTE_LOAD_QUERY => {
                let load = ExecuteLoadQuery::parse(body)?;
                let context = std::mem::take(&mut self.context);
                let Some(mut statement) = Statement::loading(header, load, context, self.rules.servers)? else {
                    return Ok(Answer::Taken);
                };
                // The default database is asked for after the file's name, which stays in its place.
                replace_default_schema(&mut statement)?;
                if statement.error_code != 0 && !statement.ends_at_a_duplicate() {
                    return Err(refused_half_load(&statement));
                }
                self.sessions.origins.check(&statement, header.server_id, &self.sessions.temporary)?;
                self.statement(statement);
            }
            EventType::XA_PREPARE => self.xa_prepare(body)?,
            EventType::XID
            | EventType::ANNOTATE_ROWS
            | EventType::ROWS_QUERY
            | EventType::PREVIOUS_GTIDS
            | EventType::TRANSACTION_CONTEXT
            | EventType::VIEW_CHANGE
            | EventType::FORMAT_DESCRIPTION
            | EventType::ROTATE
            | EventType::STOP
            | EventType::HEARTBEAT
            | EventType::HEARTBEAT_V2
            | EventType::GTID_LIST
            | EventType::BINLOG_CHECKPOINT => {}
            other if RowsKind::of(other).is_some() => {
                if self.tables.opened.begin_rows() && !self.transaction.is_mysql && self.may_hide_actions() {
                    return Ok(Answer::NeedsForeignKeys);
                }
                self.rows(header, body)?;
            }
            _ if header.flags & FLAG_IGNORABLE != 0 => {}
            other => return Err(refused_event(other)),
        }
        Ok(Answer::Taken)
    }

    /// Row changes of the source that the open batch was given.
    pub fn row_changes(&self) -> u64 {
        self.gathered.batch.statistics.row_changes + self.helpers.row_changes()
    }

    /// Bytes of memory that the open batch holds.
    pub fn memory_bytes(&self) -> usize {
        let context: usize = self.context.iter().map(StatementContext::memory_bytes).sum();
        let away = self.helpers.memory_bytes();
        self.gathered.batch_memory_bytes + self.gathered.segment_memory_bytes + away + context
    }

    /// Ends the batch and returns it; the builder continues with an empty one. A transaction that has not ended
    /// continues there.
    pub fn take(&mut self) -> Batch {
        self.cut();
        self.gathered.segment.session = None;
        self.gathered.batch_memory_bytes = 0;
        self.gathered.ordered_partial = 0;
        self.transaction.apart = None;
        self.transaction.so_far.was_taken = true;
        self.taken = (self.sessions.temporary.open.clone(), self.sessions.defaults);
        self.helpers.begin_batch();
        let mut batch = std::mem::take(&mut self.gathered.batch);
        batch.alone.clone_from(&self.transaction.alone);
        batch.is_unfolded = self.rules.never_folds;
        batch.explicit_defaults = self.transaction.explicit_defaults;
        let used_by = std::mem::take(&mut self.sessions.temporary.used_by);
        let needed_by = std::mem::take(&mut self.sessions.temporary.needed_by);
        batch.temporary = TemporaryTables { open: self.sessions.temporary.open.clone(), used_by, needed_by };
        batch
    }

    /// True if sessions of the source have temporary tables. They end with the applier's session, so a copy must be
    /// kept.
    pub fn has_temporary_tables(&self) -> bool {
        !self.sessions.temporary.open.is_empty()
    }

    /// Begins with temporary tables that exist already.
    pub fn begin_with(&mut self, open: BTreeSet<TemporaryTable>) {
        self.taken.0.clone_from(&open);
        self.sessions.temporary.open = open;
    }

    /// Begins with the last `explicit_defaults_for_timestamp` that MySQL's events gave.
    pub fn begin_with_defaults(&mut self, explicit: Option<bool>) {
        self.sessions.defaults = explicit;
        self.taken.1 = explicit;
    }

    /// Takes a restart of the source: its sessions ended, and their temporary tables with them, even if it could not
    /// log that.
    pub fn source_restarted(&mut self) {
        self.cut();
        self.push(Item::SourceRestarted);
        for table in std::mem::take(&mut self.sessions.temporary.open) {
            self.push(Item::Statement(Statement::dropping_temporary(table.thread_id, &table.name)));
        }
    }

    /// Forgets all events since the batch last taken: they will come again.
    pub fn rewind(&mut self) {
        self.bring_home();
        self.helpers.contradicts = false;
        self.gathered = Gathered::default();
        self.context.clear();
        self.transaction = OpenTransaction::default();
        self.sessions.temporary = TemporaryTables { open: self.taken.0.clone(), ..TemporaryTables::default() };
        self.sessions.defaults = self.taken.1;
    }

    fn query(&mut self, header: &EventHeader, query: QueryEvent<'_>) -> Result<()> {
        let stripped;
        let mut query = query;
        if query.rolls_group_back() {
            return self.undo();
        }
        let begins_group = query.begins_group();
        // Nothing of it is needed where most transactions begin.
        if begins_group && !self.transaction.is_mysql {
            return Ok(());
        }
        let status = StatusVariables::parse(query.status)?;
        let session = RowSession::of(header.timestamp_seconds, &status);
        if begins_group {
            self.transaction.session = Some(session);
            return Ok(());
        }
        let reading = status.reading(self.rules.servers);
        let class = statement::classify(SqlText { sql: query.statement, reading: &reading })
            .map_err(|doubt| refused_text(query.statement, spate_sql::edit::Refusal::Doubtful(doubt)))?;
        // Transactions of engines that can roll back end with an XID.
        let is_plain_end = self.transaction.is_mysql && query.ends_group() && self.transaction.is_usual();
        if is_plain_end && self.transaction.so_far.has_statements {
            return Err(Error::TurnedOut(Surprise::Undone));
        }
        let begins = self.transaction.is_mysql && class == StatementClass::Xa && query.begins_mysql_group();
        if begins || self.transaction.is_mysql && query.is_create_select() {
            self.transaction.session = Some(session);
        }
        if begins || query.ends_group() && class != StatementClass::Xa {
            return Ok(());
        }
        if self.transaction.is_mysql && query.is_create_select() {
            if self.transaction.is_usual() {
                self.turn_irrevocable()?;
            }
            stripped = query
                .without_start_transaction(self.rules.servers)
                .map_err(|why| refused_text(query.statement, why))?;
            query.statement = &stripped;
        }
        if class == StatementClass::XaEnd || self.transaction.is_silent {
            self.context.clear();
            return Ok(());
        }
        let context = std::mem::take(&mut self.context);
        if class == StatementClass::Xa {
            let Some(xid) = self.transaction.xid.clone() else { return Err(refused_xa(query.statement)) };
            self.transaction.alone = Some(Alone::XaEnd(xid));
        }
        let Some(mut statement) = Statement::new(header, query, context, self.rules.servers, self.rules.events)? else {
            return Ok(());
        };
        replace_default_schema(&mut statement)?;
        self.stand_with_defaults(&statement)?;
        self.sessions.origins.check(&statement, header.server_id, &self.sessions.temporary)?;
        self.rules.numbers_transactions |= versioning::may_number_versions(&statement);
        if self.transaction.is_group() && statement.class == StatementClass::Definition {
            self.transaction.created = created(&statement)?;
        }
        self.statement(statement);
        Ok(())
    }

    fn statement(&mut self, statement: Statement) {
        let uses_temporary_table = statement.is_thread_specific;
        self.transaction.so_far.has_statements |= statement.class == StatementClass::Change && !uses_temporary_table;
        self.cut();
        if statement.class == StatementClass::Definition {
            self.tables.opened.doubt();
            let outdated = std::mem::take(&mut self.transaction.outdated);
            self.transaction.outdated = outdated.and(Outdated::by(&statement));
        }
        match statement.class {
            StatementClass::Definition if self.transaction.is_group() => {
                self.transaction.stand_alone(Alone::CreateSelect);
            }
            StatementClass::Definition => self.transaction.alone = Some(Alone::Definition),
            StatementClass::Savepoint if self.transaction.is_irrevocable() => {
                self.transaction.stand_alone(Alone::Irrevocable);
            }
            // A change of a temporary table has no effect that a repetition would double: after a crash the table is gone.
            StatementClass::Change if self.transaction.is_irrevocable() && !uses_temporary_table => {
                self.transaction.stand_alone(Alone::Irrevocable);
            }
            StatementClass::Change if self.rules.numbers_transactions => self.transaction.stand_alone(Alone::Numbered),
            _ => {}
        }
        for table in self.sessions.temporary.outlived_by(&statement) {
            self.push(Item::Statement(Statement::dropping_temporary(table.thread_id, &table.name)));
            self.sessions.temporary.open.remove(&table);
        }
        self.sessions.temporary.note(&statement, uses_temporary_table);
        self.push(Item::Statement(statement));
    }

    fn load_block(&mut self, block: LoadBlock<'_>, is_first: bool) {
        self.cut();
        let LoadBlock { file_id, bytes } = block;
        self.push(Item::LoadBlock(FileBlock { file_id, is_first, bytes: bytes.to_vec() }));
    }

    /// Ends the open segment: later changes are applied after it.
    fn cut(&mut self) {
        self.bring_home();
        self.gathered.segment_memory_bytes = 0;
        let segment = self.gathered.segment.take();
        if !segment.is_empty() {
            self.push(Item::Rows(segment));
        }
        for setting in self.gathered.sequences.drain() {
            self.push(Item::Sequence(setting));
        }
    }

    fn push(&mut self, item: Item) {
        self.gathered.batch_memory_bytes += item.memory_bytes();
        self.gathered.batch.items.push(item);
    }
}

/// The system-versioned table that a statement creates before its rows, and its ROW END column.
fn created(statement: &Statement) -> Result<Option<(TableName, usize)>> {
    let refused = |doubt| refused_text(&statement.sql, spate_sql::edit::Refusal::Doubtful(doubt));
    let Some(row_end) = versioning::created_row_end(statement.text()).map_err(refused)? else { return Ok(None) };
    let objects = statement::touched(statement.text(), &statement.database).map_err(refused)?;
    Ok(objects.into_iter().find_map(|object| match object {
        statement::Object::Table(table) => Some((table, row_end)),
        _ => None,
    }))
}

/// Replaces `DATABASE()` in a statement: the applier's session has a default schema where the source's may have had
/// none.
fn replace_default_schema(statement: &mut Statement) -> Result<()> {
    let is_change = statement.class == StatementClass::Change;
    if !statement.database.is_empty() || !(is_change || statement::makes_table(statement.text())) {
        return Ok(());
    }
    let answered = statement::without_default_schema(statement.text());
    let Some(answered) = answered.map_err(|why| refused_text(&statement.sql, why))? else { return Ok(()) };
    if !is_change {
        let why =
            "it asks for the default database, the source's session had none, and the applier's has one: execute it \
                   on the replica by hand, without a default database, and leave the transaction out (--skip)"
                .to_owned();
        return Err(Error::Refused { what: spate_sql::excerpt(&statement.sql), why });
    }
    // The file's name must stay in its place.
    let is_behind_file = |load: &LoadFile| answered.get(..load.name.end) == statement.sql.get(..load.name.end);
    if !statement.load.as_ref().is_none_or(is_behind_file) {
        return Err(refused_text(&statement.sql, spate_sql::edit::Refusal::Different));
    }
    statement.sql = answered;
    Ok(())
}

/// The error of a statement whose text is a doubt, or cannot be changed as the replica needs it.
fn refused_text(sql: &[u8], why: spate_sql::edit::Refusal) -> Error {
    Error::Refused { what: spate_sql::excerpt(sql), why: why.to_string() }
}

impl Batch {
    /// True if there is nothing to apply.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

fn refused_half_load(statement: &Statement) -> Error {
    let code = statement.error_code;
    let why = format!(
        "it ended half-way on the source, with error {code}, but a server loads a file that is sent over a connection to its end: \
         make the table equal to the source's, and leave the transaction out (--skip)"
    );
    Error::Refused { what: spate_sql::excerpt(&statement.sql), why }
}

fn refused_xa(sql: &[u8]) -> Error {
    let why =
        "no GTID event names its XA transaction; let native replication apply it, then continue after it".to_owned();
    Error::Refused { what: spate_sql::excerpt(sql), why }
}

fn refused_event(event_type: EventType) -> Error {
    let why = match event_type {
        EventType::INCIDENT => "the source says that its binlog has a gap here; rebuild the replica from a backup",
        EventType::START_ENCRYPTION => "encrypted binlog files cannot be read; receive them over the network instead",
        _ => "this version of Spate does not know it, and to ignore it could lose data",
    };
    Error::Refused { what: format!("{event_type} event"), why: why.to_owned() }
}
