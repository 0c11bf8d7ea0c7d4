//! Replication as stages that only know their neighbours.
//!
//! ```text
//! archive ─▶ gather (read, fold) ─▶ coordinator ─part─▶ worker: prepare (sort, encode) ─commands─▶ apply (execute, commit)
//!                                        ▲                         │    ▲                           │
//!                                        └───────── hunger ────────┘    └───────── tickets ─────────┘
//! ```
//! *Hunger*: the preparing stage asks for the next part when it has nothing to do; everything that was gathered until then is the
//! batch. That is the self-clocking: no timer and no tuning. *Tickets*: it may be one batch ahead of the applier, no more.
//!
//! A *worker* is a preparing stage and an applying one, with a connection to the replica. The *coordinator* hands parts out to it, and
//! owns the set of applied transactions. Gathering knows neither: it asks for definitions ([`Definitions`]) and hands parts over
//! ([`Dispatch`]), so that scripts can play both.
//!
//! A session is one run of these stages over one set of connections. Any failure ends the session; the supervisor
//! (`spate-operate`) begins another at the checkpoint. So there is one way back from every failure, and it is the same
//! as after a crash.

mod account_guard;
mod answers;
mod apply;
mod command;
pub mod concurrent;
mod coordinator;
mod default_databases;
mod definitions;
mod emit;
mod files;
pub mod fingerprint;
mod found;
pub mod gather;
mod half_load;
pub mod halt;
mod hold;
pub mod lanes;
pub mod limits;
mod open;
mod outlet;
mod pace;
mod pipeline;
pub mod plan;
pub mod prefetch;
mod prepare;
mod progress;
pub mod repair;
mod report;
pub mod session;
pub mod sessions;
pub mod settle;
mod stage;
mod sweep;
mod unfinished;
mod unnamed;
mod values;
mod worker;

use std::ops::RangeInclusive;
use std::sync::Arc;

pub use coordinator::Dispatch;
pub use definitions::{Definitions, Reading};
pub use pace::Pace;
use spate_binlog::{FormatDescription, Gtid};
use spate_schedule::depend::Hint;
use spate_schedule::{Alone, Batch, Item, Statement};

use spate_replica::TransactionPlace;
use spate_replica::checkpoint::Checkpoint;
use spate_replica::choice::{self, Dialect, DialectChoice};
use spate_replica::exclusions::Skipped;
use spate_replica::journal::{Intent, IntentKind};

/// Consecutive transactions on their way to the replica, or a piece of one that is too large for memory.
#[derive(Debug)]
pub struct Part {
    /// The folded changes.
    pub batch: Batch,
    /// How the source lays out its events; the applier's session is told so once.
    pub format: Arc<FormatDescription>,
    /// Written into replayed events.
    pub server_id: u32,
    /// Commit time of the first transaction, in seconds since 1970.
    pub oldest_seconds: f64,
    /// Where the replica is before the batch.
    pub from: Checkpoint,
    /// What the source says of its transactions, except those that are applied already; ascending. Of a piece, those that were read until now.
    /// Empty if transactions do not stay what they are.
    pub hints: Vec<Known>,
    /// The last transaction in it.
    pub place: TransactionPlace,
    /// Where the replica is once all transactions are applied that the batch has begun.
    pub reached: Checkpoint,
    /// How the batch ends. `None`: it goes on in the next part.
    pub end: Option<PartEnd>,
    /// Another batch, which is a transaction alone, has been read and follows at once.
    pub is_followed: bool,
    /// What tells later whether its definition has taken effect. `None`: it has none, or the applier asks for it.
    pub fingerprint: Option<String>,
    /// Before anything of it is executed, all transactions up to this one must be applied, by another. `None`: they are, or will be by then.
    pub turn: Option<u64>,
    /// Rows of it were left out, since some of the appliers that were interrupted have applied them.
    pub passes_over: bool,
}

/// A transaction of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Its GTID. `None`: it has none.
    pub gtid: Option<Gtid>,
    /// What the source says of it.
    pub hint: Hint,
}

/// How a batch ends.
#[derive(Debug, Clone)]
pub struct PartEnd {
    /// Where the replica is after it.
    pub checkpoint: Checkpoint,
    /// Seqno of the last transaction before it. Between this and the first of the batch there may be some that the replica's position covers
    /// already: those are not read.
    pub after_seqno: u64,
    /// How many transactions are in it.
    pub transactions: u64,
    /// Named transactions in it that were left out.
    pub skipped: Vec<Skipped>,
    /// How many transactions in it were left out because of the server that they come from.
    pub ignored: u64,
    /// Appliers that were interrupted at different positions are level after it.
    pub levels: bool,
}

impl Part {
    /// Rows of it, for one of several that apply it.
    pub(crate) fn share(&self, batch: Batch, end: Option<PartEnd>) -> Part {
        Part {
            batch,
            format: Arc::clone(&self.format),
            server_id: self.server_id,
            oldest_seconds: self.oldest_seconds,
            from: self.from.clone(),
            hints: vec![],
            place: self.place.clone(),
            reached: self.reached.clone(),
            end,
            is_followed: false,
            fingerprint: None,
            turn: None,
            passes_over: false,
        }
    }

    /// True if it is one or more whole transactions, of nothing but rows that can be rolled back, of which none is left out.
    pub(crate) fn is_plain(&self) -> bool {
        let is_whole = self.end.as_ref().is_some_and(|end| end.skipped.is_empty());
        is_whole && !self.passes_over && self.batch.is_of_rows()
    }

    /// True if its rows are written as the source's images.
    ///
    /// # Errors
    /// As [`DialectChoice::choose`].
    pub(crate) fn is_replayed(&self, choice: &DialectChoice) -> spate_replica::Result<bool> {
        Ok(choice.choose(choice::vendor_of(&self.format))? == Dialect::Replay)
    }

    /// The GTID of its last transaction that is not left out or applied already.
    pub(crate) fn gtid(&self) -> Option<Gtid> {
        self.hints.last()?.gtid
    }

    /// What must be noted before anything of it is executed, since it cannot be rolled back. `None`: nothing.
    pub fn intent_kind(&self) -> Option<IntentKind> {
        match &self.batch.alone {
            // Nobody has to know whether it took effect: it is executed again.
            Some(Alone::Definition) if self.is_repeatable() => None,
            Some(Alone::Definition) => Some(IntentKind::Definition),
            Some(Alone::CreateSelect) => Some(IntentKind::CreateSelect),
            Some(Alone::XaPrepare(_)) => Some(IntentKind::XaPrepare),
            Some(Alone::XaEnd(_)) => Some(IntentKind::XaEnd),
            Some(Alone::Irrevocable) => Some(IntentKind::Irrevocable),
            // Nothing of it stays that would do harm a second time.
            Some(Alone::RolledBack) => None,
            None | Some(Alone::TimestampDefaults | Alone::Numbered) if !self.batch.has_irrevocable_rows => None,
            None | Some(Alone::TimestampDefaults | Alone::Numbered) => {
                let is_unclear = self.batch.items.iter().any(|item| match item {
                    Item::Rows(segment) => segment.has_unmendable_rows(),
                    _ => false,
                });
                Some(if is_unclear { IntentKind::Irrevocable } else { IntentKind::IrrevocableRows })
            }
        }
    }

    /// True for a definition that has no other effect when it is executed again.
    fn is_repeatable(&self) -> bool {
        let is_so = |statement: &Statement| {
            statement.error_code == 0 && spate_schedule::statement::is_repeatable(statement.text())
        };
        self.statement().is_some_and(is_so)
    }

    /// The intention to apply it.
    pub fn intent(&self, kind: IntentKind) -> Intent {
        let statement = self.statement();
        Intent {
            kind,
            checkpoint: self.reached.clone(),
            gtid: self.place.gtid.clone(),
            database: statement.map(|statement| statement.database.clone()).unwrap_or_default(),
            reading: statement.map(|statement| statement.reading).unwrap_or_default(),
            statement: match &self.batch.alone {
                Some(Alone::XaPrepare(xid) | Alone::XaEnd(xid)) => xid.to_string().into_bytes(),
                _ => statement.map(|statement| statement.sql.clone()).unwrap_or_default(),
            },
            fingerprint: self.fingerprint.clone().unwrap_or_default(),
            routine: None,
        }
    }

    /// Its first statement of the source. `None`: it has only rows.
    pub(crate) fn statement(&self) -> Option<&Statement> {
        self.batch.statement()
    }
}

impl PartEnd {
    /// Takes in the batch before, which is committed together with this one.
    pub(crate) fn join(&mut self, before: PartEnd) {
        self.after_seqno = before.after_seqno;
        self.transactions += before.transactions;
        self.ignored += before.ignored;
        self.levels |= before.levels;
        self.skipped.splice(0..0, before.skipped);
    }

    /// The transactions that are applied with the batch: its own, and those among them that were applied before.
    pub fn seqnos(&self) -> RangeInclusive<u64> {
        self.after_seqno + 1..=self.checkpoint.seqno
    }
}
