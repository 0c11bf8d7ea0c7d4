//! The applied position, kept on the replica and moved in the same transaction as the data.

use spate_archive::{ArchivedEvent, Seek, check_source_name};
use spate_binlog::GtidPosition;
use spate_binlog::encode::ColumnBitmap;
use spate_schedule::emit::OwnUpdate;

use crate::error::{Error, Result};
use crate::spread;
use spate_connection::{Connection, ResultSet, quote};

/// The row of each table with one row for each applier that says how far the replica has come as a whole. Other rows are of appliers that may
/// have come further, each with its own rows of tables: see [`crate::sharding`].
pub const APPLIER: u32 = 0;

/// The type of a GTID position: a TEXT holds some thousand domains, and what is longer is cut.
macro_rules! position_type {
    () => {
        "MEDIUMTEXT CHARACTER SET ascii"
    };
}
pub(crate) use position_type;

/// The columns of a checkpoint, with their types, in each table that holds one.
macro_rules! column_definitions {
    () => {
        concat!(
            "gtid_position ",
            crate::checkpoint::position_type!(),
            " NOT NULL, \
         source_file VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
         source_position BIGINT UNSIGNED NOT NULL, \
         seqno BIGINT UNSIGNED NOT NULL COMMENT 'transactions applied since the start', \
         source_seconds BIGINT UNSIGNED NOT NULL COMMENT 'commit time on the source, seconds since 1970'"
        )
    };
}
pub(crate) use column_definitions;

/// Their names, in the order of [`Checkpoint::parse`] and [`Checkpoint::values_sql`].
pub(crate) const COLUMNS: &str = "gtid_position,source_file,source_position,seqno,source_seconds";

/// The table of checkpoints: one row for each applier.
pub(crate) const CREATE_TABLE: &str = concat!(
    "CREATE TABLE IF NOT EXISTS spate.checkpoint (applier INT UNSIGNED NOT NULL PRIMARY KEY, ",
    column_definitions!(),
    ") ENGINE=InnoDB"
);

/// The table as a binlog describes it, from its id on: schema, name, the types of the columns and what there is to know of them.
const TABLE_MAP: &[u8] = b"\0\0\0\0\0\0\x01\0\x05spate\0\x0acheckpoint\0\x06\x03\xfc\x0f\x08\x08\x08\x03\x03\xfc\x03\0";

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
    /// Reads the [`COLUMNS`] of a row.
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
    pub fn pass(&mut self, event: &ArchivedEvent<'_>) {
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
    pub fn seek(&self) -> Seek {
        match self.place_without_gtid() {
            Some((file, position)) => Seek::Source { file, position },
            None => Seek::AfterGtid(self.gtid_position.clone()),
        }
    }

    /// The place in the source's binlog, if no GTID says where to go on.
    pub fn place_without_gtid(&self) -> Option<(String, u64)> {
        let is_by_file = self.gtid_position.is_empty() && !self.source_file.is_empty();
        is_by_file.then(|| (self.source_file.clone(), self.source_position))
    }

    /// The statement that moves the row from one checkpoint to this. It fails with the error 1690 if the row is not at `from`, and
    /// writes the row again if somebody has removed it.
    pub fn update_sql(&self, from: &Checkpoint) -> String {
        self.update_sql_of(APPLIER, from)
    }

    /// The same as a row of a transaction's own statement: the server has none to parse for it. It does not look where the row is. `None`: the values
    /// are too long for it.
    pub fn update_row(&self) -> Option<OwnUpdate> {
        const NO_NULLS: u8 = 0;
        const COLUMNS: usize = 6;
        let mut images = vec![NO_NULLS];
        images.extend_from_slice(&APPLIER.to_le_bytes());
        images.push(NO_NULLS);
        let mut add = |text: &str, length_bytes: usize| {
            let length = u32::try_from(text.len()).ok()?.to_le_bytes();
            let (length, beyond) = length.split_at(length_bytes);
            images.extend_from_slice(length);
            images.extend_from_slice(text.as_bytes());
            beyond.iter().all(|&byte| byte == 0).then_some(())
        };
        add(&self.gtid_position.to_string(), 3)?;
        add(&self.source_file, 2)?;
        for number in [self.source_position, self.seqno, self.source_seconds] {
            images.extend_from_slice(&number.to_le_bytes());
        }
        let columns = (ColumnBitmap::only(COLUMNS, &[0]), ColumnBitmap::only(COLUMNS, &[1, 2, 3, 4, 5]));
        Some(OwnUpdate { map: TABLE_MAP, columns, images })
    }

    /// The same of one of several appliers.
    pub fn update_sql_of(&self, applier: u32, from: &Checkpoint) -> String {
        let Checkpoint { gtid_position, source_position, seqno, source_seconds, .. } = self;
        let (file, values) = (quote::text(&self.source_file), self.values_sql());
        let (from_seqno, from_position, from_file) = (from.seqno, from.source_position, quote::text(&from.source_file));
        // The first assignment decides, since those behind it see what it has set. Not a WHERE: finding nothing is no error.
        format!(
            "INSERT INTO spate.checkpoint (applier,{COLUMNS}) VALUES ({applier},{values}) ON DUPLICATE KEY UPDATE \
             seqno=IF(seqno={from_seqno} AND source_position={from_position} AND source_file={from_file},{seqno},\
             applier+1+18446744073709551615),gtid_position='{gtid_position}',source_file={file},\
             source_position={source_position},source_seconds={source_seconds}"
        )
    }

    /// True if this is behind `other` in the source's binlog: not the same place, and not before it. Both are places of one binlog.
    pub fn is_beyond(&self, other: &Checkpoint) -> bool {
        if !self.gtid_position.is_empty() {
            return !other.gtid_position.covers_all(&self.gtid_position);
        }
        let place = |checkpoint: &Checkpoint| (file_number(&checkpoint.source_file), checkpoint.source_position);
        place(self) > place(other)
    }

    /// The values of the [`COLUMNS`], as SQL.
    pub(crate) fn values_sql(&self) -> String {
        let Checkpoint { gtid_position, source_position, seqno, source_seconds, .. } = self;
        let file = quote::text(&self.source_file);
        format!("'{gtid_position}',{file},{source_position},{seqno},{source_seconds}")
    }
}

/// `binlog.000012` is behind `binlog.000009`, and before `binlog.1000000`.
fn file_number(file: &str) -> u64 {
    file.rsplit('.').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// The server's error if the checkpoint is not where it was left: a sum that is too large, which no mode makes a warning of. (A subquery of two
/// rows is an error, too, and costs as much as the rest of the statement.)
pub const CODE_MOVED: u16 = 1690;

/// Reads the checkpoint; `None` if nothing was ever applied here.
///
/// # Errors
/// Any error of the connection; [`Error::Checkpoint`] if the row cannot be read.
pub fn read(connection: &mut Connection) -> Result<Option<Checkpoint>> {
    let rows = connection.query(&format!("SELECT {COLUMNS} FROM spate.checkpoint WHERE applier = {APPLIER}"))?;
    if rows.rows.is_empty() {
        return Ok(None);
    }
    let wrong = |why| Error::Checkpoint { replica: connection.peer().to_string(), why };
    Checkpoint::parse(columns_of(&rows, 0, 0)).map(Some).map_err(wrong)
}

/// The appliers that have come further than the replica as a whole, with where they are.
///
/// # Errors
/// Any error of the connection; [`Error::Checkpoint`] if a row cannot be read.
pub fn read_ahead(connection: &mut Connection, whole: &Checkpoint) -> Result<Vec<(u32, Checkpoint)>> {
    let appliers = read_appliers(connection)?;
    Ok(appliers.into_iter().filter(|(_, checkpoint)| checkpoint.is_beyond(whole)).collect())
}

/// All appliers that have rows of their own, with where they are.
///
/// # Errors
/// Any error of the connection; [`Error::Checkpoint`] if a row cannot be read.
pub(crate) fn read_appliers(connection: &mut Connection) -> Result<Vec<(u32, Checkpoint)>> {
    let sql = format!("SELECT {COLUMNS},applier FROM spate.checkpoint WHERE applier <> {APPLIER}");
    let rows = connection.query(&sql)?;
    let mut appliers = Vec::new();
    for row in 0..rows.rows.len() {
        let wrong = |why| Error::Checkpoint { replica: connection.peer().to_string(), why };
        let checkpoint = Checkpoint::parse(columns_of(&rows, row, 0)).map_err(wrong)?;
        let applier = rows.text_at(row, 5).and_then(|text| text.parse().ok()).unwrap_or(u32::MAX);
        appliers.push((applier, checkpoint));
    }
    Ok(appliers)
}

/// The [`COLUMNS`] of a row, of which the first is the column `first`.
pub(crate) fn columns_of(rows: &ResultSet, row: usize, first: usize) -> [String; 5] {
    std::array::from_fn(|column| rows.text_at(row, first + column).unwrap_or_default())
}

/// Writes the first checkpoint, or replaces it.
///
/// # Errors
/// Any error of the connection.
pub fn begin(connection: &mut Connection, checkpoint: &Checkpoint) -> Result<()> {
    let values = checkpoint.values_sql();
    let sql = format!(
        "DELETE FROM spate.checkpoint WHERE applier<>{APPLIER};\
         REPLACE INTO spate.checkpoint (applier,{COLUMNS}) VALUES ({APPLIER},{values});{}",
        spread::clear_sql()
    );
    connection.execute(sql.as_bytes())?;
    Ok(())
}

/// Removes the checkpoint: somebody else applies from now on.
///
/// # Errors
/// Any error of the connection.
pub fn forget(connection: &mut Connection) -> Result<()> {
    let sql = format!("DELETE FROM spate.checkpoint;{}", spread::clear_sql());
    connection.execute(sql.as_bytes())?;
    Ok(())
}
