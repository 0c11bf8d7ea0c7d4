//! Adds row changes to a segment: folded, reordered, or in the source's order.

use std::sync::Arc;

use spate_binlog::rows::{FLAG_CASCADES_LOGGED, FLAG_NO_FOREIGN_KEY_CHECKS, FLAG_STATEMENT_END};
use spate_binlog::{EventHeader, GtidEvent, RowsEvent, RowsKind, TableMap, table_map};

use super::{Answer, BatchBuilder, CUTS_AROUND_ORDERED_MAX};
use crate::definition::{FoldPolicy, OrderedReason, TableName};
use crate::error::Surprise;
use crate::fold::Verdict;
use crate::item::Alone;
use crate::known::Fit;
use crate::own_schema::{self, OWN_SCHEMA};
use crate::plan::TablePlan;
use crate::segment::{OrderedRows, RowWalk};
use crate::sequence::SequenceSetting;
use crate::shards::Left;
use crate::{Error, Result, sequence, versioning};

impl BatchBuilder {
    pub(super) fn forget_plans(&mut self) {
        self.tables.plans.clear();
        self.tables.planned_columns = 0;
    }

    fn plan(&mut self, table_id: u64, plan: TablePlan) {
        self.tables.planned_columns += plan.map.columns.len();
        self.tables.plans.insert(table_id, Some(Arc::new(plan)));
    }

    pub(super) fn table_map(&mut self, body: &[u8]) -> Result<Answer> {
        let table_id = table_map::table_id(body)?;
        self.tables.opened.open(table_id);
        self.tables.absent.remove(&table_id);
        if let Some(Some(plan)) = self.tables.plans.get(&table_id)
            && plan.map.body == body
        {
            return Ok(Answer::Taken);
        }
        let map = TableMap::parse(body)?;
        if map.schema == OWN_SCHEMA {
            self.tables.plans.insert(table_id, None);
            return Ok(Answer::Taken);
        }
        if own_schema::is_own(&map.schema) {
            let why =
                "on a replica that does not distinguish upper and lower case, that is Spate's own schema".to_owned();
            return Err(Error::Refused { what: format!("a change of {}.{}", map.schema, map.table), why });
        }
        let name = TableName { schema: map.schema.clone(), table: map.table.clone() };
        if self.transaction.alone == Some(Alone::CreateSelect) {
            let created = self.transaction.created.as_ref().filter(|(created, _)| created.may_be(&name));
            let row_end = created.map(|&(_, row_end)| row_end);
            self.plan(table_id, TablePlan::just_created(map, name, row_end));
            return Ok(Answer::Taken);
        }
        let is_read_anew = self.transaction.expected.contains(&Surprise::Redefined);
        let definition = match self.tables.known.fit(&name, &map, is_read_anew) {
            Fit::Fits(definition) => definition,
            Fit::Unknown => return Ok(Answer::NeedsDefinition(name)),
            Fit::Contradicts(contradiction) => {
                self.tables.contradiction = Some(contradiction);
                return Err(Error::TurnedOut(Surprise::Redefined));
            }
        };
        let plan = TablePlan::new(map, definition)?;
        self.plan(table_id, plan);
        Ok(Answer::Taken)
    }

    /// True if Spate would apply one of the open statement's tables as if no foreign key acted on its rows.
    pub(super) fn may_hide_actions(&self) -> bool {
        let plans = self.tables.opened.tables().filter_map(|id| self.tables.plans.get(&id)?.as_deref());
        plans.into_iter().any(|plan| !plan.definition.has_engine_actions)
    }

    pub(super) fn rows(&mut self, header: &EventHeader, body: &[u8]) -> Result<()> {
        let rows = RowsEvent::parse(header.event_type, body)?;
        let ends_statement = rows.flags & FLAG_STATEMENT_END != 0;
        self.take_rows(header, rows)?;
        self.statement = self.statement.wrapping_add(u32::from(ends_statement));
        Ok(())
    }

    fn take_rows(&mut self, header: &EventHeader, rows: RowsEvent<'_>) -> Result<()> {
        if let Some(name) = self.tables.absent.get(&rows.table_id) {
            return Err(Error::NoTable(name.clone()));
        }
        let plan = match self.tables.plans.get(&rows.table_id) {
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
        versioning::check_rows(&plan)?;
        self.transaction.so_far.has_rows = true;
        self.gathered.batch.has_irrevocable_rows |= !plan.definition.is_transactional;
        let mut buffer = std::mem::take(&mut self.buffers.rows);
        let images = rows.images(&mut buffer)?;
        if let Some(setting) = self.sequence_setting(&plan, &rows, images)? {
            self.gathered.batch.statistics.row_changes += 1;
            self.gathered.batch_memory_bytes += self.gathered.sequences.take(setting);
            self.buffers.rows = buffer;
            return Ok(());
        }
        let plan = self.plan_of(plan, &rows)?;
        // A transaction that keeps its GTID has its sequences set before it.
        let is_apart = plan.definition.is_sequence && self.rules.keeps_transactions_apart;
        if is_apart {
            self.cut();
        }
        self.agree_on_session(&plan);
        match self.rules.passed.as_ref().map_or(Ok(Left::All), |passed| passed.left(&plan, &rows, images))? {
            Left::All if rows.has_partial_json => self.partial_json(&plan, rows, images)?,
            Left::All => self.images(&plan, &rows, images)?,
            Left::Runs(runs) => {
                for (kind, images) in runs {
                    let mut run = rows;
                    (run.kind, run.has_partial_json) = (kind, false);
                    self.images(&plan, &run, &images)?;
                }
            }
        }
        if is_apart {
            self.cut();
        }
        self.buffers.rows = buffer;
        Ok(())
    }

    /// What the rows set a sequence to. `None`: they are rows of a table, or say what the sequence is, which comes behind what it was set to before.
    fn sequence_setting(
        &mut self,
        plan: &TablePlan,
        rows: &RowsEvent<'_>,
        images: &[u8],
    ) -> Result<Option<SequenceSetting>> {
        if !plan.definition.is_sequence {
            return Ok(None);
        }
        let may_define =
            self.transaction.has(GtidEvent::DDL) || !sequence::marks_definitions(self.rules.servers.source);
        let setting = sequence::setting(&plan.definition, &plan.map, rows.columns, images, may_define)?;
        if setting.is_none() && self.gathered.sequences.has(&plan.definition.name) {
            self.cut();
        }
        Ok(setting)
    }

    /// Begins another segment if the server would compute other values of these rows in the open segment's session.
    fn agree_on_session(&mut self, plan: &TablePlan) {
        let computes =
            plan.definition.depends_on_session || plan.policy == FoldPolicy::Ordered(OrderedReason::OwnColumns);
        let Some(own) = self.transaction.session.clone().filter(|_| computes) else { return };
        let open = self.gathered.segment.session.as_ref().filter(|_| !self.gathered.segment.is_empty());
        let both = open.map_or_else(|| Some(own.clone()), |open| open.with(&own));
        if both.is_none() {
            self.cut();
        }
        self.gathered.segment.session = both.or(Some(own));
    }

    /// The plan for an event: if foreign keys act on other rows, it depends on whether the source logs their changes.
    fn plan_of(&mut self, plan: Arc<TablePlan>, rows: &RowsEvent<'_>) -> Result<Arc<TablePlan>> {
        let logs_cascades = rows.flags & FLAG_CASCADES_LOGGED != 0;
        if !plan.definition.has_engine_actions || plan.takes_cascades == logs_cascades {
            return Ok(plan);
        }
        let plan = Arc::new(TablePlan::with_cascades(plan.map.clone(), Arc::clone(&plan.definition), logs_cascades)?);
        self.tables.plans.insert(rows.table_id, Some(Arc::clone(&plan)));
        Ok(plan)
    }

    /// Takes row changes in the way that the table's plan says.
    fn images(&mut self, plan: &Arc<TablePlan>, rows: &RowsEvent<'_>, images: &[u8]) -> Result<()> {
        match plan.policy {
            _ if self.rules.never_folds || rows.is_row_of_defaults() => self.order(plan, rows, images),
            FoldPolicy::Fold => self.fold(plan, rows, images),
            // Not inside XA: a sweep would hold its locks until the XA transaction ends.
            FoldPolicy::Keyless if rows.has_full_images() && !self.transaction.has(GtidEvent::PREPARED_XA) => {
                self.keyless(plan, rows.kind, images)
            }
            _ => self.order(plan, rows, images),
        }
    }

    /// Takes rows without partial values like any others: the bytes between their images only say that nothing is
    /// partial.
    fn partial_json(&mut self, plan: &Arc<TablePlan>, rows: RowsEvent<'_>, images: &[u8]) -> Result<()> {
        let walk = RowWalk::new(plan, rows.kind, (rows.columns, rows.columns_after), true)?;
        let mut plain = rows;
        plain.has_partial_json = false;
        let mut run = Vec::new();
        for row in walk.rows(images) {
            let row = row?;
            if row.is_partial() {
                self.images(plan, &plain, &std::mem::take(&mut run))?;
                self.gathered.ordered_partial += 1;
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
            let Some((place, fold)) = self.gathered.segment.fold_for(plan)? else {
                let is_ordered = self.gathered.segment.ordered_tables.contains_key(&plan.definition.name);
                if is_ordered
                    && (!is_full || plan.has_json())
                    && self.gathered.ordered_partial >= CUTS_AROUND_ORDERED_MAX
                {
                    return self.order(plan, rows, images);
                }
                self.cut();
                continue;
            };
            // What is apart may have to be taken away again, and what was handed out cannot be read again.
            let may_help = is_full && self.transaction.apart.is_none() && !self.transaction.so_far.was_taken;
            if may_help && let Some(moved_bytes) = self.helpers.take(place, fold, rows.kind, images) {
                self.gathered.segment_memory_bytes = self.gathered.segment_memory_bytes.saturating_sub(moved_bytes);
                return Ok(());
            }
            if !is_full {
                self.helpers.rest();
            }
            if self.helpers.have(place) {
                self.bring_home();
                continue;
            }
            let memory_before = fold.memory_bytes();
            let verdict = match is_full {
                true => fold.take(rows.kind, images)?,
                false => fold.take_partial(rows.kind, rows.columns, rows.columns_after, images)?,
            };
            self.gathered.segment_memory_bytes += fold.memory_bytes() - memory_before;
            match verdict {
                Verdict::Folded(length) => {
                    images = &images[length..];
                    self.gathered.batch.statistics.row_changes += 1;
                }
                Verdict::Cut if self.gathered.segment.is_fresh(plan) => {
                    let table = plan.definition.name.clone();
                    return Err(Error::Definition { table, why: "a single row change contradicts itself".to_owned() });
                }
                Verdict::Cut => self.cut(),
                Verdict::Ordered => {
                    self.gathered.ordered_partial += 1;
                    self.gathered.segment.forget_untouched(plan);
                    return self.order(plan, rows, images);
                }
            }
        }
        Ok(())
    }

    fn keyless(&mut self, plan: &Arc<TablePlan>, kind: RowsKind, mut images: &[u8]) -> Result<()> {
        while !images.is_empty() {
            let Some(rows) = self.gathered.segment.keyless_for(plan)? else {
                self.cut();
                continue;
            };
            let memory_before = rows.memory_bytes();
            images = &images[rows.take(kind, images, self.statement)?..];
            let memory_now = rows.memory_bytes();
            self.gathered.segment_memory_bytes =
                self.gathered.segment_memory_bytes.saturating_sub(memory_before) + memory_now;
            self.gathered.batch.statistics.row_changes += 1;
        }
        Ok(())
    }

    fn order(&mut self, plan: &Arc<TablePlan>, rows: &RowsEvent<'_>, images: &[u8]) -> Result<()> {
        if images.is_empty() && !rows.is_row_of_defaults() {
            return Ok(());
        }
        let name = &plan.definition.name;
        if self.gathered.segment.fold_of.contains_key(name) || self.gathered.segment.keyless_of.contains_key(name) {
            self.cut();
        }
        let walk = RowWalk::new(plan, rows.kind, (rows.columns, rows.columns_after), rows.has_partial_json)?;
        self.gathered.batch.statistics.row_changes += count_rows(&walk, images)?;
        let mut images = images.to_vec();
        versioning::translate(plan, rows, self.rules.last_moments, &mut images)?;
        self.gathered.segment_memory_bytes += images.len();
        if plan.definition.has_history_limit {
            // The server counts once a statement: what belongs to one must reach it as one.
            let is_split = self.gathered.segment.ordered.last().is_none_or(|last| last.statement != self.statement);
            if self.counted.replace(self.statement) == Some(self.statement) && is_split {
                return Err(versioning::refused_split(name));
            }
        }
        // Whether other tables' rows are there by then, the source has checked; but what acts on other rows acts with the checks only.
        let acts = self.rules.fires_triggers || plan.policy == FoldPolicy::Ordered(OrderedReason::EngineActions);
        let unchecked = if acts { 0 } else { FLAG_NO_FOREIGN_KEY_CHECKS };
        self.gathered.segment.ordered_tables.insert(plan.definition.name.clone(), ());
        self.gathered.segment.ordered.push(OrderedRows {
            plan: Arc::clone(plan),
            kind: rows.kind,
            flags: rows.flags | unchecked,
            timestamp_seconds: self.event_seconds,
            statement: self.statement,
            columns: rows.columns.to_vec(),
            columns_after: rows.columns_after.to_vec(),
            images,
            has_partial_json: rows.has_partial_json,
        });
        Ok(())
    }
}

fn count_rows(walk: &RowWalk, images: &[u8]) -> Result<u64> {
    walk.rows(images).try_fold(0, |count, row| row.map(|_| count + 1))
}
