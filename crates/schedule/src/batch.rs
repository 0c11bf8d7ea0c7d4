//! Batches: consecutive transactions, gathered event by event into what the replica will execute as one transaction.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use spate_binlog::header::{EventHeader, EventType, FLAG_IGNORABLE, FLAG_THREAD_SPECIFIC};
use spate_binlog::load::{ExecuteLoadQuery, LoadBlock};
use spate_binlog::rows::FLAG_CASCADES_LOGGED;
use spate_binlog::session::{IntvarEvent, RandEvent, UserVarEvent};
use spate_binlog::{Gtid, GtidEvent, QueryEvent, RowsEvent, RowsKind, TableMap, Xid, compressed, table_map};

use crate::definition::{FoldPolicy, TableDefinition, TableName};
use crate::fold::Verdict;
use crate::item::{Alone, FileBlock, Item, Statement, StatementContext};
use crate::outdated::Outdated;
use crate::plan::TablePlan;
use crate::segment::{OrderedRows, RowWalk, Segment};
use crate::sequence;
use crate::statement::{self, StatementClass};
use crate::temporary::{TemporaryTable, TemporaryTables};
use crate::transaction::OpenTransaction;
use crate::{Error, Result};

/// Spate's own schema on a replica. A source that is itself a replica of Spate logs its changes; they are its own affair.
pub const OWN_SCHEMA: &str = "spate";

/// Plans that are kept: a source gives a table another id whenever it opens it anew, so their number has no other bound. What is
/// dropped is made again from the next table map.
const PLANS_MAX: usize = 16 << 10;

/// Columns in the plans that are kept: some hundred bytes each.
const PLANNED_COLUMNS_MAX: usize = 128 << 10;

/// How often a batch is cut around partial images that must be applied in order, so that folding goes on after them. From then
/// on their tables stay in order: cuts cost all tables some of their folding.
const CUTS_AROUND_ORDERED_MAX: usize = 64;

/// What a batch was made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchStatistics {
    /// Row changes in the source's events.
    pub row_changes: u64,
    /// Bytes of the source's events.
    pub event_bytes: u64,
}

/// Consecutive transactions, or a part of one that is too large for memory.
#[derive(Debug, Default)]
pub struct Batch {
    /// What to apply, in order.
    pub items: Vec<Item>,
    /// What it was made of.
    pub statistics: BatchStatistics,
    /// Why it holds but one transaction, or a part of one; `None` for an ordinary batch.
    pub alone: Option<Alone>,
    /// Some row changes are of tables whose engine cannot roll back.
    pub has_irrevocable_rows: bool,
    /// The temporary tables of the source's sessions at its end.
    pub temporary: TemporaryTables,
}

/// What the builder says to an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Taken.
    Taken,
    /// Not taken: first [`BatchBuilder::learn`] this table, then give the event again.
    NeedsDefinition(TableName),
}

/// Builds batches from events. It decides nothing about when a batch ends: that is the caller's, who knows the time.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    definitions: HashMap<TableName, Arc<TableDefinition>>,
    plans: HashMap<u64, Option<Arc<TablePlan>>>,
    /// Columns in `plans`.
    planned_columns: usize,
    batch: Batch,
    /// Bytes of memory that `batch` holds.
    batch_memory_bytes: usize,
    segment: Segment,
    segment_memory_bytes: usize,
    /// How often partial images of the open batch had to be applied in order.
    ordered_partial: usize,
    context: Vec<StatementContext>,
    buffer: Vec<u8>,
    query_buffer: Vec<u8>,
    never_folds: bool,
    /// When the event that is being taken was logged, in seconds since 1970.
    event_seconds: u32,
    /// Tables that the open statement has a map of, and the replica does not have.
    absent: HashMap<u64, TableName>,
    transaction: OpenTransaction,
    temporary: TemporaryTables,
    /// Those open at the end of the batch last taken.
    taken_temporary: BTreeSet<TemporaryTable>,
}

impl BatchBuilder {
    /// A builder that knows no table yet.
    pub fn new() -> BatchBuilder {
        BatchBuilder::default()
    }

    /// Applies every row change in the source's order, unfolded: to find which transaction of a failed batch it was.
    pub fn never_fold(&mut self) {
        self.never_folds = true;
    }

    /// Takes what the replica says of a table.
    pub fn learn(&mut self, definition: TableDefinition) {
        self.definitions.insert(definition.name.clone(), Arc::new(definition));
    }

    /// Takes the table map for which [`Answer::NeedsDefinition`] was the answer, although the replica has no such table: rows that
    /// follow are an error. (A statement may have opened a table that is dropped before it is logged, and not changed it.)
    ///
    /// # Errors
    /// [`Error::Binlog`] if it cannot be read.
    pub fn absent(&mut self, name: TableName, table_map: &[u8]) -> Result<()> {
        let table_id = table_map::table_id(table_map)?;
        self.plans.remove(&table_id);
        self.absent.insert(table_id, name);
        Ok(())
    }

    /// Forgets all definitions, since DDL may have changed them.
    pub fn forget_definitions(&mut self) {
        self.definitions.clear();
        self.forget_plans();
    }

    /// Forgets the definitions that are out of date.
    pub fn forget(&mut self, outdated: &Outdated) {
        match outdated {
            Outdated::Nothing => {}
            Outdated::All => self.forget_definitions(),
            some => {
                self.definitions.retain(|_, definition| !some.includes(definition));
                self.plans.retain(|_, plan| plan.as_ref().is_none_or(|plan| !some.includes(&plan.definition)));
                self.planned_columns = self.plans.values().flatten().map(|plan| plan.map.columns.len()).sum();
            }
        }
    }

    /// The definitions that the transaction whose events were last taken puts out of date.
    pub fn outdated(&self) -> &Outdated {
        &self.transaction.outdated
    }

    fn forget_plans(&mut self) {
        self.plans.clear();
        self.planned_columns = 0;
    }

    fn plan(&mut self, table_id: u64, plan: TablePlan) {
        self.planned_columns += plan.map.columns.len();
        self.plans.insert(table_id, Some(Arc::new(plan)));
    }

    /// Takes the next event: its header, and its body without checksum.
    ///
    /// # Errors
    /// A definite [`Error`]; the batch is then of no use.
    pub fn event(&mut self, header: &EventHeader, body: &[u8]) -> Result<Answer> {
        self.batch.statistics.event_bytes += u64::from(header.event_length);
        self.event_seconds = header.timestamp_seconds;
        if self.transaction.is_announced {
            self.resolve(header, body)?;
        }
        match header.event_type {
            EventType::GTID_MARIADB => {
                let gtid = GtidEvent::parse_mariadb(header.server_id, body)?;
                let transaction = OpenTransaction {
                    flags: Some(gtid.flags),
                    extra_flags: gtid.extra_flags,
                    xid: Xid::of_gtid_event(body)?,
                    ..OpenTransaction::default()
                };
                self.begin_transaction(transaction);
            }
            EventType::GTID_MYSQL | EventType::GTID_TAGGED_MYSQL | EventType::ANONYMOUS_GTID => {
                self.transaction = OpenTransaction { is_announced: true, is_mysql: true, ..OpenTransaction::default() };
            }
            EventType::TABLE_MAP => return self.table_map(body),
            EventType::QUERY => self.query(header, QueryEvent::parse(body)?)?,
            EventType::QUERY_COMPRESSED => {
                let mut buffer = std::mem::take(&mut self.query_buffer);
                let query = compressed::parse_query(body, &mut buffer)?;
                self.query(header, query)?;
                self.query_buffer = buffer;
            }
            EventType::INTVAR => self.context.push(StatementContext::Intvar(IntvarEvent::parse(body)?)),
            EventType::RAND => self.context.push(StatementContext::Rand(RandEvent::parse(body)?)),
            EventType::USER_VAR => self.context.push(StatementContext::user_variable(&UserVarEvent::parse(body)?)),
            EventType::BEGIN_LOAD_QUERY => self.load_block(LoadBlock::parse(body)?, true),
            EventType::APPEND_BLOCK => self.load_block(LoadBlock::parse(body)?, false),
            EventType::DELETE_FILE => self.load_block(LoadBlock { bytes: &[], ..LoadBlock::parse(body)? }, true),
            EventType::EXECUTE_LOAD_QUERY => {
                let load = ExecuteLoadQuery::parse(body)?;
                let context = std::mem::take(&mut self.context);
                let statement = Statement::loading(header, load, context)?;
                if statement.error_code != 0 {
                    return Err(refused_half_load(&statement));
                }
                self.statement(header, statement);
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
            other if RowsKind::of(other).is_some() => self.rows(header, body)?,
            _ if header.flags & FLAG_IGNORABLE != 0 => {}
            other => return Err(refused_event(other)),
        }
        Ok(Answer::Taken)
    }

    /// Bytes of memory that the open batch holds.
    pub fn memory_bytes(&self) -> usize {
        self.batch_memory_bytes + self.segment_memory_bytes
    }

    /// Ends the batch and returns it; the builder goes on with an empty one. In the midst of a transaction, that goes on there.
    pub fn take(&mut self) -> Batch {
        self.cut();
        self.batch_memory_bytes = 0;
        self.ordered_partial = 0;
        self.transaction.first_item = None;
        self.transaction.was_taken = true;
        self.taken_temporary.clone_from(&self.temporary.open);
        let mut batch = std::mem::take(&mut self.batch);
        batch.alone.clone_from(&self.transaction.alone);
        let used_by = std::mem::take(&mut self.temporary.used_by);
        batch.temporary = TemporaryTables { open: self.temporary.open.clone(), used_by };
        batch
    }

    /// True if the transaction whose events are being taken has to be a batch of its own, and can be separated from those before
    /// it by [`BatchBuilder::take_earlier`].
    pub fn stands_among_others(&self) -> bool {
        let mixes = self.batch.has_irrevocable_rows && !self.transaction.had_irrevocable_rows;
        self.transaction.first_item.is_some() && (self.transaction.alone.is_some() || mixes)
    }

    /// True if the transaction whose events are being taken may still turn out to need a batch of its own, so that no part of it
    /// may be taken together with earlier ones.
    pub fn may_stand_alone(&self) -> bool {
        self.transaction.first_item.is_some() && self.transaction.may_be_undone()
    }

    /// True if the open batch must end before a transaction with this GTID event: what can roll back and what cannot do not
    /// share a batch, since some engines know no savepoints.
    pub fn ends_before(&self, gtid: Option<&GtidEvent>) -> bool {
        let can_roll_back = gtid.is_none_or(|event| match event.gtid {
            Gtid::MariaDb(_) => event.has(GtidEvent::TRANSACTIONAL),
            // It does not say.
            Gtid::MySql(_) => true,
        });
        self.batch.has_irrevocable_rows && can_roll_back
    }

    /// Ends the batch before the transaction whose events are being taken.
    pub fn take_earlier(&mut self) -> Batch {
        let Some(first) = self.transaction.first_item.replace(0) else { return Batch::default() };
        self.cut();
        self.taken_temporary.clone_from(&self.transaction.temporary_before);
        let (statistics, memory_bytes) = std::mem::take(&mut self.transaction.before);
        let own_items = self.batch.items.split_off(first);
        self.batch_memory_bytes -= memory_bytes;
        let all = self.batch.statistics;
        self.batch.statistics = statistics;
        let own = Batch {
            items: own_items,
            statistics: BatchStatistics {
                row_changes: all.row_changes - statistics.row_changes,
                event_bytes: all.event_bytes - statistics.event_bytes,
            },
            alone: None,
            has_irrevocable_rows: self.batch.has_irrevocable_rows,
            temporary: TemporaryTables::default(),
        };
        let mut earlier = std::mem::replace(&mut self.batch, own);
        let (open, used_by) = (self.taken_temporary.clone(), self.temporary.used_by.clone());
        earlier.temporary = TemporaryTables { open, used_by };
        earlier.has_irrevocable_rows = self.transaction.had_irrevocable_rows;
        earlier
    }

    /// Why the transaction whose events were last taken has to be a batch of its own; `None` if it need not.
    pub fn alone(&self) -> Option<&Alone> {
        self.transaction.alone.as_ref()
    }

    /// True if sessions of the source have temporary tables: they end with the session that applies, and have to be kept elsewhere.
    pub fn has_temporary_tables(&self) -> bool {
        !self.temporary.open.is_empty()
    }

    /// Begins with temporary tables that exist already.
    pub fn begin_with(&mut self, open: BTreeSet<TemporaryTable>) {
        self.taken_temporary.clone_from(&open);
        self.temporary.open = open;
    }

    /// Begins a transaction that has no GTID event.
    pub fn begin_anonymous(&mut self) {
        self.begin_transaction(OpenTransaction::default());
    }

    /// The source was started anew: its sessions ended, and their temporary tables with them, even if it could not log that.
    pub fn source_restarted(&mut self) {
        for table in std::mem::take(&mut self.temporary.open) {
            self.cut();
            self.push(Item::Statement(Statement::dropping_temporary(table.thread_id, &table.name)));
        }
    }

    /// Forgets everything since the batch last taken: its events will come again.
    pub fn rewind(&mut self) {
        self.batch = Batch::default();
        self.batch_memory_bytes = 0;
        self.segment = Segment::default();
        self.segment_memory_bytes = 0;
        self.context.clear();
        self.ordered_partial = 0;
        self.transaction = OpenTransaction::default();
        self.temporary = TemporaryTables { open: self.taken_temporary.clone(), used_by: BTreeSet::new() };
    }

    /// The transaction that was just begun is known to end with ROLLBACK: it is a batch of its own, and is rolled back on the
    /// replica too, which leaves what cannot be rolled back there either, such as the values that it took from sequences.
    pub fn expect_undo(&mut self) {
        if self.transaction.is_mysql {
            self.transaction.expects_irrevocable = true;
            return;
        }
        self.keep_apart();
        self.transaction.alone = Some(Alone::RolledBack);
    }

    /// Keeps the changes of the transaction that was just begun apart from those before it.
    fn keep_apart(&mut self) {
        self.cut();
        self.transaction.first_item = Some(self.batch.items.len());
        self.transaction.before = (self.batch.statistics, self.batch_memory_bytes);
        self.transaction.had_irrevocable_rows = self.batch.has_irrevocable_rows;
        self.transaction.temporary_before.clone_from(&self.temporary.open);
    }

    /// The last event of the transaction was taken.
    pub fn end_transaction(&mut self) {
        self.transaction.is_over = true;
    }

    /// What MySQL's transaction is, the first event after its GTID says, unless that is only context of a statement.
    fn resolve(&mut self, header: &EventHeader, body: &[u8]) -> Result<()> {
        let (flags, xid) = match header.event_type {
            EventType::QUERY => {
                let query = QueryEvent::parse(body)?;
                let xid = Xid::of_statement(query.statement);
                match xid {
                    _ if query.begins_group() => (GtidEvent::TRANSACTIONAL, None),
                    _ if query.is_create_select() => (GtidEvent::DDL, None),
                    Some(_) if query.begins_mysql_group() => (GtidEvent::TRANSACTIONAL | GtidEvent::PREPARED_XA, xid),
                    Some(_) => (GtidEvent::STANDALONE | GtidEvent::COMPLETED_XA, xid),
                    None => (GtidEvent::STANDALONE | GtidEvent::DDL, None),
                }
            }
            EventType::TABLE_MAP => (GtidEvent::TRANSACTIONAL, None),
            _ => return Ok(()),
        };
        let expects_irrevocable = self.transaction.expects_irrevocable;
        let flags = if expects_irrevocable { flags & !GtidEvent::TRANSACTIONAL } else { flags };
        self.begin_transaction(OpenTransaction {
            flags: Some(flags),
            xid,
            is_mysql: true,
            expects_irrevocable,
            ..OpenTransaction::default()
        });
        Ok(())
    }

    /// The transaction that is underway turns out to change what cannot roll back, which MySQL does not say beforehand.
    fn turn_irrevocable(&mut self) -> Result<()> {
        if self.transaction.has_rows || self.transaction.has_statements {
            return Err(Error::Undone);
        }
        self.transaction.flags = self.transaction.flags.map(|flags| flags & !GtidEvent::TRANSACTIONAL);
        self.keep_apart();
        Ok(())
    }

    /// On MySQL the event also stands at the end of an XA transaction that was committed without being prepared.
    fn xa_prepare(&mut self, body: &[u8]) -> Result<()> {
        let is_one_phase = self.transaction.is_mysql && body.first() == Some(&1);
        if is_one_phase && self.transaction.alone.take().is_some() && self.transaction.was_taken {
            let why =
                "an XA transaction that is larger than Spate's memory was committed in one phase: give Spate more \
                       (--memory), and start again"
                    .to_owned();
            return Err(Error::Refused { what: "XA COMMIT … ONE PHASE".to_owned(), why });
        }
        Ok(())
    }

    fn begin_transaction(&mut self, transaction: OpenTransaction) {
        self.transaction = transaction;
        self.absent.clear();
        // Not in its midst: a statement's table maps all come before its rows.
        if self.plans.len() > PLANS_MAX || self.planned_columns > PLANNED_COLUMNS_MAX {
            self.forget_plans();
        }
        if self.transaction.is_usual() {
            return;
        }
        let extra = self.transaction.extra_flags;
        self.transaction.is_silent = extra & (GtidEvent::EXTRA_START_ALTER | GtidEvent::EXTRA_ROLLBACK_ALTER) != 0;
        self.keep_apart();
        if self.transaction.has(GtidEvent::PREPARED_XA) {
            self.transaction.alone = self.transaction.xid.clone().map(Alone::XaPrepare);
        }
    }

    fn table_map(&mut self, body: &[u8]) -> Result<Answer> {
        let table_id = table_map::table_id(body)?;
        self.absent.remove(&table_id);
        if let Some(Some(plan)) = self.plans.get(&table_id)
            && plan.map.body == body
        {
            return Ok(Answer::Taken);
        }
        let map = TableMap::parse(body)?;
        if map.schema == OWN_SCHEMA {
            self.plans.insert(table_id, None);
            return Ok(Answer::Taken);
        }
        let name = TableName { schema: map.schema.clone(), table: map.table.clone() };
        if self.transaction.alone == Some(Alone::CreateSelect) {
            self.plan(table_id, TablePlan::just_created(map, name));
            return Ok(Answer::Taken);
        }
        let Some(definition) = self.definitions.get(&name) else { return Ok(Answer::NeedsDefinition(name)) };
        let plan = TablePlan::new(map, Arc::clone(definition))?;
        self.plan(table_id, plan);
        Ok(Answer::Taken)
    }

    fn rows(&mut self, header: &EventHeader, body: &[u8]) -> Result<()> {
        let rows = RowsEvent::parse(header.event_type, body)?;
        if let Some(name) = self.absent.get(&rows.table_id) {
            return Err(Error::NoTable(name.clone()));
        }
        let plan = match self.plans.get(&rows.table_id) {
            Some(Some(plan)) => Arc::clone(plan),
            Some(None) => return Ok(()),
            None => {
                let why = format!("no table map for table id {} came before it", rows.table_id);
                return Err(Error::Refused { what: header.event_type.to_string(), why });
            }
        };
        if rows.column_count != plan.map.columns.len() {
            let why = format!("it has {} columns, its table map {}", rows.column_count, plan.map.columns.len());
            return Err(Error::Refused { what: header.event_type.to_string(), why });
        }
        if self.transaction.is_mysql && self.transaction.is_usual() && !plan.definition.is_transactional {
            self.turn_irrevocable()?;
        }
        self.transaction.has_rows = true;
        self.batch.has_irrevocable_rows |= !plan.definition.is_transactional;
        let mut buffer = std::mem::take(&mut self.buffer);
        let images = rows.images(&mut buffer)?;
        let setting = match &plan.definition.sequence {
            Some(bounds) => {
                let columns = (rows.columns, rows.has_full_images());
                sequence::setting(&plan.definition.name, bounds, &plan.map, columns, images)?
            }
            None => None,
        };
        if let Some(setting) = setting {
            self.batch.statistics.row_changes += 1;
            self.cut();
            self.push(Item::Sequence(setting));
            self.buffer = buffer;
            return Ok(());
        }
        let plan = self.plan_of(plan, &rows)?;
        match rows.has_partial_json {
            true => self.partial_json(&plan, rows, images)?,
            false => self.images(&plan, &rows, images)?,
        }
        self.buffer = buffer;
        Ok(())
    }

    /// The plan to take an event by: if foreign keys act on other rows, it matters whether the source logs what they do.
    fn plan_of(&mut self, plan: Arc<TablePlan>, rows: &RowsEvent<'_>) -> Result<Arc<TablePlan>> {
        let logs_cascades = rows.flags & FLAG_CASCADES_LOGGED != 0;
        if !plan.definition.has_engine_actions || plan.takes_cascades == logs_cascades {
            return Ok(plan);
        }
        let plan = Arc::new(TablePlan::with_cascades(plan.map.clone(), Arc::clone(&plan.definition), logs_cascades)?);
        self.plans.insert(rows.table_id, Some(Arc::clone(&plan)));
        Ok(plan)
    }

    /// Takes row changes in the way that the table's plan says.
    fn images(&mut self, plan: &Arc<TablePlan>, rows: &RowsEvent<'_>, images: &[u8]) -> Result<()> {
        match plan.policy {
            _ if self.never_folds => self.order(plan, rows, images),
            FoldPolicy::Fold => self.fold(plan, rows, images),
            FoldPolicy::Multiset if rows.has_full_images() => self.count(plan, rows.kind, images),
            _ => self.order(plan, rows, images),
        }
    }

    /// Rows of which nothing is partial are like any others; what stands between their images only says that.
    fn partial_json(&mut self, plan: &Arc<TablePlan>, rows: RowsEvent<'_>, images: &[u8]) -> Result<()> {
        let walk = RowWalk::new(plan, rows.kind, (rows.columns, rows.columns_after), true)?;
        let mut plain = rows;
        plain.has_partial_json = false;
        let mut rest = images;
        let mut run = Vec::new();
        while !rest.is_empty() {
            let row = walk.next(rest)?;
            rest = &rest[row.all.len()..];
            if row.is_partial {
                self.images(plan, &plain, &std::mem::take(&mut run))?;
                self.ordered_partial += 1;
                self.order(plan, &rows, row.all)?;
            } else {
                run.extend_from_slice(row.first);
                run.extend_from_slice(row.second);
            }
        }
        self.images(plan, &plain, &run)
    }

    fn fold(&mut self, plan: &Arc<TablePlan>, rows: &RowsEvent<'_>, mut images: &[u8]) -> Result<()> {
        let is_full = rows.has_full_images();
        while !images.is_empty() {
            let Some(fold) = self.segment.fold_for(plan)? else {
                let is_ordered = self.segment.ordered_tables.contains_key(&plan.definition.name);
                if is_ordered && (!is_full || plan.has_json()) && self.ordered_partial >= CUTS_AROUND_ORDERED_MAX {
                    return self.order(plan, rows, images);
                }
                self.cut();
                continue;
            };
            let memory_before = fold.memory_bytes();
            let verdict = match is_full {
                true => fold.take(rows.kind, images)?,
                false => fold.take_partial(rows.kind, rows.columns, rows.columns_after, images)?,
            };
            self.segment_memory_bytes += fold.memory_bytes() - memory_before;
            match verdict {
                Verdict::Folded(length) => {
                    images = &images[length..];
                    self.batch.statistics.row_changes += 1;
                }
                Verdict::Cut if self.segment.is_fresh(plan) => {
                    let table = plan.definition.name.clone();
                    return Err(Error::Definition { table, why: "a single row change contradicts itself".to_owned() });
                }
                Verdict::Cut => self.cut(),
                Verdict::Ordered => {
                    self.ordered_partial += 1;
                    self.segment.forget_untouched(plan);
                    return self.order(plan, rows, images);
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, plan: &Arc<TablePlan>, kind: RowsKind, mut images: &[u8]) -> Result<()> {
        while !images.is_empty() {
            let Some(multiset) = self.segment.multiset_for(plan)? else {
                self.cut();
                continue;
            };
            let memory_before = multiset.memory_bytes();
            images = &images[multiset.take(kind, images)?..];
            self.segment_memory_bytes += multiset.memory_bytes() - memory_before;
            self.batch.statistics.row_changes += 1;
        }
        Ok(())
    }

    fn order(&mut self, plan: &Arc<TablePlan>, rows: &RowsEvent<'_>, images: &[u8]) -> Result<()> {
        if images.is_empty() {
            return Ok(());
        }
        let name = &plan.definition.name;
        if self.segment.fold_of.contains_key(name) || self.segment.multiset_of.contains_key(name) {
            self.cut();
        }
        let walk = RowWalk::new(plan, rows.kind, (rows.columns, rows.columns_after), rows.has_partial_json)?;
        self.batch.statistics.row_changes += count_rows(&walk, images)?;
        self.segment_memory_bytes += images.len();
        self.segment.ordered_tables.insert(plan.definition.name.clone(), ());
        self.segment.ordered.push(OrderedRows {
            plan: Arc::clone(plan),
            kind: rows.kind,
            flags: rows.flags,
            timestamp_seconds: self.event_seconds,
            columns: rows.columns.to_vec(),
            columns_after: rows.columns_after.to_vec(),
            images: images.to_vec(),
            has_partial_json: rows.has_partial_json,
        });
        Ok(())
    }

    fn query(&mut self, header: &EventHeader, mut query: QueryEvent<'_>) -> Result<()> {
        if query.rolls_group_back() {
            return self.undo();
        }
        let class = statement::classify(query.statement);
        // Transactions of engines that can roll back end with an XID.
        let is_plain_end = self.transaction.is_mysql && query.ends_group() && self.transaction.is_usual();
        if is_plain_end && self.transaction.has_statements {
            return Err(Error::Undone);
        }
        let begins = query.begins_group()
            || self.transaction.is_mysql && class == StatementClass::Xa && query.begins_mysql_group();
        if begins || query.ends_group() && class != StatementClass::Xa {
            return Ok(());
        }
        if self.transaction.is_mysql && query.is_create_select() {
            if self.transaction.is_usual() {
                self.turn_irrevocable()?;
            }
            query.statement = query.without_start_transaction();
        }
        if class == StatementClass::XaEnd || self.transaction.is_silent {
            self.context.clear();
            return Ok(());
        }
        let context = std::mem::take(&mut self.context);
        if query.database.is_empty() && statement::asks_for_default_schema(query.statement) {
            let why = "it asks for the default database, the source's session had none, and the applier's has one: execute it \
                       on the replica by hand, without a default database, and leave the transaction out"
                .to_owned();
            return Err(Error::Refused { what: statement::excerpt(query.statement), why });
        }
        if class == StatementClass::Xa {
            let Some(xid) = self.transaction.xid.clone() else { return Err(refused_xa(query.statement)) };
            self.transaction.alone = Some(Alone::XaEnd(xid));
        }
        self.statement(header, Statement::new(header, query, context)?);
        Ok(())
    }

    fn statement(&mut self, header: &EventHeader, statement: Statement) {
        let uses_temporary_table = header.flags & FLAG_THREAD_SPECIFIC != 0;
        self.transaction.has_statements |= statement.class == StatementClass::Change && !uses_temporary_table;
        self.cut();
        if statement.class == StatementClass::Definition {
            let outdated = std::mem::take(&mut self.transaction.outdated);
            self.transaction.outdated = outdated.and(Outdated::by(&statement));
        }
        match statement.class {
            StatementClass::Definition if self.transaction.is_group() => {
                self.transaction.alone.get_or_insert(Alone::CreateSelect);
            }
            StatementClass::Definition => self.transaction.alone = Some(Alone::Definition),
            StatementClass::Savepoint if self.transaction.is_irrevocable() => {
                self.transaction.alone.get_or_insert(Alone::Irrevocable);
            }
            // What uses a temporary table is not repeated in vain: after a crash the table is gone.
            StatementClass::Change if self.transaction.is_irrevocable() && !uses_temporary_table => {
                self.transaction.alone.get_or_insert(Alone::Irrevocable);
            }
            _ => {}
        }
        self.temporary.note(&statement, uses_temporary_table);
        self.push(Item::Statement(statement));
    }

    fn load_block(&mut self, block: LoadBlock<'_>, is_first: bool) {
        self.cut();
        let LoadBlock { file_id, bytes } = block;
        self.push(Item::LoadBlock(FileBlock { file_id, is_first, bytes: bytes.to_vec() }));
    }

    /// The source rolled the transaction back, and logged it because something of it could not be undone.
    fn undo(&mut self) -> Result<()> {
        if !self.transaction.may_be_undone() {
            return Err(Error::Undone);
        }
        self.transaction.alone.get_or_insert(Alone::Irrevocable);
        self.cut();
        self.push(Item::Undo);
        Ok(())
    }

    /// Ends the open segment: what comes is applied after it.
    fn cut(&mut self) {
        self.segment_memory_bytes = 0;
        let segment = std::mem::take(&mut self.segment);
        if !segment.is_empty() {
            self.push(Item::Rows(segment));
        }
    }

    fn push(&mut self, item: Item) {
        self.batch_memory_bytes += item.memory_bytes();
        self.batch.items.push(item);
    }
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
        "it ended half-way on the source, with error {code}, and a file that is sent over a connection is loaded to its end: make the \
         table what it is on the source, and leave the transaction out"
    );
    Error::Refused { what: statement::excerpt(&statement.sql), why }
}

fn refused_xa(sql: &[u8]) -> Error {
    let why = "no GTID event names its XA transaction; let native replication apply it, then go on after it".to_owned();
    Error::Refused { what: statement::excerpt(sql), why }
}

fn refused_event(event_type: EventType) -> Error {
    let why = match event_type {
        EventType::INCIDENT => "the source says that its binlog has a gap here; rebuild the replica from a backup",
        EventType::START_ENCRYPTION => "encrypted binlog files cannot be read; receive them over the network instead",
        _ => "it is unknown to this version of Spate, and to skip it could lose data",
    };
    Error::Refused { what: format!("{event_type} event"), why: why.to_owned() }
}

fn count_rows(walk: &RowWalk, images: &[u8]) -> Result<u64> {
    let mut rest = images;
    let mut count = 0;
    while !rest.is_empty() {
        rest = &rest[walk.next(rest)?.all.len()..];
        count += 1;
    }
    Ok(count)
}
