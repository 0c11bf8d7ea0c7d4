//! Where gathering is: the position that it has reached, the batch that it gathers, and the transaction that it reads.

use std::sync::Arc;
use std::time::Instant;

use spate_archive::ArchivedEvent;
use spate_binlog::FormatDescription;
use spate_schedule::Batch;

use super::{Known, Part, PartEnd};
use spate_replica::TransactionPlace;
use spate_replica::checkpoint::Checkpoint;
use spate_replica::exclusions::{Exclusion, Skipped};
use spate_schedule::depend::Hint;

/// Where gathering is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Open {
    /// The position after the last whole transaction that was gathered, in this batch or before.
    pub(super) checkpoint: Checkpoint,
    /// Where the transaction stands that is being read, or else the last that was.
    pub(super) place: TransactionPlace,
    /// The layout of the source's events. `None` before the first transaction.
    format: Option<Arc<FormatDescription>>,
    /// Seqno of the last transaction before the batch. `None` before the session's first transaction: the checkpoint may have a seqno
    /// that another archive gave.
    after_seqno: Option<u64>,
    /// Where the batch begins.
    from: Checkpoint,
    /// Batches say what the source says of each transaction. (A large batch would take some hundred megabytes for that.)
    pub(super) keeps_hints: bool,
    pub(super) batch: OpenBatch,
    /// The transaction that is being read. `None` between two.
    pub(super) underway: Option<Underway>,
}

/// The batch that is being gathered.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenBatch {
    /// Whole transactions in it.
    pub(super) transactions: u64,
    /// When its first transaction was committed on the source, in seconds since 1970.
    oldest_seconds: f64,
    /// When its first transaction was gathered. `None`: it holds nothing.
    pub(super) began: Option<Instant>,
    /// Written into replayed events.
    server_id: u32,
    /// The server that its changes come from. `None`: it has no changes.
    pub(super) origin: Option<u32>,
    /// A part of it was handed over already.
    pub(super) is_continued: bool,
    /// Named transactions of it that were left out.
    skipped: Vec<Skipped>,
    /// How many of its transactions were left out because of the server that they come from.
    ignored: u64,
    /// What the source says of its transactions, with the one that is underway.
    hints: Vec<Known>,
    /// Rows of it are left out that are applied already.
    pub(super) passes_over: bool,
}

/// The transaction that is being read.
#[derive(Debug, Clone)]
pub(super) struct Underway {
    /// Where the replica will be after it.
    checkpoint: Checkpoint,
    /// When it was committed on the source, in seconds since 1970; MySQL tells parts of a second.
    commit_seconds: f64,
    /// The server that it comes from.
    server_id: u32,
    /// Why it is left out. `None`: it is gathered.
    pub(super) excluded: Option<Exclusion>,
}

impl OpenBatch {
    /// Nothing of it was gathered yet.
    pub(super) fn is_empty(&self) -> bool {
        self.transactions == 0 && !self.is_continued
    }
}

impl Open {
    /// Nothing gathered after `checkpoint`.
    pub(crate) fn after(checkpoint: Checkpoint) -> Open {
        Open { from: checkpoint.clone(), checkpoint, ..Open::default() }
    }

    pub(super) fn begin_transaction(&mut self, event: &ArchivedEvent<'_>, excluded: Option<Exclusion>) {
        self.after_seqno.get_or_insert(event.seqno.saturating_sub(1));
        self.place.gtid = event.gtid().map(|event| event.gtid.to_string()).unwrap_or_default();
        self.place.position = event.source_end_position;
        if *self.place.file != **event.source_file {
            self.place.file = event.source_file.to_string();
        }
        let exact = event.gtid().and_then(|event| event.commit_microseconds);
        let commit_seconds =
            exact.map_or(f64::from(event.header.timestamp_seconds), |microseconds| microseconds as f64 / 1e6);
        let batch = &mut self.batch;
        if batch.is_empty() {
            batch.oldest_seconds = commit_seconds;
            batch.began = Some(Instant::now());
        }
        if excluded.is_none() || batch.origin.is_none() {
            batch.server_id = event.header.server_id;
        }
        if excluded.is_none() {
            batch.origin = Some(event.header.server_id);
        }
        if self.keeps_hints && excluded != Some(Exclusion::Applied) {
            let gtid = event.gtid();
            batch.hints.push(Known {
                gtid: gtid.as_ref().map(|event| event.gtid),
                hint: Hint {
                    seqno: event.seqno,
                    commit_id: gtid.as_ref().and_then(|event| event.commit_id),
                    clock: gtid.as_ref().and_then(|event| event.logical_clock),
                },
            });
        }
        let mut checkpoint = self.checkpoint.clone();
        checkpoint.pass(event);
        self.underway = Some(Underway { checkpoint, commit_seconds, server_id: event.header.server_id, excluded });
        if self.format.as_ref().is_none_or(|format| !Arc::ptr_eq(format, event.format)) {
            self.format = Some(Arc::clone(event.format));
        }
    }

    pub(super) fn end_transaction(&mut self, event: &ArchivedEvent<'_>) {
        self.batch.transactions += 1;
        self.checkpoint.pass(event);
        self.place.position = event.source_end_position;
        let excluded = self.underway.take().and_then(|underway| underway.excluded);
        match (excluded, event.gtid()) {
            (Some(Exclusion::Named), Some(gtid)) => {
                self.batch.skipped.push(Skipped { gtid: gtid.gtid, place: self.place.clone() });
            }
            (Some(Exclusion::Named | Exclusion::Server), _) => self.batch.ignored += 1,
            (Some(Exclusion::Applied) | None, _) => {}
        }
    }

    /// So much of the source's time is in the batch, in seconds.
    pub(super) fn source_seconds(&self) -> u64 {
        (self.checkpoint.source_seconds as f64 - self.batch.oldest_seconds).max(0.0) as u64
    }

    /// Ends the batch before the transaction that is underway, which becomes the first of the next.
    pub(super) fn separate(&mut self) {
        self.batch.began = Some(Instant::now());
        let Some(underway) = &self.underway else { return };
        self.batch.oldest_seconds = underway.commit_seconds;
        // What is left out has no changes.
        if underway.excluded.is_none() {
            (self.batch.origin, self.batch.server_id) = (Some(underway.server_id), underway.server_id);
        }
    }

    /// Ends what was gathered. `goes_on`: the batch goes on in the next part. `None`: no transaction was read yet.
    pub(super) fn close(&mut self, batch: Batch, goes_on: bool) -> Option<Part> {
        let format = Arc::clone(self.format.as_ref()?);
        let open = &mut self.batch;
        let end = (!goes_on).then(|| PartEnd {
            checkpoint: self.checkpoint.clone(),
            after_seqno: self.after_seqno.replace(self.checkpoint.seqno).unwrap_or(self.checkpoint.seqno),
            transactions: open.transactions,
            skipped: std::mem::take(&mut open.skipped),
            ignored: std::mem::take(&mut open.ignored),
            levels: false,
        });
        let reached = match (&self.underway, goes_on) {
            (Some(underway), true) => underway.checkpoint.clone(),
            _ => self.checkpoint.clone(),
        };
        open.is_continued = goes_on;
        let (hints, from) = match goes_on {
            true => (open.hints.clone(), self.from.clone()),
            false => {
                let mut hints = std::mem::take(&mut open.hints);
                // The transaction that is underway is the first of the next batch.
                let is_underway =
                    self.underway.as_ref().is_some_and(|underway| underway.excluded != Some(Exclusion::Applied));
                open.hints = is_underway.then(|| hints.pop()).flatten().into_iter().collect();
                (hints, std::mem::replace(&mut self.from, self.checkpoint.clone()))
            }
        };
        if !goes_on {
            open.transactions = 0;
            open.origin = None;
            open.began = None;
        }
        let (server_id, oldest_seconds) = (open.server_id, open.oldest_seconds);
        Some(Part {
            batch,
            format,
            server_id,
            oldest_seconds,
            from,
            hints,
            place: self.place.clone(),
            reached,
            end,
            is_followed: false,
            fingerprint: None,
            turn: None,
            passes_over: open.passes_over,
        })
    }
}
