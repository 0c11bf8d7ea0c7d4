//! The statements that an archive, or any directory of binlogs, has the text of: those of statement format, and those that are noted beside row changes
//! (MariaDB's annotate events, MySQL's rows-query events).
//!
//! A binlog says when a transaction was committed, in whole seconds; of statements beside rows it says no session, so that these share one for each server that
//! has written them. Every transaction of several statements begins and ends as one.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use spate_archive::{Archive, ArchiveReader, DirectoryOptions, ReadOptions, RealFileSystem, Seek};
use spate_binlog::payload::PayloadEvents;
use spate_binlog::{Boundary, EventType, QueryEvent, TableMap, compressed};

use crate::error::{Error, Result};
use crate::recorded::{Recorded, Schema};

/// Sessions of those statements that no session is told of: above all numbers of connections.
const SESSIONS_OF_SERVERS: u64 = 1 << 40;

/// The statements of a directory of binlogs.
pub(crate) struct Binlogs {
    reader: ArchiveReader,
    /// Of the transaction that is being read.
    statements: Vec<Statement>,
    /// What was read of whole transactions, and not given yet.
    ready: VecDeque<Recorded>,
    session: u64,
}

struct Statement {
    /// `None`: the next table map says it.
    schema: Option<String>,
    text: Vec<u8>,
}

impl Binlogs {
    pub(crate) fn open(directory: &Path) -> Result<Binlogs> {
        let unreadable = |error: spate_archive::Error| Error::Binlog(Box::new(error));
        let archive =
            Archive::open(Arc::new(RealFileSystem), directory, DirectoryOptions::default()).map_err(unreadable)?;
        let reader = archive.reader(&Seek::Earliest, ReadOptions::default()).map_err(unreadable)?;
        Ok(Binlogs { reader, statements: Vec::new(), ready: VecDeque::new(), session: 0 })
    }

    /// Reads one more event. False if there is none.
    fn step(&mut self) -> Result<bool> {
        let Some(event) = self.reader.next_event().map_err(|error| Error::Binlog(Box::new(error)))? else {
            return Ok(false);
        };
        let (boundary, server, seconds) = (event.boundary, event.header.server_id, event.header.timestamp_seconds);
        if matches!(boundary, Boundary::Begin | Boundary::Whole) {
            self.session = SESSIONS_OF_SERVERS + u64::from(server);
            self.statements.clear();
        }
        if boundary != Boundary::Outside {
            let mut taken = Taken { statements: &mut self.statements, session: &mut self.session };
            match event.header.event_type {
                EventType::TRANSACTION_PAYLOAD => {
                    // What cannot be read has no text to replay.
                    if let Ok(mut events) = PayloadEvents::open(event.body) {
                        while let Ok(Some((header, body))) = events.next_event() {
                            taken.take(header.event_type, body);
                        }
                    }
                }
                event_type => taken.take(event_type, event.body),
            }
        }
        if matches!(boundary, Boundary::End | Boundary::Whole) {
            self.finish(f64::from(seconds));
        }
        Ok(true)
    }

    fn finish(&mut self, at: f64) {
        let session = self.session;
        let is_several = self.statements.len() > 1;
        let frame = |text: &str| is_several.then(|| Recorded::statement(at, session, None, text.as_bytes())).flatten();
        self.ready.extend(frame("BEGIN"));
        for statement in self.statements.drain(..) {
            let schema = statement.schema.map(Schema::of);
            self.ready.extend(Recorded::statement(at, session, schema, &statement.text));
        }
        self.ready.extend(frame("COMMIT"));
    }
}

struct Taken<'a> {
    statements: &'a mut Vec<Statement>,
    session: &'a mut u64,
}

impl Taken<'_> {
    fn take(&mut self, event_type: EventType, body: &[u8]) {
        let mut buffer = Vec::new();
        match event_type {
            EventType::QUERY => {
                let Ok(query) = QueryEvent::parse(body) else { return };
                self.query(&query);
            }
            EventType::QUERY_COMPRESSED => {
                let Ok(query) = compressed::parse_query(body, &mut buffer) else { return };
                self.query(&query);
            }
            EventType::ANNOTATE_ROWS => self.statements.push(Statement { schema: None, text: body.to_vec() }),
            // One byte of a length that is cut, then the text.
            EventType::ROWS_QUERY => {
                let text = body.get(1..).unwrap_or_default().to_vec();
                self.statements.push(Statement { schema: None, text });
            }
            EventType::TABLE_MAP => {
                let Some(last) = self.statements.last_mut().filter(|last| last.schema.is_none()) else { return };
                last.schema = TableMap::parse(body).ok().map(|map| map.schema);
            }
            _ => {}
        }
    }

    fn query(&mut self, query: &QueryEvent<'_>) {
        *self.session = u64::from(query.thread_id);
        if query.begins_group() || query.ends_group() {
            return;
        }
        let schema = Some(String::from_utf8_lossy(query.database).into_owned());
        self.statements.push(Statement { schema, text: query.statement.to_vec() });
    }
}

impl Iterator for Binlogs {
    type Item = Result<Recorded>;

    fn next(&mut self) -> Option<Result<Recorded>> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(Ok(step));
            }
            match self.step() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
