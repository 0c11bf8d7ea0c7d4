//! Measures what a transaction costs from a hundred thousand to ten million of them: `cargo bench -p spate-schedule`, nanoseconds of one core for each.
//!
//! The cost must not grow with the number: a batch's end frees all that the batch held. Stages are measured apart: taking and folding events, dividing the
//! fold among appliers, and writing net changes as events. (The first is what the gathering stage does, the others the preparing one.)

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a tool of the developers, who read its output")]

#[path = "../tests/model/mod.rs"]
mod model;

use std::time::{Duration, Instant};

use model::{Change, definition, feed_to};
use spate_binlog::RowsVersion;
use spate_schedule::emit::ChunkWriter;
use spate_schedule::shards::{DivideBy, Rules, ShardMap};
use spate_schedule::{Batch, BatchBuilder, Item, TableDefinition};

/// Transactions of a batch, of two row changes each.
const BATCH: u64 = 100_000;

/// Rows that exist: an update takes one at random.
const ROWS: u64 = 1_000_000;

const APPLIERS: u32 = 4;

const CHUNK_BYTES: usize = 384 << 10;

fn main() {
    println!(
        "{:>12} {:>8} {:>8} {:>8}  ns a transaction, memory of a batch",
        "transactions", "fold", "divide", "write"
    );
    for transactions in [100_000, 1_000_000, 10_000_000] {
        let times = run(transactions);
        let each = |time: Duration| time.as_nanos() as f64 / transactions as f64;
        println!(
            "{transactions:>12} {:>8.0} {:>8.0} {:>8.0}  {} MiB",
            each(times.fold),
            each(times.divide),
            each(times.write),
            times.bytes_max >> 20
        );
    }
}

#[derive(Debug, Default)]
struct Times {
    fold: Duration,
    divide: Duration,
    write: Duration,
    bytes_max: usize,
}

fn run(transactions: u64) -> Times {
    let table = TableDefinition { unique_columns: vec![], unique_keys: vec![], ..definition() };
    let map = ShardMap::new(APPLIERS, DivideBy::Row, Rules::default());
    let (mut times, mut builder, mut random) = (Times::default(), BatchBuilder::new(), 7u64);
    for batch in 0..transactions / BATCH {
        let began = Instant::now();
        for number in 0..BATCH {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let id = (random >> 33) % ROWS;
            let (id, v) = (id as i32 + 1, number as i32);
            feed_to(&mut builder, Change::Update((id, (None, v)), (id, (None, v + 1))), &table);
            let new = (ROWS + batch * BATCH + number) as i32 + 1;
            feed_to(&mut builder, Change::Insert(new, (None, v)), &table);
        }
        let gathered = builder.take();
        times.fold += began.elapsed();
        times.bytes_max = times.bytes_max.max(gathered.items.iter().map(Item::memory_bytes).sum());
        let began = Instant::now();
        let shares = map.divide(gathered);
        times.divide += began.elapsed();
        let began = Instant::now();
        shares.iter().for_each(|(_, share)| write(share));
        times.write += began.elapsed();
    }
    times
}

fn write(batch: &Batch) {
    let sink = |events: &[u8]| -> Result<(), spate_schedule::Error> {
        std::hint::black_box(events);
        Ok(())
    };
    let mut writer = ChunkWriter::new(CHUNK_BYTES, 1, RowsVersion::V1, sink);
    for segment in batch.segments() {
        writer.segment(segment).unwrap();
    }
    writer.finish().unwrap();
}
