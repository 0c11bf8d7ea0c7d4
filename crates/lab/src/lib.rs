//! The laboratory of Spate: it runs real servers and real loads, runs the built `spate` program as a user would, and
//! measures the result.
//!
//! The tour, from the servers up:
//! - [`version`], [`vendor`], [`server_options`], [`sandbox`]: a real server in a directory of its own;
//! - [`process`], [`sql`], [`position`]: the server's state, from the kernel and from the server itself;
//! - [`home`]: the laboratory's directory; [`sandbox_registry`]: servers that outlive a command;
//! - [`loads`]: loads that no program of others has;
//! - [`workload`], [`dataset`] (`lab dataset`), `buffer_pool`, [`backlog`], [`binlog_count`], [`binlog_format`]: the changes of a source while its
//!   replica was down;
//! - [`contender`], [`native`], [`spate_program`]: the programs that catch up;
//! - [`course`], [`lag_samples`], [`race`], [`comparison`], [`results`], [`report`](mod@report): a backlog and the conditions for contenders, how far they are behind meanwhile, the race over
//!   it, the comparison of its tables, its result and its page;
//! - [`sampling`]: what machine, servers and programs do meanwhile;
//! - [`chain`]: intermediate sources, one behind the other;
//! - [`follower`], [`beat`], [`steady`]: the lag under a live load; [`demo`]: a demonstration of all of these;
//! - [`galera`], [`oltp`]: clusters of servers, and sysbench's transactions on one or more of them;
//! - [`experiment`]: measurements of all of these, repeated, kept, reported and compared;
//! - [`failover`](mod@failover): a source that is killed under load, again and again;
//! - [`calls`]: call detail records, and the study that loads them;
//! - [`recovery`]: a server that is recovered to its last transaction, by the servers' own programs and by `spate restore`;
//! - [`torture`], [`equal`]: hostile statements from a seed, and yours, with the server's own replication as the oracle;
//! - [`command`], [`screen`], [`output`]: the command line, and its output for people and programs.
//!
//! Measuring and drawing are separate: every command can write its result as JSON.

pub mod backlog;
pub mod beat;
pub mod binlog_count;
pub mod binlog_format;
mod buffer_pool;
pub mod calls;
pub mod chain;
pub mod command;
pub mod comparison;
pub mod contender;
pub mod course;
pub mod dataset;
mod dataset_command;
pub mod demo;
pub mod equal;
mod error;
pub mod experiment;
pub mod failover;
pub mod follower;
pub mod galera;
pub mod home;
pub mod lag_samples;
pub mod loads;
pub mod native;
pub mod oltp;
pub mod output;
pub mod position;
pub mod process;
pub mod race;
mod random;
pub mod recovery;
pub mod report;
pub mod results;
pub mod sampling;
pub mod sandbox;
pub mod sandbox_registry;
pub mod screen;
pub mod server_options;
pub mod spate_program;
pub mod sql;
pub mod steady;
mod threads;
pub mod torture;
pub mod vendor;
pub mod version;
pub mod workload;

pub use command::{LabCommand, run};
pub use error::{Error, Result};
