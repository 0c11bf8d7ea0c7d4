//! Counters: few rows that every transaction changes. Conflicts on the source, and nearly nothing left after folding.

use super::{Load, LoadSize, Worker, insert_rows};
use crate::Result;
use crate::random::Random;
use crate::sql::Session;

/// Rows of each table that are hot; the others are never changed.
const HOT_ROWS: usize = 20;

pub(super) struct Counters;

impl Load for Counters {
    fn fill(&self, session: &mut Session, size: LoadSize, _random: &mut Random) -> Result<()> {
        for table in 1..=size.tables {
            session.run(&format!(
                "CREATE TABLE counter{table} (id INT PRIMARY KEY, hits BIGINT NOT NULL, seen DATETIME(6)) ENGINE=InnoDB"
            ))?;
            insert_rows(session, &format!("counter{table}"), 1..=size.rows, |id| format!("{id}, 0, NULL"))?;
        }
        Ok(())
    }

    fn workers(&self) -> usize {
        4
    }

    fn worker(&self, _number: usize, size: LoadSize, random: Random) -> Box<dyn Worker> {
        Box::new(Counting { size, random })
    }
}

struct Counting {
    size: LoadSize,
    random: Random,
}

impl Worker for Counting {
    fn transaction(&mut self, session: &mut Session) -> Result<()> {
        let table = 1 + self.random.below(self.size.tables as usize);
        let id = 1 + self.random.below(HOT_ROWS.min(self.size.rows as usize));
        session.run(&format!("UPDATE counter{table} SET hits = hits + 1, seen = NOW(6) WHERE id = {id}"))
    }
}
