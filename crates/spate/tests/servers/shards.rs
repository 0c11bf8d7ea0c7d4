//! `--consistency shard`: appliers that each fold and commit their own rows.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::parallel::ways;
use crate::support::kills::Kills;
use crate::support::ledger::Ledger;
use crate::support::program::program;
use crate::support::session::Session;
use crate::support::{Kind, Random, Site, wait_until};

const SHARD: [&str; 4] = ["--start", "earliest", "--consistency", "shard"];

/// Where a program that divides rows among appliers is killed.
pub const POINTS: [&str; 7] = [
    "after-map-kept",
    "after-gathering",
    "before-commit",
    "after-commit-sent",
    "after-commit",
    "before-seal",
    "after-seal",
];

/// Tables that are divided by row, and others that are not.
const TABLES: &str = "CREATE DATABASE d; CREATE DATABASE e; \
     CREATE TABLE d.account (id INT UNSIGNED PRIMARY KEY, balance INT NOT NULL); \
     CREATE TABLE d.entry (id BIGINT AUTO_INCREMENT PRIMARY KEY, account INT NOT NULL, amount INT NOT NULL, note VARCHAR(40), KEY (account)); \
     CREATE TABLE e.pair (a INT NOT NULL, b VARBINARY(8) NOT NULL, v INT, PRIMARY KEY (b, a)); \
     CREATE TABLE e.named (name VARCHAR(20) PRIMARY KEY, v INT); \
     CREATE TABLE e.seat (id INT PRIMARY KEY, seat INT NOT NULL, UNIQUE (seat)); \
     CREATE TABLE e.trail (step INT, what INT); \
     CREATE TABLE d.parent (id INT PRIMARY KEY, v INT) ENGINE=InnoDB; \
     CREATE TABLE d.child (id INT PRIMARY KEY, parent INT NOT NULL, FOREIGN KEY (parent) REFERENCES d.parent (id) ON DELETE CASCADE) ENGINE=InnoDB; \
     INSERT INTO d.account WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT i, 0 FROM n; \
     INSERT INTO e.seat SELECT id, id FROM d.account";

/// So many transactions that change them. Transfers between accounts leave the sum what it is.
fn work(random: &mut Random, transactions: u64) -> String {
    let mut sql = String::new();
    for _ in 0..transactions {
        let (one, other, number) = (1 + random.below(100), 1 + random.below(100), random.below(1000));
        sql.push_str(&match random.below(12) {
            0..=4 => format!(
                "BEGIN; UPDATE d.account SET balance = balance - 1 WHERE id = {one}; UPDATE d.account SET balance = balance + 1 WHERE id = \
                 {other}; INSERT INTO d.entry (account, amount) VALUES ({one}, -1), ({other}, 1); COMMIT;"
            ),
            5 => format!("DELETE FROM d.entry WHERE account = {one} LIMIT 3; UPDATE d.entry SET note = '{number}' WHERE account = {other};"),
            6 => format!("REPLACE INTO e.pair VALUES ({}, '{}', {number}); UPDATE e.pair SET a = a + 1000 WHERE b = '{}' AND v % 7 = 0;", one % 9, other % 9, one % 5),
            7 => format!("REPLACE INTO e.named VALUES ('n{}', {number}); REPLACE INTO e.named VALUES ('N{}', {number});", one % 20, other % 20),
            8 => format!(
                "BEGIN; UPDATE e.seat SET seat = -1 WHERE id = {one}; UPDATE e.seat SET seat = {one} + 1000 WHERE id = {one}; COMMIT; \
                 UPDATE IGNORE e.seat SET seat = {other} WHERE id = {one};"
            ),
            9 => format!("INSERT INTO e.trail VALUES ({one}, {other}), ({one}, {number}); DELETE FROM e.trail WHERE step = {other} LIMIT 1;"),
            10 => format!(
                "INSERT IGNORE INTO d.parent VALUES ({}, {number}); INSERT IGNORE INTO d.child VALUES ({number}, {}); DELETE FROM d.parent WHERE \
                 id = {};",
                one % 20, one % 20, other % 20
            ),
            // Keys that move, some of them from one applier to another.
            _ => format!("UPDATE IGNORE d.entry SET id = id + 100000 WHERE account = {one} AND id < 100000; UPDATE d.account SET id = id + 200 WHERE id = {one}; \
                  UPDATE d.account SET id = id - 200 WHERE id = {one} + 200;"),
        });
    }
    sql
}

/// Source and replica with these tables.
fn prepared(kind: Kind) -> Site {
    let site = Site::of(kind);
    site.source.sql(TABLES);
    site.catch_up(&["--start", "earliest"]);
    site
}

/// A transaction for each of these accounts.
fn update_accounts(site: &Site, ids: impl Iterator<Item = u32>) {
    let sql: String = ids.map(|id| format!("UPDATE d.account SET balance = 1 WHERE id = {id};")).collect();
    site.source.sql(&sql);
}

fn options<'a>(appliers: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&SHARD[..], &["--appliers", appliers], more].concat()
}

fn kills(kind: Kind, source: &[&str], seed: u64) {
    let mut site = Site::between((kind, source), (kind, &[]));
    site.source.sql(TABLES);
    let mut ledger = Ledger::begin(&site.source, seed);
    let mut random = Random::new(seed);
    let mut all: Vec<Vec<&str>> = ["1", "2", "3", "4", "7"].map(|appliers| options(appliers, &[])).to_vec();
    all.push(options("3", &["--parallel-by", "shard"]));
    all.push(options("4", &["--batch-transactions", "5"]));
    all.push(options("2", &["--batch-transactions", "2", "--max-spread", "1s", "--max-delay", "1s"]));
    all.push(options("5", &["--batch-transactions", "9"]));
    let of_shards = all.len() as u64;
    all.extend(ways(kind));
    site.catch_up(&["--start", "earliest"]);
    let kills = Kills {
        times: 20,
        check_every: 5,
        points: &POINTS,
        work: &|random| work(random, 60),
        // Two of three are of this consistency.
        next: &|random| {
            let way = if random.below(3) > 0 { random.below(of_shards) } else { random.below(all.len() as u64) };
            all[way as usize].clone()
        },
        catch_up: &|random| all[random.below(all.len() as u64) as usize].clone(),
    };
    kills.run(&mut site, &mut ledger, &mut random, |site| {
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.checkpoint"), "1");
    });
}

#[test]
fn kills_across_numbers_of_appliers_lose_nothing() {
    kills(Kind::Mariadb, &[], 71);
}

#[test]
fn kills_across_numbers_of_appliers_lose_nothing_on_mysql() {
    kills(Kind::Mysql, &[], 72);
}

#[test]
fn kills_across_numbers_of_appliers_lose_nothing_of_partial_images() {
    kills(Kind::Mariadb, &["--binlog-row-image=MINIMAL"], 73);
    kills(Kind::Mysql, &["--binlog-row-image=NOBLOB"], 74);
}

fn lock(site: &Site, sql: &str) -> Session {
    let mut other = Session::open(&site.replica);
    other.sql(&format!("BEGIN; {sql} FOR UPDATE"));
    other
}

/// An applier waits for a lock; the others go on, and after a kill everything is applied once.
fn appliers_do_not_wait_for_each_other(kind: Kind, next: &[&str]) {
    let site = prepared(kind);
    let mut other = lock(&site, "SELECT id FROM d.account WHERE id = 1");
    update_accounts(&site, 1..=100);
    let running = site.spawn(site.replicate(&options("4", &["--batch-transactions", "200"])));
    let applied = || site.replica.sql("SELECT SUM(balance) FROM d.account").parse::<u64>().unwrap();
    wait_until("the other three", || {
        applied() > 40 && site.replica.sql("SELECT COUNT(*) FROM spate.checkpoint") == "4"
    });
    let before = applied();
    assert!(before < 100, "{before}");
    let status = site.status();
    assert!(
        status["sharding"]["appliers"].as_array().unwrap().iter().any(|applier| applier["waiting"].as_u64() >= Some(1)),
        "{status}"
    );
    let mut shown = program();
    shown.args(["status", "--appliers", "--archive"]).arg(site.archive());
    site.run(shown).assert_says(&["applier", "behind s", "divided by row"]);
    running.kill();
    other.sql("ROLLBACK");
    site.run(site.replica_command("handover")).assert_failed_saying(&["different positions", "--until caught-up"]);
    // An insert that came twice would fail, and an update that was left out would show.
    site.source.sql(
        "INSERT INTO d.account SELECT id + 1000, balance FROM d.account; UPDATE d.account SET balance = balance + id",
    );
    site.catch_up(next);
    site.assert_identical();
    site.run(site.replica_command("handover")).assert_says(&[]);
}

#[test]
fn appliers_go_on_while_one_waits() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        appliers_do_not_wait_for_each_other(kind, &["--start", "earliest"]);
        appliers_do_not_wait_for_each_other(kind, &options("3", &[]));
        appliers_do_not_wait_for_each_other(kind, &["--consistency", "transaction", "--commit-order", "free"]);
    }
}

/// Transactions that were committed ahead of others, and then lie where some appliers are and others are not, are neither refused nor applied again.
#[test]
fn transactions_applied_ahead_may_lie_where_appliers_are_uneven() {
    for (kind, next) in [(Kind::Mariadb, options("3", &[])), (Kind::Mysql, vec!["--start", "earliest"])] {
        let site = prepared(kind);
        let mut other = lock(&site, "SELECT id FROM d.account WHERE id = 1");
        update_accounts(&site, 1..=100);
        let number = |sql: &str| site.replica.sql(sql).parse::<u64>().unwrap();
        let free = ["--start", "earliest", "--consistency", "transaction", "--commit-order", "free", "--appliers", "4"];
        let running = site.spawn(site.replicate(&free));
        wait_until("those ahead", || number("SELECT SUM(balance) FROM d.account") > 40);
        running.kill();
        site.source.sql("UPDATE d.account SET balance = balance + 1 WHERE id > 1");
        let running = site.spawn(site.replicate(&options("4", &[])));
        wait_until("the other three", || number("SELECT COUNT(*) FROM d.account WHERE balance = 2") > 40);
        wait_until("their places", || number("SELECT COUNT(*) FROM spate.checkpoint") > 1);
        running.kill();
        other.sql("ROLLBACK");
        site.catch_up(&next).assert_says(&["interrupted at different positions"]);
        site.assert_identical();
    }
}

/// What another version has divided is left to it.
#[test]
fn spread_of_another_version_is_refused() {
    let site = prepared(Kind::Mariadb);
    let mut other = lock(&site, "SELECT id FROM d.account WHERE id = 1");
    update_accounts(&site, 1..=100);
    let running = site.spawn(site.replicate(&options("2", &[])));
    wait_until("the other", || site.replica.sql("SELECT SUM(balance) > 20 FROM d.account") == "1");
    running.kill();
    other.sql("ROLLBACK");
    let (sum, place) = ("SELECT SUM(balance) FROM d.account", "SELECT * FROM spate.checkpoint WHERE applier = 0");
    site.replica.sql("UPDATE spate.sharding SET version = version + 1");
    let refuse = |way: &[&str]| {
        let refused = site.run(site.replicate(&[way, &["--until", "caught-up"]].concat()));
        refused.assert_failed_saying(&["another version of Spate", "--until caught-up"]);
    };
    refuse(&SHARD);
    // By then, the killed one's last commit has arrived, or never will.
    let before = (site.replica.sql(sum), site.replica.sql(place));
    refuse(&["--start", "earliest"]);
    assert_eq!((site.replica.sql(sum), site.replica.sql(place)), before);
    site.replica.sql("UPDATE spate.sharding SET version = version - 1");
    site.catch_up(&options("5", &[]));
    site.assert_identical();
}

/// No applier is further ahead of another than is allowed, but for the escape.
#[test]
fn spread_has_a_bound_and_an_escape() {
    let site = prepared(Kind::Mariadb);
    let mut other = lock(&site, "SELECT id FROM d.account WHERE id = 1");
    let mut sql = String::new();
    for second in 0..40 {
        sql.push_str(&format!("SET timestamp = 1700000000 + {second} * 10;"));
        sql.extend((1..=100).map(|id| format!("UPDATE d.account SET balance = {second} WHERE id = {id};")));
    }
    site.source.sql(&sql);
    const MAX_DELAY: Duration = Duration::from_secs(5);
    let begun = Instant::now();
    let running = site.spawn(site.replicate(&options("2", &["--max-spread", "30s", "--max-delay", "5s"])));
    let furthest = || site.replica.sql("SELECT MAX(balance) FROM d.account").parse::<u64>().unwrap();
    wait_until("the other applier", || furthest() > 0);
    sleep(Duration::from_millis(1500));
    // Before that, nobody may escape.
    let found = furthest();
    assert!(found <= 4 || begun.elapsed() >= MAX_DELAY, "{found}");
    wait_until("the escape", || furthest() > 4);
    other.sql("ROLLBACK");
    site.wait_applied();
    let status = site.status();
    assert!(status["sharding"]["went_on_beyond_spread"].as_u64() >= Some(1), "{status}");
    assert!(status["sharding"]["waited_for_spread_seconds"].as_f64() >= Some(4.0), "{status}");
    running.terminate();
    site.assert_identical();
}

/// A table that a rule pins, one that all wait for, and others that are given one after the other.
#[test]
fn rules_say_who_applies_what() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = prepared(kind);
        let file = site.archive().with_file_name("rules.toml");
        let path = file.to_str().unwrap();
        std::fs::write(&file, "hash = \"round-robin\"\n[[rule]]\ntables = [\"d.account\"]\nto = 3\n[[rule]]\ntables = [\"e.named\"]\nto = \"critical\"\n").unwrap();
        let way = options("3", &["--rules", path]);
        site.source.sql(&work(&mut Random::new(5), 200));
        let running = site.spawn(site.replicate(&way));
        site.wait_applied();
        site.source.sql("UPDATE d.account SET balance = balance + 1");
        site.wait_applied();
        let status = site.status();
        let appliers = status["sharding"]["appliers"].as_array().unwrap().clone();
        assert!(appliers[2]["row_changes"].as_u64() >= Some(100), "{status}");
        assert!(status["sharding"]["together_critical"].as_u64() >= Some(1), "{status}");
        let shards: Vec<&str> = appliers
            .iter()
            .flat_map(|applier| applier["shards"].as_array().unwrap())
            .filter_map(|shard| shard.as_str())
            .collect();
        assert!(shards.contains(&"e.seat") && shards.contains(&"e.trail"), "{status}");
        // A file that cannot be used changes nothing; one that can does.
        std::fs::write(&file, "[[rule]]\ntables = [\"e.nowhere\"]\nto = 1\n").unwrap();
        running.signal("HUP");
        wait_until("the refusal", || running.said().contains("e.nowhere"));
        std::fs::write(&file, "[[rule]]\ntables = [\"d.account\"]\nto = 1\n").unwrap();
        running.signal("HUP");
        let loads = || {
            site.status()["sharding"]["appliers"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one["row_changes"].as_u64().unwrap())
                .collect::<Vec<_>>()
        };
        let before = loads();
        wait_until("the new rules", || {
            site.source.sql("UPDATE d.account SET balance = balance + 1");
            site.wait_applied();
            loads()[0] >= before[0] + 100
        });
        site.assert_identical();
        running.terminate();
        std::fs::remove_file(&file).unwrap();
        site.catch_up(&SHARD);
        site.assert_identical();
    }
}

#[test]
fn bad_rules_and_options_are_refused() {
    let site = prepared(Kind::Mariadb);
    let place = site.checkpoint();
    site.source.sql("UPDATE d.account SET balance = 1");
    let file = site.archive().with_file_name("rules.toml");
    let path = file.to_str().unwrap();
    let refused = |text: &str, says: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let ended = site.run(site.replicate(&options("2", &["--rules", path, "--until", "caught-up"])));
        ended.assert_failed_saying(&[says, &["rules.toml"]].concat());
    };
    refused("[[rule]]\ntables = [\"d.acount\"]\nto = 1\n", &["no table d.acount", "line 2"]);
    refused("[[rule]]\ntables = [\"dd\"]\nto = 1\n", &["no schema dd", "line 2"]);
    refused(
        "[[rule]]\ntables = [\"d.account\"]\nto = 1\n\n[[rule]]\ntables = [\"d.account\"]\nto = 2\n",
        &["line 6", "line 2"],
    );
    refused("[[rule]]\ntables = [\"d.account\"]\nto = 3\n", &["line 3", "--appliers says 2"]);
    refused("[[rule]]\ntable = [\"d.account\"]\nto = 1\n", &["line 2", "table"]);
    for (more, says) in [
        (&["--rules", "/nowhere"][..], "/nowhere"),
        (&["--rules", "/dev/zero"], "it is no file"),
        (&["--rules", "/"], "it is no file"),
        (&["--parallel-by", "write-set"], "--parallel-by key or shard"),
        (&["--commit-order", "free"], "--consistency transaction"),
        (&["--group", "3"], "--consistency transaction"),
        (&["--appliers", "auto"], "--consistency transaction"),
        (&["--appliers", "33"], "at most 32"),
        (&["--appliers", "32", "--memory", "64MiB"], "--memory 256MiB"),
        (&["--ignore-server-ids", "7"], "--ignore-server-ids"),
    ] {
        site.run(site.replicate(&[&SHARD[..], more].concat())).assert_failed_saying(&[says]);
    }
    let alone = site.run(site.replicate(&["--max-spread", "3s"]));
    alone.assert_failed_saying(&["--consistency shard"]);
    assert_eq!(site.checkpoint(), place);
}

/// What an applier cannot apply is found as with one, and repaired if a person wants that; a comparison sees all of them at one place.
#[test]
fn refused_rows_are_named_or_repaired_and_comparisons_hold() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql(TABLES);
        site.source.sql(&work(&mut Random::new(9), 100));
        site.catch_up(&["--start", "earliest"]);
        site.replica.sql("DELETE FROM d.account WHERE id = 7");
        site.source.sql("UPDATE d.account SET balance = balance + 3; INSERT INTO e.named VALUES ('end', 1)");
        let refused = site.run(site.replicate(&options("3", &["--until", "caught-up"])));
        refused.assert_failed_saying(&["d.account", "id=7"]);
        site.catch_up(&options("3", &["--on-conflict", "repair"]));
        site.assert_identical();
        let running = site.spawn(site.replicate(&options("3", &[])));
        site.wait_applying();
        site.source.sql(&work(&mut Random::new(10), 100));
        let compared = site.run(site.command("verify", &[]));
        compared.assert_says(&["identical"]);
        site.source.sql(&work(&mut Random::new(11), 100));
        site.wait_applied();
        running.terminate();
        site.assert_identical();
    }
}

/// Triggers of the replica change rows that no applier knows of: one applies all.
#[test]
fn triggers_of_the_replica_fire_in_the_sources_order() {
    let site = Site::between((Kind::Mariadb, &[]), (Kind::Mariadb, &["--slave-run-triggers-for-rbr=YES"]));
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.a (id INT PRIMARY KEY, v INT); CREATE TABLE d.b (id INT PRIMARY KEY, v INT)",
    );
    site.catch_up(&["--start", "earliest"]);
    site.replica.sql(
        "CREATE TABLE d.seen (n INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(20)); \
         CREATE TRIGGER d.ta AFTER INSERT ON d.a FOR EACH ROW INSERT INTO d.seen (what) VALUES (CONCAT('a', NEW.id)); \
         CREATE TRIGGER d.tb AFTER INSERT ON d.b FOR EACH ROW INSERT INTO d.seen (what) VALUES (CONCAT('b', NEW.id))",
    );
    site.source.sql(
        &(1..=50)
            .map(|id| format!("INSERT INTO d.a VALUES ({id}, 1); INSERT INTO d.b VALUES ({id}, 1);"))
            .collect::<String>(),
    );
    site.catch_up(&options("4", &[]));
    let wanted: Vec<String> = (1..=50).flat_map(|id| [format!("a{id}"), format!("b{id}")]).collect();
    assert_eq!(site.replica.sql("SELECT what FROM d.seen ORDER BY n").lines().collect::<Vec<_>>(), wanted);
}

/// Between vendors, rows are written as SQL: one applies all.
#[test]
fn rows_for_the_other_vendor_are_applied_by_one() {
    let site = Site::between((Kind::Mysql, &[]), (Kind::Mariadb, &[]));
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.a (id INT PRIMARY KEY, v INT); INSERT INTO d.a VALUES (1, 1), (2, 2); UPDATE d.a SET v = 3");
    site.catch_up(&options("3", &[])).assert_says(&["one applier applies all"]);
    assert_eq!(site.replica.sql("SELECT SUM(v) FROM d.a"), "6");
}

/// Names with line breaks and quotes are given appliers, which stay theirs.
#[test]
fn odd_names_are_given_appliers_that_stay() {
    let site = Site::of(Kind::Mariadb);
    site.source.sql(
        "CREATE DATABASE `d\n0 e`; CREATE TABLE `d\n0 e`.`a'b\\\\n` (id INT PRIMARY KEY, v INT, UNIQUE (v)); CREATE DATABASE `e`; \
         CREATE TABLE `e`.`c` (id INT PRIMARY KEY, v INT, UNIQUE (v)); CREATE TABLE `e`.`d` (id INT PRIMARY KEY, v INT, UNIQUE (v))",
    );
    site.catch_up(&["--start", "earliest"]);
    let file = site.archive().with_file_name("rules.toml");
    std::fs::write(&file, "hash = \"round-robin\"\n").unwrap();
    let way = options("2", &["--rules", file.to_str().unwrap()]);
    for round in 0..3 {
        site.source.sql(&format!(
            "INSERT INTO `d\n0 e`.`a'b\\\\n` VALUES ({round}, {round}); INSERT INTO e.c VALUES ({round}, {round}); INSERT INTO e.d VALUES ({round}, {round})"
        ));
        site.catch_up(&way);
        site.assert_identical();
    }
    let kept = site.replica.sql("SELECT assigned FROM spate.sharding");
    assert_eq!(
        site.replica.sql("SELECT LENGTH(assigned) - LENGTH(REPLACE(assigned, CHAR(10), '')) FROM spate.sharding"),
        "2",
        "{kept}"
    );
    site.replica.sql("UPDATE spate.sharding SET appliers = 4294967295; UPDATE spate.checkpoint SET applier = 0; \
         INSERT INTO spate.checkpoint SELECT 7, '0-1-999', source_file, 999999, 999, 0 FROM spate.checkpoint WHERE applier = 0");
    let refused = site.run(site.replicate(&way));
    refused.assert_failed_saying(&["spate.sharding", "4294967295"]);
}

/// One applier fails while another waits for a lock that nobody gives: the session ends, and names what failed.
#[test]
fn failure_of_one_applier_does_not_wait_for_another() {
    let site = prepared(Kind::Mariadb);
    site.replica.sql("SET GLOBAL innodb_lock_wait_timeout = 10000; DELETE FROM d.account WHERE id = 2");
    let mut other = Session::open(&site.replica);
    other.sql("BEGIN; SELECT id FROM d.account WHERE id = 1 FOR UPDATE");
    update_accounts(&site, (2..=100).chain([1]));
    let running = site.spawn(site.replicate(&options("7", &[])));
    running.wait().assert_failed_saying(&["d.account", "id=2"]);
}

/// Each transaction comes alone, and the appliers have had different numbers of them at each moment: nobody waits for one that has nothing to do.
#[test]
fn appliers_of_uneven_load_are_all_heard() {
    let site = prepared(Kind::Mariadb);
    let mut random = Random::new(3);
    for appliers in ["1", "2", "3"] {
        let running = site.spawn(site.replicate(&options(appliers, &[])));
        for _ in 0..25 {
            site.source
                .sql(&format!("UPDATE d.account SET balance = balance + 1 WHERE id = {}", 1 + random.below(100)));
            site.wait_applied();
        }
        running.terminate();
        site.assert_identical();
    }
}
