//! The decisions: this crate turns a stream of transactions into batches for the replica. Pure: no I/O, no clock, no
//! thread of its own: [`fold::Helper`]s are run by the caller.
//!
//! The tour, in the order of the data path:
//! - [`batch`]: events go in, batches come out: row changes folded per table, everything else in the source's order;
//! - [`segment`]: row changes between two statements; `transaction`: the current one;
//! - [`definition`]: the replica's definition of a table, and if its changes may be folded;
//! - [`plan`]: how to walk and fold a table's images, computed once;
//! - [`fold`]: net row changes by row key; [`keyless`]: row changes of tables without one;
//! - [`item`]: the parts of a batch; [`inverse`]: what undoes row changes;
//! - [`statement`]: what kind of statement a Query event holds, and what it may change;
//! - [`write_set`]: the keys that a batch writes; [`depend`]: which earlier transactions one has to wait for;
//! - [`shards`]: which applier applies which rows, where several divide them among themselves;
//! - [`ahead`]: which rows of a batch may be executed while the batch before it is not committed;
//! - [`applied`]: which transactions are applied, where several workers commit independently;
//! - [`outdated`]: whose definitions a statement puts out of date;
//! - [`sequence`]: rows of sequences that cannot be written as they stand;
//! - [`versioning`]: rows of system-versioned tables that mean something else on the replica;
//! - [`emit`]: net changes as chunks of events for replay;
//! - [`row_change`]: single row changes, for repairs.

pub mod ahead;
pub mod applied;
pub mod arena;
pub mod batch;
pub mod definition;
pub mod depend;
pub mod difference;
pub mod emit;
mod error;
pub mod fold;
pub mod inverse;
pub mod item;
pub mod keyless;
mod known;
pub mod needs;
mod opened;
pub mod outdated;
pub mod own_schema;
pub mod plan;
mod rewrite;
pub mod row_change;
pub mod row_session;
pub mod segment;
pub mod sequence;
pub mod shards;
pub mod statement;
pub mod temporary;
mod transaction;
pub mod versioning;
pub mod write_set;

pub use batch::{Answer, Batch, BatchBuilder};
pub use definition::{TableDefinition, TableName};
pub use error::{Error, Result, Surprise};
pub use item::{Alone, Item, Statement};
pub use plan::TablePlan;
pub use rewrite::EventStates;
pub use row_change::RowChange;
