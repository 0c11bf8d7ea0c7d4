//! `spate archive list` and `spate archive purge`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use comfy_table::{Table, presets};
use serde::Serialize;
use spate_archive::{
    Applied, Archive, ArchiveFile, ArchiveWriter, DirectoryOptions, Exposure, ReadOptions, RealFileSystem, Retention,
    Seek, TransactionRecord, WriterOptions,
};
use spate_binlog::typed::Date;
use spate_binlog::{Boundary, GtidPosition};
use spate_connection::ConnectOptions;
use spate_connection::endpoint::Endpoint;
use spate_replica::{asking, checkpoint};

use crate::arguments::{Before, ListArguments, PurgeArguments};
use crate::{Failure, print, say};

/// One binlog file of an archive.
#[derive(Debug, Serialize)]
struct ListedFile {
    file: String,
    /// Name of the source's file.
    source_file: String,
    bytes: u64,
    transactions: u64,
    first_seqno: u64,
    /// The last transaction that begins in the file; `first_seqno` - 1 if none does.
    last_seqno: u64,
    first_gtid: Option<String>,
    last_gtid: Option<String>,
    /// Seconds since 1970, by the source's clock.
    first_commit_seconds: Option<u32>,
    last_commit_seconds: Option<u32>,
}

pub(crate) fn list(arguments: &ListArguments) -> Result<ExitCode, Failure> {
    let options = DirectoryOptions { base_name: arguments.base_name.clone() };
    let archive = Archive::open(Arc::new(RealFileSystem), &arguments.directory, options)?;
    let files = archive.files();
    let last_seqno = archive.tail().received().seqno;
    let mut listed = Vec::with_capacity(files.len());
    for (index, file) in files.iter().enumerate() {
        let end = files.get(index + 1).map_or(last_seqno, |next| next.first_seqno().saturating_sub(1));
        listed.push(describe(&archive, file, end)?);
    }
    if arguments.json {
        print(&serde_json::to_string_pretty(&listed)?)?;
    } else {
        print(&text(&listed))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(archive: &Archive, file: &ArchiveFile, last_seqno: u64) -> Result<ListedFile, Failure> {
    let first_seqno = file.first_seqno();
    let has_any = last_seqno >= first_seqno;
    let first = if has_any { Some(archive.transaction(first_seqno)?) } else { None };
    let last = if has_any { Some(archive.transaction(last_seqno)?) } else { None };
    let gtid = |record: Option<TransactionRecord>| record.and_then(|record| record.gtid).map(|gtid| gtid.to_string());
    Ok(ListedFile {
        file: file.name().to_string(),
        source_file: file.source_name().to_string(),
        bytes: std::fs::metadata(archive.path_of(file))?.len(),
        transactions: (last_seqno + 1).saturating_sub(first_seqno),
        first_seqno,
        last_seqno,
        first_gtid: gtid(first),
        last_gtid: gtid(last),
        first_commit_seconds: first.map(|record| record.commit_seconds),
        last_commit_seconds: last.map(|record| record.commit_seconds),
    })
}

fn text(files: &[ListedFile]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["file", "bytes", "transactions", "seqnos", "GTIDs", "committed on the source (UTC)"]);
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let time = |seconds: Option<u32>| seconds.map_or_else(|| "-".to_owned(), utc);
    for file in files {
        table.add_row([
            file.file.clone(),
            file.bytes.to_string(),
            file.transactions.to_string(),
            format!("{} to {}", file.first_seqno, file.last_seqno),
            format!("{} to {}", or_dash(&file.first_gtid), or_dash(&file.last_gtid)),
            format!("{} to {}", time(file.first_commit_seconds), time(file.last_commit_seconds)),
        ]);
    }
    table.to_string()
}

/// `2026-11-21 12:30:00`.
fn utc(seconds: u32) -> String {
    let (date, second) = (Date::of_day(seconds / 86_400), seconds % 86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{:04}-{:02}-{:02} {hour:02}:{minute:02}:{second:02}", date.year, date.month, date.day)
}

pub(crate) fn purge(arguments: &PurgeArguments) -> Result<ExitCode, Failure> {
    let dir = &arguments.directory;
    // Opening for writing would begin an archive in an empty directory.
    let there = Archive::open(Arc::new(RealFileSystem), dir, DirectoryOptions::default())?;
    if there.files().is_empty() {
        return Err(format!("{} holds no archive", dir.display()).into());
    }
    let mut writer = ArchiveWriter::open(Arc::new(RealFileSystem), dir, WriterOptions::default()).map_err(|error| {
        match error {
            spate_archive::Error::Locked { .. } => format!(
                "{error}. A running replicate purges by itself, with --keep-archive-size or --keep-archive-age, and knows what \
                 is applied"
            ),
            other => other.to_string(),
        }
    })?;
    if let Ok(Some(exposure)) = Exposure::inspect(dir) {
        say(&format!("spate: warning: {exposure}"));
    }
    let replica = arguments.replica.is_named().then(|| arguments.replica.endpoint(&arguments.common)).transpose()?;
    let mut unneeded = match (replica, arguments.even_unapplied) {
        (Some(replica), _) => applied_seqno(writer.archive(), &checkpoint_of(&replica)?)?,
        (None, true) => writer.archive().tail().durable().seqno,
        (None, false) => {
            let why = "say who may still need the archive: --replica <endpoint> keeps what is not applied there; \
                       --even-unapplied removes it too";
            return Err(why.into());
        }
    };
    if let Some(before) = &arguments.before {
        unneeded = unneeded.min(seqno_before(writer.archive(), before)?);
    }
    let retention =
        Retention { bytes_max: arguments.keep_size, age_seconds_max: arguments.keep_age.map(|age| age.as_secs()) };
    let now_seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    let purged = writer.purge(&retention, Applied(unneeded), now_seconds)?;
    let left = writer.archive().files();
    let oldest = left.first().map(|file| file.name().to_string()).unwrap_or_default();
    say(&format!("removed {} files ({} bytes); {} are left, from {oldest} on", purged.files, purged.bytes, left.len()));
    Ok(ExitCode::SUCCESS)
}

fn checkpoint_of(replica: &Endpoint) -> Result<GtidPosition, Failure> {
    let mut connection = asking::connect(replica, &ConnectOptions::new("replica"))?;
    match checkpoint::read(&mut connection)? {
        Some(checkpoint) => Ok(checkpoint.gtid_position),
        None => Err(format!("the replica ({replica}) has no checkpoint: what is applied there is not known").into()),
    }
}

/// The last transaction of the archive up to which `position` covers everything.
fn applied_seqno(archive: &Archive, position: &GtidPosition) -> Result<u64, Failure> {
    let mut reader = match archive.reader(&Seek::AfterGtid(position.clone()), ReadOptions::default()) {
        Ok(reader) => reader,
        // All of it is still to come.
        Err(spate_archive::Error::BeginsAfter { .. }) => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    while let Some(event) = reader.next_event()? {
        if matches!(event.boundary, Boundary::Begin | Boundary::Whole) {
            return Ok(event.seqno.saturating_sub(1));
        }
    }
    Ok(archive.tail().durable().seqno)
}

fn seqno_before(archive: &Archive, before: &Before) -> Result<u64, Failure> {
    match before {
        Before::Gtid(position) => applied_seqno(archive, position),
        Before::File(name) => match archive.files().iter().find(|file| **file.source_name() == **name) {
            Some(file) => Ok(file.first_seqno().saturating_sub(1)),
            None => {
                Err(format!("{} has no file {name} (spate archive list)", Path::new(archive.dir()).display()).into())
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(utc(4_107_542_399), "2100-02-28 23:59:59");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00:00");
    }

    #[test]
    fn places() {
        assert!(matches!("gtid:0-1-5,1-1-7".parse(), Ok(Before::Gtid(_))));
        assert!(matches!("file:a.000001".parse(), Ok(Before::File(name)) if name == "a.000001"));
        for wrong in ["", "gtid:x", "file:", "2026-11-21"] {
            assert!(wrong.parse::<Before>().is_err(), "{wrong}");
        }
    }
}
