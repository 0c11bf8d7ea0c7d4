//! Appliers that each fold and commit their own rows, independently of each other.
//!
//! ```text
//! gather (read, fold) ─▶ coordinator ─▶ divider ─share─▶ a worker for each applier ─▶ replica
//!                                           └─ what cannot be divided ─▶ the worker, with nothing beside it
//! ```
//! The gathering stage folds for all of them. The *divider* divides each batch by the keys of its rows into *shares* (`schedule/shards/`), and gives each
//! applier its own. An applier commits a share together with its own row of `spate.checkpoint`, and does not wait for the others. The *board* knows
//! which batches all their appliers have committed; the *keeper* moves the row of the replica as a whole behind them, and only then do they count
//! as applied.
//!
//! After a crash, the rows tell how far each applier had come. The next session reads the batches between once more and leaves out the rows that
//! are applied (`gather.rs`, [`spate_schedule::shards::Passed`]); so it may have any number of appliers, or another consistency.

mod board;
mod crew;
mod divider;
mod keeper;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use spate_schedule::shards::{DivideBy, Rules};

pub(crate) use board::Board;
pub(crate) use crew::Crew;
pub(crate) use divider::Divider;
pub(crate) use keeper::Keeper;

/// Default of `--max-spread`.
pub const SPREAD_DEFAULT: Duration = Duration::from_secs(60);

/// Default of `--max-delay`.
pub const DELAY_DEFAULT: Duration = Duration::from_secs(60);

/// The most appliers: each has a connection, and what is on its way there takes memory.
pub const APPLIERS_MAX: u32 = 32;

/// How appliers divide the rows among themselves.
#[derive(Debug, Clone)]
pub struct Sharding {
    /// How many there are.
    pub appliers: u32,
    /// What tables are divided by.
    pub by: DivideBy,
    /// What a person has said; may change at any time.
    pub rules: RuleSource,
    /// So much of the source's time may lie between what two appliers have applied.
    pub spread_max: Duration,
    /// So long the others wait for one that is further behind, and then go on.
    pub delay_max: Duration,
}

/// The rules, which somebody may replace while they are in force.
#[derive(Debug, Clone, Default)]
pub struct RuleSource(Arc<Mutex<Rules>>);

impl RuleSource {
    /// These rules, for now.
    pub fn new(rules: Rules) -> RuleSource {
        RuleSource(Arc::new(Mutex::new(rules)))
    }

    /// From the next batch on, these are in force.
    pub fn replace(&self, rules: Rules) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    /// Those in force.
    pub fn now(&self) -> Rules {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn differ_from(&self, rules: &Rules) -> bool {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) != *rules
    }
}
