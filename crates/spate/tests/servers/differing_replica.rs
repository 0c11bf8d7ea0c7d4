//! A replica that is not what the source once was: the first change that does not fit is named, and nothing of it stays.

use crate::support::session::Session;
use crate::support::{Kind, Site, wait_until};

const TABLES: &str = "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT); CREATE TABLE d.u (id INT PRIMARY KEY); \
                      INSERT INTO d.t VALUES (1, 1), (2, 2), (3, 3);";

/// A source and a replica with the same tables, and three transactions: the second is `bad`. Spoils the replica with
/// `tamper`, replicates, and checks what stays.
fn second_transaction_fails(tamper: &str, bad: &str, error: &[&str]) {
    let site = Site::plain();
    site.both(TABLES);
    site.replica.sql(tamper);
    site.source.sql("INSERT INTO d.t VALUES (10, 10)");
    let before = site.source.sql("SELECT @@gtid_binlog_pos");
    // Something that could be applied stands before and behind what cannot.
    site.source.sql(&format!("BEGIN; INSERT INTO d.t VALUES (20, 20); {bad}; INSERT INTO d.t VALUES (21, 21); COMMIT"));
    let gtid = site.source.sql("SELECT @@gtid_binlog_pos");
    let end = site.source.sql("SHOW MASTER STATUS").split_whitespace().nth(1).unwrap().to_owned();
    site.source.sql("INSERT INTO d.t VALUES (30, 30)");
    for attempt in 0..2 {
        let ended = site.run(site.replicate(&["--start", "gtid:"]));
        ended.assert_failed_saying(&[error, &[gtid.as_str(), "source.000001:"]].concat());
        let position = ended.output.split("source.000001:").last().unwrap();
        let position = position.split(|c: char| !c.is_ascii_digit()).next().unwrap();
        assert!(position.parse::<u64>().unwrap() <= end.parse().unwrap(), "attempt {attempt}: {}", ended.output);
        assert_eq!(site.checkpoint(), before, "attempt {attempt}: {}", ended.output);
        assert_eq!(site.replica.sql("SELECT GROUP_CONCAT(id ORDER BY id) FROM d.t WHERE id >= 10"), "10");
    }
}

#[test]
fn update_of_a_missing_row_is_named() {
    second_transaction_fails(
        "DELETE FROM d.t WHERE id = 2",
        "UPDATE d.t SET v = 5 WHERE id = 2",
        &["d.t", "id=2", "missing on the replica"],
    );
}

#[test]
fn delete_of_a_missing_row_is_named() {
    second_transaction_fails(
        "DELETE FROM d.t WHERE id = 2",
        "DELETE FROM d.t WHERE id = 2",
        &["d.t", "id=2", "missing on the replica"],
    );
}

#[test]
fn insert_of_a_present_row_is_named() {
    second_transaction_fails(
        "INSERT INTO d.t VALUES (15, 0); DELETE FROM d.t WHERE id = 15; INSERT INTO d.u VALUES (7)",
        "INSERT INTO d.u VALUES (7)",
        &["d.u", "id=7", "on the replica already"],
    );
}

#[test]
fn missing_table_is_named() {
    second_transaction_fails("DROP TABLE d.u", "INSERT INTO d.u VALUES (7)", &["has no table d.u"]);
}

/// What the server's own replication allows: more columns with defaults, other indexes, wider types where it converts.
#[test]
fn replica_with_more_columns_and_wider_types_is_served() {
    let site = Site::new(&[], &["--slave-type-conversions=ALL_NON_LOSSY"]);
    site.source.sql(
        "SET sql_log_bin=0; CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(20), n SMALLINT, u INT UNIQUE); \
         CREATE TABLE d.k (a INT, b VARCHAR(10))",
    );
    site.replica.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id BIGINT PRIMARY KEY, v VARCHAR(200), n INT, u BIGINT UNIQUE, \
         extra INT NOT NULL DEFAULT 7, seen TIMESTAMP NULL, KEY (v), KEY (n, v)); \
         CREATE TABLE d.k (a BIGINT, b VARCHAR(100), extra VARCHAR(5) DEFAULT 'x', KEY (a))",
    );
    site.source.sql(
        "USE d; INSERT INTO t SELECT seq, CONCAT('v', seq), seq % 100, seq FROM mysql.seq_1_to_500; \
         UPDATE t SET n = -n, v = REPEAT('w', 20) WHERE id % 3 = 0; UPDATE t SET u = -u; DELETE FROM t WHERE id % 7 = 0; \
         UPDATE t SET id = id + 1000 WHERE id % 5 = 0; INSERT INTO k SELECT seq % 10, 'k' FROM mysql.seq_1_to_200; \
         DELETE FROM k WHERE a = 3; UPDATE k SET b = 'changed' WHERE a = 4;",
    );
    site.catch_up(&["--start", "earliest"]);
    let rows = "SELECT id, v, n, u FROM d.t ORDER BY id; SELECT a, b FROM d.k ORDER BY a, b";
    assert_eq!(site.source.sql(rows), site.replica.sql(rows));
    assert_eq!(site.replica.sql("SELECT DISTINCT extra FROM d.t; SELECT DISTINCT extra FROM d.k"), "7\nx");
}

#[test]
fn type_that_does_not_fit_is_refused() {
    let site = Site::plain();
    site.source.sql("SET sql_log_bin=0; CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(20))");
    site.replica.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)");
    site.source.sql("INSERT INTO d.t VALUES (1, 'one')");
    let gtid = site.source.sql("SELECT @@gtid_binlog_pos");
    let ended = site.run(site.replicate(&["--start", "earliest", "--until", "caught-up"]));
    ended.assert_failed_saying(&[&gtid, "d.t", "cannot be converted"]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "0");
}

#[test]
fn cascade_without_a_definition_is_noticed() {
    let site = Site::plain();
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.p (id INT PRIMARY KEY); CREATE TABLE d.c (id INT PRIMARY KEY, p INT); \
         INSERT INTO d.p VALUES (1), (2), (3); INSERT INTO d.c VALUES (1, 1), (2, 2), (3, 3)",
    );
    let mut command = site.replicate(&["--start", "earliest"]);
    // Not by what others define on the replica.
    command.env("SPATE_BLIND_TO", "others");
    let running = site.spawn(command);
    site.wait_applied();
    // The binlog does not say it, but the source now opens the child table with the parent's changes.
    site.both("ALTER TABLE d.c ADD FOREIGN KEY (p) REFERENCES d.p (id) ON DELETE CASCADE");
    site.source.sql("INSERT INTO d.c VALUES (4, 2); DELETE FROM d.p WHERE id = 2; UPDATE d.c SET p = 3 WHERE id = 1");
    site.wait_applied();
    site.assert_identical();
    running.terminate().assert_says(&["foreign keys are others than its definitions said"]);
}

/// Somebody on the replica has put a view in a table's place. What is written through it executes functions with the writer's rights.
#[test]
fn rows_are_not_changed_through_a_view() {
    for dialect in ["sql", "replay"] {
        let site = Site::new(&[], &["--log-bin-trust-function-creators=1"]);
        site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
        site.catch_up(&["--start", "earliest", "--dialect", dialect]);
        site.replica.sql(
            "CREATE TABLE d.called (n INT);\nDELIMITER //\nCREATE FUNCTION d.f() RETURNS INT SQL SECURITY INVOKER MODIFIES SQL DATA \
             BEGIN INSERT INTO d.called VALUES (1); RETURN 1; END//",
        );
        site.replica.sql(
            "RENAME TABLE d.t TO d.real_t; \
             CREATE SQL SECURITY INVOKER VIEW d.t AS SELECT id FROM d.real_t WHERE d.f() = 1 WITH CHECK OPTION",
        );
        site.source.sql("INSERT INTO d.t VALUES (1)");
        let ended = site.run(site.replicate(&["--until", "caught-up", "--dialect", dialect]));
        ended.assert_failed_saying(&["d.t", "it is a view on the replica"]);
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.called"), "0");
    }
}

/// As above, but the view comes between the look at the definitions and the first change of the batch.
#[test]
fn view_that_comes_within_a_batch_is_not_written_through() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::between((kind, &[]), (kind, &["--log-bin-trust-function-creators=1"]));
        site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, n INT)");
        site.catch_up(&["--start", "earliest", "--dialect", "sql"]);
        site.replica.sql(
            "CREATE TABLE d.called (n INT);\nDELIMITER //\nCREATE FUNCTION d.f() RETURNS INT SQL SECURITY INVOKER MODIFIES SQL DATA \
             BEGIN INSERT INTO d.called VALUES (1); RETURN 1; END//",
        );
        site.replica.sql(
            "CREATE TABLE d.real_t LIKE d.t; CREATE SQL SECURITY INVOKER VIEW d.v AS SELECT id, n FROM d.real_t WHERE d.f() = 1 \
             WITH CHECK OPTION",
        );
        let running = site.spawn(site.replicate(&["--dialect", "sql"]));
        site.source.sql("INSERT INTO d.t VALUES (1, 1)");
        wait_until("the first row is there", || site.replica.sql("SELECT COUNT(*) FROM d.t") == "1");
        let (mut holder, mut renamer) = (Session::open(&site.replica), Session::open(&site.replica));
        holder.sql("BEGIN; SELECT * FROM d.t");
        renamer.send("RENAME TABLE d.t TO d.old_t, d.v TO d.t");
        let waiting = |begin: &str| {
            let waits = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for table metadata lock'";
            site.replica.sql(&format!("{waits} AND INFO LIKE '{begin}%'")) == "1"
        };
        wait_until("the view is about to come", || waiting("RENAME"));
        site.source.sql("INSERT INTO d.t VALUES (2, 2)");
        wait_until("the batch waits for the table", || waiting("DO (") || waiting("INSERT INTO `d`"));
        holder.sql("COMMIT");
        running.wait().assert_failed_saying(&["d.t", "it is a view on the replica"]);
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.called"), "0", "{kind:?}");
    }
}
