//! Measures how fast one core reads a binlog: `cargo bench -p spate-binlog`, megabytes (10⁶) per second of file.
//!
//! The benchmark makes the file: sysbench-like transactions of two updates, a delete and an insert in a table of four
//! columns.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a tool of the developers, who read its output")]

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use spate_binlog::checksum::append_crc32;
use spate_binlog::{
    BoundaryTracker, ChecksumAlgorithm, EventHeader, EventType, ImagePlan, RowsEvent, RowsKind, Span, TableMap,
};

const TRANSACTIONS: u64 = 30_000;
const DURATION_MIN: Duration = Duration::from_secs(2);

/// `CREATE TABLE sbtest1 (id INT PRIMARY KEY, k INT, c CHAR(120), pad CHAR(60))`.
const TABLE_MAP: &[u8] = b"\x12\0\0\0\0\0\x01\0\x06sbtest\0\x07sbtest1\0\x04\x03\x03\xfe\xfe\x04\xfe\x78\xfe\x3c\0";

fn main() {
    let file = file();
    let megabytes = file.len() as f64 / 1e6;
    println!("{megabytes:.1} MB, {TRANSACTIONS} transactions, {} row changes", TRANSACTIONS * 4);
    report("headers", megabytes, || walk(&file, |_, _| {}));
    report("headers, checksums", megabytes, || {
        walk(&file, |_, event| {
            black_box(ChecksumAlgorithm::Crc32.verified_body(event).unwrap());
        });
    });
    report("headers, boundaries", megabytes, || {
        let mut tracker = BoundaryTracker::default();
        walk(&file, |header, event| {
            let body = ChecksumAlgorithm::Crc32.body(event).unwrap();
            black_box(tracker.observe(header, body).unwrap());
        });
    });
    report("headers, rows with their keys", megabytes, || measure(&file, false));
    report("headers, checksums, rows with their keys", megabytes, || measure(&file, true));
}

fn report(name: &str, megabytes: f64, mut run: impl FnMut()) {
    let start = Instant::now();
    let mut best = Duration::MAX;
    while start.elapsed() < DURATION_MIN {
        let begin = Instant::now();
        run();
        best = best.min(begin.elapsed());
    }
    println!("{:>8.0} MB/s  {name}", megabytes / best.as_secs_f64());
}

fn walk<'a>(file: &'a [u8], mut visit: impl FnMut(&EventHeader, &'a [u8])) {
    let mut rest = file;
    while !rest.is_empty() {
        let header = EventHeader::parse(rest).unwrap();
        let (event, tail) = rest.split_at(header.event_length as usize);
        visit(&header, event);
        rest = tail;
    }
}

/// Reads the parts of each row that folding needs: each image's length and the bytes of its key.
fn measure(file: &[u8], verify: bool) {
    let mut plans: HashMap<u64, ImagePlan> = HashMap::new();
    let mut buffer = Vec::new();
    let mut keys = 0u64;
    walk(file, |header, event| {
        let checksum = ChecksumAlgorithm::Crc32;
        let body = if verify { checksum.verified_body(event) } else { checksum.body(event) }.unwrap();
        if header.event_type == EventType::TABLE_MAP {
            let table_id = spate_binlog::table_map::table_id(body).unwrap();
            plans
                .entry(table_id)
                .or_insert_with(|| ImagePlan::new(&TableMap::parse(body).unwrap(), &[0xf], &[0]).unwrap());
        } else if RowsKind::of(header.event_type).is_some() {
            let rows = RowsEvent::parse(header.event_type, body).unwrap();
            let plan = &plans[&rows.table_id];
            let mut rest = rows.images(&mut buffer).unwrap();
            let mut spans = [Span::default()];
            while !rest.is_empty() {
                let length = plan.measure(rest, &mut spans).unwrap();
                keys += u64::from(spans[0].value(rest)[0]);
                rest = &rest[length..];
            }
        }
    });
    black_box(keys);
}

fn file() -> Vec<u8> {
    let mut file = Vec::new();
    for sequence in 0..TRANSACTIONS {
        let gtid = [&sequence.to_le_bytes()[..], &[0, 0, 0, 0, 0x0c, 0, 0, 0, 0, 0, 0]].concat();
        append(&mut file, EventType::GTID_MARIADB, &gtid);
        let image = image(sequence);
        let rows = |columns: &[u8], images: &[&[u8]]| [b"\x12\0\0\0\0\0\x01\0\x04", columns, &images.concat()].concat();
        for (event_type, body) in [
            (EventType::UPDATE_ROWS_V1, rows(&[0xf, 0xf], &[&image, &image])),
            (EventType::UPDATE_ROWS_V1, rows(&[0xf, 0xf], &[&image, &image])),
            (EventType::DELETE_ROWS_V1, rows(&[0xf], &[&image])),
            (EventType::WRITE_ROWS_V1, rows(&[0xf], &[&image])),
        ] {
            append(&mut file, EventType::TABLE_MAP, TABLE_MAP);
            append(&mut file, event_type, &body);
        }
        append(&mut file, EventType::XID, &sequence.to_le_bytes());
    }
    file
}

fn image(sequence: u64) -> Vec<u8> {
    let mut image = vec![0xf0];
    image.extend_from_slice(&(sequence as u32).wrapping_mul(2_654_435_761).to_le_bytes());
    image.extend_from_slice(&(sequence as u32).to_le_bytes());
    for length in [119u8, 59] {
        image.push(length);
        image.extend((0..length).map(|index| b'0' + (sequence as u8).wrapping_add(index) % 10));
    }
    image
}

fn append(file: &mut Vec<u8>, event_type: EventType, body: &[u8]) {
    let mut event = EventHeader {
        timestamp_seconds: 1,
        event_type,
        server_id: 1,
        event_length: (19 + body.len() + 4) as u32,
        next_position: 0,
        flags: 0,
    }
    .encode()
    .to_vec();
    event.extend_from_slice(body);
    append_crc32(&mut event);
    file.extend_from_slice(&event);
}
