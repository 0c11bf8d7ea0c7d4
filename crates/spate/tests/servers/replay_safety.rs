//! `spate replay`: what a log holds that must not be executed. Any client of the captured server may have written it.

use std::fs;

use crate::replay::{Replays, path_of};
use crate::support::Kind;

/// Statements as timed ones, in one session.
fn timed(replays: &Replays, name: &str, statements: &[&[u8]]) -> std::path::PathBuf {
    let mut text = b"time,session,statement\n".to_vec();
    for statement in statements {
        text.extend_from_slice(b"0,1,\"");
        text.extend(statement.iter().flat_map(|byte| if *byte == b'"' { vec![b'"'; 2] } else { vec![*byte] }));
        text.extend_from_slice(b"\"\n");
    }
    let path = replays.path(name);
    fs::write(&path, text).unwrap();
    path
}

/// What must be as before: rows and settings, accounts, and files.
fn state(replays: &Replays) -> String {
    let accounts = replays.server.sql("SELECT COUNT(*) FROM mysql.user");
    let files = (1..=4).filter(|number| replays.path(&format!("outfile-{number}")).exists()).count();
    format!("{} {accounts} {files}", replays.items())
}

fn outfile(replays: &Replays, number: u32) -> String {
    format!("INTO OUTFILE '{}'", replays.path(&format!("outfile-{number}")).display())
}

/// Words that a lexer of another version, mode or character set takes for a part of a text.
fn hidden_words_are_not_executed(kind: Kind) {
    let replays = Replays::begin(kind, &["--secure-file-priv="]);
    replays.server.sql(
        "DELIMITER //\nCREATE FUNCTION shop.f() RETURNS INT MODIFIES SQL DATA BEGIN DELETE FROM shop.item; RETURN 1; END//\n",
    );
    let outfile = |number: u32| outfile(&replays, number);
    let before = state(&replays);
    let gbk = [b"SELECT '\xbf\\' ", outfile(4).as_bytes(), b" -- '"].concat();
    let read_only = match kind {
        Kind::Mysql => "transaction_read_only",
        _ => "tx_read_only",
    };
    let statements = [
        "BEGIN NOT ATOMIC SET GLOBAL max_connections = 77; CREATE USER evil; END".to_owned(),
        format!("SELECT 1 /*!999999 ' */ {} -- '", outfile(1)),
        "SET @a = 1 /*!999999 ' */ , GLOBAL max_connections = 78 -- '".to_owned(),
        format!("SET @a = 1 /*!999999 ' */ , SESSION {read_only} = 0 -- '"),
        "SELECT shop.f()".to_owned(),
        "WITH x AS (SELECT 1) /*!999999 ' */ DELETE FROM shop.item WHERE id = 2 -- '".to_owned(),
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES'".to_owned(),
        format!("SELECT 'a\\' {} -- '", outfile(2)),
        "SET @a = '\\', GLOBAL max_connections = 79, @b = 'x'".to_owned(),
        "SET sql_mode = ANSI_QUOTES".to_owned(),
        format!("SELECT 1 AS \"a\\\" {} -- \"", outfile(3)),
        "SET NAMES gbk".to_owned(),
    ];
    let mut all: Vec<&[u8]> = statements.iter().map(String::as_bytes).collect();
    all.extend([&gbk[..], b"SET @a = '\xbf\\', GLOBAL max_connections = 80 -- '"]);
    let report = replays.replay(&["--pace", "fastest", path_of(&timed(&replays, "hidden.csv", &all))]);
    assert_eq!(state(&replays), before, "{report:#}");
    assert_eq!(report["sums"]["errors"]["1792"][0], 1, "the function writes: {report:#}");
    assert_eq!(report["skipped_unclear"], 9, "{report:#}");
}

#[test]
fn hidden_words_are_not_executed_mariadb() {
    hidden_words_are_not_executed(Kind::Mariadb);
}

#[test]
fn hidden_words_are_not_executed_mysql() {
    hidden_words_are_not_executed(Kind::Mysql);
}

/// A server whose sessions begin with ANSI_QUOTES reads double quotes as names, and so does the replay.
#[test]
fn the_servers_own_mode_decides_how_texts_are_read() {
    let replays = Replays::begin(Kind::Mariadb, &["--sql-mode=ANSI_QUOTES", "--secure-file-priv="]);
    let outfile = format!("SELECT 1 AS \"a\\\" {} -- \"", outfile(&replays, 1));
    let before = state(&replays);
    let csv = timed(&replays, "ansi.csv", &[outfile.as_bytes(), b"SELECT \"name\" FROM shop.item WHERE id = 1"]);
    let report = replays.replay(&["--pace", "fastest", path_of(&csv)]);
    assert_eq!(state(&replays), before, "{report:#}");
    assert_eq!((&report["skipped_of_server"], &report["sums"]["rows"]), (&1.into(), &1.into()), "{report:#}");
}

/// Functions that change the server work in sessions that read only.
#[test]
fn functions_of_the_server_are_not_called() {
    let replays = Replays::begin(Kind::Mysql, &[]);
    let add = b"SELECT asynchronous_connection_failover_add_source('c', '127.0.0.1', 3310, '', 80)";
    let report = replays.replay(&["--pace", "fastest", path_of(&timed(&replays, "functions.csv", &[add]))]);
    assert_eq!(report["skipped_of_server"], 1, "{report:#}");
    let added = "SELECT COUNT(*) FROM performance_schema.replication_asynchronous_connection_failover";
    assert_eq!(replays.server.sql(added), "0");
}

/// With writes, too.
fn the_server_is_left_as_it_is(kind: Kind) {
    let replays = Replays::begin(kind, &["--secure-file-priv="]);
    let before = state(&replays);
    let outfile = format!("ANALYZE SELECT 1 {}", outfile(&replays, 1));
    let statements = [
        "CREATE OR REPLACE USER evil",
        "CREATE OR REPLACE ROLE evil",
        "CREATE USER evil",
        "CREATE DEFINER = root@localhost EVENT shop.e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
        "CREATE OR REPLACE EVENT shop.e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
        "EXECUTE IMMEDIATE 'SET GLOBAL max_connections = 81'",
        "PREPARE p FROM 'SET GLOBAL max_connections = 82'",
        "EXECUTE p",
        "IF 1 THEN SET GLOBAL max_connections = 83; END IF",
        "CREATE PROCEDURE shop.p() SET GLOBAL max_connections = 84",
        "CALL shop.p()",
        "CREATE FUNCTION f RETURNS STRING SONAME 'x.so'",
        "USE mysql",
        "DELETE FROM user WHERE user = 'nobody'",
        "DELETE FROM mysql.user WHERE user = 'nobody'",
        "UPDATE mysql.tables_priv SET user = 'x' WHERE user = 'nobody'",
        "CREATE UNDO TABLESPACE u ADD DATAFILE 'u.ibu'",
        "CREATE RESOURCE GROUP g TYPE = USER",
        &outfile,
    ];
    let all: Vec<&[u8]> = statements.iter().map(|statement| statement.as_bytes()).collect();
    let csv = timed(&replays, "server.csv", &all);
    let report = replays.replay(&["--pace", "fastest", "--writes", path_of(&csv)]);
    assert_eq!(state(&replays), before, "{report:#}");
    let events = "SELECT COUNT(*) FROM information_schema.events WHERE event_schema = 'shop'";
    assert_eq!(replays.server.sql(events), "0", "{report:#}");
    // USE, and a CALL of what is not there.
    assert_eq!(report["sums"]["statements"], 2, "{report:#}");
}

#[test]
fn the_server_is_left_as_it_is_mariadb() {
    the_server_is_left_as_it_is(Kind::Mariadb);
}

#[test]
fn the_server_is_left_as_it_is_mysql() {
    the_server_is_left_as_it_is(Kind::Mysql);
}
