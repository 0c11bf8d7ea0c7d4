//! What the coordinator hands to the pool, and what to the worker.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use spate_binlog::Gtid;
use spate_connection::Connection;
use spate_replica::checkpoint::Checkpoint;
use spate_replica::choice::{self, Dialect, DialectChoice};
use spate_replica::status::Status;
use spate_replica::{Error, Result, spread};
use spate_schedule::depend::{Dependencies, Hint, ParallelBy, Wall};
use spate_schedule::{Item, TableName};

use super::{Parallel, Pool};
use crate::Part;
use crate::answers::refused_checkpoint;
use crate::halt::{self, Halt};
use crate::progress::Progress;

/// How long to wait before looking whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(100);

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
    /// The last transaction that the worker was given. `None`: it has nothing, or all is applied.
    with_worker: Option<u64>,
    /// The worker has a piece of a transaction that goes on.
    is_in_pieces: bool,
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
            with_worker: None,
            is_in_pieces: false,
            told: BTreeSet::new(),
        }
    }

    /// The session's first transaction comes behind this one. The worker counts as having had it, so that the first job finds out where the
    /// replica is.
    pub(crate) fn begin_after(&mut self, seqno: u64) {
        self.with_worker = Some(seqno);
    }

    /// This transaction comes next.
    pub(crate) fn pass(&mut self, gtid: Option<Gtid>) {
        if let Some(gtid) = gtid {
            self.spread.remove(&gtid);
        }
    }

    /// True if a job could be taken.
    pub(crate) fn has_room_within(&self, timeout: Duration) -> halt::Result<bool> {
        self.pool.has_room_within(timeout)
    }

    /// Takes a part if it is a job; returns it if the worker has to apply it, which has nothing beside it then.
    ///
    /// # Errors
    /// [`Halt::StageEnded`]; any error of the connection.
    pub(crate) fn take(&mut self, part: Part, stop: &AtomicBool) -> halt::Result<Option<Part>> {
        if !self.is_job(&part)? {
            self.drain()?;
            self.is_in_pieces = part.end.is_none();
            self.with_worker = Some(part.reached.seqno);
            return Ok(Some(part));
        }
        if let Some(seqno) = self.with_worker.take() {
            while !self.progress.wait_applied(seqno, STOP_CHECK) {
                if stop.load(Ordering::Acquire) {
                    return Err(Halt::StageEnded);
                }
            }
            self.begin_beside(&part)?;
        }
        while !self.pool.has_room_within(STOP_CHECK)? {
            if stop.load(Ordering::Acquire) {
                return Err(Halt::StageEnded);
            }
        }
        let hints: Vec<Hint> = part.hints.iter().map(|known| known.hint).collect();
        let added = self.dependencies.add(&hints, &part.batch, self.pool.low());
        let (waits, wall) = added.map_err(|error| Error::Transaction { place: part.place.clone(), error })?;
        if let Some(wall) = wall {
            self.tell(wall, &part)?;
        }
        self.progress.hand_out(part.reached.seqno);
        spate_archive::stopping_point("after-gathering");
        self.pool.add(part, waits);
        Ok(None)
    }

    /// Everything before the part is applied, and what comes may be applied beside each other.
    fn begin_beside(&mut self, part: &Part) -> halt::Result<()> {
        if std::mem::take(&mut self.had_spread) {
            self.keeper.execute(spread::clear_sql().as_bytes())?;
        }
        let before = part.end.as_ref().map_or(0, |end| end.after_seqno);
        self.pool.begin_after(before, &part.from);
        self.dependencies.pass(before);
        Ok(())
    }

    /// Waits until no job is left, and has the checkpoint say where the replica is.
    ///
    /// # Errors
    /// As [`Front::take`].
    pub(crate) fn drain(&mut self) -> halt::Result<()> {
        if self.with_worker.is_some() {
            return Ok(());
        }
        // Jobs that are begun end also when the session is to stop: else the next one would have to find out which of them are applied.
        while !self.pool.is_drained_within(STOP_CHECK)? {}
        if !self.parallel.keeps_order {
            let (low, sealed) = self.pool.checkpoints();
            if low != sealed {
                self.seal(&low, &sealed)?;
                self.pool.sealed(low);
            }
        }
        Ok(())
    }

    fn seal(&mut self, to: &Checkpoint, from: &Checkpoint) -> Result<()> {
        let sql = format!("START TRANSACTION;{};{};COMMIT", to.update_sql(from), spread::clear_sql());
        let sealed = self.keeper.execute(sql.as_bytes());
        sealed.map(drop).map_err(|error| refused_checkpoint(error, self.keeper.peer(), Error::from))
    }

    /// True if the part is one or more whole transactions of rows that can be rolled back, written as the source's images.
    fn is_job(&self, part: &Part) -> Result<bool> {
        let batch = &part.batch;
        let Some(end) = &part.end else { return Ok(false) };
        let is_plain = !self.is_in_pieces
            && self.spread.is_empty()
            && batch.alone.is_none()
            && !batch.has_irrevocable_rows
            && batch.explicit_defaults.is_none()
            && batch.temporary.open.is_empty()
            && batch.temporary.used_by.is_empty()
            && end.skipped.is_empty()
            && end.transactions as usize == part.hints.len();
        let is_of_rows = |item: &Item| matches!(item, Item::Rows(segment) if segment.keyless().is_empty());
        let is_named = self.parallel.keeps_order || part.hints.iter().all(|known| known.gtid.is_some());
        if !is_plain || !is_named || !batch.items.iter().all(is_of_rows) {
            return Ok(false);
        }
        Ok(self.choice.choose(choice::vendor_of(&part.format))? == Dialect::Replay)
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
                let tables: BTreeSet<&TableName> = part.batch.items.iter().flat_map(tables_of).collect();
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

impl Drop for Front<'_> {
    /// The executors end with it.
    fn drop(&mut self) {
        self.pool.close();
    }
}

fn tables_of(item: &Item) -> impl Iterator<Item = &TableName> {
    let segment = match item {
        Item::Rows(segment) => Some(segment),
        _ => None,
    };
    segment.into_iter().flat_map(|segment| segment.table_names())
}
