//! Definitions among small changes: half of the transactions are definitions.

use super::{Load, LoadSize, Worker, insert_rows, letters};
use crate::Result;
use crate::random::Random;
use crate::sql::Session;

/// One round. `{i}` is its number, `{id}` a row of the schema's first table. It leaves no table behind.
const ROUND: [&str; 14] = [
    "CREATE TABLE d{i} (id INT PRIMARY KEY, v INT)",
    "INSERT INTO d{i} VALUES (1, {i})",
    "ALTER TABLE d{i} ADD COLUMN w INT",
    "INSERT INTO d{i} VALUES (2, {i}, {i})",
    "RENAME TABLE d{i} TO r{i}",
    "UPDATE r{i} SET v = v + 1",
    "UPDATE sbtest1 SET k = k + 1 WHERE id = {id}",
    "TRUNCATE TABLE r{i}",
    "INSERT INTO r{i} VALUES (3, {i}, {i})",
    "CREATE TABLE s{i} (id INT PRIMARY KEY) SELECT id, k FROM sbtest1 WHERE id <= 3",
    "UPDATE s{i} SET k = 0 WHERE id = 1",
    "DROP TABLE s{i}",
    "UPDATE sbtest1 SET k = k - 1 WHERE id = {id}",
    "DROP TABLE r{i}",
];

pub(super) struct Definitions;

impl Load for Definitions {
    fn fill(&self, session: &mut Session, size: LoadSize, random: &mut Random) -> Result<()> {
        for table in 1..=size.tables {
            // As sysbench makes them.
            session.run(&format!(
                "CREATE TABLE sbtest{table} (id INTEGER NOT NULL AUTO_INCREMENT, k INTEGER NOT NULL DEFAULT 0, c CHAR(120) NOT NULL DEFAULT '',
                 pad CHAR(60) NOT NULL DEFAULT '', PRIMARY KEY (id), KEY k_{table} (k)) ENGINE=InnoDB"
            ))?;
            insert_rows(session, &format!("sbtest{table} (id, k, c, pad)"), 1..=size.rows, |id| {
                format!("{id}, {}, '{}', '{}'", random.below(1_000), letters(random, 119, 119), letters(random, 59, 59))
            })?;
        }
        Ok(())
    }

    fn workers(&self) -> usize {
        1
    }

    fn worker(&self, _number: usize, size: LoadSize, _random: Random) -> Box<dyn Worker> {
        Box::new(Rounds { rows: size.rows, statement: 0 })
    }
}

struct Rounds {
    rows: u64,
    statement: u64,
}

impl Worker for Rounds {
    fn transaction(&mut self, session: &mut Session) -> Result<()> {
        let (round, place) = (self.statement / ROUND.len() as u64, (self.statement % ROUND.len() as u64) as usize);
        self.statement += 1;
        let id = 1 + round % self.rows.max(1);
        session.run(&ROUND[place].replace("{i}", &round.to_string()).replace("{id}", &id.to_string()))
    }
}
