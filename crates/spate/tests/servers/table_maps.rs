//! What a table map says of its table beyond its rows, held against what Spate has read of the replica's: tables are altered on both
//! servers without a trace in the binlog while Spate runs, as a definition does that Spate misread.

use crate::support::program::Running;
use crate::support::{Kind, Site};

const FULL: &[&str] = &["--binlog-row-metadata=FULL"];

/// What Spate says when it reads definitions once more.
const READ_AGAIN: &str = "reading the replica's definitions once more";

/// What Spate says of a table that is another on the replica.
const DIFFERS: &str = "on the replica is not what it is on the source";

/// Three rows by the key `a`.
const ROWS: &str = "INSERT INTO d.t (a, b, v) VALUES (1, 10, 0), (2, 20, 0), (3, 30, 0);";

/// Two rows that only `b` tells apart.
const TWINS: &str = "INSERT INTO d.t (a, b, v) VALUES (7, 71, 1), (7, 72, 2), (8, 81, 1), (8, 82, 1)";

/// Changes whose effect is another if `a` is taken for the key where `b` is.
const BY_THE_OTHER_KEY: &str = "DELETE FROM d.t WHERE b = 82; \
    BEGIN; UPDATE d.t SET v = 5 WHERE b = 71; DELETE FROM d.t WHERE b = 72; COMMIT; \
    BEGIN; UPDATE d.t SET v = 6 WHERE b = 10; INSERT INTO d.t (a, b, v) VALUES (1, 11, 1); DELETE FROM d.t WHERE b = 10; COMMIT;";

const KEY_MOVES: &str = "ALTER TABLE d.t DROP PRIMARY KEY, ADD PRIMARY KEY (b)";

fn table(site: &Site) {
    site.source.sql(
        "CREATE DATABASE IF NOT EXISTS d; DROP TABLE IF EXISTS d.t; \
         CREATE TABLE d.t (a INT NOT NULL, b INT NOT NULL, v INT, w VARCHAR(10), PRIMARY KEY (a))",
    );
    site.source.sql(ROWS);
}

/// One that does not ask the replica whether somebody has changed definitions.
fn running(site: &Site, options: &[&str]) -> Running {
    let mut command = site.replicate(&[&["--start", "earliest"], options].concat());
    command.env("SPATE_BLIND_TO", "others");
    site.spawn(command)
}

fn change_by_the_other_key(site: &Site) {
    for sql in [TWINS, BY_THE_OTHER_KEY] {
        site.source.sql(sql);
        site.wait_applied();
    }
}

/// How often a program said something.
fn times(said: &str, what: &str) -> usize {
    said.matches(what).count()
}

/// The key moves from one column to another, and nothing but the table map says so.
fn a_moved_key_is_noticed(kind: Kind, options: &[&str]) {
    let site = Site::between((kind, FULL), (kind, &[]));
    let running = running(&site, options);
    table(&site);
    site.wait_applied();
    site.both(KEY_MOVES);
    change_by_the_other_key(&site);
    site.assert_identical();
    let ended = running.terminate();
    ended.assert_says(&[READ_AGAIN, "primary key"]);
    assert_eq!((times(&ended.output, READ_AGAIN), times(&ended.output, DIFFERS)), (1, 0), "{}", ended.output);
}

#[test]
fn a_moved_key_is_noticed_on_mariadb() {
    a_moved_key_is_noticed(Kind::Mariadb, &[]);
}

#[test]
fn a_moved_key_is_noticed_on_mysql() {
    a_moved_key_is_noticed(Kind::Mysql, &[]);
}

#[test]
fn a_moved_key_is_noticed_where_rows_are_statements() {
    a_moved_key_is_noticed(Kind::Mariadb, &["--dialect", "sql"]);
}

/// Rows that were known by their key are known by all their columns.
fn a_dropped_key_is_noticed(kind: Kind) {
    let site = Site::between((kind, FULL), (kind, &[]));
    let running = running(&site, &[]);
    table(&site);
    site.wait_applied();
    site.both("ALTER TABLE d.t DROP PRIMARY KEY");
    change_by_the_other_key(&site);
    site.assert_identical();
    let ended = running.terminate();
    assert_eq!((times(&ended.output, READ_AGAIN), times(&ended.output, DIFFERS)), (1, 0), "{}", ended.output);
}

#[test]
fn a_dropped_key_is_noticed_on_mariadb() {
    a_dropped_key_is_noticed(Kind::Mariadb);
}

#[test]
fn a_dropped_key_is_noticed_on_mysql() {
    a_dropped_key_is_noticed(Kind::Mysql);
}

/// The table is met in the midst of a transaction, of which a part is on its way to the replica already.
#[test]
fn a_moved_key_is_noticed_within_a_large_transaction() {
    let site = Site::new(FULL, &[]);
    site.both("CREATE DATABASE d; CREATE TABLE d.large (id INT PRIMARY KEY, v MEDIUMBLOB)");
    let running = running(&site, &["--memory", "64MiB"]);
    table(&site);
    site.source.sql("INSERT INTO d.large VALUES (0, '')");
    site.wait_applied();
    site.both(KEY_MOVES);
    site.source.sql(&format!(
        "BEGIN; INSERT INTO d.large SELECT seq, REPEAT('x', 1000000) FROM mysql.seq_1_to_30; {TWINS}; \
         DELETE FROM d.t WHERE b = 82; UPDATE d.t SET v = 5 WHERE b = 71; DELETE FROM d.t WHERE b = 72; \
         UPDATE d.large SET v = 'y' WHERE id > 25; COMMIT"
    ));
    site.wait_applied();
    site.assert_identical();
    let ended = running.terminate();
    assert_eq!((times(&ended.output, READ_AGAIN), times(&ended.output, DIFFERS)), (1, 0), "{}", ended.output);
}

/// What a table map says without FULL: types, NULL, signs, character sets, and how many columns there are.
fn other_traces_of_a_moved_key_are_noticed(kind: Kind, alterations: &[&str]) {
    let site = Site::of(kind);
    let running = running(&site, &[]);
    for (number, alteration) in alterations.iter().enumerate() {
        table(&site);
        site.wait_applied();
        site.both(&format!("{KEY_MOVES}, {alteration}"));
        change_by_the_other_key(&site);
        site.assert_identical();
        assert_eq!(times(&running.said(), READ_AGAIN), number + 1, "{alteration}: {}", running.said());
    }
    let ended = running.terminate();
    assert_eq!(times(&ended.output, DIFFERS), 0, "{}", ended.output);
}

#[test]
fn other_traces_of_a_moved_key_are_noticed_on_mariadb() {
    other_traces_of_a_moved_key_are_noticed(
        Kind::Mariadb,
        &["MODIFY a INT NULL", "MODIFY v BIGINT", "ADD c INT FIRST", "DROP w", "MODIFY w VARCHAR(11)"],
    );
}

#[test]
fn other_traces_of_a_moved_key_are_noticed_on_mysql() {
    other_traces_of_a_moved_key_are_noticed(
        Kind::Mysql,
        &["MODIFY a INT NULL", "MODIFY v INT UNSIGNED", "ADD c INT FIRST", "MODIFY w VARCHAR(40) CHARACTER SET latin1"],
    );
}

/// A replica with another key, other names, another sign: said once, and rows are applied as they were before.
fn a_replica_that_differs_is_taken_as_it_is(kind: Kind) {
    let site = Site::between((kind, FULL), (kind, &[]));
    site.source.sql(
        "SET sql_log_bin=0; CREATE DATABASE d; CREATE TABLE d.t (a INT, b INT NOT NULL, v INT, PRIMARY KEY (a), UNIQUE (b)); \
         CREATE TABLE d.u (id INT PRIMARY KEY, n INT, s VARCHAR(9) CHARACTER SET ascii)",
    );
    site.replica.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (a INT NOT NULL, b INT NOT NULL, v INT, PRIMARY KEY (b)); \
         CREATE TABLE d.u (id INT PRIMARY KEY, n INT UNSIGNED, text VARCHAR(9) CHARACTER SET latin1, extra INT)",
    );
    let running = running(&site, &[]);
    for round in 0..4 {
        let from = round * 100;
        site.source.sql(&format!(
            "FLUSH TABLES; INSERT INTO d.t VALUES ({from}, {from}, 1), ({from} + 1, {from} + 1, 2), ({from} + 2, {from} + 2, 3); \
             BEGIN; UPDATE d.t SET v = 9 WHERE a = {from}; UPDATE d.t SET b = -b - 1 WHERE a = {from} + 1; \
             DELETE FROM d.t WHERE a = {from} + 2; COMMIT; INSERT INTO d.u VALUES ({from}, 1, 'x'); UPDATE d.u SET n = n + 1"
        ));
        site.wait_applied();
    }
    let rows = "SELECT a, b, v FROM d.t ORDER BY a; SELECT COUNT(*), SUM(n) FROM d.u";
    assert_eq!(site.source.sql(rows), site.replica.sql(rows));
    let ended = running.terminate();
    ended.assert_says(&["table d.t", "primary key", "table d.u", "`text`", "unsigned"]);
    assert_eq!((times(&ended.output, READ_AGAIN), times(&ended.output, DIFFERS)), (0, 2), "{}", ended.output);
}

#[test]
fn a_replica_that_differs_is_taken_as_it_is_on_mariadb() {
    a_replica_that_differs_is_taken_as_it_is(Kind::Mariadb);
}

#[test]
fn a_replica_that_differs_is_taken_as_it_is_on_mysql() {
    a_replica_that_differs_is_taken_as_it_is(Kind::Mysql);
}

/// Only the source is altered while Spate runs: the definitions are read once more, and then the difference is a fact.
#[test]
fn lasting_difference_is_read_once() {
    let site = Site::new(FULL, &[]);
    let running = running(&site, &[]);
    table(&site);
    site.wait_applied();
    site.source.sql("SET sql_log_bin=0; ALTER TABLE d.t CHANGE w x VARCHAR(10), ADD UNIQUE (b), DROP PRIMARY KEY, ADD PRIMARY KEY (b)");
    for n in 0..5 {
        site.source.sql(&format!(
            "FLUSH TABLES; UPDATE d.t SET v = v + 1, x = {n}; INSERT INTO d.t VALUES (9{n}, 9{n}, {n}, 'x')"
        ));
        site.wait_applied();
    }
    let rows = "SELECT * FROM d.t ORDER BY a";
    assert_eq!(site.source.sql(rows), site.replica.sql(rows));
    let ended = running.terminate();
    assert_eq!((times(&ended.output, READ_AGAIN), times(&ended.output, DIFFERS)), (1, 1), "{}", ended.output);
}

/// Nothing is said of tables that are the same on both servers, whatever their columns and keys are.
fn tables_that_are_the_same_agree(source: Kind, replica: Kind, tables: &str) {
    let site = Site::between((source, FULL), (replica, &[]));
    site.source.sql(&format!("CREATE DATABASE d2; CREATE DATABASE d; USE d; {tables}"));
    if (source, replica) == (Kind::Mariadb, Kind::Mariadb) {
        site.source.sql("CREATE SEQUENCE d2.q; SELECT NEXTVAL(d2.q)");
    }
    let names = site.source.sql("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'd'");
    for name in names.lines() {
        site.source.sql(&format!("SET sql_mode = ''; INSERT INTO d.`{name}` () VALUES ()"));
    }
    let ended = site.catch_up(&["--start", "earliest"]);
    assert_eq!((times(&ended.output, READ_AGAIN), times(&ended.output, "not what")), (0, 0), "{}", ended.output);
}

const TABLES_OF_BOTH: &str = "\
    CREATE TABLE numbers (a TINYINT, b SMALLINT UNSIGNED, c MEDIUMINT, d INT UNSIGNED, e BIGINT, f FLOAT, g DOUBLE(9,2), \
        h DECIMAL(12,3) UNSIGNED, i DECIMAL, y YEAR, j INT UNSIGNED NOT NULL, k BIT(1), l BIT(33), m INT(5) ZEROFILL, n BOOL); \
    CREATE TABLE years (y YEAR, a INT UNSIGNED, b INT, z YEAR, c INT UNSIGNED PRIMARY KEY); \
    CREATE TABLE times (a DATE, b TIME, c TIME(1), d TIME(6), e DATETIME, f DATETIME(3) NOT NULL, g TIMESTAMP NULL, h TIMESTAMP(5) NULL); \
    CREATE TABLE texts (a CHAR(0), b CHAR(255), c VARCHAR(1), d VARCHAR(5000), e TINYTEXT, f TEXT, g MEDIUMTEXT, h LONGTEXT, \
        i BINARY(7), j VARBINARY(300), k TINYBLOB, l BLOB, m MEDIUMBLOB, n LONGBLOB, o CHAR(9) CHARACTER SET latin1, \
        p VARCHAR(9) CHARACTER SET ucs2, q TEXT CHARACTER SET sjis, r CHAR(3) CHARACTER SET ascii, s TEXT(10), t BLOB(70000), \
        u ENUM('a', 'b''c', 'd,e'), v SET('x', 'y'), w SET('1','2','3','4','5','6','7','8','9'), x CHAR(5) CHARACTER SET utf8mb3); \
    CREATE TABLE shapes (a GEOMETRY, b POINT, c LINESTRING, d POLYGON, e MULTIPOINT, f GEOMETRYCOLLECTION); \
    CREATE TABLE json (id INT PRIMARY KEY, j JSON); \
    CREATE TABLE computed (id INT PRIMARY KEY, v INT AS (id + 1) VIRTUAL, s INT AS (id + 2) STORED, KEY (v)); \
    CREATE TABLE keyless (a INT NOT NULL, b INT); \
    CREATE TABLE unique_only (a INT NOT NULL, b INT, c INT NOT NULL, d INT NOT NULL, UNIQUE z (b), UNIQUE y (d, c), UNIQUE x (a)); \
    CREATE TABLE prefix_key (a VARCHAR(50), b INT, t TEXT, PRIMARY KEY (t(10), b, a)); \
    CREATE TABLE prefix_unique (a VARCHAR(50) NOT NULL, b INT NOT NULL, UNIQUE (a(3)), UNIQUE (b)); \
    CREATE TABLE `Größe` (`Länge` INT, `naïve` INT, `ключ` INT, PRIMARY KEY (`ключ`, `Länge`)); \
    CREATE TABLE parts (id INT, n INT, PRIMARY KEY (n, id)) PARTITION BY HASH (n) PARTITIONS 3; ";

#[test]
fn tables_that_are_the_same_agree_on_mariadb() {
    tables_that_are_the_same_agree(
        Kind::Mariadb,
        Kind::Mariadb,
        &format!(
            "{TABLES_OF_BOTH} CREATE TABLE uuids (a UUID, b INET6 PRIMARY KEY, c INET4); \
             CREATE TABLE compressed (a VARCHAR(900) COMPRESSED, b TEXT COMPRESSED, c BLOB COMPRESSED); \
             CREATE TABLE versioned (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING; \
             CREATE TABLE explicit (id INT PRIMARY KEY, v INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, \
                e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING; \
             CREATE TABLE long_unique (id INT PRIMARY KEY, t TEXT, UNIQUE (t)); CREATE TABLE long_only (t TEXT NOT NULL, UNIQUE (t)); \
             CREATE TABLE invisible (id INT PRIMARY KEY, v INT INVISIBLE, w INT); \
             CREATE TABLE myisam (id INT PRIMARY KEY, v INT UNSIGNED) ENGINE=MyISAM"
        ),
    );
}

#[test]
fn tables_that_are_the_same_agree_on_mysql() {
    tables_that_are_the_same_agree(
        Kind::Mysql,
        Kind::Mysql,
        &format!(
            "{TABLES_OF_BOTH} CREATE TABLE functional (id INT PRIMARY KEY, f INT, KEY ((f + 1)), UNIQUE ((f * 2))); \
             CREATE TABLE invisible (id INT PRIMARY KEY, v INT INVISIBLE, w INT); CREATE TABLE gb (a CHAR(7) CHARACTER SET gb18030); \
             SET sql_generate_invisible_primary_key = 1; CREATE TABLE hidden_key (v INT)"
        ),
    );
}

#[test]
fn tables_that_are_the_same_agree_between_vendors() {
    let tables = "CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, v VARCHAR(30), c CHAR(4) CHARACTER SET latin1, b BLOB, y YEAR, u INT UNSIGNED, \
        d DECIMAL(9,3), e ENUM('a','b'), g DATETIME(3))";
    tables_that_are_the_same_agree(Kind::Mysql, Kind::Mariadb, tables);
    tables_that_are_the_same_agree(Kind::Mariadb, Kind::Mysql, tables);
}
