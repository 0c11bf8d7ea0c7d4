//! Tables without a key: what a batch does to them is exact, copy by copy, whatever the types, and takes one pass.

use crate::support::program::program;
use crate::support::{Kind, Server, Site, wait_until};

/// Every column type, in tables with the primary key `id`.
const TYPES: &str = include_str!("../../../binlog/tests/sql/types.sql");

const TABLES: [&str; 11] = [
    "integers",
    "decimals",
    "floats",
    "temporals",
    "instants",
    "strings",
    "blobs",
    "compresseds",
    "choices",
    "bits",
    "specials",
];

/// Options of a replica whose sweeps can be counted.
const LOGGED: [&str; 2] = ["--general-log", "--log-output=TABLE"];

/// Passes in which rows were looked for together. (Replayed row events are none.)
fn sweeps(server: &Server) -> u64 {
    let count = "SELECT COUNT(*) FROM mysql.general_log WHERE argument LIKE 'SET STATEMENT%FOR SELECT%FOR UPDATE'";
    server.sql(count).parse().unwrap()
}

fn catch_up_at_once(site: &Site, options: &[&str]) {
    let ended = site.catch_up(options);
    assert!(!ended.output.contains("ever smaller batches"), "{}", ended.output);
    site.assert_identical();
}

/// Copies of all tables of types, without their keys, 30 copies of each row.
fn with_all_types(site: &Site) {
    site.source.sql(TYPES);
    let mut sql = String::from("SET sql_mode='ALLOW_INVALID_DATES', time_zone='+00:00'; CREATE DATABASE k; USE k;");
    for table in TABLES {
        sql += &format!(
            "CREATE TABLE {table} LIKE types.{table}; ALTER TABLE {table} DROP PRIMARY KEY, MODIFY id INT NULL; \
             INSERT INTO {table} SELECT {table}.* FROM types.{table} JOIN mysql.seq_1_to_30; \
             INSERT INTO {table} (id) VALUES (NULL), (NULL), (NULL);"
        );
    }
    sql += "CREATE TABLE generateds LIKE types.generateds; ALTER TABLE generateds DROP PRIMARY KEY; \
            INSERT INTO generateds (id, a, hidden, w) SELECT id, a, hidden, w FROM types.generateds JOIN mysql.seq_1_to_30;";
    site.source.sql(&sql);
}

#[test]
fn keyless_rows_of_all_types_and_copies_arrive() {
    // How many values an index has decides whether a sweep is worth it; it is not to change while this runs.
    let replica = [&LOGGED[..], &["--default-time-zone=-05:00", "--innodb-stats-auto-recalc=OFF"]].concat();
    let site = Site::new(&["--default-time-zone=+03:00"], &replica);
    with_all_types(&site);
    catch_up_at_once(&site, &["--start", "earliest"]);
    for table in TABLES.iter().chain(&["generateds"]) {
        let before = sweeps(&site.replica);
        site.source.sql(&format!(
            "USE k; DELETE FROM {table} LIMIT 73; UPDATE {table} SET id = id + 1000 WHERE id % 2 = 0 LIMIT 17; \
             DELETE FROM {table} WHERE id IS NULL LIMIT 2; INSERT INTO {table} (id) VALUES (1), (1), (5);"
        ));
        catch_up_at_once(&site, &[]);
        // The bytes of compressed columns differ from server to server: only rows are replayed.
        let is_swept = sweeps(&site.replica) > before;
        assert_eq!(is_swept, *table != "compresseds", "{table}");
        site.source.sql(&format!("DELETE FROM k.{table}"));
        catch_up_at_once(&site, &[]);
        assert_eq!(site.replica.sql(&format!("SELECT COUNT(*) FROM k.{table}")), "0");
    }
}

#[test]
fn keyless_rows_equal_by_collation_stay_different() {
    let site = Site::new(&[], &LOGGED);
    site.source.sql(
        "CREATE DATABASE k; USE k; CREATE TABLE t (a VARCHAR(20), b CHAR(200), c TEXT) COLLATE utf8mb4_general_ci; \
         INSERT INTO t SELECT ELT(seq % 5 + 1, 'a', 'A', 'ä', 'a ', ''), ELT(seq % 2 + 1, 'b', 'B'), ELT(seq % 3 + 1, 'c', 'C ', 'ç') \
         FROM mysql.seq_1_to_300;",
    );
    catch_up_at_once(&site, &["--start", "earliest"]);
    let before = sweeps(&site.replica);
    site.source.sql("DELETE FROM k.t WHERE BINARY a = 'A' OR a = '' OR BINARY c = 'c' LIMIT 150");
    catch_up_at_once(&site, &[]);
    assert_eq!(sweeps(&site.replica), before + 1);
    let exact = "SELECT HEX(a), HEX(b), HEX(c), COUNT(*) FROM k.t GROUP BY 1, 2, 3 ORDER BY 1, 2, 3";
    assert_eq!(site.source.sql(exact), site.replica.sql(exact));
}

#[test]
fn few_of_many_keyless_copies_are_changed() {
    let site = Site::new(&[], &LOGGED);
    site.source.sql(
        "CREATE DATABASE k; CREATE TABLE k.t (a INT, b VARCHAR(10)); \
         INSERT INTO k.t SELECT 7, 'same' FROM mysql.seq_1_to_30000; INSERT INTO k.t SELECT seq, 'own' FROM mysql.seq_1_to_300;",
    );
    catch_up_at_once(&site, &["--start", "earliest"]);
    site.source.sql("DELETE FROM k.t WHERE a = 7 LIMIT 500; DELETE FROM k.t WHERE b = 'own' AND a % 3 = 0");
    catch_up_at_once(&site, &[]);
    assert_eq!(sweeps(&site.replica), 1);
    assert_eq!(site.replica.sql("SELECT COUNT(*), SUM(a = 7) FROM k.t"), "29700\t29501");
}

#[test]
fn keyless_rows_with_nullable_unique_values_move() {
    let site = Site::new(&[], &LOGGED);
    site.source.sql(
        "CREATE DATABASE k; CREATE TABLE k.u (a INT NULL UNIQUE, b INT); \
         INSERT INTO k.u SELECT IF(seq % 5 = 0, NULL, seq), seq FROM mysql.seq_1_to_1000;",
    );
    catch_up_at_once(&site, &["--start", "earliest"]);
    site.replica.sql("ANALYZE TABLE k.u");
    let changes = "UPDATE k.u SET a = a + 1000; UPDATE k.u SET a = 2001 - a; UPDATE k.u SET b = 1 WHERE a IS NULL; \
                   INSERT INTO k.u VALUES (1001, 1); DELETE FROM k.u WHERE a IS NULL LIMIT 50;";
    site.source.sql(&format!("BEGIN; {changes} COMMIT"));
    catch_up_at_once(&site, &[]);
    // An index tells the rows apart: the server finds each at once, and need not look through the table.
    assert_eq!(sweeps(&site.replica), 0);
    site.source.sql("CREATE TABLE k.v (a INT NULL, b INT, UNIQUE (b, a)); INSERT INTO k.v SELECT NULL, seq % 3 FROM mysql.seq_1_to_900");
    catch_up_at_once(&site, &[]);
    site.replica.sql("ANALYZE TABLE k.v");
    site.source.sql("BEGIN; UPDATE k.v SET a = 1 WHERE b = 1 LIMIT 1; DELETE FROM k.v WHERE b <> 1 LIMIT 300; COMMIT");
    catch_up_at_once(&site, &[]);
    assert_eq!(sweeps(&site.replica), 1, "an index of three values is of little use");
}

#[test]
fn missing_keyless_row_is_named() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE k; CREATE TABLE k.t (a INT); INSERT INTO k.t SELECT seq FROM mysql.seq_1_to_300");
    catch_up_at_once(&site, &["--start", "earliest"]);
    site.replica.sql("DELETE FROM k.t WHERE a = 150");
    site.source.sql("DELETE FROM k.t WHERE a < 100");
    let before = site.source.sql("SELECT @@gtid_binlog_pos");
    site.source.sql("DELETE FROM k.t WHERE a < 200");
    let gtid = site.source.sql("SELECT @@gtid_binlog_pos");
    site.source.sql("DELETE FROM k.t WHERE a < 250");
    let ended = site.run(site.replicate(&["--until", "caught-up"]));
    ended.assert_failed_saying(&["k.t", &gtid, "missing on the replica", "ever smaller batches"]);
    assert_eq!(site.checkpoint(), before, "{}", ended.output);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM k.t"), "200");
}

#[test]
fn keyless_sweeps_fire_no_triggers_and_cascade() {
    let site = Site::new(&[], &LOGGED);
    site.source.sql(
        "CREATE DATABASE k; USE k; CREATE TABLE t (a INT); CREATE TABLE log (id INT AUTO_INCREMENT PRIMARY KEY, a INT); \
         CREATE TRIGGER gone AFTER DELETE ON t FOR EACH ROW INSERT INTO log (a) VALUES (OLD.a); \
         CREATE TABLE p (a INT, KEY (a)); \
         CREATE TABLE c (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES p (a) ON DELETE CASCADE); \
         INSERT INTO t SELECT seq FROM mysql.seq_1_to_200; INSERT INTO p SELECT seq FROM mysql.seq_1_to_200; \
         INSERT INTO c SELECT seq, seq FROM mysql.seq_1_to_200;",
    );
    catch_up_at_once(&site, &["--start", "earliest"]);
    let before = sweeps(&site.replica);
    site.source.sql("DELETE FROM k.t WHERE a < 120; DELETE FROM k.p WHERE a < 120");
    assert_eq!(site.source.sql("SELECT COUNT(*) FROM k.log; SELECT COUNT(*) FROM k.c"), "119\n81");
    catch_up_at_once(&site, &[]);
    assert_eq!(sweeps(&site.replica), before, "row events only");
}

#[test]
fn keyless_table_is_named_once() {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE k; CREATE TABLE k.t (a INT); CREATE TABLE k.keyed (a INT PRIMARY KEY)");
    let running = site.spawn(site.replicate(&["--start", "earliest"]));
    for a in 0..3 {
        site.source.sql(&format!("INSERT INTO k.t VALUES ({a}); INSERT INTO k.keyed VALUES ({a})"));
        site.wait_applied();
    }
    // More than are shown to people.
    for number in 0..7 {
        site.source.sql(&format!("CREATE TABLE k.t{number} (a INT); INSERT INTO k.t{number} VALUES (1)"));
    }
    site.wait_applied();
    let status = site.status();
    assert_eq!(status["tables_without_key"], 8);
    assert_eq!(status["latest_tables_without_key"][0], "k.t");
    let mut command = program();
    command.args(["status", "--archive"]).arg(site.archive());
    let shown = site.run(command);
    shown.assert_says(&["8 changed tables, the latest: k.t2, k.t3, k.t4, k.t5, k.t6"]);
    assert!(shown.output.lines().all(|line| line.chars().count() <= 120), "{}", shown.output);
    let ended = running.terminate();
    assert!(ended.status.success());
    assert_eq!(ended.output.matches("table k.t has no primary key").count(), 1, "{}", ended.output);
    assert!(!ended.output.contains("k.keyed"), "{}", ended.output);
}

/// A native replica behind ours: what a sweep leaves in the binlog is the same change.
#[test]
fn replica_of_a_keyless_replica_is_identical() {
    for format in ["ROW", "MIXED"] {
        let format = format!("--binlog-format={format}");
        let site = Site::new(&[], &[&LOGGED[..], &["--log-bin=middle", "--log-slave-updates", &format]].concat());
        let below = Server::replica(Kind::Mariadb, &["--server-id=3"]);
        let (port, account, password) =
            (site.replica.port, crate::support::server::ACCOUNT, crate::support::server::PASSWORD);
        below.sql(&format!(
            "CHANGE MASTER TO master_host='127.0.0.1', master_port={port}, master_user='{account}', \
             master_password='{password}', master_use_gtid=no, master_log_file='middle.000001', master_log_pos=4; \
             START SLAVE"
        ));
        site.source.sql(
            "CREATE DATABASE k; CREATE TABLE k.t (a INT, b DATETIME(6)); \
             INSERT INTO k.t SELECT seq % 90, NOW(6) FROM mysql.seq_1_to_400",
        );
        catch_up_at_once(&site, &["--start", "earliest"]);
        let before = sweeps(&site.replica);
        site.source.sql("DELETE FROM k.t WHERE a < 40 LIMIT 100; UPDATE k.t SET a = a + 1 WHERE a > 50");
        catch_up_at_once(&site, &[]);
        assert!(sweeps(&site.replica) > before);
        wait_until("the replica below", || {
            below.try_sql("CHECKSUM TABLE k.t").is_ok_and(|sum| sum == site.source.sql("CHECKSUM TABLE k.t"))
        });
        let running = below.sql("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND = 'Slave_SQL'");
        assert_eq!(running, "1", "{}", below.sql("SHOW SLAVE STATUS"));
    }
}

/// A statement comes to the rows of a table without a key in the order that they have, and the last may win.
#[test]
fn keyless_rows_keep_the_sources_order_for_statements() {
    let last_wins = "CREATE DATABASE k; USE k; CREATE TABLE last (id INT PRIMARY KEY, a INT); INSERT INTO last VALUES (1, 0); \
        CREATE TABLE t (a INT, n INT); \
        CREATE TRIGGER wins BEFORE UPDATE ON t FOR EACH ROW UPDATE last SET a = NEW.a WHERE id = 1;";
    let as_rows = "SET SESSION binlog_format = ROW; USE k; UPDATE t SET n = 9 WHERE a = 1; DELETE FROM t WHERE a = 2; \
        INSERT INTO t VALUES (2, 0); UPDATE t SET n = 7 WHERE a = 4;";
    let as_statement = "SET SESSION binlog_format = MIXED; USE k; UPDATE t SET n = n + 1;";
    for global in ["ROW", "MIXED"] {
        let site = Site::new(&[&format!("--binlog-format={global}")], &[]);
        site.source.sql(last_wins);
        // Where sessions log rows unless they say otherwise, the first statement tells that there are any.
        let insert = "INSERT INTO k.t VALUES (1, 0), (2, 0), (3, 0), (4, 0)";
        let (format, runs) = if global == "ROW" { ("STATEMENT", 1) } else { ("ROW", 3) };
        site.source.sql(&format!("SET SESSION binlog_format = {format}; {insert}"));
        for _ in 0..runs {
            site.source.sql(&format!("{as_rows} {as_statement}"));
            site.catch_up(&["--start", "earliest", "--batch-transactions", "100"]);
            assert_eq!(site.replica.sql("SELECT a FROM k.t"), site.source.sql("SELECT a FROM k.t"), "{global}");
            site.assert_identical();
        }
    }
}

/// The rows of such a table are a list, and a key that is added numbers it.
#[test]
fn added_key_numbers_keyless_rows_as_on_the_source() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::between((kind, &[]), (kind, if kind == Kind::Mariadb { &LOGGED } else { &[] }));
        site.source.sql(
            "CREATE DATABASE k; USE k; CREATE TABLE t (v VARCHAR(10)); CREATE TABLE u (v VARCHAR(10), n INT); CREATE TABLE w (n INT, m INT); \
             INSERT INTO t VALUES ('abc'), ('hij'), ('3r4f'), ('def'), ('hij'), ('klm'); \
             INSERT INTO u VALUES ('a', 1), ('b', 1), ('a', 1), ('c', 3), ('a', 1);",
        );
        let numbers = (1..=400).map(|n| format!("({n}, {})", n % 7)).collect::<Vec<_>>().join(",");
        site.source.sql(&format!("INSERT INTO k.w VALUES {numbers}"));
        site.catch_up(&["--start", "earliest"]);
        // Folded to what is left, the updated rows would come last, and copies would stand together.
        site.source.sql(
            "USE k; UPDATE t SET v = 'lmn' WHERE v = 'hij'; INSERT INTO t VALUES ('x'), ('y'), ('x'), ('def'); \
             DELETE FROM t WHERE v = 'def' LIMIT 1; UPDATE t SET v = 'z' WHERE v = 'y'; DELETE FROM t WHERE v = 'abc'; \
             DELETE FROM u WHERE v = 'a' LIMIT 1; INSERT INTO u VALUES ('a', 1), ('d', 4); UPDATE u SET n = 9 WHERE v = 'b'; \
             DELETE FROM w WHERE m = 3; UPDATE w SET n = n + 1; INSERT INTO w VALUES (1, 1), (5, 5); UPDATE w SET n = n * 10 WHERE m = 5; \
             UPDATE w SET m = 0 WHERE m = 1; DELETE FROM w WHERE m = 2;",
        );
        site.source.sql(
            "USE k; ALTER TABLE t ADD id INT AUTO_INCREMENT PRIMARY KEY FIRST; ALTER TABLE u ADD id INT AUTO_INCREMENT PRIMARY KEY; \
             ALTER TABLE w ADD id INT AUTO_INCREMENT PRIMARY KEY; UPDATE t SET id = 70 WHERE id = 2; UPDATE w SET id = id + 1000 WHERE id % 3 = 0;",
        );
        site.catch_up(&[]);
        site.assert_identical();
        for table in ["t", "u", "w"] {
            let rows = format!("SELECT * FROM k.{table} ORDER BY id");
            assert_eq!(site.replica.sql(&rows), site.source.sql(&rows), "{kind:?} {table}");
        }
        if kind == Kind::Mariadb {
            let in_place = "SELECT COUNT(*) > 0 FROM mysql.general_log WHERE argument LIKE 'SET SESSION%UPDATE `k`.`w` STRAIGHT_JOIN%'";
            assert_eq!(site.replica.sql(in_place), "1");
        }
    }
}
