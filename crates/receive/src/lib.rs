//! Receives the source's binlog over the network and writes it into the archive.
//!
//! The tour, in the order in which data comes:
//! - [`source`]: can the source serve us, and where does its history begin and end?
//! - [`patience`]: waits for a source that does not answer, and for space on a full disk;
//! - [`intake`]: receives the binlog's events into the archive; its module `dump` requests them;
//! - [`retention`]: removes archive files that nobody needs;
//! - [`fetch`](mod@fetch): fills an archive without a replica.

pub mod fetch;
pub mod intake;
pub mod patience;
pub mod retention;
pub mod source;

pub use fetch::{FetchOptions, fetch};
