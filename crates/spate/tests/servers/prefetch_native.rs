//! `spate prefetch`: reads ahead of the server's own replication.

use std::time::{Duration, Instant};

use serde_json::Value;
use spate_lab::vendor::Vendor;

use crate::support::server::{ACCOUNT, PASSWORD};
use crate::support::{Ended, Kind, Site, wait_until};

const TABLES: &str = "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, k INT, pad CHAR(200), KEY (k)); \
    CREATE TABLE d.bare (a INT)";

/// Makes a replica receive what its source writes, over this channel; nothing is applied.
fn receive(site: &Site, kind: Kind, channel: &str, delay: u32) {
    let port = site.source.port;
    let (name, quoted) = (format!("'{channel}'"), format!("FOR CHANNEL '{channel}'"));
    site.replica.sql(&match kind.vendor() {
        Vendor::MariaDb => format!(
            "CHANGE MASTER {name} TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='{ACCOUNT}', \
             MASTER_PASSWORD='{PASSWORD}', MASTER_USE_GTID=slave_pos, MASTER_DELAY={delay}; START SLAVE {name} IO_THREAD"
        ),
        Vendor::MySql => format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={port}, SOURCE_USER='{ACCOUNT}', \
             SOURCE_PASSWORD='{PASSWORD}', GET_SOURCE_PUBLIC_KEY=1, SOURCE_AUTO_POSITION=1, SOURCE_DELAY={delay} {quoted}; \
             START REPLICA IO_THREAD {quoted}"
        ),
    });
}

/// A replica that has a backlog in its relay logs; its SQL thread is stopped.
fn site_behind(kind: Kind, format: &str, channel: &str, delay: u32) -> Site {
    let site = Site::between((kind, &[&format!("--binlog-format={format}")]), (kind, &[]));
    site.source.sql(TABLES);
    receive(&site, kind, channel, delay);
    for number in 0..200 {
        let (from, to) = (number * 10, number * 10 + 9);
        let rows: Vec<String> = (from..=to).map(|id| format!("({id}, {id}, 'x')")).collect();
        site.source.sql(&format!(
            "BEGIN; INSERT INTO d.t VALUES {}; UPDATE d.t SET k = k + 1 WHERE id % 3 = 0 AND id >= {from} - 50; \
             INSERT INTO d.bare VALUES ({number}); COMMIT",
            rows.join(",")
        ));
    }
    site.source.sql("ALTER TABLE d.t ADD extra INT DEFAULT 5, ADD KEY (extra); UPDATE d.t SET extra = id; DELETE FROM d.t WHERE id < 100");
    site
}

fn start_applier(site: &Site, kind: Kind, channel: &str) {
    site.replica.sql(&match kind.vendor() {
        Vendor::MariaDb => format!("START SLAVE '{channel}' SQL_THREAD"),
        Vendor::MySql => format!("START REPLICA SQL_THREAD FOR CHANNEL '{channel}'"),
    });
}

fn has_all(site: &Site, kind: Kind) -> bool {
    let ask = if kind.vendor() == Vendor::MariaDb { "SELECT @@gtid_slave_pos" } else { "SELECT @@gtid_executed" };
    site.replica.sql(ask) == site.source.position()
}

fn counted(ended: &Ended) -> Value {
    assert!(ended.status.success(), "{}", ended.output);
    let json = &ended.output[ended.output.find('{').unwrap()..=ended.output.rfind('}').unwrap()];
    serde_json::from_str(json).unwrap()
}

/// It reads everything ahead of the applier, across a definition, and changes nothing.
fn relay_logs_are_read_ahead(kind: Kind, format: &str, channel: &str) {
    // It has to find something ahead of an applier that has nothing to wait for.
    let site = site_behind(kind, format, channel, 3);
    let mut command = site.replica_command("prefetch");
    command.args(["--always", "--json", "--offset-events", "0", "--seconds-prefetch", "100"]);
    if !channel.is_empty() {
        command.args(["--channel", channel]);
    }
    let running = site.spawn(command);
    start_applier(&site, kind, channel);
    wait_until("the replica has all", || has_all(&site, kind));
    // What comes live is not far enough before the applier to be looked up, or is.
    site.source.sql("UPDATE d.t SET k = -k");
    wait_until("the replica has all", || has_all(&site, kind));
    let counted = counted(&running.terminate());
    let read = if format == "ROW" { "row_changes" } else { "statements" };
    assert!(counted[read].as_u64() > Some(0), "{counted}");
    assert_eq!(counted["failed_queries"], 0, "{counted}");
    site.assert_identical();
}

#[test]
fn relay_logs_of_mariadb_are_read_ahead() {
    relay_logs_are_read_ahead(Kind::Mariadb, "ROW", "");
}

#[test]
fn relay_logs_of_mysql_are_read_ahead() {
    relay_logs_are_read_ahead(Kind::Mysql, "ROW", "");
}

#[test]
fn statements_of_mariadb_are_read_ahead() {
    relay_logs_are_read_ahead(Kind::Mariadb, "STATEMENT", "");
}

#[test]
fn statements_of_mysql_are_read_ahead() {
    relay_logs_are_read_ahead(Kind::Mysql, "STATEMENT", "");
}

#[test]
fn named_channel_is_read_ahead() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        relay_logs_are_read_ahead(kind, "ROW", "north-1");
    }
}

#[test]
fn one_of_several_channels_must_be_named() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = site_behind(kind, "ROW", "north", 0);
        // A second one from the same source is refused by MariaDB, if its address is the same.
        site.replica.sql(&match kind.vendor() {
            Vendor::MariaDb => "CHANGE MASTER 'south' TO MASTER_HOST='nowhere'".to_owned(),
            Vendor::MySql => "CHANGE REPLICATION SOURCE TO SOURCE_HOST='nowhere' FOR CHANNEL 'south'".to_owned(),
        });
        site.run(site.replica_command("prefetch")).assert_failed_saying(&[
            "several channels",
            "--channel",
            "'north', 'south'",
        ]);
        let mut command = site.replica_command("prefetch");
        command.args(["--channel", "west"]);
        site.run(command).assert_failed_saying(&["no channel 'west'", "'north', 'south'"]);
    }
}

#[test]
fn encrypted_relay_logs_are_refused() {
    let keys = std::env::temp_dir().join(format!("spate-keys-{}", std::process::id()));
    std::fs::write(&keys, "1;770A8A65DA156D24EE2A093277530142").unwrap();
    let file = format!("--file-key-management-filename={}", keys.display());
    let options = ["--plugin-load-add=file_key_management", &file, "--encrypt-binlog=ON"];
    // A system may have no more than the server's program, without plugins.
    let kind = Kind::Mariadb118;
    let site = Site::between((kind, &[]), (kind, &options));
    receive(&site, kind, "", 3600);
    site.source.sql(TABLES);
    start_applier(&site, kind, "");
    site.run(site.replica_command("prefetch")).assert_failed_saying(&["encrypted"]);
    std::fs::remove_file(&keys).unwrap();
}

/// Whoever changes a table while its rows are looked up waits for a moment only, even if the lookup is stopped, or gone.
#[test]
fn definitions_do_not_wait_for_lookups() {
    /// Lookups end after 100 ms; the rest is the machine's. Without that limit, one takes seconds.
    const PATIENCE: Duration = Duration::from_millis(900);
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::between((kind, &["--binlog-format=STATEMENT"]), (kind, &[]));
        let rows = "WITH RECURSIVE n AS (SELECT 1 AS id UNION ALL SELECT id + 1 FROM n WHERE id < 1000) \
            SELECT a.id * 1000 + b.id, a.id FROM n AS a, n AS b";
        let table = "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, k INT, KEY (k))";
        // The source executes the changes soon; looked up are more rows.
        let limit = if kind.vendor() == Vendor::MariaDb { "" } else { "SET cte_max_recursion_depth=10000;" };
        site.source.sql(&format!("SET sql_log_bin=0; {table}"));
        site.replica.sql(&format!("SET sql_log_bin=0; {limit} {table}; INSERT INTO d.t {rows}"));
        site.source.sql("INSERT INTO d.t VALUES (1, 1)");
        receive(&site, kind, "", 3600);
        start_applier(&site, kind, "");
        // So many that they are not over before this test sees them.
        let changes =
            (1..1000).map(|number| format!("UPDATE d.t SET k = k + 1 WHERE k > 0 AND k < {};", 1000 + number));
        site.source.sql(&changes.collect::<String>());
        let mut command = site.replica_command("prefetch");
        command.args(["--always", "--json", "--offset-events", "0", "--seconds-prefetch", "1000", "--threads", "2"]);
        let running = site.spawn(command);
        let lookups = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT COUNT(r.%'";
        wait_until("rows are looked up", || site.replica.sql(lookups) != "0");
        let alter = |number: u32| {
            let begun = Instant::now();
            site.replica.sql(&format!("SET sql_log_bin=0; ALTER TABLE d.t COMMENT='{number}'"));
            begun.elapsed()
        };
        // The machine may be busy with others during some of them.
        let mut took: Vec<Duration> = (0..5).map(alter).collect();
        took.sort();
        assert!(took[2] < PATIENCE, "{kind:?}: {took:?}");
        let is_short = |number: u32| {
            let took = alter(number);
            assert!(took < 2 * PATIENCE, "{kind:?}: {took:?}");
        };
        running.signal("STOP");
        is_short(5);
        running.signal("CONT");
        let counted = counted(&running.terminate());
        assert!(counted["slow_queries"].as_u64() > Some(0), "{counted}");
        let running = site.spawn(site.replica_command("prefetch"));
        running.kill();
        is_short(6);
    }
}

#[test]
fn replica_without_replication_is_refused() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        let mut command = site.replica_command("prefetch");
        command.arg("--json");
        site.run(command).assert_failed_saying(&["does not replicate"]);
    }
}

#[test]
fn broken_replication_is_refused_with_its_error() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        receive(&site, kind, "", 0);
        site.replica.sql("SET sql_log_bin=0; CREATE USER u@localhost");
        site.source.sql("CREATE USER u@localhost");
        start_applier(&site, kind, "");
        let (status, error) = match kind.vendor() {
            Vendor::MariaDb => ("SHOW SLAVE STATUS", "Operation CREATE USER failed"),
            Vendor::MySql => ("SHOW REPLICA STATUS", "failed executing transaction"),
        };
        wait_until("the applier has failed", || site.replica.sql(status).contains(error));
        site.run(site.replica_command("prefetch")).assert_failed_saying(&["has stopped with an error", error]);
    }
}
