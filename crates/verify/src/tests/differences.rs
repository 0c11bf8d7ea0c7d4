//! Comparisons of tables that nobody changes.

use std::sync::Mutex;

use super::*;

#[test]
fn any_changed_byte_of_any_type_is_reported() {
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
    // Bytes that move from one column to the next, and NULL against the letter that encodes it.
    pair.on_both("CREATE TABLE s.m (id INT PRIMARY KEY, a VARCHAR(9), b VARCHAR(9)); INSERT INTO s.m VALUES (1, 'x', 'yz'), (2, NULL, 'N')");
    for (id, a, b) in [(1, "'xy'", "'z'"), (1, "'xyz'", "''"), (2, "'N'", "NULL"), (2, "NULL", "NULL")] {
        pair.on_replica(&format!("UPDATE s.m SET a = {a}, b = {b} WHERE id = {id}"));
        assert_eq!(pair.keys("m"), contents(&format!("id={id}")), "{a} {b}");
        pair.on_replica("REPLACE INTO s.m VALUES (1, 'x', 'yz'), (2, NULL, 'N')");
    }
    // Values that two rows exchange.
    pair.on_both("CREATE TABLE s.x (id INT PRIMARY KEY, a INT); INSERT INTO s.x VALUES (1, 8), (2, 9)");
    pair.on_replica("UPDATE s.x SET a = 17 - a");
    assert_eq!(pair.keys("x").len(), 2);
}

#[test]
fn missing_rows_tables_and_columns_are_reported() {
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
fn keys_of_every_type_are_cut_into_ranges() {
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
    // The number of rows proves that the ranges are disjoint and complete.
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
fn large_table_in_many_ranges_reports_exact_keys() {
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

/// After the source's last row the replica has more rows than fit in memory, by number and by size. One row is only on
/// the source.
#[test]
fn range_with_too_many_rows_for_memory_is_halved() {
    let mut pair = Pair::start();
    pair.on_both(
        "CREATE SCHEMA s; CREATE TABLE s.many (id INT PRIMARY KEY, v INT); CREATE TABLE s.wide (id VARCHAR(700) PRIMARY KEY, v INT) \
         CHARACTER SET latin1; INSERT INTO s.many SELECT seq, 1 FROM mysql.seq_1_to_10; \
         INSERT INTO s.wide SELECT CONCAT(LPAD(seq, 9, '0'), REPEAT('x', 690)), 1 FROM mysql.seq_1_to_10",
    );
    pair.on_replica(
        "DELETE FROM s.many WHERE id = 4; INSERT INTO s.many SELECT seq, 1 FROM mysql.seq_1001_to_251000; \
         INSERT INTO s.wide SELECT CONCAT(LPAD(seq, 9, '0'), REPEAT('x', 690)), 1 FROM mysql.seq_1001_to_61000",
    );
    pair.align();
    let options = VerifyOptions { differing_keys_max: 3, ..pair.options() };
    let report = run(&options, &|_| {}).unwrap();
    let differences = |table: usize| match &report.tables[table].verdict {
        Verdict::RowsDiffer(differences) => differences,
        other => panic!("{other:?}"),
    };
    let keys: Vec<&str> = differences(0).keys.iter().map(|key| key.key.as_str()).collect();
    assert_eq!((differences(0).rows, keys), (250_001, vec!["id=4", "id=1001", "id=1002"]));
    assert_eq!(differences(0).keys[0].difference, RowDifference::MissingOnReplica);
    assert_eq!((differences(1).rows, differences(1).keys.len(), differences(1).ranges.len()), (60_000, 3, 1));
    assert!(differences(1).keys[0].key.starts_with("id='000001001x"));
}

#[test]
fn hostile_names_are_compared_and_reported() {
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
