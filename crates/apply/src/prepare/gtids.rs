//! The source's GTIDs of what the worker applies.

use spate_connection::Vendor;
use spate_replica::gtids::GtidKeeping;
use spate_replica::journal::IntentKind;
use spate_schedule::Item;

use super::{Pending, Preparer, sequence_sql};
use crate::Part;
use crate::halt::Result;

impl Pending<'_> {
    /// The next statement of the session that applies is the first of the batch's transaction.
    pub(super) fn tell_gtid(&mut self) -> Result<()> {
        for sql in std::mem::take(&mut self.gtid) {
            self.outlet.plain(sql.as_bytes())?;
        }
        Ok(())
    }
}

impl<'a> Preparer<'a> {
    /// Says whose GTID the batch gets that begins with this part.
    pub(super) fn begin_gtid(&self, part: &Part, pending: &mut Pending<'a>) {
        pending.gtid = self.gtid_sql(part, pending);
        if matches!(part.intent_kind(), Some(IntentKind::Irrevocable | IntentKind::IrrevocableRows)) {
            pending.late_gtid = std::mem::take(&mut pending.gtid);
        }
        // It may be nothing but transactions that are applied already.
        pending.batch.is_own = pending.gtid.is_empty();
    }

    /// Has what moves the checkpoint come under the batch's GTID, if nothing else has used that up.
    pub(super) fn end_gtid(&self, pending: &mut Pending<'a>) -> Result<()> {
        if !pending.late_gtid.is_empty() {
            // A note says what was begun, so nothing of it is done twice.
            pending.outlet.plain(b"COMMIT")?;
            pending.gtid = std::mem::take(&mut pending.late_gtid);
            pending.batch.is_own = false;
        }
        if pending.batch.is_own {
            return Ok(());
        }
        pending.tell_gtid()?;
        match self.gtids.end_if_used_sql() {
            Some(sql) => pending.outlet.plain(sql.as_bytes()),
            None => Ok(()),
        }
    }

    /// What gives the batch the source's GTID, if the replica's binlog does not have it. While a session of the source has temporary tables, MariaDB
    /// would log their end under that GTID if this session ended within the batch, and takes tables for others once the session has another server
    /// id: then the replica's own.
    fn gtid_sql(&self, part: &Part, pending: &mut Pending<'a>) -> Vec<String> {
        let has_tables = !part.batch.temporary.open.is_empty()
            || !pending.temporary.tables.open.is_empty()
            || pending.temporary.has_copies
            || pending.temporary.unnamed.kept().next().is_some();
        if has_tables && self.gtids == GtidKeeping::Source(Vendor::MariaDb) {
            if !std::mem::replace(&mut pending.has_told_of_own_gtids, true) {
                let message =
                    "while a session of the source has temporary tables, statements get GTIDs of the replica's own";
                self.status.note("applier", message);
            }
            return vec![];
        }
        self.gtids.begin_sql(part.gtid().filter(|&gtid| !self.found.has_logged(gtid)))
    }

    /// A value that is taken from a sequence stays taken, and is logged by itself: it would use up the GTID of the transaction. True if the
    /// sequences are set, under GTIDs of the replica's own.
    pub(super) fn set_sequences_first(&self, part: &Part, pending: &mut Pending<'a>) -> Result<bool> {
        let gtid = std::mem::take(&mut pending.gtid);
        if gtid.is_empty() {
            return Ok(false);
        }
        for item in &part.batch.items {
            match item {
                Item::Sequence(setting) => pending.outlet.plain(sequence_sql(setting).as_bytes())?,
                Item::Rows(segment) if segment.is_of_sequences() => self.prepare_segment(segment, part, pending)?,
                _ => continue,
            }
            pending.end_rows()?;
            pending.outlet.plain(b"COMMIT")?;
        }
        pending.gtid = gtid;
        Ok(true)
    }
}
