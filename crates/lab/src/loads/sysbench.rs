//! Sysbench's own tables, filled here: its `prepare` draws other rows each time, whatever seed it is given.

use super::{LoadSize, insert_rows};
use crate::Result;
use crate::random::Random;
use crate::sql::Session;

/// How the values of the indexed column are distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Distribution {
    /// All equally often.
    Uniform,
    /// As sysbench's `special` does: most are in the middle hundredth, the others around it.
    Special,
}

/// Makes the tables in the session's schema, and fills them.
pub(super) fn fill(
    session: &mut Session,
    size: LoadSize,
    distribution: Distribution,
    random: &mut Random,
) -> Result<()> {
    for table in (1..=size.tables).map(|number| format!("sbtest{number}")) {
        session.run(&format!(
            "CREATE TABLE {table} (id INTEGER NOT NULL AUTO_INCREMENT, k INTEGER DEFAULT '0' NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, \
             pad CHAR(60) DEFAULT '' NOT NULL, PRIMARY KEY (id)) ENGINE=InnoDB"
        ))?;
        insert_rows(session, &table, 1..=size.rows, |id| {
            let k = distribution.draw(size.rows, random);
            format!("{id}, {k}, '{}', '{}'", digits(random, 10), digits(random, 5))
        })?;
        session.run(&format!("CREATE INDEX k_{} ON {table} (k)", table.trim_start_matches("sbtest")))?;
    }
    Ok(())
}

impl Distribution {
    /// A number from 1 to `rows`.
    fn draw(self, rows: u64, random: &mut Random) -> u64 {
        /// Of 100 numbers so many are in the middle.
        const IN_THE_MIDDLE: u64 = 75;
        /// The others are the mean of so many.
        const AVERAGED: u64 = 12;
        let mut any = |below: u64| random.below(below.max(1) as usize) as u64;
        match self {
            Distribution::Special if any(100) < IN_THE_MIDDLE => 1 + rows / 2 - rows / 200 + any(rows / 100),
            Distribution::Special => 1 + (0..AVERAGED).map(|_| any(rows)).sum::<u64>() / AVERAGED,
            Distribution::Uniform => 1 + any(rows),
        }
    }
}

/// Groups of eleven digits.
fn digits(random: &mut Random, groups: usize) -> String {
    let groups: Vec<String> = (0..groups).map(|_| format!("{:011}", random.below(100_000_000_000))).collect();
    groups.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_numbers_are_mostly_in_the_middle() {
        let mut random = Random::new(1);
        let drawn: Vec<u64> = (0..10_000).map(|_| Distribution::Special.draw(1_000, &mut random)).collect();
        assert!(drawn.iter().all(|number| (1..=1_000).contains(number)));
        let middle = drawn.iter().filter(|number| (495..=506).contains(*number)).count();
        assert!((7_300..8_300).contains(&middle), "{middle}");
        assert!((0..100).all(|_| Distribution::Special.draw(1, &mut random) == 1));
    }

    #[test]
    fn texts_fill_their_columns_as_those_of_sysbench() {
        let mut random = Random::new(1);
        assert_eq!((digits(&mut random, 10).len(), digits(&mut random, 5).len()), (119, 59));
    }
}
