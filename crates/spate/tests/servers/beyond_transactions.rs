//! What is no plain transaction: XA, CREATE TABLE … SELECT, LOAD DATA, temporary tables, engines that cannot roll back.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::session::Session;
use crate::support::{Kind, Oracle, Site, wait_until, wait_until_innodb_shows};

/// Everything that a session does, in the given format; the server's refusals of single statements are part of it.
fn in_format(format: &str, sql: &str) -> String {
    format!("SET SESSION binlog_format={format}; USE d; {sql}")
}

#[test]
fn xa_transactions_stay_prepared_until_they_end() {
    let site = Site::plain();
    site.source
        .sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT); INSERT INTO d.t VALUES (1, 1), (2, 2)");
    for format in ["ROW", "STATEMENT"] {
        site.source.sql(&in_format(
            format,
            "XA START 'a', 'b', 7; UPDATE t SET v = v + 10 WHERE id = 1; XA END 'a', 'b', 7; XA PREPARE 'a', 'b', 7; \
             XA COMMIT 'a', 'b', 7; XA START 'r'; UPDATE t SET v = 99; XA END 'r'; XA PREPARE 'r'; XA ROLLBACK 'r'; \
             XA START 'o'; UPDATE t SET v = v + 1 WHERE id = 2; XA END 'o'; XA COMMIT 'o' ONE PHASE; \
             XA START X'00ff27'; UPDATE t SET v = v + 5; XA END X'00ff27'; XA PREPARE X'00ff27'; XA COMMIT X'00ff27';",
        ));
    }
    // Without any change, prepared over another's.
    site.source
        .sql("USE d; XA START 'e'; SELECT 1; XA END 'e'; XA PREPARE 'e'; XA COMMIT 'e'; INSERT INTO t VALUES (9, 9)");
    // Left prepared by a session that ends.
    site.source.sql("USE d; XA START 'left'; INSERT INTO t VALUES (3, 3); XA END 'left'; XA PREPARE 'left'");
    site.source.sql("INSERT INTO d.t VALUES (4, 4)");
    site.catch_up(&["--start", "earliest"]);
    assert_eq!(site.source.sql("XA RECOVER"), site.replica.sql("XA RECOVER"));
    assert_eq!(site.replica.sql("XA RECOVER"), "1\t4\t0\tleft");
    site.assert_identical();
    // Ended after a restart of the program, by another session.
    site.source.sql("XA COMMIT 'left'; INSERT INTO d.t VALUES (5, 5)");
    site.catch_up(&[]);
    assert_eq!(site.replica.sql("XA RECOVER"), "");
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t; SELECT COUNT(*) FROM spate.prepared"), "6\n0");
    site.assert_identical();
}

/// The server's search for a row comes by others, and by what is between them.
#[test]
fn prepared_keyless_changes_lock_as_native_ones() {
    let site = Site::plain();
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE t (k VARCHAR(100) NOT NULL, n INT, UNIQUE KEY (k(1)), KEY (n)); \
         INSERT INTO t VALUES ('b', 1), ('f', 2), ('k', 3), ('p', 4); \
         SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
         XA START 'x'; UPDATE t SET n = 10 WHERE k = 'f'; UPDATE t SET n = 11 WHERE k = 'k'; XA END 'x'; XA PREPARE 'x'",
    );
    site.source.sql("INSERT INTO d.t VALUES ('e', 5), ('g', 6), ('m', 7)");
    site.catch_up(&["--start", "earliest"]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "7");
    site.source.sql("XA COMMIT 'x'");
    site.catch_up(&[]);
    site.assert_identical();
}

/// It is not taken for one that an earlier run has ended.
#[test]
fn xa_commit_of_unprepared_transaction_is_an_error() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); \
             XA START 'x'; INSERT INTO d.t VALUES (1); XA END 'x'; XA PREPARE 'x'",
        );
        site.catch_up(&["--start", "earliest"]);
        site.replica.sql("XA ROLLBACK 'x'");
        site.source.sql("XA COMMIT 'x'");
        for _ in 0..2 {
            let ended = site.run(site.replicate(&["--until", "caught-up"]));
            ended.assert_failed_saying(&["X'78',X'',1", "not prepared", "--skip gtid:"]);
        }
        let gtid = site.source.position();
        let last = if kind == Kind::Mariadb { gtid } else { gtid.replace(":1-", ":") };
        site.replica.sql("INSERT INTO d.t VALUES (1)");
        site.catch_up(&["--skip", &format!("gtid:{last}")]);
        site.assert_identical();
    }
}

/// Nothing of one that was ended by an interrupted run is left behind.
#[test]
fn xa_name_is_reused_after_interrupted_end() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
        for round in 0..3 {
            site.source.sql(&format!(
                "XA START 'x'; INSERT INTO d.t VALUES ({round}); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'"
            ));
            let mut command = site.replicate(&["--start", "earliest", "--until", "caught-up"]);
            command.env("SPATE_STOP_AT", "before-fulfilment:2");
            site.run(command).assert_says(&["stopped at before-fulfilment"]);
            assert_eq!(site.replica.sql("XA RECOVER"), "");
            site.catch_up(&["--start", "earliest"]);
            site.assert_identical();
            assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.prepared"), "0");
        }
    }
}

#[test]
fn xa_transactions_without_changes_lock_nothing() {
    let site = Site::new(&["--innodb-lock-wait-timeout=0"], &["--innodb-lock-wait-timeout=3"]);
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT, v INT); INSERT INTO d.t VALUES (1, 1), (2, 2)");
    let mut session = Session::open(&site.source);
    let xa = "XA START 'e'; UPDATE t SET v = 5 WHERE id BETWEEN 9 AND 3; XA END 'e'; XA PREPARE 'e'";
    session.send(&in_format("STATEMENT", xa));
    wait_until("the transaction is prepared", || !site.source.sql("XA RECOVER").is_empty());
    drop(session);
    let locks = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_rows_locked > 0";
    wait_until_innodb_shows("it locks nothing any more", || site.source.sql(locks) == "0");
    site.source
        .sql(&in_format("STATEMENT", "UPDATE t SET v = v + 10 WHERE v < 5; INSERT INTO t VALUES (0, 0), (7, 7)"));
    site.catch_up(&["--start", "earliest"]);
    site.source.sql("XA COMMIT 'e'; INSERT INTO d.t VALUES (9, 9)");
    site.catch_up(&[]);
    site.assert_identical();
    assert_eq!(site.replica.sql("XA RECOVER; SELECT COUNT(*) FROM spate.prepared"), "0");
}

#[test]
fn load_data_files_arrive_exactly_once() {
    let site = Site::plain();
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (small, large) = (directory.path().join("small.txt"), directory.path().join("large.txt"));
    fs::write(&small, "1\tone\n2\ttwo\\tand\n3\tumläut\n").unwrap();
    let lines: String = (10..150_000).map(|id| format!("{id}\tline number {id}\n")).collect();
    fs::write(&large, &lines).unwrap();
    let (small, large) = (small.display(), large.display());
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(50) CHARACTER SET utf8mb4)");
    let sql = format!(
        "LOAD DATA INFILE '{small}' INTO TABLE t CHARACTER SET utf8mb4; \
         LOAD DATA INFILE '{small}' REPLACE INTO TABLE t CHARACTER SET latin1 (id, @v) SET v = CONCAT(@v, '!'); \
         LOAD DATA INFILE '{small}' IGNORE INTO TABLE t; BEGIN; INSERT INTO t VALUES (5, 'five'); \
         LOAD DATA INFILE '{large}' INTO TABLE t; UPDATE t SET v = 'changed' WHERE id % 1000 = 0; COMMIT; \
         BEGIN; LOAD DATA INFILE '{small}' REPLACE INTO TABLE t; ROLLBACK; \
         DELETE FROM t WHERE id < 1000; LOAD DATA INFILE '{small}' INTO TABLE t FIELDS TERMINATED BY '\\t' LINES STARTING BY ''"
    );
    site.source.sql(&in_format("STATEMENT", &sql));
    site.catch_up_from_earliest();
    // A row that is there already fails, as it would without the detour over the connection.
    site.replica.sql("INSERT INTO d.t VALUES (9, 'in the way')");
    fs::write(directory.path().join("small.txt"), "8\teight\n9\tnine\n").unwrap();
    site.source.sql(&in_format("STATEMENT", &format!("LOAD DATA INFILE '{small}' INTO TABLE t")));
    let gtid = site.source.sql("SELECT @@gtid_binlog_pos");
    let ended = site.run(site.replicate(&["--until", "caught-up"]));
    ended.assert_failed_saying(&[&gtid, "LOAD DATA", "Skipped: 1", "1062"]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t WHERE id = 8"), "0");
    site.replica.sql("DELETE FROM d.t WHERE id = 9");
    site.catch_up(&[]);
    site.assert_identical();
}

#[test]
fn load_data_that_stopped_half_way_leaves_the_same_rows() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let oracle = Oracle::new(kind, &["--binlog-format=STATEMENT", "--secure-file-priv="], &["--local-infile=1"]);
        let source = &oracle.site.source;
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let fails = |sql: &str| {
            let error = source.try_sql(sql).unwrap_err();
            assert!(error.contains("Duplicate entry"), "{error}");
        };
        source.sql(
            "CREATE DATABASE d; USE d; CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM; CREATE TABLE other LIKE m; \
             CREATE TABLE n (id INT AUTO_INCREMENT PRIMARY KEY, `a``b` VARCHAR(20) UNIQUE, c INT DEFAULT 7, at DATETIME DEFAULT NOW(), \
             u VARCHAR(50)) ENGINE=MyISAM; INSERT INTO n (`a``b`) VALUES ('c')",
        );
        fails(&format!("LOAD DATA INFILE '{}' INTO TABLE d.m", file("within", "1\n2\n2\n3\n")));
        source.sql("INSERT INTO d.m VALUES (9)");
        fails(&format!("USE d; LOAD DATA INFILE '{}' INTO TABLE m", file("before", "11\n9\n12\n")));
        let lines = "\\N;'x';one\n\\N;'y';two\n7;'c';three\n\\N;'z';four\n";
        fails(&format!(
            "USE d; SET lc_time_names='de_DE', insert_id=40; LOAD DATA INFILE '{}' INTO TABLE n CHARACTER SET utf8mb4 \
             FIELDS TERMINATED BY ';' ENCLOSED BY '\\'' (id, `a``b`, @u) SET u = CONCAT(UPPER(@u), ' (', DAYNAME('2024-01-01'), ')'), c = 5",
            file("columns", lines)
        ));
        oracle.catch_up(&[]);
        assert_eq!(oracle.both_say("SELECT GROUP_CONCAT(id ORDER BY id) FROM d.m"), "1,2,9,11");
        assert_eq!(
            oracle.both_say("SELECT id, `a``b`, c, u FROM d.n WHERE id > 39"),
            "40\tx\t5\tONE (Montag)\n41\ty\t5\tTWO (Montag)"
        );

        // With a mode in which a NULL would be no number to count on from, nobody knows.
        fails(&format!(
            "USE d; SET sql_mode=NO_AUTO_VALUE_ON_ZERO; LOAD DATA INFILE '{}' INTO TABLE n (id, `a``b`)",
            file("zero", "\\N\tq\n\\N\tx\n")
        ));
        let site = &oracle.site;
        let ended = site.run(site.replicate(&["--until", "caught-up"]));
        ended.assert_failed_saying(&["LOAD DATA", "half-way", "1062"]);
        assert_eq!(
            site.replica.sql("SELECT COUNT(*) FROM d.n WHERE `a``b` = 'q'; SELECT COUNT(*) FROM spate.intent"),
            "0\n0"
        );
    }
}

#[test]
fn temporary_tables_of_several_sessions_stay_apart() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)");
    for format in ["MIXED", "STATEMENT", "ROW"] {
        let offset = format.len() * 1000;
        // The client's end drops what the session leaves.
        site.source.sql(&in_format(
            format,
            &format!(
                "CREATE TEMPORARY TABLE x (a INT); INSERT INTO x VALUES (1), (2); INSERT INTO t SELECT {offset} + a, a FROM x; \
                 BEGIN; INSERT INTO x VALUES (3); INSERT INTO t SELECT {offset} + a, 9 FROM x WHERE a = 3; \
                 CREATE TEMPORARY TABLE y SELECT * FROM x; UPDATE y SET a = a + 50; \
                 INSERT INTO t SELECT {offset} + a, 5 FROM y; DROP TEMPORARY TABLE y; COMMIT; \
                 CREATE TABLE real_{format} (a INT PRIMARY KEY); INSERT INTO real_{format} SELECT a FROM x; \
                 CREATE TEMPORARY TABLE m (a INT) ENGINE=MyISAM; INSERT INTO m SELECT a FROM x; \
                 UPDATE t SET v = v + 1 WHERE id - {offset} IN (SELECT a FROM m); DROP TABLE x"
            ),
        ));
    }
    site.source.sql("INSERT INTO d.t VALUES (1, 1)");
    site.catch_up_from_earliest();
}

#[test]
fn changes_of_engines_without_rollback_arrive_exactly_once() {
    let site = Site::plain();
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE i (id INT PRIMARY KEY, v INT); \
         CREATE TABLE m (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=MyISAM; \
         CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20)) ENGINE=Aria TRANSACTIONAL=1; \
         CREATE TABLE n (v INT) ENGINE=MyISAM; CREATE TABLE h (id INT PRIMARY KEY, v INT) ENGINE=MEMORY;",
    );
    for format in ["ROW", "MIXED", "STATEMENT"] {
        let base = format.len() * 100;
        let sql = format!(
            "INSERT INTO m (v) VALUES (1), (2), (3); UPDATE m SET v = v + 1; DELETE FROM m WHERE v = 2 LIMIT 1; \
             INSERT INTO a VALUES ({base}, 'x'), ({base} + 1, 'y'); UPDATE a SET v = 'z' WHERE id = {base}; \
             INSERT INTO n VALUES (1), (1), (2); DELETE FROM n WHERE v = 1 LIMIT 1; INSERT INTO h VALUES ({base}, 1); \
             BEGIN; INSERT INTO i VALUES ({base}, 1); INSERT INTO m (v) VALUES (10); INSERT INTO i VALUES ({base} + 1, 2); COMMIT; \
             BEGIN; INSERT INTO i VALUES ({base} + 2, 1); INSERT INTO m (v) VALUES (11); INSERT INTO i VALUES ({base} + 3, 2); ROLLBACK; \
             BEGIN; INSERT INTO i VALUES ({base} + 4, 1); SAVEPOINT s; INSERT INTO i VALUES ({base} + 5, 1); \
             INSERT INTO m (v) VALUES (12); ROLLBACK TO s; INSERT INTO i VALUES ({base} + 6, 1); COMMIT; \
             UPDATE i SET v = v + 1; UPDATE m SET v = v * 2 WHERE v > 5;"
        );
        site.source.sql(&in_format(format, &sql));
        // What fails halfway has done half.
        let half = format!("INSERT INTO m VALUES ({base}, 1), ({base} + 1, 2), ({base}, 3)");
        assert!(site.source.try_sql(&in_format(format, &half)).unwrap_err().contains("Duplicate"));
    }
    site.catch_up_from_earliest();
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.intent"), "0");
}

#[test]
fn two_phase_alters_and_sequences_arrive() {
    let site = Site::new(&["--binlog-alter-two-phase=ON"], &[]);
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1), (2, 1); \
         ALTER TABLE t ADD COLUMN w INT DEFAULT 7; INSERT INTO t VALUES (3, 3, 3); ALTER TABLE t FORCE, ALGORITHM=COPY; \
         CREATE SEQUENCE s CACHE 5; SELECT NEXTVAL(s), NEXTVAL(s), NEXTVAL(s); CREATE SEQUENCE n NOCACHE INCREMENT 4; \
         INSERT INTO t VALUES (NEXTVAL(s) + 100, 1, 1); \
         SET SESSION binlog_row_image=MINIMAL; INSERT INTO t VALUES (NEXTVAL(n) + 900, NEXTVAL(n), NEXTVAL(n)); SELECT NEXTVAL(s), NEXTVAL(s), NEXTVAL(s), NEXTVAL(s), NEXTVAL(s), NEXTVAL(s); \
         SET SESSION binlog_row_image=FULL; CREATE SEQUENCE c MAXVALUE 40 CYCLE CACHE 3; \
         SELECT SETVAL(c, 136); SELECT NEXTVAL(c); SELECT SETVAL(c, 40); CREATE SEQUENCE r INCREMENT -7 MINVALUE -20 MAXVALUE -1; \
         SELECT NEXTVAL(r), NEXTVAL(r), NEXTVAL(r); SELECT SETVAL(s, 1000); INSERT INTO t VALUES (NEXTVAL(s), 1, 1); \
         BEGIN; INSERT INTO t VALUES (777, 1, 1); INSERT INTO t SELECT NEXTVAL(s), seq, 1 FROM mysql.seq_1_to_20; \
         UPDATE t SET w = -5; ROLLBACK; INSERT INTO t VALUES (NEXTVAL(s), 2, 1); ALTER SEQUENCE s RESTART 5000;",
    );
    let failed = site.source.try_sql("ALTER TABLE d.t ADD UNIQUE (v)").unwrap_err();
    assert!(failed.contains("Duplicate"), "{failed}");
    site.source.sql("INSERT INTO d.t VALUES (NEXTVAL(d.s), 8, 8)");
    site.catch_up_from_earliest();
    for sql in ["SHOW CREATE TABLE d.t", "SELECT * FROM d.s; SELECT * FROM d.c; SELECT * FROM d.r; SELECT * FROM d.n"] {
        assert_eq!(site.source.sql(sql), site.replica.sql(sql), "{sql}");
    }
}

#[cfg(feature = "failpoints")]
#[test]
fn interrupted_irrevocable_changes_are_repaired_or_asked_about() {
    let site = Site::plain();
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE i (id INT PRIMARY KEY, v INT); \
         CREATE TABLE m (id INT PRIMARY KEY, u INT UNIQUE, v VARCHAR(2000)) ENGINE=MyISAM; \
         CREATE TABLE a (id INT PRIMARY KEY, v INT) ENGINE=Aria; CREATE TABLE n (v INT) ENGINE=MyISAM; \
         INSERT INTO m SELECT seq, seq, REPEAT('old', 500) FROM mysql.seq_1_to_200; INSERT INTO a SELECT seq, 0 FROM mysql.seq_1_to_100",
    );
    site.catch_up(&["--start", "earliest"]);
    for point in
        ["after-intent", "between-statements:2", "between-statements:4", "before-fulfilment", "after-commit-sent"]
    {
        site.source.sql(
            "USE d; INSERT INTO i SELECT IFNULL(MAX(id), 0) + 1, 1 FROM i; UPDATE m SET v = CONCAT(v, '+') WHERE id % 3 > 0; \
             DELETE FROM m WHERE id % 10 = 7; INSERT INTO m SELECT MAX(id) + 1, MAX(id) + 1, 'new' FROM m; \
             UPDATE m SET u = -u WHERE id % 2 = 0; REPLACE INTO m SELECT id, u, 'replaced' FROM m WHERE id % 11 = 0; \
             UPDATE a SET v = v + 1; DELETE FROM a ORDER BY id LIMIT 3; INSERT INTO a SELECT MAX(id) + 1, 5 FROM a; \
             INSERT INTO i SELECT MAX(id) + 1, 2 FROM i;",
        );
        let mut command = site.replicate(&["--until", "caught-up"]);
        command.env("SPATE_STOP_AT", point);
        let ended = site.run(command);
        assert!(ended.output.contains("stopped at"), "{point}: {}", ended.output);
        let ended = site.catch_up(&[]);
        assert!(point == "after-commit-sent" || ended.output.contains("repairing them"), "{point}: {}", ended.output);
        site.assert_identical();
    }
    // Without a key nobody knows which of the rows are there.
    site.source.sql("INSERT INTO d.n VALUES (1), (1), (2)");
    let mut command = site.replicate(&["--until", "caught-up"]);
    command.env("SPATE_STOP_AT", "before-fulfilment");
    let ended = site.run(command);
    assert!(ended.output.contains("stopped at"), "{}", ended.output);
    let ended = site.run(site.replicate(&["--until", "caught-up"]));
    ended.assert_failed_saying(&[
        "--interrupted-statement done",
        "cannot roll back",
        &site.source.sql("SELECT @@gtid_binlog_pos"),
    ]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.n"), "0", "they were to be sent together with the commit");
    site.catch_up(&["--interrupted-statement", "repeat"]);
    site.assert_identical();
}

/// To mend rows would make them a part of their history.
#[test]
fn interrupted_irrevocable_versioned_changes_are_asked_about() {
    let site = Site::plain();
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE h (id INT PRIMARY KEY, v INT, t TEXT) ENGINE=Aria WITH SYSTEM VERSIONING; \
         INSERT INTO h SELECT seq, 0, REPEAT('x', 2000) FROM mysql.seq_1_to_300",
    );
    site.catch_up(&["--start", "earliest"]);
    let history = "SELECT id, v, row_start, row_end FROM d.h FOR SYSTEM_TIME ALL ORDER BY 1, 2, 3, 4";
    let before = site.replica.sql(history);
    site.source.sql("USE d; UPDATE h SET v = v + 1 WHERE id % 3 > 0; UPDATE h SET v = v + 1");
    for (point, changes) in [("after-intent", false), ("between-statements:3", true)] {
        let mut command = site.replicate(&["--until", "caught-up", "--interrupted-statement", "repeat"]);
        command.env("SPATE_STOP_AT", point);
        let ended = site.run(command);
        assert!(ended.output.contains("stopped at"), "{point}: {}", ended.output);
        assert_eq!(site.replica.sql(history) != before, changes, "{point}");
        let ended = site.run(site.replicate(&["--until", "caught-up"]));
        ended.assert_failed_saying(&["--interrupted-statement done", "cannot roll back"]);
    }
}

/// What was refused is said, not only that somebody has to look.
#[test]
fn refusal_within_irrevocable_changes_is_named() {
    let site = Site::new(&["--binlog-format=STATEMENT"], &[]);
    site.both("CREATE DATABASE d; CREATE TABLE d.m (id INT PRIMARY KEY) ENGINE=MyISAM");
    site.replica.sql("INSERT INTO d.m VALUES (3)");
    site.source.sql("INSERT INTO d.m VALUES (1), (2), (3)");
    let ended = site.run(site.replicate(&["--start", "earliest", "--until", "caught-up"]));
    ended.assert_failed_saying(&["error 1062", "cannot be rolled back", "--interrupted-statement done"]);
    assert!(!ended.output.contains("an earlier run"), "{}", ended.output);
    assert_eq!(site.replica.sql("SELECT GROUP_CONCAT(id) FROM d.m"), "1,2,3");
    site.catch_up(&["--interrupted-statement", "done"]);
    site.assert_identical();
}

/// MySQL that is killed in the midst of an ALTER TABLE may come back without the table's file, which is there again after one more
/// start.
#[test]
fn table_lost_by_its_server_is_not_taken_for_altered() {
    let mut site = Site::of(Kind::Mysql);
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT); INSERT INTO d.t VALUES (1, 1)");
    site.catch_up(&["--start", "earliest"]);
    site.source.sql("ALTER TABLE d.t MODIFY v DECIMAL(10,2); INSERT INTO d.t VALUES (2, 2.5)");
    let mut command = site.replicate(&["--until", "caught-up"]);
    command.env("SPATE_STOP_AT", "after-intent");
    site.run(command).assert_says(&["stopped at after-intent"]);

    // A server that was killed would miss the file at once, so this one ends by itself.
    let data = site.replica.data_directory();
    let (file, hidden, pid) = (data.join("d/t.ibd"), data.join("hidden"), data.with_file_name("pid"));
    site.replica.sql("SHUTDOWN");
    wait_until("the server's end", || !pid.exists());
    site.replica.kill();
    fs::rename(&file, &hidden).unwrap();
    site.replica.begin();
    let ended = site.run(site.replicate(&["--until", "caught-up"]));
    ended.assert_failed_saying(&[
        "ALTER TABLE d.t MODIFY v DECIMAL(10,2)",
        "without the table d.t",
        "restart the replica's server",
    ]);

    site.replica.kill();
    fs::rename(&hidden, &file).unwrap();
    site.replica.begin();
    site.catch_up(&[]);
    site.assert_identical();
}

/// A session of the source may allow what the replica's setting does not.
#[test]
fn versioned_tables_are_altered_as_on_the_source() {
    let site = Site::plain();
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, n INT) WITH SYSTEM VERSIONING; INSERT INTO d.t VALUES (1, 1); \
         SET SESSION system_versioning_alter_history=KEEP; ALTER TABLE d.t ADD COLUMN m INT, MODIFY COLUMN n BIGINT; \
         INSERT INTO d.t VALUES (2, 2, 2)",
    );
    assert_eq!(site.replica.sql("SELECT @@system_versioning_alter_history"), "ERROR");
    site.catch_up(&["--start", "earliest"]);
    for rows in ["SELECT * FROM d.t", "SHOW CREATE TABLE d.t"] {
        assert_eq!(site.replica.sql(rows), site.source.sql(rows));
    }
}

/// The applier's session has a default database once a statement had one; the source's session may have none.
#[test]
fn default_database_questions_without_one_are_answered() {
    let site = Site::plain();
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(50), b VARCHAR(50)); \
         SET SESSION binlog_format=STATEMENT; INSERT INTO t (a, b) VALUES (DATABASE(), 'has one')",
    );
    site.source.sql(
        "SET SESSION binlog_format=STATEMENT; INSERT INTO d.t (a, b) VALUES (DATABASE(), 'DATABASE() \\' none'), (IFNULL(SCHEMA ( ), 'none'), ''); \
         UPDATE d.t SET b = CONCAT(b, IFNULL(database(), '?')); CREATE VIEW d.v AS SELECT DATABASE() x; \
         CREATE PROCEDURE d.p() INSERT INTO t (a) VALUES (DATABASE()); CALL d.p()",
    );
    site.catch_up(&["--start", "earliest"]);
    site.assert_identical();
    assert_eq!(site.replica.sql("SELECT GROUP_CONCAT(IFNULL(a, 'NULL') ORDER BY id) FROM d.t"), "d,NULL,none,d");
    // What a text is depends on the mode.
    site.source.sql("SET SESSION binlog_format=STATEMENT, sql_mode='NO_BACKSLASH_ESCAPES'; INSERT INTO d.t (a, b) VALUES ('\\', DATABASE())");
    site.catch_up(&[]);
    site.assert_identical();
    site.source.sql("SET SESSION binlog_format=STATEMENT; CREATE TABLE d.made SELECT DATABASE() x");
    site.run(site.replicate(&["--until", "caught-up"]))
        .assert_failed_saying(&["default database", "CREATE TABLE d.made"]);
}
