//! What the binlog holds as SQL: definitions, accounts, and changes in statement format.

use crate::support::session::Session;
use crate::support::{Kind, Site, wait_until};

#[test]
fn definitions_between_row_changes_arrive_in_order() {
    let site = Site::plain();
    for sql in [
        "CREATE DATABASE d CHARACTER SET latin1; USE d; CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1)",
        "USE d; INSERT INTO t VALUES (2, 2); ALTER TABLE t ADD COLUMN w VARCHAR(10) NOT NULL DEFAULT 'w' FIRST; \
         INSERT INTO t VALUES ('x', 3, 3); UPDATE t SET w = 'y' WHERE id = 1; ALTER TABLE t DROP COLUMN v; \
         INSERT INTO t VALUES ('z', 4)",
        "USE d; CREATE INDEX i ON t (w); CREATE UNIQUE INDEX j ON t (w, id); RENAME TABLE t TO s; \
         INSERT INTO s VALUES ('s', 5); CREATE TABLE t LIKE s; INSERT INTO t SELECT * FROM s; TRUNCATE TABLE s; \
         INSERT INTO s VALUES ('after', 6); ALTER TABLE t MODIFY id BIGINT; UPDATE t SET id = id + 10000000000",
        "USE d; CREATE VIEW both_tables AS SELECT id FROM t UNION SELECT id FROM s; CREATE TABLE gone (a INT); \
         INSERT INTO gone VALUES (1); DROP TABLE gone; CREATE TABLE gone (a INT PRIMARY KEY, b INT); \
         INSERT INTO gone VALUES (1, 2); DROP VIEW both_tables; CREATE VIEW seen AS SELECT * FROM gone",
        "CREATE USER reader@'%' IDENTIFIED BY 'r'; GRANT SELECT ON d.* TO reader@'%'; CREATE ROLE r; GRANT r TO reader@'%'; \
         SET PASSWORD FOR reader@'%' = PASSWORD('other'); CREATE USER brief; DROP USER brief",
        "CREATE DATABASE `odd ``name`; CREATE TABLE `odd ``name`.`t;able` (`a b` INT PRIMARY KEY); \
         INSERT INTO `odd ``name`.`t;able` VALUES (1), (2); CREATE DATABASE brief; DROP DATABASE brief; \
         INSERT INTO d.gone VALUES (7, 7)",
        "USE d; CREATE TRIGGER tr BEFORE INSERT ON gone FOR EACH ROW SET NEW.b = NEW.b + 1; INSERT INTO gone VALUES (8, 8); \
         CREATE PROCEDURE pr() INSERT INTO gone VALUES (9, 9); CALL pr(); CREATE SEQUENCE sq; DROP TRIGGER tr; \
         CREATE FUNCTION fn() RETURNS INT DETERMINISTIC RETURN 5; INSERT INTO gone VALUES (fn(), fn())",
    ] {
        site.source.sql(sql);
    }
    site.catch_up_from_earliest();
    for sql in [
        "SHOW CREATE TABLE d.t; SHOW CREATE TABLE d.s; SHOW CREATE VIEW d.seen; SHOW CREATE DATABASE d",
        "SHOW GRANTS FOR reader@'%'; SHOW CREATE PROCEDURE d.pr; SHOW CREATE FUNCTION d.fn; SHOW TRIGGERS FROM d",
        "SELECT JSON_VALUE(Priv, '$.authentication_string') FROM mysql.global_priv WHERE User = 'reader'",
        "SHOW DATABASES LIKE '%brief%'; SELECT COUNT(*) FROM mysql.global_priv WHERE User = 'brief'",
    ] {
        assert_eq!(site.source.sql(sql), site.replica.sql(sql), "{sql}");
    }
}

#[test]
fn statements_that_change_rows_arrive() {
    let site = Site::new(&["--default-time-zone=+05:00"], &["--default-time-zone=-03:00"]);
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(100) CHARACTER SET utf8mb4, \
         b DOUBLE, c DATETIME(6), s TIMESTAMP(6) NULL, g DECIMAL(30, 10), h VARBINARY(40))",
    );
    for sql in [
        "INSERT INTO t (a, b, c, s) VALUES ('one', RAND(), NOW(6), NOW(6)), ('two', RAND(), NOW(), CURRENT_TIMESTAMP(3))",
        "SET insert_id = 50; INSERT INTO t (a) VALUES ('fifty'), ('next'); INSERT INTO t (id, a) VALUES (LAST_INSERT_ID() + 100, 'l')",
        "SET @s = 'umläut'', \\\\ ☃', @i = -5, @u = 18446744073709551615, @r = 0.1e0, @d = 12345678901234567890.5, \
         @n = NULL, @x = x'00ff27'; INSERT INTO t (a, b, g, h) VALUES (@s, @r, @d, @x), (@n, @i, @u, @n)",
        "SET time_zone = '+02:00', timestamp = 1600000000.123456; INSERT INTO t (a, c, s) VALUES ('zone', NOW(6), NOW(6)); \
         UPDATE t SET s = FROM_UNIXTIME(1234567890) WHERE id = 1",
        "SET NAMES latin1; INSERT INTO t (a) VALUES ('\u{c3}'); SET NAMES utf8mb4; INSERT INTO t (a) VALUES ('漢字')",
        "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'; INSERT INTO t (\"a\") VALUES ('back\\' || 'slash')",
        "SET sql_mode = ''; INSERT INTO t (a, c) VALUES (REPEAT('long', 50), '0000-00-00'); UPDATE t SET b = 1e5 WHERE b IS NULL",
        "SET auto_increment_increment = 10, auto_increment_offset = 3; INSERT INTO t (a) VALUES ('by ten'), ('by ten')",
        "SET foreign_key_checks = 0, unique_checks = 0; INSERT INTO t (a) VALUES ('unchecked'); DELETE FROM t WHERE a = 'two'",
        "BEGIN; INSERT INTO t (a) VALUES ('kept'); SAVEPOINT p; INSERT INTO t (a) VALUES ('dropped'); ROLLBACK TO p; \
         SET SESSION binlog_format = ROW",
        "SET lc_time_names = 'de_DE'; INSERT INTO t (a) VALUES (DATE_FORMAT('2020-05-01', '%M')); \
         INSERT INTO t (a) VALUES (CONCAT('div ', 1 / 3))",
    ] {
        // The last but one leaves its transaction open: the client's end rolls it back, and nothing of it may come.
        let _refused_inside_a_transaction =
            site.source.try_sql(&format!("USE d; SET SESSION binlog_format = STATEMENT; {sql}"));
    }
    site.source.sql(
        "USE d; SET SESSION binlog_format = STATEMENT; BEGIN; INSERT INTO t (a) VALUES ('kept'); SAVEPOINT p; \
         INSERT INTO t (a) VALUES ('dropped'); ROLLBACK TO p; INSERT INTO t (a) VALUES ('last'); COMMIT; \
         SET SESSION binlog_format = ROW; BEGIN; UPDATE t SET b = 7 WHERE a = 'last'; SET @a = 1; COMMIT; \
         SET SESSION binlog_format = MIXED; BEGIN; INSERT INTO t (a, h) VALUES (UUID(), 'u'); \
         UPDATE t SET g = 1 WHERE a = 'kept'; COMMIT",
    );
    assert!(site.source.sql("SELECT COUNT(*) FROM d.t").parse::<u32>().unwrap() > 15);
    site.catch_up_from_earliest();
}

/// A client that says utf8mb3 and sends characters that it does not have.
#[test]
fn ill_formed_texts_are_refused() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, h VARCHAR(200), c VARCHAR(50), v BLOB)");
    site.source.sql(
        "SET SESSION binlog_format=STATEMENT; SET NAMES utf8mb3; USE d; SET @a = 'it''s \\\\ 😀\\0a', @b = 'ä'; \
         INSERT INTO t VALUES (1, HEX(@a), COLLATION(@a), @a), (2, HEX(@b), COLLATION(@b), @b); SET NAMES utf8mb4; \
         INSERT INTO t VALUES (3, HEX(CONCAT(@a, 'ö')), COLLATION(@b), CONCAT(@b, 'x'))",
    );
    assert_eq!(site.source.sql("SELECT c FROM d.t WHERE id = 1 AND h LIKE '%F09F9880%'"), "utf8mb3_general_ci");
    site.catch_up_from_earliest();
}

/// Within a transaction, the server reads the table in one and locks it in another of the same session.
#[test]
fn partitions_are_exchanged() {
    for kind in [Kind::Mariadb, Kind::Mariadb118, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql(
            "CREATE DATABASE d; USE d; CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (10), \
             PARTITION b VALUES LESS THAN (20)); CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO p VALUES (1), (11); INSERT INTO t VALUES (2), (3); \
             ALTER TABLE p EXCHANGE PARTITION a WITH TABLE t; INSERT INTO p VALUES (4); UPDATE t SET id = 5",
        );
        site.catch_up(&["--start", "earliest"]);
        site.assert_identical();
        let look = "SELECT * FROM d.p; SELECT * FROM d.t";
        assert_eq!(site.source.sql(look), site.replica.sql(look));
    }
}
/// Numbers without a sign, and texts of a collation of their own, are on the replica what they were on the source.
#[test]
fn user_variables_keep_sign_character_set_and_collation() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source
            .sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, a DECIMAL(30), b VARCHAR(200), c INT)");
        site.source.sql(
            "USE d; SET SESSION binlog_format=STATEMENT; \
             SET @a = CAST(18446744073709551615 AS UNSIGNED), @b = _utf8mb4'x' COLLATE utf8mb4_bin, \
                @c = _latin1'x' COLLATE latin1_german2_ci, @d = CAST(5 AS UNSIGNED), @e = -5, @f = 1.5, @g = x'00ff'; \
             INSERT INTO t VALUES (1, @a, CONCAT_WS(',', COLLATION(@b), CHARSET(@b), @b), @b = 'X'); \
             INSERT INTO t VALUES (2, @a DIV 2, CONCAT_WS(',', COLLATION(@c), CHARSET(@c), @c), @c = 'X'); \
             INSERT INTO t VALUES (3, @d, CONCAT_WS(',', COLLATION(@d), COLLATION(@e), COLLATION(@f), COLLATION(@g)), @e); \
             SET NAMES latin1 COLLATE latin1_bin; INSERT INTO t VALUES (4, @a, COLLATION(@a), @b > @c); \
             SET @h = 'x', @i = 7; INSERT INTO t VALUES (5, @i, CONCAT(COLLATION(@h), COLLATION(@i)), @h = 'X')",
        );
        assert_eq!(
            site.source.sql("SELECT a, b, c FROM d.t WHERE id = 1"),
            "18446744073709551615\tutf8mb4_bin,utf8mb4,x\t0"
        );
        site.catch_up_from_earliest();
    }
}

/// It alters the default database of its session, whatever others come before and after.
#[test]
fn alter_database_without_a_name_alters_the_default_database() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql("CREATE DATABASE d CHARACTER SET utf8mb4; CREATE DATABASE e CHARACTER SET utf8mb4");
        site.source.sql("USE e; CREATE TABLE t (a VARCHAR(9)); USE d; ALTER DATABASE CHARACTER SET latin1; CREATE TABLE t (a VARCHAR(9))");
        site.source.sql(
            "CREATE TABLE e.u (a VARCHAR(9)); USE e; ALTER SCHEMA COLLATE utf8mb4_bin; CREATE TABLE v (a VARCHAR(9))",
        );
        // One at a time, and all at once.
        for options in [["--batch-transactions", "1"], ["--batch-transactions", "1000"]] {
            site.catch_up(&[&["--start", "earliest"], options.as_slice()].concat());
            for shown in ["DATABASE d", "DATABASE e", "TABLE d.t", "TABLE e.t", "TABLE e.u", "TABLE e.v"] {
                let shown = format!("SHOW CREATE {shown}");
                assert_eq!(site.source.sql(&shown), site.replica.sql(&shown), "{kind:?}");
            }
            site.replica.sql("DROP DATABASE d; DROP DATABASE e; DROP DATABASE spate");
        }
    }
}

#[test]
fn events_stay_disabled_behind_set_statement() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d");
    for sql in [
        "CREATE EVENT a ON SCHEDULE EVERY 1 DAY DO DO 1",
        "SET STATEMENT max_statement_time=10 FOR ALTER EVENT a ON SCHEDULE EVERY 2 DAY ENABLE",
        "SET STATEMENT lock_wait_timeout=9 FOR SET STATEMENT max_statement_time=10 FOR CREATE EVENT b ON SCHEDULE EVERY 1 DAY DO DO 2",
        "SET STATEMENT max_statement_time=10, lock_wait_timeout=9 FOR CREATE EVENT c ON SCHEDULE EVERY 1 DAY ENABLE DO DO 3",
        "SET STATEMENT max_statement_time=(SELECT 10) FOR CREATE OR REPLACE EVENT c ON SCHEDULE EVERY 3 DAY COMMENT 'FOR' DO DO 4",
        "SET STATEMENT lock_wait_timeout=9 FOR SET STATEMENT max_statement_time=10 FOR ALTER EVENT b RENAME TO e",
        "CREATE EVENT f ON SCHEDULE EVERY 1 DAY DISABLE DO DO 5",
        "SET STATEMENT max_statement_time=10 FOR ALTER EVENT f COMMENT 'still'",
    ] {
        site.source.sql(&format!("USE d; {sql}"));
    }
    site.catch_up(&["--start", "earliest"]);
    let events = "SELECT EVENT_NAME, DEFINER, INTERVAL_VALUE, EVENT_DEFINITION, EVENT_COMMENT FROM information_schema.EVENTS ORDER BY 1";
    assert_eq!(site.source.sql(events), site.replica.sql(events));
    let states = "SELECT GROUP_CONCAT(EVENT_NAME, ' ', STATUS ORDER BY 1) FROM information_schema.EVENTS";
    assert_eq!(site.source.sql(states), "a ENABLED,c ENABLED,e ENABLED,f DISABLED");
    let replica = site.replica.sql(states);
    assert!(!replica.contains("ENABLED") && replica.matches("DISABLED").count() == 4, "{replica}");
}

/// A session stays in a database that another has dropped: what it does elsewhere, and the end of its temporary tables, is replicated.
fn a_default_database_is_dropped(kind: Kind) {
    let site = Site::of(kind);
    site.source.sql("SET GLOBAL binlog_format=STATEMENT");
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    for is_live in [false, true] {
        let name = if is_live { "live" } else { "gone" };
        let running = is_live.then(|| site.spawn(site.replicate(&["--start", "earliest"])));
        site.source.sql(&format!("CREATE DATABASE {name}"));
        let mut session = Session::open(&site.source);
        session.sql(&format!("USE {name}; CREATE TEMPORARY TABLE x (a INT); CREATE TEMPORARY TABLE d.y (a INT)"));
        session.sql(&format!("CREATE TABLE {name}.t (a INT); INSERT INTO t VALUES (1)"));
        site.source.sql(&format!("DROP DATABASE {name}"));
        session.sql(&format!(
            "CREATE TABLE d.of_{name} (a INT, b VARCHAR(9)); INSERT INTO d.of_{name} VALUES (1, 'x'); \
             INSERT INTO d.y VALUES (1); INSERT INTO d.of_{name} SELECT a, 'y' FROM d.y; \
             DROP TABLE IF EXISTS {name}.t; ALTER TABLE d.of_{name} ADD c INT DEFAULT 5"
        ));
        drop(session);
        site.source.sql(&format!("INSERT INTO d.t VALUES ({})", u8::from(is_live)));
        match running {
            None => drop(site.catch_up(&["--start", "earliest"])),
            Some(running) => {
                site.wait_applied();
                assert!(running.terminate().status.success());
            }
        }
        site.assert_identical();
        let created = format!("SHOW CREATE TABLE d.of_{name}");
        assert_eq!(site.source.sql(&created), site.replica.sql(&created));
    }
}

#[test]
fn dropped_default_database_is_left_on_mariadb() {
    a_default_database_is_dropped(Kind::Mariadb);
}

#[test]
fn dropped_default_database_is_left_on_mysql() {
    a_default_database_is_dropped(Kind::Mysql);
}

/// A question of the stage before, in the queue behind a statement that the replica refuses, is waited for no longer.
#[test]
fn question_after_a_refused_statement_is_not_answered() {
    const WAITING: &str =
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for table metadata%'";
    let site = Site::plain();
    site.source.sql("SET GLOBAL binlog_format=STATEMENT");
    site.source.sql("CREATE DATABASE d; CREATE DATABASE e; CREATE TABLE d.t (id INT); CREATE TABLE e.t (id INT)");
    site.catch_up(&["--start", "earliest"]);
    site.replica.sql("INSERT INTO d.t VALUES (7), (7)");
    let mut holder = Session::open(&site.replica);
    holder.sql("LOCK TABLES d.t READ");
    site.source.sql("ALTER TABLE d.t ADD UNIQUE (id); USE e; INSERT INTO t VALUES (1)");
    let running = site.spawn(site.replicate(&[]));
    wait_until("the ALTER to wait", || site.replica.sql(WAITING) == "1");
    // By then the stage before has asked whether there is a database `e`.
    std::thread::sleep(std::time::Duration::from_secs(1));
    drop(holder);
    running.wait().assert_failed_saying(&["1062"]);
}

/// A session whose connection is in UTF-32 takes texts in quotes for something else; what undoes its settings has none.
#[test]
fn connection_in_utf32_is_reset() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (a INT)");
    site.source.sql(
        "USE d; SET NAMES binary; SET collation_connection=utf32_general_ci; ALTER TABLE t ADD b INT; ALTER TABLE t ADD c INT; \
         RENAME TABLE t TO u; SET binlog_format=STATEMENT; INSERT INTO u (a) VALUES (1)",
    );
    site.catch_up_from_earliest();
    assert_eq!(site.replica.sql("SELECT * FROM spate.intent"), "");
}

/// The session for definitions is asked, between them, how many it has executed.
#[test]
fn definitions_of_a_session_in_utf32_are_counted() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql("CREATE DATABASE d");
        let running = site.spawn(site.replicate(&["--start", "earliest"]));
        for number in 0..5 {
            site.source.sql(&format!(
                "USE d; SET NAMES binary; SET collation_connection=utf32_general_ci; CREATE TABLE t{number} (a INT PRIMARY KEY)"
            ));
            site.wait_applied();
            // After a while without work, they are counted.
            std::thread::sleep(std::time::Duration::from_millis(100));
            site.source.sql(&format!("INSERT INTO d.t{number} VALUES (1)"));
            site.wait_applied();
        }
        let said = running.terminate().output;
        assert!(!said.contains("error"), "{said}");
        site.assert_identical();
    }
}

/// What stands for values of a session that the replica's has not is of the same type and collation.
fn values_keep_their_types(kind: Kind) {
    let site = Site::of(kind);
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, a VARCHAR(200))");
    site.catch_up(&["--start", "earliest"]);
    site.source.sql("SET GLOBAL binlog_format=STATEMENT");
    site.source.sql(
        "SET @d = CAST(5 AS DECIMAL(10,0)); \
         INSERT INTO d.t SELECT 1, GROUP_CONCAT(x ORDER BY x) FROM (SELECT @d AS x UNION SELECT 10 UNION SELECT 9) q; \
         INSERT INTO d.t VALUES (2, IFNULL(DATABASE(), 10) < '9'), (3, CHARSET(DATABASE())), (4, COLLATION(SCHEMA()))",
    );
    site.catch_up(&[]);
    site.assert_identical();
    assert_eq!(site.replica.sql("SELECT a FROM d.t WHERE id = 3"), "utf8mb3");
}

#[test]
fn values_keep_their_types_on_mariadb() {
    values_keep_their_types(Kind::Mariadb);
}

#[test]
fn values_keep_their_types_on_mysql() {
    values_keep_their_types(Kind::Mysql);
}

/// The session for definitions stays in the state of the last one: what Spate writes itself is read otherwise there.
#[test]
fn databases_with_odd_names_are_used_whatever_came_before() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql(
            "SET NAMES utf8mb4; CREATE DATABASE `d\u{e9}` DEFAULT CHARACTER SET latin1; \
             CREATE DATABASE `d\u{c3}\u{a9}` DEFAULT CHARACTER SET utf8mb4; CREATE DATABASE `a'b\\c`; CREATE DATABASE d2; \
             USE d2; CREATE TABLE first (a INT PRIMARY KEY); SET character_set_client=latin1; \
             CREATE TABLE second (a INT PRIMARY KEY); SET NAMES utf8mb4; USE `d\u{e9}`; \
             CREATE TABLE third (a INT PRIMARY KEY, b VARCHAR(10)); INSERT INTO third VALUES (1, 'x'); \
             SET sql_mode='NO_BACKSLASH_ESCAPES,ANSI_QUOTES'; CREATE TABLE fourth (a INT PRIMARY KEY); USE `a'b\\c`; \
             CREATE TABLE fifth (a INT PRIMARY KEY, b VARCHAR(10)); ALTER TABLE fifth ADD COLUMN c INT; DROP TABLE fifth",
        );
        site.catch_up(&["--start", "earliest"]);
        let places = "SELECT HEX(table_schema), table_name, table_collation FROM information_schema.tables \
                      WHERE table_schema LIKE 'd%' OR table_schema LIKE 'a%' ORDER BY 1, 2";
        assert_eq!(site.source.sql(places), site.replica.sql(places));
    }
}

/// A server remembers the settings of the database that a session uses.
#[test]
fn databases_that_change_are_used_as_they_are() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql(
            "CREATE DATABASE d DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin; USE d; \
             CREATE TABLE one (x INT PRIMARY KEY, y VARCHAR(10)); ALTER DATABASE d DEFAULT CHARACTER SET latin2; \
             CREATE TABLE two (x INT PRIMARY KEY, y VARCHAR(10)); INSERT INTO two VALUES (1, 'z'); DROP DATABASE d; \
             CREATE DATABASE d DEFAULT CHARACTER SET latin1; USE d; CREATE TABLE three (x INT PRIMARY KEY, y VARCHAR(10)); \
             CREATE DATABASE other",
        );
        // Without a default database of its own.
        let mut session = Session::open(&site.source);
        session.sql("USE other; CREATE TABLE four (x INT PRIMARY KEY)");
        site.source.sql("ALTER DATABASE other DEFAULT CHARACTER SET cp1251; CREATE TABLE other.five (x INT PRIMARY KEY, y VARCHAR(10))");
        site.source.sql("INSERT INTO other.five VALUES (1, 'y'); INSERT INTO d.three VALUES (1, 'y')");
        site.catch_up(&["--start", "earliest"]);
        let collations = "SELECT table_schema, table_name, table_collation FROM information_schema.tables \
                          WHERE table_schema IN ('d', 'other') ORDER BY 1, 2";
        assert_eq!(site.source.sql(collations), site.replica.sql(collations));
        site.assert_identical();
    }
}
