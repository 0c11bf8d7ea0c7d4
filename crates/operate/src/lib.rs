//! All of Spate together.
//!
//! - [`mod@check`]: a look at both ends before anything runs;
//! - [`replicate`](mod@replicate): receiving and applying side by side, and what happens after a failure: `supervision`
//!   decides, `narrowing` finds out which transaction it was;
//! - [`handover`]: where the server's own replication goes on;
//! - [`takeover`]: from the server's own replication, and back;
//! - [`replicate_from_the_promoted`]: from the source that the last promotion has named.

mod ahead;
pub mod check;
mod gtids_fit;
pub mod handover;
#[cfg(test)]
mod incidents;
mod narrowing;
mod promotions;
pub mod replicate;
pub mod rules;
mod supervision;
pub mod takeover;

pub use promotions::replicate_from_the_promoted;
pub use replicate::{ApplyOptions, Ended, OnConflict, ReplicateOptions, apply_archive, apply_rest, replicate};
