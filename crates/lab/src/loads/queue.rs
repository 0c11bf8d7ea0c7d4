//! Queues: jobs are inserted, taken, and deleted when they are done. A backlog of them folds to nearly nothing, and the table stays small.

use super::{Load, LoadSize, Worker, insert_rows, letters};
use crate::Result;
use crate::random::Random;
use crate::sql::Session;

pub(super) struct Queue;

impl Load for Queue {
    fn fill(&self, session: &mut Session, size: LoadSize, random: &mut Random) -> Result<()> {
        for table in 1..=size.tables {
            session.run(&format!(
                "CREATE TABLE queue{table} (id BIGINT AUTO_INCREMENT PRIMARY KEY, owner INT NOT NULL, state TINYINT NOT NULL, payload VARCHAR(400) NOT NULL,
                 KEY by_owner (owner, state, id)) ENGINE=InnoDB"
            ))?;
            insert_rows(session, &format!("queue{table} (owner, state, payload)"), 1..=size.rows, |row| {
                format!("{}, 0, '{}'", row % WORKERS as u64, letters(random, 50, 300))
            })?;
        }
        Ok(())
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn worker(&self, number: usize, size: LoadSize, random: Random) -> Box<dyn Worker> {
        Box::new(Queueing { number, size, random, step: 0 })
    }
}

const WORKERS: usize = 4;

/// Each worker has jobs of its own, so that nobody waits for a job of others.
struct Queueing {
    number: usize,
    size: LoadSize,
    random: Random,
    step: u64,
}

impl Worker for Queueing {
    fn transaction(&mut self, session: &mut Session) -> Result<()> {
        self.step += 1;
        let (owner, table) = (self.number, 1 + self.step / 3 % self.size.tables);
        match self.step % 3 {
            0 => {
                let payload = letters(&mut self.random, 50, 300);
                session
                    .run(&format!("INSERT INTO queue{table} (owner, state, payload) VALUES ({owner}, 0, '{payload}')"))
            }
            1 => session.run(&format!(
                "UPDATE queue{table} SET state = 1 WHERE owner = {owner} AND state = 0 ORDER BY id LIMIT 1"
            )),
            _ => session
                .run(&format!("DELETE FROM queue{table} WHERE owner = {owner} AND state = 1 ORDER BY id LIMIT 1")),
        }
    }
}
