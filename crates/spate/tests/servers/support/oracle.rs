//! Native replication as the oracle: a second replica, like the first in everything, that follows the source by itself.

use super::{Ended, Kind, Server, Site};

/// A source, a replica of Spate's, and a native one.
#[derive(Debug)]
pub struct Oracle {
    pub site: Site,
    pub native: Server,
    kind: Kind,
}

impl Oracle {
    /// Servers of one kind; both replicas have the same options. The native one has one worker: MySQL's own state of a session stays
    /// with each of them, so that what several make of a source's statements depends on who gets which.
    pub fn new(kind: Kind, source: &[&str], replica: &[&str]) -> Oracle {
        let one_worker: &[&str] = if kind == Kind::Mysql { &["--replica-parallel-workers=1"] } else { &[] };
        let replica = &[one_worker, replica].concat();
        let site = Site::between((kind, source), (kind, replica));
        let native = Server::replica(kind, &[replica, &["--server-id=3"][..]].concat());
        Oracle { site, native, kind }
    }

    /// Executes the same on both replicas, without a trace in a binlog.
    pub fn replicas(&self, sql: &str) {
        for server in [&self.site.replica, &self.native] {
            server.sql(&format!("SET sql_log_bin=0; {sql}"));
        }
    }

    /// Lets the native replica follow from the beginning of the source's binlog, and waits until it has all.
    pub fn native_catches_up(&self) {
        let follows = match self.kind {
            Kind::Mysql => "SELECT COUNT(*) FROM performance_schema.replication_applier_configuration",
            _ => "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND = 'Slave_SQL'",
        };
        if self.native.sql(follows) == "0" {
            self.native.follow(&self.site.source);
        }
        self.native.wait_followed(&self.site.source.position());
    }

    /// Both replicas catch up; then they are compared. Returns what Spate has said.
    pub fn catch_up(&self, options: &[&str]) -> Ended {
        self.native_catches_up();
        let ended = self.site.catch_up(&[&["--start", "earliest"], options].concat());
        self.assert_equal();
        ended
    }

    /// Compares definitions, with their counters, and rows, in the order in which they are stored.
    ///
    /// # Panics
    /// If the two replicas differ.
    pub fn assert_equal(&self) {
        let tables = "SELECT CONCAT('`', TABLE_SCHEMA, '`.`', TABLE_NAME, '`') FROM information_schema.TABLES \
                      WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE') \
                      AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema', 'spate') ORDER BY 1";
        let (ours, theirs) = (self.site.replica.sql(tables), self.native.sql(tables));
        assert_eq!(ours, theirs, "tables");
        for table in ours.lines() {
            let look = format!("SHOW CREATE TABLE {table}; SELECT * FROM {table}");
            assert_eq!(
                self.site.replica.sql(&look),
                self.native.sql(&look),
                "{table}: Spate's replica, and the native one"
            );
        }
    }

    /// Does the same in each way of applying on the same servers, each in a schema of its own, which `act` makes.
    pub fn in_ways(&self, ways: &[&[&str]], act: impl Fn(&Oracle, &[&str], &str)) {
        for (number, way) in ways.iter().enumerate() {
            act(self, way, &format!("d{number}"));
        }
    }

    /// What both replicas answer.
    ///
    /// # Panics
    /// If they do not answer alike.
    pub fn both_say(&self, query: &str) -> String {
        let (ours, theirs) = (self.site.replica.sql(query), self.native.sql(query));
        assert_eq!(ours, theirs, "{query}: Spate's replica, and the native one");
        ours
    }
}
