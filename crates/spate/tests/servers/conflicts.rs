//! `--on-conflict repair`: a replica that differs becomes what the source says, as far as the changes go.

use crate::support::Site;

/// Tables on both servers; then `tamper` on the replica, `changes` on the source (each a transaction), and a repair.
/// Afterwards both are identical. Returns the site and what the program said.
fn repaired(tables: &str, tamper: &str, changes: &[&str]) -> (Site, String) {
    let site = Site::plain();
    site.both(&format!("CREATE DATABASE d; USE d; {tables}"));
    site.replica.sql(&format!("USE d; {tamper}"));
    for change in changes {
        site.source.sql(&format!("USE d; {change}"));
    }
    let refused = site.run(site.replicate(&["--start", "gtid:", "--until", "caught-up"]));
    refused.assert_failed_saying(&["--skip"]);
    let ended = site.catch_up(&["--on-conflict", "repair"]);
    site.assert_identical();
    assert_eq!(site.replica.sql("SHOW TABLES FROM spate LIKE 'repair\\_%'"), "", "scratch tables are left over");
    (site, ended.output)
}

/// What was counted: table, repair, number.
fn counted(site: &Site) -> String {
    site.replica.sql("SELECT table_name, repair, repairs FROM spate.repaired ORDER BY 1, 2").replace('\t', " ")
}

const TABLE: &str = "CREATE TABLE t (id INT PRIMARY KEY, u VARCHAR(20) UNIQUE, v INT); \
                     INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3);";

#[test]
fn present_and_missing_rows_are_repaired() {
    let (site, said) = repaired(
        TABLE,
        "INSERT INTO t VALUES (10, 'old', 9); DELETE FROM t WHERE id IN (1, 2)",
        &[
            "INSERT INTO t VALUES (9, 'before', 0)",
            "INSERT INTO t VALUES (10, 'j', 10)",
            "UPDATE t SET v = 5 WHERE id = 1",
            "DELETE FROM t WHERE id = 2",
            "INSERT INTO t VALUES (11, 'after', 0)",
        ],
    );
    assert_eq!(counted(&site), "t absent 1\nt inserted 1\nt overwritten 1");
    for part in [
        "insert into d.t, the row with id=10: the row was there already and was overwritten",
        "update of d.t, the row with id=1: the row was missing and was inserted",
        "delete from d.t, the row with id=2: the row was missing already",
        "repaired transaction 0-1-",
        " at source.000001:",
    ] {
        assert!(said.contains(part), "'{part}' is missing in: {said}");
    }
}

#[test]
fn rows_with_colliding_unique_values_are_repaired() {
    // Row 20 meets row 21 by u, row 22 by w, and itself by id.
    let (site, said) = repaired(
        "CREATE TABLE t (id INT PRIMARY KEY, u VARCHAR(20) UNIQUE, w INT, x CHAR(3), v INT, UNIQUE both_of (w, x))",
        "INSERT INTO t VALUES (20, 'z', 9, 'z', 0), (21, 'A ', 2, 'y', 0), (22, 'q', 1, 'x', 0), (23, 'r', 1, NULL, 0)",
        &["INSERT INTO t VALUES (23, 'r', 1, NULL, 0)", "INSERT INTO t VALUES (20, 'a', 1, 'x', 7)"],
    );
    assert_eq!(counted(&site), "t overwritten 1\nt removed 1");
    for part in ["after removing the row with id=21, which had its value of the key u", "id=22", "the key both_of"] {
        assert!(said.contains(part), "'{part}' is missing in: {said}");
    }
}

#[test]
fn colliding_updates_and_chains_are_repaired() {
    let (site, _) = repaired(
        TABLE,
        "INSERT INTO t VALUES (30, 'x', 0), (31, 'y', 0); DELETE FROM t WHERE id = 3; UPDATE t SET u = 'p' WHERE id = 2",
        &[
            // The new value is row 30's; the new key is row 31's; the missing row's new value is row 2's.
            "UPDATE t SET u = 'x' WHERE id = 1",
            "UPDATE t SET id = 31 WHERE id = 1",
            "UPDATE t SET u = 'p' WHERE id = 3",
            // Row 2 is gone by now.
            "UPDATE t SET u = 'x2', v = 7 WHERE id = 2",
            "UPDATE t SET id = 3000 WHERE id = 3",
        ],
    );
    assert_eq!(counted(&site), "t inserted 2\nt overwritten 1\nt removed 1");
}

#[test]
fn rows_with_many_kinds_of_keys_are_repaired() {
    let (site, _) = repaired(
        "CREATE TABLE p (a VARCHAR(10), b BLOB, UNIQUE (a, b(3))); \
         CREATE TABLE g (id INT PRIMARY KEY, s VARCHAR(20), l INT AS (LENGTH(s)) STORED, UNIQUE (l)); \
         CREATE TABLE f (id INT PRIMARY KEY, f DOUBLE, d DECIMAL(10, 3), t TIMESTAMP(3) NULL, e ENUM('x', 'y'), \
            UNIQUE (f), UNIQUE (d), UNIQUE (t, e)); \
         CREATE TABLE h (id INT PRIMARY KEY, b TEXT, UNIQUE (b)); CREATE TABLE n (a INT, b INT)",
        "INSERT INTO p VALUES ('k', 'abcOLD'); INSERT INTO g (id, s) VALUES (5, 'xyz'); \
         INSERT INTO f VALUES (1, 0.1, 5.125, NULL, 'x'), (2, 7, 1.5, '2020-10-25 02:30:00.125', 'y'); \
         INSERT INTO h VALUES (5, 'Long One')",
        &[
            "INSERT INTO p VALUES ('K', 'abcdef')",
            "INSERT INTO g (id, s) VALUES (1, 'abc')",
            "INSERT INTO f VALUES (9, 0.1, 1.5, '2020-10-25 02:30:00.125', 'y')",
            "INSERT INTO h VALUES (1, 'long one')",
            "SET sql_log_bin=0; INSERT INTO n VALUES (1, 1), (2, 2); SET sql_log_bin=1; UPDATE n SET b = 5 WHERE a = 1; \
             DELETE FROM n WHERE a = 2",
        ],
    );
    assert_eq!(counted(&site), "f removed 1\ng removed 1\nh removed 1\nn absent 1\nn inserted 1\np removed 1");
}

#[test]
fn rows_under_foreign_keys_are_repaired() {
    let (site, _) = repaired(
        "CREATE TABLE p (id INT PRIMARY KEY, u INT UNIQUE); \
         CREATE TABLE r (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)); \
         CREATE TABLE q (id INT PRIMARY KEY, u INT UNIQUE); \
         CREATE TABLE c (id INT PRIMARY KEY, q INT, FOREIGN KEY (q) REFERENCES q (id) ON DELETE CASCADE)",
        "INSERT INTO p VALUES (1, 10), (2, 20); INSERT INTO r VALUES (1, 1), (2, 2); \
         INSERT INTO q VALUES (1, 10), (2, 20); INSERT INTO c VALUES (1, 1), (2, 2); DELETE FROM c WHERE id = 2",
        &[
            "INSERT INTO p VALUES (1, 11), (2, 10); INSERT INTO r VALUES (1, 1), (2, 2)",
            "INSERT INTO q VALUES (1, 11), (2, 10); INSERT INTO c VALUES (1, 1), (2, 2)",
            "DELETE FROM q WHERE id = 2",
        ],
    );
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.c"), "1");
}

#[test]
fn change_beyond_repair_stops_after_earlier_transactions() {
    for (changes, error) in [
        ("SET binlog_format=STATEMENT; INSERT INTO t VALUES (40, 'x', 0)", "Only row changes can be repaired"),
        ("SET binlog_row_image=MINIMAL; UPDATE t SET v = 8 WHERE id = 1", "logged only a part of it"),
    ] {
        let site = Site::plain();
        site.both(&format!("CREATE DATABASE d; USE d; {TABLE}"));
        site.replica.sql("USE d; INSERT INTO t VALUES (40, 'old', 9), (50, 'old50', 0); DELETE FROM t WHERE id = 1");
        site.source.sql("INSERT INTO d.t VALUES (49, 'i', 0)");
        site.source.sql("INSERT INTO d.t VALUES (50, 'j', 0)");
        let before = site.source.sql("SELECT @@gtid_binlog_pos");
        site.source.sql(&format!("USE d; {changes}"));
        let bad = site.source.sql("SELECT @@gtid_binlog_pos");
        site.source.sql("INSERT INTO d.t VALUES (51, 'k', 0)");
        let command = site.replicate(&["--start", "gtid:", "--until", "caught-up", "--on-conflict", "repair"]);
        site.run(command).assert_failed_saying(&[&bad, "d.t", error, "--skip"]);
        assert_eq!(site.checkpoint(), before);
        assert_eq!(site.replica.sql("SELECT u FROM d.t WHERE id = 50"), "j", "the repair before it is kept");
        assert_eq!(counted(&site), "t overwritten 1");
    }
}

#[test]
fn repairs_fire_no_triggers() {
    let site = Site::plain();
    site.both(
        "CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY, u INT UNIQUE); CREATE TABLE gone (id INT); \
         CREATE TRIGGER tr AFTER DELETE ON t FOR EACH ROW INSERT INTO gone VALUES (OLD.id)",
    );
    site.replica.sql("INSERT INTO d.t VALUES (1, 1), (2, 2)");
    site.source.sql("INSERT INTO d.t VALUES (1, 10)");
    let repair = ["--start", "gtid:", "--on-conflict", "repair"];
    site.catch_up(&repair);
    assert_eq!(site.replica.sql("SELECT u FROM d.t WHERE id = 1; SELECT COUNT(*) FROM d.gone"), "10\n0");
    site.source.sql("INSERT INTO d.t VALUES (5, 2)");
    let ended = site.run(site.replicate(&[&repair[2..], &["--until", "caught-up"]].concat()));
    ended.assert_failed_saying(&["would fire the trigger tr", "d.t", "id=5"]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.gone"), "0");
    site.replica.sql("DROP TRIGGER d.tr");
    site.catch_up(&repair[2..]);
    site.replica.sql("DROP TABLE d.gone");
    site.source.sql("SET sql_log_bin=0; DROP TABLE d.gone");
    site.assert_identical();
}

#[test]
fn replica_of_the_replica_follows_repairs() {
    let site = Site::new(&[], &["--log-bin=replica", "--binlog-format=MIXED"]);
    site.both(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, u INT UNIQUE); INSERT INTO d.t VALUES (1, 1), (2, 2)",
    );
    let below = crate::support::Server::replica(crate::support::Kind::Mariadb, &["--server-id=3"]);
    below.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, u INT UNIQUE); INSERT INTO d.t VALUES (1, 1), (2, 2)",
    );
    site.replica.sql("DELETE FROM d.t WHERE id = 1; INSERT INTO d.t VALUES (8, 80), (9, 90)");
    site.source.sql("INSERT INTO d.t VALUES (8, 90)");
    site.source.sql("UPDATE d.t SET u = 11 WHERE id = 1; DELETE FROM d.t WHERE id = 2");
    site.catch_up(&["--start", "gtid:", "--on-conflict", "repair"]);
    site.assert_identical();
    below.sql("SET GLOBAL gtid_slave_pos = ''");
    below.follow(&site.replica);
    below.wait_followed(&site.replica.position());
    assert_eq!(site.replica.checksums(), below.checksums());
}

#[test]
fn conflict_in_a_large_batch_is_found_by_folded_batches() {
    let site = Site::plain();
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)");
    site.replica.sql("INSERT INTO d.t VALUES (15000, -1)");
    let mut script = String::from("USE d;");
    for id in 1..=20_000 {
        script += &format!("INSERT INTO t VALUES ({id}, 0);");
    }
    site.source.sql(&format!("SET GLOBAL sync_binlog=0, GLOBAL innodb_flush_log_at_trx_commit=0; {script}"));
    site.fetch(&["--start", "earliest"]);
    let ended = site.catch_up(&["--start", "earliest", "--on-conflict", "repair", "--json"]);
    site.assert_identical();
    let status: serde_json::Value = serde_json::from_str(&ended.output[ended.output.find("{\"").unwrap()..]).unwrap();
    assert_eq!(status["repairs"], 1, "{status}");
    // Eight batches a level, and a few more: far from one a transaction.
    assert!(status["batches"].as_u64().unwrap() < 200, "{status}");
}
