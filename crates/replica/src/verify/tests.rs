//! Comparisons of two real MariaDB servers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use spate_binlog::{Gtid, GtidPosition};

use super::hold::{APPLIER_LOCK, CREATE_TABLE, HOLD_QUERY, HoldLimit, HoldRequest};
use super::*;
use crate::endpoint::Secret;
use crate::wire::test_server::TestServer;
use crate::wire::{Connection, quote};

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
                  source_file VARCHAR(255) NOT NULL, source_position BIGINT NOT NULL, seqno BIGINT NOT NULL)",
            )
            .unwrap();
        at_replica.execute(CREATE_TABLE.as_bytes()).unwrap();
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

    /// Says that the replica has applied everything.
    fn align(&mut self) {
        let gtid = self.at_source.query("SELECT @@gtid_binlog_pos").unwrap().single_text().unwrap();
        self.on_replica(&format!("REPLACE INTO spate.checkpoint VALUES (0, '{gtid}', '', 0, 0)"));
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

    /// The differing rows of a table, and whether they are all of the given kind.
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

#[test]
fn every_single_byte_counts() {
    let mut pair = Pair::start();
    pair.on_both(
        "CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY, v VARCHAR(20), c CHAR(9) CHARACTER SET latin1, d DOUBLE, f FLOAT, \
         n DECIMAL(30,10), b VARBINARY(20), t LONGTEXT, l LONGBLOB, j JSON, g GEOMETRY, i BIT(64), e ENUM('', 'x'), \
         z SET('p', 'q'), dt DATETIME(6), ts TIMESTAMP(6) NULL, tm TIME(3), da DATE, y YEAR, u UUID, a INET6, \
         w VARCHAR(9) CHARACTER SET ucs2, s INT AS (id + 1) STORED, virt INT AS (id + 2) VIRTUAL, h VARCHAR(9) INVISIBLE) \
         ENGINE=InnoDB CHARACTER SET utf8mb4; \
         INSERT INTO s.t (id, v, c, d, f, n, b, t, l, j, g, i, e, z, dt, ts, tm, da, y, u, a, w, h) SELECT seq, 'abc', 'abc', 0.3e0, \
         16777216e0, 1.5, 'abc', 'abc', 'abc', '{\"a\": 1}', ST_GeomFromText('POINT(1 2)', 4326), ~0, 'x', 'p', '2024-01-01', \
         '2024-01-01', '-10:00:00.5', '2024-01-01', 2024, 'c51a0fb1-e555-11f1-a873-02fc00000001', '::1', 'abc', 'abc' \
         FROM mysql.seq_1_to_50; INSERT INTO s.t (id) VALUES (51)",
    );
    assert_eq!(pair.keys("t"), []);
    for change in [
        "v = 'abd'",
        "v = 'abc '",
        "v = 'aBc'",
        "v = NULL",
        "v = ''",
        "c = 'ab\u{e9}'",
        "d = 0.1e0 + 0.2e0",
        "d = NULL",
        "f = 16777218e0",
        "n = 1.5000000001",
        "b = 'abc\\0'",
        "b = 'ABC'",
        "t = 'abc '",
        "t = ''",
        "t = NULL",
        "l = 'abC'",
        "j = '{\"a\":1}'",
        "g = ST_GeomFromText('POINT(1 2)', 0)",
        "i = ~1",
        "e = 'nonsense'",
        "e = ''",
        "z = 'p,q'",
        "z = ''",
        "dt = '2024-01-01 00:00:00.000001'",
        "dt = '0000-00-00'",
        "ts = '2024-01-01 00:00:00.000001'",
        "tm = '10:00:00.5'",
        "da = '0000-00-00'",
        "y = 0",
        "u = 'c51a0fb1-e555-11f1-a873-02fc00000002'",
        "a = '::2'",
        "w = 'abc '",
        "h = 'abd'",
    ] {
        pair.on_replica(&format!("START TRANSACTION; UPDATE s.t SET {change} WHERE id = 33; COMMIT"));
        assert_eq!(pair.keys("t"), contents("id=33"), "{change}");
        pair.on_replica(
            "REPLACE INTO s.t (id, v, c, d, f, n, b, t, l, j, g, i, e, z, dt, ts, tm, da, y, u, a, w, h) \
             SELECT 33, v, c, d, f, n, b, t, l, j, g, i, e, z, dt, ts, tm, da, y, u, a, w, h FROM s.t WHERE id = 34",
        );
    }
    assert_eq!(pair.keys("t"), []);
    // What moves from one column to its neighbour, and NULL against what stands for it.
    pair.on_both("CREATE TABLE s.m (id INT PRIMARY KEY, a VARCHAR(9), b VARCHAR(9)); INSERT INTO s.m VALUES (1, 'x', 'yz'), (2, NULL, 'N')");
    for (id, a, b) in [(1, "'xy'", "'z'"), (1, "'xyz'", "''"), (2, "'N'", "NULL"), (2, "NULL", "NULL")] {
        pair.on_replica(&format!("UPDATE s.m SET a = {a}, b = {b} WHERE id = {id}"));
        assert_eq!(pair.keys("m"), contents(&format!("id={id}")), "{a} {b}");
        pair.on_replica("REPLACE INTO s.m VALUES (1, 'x', 'yz'), (2, NULL, 'N')");
    }
    // Values that trade places between rows.
    pair.on_both("CREATE TABLE s.x (id INT PRIMARY KEY, a INT); INSERT INTO s.x VALUES (1, 8), (2, 9)");
    pair.on_replica("UPDATE s.x SET a = 17 - a");
    assert_eq!(pair.keys("x").len(), 2);
}

#[test]
fn rows_tables_and_columns_that_are_not_there() {
    let mut pair = Pair::start();
    pair.on_both(
        "CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY, v INT); INSERT INTO s.t SELECT seq, seq FROM mysql.seq_1_to_20; \
         CREATE TABLE s.empty (id INT PRIMARY KEY); CREATE TABLE s.gone (id INT); CREATE TABLE s.c (id INT PRIMARY KEY, v INT, w INT); \
         CREATE TABLE s.keyless (v INT); INSERT INTO s.keyless VALUES (1), (1), (2), (2); CREATE VIEW s.view AS SELECT 1; \
         CREATE TABLE s.same (v INT); INSERT INTO s.same VALUES (3), (2), (1); CREATE SCHEMA only_here",
    );
    let report = pair.verify();
    assert!(report.is_identical() && report.position.is_exact, "{report:?}");
    assert_eq!((report.rows_compared, report.tables.len(), report.connections), (27, 6, 4));
    assert_eq!(report.position.source_gtid, report.position.replica_gtid);

    pair.on_replica(
        "DELETE FROM s.t WHERE id = 5; INSERT INTO s.t VALUES (30, 1), (4000, 1); DROP TABLE s.gone; \
         UPDATE s.keyless SET v = 3 - v; UPDATE s.keyless SET v = 1; DROP TABLE s.same; CREATE TABLE s.same (v INT); \
         INSERT INTO s.same VALUES (1), (2), (3); CREATE TABLE s.extra (id INT); \
         ALTER TABLE s.c MODIFY w BIGINT, DROP v, ADD x INT",
    );
    let (missing, extra) = (RowDifference::MissingOnReplica, RowDifference::MissingOnSource);
    let expected = [("id=5", missing), ("id=30", extra), ("id=4000", extra)];
    assert_eq!(pair.keys("t"), expected.map(|(key, difference)| (key.to_owned(), difference)));
    assert_eq!(pair.verdict("gone"), Verdict::MissingOnReplica);
    assert_eq!(pair.verdict("extra"), Verdict::MissingOnSource);
    assert_eq!(pair.verdict("same"), Verdict::Identical);
    assert_eq!(pair.verdict("empty"), Verdict::Identical);
    match pair.verdict("keyless") {
        Verdict::RowsDiffer(differences) => assert_eq!((differences.rows, differences.ranges.len()), (0, 1)),
        other => panic!("{other:?}"),
    }
    match pair.verdict("c") {
        Verdict::ColumnsDiffer { differences } => {
            let text = differences.join("; ");
            for part in
                ["`v` is missing on the replica", "`x` is missing on the source", "`w` is int on the source, bigint"]
            {
                assert!(text.contains(part), "{text}");
            }
        }
        other => panic!("{other:?}"),
    }
    let report = pair.verify();
    assert!(!report.is_identical());
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["tables"][2]["verdict"]["verdict"], "missing_on_source", "{json}");

    // Filters.
    let mut options = VerifyOptions { tables: vec!["s.empty".parse().unwrap()], ..pair.options() };
    let report = run(&options, &|_| {}).unwrap();
    assert!(report.is_identical() && report.tables.len() == 1);
    options.schemas = vec!["nowhere".to_owned()];
    assert!(matches!(run(&options, &|_| {}), Err(Error::NothingToCompare { name }) if name == "nowhere"));
}

#[test]
fn keys_of_every_kind_are_cut_into_ranges() {
    let mut pair = Pair::start();
    let kinds = [
        ("int_pair", "a INT, b INT, PRIMARY KEY (a, b)", "seq DIV 10, CAST(seq AS SIGNED) - 150"),
        ("descending", "a INT, b BIGINT UNSIGNED, PRIMARY KEY (b DESC, a)", "seq, ~0 - seq"),
        (
            "text",
            "a VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci PRIMARY KEY, b INT",
            "CONCAT('\u{e4}\u{1F980}''\\\\', seq), 1",
        ),
        (
            "latin",
            "a CHAR(40) CHARACTER SET latin1 COLLATE latin1_german2_ci, b INT, PRIMARY KEY (b, a)",
            "CONCAT('\u{df}', seq), seq DIV 50",
        ),
        ("wide", "a VARCHAR(40) CHARACTER SET ucs2 PRIMARY KEY, b INT", "CONCAT('\u{e4}', seq), 1"),
        ("bytes", "a VARBINARY(40) PRIMARY KEY, b INT", "UNHEX(MD5(seq)), 1"),
        ("times", "a TIMESTAMP(6), b DATE, PRIMARY KEY (a, b)", "'2024-10-27 00:00:00' + INTERVAL seq * 100 SECOND, 0"),
        ("floats", "a FLOAT PRIMARY KEY, b INT", "seq / 7, 1"),
        ("numbers", "a DECIMAL(30, 12), b BIT(20), PRIMARY KEY (b, a)", "seq / 7, seq DIV 30"),
        (
            "members",
            "a ENUM('z', 'y', 'x', '1', ''), b SET('d', 'c', 'b'), c INT, PRIMARY KEY (a, b, c)",
            "1 + seq % 5, seq % 8, seq",
        ),
        (
            "uuids",
            "a UUID PRIMARY KEY, b INT",
            "CONCAT(LPAD(HEX(seq * 7919), 8, '0'), '-e555-11f1-a873-02fc00000001'), 1",
        ),
        ("unique_only", "a INT NOT NULL, b INT NOT NULL, UNIQUE (b), KEY (a)", "1, seq"),
        ("prefix", "a VARCHAR(100), b INT, PRIMARY KEY (a(10))", "MD5(seq), 1"),
        ("nullable", "a INT NULL UNIQUE, b INT", "NULLIF(seq, 7), 1"),
    ];
    let mut setup = "CREATE SCHEMA s; SET NAMES utf8mb4;".to_owned();
    for (name, columns, values) in kinds {
        setup += &format!(
            "CREATE TABLE s.{name} ({columns}) ENGINE=InnoDB; INSERT INTO s.{name} SELECT {values} FROM mysql.seq_1_to_300;"
        );
    }
    pair.on_both(&setup);
    pair.align();
    let options = VerifyOptions { range_rows: 7, connections: 3, ..pair.options() };
    let report = run(&options, &|_| {}).unwrap();
    assert!(report.is_identical(), "{report:#?}");
    // That the ranges are disjoint and leave nothing out shows in the number of rows.
    assert!(report.tables.iter().all(|table| (table.source_rows, table.replica_rows) == (300, 300)), "{report:#?}");

    for (name, ..) in kinds {
        pair.on_replica(&format!("DELETE FROM s.{name} ORDER BY b LIMIT 1"));
    }
    let report = run(&options, &|_| {}).unwrap();
    for table in &report.tables {
        let Verdict::RowsDiffer(differences) = &table.verdict else { panic!("{table:?}") };
        assert_eq!((table.source_rows, table.replica_rows), (300, 299), "{table:?}");
        let keyless = ["prefix", "nullable"].contains(&table.table.as_str());
        assert_eq!(differences.rows, u64::from(!keyless), "{table:?}");
        let range = &differences.ranges[0];
        assert_eq!(range.source_rows, if keyless { 300 } else { range.replica_rows + 1 });
        assert!(keyless || range.source_rows <= 7, "{table:?}");
    }
}

#[test]
fn two_hundred_thousand_rows_in_many_ranges() {
    let mut pair = Pair::start();
    pair.on_both(
        "CREATE SCHEMA s; CREATE TABLE s.big (id INT PRIMARY KEY, v VARCHAR(50)); \
         INSERT INTO s.big SELECT seq * 3, MD5(seq) FROM mysql.seq_1_to_200000",
    );
    pair.align();
    let options = VerifyOptions { range_rows: 1000, ..pair.options() };
    let last = Mutex::new(0);
    let report = run(&options, &|progress| {
        if let Progress::Comparing { rows_compared, .. } = progress {
            let mut last = last.lock().unwrap();
            *last = (*rows_compared).max(*last);
        }
    });
    assert!(report.unwrap().is_identical());
    assert_eq!(*last.lock().unwrap(), 200_000);

    pair.on_replica(
        "UPDATE s.big SET v = CONCAT(v, ' ') WHERE id IN (3, 3003, 3006, 300000, 600000); INSERT INTO s.big VALUES (-1, ''), (600001, '')",
    );
    let report = run(&options, &|_| {}).unwrap();
    let Verdict::RowsDiffer(differences) = &report.tables[0].verdict else { panic!("{report:?}") };
    let keys: Vec<&str> = differences.keys.iter().map(|key| key.key.as_str()).collect();
    assert_eq!(keys, ["id=-1", "id=3", "id=3003", "id=3006", "id=300000", "id=600000", "id=600001"]);
    let ranges: Vec<(Option<&str>, Option<&str>)> =
        differences.ranges.iter().map(|range| (range.after.as_deref(), range.up_to.as_deref())).collect();
    let expected = [(None, Some("id=6000")), (Some("id=297000"), Some("id=300000")), (Some("id=597000"), None)];
    assert_eq!(ranges, expected);

    let few = VerifyOptions { differing_keys_max: 2, ..options };
    pair.on_replica("UPDATE s.big SET v = ''");
    let report = run(&few, &|_| {}).unwrap();
    let Verdict::RowsDiffer(differences) = &report.tables[0].verdict else { panic!("{report:?}") };
    assert_eq!((differences.rows, differences.keys.len(), differences.ranges.len()), (200_002, 2, 1));
}

#[test]
fn hostile_names() {
    let mut pair = Pair::start();
    let (schema, table, column) = ("s`'\"\\ .%\u{fc}", "t`; DROP TABLE x; -- \u{4e2d}", "c`','\"x\\\u{e4}");
    let [schema_sql, table_sql] = [quote::identifier(schema), quote::qualified(schema, table)];
    let column_sql = quote::identifier(column);
    pair.on_both(&format!(
        "SET NAMES utf8mb4; CREATE SCHEMA {schema_sql}; CREATE TABLE {table_sql} ({column_sql} VARCHAR(30) PRIMARY KEY, `select` INT); \
         INSERT INTO {table_sql} VALUES ('it''s', 1), ('b', 2), ('c', 3)"
    ));
    pair.align();
    let name = TableName { schema: schema.to_owned(), table: table.to_owned() };
    let options = VerifyOptions { tables: vec![name], range_rows: 1, ..pair.options() };
    assert!(run(&options, &|_| {}).unwrap().is_identical());
    pair.on_replica(&format!("UPDATE {table_sql} SET `select` = 9 WHERE {column_sql} = 'it''s'"));
    let report = run(&options, &|_| {}).unwrap();
    let Verdict::RowsDiffer(differences) = &report.tables[0].verdict else { panic!("{report:?}") };
    assert_eq!(differences.keys[0].key, format!("{column}='it''s'"));
}

#[test]
fn positions_that_do_not_meet() {
    let mut pair = Pair::start();
    pair.on_both("CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY)");
    assert!(matches!(run(&pair.options(), &|_| {}), Err(Error::ReplicaPositionUnknown)));
    pair.align();
    pair.at_source.execute(b"INSERT INTO s.t VALUES (1)").unwrap();
    let error = run(&pair.options(), &|_| {}).unwrap_err();
    assert!(matches!(error, Error::PositionsDiffer { .. }), "{error}");
    assert!(error.to_string().contains("0-1-3") && error.to_string().contains("0-1-2"), "{error}");

    let anyway = VerifyOptions { without_position: true, ..pair.options() };
    let report = run(&anyway, &|_| {}).unwrap();
    assert!(!report.position.is_exact && !report.is_identical());

    // The same place by file and offset, whatever the GTIDs say.
    let status = pair.at_source.query("SHOW MASTER STATUS").unwrap();
    let (file, offset) = (status.text(0, "File").unwrap(), status.text(0, "Position").unwrap());
    pair.on_replica(&format!(
        "REPLACE INTO spate.checkpoint VALUES (0, '', '{file}', {offset}, 0); INSERT INTO s.t VALUES (1)"
    ));
    assert!(run(&pair.options(), &|_| {}).unwrap().is_identical());

    // A replica of the server's own making.
    pair.on_replica("DELETE FROM spate.checkpoint; SET GLOBAL gtid_slave_pos = '0-1-3'");
    assert!(run(&pair.options(), &|_| {}).unwrap().is_identical());
    pair.on_replica("SET GLOBAL gtid_slave_pos = '0-1-2'");
    assert!(matches!(run(&pair.options(), &|_| {}), Err(Error::PositionsDiffer { .. })));

    let swapped = VerifyOptions::new(pair.replica.root(), pair.source.root());
    assert!(matches!(run(&swapped, &|_| {}), Err(Error::SourcePositionUnknown { .. })));
}

#[test]
fn a_user_who_may_only_read_the_source() {
    let mut pair = Pair::start();
    pair.on_both("CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY)");
    pair.at_source
        .execute(b"CREATE USER reader@'%' IDENTIFIED BY 'geheim'; GRANT SELECT ON *.* TO reader@'%'")
        .unwrap();
    pair.align();
    let reader = Endpoint::tcp("reader", "127.0.0.1", pair.source.port).with_password(Secret::new("geheim"));
    let options = VerifyOptions { source: reader, ..pair.options() };
    assert!(run(&options, &|_| {}).unwrap().is_identical());
}

/// Ends the writer even if the test fails; the threads' scope would wait for it for ever.
struct StopWhenDropped<'a>(&'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes to the source as fast as it goes and hands each transaction's GTID on, until told to stop.
fn write(mut source: Connection, done: &AtomicBool, sender: &Sender<(Gtid, u64)>) {
    for id in 1.. {
        source.execute(format!("INSERT INTO s.t VALUES ({id}, MD5({id}))").as_bytes()).unwrap();
        let gtid = source.query("SELECT @@last_gtid").unwrap().single_text().unwrap().parse().unwrap();
        sender.send((gtid, id)).unwrap();
        if done.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// An applier that obeys, one transaction at a time.
fn apply(mut replica: Connection, transactions: &Receiver<(Gtid, u64)>, stops: &AtomicU64) {
    replica.query(&format!("SELECT GET_LOCK('{APPLIER_LOCK}', 0)")).unwrap();
    let mut position = GtidPosition::default();
    for (gtid, id) in transactions {
        loop {
            let request = HoldRequest::parse(&replica.query(HOLD_QUERY).unwrap()).unwrap();
            if let Some(sql) = request.acknowledgement() {
                replica.execute(sql.as_bytes()).unwrap();
                stops.fetch_add(1, Ordering::Relaxed);
            }
            if request.limit.allows(gtid) {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        position.advance(gtid);
        let sql = format!(
            "BEGIN; INSERT INTO s.t VALUES ({id}, MD5({id})); UPDATE spate.checkpoint SET gtid_position = '{position}'; COMMIT"
        );
        replica.execute(sql.as_bytes()).unwrap();
    }
}

#[test]
fn a_live_source_and_a_live_replica_meet() {
    let mut pair = Pair::start();
    pair.on_both("CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY, v VARCHAR(50))");
    pair.align();
    let (done, stops) = (AtomicBool::new(false), AtomicU64::new(0));
    // A source that does not run away from its slow applier.
    let (sender, receiver) = bounded(200);
    let (writing, applying) = (pair.source.connect(), pair.replica.connect());
    thread::scope(|scope| {
        let stop = StopWhenDropped(&done);
        let applier = scope.spawn(|| apply(applying, &receiver, &stops));
        let is_done = &done;
        let writer = scope.spawn(move || write(writing, is_done, &sender));
        let deadline = Instant::now() + Duration::from_secs(20);
        let present = format!("SELECT IS_USED_LOCK('{APPLIER_LOCK}') IS NOT NULL AND (SELECT COUNT(*) FROM s.t) > 20");
        while pair.at_replica.query(&present).unwrap().single_text().as_deref() != Some("1") {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
        let mut positions = Vec::new();
        for _ in 0..5 {
            let report = run(&pair.options(), &|_| {}).unwrap();
            assert!(report.is_identical() && report.position.is_exact && report.hold_seconds > 0.0, "{report:#?}");
            assert_eq!(report.position.source_gtid, report.position.replica_gtid);
            assert!(report.rows_compared > 20);
            positions.push(report.position.source_offset);
        }
        positions.dedup();
        assert!(positions.len() > 1, "the source was live");
        // A difference is found just as well, and a failed verify leaves no request behind.
        pair.on_replica("UPDATE s.t SET v = '' WHERE id = 7");
        let report = run(&pair.options(), &|_| {}).unwrap();
        assert!(matches!(&report.tables[0].verdict, Verdict::RowsDiffer(rows) if rows.keys[0].key == "id=7"));
        let mut held = pair.replica.connect();
        held.query("SELECT GET_LOCK('spate.verify', 0)").unwrap();
        assert!(matches!(run(&pair.options(), &|_| {}), Err(Error::Busy)));
        drop(stop);
        writer.join().unwrap();
        applier.join().unwrap();
    });
    assert_eq!(stops.load(Ordering::Relaxed), 6);
    assert_eq!(pair.at_replica.query("SELECT COUNT(*) FROM spate.hold").unwrap().single_text().unwrap(), "0");
}

#[test]
fn requests_expire_and_appliers_that_do_not_answer_are_named() {
    let mut pair = Pair::start();
    pair.on_both("CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY)");
    pair.align();
    let mut deaf = pair.replica.connect();
    deaf.query(&format!("SELECT GET_LOCK('{APPLIER_LOCK}', 0)")).unwrap();
    let options = VerifyOptions { catch_up_timeout: Duration::from_millis(100), ..pair.options() };
    assert!(matches!(run(&options, &|_| {}), Err(Error::HoldIgnored { .. })));

    let limit = |pair: &mut Pair| HoldRequest::parse(&pair.at_replica.query(HOLD_QUERY).unwrap()).unwrap().limit;
    assert_eq!(limit(&mut pair), HoldLimit::None);
    pair.on_replica("INSERT INTO spate.hold VALUES (1, 18446744073709551615, NULL, UTC_TIMESTAMP(6), NULL)");
    assert_eq!(limit(&mut pair), HoldLimit::NowStop);
    pair.on_replica("SET time_zone = '+05:00'; UPDATE spate.hold SET until_position = '0-1-9'");
    assert_eq!(limit(&mut pair), HoldLimit::Until("0-1-9".parse().unwrap()));
    pair.on_replica("UPDATE spate.hold SET heartbeat = UTC_TIMESTAMP(6) - INTERVAL 31 SECOND");
    assert_eq!(limit(&mut pair), HoldLimit::None);
}

#[test]
fn nobody_waits_for_a_comparison_and_altered_tables_are_named() {
    let mut pair = Pair::start();
    pair.on_both(
        "CREATE SCHEMA s; CREATE TABLE s.a (id INT PRIMARY KEY); INSERT INTO s.a SELECT seq FROM mysql.seq_1_to_50; \
         CREATE TABLE s.b LIKE s.a; INSERT INTO s.b SELECT id FROM s.a; CREATE TABLE s.old (id INT PRIMARY KEY) ENGINE=MyISAM",
    );
    pair.align();
    let altering = Mutex::new((pair.source.connect(), false));
    let alter = |progress: &Progress| {
        let mut altering = altering.lock().unwrap();
        if matches!(progress, Progress::Comparing { rows_compared: 50.., .. }) && !altering.1 {
            altering.1 = true;
            // The first table has been read in a snapshot that is still open: no metadata lock may be left of it.
            altering.0.execute(b"SET lock_wait_timeout = 5; ALTER TABLE s.a FORCE; ALTER TABLE s.b FORCE").unwrap();
        }
    };
    let options = VerifyOptions { connections: 1, ..pair.options() };
    let error = run(&options, &alter).unwrap_err();
    assert!(matches!(&error, Error::TableAltered { table } if table == "s.b"), "{error}");

    let report = pair.verify();
    assert!(report.is_identical());
    let outside: Vec<&str> =
        report.tables.iter().filter(|table| !table.is_in_snapshot).map(|table| table.table.as_str()).collect();
    assert_eq!(outside, ["old"]);
}

#[test]
fn a_source_too_busy_for_equal_snapshots() {
    let mut pair = Pair::start();
    pair.on_both("CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY, v VARCHAR(50))");
    pair.at_source.execute(b"CREATE USER reader@'%'; GRANT SELECT ON *.* TO reader@'%'").unwrap();
    let done = AtomicBool::new(false);
    let (sender, receiver) = unbounded();
    let writing = pair.source.connect();
    let reader = Endpoint::unix("reader", pair.source.socket());
    thread::scope(|scope| {
        let stop = StopWhenDropped(&done);
        let is_done = &done;
        scope.spawn(move || write(writing, is_done, &sender));
        for (endpoint, may_hold_up_commits) in [(pair.source.root(), true), (reader, false)] {
            let options = crate::wire::ConnectOptions::new("source");
            let mut control = snapshot::open_session(&endpoint, &options).unwrap();
            let mut sessions = snapshot::open_sessions(&endpoint, &options, 3).unwrap();
            // Each at a position of its own.
            for session in sessions.chunks_mut(1) {
                snapshot::start(session).unwrap();
                receiver.try_iter().count();
                // The first may have been committed before the snapshot, and only its news came later.
                receiver.recv().unwrap();
                receiver.recv().unwrap();
            }
            let position = snapshot::start_on_busy_source(&mut control, &mut sessions).unwrap();
            assert_eq!(sessions.len(), if may_hold_up_commits { 3 } else { 1 });
            let counts: Vec<String> = sessions
                .iter_mut()
                .map(|session| session.query("SELECT COUNT(*) FROM s.t").unwrap().single_text().unwrap())
                .collect();
            // The source began with four transactions, and each of the others was one row.
            let sequence = position.gtid.domains().next().unwrap().sequence;
            assert!(counts.iter().all(|count| *count == (sequence - 4).to_string()), "{counts:?} at {sequence}");
        }
        // The commits go on.
        receiver.try_iter().count();
        receiver.recv_timeout(Duration::from_secs(20)).unwrap();
        drop(stop);
    });
}

#[test]
fn a_snapshots_position_is_its_own_while_others_ask_for_theirs() {
    let pair = Pair::start();
    let (mut writing, mut asking) = (pair.source.connect(), pair.source.connect());
    writing.execute(b"CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY AUTO_INCREMENT)").unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = StopWhenDropped(&done);
        let is_done = &done;
        scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                writing.execute(b"INSERT INTO s.t VALUES ()").unwrap();
            }
        });
        scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                asking.query("SHOW GLOBAL STATUS LIKE 'binlog_snapshot_%'").unwrap();
            }
        });
        let mut sessions = vec![pair.source.connect()];
        snapshot::start(&mut sessions).unwrap();
        let mut settled = Vec::new();
        for _ in 0..100 {
            // One that does not settle is asked again; one that settles must be right.
            settled.extend(snapshot::coordinates_of(&mut sessions).unwrap().pop().unwrap());
        }
        assert!(settled.len() > 50, "{}", settled.len());
        settled.dedup();
        assert_eq!(settled.len(), 1, "{settled:?}");
        drop(stop);
    });
}
