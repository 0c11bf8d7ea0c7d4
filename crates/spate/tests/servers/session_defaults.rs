//! What a source leaves out of a statement's context, since it is the servers' default, is not what the replica's own settings say.

use crate::support::{Kind, Site};

const REPLICA: [&str; 3] = ["--auto-increment-increment=5", "--auto-increment-offset=3", "--lc-time-names=de_DE"];

fn statements_ignore_the_replicas_settings(kind: Kind) {
    let site = Site::between((kind, &[]), (kind, &REPLICA));
    site.source.sql("SET GLOBAL binlog_format=STATEMENT");
    site.source.sql(
        "CREATE DATABASE d CHARACTER SET latin2; USE d; CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(50)); \
         INSERT INTO t (v) VALUES ('a'), ('b'), ('c'); INSERT INTO t (v) SELECT DAYNAME('2026-11-22') FROM t; \
         SET lc_time_names=fr_FR; INSERT INTO t (v) VALUES (MONTHNAME('2026-02-01')); SET lc_time_names=DEFAULT; \
         SET auto_increment_increment=7; INSERT INTO t (v) VALUES ('d'), ('e'); SET auto_increment_increment=1; \
         INSERT INTO t (v) VALUES ('f'), (MONTHNAME('2026-02-01')); CREATE TABLE u (v VARCHAR(9) CHARACTER SET utf8mb4); \
         CREATE TABLE w (v VARCHAR(9)); CREATE DATABASE e",
    );
    site.catch_up(&["--start", "earliest"]);
    let look = "SELECT * FROM d.t ORDER BY id; SHOW CREATE TABLE d.u; SHOW CREATE TABLE d.w; SHOW CREATE DATABASE e";
    let at_source = site.source.sql(look);
    assert!(at_source.contains("février") && at_source.contains("Sunday"), "{at_source}");
    assert_eq!(at_source, site.replica.sql(look));
}

#[test]
fn statements_ignore_the_replicas_settings_on_mariadb() {
    statements_ignore_the_replicas_settings(Kind::Mariadb);
}

#[test]
fn statements_ignore_the_replicas_settings_on_mysql() {
    statements_ignore_the_replicas_settings(Kind::Mysql);
}

#[test]
fn statements_ignore_the_replicas_settings_on_mariadb_11_8() {
    statements_ignore_the_replicas_settings(Kind::Mariadb118);
}

/// The default collations of character sets are the source session's, whatever they are on the replica.
#[test]
fn default_collations_are_the_sources() {
    let tables = "CREATE DATABASE d CHARACTER SET utf8mb4; CREATE TABLE d.t (v VARCHAR(9)); \
                  CREATE TABLE d.u (v VARCHAR(9) CHARACTER SET utf8mb4, w VARCHAR(9) CHARACTER SET latin1);";
    let look = "SHOW CREATE DATABASE d; SELECT TABLE_NAME, COLUMN_NAME, COLLATION_NAME FROM information_schema.COLUMNS \
                WHERE TABLE_SCHEMA = 'd' ORDER BY 1, 2";
    let session = "SET character_set_collations='utf8mb4=utf8mb4_bin,latin1=latin1_general_ci';";
    for (source, session) in [(Kind::Mariadb, ""), (Kind::Mariadb118, ""), (Kind::Mariadb118, session)] {
        let site =
            Site::between((source, &[]), (Kind::Mariadb118, &["--character-set-collations=utf8mb4=utf8mb4_danish_ci"]));
        site.source.sql(&format!("{session} {tables}"));
        site.catch_up(&["--start", "earliest"]);
        assert_eq!(site.source.sql(look), site.replica.sql(look), "from {source:?}, {session}");
    }
}
