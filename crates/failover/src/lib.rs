//! Failover without loss.
//!
//! - `topology`: what is asked of each server in one round, and `channels` of its replication; `history`: what one has applied and another lacks;
//! - [`plan`]: what a promotion would do and lose, decided without I/O;
//! - [`follow`](mod@follow): one server follows another; `surplus` reads what it has too much, `undo` undoes it;
//! - [`watch`](mod@watch): several watchers decide through etcd that a source is dead;
//! - `steps` and `fence`: what is done on one server; [`promote`](mod@promote): all of them, in order.

mod channels;
mod error;
mod exclusion;
mod fence;
pub mod follow;
pub mod history;
mod of_spate;
pub mod plan;
pub mod promote;
mod round;
pub mod steps;
mod surplus;
pub mod topology;
mod undo;
pub mod watch;

pub use error::{Error, Result};
pub use follow::{FollowOptions, Followed, follow};
pub use history::{History, Range, Surplus};
pub use of_spate::{OfSpate, await_spate};
pub use promote::{ArchiveToApply, PromoteOptions, Promotion, dry_run, promote};
pub use steps::ReplicationAccount;
pub use topology::{Patience, name_of};
pub use watch::{WatchOptions, watch};
