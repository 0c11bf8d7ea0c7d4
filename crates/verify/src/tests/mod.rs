//! Comparisons of two real MariaDB servers.

mod differences;
mod meeting;

use super::*;
use spate_connection::test_server::TestServer;
use spate_connection::{Connection, quote};
use spate_replica::{hold_request, lock_names};

struct Pair {
    source: TestServer,
    replica: TestServer,
    at_source: Connection,
    at_replica: Connection,
}

impl Pair {
    fn start() -> Pair {
        let source = TestServer::start(&["--log-bin=binlog", "--server-id=1", "--binlog-format=ROW"]);
        let replica = TestServer::start(&["--server-id=2"]);
        let (at_source, mut at_replica) = (source.connect(), replica.connect());
        at_replica
            .execute(
                b"CREATE SCHEMA spate; CREATE TABLE spate.checkpoint (applier INT PRIMARY KEY, gtid_position TEXT NOT NULL, \
                  source_file VARCHAR(255) NOT NULL, source_position BIGINT NOT NULL, seqno BIGINT NOT NULL, source_seconds BIGINT NOT NULL)",
            )
            .unwrap();
        at_replica.execute(hold_request::CREATE_TABLE.as_bytes()).unwrap();
        at_replica.execute(lock_names::CREATE_TABLE.as_bytes()).unwrap();
        Pair { source, replica, at_source, at_replica }
    }

    fn on_both(&mut self, sql: &str) {
        for connection in [&mut self.at_source, &mut self.at_replica] {
            connection.execute(format!("SET sql_mode = ''; {sql}").as_bytes()).unwrap();
        }
    }

    fn on_replica(&mut self, sql: &str) {
        self.at_replica.execute(format!("SET sql_mode = ''; {sql}").as_bytes()).unwrap();
    }

    /// Sets the checkpoint as if the replica had applied everything.
    fn align(&mut self) {
        let gtid = self.at_source.query("SELECT @@gtid_binlog_pos").unwrap().single_text().unwrap();
        self.on_replica(&format!("REPLACE INTO spate.checkpoint VALUES (0, '{gtid}', '', 0, 0, 0)"));
    }

    fn options(&self) -> VerifyOptions {
        VerifyOptions::new(self.source.root(), self.replica.root())
    }

    fn verify(&mut self) -> Report {
        self.align();
        run(&self.options(), &|_| {}).unwrap()
    }

    fn verdict(&mut self, table: &str) -> Verdict {
        let report = self.verify();
        report.tables.into_iter().find(|found| found.table == table).unwrap().verdict
    }

    /// The differing rows of a table, and how each differs.
    fn keys(&mut self, table: &str) -> Vec<(String, RowDifference)> {
        match self.verdict(table) {
            Verdict::RowsDiffer(differences) => {
                assert_eq!(differences.rows, differences.keys.len() as u64);
                differences.keys.into_iter().map(|key| (key.key, key.difference)).collect()
            }
            Verdict::Identical => Vec::new(),
            other => panic!("{other:?}"),
        }
    }
}

fn contents(key: &str) -> Vec<(String, RowDifference)> {
    vec![(key.to_owned(), RowDifference::Contents)]
}
