//! Replays a captured workload against a server of MySQL or MariaDB, and measures every response.
//!
//! The way of a statement:
//! - `lines`, `general_log`, `slow_log`, `input`: it is read of a log, with its session and its time (`recorded`);
//! - `reading`, `class`, `set_class`, `functions`, `definitions`: what it may do; `apart`: what it needs of its session; `digest`: what it has in
//!   common with others;
//! - [`replay`](replay()), `sharing`, `executor`: when and by which connection it is executed;
//! - `response_lines`: a line for each response; `measure`: what the responses add up to; `samples`: what the server and its disks did meanwhile;
//! - [`page`](page()): for people; [`compare`](compare()): two replays beside each other.

mod answer;
mod apart;
mod binlog;
mod class;
mod compare;
mod connections;
mod definitions;
mod digest;
mod error;
mod executor;
mod functions;
mod gathered;
mod general_log;
mod halt;
mod input;
mod lines;
mod measure;
mod output;
mod pace;
mod page;
mod queue;
mod reading;
mod recorded;
mod replay;
mod response_lines;
mod samples;
mod schemas;
mod set_class;
mod sharing;
mod slots;
mod slow_log;
mod source;

pub use compare::{Compared, Comparison, Verdict, compare};
pub use error::{Error, Result};
pub use input::{InputFormat, LogTable};
pub use measure::{DigestReport, Distribution, InputReport, Latency, SizeReport, SlowReport, Sums};
pub use output::Output;
pub use page::page;
pub use replay::{InputPlan, Pace, Place, ReplayOptions, ReplayProgress, ReplayReport, Sharing, replay};
pub use samples::{DiskReport, ServerReport};
