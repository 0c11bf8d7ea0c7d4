//! Servers that do not tell upper from lower case in the names of tables.

use crate::support::Site;
use crate::support::session::Session;

/// A source and a replica that keep names in lower case. (Where only one of them does, the start is refused.)
fn site() -> Site {
    const LOWER: [&str; 1] = ["--lower-case-table-names=1"];
    Site::new(&LOWER, &LOWER)
}

/// A definition names a table by letters whose lower case each server has in its own way. Rows that come after it belong to another key.
#[test]
fn definitions_of_names_beyond_ascii_are_noticed() {
    const NAMES: [(&str, &str); 3] = [("ΟΔΟΣ", "οδοΣ"), ("Ärger", "äRGER"), ("ПЕРВЫЙ", "первый")];
    let site = site();
    for (name, other) in NAMES {
        site.source.sql(&format!(
            "CREATE DATABASE `S{name}`; USE `S{name}`; CREATE TABLE `{name}` (id INT PRIMARY KEY, k INT NOT NULL); \
             INSERT INTO `{name}` VALUES (1, 1), (2, 2); ALTER TABLE `{other}` DROP PRIMARY KEY, ADD PRIMARY KEY (k); \
             INSERT INTO `{name}` VALUES (1, 3), (1, 4), (2, 5); UPDATE `{name}` SET id = id + 1 WHERE k > 3; \
             DELETE FROM `{name}` WHERE k = 1; RENAME TABLE `{other}` TO u; CREATE TABLE `{other}` LIKE u; \
             INSERT INTO `{name}` SELECT k, id + 10 * k FROM u; UPDATE u SET id = 7 WHERE k = 3"
        ));
    }
    site.catch_up(&["--start", "earliest"]);
    for (name, _) in NAMES {
        let rows = format!("USE `S{name}`; SELECT * FROM `{name}` ORDER BY 1, 2; SELECT * FROM u ORDER BY 1, 2");
        assert_eq!(site.source.sql(&rows), site.replica.sql(&rows), "{name}");
        assert_eq!(site.replica.sql(&format!("SELECT COUNT(*) FROM `S{name}`.u")), "4");
    }
}

#[test]
fn temporary_tables_with_upper_case_names_outlive_the_program() {
    let site = site();
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    let mut session = Session::open(&site.source);
    session.sql("SET SESSION binlog_format=STATEMENT; USE d");
    session.sql("CREATE TEMPORARY TABLE Kept (a INT) ENGINE=InnoDB; INSERT INTO Kept VALUES (1)");
    session.sql("CREATE TEMPORARY TABLE `ΟΔΟΣ` (a INT) ENGINE=InnoDB; INSERT INTO `ΟΔΟΣ` VALUES (100)");
    site.catch_up(&["--start", "earliest"]);
    // Each meets a program that was started anew.
    for sql in [
        "INSERT INTO t SELECT a FROM kEPT; UPDATE kEPT SET a = 2",
        "INSERT INTO t SELECT a FROM Kept; ALTER TABLE kEPT ADD b INT DEFAULT 7",
        "INSERT INTO t SELECT b FROM Kept; INSERT INTO t SELECT a FROM `ΟΔΟΣ`",
        "DROP TEMPORARY TABLE kEPT; CREATE TEMPORARY TABLE Kept (c INT) ENGINE=InnoDB; INSERT INTO Kept VALUES (9)",
        "INSERT INTO t SELECT c FROM Kept; DROP TEMPORARY TABLE Kept, `ΟΔΟΣ`",
    ] {
        session.sql(sql);
        site.catch_up(&[]);
    }
    assert_eq!(site.replica.sql("SELECT GROUP_CONCAT(id ORDER BY id) FROM d.t"), "1,2,7,9,100");
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.temporary_table"), "0");
}
