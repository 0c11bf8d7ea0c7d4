//! A kill around a definition whose effect is hard to see: it is executed once, as the server's own replication does.

use crate::stopping_points::{start_to_stop, work_until_stopped};
use crate::support::{Kind, Site};

const OPTIONS: [&str; 2] = ["--start", "earliest"];

/// Kills Spate at this point of its work, lets it go on, and holds what these questions say against the source.
fn kill(kind: Kind, setup: &str, work: &str, point: &str, questions: &[&str]) {
    let site = Site::of(kind);
    site.source.sql(&format!(
        "CREATE DATABASE x; USE x; CREATE TABLE b (id INT PRIMARY KEY, n INT); INSERT INTO b VALUES (100, 1); {setup}"
    ));
    site.catch_up(&OPTIONS);
    site.source.sql(&format!("USE x; {work}"));
    work_until_stopped(start_to_stop(&site, point, &[]), point, || ());
    site.catch_up(&OPTIONS);
    for question in questions {
        let ask = |sql: &str| site.source.try_sql(sql).and_then(|told| Ok((told, site.replica.try_sql(sql)?)));
        let (source, replica) = ask(&format!("USE x; {question}")).unwrap();
        assert_eq!(source, replica, "{kind:?}, {point}: {question}");
    }
    site.assert_identical();
}

/// Its text says where its tables cannot be read, and so depends on the definition before.
#[test]
fn view_whose_table_was_renamed_just_before() {
    for point in ["after-intent:2", "after-intent:3"] {
        kill(
            Kind::Mariadb,
            "CREATE TABLE t (id INT PRIMARY KEY, n INT); CREATE VIEW v AS SELECT id FROM t UNION SELECT n FROM t ORDER BY 1",
            "INSERT INTO b VALUES (1, 1); ALTER TABLE b ADD z INT; INSERT INTO b VALUES (2, 1, 1); RENAME TABLE t TO u; \
             ALTER VIEW v AS SELECT id FROM u UNION SELECT n FROM u ORDER BY 1",
            point,
            &["SHOW CREATE VIEW v", "SELECT COUNT(*) FROM v"],
        );
    }
}

/// It cannot be read before the definition before.
#[test]
fn merge_table_that_becomes_readable() {
    kill(
        Kind::Mariadb,
        "CREATE TABLE m1 (id INT) ENGINE=MyISAM; CREATE TABLE m (id INT, z INT) ENGINE=MERGE UNION=(m1)",
        "INSERT INTO b VALUES (1, 1); ALTER TABLE b ADD z INT; INSERT INTO b VALUES (2, 2, 2); ALTER TABLE m1 ADD z INT; \
         ALTER TABLE m COMMENT='x'",
        "after-intent:3",
        &["SHOW CREATE TABLE m"],
    );
}

/// Rows before the definition move the counter, whose letters a comment has, too.
#[test]
fn table_with_a_comment_like_a_counter() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        kill(
            kind,
            "CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY COMMENT 'an AUTO_INCREMENT=column', n INT); INSERT INTO a (n) VALUES (1)",
            "ALTER TABLE b ADD z INT; BEGIN; UPDATE b SET n = n + 1; INSERT INTO a (n) VALUES (2); COMMIT; \
             ALTER TABLE a ADD y INT DEFAULT 4; UPDATE b SET n = n + 1",
            "after-intent:2",
            &["SHOW CREATE TABLE a"],
        );
    }
}

/// Rows before the definition make a partition.
#[test]
fn history_that_gets_partitions_by_itself() {
    kill(
        Kind::Mariadb,
        "SET timestamp=UNIX_TIMESTAMP('2026-01-01 00:00:00'); CREATE TABLE a (id INT PRIMARY KEY, n INT) WITH SYSTEM VERSIONING \
         PARTITION BY SYSTEM_TIME INTERVAL 1 DAY STARTS '2026-01-01 00:00:00' AUTO; INSERT INTO a VALUES (1, 1)",
        "ALTER TABLE b ADD z INT; SET timestamp=UNIX_TIMESTAMP('2026-01-05 00:00:00'); UPDATE a SET n = n + 1; \
         SET timestamp=DEFAULT; ALTER TABLE a COMMENT='x'; UPDATE b SET n = n + 1",
        "after-intent:2",
        &["SHOW CREATE TABLE a", "SELECT id, n FROM a"],
    );
}

/// Columns that exchange their names, and have the same letters between them.
#[test]
fn columns_that_become_each_other() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let table = "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(10) NOT NULL, b VARCHAR(10) NOT NULL DEFAULT '');";
        for (rows, definition) in [
            (
                "INSERT INTO t VALUES (1, '', 'foo'), (2, '', 'bar')",
                "ALTER TABLE t DROP COLUMN a, CHANGE b a VARCHAR(10) NOT NULL, ADD COLUMN b VARCHAR(10) NOT NULL DEFAULT ''",
            ),
            (
                "INSERT INTO t VALUES (1, '', 'foo'), (2, 'xx', 'x')",
                "ALTER TABLE t CHANGE a b VARCHAR(10) NOT NULL AFTER id, CHANGE b a VARCHAR(10) NOT NULL AFTER id",
            ),
        ] {
            kill(
                kind,
                &format!("{table} {rows}"),
                &format!("INSERT INTO b VALUES (1, 1); {definition}; INSERT INTO b VALUES (3, 1)"),
                "after-definition:1",
                &["SELECT id, a, b FROM t ORDER BY id"],
            );
        }
    }
}

/// The same of tables of engines without numbers.
#[test]
fn tables_that_become_each_other() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let table = |name: &str| {
            format!(
                "CREATE TABLE {name} (id INT PRIMARY KEY, a VARCHAR(10) NOT NULL, b VARCHAR(10) NOT NULL) ENGINE=MyISAM;"
            )
        };
        kill(
            kind,
            &format!(
                "{} {} INSERT INTO t VALUES (1, '', 'foo'); INSERT INTO u VALUES (1, 'foo', '')",
                table("t"),
                table("u")
            ),
            "INSERT INTO b VALUES (1, 1); RENAME TABLE t TO v, u TO t, v TO u; INSERT INTO b VALUES (3, 1)",
            "after-definition:1",
            &["SELECT id, a, b FROM t", "SELECT id, a, b FROM u"],
        );
    }
}
