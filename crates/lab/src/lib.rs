//! The laboratory of Spate: it runs real servers and real loads, runs the built `spate` program as a user would, and
//! measures the result.
//!
//! The tour, from the servers up:
//! - [`version`], [`vendor`], [`server_options`], [`sandbox`]: a real server in a directory of its own;
//! - [`process`], [`sql`], [`position`]: the server's state, from the kernel and from the server itself;
//! - [`home`]: the laboratory's directory; [`sandbox_registry`]: servers that outlive a command;
//! - [`workload`], [`dataset`], [`backlog`], [`binlog_count`]: the changes of a source while its replica was down;
//! - [`contender`], [`native`], [`spate_program`]: the programs that catch up;
//! - [`race`], [`comparison`], [`results`]: the race, the comparison of its tables, and its result;
//! - [`chain`]: intermediate sources, one behind the other;
//! - [`follower`], [`beat`], [`steady`]: the lag under a live load; [`demo`]: a demonstration of all of these;
//! - [`failover`](mod@failover): a source that is killed under load, again and again;
//! - [`calls`]: call detail records, and the study that loads them;
//! - [`torture`]: hostile statements from a seed, with the server's own replication as the oracle;
//! - [`command`], [`screen`]: the command line, and its output for people.
//!
//! Measuring and drawing are separate: every command can write its result as JSON.

pub mod backlog;
pub mod beat;
pub mod binlog_count;
pub mod calls;
pub mod chain;
pub mod command;
pub mod comparison;
pub mod contender;
pub mod dataset;
mod definitions;
pub mod demo;
pub mod equal;
mod error;
pub mod failover;
pub mod follower;
pub mod home;
pub mod lag_samples;
pub mod native;
pub mod position;
pub mod process;
pub mod race;
pub mod recovery;
pub mod report;
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
