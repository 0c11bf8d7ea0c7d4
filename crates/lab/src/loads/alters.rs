//! Definitions among changes: one worker alters tables online that the others write to.

use super::{Load, LoadSize, Worker, insert_rows, letters};
use crate::Result;
use crate::random::Random;
use crate::sql::Session;

/// What the altering worker does to a table, one after the other; `{t}` is its number. It leaves the table as it was. All but the last are online: others write
/// to the table meanwhile.
const ROUND: [&str; 8] = [
    "ALTER TABLE item{t} ADD COLUMN extra INT NULL, ALGORITHM=INPLACE, LOCK=NONE",
    "ALTER TABLE item{t} ADD INDEX by_extra (extra), ALGORITHM=INPLACE, LOCK=NONE",
    "ALTER TABLE item{t} MODIFY note VARCHAR(200) NOT NULL, ALGORITHM=INPLACE, LOCK=NONE",
    "UPDATE item{t} SET extra = id % 100 WHERE id <= 50",
    "ALTER TABLE item{t} DROP INDEX by_extra, ALGORITHM=INPLACE, LOCK=NONE",
    "ALTER TABLE item{t} ALTER COLUMN extra SET DEFAULT 7",
    "ALTER TABLE item{t} DROP COLUMN extra, ALGORITHM=INPLACE, LOCK=NONE",
    "ALTER TABLE item{t} MODIFY note VARCHAR(120) NOT NULL",
];
/// Small transactions of the altering worker between two of its alterations.
const SMALL_BETWEEN: u64 = 50;

pub(super) struct Alters;

impl Load for Alters {
    fn fill(&self, session: &mut Session, size: LoadSize, random: &mut Random) -> Result<()> {
        for table in 1..=size.tables {
            session.run(&format!(
                "CREATE TABLE item{table} (id INT PRIMARY KEY, price INT NOT NULL, note VARCHAR(120) NOT NULL, KEY by_price (price)) ENGINE=InnoDB"
            ))?;
            insert_rows(session, &format!("item{table}"), 1..=size.rows, |id| {
                format!("{id}, {}, '{}'", random.below(1_000), letters(random, 0, 100))
            })?;
        }
        Ok(())
    }

    fn workers(&self) -> usize {
        4
    }

    fn worker(&self, number: usize, size: LoadSize, random: Random) -> Box<dyn Worker> {
        Box::new(Altering { alters: number == 0, size, random, step: 0, altered: 0 })
    }
}

struct Altering {
    alters: bool,
    size: LoadSize,
    random: Random,
    step: u64,
    /// Alterations that were made: one that had to give way to a lock is tried again, since those behind it need it.
    altered: u64,
}

impl Worker for Altering {
    fn transaction(&mut self, session: &mut Session) -> Result<()> {
        self.step += 1;
        if self.alters && self.step.is_multiple_of(SMALL_BETWEEN) {
            let number = self.altered as usize;
            let table = 1 + (number / ROUND.len()) as u64 % self.size.tables;
            session.run(&ROUND[number % ROUND.len()].replace("{t}", &table.to_string()))?;
            self.altered += 1;
            return Ok(());
        }
        let table = 1 + self.random.below(self.size.tables as usize);
        let id = 1 + self.random.below(self.size.rows as usize);
        let note = letters(&mut self.random, 0, 100);
        session.run(&format!("UPDATE item{table} SET price = price + 1, note = '{note}' WHERE id = {id}"))
    }
}
