//! The counters of a running `spate replicate`, from the socket in its archive's directory that `spate status` asks, too.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Look;
use super::series::Recorder;

/// The socket's name in the archive.
const SOCKET: &str = "status.socket";
/// A busy program answers later; then this look has a gap.
const ANSWER_LIMIT: Duration = Duration::from_millis(200);

/// What is recorded of the status: its name there, and how it is called in series.
const COUNTERS: [(&str, &str); 4] = [
    ("row_changes", "spate row changes"),
    ("net_row_changes", "spate net row changes"),
    ("batches", "spate batches"),
    ("transactions", "spate transactions"),
];

pub(super) struct SpateCounters {
    archive: PathBuf,
    /// When sampling began.
    begun: Instant,
}

impl SpateCounters {
    pub(super) fn new(archive: PathBuf) -> SpateCounters {
        SpateCounters { archive, begun: Instant::now() }
    }

    /// Addresses of sockets are short: the directory is named by its descriptor.
    fn status(&self) -> Option<Value> {
        let directory = File::open(&self.archive).ok()?;
        let address = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
        let mut stream = UnixStream::connect(address).ok()?;
        stream.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
        let mut text = Vec::new();
        stream.read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

impl Look for SpateCounters {
    fn look(&mut self, recorder: &mut Recorder) {
        let Some(status) = self.status() else { return };
        let is_young = status["uptime_seconds"].as_f64().is_some_and(|age| age < self.begun.elapsed().as_secs_f64());
        for (field, name) in COUNTERS {
            match status[field].as_f64() {
                Some(value) if is_young => recorder.young_counter(name, "per second", value),
                Some(value) => recorder.counter(name, "per second", value),
                None => {}
            }
        }
        if let Some(transactions) = status["last_batch"]["transactions"].as_f64() {
            recorder.gauge("spate batch", "transactions", transactions);
        }
    }
}
