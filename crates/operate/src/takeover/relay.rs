//! What the server has received from the source, and not applied, goes from its relay logs into the archive.
//!
//! Only what follows without a gap from where the archive ends, or is to begin. The rest comes from the source.

use std::sync::Arc;

use spate_archive::{
    Appended, Archive, ArchiveWriter, DirectoryOptions, ReadOptions, RealFileSystem, Seek, WriterOptions,
};
use spate_binlog::header::FLAG_RELAY_LOG;
use spate_binlog::{Boundary, EventType};
use spate_connection::Connection;
use spate_replica::Result;
use spate_replica::checkpoint::Checkpoint;
use spate_replica::native::{self, Channel, Place};

use crate::replicate::ReplicateOptions;

/// Where the archive ends, if it has transactions.
///
/// # Errors
/// Those of opening an archive.
pub(super) fn archive_end(options: &ReplicateOptions) -> Result<Option<Checkpoint>> {
    let writer = ArchiveWriter::open(Arc::new(RealFileSystem), &options.archive_dir, WriterOptions::default())?;
    let end = writer.end();
    let checkpoint = Checkpoint {
        gtid_position: (*end.gtid_position).clone(),
        source_file: end.source_file.to_string(),
        source_position: end.source_position,
        ..Checkpoint::default()
    };
    Ok((!end.file.is_empty()).then_some(checkpoint))
}

/// Copies what the relay logs of a stopped channel hold behind the place that it has executed. Says what it did.
///
/// # Errors
/// Why they are not used, for people. The archive is whole, whatever happens.
pub(super) fn use_received(
    connection: &mut Connection,
    channel: &Channel,
    executed: &Checkpoint,
    options: &ReplicateOptions,
) -> std::result::Result<String, String> {
    let logs = native::relay_logs(connection, channel).map_err(|error| error.to_string())?;
    let writer = WriterOptions {
        sync: options.sync,
        start_position: Some(executed.gtid_position.clone()),
        ..WriterOptions::default()
    };
    let copied = copy(&logs, channel, writer, options).map_err(|error| error.to_string())?;
    Ok(format!("used the relay logs in {}: {} bytes of events need not come again", logs.directory.display(), copied))
}

fn copy(
    logs: &native::RelayLogs,
    channel: &Channel,
    options: WriterOptions,
    replicate: &ReplicateOptions,
) -> spate_archive::Result<u64> {
    let directory = DirectoryOptions { base_name: Some(logs.base_name.clone()) };
    let relay = Archive::open(Arc::new(RealFileSystem), &logs.directory, directory)?;
    let mut writer = ArchiveWriter::open(Arc::new(RealFileSystem), &replicate.archive_dir, options)?;
    let end = writer.end();
    let mut next = match end.file.is_empty() {
        true => channel.place.clone(),
        false => Place { file: end.source_file.to_string(), position: end.source_position },
    };
    let mut reader = relay.reader(&Seek::Earliest, ReadOptions::default())?;
    let (mut format, mut is_begun, mut ends_file, mut copied) = (Vec::new(), false, false, 0);
    while let Some(event) = reader.next_event()? {
        // MySQL's receiver writes rotate events of its own, without a position.
        let is_in_no_file = event.header.is_artificial() || event.header.next_position == 0;
        if event.header.flags & FLAG_RELAY_LOG != 0 || is_in_no_file {
            continue;
        }
        if event.header.event_type == EventType::FORMAT_DESCRIPTION {
            format = event.bytes.to_vec();
            continue;
        }
        let position = event.source_end_position.saturating_sub(u64::from(event.header.event_length));
        let begins_next_file = is_begun && ends_file && **event.source_file != *next.file;
        // Within a transaction, a source leaves out what a replica does not ask for: MariaDB's annotations.
        let may_skip = matches!(event.boundary, Boundary::Inside | Boundary::End);
        let is_next = position == next.position || may_skip && position > next.position;
        let follows = **event.source_file == *next.file && is_next;
        if !follows && !begins_next_file {
            match is_begun {
                // The source has sent something again, or left something out.
                true => break,
                false => continue,
            }
        }
        if !is_begun || begins_next_file {
            if format.is_empty() {
                break;
            }
            writer.begin_file(event.source_file, &format)?;
            is_begun = true;
        }
        if let Appended::Stored(_) = writer.append(event.bytes)? {
            copied += event.bytes.len() as u64;
        }
        ends_file = event.header.event_type == EventType::ROTATE;
        next = Place { file: event.source_file.to_string(), position: event.source_end_position };
    }
    writer.discard_partial_transaction()?;
    writer.flush()?;
    writer.sync()?;
    Ok(copied)
}
