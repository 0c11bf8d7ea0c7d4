//! Counts the transactions, row changes and bytes in a source's binlog files.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use spate_binlog::header::HEADER_LENGTH;
use spate_binlog::{
    ChecksumAlgorithm, EventHeader, EventType, FILE_MAGIC, FormatDescription, ImagePlan, RowsEvent, RowsKind, Span,
    TableMap,
};

use crate::{Error, Result};

/// The contents of some binlog files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BinlogCount {
    /// Transactions, by their GTID events.
    pub transactions: u64,
    /// Rows inserted, updated or deleted.
    pub row_changes: u64,
    /// Size of the files.
    pub bytes: u64,
    /// When the last transaction was committed, in seconds since 1970; 0 if it is not known.
    #[serde(default)]
    pub last_seconds: u64,
}

/// The plans to walk an event's images, by table id and the columns in them.
type Plans = HashMap<(u64, Vec<u8>), ImagePlan>;

/// Counts the files one after the other.
///
/// # Errors
/// [`Error::File`]; [`Error::Binlog`] at the first event that is damaged or unknown.
pub fn count_files(paths: &[PathBuf]) -> Result<BinlogCount> {
    let mut count = BinlogCount::default();
    for path in paths {
        FileCounter::open(path)?.run(&mut count)?;
    }
    Ok(count)
}

struct FileCounter<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    length: u64,
    offset: u64,
    checksum: ChecksumAlgorithm,
    tables: HashMap<u64, TableMap>,
    plans: Plans,
    decompressed: Vec<u8>,
}

impl<'a> FileCounter<'a> {
    fn open(path: &'a Path) -> Result<FileCounter<'a>> {
        let file = File::open(path).map_err(Error::file("open", path))?;
        let length = file.metadata().map_err(Error::file("look at", path))?.len();
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let mut magic = FILE_MAGIC;
        reader.read_exact(&mut magic).map_err(Error::file("read", path))?;
        Ok(FileCounter {
            path,
            reader,
            length,
            offset: FILE_MAGIC.len() as u64,
            checksum: ChecksumAlgorithm::None,
            tables: HashMap::new(),
            plans: HashMap::new(),
            decompressed: Vec::new(),
        })
    }

    fn run(mut self, count: &mut BinlogCount) -> Result<()> {
        let mut event = Vec::new();
        while self.offset < self.length {
            event.resize(HEADER_LENGTH, 0);
            self.reader.read_exact(&mut event).map_err(Error::file("read", self.path))?;
            let header = EventHeader::parse(&event).map_err(|error| self.damaged(error))?;
            count.last_seconds = count.last_seconds.max(u64::from(header.timestamp_seconds));
            event.resize(header.event_length as usize, 0);
            self.reader.read_exact(&mut event[HEADER_LENGTH..]).map_err(Error::file("read", self.path))?;
            self.event(&header, &event, count).map_err(|error| self.damaged(error))?;
            self.offset += event.len() as u64;
        }
        count.bytes += self.length;
        Ok(())
    }

    fn event(&mut self, header: &EventHeader, event: &[u8], count: &mut BinlogCount) -> spate_binlog::Result<()> {
        match header.event_type {
            EventType::FORMAT_DESCRIPTION => self.checksum = FormatDescription::parse(event)?.checksum,
            EventType::GTID_MARIADB
            | EventType::GTID_MYSQL
            | EventType::GTID_TAGGED_MYSQL
            | EventType::ANONYMOUS_GTID => count.transactions += 1,
            EventType::TABLE_MAP => {
                let table = TableMap::parse(self.checksum.body(event)?)?;
                // A table gets a new id after each flush; the old id's plans are for another table then.
                if self.tables.get(&table.table_id) != Some(&table) {
                    self.plans.retain(|(table_id, _), _| *table_id != table.table_id);
                    self.tables.insert(table.table_id, table);
                }
            }
            other if RowsKind::of(other).is_some() => {
                let rows = RowsEvent::parse(other, self.checksum.body(event)?)?;
                count.row_changes += self.rows(&rows)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn rows(&mut self, rows: &RowsEvent<'_>) -> spate_binlog::Result<u64> {
        let Some(table) = self.tables.get(&rows.table_id) else { return Ok(0) };
        let images_per_row = if rows.kind == RowsKind::Update { 2 } else { 1 };
        let images = rows.images(&mut self.decompressed)?;
        let (mut at, mut image_count) = (0, 0_u64);
        while at < images.len() {
            let columns = if image_count % 2 == 1 { rows.columns_after } else { rows.columns };
            let key = (rows.table_id, columns.to_vec());
            let plan = match self.plans.entry(key) {
                std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::hash_map::Entry::Vacant(new) => new.insert(ImagePlan::new(table, columns, &[])?),
            };
            at += plan.measure(&images[at..], &mut [] as &mut [Span])?;
            image_count += 1;
        }
        Ok(image_count / images_per_row)
    }

    fn damaged(&self, source: spate_binlog::Error) -> Error {
        Error::Binlog { path: self.path.to_owned(), offset: self.offset, source }
    }
}
