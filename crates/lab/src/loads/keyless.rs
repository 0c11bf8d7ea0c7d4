//! Tables without a key, with rows that are equal to others: they are found by all their columns, one of several.

use super::{Load, LoadSize, Worker, insert_rows};
use crate::Result;
use crate::random::Random;
use crate::sql::Session;

/// Different values of a column: so few that many rows are equal.
const VALUES: usize = 40;

pub(super) struct Keyless;

impl Load for Keyless {
    fn fill(&self, session: &mut Session, size: LoadSize, random: &mut Random) -> Result<()> {
        for table in 1..=size.tables {
            session.run(&format!("CREATE TABLE keyless{table} (a INT, b VARCHAR(20)) ENGINE=InnoDB"))?;
            insert_rows(session, &format!("keyless{table}"), 1..=size.rows, |_| {
                format!("{}, 'v{}'", random.below(VALUES), random.below(VALUES))
            })?;
        }
        Ok(())
    }

    fn workers(&self) -> usize {
        2
    }

    fn worker(&self, _number: usize, size: LoadSize, random: Random) -> Box<dyn Worker> {
        Box::new(Changing { size, random })
    }
}

struct Changing {
    size: LoadSize,
    random: Random,
}

impl Worker for Changing {
    fn transaction(&mut self, session: &mut Session) -> Result<()> {
        let random = &mut self.random;
        let table = 1 + random.below(self.size.tables as usize);
        let (a, b) = (random.below(VALUES), random.below(VALUES));
        session.run(&match random.below(4) {
            0 => format!("INSERT INTO keyless{table} VALUES ({a}, 'v{b}')"),
            1 => format!("DELETE FROM keyless{table} WHERE a = {a} ORDER BY b LIMIT 1"),
            _ => format!("UPDATE keyless{table} SET b = 'v{b}' WHERE a = {a} ORDER BY b LIMIT 1"),
        })
    }
}
