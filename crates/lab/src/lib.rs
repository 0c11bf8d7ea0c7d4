//! The laboratory of Spate: it runs real servers and real loads, drives the built `spate` program as a user would, and
//! says in numbers how it did.
//!
//! The tour, from the servers up:
//! - [`version`], [`vendor`], [`server_options`], [`sandbox`]: a real server in a directory of its own;
//! - [`process`], [`sql`], [`position`]: what the kernel and the server say about it;
//! - [`home`]: where the laboratory keeps its files; [`sandbox_registry`]: servers that outlive a command;
//! - [`workload`], [`dataset`], [`backlog`], [`binlog_count`]: what a source has written while its replica was away;
//! - [`contender`], [`native`], [`spate_program`]: who catches up;
//! - [`race`], [`comparison`], [`results`]: the race, its proof and its outcome;
//! - [`follower`], [`beat`], [`steady`]: the lag under a live load; [`demo`]: all of it as a story;
//! - [`torture`]: hostile statements from a seed, with the server's own replication as the oracle;
//! - [`command`], [`screen`]: the command line, and what people see.
//!
//! Measuring and drawing are separate: every command can write its result as JSON.

pub mod backlog;
pub mod beat;
pub mod binlog_count;
pub mod command;
pub mod comparison;
pub mod contender;
pub mod dataset;
pub mod demo;
pub mod equal;
mod error;
pub mod follower;
pub mod home;
pub mod native;
pub mod position;
pub mod process;
pub mod race;
pub mod results;
pub mod sandbox;
pub mod sandbox_registry;
pub mod screen;
pub mod server_options;
pub mod spate_program;
pub mod sql;
pub mod steady;
pub mod torture;
pub mod vendor;
pub mod version;
pub mod workload;

pub use command::{LabCommand, run};
pub use error::{Error, Result};
