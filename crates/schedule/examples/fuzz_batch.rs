//! Feeds damaged events to batches, and emits their changes: `fuzz_batch -- [--seconds N] [--seed N]`.
//!
//! The events are those of the binlog files in the codec's `tests/data`, in order, as if no checksum had caught the
//! damage. The replica's definitions, with keys, are random. A panic ends the run; the message names the seed that
//! reproduces it. The emitted chunks must be whole: every image measurable by its table map, one end of statement in
//! each chunk.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a tool of the developers, who read its output")]

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use spate_binlog::boundary::BoundaryTracker;
use spate_binlog::header::HEADER_LENGTH;
use spate_binlog::{
    Boundary, ChecksumAlgorithm, EventHeader, EventType, FormatDescription, ImagePlan, RowsEvent, RowsKind,
    RowsVersion, TableMap,
};
use spate_schedule::definition::ColumnDefinition;
use spate_schedule::emit::ChunkWriter;
use spate_schedule::{Answer, Batch, BatchBuilder, Item, TableDefinition};

#[path = "../../binlog/fuzz/mutate.rs"]
mod mutate;

use mutate::{Random, mutate};

/// Events of one run: all of the smaller files, a part of the larger ones.
const EVENTS_MAX: usize = 120;

struct Event {
    header: EventHeader,
    body: Vec<u8>,
}

#[derive(Debug, Default)]
struct Tally {
    events: u64,
    refused: u64,
    batches: u64,
    chunks: u64,
    rows: u64,
}

fn main() {
    let seconds = argument("--seconds").unwrap_or(60);
    let first = argument("--seed").unwrap_or_else(|| u64::from(std::process::id()) << 32);
    let files: Vec<Vec<Event>> = files().iter().map(|file| events(file)).collect();
    println!("{} files, from seed {first} on, for {seconds} s", files.len());
    let (mut seed, mut tally) = (first, Tally::default());
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        seed += 1;
        if catch_unwind(AssertUnwindSafe(|| run(seed, &files, &mut tally))).is_err() {
            println!("found with --seed {}", seed - 1);
            std::process::exit(1);
        }
    }
    println!("{} runs, {tally:?}, nothing found", seed - first);
}

fn run(seed: u64, files: &[Vec<Event>], tally: &mut Tally) {
    let mut random = Random::new(seed);
    let file = &files[random.below(files.len())];
    let from = random.below(file.len().saturating_sub(EVENTS_MAX) + 1);
    let events = &file[from..(from + EVENTS_MAX).min(file.len())];
    let mut builder = BatchBuilder::new();
    if random.below(8) == 0 {
        builder.never_fold();
    }
    let damaged = [random.below(events.len()), random.below(events.len())];
    let mut tracker = BoundaryTracker::default();
    for (number, event) in events.iter().enumerate() {
        let mut body = event.body.clone();
        let mut header = event.header;
        if damaged.contains(&number) && random.below(8) != 0 {
            mutate(&mut body, &mut random);
        }
        if random.below(2000) == 0 {
            header.event_type = EventType(random.next() as u8);
        }
        tally.events += 1;
        let boundary = tracker.observe(&header, &body);
        if boundary.is_err() {
            tracker.reset();
        }
        if take(&mut builder, &header, &body, &mut random).is_none() {
            tally.refused += 1;
            builder = BatchBuilder::new();
            tracker.reset();
            continue;
        }
        if matches!(boundary, Ok(Boundary::End | Boundary::Whole)) {
            if builder.stands_among_others() {
                emit(&builder.take_earlier(), &mut random, tally);
            }
            builder.end_transaction();
        }
        if random.below(20) == 0 {
            emit(&builder.take(), &mut random, tally);
        }
    }
    emit(&builder.take(), &mut random, tally);
}

/// `None` if the builder refuses the event.
fn take(builder: &mut BatchBuilder, header: &EventHeader, body: &[u8], random: &mut Random) -> Option<()> {
    let mut is_ahead = random.below(2) == 0;
    for _ in 0..3 {
        match builder.event(header, body).ok()? {
            Answer::Taken => return Some(()),
            Answer::NeedsForeignKeys => {}
            Answer::NeedsDefinition(_) => {
                let definition = definition(&TableMap::parse(body).unwrap(), random);
                let was_ahead = std::mem::replace(&mut is_ahead, false);
                if was_ahead { builder.learn_ahead(definition) } else { builder.learn(definition) }
            }
        }
    }
    panic!("a definition was learned, and is asked for again");
}

/// Some definition of the table that a map describes.
fn definition(map: &TableMap, random: &mut Random) -> TableDefinition {
    let count = map.columns.len();
    let some = |random: &mut Random, at_most: usize| -> Vec<usize> {
        let mut columns: Vec<usize> = (0..random.below(at_most + 1)).map(|_| random.below(count)).collect();
        columns.sort_unstable();
        columns.dedup();
        columns.retain(|&column| column < count);
        columns
    };
    let extra = if random.below(10) == 0 { random.below(3) } else { 0 };
    let auto_increment = (random.below(3) == 0).then(|| random.below(count));
    let column = |number: usize, random: &mut Random| ColumnDefinition {
        name: format!("c{number}"),
        column_type: String::new(),
        is_unsigned: random.below(2) == 0,
        is_auto_increment: auto_increment == Some(number),
        is_generated: random.below(12) == 0,
        ..ColumnDefinition::default()
    };
    let row_key = if random.below(4) == 0 { vec![] } else { some(random, 3) };
    TableDefinition {
        name: spate_schedule::TableName { schema: map.schema.clone(), table: map.table.clone() },
        columns: (0..count + extra).map(|number| column(number, random)).collect(),
        unique_columns: some(random, 3),
        row_key,
        has_hidden_unique_key: random.below(20) == 0,
        engine: "InnoDB".into(),
        row_end: (random.below(20) == 0).then(|| random.below(count + 1)),
        is_sequence: random.below(10) == 0,
        is_transactional: random.below(10) != 0,
        has_engine_actions: random.below(10) == 0,
        ..TableDefinition::default()
    }
}

fn emit(batch: &Batch, random: &mut Random, tally: &mut Tally) {
    tally.batches += 1;
    let chunk_bytes_max = 1 << random.below(16);
    let mut checked = Tally::default();
    for item in &batch.items {
        match item {
            Item::Rows(segment) => {
                let sink = |events: &[u8]| -> Result<(), spate_schedule::Error> {
                    check_chunk(events, &mut checked);
                    Ok(())
                };
                let mut writer = ChunkWriter::new(chunk_bytes_max, 1, RowsVersion::V1, sink);
                if writer.segment(segment).is_ok() {
                    let _ = writer.finish();
                }
                let _ = segment.ordered().iter().map(|ordered| ordered.describe().len()).sum::<usize>();
            }
            Item::Statement(statement) => {
                let touched = spate_schedule::statement::touched(statement.text(), &statement.database);
                let _ = (touched, statement.error_code);
                let _ = spate_sql::excerpt(&statement.sql);
            }
            _ => {}
        }
    }
    tally.chunks += checked.chunks;
    tally.rows += checked.rows;
}

/// Checks that a server would accept a chunk: whole events, known tables, whole images, one end of statement.
fn check_chunk(mut events: &[u8], tally: &mut Tally) {
    tally.chunks += 1;
    let mut maps = HashMap::new();
    let mut ends = 0;
    while !events.is_empty() {
        let header = EventHeader::parse(events).unwrap();
        let (event, rest) = events.split_at(header.event_length as usize);
        let body = &event[HEADER_LENGTH..];
        events = rest;
        if header.event_type == EventType::TABLE_MAP {
            let map = TableMap::parse(body).unwrap();
            maps.insert(map.table_id, map);
            continue;
        }
        let rows = RowsEvent::parse(header.event_type, body).unwrap();
        ends += u32::from(rows.flags & spate_binlog::rows::FLAG_STATEMENT_END != 0);
        let map = maps.get(&rows.table_id).expect("its table map came before it");
        if map.unmeasurable_column().is_some() {
            continue;
        }
        if rows.is_row_of_defaults() {
            tally.rows += 1;
            continue;
        }
        let mut buffer = Vec::new();
        let mut images = rows.images(&mut buffer).unwrap();
        let first = ImagePlan::new(map, rows.columns, &[]).unwrap();
        let second = ImagePlan::new(map, rows.columns_after, &[]).unwrap();
        while !images.is_empty() {
            images = &images[first.measure(images, &mut []).unwrap()..];
            if rows.kind == RowsKind::Update {
                images = &images[second.measure(images, &mut []).unwrap()..];
            }
            tally.rows += 1;
        }
    }
    assert_eq!(ends, 1, "a chunk is one statement");
}

fn events(file: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    let mut rest = &file[4..];
    let mut checksum = ChecksumAlgorithm::None;
    while let Ok(header) = EventHeader::parse(rest) {
        let (event, tail) = rest.split_at(header.event_length as usize);
        if let Ok(format) = FormatDescription::parse(event) {
            checksum = format.checksum;
        }
        events.push(Event { header, body: checksum.body(event).unwrap().to_vec() });
        rest = tail;
    }
    events
}

fn files() -> Vec<Vec<u8>> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../binlog/tests/data");
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "bin"));
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn argument(name: &str) -> Option<u64> {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|argument| argument == name)?;
    Some(arguments.get(at + 1).and_then(|value| value.parse().ok()).expect("a number"))
}
