//! The batch that is being gathered: how far it reaches, and what is known of it besides its changes.

use std::sync::Arc;
use std::time::Instant;

use spate_archive::ArchivedEvent;
use spate_binlog::FormatDescription;
use spate_schedule::Batch;

use super::{Part, PartEnd};
use spate_replica::TransactionPlace;
use spate_replica::checkpoint::Checkpoint;
use spate_replica::exclusions::{Exclusion, Skipped};

/// The batch that is being gathered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Open {
    /// The position after the last whole transaction that was gathered, in this batch or before.
    pub(crate) checkpoint: Checkpoint,
    pub(super) place: TransactionPlace,
    pub(super) transactions: u64,
    pub(super) oldest_seconds: f64,
    pub(super) began: Option<Instant>,
    pub(super) server_id: u32,
    pub(super) format: Option<Arc<FormatDescription>>,
    /// A part of the batch was handed over already.
    pub(super) is_continued: bool,
    /// Inside a transaction; where the replica will be after it.
    pub(super) underway: Option<Checkpoint>,
    /// When it was committed on the source, in seconds since 1970; MySQL tells parts of a second.
    pub(super) underway_seconds: f64,
    /// Definitions are out of date until the transaction with this seqno is applied.
    pub(super) stale_until: Option<u64>,
    pub(super) is_hungry: bool,
    /// Why the transaction that is being read is left out, if it is.
    pub(super) excluded: Option<Exclusion>,
    /// Named transactions of the batch that were left out.
    pub(super) skipped: Vec<Skipped>,
    /// How many of the batch were left out because of the server that they come from.
    pub(super) ignored: u64,
    /// The server that the batch's changes come from.
    pub(super) origin: Option<u32>,
    /// A transaction of this session was read.
    pub(super) has_begun: bool,
}

impl Open {
    /// Nothing gathered after `checkpoint`.
    pub(crate) fn after(checkpoint: Checkpoint) -> Open {
        Open { checkpoint, ..Open::default() }
    }

    pub(super) fn begin_transaction(&mut self, event: &ArchivedEvent<'_>, excluded: Option<Exclusion>) {
        self.excluded = excluded;
        self.place.gtid = event.gtid().map(|event| event.gtid.to_string()).unwrap_or_default();
        self.place.position = event.source_end_position;
        if *self.place.file != **event.source_file {
            self.place.file = event.source_file.to_string();
        }
        let exact = event.gtid().and_then(|event| event.commit_microseconds);
        self.underway_seconds =
            exact.map_or(f64::from(event.header.timestamp_seconds), |microseconds| microseconds as f64 / 1e6);
        if self.transactions == 0 && !self.is_continued {
            self.oldest_seconds = self.underway_seconds;
            self.began = Some(Instant::now());
        }
        let mut underway = self.checkpoint.clone();
        underway.pass(event);
        self.underway = Some(underway);
        if excluded.is_none() || self.origin.is_none() {
            self.server_id = event.header.server_id;
        }
        if excluded.is_none() {
            self.origin = Some(event.header.server_id);
        }
        if self.format.as_ref().is_none_or(|format| !Arc::ptr_eq(format, event.format)) {
            self.format = Some(Arc::clone(event.format));
        }
    }

    pub(super) fn end_transaction(&mut self, event: &ArchivedEvent<'_>) {
        self.transactions += 1;
        self.underway = None;
        self.checkpoint.pass(event);
        self.place.position = event.source_end_position;
        match (self.excluded.take(), event.gtid()) {
            (Some(Exclusion::Named), Some(gtid)) => {
                self.skipped.push(Skipped { gtid: gtid.gtid, place: self.place.clone() });
            }
            (Some(_), _) => self.ignored += 1,
            (None, _) => {}
        }
    }

    /// Ends what was gathered. `goes_on`: in the midst of a transaction.
    pub(super) fn close(&mut self, batch: Batch, goes_on: bool) -> Option<Part> {
        let format = Arc::clone(self.format.as_ref()?);
        let end = (!goes_on).then(|| PartEnd {
            checkpoint: self.checkpoint.clone(),
            transactions: self.transactions,
            skipped: std::mem::take(&mut self.skipped),
            ignored: std::mem::take(&mut self.ignored),
        });
        let reached = match (&self.underway, goes_on) {
            (Some(underway), true) => underway.clone(),
            _ => self.checkpoint.clone(),
        };
        self.is_continued = goes_on;
        if !goes_on {
            self.transactions = 0;
            self.origin = None;
            self.began = None;
        }
        let (server_id, oldest_seconds) = (self.server_id, self.oldest_seconds);
        Some(Part { batch, format, server_id, oldest_seconds, place: self.place.clone(), reached, end })
    }
}
