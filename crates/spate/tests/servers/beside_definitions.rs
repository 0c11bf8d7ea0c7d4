//! Rows that the replica executes while it executes a definition of another table: they are committed behind it, or not at all.

use std::fmt::Write as _;

use crate::stopping_points::{start_to_stop, work_until_stopped};
use crate::support::{Kind, Site};

/// Its number of times follows.
const BESIDE: &str = "beside-definition";

const OPTIONS: [&str; 2] = ["--start", "earliest"];

/// Tables that are defined again and again: what a definition's note says of a table is known only when the one before of that is over.
const TABLES: usize = 4;

/// Definitions of these tables, and small changes of another between them.
fn changes(round: usize) -> String {
    let mut sql = "USE defined;".to_owned();
    for number in 0..4 * TABLES {
        let table = number % TABLES;
        let _ = write!(
            sql,
            "ALTER TABLE a{table} ADD c{round}_{number} INT; UPDATE b SET n = n + 1; INSERT INTO b (n) VALUES ({round});"
        );
    }
    sql
}

fn site(kind: Kind) -> Site {
    let site = Site::of(kind);
    site.source.sql(
        "CREATE DATABASE defined; USE defined; CREATE TABLE b (id INT AUTO_INCREMENT PRIMARY KEY, n INT); \
         INSERT INTO b (n) VALUES (1), (2)",
    );
    for table in 0..TABLES {
        site.source
            .sql(&format!("USE defined; CREATE TABLE a{table} (id INT PRIMARY KEY); INSERT INTO a{table} VALUES (1)"));
    }
    site.catch_up(&OPTIONS);
    site
}

fn kill_beside_definitions(kind: Kind) {
    let site = site(kind);
    for times in 1..=4 {
        site.source.sql(&changes(times));
        let point = format!("{BESIDE}:{times}");
        work_until_stopped(start_to_stop(&site, &point, &[]), &point, || ());
        site.catch_up(&OPTIONS);
        for table in 0..TABLES {
            let shown = format!("SHOW CREATE TABLE defined.a{table}");
            assert_eq!(site.source.sql(&shown), site.replica.sql(&shown));
        }
        site.assert_identical();
    }
}

#[test]
fn kill_beside_a_definition_loses_and_repeats_nothing() {
    kill_beside_definitions(Kind::Mariadb);
}

#[test]
fn kill_beside_a_definition_loses_and_repeats_nothing_on_mysql() {
    kill_beside_definitions(Kind::Mysql);
}

/// The definition waits for the rows, whose tables a foreign key connects with its own.
#[test]
fn definition_of_a_parent_does_not_wait_for_rows_of_the_child() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql(
            "CREATE DATABASE defined; USE defined; CREATE TABLE p (id INT PRIMARY KEY); INSERT INTO p VALUES (1), (2); \
             CREATE TABLE c (id INT AUTO_INCREMENT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id))",
        );
        site.catch_up(&OPTIONS);
        let mut sql = "USE defined;".to_owned();
        for number in 0..3 {
            let _ =
                write!(sql, "ALTER TABLE p ADD c{number} INT; INSERT INTO c (p) VALUES (1), (2); UPDATE c SET p = 2;");
        }
        site.source.sql(&sql);
        let ended = site.catch_up(&OPTIONS);
        assert!(!ended.output.contains("retr"), "{kind:?}: {}", ended.output);
        site.assert_identical();
    }
}

#[test]
fn refused_definition_leaves_nothing_of_the_rows_beside_it() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = site(kind);
        site.replica.sql("CREATE TABLE defined.x (id INT)");
        site.source.sql(
            "USE defined; UPDATE b SET n = 10; ALTER TABLE a1 ADD d INT; UPDATE b SET n = 20; CREATE TABLE x (id INT PRIMARY KEY); \
             UPDATE b SET n = 30; ALTER TABLE a2 ADD e INT; UPDATE b SET n = 40",
        );
        let command = site.replicate(&["--start", "earliest", "--until", "caught-up"]);
        site.run(command).assert_failed_saying(&["already exists", "CREATE TABLE"]);
        assert_eq!(site.replica.sql("SELECT MAX(n) FROM defined.b"), "20", "{kind:?}");
        site.replica.sql("DROP TABLE defined.x");
        site.catch_up(&OPTIONS);
        assert_eq!(site.replica.sql("SELECT MAX(n) FROM defined.b"), "40", "{kind:?}");
        site.assert_identical();
    }
}
