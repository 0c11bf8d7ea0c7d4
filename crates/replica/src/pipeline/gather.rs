//! The first stage: reads the archive, folds, and decides where a batch ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use spate_archive::{ArchiveReader, ArchivedEvent, Waited};
use spate_binlog::{Boundary, EventType, FormatDescription, GtidEvent};
use spate_schedule::{Answer, Batch, BatchBuilder, TableName};

use super::{Part, PartEnd};
use crate::catalog::Catalog;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result, TransactionPlace};
use crate::hold::HoldState;
use crate::limits::BatchLimits;
use crate::progress::Progress;
use crate::until::Until;

/// How long to wait for something before looking whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// With transactions at hand and nobody hungry, new arrivals are looked for this often: they still fit into the batch.
const ARRIVAL_CHECK: Duration = Duration::from_millis(1);

/// With more to read, a batch is gathered at least for this long although the next stage is hungry: a replica that is behind
/// gains more from folding than it loses by waiting. At the end of what was received, nothing waits.
const BEHIND_GATHER_MIN: Duration = Duration::from_millis(300);

/// Why gathering ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GatherEnd {
    /// `--until` was reached.
    Reached,
    /// It was told to stop.
    Stopped,
}

/// Where batches take shape. It sees one event after the other; where they come from is the caller's affair.
pub(crate) struct Gatherer<'a> {
    pub(crate) builder: BatchBuilder,
    pub(crate) catalog: Catalog,
    pub(crate) output: Sender<Part>,
    pub(crate) hunger: Receiver<()>,
    pub(crate) limits: BatchLimits,
    pub(crate) until: Until,
    pub(crate) hold: &'a HoldState,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) progress: &'a Progress,
    /// Go no further than this transaction: what comes after it is known to be bad.
    pub(crate) last_seqno: Option<u64>,
    pub(crate) open: Open,
}

/// The batch that is being gathered.
#[derive(Debug, Default)]
pub(crate) struct Open {
    /// The position after the last whole transaction that was gathered, in this batch or before.
    pub(crate) checkpoint: Checkpoint,
    place: TransactionPlace,
    transactions: u64,
    oldest_seconds: u32,
    began: Option<Instant>,
    server_id: u32,
    format: Option<Arc<FormatDescription>>,
    /// A part of the batch was handed over already.
    is_continued: bool,
    /// Inside a transaction that must be a batch of its own.
    is_barrier: bool,
    /// Definitions are out of date until the transaction with this seqno is applied.
    stale_until: Option<u64>,
    is_hungry: bool,
}

impl Gatherer<'_> {
    /// Gathers until told to stop, or `--until` is reached.
    ///
    /// # Errors
    /// A definite error of the archive or of a transaction; [`Error::StageEnded`] if the next stage is gone.
    pub(crate) fn run(mut self, mut reader: ArchiveReader) -> Result<GatherEnd> {
        if self.until.is_reached_by(&self.open.checkpoint) {
            return Ok(GatherEnd::Reached);
        }
        while !self.stop.load(Ordering::Acquire) {
            let gathered = match reader.next_event() {
                Ok(Some(event)) => self.event(&event),
                Ok(None) => self.idle(&reader).map(|()| None),
                Err(error) => Err(error.into()),
            };
            match gathered {
                Ok(None) => {}
                Ok(Some(end)) => return Ok(end),
                Err(error) => return Err(self.behind(error)),
            }
        }
        Ok(GatherEnd::Stopped)
    }

    fn event(&mut self, event: &ArchivedEvent<'_>) -> Result<Option<GatherEnd>> {
        match event.boundary {
            Boundary::Outside => return Ok(None),
            Boundary::Begin | Boundary::Whole => {
                if let Some(end) = self.begin_transaction(event)? {
                    return Ok(Some(end));
                }
            }
            Boundary::Inside | Boundary::End => {}
        }
        self.take(event)?;
        match event.boundary {
            Boundary::End | Boundary::Whole => {
                self.open.end_transaction(event);
                self.after_transaction()
            }
            _ => self.inside_transaction().map(|()| None),
        }
    }

    fn begin_transaction(&mut self, event: &ArchivedEvent<'_>) -> Result<Option<GatherEnd>> {
        let begin = event.source_end_position.saturating_sub(u64::from(event.header.event_length));
        if self.until.excludes(event.source_file, begin) {
            self.hand_over_whole()?;
            return Ok(Some(GatherEnd::Reached));
        }
        let must_stand_alone = is_barrier(event);
        let gtid = event.gtid().map(|event| event.gtid);
        let is_held = !self.hold.try_begin(gtid, event.seqno);
        if must_stand_alone || is_held {
            self.hand_over_whole()?;
        }
        if is_held && !self.hold.wait_begin(gtid, event.seqno, self.stop) {
            return Ok(Some(GatherEnd::Stopped));
        }
        self.open.begin_transaction(event, must_stand_alone);
        Ok(None)
    }

    fn take(&mut self, event: &ArchivedEvent<'_>) -> Result<()> {
        loop {
            let answer = self.builder.event(&event.header, event.body);
            let at = || TransactionPlace { position: event.source_end_position, ..self.open.place.clone() };
            match answer.map_err(|error| Error::Transaction { place: at(), error })? {
                Answer::Taken => return Ok(()),
                Answer::NeedsDefinition(name) => {
                    self.wait_for_definitions()?;
                    let definition = self.catalog.definition(&name)?;
                    let at = || TransactionPlace { position: event.source_end_position, ..self.open.place.clone() };
                    self.builder.learn(definition.ok_or_else(|| no_table(at(), &name))?);
                }
            }
        }
    }

    /// After DDL, the replica's definitions are those that the next events need only once the DDL is applied.
    fn wait_for_definitions(&mut self) -> Result<()> {
        let Some(seqno) = self.open.stale_until else { return Ok(()) };
        while !self.progress.wait_applied(seqno, STOP_CHECK) {
            if self.stop.load(Ordering::Acquire) {
                return Err(Error::StageEnded);
            }
        }
        self.open.stale_until = None;
        Ok(())
    }

    /// A definite error in a transaction does not keep back the whole transactions before it. The builder holds a piece of
    /// the bad one by now, so they are gathered again by the next session, which ends with them.
    fn behind(&self, error: Error) -> Error {
        let is_nothing_lost = self.open.transactions == 0 || self.open.is_continued;
        if matches!(error, Error::StageEnded) || is_nothing_lost {
            return error;
        }
        Error::Behind { seqno: self.open.checkpoint.seqno, error: Box::new(error) }
    }

    /// Everything received was read. (Only whole transactions are shown, so this is never in the midst of one.)
    fn idle(&mut self, reader: &ArchiveReader) -> Result<()> {
        if self.open.transactions == 0 {
            return match reader.wait(STOP_CHECK) {
                Waited::Closed => Err(Error::StageEnded),
                Waited::Ready | Waited::TimedOut => Ok(()),
            };
        }
        if self.open.is_hungry || self.hunger_within(ARRIVAL_CHECK)? {
            self.open.is_hungry = true;
            self.hand_over_whole()?;
        }
        Ok(())
    }

    fn hunger_within(&self, timeout: Duration) -> Result<bool> {
        match self.hunger.recv_timeout(timeout) {
            Ok(()) => Ok(true),
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => Err(Error::StageEnded),
        }
    }

    fn after_transaction(&mut self) -> Result<Option<GatherEnd>> {
        let is_last = self.last_seqno == Some(self.open.checkpoint.seqno);
        let reached = is_last || self.until.is_reached_by(&self.open.checkpoint);
        let was_barrier = self.open.is_barrier;
        if !self.open.is_hungry {
            self.open.is_hungry = self.hunger.try_recv().is_ok();
        }
        let gathered = self.open.began.map_or(Duration::ZERO, |began| began.elapsed());
        let is_worth_it = self.open.is_hungry && gathered >= BEHIND_GATHER_MIN;
        if reached || was_barrier || is_worth_it || self.is_full(gathered) {
            self.hand_over_whole()?;
        }
        if was_barrier {
            self.open.is_barrier = false;
            self.open.stale_until = Some(self.open.checkpoint.seqno);
            self.builder.forget_definitions();
            self.catalog.forget();
        }
        Ok(reached.then_some(GatherEnd::Reached))
    }

    fn is_full(&self, gathered: Duration) -> bool {
        self.open.transactions >= self.limits.transactions_max
            || self.builder.memory_bytes() >= self.limits.memory_bytes_max
            || gathered >= self.limits.duration_max
    }

    /// A transaction that outgrows memory goes on in pieces, all in one transaction of the replica.
    fn inside_transaction(&mut self) -> Result<()> {
        if self.builder.memory_bytes() < self.limits.memory_bytes_max {
            return Ok(());
        }
        self.hand_over(true)
    }

    fn hand_over_whole(&mut self) -> Result<()> {
        if self.open.transactions == 0 { Ok(()) } else { self.hand_over(false) }
    }

    /// Waits until the next stage is hungry, and gives it what was gathered. `goes_on`: in the midst of a transaction.
    fn hand_over(&mut self, goes_on: bool) -> Result<()> {
        let Some(part) = self.open.close(self.builder.take(), goes_on) else { return Ok(()) };
        while !self.open.is_hungry {
            self.open.is_hungry = self.hunger_within(STOP_CHECK)?;
            if self.stop.load(Ordering::Acquire) {
                return Err(Error::StageEnded);
            }
        }
        self.open.is_hungry = false;
        let last = self.open.checkpoint.seqno;
        self.progress.handed(if goes_on { last + 1 } else { last });
        spate_archive::stopping_point("after-gathering");
        self.output.send(part).map_err(|_| Error::StageEnded)
    }
}

impl Open {
    /// Nothing gathered after `checkpoint`.
    pub(crate) fn after(checkpoint: Checkpoint) -> Open {
        Open { checkpoint, ..Open::default() }
    }

    fn begin_transaction(&mut self, event: &ArchivedEvent<'_>, must_stand_alone: bool) {
        self.is_barrier = must_stand_alone;
        self.place.gtid = event.gtid().map(|event| event.gtid.to_string()).unwrap_or_default();
        self.place.position = event.source_end_position;
        if *self.place.file != **event.source_file {
            self.place.file = event.source_file.to_string();
        }
        if self.transactions == 0 && !self.is_continued {
            self.oldest_seconds = event.header.timestamp_seconds;
            self.began = Some(Instant::now());
        }
        self.server_id = event.header.server_id;
        if self.format.as_ref().is_none_or(|format| !Arc::ptr_eq(format, event.format)) {
            self.format = Some(Arc::clone(event.format));
        }
    }

    fn end_transaction(&mut self, event: &ArchivedEvent<'_>) {
        self.transactions += 1;
        let checkpoint = &mut self.checkpoint;
        if let Some(gtid) = event.gtid() {
            checkpoint.gtid_position.advance(gtid.gtid);
        }
        if *checkpoint.source_file != **event.source_file {
            checkpoint.source_file = event.source_file.to_string();
        }
        checkpoint.source_position = event.source_end_position;
        checkpoint.seqno = event.seqno;
        checkpoint.source_seconds = u64::from(event.header.timestamp_seconds);
        self.place.position = event.source_end_position;
    }

    /// Ends what was gathered. `goes_on`: in the midst of a transaction.
    fn close(&mut self, batch: Batch, goes_on: bool) -> Option<Part> {
        let format = Arc::clone(self.format.as_ref()?);
        let end = (!goes_on).then(|| PartEnd {
            checkpoint: self.checkpoint.clone(),
            transactions: self.transactions,
            is_barrier: self.is_barrier,
        });
        self.is_continued = goes_on;
        if !goes_on {
            self.transactions = 0;
            self.began = None;
        }
        let (server_id, oldest_seconds) = (self.server_id, self.oldest_seconds);
        Some(Part { batch, format, server_id, oldest_seconds, place: self.place.clone(), end })
    }
}

/// DDL, and whatever else commits by itself.
fn is_barrier(event: &ArchivedEvent<'_>) -> bool {
    match event.gtid() {
        Some(gtid) => gtid.has(GtidEvent::STANDALONE | GtidEvent::DDL),
        None => event.header.event_type == EventType::QUERY && event.boundary == Boundary::Whole,
    }
}

fn no_table(place: TransactionPlace, name: &TableName) -> Error {
    let hint = format!("GRANT SELECT ON {}.* TO the user of Spate", crate::wire::quote::identifier(&name.schema));
    Error::NoTable { place, table: name.to_string(), hint }
}
