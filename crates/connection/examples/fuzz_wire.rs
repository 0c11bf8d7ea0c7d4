//! Plays damaged dialogues to a connection: `fuzz_wire -- [--seconds N] [--seed N] [--subject login|answers|tls]`.
//!
//! A panic ends the run, and the message names the seed that reproduces it. Each run makes new keys, so a seed of TLS
//! reproduces the dialogue, but not each of its bytes.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a tool of the developers, who read its output")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[path = "../fuzz/hostile.rs"]
mod hostile;
#[path = "../../binlog/fuzz/mutate.rs"]
mod mutate;

use hostile::{Subject, World, peak_resident_bytes};

/// Limit for all buffers, one kept answer and the allocator's reserve; far below the lengths that a hostile server
/// announces.
const RESIDENT_BYTES_MAX: u64 = 200 << 20;

fn main() {
    let seconds = argument("--seconds").map_or(60, |text| text.parse().expect("a number"));
    let first =
        argument("--seed").map_or_else(|| u64::from(std::process::id()) << 32, |text| text.parse().expect("a number"));
    let subjects: Vec<Subject> = match argument("--subject").as_deref() {
        None => Subject::ALL.to_vec(),
        Some("login") => vec![Subject::Login],
        Some("answers") => vec![Subject::Answers],
        Some("tls") => vec![Subject::Tls],
        Some(other) => panic!("no subject: {other}"),
    };
    println!("{subjects:?}, from seed {first} on, for {seconds} s");
    // The parser of RSA keys panics, and the connection turns the panic into an error: print nothing.
    let last_words = Arc::new(Mutex::new(String::new()));
    let heard = last_words.clone();
    std::panic::set_hook(Box::new(move |panic| *heard.lock().unwrap() = panic.to_string()));
    let (mut seed, mut world) = (first, World::new());
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        for subject in &subjects {
            if catch_unwind(AssertUnwindSafe(|| world.run(seed, *subject))).is_err() {
                println!("{}\nfound with --seed {seed}, {subject:?}", last_words.lock().unwrap());
                std::process::exit(1);
            }
        }
        if peak_resident_bytes() > RESIDENT_BYTES_MAX {
            println!("{} bytes of memory, with --seed {seed}", peak_resident_bytes());
            std::process::exit(1);
        }
        seed += 1;
    }
    println!("{} seeds, {:?}, {} MiB, nothing found", seed - first, world.tally, peak_resident_bytes() >> 20);
}

fn argument(name: &str) -> Option<String> {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|argument| argument == name)?;
    Some(arguments.get(at + 1).expect("a value").clone())
}
