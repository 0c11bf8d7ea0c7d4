//! Reads the relay logs ahead of the applier: gathers their transactions in small batches, folds them, and writes lookups of the net row
//! changes. Of pages that several transactions need, one is asked for once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::Sender;
use spate_apply::halt::{self, Halt};
use spate_apply::prefetch::rows::{RowLookup, RowLookups, look_up_ordered};
use spate_apply::{Definitions, Dispatch, Pace, Part, Reading};
use spate_binlog::{FormatDescription, Gtid};
use spate_connection::Vendor;
use spate_replica::catalog::Catalog;
use spate_replica::others::Noticed;
use spate_schedule::fold::NetChange;
use spate_schedule::outdated::Outdated;
use spate_schedule::segment::Segment;
use spate_schedule::versioning::LastMoment;
use spate_schedule::{Item, Statement, TableDefinition, TableName};
use spate_sql::Server;
use xxhash_rust::xxh3::xxh3_64;

use crate::counters::{Counters, add};
use crate::pursuit::{Mark, Pursuit, Reach};
use crate::readers::{Query, Unreadable};
use crate::recent::Recent;
use crate::statements::Change;
use spate_replica::native::Place;

/// Rows in one query. A query reads its pages one after the other, so that its last ones come late; several queries read side by side.
const QUERY_ROWS: usize = 8;

/// Takes batches in the place of workers that would apply them.
pub(crate) struct Ahead<'a> {
    pub(crate) pursuit: &'a Pursuit,
    pub(crate) queries: Sender<Query>,
    pub(crate) vendor: Vendor,
    /// How far ahead to read at most.
    pub(crate) reach: Reach,
    /// Row changes that are nearer before the applier are left alone.
    pub(crate) rows_min: u64,
    /// True while it helps.
    pub(crate) is_on: &'a AtomicBool,
    pub(crate) unreadable: &'a Unreadable,
    pub(crate) counters: &'a Counters,
    pub(crate) known: &'a RefCell<Known>,
    /// What need not be asked again.
    pub(crate) recent: Recent,
    /// Row changes until now.
    pub(crate) row_changes: u64,
}

impl Ahead<'_> {
    fn send(&self, lookup: RowLookup, place: &Place) {
        let RowLookup { table, sql, rows } = lookup;
        let query = Query { place: place.clone(), table, sql, rows };
        // The readers are as fast as the disk lets them be, and nothing is gained by asking for more.
        let _are_gone = self.queries.send(query);
    }

    /// Looks up the rows that a statement changes, if it says which.
    fn look_up_statement(&mut self, statement: &Statement, place: &Place) -> Option<()> {
        let is_plain = !statement.is_thread_specific && statement.context.is_empty() && !statement.reading.ansi_quotes;
        let change = is_plain.then(|| Change::read(&statement.sql, &statement.database))??;
        if self.unreadable.contains(&change.table) {
            return None;
        }
        let definition = self.known.borrow_mut().definition(&change.table)?;
        for sql in change.lookups(&definition)? {
            match self.recent.is_new(0, &[&sql]) {
                true => self.send(RowLookup { table: change.table.clone(), sql, rows: 1 }, place),
                false => add(&self.counters.recent_rows, 1),
            }
        }
        Some(())
    }

    fn look_up(&mut self, segment: &Segment, place: &Place) {
        for fold in segment.folds() {
            let mut lookups = RowLookups::new(self.vendor, QUERY_ROWS);
            let Ok(changes) = fold.net_changes() else { continue };
            let table = xxh3_64(fold.plan().definition.name.to_string().as_bytes());
            for change in changes.iter() {
                let parts = match change {
                    NetChange::Delete { locator } => [b"-", locator, &[][..]],
                    NetChange::Update { locator, image, .. } => [b"=", locator, image],
                    NetChange::Insert { image, .. } => [b"+", image, &[][..]],
                    NetChange::Move { .. } => continue,
                };
                if !self.recent.is_new(table, &parts) {
                    add(&self.counters.recent_rows, 1);
                    continue;
                }
                let send = |lookup| self.send(lookup, place);
                lookups.change(fold, &change, |table| !self.unreadable.contains(table), send);
            }
            lookups.close(|lookup| self.send(lookup, place));
        }
        for ordered in segment.ordered() {
            if !self.unreadable.contains(&ordered.plan().definition.name) {
                // What cannot be read, the applier will say.
                let _is_read = look_up_ordered(ordered, (self.vendor, QUERY_ROWS), |lookup| self.send(lookup, place));
            }
        }
    }
}

impl Dispatch for Ahead<'_> {
    fn begin_after(&mut self, _seqno: u64) {}

    fn may_begin(&mut self, _gtid: Option<Gtid>, _seqno: u64) -> bool {
        true
    }

    fn wait_begin(&mut self, _gtid: Option<Gtid>, _seqno: u64) -> bool {
        !self.pursuit.is_over()
    }

    /// What has come is looked up at once.
    fn is_hungry_within(&mut self, _timeout: Duration) -> halt::Result<bool> {
        Ok(true)
    }

    fn pace(&self) -> Pace {
        Pace::Unknown
    }

    fn hand_out(&mut self, part: Part) -> halt::Result<()> {
        let counters = self.counters;
        // How many rows a statement changes, nobody knows; most change one.
        let statements = part.batch.items.iter().filter(|item| matches!(item, Item::Statement(_))).count();
        let row_changes = part.batch.statistics.row_changes + statements as u64;
        self.row_changes += row_changes;
        add(&counters.transactions, part.end.as_ref().map_or(0, |end| end.transactions));
        add(&counters.row_changes, row_changes);
        let reached = &part.reached;
        let mark = Mark {
            place: Place { file: reached.source_file.clone(), position: reached.source_position },
            seqno: reached.seqno,
            seconds: reached.source_seconds,
            row_changes: self.row_changes,
        };
        if !self.pursuit.wait_until_near(&mark, self.reach) {
            if self.pursuit.is_over() {
                return Err(Halt::StageEnded);
            }
            add(&counters.passed_row_changes, row_changes);
            return Ok(());
        }
        if self.pursuit.distance(&mark) < self.rows_min {
            add(&counters.near_row_changes, row_changes);
            return Ok(());
        }
        if !self.is_on.load(Ordering::Relaxed) {
            add(&counters.switched_off_row_changes, row_changes);
            return Ok(());
        }
        self.pursuit.look_up(&mark.place);
        for item in &part.batch.items {
            match item {
                Item::Rows(segment) => self.look_up(segment, &mark.place),
                Item::Statement(statement) => {
                    add(&counters.statements, 1);
                    if self.look_up_statement(statement, &mark.place).is_none() {
                        add(&counters.ignored_statements, 1);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_in_effect(&mut self, seqno: u64) -> bool {
        self.pursuit.has_passed_transaction(seqno)
    }

    fn wait_in_effect(&mut self, seqno: u64) -> halt::Result<()> {
        if self.pursuit.wait_passed(seqno) { Ok(()) } else { Err(Halt::StageEnded) }
    }
}

/// What is known of the server's tables.
pub(crate) struct Known {
    catalog: Catalog,
    /// Tables that statements change; `None`: there is no such table.
    changed: HashMap<TableName, Option<Rc<TableDefinition>>>,
}

impl Known {
    /// Tables that are remembered. With more, all are asked for again.
    const TABLES_MAX: usize = 4096;

    pub(crate) fn new(catalog: Catalog) -> Known {
        Known { catalog, changed: HashMap::new() }
    }

    /// A table that a statement changes. `None` if it is not there, or cannot be asked for.
    fn definition(&mut self, name: &TableName) -> Option<Rc<TableDefinition>> {
        if let Some(known) = self.changed.get(name) {
            return known.clone();
        }
        if self.changed.len() >= Known::TABLES_MAX {
            self.changed.clear();
        }
        let definition = self.catalog.at_hand(name).or_else(|| self.catalog.definition(name).ok().flatten());
        self.changed.entry(name.clone()).or_insert(definition.map(Rc::new)).clone()
    }
}

/// The server's tables as they are now. Behind a definition, gathering waits until the applier has executed it.
pub(crate) struct Tables<'a> {
    pub(crate) known: &'a RefCell<Known>,
}

impl Definitions for Tables<'_> {
    fn reader(&self) -> Option<Server> {
        Some(self.known.borrow().catalog.server_version().reader())
    }

    fn last_moment(&mut self) -> spate_replica::Result<Option<LastMoment>> {
        Ok(None)
    }

    fn begin(&mut self, _format: &FormatDescription) -> spate_replica::Result<()> {
        Ok(())
    }

    fn look_for_others(&mut self) -> spate_replica::Result<Noticed> {
        Ok(Noticed::default())
    }

    fn forget(&mut self, outdated: &Outdated) -> Outdated {
        let mut known = self.known.borrow_mut();
        known.changed.clear();
        known.catalog.forget(outdated)
    }

    fn foreign_keys_have_changed(&mut self) -> spate_replica::Result<bool> {
        Ok(false)
    }

    fn at_hand(&mut self, name: &TableName) -> Option<TableDefinition> {
        self.known.borrow_mut().catalog.at_hand(name)
    }

    fn definition(
        &mut self,
        name: &TableName,
        _map: &[u8],
        reading: Reading,
    ) -> spate_replica::Result<Option<TableDefinition>> {
        let catalog = &mut self.known.borrow_mut().catalog;
        let definition = match reading {
            Reading::Alone => catalog.definition_alone(name),
            Reading::WithOthers => catalog.definition(name),
        };
        definition.map_err(spate_replica::Error::from)
    }
}
