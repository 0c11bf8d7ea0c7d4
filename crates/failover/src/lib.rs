//! Failover without loss.
//!
//! - `topology`: what is asked of each server in one round; `history`: what one has applied and another lacks;
//! - [`plan`]: what a promotion would do and lose, decided without I/O;
//! - `steps`: what is done on one server; [`promote`](mod@promote): all of them, in order.

mod error;
pub mod history;
pub mod plan;
pub mod promote;
pub mod steps;
pub mod topology;

pub use error::{Error, Result};
pub use history::{History, Range, Surplus};
pub use promote::{ArchiveToApply, PromoteOptions, Promotion, dry_run, promote};
pub use steps::ReplicationAccount;
pub use topology::{Patience, name_of};
