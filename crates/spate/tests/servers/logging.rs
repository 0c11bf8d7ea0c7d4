//! The replica's own binlog, and acknowledgements to a semi-synchronous source.

use crate::support::Site;

const BINLOGGED: &str = "SHOW BINLOG EVENTS";

#[test]
fn replica_logs_applied_changes_unless_told_not_to() {
    let site = Site::new(&[], &["--log-bin=replica", "--binlog-format=ROW"]);
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    site.source.sql("INSERT INTO d.t VALUES (1); CREATE TABLE d.logged (id INT PRIMARY KEY)");
    site.catch_up(&["--start", "earliest"]);
    let logged = site.replica.sql(BINLOGGED);
    assert!(logged.contains("table_id") && logged.contains("(d.t)") && logged.contains("d.logged"), "{logged}");
    site.source.sql("INSERT INTO d.t VALUES (2); CREATE TABLE d.unlogged (id INT PRIMARY KEY)");
    site.catch_up(&["--no-replica-binlog"]);
    assert_eq!(site.replica.sql(BINLOGGED), logged);
    site.assert_identical();
}

#[test]
fn semi_synchronous_source_is_acknowledged() {
    let semi_sync = ["--rpl-semi-sync-master-enabled=ON", "--rpl-semi-sync-master-timeout=60000"];
    let site = Site::new(&semi_sync, &[]);
    let acknowledged = || {
        let status = site.source.sql("SHOW STATUS LIKE 'Rpl_semi_sync_master_yes_tx'");
        status.split_whitespace().nth(1).unwrap().parse::<u32>().unwrap()
    };
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    let running = site.spawn(site.replicate(&["--start", "current", "--semi-sync"]));
    site.wait_for_status("the program to receive", |status| status["intake"] == "receiving");
    crate::support::wait_until("the source to know its replica", || {
        site.source.sql("SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'").ends_with('1')
    });
    let before = acknowledged();
    for id in 0..10 {
        site.source.sql(&format!("INSERT INTO d.t VALUES ({id})"));
        if id == 5 {
            site.source.sql("FLUSH BINARY LOGS");
        }
    }
    assert_eq!(acknowledged(), before + 10);
    site.wait_applied();
    assert!(running.terminate().status.success());
    site.assert_identical();
}
