//! Reads transactions out of a directory of binlogs.

use std::collections::HashMap;
use std::sync::Arc;

use spate_archive::{ArchiveReader, ArchivedEvent};
use spate_binlog::value::{NamedValue, named_values};
use spate_binlog::{Boundary, EventType, Gtid, GtidEvent, ImagePlan, QueryEvent, RowsEvent, RowsKind, Span, TableMap};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::hashed::HashedMap;
use crate::tables::Tables;
use crate::transaction::{Reach, Transaction};
use crate::{Error, Result};

/// Walks of images that are kept. A source whose tables are opened again has many table maps.
const PLANS_MAX: usize = 16 << 10;

/// Rows of a transaction whose keys are kept. What is larger stands alone.
const KEYS_MAX: usize = 1 << 20;

/// Reads one transaction after the other.
pub(crate) struct Transactions {
    reader: ArchiveReader,
    walker: Walker,
    is_open: bool,
}

/// Takes events apart.
struct Walker {
    tables: Tables,
    /// By the id in the rows events of the transaction.
    maps: HashMap<u64, usize>,
    plans: Vec<TablePlan>,
    /// Of `plans`, by the table map's body without its id.
    known: HashedMap<usize>,
    current: Transaction,
    decompressed: Vec<u8>,
    spans: Vec<Span>,
}

/// How to walk the rows of a table map.
struct TablePlan {
    map: TableMap,
    table: u32,
    schema_hash: u64,
    table_hash: u64,
    key: Vec<usize>,
    /// One for each set of columns that images have. Nearly always there is one set.
    walks: Vec<Walk>,
}

/// How to walk images that hold certain columns.
struct Walk {
    columns: Vec<u8>,
    images: ImagePlan,
    /// The images hold the whole key.
    has_key: bool,
}

impl TablePlan {
    /// The walk of images with these columns. `None`: they cannot be walked.
    fn walk(&mut self, columns: &[u8]) -> Option<usize> {
        if let Some(known) = self.walks.iter().position(|walk| walk.columns == columns) {
            return Some(known);
        }
        let with_key = ImagePlan::new(&self.map, columns, &self.key);
        let has_key = with_key.is_ok() && !self.key.is_empty();
        let images = with_key.or_else(|_| ImagePlan::new(&self.map, columns, &[])).ok()?;
        self.walks.push(Walk { columns: columns.to_vec(), images, has_key });
        Some(self.walks.len() - 1)
    }

    /// The key of an image, for people.
    fn key_text(&self, image: &[u8], spans: &[Span]) -> String {
        let names = &self.map.metadata.column_names;
        let part = |(&span, &column): (&Span, &usize)| NamedValue {
            name: names.get(column).map_or("", String::as_str),
            column_type: self.map.columns[column],
            is_unsigned: self.map.is_unsigned(column),
            span,
        };
        named_values(image, spans.iter().zip(&self.key).map(part))
    }
}

impl Transactions {
    pub(crate) fn new(reader: ArchiveReader, top: usize) -> Transactions {
        let walker = Walker {
            tables: Tables::new(top),
            maps: HashMap::new(),
            plans: Vec::new(),
            known: HashedMap::default(),
            current: Transaction::default(),
            decompressed: Vec::new(),
            spans: Vec::new(),
        };
        Transactions { reader, walker, is_open: false }
    }

    /// The tables that were met.
    pub(crate) fn tables(&self) -> &Tables {
        &self.walker.tables
    }

    /// The next whole transaction. `None`: there is no further one.
    ///
    /// # Errors
    /// What the archive's reader says; [`Error::Transaction`] names the place of an event that cannot be read.
    pub(crate) fn next(&mut self) -> Result<Option<&Transaction>> {
        loop {
            let Some(event) = self.reader.next_event()? else { return Ok(None) };
            if matches!(event.boundary, Boundary::Begin | Boundary::Whole) {
                self.walker.begin(&event);
                self.is_open = true;
            }
            if event.boundary == Boundary::Outside || !self.is_open {
                continue;
            }
            let place = || format!("{}:{}", event.source_file, event.source_end_position);
            self.walker.take(&event).map_err(|error| Error::Transaction { place: place(), error })?;
            if matches!(event.boundary, Boundary::End | Boundary::Whole) {
                self.is_open = false;
                let current = &mut self.walker.current;
                current.keys.sort_unstable();
                current.keys.dedup();
                return Ok(Some(current));
            }
        }
    }
}

impl Walker {
    fn begin(&mut self, event: &ArchivedEvent<'_>) {
        self.current.clear();
        self.maps.clear();
        if self.plans.len() > PLANS_MAX {
            self.plans.clear();
            self.known.clear();
        }
        let current = &mut self.current;
        current.seqno = event.seqno;
        if !Arc::ptr_eq(&current.source_file, event.source_file) {
            current.source_file = event.source_file.clone();
        }
        if let Some(gtid) = event.gtid() {
            current.gtid = Some(gtid.gtid);
            current.logical_clock = gtid.logical_clock;
            if let Gtid::MariaDb(id) = gtid.gtid {
                current.commit_group = gtid.commit_id.map(|commit_id| (id.domain_id, commit_id));
            }
            if gtid.has(GtidEvent::DDL) {
                current.reach_at_least(Reach::Definition);
            }
        }
    }

    fn take(&mut self, event: &ArchivedEvent<'_>) -> spate_binlog::Result<()> {
        self.current.bytes += event.bytes.len() as u64;
        self.current.commit_seconds = event.header.timestamp_seconds;
        self.current.source_position = event.source_end_position;
        // The GTID event has the time of the commit; the next, of the first statement.
        if self.current.begin_seconds == 0 && !event.header.event_type.is_gtid() {
            self.current.begin_seconds = event.header.timestamp_seconds;
        }
        match event.header.event_type {
            EventType::TABLE_MAP => self.table_map(event.body),
            EventType::QUERY => self.query(&QueryEvent::parse(event.body)?),
            EventType::QUERY_COMPRESSED | EventType::EXECUTE_LOAD_QUERY => {
                self.current.statements += 1;
                self.current.reach_at_least(Reach::Statement);
                Ok(())
            }
            event_type if RowsKind::of(event_type).is_some() => self.rows(event_type, event.body),
            _ => Ok(()),
        }
    }

    fn query(&mut self, query: &QueryEvent<'_>) -> spate_binlog::Result<()> {
        if query.begins_group() || query.ends_group() {
            return Ok(());
        }
        self.current.statements += 1;
        let text = query.statement_text();
        let word = text.trim_start().split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        let changes_rows = ["INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "SAVEPOINT", "ROLLBACK", "SET", "CALL"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(word));
        self.current.reach_at_least(if changes_rows { Reach::Statement } else { Reach::Definition });
        self.add_schema(xxh3_64(query.database));
        Ok(())
    }

    fn add_schema(&mut self, schema: u64) {
        if !self.current.schemas.contains(&schema) {
            self.current.schemas.push(schema);
        }
    }

    fn table_map(&mut self, body: &[u8]) -> spate_binlog::Result<()> {
        let id = spate_binlog::table_map::table_id(body)?;
        // The six bytes of the id are another each time that the table is opened.
        let hash = xxh3_64(body.get(6..).unwrap_or_default());
        let plan = match self.known.get(&hash) {
            Some(&plan) => plan,
            None => {
                let plan = self.plan(TableMap::parse(body)?);
                self.plans.push(plan);
                self.known.insert(hash, self.plans.len() - 1);
                self.plans.len() - 1
            }
        };
        self.maps.insert(id, plan);
        let schema = self.plans[plan].schema_hash;
        self.add_schema(schema);
        Ok(())
    }

    fn plan(&mut self, map: TableMap) -> TablePlan {
        let mut key = map.metadata.primary_key.clone();
        let mut is_assumed = false;
        if map.metadata.column_names.is_empty() && key.is_empty() && !map.columns.is_empty() && !map.is_nullable(0) {
            // The source does not say.
            key = vec![0];
            is_assumed = true;
        }
        let table = self.tables.number(&map.schema, &map.table, key.is_empty(), is_assumed);
        let schema_hash = xxh3_64(map.schema.as_bytes());
        let table_hash = xxh3_64_with_seed(map.table.as_bytes(), schema_hash);
        TablePlan { table, schema_hash, table_hash, key, walks: Vec::new(), map }
    }

    fn rows(&mut self, event_type: EventType, body: &[u8]) -> spate_binlog::Result<()> {
        let rows = RowsEvent::parse(event_type, body)?;
        let Some(plan) = self.maps.get(&rows.table_id).and_then(|&plan| self.plans.get_mut(plan)) else {
            return Err(spate_binlog::Error::Malformed {
                what: "rows event",
                why: "no table map names its table".to_owned(),
            });
        };
        let images = rows.images(&mut self.decompressed)?;
        let walks = plan.walk(rows.columns).zip(plan.walk(rows.columns_after));
        let Some((before, after)) = walks.filter(|_| !rows.has_partial_json && !rows.is_row_of_defaults()) else {
            // How many rows these are is not known, and so not which.
            self.current.rows += 1;
            self.current.add_keyless(plan.table_hash, 1);
            self.tables.count(plan.table, 1, images.len() as u64);
            return Ok(());
        };
        let of_a_row: &[usize] = if rows.kind == RowsKind::Update { &[before, after] } else { &[before] };
        let (mut offset, mut count) = (0, 0);
        while offset < images.len() {
            let mut last = None;
            for &walk in of_a_row {
                let walk = &plan.walks[walk];
                let image = &images[offset..];
                self.spans.resize(plan.key.len(), Span::default());
                offset += walk.images.measure(image, &mut self.spans)?;
                if !walk.has_key {
                    continue;
                }
                let hash = key_hash(plan.table_hash, image, &self.spans);
                if last != Some(hash) && self.current.keys.len() < KEYS_MAX {
                    self.current.keys.push(hash);
                    self.tables.touch(plan.table, hash, || plan.key_text(image, &self.spans));
                }
                last = Some(hash);
            }
            count += 1;
        }
        if of_a_row.iter().all(|&walk| !plan.walks[walk].has_key) {
            self.current.add_keyless(plan.table_hash, count);
        }
        if self.current.keys.len() >= KEYS_MAX {
            self.current.reach_at_least(Reach::ManyRows);
        }
        self.current.rows += count;
        self.tables.count(plan.table, count, images.len() as u64);
        Ok(())
    }
}

/// A row's hash: of its table, and of the bytes of its key.
fn key_hash(table: u64, image: &[u8], spans: &[Span]) -> u64 {
    spans.iter().fold(table, |hash, span| match span.is_null {
        true => hash.rotate_left(1) ^ 1,
        false => xxh3_64_with_seed(span.field(image), hash),
    })
}
