//! A reader: a thread that looks rows up, on a connection of its own that can change nothing.

use crossbeam_channel::Receiver;
use spate_connection::Connection;

use super::harmless::{self, Looked};
use super::{Lookup, Prefetching};
use crate::sessions::{Ends, SILENCE_MAX, SessionMaker};

/// Reads what the feeder tells.
pub(crate) struct Reader<'a> {
    pub(crate) maker: SessionMaker<'a>,
    pub(crate) ends: &'a Ends,
    pub(crate) lookups: Receiver<Lookup>,
    pub(crate) prefetching: &'a Prefetching<'a>,
}

impl Reader<'_> {
    /// Reads until the feeder is gone. It connects when there is something to read, and once more if it loses its connection.
    pub(crate) fn run(self) {
        let mut connection = None;
        let mut connects_left = 2;
        while let Ok(lookup) = self.lookups.recv() {
            if !self.prefetching.wait_until_near(lookup.chunk) {
                continue;
            }
            let opened = match &mut connection {
                Some(connection) => connection,
                None if connects_left == 0 => return,
                none => {
                    connects_left -= 1;
                    match self.connect() {
                        Ok(opened) => none.insert(opened),
                        Err(error) => {
                            self.prefetching.tell(&format!("a connection that prefetches ended: {error}"));
                            continue;
                        }
                    }
                }
            };
            if !self.read(opened, &lookup) {
                connection = None;
            }
        }
    }

    fn connect(&self) -> spate_replica::Result<Connection> {
        let mut connection = self.maker.open()?;
        self.ends.add(&connection)?;
        connection.set_read_timeout(Some(SILENCE_MAX))?;
        harmless::begin(&mut connection)?;
        Ok(connection)
    }

    /// False if the connection is lost.
    fn read(&self, connection: &mut Connection, lookup: &Lookup) -> bool {
        match harmless::look_up(connection, &lookup.sql) {
            Looked::Done => self.prefetching.status.prefetched(lookup.rows as u64),
            Looked::TooLong => {}
            Looked::Refused(error) => self.prefetching.leave_alone(&lookup.table, &error),
            Looked::Lost(_) => return false,
        }
        true
    }
}
