//! How one session differs from another.

use std::collections::BTreeSet;
use std::time::Duration;

use spate_replica::exclusions::Exclusions;
use spate_replica::until::Until;
use spate_schedule::{EventStates, Surprise};

pub use crate::concurrent::Parallel;
pub use crate::lanes::Sharding;
use crate::limits::BatchLimits;
pub use crate::pipeline::PipelineWhen;
pub use crate::prefetch::PrefetchWhen;
use crate::repair::RepairScope;

/// How one session differs from another.
#[derive(Debug, Clone)]
pub struct SessionPlan {
    /// How large batches may become.
    pub limits: BatchLimits,
    /// Where to end.
    pub until: Until,
    /// Take batches apart to find the change that fails: one row a statement, unfolded.
    pub one_by_one: bool,
    /// The last transaction to gather. `None`: as many as come.
    pub last_seqno: Option<u64>,
    /// Transactions of which it is known what they turn out to be, by their seqnos.
    pub expected: BTreeSet<(u64, Surprise)>,
    /// Repair the row changes that the replica refuses; only row by row. `None`: a refused change ends the session.
    pub repairs: Option<RepairScope>,
    /// All up to `last_seqno` is one batch.
    pub is_one_batch: bool,
    /// End after so many transactions. `None`: as many as come.
    pub transactions_max: Option<u64>,
    /// Transactions that are left out.
    pub exclusions: Exclusions,
    /// Transactions stay what they are, and are applied beside each other. `None`: they become batches.
    pub parallel: Option<Parallel>,
    /// Rows are divided among appliers that commit independently of each other. `None`: one applies all.
    pub sharding: Option<Sharding>,
    /// When a batch of rows is executed by another connection while the one before it is not committed.
    pub pipeline: PipelineWhen,
    /// Threads that fold large tables beside the one that reads.
    pub fold_helpers: usize,
    /// When rows are read by other connections before they are applied.
    pub prefetch: PrefetchWhen,
    /// Whether the replica is to execute the source's events.
    pub events: EventStates,
}

impl SessionPlan {
    /// A plan to gather everything up to `until`, in batches within these limits.
    pub fn new(limits: BatchLimits, until: Until) -> SessionPlan {
        SessionPlan {
            limits,
            until,
            one_by_one: false,
            last_seqno: None,
            expected: BTreeSet::new(),
            repairs: None,
            is_one_batch: false,
            transactions_max: None,
            exclusions: Exclusions::default(),
            parallel: None,
            sharding: None,
            pipeline: PipelineWhen::Never,
            fold_helpers: 0,
            prefetch: PrefetchWhen::default(),
            events: EventStates::default(),
        }
    }

    /// The same, up to a transaction, in one batch, row by row, with rows that cannot be rolled back repaired.
    pub fn repairing(self, last_seqno: u64) -> SessionPlan {
        SessionPlan {
            limits: BatchLimits { transactions_max: u64::MAX, duration_max: Duration::MAX, ..self.limits },
            one_by_one: true,
            repairs: Some(self.repairs.unwrap_or(RepairScope::Irrevocable)),
            last_seqno: Some(last_seqno),
            is_one_batch: true,
            transactions_max: None,
            ..self
        }
    }
}
