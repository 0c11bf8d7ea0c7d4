//! `--consistency transaction`: the source's transactions, one to one, beside each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::kills::{kill_at_random, stop_at_random};
use crate::support::ledger::{Ledger, assert_same};
use crate::support::program::program;
use crate::support::session::Session;
use crate::support::{Kind, Random, Server, Site, wait_until, wait_until_innodb_shows};

const TRANSACTION: [&str; 4] = ["--start", "earliest", "--consistency", "transaction"];
const FREE: [&str; 2] = ["--commit-order", "free"];
const ONE: [&str; 2] = ["--appliers", "1"];
const MANY: [&str; 2] = ["--appliers", "16"];

/// The policy that goes by what sources of this vendor write.
fn hints(kind: Kind) -> &'static str {
    if kind == Kind::Mysql { "logical-clock" } else { "commit-group" }
}

fn logging(kind: Kind) -> &'static [&'static str] {
    if kind == Kind::Mysql { &["--log-bin=replica"] } else { &["--log-bin=replica", "--log-slave-updates"] }
}

/// The GTIDs in a server's binlog that are of the source, in their order.
fn gtids_of_source(server: &Server, source: &Server) -> Vec<String> {
    let own = match server.kind {
        Kind::Mysql => source.sql("SELECT @@server_uuid"),
        _ => "0-".to_owned(),
    };
    let files = server.sql("SHOW BINARY LOGS");
    let files = files.lines().map(|line| line.split('\t').next().unwrap());
    let events = files.flat_map(|file| {
        let events = server.sql(&format!("SHOW BINLOG EVENTS IN '{file}'"));
        let gtid = |line: &str| -> Option<String> {
            let fields: Vec<&str> = line.split('\t').collect();
            let info = fields.get(5).filter(|_| fields[2] == "Gtid")?;
            info.split([' ', '\'']).find(|word| word.starts_with(own.as_str())).map(str::to_owned)
        };
        events.lines().filter_map(gtid).collect::<Vec<_>>()
    });
    events.collect()
}

/// Rows, statements, definitions and tables without a key.
fn work(site: &Site, ledger: &mut Ledger) {
    for _ in 0..4 {
        ledger.work(&site.source);
        ledger.define(&site.source);
    }
}

fn gtids_stay(kind: Kind) {
    for order in [&["--appliers", "3"][..], &ONE, &[&FREE[..], &["--appliers", "3"]].concat()] {
        let is_free = order.starts_with(&FREE);
        let is_strict = kind == Kind::Mariadb && !is_free;
        let strictness: &[&str] = if is_strict { &["--gtid-strict-mode=1"] } else { &[] };
        let site = Site::between((kind, &[]), (kind, &[logging(kind), strictness].concat()));
        let below = Server::replica(kind, &["--server-id=3"]);
        below.follow(&site.replica);
        let mut ledger = Ledger::begin(&site.source, 3);
        work(&site, &mut ledger);
        site.catch_up(&[&TRANSACTION[..], order].concat());
        work(&site, &mut ledger);
        site.catch_up(&[&TRANSACTION[..], &["--parallel-by", hints(kind)], order].concat());
        assert_same(&site);
        let (mut at_source, mut at_replica) =
            (gtids_of_source(&site.source, &site.source), gtids_of_source(&site.replica, &site.source));
        if is_free {
            at_source.sort();
            at_replica.sort();
        }
        assert!(at_source.len() > 100, "{at_source:?}");
        let missing: Vec<&String> = at_source.iter().filter(|gtid| !at_replica.contains(gtid)).collect();
        assert!(missing.is_empty(), "{order:?}: {missing:?}");
        assert_eq!(at_source, at_replica, "{order:?}");
        below.wait_followed(&site.replica.position());
        assert_eq!(site.source.checksums(), below.checksums());
    }
}

#[test]
fn gtids_stay_the_sources_and_a_replica_behind_goes_on() {
    gtids_stay(Kind::Mariadb);
}

#[test]
fn gtids_stay_the_sources_and_a_replica_behind_goes_on_on_mysql() {
    gtids_stay(Kind::Mysql);
}

/// Ways of applying that replace each other across kills.
pub fn ways(kind: Kind) -> Vec<Vec<&'static str>> {
    vec![
        vec!["--start", "earliest"],
        TRANSACTION.to_vec(),
        [&TRANSACTION[..], &ONE].concat(),
        [&TRANSACTION[..], &MANY].concat(),
        [&TRANSACTION[..], &["--appliers", "2"]].concat(),
        [&TRANSACTION[..], &["--parallel-by", hints(kind)]].concat(),
        [&TRANSACTION[..], &["--parallel-by", "shard", "--group", "3"]].concat(),
        [&TRANSACTION[..], &["--group", "7", "--appliers", "3"]].concat(),
        [&TRANSACTION[..], &FREE, &["--appliers", "8"]].concat(),
        [&TRANSACTION[..], &FREE, &["--parallel-by", hints(kind), "--appliers", "5"]].concat(),
        [&TRANSACTION[..], &FREE, &["--appliers", "2"]].concat(),
        [&TRANSACTION[..], &FREE].concat(),
    ]
}

/// Where a program that applies transactions beside each other is killed.
pub const POINTS: [&str; 7] = [
    "after-gathering",
    "before-turn",
    "before-commit",
    "after-commit-sent",
    "after-commit",
    "before-intent",
    "after-intent",
];

fn kills(kind: Kind, options: &[&str]) {
    const KILLS: u64 = 20;
    let mut site = Site::between((kind, &[]), (kind, options));
    let mut ledger = Ledger::begin(&site.source, 5);
    let mut random = Random::new(20_261_125);
    let ways = ways(kind);
    site.catch_up(&ways[0]);
    for kill in 1..=KILLS {
        let way = &ways[random.below(ways.len() as u64) as usize];
        let mut command = site.replicate(way);
        stop_at_random(&mut command, &POINTS, &mut random);
        for _ in 0..3 {
            ledger.work(&site.source);
        }
        if random.below(3) == 0 {
            ledger.define(&site.source);
        }
        let running = site.spawn(command);
        ledger.work(&site.source);
        kill_at_random(&mut site, running, &mut random);
        if kill % 6 == 0 {
            site.catch_up(&ways[random.below(ways.len() as u64) as usize]);
            assert_same(&site);
        }
    }
}

#[test]
fn kills_across_ways_of_applying_lose_nothing() {
    kills(Kind::Mariadb, &[]);
}

#[test]
fn kills_across_ways_of_applying_lose_nothing_on_mysql() {
    kills(Kind::Mysql, &[]);
}

#[test]
fn kills_across_ways_of_applying_lose_nothing_in_binlogs() {
    kills(Kind::Mariadb, logging(Kind::Mariadb));
    kills(Kind::Mysql, logging(Kind::Mysql));
}

/// How many transactions the replica has open.
fn open_transactions(site: &Site) -> usize {
    site.replica.sql("SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_rows_modified > 0").parse().unwrap()
}

/// A row of the replica that somebody locks for a while.
fn locked(site: &Site, id: u32) -> Session {
    let mut other = Session::open(&site.replica);
    other.sql(&format!("BEGIN; SELECT id FROM d.t WHERE id = {id} FOR UPDATE"));
    other
}

fn table_of_200(site: &Site) {
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT NOT NULL); \
         INSERT INTO d.t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200) SELECT i, 0 FROM n",
    );
}

/// A hundred short transactions behind one that waits: all are executed at once, and committed right behind it.
fn short_ones_do_not_wait(kind: Kind) {
    // It says who waits for whom.
    let schema = if kind == Kind::Mysql { &["--performance-schema=ON"][..] } else { &[] };
    let site = Site::between((kind, &[]), (kind, schema));
    table_of_200(&site);
    site.catch_up(&["--start", "earliest"]);
    let mut other = locked(&site, 1);
    let updates: String = (1..=101).map(|id| format!("UPDATE d.t SET v = v + 1 WHERE id = {id};")).collect();
    site.source.sql(&updates);
    let running = site.spawn(site.replicate(&[&TRANSACTION[..], &["--appliers", "4"]].concat()));
    wait_until_innodb_shows("all to be executed", || open_transactions(&site) >= 100);
    assert_eq!(site.replica.sql("SELECT SUM(v) FROM d.t"), "0");
    let status = site.status();
    let jobs: Vec<&Value> =
        status["timeline"].as_array().unwrap().iter().filter(|job| job["committed_seconds"].is_null()).collect();
    assert!(
        jobs[0]["executed_seconds"].is_null()
            && jobs.iter().filter(|job| job["executed_seconds"].is_f64()).count() >= 99,
        "{jobs:?}"
    );
    let mut command = program();
    command.args(["status", "--timeline", "--archive"]).arg(site.archive());
    let drawn = site.run(command);
    drawn.assert_says(&["executes", "waits for its turn", &"#".repeat(60)]);
    let released = Instant::now();
    other.sql("ROLLBACK");
    site.wait_applied();
    assert!(released.elapsed() < Duration::from_secs(20), "{:?}", released.elapsed());
    running.terminate();
    site.assert_identical();
}

#[test]
fn short_transactions_are_executed_behind_a_long_one() {
    short_ones_do_not_wait(Kind::Mariadb);
    short_ones_do_not_wait(Kind::Mysql);
}

/// One applier applies one behind the other, many in a packet: what waits in the midst, or is refused there, stops those behind it, and no others.
#[test]
fn one_behind_the_other_stops_where_it_must() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::between((kind, &[]), (kind, logging(kind)));
        table_of_200(&site);
        let way = [&TRANSACTION[..], &ONE].concat();
        site.catch_up(&way);
        let updates: String = (1..=200).map(|id| format!("UPDATE d.t SET v = v + 1 WHERE id = {id};")).collect();
        let mut other = locked(&site, 100);
        site.source.sql(&updates);
        let running = site.spawn(site.replicate(&way));
        let sum = || site.replica.sql("SELECT SUM(v) FROM d.t");
        wait_until("those before it", || sum() == "99");
        sleep(Duration::from_millis(300));
        assert_eq!(sum(), "99");
        other.sql("ROLLBACK");
        site.wait_applied();
        running.terminate();
        site.assert_identical();
        let row = site.replica.sql("SELECT v FROM d.t WHERE id = 77");
        site.replica.sql("SET sql_log_bin=0; DELETE FROM d.t WHERE id = 77");
        site.source.sql(&updates);
        let refused = site.run(site.replicate(&way));
        refused.assert_failed_saying(&["d.t", "77"]);
        assert_eq!(site.replica.sql("SELECT SUM(v = 2), SUM(v = 1) FROM d.t"), "76\t123");
        site.replica.sql(&format!("SET sql_log_bin=0; INSERT INTO d.t VALUES (77, {row})"));
        site.catch_up(&way);
        site.assert_identical();
        assert_eq!(gtids_of_source(&site.source, &site.source), gtids_of_source(&site.replica, &site.source));
    }
}

/// What takes long is executed beside those that are applied one behind the other, ahead of its turn.
#[test]
fn long_one_is_executed_beside_short_ones() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        table_of_200(&site);
        site.source.sql("CREATE TABLE d.long (id INT PRIMARY KEY, c TEXT)");
        site.catch_up(&["--start", "earliest"]);
        let mut other = locked(&site, 1);
        site.source.sql(
            "UPDATE d.t SET v = 1 WHERE id = 1; INSERT INTO d.long SELECT id, REPEAT('x', 4000) FROM d.t; \
             UPDATE d.t SET v = 2 WHERE id = 1; DELETE FROM d.long WHERE id <= 100",
        );
        let running = site.spawn(site.replicate(&[&TRANSACTION[..], &ONE].concat()));
        wait_until_innodb_shows("the long one", || {
            site.replica.sql("SELECT MAX(trx_rows_modified) FROM information_schema.INNODB_TRX") == "200"
        });
        assert_eq!(site.replica.sql("SELECT COUNT(*), (SELECT SUM(v) FROM d.t) FROM d.long"), "0\t0");
        other.sql("ROLLBACK");
        site.wait_applied();
        running.terminate();
        site.assert_identical();
    }
}

/// However many take long, a few of them are open, and none keeps those before it from being begun.
#[test]
fn many_long_ones_among_short_ones_end() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        // It says who waits for whom.
        let schema = if kind == Kind::Mysql { &["--performance-schema=ON"][..] } else { &[] };
        let site = Site::between((kind, &[]), (kind, schema));
        table_of_200(&site);
        site.source.sql("CREATE TABLE d.long (id INT PRIMARY KEY, c LONGTEXT)");
        site.catch_up(&["--start", "earliest"]);
        let mut other = locked(&site, 1);
        let pair = |id: i32| {
            format!("UPDATE d.t SET v = v + 1 WHERE id = {id}; INSERT INTO d.long VALUES ({id}, REPEAT('x', 140000));")
        };
        site.source.sql(&(1..=80).map(pair).collect::<String>());
        let running = site.spawn(site.replicate(&[&TRANSACTION[..], &ONE].concat()));
        wait_until_innodb_shows("some long ones", || open_transactions(&site) >= 8);
        sleep(Duration::from_secs(1));
        assert_eq!(open_transactions(&site), 8);
        other.sql("ROLLBACK");
        site.wait_applied();
        running.terminate();
        site.assert_identical();
    }
}

/// Without an order, others are committed while the oldest waits. The next program applies none of them again.
fn spread_is_finished(kind: Kind, next: &[&str]) {
    let site = Site::of(kind);
    table_of_200(&site);
    site.catch_up(&["--start", "earliest"]);
    let mut other = locked(&site, 1);
    let updates: String = (1..=150).map(|id| format!("UPDATE d.t SET v = v + 1 WHERE id = {id};")).collect();
    site.source.sql(&updates);
    let running = site.spawn(site.replicate(&[&TRANSACTION[..], &FREE].concat()));
    wait_until("all others", || site.replica.sql("SELECT SUM(v) FROM d.t") == "149");
    running.kill();
    let ahead = site
        .replica
        .sql("SELECT SUM(LENGTH(gtids) - LENGTH(REPLACE(gtids, ',', '')) + (gtids <> '')) FROM spate.spread");
    assert_eq!(ahead, "149");
    other.sql("ROLLBACK");
    let refused = site.run(site.replica_command("handover"));
    refused.assert_failed_saying(&["applied ahead of others", "--until caught-up"]);
    // An update of a row to the image that it has would not show.
    site.source.sql("UPDATE d.t SET v = v + 1 WHERE id BETWEEN 2 AND 150; UPDATE d.t SET v = v + 1 WHERE id = 1");
    site.catch_up(next);
    site.assert_identical();
    assert_eq!(site.replica.sql("SELECT COUNT(*), SUM(v) FROM d.t WHERE id <= 150"), "150\t300");
    site.run(site.replica_command("handover")).assert_says(&[]);
}

#[test]
fn transactions_ahead_of_others_are_applied_once() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        spread_is_finished(kind, &["--start", "earliest"]);
        spread_is_finished(kind, &[&TRANSACTION[..], &FREE, &["--appliers", "3"]].concat());
    }
}

/// A later transaction holds a gap of a unique index that an earlier one needs. It is rolled back, and comes again: also if somebody
/// watches the replica's transactions so often that InnoDB's copy of them stays what it was, and shows nobody who waits.
fn lock_of_a_later_one(kind: Kind, order: &[&str], is_watched: bool) {
    const LIMIT: Duration = Duration::from_secs(40);
    let site = Site::of(kind);
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT NOT NULL); INSERT INTO d.t VALUES (1, 0); \
         CREATE TABLE d.u (id INT PRIMARY KEY, u INT NOT NULL, UNIQUE (u)); INSERT INTO d.u VALUES (1, 10), (2, 20), (3, 30)",
    );
    site.catch_up(&["--start", "earliest"]);
    // The deleted entry stays in the index as long as somebody may see it.
    let mut viewer = Session::open(&site.replica);
    viewer.sql("START TRANSACTION WITH CONSISTENT SNAPSHOT; SELECT COUNT(*) FROM d.u");
    site.source.sql("DELETE FROM d.u WHERE id = 2");
    site.catch_up(&[]);
    let mut other = locked(&site, 1);
    site.source
        .sql("BEGIN; UPDATE d.t SET v = 1; INSERT INTO d.u VALUES (5, 15); COMMIT; INSERT INTO d.u VALUES (6, 20)");
    let began = Instant::now();
    let running = site.spawn(site.replicate(&[&TRANSACTION[..], order].concat()));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        if is_watched {
            scope.spawn(|| {
                let mut watching = Session::open(&site.replica);
                // No longer than the limit: a test that fails ends, too.
                while began.elapsed() < LIMIT && !is_over.load(Ordering::Acquire) {
                    watching.sql("SELECT COUNT(*) FROM information_schema.INNODB_TRX");
                    sleep(Duration::from_millis(20));
                }
            });
        }
        sleep(Duration::from_millis(1500));
        other.sql("ROLLBACK");
        site.wait_applied();
        is_over.store(true, Ordering::Release);
    });
    // Nobody has waited for the server to give up.
    assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
    running.terminate();
    viewer.sql("ROLLBACK");
    site.assert_identical();
}

#[test]
fn later_transaction_gives_way_to_an_earlier_one() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        for order in [&MANY[..], &ONE, &FREE] {
            lock_of_a_later_one(kind, order, false);
        }
    }
}

#[test]
fn later_transaction_gives_way_though_the_server_shows_no_wait() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        lock_of_a_later_one(kind, &MANY, true);
    }
}

/// Keys that the server takes for equal, of other bytes.
#[test]
fn equal_keys_of_other_bytes_wait_for_each_other() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql(
            "CREATE DATABASE d; CREATE TABLE d.t (k VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, v INT); \
             CREATE TABLE d.u (id INT PRIMARY KEY, k VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_german2_ci, UNIQUE (k)); \
             CREATE TABLE d.p (id INT PRIMARY KEY, k VARCHAR(20), UNIQUE (k(3)))",
        );
        let mut sql = String::new();
        for round in 0..150 {
            let (one, other) = match round % 3 {
                0 => ("anna", "ANNA"),
                1 => ("\u{e4}b", "ab"),
                _ => ("x", "X "),
            };
            sql.push_str(&format!(
                "INSERT INTO d.t VALUES ('{one}', {round}); DELETE FROM d.t; INSERT INTO d.t VALUES ('{other}', {round}); DELETE FROM d.t; \
                 INSERT INTO d.u VALUES ({round}, 'ae'); DELETE FROM d.u; INSERT INTO d.u VALUES ({round} + 1000, '\u{e4}'); DELETE FROM d.u; \
                 INSERT INTO d.p VALUES ({round}, 'abc{round}'); DELETE FROM d.p; INSERT INTO d.p VALUES ({round} + 1000, 'abcd'); DELETE FROM d.p;"
            ));
        }
        sql.push_str("INSERT INTO d.t VALUES ('end', 1)");
        site.source.sql(&sql);
        site.catch_up(&[&TRANSACTION[..], &FREE].concat());
        site.assert_identical();
    }
}

#[test]
fn policies_without_their_hints_are_refused() {
    for (kind, policy, part) in
        [(Kind::Mariadb, "logical-clock", "no logical clock"), (Kind::Mysql, "commit-group", "commit ids")]
    {
        let site = Site::of(kind);
        table_of_200(&site);
        site.source.sql("UPDATE d.t SET v = 1");
        let ended =
            site.run(site.replicate(&[&TRANSACTION[..], &["--parallel-by", policy, "--until", "caught-up"]].concat()));
        ended.assert_failed_saying(&[part, "write-set"]);
        assert_ne!(site.replica.try_sql("SELECT SUM(v) FROM d.t").unwrap_or_default(), "200");
    }
}

/// What a server logs by itself, apart from the transaction that it belongs to, uses up that one's GTID.
#[test]
fn what_is_logged_by_itself_keeps_its_gtid() {
    for format in ["--binlog-format=ROW", "--binlog-format=MIXED", "--binlog-format=STATEMENT"] {
        let kind = Kind::Mariadb;
        let site = Site::between(
            (kind, &[format, "--gtid-strict-mode=1"]),
            (kind, &[logging(kind), &["--gtid-strict-mode=1"]].concat()),
        );
        site.source.sql(
            "CREATE DATABASE d; USE d; CREATE TABLE t (a INT PRIMARY KEY, b INT); INSERT INTO t VALUES (1, 1); \
             SET binlog_alter_two_phase = 1; ALTER TABLE t ADD c INT; ALTER TABLE t ADD INDEX (b); SET binlog_alter_two_phase = 0; \
             CREATE TABLE cs AS SELECT * FROM t; CREATE TABLE cs2 (x INT PRIMARY KEY) SELECT a + 10 AS x FROM t; \
             XA START 'a'; INSERT INTO t VALUES (5, 5, 5); XA END 'a'; XA PREPARE 'a'; XA COMMIT 'a'; \
             XA START 'b'; INSERT INTO t VALUES (6, 5, 5); XA END 'b'; XA PREPARE 'b'; XA ROLLBACK 'b'; \
             CREATE USER u@localhost IDENTIFIED BY 'x'; GRANT SELECT ON d.* TO u@localhost; \
             CREATE TABLE sv (a INT PRIMARY KEY) WITH SYSTEM VERSIONING; INSERT INTO sv VALUES (1); DELETE FROM sv; \
             CREATE VIEW v AS SELECT * FROM t; DROP VIEW v; CREATE PROCEDURE p () INSERT INTO t VALUES (100, 1, 1); CALL p(); \
             CREATE TABLE m (a INT PRIMARY KEY) ENGINE=MyISAM; INSERT INTO m VALUES (1), (2); UPDATE m SET a = a + 5; \
             BEGIN; INSERT INTO t VALUES (9, 9, 9); INSERT INTO m VALUES (3); COMMIT; \
             CREATE TEMPORARY TABLE tt (a INT); INSERT INTO tt VALUES (1); INSERT INTO t SELECT a + 200, 1, 1 FROM tt; DROP TEMPORARY TABLE tt; \
             TRUNCATE TABLE cs; DROP TABLE cs, cs2; ANALYZE TABLE t; RENAME TABLE t TO t2; \
             BEGIN; INSERT INTO t2 VALUES (300, 1, 1); SAVEPOINT x; INSERT INTO t2 VALUES (301, 1, 1); ROLLBACK TO x; COMMIT; \
             CREATE TRIGGER tr BEFORE INSERT ON t2 FOR EACH ROW SET NEW.b = 1; INSERT INTO t2 VALUES (400, 4, 4)",
        );
        // With statements, a sequence is refused.
        if format != "--binlog-format=STATEMENT" {
            site.source.sql(
                "USE d; CREATE SEQUENCE s; SELECT NEXTVAL(s); SELECT SETVAL(s, 100); \
                 CREATE TABLE sq (a BIGINT PRIMARY KEY DEFAULT NEXTVAL(s), b INT); INSERT INTO sq (b) VALUES (1), (2); \
                 BEGIN; INSERT INTO sq (b) VALUES (5); UPDATE t2 SET b = 7; INSERT INTO sq (b) VALUES (6); COMMIT; \
                 BEGIN; INSERT INTO t2 VALUES (5000, NEXTVAL(s), 1); SELECT NEXTVAL(s); ROLLBACK; INSERT INTO sq (b) VALUES (9)",
            );
        }
        site.catch_up(&TRANSACTION);
        site.assert_identical();
        let (at_source, at_replica) =
            (gtids_of_source(&site.source, &site.source), gtids_of_source(&site.replica, &site.source));
        assert!(at_source.len() > 35, "{at_source:?}");
        match format {
            "--binlog-format=ROW" => assert_eq!(at_source, at_replica),
            // A temporary table is in the replica's binlog only if statements are.
            _ => assert!(at_replica.len() >= at_source.len() - 4, "{at_replica:?}"),
        }
        assert!(at_replica.iter().all(|gtid| at_source.contains(gtid)), "{format}: {at_replica:?}");
    }
}

/// What cannot be rolled back, and what has no note, is begun again after a kill, though a binlog may have it.
#[test]
#[cfg(feature = "failpoints")]
fn what_cannot_be_rolled_back_keeps_its_gtid_across_kills() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let strictness: &[&str] = if kind == Kind::Mariadb { &["--gtid-strict-mode=1"] } else { &[] };
        let site = Site::between((kind, &[]), (kind, &[logging(kind), strictness].concat()));
        site.source.sql("CREATE DATABASE d; CREATE TABLE d.m (a INT PRIMARY KEY, b INT) ENGINE=MyISAM; CREATE TABLE d.t (a INT PRIMARY KEY)");
        site.catch_up(&TRANSACTION);
        for (round, point) in
            ["after-intent", "before-checkpoint-update", "before-commit", "after-commit-sent", "after-commit"]
                .iter()
                .enumerate()
        {
            site.source.sql(&format!(
                "USE d; CREATE TABLE x (a INT PRIMARY KEY); INSERT INTO m VALUES (2 * {round}, 0), (2 * {round} + 1, 0); UPDATE m SET b = b + 1; \
                 DROP TABLE x; DELETE FROM m WHERE a = 2 * {round}; INSERT INTO t VALUES ({round})"
            ));
            // Each of them is interrupted once.
            for nth in 1..=6 {
                let mut command = site.replicate(&TRANSACTION);
                command.env("SPATE_STOP_AT", format!("{point}:{nth}")).args(["--until", "caught-up"]);
                site.run(command);
            }
            site.catch_up(&TRANSACTION);
            site.assert_identical();
        }
        assert_eq!(gtids_of_source(&site.source, &site.source), gtids_of_source(&site.replica, &site.source));
    }
}

/// The number of appliers is found out while many transactions wait: more of them where they are applied sooner than it takes to measure.
#[test]
fn number_of_appliers_is_found_out() {
    let site = Site::of(Kind::Mariadb);
    table_of_200(&site);
    site.catch_up(&TRANSACTION);
    let mut told = Value::Null;
    for rounds in [60, 240, 960, 3840] {
        let sql: String = (0..rounds)
            .flat_map(|round| (1..=200).map(move |id| format!("UPDATE d.t SET v = {round} WHERE id = {id};")))
            .collect();
        site.source.sql(&sql);
        let running = site.spawn(site.replicate(&[&TRANSACTION[..], &FREE, &["--appliers", "auto"]].concat()));
        site.wait_applied();
        told = site.status()["appliers"].take();
        running.terminate();
        site.assert_identical();
        if told.as_str().is_some_and(|appliers| appliers.contains("apply")) {
            return;
        }
    }
    panic!("no number of appliers was found out: {told}");
}

/// A replica that would pass over transactions, or refuse them.
#[test]
fn replicas_whose_gtids_do_not_fit_are_refused() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let strictness: &[&str] = if kind == Kind::Mariadb { &["--gtid-strict-mode=1"] } else { &[] };
        let site = Site::between((kind, &[]), (kind, &[logging(kind), strictness].concat()));
        table_of_200(&site);
        let start = match kind {
            Kind::Mysql => "earliest".to_owned(),
            _ => format!("gtid:{}", site.source.sql("SELECT @@gtid_binlog_pos")),
        };
        site.source.sql("UPDATE d.t SET v = 1; UPDATE d.t SET v = 2; UPDATE d.t SET v = 3");
        if kind == Kind::Mariadb {
            let ended = site.run(site.replicate(&[&TRANSACTION[..], &FREE].concat()));
            ended.assert_failed_saying(&["gtid_strict_mode", "--commit-order be preserve"]);
        }
        site.catch_up(&TRANSACTION);
        site.replica.sql("DELETE FROM spate.checkpoint");
        let ended = site.run(site.replicate(&["--start", &start, "--consistency", "transaction"]));
        ended.assert_failed_saying(&["already", "Spate's checkpoint is at"]);
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.checkpoint"), "0");
    }
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    let site = Site::plain();
    for options in [&["--group", "4", "--commit-order", "free"][..], &["--ignore-server-ids", "7"]] {
        let ended = site.run(site.replicate(&[&TRANSACTION[..], options].concat()));
        ended.assert_failed_saying(&["exclude each other"]);
    }
}

/// What readers see with the order kept is what the source had: the sum of all accounts never changes.
#[test]
fn readers_see_states_that_the_source_had() {
    for (kind, appliers) in [Kind::Mariadb, Kind::Mysql].into_iter().flat_map(|kind| [(kind, ONE), (kind, MANY)]) {
        let site = Site::of(kind);
        site.source.sql(
            "CREATE DATABASE d; CREATE TABLE d.step (id INT PRIMARY KEY, n INT NOT NULL); CREATE TABLE d.done (n INT PRIMARY KEY); \
             INSERT INTO d.step VALUES (1, 0), (2, 0), (3, 0), (4, 0)",
        );
        site.catch_up(&["--start", "earliest"]);
        let mut sql = String::new();
        for n in 1..=400 {
            sql.push_str(&format!(
                "UPDATE d.step SET n = {n} WHERE id = {}; INSERT INTO d.done VALUES ({n});",
                1 + n % 4
            ));
        }
        site.source.sql(&sql);
        let running = site.spawn(site.replicate(&[&TRANSACTION[..], &appliers].concat()));
        let mut reader = Session::open(&site.replica);
        let mut read = || -> Vec<i64> {
            let rows = reader.sql(
                "SELECT MAX(n), (SELECT COUNT(*) FROM d.done), (SELECT COALESCE(MAX(n), 0) FROM d.done) FROM d.step",
            );
            rows.last().unwrap().split('\t').map(|number| number.parse().unwrap()).collect()
        };
        // Each number is in the one table before it is in the other, and none is missing.
        let is_of_the_source =
            |numbers: &[i64]| numbers[1] == numbers[2] && (0..=1).contains(&(numbers[0] - numbers[1]));
        // A read view of MariaDB is not made at one instant: what is committed while it is made may be in it, without what was committed before.
        let views = if kind == Kind::Mariadb { 3 } else { 1 };
        wait_until("the end", || {
            let wrong: Vec<Vec<i64>> =
                (0..views).map(|_| read()).take_while(|numbers| !is_of_the_source(numbers)).collect();
            assert!(wrong.len() < views, "{kind:?}: {wrong:?}");
            read()[1] == 400
        });
        running.terminate();
        site.assert_identical();
    }
}

/// By schemas, tables that foreign keys connect are not beside each other, wherever they are.
#[test]
fn foreign_keys_between_schemas_are_waited_for() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        for order in [&MANY[..], &ONE, &FREE] {
            let site = Site::of(kind);
            site.source.sql(
                "CREATE DATABASE a; CREATE DATABASE b; CREATE TABLE b.y (id INT PRIMARY KEY, v INT); INSERT INTO b.y VALUES (1, 0); \
                 CREATE TABLE a.parent (id INT PRIMARY KEY); INSERT INTO a.parent VALUES (1), (2); \
                 CREATE TABLE b.child (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES a.parent (id) ON DELETE CASCADE); \
                 INSERT INTO b.child VALUES (1, 1), (2, 2)",
            );
            site.catch_up(&["--start", "earliest"]);
            let mut other = Session::open(&site.replica);
            other.sql("BEGIN; SELECT id FROM b.y WHERE id = 1 FOR UPDATE");
            site.source.sql(
                "SET foreign_key_checks=0; BEGIN; UPDATE b.y SET v = 7; INSERT INTO b.child VALUES (3, 1); COMMIT; \
                 SET foreign_key_checks=1; DELETE FROM a.parent WHERE id = 1",
            );
            let way = [&TRANSACTION[..], &["--parallel-by", "shard"], order].concat();
            let running = site.spawn(site.replicate(&way));
            sleep(Duration::from_millis(1500));
            other.sql("ROLLBACK");
            site.wait_applied();
            running.terminate();
            site.assert_identical();
        }
    }
}

/// At rest, the checkpoint says where the replica is: a comparison looks for it.
#[test]
fn comparison_meets_a_resting_replica_of_any_order() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        table_of_200(&site);
        let running = site.spawn(site.replicate(&[&TRANSACTION[..], &FREE].concat()));
        site.source.sql(&(1..=7).map(|id| format!("UPDATE d.t SET v = 1 WHERE id = {id};")).collect::<String>());
        site.wait_applied();
        site.run(site.command("verify", &[])).assert_says(&["identical"]);
        site.source.sql("UPDATE d.t SET v = 2");
        site.wait_applied();
        running.terminate();
        site.assert_identical();
    }
}
