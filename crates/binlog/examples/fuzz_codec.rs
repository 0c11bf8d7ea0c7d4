//! Feeds damaged binlog files to the codec for a while: `fuzz_codec -- [--seconds N] [--seed N]`.
//!
//! The files are those of `tests/data`, an event or a file at a time. A panic ends the run; the message names the seed
//! that reproduces it.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a tool of the developers, who read its output")]

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use spate_binlog::{ChecksumAlgorithm, EventHeader, EventType, TableMap};

#[path = "../fuzz/mutate.rs"]
mod mutate;
#[path = "../fuzz/walk.rs"]
mod walk;

use mutate::{Random, mutate};

/// A table map or other event, with the tables that are known at its place.
struct Seed {
    header: EventHeader,
    body: Vec<u8>,
    map_body: Vec<u8>,
}

fn main() {
    let seconds = argument("--seconds").unwrap_or(60);
    let mut seed = argument("--seed").unwrap_or_else(|| u64::from(std::process::id()) << 32);
    let files = files();
    let seeds: Vec<Seed> = files.iter().flat_map(|file| seeds(file)).collect();
    println!("{} files, {} events, from seed {seed} on, for {seconds} s", files.len(), seeds.len());
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut runs, mut events) = (0u64, 0u64);
    while Instant::now() < end {
        seed += 1;
        let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, &files, &seeds)));
        match outcome {
            Ok(count) => events += count as u64,
            Err(_) => {
                println!("found with --seed {}", seed - 1);
                std::process::exit(1);
            }
        }
        runs += 1;
    }
    println!("{runs} runs, {events} events, nothing found");
}

/// Damages and parses something that the seed chooses.
fn run(seed: u64, files: &[Vec<u8>], seeds: &[Seed]) -> usize {
    let mut random = Random::new(seed);
    if random.below(500) == 0 {
        let mut file = files[random.below(files.len())].clone();
        mutate(&mut file, &mut random);
        return walk::walk(&file);
    }
    let chosen = &seeds[random.below(seeds.len())];
    let (mut body, mut map_body) = (chosen.body.clone(), chosen.map_body.clone());
    if random.below(3) == 0 {
        mutate(&mut map_body, &mut random);
    }
    if random.below(4) != 0 {
        mutate(&mut body, &mut random);
    }
    let mut header = chosen.header;
    if random.below(50) == 0 {
        header.event_type = EventType(random.next() as u8);
    }
    let mut maps = HashMap::new();
    if let Ok(map) = TableMap::parse(&map_body) {
        let table_id = spate_binlog::table_map::table_id(&body).unwrap_or_default();
        maps.insert(table_id, map);
    }
    walk::parse_body(&header, &body, &mut maps);
    1
}

fn seeds(file: &[u8]) -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut map_body = Vec::new();
    let mut rest = &file[4..];
    let mut checksum = ChecksumAlgorithm::None;
    while let Ok(header) = EventHeader::parse(rest) {
        let (event, tail) = rest.split_at(header.event_length as usize);
        if let Ok(format) = spate_binlog::FormatDescription::parse(event) {
            checksum = format.checksum;
        }
        let body = checksum.body(event).unwrap().to_vec();
        if header.event_type == EventType::TABLE_MAP {
            map_body = body.clone();
        }
        seeds.push(Seed { header, body, map_body: map_body.clone() });
        rest = tail;
    }
    seeds
}

fn files() -> Vec<Vec<u8>> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
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
