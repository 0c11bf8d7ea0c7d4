//! Bulk jobs among small transactions: now and then one worker changes a tenth of a table in one transaction, or copies and deletes as much.

use super::{Load, LoadSize, Worker, insert_rows};
use crate::Result;
use crate::random::Random;
use crate::sql::Session;

pub(super) struct Bulk;

impl Load for Bulk {
    fn fill(&self, session: &mut Session, size: LoadSize, random: &mut Random) -> Result<()> {
        for table in 1..=size.tables {
            for name in ["account", "archive"] {
                session.run(&format!(
                    "CREATE TABLE {name}{table} (id INT PRIMARY KEY, balance BIGINT NOT NULL, touched INT NOT NULL, KEY by_balance (balance)) ENGINE=InnoDB"
                ))?;
            }
            insert_rows(session, &format!("account{table}"), 1..=size.rows, |id| {
                format!("{id}, {}, 0", random.below(1_000))
            })?;
        }
        Ok(())
    }

    fn workers(&self) -> usize {
        4
    }

    fn worker(&self, number: usize, size: LoadSize, random: Random) -> Box<dyn Worker> {
        Box::new(Booking { is_bulk: number == 0, size, random, step: 0 })
    }
}

/// Small transactions between two bulk jobs of the one worker that has these.
const SMALL_BETWEEN: u64 = 400;

struct Booking {
    is_bulk: bool,
    size: LoadSize,
    random: Random,
    step: u64,
}

impl Booking {
    fn small(&mut self, session: &mut Session) -> Result<()> {
        let table = 1 + self.random.below(self.size.tables as usize);
        let (a, b) = (1 + self.random.below(self.size.rows as usize), 1 + self.random.below(self.size.rows as usize));
        // In the order of the keys, so that two transfers do not wait for each other.
        let (first, second) = (a.min(b), a.max(b));
        session.run("BEGIN")?;
        session.run(&format!("UPDATE account{table} SET balance = balance - 1 WHERE id = {first}"))?;
        session.run(&format!("UPDATE account{table} SET balance = balance + 1 WHERE id = {second}"))?;
        session.run("COMMIT")
    }

    fn bulk(&mut self, session: &mut Session) -> Result<()> {
        let table = 1 + self.random.below(self.size.tables as usize);
        let tenth = (self.size.rows / 10).max(1);
        let first = 1 + self.random.below((self.size.rows - tenth + 1) as usize) as u64;
        let range = format!("id BETWEEN {first} AND {}", first + tenth - 1);
        match self.step / SMALL_BETWEEN % 3 {
            0 => session.run(&format!("UPDATE account{table} SET touched = touched + 1 WHERE {range}")),
            1 => session.run(&format!("REPLACE INTO archive{table} SELECT * FROM account{table} WHERE {range}")),
            _ => session.run(&format!("DELETE FROM archive{table} WHERE {range}")),
        }
    }
}

impl Worker for Booking {
    fn transaction(&mut self, session: &mut Session) -> Result<()> {
        self.step += 1;
        if self.is_bulk && self.step.is_multiple_of(SMALL_BETWEEN) { self.bulk(session) } else { self.small(session) }
    }
}
