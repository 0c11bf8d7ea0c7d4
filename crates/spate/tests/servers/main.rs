//! The built program between real servers: what it survives, what it refuses, what it says.
//!
//! Each test has servers of its own, in directories of its own, on ports that the kernel gave.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "tests")]

mod archive_faults;
mod beyond_transactions;
mod clocks;
mod comparison;
mod consistency;
mod crashes;
mod differing_replica;
mod keyless;
#[cfg(feature = "failpoints")]
mod kills;
mod large;
mod large_rows;
mod logging;
mod many_tables;
mod networks;
mod refusals;
mod shapes;
mod start_and_end;
mod statements;
#[cfg(feature = "failpoints")]
mod stopping_points;
mod support;
mod transactions;
