//! `spate takeover` and `spate handback`: from the server's own replication, and back.

use std::thread::sleep;
use std::time::Duration;

use spate_lab::vendor::Vendor;

use crate::support::ledger::{Ledger, assert_same};
use crate::support::server::{ACCOUNT, PASSWORD};
use crate::support::session::Session;
use crate::support::{Ended, Kind, Random, Server, Site, wait_until};

/// How the server's own replication finds its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Gtid,
    File,
}

/// A replica that replicates by itself.
fn replicating(kind: Kind, by: By, channel: &str, more: &str) -> Site {
    replicating_with(kind, by, channel, more, &[])
}

/// The same, with options of the replica's server.
fn replicating_with(kind: Kind, by: By, channel: &str, more: &str, options: &[&str]) -> Site {
    // A server that is started again goes on, as users' servers do.
    let goes_on = if kind.vendor() == Vendor::MariaDb { "--skip-slave-start=0" } else { "--skip-replica-start=0" };
    let site = Site::between((kind, &[]), (kind, &[&[goes_on, "--relay-log-recovery=1"], options].concat()));
    let port = site.source.port;
    site.replica.sql(&match (kind.vendor(), by) {
        (Vendor::MariaDb, by) => {
            let how = if by == By::Gtid { "slave_pos" } else { "no" };
            format!(
                "CHANGE MASTER '{channel}' TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='{ACCOUNT}', \
                 MASTER_PASSWORD='{PASSWORD}', MASTER_USE_GTID={how} {more}; START SLAVE '{channel}'"
            )
        }
        (Vendor::MySql, by) => {
            let how = if by == By::Gtid { 1 } else { 0 };
            format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={port}, SOURCE_USER='{ACCOUNT}', \
                 SOURCE_PASSWORD='{PASSWORD}', GET_SOURCE_PUBLIC_KEY=1, SOURCE_AUTO_POSITION={how} {more} \
                 FOR CHANNEL '{channel}'; START REPLICA FOR CHANNEL '{channel}'"
            )
        }
    });
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, k INT); INSERT INTO d.t (k) VALUES (1),(2)");
    wait_rows(&site, "2");
    site
}

fn wait_rows(site: &Site, count: &str) {
    wait_until("the rows are there", || {
        site.replica.try_sql("SELECT COUNT(*) FROM d.t").is_ok_and(|found| found == count)
    });
}

fn take_over(site: &Site, options: &[&str]) -> Ended {
    site.run(site.takeover(&[&["--until", "caught-up"], options].concat()))
}

fn hand_back(site: &Site, options: &[&str]) -> Ended {
    let mut command = site.replica_command("handback");
    command.args(options);
    site.run(command)
}

fn succeeds(ended: &Ended) {
    assert!(ended.status.success(), "{}", ended.output);
}

/// There and back again, three times; each writes what the other has to know of.
fn there_and_back(kind: Kind, by: By, channel: &str) {
    let site = replicating(kind, by, channel, "");
    let options: &[&str] = if channel.is_empty() { &[] } else { &["--channel", channel] };
    let mut rows = 2;
    for _ in 0..3 {
        site.source.sql("INSERT INTO d.t (k) SELECT k + 1 FROM d.t LIMIT 1; UPDATE d.t SET k = k * 2 + 1");
        succeeds(&take_over(&site, options));
        rows += 1;
        wait_rows(&site, &rows.to_string());
        site.assert_identical();
        site.source
            .sql("UPDATE d.t SET k = k + 5; DELETE FROM d.t WHERE id = 1; INSERT INTO d.t (id, k) VALUES (1, 7)");
        // Again: it goes on, and parks nothing twice.
        succeeds(&take_over(&site, options));
        site.assert_identical();
        succeeds(&hand_back(&site, options));
        site.source.sql("INSERT INTO d.t (k) VALUES (9); UPDATE d.t SET k = k + 1");
        rows += 1;
        wait_rows(&site, &rows.to_string());
    }
    succeeds(&take_over(&site, options));
    site.assert_identical();
}

#[test]
fn there_and_back_on_mariadb() {
    there_and_back(Kind::Mariadb, By::Gtid, "");
}

#[test]
fn there_and_back_on_mariadb_by_file() {
    there_and_back(Kind::Mariadb, By::File, "");
}

#[test]
fn there_and_back_on_mysql() {
    there_and_back(Kind::Mysql, By::Gtid, "");
}

#[test]
fn there_and_back_on_mysql_by_file() {
    there_and_back(Kind::Mysql, By::File, "");
}

/// What Spate has not gone beyond, the server's own replication does not apply again.
#[test]
fn handback_right_after_the_takeover_repeats_nothing() {
    for (kind, by) in
        [(Kind::Mariadb, By::Gtid), (Kind::Mariadb, By::File), (Kind::Mysql, By::Gtid), (Kind::Mysql, By::File)]
    {
        let site = replicating(kind, by, "", "");
        succeeds(&take_over(&site, &[]));
        succeeds(&hand_back(&site, &[]));
        site.source.sql("UPDATE d.t SET k = k + 1; INSERT INTO d.t (k) VALUES (5)");
        wait_rows(&site, "3");
        site.assert_identical();
    }
}

#[test]
fn there_and_back_over_a_named_channel() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        there_and_back(kind, By::Gtid, "north");
    }
}

/// What has been received is used, so that the source need not have it any more.
#[test]
fn relay_logs_are_used() {
    for (kind, by) in
        [(Kind::Mariadb, By::Gtid), (Kind::Mariadb, By::File), (Kind::Mysql, By::Gtid), (Kind::Mysql, By::File)]
    {
        let site = replicating(kind, by, "", "");
        // The source is asked for the midst of a file.
        let (restart, stop) = match kind.vendor() {
            Vendor::MariaDb => ("STOP SLAVE; START SLAVE", "STOP SLAVE SQL_THREAD"),
            Vendor::MySql => ("STOP REPLICA; START REPLICA", "STOP REPLICA SQL_THREAD"),
        };
        site.replica.sql(restart);
        site.source.sql("INSERT INTO d.t (k) VALUES (9)");
        wait_rows(&site, "3");
        site.replica.sql(stop);
        for _ in 0..3 {
            site.source.sql("INSERT INTO d.t (k) VALUES (3),(4); UPDATE d.t SET k = k + 1; FLUSH BINARY LOGS");
        }
        let last =
            site.source.sql("SHOW BINARY LOGS").lines().last().unwrap().split_whitespace().next().unwrap().to_owned();
        wait_until("the replica to receive", || site.replica.replication_status().contains(&last));
        // By file, the source is asked which GTIDs are before the place.
        if by == By::Gtid {
            site.source.sql(&format!("PURGE BINARY LOGS TO '{last}'"));
        }
        let ended = take_over(&site, &[]);
        succeeds(&ended);
        ended.assert_says(&["used the relay logs"]);
        assert!(!ended.output.contains(": 0 bytes"), "{kind:?}, {by:?}: {}", ended.output);
        wait_rows(&site, "9");
        site.assert_identical();
    }
}

/// A parked server that starts again applies nothing by itself.
#[test]
fn parked_replication_does_not_go_on_after_a_restart() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let mut site = replicating(kind, By::Gtid, "", "");
        succeeds(&take_over(&site, &[]));
        site.source.sql("INSERT INTO d.t (k) VALUES (3)");
        site.replica.kill();
        site.replica.begin();
        sleep(Duration::from_secs(3));
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM d.t"), "2");
        succeeds(&take_over(&site, &[]));
        succeeds(&hand_back(&site, &[]));
        site.source.sql("INSERT INTO d.t (k) VALUES (4)");
        wait_rows(&site, "4");
    }
}

#[test]
fn what_native_replication_would_leave_out_is_refused() {
    for (kind, more, why) in [
        (Kind::Mariadb, ", MASTER_DELAY=1", "waits 1 seconds"),
        (Kind::Mysql, ", SOURCE_DELAY=1", "waits 1 seconds"),
        (Kind::Mariadb, ", IGNORE_DOMAIN_IDS=(7)", "Replicate_Ignore_Domain_Ids"),
        (Kind::Mysql, "", "Replicate_Ignore_DB"),
    ] {
        let site = replicating(kind, By::Gtid, "", more);
        if more.is_empty() {
            site.replica.sql(
                "STOP REPLICA SQL_THREAD; CHANGE REPLICATION FILTER REPLICATE_IGNORE_DB=(x); START REPLICA SQL_THREAD",
            );
        }
        take_over(&site, &[]).assert_failed_saying(&[why]);
        // It goes on as before.
        site.source.sql("INSERT INTO d.t (k) VALUES (3)");
        wait_rows(&site, "3");
    }
}

/// Its own replication could not go on behind GTIDs of the replica's own.
#[test]
fn strict_replica_with_a_binlog_is_taken_over_without_it() {
    let strict = ["--log-bin", "--gtid-strict-mode=1"];
    let site = replicating_with(Kind::Mariadb, By::Gtid, "", "", &strict);
    take_over(&site, &[]).assert_failed_saying(&["gtid_strict_mode", "--no-replica-binlog"]);
    site.source.sql("UPDATE d.t SET k = k + 1; INSERT INTO d.t (k) VALUES (5)");
    wait_rows(&site, "3");
    succeeds(&take_over(&site, &["--no-replica-binlog"]));
    site.source.sql("UPDATE d.t SET k = k + 1; INSERT INTO d.t (k) VALUES (5)");
    succeeds(&take_over(&site, &["--no-replica-binlog"]));
    succeeds(&hand_back(&site, &[]));
    site.source.sql("INSERT INTO d.t (k) VALUES (6)");
    wait_rows(&site, "5");
    site.assert_identical();
}

/// Somebody lets the server's own replication go on by hand: nothing of it is applied again.
#[test]
fn replication_that_went_on_by_hand_is_not_sent_back() {
    for (kind, by) in
        [(Kind::Mariadb, By::Gtid), (Kind::Mariadb, By::File), (Kind::Mysql, By::Gtid), (Kind::Mysql, By::File)]
    {
        let site = replicating(kind, by, "", "");
        site.source.sql("CREATE TABLE d.keyless (i INT)");
        succeeds(&take_over(&site, &[]));
        site.source.sql("INSERT INTO d.t (k) VALUES (5); INSERT INTO d.keyless VALUES (1)");
        succeeds(&take_over(&site, &[]));
        let mut handover = site.replica_command("handover");
        handover.arg("--json");
        succeeds(&site.run(handover));
        let place = site.replica.sql("SELECT CONCAT(source_file, ' ', source_position) FROM spate.checkpoint");
        let (file, position) = place.split_once(' ').unwrap();
        let by_file = |names: [&str; 2]| match by {
            By::File => format!(", {}='{file}', {}={position}", names[0], names[1]),
            By::Gtid => String::new(),
        };
        let (go_on, stop) = match kind.vendor() {
            Vendor::MariaDb => {
                let place = by_file(["MASTER_LOG_FILE", "MASTER_LOG_POS"]);
                (format!("CHANGE MASTER TO MASTER_DELAY=0{place}; START SLAVE"), "STOP SLAVE")
            }
            Vendor::MySql => {
                let place = by_file(["SOURCE_LOG_FILE", "SOURCE_LOG_POS"]);
                (format!("CHANGE REPLICATION SOURCE TO SOURCE_DELAY=0{place}; START REPLICA"), "STOP REPLICA")
            }
        };
        site.replica.sql(&go_on);
        site.source.sql("INSERT INTO d.t (k) VALUES (6); INSERT INTO d.keyless VALUES (2)");
        wait_until("native replication has all", || site.source.checksums() == site.replica.checksums());
        site.replica.sql(stop);
        hand_back(&site, &[]).assert_failed_saying(&["has applied more than Spate"]);
        site.run(site.replicate(&["--until", "caught-up"])).assert_failed_saying(&["has applied more than Spate"]);
        site.assert_identical();
        site.source.sql("INSERT INTO d.keyless VALUES (3)");
        succeeds(&take_over(&site, &[]));
        succeeds(&hand_back(&site, &[]));
        site.source.sql("INSERT INTO d.keyless VALUES (4)");
        wait_until("native replication has all", || site.source.checksums() == site.replica.checksums());
    }
}

/// What another channel applies is neither Spate's nor sent back.
#[test]
fn other_channels_stay_where_they_are() {
    let site = replicating(Kind::Mariadb, By::Gtid, "north", "");
    let south = Server::source(Kind::Mariadb, &["--gtid-domain-id=2", "--server-id=11"]);
    let port = south.port;
    site.replica.sql(&format!(
        "CHANGE MASTER 'south' TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='{ACCOUNT}', \
         MASTER_PASSWORD='{PASSWORD}', MASTER_USE_GTID=slave_pos; START SLAVE 'south'"
    ));
    south.sql("CREATE DATABASE s; CREATE TABLE s.k (i INT); INSERT INTO s.k VALUES (1)");
    let wait_south = |count: &str| {
        wait_until("the south's rows", || {
            site.replica.try_sql("SELECT COUNT(*) FROM s.k").is_ok_and(|found| found == count)
        });
    };
    wait_south("1");
    let north: &[&str] = &["--channel", "north"];
    take_over(&site, &["--channel", "south"]).assert_failed_saying(&["server with id 11"]);
    succeeds(&take_over(&site, north));
    site.source.sql("INSERT INTO d.t (k) VALUES (5)");
    south.sql("INSERT INTO s.k VALUES (2)");
    wait_south("2");
    succeeds(&take_over(&site, north));
    // One channel at a time is Spate's, and what is refused goes on as it was.
    take_over(&site, &["--channel", "south"]).assert_failed_saying(&["has taken over its channel 'north'"]);
    hand_back(&site, &["--channel", "south"]).assert_failed_saying(&["runs already"]);
    south.sql("INSERT INTO s.k VALUES (3)");
    wait_south("3");
    hand_back(&site, north).assert_failed_saying(&["STOP ALL SLAVES"]);
    site.replica.sql("STOP SLAVE 'south'");
    hand_back(&site, &["--channel", "south"]).assert_failed_saying(&["has not taken over its channel 'south'"]);
    succeeds(&hand_back(&site, north));
    site.replica.sql("START SLAVE 'south'");
    site.source.sql("INSERT INTO d.t (k) VALUES (6)");
    south.sql("INSERT INTO s.k VALUES (4)");
    wait_rows(&site, "4");
    wait_south("4");
    assert_eq!(south.sql("SELECT i FROM s.k ORDER BY 1"), site.replica.sql("SELECT i FROM s.k ORDER BY 1"));
}

/// A replica that was made anew, and has the checkpoint of its earlier life: what is between is not left out.
#[test]
fn checkpoint_that_is_ahead_of_replication_is_not_believed() {
    for (kind, by) in [(Kind::Mariadb, By::Gtid), (Kind::Mariadb, By::File), (Kind::Mysql, By::Gtid)] {
        let site = replicating(kind, by, "", "");
        let (stop, start) = match kind.vendor() {
            Vendor::MariaDb => ("STOP SLAVE SQL_THREAD", "START SLAVE"),
            Vendor::MySql => ("STOP REPLICA SQL_THREAD", "START REPLICA"),
        };
        succeeds(&take_over(&site, &[]));
        let row = site.replica.sql("SELECT * FROM spate.checkpoint");
        assert!(!row.is_empty());
        site.replica.sql("CREATE DATABASE kept; CREATE TABLE kept.c AS SELECT * FROM spate.checkpoint");
        succeeds(&hand_back(&site, &[]));
        site.source.sql("INSERT INTO d.t (k) VALUES (3)");
        wait_rows(&site, "3");
        succeeds(&take_over(&site, &[]));
        site.replica.sql(
            "UPDATE kept.c JOIN spate.checkpoint n SET kept.c.gtid_position = n.gtid_position, \
            kept.c.source_file = n.source_file, kept.c.source_position = n.source_position",
        );
        succeeds(&hand_back(&site, &[]));
        // Replication stands where it was, and the checkpoint is of more.
        site.replica.sql(stop);
        site.source.sql("INSERT INTO d.t (k) VALUES (4)");
        let ahead = match kind.vendor() {
            Vendor::MariaDb => "gtid_position = REGEXP_REPLACE(gtid_position, '-[0-9]+$', '-999')",
            Vendor::MySql => "gtid_position = REGEXP_REPLACE(gtid_position, ':1-[0-9]+', ':1-999')",
        };
        site.replica.sql(&format!("UPDATE kept.c SET {ahead}; REPLACE INTO spate.checkpoint SELECT * FROM kept.c"));
        site.replica.sql(start);
        wait_rows(&site, "4");
        take_over(&site, &[]).assert_failed_saying(&["is ahead of its own replication", "was not taken over"]);
        // It goes on as before.
        site.source.sql("INSERT INTO d.t (k) VALUES (5)");
        wait_rows(&site, "5");
    }
}

/// Settings by which a channel applies less, or with less rights, than Spate would.
#[test]
fn settings_of_appliers_that_spate_has_not_are_refused() {
    let site = replicating(Kind::Mysql, By::Gtid, "", "");
    for (setting, usual) in [
        ("PRIVILEGE_CHECKS_USER='root'@'localhost'", "PRIVILEGE_CHECKS_USER=NULL"),
        ("REQUIRE_ROW_FORMAT=1", "REQUIRE_ROW_FORMAT=0"),
        ("REQUIRE_TABLE_PRIMARY_KEY_CHECK=ON", "REQUIRE_TABLE_PRIMARY_KEY_CHECK=STREAM"),
    ] {
        let change = |what: &str| {
            site.replica.sql(&format!("STOP REPLICA; CHANGE REPLICATION SOURCE TO {what}; START REPLICA"));
        };
        change(setting);
        let name = setting.split('=').next().unwrap();
        take_over(&site, &[]).assert_failed_saying(&["Spate would not", name]);
        change(usual);
    }
    succeeds(&take_over(&site, &[]));
    let site = replicating(Kind::Mariadb, By::Gtid, "", "");
    site.replica.sql("STOP SLAVE; SET GLOBAL replicate_events_marked_for_skip='FILTER_ON_SLAVE'; START SLAVE");
    take_over(&site, &[]).assert_failed_saying(&["replicate_events_marked_for_skip=FILTER_ON_SLAVE"]);
    site.replica.sql("STOP SLAVE; SET GLOBAL replicate_events_marked_for_skip='REPLICATE'");
    let end = site.replica.sql(
        "SELECT CONCAT(SUBSTRING_INDEX(@@gtid_slave_pos, '-', 2), '-', SUBSTRING_INDEX(@@gtid_slave_pos, '-', -1) + 5)",
    );
    site.replica.sql(&format!("START SLAVE UNTIL master_gtid_pos='{end}'"));
    take_over(&site, &[]).assert_failed_saying(&["UNTIL", "start it without one"]);
    site.replica.sql("STOP SLAVE; START SLAVE");
    succeeds(&take_over(&site, &[]));
}

/// What was not taken over is not handed back: neither its delay nor its place is touched.
#[test]
fn channel_that_was_not_taken_over_is_not_handed_back() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let (delay, stop, asked) = match kind.vendor() {
            Vendor::MariaDb => (", MASTER_DELAY=3600", "STOP SLAVE", "SHOW SLAVE STATUS"),
            Vendor::MySql => (", SOURCE_DELAY=3600", "STOP REPLICA", "SHOW REPLICA STATUS"),
        };
        let site = replicating_later(kind, delay);
        site.replica.sql(stop);
        hand_back(&site, &[]).assert_failed_saying(&["has not taken over", "nothing to hand back"]);
        assert!(site.replica.sql(asked).contains("3600"), "{}", site.replica.sql(asked));
    }
}

/// A replica that is told to replicate, and has nothing yet.
fn replicating_later(kind: Kind, more: &str) -> Site {
    let site = Site::of(kind);
    let port = site.source.port;
    site.replica.sql(&match kind.vendor() {
        Vendor::MariaDb => {
            format!("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USE_GTID=slave_pos {more}")
        }
        Vendor::MySql => format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={port}, SOURCE_AUTO_POSITION=1 {more}"
        ),
    });
    site
}

/// The server's errors hold statements, and these hold passwords.
#[test]
fn errors_of_replication_are_shown_without_passwords() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = replicating(kind, By::Gtid, "", "");
        let status = if kind == Kind::Mariadb { "SHOW SLAVE STATUS" } else { "SHOW REPLICA STATUS" };
        site.replica.sql("SET sql_log_bin=0; CREATE USER bob@localhost");
        site.source.sql("CREATE USER bob@localhost IDENTIFIED BY 'topsecret1'");
        let error = if kind == Kind::Mariadb { "Operation CREATE USER failed" } else { "failed executing transaction" };
        wait_until("the applier has failed", || site.replica.sql(status).contains(error));
        for ended in [take_over(&site, &[]), site.run(site.replica_command("prefetch"))] {
            assert!(!ended.output.contains("topsecret1"), "{}", ended.output);
            ended.assert_failed_saying(&[error]);
        }
    }
}

#[test]
fn channel_with_any_name_is_taken_over() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = replicating(kind, By::Gtid, "zürich", "");
        succeeds(&take_over(&site, &["--channel", "zürich"]));
        succeeds(&hand_back(&site, &["--channel", "zürich"]));
        site.source.sql("INSERT INTO d.t (k) VALUES (3)");
        wait_rows(&site, "3");
    }
}

#[test]
fn broken_replication_is_not_taken_over() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = replicating(kind, By::Gtid, "", "");
        site.replica.sql("SET sql_log_bin=0; CREATE USER u@localhost");
        site.source.sql("CREATE USER u@localhost");
        let (status, error) = match kind.vendor() {
            Vendor::MariaDb => ("SHOW SLAVE STATUS", "Operation CREATE USER failed"),
            Vendor::MySql => ("SHOW REPLICA STATUS", "Worker 1 failed executing transaction"),
        };
        wait_until("the applier has failed", || site.replica.sql(status).contains(error));
        take_over(&site, &[]).assert_failed_saying(&["stopped with an error", error]);
    }
}

#[test]
fn nothing_is_taken_over_or_handed_back_where_nothing_is() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        take_over(&site, &[]).assert_failed_saying(&["does not replicate by itself"]);
        hand_back(&site, &[]).assert_failed_saying(&["does not replicate by itself"]);
        let site = replicating(kind, By::Gtid, "", "");
        hand_back(&site, &[]).assert_failed_saying(&["runs already"]);
    }
}

/// Wherever it is interrupted: it can be repeated, and everything is there once.
#[cfg(feature = "failpoints")]
#[test]
fn killed_at_each_point_it_can_be_repeated() {
    for (kind, by) in [(Kind::Mariadb, By::Gtid), (Kind::Mysql, By::Gtid), (Kind::Mariadb, By::File)] {
        let site = replicating(kind, by, "", "");
        let mut rows = 2;
        // Spate's turn leaves something in the archive, so that it is set aside in the next one.
        let spates_turn = |rows: &mut u32| {
            succeeds(&take_over(&site, &[]));
            site.source.sql("UPDATE d.t SET k = k + 1; INSERT INTO d.t (k) VALUES (4)");
            *rows += 1;
            succeeds(&take_over(&site, &[]));
            site.assert_identical();
            succeeds(&hand_back(&site, &[]));
        };
        spates_turn(&mut rows);
        for point in [
            "takeover-stopped",
            "before-setting-aside",
            "after-setting-aside",
            "takeover-archive-set-aside",
            "takeover-relay-logs",
            "takeover-parked",
            "takeover-checkpoint",
        ] {
            site.source.sql("UPDATE d.t SET k = k + 1; INSERT INTO d.t (k) VALUES (5)");
            rows += 1;
            wait_rows(&site, &rows.to_string());
            stops_at(&site, site.takeover(&["--until", "caught-up"]), point);
            spates_turn(&mut rows);
        }
        let points = ["handback-told", "handback-placed", "handback-forgotten", "handback-unparked"];
        for point in points.into_iter().filter(|&point| by == By::File || point != "handback-placed") {
            succeeds(&take_over(&site, &[]));
            stops_at(&site, site.replica_command("handback"), point);
            site.source.sql("UPDATE d.t SET k = k + 1; INSERT INTO d.t (k) VALUES (5)");
            rows += 1;
            // Whichever comes next.
            succeeds(&take_over(&site, &[]));
            site.assert_identical();
            succeeds(&hand_back(&site, &[]));
            succeeds(&take_over(&site, &[]));
            stops_at(&site, site.replica_command("handback"), point);
            let ended = hand_back(&site, &[]);
            assert!(ended.status.success() || ended.output.contains("runs already"), "{point}: {}", ended.output);
            site.source.sql("INSERT INTO d.t (k) VALUES (6)");
            rows += 1;
            wait_rows(&site, &rows.to_string());
        }
    }
}

#[cfg(feature = "failpoints")]
fn stops_at(site: &Site, mut command: std::process::Command, point: &str) {
    command.env("SPATE_STOP_AT", point);
    let ended = site.run(command);
    ended.assert_says(&[&format!("stopped at {point}")]);
}

/// There and back again ten times, under a load, while the program and the replica's server are killed at random moments.
fn there_and_back_under_kills(kind: Kind) {
    let mut site = replicating(kind, By::Gtid, "", "");
    let mut ledger = Ledger::begin(&site.source, 11);
    let mut random = Random::new(20_261_124);
    let moment = |random: &mut Random, milliseconds: u64| sleep(Duration::from_millis(random.below(milliseconds)));
    let mut kills = 0;
    for turn in 0..10 {
        let mut work = site.source.begin_script(&[ledger.script(), ledger.script(), ledger.script()].concat());
        moment(&mut random, 200);
        if turn % 3 == 0 {
            site.replica.kill();
            site.replica.begin();
            kills += 1;
        }
        for _ in 0..random.below(3) {
            let running = site.spawn(site.takeover(&[]));
            moment(&mut random, 600);
            if random.below(2) == 0 {
                site.replica.kill();
                site.replica.begin();
                kills += 1;
            }
            kills += u64::from(running.kill());
        }
        work.wait().unwrap();
        if turn % 2 == 0 {
            ledger.define(&site.source);
        }
        succeeds(&take_over(&site, &[]));
        assert_same(&site);
        let mut work = site.source.begin_script(&ledger.script());
        let running = site.spawn(site.replica_command("handback"));
        moment(&mut random, 150);
        if turn % 4 == 1 {
            site.replica.kill();
            site.replica.begin();
            kills += 1;
        }
        kills += u64::from(running.kill());
        wait_until("the replica's own replication runs", || {
            let ended = hand_back(&site, &[]);
            ended.status.success() || ended.output.contains("runs already")
        });
        work.wait().unwrap();
        wait_until("the replica has all", || site.source.checksums() == site.replica.checksums());
    }
    assert!(kills >= 10, "{kills}");
}

#[test]
fn there_and_back_under_kills_loses_nothing() {
    there_and_back_under_kills(Kind::Mariadb);
}

#[test]
fn there_and_back_under_kills_loses_nothing_on_mysql() {
    there_and_back_under_kills(Kind::Mysql);
}

/// A server that is killed while it removes relay logs is left with an index of files that are gone, and does not start the channel.
#[test]
fn lost_relay_logs_of_mysql_are_not_needed() {
    let lose = |site: &mut Site| {
        // A receiver that begins writes another file.
        site.replica.sql("STOP REPLICA; START REPLICA IO_THREAD");
        let index = site.replica.sql("SELECT @@relay_log_basename") + ".index";
        let named = || std::fs::read_to_string(&index).unwrap();
        wait_until("another relay log", || named().lines().count() > 1);
        site.replica.kill();
        std::fs::remove_file(site.replica.data_directory().join(named().lines().next().unwrap())).unwrap();
        site.replica.begin();
        let refused = site.replica.try_sql("START REPLICA IO_THREAD").unwrap_err();
        assert!(refused.contains("1872"), "{refused}");
    };
    for by in [By::Gtid, By::File] {
        // Replicating by itself.
        let mut site = replicating(Kind::Mysql, by, "", "");
        site.source.sql("INSERT INTO d.t (k) VALUES (3)");
        wait_rows(&site, "3");
        lose(&mut site);
        site.source.sql("INSERT INTO d.t (k) VALUES (4); UPDATE d.t SET k = k + 1");
        if by == By::File {
            let way_out = ["relay logs", "RESET REPLICA FOR CHANNEL ''", "Exec_Source_Log_Pos"];
            take_over(&site, &[]).assert_failed_saying(&way_out);
            let place = site.replica.sql("SELECT master_log_name, master_log_pos FROM mysql.slave_relay_log_info");
            let (file, position) = place.split_once('\t').unwrap();
            site.replica.sql(&format!(
                "RESET REPLICA FOR CHANNEL ''; \
                 CHANGE REPLICATION SOURCE TO SOURCE_LOG_FILE='{file}', SOURCE_LOG_POS={position} FOR CHANNEL ''; START REPLICA"
            ));
            wait_rows(&site, "4");
        }
        succeeds(&take_over(&site, &[]));
        site.assert_identical();
        succeeds(&hand_back(&site, &[]));
        // Parked.
        succeeds(&take_over(&site, &[]));
        lose(&mut site);
        site.source.sql("INSERT INTO d.t (k) VALUES (5); UPDATE d.t SET k = k + 1");
        succeeds(&take_over(&site, &[]));
        site.assert_identical();
        if by == By::File {
            hand_back(&site, &[]).assert_failed_saying(&["relay logs", "restart the server, then hand back again"]);
            site.replica.kill();
            site.replica.begin();
        }
        succeeds(&hand_back(&site, &[]));
        site.source.sql("INSERT INTO d.t (k) VALUES (6); UPDATE d.t SET k = k + 1");
        wait_rows(&site, "6");
        wait_until("the replica has all", || site.source.checksums() == site.replica.checksums());
    }
}

/// The server's own replication applies until it is behind, then Spate until it has caught up.
#[test]
fn turns_are_taken_by_lag() {
    // The replica is behind for as long as the session is open.
    let locked = |site: &Site| {
        let mut session = Session::open(&site.replica);
        session.sql("LOCK TABLES d.t READ");
        session
    };
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = replicating(kind, By::Gtid, "", "");
        let options = ["--takeover-when-behind", "2s", "--handback-when-caught-up"];
        let running = site.spawn(site.replicate(&options));
        site.wait_for_status("the server's turn", |status| {
            status["applier"].as_str().is_some_and(|applier| applier.contains("own replication applies"))
        });
        // Twice, so that the archive of the first time is behind in the second.
        for turn in 1..=2 {
            let locking = locked(&site);
            site.source.sql("INSERT INTO d.t (k) VALUES (5)");
            wait_until("a takeover", || running.said().matches("Spate takes over").count() >= turn);
            drop(locking);
            wait_until("a handback", || running.said().matches("goes on, and runs").count() >= turn);
            site.source.sql("UPDATE d.t SET k = k + 1; FLUSH BINARY LOGS; INSERT INTO d.t (k) VALUES (6)");
            wait_rows(&site, &(2 + 2 * turn).to_string());
            let files = site.source.sql("SHOW BINARY LOGS");
            let last = files.lines().last().unwrap().split_whitespace().next().unwrap().to_owned();
            wait_until("the replica has all", || site.source.checksums() == site.replica.checksums());
            site.source.sql(&format!("PURGE BINARY LOGS TO '{last}'"));
        }
        running.terminate().assert_says(&["is now"]);
        // Killed in Spate's turn, it goes on with that.
        #[cfg(feature = "failpoints")]
        {
            let locking = locked(&site);
            site.source.sql("INSERT INTO d.t (k) VALUES (7)");
            let mut command = site.replicate(&options);
            command.env("SPATE_STOP_AT", "turns-caught-up");
            let running = site.spawn(command);
            wait_until("a takeover", || running.said().contains("Spate takes over"));
            drop(locking);
            running.wait().assert_says(&["stopped at turns-caught-up"]);
            let running = site.spawn(site.replicate(&options));
            wait_until("a handback", || running.said().contains("goes on, and runs"));
            running.terminate();
        }
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM spate.checkpoint"), "0");
    }
}
