//! Rows as SQL statements: for replicas of another vendor, and those that do not let Spate replay.
//!
//! The session that executes them takes every value as it is or refuses it: see `SessionState`.

mod document;
mod in_place;
pub(crate) mod one_row;
mod statement;

use std::collections::{HashMap, HashSet};

use spate_binlog::encode::ColumnBitmap;
use spate_binlog::rows::FLAG_NO_FOREIGN_KEY_CHECKS;
use spate_binlog::{RowsKind, TableMap};
use spate_schedule::definition::{FoldPolicy, OrderedReason};
use spate_schedule::fold::{FULL, NetChange, ShapeNumber, TableFold};
use spate_schedule::keyless::{KeylessChange, KeylessRows, Step};
use spate_schedule::row_session::RowSession;
use spate_schedule::segment::{OrderedRows, Segment, WalkedRow};
use spate_schedule::{TableDefinition, TableName, TablePlan, versioning};

pub(crate) use self::in_place::in_place;

use self::document::{DocumentError, Documents};
use self::statement::{RowsStatement, delete_copies, single};
use super::{RowEmitter, changes_of};
use crate::Part;
use crate::command::{Change, RowCheck};
use crate::halt::{Halt, Result};
use crate::outlet::Outlet;
use crate::prefetch::{Feeder, FeederState};
use crate::values::table::{SqlImage, SqlTable};
use spate_connection::{Vendor, quote};
use spate_replica::Error;
use spate_replica::dialect::row_session_sql;

/// Asks the replica for a table that it did not have when the batch was gathered.
pub(crate) type LateDefinition<'a> = Box<dyn FnMut(&TableName) -> Result<Option<TableDefinition>> + Send + 'a>;

/// Writes rows as statements.
pub(crate) struct SqlEmitter<'a> {
    /// One row a statement, each with a description.
    pub(crate) one_by_one: bool,
    pub(crate) late: LateDefinition<'a>,
    /// What the session is set to, and of which session of the source; `None`: to what everything else but rows needs.
    state: Option<(SessionState, Option<RowSession>)>,
    /// The source's session whose rows come.
    row_session: Option<RowSession>,
    vendor: Vendor,
    /// What `late` has said.
    late_definitions: HashMap<TableName, TableDefinition>,
    /// Tables that stay what they are until the transaction ends.
    held: HashSet<TableName>,
    /// Is told of rows that come. `None`: rows are not prefetched.
    feeder: Option<FeederState<'a>>,
}

/// How a session takes rows. In all of them a value that does not fit is an error, zeros and days that do not exist are values
/// like others, AUTO_INCREMENT takes a zero, time stamps are UTC, a backslash is a character, and what the source checked is not
/// checked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SessionState {
    /// Foreign keys are checked, and their actions happen.
    foreign_keys: bool,
    /// An ENUM takes the number 0, with a warning.
    is_lenient: bool,
    /// When the change happened, in seconds since 1970, if columns that only the replica has may tell.
    at_seconds: Option<u32>,
}

/// For all that is folded.
const STRICT: SessionState = SessionState { foreign_keys: false, is_lenient: false, at_seconds: None };

impl SessionState {
    fn sql(self, vendor: Vendor) -> String {
        let strict = if self.is_lenient { "" } else { "STRICT_ALL_TABLES," };
        format!(
            "SET SESSION sql_mode='{strict}NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_BACKSLASH_ESCAPES', \
             time_zone='+00:00', {}{}",
            self.switches(),
            if vendor == Vendor::MariaDb { ", check_constraint_checks=0" } else { "" }
        )
    }

    /// The same, but with what MySQL computes of the rows as a session of the source had it. (A value that does not fit stays an error,
    /// and days that do not exist are values only where they were on the source.)
    fn sql_as(self, session: &RowSession) -> String {
        /// NO_AUTO_VALUE_ON_ZERO, NO_BACKSLASH_ESCAPES.
        const ALWAYS: u64 = 1 << 19 | 1 << 20;
        /// STRICT_TRANS_TABLES, STRICT_ALL_TABLES.
        const STRICTNESS: u64 = 1 << 21 | 1 << 22;
        let strictness = if self.is_lenient { 0 } else { STRICTNESS };
        let state = SessionState { at_seconds: self.at_seconds.or(Some(session.seconds)), ..self };
        let session = RowSession { sql_mode: session.sql_mode & !STRICTNESS | strictness | ALWAYS, ..session.clone() };
        format!("{}, {}", row_session_sql(&session), state.switches())
    }

    fn switches(self) -> String {
        let at = self.at_seconds.map_or_else(|| "DEFAULT".to_owned(), |seconds| seconds.to_string());
        format!("foreign_key_checks={}, timestamp={at}", u8::from(self.foreign_keys))
    }
}

/// Sets back what [`SessionState::sql`] sets.
fn end_sql(vendor: Vendor) -> String {
    let checks = if vendor == Vendor::MariaDb { ", check_constraint_checks=1" } else { "" };
    format!(
        "SET SESSION sql_mode='', time_zone=DEFAULT, lc_time_names=DEFAULT, timestamp=DEFAULT, foreign_key_checks=1{checks}"
    )
}

impl RowEmitter for SqlEmitter<'_> {
    /// The session is set up for rows before the first of them.
    fn session_sql(&self, _part: &Part) -> Vec<Vec<u8>> {
        vec![]
    }

    fn end_transaction(&mut self) {
        self.held.clear();
    }

    fn end_rows(&mut self, outlet: &mut Outlet<'_>) -> Result<()> {
        // The next statement may create and drop tables.
        self.late_definitions.clear();
        self.held.clear();
        match self.state.take() {
            Some(_) => outlet.statement(|sql| sql.extend_from_slice(end_sql(self.vendor).as_bytes()), None, None),
            None => Ok(()),
        }
    }

    fn begin_segment(&mut self, segment: &Segment, _part: &Part, _outlet: &mut Outlet<'_>) -> Result<()> {
        self.row_session = segment.session().cloned();
        Ok(())
    }

    fn segment(
        &mut self,
        segment: &Segment,
        keyless: &[Vec<Step>],
        part: &Part,
        outlet: &mut Outlet<'_>,
    ) -> Result<u64> {
        let mut writing = Writing { emitter: self, part, outlet, changes: 0 };
        for fold in segment.folds() {
            writing.fold(fold)?;
        }
        for (rows, steps) in segment.keyless().iter().zip(keyless) {
            writing.keyless(rows, steps)?;
        }
        for ordered in segment.ordered() {
            writing.ordered(ordered)?;
        }
        Ok(writing.changes)
    }

    fn keyless(&mut self, rows: &KeylessRows, steps: &[Step], part: &Part, outlet: &mut Outlet<'_>) -> Result<u64> {
        let mut writing = Writing { emitter: self, part, outlet, changes: 0 };
        writing.keyless(rows, steps)?;
        Ok(writing.changes)
    }
}

impl<'a> SqlEmitter<'a> {
    /// An emitter for a session that is set as every applier's session.
    pub(crate) fn new(
        one_by_one: bool,
        vendor: Vendor,
        late: LateDefinition<'a>,
        feeder: Option<FeederState<'a>>,
    ) -> SqlEmitter<'a> {
        SqlEmitter {
            one_by_one,
            late,
            state: None,
            row_session: None,
            vendor,
            late_definitions: HashMap::new(),
            held: HashSet::new(),
            feeder,
        }
    }
}

/// A segment being written.
struct Writing<'w, 'a, 'o> {
    emitter: &'w mut SqlEmitter<'a>,
    part: &'w Part,
    outlet: &'w mut Outlet<'o>,
    changes: u64,
}

/// The statement that is open, and what its rows have in common.
type Open = Option<(RowsKind, ShapeNumber, RowsStatement)>;

impl Writing<'_, '_, '_> {
    fn fold(&mut self, fold: &TableFold) -> Result<()> {
        let changes = fold.net_changes().map_err(|error| self.at(error))?;
        if changes.is_empty() {
            return Ok(());
        }
        let plan = fold.plan();
        let table = self.table(plan)?;
        let count = plan.map.columns.len();
        let key = ColumnBitmap::only(count, &plan.definition.row_key).bits;
        let all = ColumnBitmap::all(count).bits;
        let columns_of = |shape| fold.columns_of(shape).map_or(all.as_slice(), |columns| columns.bits.as_slice());
        let mut open: Open = None;
        // An error ends the session, and with it the feeder.
        let mut feeding = self.emitter.feeder.take();
        let mut feeder = feeding.as_mut().map(Feeder::new);
        for change in changes.iter() {
            let (kind, shape, locator, image) = match change {
                NetChange::Move { locator, image, shape } => {
                    self.close(&table, open.take())?;
                    self.changes += 1;
                    let walks = table.image(&key).and_then(|key| Ok((key, table.image(columns_of(shape))?)));
                    let (mut key, mut after) = walks.map_err(|error| self.at(error))?;
                    self.update(&table, (&mut key, locator), (&mut after, image))?;
                    continue;
                }
                NetChange::Delete { locator } => (RowsKind::Delete, FULL, locator, None),
                NetChange::Update { locator, image, shape } => (RowsKind::Update, shape, locator, Some(image)),
                NetChange::Insert { image, shape } => (RowsKind::Insert, shape, &[][..], Some(image)),
            };
            self.changes += 1;
            if open.as_ref().is_some_and(|open| (open.0, open.1) != (kind, shape) || open.2.is_full()) {
                self.outlet.mark(feeder.as_mut().and_then(Feeder::end_chunk))?;
                self.close(&table, open.take())?;
            }
            if let Some(feeder) = &mut feeder {
                feeder.change(fold, &change);
            }
            if let Some(image) = image
                && self.careful(&table, kind, (&key, locator), (columns_of(shape), image), &mut open)?
            {
                continue;
            }
            if open.is_none() {
                let walks = table.image(&key).and_then(|key| Ok((key, table.image(columns_of(shape))?)));
                let (key, image) = walks.map_err(|error| self.at(error))?;
                open = Some((kind, shape, RowsStatement::open(&table, kind, key, image)));
            }
            if let Some((_, _, statement)) = &mut open {
                let added = statement.add(&table, locator, image.unwrap_or_default());
                added.map_err(|error| self.at(error))?;
            }
        }
        self.outlet.mark(feeder.as_mut().and_then(Feeder::end_chunk))?;
        self.emitter.feeder = feeding;
        self.close(&table, open)
    }

    /// Writes a row by itself if it holds an ENUM's number 0, which takes another session state. True if it did.
    fn careful(
        &mut self,
        table: &SqlTable<'_>,
        kind: RowsKind,
        (key_columns, key): (&[u8], &[u8]),
        (columns, image): (&[u8], &[u8]),
        open: &mut Open,
    ) -> Result<bool> {
        if !table.has_choices() {
            return Ok(false);
        }
        let mut walk = table.image(columns).map_err(|error| self.at(error))?;
        walk.read(image).map_err(|error| self.at(error))?;
        let missing = walk.missing_choices(table, image);
        if missing == 0 {
            return Ok(false);
        }
        self.close(table, open.take())?;
        let mut key_walk = table.image(key_columns).map_err(|error| self.at(error))?;
        let written = single(table, kind, (&mut key_walk, key), (&mut walk, image), missing);
        let written = written.map_err(|error| self.at(error))?;
        self.send(table, SessionState { is_lenient: true, ..STRICT }, written, None)?;
        Ok(true)
    }

    fn keyless(&mut self, rows: &KeylessRows, steps: &[Step]) -> Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        let plan = rows.plan();
        let table = self.table(plan)?;
        let all = ColumnBitmap::all(plan.map.columns.len()).bits;
        let walk = || table.image(&all).map_err(|error| self.at(error));
        let (mut one, mut other) = (walk()?, walk()?);
        let mut open: Open = None;
        for change in steps.iter().flat_map(|step| rows.changes(step)) {
            match change {
                KeylessChange::Insert { image } => self.insert(&table, &all, image, &mut open)?,
                KeylessChange::Delete { image, copies } => {
                    self.changes += copies;
                    self.close(&table, open.take())?;
                    let written = delete_copies(&table, &mut one, image, copies).map_err(|error| self.at(error))?;
                    self.send(&table, STRICT, written, None)?;
                }
                KeylessChange::Update { before, after } => {
                    self.changes += 1;
                    self.close(&table, open.take())?;
                    self.update(&table, (&mut one, before), (&mut other, after))?;
                }
            }
        }
        self.close(&table, open)
    }

    /// Writes an update of one row by itself.
    fn update(
        &mut self,
        table: &SqlTable<'_>,
        before: (&mut SqlImage, &[u8]),
        (after, image): (&mut SqlImage, &[u8]),
    ) -> Result<()> {
        after.read(image).map_err(|error| self.at(error))?;
        let missing = after.missing_choices(table, image);
        let written = single(table, RowsKind::Update, before, (after, image), missing);
        let written = written.map_err(|error| self.at(error))?;
        self.send(table, SessionState { is_lenient: missing > 0, ..STRICT }, written, None)
    }

    /// Adds a row to the open statement, which inserts.
    fn insert(&mut self, table: &SqlTable<'_>, columns: &[u8], image: &[u8], open: &mut Open) -> Result<()> {
        self.changes += 1;
        if open.as_ref().is_some_and(|open| open.2.is_full()) {
            self.close(table, open.take())?;
        }
        if self.careful(table, RowsKind::Insert, (columns, &[]), (columns, image), open)? {
            return Ok(());
        }
        if open.is_none() {
            let walks = table.image(columns).and_then(|key| Ok((key, table.image(columns)?)));
            let (key, image) = walks.map_err(|error| self.at(error))?;
            *open = Some((RowsKind::Insert, FULL, RowsStatement::open(table, RowsKind::Insert, key, image)));
        }
        match open {
            Some((_, _, statement)) => statement.add(table, &[], image).map_err(|error| self.at(error)),
            None => Ok(()),
        }
    }

    /// Ordered rows go one after the other, as the source changed them.
    fn ordered(&mut self, ordered: &OrderedRows) -> Result<()> {
        let plan = ordered.plan();
        if plan.definition.has_history_limit {
            return Err(self.at(versioning::refused_as_statements(&plan.definition.name)));
        }
        let late;
        let table = match plan.policy {
            FoldPolicy::Ordered(OrderedReason::JustCreated) => {
                late = self.late_definition(&plan.definition.name)?;
                self.table_of(&plan.map, &late)?
            }
            _ => self.table(plan)?,
        };
        let mut changes = self.emitter.one_by_one.then(|| changes_of(ordered, self.part));
        let foreign_keys = ordered.flags() & FLAG_NO_FOREIGN_KEY_CHECKS == 0;
        let has_own_columns = plan.policy == FoldPolicy::Ordered(OrderedReason::OwnColumns);
        let at_seconds = has_own_columns.then(|| ordered.timestamp_seconds());
        let walk = |columns: &[u8]| table.image(columns).map_err(|error| self.at(error));
        let (mut before, mut after) = (walk(ordered.columns())?, walk(ordered.columns_after())?);
        let rows = ordered.walk().map_err(|error| self.at(error))?;
        for row in rows.rows(ordered.images()) {
            let row = row.map_err(|error| self.at(error))?;
            let (key, image) = match ordered.kind() {
                RowsKind::Insert => (&[][..], row.first),
                RowsKind::Delete => (row.first, &[][..]),
                RowsKind::Update => (row.first, row.second),
            };
            self.changes += 1;
            let change = changes.as_mut().and_then(Iterator::next);
            let missing = match ordered.kind() {
                RowsKind::Delete => 0,
                _ => {
                    after.read(image).map_err(|error| self.at(error))?;
                    after.missing_choices(&table, image)
                }
            };
            let state = SessionState { foreign_keys, is_lenient: missing > 0, at_seconds };
            self.documents(&table, row, (&mut before, &mut after), state, change.as_ref())?;
            let written = single(&table, ordered.kind(), (&mut before, key), (&mut after, image), missing);
            let written = written.map_err(|error| self.at(error))?;
            self.send(&table, state, written, change)?;
        }
        Ok(())
    }

    /// If the row holds changes of documents: what the documents become is written into `after`.
    fn documents(
        &mut self,
        table: &SqlTable<'_>,
        row: WalkedRow<'_>,
        (before, after): (&mut SqlImage, &mut SqlImage),
        state: SessionState,
        change: Option<&Change>,
    ) -> Result<()> {
        let documents = Documents::of(table, row, before, after).map_err(|error| self.at(error))?;
        let Some(documents) = documents else { return Ok(()) };
        let query = documents.query(table, before, row.first).map_err(|error| self.at(error))?;
        let answer = match query {
            Some(sql) => {
                self.begin(table, state)?;
                self.outlet.ask(sql, change.cloned())?
            }
            None => None,
        };
        documents.write(table, after, answer).map_err(|error| match (error, change) {
            (DocumentError::Schedule(error), _) => self.at(error),
            (DocumentError::Misfit(why), None) => {
                Error::Misfit { table: table.definition.name.to_string(), why }.into()
            }
            (DocumentError::Misfit(why), Some(change)) => {
                let why = format!("{why}. Compare the replica with the source (spate verify)");
                self.at(spate_schedule::Error::Refused { what: change.what.clone(), why })
            }
        })
    }

    /// Asks the replica for a table that the transaction itself creates, after it was created.
    fn late_definition(&mut self, name: &TableName) -> Result<TableDefinition> {
        if let Some(known) = self.emitter.late_definitions.get(name) {
            return Ok(known.clone());
        }
        self.outlet.flush(None)?;
        self.outlet.settle()?;
        let Some(definition) = (self.emitter.late)(name)? else {
            let why = "the replica has no such table".to_owned();
            return Err(self.at(spate_schedule::Error::Definition { table: name.clone(), why }));
        };
        self.emitter.late_definitions.insert(name.clone(), definition.clone());
        Ok(definition)
    }

    fn table<'t>(&self, plan: &'t TablePlan) -> Result<SqlTable<'t>> {
        self.table_of(&plan.map, &plan.definition)
    }

    fn table_of<'t>(&self, map: &'t TableMap, definition: &'t TableDefinition) -> Result<SqlTable<'t>> {
        let table = SqlTable::new(map, definition, self.emitter.vendor).map_err(|error| self.at(error))?;
        Ok(if self.emitter.row_session.is_some() { table.in_any_zone() } else { table })
    }

    /// Sets the session to this state. Keeps others from putting a view in the table's place until the transaction ends, and fails if
    /// one is there: behind the state, since what MySQL computes of a table's rows may go by the session that opens the table.
    fn begin(&mut self, table: &SqlTable<'_>, state: SessionState) -> Result<()> {
        self.set(state)?;
        let name = &table.definition.name;
        if !self.emitter.held.insert(name.clone()) {
            return Ok(());
        }
        let sql = quote::hold_table(&name.schema, &name.table);
        self.outlet.statement(|all| all.extend_from_slice(sql.as_bytes()), None, None)
    }

    fn close(&mut self, table: &SqlTable<'_>, open: Open) -> Result<()> {
        match open {
            Some((_, _, statement)) if !statement.is_empty() => self.send(table, STRICT, statement.close(table), None),
            _ => Ok(()),
        }
    }

    fn send(
        &mut self,
        table: &SqlTable<'_>,
        state: SessionState,
        (written, check): (Vec<u8>, RowCheck),
        change: Option<Change>,
    ) -> Result<()> {
        self.begin(table, state)?;
        if !self.outlet.fits(written.len()) {
            return Err(self.outlet.too_large(written.len(), change));
        }
        self.outlet.make_room(written.len())?;
        self.outlet.statement(|sql| append(sql, written), Some(check), change)
    }

    /// Sets the session to this state, if it is not.
    fn set(&mut self, state: SessionState) -> Result<()> {
        let session = &self.emitter.row_session;
        if self.emitter.state.as_ref().is_some_and(|(set, of)| *set == state && of == session) {
            return Ok(());
        }
        let set = match session {
            Some(session) => state.sql_as(session),
            None => state.sql(self.emitter.vendor),
        };
        self.emitter.state = Some((state, session.clone()));
        self.outlet.statement(|sql| sql.extend_from_slice(set.as_bytes()), None, None)
    }

    fn at(&self, error: spate_schedule::Error) -> Halt {
        Halt::Failed(Error::Transaction { place: self.part.place.clone(), error })
    }
}

/// Without a copy, if there is nothing before it: a row may be large.
fn append(sql: &mut Vec<u8>, mut written: Vec<u8>) {
    if sql.is_empty() { std::mem::swap(sql, &mut written) } else { sql.extend_from_slice(&written) }
}
