//! Wide tables, very many tiny transactions, and statements of many rows events.

use std::fmt::Write as _;

use crate::support::Site;

/// The most columns that InnoDB takes.
const COLUMNS_MAX: usize = 1017;

/// A table of so many columns: every third is NOT NULL, every seventh a string.
fn wide(name: &str, columns: usize, options: &str) -> String {
    let mut sql = format!("CREATE TABLE {name} (id INT PRIMARY KEY");
    for column in 1..columns {
        let kind = if column % 7 == 0 { "VARCHAR(3)" } else { "TINYINT" };
        let null = if column % 3 == 0 { "NOT NULL DEFAULT 1" } else { "" };
        let _ = write!(sql, ", c{column} {kind} {null}");
    }
    sql + ")" + options + ";"
}

#[test]
fn table_of_a_thousand_columns_is_applied() {
    let site = Site::plain();
    site.source.sql(&format!("CREATE DATABASE d; USE d; {}", wide("folded", COLUMNS_MAX, "")));
    site.source.sql(
        &(format!("USE d; {}", wide("keyless", 1000, ""))
            + "ALTER TABLE keyless DROP PRIMARY KEY, MODIFY id INT NULL;"),
    );
    for (round, image) in ["FULL", "MINIMAL", "NOBLOB"].into_iter().enumerate() {
        let mut sql = format!("SET SESSION binlog_row_image={image}; USE d;");
        for table in ["folded", "keyless"] {
            let _ = write!(sql, "INSERT INTO {table} (id, c998) SELECT seq, seq % 2 FROM mysql.seq_1_to_40;");
            for column in [1, 2, 7, 8, 9, 63, 64, 65, 511, 512, 994, 997, 999] {
                let Some(column) = (column < 999 || table == "folded").then_some(column) else { continue };
                let _ = write!(sql, "UPDATE {table} SET c{column} = 5 WHERE id % 5 = {};", column % 5);
            }
            let _ = write!(
                sql,
                "UPDATE {table} SET c1 = NULL, c8 = NULL, c7 = 'abc', c994 = '' WHERE id > 30; \
                 DELETE FROM {table} WHERE id BETWEEN 12 AND 20; UPDATE {table} SET id = id + {} WHERE id < 100;",
                1000 + 100 * round
            );
        }
        site.source.sql(&sql);
    }
    site.source.sql("UPDATE d.folded SET c1016 = 3, c1 = 9 WHERE id > 1100");
    site.catch_up_from_earliest();
}

#[test]
fn table_of_the_most_columns_is_applied() {
    /// The server counts to 4,096, but a definition may take 64 KiB only: some 17 bytes a column, and its name.
    const COLUMNS: usize = 2500;
    let site = Site::plain();
    site.source.sql(&format!(
        "CREATE DATABASE d; USE d; {}",
        wide("aria", COLUMNS, " ENGINE=Aria TRANSACTIONAL=1 ROW_FORMAT=DYNAMIC")
    ));
    site.source.sql(
        "USE d; INSERT INTO aria (id) SELECT seq FROM mysql.seq_1_to_9; UPDATE aria SET c2499 = 1, c7 = 'x' WHERE id = 4; \
         SET SESSION binlog_row_image=MINIMAL; UPDATE aria SET c2498 = 2, c1 = NULL WHERE id = 5; DELETE FROM aria WHERE id = 9;",
    );
    site.catch_up_from_earliest();
}

#[test]
fn hundred_thousand_tiny_transactions_are_applied() {
    const TRANSACTIONS: usize = 100_000;
    let site = Site::new(&["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0"], &[]);
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, writer INT, v INT); \
         \nDELIMITER //\n\
         CREATE PROCEDURE d.work(w INT, n INT) FOR i IN 1..n DO INSERT INTO t (writer, v) VALUES (w, i); END FOR//\n",
    );
    // Several at once, so that they commit in groups.
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let source = &site.source;
            scope.spawn(move || source.sql(&format!("CALL d.work({writer}, {})", TRANSACTIONS / 4)));
        }
    });
    let ended = site.catch_up(&["--start", "earliest", "--json"]);
    site.assert_identical();
    let json = ended.output.lines().find(|line| line.starts_with('{')).unwrap();
    let status: serde_json::Value = serde_json::from_str(json).unwrap();
    assert!(status["transactions"].as_u64() >= Some(TRANSACTIONS as u64), "{json}");
    assert!(status["batches"].as_u64() <= Some(1000), "{json}");
}

#[test]
fn statements_over_several_tables_are_applied() {
    let site = Site::new(&["--binlog-row-event-max-size=256"], &[]);
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(90)); CREATE TABLE b (id INT, v VARCHAR(90)); \
         CREATE TABLE c (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES a (id) ON DELETE CASCADE); \
         CREATE TRIGGER r AFTER INSERT ON a FOR EACH ROW INSERT INTO b VALUES (NEW.id % 9, NEW.v);",
    );
    site.source.sql(
        "USE d; INSERT INTO a SELECT seq, REPEAT('x', seq % 90) FROM mysql.seq_1_to_3000; \
         INSERT INTO c SELECT seq, seq FROM mysql.seq_1_to_3000; UPDATE a, b SET a.v = 'both', b.v = 'both' WHERE a.id = b.id; \
         UPDATE b SET v = 'y' WHERE id = 3; DELETE a, b FROM a JOIN b ON a.id = b.id WHERE a.id < 6; \
         SET SESSION binlog_row_image=MINIMAL; UPDATE a SET v = REPEAT('z', id % 80); DELETE FROM a WHERE id % 7 = 0;",
    );
    site.catch_up_from_earliest();
}
