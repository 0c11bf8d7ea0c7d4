//! What is waited for before anything is received: a server that does not answer, a disk that is full.

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

/// Connects to the source; one that is not there is waited for.
pub fn connect_patiently(source: &Endpoint, status: &Status, stop: &AtomicBool) -> Result<Connection> {
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

/// Opens the archive. Recovery needs a little space, to repair what a crash on a full disk left: with none, it is waited for.
pub fn open_archive(dir: &Path, options: &WriterOptions, status: &Status, stop: &AtomicBool) -> Result<ArchiveWriter> {
    loop {
        match ArchiveWriter::open(Arc::new(RealFileSystem), dir, options.clone()) {
            Err(error @ spate_archive::Error::DiskFull { .. }) if !stop.load(Ordering::Acquire) => {
                status.intake(format!("waiting: {error}"));
                status.error("intake", error.to_string());
                Backoff::default().wait(DISK_FULL_RETRY, stop);
            }
            opened => {
                let writer = opened?;
                // A file system that does not say what others may do gives no reason to stop.
                if let Ok(Some(exposure)) = Exposure::of(dir) {
                    status.note("intake", &format!("warning: {exposure}"));
                }
                return Ok(writer);
            }
        }
    }
}
