//! Wide rows: many columns, texts and blobs up to some hundred kilobytes, of which updates change a little.

use super::{Load, LoadSize, Worker, insert_rows, letters};
use crate::Result;
use crate::random::Random;
use crate::sql::Session;

/// Columns with a small text.
const COLUMNS: usize = 60;
/// A blob's size, at most.
const BLOB_BYTES_MAX: usize = 200_000;

pub(super) struct Wide;

impl Load for Wide {
    fn fill(&self, session: &mut Session, size: LoadSize, random: &mut Random) -> Result<()> {
        let columns: Vec<String> =
            (1..=COLUMNS).map(|number| format!("c{number} VARCHAR(30) NOT NULL DEFAULT ''")).collect();
        for table in 1..=size.tables {
            session.run(&format!(
                "CREATE TABLE wide{table} (id INT PRIMARY KEY, n INT NOT NULL, {}, body MEDIUMTEXT, picture MEDIUMBLOB) ENGINE=InnoDB",
                columns.join(", ")
            ))?;
            let into = format!("wide{table} (id, n, c1, c30, body, picture)");
            insert_rows(session, &into, 1..=size.rows, |id| {
                format!(
                    "{id}, 0, '{}', '{}', '{}', REPEAT('x', {})",
                    letters(random, 0, 30),
                    letters(random, 0, 30),
                    letters(random, 0, 400),
                    random.below(2_000)
                )
            })?;
        }
        Ok(())
    }

    fn workers(&self) -> usize {
        4
    }

    fn worker(&self, _number: usize, size: LoadSize, random: Random) -> Box<dyn Worker> {
        Box::new(Writing { size, random })
    }
}

struct Writing {
    size: LoadSize,
    random: Random,
}

impl Worker for Writing {
    fn transaction(&mut self, session: &mut Session) -> Result<()> {
        let random = &mut self.random;
        let table = 1 + random.below(self.size.tables as usize);
        let id = 1 + random.below(self.size.rows as usize);
        let change = match random.below(10) {
            0 => {
                let (letter, bytes) = (letters(random, 1, 1), random.below(BLOB_BYTES_MAX));
                format!("picture = REPEAT('{letter}', {bytes})")
            }
            1 | 2 => format!("body = '{}'", letters(random, 0, 4_000)),
            3 => "picture = NULL".to_owned(),
            _ => format!("n = n + 1, c{} = '{}'", 1 + random.below(COLUMNS), letters(random, 0, 30)),
        };
        session.run(&format!("UPDATE wide{table} SET {change} WHERE id = {id}"))
    }
}
