//! Many tables, of which all are busy, and definitions that change among them.

use std::fmt::Write as _;
use std::time::Instant;

use crate::support::{Site, memory};

/// How many tables a run in the suite has; `./x large` has ten thousand.
const TABLES: usize = 400;

/// Schemas that the tables are spread over.
const SCHEMAS: usize = 4;

/// Not what is tested: the servers would spend the time on syncing each of their files.
const FAST: [&str; 4] = [
    "--innodb-flush-log-at-trx-commit=0",
    "--sync-binlog=0",
    "--table-open-cache=2000",
    "--innodb-buffer-pool-size=256M",
];

fn table(number: usize) -> String {
    format!("many{}.t{number:05}", number % SCHEMAS)
}

/// Creates the tables on both servers, without a trace in the binlog. A few have no key, a few are connected by foreign keys.
pub fn site(tables: usize) -> Site {
    let site = Site::new(&FAST, &FAST);
    let mut sql = String::new();
    for schema in 0..SCHEMAS {
        let _ = write!(sql, "CREATE DATABASE many{schema};");
    }
    for number in 0..tables {
        let key = if number % 50 == 7 { "" } else { "PRIMARY KEY" };
        let parent = if number % 100 == 99 {
            format!(", FOREIGN KEY (n) REFERENCES {} (id) ON DELETE CASCADE", table(number - 4))
        } else {
            String::new()
        };
        let _ = write!(
            sql,
            "CREATE TABLE {} (id INT NOT NULL {key}, n INT, v VARCHAR(50), w DECIMAL(10, 2), KEY (n){parent});",
            table(number)
        );
    }
    site.both(&sql);
    site
}

/// A few changes of every table, a transaction each.
pub fn change_all(tables: usize, round: usize) -> String {
    let mut sql = String::new();
    for number in 0..tables {
        let name = table(number);
        let _ = write!(
            sql,
            "BEGIN; INSERT INTO {name} (id, n, v) VALUES ({round}1, NULL, 'one'), ({round}2, NULL, 'two'); \
             UPDATE {name} SET v = CONCAT(v, id), w = id WHERE id > 0; COMMIT;"
        );
    }
    sql
}

/// Definitions of some tables and changes of the others, in turns.
pub fn definitions_among_changes(tables: usize, rounds: usize) -> String {
    let mut sql = String::new();
    for round in 0..rounds {
        let altered = table(round * 7 % tables);
        let _ = write!(
            sql,
            "ALTER TABLE {altered} ADD COLUMN extra{round} INT DEFAULT {round}, ADD UNIQUE (extra{round}, id);"
        );
        for number in (0..tables).step_by(3) {
            let name = table(number);
            let _ = write!(sql, "UPDATE {name} SET w = {round} WHERE id < 100;");
        }
        let _ = write!(sql, "INSERT INTO {altered} (id, n) VALUES (5000 + {round}, NULL);");
    }
    sql
}

#[test]
fn many_tables_change_with_some_definitions() {
    let site = site(TABLES);
    let names = [table(0), table(4), table(7), table(11), table(20)];
    let [t0, t4, t7, t11, t20] = &names;
    site.source.sql(&change_all(TABLES, 1));
    site.source.sql(&definitions_among_changes(TABLES, 6));
    // What one definition does to tables that it does not name, and names that wander.
    site.source.sql(&format!(
        "UPDATE {t0} SET n = 1; CREATE TABLE many0.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {t0} (id) ON DELETE CASCADE); \
         INSERT INTO many0.child VALUES (1, 11), (2, 12); BEGIN; UPDATE {t0} SET n = 2; DELETE FROM {t0} WHERE id = 11; COMMIT; \
         RENAME TABLE {t4} TO many0.wandered; CREATE TABLE {t4} (v VARCHAR(50), id INT PRIMARY KEY, UNIQUE (v)); \
         INSERT INTO many0.wandered (id) VALUES (77); INSERT INTO {t4} VALUES ('a', 1), ('b', 2); \
         BEGIN; UPDATE {t4} SET v = 'c' WHERE id = 1; UPDATE {t4} SET v = 'a' WHERE id = 2; COMMIT; \
         ALTER TABLE {t7} ADD PRIMARY KEY (id); UPDATE {t7} SET n = 70; DELETE FROM {t7} WHERE id = 12; \
         ALTER TABLE {t11} DROP PRIMARY KEY; INSERT INTO {t11} (id, v) VALUES (11, 'again'), (11, 'again'); \
         DELETE FROM {t11} WHERE v = 'again' LIMIT 1; TRUNCATE TABLE {t20}; INSERT INTO {t20} (id) VALUES (1); \
         ALTER TABLE many0.child DROP FOREIGN KEY child_ibfk_1; DELETE FROM {t0} WHERE id = 12; UPDATE {t0} SET n = 9; \
         CREATE TRIGGER many3.r AFTER DELETE ON {t11} FOR EACH ROW SET @a = 1; DELETE FROM {t11} WHERE id = 11; \
         DROP TABLE many0.wandered; CREATE TABLE many0.wandered (b INT, a INT, PRIMARY KEY (a)); INSERT INTO many0.wandered VALUES (1, 2); \
         DROP DATABASE many1; CREATE DATABASE many1; CREATE TABLE many1.t00001 (x INT PRIMARY KEY); INSERT INTO many1.t00001 VALUES (9);"
    ));
    let began = Instant::now();
    let running = site.spawn(site.replicate(&["--start", "earliest", "--memory", "64MiB", "--until", "caught-up"]));
    let (ended, memory_kib) = memory::peak_until_end(running);
    assert!(ended.status.success(), "{}", ended.output);
    site.assert_identical();
    assert!(memory_kib <= 128 << 10, "{memory_kib} KiB");
    // Each definition used to cost the definitions of all tables.
    assert!(began.elapsed().as_secs() < 60);
}

#[test]
fn tables_that_come_and_go_are_read_without_others() {
    let site = Site::new(&FAST, &[&FAST[..], &["--general-log", "--log-output=TABLE"]].concat());
    let others: String = (0..40).map(|number| format!("CREATE TABLE d.t{number} (id INT PRIMARY KEY);")).collect();
    site.both(&format!("CREATE DATABASE d; {others}"));
    let with_others = "SELECT COUNT(*) FROM mysql.general_log \
        WHERE argument LIKE 'SELECT TABLE_NAME, COLUMN_NAME%information_schema.COLUMNS%TABLE_NAME IN (%'";
    let running = site.spawn(site.replicate(&["--start", "earliest"]));
    for round in 0..12 {
        // Columns of their own, so that none is known by its text.
        site.source.sql(&format!(
            "USE d; CREATE TABLE n{round} (id INT PRIMARY KEY, c{round} INT); INSERT INTO n{round} VALUES (1, 1); \
             ALTER TABLE n{round} ADD d{round} INT; INSERT INTO n{round} VALUES (2, 2, 2); DROP TABLE n{round}"
        ));
        // One after the other, with no definition on its way.
        site.wait_applied();
    }
    assert_eq!(site.replica.sql(with_others), "0");
    site.source.sql(&(0..12).map(|number| format!("INSERT INTO d.t{number} VALUES (1);")).collect::<String>());
    site.wait_applied();
    assert_ne!(site.replica.sql(with_others), "0", "the question that is counted is asked");
    running.terminate();
    site.assert_identical();
}
