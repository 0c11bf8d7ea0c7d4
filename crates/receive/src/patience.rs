//! Waits, before the first event is received, for a server that does not answer and for space on a full disk.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use spate_archive::{ArchiveWriter, Exposure, RealFileSystem, WriterOptions};
use spate_connection::backoff::Backoff;
use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection};

use crate::intake::{DISK_FULL_RETRY, SILENCE_MAX};
use spate_replica::Result;
use spate_replica::asking;
use spate_replica::status::Status;

/// Connects to the source, and retries until it answers or `stop` is set.
///
/// # Errors
/// A definite error of the connection; any error once `stop` is set.
pub fn connect_with_retry(source: &Endpoint, status: &Status, stop: &AtomicBool) -> Result<Connection> {
    let mut backoff = Backoff::default();
    let options = ConnectOptions { read_timeout: Some(SILENCE_MAX), ..ConnectOptions::new("source") };
    loop {
        match asking::connect(source, &options) {
            Ok(connection) => return Ok(connection),
            Err(error) if error.is_transient() && !stop.load(Ordering::Acquire) => {
                status.error("intake", format!("{error}; trying again until it answers"));
                let delay = backoff.next_delay();
                backoff.wait(delay, stop);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Opens the archive, and retries while the disk is full: recovery needs a little space to repair the last file after a
/// crash.
///
/// # Errors
/// Any other error of [`ArchiveWriter::open`]; any error once `stop` is set.
pub fn open_archive_with_retry(
    dir: &Path,
    options: &WriterOptions,
    status: &Status,
    stop: &AtomicBool,
) -> Result<ArchiveWriter> {
    loop {
        match ArchiveWriter::open(Arc::new(RealFileSystem), dir, options.clone()) {
            Err(error @ spate_archive::Error::DiskFull { .. }) if !stop.load(Ordering::Acquire) => {
                status.intake(format!("waiting: {error}"));
                status.error("intake", error.to_string());
                Backoff::default().wait(DISK_FULL_RETRY, stop);
            }
            opened => {
                let writer = opened?;
                // An error is no reason to stop: some file systems report no permissions.
                if let Ok(Some(exposure)) = Exposure::inspect(dir) {
                    status.note("intake", &format!("warning: {exposure}"));
                }
                return Ok(writer);
            }
        }
    }
}
