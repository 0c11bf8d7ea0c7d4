//! Backups of MySQL and MariaDB, and recovery to any transaction.
//!
//! A *base* is one state of a server, with its exact place in the binlog. What happened since is in the archive, which is written anyway. A recovery is
//! a base, and the archive's transactions up to the wanted one, folded.
//!
//! The tour, in the order of the data path:
//! - [`base`]: makes a base, by the server's own means; `facts`: what it asks of the server; `tree`: data directories as streams;
//! - `chunks`: streams as objects of bounded size; [`sealing`]: compressed and encrypted; [`target`]: where objects are kept;
//! - [`manifest`]: what is known of a base;
//! - [`shipping`]: the archive's files into the target, and back;
//! - [`goal`]: where a recovery ends; `chain`: whether base and binlog belong together;
//! - [`restore`]: all together, with `choice` (which base, which binlogs), `place` (where it happens), `scratch` (a server of our own) and [`programs`];
//! - [`later`]: what touches the same rows after a mistake; [`single`]: single tables beside the live ones;
//! - [`keep`]: which bases stay.

pub mod base;
mod chain;
mod choice;
mod chunks;
mod error;
mod facts;
pub mod goal;
pub mod keep;
pub mod later;
pub mod manifest;
mod place;
mod prepare;
pub mod programs;
mod progress;
pub mod restore;
mod scratch;
pub mod sealing;
pub mod shipping;
pub mod single;
pub mod target;
mod tree;

pub use error::{Error, Result};
pub use progress::Progress;
