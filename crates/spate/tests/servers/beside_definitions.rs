//! Rows that the replica executes while it executes a definition of another table: they are committed behind it, or not at all.

use std::fmt::Write as _;
use std::thread::sleep;
use std::time::Duration;

use crate::stopping_points::{start_to_stop, work_until_stopped};
use crate::support::{Kind, Site};

/// Its number of times follows.
const BESIDE: &str = "beside-definition";

const OPTIONS: [&str; 2] = ["--start", "earliest"];

/// So long is a round of changes waited for before the next.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(500);

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
    let mut round = 0;
    // Which definitions have rows beside them depends on how fast either comes: more of both, until it was often enough.
    let mut work = || {
        round += 1;
        site.source.sql(&changes(round));
    };
    for times in 1..=4 {
        work();
        let point = format!("{BESIDE}:{times}");
        work_until_stopped(start_to_stop(&site, &point, &[]), &point, || {
            sleep(BETWEEN_ROUNDS);
            work();
        });
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

/// The definition waits for the rows, whose tables a foreign key connects with its own. There are two parents, since rows are executed
/// beside a definition only if the next one is of another table.
#[test]
fn definition_of_a_parent_does_not_wait_for_rows_of_the_child() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql(
            "CREATE DATABASE defined; USE defined; CREATE TABLE p0 (id INT PRIMARY KEY); INSERT INTO p0 VALUES (1), (2); \
             CREATE TABLE p1 LIKE p0; INSERT INTO p1 VALUES (1), (2); \
             CREATE TABLE c (id INT AUTO_INCREMENT PRIMARY KEY, p0 INT, p1 INT, \
             FOREIGN KEY (p0) REFERENCES p0 (id), FOREIGN KEY (p1) REFERENCES p1 (id) ON UPDATE CASCADE)",
        );
        site.catch_up(&OPTIONS);
        let mut sql = "USE defined;".to_owned();
        let rows = "INSERT INTO c (p0, p1) VALUES (1, 2), (2, 1); UPDATE c SET p0 = 2 WHERE id % 2 = 0;";
        for number in 0..4 {
            for parent in 0..2 {
                let _ = write!(sql, "ALTER TABLE p{parent} ADD c{number} INT; {rows}");
            }
            for parent in 0..2 {
                let _ = write!(sql, "RENAME TABLE p{parent} TO r{parent}; {rows}");
            }
            for parent in 0..2 {
                let _ = write!(sql, "RENAME TABLE r{parent} TO p{parent}; {rows}");
            }
        }
        site.source.sql(&sql);
        let ended = site.catch_up(&OPTIONS);
        assert!(!ended.output.contains("retr"), "{kind:?}: {}", ended.output);
        for table in ["p0", "p1", "c"] {
            let shown = format!("SHOW CREATE TABLE defined.{table}");
            assert_eq!(site.source.sql(&shown), site.replica.sql(&shown));
        }
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
