//! The transactions that a server has and its new source lacks: received from the server's own binlog, saved, listed, and read.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use spate_archive::{
    Archive, ArchivedEvent, DirectoryOptions, ReadOptions, RealFileSystem, Seek, SyncPolicy, stopping_point,
};
use spate_binlog::query::QueryEvent;
use spate_binlog::rows::RowsEvent;
use spate_binlog::{Boundary, EventType, FormatDescription, Gtid, GtidPosition, RowsKind, TableMap};
use spate_connection::endpoint::Endpoint;
use spate_receive::FetchOptions;
use spate_receive::intake::IntakeOptions;
use spate_replica::catalog::Catalog;
use spate_replica::status::Status;
use spate_replica::until::{Start, Until};
use spate_schedule::inverse::Inverse;
use spate_schedule::{TableName, TablePlan};

use crate::error::{Error, Result};
use crate::history::{History, Surplus};
use crate::topology::name_of;

/// The list for people, in the directory of the saved binlog files.
pub(crate) const LIST_NAME: &str = "surplus.txt";

/// Row images that are kept in memory to be undone.
const MEMORY_BYTES_MAX: usize = 1 << 30;

/// The list has keys of rows.
const PRIVATE_FILE: u32 = 0o600;

/// Reasons of a refusal that are told; there may be thousands.
const REASONS_MAX: usize = 10;

/// What was found in a server's binlog.
pub(crate) struct Found {
    /// The changes that are to be undone.
    pub(crate) inverse: Inverse,
    /// How many transactions.
    pub(crate) transactions: u64,
    /// Of these, what is not the surplus: the place to go on from.
    pub(crate) common: GtidPosition,
    /// How the server lays out its events.
    pub(crate) format: Option<Arc<FormatDescription>>,
    /// Why it cannot be undone; empty if it can.
    pub(crate) refusals: Vec<String>,
}

/// True if the transaction is one that the new source lacks.
fn is_surplus(gtid: Gtid, surplus: &Surplus) -> bool {
    let origin = match gtid {
        Gtid::MariaDb(gtid) => format!("{}-{}", gtid.domain_id, gtid.server_id),
        Gtid::MySql(gtid) => gtid.origin.to_string(),
    };
    surplus.ranges.iter().any(|range| range.holds(&origin, gtid.number()))
}

/// Where the server's binlog is asked from: before all of the surplus.
fn start_of(server: &History, surplus: &Surplus) -> Start {
    let mut start = GtidPosition::default();
    if server.position.domains().next().is_none() {
        for (origin, numbers) in server.position.origins() {
            for range in numbers.ranges() {
                let mut first = range.start;
                for missing in surplus.ranges.iter().filter(|missing| missing.origin == origin.to_string()) {
                    if missing.first >= range.start && missing.last < range.end {
                        start.add_numbers(*origin, first..missing.first);
                        first = missing.last + 1;
                    }
                }
                start.add_numbers(*origin, first..range.end);
            }
        }
        return Start::Gtid(start);
    }
    // MariaDB asks for the place in each domain; where it is not surely known, all of the binlog is read.
    for last in server.position.domains() {
        let prefix = format!("{}-", last.domain_id);
        let mut of_domain = surplus.ranges.iter().filter(|range| range.origin.starts_with(&prefix)).peekable();
        match (of_domain.next(), of_domain.peek()) {
            (None, _) => start.advance(Gtid::MariaDb(last)),
            (Some(range), None) if range.origin == format!("{prefix}{}", last.server_id) => match range.known {
                Some(sequence) if sequence > 0 => {
                    start.advance(Gtid::MariaDb(spate_binlog::MariaDbGtid { sequence, ..last }));
                }
                _ => return Start::Earliest,
            },
            _ => return Start::Earliest,
        }
    }
    Start::Gtid(start)
}

/// Makes a directory of its own for one surplus: what an earlier one has left in `parent` says nothing of this one.
fn make_directory(parent: &Path) -> Result<PathBuf> {
    const PRIVATE: u32 = 0o700;
    const NUMBERS: std::ops::Range<u32> = 1..100_000;
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(PRIVATE);
    let failed = |path: &Path| {
        let action = format!("make the directory {}", path.display());
        move |source| Error::Io { action, source }
    };
    builder.recursive(true).create(parent).map_err(failed(parent))?;
    for number in NUMBERS {
        let path = parent.join(format!("surplus-{number}"));
        match builder.recursive(false).create(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path.clone()).map_err(failed(&path)),
        }
    }
    Err(failed(parent)(std::io::Error::other("it has too many surpluses: name another one")))
}

/// Receives the server's binlog from before the surplus on into a new directory in `parent`, as ordinary binlog files.
pub(crate) fn save(
    server: &Endpoint,
    history: &History,
    surplus: &Surplus,
    parent: &Path,
    server_id: u32,
    tell: &dyn Fn(&str),
) -> Result<PathBuf> {
    let directory = make_directory(parent)?;
    let options = |start| FetchOptions {
        intake: IntakeOptions { source: server.clone(), server_id, start_place: None, semi_sync: false },
        archive_dir: directory.clone(),
        sync: SyncPolicy::Always,
        start: Some(start),
        until: Until::CaughtUp,
        retention: None,
    };
    let status = Status::new(server.to_string(), String::new(), Box::new(|_, _| ()));
    let start = start_of(history, surplus);
    let fetched = spate_receive::fetch(&options(start.clone()), &status, &AtomicBool::new(false));
    if let Err(error) = fetched {
        if start == Start::Earliest {
            return Err(error.into());
        }
        tell(&format!("the binlog cannot be asked for from the surplus on ({error}): reading all of it"));
        spate_receive::fetch(&options(Start::Earliest), &status, &AtomicBool::new(false))?;
    }
    stopping_point("follow-saved");
    // Nothing was received, so it is no archive.
    Archive::open(Arc::new(RealFileSystem), &directory, DirectoryOptions::default()).map_err(|_| Error::Surplus {
        server: name_of(server),
        why: "they are not in its binlog any more (was it purged, or reset by an earlier spate follow?). Rebuild this replica from a backup".to_owned(),
    })?;
    Ok(directory)
}

/// Reads what was saved, lists it, and works out what undoes it.
pub(crate) fn read(
    name: &str,
    directory: &Path,
    history: &History,
    surplus: &Surplus,
    catalog: &mut Catalog,
) -> Result<(Found, PathBuf)> {
    let archive = Archive::open(Arc::new(RealFileSystem), directory, DirectoryOptions::default())?;
    let mut reader = archive.reader(&Seek::Earliest, ReadOptions::default())?;
    let mut reading = Reading {
        surplus,
        catalog,
        plans: HashMap::new(),
        found: Found {
            inverse: Inverse::default(),
            transactions: 0,
            common: GtidPosition::default(),
            format: None,
            refusals: vec![],
        },
        list: String::new(),
        is_in_surplus: false,
        gtid: String::new(),
    };
    if let Start::Gtid(position) = start_of(history, surplus) {
        reading.found.common = position;
    }
    while let Some(event) = reader.next_event()? {
        reading.take(&event)?;
        if reading.found.inverse.memory_bytes() > MEMORY_BYTES_MAX {
            let why = format!(
                "their row images are more than {} MiB, which must be in memory to be undone: rebuild this replica from a backup of the new source. \
                 They are saved in {}",
                MEMORY_BYTES_MAX >> 20,
                directory.display()
            );
            return Err(Error::Surplus { server: name.to_owned(), why });
        }
    }
    let path = directory.join(LIST_NAME);
    let written = std::fs::OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(&path);
    written
        .and_then(|mut file| file.write_all(reading.list.as_bytes()).and_then(|()| file.sync_all()))
        .map_err(|source| Error::Io { action: format!("write {}", path.display()), source })?;
    Ok((reading.found, path))
}

struct Reading<'a> {
    surplus: &'a Surplus,
    catalog: &'a mut Catalog,
    plans: HashMap<u64, Arc<TablePlan>>,
    found: Found,
    list: String,
    is_in_surplus: bool,
    gtid: String,
}

impl Reading<'_> {
    fn take(&mut self, event: &ArchivedEvent<'_>) -> Result<()> {
        self.found.format = Some(Arc::clone(event.format));
        if matches!(event.boundary, Boundary::Begin | Boundary::Whole) {
            self.plans.clear();
            let gtid = event.gtid().map(|event| event.gtid);
            self.is_in_surplus = gtid.is_some_and(|gtid| is_surplus(gtid, self.surplus));
            if let Some(gtid) = gtid {
                self.gtid = gtid.to_string();
                match self.is_in_surplus {
                    true => {
                        self.found.transactions += 1;
                        self.line(&format!(
                            "{gtid} at {}:{} ({} s since 1970)",
                            event.source_file, event.offset, event.header.timestamp_seconds
                        ));
                    }
                    false => self.found.common.advance(gtid),
                }
            }
        }
        if self.is_in_surplus && event.boundary != Boundary::Outside {
            self.change(event)?;
        }
        Ok(())
    }

    fn line(&mut self, text: &str) {
        let _always_fits = writeln!(self.list, "{}", text.replace(char::is_control, " "));
    }

    fn refuse(&mut self, why: &str) {
        if self.found.refusals.len() < REASONS_MAX {
            self.found.refusals.push(format!("transaction {}: {why}", self.gtid));
        }
    }

    fn change(&mut self, event: &ArchivedEvent<'_>) -> Result<()> {
        let kind = event.header.event_type;
        if kind == EventType::TABLE_MAP {
            return self.table(event.body);
        }
        if RowsKind::of(kind).is_some() {
            return self.rows(kind, event.body);
        }
        if kind == EventType::QUERY || kind == EventType::QUERY_COMPRESSED {
            let query = QueryEvent::parse(event.body).map_err(|error| self.damaged(&error.to_string()))?;
            // Parts of XA transactions end groups, too, and what an XA COMMIT commits is elsewhere.
            let is_xa =
                query.statement_text().trim_start().get(..3).is_some_and(|word| word.eq_ignore_ascii_case("XA "));
            if is_xa || !query.begins_group() && !query.ends_group() {
                // Without passwords; the binlog beside the list has all of it.
                let text = spate_sql::excerpt(query.statement_text().as_bytes()).to_string();
                self.line(&format!("  {text}"));
                self.refuse(&format!("a statement, not rows: {text}"));
            }
            return Ok(());
        }
        let is_harmless = kind.is_gtid()
            || [EventType::XID, EventType::ANNOTATE_ROWS, EventType::ROWS_QUERY, EventType::VIEW_CHANGE]
                .contains(&kind);
        if !is_harmless {
            self.line(&format!("  {kind}"));
            self.refuse(&format!("the event {kind} is not made of rows"));
        }
        Ok(())
    }

    fn damaged(&self, why: &str) -> Error {
        Error::Surplus { server: "the saved binlog".to_owned(), why: format!("transaction {}: {why}", self.gtid) }
    }

    fn table(&mut self, body: &[u8]) -> Result<()> {
        let map = TableMap::parse(body).map_err(|error| self.damaged(&error.to_string()))?;
        let name = TableName { schema: map.schema.clone(), table: map.table.clone() };
        let id = spate_binlog::table_map::table_id(body).map_err(|error| self.damaged(&error.to_string()))?;
        let Some(definition) = self.catalog.definition(&name)? else {
            self.refuse(&format!("its table {name} is not there any more"));
            return Ok(());
        };
        match TablePlan::new(map, Arc::new(definition)) {
            Ok(plan) => drop(self.plans.insert(id, Arc::new(plan))),
            Err(error) => self.refuse(&error.to_string()),
        }
        Ok(())
    }

    fn rows(&mut self, kind: EventType, body: &[u8]) -> Result<()> {
        let rows = RowsEvent::parse(kind, body).map_err(|error| self.damaged(&error.to_string()))?;
        let Some(plan) = self.plans.get(&rows.table_id).cloned() else { return Ok(()) };
        let mut buffer = Vec::new();
        let images = rows.images(&mut buffer).map_err(|error| self.damaged(&error.to_string()))?;
        let before = self.found.inverse.len();
        if let Err(error) = self.found.inverse.take(&plan, &rows, images) {
            self.refuse(&error.to_string());
        }
        for line in self.found.inverse.describe(before) {
            self.line(&format!("  {line}"));
        }
        Ok(())
    }
}
