//! A MariaDB source without `gtid_strict_mode` numbers transactions as it is told, and takes those of others as they are: the order of
//! its binlog counts, not that of the numbers.

use crate::support::{Kind, Site, wait_until};

fn site() -> Site {
    let site = Site::of(Kind::Mariadb);
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT)");
    site.catch_up(&["--start", "earliest"]);
    site
}

fn last_number(site: &Site) -> u64 {
    site.source.position().rsplit('-').next().unwrap().parse().unwrap()
}

fn rows(site: &Site) -> String {
    site.replica.sql("SELECT GROUP_CONCAT(id ORDER BY id) FROM d.t")
}

/// What another server has numbered like the last transaction, or lower.
#[test]
fn gtid_with_a_lower_number_is_applied() {
    let site = site();
    for (server, less, id) in [(9, 0, 1), (1, 2, 2), (8, 1, 3)] {
        let number = last_number(&site) - less;
        site.source.sql(&format!("SET server_id={server}, gtid_seq_no={number}; INSERT INTO d.t VALUES ({id})"));
        site.catch_up(&[]);
    }
    assert_eq!(rows(&site), "1,2,3");
    site.assert_identical();
}

/// The same while Spate runs, and again after a restart.
#[test]
fn gtid_with_a_lower_number_is_applied_while_running() {
    let site = site();
    let running = site.spawn(site.replicate(&[]));
    let first = last_number(&site);
    for id in 1..=10 {
        site.source.sql(&format!("INSERT INTO d.t VALUES ({id})"));
    }
    wait_until("ten rows", || rows(&site) == "1,2,3,4,5,6,7,8,9,10");
    site.source.sql(&format!("SET server_id=9, gtid_seq_no={}; INSERT INTO d.t VALUES (100)", first + 5));
    site.source.sql(&format!("SET server_id=8, gtid_seq_no={}; INSERT INTO d.t VALUES (101)", first + 1));
    wait_until("two more", || rows(&site) == "1,2,3,4,5,6,7,8,9,10,100,101");
    assert!(running.terminate().status.success());
    for (id, server, number) in [(102, 7, first + 4), (103, 6, first + 3)] {
        site.source.sql(&format!("SET server_id={server}, gtid_seq_no={number}; INSERT INTO d.t VALUES ({id})"));
        let running = site.spawn(site.replicate(&[]));
        wait_until("the next", || rows(&site).ends_with(&format!(",{id}")));
        assert!(running.terminate().status.success());
    }
    assert_eq!(rows(&site), "1,2,3,4,5,6,7,8,9,10,100,101,102,103", "nothing was applied twice");
}

/// "Caught up" is the end of the binlog, not the highest number.
#[test]
fn caught_up_waits_for_a_lower_number_at_the_end() {
    let site = site();
    let first = last_number(&site);
    for id in 1..=10 {
        site.source.sql(&format!("INSERT INTO d.t VALUES ({id})"));
    }
    site.source.sql(&format!("SET server_id=9, gtid_seq_no={}; INSERT INTO d.t VALUES (100)", first + 5));
    site.catch_up(&[]);
    assert_eq!(rows(&site), "1,2,3,4,5,6,7,8,9,10,100");
}

/// The archive holds transactions that the replica has, among those that it lacks.
#[test]
fn transactions_that_the_replica_has_among_others_are_passed_over() {
    for (kind, start) in [(Kind::Mariadb, "gtid:1-1-1"), (Kind::Mysql, "gtid:00000000-0000-4000-8000-000000000001:2")] {
        let site = Site::of(kind);
        site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
        site.replica.sql("INSERT INTO d.t VALUES (2)");
        let is_mariadb = kind == Kind::Mariadb;
        site.source.sql(if is_mariadb { "RESET MASTER" } else { "RESET BINARY LOGS AND GTIDS" });
        let other_domain = if is_mariadb { "SET SESSION gtid_domain_id=1;" } else { "" };
        let first_domain = if is_mariadb { "SET SESSION gtid_domain_id=0;" } else { "" };
        site.source.sql(&format!(
            "INSERT INTO d.t VALUES (1); {other_domain} INSERT INTO d.t VALUES (2); {first_domain} INSERT INTO d.t VALUES (3); \
             CREATE TABLE d.n (id INT PRIMARY KEY); INSERT INTO d.n VALUES (1)"
        ));
        site.fetch(&["--start", "earliest"]);
        site.catch_up(&["--start", start]);
        site.assert_identical();
    }
}

#[test]
fn error_behind_transactions_that_the_replica_has_is_told() {
    let site = Site::of(Kind::Mariadb);
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    site.replica.sql("INSERT INTO d.t VALUES (2)");
    site.source.sql("SET sql_log_bin=0; CREATE DATABASE spate; CREATE TABLE spate.q (id INT); RESET MASTER");
    site.source.sql(
        "INSERT INTO d.t VALUES (1); SET SESSION gtid_domain_id=1; INSERT INTO d.t VALUES (2); SET SESSION gtid_domain_id=0; \
         INSERT INTO d.t VALUES (3); CREATE VIEW d.v AS SELECT * FROM spate.q; INSERT INTO d.t VALUES (4)",
    );
    site.fetch(&["--start", "earliest"]);
    let ended = site.run(site.replicate(&["--start", "gtid:1-1-1"]));
    ended.assert_failed_saying(&["VIEW `d`.`v`", "it names the schema spate"]);
    assert_eq!(rows(&site), "1,2,3");
}
