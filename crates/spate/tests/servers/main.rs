//! The built program between real servers: what it survives, what it refuses, what it says.
//!
//! Each test has servers of its own, in directories of its own, on ports that the kernel gave.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "tests")]

mod archive_faults;
mod comparison;
mod crashes;
mod differing_replica;
mod logging;
mod refusals;
mod start_and_end;
mod statements;
#[cfg(feature = "failpoints")]
mod stopping_points;
mod support;
mod transactions;
