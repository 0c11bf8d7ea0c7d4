//! What the server has received from the source, and not applied, goes from its relay logs into the archive.
//!
//! Only what follows without a gap from where the archive ends, or is to begin. The rest comes from the source.

use std::sync::Arc;

use spate_archive::{
    Appended, Archive, ArchiveWriter, ArchivedEvent, DirectoryOptions, ReadOptions, RealFileSystem, Seek, WriterOptions,
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

/// Copies what the relay logs of a stopped channel hold behind the place that it has executed. Says what it did. `confirms`: true if nothing of the
/// source lies between what is executed and this place of its binlog.
///
/// # Errors
/// Why they are not used, for people. The archive is whole, whatever happens.
pub(super) fn use_received(
    connection: &mut Connection,
    channel: &Channel,
    executed: &Checkpoint,
    options: &ReplicateOptions,
    confirms: &mut dyn FnMut(&Place) -> bool,
) -> std::result::Result<String, String> {
    let logs = native::relay_logs(connection, channel).map_err(|error| error.to_string())?;
    let writer = WriterOptions {
        sync: options.sync,
        start_position: Some(executed.gtid_position.clone()),
        ..WriterOptions::default()
    };
    let writer = ArchiveWriter::open(Arc::new(RealFileSystem), &options.archive_dir, writer)
        .map_err(|error| error.to_string())?;
    let end = writer.end();
    let begin = match (end.file.is_empty(), channel.by_gtid) {
        (false, _) => Begin::At(Place { file: end.source_file.to_string(), position: end.source_position }),
        (true, false) => Begin::At(channel.place.clone()),
        // A crash may have undone some of what the channel's place is behind.
        (true, true) => Begin::Behind { executed, is_connected: false, confirms },
    };
    let copied = copy(&logs, writer, begin).map_err(|error| error.to_string())?;
    Ok(format!("used the relay logs in {}: {} bytes of events need not come again", logs.directory.display(), copied))
}

/// Where copying begins.
enum Begin<'a> {
    /// At this place of the source's binlog.
    At(Place),
    /// At the first transaction that is not executed, if none is missing between.
    Behind {
        executed: &'a Checkpoint,
        /// A transaction was read that is executed, and all that follow it in the source's binlog.
        is_connected: bool,
        confirms: &'a mut dyn FnMut(&Place) -> bool,
    },
}

impl Begin<'_> {
    /// True if copying begins with this event. `follows`: it follows the one before in the source's binlog. `None`: it never begins.
    fn is_here(&mut self, event: &ArchivedEvent<'_>, place: &Place, follows: bool) -> Option<bool> {
        match self {
            Begin::At(wanted) => Some(place == wanted),
            Begin::Behind { executed, is_connected, confirms } => {
                *is_connected &= follows;
                let Some(gtid) = event.gtid().filter(|_| event.boundary != Boundary::Inside) else {
                    return Some(false);
                };
                if executed.gtid_position.covers(gtid.gtid) {
                    *is_connected = true;
                    return Some(false);
                }
                (*is_connected || confirms(place)).then_some(true)
            }
        }
    }
}

fn copy(logs: &native::RelayLogs, mut writer: ArchiveWriter, mut begin: Begin<'_>) -> spate_archive::Result<u64> {
    let directory = DirectoryOptions { base_name: Some(logs.base_name.clone()) };
    let relay = Archive::open(Arc::new(RealFileSystem), &logs.directory, directory)?;
    let mut reader = relay.reader(&Seek::Earliest, ReadOptions::default())?;
    let (mut format, mut is_begun, mut ends_file, mut copied) = (Vec::new(), false, false, 0);
    let mut next = Place::default();
    while let Some(event) = reader.next_event()? {
        if event.header.flags & FLAG_RELAY_LOG != 0 {
            continue;
        }
        // A source that is asked for the midst of a file sends this without a position.
        if event.header.event_type == EventType::FORMAT_DESCRIPTION {
            format = event.bytes.to_vec();
            continue;
        }
        // MySQL's receiver writes rotate events of its own, without a position.
        if event.header.is_artificial() || event.header.next_position == 0 {
            continue;
        }
        let position = event.source_end_position.saturating_sub(u64::from(event.header.event_length));
        let place = Place { file: event.source_file.to_string(), position };
        // Within a transaction, a source leaves out what a replica does not ask for: MariaDB's annotations.
        let may_skip = matches!(event.boundary, Boundary::Inside | Boundary::End);
        let begins_file = ends_file && place.file != next.file;
        let is_next = place.position == next.position || may_skip && place.position > next.position;
        let follows = begins_file || place.file == next.file && is_next;
        let begins = match is_begun {
            // The source has sent something again, or left something out.
            true if !follows => break,
            true => false,
            false => match begin.is_here(&event, &place, follows) {
                Some(begins) => begins,
                None => break,
            },
        };
        if begins || is_begun && begins_file {
            if format.is_empty() {
                break;
            }
            writer.begin_file(event.source_file, &format)?;
            is_begun = true;
        }
        if is_begun && let Appended::Stored(_) = writer.append(event.bytes)? {
            copied += event.bytes.len() as u64;
        }
        ends_file = event.header.event_type == EventType::ROTATE;
        next = Place { file: place.file, position: event.source_end_position };
    }
    writer.discard_partial_transaction()?;
    writer.flush()?;
    writer.sync()?;
    Ok(copied)
}
