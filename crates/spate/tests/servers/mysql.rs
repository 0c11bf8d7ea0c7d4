//! MySQL as source and replica: what its binlog holds that MariaDB's does not, and what it says differently.

use crate::support::session::Session;
use crate::support::{Kind, Site};

const OPTIONS: [&str; 4] = ["--start", "earliest", "--memory", "64MiB"];

fn site() -> Site {
    Site::of(Kind::Mysql)
}

/// Catches up, once with everything in as few batches as can be, and once more in many.
fn assert_replicated(site: &Site) {
    site.catch_up(&OPTIONS);
    site.assert_identical();
    site.replica.sql("DROP DATABASE d; DROP DATABASE spate");
    site.catch_up(&[&OPTIONS[..], &["--batch-transactions", "1"]].concat());
    site.assert_identical();
}

#[test]
fn every_type_is_folded() {
    let site = site();
    let has_vectors = Kind::Mysql.is_at_least(9, 0);
    let vector = if has_vectors { "VECTOR(3)" } else { "VARBINARY(12)" };
    site.source.sql(&format!(
        "CREATE DATABASE d; USE d; \
         CREATE TABLE t (id INT PRIMARY KEY, u BIGINT UNSIGNED, y YEAR, f FLOAT, dd DOUBLE, de DECIMAL(30,10), j JSON, g GEOMETRY, \
            b BIT(5), v {vector}, e ENUM('a','b'), s SET('x','y'), dt DATETIME(3), ts TIMESTAMP(6) NULL, ti TIME(2), da DATE, \
            txt TEXT, c CHAR(10), vc VARCHAR(300) COLLATE utf8mb4_0900_as_cs, bl BLOB, vb VARBINARY(20), \
            gen INT AS (id * 2) VIRTUAL, sto INT AS (id * 3) STORED, KEY (gen), UNIQUE (u), KEY ((f + 1)))",
    ));
    for id in 1..20 {
        let vector = if has_vectors { format!("TO_VECTOR('[1,2,{id}]')") } else { format!("REPEAT('v', {id} % 12)") };
        site.source.sql(&format!(
            "INSERT INTO d.t (id, u, y, f, dd, de, j, g, b, v, e, s, dt, ts, ti, da, txt, c, vc, bl, vb) VALUES \
             ({id}, 18446744073709551600 + {id} % 10 - {id} * 100, 1901 + {id}, {id} / 3, {id} / 7, {id} / 11, \
              JSON_OBJECT('a', {id}, 'b', JSON_ARRAY(1.5, 'x', NULL, TRUE), 'd', NOW(6)), ST_GeomFromText('POINT({id} 2)'), \
              {id} % 32, {vector}, 1 + {id} % 2, {id} % 4, NOW(3), NOW(6), '-12:34:56.78', '2020-02-29', \
              REPEAT('t', {id}), 'c', REPEAT('v', {id} * 10), REPEAT('b', {id} * 100), X'00FF')"
        ));
    }
    site.source.sql(
        "UPDATE d.t SET txt = CONCAT(txt, 'u'), j = NULL WHERE id % 2; UPDATE d.t SET u = u + 1 ORDER BY u DESC; \
         UPDATE d.t SET id = id + 100 WHERE id > 15; DELETE FROM d.t WHERE id % 5 = 0; SET sql_mode = ''; \
         INSERT INTO d.t (id, y, dt, da, ts) VALUES (500, 0, '0000-00-00', '0000-00-00', NULL)",
    );
    assert_replicated(&site);
}

#[test]
fn partial_json_is_applied() {
    let site = Site::between(
        (Kind::Mysql, &["--binlog-row-value-options=PARTIAL_JSON", "--binlog-row-image=MINIMAL"]),
        (Kind::Mysql, &[]),
    );
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY, j JSON, k JSON, n INT); \
         CREATE TABLE plain (id INT PRIMARY KEY, v INT); \
         INSERT INTO t VALUES (1, JSON_OBJECT('a', REPEAT('x', 500), 'n', 1), '[1,2,3,4,5,6,7,8,9,10]', 0), \
            (2, JSON_OBJECT('a', REPEAT('x', 500), 'n', 1), JSON_ARRAY(REPEAT('y', 300)), 0); INSERT INTO plain VALUES (1, 1), (2, 2)",
    );
    for n in 0..100 {
        site.source.sql(&format!(
            "BEGIN; UPDATE d.t SET j = JSON_SET(j, '$.n', {n}) WHERE id = 1; UPDATE d.t SET n = n + 1; \
             UPDATE d.t SET k = JSON_REPLACE(k, '$[0]', {n}), j = JSON_REMOVE(JSON_SET(j, '$.m{n}', {n}), '$.m{}') WHERE id = 2; \
             UPDATE d.plain SET v = v + 1; COMMIT",
            n.max(1) - 1
        ));
    }
    assert_replicated(&site);
}

#[test]
fn compressed_transactions_are_applied() {
    let site = Site::between((Kind::Mysql, &["--binlog-transaction-compression=ON"]), (Kind::Mysql, &[]));
    site.source
        .sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT); CREATE TABLE d.u (id INT PRIMARY KEY)");
    for n in 0..20 {
        site.source.sql(&format!(
            "BEGIN; INSERT INTO d.t VALUES ({n}, REPEAT('x', {n} * 100)); UPDATE d.t SET v = CONCAT(v, 'y'); \
             INSERT INTO d.u VALUES ({n}); COMMIT"
        ));
    }
    site.source.sql("CREATE TABLE d.c AS SELECT * FROM d.t");
    assert_replicated(&site);
    // One that does not fit into memory at once.
    site.source.sql(
        "SET SESSION cte_max_recursion_depth = 100000; INSERT INTO d.t WITH RECURSIVE n (i) AS \
        (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000) SELECT 1000 + i, REPEAT('z', 1000) FROM n",
    );
    site.catch_up(&OPTIONS);
    site.assert_identical();
}

#[test]
fn gtids_with_and_without_tags_are_applied() {
    let site = site();
    // Tags came with 8.3.
    let has_tags = Kind::Mysql.is_at_least(8, 3);
    let tagged = |tag: &str| if has_tags { format!(":{tag}") } else { String::new() };
    let (one, two, skipped) = (tagged("one"), tagged("two"), tagged("skipped"));
    site.source.sql(&format!(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); SET gtid_next = 'AUTOMATIC{one}'; INSERT INTO d.t VALUES (1); \
         SET gtid_next = 'AUTOMATIC{two}'; INSERT INTO d.t VALUES (2); SET gtid_next = 'AUTOMATIC'; INSERT INTO d.t VALUES (3); \
         SET gtid_next = '11111111-2222-3333-4444-555555555555:7'; INSERT INTO d.t VALUES (4); SET gtid_next = 'AUTOMATIC'",
    ));
    site.catch_up(&OPTIONS);
    site.assert_identical();
    let checkpoint = site.checkpoint();
    for part in [&format!("{one}:1"), &format!("{two}:1"), "11111111-2222-3333-4444-555555555555:7"] {
        assert!(checkpoint.contains(part), "{checkpoint}");
    }
    // What comes later, of every origin, and after the source's binlog went on in another file.
    site.source.sql(&format!(
        "FLUSH BINARY LOGS; SET gtid_next = '11111111-2222-3333-4444-555555555555:6'; INSERT INTO d.t VALUES (5); \
         SET gtid_next = 'AUTOMATIC{one}'; INSERT INTO d.t VALUES (6); SET gtid_next = 'AUTOMATIC'",
    ));
    site.catch_up(&OPTIONS);
    site.assert_identical();
    assert!(site.checkpoint().contains("555555555555:6-7"), "{}", site.checkpoint());
    site.source.sql(&format!("SET gtid_next = 'AUTOMATIC{skipped}'; INSERT INTO d.t VALUES (7)"));
    let uuid = site.source.sql("SELECT @@server_uuid");
    // Without tags all count together.
    let number = if has_tags { 1 } else { 7 };
    let skipped = format!("{uuid}{skipped}:{number}");
    site.catch_up(&["--skip", &format!("gtid:{skipped}")]);
    assert_eq!(site.replica.sql("SELECT MAX(id) FROM d.t"), "6");
    assert_eq!(site.replica.sql("SELECT gtid FROM spate.skipped"), skipped);
}

#[test]
fn source_without_gtids_is_followed() {
    let site = Site::between(
        (Kind::Mysql, &["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"]),
        (Kind::Mysql, &["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"]),
    );
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)");
    for id in 0..30 {
        site.source.sql(&format!("INSERT INTO d.t VALUES ({id}, 1)"));
        if id % 10 == 3 {
            site.source.sql("FLUSH BINARY LOGS");
            site.catch_up(&OPTIONS);
        }
    }
    site.catch_up(&OPTIONS);
    site.assert_identical();
    assert_eq!(site.checkpoint(), "");
    // The archive's own memory of where it ends is not needed.
    std::fs::remove_dir_all(site.archive()).unwrap();
    site.source.sql("UPDATE d.t SET v = v + 1");
    site.catch_up(&[]);
    site.assert_identical();
}

#[test]
fn foreign_key_actions_logged_or_not_arrive_once() {
    // Before 9.6, the engine alone does it.
    let ways: &[&[&str]] = match Kind::Mysql.is_at_least(9, 6) {
        true => &[&["--innodb-native-foreign-keys=OFF"], &["--innodb-native-foreign-keys=ON"]],
        false => &[&[]],
    };
    for options in ways {
        let site = Site::between((Kind::Mysql, options), (Kind::Mysql, options));
        site.source.sql(
            "CREATE DATABASE d; USE d; CREATE TABLE p (id INT PRIMARY KEY); \
             CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE); \
             CREATE TABLE g (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES c (id) ON DELETE SET NULL)",
        );
        for id in 0..20 {
            site.source.sql(&format!(
                "INSERT INTO d.p VALUES ({id}); INSERT INTO d.c VALUES ({id}, {id}), ({id} + 100, {id}); \
                 INSERT INTO d.g VALUES ({id}, {id})"
            ));
        }
        site.source.sql(
            "UPDATE d.p SET id = id + 1000 WHERE id % 3 = 0; DELETE FROM d.p WHERE id % 4 = 0; INSERT INTO d.p VALUES (4); \
             INSERT INTO d.c VALUES (4, 4)",
        );
        assert_replicated(&site);
    }
}

#[test]
fn xa_transactions_stay_prepared_until_they_end() {
    let site = site();
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); \
         XA START 'one'; INSERT INTO d.t VALUES (1); XA END 'one'; XA COMMIT 'one' ONE PHASE; \
         XA START 'two'; INSERT INTO d.t VALUES (2); XA END 'two'; XA PREPARE 'two'; XA COMMIT 'two'; \
         XA START 'three'; INSERT INTO d.t VALUES (3); XA END 'three'; XA PREPARE 'three'; XA ROLLBACK 'three'; \
         XA START 'four', 'b', 7; INSERT INTO d.t VALUES (4); XA END 'four', 'b', 7; XA PREPARE 'four', 'b', 7",
    );
    site.catch_up(&OPTIONS);
    assert_eq!(site.replica.sql("SELECT GROUP_CONCAT(id) FROM d.t"), "1,2");
    assert_eq!(site.replica.sql("XA RECOVER"), site.source.sql("XA RECOVER"));
    site.source.sql("XA COMMIT 'four', 'b', 7; INSERT INTO d.t VALUES (5)");
    site.catch_up(&OPTIONS);
    site.assert_identical();
    assert_eq!(site.replica.sql("XA RECOVER"), "");
}

/// Only its end says that it was never prepared, when its beginning is on the replica already.
#[test]
fn one_phase_xa_beyond_memory_is_applied() {
    let site = site();
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGTEXT); INSERT INTO d.t VALUES (1, 'x'); \
         XA START 'one'; INSERT INTO d.t (v) WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 300) \
         SELECT REPEAT(CHAR(64 + i % 50), 300000) FROM n; DELETE FROM d.t WHERE id = 1; XA END 'one'; XA COMMIT 'one' ONE PHASE; \
         UPDATE d.t SET v = 'last' WHERE id = 7",
    );
    let ended = site.catch_up(&["--start", "earliest", "--memory", "64MiB"]);
    assert!(!ended.output.contains("trying again"), "{}", ended.output);
    site.assert_identical();
    assert_eq!(site.replica.sql("XA RECOVER"), "");
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.intent"), "0");
}

/// As long as it is prepared, an XA transaction locks what its rows are, not what is between them.
#[test]
fn prepared_xa_transactions_lock_no_more_than_their_rows() {
    let site = site();
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE t (a INT, b INT, KEY (a)); INSERT INTO t VALUES (1, 1), (2, 2), (5, 5), (9, 9); \
         SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
         XA START 'x'; DELETE FROM t WHERE a = 2; UPDATE t SET b = 6 WHERE a = 5; XA END 'x'; XA PREPARE 'x'",
    );
    site.source.sql("INSERT INTO d.t VALUES (3, 3), (4, 4), (6, 6)");
    site.catch_up(&OPTIONS);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "7");
    site.source.sql("XA COMMIT 'x'");
    site.catch_up(&OPTIONS);
    site.assert_identical();
}

#[test]
fn prepared_xa_transactions_outlive_the_replicas_server() {
    let mut site = Site::between((Kind::Mysql, &[]), (Kind::Mysql, &["--log-bin=replica"]));
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); \
         XA START 'x'; INSERT INTO d.t VALUES (1); XA END 'x'; XA PREPARE 'x'",
    );
    // The server would lose it.
    let without_binlog = [&OPTIONS[..], &["--no-replica-binlog", "--until", "caught-up"]].concat();
    site.run(site.replicate(&without_binlog)).assert_failed_saying(&["XA PREPARE", "--no-replica-binlog", ":3"]);
    site.catch_up(&OPTIONS);
    // In the second time it is not in the server's last binlog any more.
    for _ in 0..4 {
        site.replica.kill();
        site.replica.begin();
        assert_eq!(site.replica.sql("XA RECOVER"), site.source.sql("XA RECOVER"));
    }
    site.source.sql("XA COMMIT 'x'; UPDATE d.t SET id = 2");
    site.catch_up(&OPTIONS);
    site.assert_identical();
}

#[test]
fn definitions_and_irrevocable_changes_arrive_once() {
    let site = site();
    site.source.sql(
        "CREATE DATABASE d DEFAULT CHARACTER SET latin1; USE d; SET sql_generate_invisible_primary_key = 1; \
         CREATE TABLE invisible (a INT); INSERT INTO invisible VALUES (1), (2); SET sql_generate_invisible_primary_key = 0; \
         CREATE TABLE my (id INT PRIMARY KEY, v INT) ENGINE = MyISAM; INSERT INTO my VALUES (1, 1), (2, 2); UPDATE my SET v = 3; \
         CREATE TABLE keyless (a INT, b VARCHAR(20)); INSERT INTO keyless VALUES (1, 'x'), (1, 'x'), (2, NULL); \
         DELETE FROM keyless WHERE a = 1 LIMIT 1; CREATE TABLE copied ENGINE = InnoDB COMMENT = 'it''s' SELECT * FROM keyless; \
         CREATE VIEW seen AS SELECT * FROM my; CREATE PROCEDURE p() INSERT INTO my VALUES (9, 9); CALL p(); \
         CREATE TRIGGER g BEFORE INSERT ON invisible FOR EACH ROW SET NEW.a = NEW.a + 1; INSERT INTO invisible VALUES (5); \
         CREATE EVENT ev ON SCHEDULE EVERY 1 DAY DO DELETE FROM my; \
         CREATE ROLE reader; GRANT SELECT ON d.* TO reader; CREATE USER who IDENTIFIED BY 'x'; GRANT reader TO who; \
         SET DEFAULT ROLE reader TO who; ALTER TABLE my ADD COLUMN w INT DEFAULT 5, ADD CHECK (v < 100); \
         CREATE TABLE parts (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 3; INSERT INTO parts VALUES (1, 1), (2, 2); \
         ALTER TABLE parts TRUNCATE PARTITION p1; RENAME TABLE parts TO portions; DROP VIEW seen; \
         CREATE TABLE functional (id INT PRIMARY KEY, n INT, UNIQUE ((n + 1))); INSERT INTO functional VALUES (1, 1), (2, 2); \
         UPDATE functional SET n = n + 10",
    );
    site.catch_up(&OPTIONS);
    let grants = "SHOW GRANTS FOR who; SHOW GRANTS FOR reader; SHOW CREATE USER who; SHOW CREATE PROCEDURE d.p; \
        SELECT event_name, status IN ('ENABLED', 'REPLICA_SIDE_DISABLED', 'SLAVESIDE_DISABLED') FROM information_schema.events";
    assert_eq!(site.source.sql(grants), site.replica.sql(grants));
    for table in ["invisible", "my", "keyless", "copied", "portions", "functional"] {
        let rows = format!("SHOW CREATE TABLE d.{table}; SELECT * FROM d.{table} ORDER BY 1");
        assert_eq!(site.source.sql(&rows), site.replica.sql(&rows));
    }
}

/// Where `START TRANSACTION` names a table and its alias, no rows follow.
#[test]
fn tables_named_start_are_no_transactions() {
    let site = Site::between((Kind::Mysql, &["--binlog-format=STATEMENT"]), (Kind::Mysql, &[]));
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE start (a INT PRIMARY KEY); INSERT INTO start VALUES (1), (2); \
         CREATE TABLE t SELECT a FROM start transaction; CREATE TABLE u (b INT) SELECT a FROM start transaction; \
         CREATE TABLE v (b INT) AS TABLE start; CREATE TABLE w LIKE start; INSERT INTO w VALUES (1); \
         SET binlog_format = ROW; CREATE TABLE x (b INT DEFAULT 1) COMMENT 'y' PARTITION BY HASH (a) PARTITIONS 2 SELECT a FROM start transaction; \
         CREATE TABLE y (b INT DEFAULT 1) ENGINE = InnoDB \
         COMMENT 'y' ROW_FORMAT=DYNAMIC STATS_PERSISTENT=1 SELECT a FROM start transaction; INSERT INTO w VALUES (2)",
    );
    site.catch_up(&OPTIONS);
    site.assert_identical();
}

/// MySQL's BINLOG refuses their rows unless it knows the source's version.
#[test]
fn invisible_key_beside_a_functional_index_is_known() {
    for options in [&[][..], &["--binlog-row-image=MINIMAL"]] {
        let site = Site::between((Kind::Mysql, options), (Kind::Mysql, &[]));
        site.source.sql(
            "CREATE DATABASE d; USE d; SET sql_generate_invisible_primary_key = 1; \
             CREATE TABLE t (a INT, b INT, UNIQUE ((a + 1))); CREATE TABLE log (a INT); \
             CREATE TRIGGER g AFTER UPDATE ON t FOR EACH ROW INSERT INTO log VALUES (NEW.b); \
             SET sql_generate_invisible_primary_key = 0",
        );
        for a in 0..10 {
            site.source.sql(&format!(
                "BEGIN; INSERT INTO d.t VALUES ({a}, 1), ({a} + 100, 1); UPDATE d.t SET b = b + 1; COMMIT; \
                 DELETE FROM d.t WHERE a = {a} + 100; XA START 'x'; UPDATE d.t SET b = b + 1; XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'"
            ));
        }
        assert_replicated(&site);
    }
}

#[test]
fn rows_that_differ_are_repaired() {
    let site = site();
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, u INT UNIQUE, v INT); \
         INSERT INTO d.t VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4)",
    );
    site.catch_up(&OPTIONS);
    site.replica.sql(
        "DELETE FROM d.t WHERE id IN (1, 2); UPDATE d.t SET u = 10 WHERE id = 3; INSERT INTO d.t VALUES (5, 5, 0)",
    );
    site.source.sql("UPDATE d.t SET v = 9; DELETE FROM d.t WHERE id = 2; INSERT INTO d.t VALUES (5, 10, 5); UPDATE d.t SET u = 11 WHERE id = 4");
    site.run(site.replicate(&["--until", "caught-up"])).assert_failed_saying(&["d.t", "id=1", "--on-conflict repair"]);
    site.catch_up(&["--on-conflict", "repair"]);
    site.assert_identical();
    assert_ne!(site.replica.sql("SELECT SUM(repairs) FROM spate.repaired"), "0");
}

/// The server finds them by the id of the server whose changes a session applies.
#[test]
fn temporary_tables_outlive_the_program() {
    let site = Site::between((Kind::Mysql, &["--binlog-format=STATEMENT"]), (Kind::Mysql, &[]));
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    let mut sessions = [Session::open(&site.source), Session::open(&site.source)];
    for (number, session) in sessions.iter_mut().enumerate() {
        session
            .sql(&format!("USE d; CREATE TEMPORARY TABLE tmp (id INT PRIMARY KEY); INSERT INTO tmp VALUES ({number})"));
    }
    site.catch_up(&OPTIONS);
    for round in 1..4 {
        for session in &mut sessions {
            session.sql(&format!("UPDATE tmp SET id = id + 10; INSERT INTO t SELECT id + 100 * {round} FROM tmp"));
        }
        site.catch_up(&OPTIONS);
        site.assert_identical();
    }
    assert_eq!(site.replica.sql("SELECT COUNT(*), MAX(id) FROM d.t"), "6\t331");
}

#[test]
fn temporary_tables_end_with_the_source() {
    let mut site = Site::between((Kind::Mysql, &["--binlog-format=STATEMENT"]), (Kind::Mysql, &[]));
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    for round in 0..4 {
        let mut session = Session::open(&site.source);
        session.sql(&format!(
            "USE d; CREATE TEMPORARY TABLE tmp (id INT PRIMARY KEY); INSERT INTO tmp VALUES ({round}); INSERT INTO t SELECT id FROM tmp"
        ));
        site.catch_up(&OPTIONS);
        site.assert_identical();
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.temporary_table"), "1");
        site.source.kill();
        site.source.begin();
        if round % 2 == 0 {
            site.source.sql("INSERT INTO d.t VALUES (100)");
            site.catch_up(&OPTIONS);
            assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.temporary_table"), "0");
            site.source.sql("DELETE FROM d.t WHERE id = 100");
        }
    }
}

/// The binlog does not tell a statement that changed nothing from one that changed a table that cannot roll back.
#[test]
fn interrupted_statements_without_effect_are_repeated() {
    let site = Site::between((Kind::Mysql, &["--binlog-format=STATEMENT"]), (Kind::Mysql, &[]));
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, n INT); INSERT INTO d.t VALUES (1, 1)");
    site.catch_up(&OPTIONS);
    site.source.sql("DELETE FROM d.t WHERE id = 5; UPDATE d.t SET n = n + 1");
    let stop = || {
        let mut command = site.replicate(&["--until", "caught-up"]);
        command.env("SPATE_STOP_AT", "after-intent");
        site.run(command).assert_says(&["stopped at after-intent"]);
    };
    stop();
    site.catch_up(&OPTIONS);
    site.assert_identical();
    // With such a table, nobody can tell.
    site.source.sql("CREATE TABLE d.my (id INT PRIMARY KEY) ENGINE = MyISAM");
    site.catch_up(&OPTIONS);
    site.source.sql("INSERT INTO d.my VALUES (1)");
    stop();
    site.run(site.replicate(&["--until", "caught-up"])).assert_failed_saying(&["--interrupted-statement done"]);
    site.catch_up(&["--interrupted-statement", "repeat"]);
    site.assert_identical();
}

#[test]
fn statements_keep_their_context() {
    let site = Site::between((Kind::Mysql, &["--binlog-format=STATEMENT"]), (Kind::Mysql, &[]));
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a DATETIME(6), b DOUBLE, c VARCHAR(50), \
            z TIMESTAMP NULL) DEFAULT CHARACTER SET utf8mb4; CREATE TABLE my (id INT PRIMARY KEY, v INT) ENGINE = MyISAM; \
         SET TIMESTAMP = 1000000000.123456; SET time_zone = '+05:00'; INSERT INTO t (a, b, c, z) VALUES (NOW(6), RAND(), DATABASE(), NOW()); \
         SET TIMESTAMP = DEFAULT; SET @x = 'ä', @n = 5; INSERT INTO t (c, b) VALUES (@x, @n); \
         SET auto_increment_increment = 7; INSERT INTO t (c) VALUES ('i'), ('j'); INSERT INTO t (b) VALUES (LAST_INSERT_ID()); \
         SET sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT'; INSERT INTO t (c) VALUES ('a' || 'b'); SET NAMES latin1; \
         INSERT INTO t (c) VALUES (_latin1 X'E4'); SET NAMES utf8mb4; INSERT INTO my VALUES (1, 1), (2, 2); UPDATE my SET v = v * 10; \
         BEGIN; INSERT INTO t (c) VALUES ('kept'); SAVEPOINT s; INSERT INTO t (c) VALUES ('lost'); ROLLBACK TO s; COMMIT; \
         CREATE TEMPORARY TABLE tmp (a INT); INSERT INTO tmp VALUES (1), (2); DROP TEMPORARY TABLE tmp; \
         UPDATE t SET c = CONCAT(c, 'x') WHERE id < 5",
    );
    assert_replicated(&site);
}

/// A source may let foreign keys refer to keys that are not unique; its replicas do, too.
#[test]
fn foreign_keys_to_keys_that_are_not_unique_are_created() {
    let site = site();
    site.source.sql(
        "SET SESSION restrict_fk_on_non_standard_key=0; CREATE DATABASE d; USE d; \
         CREATE TABLE p (id INT PRIMARY KEY, v INT, KEY (v)); CREATE TABLE c (id INT PRIMARY KEY, v INT, FOREIGN KEY (v) REFERENCES p (v)); \
         INSERT INTO p VALUES (1, 7), (2, 7); INSERT INTO c VALUES (1, 7)",
    );
    assert_replicated(&site);
}

/// The comment that only MySQL executes stands between the name and the query.
#[test]
fn create_table_as_select_with_a_version_comment_is_executed() {
    let site = site();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.s (a INT PRIMARY KEY); INSERT INTO d.s VALUES (1), (2)");
    for (name, text) in [
        ("t", "/*!80000 COMMENT 'x' */ AS SELECT a FROM s"),
        ("u", "(PRIMARY KEY (a)) /*!80000 COMMENT 'START TRANSACTION' */ SELECT a, 'START TRANSACTION' AS b FROM s"),
        ("v", "(b INT) /*!99999 COMMENT 'no' */ /*!50000 COMMENT='yes' */ AS SELECT a FROM s -- START TRANSACTION\n"),
    ] {
        site.source.sql(&format!("USE d; CREATE TABLE {name} {text}; INSERT INTO {name} (a) VALUES (5)"));
    }
    assert_replicated(&site);
    for name in ["t", "u", "v"] {
        let shown = format!("SHOW CREATE TABLE d.{name}");
        assert_eq!(site.source.sql(&shown), site.replica.sql(&shown));
        assert_eq!(site.replica.sql(&format!("SELECT COUNT(*) FROM d.{name}")), "3");
    }
}

/// Without explicit_defaults_for_timestamp, TIMESTAMP columns have defaults of their own, and take NULL for the time.
#[test]
fn temporary_tables_keep_implicit_time_stamp_defaults() {
    let site = site();
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, ts TIMESTAMP NULL, v INT); \
         CREATE TABLE d.r (id INT PRIMARY KEY, v INT); INSERT INTO d.r VALUES (1, 1)",
    );
    let mut session = Session::open(&site.source);
    session.sql("USE d; SET SESSION binlog_format=STATEMENT, timestamp=1700000000; INSERT INTO t VALUES (1, NULL, 1)");
    session
        .sql("SET explicit_defaults_for_timestamp=OFF; CREATE TEMPORARY TABLE x (a INT, ts TIMESTAMP) ENGINE=InnoDB");
    session.sql("CREATE TEMPORARY TABLE xx (a INT, ts TIMESTAMP, us TIMESTAMP NULL) ENGINE=InnoDB");
    // Rows of other sessions come in between.
    site.source.sql("UPDATE d.r SET v = v + 1");
    session.sql("SET explicit_defaults_for_timestamp=ON; CREATE TEMPORARY TABLE y (a INT, ts TIMESTAMP) ENGINE=InnoDB");
    session.sql("INSERT INTO x (a) VALUES (2); INSERT INTO xx (a) VALUES (3); INSERT INTO y (a) VALUES (4)");
    session.sql("INSERT INTO t SELECT a, ts, 2 FROM x; INSERT INTO t SELECT a, ts, us IS NULL FROM xx");
    session.sql("INSERT INTO t SELECT a, ts, 4 FROM y; CREATE TABLE z (ts TIMESTAMP); INSERT INTO z VALUES (NULL)");
    site.source.sql("UPDATE d.r SET v = v + 1");
    session.sql("SET explicit_defaults_for_timestamp=OFF; CREATE TABLE zz (ts TIMESTAMP); CREATE TEMPORARY TABLE w (ts TIMESTAMP)");
    session.sql("INSERT INTO w VALUES (DEFAULT); INSERT INTO t SELECT 5, ts, 5 FROM w; DROP TEMPORARY TABLE w");
    assert_eq!(site.source.sql("SELECT GROUP_CONCAT(id ORDER BY id) FROM d.t WHERE ts IS NULL"), "1,4");
    assert_replicated(&site);
    for name in ["z", "zz"] {
        let shown = format!("SHOW CREATE TABLE d.{name}");
        assert_eq!(site.source.sql(&shown), site.replica.sql(&shown));
    }
    // What was kept of them is as implicit as they were.
    session.sql("INSERT INTO x (a) VALUES (6); INSERT INTO t SELECT a, ts, 6 FROM x WHERE a = 6");
    site.catch_up(&[]);
    site.assert_identical();
}

/// MySQL drops several tables together or none of them: where one is missing, the others are not forgotten.
#[test]
fn drop_of_several_tables_with_one_missing_is_refused() {
    let site = Site::of(Kind::Mysql);
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.a (id INT PRIMARY KEY); CREATE TABLE d.b (id INT PRIMARY KEY)");
    site.catch_up(&["--start", "earliest"]);
    site.replica.sql("DROP TABLE d.b");
    site.source.sql("DROP TABLE d.a, d.b");
    let ended = site.run(site.replicate(&["--until", "caught-up"]));
    ended.assert_failed_saying(&["1051"]);
    site.replica.sql("CREATE TABLE d.b (id INT PRIMARY KEY)");
    site.catch_up(&[]);
    assert_eq!(site.replica.sql("SHOW TABLES FROM d"), "");
}
