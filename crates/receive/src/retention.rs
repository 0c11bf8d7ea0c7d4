//! Removes archive files that nobody needs any more, while the archive is being filled.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use spate_archive::{Applied, ArchiveWriter, Retention};

use spate_replica::reached::Reached;
use spate_replica::status::Status;

/// How often to look. What was applied at one look may go at the next: a replica that makes its commits durable only once a
/// second then still finds what a crash of its machine could make it need again.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// What may go at all.
#[derive(Debug, Clone, Copy)]
enum Needed<'a> {
    /// Transactions are needed until this process has seen them committed on the replica.
    UntilApplied(&'a Reached),
    /// Nobody is known to need anything; only what is not durable stays.
    UntilDurable,
}

/// Purges the archive from time to time.
#[derive(Debug)]
pub struct Retaining<'a> {
    retention: Retention,
    needed: Needed<'a>,
    status: &'a Status,
    next_look: Instant,
    /// The last transaction that nobody needed at the last look.
    unneeded: u64,
}

impl<'a> Retaining<'a> {
    /// Keeps everything that is not applied to the replica.
    pub fn of_applied(retention: Retention, reached: &'a Reached, status: &'a Status) -> Retaining<'a> {
        let needed = Needed::UntilApplied(reached);
        Retaining { retention, needed, status, next_look: Instant::now(), unneeded: 0 }
    }

    /// For an archive without a replica.
    pub(crate) fn of_received(retention: Retention, status: &'a Status) -> Retaining<'a> {
        Retaining { retention, needed: Needed::UntilDurable, status, next_look: Instant::now(), unneeded: 0 }
    }

    /// Removes what may go, if it is time to look.
    ///
    /// # Errors
    /// A full disk, or a fatal one of [`ArchiveWriter::purge`]; what cannot be removed is told and tried again.
    pub(crate) fn purge_if_due(&mut self, writer: &mut ArchiveWriter) -> spate_archive::Result<()> {
        let now = Instant::now();
        if now < self.next_look {
            return Ok(());
        }
        self.next_look = now + LOOK_EVERY;
        let unneeded_now = match self.needed {
            Needed::UntilApplied(reached) => reached.seqno_here().unwrap_or(0),
            Needed::UntilDurable => writer.archive().tail().durable().seqno,
        };
        let applied = Applied(std::mem::replace(&mut self.unneeded, unneeded_now));
        let now_seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
        let purged = match writer.purge(&self.retention, applied, now_seconds) {
            // Nothing is lost by it, and the next look tries again.
            Err(error @ spate_archive::Error::Io { .. }) => {
                self.status.error("archive", format!("cannot remove old files: {error}"));
                return Ok(());
            }
            other => other?,
        };
        if purged.files > 0 {
            self.status.purged(purged.files as u64, purged.bytes);
            let first = writer.archive().files().first().map(|file| file.name().to_string()).unwrap_or_default();
            let message = format!(
                "removed {} files ({} bytes) that are applied and beyond what is to be kept; the oldest now is {first}",
                purged.files, purged.bytes
            );
            self.status.note("archive", &message);
        }
        Ok(())
    }
}
