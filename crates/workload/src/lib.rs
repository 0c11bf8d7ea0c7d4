//! Replays a captured workload against a server of MySQL or MariaDB, and measures every response.
//!
//! The way of a statement:
//! - `lines`, `general_log`, `slow_log`, `input`: it is read of a log, with its session and its time (`recorded`);
//! - `reading`, `class`, `set_class`, `functions`, `definitions`: what it may do; `digest`: what it has in common with others;
//! - [`replay`](replay()): when and by which connection it is executed;
//! - `response_lines`: a line for each response; `measure`: what the responses add up to; `samples`: what the server and its disks did meanwhile;
//! - [`page`](page()): for people; [`compare`](compare()): two replays beside each other.

mod binlog;
mod class;
mod compare;
mod definitions;
mod digest;
mod error;
mod functions;
mod general_log;
mod input;
mod lines;
mod measure;
mod page;
mod queue;
mod reading;
mod recorded;
mod replay;
mod response_lines;
mod samples;
mod set_class;
mod slow_log;

pub use compare::{Compared, Comparison, Verdict, compare};
pub use error::{Error, Result};
pub use input::{InputFormat, LogTable};
pub use measure::{DigestReport, InputReport, Latency, SizeReport, SlowReport, Sums};
pub use page::page;
pub use replay::{InputPlan, Pace, Place, ReplayOptions, ReplayProgress, ReplayReport, Sharing, replay};
pub use samples::{DiskReport, ServerReport};
