//! What a running program takes of the memory.

use std::fs;
use std::time::Instant;

use super::PATIENCE;
use super::program::{Ended, Running};

/// The most that a process has held at once, in KiB; `None` if it is gone.
pub fn peak_kib(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Waits for a program's end; what it had held at its most, as seen shortly before.
pub fn peak_until_end(running: Running) -> (Ended, u64) {
    peak_while(running, PATIENCE, || {})
}

/// The same, with more patience, doing something meanwhile again and again.
pub fn peak_while(mut running: Running, patience: std::time::Duration, mut meanwhile: impl FnMut()) -> (Ended, u64) {
    const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(5);
    let deadline = Instant::now() + patience;
    let mut memory_kib = 0;
    while running.is_running() {
        assert!(Instant::now() < deadline, "the program does not end; it said: {}", running.said());
        memory_kib = memory_kib.max(peak_kib(running.id()).unwrap_or(0));
        meanwhile();
        std::thread::sleep(LOOK_EVERY);
    }
    (running.wait(), memory_kib)
}
