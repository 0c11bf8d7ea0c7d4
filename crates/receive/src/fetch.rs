//! Fills an archive without a replica.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use spate_archive::{Retention, SyncPolicy, WriterOptions};

use crate::intake::{Intake, IntakeOptions, Interrupt};
use crate::patience::{connect_with_retry, open_archive_with_retry};
use crate::retention::Purger;
use crate::source::{current_place, resolve_start};
use spate_replica::status::Status;
use spate_replica::until::{Start, Until};
use spate_replica::{Error, Result};

/// How to fill an archive.
#[derive(Debug, Clone)]
pub struct FetchOptions {
    /// How to receive.
    pub intake: IntakeOptions,
    /// The archive's directory.
    pub archive_dir: PathBuf,
    /// When the archive is made durable.
    pub sync: SyncPolicy,
    /// Where an empty archive begins; `None` continues an archive that is not empty.
    pub start: Option<Start>,
    /// Where to end.
    pub until: Until,
    /// How much of the archive to keep; `None` keeps all. No replica is known to need the removed files.
    pub retention: Option<Retention>,
}

/// Why Spate cannot fetch until the archive is caught up.
const NO_GTIDS_FETCH: &str =
    "its transactions have no GTIDs, so Spate cannot tell when the archive has all of them: fetch without --until";

/// Fills an archive, without a replica.
///
/// # Errors
/// A definite error, which says what to do.
pub fn fetch(options: &FetchOptions, status: &Status, stop: &AtomicBool) -> Result<()> {
    let mut connection = connect_with_retry(&options.intake.source, status, stop)?;
    let until = match &options.until {
        Until::CaughtUp => {
            let place = current_place(&mut connection)?;
            if place.file.is_some() {
                return Err(Error::Unsuitable { peer: connection.peer().to_string(), why: NO_GTIDS_FETCH.to_owned() });
            }
            Some(place.gtid_position)
        }
        Until::Gtid(position) | Until::End(position) => Some(position.clone()),
        Until::Forever => None,
        Until::File { .. } => {
            let why =
                "spate archive fetches until a GTID position or until it is caught up, not until a place in a file";
            return Err(Error::Unsuitable { peer: "archive".to_owned(), why: why.to_owned() });
        }
    };
    let start = options.start.as_ref().map(|start| resolve_start(&mut connection, start)).transpose()?;
    drop(connection);
    let start_position = start.as_ref().map(|start| start.gtid_position.clone());
    let start_place = start.and_then(|start| start.file);
    let writer_options = WriterOptions { sync: options.sync, start_position, ..WriterOptions::default() };
    let writer = open_archive_with_retry(&options.archive_dir, &writer_options, status, stop)?;
    if writer.archive().files().is_empty() && options.start.is_none() {
        return Err(Error::NoStart { replica: format!("archive in {}", options.archive_dir.display()) });
    }
    status.archive(writer.archive().clone());
    let retention = options.retention.map(|retention| Purger::of_received(retention, status));
    let intake = IntakeOptions { start_place, ..options.intake.clone() };
    Intake { options: &intake, writer, status, stop, until, retention, interrupt: &Interrupt::default() }.run()?;
    Ok(())
}
