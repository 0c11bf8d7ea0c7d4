//! Which applier applies which rows, where several apply independently of each other.
//!
//! The rows of a table are divided by their keys where no other unique key of the table can come between them, and where keys are equal only if
//! their bytes are. Other tables go to one applier as a whole. What is more than rows that can be rolled back is done by one, while the others wait.
//!
//! The map must say the same of a row for as long as the appliers are at different positions: also after a crash, and in another version of
//! Spate. What it goes by is kept on the replica.

mod divide;
mod passed;
mod rules;

use std::collections::BTreeMap;
use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

pub(crate) use passed::Left;
pub use passed::Passed;
pub use rules::{Action, Hash, RuleError, Rules};

use crate::definition::FoldPolicy;
use crate::segment::Segment;
use crate::{Batch, TablePlan};

/// The version of how rows are divided. A replica whose appliers are at different positions can be gone on with only by the same.
pub const VERSION: u64 = 2;

/// Schemas and tables that are given appliers one after the other; those that come later are given them by their names. All of them are kept in one
/// statement, some hundred bytes each at most.
const ASSIGNED_MAX: usize = 10_000;

/// What a table is divided by, unless a rule says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DivideBy {
    /// The keys of its rows.
    Row,
    /// Its schema.
    Schema,
}

impl DivideBy {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            DivideBy::Row => "row",
            DivideBy::Schema => "schema",
        }
    }

    /// By its name.
    pub fn of_name(name: &str) -> Option<DivideBy> {
        [DivideBy::Row, DivideBy::Schema].into_iter().find(|by| by.name() == name)
    }
}

/// Which applier applies which rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardMap {
    /// How many appliers there are.
    pub appliers: u32,
    /// What tables are divided by that no rule names.
    pub by: DivideBy,
    /// What a person has said.
    pub rules: Rules,
    /// The appliers of schemas and tables that were given one after the other.
    pub assigned: BTreeMap<String, u32>,
}

/// Who applies a table's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Way {
    /// All appliers: the hash of the row's key says which.
    ByRow,
    /// This one.
    Applier(u32),
    /// One that is yet to be found for this schema or table.
    Unassigned(String),
    /// One, while all others wait.
    Critical,
}

/// Why a batch is applied by one applier, while the others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Together {
    /// It holds more than rows that can be rolled back.
    Statement,
    /// It changes a critical table.
    Critical,
    /// It changes rows in an order that no single applier knows: keys that move, of which the source logs only a part, or raise a counter.
    Order,
}

impl fmt::Display for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Together::Statement => "more than rows",
            Together::Critical => "a critical table",
            Together::Order => "keys that change",
        })
    }
}

impl ShardMap {
    /// A map of so many appliers.
    pub fn new(appliers: u32, by: DivideBy, rules: Rules) -> ShardMap {
        ShardMap { appliers, by, rules, assigned: BTreeMap::new() }
    }

    /// The applier of a row whose key has this hash.
    pub(crate) fn of_hash(&self, hash: u64) -> u32 {
        u32::try_from(hash % u64::from(self.appliers.max(1))).unwrap_or_default()
    }

    pub(crate) fn way(&self, plan: &TablePlan) -> Way {
        let definition = &plan.definition;
        let name = &definition.name;
        let otherwise = match self.by {
            DivideBy::Row => Action::ByRow,
            DivideBy::Schema => Action::BySchema,
        };
        let action = self.rules.action(name, otherwise);
        // What foreign keys do to other tables' rows has an order among these tables.
        if definition.has_engine_actions && action != Action::Critical {
            return Way::Applier(0);
        }
        match action {
            Action::Applier(number) => Way::Applier(number),
            Action::Critical => Way::Critical,
            Action::ByRow if is_divisible(plan) => Way::ByRow,
            Action::ByRow | Action::ByTable => self.of_shard(name.full()),
            Action::BySchema => self.of_shard(name.schema.clone()),
        }
    }

    /// How the tables of a batch are divided: for each, a number for its name and one for its way. If the replica's table is altered while appliers are at
    /// different positions, the second becomes another.
    pub fn dealt(&self, batch: &Batch) -> Vec<(u64, u64)> {
        batch.segments().flat_map(Segment::plans).map(|plan| self.dealt_as(plan)).collect()
    }

    pub(crate) fn dealt_as(&self, plan: &TablePlan) -> (u64, u64) {
        let definition = &plan.definition;
        let way = match self.way(plan) {
            Way::ByRow => format!("by {:?}", definition.row_key),
            Way::Applier(number) => format!("to {number}"),
            Way::Unassigned(_) | Way::Critical => "together".to_owned(),
        };
        (xxh3_64(definition.name.full().as_bytes()), xxh3_64(way.as_bytes()))
    }

    fn of_shard(&self, shard: String) -> Way {
        match self.rules.hash() {
            Hash::Name => Way::Applier(self.of_hash(xxh3_64(shard.as_bytes()))),
            Hash::RoundRobin => match self.assigned.get(&shard) {
                Some(&own) => Way::Applier(own),
                None if self.assigned.len() >= ASSIGNED_MAX => Way::Applier(self.of_hash(xxh3_64(shard.as_bytes()))),
                None => Way::Unassigned(shard),
            },
        }
    }

    /// Gives an applier to each shard of the batch that has none. True if there was one.
    pub fn assign(&mut self, batch: &Batch) -> bool {
        let before = self.assigned.len();
        for plan in batch.segments().flat_map(Segment::plans) {
            if let Way::Unassigned(shard) = self.way(plan) {
                let next = u32::try_from(self.assigned.len()).unwrap_or_default() % self.appliers.max(1);
                self.assigned.insert(shard, next);
            }
        }
        self.assigned.len() > before
    }
}

/// True if changes of the table's rows have to do with each other only if they are of one row key.
pub(crate) fn is_divisible(plan: &TablePlan) -> bool {
    let definition = &plan.definition;
    plan.policy == FoldPolicy::Fold
        && definition.is_transactional
        && !definition.is_sequence
        && !definition.has_hidden_unique_key
        && plan.conflicts().is_some_and(|conflicts| conflicts.others.is_empty() && conflicts.row.is_of_bytes())
}
