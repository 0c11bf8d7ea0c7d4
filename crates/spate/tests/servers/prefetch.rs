//! `--prefetch`: rows are looked up by other connections before they are applied.

use serde_json::Value;
use spate_lab::vendor::Vendor;

use crate::support::{Kind, Site, contents};

/// Keys and secondary indexes of each kind that a lookup is written for.
const TABLES: &str = "CREATE DATABASE d CHARACTER SET utf8mb4; USE d; \
    CREATE TABLE plain (id INT PRIMARY KEY, k INT NOT NULL, pad CHAR(100), KEY (k)); \
    CREATE TABLE texts (a VARCHAR(20) COLLATE utf8mb4_general_ci, b DATE, n INT, s VARCHAR(40), l VARCHAR(20) CHARACTER SET latin1, \
        tx TEXT, dt DATETIME(3), ts TIMESTAMP NULL, de DECIMAL(20,5), e ENUM('x','y','z'), bi BINARY(4), f DOUBLE, \
        PRIMARY KEY (a, b, n), KEY (s, n), KEY (l), KEY (tx(10)), KEY (dt), KEY (ts, e), KEY (de), KEY (bi, f)); \
    CREATE TABLE uniques (id BIGINT UNSIGNED PRIMARY KEY, u INT, g INT AS (u + 1) STORED, UNIQUE (u), KEY (g)); \
    CREATE TABLE `odd 'name` (`the 'key` INT PRIMARY KEY, `a b` INT, KEY `the ``index` (`a b`))";

/// The numbers from 1 to 20,000.
const NUMBERS: &str = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 20000)";

const FILL: &str = "INSERT INTO d.plain {n} SELECT i * 3, i, 'x' FROM n; \
    INSERT INTO d.texts {n} SELECT CONCAT('kÄy''\\\\', i % 100), DATE '2020-02-29' + INTERVAL i % 7 DAY, i, REPEAT('ü', i % 30), \
        CONCAT('é', i), REPEAT(i, 20), '2026-11-23 01:02:03.5', FROM_UNIXTIME(1700000000 + i), i / 7, 1 + i % 3, CHAR(i % 256), i / 3 FROM n; \
    INSERT INTO d.uniques (id, u) {n} SELECT 18446744073709551615 - i, i FROM n; \
    INSERT INTO d.`odd 'name` {n} SELECT i, NULLIF(i % 5, 0) FROM n";

const CHANGE: &str = "BEGIN; UPDATE d.plain SET k = k + 1 WHERE id % 2 = 0; UPDATE d.plain SET pad = 'y' WHERE id % 5 = 0; \
    DELETE FROM d.plain WHERE id % 7 = 0; INSERT INTO d.plain {n} SELECT i * 3 + 1, i, 'z' FROM n; \
    UPDATE d.texts SET s = CONCAT(s, 'x'), l = 'ä', dt = dt + INTERVAL 1 SECOND, ts = NULL, tx = NULL, de = -de, f = f * 2; \
    UPDATE d.texts SET a = CONCAT(a, '+') WHERE n % 2 = 0; DELETE FROM d.texts WHERE n % 3 = 0; \
    UPDATE d.uniques SET u = -u; DELETE FROM d.uniques WHERE u % 4 = 0; \
    UPDATE d.`odd 'name` SET `a b` = 7 WHERE `the 'key` % 2 = 0; COMMIT";

fn numbered(sql: &str) -> String {
    sql.replace("{n}", NUMBERS)
}

fn counter(site: &Site, name: &str) -> u64 {
    let text = site.replica.sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'"));
    text.split_whitespace().last().unwrap().parse().unwrap()
}

fn deep_recursion(kind: Kind) -> &'static str {
    match kind.vendor() {
        Vendor::MariaDb => "SET SESSION max_recursive_iterations=100000",
        Vendor::MySql => "SET SESSION cte_max_recursion_depth=100000",
    }
}

/// Rows of all kinds are looked up by their keys, nobody is disturbed, and the replica is the source.
fn rows_are_looked_up(source: Kind, replica: Kind, options: &[&str]) {
    let site = Site::between((source, &[]), (replica, &[]));
    site.source.sql(TABLES);
    site.source.sql(&format!("{}; {}", deep_recursion(source), numbered(FILL)));
    site.catch_up(&[&["--start", "earliest", "--prefetch", "never"], options].concat());
    site.source.sql(&format!("{}; {}", deep_recursion(source), numbered(CHANGE)));
    let scanned = counter(&site, "Handler_read_rnd_next");
    let ended = site.catch_up(&[&["--json", "--prefetch", "always"], options].concat());
    let scanned = counter(&site, "Handler_read_rnd_next") - scanned;
    assert!(!ended.output.contains("spate prefetch"), "{}", ended.output);
    let report = ended.output.lines().find(|line| line.starts_with('{')).unwrap();
    let report: Value = serde_json::from_str(report).unwrap();
    let (prefetched, changes) =
        (report["prefetched_row_changes"].as_u64().unwrap(), report["net_row_changes"].as_u64().unwrap());
    // How many is a matter of time: what comes too late is dropped.
    assert!(changes > 60_000 && prefetched > 0 && prefetched <= changes, "{report}");
    // A list of rows is read once. If one lookup were no lookup, it would read the whole table for each of its rows.
    assert!(scanned < 4 * changes, "{scanned} rows were read one after the other for {changes} changes");
    // CHECKSUM TABLE of MariaDB is not always the same for a stored column.
    contents::assert_same(&site.source, &site.replica);
}

#[test]
fn replayed_rows_are_looked_up_before() {
    rows_are_looked_up(Kind::Mariadb, Kind::Mariadb, &[]);
}

#[test]
fn replayed_rows_are_looked_up_before_on_mysql() {
    rows_are_looked_up(Kind::Mysql, Kind::Mysql, &[]);
}

#[test]
fn rows_as_statements_are_looked_up_before() {
    rows_are_looked_up(Kind::Mariadb, Kind::Mariadb, &["--dialect", "sql"]);
}

#[test]
fn rows_as_statements_are_looked_up_before_on_mysql() {
    rows_are_looked_up(Kind::Mysql, Kind::Mysql, &["--dialect", "sql"]);
}

#[test]
fn rows_are_looked_up_before_between_the_vendors() {
    rows_are_looked_up(Kind::Mariadb, Kind::Mysql, &[]);
    rows_are_looked_up(Kind::Mysql, Kind::Mariadb, &[]);
}

/// Readers are killed wherever they are seen.
#[test]
fn rows_arrive_without_readers() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql(TABLES);
        site.source.sql(&format!("{}; {}", deep_recursion(kind), numbered(FILL)));
        site.catch_up(&["--start", "earliest", "--prefetch", "never"]);
        site.source.sql(&format!("{}; {}", deep_recursion(kind), numbered(CHANGE)));
        let mut running = site.spawn(site.replicate(&["--until", "caught-up", "--prefetch", "always"]));
        while running.is_running() {
            let readers = "SELECT id FROM information_schema.processlist WHERE info LIKE 'SELECT COUNT(a.%'";
            // MySQL does not show a list with a statement whose bytes are no UTF-8.
            for id in site.replica.try_sql(readers).unwrap_or_default().lines() {
                // It may be gone by now.
                let _killed = site.replica.try_sql(&format!("KILL {id}"));
            }
        }
        let ended = running.wait();
        assert!(ended.status.success(), "{}", ended.output);
        contents::assert_same(&site.source, &site.replica);
    }
}
