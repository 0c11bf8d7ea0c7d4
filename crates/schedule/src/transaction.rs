//! The current transaction of a batch's builder: the properties that its GTID event gives, and those found out later.

use std::collections::BTreeSet;

use spate_binlog::{GtidEvent, Xid};

use crate::definition::TableName;
use crate::error::Surprise;
use crate::item::Alone;
use crate::outdated::Outdated;
use crate::row_session::RowSession;
use crate::temporary::TemporaryTable;

/// The size of a batch in the source's events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchStatistics {
    /// Row changes in the source's events.
    pub row_changes: u64,
    /// Bytes of the source's events.
    pub event_bytes: u64,
}

/// The current transaction of the builder.
#[derive(Debug, Default)]
pub(crate) struct OpenTransaction {
    /// What its GTID event says of it. MySQL says it with the event after that.
    pub(crate) gtid: GtidFlags,
    /// MySQL does not say beforehand whether a transaction can roll back.
    pub(crate) is_mysql: bool,
    /// Surprises that are known of it; of MariaDB's only [`Surprise::Redefined`] stands here.
    pub(crate) expected: BTreeSet<Surprise>,
    /// What was taken of it until now.
    pub(crate) so_far: SoFar,
    /// The id of the XA transaction that it prepares or ends. `None`: it does neither.
    pub(crate) xid: Option<Xid>,
    /// MySQL: the session in which its rows are changed.
    pub(crate) session: Option<RowSession>,
    /// Its changes are kept apart from those of the transactions before it. `None`: they are not.
    pub(crate) apart: Option<Apart>,
    /// Why it is a batch of its own. `None`: it need not be.
    pub(crate) alone: Option<Alone>,
    /// The system-versioned table that it creates, and its ROW END column.
    pub(crate) created: Option<(TableName, usize)>,
    /// MySQL: the `explicit_defaults_for_timestamp` with which it creates temporary tables; `None` if it is the earlier
    /// value.
    pub(crate) explicit_defaults: Option<bool>,
    /// The definitions that its statements make out of date.
    pub(crate) outdated: Outdated,
    /// It is the START or the ROLLBACK of an ALTER TABLE in two phases: nothing of it is executed.
    pub(crate) is_silent: bool,
}

/// What a GTID event says of its transaction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GtidFlags {
    /// [`GtidEvent`]'s flags. `None`: it has no GTID event, and is taken to be unusual.
    pub(crate) flags: Option<u8>,
    /// [`GtidEvent`]'s extra flags.
    pub(crate) extra_flags: u8,
    /// MySQL: the event after the GTID's will say what kind of transaction it is.
    pub(crate) is_announced: bool,
}

/// What was taken of a transaction until now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SoFar {
    /// Statements that change rows.
    pub(crate) has_statements: bool,
    /// Row changes.
    pub(crate) has_rows: bool,
    /// A part of it, or of what came before it, was taken out of the builder since it began.
    pub(crate) was_taken: bool,
    /// Its last event was taken.
    pub(crate) is_over: bool,
}

/// Where in the open batch a transaction begins that is kept apart, and what the batch was before it.
#[derive(Debug, Default)]
pub(crate) struct Apart {
    /// The first of its items.
    pub(crate) first_item: usize,
    pub(crate) statistics: BatchStatistics,
    pub(crate) memory_bytes: usize,
    pub(crate) had_irrevocable_rows: bool,
    pub(crate) temporary: BTreeSet<TemporaryTable>,
    /// What was said of `explicit_defaults_for_timestamp`.
    pub(crate) defaults: Option<bool>,
}

impl OpenTransaction {
    /// Makes it a batch of its own. The first reason stays, unless a later one is more specific.
    pub(crate) fn stand_alone(&mut self, why: Alone) {
        if matches!(self.alone, None | Some(Alone::TimestampDefaults | Alone::Numbered)) {
            self.alone = Some(why);
        }
    }

    /// True if it is a plain transaction of engines that can roll back: only its changes matter.
    pub(crate) fn is_usual(&self) -> bool {
        const UNUSUAL: u8 = GtidEvent::STANDALONE | GtidEvent::DDL | GtidEvent::PREPARED_XA | GtidEvent::COMPLETED_XA;
        const PHASES: u8 =
            GtidEvent::EXTRA_START_ALTER | GtidEvent::EXTRA_COMMIT_ALTER | GtidEvent::EXTRA_ROLLBACK_ALTER;
        self.has(GtidEvent::TRANSACTIONAL) && !self.has(UNUSUAL) && self.gtid.extra_flags & PHASES == 0
    }

    /// True if a ROLLBACK may stand at its end, which is logged when something could not be rolled back.
    pub(crate) fn may_be_undone(&self) -> bool {
        self.is_group() && (self.is_irrevocable() || self.alone == Some(Alone::RolledBack)) && !self.so_far.is_over
    }

    /// True if it may have changed something that cannot roll back.
    pub(crate) fn is_irrevocable(&self) -> bool {
        self.gtid.flags.is_some() && !self.has(GtidEvent::TRANSACTIONAL)
    }

    /// True if it is more than a single statement.
    pub(crate) fn is_group(&self) -> bool {
        self.gtid.flags.is_some() && !self.has(GtidEvent::STANDALONE)
    }

    /// True if any of these of [`GtidEvent`]'s flags is set.
    pub(crate) fn has(&self, mask: u8) -> bool {
        self.gtid.flags.is_some_and(|flags| flags & mask != 0)
    }
}
