//! The applied position, kept on the replica and moved in the same transaction as the data.

use spate_archive::{ArchivedEvent, Seek, check_source_name};
use spate_binlog::GtidPosition;

use crate::error::{Error, Result};
use crate::verify::hold::APPLIER_LOCK;
use crate::wire::{Connection, quote};

/// Which row of the table is this applier's. One applier writes one row; `snapshot` consistency has one.
pub const APPLIER: u32 = 0;

/// How long to wait for the lock: after a crash the server may still be ending the old session, and its last commit.
const LOCK_WAIT_SECONDS: u32 = 10;

/// The table of checkpoints: one row for each applier.
pub(crate) const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS spate.checkpoint (\
     applier INT UNSIGNED NOT NULL PRIMARY KEY, \
     gtid_position TEXT CHARACTER SET ascii NOT NULL, \
     source_file VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
     source_position BIGINT UNSIGNED NOT NULL, \
     seqno BIGINT UNSIGNED NOT NULL COMMENT 'transactions applied since the start', \
     source_seconds BIGINT UNSIGNED NOT NULL COMMENT 'commit time on the source, seconds since 1970') ENGINE=InnoDB";

/// How far the replica has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last GTID of each domain that was applied.
    pub gtid_position: GtidPosition,
    /// The source's binlog file of the last transaction; empty before the first.
    pub source_file: String,
    /// Offset after the last transaction in that file.
    pub source_position: u64,
    /// Ordinal of the last transaction applied.
    pub seqno: u64,
    /// When it was committed on the source, in seconds since 1970.
    pub source_seconds: u64,
}

impl Checkpoint {
    /// Reads the columns of a row: GTID position, file, offset, seqno, seconds.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(crate) fn parse(columns: [String; 5]) -> std::result::Result<Checkpoint, String> {
        let [gtid_position, source_file, source_position, seqno, source_seconds] = columns;
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is no number"));
        if !source_file.is_empty() {
            check_source_name(&source_file)?;
        }
        Ok(Checkpoint {
            gtid_position: gtid_position.parse().map_err(|error: spate_binlog::Error| error.to_string())?,
            source_file,
            source_position: number(&source_position)?,
            seqno: number(&seqno)?,
            source_seconds: number(&source_seconds)?,
        })
    }

    /// Moves to the end of the transaction that `event` stands in, as far as the event shows where that is.
    pub(crate) fn pass(&mut self, event: &ArchivedEvent<'_>) {
        if let Some(gtid) = event.gtid() {
            self.gtid_position.advance(gtid.gtid);
        }
        if *self.source_file != **event.source_file {
            self.source_file = event.source_file.to_string();
        }
        self.source_position = event.source_end_position;
        self.seqno = event.seqno;
        self.source_seconds = u64::from(event.header.timestamp_seconds);
    }

    /// Where to go on in an archive.
    pub(crate) fn seek(&self) -> Seek {
        match self.place_without_gtid() {
            Some((file, position)) => Seek::Source { file, position },
            None => Seek::AfterGtid(self.gtid_position.clone()),
        }
    }

    /// The place in the source's binlog, if no GTID says where to go on.
    pub(crate) fn place_without_gtid(&self) -> Option<(String, u64)> {
        let is_by_file = self.gtid_position.is_empty() && !self.source_file.is_empty();
        is_by_file.then(|| (self.source_file.clone(), self.source_position))
    }

    /// The statement that moves the row to this checkpoint.
    pub fn update_sql(&self) -> String {
        format!(
            "UPDATE spate.checkpoint SET gtid_position='{}',source_file={},source_position={},seqno={},source_seconds={} \
             WHERE applier={APPLIER}",
            self.gtid_position,
            quote::text(&self.source_file),
            self.source_position,
            self.seqno,
            self.source_seconds,
        )
    }
}

/// Takes the lock that keeps two Spates from applying to one replica; it ends with the connection.
///
/// # Errors
/// [`Error::Locked`] if another session holds it.
pub fn lock(connection: &mut Connection) -> Result<()> {
    let answer = connection.query(&format!("SELECT GET_LOCK('{APPLIER_LOCK}', {LOCK_WAIT_SECONDS})"))?;
    if answer.single_text().as_deref() == Some("1") {
        return Ok(());
    }
    let holder = connection.query(&format!("SELECT IS_USED_LOCK('{APPLIER_LOCK}')"))?.single_text();
    Err(Error::Locked { replica: connection.peer().to_string(), holder: holder.unwrap_or_else(|| "unknown".into()) })
}

/// Reads the checkpoint; `None` if nothing was ever applied here.
///
/// # Errors
/// Any error of the connection; [`Error::Checkpoint`] if the row cannot be read.
pub fn read(connection: &mut Connection) -> Result<Option<Checkpoint>> {
    let rows = connection.query(&format!(
        "SELECT gtid_position, source_file, source_position, seqno, source_seconds \
         FROM spate.checkpoint WHERE applier = {APPLIER}"
    ))?;
    if rows.rows.is_empty() {
        return Ok(None);
    }
    let columns = std::array::from_fn(|column| rows.text_at(0, column).unwrap_or_default());
    let wrong = |why| Error::Checkpoint { replica: connection.peer().to_string(), why };
    Checkpoint::parse(columns).map(Some).map_err(wrong)
}

/// Writes the first checkpoint, or replaces it.
///
/// # Errors
/// Any error of the connection.
pub fn begin(connection: &mut Connection, checkpoint: &Checkpoint) -> Result<()> {
    let sql = format!(
        "REPLACE INTO spate.checkpoint (applier, gtid_position, source_file, source_position, seqno, source_seconds) \
         VALUES ({APPLIER}, '{}', {}, {}, {}, {})",
        checkpoint.gtid_position,
        quote::text(&checkpoint.source_file),
        checkpoint.source_position,
        checkpoint.seqno,
        checkpoint.source_seconds
    );
    connection.execute(sql.as_bytes())?;
    Ok(())
}
