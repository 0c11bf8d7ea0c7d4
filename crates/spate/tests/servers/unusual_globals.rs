//! Servers whose global settings are unusual: every session of Spate, on either side, begins with them.

use crate::support::server::PASSWORD;
use crate::support::{Kind, Site};

/// What cuts, refuses or delays answers, changes how texts are read and written, and what a transaction is.
const GLOBALS: [&str; 12] = [
    "sql_select_limit=1",
    "sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,NO_AUTO_VALUE_ON_ZERO,IGNORE_SPACE'",
    "autocommit=0",
    "completion_type=2",
    "sql_quote_show_create=0",
    "max_join_size=1",
    "sql_notes=0",
    "low_priority_updates=1",
    "group_concat_max_len=4",
    "lc_time_names=de_DE",
    "default_week_format=3",
    "div_precision_increment=1",
];
const GLOBALS_MARIADB: [&str; 3] =
    ["tx_isolation='SERIALIZABLE'", "max_statement_time=0.001", "default_storage_engine=MyISAM"];
const GLOBALS_MYSQL: [&str; 4] = [
    "transaction_isolation='SERIALIZABLE'",
    "max_execution_time=1",
    "show_create_table_verbosity=1",
    "default_storage_engine=MyISAM",
];

/// With `are_default`: as they were.
fn set(site: &Site, kind: Kind, are_default: bool) {
    let more: &[&str] = if kind == Kind::Mysql { &GLOBALS_MYSQL } else { &GLOBALS_MARIADB };
    let setting = |global: &&str| match (are_default, global.split_once('=')) {
        (true, Some((name, _))) => format!("SET GLOBAL {name}=DEFAULT;"),
        _ => format!("SET GLOBAL {global};"),
    };
    // In one session: the next would begin with them.
    let settings: String = GLOBALS.iter().chain(more).map(setting).collect();
    for server in [&site.source, &site.replica] {
        server.sql(&settings);
    }
}

fn everything_works(kind: Kind) {
    let site = Site::of(kind);
    let columns: String = (0..70).map(|number| format!(", c{number} INT")).collect();
    let tables: String = (0..30)
        .map(|number| {
            format!("CREATE TABLE d.t{number} (id INT PRIMARY KEY, u INT UNIQUE, v VARCHAR(20)) ENGINE=InnoDB;")
        })
        .collect();
    site.source.sql(&format!(
        "CREATE DATABASE d; {tables} CREATE TABLE d.wide (id INT PRIMARY KEY{columns}) ENGINE=InnoDB; \
         CREATE TABLE d.p (id INT PRIMARY KEY) ENGINE=InnoDB; CREATE TABLE d.k (a INT, b TEXT) ENGINE=InnoDB; \
         CREATE TABLE d.c (id INT PRIMARY KEY, pid INT, FOREIGN KEY (pid) REFERENCES d.p (id) ON DELETE CASCADE) ENGINE=InnoDB"
    ));
    let rows: String = (0..30)
        .map(|number| {
            format!(
                "INSERT INTO d.t{number} VALUES (1, 1, 'a'), (2, 2, 'b\\\\'), (3, 3, '\"'); UPDATE d.t{number} SET u = 9 WHERE id = 1; \
                 DELETE FROM d.t{number} WHERE id = 2;"
            )
        })
        .collect();
    site.source.sql(&format!(
        "{rows} INSERT INTO d.wide (id, c69) VALUES (1, 69), (2, 70); INSERT INTO d.p VALUES (1), (2); \
         INSERT INTO d.c VALUES (1, 1), (2, 2); DELETE FROM d.p WHERE id = 1; INSERT INTO d.k VALUES (1, 'x'), (1, 'x'), (2, 'y'); \
         DELETE FROM d.k WHERE a = 1 LIMIT 1; SET SESSION binlog_format=STATEMENT; INSERT INTO d.k SELECT id, v FROM d.t3; \
         CREATE TEMPORARY TABLE d.x (a INT) ENGINE=InnoDB; INSERT INTO d.x VALUES (1), (2); INSERT INTO d.k SELECT a, 'of x' FROM d.x; \
         DROP TEMPORARY TABLE d.x; SET SESSION binlog_format=ROW; ALTER TABLE d.wide ADD COLUMN last VARCHAR(9) DEFAULT 'z'; \
         XA START 'x'; INSERT INTO d.p VALUES (50); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'; INSERT INTO d.wide (id) VALUES (9)"
    ));
    set(&site, kind, false);
    site.catch_up(&["--start", "earliest"]);
    let running = site.spawn(site.replicate(&["--start", "earliest"]));
    let time = if kind == Kind::Mysql { "max_execution_time" } else { "max_statement_time" };
    site.source.sql(&format!(
        "SET SESSION {time}=0, sql_select_limit=DEFAULT, autocommit=1, sql_mode=''; INSERT INTO d.p VALUES (70); CREATE TABLE d.later (id INT PRIMARY KEY) ENGINE=InnoDB; \
         INSERT INTO d.later VALUES (1), (2); DELETE FROM d.p WHERE id = 2"
    ));
    site.wait_applied();
    let verified = site.run(site.command("verify", &[]));
    assert!(verified.status.success(), "{}", verified.output);
    assert!(running.terminate().status.success());
    set(&site, kind, true);
    site.assert_identical();
}

#[test]
fn unusual_global_settings_change_nothing_on_mariadb() {
    everything_works(Kind::Mariadb);
}

#[test]
fn unusual_global_settings_change_nothing_on_mysql() {
    everything_works(Kind::Mysql);
}

/// What a server executes at the login of accounts that do not administer connections is for applications: a replica's own appliers do not have it. The
/// account has its rights by a role, which has to be active still.
fn logins_settings_change_nothing(kind: Kind) {
    let site = Site::of(kind);
    let (special, default) = match kind {
        Kind::Mysql => ("REPLICATION_APPLIER, SESSION_VARIABLES_ADMIN", "SET DEFAULT ROLE r TO l@'127.0.0.1'"),
        _ => ("BINLOG REPLAY, BINLOG ADMIN", "SET DEFAULT ROLE r FOR l@'127.0.0.1'"),
    };
    site.replica.sql(&format!(
        "SET sql_log_bin=0; CREATE ROLE r; CREATE USER l@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, \
         INDEX, REFERENCES, CREATE VIEW, SHOW VIEW, TRIGGER, EVENT, RELOAD, PROCESS, {special} ON *.* TO r; GRANT ALL PRIVILEGES ON spate.* TO r; \
         GRANT r TO l@'127.0.0.1'; {default}; SET GLOBAL init_connect='SET SESSION default_storage_engine=MyISAM, div_precision_increment=9, \
         group_concat_max_len=5, default_week_format=3'"
    ));
    site.source.sql(
        "SET SESSION binlog_format=STATEMENT; CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(99)); \
         INSERT INTO d.t VALUES (1, CONCAT(1/3)), (2, 'long enough'), (3, WEEK('2008-02-20')); \
         INSERT INTO d.t SELECT 4, GROUP_CONCAT(v ORDER BY id) FROM d.t; SET SESSION binlog_format=ROW; CREATE TABLE d.u (id INT PRIMARY KEY); \
         INSERT INTO d.u VALUES (1)",
    );
    let options = ["--start", "earliest", "--until", "caught-up"];
    if site.replica.sql("SELECT VERSION()").starts_with("9.") {
        // Sessions of this version are not as they were after they have been reset.
        let refused = site.run(site.replicate_as("l", &options));
        refused.assert_failed_saying(&["init_connect", "GRANT CONNECTION_ADMIN"]);
        site.replica.sql("GRANT CONNECTION_ADMIN ON *.* TO l@'127.0.0.1'");
    }
    let ended = site.run(site.replicate_as("l", &options));
    assert!(ended.status.success(), "{}", ended.output);
    site.assert_identical();
    let engines = "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = 'd' ORDER BY 1";
    assert_eq!(site.source.sql(engines), site.replica.sql(engines));
}

#[test]
fn settings_of_logins_change_nothing_on_mariadb() {
    logins_settings_change_nothing(Kind::Mariadb);
}

#[test]
fn settings_of_logins_change_nothing_on_mariadb_11_8() {
    logins_settings_change_nothing(Kind::Mariadb118);
}

#[test]
fn settings_of_logins_change_nothing_on_mysql() {
    logins_settings_change_nothing(Kind::Mysql);
}
