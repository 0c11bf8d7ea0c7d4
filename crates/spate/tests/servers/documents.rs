//! What MySQL logs in fewer bytes than a row: changes of JSON documents by themselves, and rows of nothing but defaults.

use crate::support::{Kind, Site};

const SQL: [&str; 2] = ["--dialect", "sql"];

const DOCUMENTS: &str = "CREATE DATABASE d CHARACTER SET utf8mb4; USE d; \
    CREATE TABLE t (id INT PRIMARY KEY, other JSON, j JSON, v INT, at TIMESTAMP NULL ON UPDATE CURRENT_TIMESTAMP); \
    CREATE TABLE key_less (a INT, j JSON)";

/// Each is logged as a change of what is there: the document is long beside it.
const CHANGES: &str = r#"JSON_SET(j, '$.a', -7)
JSON_REPLACE(j, '$.a', CAST('{"k": [1.0, null, true, "it''s \\\\ \\" ä"]}' AS JSON))
JSON_SET(j, '$.b[1]', 'ä🌊', '$.new', 18446744073709551615, '$.c', 1e0)
JSON_REMOVE(j, '$.b[0]')
JSON_SET(JSON_REMOVE(j, '$.b[last]'), '$.d.e', FALSE)
JSON_ARRAY_APPEND(j, '$.b', 3)
JSON_ARRAY_INSERT(j, '$.b[0]', 'first', '$.b[last]', 'before the last')
JSON_SET(j, '$."with space"', 1, '$."a\\"b"', 2, '$."ü"', 3, '$."1"', 4, '$.""', 5)
JSON_REPLACE(j, '$."with space"', 'x', '$."a\\"b"', 'y', '$."ü"', 'z')
JSON_REMOVE(j, '$."1"', '$."".x', '$.d')
JSON_SET(j, '$.a', JSON_EXTRACT(j, '$.a'))
JSON_REPLACE(j, '$', JSON_OBJECT('a', 1, 'long', REPEAT('y', 300), 'b', JSON_ARRAY(1, 2)))
JSON_SET(j, '$.b[2]', 3, '$.b[3]', JSON_ARRAY(), '$.aa', JSON_OBJECT(), '$.aa.n', 0)"#;

fn site(replica: Kind, image: &str) -> Site {
    let image = format!("--binlog-row-image={image}");
    let site = Site::between((Kind::Mysql, &["--binlog-row-value-options=PARTIAL_JSON", &image]), (replica, &[]));
    site.both(DOCUMENTS);
    site.source.sql(
        r#"USE d; INSERT INTO t (id, j, other) SELECT id, JSON_OBJECT('a', 1, 'b', JSON_ARRAY(1, 2, 3), 'd', JSON_OBJECT('e', 1),
           'long', REPEAT('x', 500)), '[1, 2]' FROM (VALUES ROW(1), ROW(2), ROW(3)) AS n (id);
           INSERT INTO key_less SELECT id, j FROM t; INSERT INTO key_less SELECT id, j FROM t WHERE id < 3"#,
    );
    site
}

#[test]
fn changes_of_documents_arrive_exactly() {
    for (replica, image) in [(Kind::Mariadb, "FULL"), (Kind::Mariadb118, "MINIMAL"), (Kind::Mysql, "NOBLOB")] {
        let site = site(replica, image);
        for change in CHANGES.lines() {
            site.source.sql(&format!(
                "USE d; UPDATE t SET j = {change} WHERE id < 3; UPDATE key_less SET j = {change} WHERE a = 2 LIMIT 1; \
                 BEGIN; UPDATE t SET v = 1 WHERE id = 1; UPDATE t SET other = JSON_SET(other, '$[0]', JSON_LENGTH(other)), j = {change}, \
                    v = v + 1 WHERE id = 1; UPDATE t SET other = JSON_ARRAY_APPEND(other, '$', 'more') WHERE id = 1; COMMIT"
            ));
        }
        assert!(site.source.sql("SHOW BINLOG EVENTS IN 'source.000001'").contains("Update_rows_partial"));
        site.catch_up(&[&SQL[..], &["--start", "earliest"]].concat());
        site.assert_identical();
        let texts = "SELECT id, CAST(j AS CHAR), CAST(other AS CHAR), v FROM d.t UNION ALL SELECT a, CAST(j AS CHAR), 1, 1 FROM d.key_less \
                     ORDER BY 1, 2";
        assert_eq!(site.replica.sql(texts), site.source.sql(texts));
    }
}

#[test]
fn a_document_that_a_change_does_not_fit_is_an_error() {
    for (replica, image, said) in [
        (Kind::Mariadb, "MINIMAL", "its JSON document is not what the source changed: $.b[0] cannot be changed in it"),
        (Kind::Mysql, "MINIMAL", "The JSON document on the replica is not the one that the source changed"),
    ] {
        let site = site(replica, image);
        site.catch_up(&[&SQL[..], &["--start", "earliest"]].concat());
        site.replica.sql("UPDATE d.t SET j = JSON_REMOVE(j, '$.b') WHERE id = 2");
        site.source.sql("INSERT INTO d.t (id) VALUES (4); UPDATE d.t SET j = JSON_REMOVE(j, '$.b[0]') WHERE id = 2; INSERT INTO d.t (id) VALUES (5)");
        let ended = site.run(site.replicate(&[&SQL[..], &["--until", "caught-up"]].concat()));
        ended.assert_failed_saying(&[said, "update of d.t, the row with id=2", "spate verify"]);
        assert_eq!(site.replica.sql("SELECT MAX(id) FROM d.t"), "4", "what came before it is there");
        site.replica.sql("UPDATE d.t SET j = NULL WHERE id = 2");
        let ended = site.run(site.replicate(&[&SQL[..], &["--until", "caught-up"]].concat()));
        ended.assert_failed_saying(&["update of d.t, the row with id=2", "document", "spate verify"]);
        // A row that is not there is none that does not fit.
        site.replica.sql("DELETE FROM d.t WHERE id = 2");
        let ended = site.run(site.replicate(&[&SQL[..], &["--until", "caught-up"]].concat()));
        ended.assert_failed_saying(&["error 1032", "update of d.t, the row with id=2"]);
    }
}

#[test]
fn unchanged_parts_of_documents_keep_their_types() {
    let site = site(Kind::Mysql, "MINIMAL");
    site.both(
        "USE d; INSERT INTO t (id, j) VALUES (9, JSON_OBJECT('a', 1, 'd', 1.50, 't', TIME'10:00', 'long', REPEAT('x', 300)))",
    );
    site.source.sql("UPDATE d.t SET j = JSON_SET(j, '$.a', 'other') WHERE id = 9");
    site.catch_up(&[&SQL[..], &["--start", "earliest"]].concat());
    site.assert_identical();
    let types = "SELECT JSON_TYPE(JSON_EXTRACT(j, '$.d')), JSON_TYPE(JSON_EXTRACT(j, '$.t')) FROM d.t WHERE id = 9";
    assert_eq!(site.replica.sql(types), "DECIMAL\tTIME");
    site.source.sql("UPDATE d.t SET j = JSON_SET(j, '$.d', 2.25) WHERE id = 9");
    let ended = site.run(site.replicate(&[&SQL[..], &["--until", "caught-up"]].concat()));
    ended.assert_failed_saying(&["d.t", "`j`", "--dialect replay"]);
}

#[test]
fn row_of_defaults_is_inserted() {
    let logged =
        ["--binlog-transaction-compression=OFF", "--binlog-transaction-compression=ON", "--binlog-checksum=NONE"];
    let written = [(Kind::Mysql, &["--dialect", "replay"]), (Kind::Mysql, &SQL), (Kind::Mariadb, &SQL)];
    for ((replica, options), log) in written.into_iter().flat_map(|written| logged.map(|log| (written, log))) {
        let site = Site::between((Kind::Mysql, &["--binlog-row-image=MINIMAL", log]), (replica, &[]));
        site.both(
            "CREATE DATABASE d CHARACTER SET utf8mb4; USE d; CREATE TABLE t (a INT DEFAULT 5, b VARCHAR(9)); CREATE TABLE keyed (a INT PRIMARY KEY DEFAULT 5, v INT); \
             CREATE TABLE counted (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
        );
        site.source.sql(
            "USE d; INSERT INTO t () VALUES (); INSERT INTO t VALUES (1, 'x'); BEGIN; INSERT INTO t () VALUES (); UPDATE t SET b = 'y' LIMIT 1; \
             INSERT INTO t () VALUES (); DELETE FROM t WHERE b IS NULL LIMIT 1; COMMIT; INSERT INTO keyed () VALUES (); \
             INSERT INTO counted () VALUES (); INSERT INTO counted () VALUES (), ()",
        );
        // MySQL says of the column that it hides behind such an index that it is logged, and does not log it.
        let index = if replica == Kind::Mysql { ", KEY ((b + 1))" } else { "" };
        site.source.sql(&format!(
            "USE d; CREATE TABLE log (a INT, b INT{index}); INSERT INTO log () VALUES (); INSERT INTO counted () VALUES (); \
             INSERT INTO log () VALUES (); UPDATE log SET a = 3"
        ));
        site.catch_up(&[options, &["--start", "earliest"][..]].concat());
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "3", "{log} {options:?}");
        assert_eq!(site.replica.sql("SELECT * FROM d.keyed"), "5\tNULL");
        site.assert_identical();
    }
}

#[test]
fn documents_for_a_column_of_another_character_set_are_converted() {
    let site = site(Kind::Mariadb, "MINIMAL");
    // What CONVERT TO CHARACTER SET makes of MariaDB's documents.
    site.replica.sql("ALTER TABLE d.t MODIFY j LONGTEXT CHARACTER SET latin1; ALTER TABLE d.key_less MODIFY j LONGTEXT CHARACTER SET utf16");
    site.source.sql(
        "USE d; UPDATE t SET j = JSON_SET(j, '$.a', 'ä', '$.ö', 1) WHERE id < 3; UPDATE t SET j = JSON_SET(j, '$.b[0]', 'ü') WHERE id = 2; \
         INSERT INTO t (id, j) VALUES (7, '\"ß\"'); UPDATE key_less SET j = JSON_SET(j, '$.a', '🌊') WHERE a = 2 LIMIT 1; \
         UPDATE key_less SET j = JSON_SET(j, '$.n', 'ä') WHERE a = 2; DELETE FROM key_less WHERE a = 1 LIMIT 1",
    );
    site.catch_up(&[&SQL[..], &["--start", "earliest"]].concat());
    let texts = "SELECT id, CAST(j AS CHAR) FROM d.t UNION ALL SELECT a, CAST(j AS CHAR) FROM d.key_less ORDER BY 1, 2";
    assert_eq!(site.replica.sql(texts), site.source.sql(texts));
    site.source.sql("UPDATE d.t SET j = JSON_SET(j, '$.a', '🌊') WHERE id = 1");
    let ended = site.run(site.replicate(&[&SQL[..], &["--until", "caught-up"]].concat()));
    ended.assert_failed_saying(&["error 1366", "update of d.t, the row with id=1"]);
}
