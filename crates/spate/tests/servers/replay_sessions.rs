//! `spate replay`: recorded sessions, their schemas, and their connections.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::replay::{Replays, of, path_of};
use crate::support::program::wait_until_it_listens;
use crate::support::{Kind, wait_until};

/// A general log, an entry a millisecond.
fn general_log(replays: &Replays, name: &str, entries: &[(u32, &str, &str)]) -> PathBuf {
    let mut text = String::new();
    for (number, (session, command, argument)) in entries.iter().enumerate() {
        text += &format!(
            "2026-11-26T11:26:{:02}.{:03}000Z\t{session:5} {command}\t{argument}\n",
            number / 1000,
            number % 1000
        );
    }
    let path = replays.path(name);
    fs::write(&path, text).unwrap();
    path
}

/// Two schemas with a table of the same name: of 5 bytes and of 1.
fn two_schemas() -> Replays {
    let replays = Replays::begin(Kind::Mariadb, &[]);
    replays.server.sql(
        "CREATE DATABASE a; CREATE DATABASE b; CREATE TABLE a.w (who VARCHAR(9)); CREATE TABLE b.w LIKE a.w; \
         INSERT INTO a.w VALUES ('AAAAA'); INSERT INTO b.w VALUES ('B')",
    );
    replays
}

#[test]
fn shared_statements_are_in_their_sessions_schema() {
    let replays = two_schemas();
    let mut entries = vec![
        (1, "Connect", "root@localhost on a using Socket"),
        (2, "Connect", "root@localhost on b using Socket"),
        (3, "Connect", "root@localhost on  using Socket"),
        (4, "Connect", "root@localhost on b using Socket"),
        (4, "Query", "USE a"),
    ];
    for _ in 0..50 {
        entries.extend([
            (1, "Query", "SELECT who FROM w"),
            (2, "Query", "SELECT who FROM w"),
            (3, "Query", "INSERT INTO w VALUES ('no schema')"),
            (4, "Query", "SELECT who AS fourth FROM w"),
        ]);
    }
    let log = general_log(&replays, "schemas.log", &entries);
    for threads in ["1", "2", "5"] {
        let report = replays.replay(&["--pace", "fastest", "--writes", "--threads", threads, path_of(&log)]);
        assert_eq!(of(&report, "select who from w")["bytes"], 50 * 6, "{report:#}");
        assert_eq!(of(&report, "select who as fourth from w")["bytes"], 50 * 5, "{report:#}");
        assert_eq!(of(&report, "insert into w values (?)")["errors"], 50, "{report:#}");
    }
}

#[test]
fn a_session_changes_its_schema_by_every_means() {
    let replays = two_schemas();
    let log = general_log(
        &replays,
        "changes.log",
        &[
            (1, "Connect", "root@localhost on a using Socket"),
            (1, "Query", "SELECT who AS one FROM w"),
            (1, "Query", "USE b"),
            (1, "Init DB", "a"),
            (1, "Query", "SELECT who AS two FROM w"),
            (1, "Query", "SET @x = 1"),
            (1, "Change user", "root@localhost on b"),
            (1, "Query", "SELECT who AS three FROM w WHERE @x IS NULL"),
            (1, "Query", "COMMIT RELEASE"),
            (1, "Query", "SELECT who AS lost FROM w"),
            (1, "Query", "SELECT who AS four FROM w"),
        ],
    );
    for arguments in [&[][..], &["--threads", "1"]] {
        let report = replays.replay(&[&["--pace", "fastest", path_of(&log)], arguments].concat());
        assert_eq!(of(&report, "select who as one from w")["bytes"], 5, "{report:#}");
        assert_eq!(of(&report, "select who as two from w")["bytes"], 5, "{report:#}");
        assert_eq!(of(&report, "select who as four from w")["bytes"], 1, "{report:#}");
        if arguments.is_empty() {
            let three = of(&report, "select who as three from w where @x is null");
            assert_eq!(three["bytes"], 1, "the session begins again: {report:#}");
        }
    }
}

/// Many short sessions have few connections at a time.
#[test]
fn short_sessions_have_no_more_connections_than_are_allowed() {
    let replays = Replays::begin(Kind::Mariadb, &["--max-connections=60"]);
    let mut entries = Vec::new();
    for session in 1..=400 {
        entries.extend([(session, "Connect", "root@localhost on shop using Socket"), (session, "Query", "SELECT 1")]);
        entries.push((session, "Quit", ""));
    }
    let log = general_log(&replays, "many.log", &entries);
    for (pace, sessions_max) in [("fastest", "5"), ("recorded", "5"), ("fastest", "1")] {
        replays.server.sql("FLUSH STATUS");
        let report = replays.replay(&["--pace", pace, "--sessions-max", sessions_max, path_of(&log)]);
        assert_eq!(of(&report, "select ?")["count"], 400, "{report:#}");
        assert_eq!(report["sums"]["errors"], serde_json::json!({}), "{report:#}");
        let used: u32 = replays.server.sql("SHOW GLOBAL STATUS LIKE 'Max_used_connections'")
            ["Max_used_connections".len()..]
            .trim()
            .parse()
            .unwrap();
        // Of those that have ended, a busy server has not yet seen the end of some. Without a bound, it would be as many as it allows.
        assert!(used < 30, "{used} connections");
    }
}

#[test]
fn a_server_that_refuses_connections_is_an_error_in_the_report() {
    let replays = Replays::begin(Kind::Mariadb, &["--max-connections=10"]);
    let mut entries = Vec::new();
    for session in 1..=40 {
        entries.push((session, "Query", "SELECT SLEEP(0.2)"));
    }
    let log = general_log(&replays, "refused.log", &entries);
    let restricted = "GRANT SELECT ON *.* TO few@'%' IDENTIFIED BY 'few'";
    replays.server.sql(restricted);
    let server = format!("few@127.0.0.1:{}", replays.server.port);
    let output = crate::support::program::program()
        .args(["replay", "--server", &server, "--pace", "fastest", "--json", "-", path_of(&log)])
        .env("SPATE_SERVER_PASSWORD", "few")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["sums"]["statements"], 40, "{report:#}");
}

/// A signal ends the replay while a statement runs, and while a pipe has no writer.
#[test]
fn a_signal_ends_what_waits() {
    const PATIENCE: Duration = Duration::from_secs(15);
    let replays = Replays::begin(Kind::Mariadb, &[]);
    let csv = replays.path("sleep.csv");
    fs::write(&csv, "time,statement\n0,SELECT 1\n0,SELECT SLEEP(100)\n0,SELECT 2\n").unwrap();
    let pipe = replays.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (input, is_report) in [(&csv, true), (&pipe, false)] {
        let json = replays.path("ended.json");
        let mut child = replays.command(&["--json", path_of(&json), path_of(input)]).spawn().unwrap();
        wait_until_it_listens(child.id());
        if is_report {
            let sleeping = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(100)%'";
            wait_until("the statement", || replays.server.sql(sleeping) == "1");
        }
        std::thread::sleep(Duration::from_secs(1));
        assert!(child.try_wait().unwrap().is_none());
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > PATIENCE {
                child.kill().unwrap();
                panic!("it goes on: {}", input.display());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(child.wait().unwrap().success(), is_report);
        assert_eq!(json.exists(), is_report);
        if is_report {
            let report: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
            assert_eq!(report["sums"]["statements"], 1, "{report:#}");
            fs::remove_file(json).unwrap();
        }
    }
}
