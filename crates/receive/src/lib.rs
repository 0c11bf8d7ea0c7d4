//! The source's binlog, over the network and into the archive.
//!
//! The tour, in the order in which data comes:
//! - [`source`]: can it serve us, and where does its history begin and end?
//! - [`patience`]: what is waited for before anything is received;
//! - [`intake`]: the binlog's events, into the archive; `dump`: how they are asked for;
//! - [`retention`]: how much of the archive is kept;
//! - [`fetch`](mod@fetch): all of it, without a replica.

pub mod fetch;
pub mod intake;
pub mod patience;
pub mod retention;
pub mod source;

pub use fetch::{FetchOptions, fetch};
