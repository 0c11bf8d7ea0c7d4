//! `kill -9`, of the program and of the servers, at any moment: nothing is lost and nothing comes twice.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::writer::{TABLES, Writers};
use crate::support::{Random, Site};

/// Small batches, so that there are many commits to be killed at.
const OPTIONS: [&str; 6] = ["--start", "earliest", "--memory", "64MiB", "--batch-transactions", "50"];

fn assert_counters_equal(site: &Site) {
    // A committed row is the last: counters that ran ahead in transactions rolled back are no part of the binlog.
    let counters = "SELECT table_name, auto_increment FROM information_schema.tables WHERE table_schema='busy' \
                    AND table_name='journal'";
    assert_eq!(site.source.sql(counters), site.replica.sql(counters));
    let counts = "SELECT COUNT(*), COUNT(DISTINCT writer, step) FROM busy.trail";
    assert_eq!(site.source.sql(counts), site.replica.sql(counts));
}

#[test]
fn program_killed_twenty_times_loses_nothing() {
    let site = Site::plain();
    site.source.sql(TABLES);
    let writers = Writers::start(&site.source, 3, 20_261_121);
    let mut random = Random::new(7);
    let mut checkpoints = BTreeSet::new();
    for round in 0..200 {
        // A slow machine needs more time to get anywhere.
        if round >= 20 && checkpoints.len() >= 8 {
            break;
        }
        let running = site.spawn(site.replicate(&OPTIONS));
        // Random, and not a wait for a condition: the moment is the test.
        std::thread::sleep(Duration::from_millis(100 + random.below(500 + 50 * round)));
        let said = running.said();
        assert!(running.kill(), "round {round}: it ended by itself: {said}");
        checkpoints.extend(site.replica.try_sql("SELECT gtid_position FROM spate.checkpoint"));
    }
    let sent = writers.stop();
    assert!(sent > 1_000, "only {sent} transactions");
    assert!(checkpoints.len() >= 8, "it hardly ever got anywhere: {checkpoints:?}");
    site.source.sql("INSERT INTO busy.journal (writer, step) VALUES (99, 1)");
    site.catch_up(&OPTIONS);
    site.assert_identical();
    assert_counters_equal(&site);
}

#[test]
fn killed_servers_lose_nothing() {
    let mut site = Site::plain();
    site.source.sql(TABLES);
    let running = site.spawn(site.replicate(&OPTIONS));
    for round in 0..2 {
        let writers = Writers::start(&site.source, 2, round);
        site.wait_for_status("batches", |status| status["batches"].as_u64() > Some(10 * (round + 1)));
        site.replica.kill();
        site.wait_for_status("the applier to wait", |status| {
            status["applier"].as_str().is_some_and(|text| text.starts_with("waiting: "))
        });
        let told = site.status()["errors"].to_string();
        assert!(told.contains("trying again"), "{told}");
        site.replica.begin();
        site.wait_applying();
        site.source.kill();
        writers.stop();
        site.wait_for_status("the intake to wait", |status| {
            status["intake"].as_str().is_some_and(|text| text.starts_with("waiting: "))
        });
        site.source.begin();
        site.wait_for_status("the intake to go on", |status| status["intake"] == "receiving");
    }
    site.source.sql("INSERT INTO busy.journal (writer, step) VALUES (99, 1)");
    site.wait_applied();
    let ended = running.terminate();
    assert!(ended.status.success(), "{}", ended.output);
    site.assert_identical();
    assert_counters_equal(&site);
}

/// A server that is killed while it writes leaves a piece of a transaction at the end of its binlog, and ends with an error there for whoever
/// reads along.
#[test]
fn source_killed_within_an_event_loses_nothing() {
    for bytes_missing in [10, 35] {
        let mut site = Site::plain();
        site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1)");
        site.catch_up(&["--start", "earliest"]);
        site.source.sql("INSERT INTO d.t VALUES (5); INSERT INTO d.t VALUES (2)");
        site.source.kill();
        let torn =
            std::fs::File::options().write(true).open(site.source.data_directory().join("source.000001")).unwrap();
        torn.set_len(torn.metadata().unwrap().len() - bytes_missing).unwrap();
        site.source.begin();
        // It was committed before it lost the end, but in such a crash it would not have been.
        site.source.sql("SET sql_log_bin=0; DELETE FROM d.t WHERE id = 2");
        site.source.sql("INSERT INTO d.t VALUES (3)");
        let ended = site.catch_up(&[]);
        ended.assert_says(&["source.000001 is truncated within an event", "resuming with source.000002"]);
        site.source.sql("FLUSH BINARY LOGS; INSERT INTO d.t VALUES (4)");
        site.catch_up(&[]);
        site.assert_identical();
        // And all of it once more, in one go.
        site.replica.sql("DROP DATABASE spate; DROP DATABASE d");
        std::fs::remove_dir_all(site.archive()).unwrap();
        site.catch_up(&["--start", "earliest"]);
        site.assert_identical();
    }
}
