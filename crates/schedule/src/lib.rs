//! Decisions: what becomes of a stream of transactions before the replica sees it. Pure: no I/O, no clock, no thread.
//!
//! The tour, in the order data meets it:
//! - [`batch`]: events go in, batches come out: row changes folded per table, everything else in the source's order;
//! - [`segment`]: row changes between two statements; `transaction`: the one that is being taken;
//! - [`definition`]: what the replica says of a table, and whether its changes may be folded;
//! - [`plan`]: what folding needs to know of a table's images, worked out once;
//! - [`fold`]: net row changes by row key; [`keyless`]: those of tables without one;
//! - [`item`]: the parts of a batch;
//! - [`statement`]: what kind of statement a Query event holds, and what it may change;
//! - [`applied`]: which transactions are applied, where several workers commit independently;
//! - [`outdated`]: whose definitions a statement puts out of date;
//! - [`sequence`]: rows of sequences that cannot be written as they stand;
//! - [`versioning`]: rows of system-versioned tables that mean something else on the replica;
//! - [`emit`]: net changes as chunks of events for replay;
//! - [`row_change`]: single row changes, for repairs.

pub mod applied;
pub mod arena;
pub mod batch;
pub mod definition;
pub mod difference;
pub mod emit;
mod error;
pub mod fold;
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
pub mod statement;
pub mod temporary;
mod transaction;
pub mod versioning;

pub use batch::{Answer, Batch, BatchBuilder};
pub use definition::{TableDefinition, TableName};
pub use error::{Error, Result, Surprise};
pub use item::{Alone, Item, Statement};
pub use plan::TablePlan;
pub use row_change::RowChange;
