//! Everything that talks to servers.
//!
//! The tour, in the order data meets it:
//! - `source`, [`intake`]: the source's binlog, into the archive;
//! - `pipeline`: from the archive to the replica: gather and fold, prepare, apply;
//! - [`catalog`], [`dialect`], [`checkpoint`]: what the applier asks and tells the replica;
//! - `sweep`, [`fingerprint`]: many rows deleted from a table without a key in one pass;
//! - [`mod@check`]: a look at both ends before anything runs;
//! - [`replicate`](mod@replicate): all of it together, and what happens after a failure;
//! - [`choice`], [`translate`]: which dialect, and statements for servers of another vendor;
//! - [`status`]: what a running Spate says of itself.

mod applier_lock;
pub mod asking;
pub mod catalog;
pub mod check;
pub mod checkpoint;
pub mod choice;
mod creator;
pub mod dialect;
mod dump;
mod error;
pub mod exclusions;
mod fetch;
pub mod fingerprint;
mod foreign_keys;
mod half_load;
pub mod handover;
mod hold;
pub mod hold_request;
pub mod intake;
mod journal;
mod known_servers;
pub mod limits;
mod lock_holders;
pub mod lock_names;
mod narrowing;
mod others;
mod own_schema;
mod patience;
mod pipeline;
mod privileges;
mod progress;
mod records;
pub mod replicate;
mod retention;
mod source;
pub mod status;
mod sweep;
mod temporary;
mod told_defaults;
pub mod translate;
pub mod until;

pub use error::{Error, Result, TransactionPlace};
pub use fetch::{FetchOptions, fetch};
pub use journal::InterruptedStatement;
pub use replicate::{OnConflict, ReplicateOptions, replicate};
