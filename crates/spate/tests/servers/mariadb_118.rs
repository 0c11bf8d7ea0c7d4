//! MariaDB 11.8 as source and replica: what is new in its binlog.

use crate::support::{Kind, Site};

#[test]
fn collations_of_any_character_set_arrive() {
    let site = Site::of(Kind::Mariadb118);
    site.source.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(30) COLLATE utf8mb4_uca1400_ai_ci, \
            w VARCHAR(30) CHARACTER SET ucs2 COLLATE ucs2_uca1400_swedish_ai_ci UNIQUE, ts TIMESTAMP NULL); \
         INSERT INTO t VALUES (1, 'ä', 'å', '2100-01-01 00:00:00'), (2, 'b', 'c', NULL); UPDATE t SET v = UPPER(v), w = CONCAT(w, 'x'); \
         SET binlog_format = STATEMENT; SET NAMES latin1 COLLATE latin1_swedish_ci; INSERT INTO t VALUES (3, CHAR(228 USING latin1), 'q', NOW()); \
         SET NAMES utf8mb4 COLLATE utf8mb4_uca1400_nopad_as_cs; SET @x = 'ß'; INSERT INTO t VALUES (4, @x, 'r', NOW()); \
         UPDATE t SET v = 'found' WHERE v = 'SS'; DELETE FROM t WHERE id = 2; CREATE TABLE copied AS SELECT * FROM t",
    );
    site.catch_up(&["--start", "earliest"]);
    site.assert_identical();
    let rows = "SELECT * FROM d.t ORDER BY id; SHOW CREATE TABLE d.copied";
    assert_eq!(site.source.sql(rows), site.replica.sql(rows));
}
