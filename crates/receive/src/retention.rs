//! Removes archive files that nobody needs any more, while the intake fills the archive.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use spate_archive::{Applied, ArchiveWriter, Retention};

use spate_replica::reached::Reached;
use spate_replica::status::Status;

/// Time between two checks.
const CHECK_EVERY: Duration = Duration::from_secs(3);

/// How long transactions are needed.
#[derive(Debug, Clone, Copy)]
enum Needed<'a> {
    /// Until this process has seen them committed on the replica, and the replica alive after it could have made them durable.
    UntilApplied(&'a Reached),
    /// Until they are durable in the archive: no replica is known to need them.
    UntilDurable,
}

/// Purges the archive from time to time.
#[derive(Debug)]
pub struct Purger<'a> {
    retention: Retention,
    needed: Needed<'a>,
    status: &'a Status,
    next_check: Instant,
}

impl<'a> Purger<'a> {
    /// Keeps everything that is not applied to the replica.
    pub fn of_applied(retention: Retention, reached: &'a Reached, status: &'a Status) -> Purger<'a> {
        let needed = Needed::UntilApplied(reached);
        Purger { retention, needed, status, next_check: Instant::now() }
    }

    /// For an archive without a replica: keeps everything that is not durable.
    pub(crate) fn of_received(retention: Retention, status: &'a Status) -> Purger<'a> {
        Purger { retention, needed: Needed::UntilDurable, status, next_check: Instant::now() }
    }

    /// Removes files that nobody needs, if the next check is due.
    ///
    /// # Errors
    /// A full disk, or a fatal error of [`ArchiveWriter::purge`]. Files that cannot be removed are reported in the
    /// status, and the next check retries.
    pub(crate) fn purge_if_due(&mut self, writer: &mut ArchiveWriter) -> spate_archive::Result<()> {
        let now = Instant::now();
        if now < self.next_check {
            return Ok(());
        }
        self.next_check = now + CHECK_EVERY;
        let applied = Applied(match self.needed {
            Needed::UntilApplied(reached) => reached.lasting_seqno(),
            Needed::UntilDurable => writer.archive().tail().durable().seqno,
        });
        let now_seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
        let purged = match writer.purge(&self.retention, applied, now_seconds) {
            // No data is lost, and the next check retries.
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
