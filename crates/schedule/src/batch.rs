//! Batches: consecutive transactions, gathered event by event into what the replica will execute as one transaction.

use std::collections::HashMap;
use std::sync::Arc;

use spate_binlog::header::{EventHeader, EventType, FLAG_IGNORABLE, FLAG_SUPPRESS_USE, FLAG_THREAD_SPECIFIC};
use spate_binlog::query::StatusVariables;
use spate_binlog::session::{IntvarEvent, RandEvent, UserVarEvent, UserVarValue};
use spate_binlog::{GtidEvent, QueryEvent, RowsEvent, RowsKind, TableMap, compressed, table_map};

use crate::definition::{FoldPolicy, OrderedReason, TableDefinition, TableName};
use crate::fold::{TableFold, Verdict};
use crate::multiset::RowMultiset;
use crate::plan::TablePlan;
use crate::statement::{self, StatementClass};
use crate::{Error, Result};

/// Spate's own schema on a replica. A source that is itself a replica of Spate logs its changes; they are its own affair.
pub const OWN_SCHEMA: &str = "spate";

/// How often a batch is cut around partial images that must be applied in order, so that folding goes on after them. From then
/// on their tables stay in order: cuts cost all tables some of their folding.
const CUTS_AROUND_ORDERED_MAX: usize = 64;

/// Row changes that may be applied in any order among each other, as long as each table's part is applied as it stands.
#[derive(Debug, Default)]
pub struct Segment {
    folds: Vec<TableFold>,
    /// From a plan's address to its place in `folds`. (A plan lives as long as the builder knows its table map.)
    fold_of: HashMap<TableName, usize>,
    multisets: Vec<RowMultiset>,
    multiset_of: HashMap<TableName, usize>,
    ordered: Vec<OrderedRows>,
    ordered_tables: HashMap<TableName, ()>,
}

/// One rows event that is applied as the source logged it.
#[derive(Debug)]
pub struct OrderedRows {
    pub(crate) plan: Arc<TablePlan>,
    pub(crate) kind: RowsKind,
    pub(crate) flags: u16,
    pub(crate) columns: Vec<u8>,
    pub(crate) columns_after: Vec<u8>,
    pub(crate) images: Vec<u8>,
}

/// A statement that is executed as SQL, with everything that decides what it does.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// When it began on the source, in seconds since 1970.
    pub timestamp_seconds: u32,
    /// Default database; empty if none.
    pub database: Vec<u8>,
    /// The session's state.
    pub status: StatusVariables,
    /// Values for the statement, in the order of the binlog.
    pub context: Vec<StatementContext>,
    /// The statement in the client's character set.
    pub sql: Vec<u8>,
    /// Error that the statement ended with on the source, or 0.
    pub error_code: u16,
    /// What kind of statement it is.
    pub class: StatementClass,
}

/// A value that the next statement uses.
#[derive(Debug, Clone, PartialEq)]
pub enum StatementContext {
    /// `LAST_INSERT_ID` or `INSERT_ID`.
    Intvar(IntvarEvent),
    /// `RAND_SEED1`, `RAND_SEED2`.
    Rand(RandEvent),
    /// A user variable: its name and value.
    UserVariable(Vec<u8>, OwnedUserValue),
}

/// [`UserVarValue`] with its own bytes.
#[derive(Debug, Clone, PartialEq)]
pub enum OwnedUserValue {
    /// NULL.
    Null,
    /// Bytes and collation id.
    String(Vec<u8>, u32),
    /// A floating-point number.
    Real(f64),
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A decimal's text.
    Decimal(String),
}

/// A part of a batch; parts are applied in order.
#[derive(Debug)]
pub enum Item {
    /// Row changes.
    Rows(Segment),
    /// A statement.
    Statement(Statement),
}

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

    /// Forgets all definitions, since DDL may have changed them.
    pub fn forget_definitions(&mut self) {
        self.definitions.clear();
        self.plans.clear();
    }

    /// Takes the next event: its header, and its body without checksum.
    ///
    /// # Errors
    /// A definite [`Error`]; the batch is then of no use.
    pub fn event(&mut self, header: &EventHeader, body: &[u8]) -> Result<Answer> {
        self.batch.statistics.event_bytes += u64::from(header.event_length);
        match header.event_type {
            EventType::GTID_MARIADB => check_gtid(&GtidEvent::parse(header.server_id, body)?)?,
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
            EventType::USER_VAR => self.context.push(user_variable(&UserVarEvent::parse(body)?)),
            EventType::XID
            | EventType::ANNOTATE_ROWS
            | EventType::FORMAT_DESCRIPTION
            | EventType::ROTATE
            | EventType::STOP
            | EventType::HEARTBEAT
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

    /// Ends the batch and returns it; the builder goes on with an empty one.
    pub fn take(&mut self) -> Batch {
        self.cut();
        self.batch_memory_bytes = 0;
        self.ordered_partial = 0;
        std::mem::take(&mut self.batch)
    }

    fn table_map(&mut self, body: &[u8]) -> Result<Answer> {
        let table_id = table_map::table_id(body)?;
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
        let Some(definition) = self.definitions.get(&name) else { return Ok(Answer::NeedsDefinition(name)) };
        let plan = Arc::new(TablePlan::new(map, Arc::clone(definition))?);
        self.plans.insert(table_id, Some(plan));
        Ok(Answer::Taken)
    }

    fn rows(&mut self, header: &EventHeader, body: &[u8]) -> Result<()> {
        let rows = RowsEvent::parse(header.event_type, body)?;
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
        let mut buffer = std::mem::take(&mut self.buffer);
        let images = rows.images(&mut buffer)?;
        match plan.policy {
            _ if self.never_folds => self.order(&plan, &rows, images)?,
            FoldPolicy::Fold => self.fold(&plan, &rows, images)?,
            FoldPolicy::Multiset if rows.has_full_images() => self.count(&plan, rows.kind, images)?,
            _ => self.order(&plan, &rows, images)?,
        }
        self.buffer = buffer;
        Ok(())
    }

    fn fold(&mut self, plan: &Arc<TablePlan>, rows: &RowsEvent<'_>, mut images: &[u8]) -> Result<()> {
        let is_full = rows.has_full_images();
        while !images.is_empty() {
            let Some(fold) = self.segment.fold_for(plan)? else {
                let is_ordered = self.segment.ordered_tables.contains_key(&plan.definition.name);
                if is_ordered && !is_full && self.ordered_partial >= CUTS_AROUND_ORDERED_MAX {
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
        let name = &plan.definition.name;
        if self.segment.fold_of.contains_key(name) || self.segment.multiset_of.contains_key(name) {
            self.cut();
        }
        self.batch.statistics.row_changes += count_rows(plan, rows, images)?;
        self.segment_memory_bytes += images.len();
        self.segment.ordered_tables.insert(plan.definition.name.clone(), ());
        self.segment.ordered.push(OrderedRows {
            plan: Arc::clone(plan),
            kind: rows.kind,
            flags: rows.flags,
            columns: rows.columns.to_vec(),
            columns_after: rows.columns_after.to_vec(),
            images: images.to_vec(),
        });
        Ok(())
    }

    fn query(&mut self, header: &EventHeader, query: QueryEvent<'_>) -> Result<()> {
        if query.ends_group() || query.begins_group() {
            return if statement::is_xa(query.statement) { Err(refused_xa()) } else { Ok(()) };
        }
        let class = statement::classify(query.statement);
        if let Some(why) = statement::refusal(class, header.flags & FLAG_THREAD_SPECIFIC != 0) {
            return Err(Error::Refused { what: statement::excerpt(query.statement), why: why.to_owned() });
        }
        self.cut();
        let statement = Statement {
            timestamp_seconds: header.timestamp_seconds,
            // CREATE and DROP DATABASE name as default what need not exist.
            database: if header.flags & FLAG_SUPPRESS_USE == 0 { query.database.to_vec() } else { vec![] },
            status: StatusVariables::parse(query.status)?,
            context: std::mem::take(&mut self.context),
            sql: query.statement.to_vec(),
            error_code: query.error_code,
            class,
        };
        self.push(Item::Statement(statement));
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

impl Segment {
    /// The net changes, table by table.
    pub fn folds(&self) -> &[TableFold] {
        &self.folds
    }

    /// The net changes of tables without a row key.
    pub fn multisets(&self) -> &[RowMultiset] {
        &self.multisets
    }

    /// The ordered changes.
    pub fn ordered(&self) -> &[OrderedRows] {
        &self.ordered
    }

    fn is_empty(&self) -> bool {
        self.folds.is_empty() && self.multisets.is_empty() && self.ordered.is_empty()
    }

    /// The multiset of a plan's table; `None` as for [`Segment::fold_for`].
    fn multiset_for(&mut self, plan: &Arc<TablePlan>) -> Result<Option<&mut RowMultiset>> {
        let name = &plan.definition.name;
        if let Some(&index) = self.multiset_of.get(name) {
            return Ok(self.multisets.get_mut(index).filter(|multiset| multiset.has_shape_of(plan)));
        }
        if self.fold_of.contains_key(name) || self.ordered_tables.contains_key(name) {
            return Ok(None);
        }
        self.multiset_of.insert(name.clone(), self.multisets.len());
        self.multisets.push(RowMultiset::new(Arc::clone(plan))?);
        Ok(self.multisets.last_mut())
    }

    /// The fold of a plan's table; `None` if this segment already holds the table in another shape or in order.
    fn fold_for(&mut self, plan: &Arc<TablePlan>) -> Result<Option<&mut TableFold>> {
        // Nearly always the table of the row before.
        if self.folds.last().is_some_and(|fold| Arc::ptr_eq(&fold.plan, plan)) {
            return Ok(self.folds.last_mut());
        }
        let name = &plan.definition.name;
        if let Some(&index) = self.fold_of.get(name) {
            let fold = &mut self.folds[index];
            return Ok(if fold.has_shape_of(plan) { Some(fold) } else { None });
        }
        if self.multiset_of.contains_key(name) || self.ordered_tables.contains_key(name) {
            return Ok(None);
        }
        self.fold_of.insert(name.clone(), self.folds.len());
        self.folds.push(TableFold::new(Arc::clone(plan))?);
        Ok(self.folds.last_mut())
    }

    /// Forgets the fold of the plan's table if it was only just begun, and nothing has been folded into it.
    fn forget_untouched(&mut self, plan: &TablePlan) {
        if self
            .folds
            .last()
            .is_some_and(|fold| fold.plan.definition.name == plan.definition.name && fold.is_untouched())
        {
            self.folds.pop();
            self.fold_of.remove(&plan.definition.name);
        }
    }

    /// True if nothing has been folded into the plan's table.
    fn is_fresh(&self, plan: &TablePlan) -> bool {
        self.fold_of.get(&plan.definition.name).is_none_or(|&index| self.folds[index].is_untouched())
    }

    fn memory_bytes(&self) -> usize {
        let folds: usize = self.folds.iter().map(TableFold::memory_bytes).sum();
        let multisets: usize = self.multisets.iter().map(RowMultiset::memory_bytes).sum();
        folds + multisets + self.ordered.iter().map(|ordered| ordered.images.len()).sum::<usize>()
    }
}

impl OrderedRows {
    /// The table.
    pub fn plan(&self) -> &TablePlan {
        &self.plan
    }

    /// For each row, what is done to it, for messages: `delete from shop.item of the row with id=5`.
    pub fn describe(&self) -> Vec<String> {
        let plan = &self.plan;
        let walk = |columns: &[u8]| spate_binlog::ImagePlan::new(&plan.map, columns, &[]);
        let (Ok(first), Ok(second)) = (walk(&self.columns), walk(&self.columns_after)) else { return vec![] };
        let mut described = Vec::new();
        let mut rest = self.images.as_slice();
        while let Ok(mut length) = first.measure(rest, &mut []) {
            let key = plan.describe_key(&self.columns, &rest[..length]);
            if self.kind == RowsKind::Update {
                let Ok(after) = second.measure(&rest[length..], &mut []) else { break };
                length += after;
            }
            let what = match self.kind {
                RowsKind::Insert => "insert into",
                RowsKind::Update => "update of",
                RowsKind::Delete => "delete from",
            };
            described.push(format!("{what} {}, the row with {key}", plan.definition.name));
            rest = &rest[length..];
            if rest.is_empty() || length == 0 {
                break;
            }
        }
        described
    }
}

impl Item {
    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Item::Rows(segment) => segment.memory_bytes(),
            Item::Statement(statement) => statement.sql.len(),
        }
    }
}

impl Batch {
    /// True if there is nothing to apply.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

fn check_gtid(gtid: &GtidEvent) -> Result<()> {
    if gtid.has(GtidEvent::PREPARED_XA | GtidEvent::COMPLETED_XA) {
        return Err(refused_xa());
    }
    if gtid.extra_flags & GtidEvent::EXTRA_TWO_PHASE_ALTER != 0 {
        let why = "set binlog_alter_two_phase=OFF on the source".to_owned();
        return Err(Error::Refused { what: "an ALTER TABLE logged in two phases".to_owned(), why });
    }
    Ok(())
}

fn refused_xa() -> Error {
    let why = "XA transactions are not supported yet; let native replication apply it, then go on after it".to_owned();
    Error::Refused { what: "an XA transaction".to_owned(), why }
}

fn refused_event(event_type: EventType) -> Error {
    let why = match event_type {
        EventType::INCIDENT => "the source says that its binlog has a gap here; rebuild the replica from a backup",
        EventType::BEGIN_LOAD_QUERY
        | EventType::APPEND_BLOCK
        | EventType::DELETE_FILE
        | EventType::EXECUTE_LOAD_QUERY => "LOAD DATA in statement format is not supported yet; set binlog_format=ROW",
        EventType::START_ENCRYPTION => "encrypted binlog files cannot be read; receive them over the network instead",
        _ => "it is unknown to this version of Spate, and to skip it could lose data",
    };
    Error::Refused { what: format!("{event_type} event"), why: why.to_owned() }
}

fn count_rows(plan: &TablePlan, rows: &RowsEvent<'_>, images: &[u8]) -> Result<u64> {
    if plan.policy == FoldPolicy::Ordered(OrderedReason::Unmeasurable) {
        return Ok(1);
    }
    let first = spate_binlog::ImagePlan::new(&plan.map, rows.columns, &[])?;
    let second = spate_binlog::ImagePlan::new(&plan.map, rows.columns_after, &[])?;
    let mut rest = images;
    let mut count = 0;
    while !rest.is_empty() {
        let mut length = first.measure(rest, &mut [])?;
        if rows.kind == RowsKind::Update {
            length += second.measure(&rest[length..], &mut [])?;
        }
        if length == 0 {
            let table = plan.definition.name.clone();
            return Err(Error::Definition { table, why: "rows without any column".to_owned() });
        }
        rest = &rest[length..];
        count += 1;
    }
    Ok(count)
}

fn user_variable(event: &UserVarEvent<'_>) -> StatementContext {
    let value = match event.value {
        UserVarValue::Null => OwnedUserValue::Null,
        UserVarValue::String { bytes, collation } => OwnedUserValue::String(bytes.to_vec(), collation),
        UserVarValue::Real(value) => OwnedUserValue::Real(value),
        UserVarValue::Signed(value) => OwnedUserValue::Signed(value),
        UserVarValue::Unsigned(value) => OwnedUserValue::Unsigned(value),
        UserVarValue::Decimal { precision, scale, bytes } => {
            OwnedUserValue::Decimal(spate_binlog::value::decimal_text(precision, scale, bytes))
        }
    };
    StatementContext::UserVariable(event.name.to_vec(), value)
}
