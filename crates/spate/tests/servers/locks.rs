//! The locks that keep two Spates from applying to one replica, when statements of the source take and release locks themselves.

use std::thread::sleep;
use std::time::Duration;

use crate::support::server::{ACCOUNT, PASSWORD};
use crate::support::session::Session;
use crate::support::{Kind, Site, wait_until};

const OPTIONS: [&str; 4] = ["--start", "earliest", "--memory", "64MiB"];

fn holder(site: &Site, lock: &str) -> String {
    site.replica.sql(&format!("SELECT IS_USED_LOCK(CONCAT(name, '.{lock}')) FROM spate.lock_name"))
}

/// Statements whose functions are executed on a replica too: in statement format.
fn site(kind: Kind) -> Site {
    let site = Site::of(kind);
    site.source.sql("SET GLOBAL binlog_format=STATEMENT");
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, a BIGINT)");
    site.catch_up(&OPTIONS);
    site
}

/// Statements that release all locks leave Spate its own.
fn locks_survive_their_release(kind: Kind) {
    let site = site(kind);
    let running = site.spawn(site.replicate(&OPTIONS));
    wait_until("the applier to be there", || holder(&site, "applier") != "NULL");
    let first = holder(&site, "applier");
    site.source.sql(
        "INSERT INTO d.t (a) VALUES (GET_LOCK('x', 0)); INSERT INTO d.t (a) SELECT RELEASE_ALL_LOCKS(); \
         INSERT INTO d.t (a) VALUES (5)",
    );
    site.wait_applied();
    assert_eq!(holder(&site, "applier"), first, "its lock is gone");
    assert_ne!(holder(&site, "main"), "NULL", "nobody would wait for the session that applies");
    let second = site.run(site.replicate(&["--until", "caught-up"]));
    second.assert_failed_saying(&["another"]);
    assert!(running.terminate().status.success());
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "3");
}

#[test]
fn locks_survive_their_release_on_mariadb() {
    locks_survive_their_release(Kind::Mariadb);
}

#[test]
fn locks_survive_their_release_on_mysql() {
    locks_survive_their_release(Kind::Mysql);
}

/// The same inside an XA transaction, which has a session of its own.
#[test]
fn xa_branch_keeps_its_lock() {
    let site = site(Kind::Mariadb);
    site.source.sql(
        "XA START 'x'; INSERT INTO d.t (a) SELECT RELEASE_ALL_LOCKS(); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'; \
         INSERT INTO d.t (a) VALUES (1)",
    );
    site.catch_up(&[]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "2");
}

/// Locks whose names anybody can guess do not stop what Spate does beside the session that applies.
#[test]
fn statement_cannot_take_the_locks_first() {
    let site = site(Kind::Mariadb);
    for lock in ["spate.applier", "spate.journal", "spate.branch", "spate.applier.journal", "spate.applier.branch"] {
        site.source.sql(&format!("INSERT INTO d.t (a) VALUES (GET_LOCK('{lock}', 1000))"));
    }
    // A definition is noted by another session.
    site.source
        .sql("CREATE TABLE d.u (id INT); XA START 'x'; INSERT INTO d.t (a) VALUES (9); XA END 'x'; XA PREPARE 'x'");
    site.catch_up(&[]);
    assert_eq!(site.replica.sql("XA RECOVER").lines().count(), 1);
    site.source.sql("XA ROLLBACK 'x'");
    site.catch_up(&[]);
}

/// Another has applied meanwhile, without any lock: the batch is rolled back.
#[test]
fn checkpoint_moved_by_others_ends_the_run() {
    let site = site(Kind::Mariadb);
    let running = site.spawn(site.replicate(&OPTIONS));
    site.source.sql("INSERT INTO d.t (a) VALUES (4)");
    wait_until("the applier to have begun", || site.replica.sql("SELECT COUNT(*) FROM d.t") == "1");
    let mut other = Session::open(&site.replica);
    other.sql("UPDATE spate.checkpoint SET seqno = seqno + 1");
    site.source.sql("INSERT INTO d.t (a) VALUES (5)");
    let ended = running.wait();
    ended.assert_failed_saying(&["spate.checkpoint", "is not where this Spate has left it"]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "1", "what another has done was done again");
}

/// A checkpoint that somebody has removed is written anew with the next batch.
#[test]
fn checkpoint_removed_by_others_is_written_again() {
    let site = site(Kind::Mariadb);
    let running = site.spawn(site.replicate(&OPTIONS));
    site.source.sql("INSERT INTO d.t (a) VALUES (4)");
    wait_until("the applier to have begun", || site.replica.sql("SELECT COUNT(*) FROM d.t") == "1");
    site.replica.sql("DELETE FROM spate.checkpoint");
    site.source.sql("INSERT INTO d.t (a) VALUES (5)");
    site.wait_applied();
    assert!(running.terminate().status.success());
    site.source.sql("INSERT INTO d.t (a) VALUES (6)");
    site.catch_up(&[]);
    assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "3");
}

/// The server evaluates the settings of a definition before it executes it: so long, it has released Spate's locks.
const SWAP: &str =
    "SET STATEMENT max_statement_time=100+RELEASE_ALL_LOCKS()+SLEEP(5) FOR RENAME TABLE a TO c, b TO a, c TO b";

fn swapped_site() -> Site {
    let site = Site::plain();
    site.source.sql("CREATE DATABASE d; USE d; CREATE TABLE a (i INT); CREATE TABLE b (i INT); INSERT INTO a VALUES (1); INSERT INTO b VALUES (2)");
    site.catch_up(&OPTIONS);
    site.source.sql(&format!("USE d; {SWAP}; INSERT INTO d.a VALUES (3)"));
    site
}

fn wait_for_sleep(site: &Site) {
    wait_until("the definition to be executed", || {
        site.replica.sql("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SET STATEMENT%'") == "1"
    });
}

/// It outlives the Spate that sent it, without any lock that says so.
#[test]
fn definition_that_releases_locks_is_executed_once() {
    let site = swapped_site();
    let running = site.spawn(site.replicate(&OPTIONS));
    wait_for_sleep(&site);
    assert!(running.kill());
    site.catch_up(&OPTIONS);
    site.assert_identical();
}

/// It lets no second Spate in.
#[test]
fn definition_that_releases_locks_keeps_others_out() {
    let site = swapped_site();
    let running = site.spawn(site.replicate(&OPTIONS));
    wait_for_sleep(&site);
    let mut second = site.command("replicate", &["--start", "earliest", "--until", "caught-up"]);
    second.arg("--archive").arg(site.archive().with_extension("second"));
    let refused = site.run(second);
    assert!(!refused.status.success(), "{}", refused.output);
    site.wait_applied();
    assert!(running.terminate().status.success());
    site.assert_identical();
}

/// After a restart a server gives ids again that it gave before: also to the session that looks for earlier ones.
#[test]
fn guard_does_not_wait_for_itself() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
        site.catch_up(&["--start", "earliest"]);
        site.replica.sql(
            "INSERT INTO spate.session WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900) \
             SELECT CONCAT('earlier ', i), i FROM n",
        );
        site.source.sql("INSERT INTO d.t VALUES (1)");
        site.catch_up(&[]);
        site.assert_identical();
    }
}

/// Spate goes on as another account: sessions that the first one has left are ended all the same.
#[test]
fn sessions_of_another_account_are_ended() {
    const SHARD: [&str; 8] =
        ["--start", "earliest", "--consistency", "shard", "--parallel-by", "shard", "--appliers", "4"];
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql(
            "CREATE DATABASE d; CREATE TABLE d.u (id INT PRIMARY KEY, v INT); INSERT INTO d.u VALUES (1, 0); CREATE TABLE d.k (a INT)",
        );
        site.catch_up(&["--start", "earliest"]);
        for account in ["spate2", "sp@te", "sp@te"] {
            let before: u32 = site.replica.sql("SELECT COUNT(*) FROM d.k").parse().unwrap();
            site.replica.sql(&format!(
                "CREATE USER IF NOT EXISTS '{account}'@'%' IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON *.* TO '{account}'@'%' WITH GRANT OPTION"
            ));
            let mut other = Session::open(&site.replica);
            other.sql("BEGIN; SELECT id FROM d.u WHERE id = 1 FOR UPDATE");
            site.source.sql(
                &(1..=5)
                    .map(|n| format!("BEGIN; UPDATE d.u SET v = v + 1; INSERT INTO d.k VALUES ({n}); COMMIT;"))
                    .collect::<String>(),
            );
            let running = site.spawn(site.replicate_as(account, &SHARD));
            sleep(Duration::from_millis(1700));
            running.kill();
            let next = if account == "spate2" { ACCOUNT } else { account };
            let going_on = site.spawn(site.replicate_as(next, &[&SHARD[..], &["--until", "caught-up"]].concat()));
            sleep(Duration::from_millis(700));
            other.sql("ROLLBACK");
            let ended = going_on.wait();
            assert!(ended.status.success(), "{}", ended.output);
            assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.k"), (before + 5).to_string(), "{kind:?}, {account}");
            site.assert_identical();
        }
        // One that may not see the sessions of others cannot know.
        site.replica.sql(&format!(
            "CREATE USER lower@'%' IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON spate.* TO lower@'%'; \
             GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, {} ON *.* TO lower@'%'",
            if kind == Kind::Mysql {
                "REPLICATION_APPLIER, SESSION_VARIABLES_ADMIN"
            } else {
                "BINLOG REPLAY, BINLOG ADMIN"
            }
        ));
        let refused = site.run(site.replicate_as("lower", &["--dialect", "replay", "--until", "caught-up"]));
        refused.assert_failed_saying(&["PROCESS"]);
    }
}

/// A replica that is made anew, without its checkpoint, is not taken for one at the beginning.
#[test]
fn checkpoint_that_is_gone_ends_the_run() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.both("CREATE DATABASE d; CREATE TABLE d.t (a INT)");
        let running = site.spawn(site.replicate(&["--start", "earliest"]));
        site.source.sql("INSERT INTO d.t VALUES (1), (2)");
        site.wait_applied();
        site.replica.sql("DELETE FROM spate.checkpoint");
        let ids = site.replica.sql(&format!(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{ACCOUNT}' AND ID <> CONNECTION_ID()"
        ));
        for id in ids.lines() {
            let _gone_by_itself = site.replica.try_sql(&format!("KILL {id}"));
        }
        site.source.sql("INSERT INTO d.t VALUES (3)");
        running.wait().assert_failed_saying(&["the checkpoint", "it has no row any more", "--start"]);
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "2");
    }
}
