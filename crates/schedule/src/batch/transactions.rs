//! The beginnings and ends of transactions in a batch, and the transactions that must be kept apart from others.

use spate_binlog::{EventHeader, EventType, Gtid, GtidEvent, QueryEvent, Xid};

use super::{Batch, BatchBuilder, BatchStatistics, PLANNED_COLUMNS_MAX, PLANS_MAX};
use crate::error::Surprise;
use crate::item::{Alone, Item, Statement};
use crate::statement::StatementClass;
use crate::temporary::TemporaryTables;
use crate::transaction::{Apart, GtidFlags, OpenTransaction};
use crate::{Error, Result};

impl BatchBuilder {
    /// True if the current transaction must be a batch of its own, and can be separated from those before it by
    /// [`BatchBuilder::take_earlier`].
    pub fn stands_among_others(&self) -> bool {
        let has_irrevocable_rows = self.gathered.batch.has_irrevocable_rows;
        self.transaction.apart.as_ref().is_some_and(|apart| {
            self.transaction.alone.is_some() || has_irrevocable_rows && !apart.had_irrevocable_rows
        })
    }

    /// True if the current transaction may still turn out to need a batch of its own, so that no part of it may be
    /// taken together with earlier ones.
    pub fn may_stand_alone(&self) -> bool {
        self.transaction.apart.is_some() && self.transaction.may_be_undone()
    }

    /// True if the open batch must end before a transaction with this GTID event: a transaction that can roll back and
    /// one that cannot do not share a batch, because some engines know no savepoints.
    pub fn ends_before(&self, gtid: Option<&GtidEvent>) -> bool {
        let can_roll_back = gtid.is_none_or(|event| match event.gtid {
            Gtid::MariaDb(_) => event.has(GtidEvent::TRANSACTIONAL),
            // The event does not say.
            Gtid::MySql(_) => true,
        });
        self.gathered.batch.has_irrevocable_rows && can_roll_back
    }

    /// Ends the batch before the current transaction.
    pub fn take_earlier(&mut self) -> Batch {
        if self.transaction.apart.is_none() {
            return Batch::default();
        }
        self.cut();
        let Some(apart) = &mut self.transaction.apart else { return Batch::default() };
        self.taken = (apart.temporary.clone(), apart.defaults);
        let had_irrevocable_rows = apart.had_irrevocable_rows;
        let first = std::mem::take(&mut apart.first_item);
        let (statistics, memory_bytes) =
            (std::mem::take(&mut apart.statistics), std::mem::take(&mut apart.memory_bytes));
        let own_items = self.gathered.batch.items.split_off(first);
        self.gathered.batch_memory_bytes -= memory_bytes;
        let all = self.gathered.batch.statistics;
        self.gathered.batch.statistics = statistics;
        let own = Batch {
            items: own_items,
            statistics: BatchStatistics {
                row_changes: all.row_changes - statistics.row_changes,
                event_bytes: all.event_bytes - statistics.event_bytes,
            },
            alone: None,
            has_irrevocable_rows: self.gathered.batch.has_irrevocable_rows,
            is_unfolded: false,
            explicit_defaults: None,
            temporary: TemporaryTables::default(),
        };
        let mut earlier = std::mem::replace(&mut self.gathered.batch, own);
        earlier.temporary = TemporaryTables { open: self.taken.0.clone(), ..self.sessions.temporary.clone() };
        earlier.has_irrevocable_rows = had_irrevocable_rows;
        earlier.is_unfolded = self.rules.never_folds;
        earlier
    }

    /// The reason why the current transaction must be a batch of its own; `None` if it need not.
    pub fn alone(&self) -> Option<&Alone> {
        self.transaction.alone.as_ref()
    }

    /// Begins a transaction that has no GTID event.
    pub fn begin_anonymous(&mut self) {
        self.begin_transaction(OpenTransaction::default());
    }

    /// Says which kind the transaction that was just begun turned out to have. On MariaDB, one that ends with ROLLBACK
    /// is a batch of its own, and is rolled back on the replica too. Effects that cannot be rolled back stay there as
    /// well, such as the values that it took from sequences. Before one of [`Surprise::Redefined`], the caller has
    /// everything applied and forgets all definitions.
    pub fn expect(&mut self, surprise: Surprise) {
        if surprise == Surprise::Contradicts {
            self.fold_alone();
            return;
        }
        if self.transaction.is_mysql || surprise == Surprise::Redefined {
            self.transaction.expected.insert(surprise);
            return;
        }
        self.keep_apart();
        self.transaction.alone = Some(Alone::RolledBack);
    }

    /// Keeps the changes of the transaction that was just begun apart from those before it.
    fn keep_apart(&mut self) {
        self.cut();
        self.transaction.apart = Some(Apart {
            first_item: self.gathered.batch.items.len(),
            statistics: self.gathered.batch.statistics,
            memory_bytes: self.gathered.batch_memory_bytes,
            had_irrevocable_rows: self.gathered.batch.has_irrevocable_rows,
            temporary: self.sessions.temporary.open.clone(),
            defaults: self.sessions.defaults,
        });
    }

    /// Ends the current transaction, whose last event was taken.
    pub fn end_transaction(&mut self) {
        self.transaction.so_far.is_over = true;
        if self.rules.keeps_transactions_apart {
            self.cut();
        }
    }

    /// Resolves the kind of MySQL's transaction by the first event after its GTID, unless that is only context of a statement.
    pub(super) fn resolve(&mut self, header: &EventHeader, body: &[u8]) -> Result<()> {
        let (flags, xid) = match header.event_type {
            EventType::QUERY => {
                let query = QueryEvent::parse(body)?;
                let xid = Xid::of_statement(query.statement);
                match xid {
                    _ if query.begins_group() => (GtidEvent::TRANSACTIONAL, None),
                    _ if query.is_create_select() => (GtidEvent::DDL, None),
                    Some(_)
                        if query.begins_mysql_group() && self.transaction.expected.contains(&Surprise::OnePhase) =>
                    {
                        (GtidEvent::TRANSACTIONAL, None)
                    }
                    Some(_) if query.begins_mysql_group() => (GtidEvent::TRANSACTIONAL | GtidEvent::PREPARED_XA, xid),
                    Some(_) => (GtidEvent::STANDALONE | GtidEvent::COMPLETED_XA, xid),
                    None => (GtidEvent::STANDALONE | GtidEvent::DDL, None),
                }
            }
            EventType::TABLE_MAP => (GtidEvent::TRANSACTIONAL, None),
            _ => return Ok(()),
        };
        let expected = std::mem::take(&mut self.transaction.expected);
        let is_irrevocable = expected.contains(&Surprise::Undone);
        let explicit_defaults = expected.iter().find_map(|surprise| match surprise {
            Surprise::TimestampDefaults(is_explicit) => Some(*is_explicit),
            _ => None,
        });
        let flags = if is_irrevocable { flags & !GtidEvent::TRANSACTIONAL } else { flags };
        self.begin_transaction(OpenTransaction {
            gtid: GtidFlags { flags: Some(flags), ..GtidFlags::default() },
            xid,
            is_mysql: true,
            expected,
            ..OpenTransaction::default()
        });
        if let Some(is_explicit) = explicit_defaults {
            self.take_defaults(is_explicit);
        }
        Ok(())
    }

    /// Takes note that the current transaction changes tables that cannot roll back, which MySQL does not say
    /// beforehand.
    pub(super) fn turn_irrevocable(&mut self) -> Result<()> {
        if self.transaction.so_far.has_rows || self.transaction.so_far.has_statements {
            return Err(Error::TurnedOut(Surprise::Undone));
        }
        self.transaction.gtid.flags = self.transaction.gtid.flags.map(|flags| flags & !GtidEvent::TRANSACTIONAL);
        self.keep_apart();
        Ok(())
    }

    /// Keeps the current transaction apart from others if this statement of it creates a temporary table with another
    /// `explicit_defaults_for_timestamp` than the last one. (A session cannot change that within a transaction, so it
    /// holds for all of its statements. MySQL logs it only for statements that make a TIMESTAMP column; its own
    /// replicas keep the last value.)
    pub(super) fn stand_with_defaults(&mut self, statement: &Statement) -> Result<()> {
        let told = statement.status.explicit_defaults_for_timestamp.filter(|_| self.transaction.is_mysql);
        let Some(is_explicit) = told.filter(|_| told != self.sessions.defaults) else { return Ok(()) };
        // Definitions are executed with what they say.
        if statement.class == StatementClass::Definition {
            self.sessions.defaults = told;
        }
        if statement.class != StatementClass::Temporary {
            return Ok(());
        }
        let has_begun = self.transaction.so_far.has_rows || self.transaction.so_far.has_statements;
        if self.transaction.so_far.was_taken || self.transaction.apart.is_none() && has_begun {
            return Err(Error::TurnedOut(Surprise::TimestampDefaults(is_explicit)));
        }
        self.take_defaults(is_explicit);
        Ok(())
    }

    fn take_defaults(&mut self, is_explicit: bool) {
        if self.transaction.apart.is_none() {
            self.keep_apart();
        }
        self.sessions.defaults = Some(is_explicit);
        self.transaction.explicit_defaults = self.sessions.defaults;
        self.transaction.stand_alone(Alone::TimestampDefaults);
    }

    /// Takes an XA PREPARE event. On MySQL it also ends an XA transaction that was committed without being prepared.
    /// Only its end distinguishes such a transaction from others, and a part that was taken earlier is being prepared
    /// already.
    pub(super) fn xa_prepare(&mut self, body: &[u8]) -> Result<()> {
        let is_one_phase = self.transaction.is_mysql && body.first() == Some(&1);
        if is_one_phase && self.transaction.alone.take().is_some() && self.transaction.so_far.was_taken {
            return Err(Error::TurnedOut(Surprise::OnePhase));
        }
        if self.transaction.explicit_defaults.is_some() {
            self.transaction.stand_alone(Alone::TimestampDefaults);
        }
        Ok(())
    }

    pub(super) fn begin_transaction(&mut self, transaction: OpenTransaction) {
        self.transaction = transaction;
        self.tables.absent.clear();
        // Not in its midst: a statement's table maps all come before its rows.
        if self.tables.plans.len() > PLANS_MAX || self.tables.planned_columns > PLANNED_COLUMNS_MAX {
            self.forget_plans();
        }
        if self.transaction.is_usual() {
            return;
        }
        let extra = self.transaction.gtid.extra_flags;
        self.transaction.is_silent = extra & (GtidEvent::EXTRA_START_ALTER | GtidEvent::EXTRA_ROLLBACK_ALTER) != 0;
        self.keep_apart();
        if self.transaction.has(GtidEvent::PREPARED_XA) {
            self.transaction.alone = self.transaction.xid.clone().map(Alone::XaPrepare);
        }
    }

    /// Takes a transaction that the source rolled back, and logged because some of its effects could not be rolled
    /// back.
    pub(super) fn undo(&mut self) -> Result<()> {
        if !self.transaction.may_be_undone() {
            return Err(Error::TurnedOut(Surprise::Undone));
        }
        self.transaction.stand_alone(Alone::Irrevocable);
        self.cut();
        self.push(Item::Undo);
        Ok(())
    }
}
