//! `--pipelining`: a batch is executed, as far as it may be, while the one before it is not committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::spawn;

use crate::support::kills::Kills;
use crate::support::ledger::Ledger;
use crate::support::session::Session;
use crate::support::{Kind, Random, Site, wait_until_innodb_shows};

/// Where a program that executes batches in turn is killed.
pub const POINTS: [&str; 6] =
    ["after-gathering", "ahead-of-turn", "in-turn", "before-commit", "after-commit-sent", "after-commit"];

const ALWAYS: [&str; 4] = ["--start", "earliest", "--pipelining", "always"];

fn options<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&ALWAYS[..], more].concat()
}

/// Ten thousand accounts; what transactions move between them leaves the sum what it is.
const TABLES: &str = "CREATE DATABASE d; \
     CREATE TABLE d.account (id INT PRIMARY KEY, balance INT NOT NULL); \
     CREATE TABLE d.entry (id BIGINT AUTO_INCREMENT PRIMARY KEY, account INT NOT NULL, amount INT NOT NULL, KEY (account)); \
     CREATE TABLE d.seat (id INT PRIMARY KEY, seat INT NOT NULL, UNIQUE (seat)); \
     CREATE TABLE d.trail (step INT, what INT); \
     CREATE TABLE d.parent (id INT PRIMARY KEY, v INT); \
     CREATE TABLE d.child (id INT PRIMARY KEY, parent INT NOT NULL, FOREIGN KEY (parent) REFERENCES d.parent (id) ON DELETE CASCADE); \
     INSERT INTO d.account WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) SELECT i, 100 FROM n; \
     INSERT INTO d.seat SELECT id, id FROM d.account";

fn work(random: &mut Random, transactions: u64) -> String {
    let mut sql = String::new();
    for _ in 0..transactions {
        let (one, other, number) = (1 + random.below(500), 1 + random.below(500), random.below(1000));
        sql.push_str(&match random.below(10) {
            0..=5 => format!(
                "BEGIN; UPDATE d.account SET balance = balance - 1 WHERE id = {one}; INSERT INTO d.entry (account, amount) VALUES ({one}, -1), \
                 ({other}, 1); UPDATE d.account SET balance = balance + 1 WHERE id = {other}; COMMIT;"
            ),
            6 => format!("DELETE FROM d.entry WHERE account = {one} LIMIT 3; UPDATE d.entry SET amount = -amount WHERE account = {other};"),
            7 => format!(
                "BEGIN; UPDATE d.seat SET seat = -1 WHERE id = {one}; UPDATE d.seat SET seat = {one} + 1000 WHERE id = {one}; COMMIT; \
                 INSERT INTO d.trail VALUES ({one}, {other}), ({one}, {number}); DELETE FROM d.trail WHERE step = {other} LIMIT 1;"
            ),
            8 => format!(
                "INSERT IGNORE INTO d.parent VALUES ({}, {number}); INSERT IGNORE INTO d.child VALUES ({number}, {}); DELETE FROM d.parent WHERE \
                 id = {};",
                one % 20, one % 20, other % 20
            ),
            // Keys that move.
            _ => format!("UPDATE d.account SET id = id + 1000 WHERE id = {one}; UPDATE d.account SET id = id - 1000 WHERE id = {one} + 1000;"),
        });
    }
    sql
}

fn prepared(kind: Kind) -> Site {
    let site = Site::of(kind);
    site.source.sql(TABLES);
    site.catch_up(&["--start", "earliest"]);
    site
}

fn kills(kind: Kind, source: &[&str], seed: u64) {
    let mut site = Site::between((kind, source), (kind, &[]));
    site.source.sql(TABLES);
    let mut ledger = Ledger::begin(&site.source, seed);
    let mut random = Random::new(seed);
    let ways = [
        options(&["--batch-transactions", "7"]),
        options(&["--batch-transactions", "20"]),
        options(&[]),
        options(&["--batch-transactions", "3"]),
        vec!["--start", "earliest", "--consistency", "shard", "--appliers", "2"],
    ];
    site.catch_up(&["--start", "earliest"]);
    let any_way = |random: &mut Random| ways[random.below(ways.len() as u64) as usize].clone();
    let kills = Kills {
        times: 10,
        check_every: 5,
        points: &POINTS,
        work: &|random| work(random, 80),
        next: &any_way,
        catch_up: &any_way,
    };
    kills.run(&mut site, &mut ledger, &mut random, |_| ());
}

#[test]
fn kills_of_two_in_turn_lose_nothing() {
    kills(Kind::Mariadb, &[], 81);
}

#[test]
fn kills_of_two_in_turn_lose_nothing_on_mysql() {
    kills(Kind::Mysql, &["--binlog-row-image=MINIMAL"], 82);
}

/// The row changes that a run from here has executed ahead of their turn.
fn catch_up_ahead(site: &Site, options: &[&str]) -> u64 {
    let ended = site.catch_up(&[options, &["--json"]].concat());
    let report = ended.output.lines().find(|line| line.starts_with('{')).unwrap();
    let report: serde_json::Value = serde_json::from_str(report).unwrap();
    report["executed_ahead_row_changes"].as_u64().unwrap()
}

/// Readers see whole batches only, and some of each was executed before the one before it was committed.
#[test]
fn readers_see_only_whole_batches() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = prepared(kind);
        site.source.sql(&work(&mut Random::new(6), 1500));
        let stop = Arc::new(AtomicBool::new(false));
        let (mut session, told) = (Session::open(&site.replica), Arc::clone(&stop));
        let reader = spawn(move || {
            let mut looks = 0;
            while !told.load(Ordering::Acquire) {
                assert_eq!(session.sql("SELECT SUM(balance) FROM d.account"), ["50000"]);
                looks += 1;
            }
            looks
        });
        let ahead = catch_up_ahead(&site, &options(&["--batch-transactions", "40"]));
        stop.store(true, Ordering::Release);
        let looks = reader.join().unwrap();
        assert!(ahead > 250 && looks > 20, "{kind:?}: {ahead} row changes ahead, {looks} looks");
        site.assert_identical();
        site.source.sql(&work(&mut Random::new(7), 300));
        assert_eq!(catch_up_ahead(&site, &["--pipelining", "never"]), 0);
        site.assert_identical();
    }
}

/// A row that the replica refuses is named, whichever of the two meets it; those before it are applied, and none behind it.
#[test]
fn refused_row_in_either_batch_is_named() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        for bad in [12, 25] {
            let site = prepared(kind);
            site.replica.sql(&format!("DELETE FROM d.account WHERE id = {bad}"));
            let updates = (1..=40).map(|id| format!("UPDATE d.account SET balance = 7 WHERE id = {id};"));
            site.source.sql(&updates.collect::<String>());
            let refused = site.run(site.replicate(&options(&["--batch-transactions", "10", "--until", "caught-up"])));
            refused.assert_failed_saying(&["d.account", &format!("id={bad}")]);
            let applied = site.replica.sql("SELECT COUNT(*) FROM d.account WHERE balance = 7");
            assert_eq!(applied, (bad - 1).to_string(), "{kind:?}");
            site.replica.sql(&format!("INSERT INTO d.account VALUES ({bad}, 100)"));
            site.catch_up(&options(&[]));
            site.assert_identical();
        }
    }
}

/// One whose turn has not come holds what it has executed, and nobody sees it; while the first waits for somebody, nothing is committed.
#[test]
fn second_waits_for_its_turn() {
    let site = prepared(Kind::Mariadb);
    let mut other = Session::open(&site.replica);
    other.sql("BEGIN; SELECT id FROM d.account WHERE id = 5 FOR UPDATE");
    let updates = (1..=40).map(|id| format!("UPDATE d.account SET balance = 7 WHERE id = {id};"));
    site.source.sql(&updates.collect::<String>());
    let running = site.spawn(site.replicate(&options(&["--batch-transactions", "10"])));
    // The first has changed the rows from 1 to 4; of the second's, some may be kept back for nothing.
    let open = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_rows_modified >= 5";
    wait_until_innodb_shows("the second to execute its rows", || site.replica.sql(open) == "1");
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.account WHERE balance = 7"), "0");
    other.sql("ROLLBACK");
    site.wait_applied();
    running.terminate().assert_says(&[]);
    site.assert_identical();
}
