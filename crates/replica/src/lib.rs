//! Everything that Spate asks of a replica, tells it, and keeps on it.
//!
//! The tour:
//! - [`asking`], [`known_servers`]: connections for questions, and which servers Spate works with;
//! - [`catalog`], [`foreign_keys`], [`others`]: definitions, and others that change them;
//! - [`own_schema`]: Spate's own tables: [`checkpoint`], [`journal`] (notes before statements that cannot be rolled back), [`records`] (left out or
//!   repaired), [`temporary`] and [`told_defaults`] (what a new session begins with), [`hold_request`] (a comparison asks to wait), [`new_source`] (a promotion says where the source is);
//! - [`applier_lock`], [`lock_names`], [`lock_holders`]: the lock of the one applier, and sessions that keep it waiting;
//! - [`native`]: its own replication;
//! - [`privileges`], [`creator`]: privileges of accounts;
//! - [`dialect`], [`choice`], [`translate`]: sessions, statements of the source, and those for servers of another vendor;
//! - [`reached`]: how far the replica has come, by which Spate decides; [`status`]: what it shows; [`until`], [`exclusions`]: where it begins and
//!   ends, and transactions that it leaves out.

pub mod applier_lock;
pub mod asking;
pub mod catalog;
pub mod checkpoint;
pub mod choice;
pub mod creator;
pub mod dialect;
mod error;
pub mod exclusions;
pub mod foreign_keys;
pub mod gtids;
pub mod hold_request;
pub mod journal;
pub mod known_servers;
mod known_texts;
pub mod lock_holders;
pub mod lock_names;
pub mod native;
pub mod new_source;
pub mod others;
pub mod own_schema;
pub mod privileges;
pub mod reached;
pub mod records;
pub mod sharding;
pub mod spread;
pub mod statement_state;
pub mod status;
pub mod temporary;
pub mod told_defaults;
pub mod translate;
pub mod until;

pub use error::{Error, Result, TransactionPlace};
