//! System-versioned tables: their whole history is the same on the replica.

use crate::support::{Kind, Oracle, Server, Site};

const TABLES: &str = "CREATE DATABASE d; USE d; CREATE TABLE plain (id INT PRIMARY KEY, n INT) WITH SYSTEM VERSIONING; \
    CREATE TABLE named (e TIMESTAMP(6) GENERATED ALWAYS AS ROW END INVISIBLE, id INT, t TIMESTAMP(6) NULL, \
        s TIMESTAMP(6) GENERATED ALWAYS AS ROW START INVISIBLE, n INT, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING; \
    CREATE TABLE hashed (id INT PRIMARY KEY, long_one VARCHAR(4000) UNIQUE, n INT) WITH SYSTEM VERSIONING; \
    CREATE TABLE aria (id INT PRIMARY KEY, n INT) ENGINE=Aria WITH SYSTEM VERSIONING; \
    CREATE TABLE parts (id INT PRIMARY KEY, n INT) WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME \
        (PARTITION h HISTORY, PARTITION c CURRENT); ";

const CHANGES: &str = "INSERT INTO plain VALUES (1, 1), (2, 2), (3, 3); UPDATE plain SET n = n + 1 WHERE id < 3; DELETE FROM plain WHERE id = 2; \
    INSERT INTO named (id, t, n) VALUES (1, '2038-01-19 03:14:07.999999', 1), (2, NULL, 2); UPDATE named SET n = 5 WHERE id = 1; \
    DELETE FROM named WHERE id = 2; INSERT INTO hashed VALUES (1, 'a', 1), (2, NULL, 2); UPDATE hashed SET n = n + 1; \
    REPLACE INTO hashed VALUES (3, 'a', 9); INSERT INTO aria VALUES (1, 1), (2, 2); UPDATE aria SET n = 3 WHERE id = 1; \
    INSERT INTO parts VALUES (1, 1), (2, 2); UPDATE parts SET n = n + 1; DELETE FROM parts WHERE id = 1; ";

/// Tables whose rows come in the same transaction.
const FILLED: &str = "CREATE TABLE filled WITH SYSTEM VERSIONING AS SELECT id, row_end AS kept FROM plain; UPDATE filled SET id = id + 10; \
    CREATE TABLE filled_named (s TIMESTAMP(6) GENERATED ALWAYS AS ROW START INVISIBLE, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END INVISIBLE, \
        PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING AS SELECT id, row_end AS kept FROM plain; DELETE FROM filled_named WHERE id = 1; \
    CREATE TABLE not_versioned AS SELECT *, row_end AS kept FROM plain; ";

/// Every row of every version, in UTC. Where time stamps reach further, current rows end at another moment.
fn history(server: &Server) -> Vec<String> {
    let tables =
        server.sql("SELECT TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'd' ORDER BY 1");
    let of_table = |line: &str| match line.split_once('\t') {
        Some((table, "SYSTEM VERSIONED")) => {
            let (start, end) = if table.contains("named") { ("s", "e") } else { ("row_start", "row_end") };
            format!(
                "SET time_zone='+00:00'; SELECT '{table}', t.*, {start}, IF({end} IN ('2038-01-19 03:14:07.999999', \
                 '2106-02-07 06:28:15.999999'), 'current', {end}) FROM d.{table} FOR SYSTEM_TIME ALL t ORDER BY id, {start}, {end}"
            )
        }
        _ => format!("SET time_zone='+00:00'; SELECT t.* FROM d.{} t ORDER BY 1", line.split('\t').next().unwrap()),
    };
    tables.lines().map(|line| server.sql(&of_table(line))).collect()
}

#[test]
fn current_rows_stay_current_where_time_stamps_reach_further() {
    for image in ["FULL", "MINIMAL", "NOBLOB"] {
        let site = Site::between((Kind::Mariadb, &[]), (Kind::Mariadb118, &[]));
        site.source.sql(&format!("SET time_zone='+00:00'; SET binlog_row_image={image}; {TABLES}{CHANGES}{FILLED}"));
        site.catch_up(&["--start", "earliest"]);
        site.source.sql(&format!(
            "USE d; SET binlog_row_image={image}; UPDATE plain SET n = 8; DELETE FROM named; UPDATE filled SET id = 1; UPDATE aria SET n = 7"
        ));
        site.catch_up(&[]);
        assert_eq!(history(&site.source), history(&site.replica), "{image}");
        let current =
            "SELECT COUNT(*) FROM d.plain; SELECT COUNT(*) FROM d.filled; SELECT COUNT(*) FROM d.parts PARTITION (c)";
        assert_eq!(site.source.sql(current), site.replica.sql(current));
    }
}

#[test]
fn a_replica_whose_time_stamps_end_in_2038_refuses_versions_that_end_later() {
    let site = Site::between((Kind::Mariadb118, &[]), (Kind::Mariadb, &[]));
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.v (id INT PRIMARY KEY) CHARACTER SET latin1 WITH SYSTEM VERSIONING; \
        CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1); INSERT INTO d.v VALUES (1)",
    );
    let ended = site.run(site.replicate(&["--start", "earliest", "--until", "caught-up"]));
    ended.assert_failed_saying(&["a change of rows of d.v", "time stamps end in 2038", &site.source.position()]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t; SELECT COUNT(*) FROM d.v FOR SYSTEM_TIME ALL"), "1\n0");
}

const BY_TRANSACTIONS: &str = "s BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, e BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, \
    PERIOD FOR SYSTEM_TIME (s, e)) ENGINE=InnoDB WITH SYSTEM VERSIONING";

/// The source logs their changes as statements, in any format; the replica's transactions have other numbers, as many and in the same order.
#[test]
fn versions_by_transaction_arrive() {
    let oracle = Oracle::new(Kind::Mariadb, &[], &[]);
    let tables = format!("CREATE DATABASE d; CREATE TABLE d.earlier (id INT PRIMARY KEY, n INT, {BY_TRANSACTIONS}");
    oracle.site.source.sql(&format!("SET sql_log_bin=0; {tables}"));
    oracle.replicas(&tables);
    let source = &oracle.site.source;
    source.sql(&format!(
        "CREATE TABLE d.later (id INT PRIMARY KEY, n INT, {BY_TRANSACTIONS}; CREATE TABLE d.t (id INT PRIMARY KEY)"
    ));
    for table in ["earlier", "later"] {
        source.sql(&format!(
            "USE d; INSERT INTO {table} (id, n) VALUES (1, 1), (2, 2); INSERT INTO t SELECT COUNT(*) + 100 FROM t; UPDATE {table} SET n = n + 1; \
             BEGIN; UPDATE {table} SET n = n + 1; INSERT INTO t SELECT COUNT(*) FROM t; UPDATE {table} SET n = n + 1 WHERE id = 1; COMMIT; \
             DELETE FROM {table} WHERE id = 2; INSERT INTO {table} (id, n) VALUES (2, 7); UPDATE {table} SET n = 8",
        ));
    }
    oracle.native_catches_up();
    oracle.site.catch_up(&["--start", "earliest"]);
    for table in ["earlier", "later"] {
        // Each version by the place of its transactions among all.
        let versions = format!(
            "SELECT id, n, DENSE_RANK() OVER (ORDER BY s), e = 18446744073709551615, DENSE_RANK() OVER (ORDER BY e) \
             FROM d.{table} FOR SYSTEM_TIME ALL ORDER BY id, s, n",
        );
        let versions = oracle.both_say(&versions);
        assert!(versions.lines().count() > 7, "{versions}");
        assert_eq!(oracle.both_say(&format!("SELECT COUNT(DISTINCT s) FROM d.{table} FOR SYSTEM_TIME ALL")), "5");
    }
    // A server registers no transaction that has changed another table after the versioned one.
    let registered = "SELECT COUNT(*), COUNT(DISTINCT transaction_id) FROM mysql.transaction_registry";
    assert!(!oracle.both_say(registered).starts_with('0'));
}

/// A server looks once a statement into which partition history goes.
#[test]
fn histories_in_partitions_arrive() {
    let oracle = Oracle::new(Kind::Mariadb, &["--binlog-row-event-max-size=256"], &[]);
    let source = &oracle.site.source;
    source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY COMMENT ' PARTITION BY SYSTEM_TIME LIMIT ', n INT) \
         WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME INTERVAL 1 HOUR PARTITIONS 3; \
         CREATE TABLE fixed (id INT PRIMARY KEY, n INT) WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME LIMIT 30 PARTITIONS 5; \
         CREATE TABLE auto (id INT PRIMARY KEY, n INT) WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME LIMIT 7 AUTO; \
         CREATE TABLE many (id INT PRIMARY KEY, n INT, c CHAR(60) DEFAULT 'many bytes') WITH SYSTEM VERSIONING \
         PARTITION BY SYSTEM_TIME LIMIT 1300 PARTITIONS 4; \
         CREATE TABLE log (n INT AUTO_INCREMENT PRIMARY KEY, id INT); \
         CREATE TRIGGER w AFTER UPDATE ON auto FOR EACH ROW INSERT INTO log (id) VALUES (NEW.id)",
    );
    for table in ["t", "fixed", "auto"] {
        // Statements of several events, and of one.
        source.sql(&format!(
            "USE d; INSERT INTO {table} SELECT seq, 0 FROM mysql.seq_1_to_40; UPDATE {table} SET n = n + 1; UPDATE {table} SET n = 5 WHERE id < 5; \
             UPDATE {table} SET n = n + 1; DELETE FROM {table} WHERE id < 3; BEGIN; UPDATE {table} SET n = 6 WHERE id = 7; \
             UPDATE {table} SET n = 8 WHERE id = 9; COMMIT; UPDATE {table} SET n = n + 1; DELETE FROM {table} WHERE id > 30",
        ));
    }
    // Statements of a hundred thousand bytes: they may not be divided, wherever chunks of other rows would end.
    source.sql("USE d; INSERT INTO many (id, n) SELECT seq, 0 FROM mysql.seq_1_to_1000; UPDATE many SET n = n + 1; UPDATE many SET n = n + 1");
    oracle.native_catches_up();
    oracle.site.catch_up(&["--start", "earliest"]);
    oracle.both_say("SELECT * FROM d.log");
    for table in ["t", "fixed", "auto", "many"] {
        let parts = oracle.both_say(&format!(
            "SELECT PARTITION_NAME FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = '{table}' ORDER BY 1"
        ));
        for part in parts.lines() {
            oracle.both_say(&format!("SELECT id, n FROM d.{table} PARTITION ({part}) ORDER BY 1, 2"));
        }
        assert!(parts.lines().count() > 2, "{parts}");
    }
    // As statements, each row would be counted.
    source.sql("UPDATE d.fixed SET n = 100");
    let ended = oracle.site.run(oracle.site.replicate(&["--dialect", "sql", "--until", "caught-up"]));
    ended.assert_failed_saying(&[
        "a change of rows of d.fixed",
        "SYSTEM_TIME LIMIT",
        "--dialect sql",
        &source.position(),
    ]);
    oracle.site.catch_up(&[]);
}
