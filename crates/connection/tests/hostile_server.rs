//! A short run of the fuzzer of connections; `cargo run --release --example fuzz_wire` is the long one.

#![expect(clippy::unwrap_used, reason = "a panic is what this test looks for")]

#[path = "../fuzz/hostile.rs"]
mod hostile;
#[path = "../../binlog/fuzz/mutate.rs"]
mod mutate;

use hostile::{Subject, World, peak_resident_bytes};

#[test]
fn damaged_dialogues_end_with_an_answer_or_an_error() {
    const SEEDS: u64 = 1000;
    let mut world = World::new();
    for seed in 0..SEEDS {
        for subject in Subject::ALL {
            world.run(seed, subject);
        }
    }
    // Some dialogues go beyond their beginning.
    let tally = world.tally;
    assert!(tally.logins > SEEDS && tally.answers > SEEDS / 4 && tally.handshakes > SEEDS / 8, "{tally:?}");
    assert!(peak_resident_bytes() < 200 << 20, "{} bytes", peak_resident_bytes());
}
