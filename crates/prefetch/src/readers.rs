//! Connections that execute lookups.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_channel::Receiver;
use spate_apply::prefetch::harmless::{self, Looked};
use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection};
use spate_replica::asking;
use spate_schedule::TableName;

use crate::Tell;
use crate::counters::{Counters, add};
use crate::pursuit::Pursuit;
use spate_replica::native::Place;

/// Tables that are remembered as unreadable. Beyond, the readers find it out again.
const UNREADABLE_MAX: usize = 10_000;

/// A query for a reader.
#[derive(Debug)]
pub(crate) struct Query {
    /// The end of the batch that needs its rows.
    pub(crate) place: Place,
    pub(crate) table: TableName,
    pub(crate) sql: Vec<u8>,
    pub(crate) rows: usize,
}

/// Tables that cannot be read, and why.
#[derive(Debug, Default)]
pub(crate) struct Unreadable(Mutex<BTreeMap<TableName, String>>);

impl Unreadable {
    pub(crate) fn contains(&self, table: &TableName) -> bool {
        self.lock().contains_key(table)
    }

    /// True if it is new.
    fn add(&self, table: &TableName, why: String) -> bool {
        let mut tables = self.lock();
        tables.len() < UNREADABLE_MAX && tables.insert(table.clone(), why).is_none()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TableName, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that looks rows up.
pub(crate) struct Reader<'a> {
    pub(crate) replica: &'a Endpoint,
    pub(crate) queries: Receiver<Query>,
    pub(crate) pursuit: &'a Pursuit,
    pub(crate) unreadable: &'a Unreadable,
    pub(crate) counters: &'a Counters,
    pub(crate) tell: &'a Tell<'a>,
}

impl Reader<'_> {
    /// Reads until nobody asks any more. The first query connects; a connection that is lost ends the session.
    pub(crate) fn run(self) {
        let mut connection = None;
        while let Ok(query) = self.queries.recv() {
            if self.pursuit.has_passed(&query.place) || self.pursuit.is_over() {
                add(&self.counters.dropped_queries, 1);
                continue;
            }
            let opened = match &mut connection {
                Some(opened) => opened,
                none => match self.connect() {
                    Ok(opened) => none.insert(opened),
                    Err(error) => return self.end(&error),
                },
            };
            match harmless::look_up(opened, &query.sql) {
                Looked::Done => {
                    add(&self.counters.queries, 1);
                    add(&self.counters.looked_up_rows, query.rows as u64);
                }
                Looked::TooLong => add(&self.counters.slow_queries, 1),
                Looked::Refused(error) => {
                    add(&self.counters.failed_queries, 1);
                    if self.unreadable.add(&query.table, error.to_string()) {
                        (self.tell)(&format!("rows of {} are not looked up: {error}", query.table));
                    }
                }
                Looked::Lost(error) => return self.end(&error),
            }
        }
    }

    fn end(&self, error: &spate_connection::Error) {
        if !self.pursuit.is_over() {
            (self.tell)(&format!("a connection that reads ended: {error}"));
            self.pursuit.end();
        }
        // Whoever sends must not wait for this reader.
        for _dropped in &self.queries {
            add(&self.counters.dropped_queries, 1);
        }
    }

    fn connect(&self) -> spate_connection::Result<Connection> {
        let mut connection = asking::connect(self.replica, &ConnectOptions::new("replica"))?;
        harmless::begin(&mut connection)?;
        Ok(connection)
    }
}
