//! A reader: a thread that looks rows up, on a connection of its own that can change nothing.

use crossbeam_channel::Receiver;
use spate_connection::{Connection, Vendor};

use super::{Lookup, Prefetching};
use crate::sessions::{Ends, SILENCE_MAX, SessionMaker};

/// How long a query may hold the definition of its table: a definition of the source waits for it.
const QUERY_TIME_MAX_MILLISECONDS: u32 = 100;

/// Codes of "the query took too long", MariaDB's and MySQL's.
const CODES_TOO_LONG: [u16; 2] = [1969, 3024];

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

    /// A session that changes nothing, waits for nobody, and keeps nobody waiting for long.
    fn connect(&self) -> spate_replica::Result<Connection> {
        let mut connection = self.maker.open()?;
        self.ends.add(&connection)?;
        connection.set_read_timeout(Some(SILENCE_MAX))?;
        let limit = match connection.server_version().vendor {
            Vendor::MariaDb => format!("max_statement_time={}e-3", QUERY_TIME_MAX_MILLISECONDS),
            Vendor::MySql => format!("max_execution_time={QUERY_TIME_MAX_MILLISECONDS}"),
        };
        connection.execute(
            format!(
                "SET SESSION sql_mode='ALLOW_INVALID_DATES,NO_BACKSLASH_ESCAPES', time_zone='+00:00', \
                 lock_wait_timeout=1, {limit}"
            )
            .as_bytes(),
        )?;
        connection.execute(b"SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED, READ ONLY")?;
        Ok(connection)
    }

    /// False if the connection is lost.
    fn read(&self, connection: &mut Connection, lookup: &Lookup) -> bool {
        let Err(error) = connection.execute_single(&lookup.sql) else {
            self.prefetching.status.prefetched(lookup.rows as u64);
            return true;
        };
        match error.code() {
            Some(code) if CODES_TOO_LONG.contains(&code) => true,
            Some(_) => {
                self.prefetching.leave_alone(&lookup.table, &error);
                true
            }
            None => false,
        }
    }
}
