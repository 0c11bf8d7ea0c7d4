//! What the coordinator hands to the pool, and what to the worker.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use spate_binlog::Gtid;
use spate_connection::Connection;
use spate_replica::checkpoint::Checkpoint;
use spate_replica::choice::DialectChoice;
use spate_replica::status::Status;
use spate_replica::{Error, Result, spread};
use spate_schedule::TableName;
use spate_schedule::depend::{Dependencies, Hint, ParallelBy, Wall};

use super::{Parallel, Pool};
use crate::Part;
use crate::answers::refused_checkpoint;
use crate::coordinator::{Beside, STOP_CHECK, unless_stopped};
use crate::halt;
use crate::progress::Progress;

/// Reasons why a policy falls back that are told, each once.
const TOLD_MAX: usize = 20;

/// Hands jobs to the pool, and everything else to the worker.
pub(crate) struct Front<'a> {
    pool: &'a Pool<'a>,
    progress: &'a Progress<'a>,
    status: &'a Status,
    dependencies: Dependencies,
    parallel: Parallel,
    choice: DialectChoice,
    /// Moves the checkpoint where no job does.
    keeper: Connection,
    /// Transactions that an earlier session has applied ahead of others. Until they are passed, one transaction is applied after the other.
    spread: BTreeSet<Gtid>,
    /// There were some.
    had_spread: bool,
    told: BTreeSet<String>,
}

impl<'a> Front<'a> {
    pub(crate) fn new(
        pool: &'a Pool<'a>,
        progress: &'a Progress<'a>,
        status: &'a Status,
        parallel: Parallel,
        choice: DialectChoice,
        keeper: Connection,
        spread: BTreeSet<Gtid>,
    ) -> Front<'a> {
        Front {
            dependencies: Dependencies::new(parallel.by, 0),
            pool,
            progress,
            status,
            parallel,
            choice,
            keeper,
            had_spread: !spread.is_empty(),
            spread,
            told: BTreeSet::new(),
        }
    }

    fn seal(&mut self, to: &Checkpoint, from: &Checkpoint) -> Result<()> {
        let sql = format!("START TRANSACTION;{};{};COMMIT", to.update_sql(from), spread::clear_sql());
        let sealed = self.keeper.execute(sql.as_bytes());
        sealed.map(drop).map_err(|error| refused_checkpoint(error, self.keeper.peer(), Error::from))
    }

    /// Has the checkpoint say where the replica is, with all jobs applied.
    fn seal_all(&mut self) -> halt::Result<()> {
        if !self.parallel.keeps_order {
            let (low, sealed) = self.pool.checkpoints();
            if low != sealed {
                self.seal(&low, &sealed)?;
                self.pool.sealed(low);
            }
        }
        Ok(())
    }

    /// True if the part is one or more whole transactions of rows that can be rolled back, written as the source's images.
    fn is_job(&self, part: &Part) -> Result<bool> {
        let batch = &part.batch;
        let Some(end) = &part.end else { return Ok(false) };
        let is_plain = part.is_plain()
            && self.spread.is_empty()
            && batch.segments().all(|segment| segment.keyless().is_empty() && !segment.has_sequences())
            && end.transactions as usize == part.hints.len();
        let is_named = self.parallel.keeps_order || part.hints.iter().all(|known| known.gtid.is_some());
        if !is_plain || !is_named {
            return Ok(false);
        }
        part.is_replayed(&self.choice)
    }

    /// Says why a transaction waits for all before it; a source that never says what the policy goes by is an error.
    fn tell(&mut self, wall: Wall, part: &Part) -> Result<()> {
        let by = self.parallel.by;
        match wall {
            Wall::NoHint => {
                let why = match by {
                    ParallelBy::LogicalClock => {
                        "it has no logical clock, which sources of MySQL write: --parallel-by commit-group goes by what MariaDB writes, and \
                         --parallel-by write-set by the rows themselves"
                    }
                    _ => {
                        "it has no commit ids, which sources of MariaDB write: --parallel-by logical-clock goes by what MySQL writes, and \
                         --parallel-by write-set by the rows themselves"
                    }
                };
                let error = spate_schedule::Error::Refused { what: "a transaction".to_owned(), why: why.to_owned() };
                Err(Error::Transaction { place: part.place.clone(), error })
            }
            Wall::Unknown(unknown) => {
                let tables: BTreeSet<&TableName> =
                    part.batch.segments().flat_map(|segment| segment.table_names()).collect();
                let tables: Vec<String> = tables.iter().take(3).map(ToString::to_string).collect();
                let message = format!(
                    "--parallel-by {by}: transactions with changes of {} are applied by themselves: {unknown}",
                    tables.join(", ")
                );
                if self.told.len() < TOLD_MAX && self.told.insert(message.clone()) {
                    self.status.note("applier", &message);
                }
                Ok(())
            }
        }
    }
}

impl Beside for Front<'_> {
    fn pass(&mut self, gtid: Option<Gtid>) {
        if let Some(gtid) = gtid {
            self.spread.remove(&gtid);
        }
    }

    fn has_room_within(&mut self, timeout: Duration) -> halt::Result<bool> {
        self.pool.has_room_within(timeout)
    }

    fn fits(&mut self, part: &Part) -> halt::Result<bool> {
        Ok(self.is_job(part)?)
    }

    fn begin(&mut self, part: &Part) -> halt::Result<()> {
        if std::mem::take(&mut self.had_spread) {
            self.keeper.execute(spread::clear_sql().as_bytes()).map_err(Error::from)?;
        }
        let before = part.end.as_ref().map_or(0, |end| end.after_seqno);
        self.pool.begin_after(before, &part.from);
        self.dependencies.pass(before);
        Ok(())
    }

    fn take(&mut self, part: Part, stop: &AtomicBool) -> halt::Result<()> {
        unless_stopped(stop, || self.pool.has_room_within(STOP_CHECK))?;
        let hints: Vec<Hint> = part.hints.iter().map(|known| known.hint).collect();
        let added = self.dependencies.add(&hints, &part.batch, self.pool.low());
        let (waits, wall) = added.map_err(|error| Error::Transaction { place: part.place.clone(), error })?;
        if let Some(wall) = wall {
            self.tell(wall, &part)?;
        }
        self.progress.hand_out(part.reached.seqno);
        spate_archive::stopping_point("after-gathering");
        self.pool.add(part, waits);
        Ok(())
    }

    fn drain(&mut self) -> halt::Result<()> {
        // Jobs that are begun end also when the session is to stop: else the next one would have to find out which of them are applied.
        while !self.pool.is_drained_within(STOP_CHECK)? {}
        self.seal_all()
    }

    fn rest(&mut self) -> halt::Result<()> {
        if self.pool.is_drained_within(Duration::ZERO)? { self.seal_all() } else { Ok(()) }
    }
}

impl Drop for Front<'_> {
    /// The executors end with it.
    fn drop(&mut self) {
        self.pool.close();
    }
}
