//! Which transactions behind a mistake touch the same rows: what a person must look at before the mistake alone is undone.
//!
//! Rows are known by the bytes of their primary key, as the row images have them. What cannot be compared so is told apart, since it may touch them:
//! statements and definitions, and of the mistake's tables and those that foreign keys connect with them, rows without a primary key, rows behind a
//! definition, and rows that an engine may have changed by itself.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use spate_archive::{Archive, ArchivedEvent, ReadOptions, Seek};
use spate_binlog::payload::PayloadEvents;
use spate_binlog::{Boundary, EventType, ImagePlan, QueryEvent, RowsEvent, RowsKind, Span, TableMap, table_map};
use spate_connection::Connection;

use crate::error::{Error, Result};
use crate::goal::Found;

/// Rows of the mistake that are remembered. A larger one touches too much for a list.
const KEYS_MAX: usize = 4 << 20;
/// Transactions that are named; of the others, only their number.
const NAMED_MAX: usize = 1000;

/// What comes behind a transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Later {
    /// Rows that the transaction changed.
    pub rows: u64,
    /// Transactions behind it.
    pub transactions: u64,
    /// Those of them that change some of the same rows.
    pub touching: Vec<String>,
    /// How many these are.
    pub touching_count: u64,
    /// Those of them that may do so, and nobody can tell from the binlog: statements, definitions, tables without a primary key.
    pub unclear: Vec<String>,
    /// How many these are.
    pub unclear_count: u64,
    /// Why nothing is said of the transaction's own rows. `None`: its rows are known.
    pub unknown: Option<String>,
}

/// Looks through the archive from the transaction on. The server is as it was before.
pub(crate) fn touching(
    archive: &Archive,
    mistake: &Found,
    connection: &mut Connection,
    stop: &AtomicBool,
) -> Result<Later> {
    let mut reader = archive.reader(&Seek::Seqno(mistake.seqno), ReadOptions::default())?;
    let mut walker = Walker { catalog: Catalog::of(connection)?, ..Walker::default() };
    let mut wanted: HashSet<Vec<u8>> = HashSet::new();
    let mut later = Later::default();
    let mut name = String::new();
    while let Some(event) = reader.next_event()? {
        if event.boundary == Boundary::Outside {
            continue;
        }
        if stop.load(Ordering::Acquire) {
            return Err(Error::Stopped);
        }
        if matches!(event.boundary, Boundary::Begin | Boundary::Whole) {
            let begin = event.source_end_position.saturating_sub(u64::from(event.header.event_length));
            let place = || format!("{}:{begin}", event.source_file);
            name = event.gtid().map_or_else(place, |gtid| gtid.gtid.to_string());
            walker.begin();
        }
        walker.take(&event)?;
        if !matches!(event.boundary, Boundary::End | Boundary::Whole) {
            continue;
        }
        if event.seqno == mistake.seqno {
            later.rows = walker.touched.len() as u64;
            if walker.is_unclear || walker.touched.len() >= KEYS_MAX {
                let why = "it holds statements, definitions, or rows of tables without a primary key, or too many rows";
                later.unknown = Some(why.to_owned());
            }
            wanted = std::mem::take(&mut walker.touched);
            walker.only_tables_of_mistake();
            continue;
        }
        later.transactions += 1;
        if walker.touched.iter().any(|key| wanted.contains(key)) {
            later.touching_count += 1;
            if later.touching.len() < NAMED_MAX {
                later.touching.push(name.clone());
            }
        } else if walker.is_unclear {
            later.unclear_count += 1;
            if later.unclear.len() < NAMED_MAX {
                later.unclear.push(name.clone());
            }
        }
    }
    Ok(later)
}

/// A schema and a table.
type Name = (String, String);

/// What the server says of all tables.
#[derive(Default)]
struct Catalog {
    /// The places of the primary key's columns.
    keys: HashMap<Name, Vec<usize>>,
    /// Pairs that foreign keys connect: an engine may change rows of one for a change of the other, which no binlog has.
    connected: Vec<(Name, Name)>,
}

impl Catalog {
    fn of(connection: &mut Connection) -> Result<Catalog> {
        let mut catalog = Catalog::default();
        connection.for_each_row(
            "SELECT s.TABLE_SCHEMA, s.TABLE_NAME, c.ORDINAL_POSITION FROM information_schema.STATISTICS s \
             JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = s.TABLE_SCHEMA AND c.TABLE_NAME = s.TABLE_NAME \
             AND c.COLUMN_NAME = s.COLUMN_NAME WHERE s.INDEX_NAME = 'PRIMARY' AND s.SUB_PART IS NULL \
             ORDER BY s.TABLE_SCHEMA, s.TABLE_NAME, s.SEQ_IN_INDEX",
            |row| {
                let text = |column| row.get(column).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                let place = text(2).and_then(|text| text.parse::<usize>().ok()?.checked_sub(1));
                if let (Some(schema), Some(table), Some(place)) = (text(0), text(1), place) {
                    catalog.keys.entry((schema, table)).or_default().push(place);
                }
                ControlFlow::Continue(())
            },
        )?;
        connection.for_each_row(
            "SELECT TABLE_SCHEMA, TABLE_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME \
             FROM information_schema.KEY_COLUMN_USAGE WHERE REFERENCED_TABLE_NAME IS NOT NULL",
            |row| {
                let text = |column| row.get(column).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                if let (Some(schema), Some(table), Some(parent_schema), Some(parent)) =
                    (text(0), text(1), text(2), text(3))
                {
                    catalog.connected.push(((schema, table), (parent_schema, parent)));
                }
                ControlFlow::Continue(())
            },
        )?;
        Ok(catalog)
    }

    /// The tables, and all that foreign keys connect with them.
    fn with_connected(&self, tables: &HashSet<Name>) -> HashSet<Name> {
        let mut all = tables.clone();
        loop {
            let before = all.len();
            for (child, parent) in &self.connected {
                if all.contains(child) || all.contains(parent) {
                    all.insert(child.clone());
                    all.insert(parent.clone());
                }
            }
            if all.len() == before {
                return all;
            }
        }
    }
}

#[derive(Default)]
struct Walker {
    catalog: Catalog,
    /// Of the current transaction.
    maps: HashMap<u64, TableMap>,
    plans: HashMap<(u64, Vec<u8>), Option<ImagePlan>>,
    touched: HashSet<Vec<u8>>,
    is_unclear: bool,
    /// Tables with changed rows, until the mistake has ended.
    tables: HashSet<Name>,
    /// Behind the mistake: only these tables matter.
    others_are_apart: bool,
    /// The mistake's tables, and those that foreign keys connect with them.
    connected: HashSet<Name>,
    /// A definition came behind the mistake: keys may be elsewhere in the images.
    is_defined_anew: bool,
}

impl Walker {
    fn begin(&mut self) {
        self.maps.clear();
        self.plans.clear();
        self.touched.clear();
        self.is_unclear = false;
    }

    fn only_tables_of_mistake(&mut self) {
        self.connected = self.catalog.with_connected(&self.tables);
        self.others_are_apart = true;
        self.is_defined_anew = false;
    }

    fn take(&mut self, event: &ArchivedEvent<'_>) -> Result<()> {
        if event.header.event_type == EventType::TRANSACTION_PAYLOAD {
            let place = || format!("{}:{}", event.source_file, event.source_end_position);
            let unreadable = |error: spate_binlog::Error| Error::Refused(format!("{}: {error}", place()));
            let mut events = PayloadEvents::open(event.body).map_err(unreadable)?;
            while let Some((header, body)) = events.next_event().map_err(unreadable)? {
                self.event(header.event_type, body);
            }
            return Ok(());
        }
        self.event(event.header.event_type, event.body);
        Ok(())
    }

    fn event(&mut self, event_type: EventType, body: &[u8]) {
        match event_type {
            EventType::TABLE_MAP => {
                let (Ok(id), Ok(map)) = (table_map::table_id(body), TableMap::parse(body)) else {
                    self.is_unclear = true;
                    return;
                };
                self.maps.insert(id, map);
            }
            EventType::QUERY => {
                let is_frame = QueryEvent::parse(body).is_ok_and(|query| query.begins_group() || query.ends_group());
                self.is_unclear |= !is_frame;
                self.is_defined_anew |= !is_frame;
            }
            EventType::QUERY_COMPRESSED | EventType::EXECUTE_LOAD_QUERY => {
                self.is_unclear = true;
                self.is_defined_anew = true;
            }
            _ if RowsKind::of(event_type).is_some() => {
                let are_known = self.rows(event_type, body);
                self.is_unclear |= !are_known;
            }
            _ => {}
        }
    }

    /// False if the rows may be those of the mistake, and cannot be told apart.
    fn rows(&mut self, event_type: EventType, body: &[u8]) -> bool {
        let Ok(rows) = RowsEvent::parse(event_type, body) else { return false };
        let Some(map) = self.maps.get(&rows.table_id) else { return false };
        let name = (map.schema.clone(), map.table.clone());
        if self.others_are_apart {
            if !self.connected.contains(&name) {
                return true;
            }
            if self.is_defined_anew || !self.tables.contains(&name) {
                return false;
            }
        } else {
            self.tables.insert(name.clone());
        }
        let Some(key) = self.catalog.keys.get(&name) else { return false };
        if rows.has_partial_json || rows.is_row_of_defaults() {
            return false;
        }
        let mut plan = |columns: &[u8]| {
            let at = (rows.table_id, columns.to_vec());
            self.plans.entry(at).or_insert_with(|| ImagePlan::new(map, columns, key).ok()).clone()
        };
        let (Some(before), Some(after)) = (plan(rows.columns), plan(rows.columns_after)) else { return false };
        let mut buffer = Vec::new();
        let Ok(images) = rows.images(&mut buffer) else { return false };
        let of_a_row: &[&ImagePlan] = if rows.kind == RowsKind::Update { &[&before, &after] } else { &[&before] };
        let mut offset = 0;
        let mut spans = vec![Span::default(); key.len()];
        while offset < images.len() {
            for plan in of_a_row {
                let image = &images[offset..];
                let Ok(length) = plan.measure(image, &mut spans) else { return false };
                offset += length;
                if self.touched.len() < KEYS_MAX {
                    self.touched.insert(key_bytes(&name.0, &name.1, image, &spans));
                }
            }
        }
        true
    }
}

fn key_bytes(schema: &str, table: &str, image: &[u8], spans: &[Span]) -> Vec<u8> {
    let mut bytes = format!("{schema}\0{table}\0").into_bytes();
    for span in spans {
        let field = span.field(image);
        bytes.extend((field.len() as u32).to_le_bytes());
        bytes.extend(field);
    }
    bytes
}
