//! Which transactions one has to wait for, under each policy.

use serde::Serialize;

use crate::hashed::HashedMap;
use crate::transaction::{Reach, Transaction};

/// Rows of which the last transaction is remembered, in each of two generations. What was changed so long ago is taken for done.
const ROWS_MAX: usize = 2 << 20;

/// Schemas likewise.
const SCHEMAS_MAX: usize = 64 << 10;

/// How it is decided what may be applied at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Transactions of different schemas.
    Shard,
    /// MariaDB: transactions that the source committed together.
    CommitGroup,
    /// MySQL: transactions of which none had committed before the other was about to.
    LogicalClock,
    /// Transactions that change different rows.
    WriteSet,
}

impl Policy {
    /// Its name, as options spell it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Shard => "shard",
            Policy::CommitGroup => "commit-group",
            Policy::LogicalClock => "logical-clock",
            Policy::WriteSet => "write-set",
        }
    }
}

/// What a transaction waits for. Transactions have numbers from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dependency {
    /// All with a smaller number than this.
    pub all_before: u64,
    /// And these.
    pub some: Vec<u64>,
}

/// Finds dependencies, one transaction after the other.
#[derive(Debug)]
pub struct Dependencies {
    policy: Policy,
    number: u64,
    /// The last that nothing may be beside.
    barrier: u64,
    /// By schema or by row: the last that changed it. Of two generations, the older is dropped when the newer is full.
    last: [HashedMap<u64>; 2],
    group: Option<(u32, u64)>,
    group_begin: u64,
}

impl Dependencies {
    /// Under this policy.
    pub fn new(policy: Policy) -> Dependencies {
        Dependencies { policy, number: 0, barrier: 0, last: Default::default(), group: None, group_begin: 0 }
    }

    /// What the next transaction waits for.
    pub fn next(&mut self, transaction: &Transaction, found: &mut Dependency) {
        self.number += 1;
        found.some.clear();
        found.all_before = self.barrier + 1;
        let is_alone = match self.policy {
            Policy::Shard | Policy::CommitGroup | Policy::LogicalClock => transaction.reach == Reach::Definition,
            Policy::WriteSet => transaction.reach != Reach::Rows,
        };
        if is_alone {
            self.barrier = self.number;
            self.group = None;
            found.all_before = self.number;
            return;
        }
        match self.policy {
            Policy::Shard => self.those_of(&transaction.schemas, SCHEMAS_MAX, found),
            Policy::WriteSet => {
                self.those_of(&transaction.keys, ROWS_MAX, found);
                self.those_of(&transaction.keyless_tables, ROWS_MAX, found);
            }
            Policy::CommitGroup => {
                if transaction.commit_group.is_none() || transaction.commit_group != self.group {
                    self.group = transaction.commit_group;
                    self.group_begin = self.number;
                }
                found.all_before = found.all_before.max(self.group_begin);
            }
            Policy::LogicalClock => {
                // Numbers begin again with each file of the source; the first of a file then waits for all of the file before.
                let distance = transaction
                    .logical_clock
                    .map_or(1, |clock| clock.sequence_number.saturating_sub(clock.last_committed).max(1));
                found.all_before = found.all_before.max((self.number + 1).saturating_sub(distance));
            }
        }
    }

    fn those_of(&mut self, parts: &[u64], parts_max: usize, found: &mut Dependency) {
        for &part in parts {
            let newer = self.last[0].insert(part, self.number);
            let Some(last) = newer.or_else(|| self.last[1].get(&part).copied()) else { continue };
            if last >= found.all_before && last != self.number {
                found.some.push(last);
            }
        }
        if self.last[0].len() > parts_max {
            self.last.swap(0, 1);
            self.last[0].clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use spate_binlog::LogicalClock;

    use super::*;

    fn all(policy: Policy, transactions: &[Transaction]) -> Vec<(u64, Vec<u64>)> {
        let mut dependencies = Dependencies::new(policy);
        let mut found = Dependency::default();
        let next = |transaction| {
            dependencies.next(transaction, &mut found);
            (found.all_before, found.some.clone())
        };
        transactions.iter().map(next).collect()
    }

    fn rows(keys: &[u64], schemas: &[u64]) -> Transaction {
        Transaction { keys: keys.to_vec(), schemas: schemas.to_vec(), ..Transaction::default() }
    }

    #[test]
    fn rows_wait_for_the_last_change_of_each() {
        let transactions = [rows(&[1, 2], &[]), rows(&[3], &[]), rows(&[2, 3], &[]), rows(&[1], &[])];
        assert_eq!(all(Policy::WriteSet, &transactions), [(1, vec![]), (1, vec![]), (1, vec![1, 2]), (1, vec![1])]);
    }

    #[test]
    fn nothing_is_beside_a_definition() {
        let definition = Transaction { reach: Reach::Definition, ..Transaction::default() };
        let transactions = [rows(&[1], &[7]), definition, rows(&[1], &[7]), rows(&[2], &[7])];
        assert_eq!(all(Policy::WriteSet, &transactions), [(1, vec![]), (2, vec![]), (3, vec![]), (3, vec![])]);
        assert_eq!(all(Policy::Shard, &transactions), [(1, vec![]), (2, vec![]), (3, vec![]), (3, vec![3])]);
    }

    #[test]
    fn statements_are_alone_where_rows_decide() {
        let statement = Transaction { reach: Reach::Statement, ..rows(&[], &[7]) };
        let transactions = [rows(&[1], &[8]), statement, rows(&[2], &[8])];
        assert_eq!(all(Policy::WriteSet, &transactions), [(1, vec![]), (2, vec![]), (3, vec![])]);
        assert_eq!(all(Policy::Shard, &transactions), [(1, vec![]), (1, vec![]), (1, vec![1])]);
    }

    #[test]
    fn rows_that_cannot_be_told_apart_wait_for_their_table() {
        let bare = |table| Transaction { keyless_rows: 1, keyless_tables: vec![table], ..Transaction::default() };
        assert_eq!(all(Policy::WriteSet, &[bare(7), bare(8), bare(7)]), [(1, vec![]), (1, vec![]), (1, vec![1])]);
    }

    #[test]
    fn commit_groups_wait_for_the_group_before() {
        let of = |group| Transaction { commit_group: group, ..Transaction::default() };
        let transactions = [of(Some((0, 5))), of(Some((0, 5))), of(Some((0, 9))), of(None), of(None)];
        let before: Vec<u64> = all(Policy::CommitGroup, &transactions).into_iter().map(|found| found.0).collect();
        assert_eq!(before, [1, 1, 3, 4, 5]);
    }

    #[test]
    fn clocks_wait_for_what_had_committed() {
        let of = |last_committed, sequence_number| Transaction {
            logical_clock: Some(LogicalClock { last_committed, sequence_number }),
            ..Transaction::default()
        };
        // The last is the first of another file.
        let transactions = [of(0, 1), of(1, 2), of(1, 3), of(2, 4), of(0, 1)];
        let before: Vec<u64> = all(Policy::LogicalClock, &transactions).into_iter().map(|found| found.0).collect();
        assert_eq!(before, [1, 2, 2, 3, 5]);
    }
}
