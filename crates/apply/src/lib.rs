//! Replication as stages that only know their neighbours.
//!
//! ```text
//! archive ─▶ gather (read, fold) ─part─▶ prepare (sort, encode) ─commands─▶ apply (execute, commit)
//!                ▲                          │     ▲                            │
//!                └────────── hunger ────────┘     └───────── tickets ──────────┘
//! ```
//! *Hunger*: the preparing stage asks for the next part when it has nothing to do; whatever was gathered until then is the
//! batch. That is the self-clocking: no timer and no tuning. *Tickets*: it may be one batch ahead of the applier, no more.
//!
//! A session is one run of these stages over one set of connections. Whatever goes wrong ends the session; the supervisor
//! (`spate-operate`) begins another at the checkpoint. So there is one way back from every failure, and it is the same
//! as after a crash.

mod account_guard;
mod apply;
mod command;
mod default_databases;
mod emit;
mod files;
pub mod fingerprint;
pub mod gather;
mod half_load;
pub mod halt;
mod hold;
pub mod limits;
mod open;
mod outlet;
mod prepare;
mod progress;
pub mod repair;
pub mod session;
pub mod sessions;
pub mod settle;
mod sweep;
mod unnamed;

use std::sync::Arc;

use spate_binlog::FormatDescription;
use spate_schedule::Batch;

use spate_replica::TransactionPlace;
use spate_replica::checkpoint::Checkpoint;
use spate_replica::exclusions::Skipped;

/// Consecutive transactions on their way to the replica, or a piece of one that is too large for memory.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) batch: Batch,
    /// How the source lays out its events; the applier's session is told so once.
    pub(crate) format: Arc<FormatDescription>,
    /// Written into replayed events.
    pub(crate) server_id: u32,
    /// Commit time of the first transaction, in seconds since 1970.
    pub(crate) oldest_seconds: f64,
    /// The last transaction in it.
    pub(crate) place: TransactionPlace,
    /// Where the replica is once all transactions are applied that the batch has begun.
    pub(crate) reached: Checkpoint,
    /// `None`: the batch goes on in the next part.
    pub(crate) end: Option<PartEnd>,
}

/// How a batch ends.
#[derive(Debug, Clone)]
pub(crate) struct PartEnd {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) transactions: u64,
    /// Named transactions in it that were left out.
    pub(crate) skipped: Vec<Skipped>,
    /// How many transactions in it were left out because of the server that they come from.
    pub(crate) ignored: u64,
}
