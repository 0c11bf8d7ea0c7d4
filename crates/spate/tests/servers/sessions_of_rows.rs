//! What MySQL computes while rows are changed, it computes as the session says: as the source's session was, like its own replication.

use crate::support::{Kind, Oracle, Server, Site};

/// In one batch, transaction by transaction, and as SQL statements.
const WAYS: [&[&str]; 3] = [&[], &["--batch-transactions", "1"], &["--dialect", "sql"]];

#[test]
fn computed_columns_follow_the_sources_session() {
    Oracle::new(Kind::Mysql, &[], &[]).in_ways(&WAYS, |oracle, way, d| {
        oracle.site.source.sql(&format!(
            "CREATE DATABASE {d}; USE {d}; CREATE TABLE g (id INT PRIMARY KEY, at TIMESTAMP NULL, x INT, h INT AS (HOUR(at)) STORED, \
             name VARCHAR(20) AS (DAYNAME(at)) STORED, KEY late ((HOUR(at)))); \
             CREATE TABLE t (id INT PRIMARY KEY, clock TIME, at DATETIME AS (CAST(clock AS DATETIME)) STORED); \
             CREATE TABLE m (id INT PRIMARY KEY, c CHAR(10), n INT AS (LENGTH(c)) STORED); \
             CREATE TABLE day (id INT PRIMARY KEY, s VARCHAR(20), d DATE AS (CAST(s AS DATE)) STORED); \
             CREATE TABLE plain (id INT PRIMARY KEY, at TIMESTAMP NULL); \
             SET time_zone='+05:00', lc_time_names='de_DE', timestamp=1000000000; \
             INSERT INTO g (id, at) VALUES (1, '2020-01-01 02:00:00'), (2, '2020-01-01 20:00:00'), (3, NULL); \
             INSERT INTO plain VALUES (1, '2020-01-01 02:00:00'); INSERT INTO t (id, clock) VALUES (1, '10:00:00'); \
             SET time_zone='-03:00', timestamp=1100000000; INSERT INTO g (id, at) VALUES (4, '2020-01-01 20:00:00'); \
             UPDATE g SET x = 1 WHERE id IN (1, 3); INSERT INTO t (id, clock) VALUES (2, '10:00:00'); \
             INSERT INTO plain VALUES (2, '2020-01-01 02:00:00'); UPDATE plain SET id = 9 WHERE id = 1; DELETE FROM g WHERE id = 2; \
             SET sql_mode='PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES,PIPES_AS_CONCAT,ALLOW_INVALID_DATES'; INSERT INTO m (id, c) VALUES (1, 'abc'); \
             INSERT INTO day (id, s) VALUES (1, '2020-02-31'); \
             SET sql_mode=DEFAULT; INSERT INTO m (id, c) VALUES (2, 'abc'); INSERT INTO day (id, s) VALUES (2, '2020-02-28')",
        ));
        oracle.catch_up(way);
        assert_eq!(oracle.both_say(&format!("SELECT h, name FROM {d}.g WHERE id = 4")), "20\tMittwoch");
        assert_eq!(oracle.both_say(&format!("SELECT GROUP_CONCAT(n ORDER BY id) FROM {d}.m")), "10,3");
    });
}

/// A check of the source's session holds there, and need not in another.
#[test]
fn checks_follow_the_sources_session() {
    Oracle::new(Kind::Mysql, &[], &[]).in_ways(&WAYS, |oracle, way, d| {
        oracle.site.source.sql(&format!(
            "CREATE DATABASE {d}; USE {d}; SET time_zone='+05:00'; CREATE TABLE c (id INT PRIMARY KEY, at TIMESTAMP, x INT, CHECK (HOUR(at) >= 8)); \
             INSERT INTO c VALUES (1, '2020-01-01 10:00:00', 1), (2, '2020-01-01 11:00:00', 1); UPDATE c SET x = 2",
        ));
        oracle.catch_up(way);
    });
}

#[test]
fn columns_only_on_the_replica_follow_the_sources_session() {
    Oracle::new(Kind::Mysql, &[], &[]).in_ways(&WAYS, |oracle, way, d| {
        oracle.site.source.sql(&format!("CREATE DATABASE {d}; CREATE TABLE {d}.e (id INT PRIMARY KEY, at TIMESTAMP)"));
        oracle.catch_up(way);
        oracle.replicas(&format!(
            "ALTER TABLE {d}.e ADD w DATETIME DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, ADD h INT AS (HOUR(at)) STORED, \
             ADD y VARCHAR(30) DEFAULT (DATE_FORMAT(NOW(), '%M %H'))"
        ));
        oracle.site.source.sql(&format!(
            "USE {d}; SET time_zone='+05:00', timestamp=1000000000, lc_time_names='de_DE'; \
             INSERT INTO e VALUES (1, '2020-01-01 10:00:00'), (2, NOW()); UPDATE e SET at='2020-01-01 11:00:00' WHERE id=1; \
             INSERT INTO e VALUES (5, NOW())",
        ));
        oracle.catch_up(way);
    });
}

/// The server looks for all rows of an event in one pass.
#[test]
fn keyless_rows_follow_the_sources_session() {
    Oracle::new(Kind::Mysql, &[], &[]).in_ways(&WAYS, |oracle, way, d| {
        oracle.site.source.sql(&format!(
            "CREATE DATABASE {d}; USE {d}; CREATE TABLE j (a INT, j JSON, t TEXT); CREATE TABLE f (n INT, a DOUBLE, b FLOAT); \
             INSERT INTO j VALUES (1, '{{\"a\": 6, \"b\": [1, {{}}]}}', 'x'), (2, '1', 'y'), (2, '1.0', 'y'), (2, '0', ''), (2, '0.0', ''); \
             INSERT INTO f VALUES (1, 0, 0), (1, -0e0, -0e0), (1, 0, 0); DELETE FROM f WHERE CAST(b AS CHAR) = '-0'; \
             UPDATE j SET t = 'z'; UPDATE j SET j = JSON_REMOVE(j, '$.b[0]') WHERE a = 1; UPDATE j SET j = JSON_REMOVE(j, '$.b'); \
             UPDATE j SET t = 'zz' WHERE JSON_TYPE(j) = 'DOUBLE'; DELETE FROM j WHERE t = 'z' AND JSON_TYPE(j) = 'INTEGER' LIMIT 1",
        ));
        oracle.catch_up(way);
        // What is equal need not be the same.
        let types = format!("SELECT GROUP_CONCAT(JSON_TYPE(j), t ORDER BY 1) FROM {d}.j");
        assert_eq!(oracle.both_say(&types), oracle.site.source.sql(&types));
    });
}

/// MySQL forgets with each commit which server rows come from, and then takes such columns for others.
#[test]
fn hidden_columns_follow_the_sources_session() {
    let unlike = ["--show-gipk-in-create-table-and-information-schema=OFF"];
    for replica in [&[][..], &unlike] {
        let oracle = Oracle::new(Kind::Mysql, &["--sql-generate-invisible-primary-key=ON"], replica);
        oracle.in_ways(&WAYS, |oracle, way, d| {
            oracle.site.source.sql(&format!(
                "CREATE DATABASE {d}; USE {d}; CREATE TABLE t (id INT NOT NULL, n INT); CREATE INDEX i ON t ((n + 1)); CREATE TABLE u (a INT PRIMARY KEY); \
                 INSERT INTO u VALUES (1); INSERT INTO t VALUES (1, 1), (2, 2)"
            ));
            oracle.catch_up(way);
            oracle.site.source.sql(&format!("USE {d}; INSERT INTO u VALUES (2)"));
            oracle.catch_up(way);
            oracle.site.source.sql(&format!(
                "USE {d}; UPDATE t SET n = n + 1; INSERT INTO t VALUES (3, 3); DELETE FROM t WHERE id = 1"
            ));
            let ended = oracle.catch_up(way);
            assert!(!ended.output.contains("a batch failed"), "{}", ended.output);
        });
    }
}

/// The server takes a semicolon at the end away from what a client sends.
#[test]
fn semicolon_within_a_routine_is_kept() {
    Oracle::new(Kind::Mysql, &[], &[]).in_ways(&WAYS[..1], |oracle, way, d| {
        oracle.site.source.sql(&format!(
            "CREATE DATABASE {d}; USE {d}; CREATE TABLE t (a INT); CREATE PROCEDURE p() SELECT 1; DO 1; CREATE FUNCTION f() RETURNS INT NO SQL RETURN 1; DO 1; \
             CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.a = 1; DO 1"
        ));
        oracle.catch_up(way);
        let bodies = format!(
            "SELECT GROUP_CONCAT(ROUTINE_DEFINITION ORDER BY 1) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = '{d}'"
        );
        assert_eq!(oracle.both_say(&bodies), oracle.site.source.sql(&bodies));
    });
}

/// The session that replays many rows reads statements byte by byte: what tables compute and check is read in its own character set all the same.
#[test]
fn many_rows_leave_texts_of_definitions_alone() {
    for kind in [Kind::Mariadb, Kind::Mariadb118, Kind::Mysql] {
        let mut site = Site::of(kind);
        site.source.sql(
            "SET NAMES utf8mb4; CREATE DATABASE `dü`; CREATE TABLE `dü`.`größe` (`nummer–ß` INT PRIMARY KEY, `wört` VARCHAR(40), \
             e ENUM('ä', '€', 'Ω'), v VARCHAR(80) AS (CONCAT(`wört`, '–ü€')) VIRTUAL, \
             s VARCHAR(80) AS (CONCAT('Ω', `wört`)) STORED, l INT AS (CHAR_LENGTH(CONCAT(`wört`, 'üü'))) STORED, \
             o VARCHAR(20) CHARACTER SET latin1 DEFAULT 'ÄÖ', KEY (v), KEY (s), CONSTRAINT `prüft` CHECK (`wört` <> 'nïe')) CHARACTER SET utf8mb4",
        );
        site.catch_up(&["--start", "earliest"]);
        for way in [&[][..], &["--consistency", "transaction"], &["--dialect", "sql"]] {
            // The replaying session is the first to open the table.
            site.replica.kill();
            site.replica.begin();
            site.source.sql(
                "SET NAMES utf8mb4; USE `dü`; INSERT INTO `größe` (`nummer–ß`, `wört`, e) WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 900) \
                 SELECT i + 2 * (SELECT COUNT(*) FROM `größe`), CONCAT('zähler 😀 ', i), ELT(1 + i % 3, 'ä', '€', 'Ω') FROM n; \
                 UPDATE `größe` SET `wört` = CONCAT(`wört`, 'é') WHERE `nummer–ß` % 2 = 0; DELETE FROM `größe` WHERE `nummer–ß` % 7 = 0; \
                 INSERT INTO `größe` (`nummer–ß`, `wört`) SELECT -1 - COUNT(*), 'letztes ß' FROM `größe`",
            );
            site.catch_up(way);
            // MariaDB's CHECKSUM TABLE is not the same twice where a column is virtual.
            let rows = |server: &Server| server.sql("SET NAMES utf8mb4; SELECT * FROM `dü`.`größe` ORDER BY 1");
            assert_eq!(rows(&site.source), rows(&site.replica), "{kind:?} {way:?}");
        }
        assert_eq!(
            site.replica.sql(
                "SET NAMES utf8mb4; SELECT COUNT(*) FROM `dü`.`größe` WHERE l <> CHAR_LENGTH(`wört`) + 2 OR v <> CONCAT(`wört`, '–ü€')"
            ),
            "0"
        );
    }
}
