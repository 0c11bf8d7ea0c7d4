//! Tables that are altered, and transactions that are left out, while appliers are at different positions.

use std::thread::sleep;
use std::time::Duration;

use crate::support::session::Session;
use crate::support::{Kind, Site, wait_until, wait_until_innodb_shows};

fn shard<'a>(appliers: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["--consistency", "shard", "--appliers", appliers], more].concat()
}

/// Tables of forty rows, and `d.x`, a row of which somebody may lock.
fn site_of(kind: Kind, tables: &[&str]) -> Site {
    let site = Site::of(kind);
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.x (id INT PRIMARY KEY, v INT); INSERT INTO d.x VALUES (1, 0)");
    for table in tables {
        site.source.sql(&format!(
            "CREATE TABLE d.{table} (id INT PRIMARY KEY, v INT, u INT); \
             INSERT INTO d.{table} WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40) SELECT i, 0, i FROM n"
        ));
    }
    site.catch_up(&["--start", "earliest"]);
    site
}

fn locked(site: &Site) -> Session {
    let mut other = Session::open(&site.replica);
    other.sql("BEGIN; SELECT id FROM d.x WHERE id = 1 FOR UPDATE");
    other
}

fn count(site: &Site, table: &str, v: u32) -> String {
    site.replica.sql(&format!("SELECT COUNT(*) FROM d.{table} WHERE v = {v}"))
}

/// The source alters a table without logging that: a row's key has other bytes from there on.
#[test]
fn key_of_another_layout_waits_for_all_before() {
    let ways: [Vec<&str>; 4] = [
        shard("4", &[]),
        vec!["--consistency", "transaction", "--parallel-by", "write-set", "--commit-order", "free", "--appliers", "4"],
        vec!["--consistency", "transaction", "--appliers", "4"],
        vec!["--pipelining", "always", "--batch-transactions", "1"],
    ];
    let tables = ["t0", "t1", "t2", "t3"];
    let site = site_of(Kind::Mariadb, &tables);
    site.replica.sql("SET GLOBAL slave_type_conversions = 'ALL_NON_LOSSY'");
    for (table, way) in tables.iter().zip(&ways) {
        site.replica.sql(&format!("SET sql_log_bin=0; ALTER TABLE d.{table} MODIFY id BIGINT"));
        let mut other = Session::open(&site.replica);
        other.sql(&format!("BEGIN; SELECT id FROM d.{table} WHERE id = 1 FOR UPDATE"));
        site.source.sql(&format!(
            "UPDATE d.{table} SET v = 1; SET sql_log_bin=0; ALTER TABLE d.{table} MODIFY id BIGINT; SET sql_log_bin=1; \
             UPDATE d.{table} SET v = 2 WHERE id > 1"
        ));
        let running = site.spawn(site.replicate(way));
        sleep(Duration::from_millis(1500));
        other.sql("ROLLBACK");
        site.wait_applied();
        running.terminate();
        assert_eq!((count(&site, table, 1), count(&site, table, 2)), ("1".to_owned(), "39".to_owned()), "{way:?}");
        site.assert_identical();
    }
}

/// Somebody gives a running replica's table a unique key: it is no longer divided by row.
#[test]
fn table_that_is_divided_otherwise_waits_for_all_before() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = site_of(kind, &["t"]);
        let mut other = locked(&site);
        site.source.sql("UPDATE d.x SET v = 1");
        let running = site.spawn(site.replicate(&shard("2", &[])));
        // A batch of its own: one that has opened the other table would keep it from being altered.
        let waiting = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'";
        wait_until_innodb_shows("an applier to wait", || site.replica.sql(waiting) != "0");
        site.source.sql("UPDATE d.t SET v = 1");
        wait_until("one of them", || count(&site, "t", 1) != "0");
        site.replica.sql("ALTER TABLE d.t ADD UNIQUE KEY (u)");
        sleep(Duration::from_secs(1));
        site.source.sql("UPDATE d.t SET v = 2");
        sleep(Duration::from_secs(1));
        other.sql("ROLLBACK");
        site.wait_applied();
        running.terminate();
        assert_eq!(count(&site, "t", 2), "40", "{kind:?}");
    }
}

/// Appliers that a kill has left at different positions.
fn uneven(site: &Site, tables: &[&str]) {
    let mut other = locked(site);
    let updates: String = tables.iter().map(|table| format!("UPDATE d.{table} SET v = v + 1;")).collect();
    site.source.sql(&format!("UPDATE d.x SET v = v + 1; {updates}"));
    let running = site.spawn(site.replicate(&shard("2", &[])));
    wait_until("one of them", || site.replica.sql("SELECT COUNT(DISTINCT gtid_position) FROM spate.checkpoint") != "1");
    wait_until("its last", || count(site, tables[tables.len() - 1], 1) != "0");
    running.kill();
    other.sql("ROLLBACK");
}

/// After a kill, nobody knows whose rows of an altered table are applied.
#[test]
fn alteration_amid_a_spread_is_refused() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let tables = ["t0", "t1", "t2", "t3"];
        let site = site_of(kind, &tables);
        uneven(&site, &tables);
        site.replica.sql("ALTER TABLE d.t2 ADD UNIQUE KEY other (u)");
        for way in [vec!["--start", "earliest"], shard("3", &[])] {
            let refused = site.run(site.replicate(&[&way[..], &["--until", "caught-up"]].concat()));
            refused.assert_failed_saying(&["d.t2", "is not defined as it was then", "undo the alteration"]);
        }
        site.replica.sql("ALTER TABLE d.t2 DROP KEY other");
        site.catch_up(&["--start", "earliest"]);
        site.assert_identical();
    }
}

/// A transaction of which some appliers have applied their rows is not left out.
#[test]
fn half_of_a_transaction_is_not_left_out() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = site_of(kind, &["t"]);
        site.replica.sql("DELETE FROM d.t WHERE id = 4");
        site.source.sql("UPDATE d.t SET v = 77");
        let refused = site.run(site.replicate(&shard("4", &["--until", "caught-up"])));
        refused.assert_failed_saying(&["id=4", "some of this transaction may be applied already"]);
        let applied = count(&site, "t", 77);
        assert_ne!(applied, "0");
        let gtid = match kind {
            Kind::Mysql => {
                let set = site.source.sql("SELECT @@gtid_executed");
                let (uuid, last) = (set.split(':').next().unwrap(), set.rsplit(['-', ':']).next().unwrap());
                format!("gtid:{uuid}:{last}")
            }
            _ => format!("gtid:{}", site.source.sql("SELECT @@gtid_binlog_pos")),
        };
        for way in [shard("4", &[]), vec!["--start", "earliest"]] {
            let refused = site.run(site.replicate(&[&way[..], &["--skip", &gtid, "--until", "caught-up"]].concat()));
            refused.assert_failed_saying(&["half of it would stay", "--on-conflict repair"]);
            assert_eq!(count(&site, "t", 77), applied);
        }
        site.catch_up(&shard("4", &["--on-conflict", "repair"]));
        site.assert_identical();
    }
}
