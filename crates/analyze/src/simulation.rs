//! How long a replica would take with so many appliers: a simulation with a simple model, so that its figures are for comparison.
//!
//! The model: to execute a transaction takes a fixed time, and one for each row change and statement. An applier takes the first
//! transaction for which nothing has to be waited any more. A transaction that waits for another begins when that has committed.
//! - To execute takes a processor, to wait for a commit does not.
//! - Order kept: commits come in the source's order, and all that have been executed when a commit begins commit together; an applier
//!   that has executed waits for its commit. Delegated: it does not wait, and goes on with the next; so many transactions may be open.
//! - Order free: one commit at a time, and all that are executed while one is on the way commit together behind it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::dependencies::{Dependency, Policy};

/// Finished transactions whose time is known one by one. Older ones are done when all before them are.
const WINDOW: usize = 1 << 16;

/// Transactions that are executed and not committed, at most, if commits are delegated.
const OPEN_MAX: u64 = 256;

/// Commits that are remembered where the order is free. What would have taken part in an earlier one is rare.
const COMMITS_MAX: usize = 1 << 10;

/// What things cost on the replica, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Costs {
    /// To begin a transaction and to read its events.
    pub transaction: f64,
    /// A row change.
    pub row: f64,
    /// A statement.
    pub statement: f64,
    /// A commit.
    pub commit: f64,
}

impl Default for Costs {
    /// Of a replica whose data is in memory, and which writes each commit to the disk.
    fn default() -> Costs {
        Costs { transaction: 60.0, row: 15.0, statement: 100.0, commit: 300.0 }
    }
}

impl Costs {
    /// So many times these costs.
    pub(crate) fn scaled(&self, scale: f64) -> Costs {
        let Costs { transaction, row, statement, commit } = *self;
        Costs {
            transaction: transaction * scale,
            row: row * scale,
            statement: statement * scale,
            commit: commit * scale,
        }
    }

    /// Nanoseconds of executing a transaction.
    pub(crate) fn execution(&self, rows: u64, statements: u64) -> u64 {
        (1e3 * (self.transaction + self.row * rows as f64 + self.statement * statements as f64)) as u64
    }
}

/// In which order transactions commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommitOrder {
    /// The source's.
    Preserve,
    /// The source's, and appliers do not wait for their commits.
    PreserveDelegated,
    /// Any.
    Free,
}

impl CommitOrder {
    /// All.
    pub const ALL: [CommitOrder; 3] = [CommitOrder::Preserve, CommitOrder::PreserveDelegated, CommitOrder::Free];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            CommitOrder::Preserve => "order kept",
            CommitOrder::PreserveDelegated => "order kept, commits delegated",
            CommitOrder::Free => "order free",
        }
    }
}

/// The part of one applier's time that more appliers do not make shorter, by the order of commits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct SerialShares {
    /// Order kept.
    pub preserve: f64,
    /// Order kept, commits delegated.
    pub preserve_delegated: f64,
    /// Order free.
    pub free: f64,
}

impl SerialShares {
    pub(crate) fn set(&mut self, order: CommitOrder, share: f64) {
        match order {
            CommitOrder::Preserve => self.preserve = share,
            CommitOrder::PreserveDelegated => self.preserve_delegated = share,
            CommitOrder::Free => self.free = share,
        }
    }

    /// How many times as fast appliers are that would be so many times as fast without it.
    pub(crate) fn applied(&self, order: CommitOrder, factor: f64) -> f64 {
        let share = match order {
            CommitOrder::Preserve => self.preserve,
            CommitOrder::PreserveDelegated => self.preserve_delegated,
            CommitOrder::Free => self.free,
        };
        1.0 / (share + (1.0 - share) / factor)
    }
}

/// What is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Setting {
    /// What may be at the same time.
    pub policy: Policy,
    /// In which order.
    pub order: CommitOrder,
    /// How many at a time. `None`: any number, and so the dependencies alone decide.
    pub appliers: Option<u32>,
}

/// A simulation that takes one transaction after the other. Times are nanoseconds.
#[derive(Debug)]
pub struct Simulation {
    setting: Setting,
    commit: u64,
    number: u64,
    /// When each applier is free, ascending.
    free: Vec<u64>,
    /// The same of processors.
    processors: Vec<u64>,
    /// When transactions have committed, by number modulo [`WINDOW`].
    committed: Vec<u64>,
    /// When all transactions up to one have.
    all_committed: Vec<u64>,
    /// The commit, perhaps of several, that has begun last.
    group_begin: u64,
    group_end: u64,
    /// Order free: when commits begin and end, one after the other.
    commits: BTreeMap<u64, u64>,
    end: u64,
}

impl Simulation {
    /// Of this setting, on a replica with so many processors.
    pub fn new(setting: Setting, costs: &Costs, processors: u32) -> Simulation {
        Simulation {
            setting,
            commit: (1e3 * costs.commit) as u64,
            number: 0,
            free: vec![0; setting.appliers.map_or(0, |appliers| appliers.max(1) as usize)],
            processors: vec![0; setting.appliers.map_or(0, |_| processors.max(1) as usize)],
            committed: vec![0; WINDOW],
            all_committed: vec![0; WINDOW],
            group_begin: 0,
            group_end: 0,
            commits: BTreeMap::new(),
            end: 0,
        }
    }

    /// What it simulates.
    pub fn setting(&self) -> Setting {
        self.setting
    }

    /// When all has committed.
    pub fn nanoseconds(&self) -> u64 {
        self.end
    }

    /// The next transaction.
    pub fn next(&mut self, execution: u64, all_before: u64, some: &[u64]) {
        self.number += 1;
        let number = self.number;
        let mut ready = self.all_committed_before(all_before);
        for &other in some {
            ready = ready.max(self.committed(other));
        }
        if self.setting.order == CommitOrder::PreserveDelegated && number > OPEN_MAX {
            ready = ready.max(self.committed(number - OPEN_MAX));
        }
        let begin = take(&mut self.processors, take(&mut self.free, ready));
        let executed = begin + execution;
        put(&mut self.processors, self.setting, executed);
        let committed = self.commit(executed);
        let released = if self.setting.order == CommitOrder::PreserveDelegated { executed } else { committed };
        put(&mut self.free, self.setting, released);
        let all = self.all_committed_before(number).max(committed);
        self.committed[number as usize % WINDOW] = committed;
        self.all_committed[number as usize % WINDOW] = all;
        self.end = all;
    }

    /// When what is executed then has committed.
    fn commit(&mut self, executed: u64) -> u64 {
        if self.setting.appliers.is_none() {
            return executed + self.commit;
        }
        if self.setting.order == CommitOrder::Free {
            return self.commit_in_any_order(executed);
        }
        if executed > self.group_begin || self.number == 1 {
            self.group_begin = executed.max(self.group_end);
            self.group_end = self.group_begin + self.commit;
        }
        self.group_end
    }

    /// Transactions are not simulated in the order in which they are executed, so there are commits before and behind.
    fn commit_in_any_order(&mut self, executed: u64) -> u64 {
        let before = self.commits.range(..=executed).next_back();
        let earliest =
            before.map_or(executed, |(&begin, &end)| if begin == executed { begin } else { end.max(executed) });
        // It takes part in a commit that begins soon.
        if let Some((_, &end)) = self.commits.range(earliest..earliest + self.commit.max(1)).next() {
            return end;
        }
        let end = earliest + self.commit;
        self.commits.insert(earliest, end);
        if self.commits.len() > COMMITS_MAX {
            self.commits.pop_first();
        }
        end
    }

    fn committed(&self, number: u64) -> u64 {
        match number + WINDOW as u64 > self.number {
            true => self.committed[number as usize % WINDOW],
            false => self.all_committed_before(number + 1),
        }
    }

    /// When all with a smaller number than this had committed.
    fn all_committed_before(&self, number: u64) -> u64 {
        let last = number.saturating_sub(1).max((self.number + 1).saturating_sub(WINDOW as u64));
        match last.min(self.number - 1) {
            0 => 0,
            last => self.all_committed[last as usize % WINDOW],
        }
    }
}

/// When one of these takes what is ready then. None at all: any number of them.
fn take(free: &mut Vec<u64>, ready: u64) -> u64 {
    // The one that has waited the shortest, so that the others are there for what is ready earlier.
    match free.partition_point(|&free| free <= ready) {
        0 if free.is_empty() => ready,
        0 => free.remove(0),
        place => {
            free.remove(place - 1);
            ready
        }
    }
}

fn put(free: &mut Vec<u64>, setting: Setting, released: u64) {
    if setting.appliers.is_some() {
        let place = free.partition_point(|&free| free <= released);
        free.insert(place, released);
    }
}

/// What transactions wait for, one after the other, as one piece.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    all_before: Vec<u64>,
    /// Where those of `some` end.
    ends: Vec<u32>,
    some: Vec<u64>,
}

impl Waits {
    pub(crate) fn push(&mut self, dependency: &Dependency) {
        self.all_before.push(dependency.all_before);
        self.some.extend_from_slice(&dependency.some);
        self.ends.push(self.some.len() as u32);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u64])> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        let ranges = begins.zip(&self.ends).map(|(begin, &end)| &self.some[begin as usize..end as usize]);
        self.all_before.iter().copied().zip(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs { transaction: 100.0, row: 0.0, statement: 0.0, commit: 100.0 };

    /// Microseconds of simulating transactions, each with its execution's microseconds and those that it waits for.
    fn simulate(order: CommitOrder, appliers: Option<u32>, transactions: &[(u64, &[u64])]) -> u64 {
        let mut simulation = Simulation::new(Setting { policy: Policy::WriteSet, order, appliers }, &COSTS, 64);
        for &(execution, some) in transactions {
            simulation.next(execution * 1000, 1, some);
        }
        simulation.nanoseconds() / 1000
    }

    #[test]
    fn one_applier_takes_the_sum() {
        let transactions: Vec<(u64, &[u64])> = vec![(100, &[]); 10];
        for order in [CommitOrder::Preserve, CommitOrder::Free] {
            assert_eq!(simulate(order, Some(1), &transactions), 2000, "{order:?}");
        }
    }

    #[test]
    fn independent_transactions_divide_over_appliers() {
        let transactions: Vec<(u64, &[u64])> = vec![(100, &[]); 100];
        // Two at a time execute together and commit together.
        for order in [CommitOrder::Preserve, CommitOrder::Free] {
            assert_eq!(simulate(order, Some(2), &transactions), 50 * 200, "{order:?}");
        }
        // An applier is never idle, and a hundred executions divide by two.
        let delegated = simulate(CommitOrder::PreserveDelegated, Some(2), &transactions);
        assert!((50 * 100..=50 * 100 + 200).contains(&delegated), "{delegated}");
    }

    #[test]
    fn processors_limit_what_executes_and_not_what_commits() {
        let setting = Setting { policy: Policy::WriteSet, order: CommitOrder::Preserve, appliers: Some(4) };
        let mut simulation = Simulation::new(setting, &COSTS, 1);
        for _ in 0..100 {
            simulation.next(100_000, 1, &[]);
        }
        let microseconds = simulation.nanoseconds() / 1000;
        assert!((100 * 100..=100 * 100 + 300).contains(&microseconds), "{microseconds}");
    }

    #[test]
    fn chain_is_no_faster_with_more_appliers() {
        let others: Vec<Vec<u64>> = (0..10).map(|number| if number == 0 { vec![] } else { vec![number] }).collect();
        let transactions: Vec<(u64, &[u64])> = others.iter().map(|some| (100, &**some)).collect();
        assert_eq!(simulate(CommitOrder::Preserve, Some(16), &transactions), 2000);
        assert_eq!(simulate(CommitOrder::Preserve, None, &transactions), 2000);
    }

    #[test]
    fn long_transaction_idles_appliers_unless_commits_are_delegated() {
        let mut transactions: Vec<(u64, &[u64])> = vec![(10_000, &[])];
        transactions.extend([(100, &[] as &[u64]); 99]);
        // One is busy for long, the other executes one and waits for its turn.
        let waiting = simulate(CommitOrder::Preserve, Some(2), &transactions);
        assert!(waiting > 10_000 + 97 * 100, "{waiting}");
        let delegated = simulate(CommitOrder::PreserveDelegated, Some(2), &transactions);
        assert_eq!(delegated, 10_000 + 100, "all others are executed meanwhile, and commit with it");
    }

    #[test]
    fn commits_in_any_order_are_one_at_a_time() {
        // The first is executed after 1 ms, the others after 0.1, 0.15 and 0.2 ms: one commits, and two together behind it.
        let transactions: Vec<(u64, &[u64])> = vec![(1000, &[]), (100, &[]), (150, &[]), (200, &[])];
        let mut simulation = Simulation::new(
            Setting { policy: Policy::WriteSet, order: CommitOrder::Free, appliers: Some(4) },
            &COSTS,
            64,
        );
        let mut committed = Vec::new();
        for (execution, some) in transactions {
            simulation.next(execution * 1000, 1, some);
            committed.push(simulation.committed(simulation.number) / 1000);
        }
        assert_eq!(committed, [1100, 200, 300, 300]);
    }

    #[test]
    fn old_transactions_are_forgotten_safely() {
        let count = 3 * WINDOW as u64;
        let mut simulation = Simulation::new(
            Setting { policy: Policy::WriteSet, order: CommitOrder::Free, appliers: Some(4) },
            &COSTS,
            64,
        );
        for number in 1..=count {
            simulation.next(1000, 1, if number == count { &[1, 5] } else { &[] });
        }
        assert!(simulation.nanoseconds() > 0);
    }

    #[test]
    fn waits_keep_what_was_pushed() {
        let mut waits = Waits::default();
        let all = [(1, vec![]), (2, vec![7, 8]), (9, vec![]), (3, vec![4])];
        for (all_before, some) in all.clone() {
            waits.push(&Dependency { all_before, some });
        }
        let back: Vec<(u64, Vec<u64>)> = waits.iter().map(|(before, some)| (before, some.to_vec())).collect();
        assert_eq!(back, all);
    }
}
