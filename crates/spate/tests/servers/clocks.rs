//! Clocks that are wrong, or are set while everything runs: nothing waits for them, and the lag that is shown stays a lag.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::Site;
use crate::support::session::Session;

const OPTIONS: [&str; 4] = ["--start", "earliest", "--memory", "64MiB"];

const TABLE: &str =
    "CREATE DATABASE d; CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, at DATETIME(6), how VARCHAR(20))";

/// No transaction here is older.
const LAG_SECONDS_MAX: f64 = 60.0;

/// Lets `sql` wait on the replica for as long as it takes to look at the lag.
fn lag_seconds_while_waiting(site: &Site, blocker: &mut Session, sql: &str) -> f64 {
    blocker.sql("LOCK TABLES d.t WRITE");
    site.source.sql(sql);
    site.wait_for_status("a transaction that waits", |status| {
        let waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'";
        status["lag_transactions"].as_u64() > Some(0) && site.replica.sql(waiting) != "0"
    });
    let lag = site.status()["lag_seconds"].as_f64().unwrap();
    blocker.sql("UNLOCK TABLES");
    site.wait_applied();
    lag
}

#[test]
fn lag_ignores_wrong_commit_times() {
    let site = Site::plain();
    site.source.sql(TABLE);
    site.catch_up(&OPTIONS);
    let running = site.spawn(site.replicate(&OPTIONS));
    let mut blocker = Session::open(&site.replica);
    for timestamp in
        ["1", "2147483647", "DEFAULT", "1000000000.5", "UNIX_TIMESTAMP() + 86400", "UNIX_TIMESTAMP() - 86400"]
    {
        for format in ["ROW", "STATEMENT"] {
            let sql = format!(
                "SET SESSION binlog_format = {format}; SET timestamp = {timestamp}; \
                 INSERT INTO d.t (at, how) VALUES (NOW(6), '{format}')"
            );
            let lag = lag_seconds_while_waiting(&site, &mut blocker, &sql);
            assert!((0.0..LAG_SECONDS_MAX).contains(&lag), "{lag} s after SET timestamp = {timestamp}");
        }
    }
    assert!(running.terminate().status.success());
    site.assert_identical();
    // Old transactions that nobody has applied are a lag indeed; a date to come hides it from nobody.
    site.source.sql("SET timestamp = UNIX_TIMESTAMP() + 86400; INSERT INTO d.t (how) VALUES ('to come')");
    site.source.sql("INSERT INTO d.t (how) VALUES ('now')");
    site.catch_up(&OPTIONS);
    site.assert_identical();
}

/// Debian's library that shows a program another time than the system's.
pub fn other_time_library() -> Option<PathBuf> {
    let candidates = fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    candidates.map(|path| path.join("faketime/libfaketimeMT.so.1")).find(|path| path.is_file())
}

#[test]
fn lag_ignores_a_clock_that_is_set() {
    let Some(library) = other_time_library() else {
        eprintln!("skipped: the package faketime is not installed");
        return;
    };
    let site = Site::plain();
    site.source.sql(TABLE);
    site.catch_up(&OPTIONS);
    let shown = tempfile::NamedTempFile::new().unwrap();
    fs::write(shown.path(), "+0\n").unwrap();
    let mut command = site.replicate(&OPTIONS);
    command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", shown.path()).env("FAKETIME_NO_CACHE", "1");
    // What the kernel counts from its start cannot be set.
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let running = site.spawn(command);
    let mut blocker = Session::open(&site.replica);
    for step in ["+0", "+1d", "-1d", "+3650d", "+0"] {
        fs::write(shown.path(), format!("{step}\n")).unwrap();
        let lag = lag_seconds_while_waiting(&site, &mut blocker, "INSERT INTO d.t (how) VALUES ('step')");
        assert!((0.0..LAG_SECONDS_MAX).contains(&lag), "{lag} s at {step}");
        site.source.kill_connections_of_replicas();
        let days = step.trim_end_matches('d').parse::<i64>().unwrap();
        // Proof that the program was shown the other time: the connection's end is dated by it.
        site.wait_for_status(&format!("an error dated {step}"), |status| {
            let now = site.source.sql("SELECT UNIX_TIMESTAMP()").parse::<i64>().unwrap();
            let is_last = |last: &Value| {
                let at = last["at_seconds"].as_i64().unwrap();
                last.to_string().contains("trying again") && (at - now - days * 86_400).abs() < 60
            };
            status["errors"].as_array().and_then(|errors| errors.last()).is_some_and(is_last)
        });
        site.wait_for_status("the intake to go on", |status| status["intake"] == "receiving");
    }
    site.wait_applied();
    assert!(running.terminate().status.success());
    site.assert_identical();
}
