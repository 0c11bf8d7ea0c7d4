//! `cargo +nightly fuzz run file`, with `tests/data/*.bin` as a corpus to begin with.
//!
//! Without a nightly compiler: `cargo run --release -p spate-binlog --example fuzz_codec -- --seconds 300`.

#![no_main]

#[path = "../walk.rs"]
mod walk;

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    walk::walk(file);
});
