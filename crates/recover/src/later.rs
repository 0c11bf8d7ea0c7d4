//! Which transactions behind a mistake touch the same rows: what a person must look at before the mistake alone is undone.
//!
//! Rows are known by the bytes of their primary key, as the row images have them. What cannot be compared so (statements, definitions, tables
//! without a primary key) is told apart: it may touch anything.

use std::collections::{HashMap, HashSet};
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

/// Looks through the archive from the transaction on.
pub(crate) fn touching(
    archive: &Archive,
    mistake: &Found,
    connection: &mut Connection,
    stop: &AtomicBool,
) -> Result<Later> {
    let mut reader = archive.reader(&Seek::Seqno(mistake.seqno), ReadOptions::default())?;
    let mut walker = Walker {
        keys_of: HashMap::new(),
        maps: HashMap::new(),
        plans: HashMap::new(),
        connection,
        touched: HashSet::new(),
        is_unclear: false,
    };
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
            name = event.gtid().map_or_else(
                || {
                    format!(
                        "{}:{}",
                        event.source_file,
                        event.source_end_position - u64::from(event.header.event_length)
                    )
                },
                |gtid| gtid.gtid.to_string(),
            );
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

struct Walker<'a> {
    /// The places of the primary key's columns, by schema and table; empty without one.
    keys_of: HashMap<(String, String), Vec<usize>>,
    /// Of the current transaction.
    maps: HashMap<u64, TableMap>,
    plans: HashMap<(u64, Vec<u8>), Option<ImagePlan>>,
    connection: &'a mut Connection,
    touched: HashSet<Vec<u8>>,
    is_unclear: bool,
}

impl Walker<'_> {
    fn begin(&mut self) {
        self.maps.clear();
        self.plans.clear();
        self.touched.clear();
        self.is_unclear = false;
    }

    fn take(&mut self, event: &ArchivedEvent<'_>) -> Result<()> {
        if event.header.event_type == EventType::TRANSACTION_PAYLOAD {
            let place = || format!("{}:{}", event.source_file, event.source_end_position);
            let unreadable = |error: spate_binlog::Error| Error::Refused(format!("{}: {error}", place()));
            let mut events = PayloadEvents::open(event.body).map_err(unreadable)?;
            while let Some((header, body)) = events.next_event().map_err(unreadable)? {
                self.event(header.event_type, body)?;
            }
            return Ok(());
        }
        self.event(event.header.event_type, event.body)
    }

    fn event(&mut self, event_type: EventType, body: &[u8]) -> Result<()> {
        match event_type {
            EventType::TABLE_MAP => {
                let (Ok(id), Ok(map)) = (table_map::table_id(body), TableMap::parse(body)) else {
                    self.is_unclear = true;
                    return Ok(());
                };
                self.maps.insert(id, map);
            }
            EventType::QUERY => {
                let is_frame = QueryEvent::parse(body).is_ok_and(|query| query.begins_group() || query.ends_group());
                self.is_unclear |= !is_frame;
            }
            EventType::QUERY_COMPRESSED | EventType::EXECUTE_LOAD_QUERY => self.is_unclear = true,
            _ if RowsKind::of(event_type).is_some() => {
                let are_known = self.rows(event_type, body)?;
                self.is_unclear |= !are_known;
            }
            _ => {}
        }
        Ok(())
    }

    /// False if the rows cannot be told apart.
    fn rows(&mut self, event_type: EventType, body: &[u8]) -> Result<bool> {
        let Ok(rows) = RowsEvent::parse(event_type, body) else { return Ok(false) };
        let Some(map) = self.maps.get(&rows.table_id) else { return Ok(false) };
        let (schema, table) = (map.schema.clone(), map.table.clone());
        let key = self.key_of(&schema, &table)?;
        if key.is_empty() || rows.has_partial_json || rows.is_row_of_defaults() {
            return Ok(false);
        }
        let Some(map) = self.maps.get(&rows.table_id) else { return Ok(false) };
        let mut plan = |columns: &[u8]| {
            let at = (rows.table_id, columns.to_vec());
            self.plans.entry(at).or_insert_with(|| ImagePlan::new(map, columns, &key).ok()).clone()
        };
        let (Some(before), Some(after)) = (plan(rows.columns), plan(rows.columns_after)) else { return Ok(false) };
        let mut buffer = Vec::new();
        let Ok(images) = rows.images(&mut buffer) else { return Ok(false) };
        let of_a_row: &[&ImagePlan] = if rows.kind == RowsKind::Update { &[&before, &after] } else { &[&before] };
        let mut offset = 0;
        let mut spans = vec![Span::default(); key.len()];
        while offset < images.len() {
            for plan in of_a_row {
                let image = &images[offset..];
                let Ok(length) = plan.measure(image, &mut spans) else { return Ok(false) };
                offset += length;
                if self.touched.len() < KEYS_MAX {
                    self.touched.insert(key_bytes(&schema, &table, image, &spans));
                }
            }
        }
        Ok(true)
    }

    fn key_of(&mut self, schema: &str, table: &str) -> Result<Vec<usize>> {
        let name = (schema.to_owned(), table.to_owned());
        if let Some(known) = self.keys_of.get(&name) {
            return Ok(known.clone());
        }
        use spate_connection::quote::text;
        let rows = self.connection.query(&format!(
            "SELECT c.ORDINAL_POSITION FROM information_schema.STATISTICS s JOIN information_schema.COLUMNS c \
             ON c.TABLE_SCHEMA = s.TABLE_SCHEMA AND c.TABLE_NAME = s.TABLE_NAME AND c.COLUMN_NAME = s.COLUMN_NAME \
             WHERE s.TABLE_SCHEMA = {} AND s.TABLE_NAME = {} AND s.INDEX_NAME = 'PRIMARY' ORDER BY s.SEQ_IN_INDEX",
            text(schema),
            text(table)
        ))?;
        let places = (0..rows.rows.len()).filter_map(|row| rows.text_at(row, 0)?.parse::<usize>().ok()?.checked_sub(1));
        let places: Vec<usize> = places.collect();
        self.keys_of.insert(name, places.clone());
        Ok(places)
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
