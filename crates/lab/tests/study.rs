//! `spate lab study`, with the programs that `cargo build` has built.

#![allow(clippy::unwrap_used)]

mod programs;

use std::process::Command;

use programs::spate;

/// The study's way, one LOAD DATA a day, and `spate load` lead to the same rows.
fn ways_lead_to_the_same_rows(server: &str) {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("study.json");
    let mut command = Command::new(spate());
    command.args(["lab", "study", "cdr", "--server", server, "--size", "2MB", "--days", "5", "--json"]).arg(&json);
    let output = command.env("SPATE_LAB_DIRECTORY", directory.path().join("lab")).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let ways = result["ways"].as_array().unwrap();
    assert_eq!(ways.len(), 3, "{result}");
    let (rows, records) = (ways[2]["rows"].as_u64().unwrap(), result["records"].as_u64().unwrap());
    // One in a thousand is damaged.
    assert!(rows < records && rows > records - 60, "{result}");
}

#[test]
fn ways_lead_to_the_same_rows_on_mariadb() {
    ways_lead_to_the_same_rows("mariadb-10.11");
}

#[test]
fn ways_lead_to_the_same_rows_on_mysql() {
    ways_lead_to_the_same_rows("mysql-9.7");
}

/// The study's own way is stopped at its limit; the others are compared.
#[test]
fn slow_way_is_stopped_at_its_limit() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("study.json");
    let mut command = Command::new(spate());
    command.args([
        "lab",
        "study",
        "cdr",
        "--size",
        "40MB",
        "--staging-limit-seconds",
        "2",
        "--way",
        "spate,staging",
        "--json",
    ]);
    let output = command.arg(&json).env("SPATE_LAB_DIRECTORY", directory.path().join("lab")).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("all: stopped"), "{text}");
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(
        (&result["ways"][0]["stopped"], &result["ways"][1]["stopped"]),
        (&false.into(), &true.into()),
        "{result}"
    );
    let seconds = result["ways"][1]["seconds"].as_f64().unwrap();
    assert!((2.0..20.0).contains(&seconds), "{result}");
}

/// What the disk has no room for is not begun.
#[test]
fn a_study_that_the_disk_has_no_room_for_begins_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(spate());
    command.args(["lab", "study", "cdr", "--size", "900000GB", "--way", "spate,by-day"]);
    let output = command.env("SPATE_LAB_DIRECTORY", directory.path().join("lab")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("are needed"), "{text}");
}

/// Large statements beside small ones, and the figures of each.
#[test]
fn large_statements_run_beside_small_ones() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("mix.json");
    let mut command = Command::new(spate());
    command.args(["lab", "study", "replay", "--size", "2MB", "--days", "3", "--threads", "1,2", "--json"]).arg(&json);
    let output = command.env("SPATE_LAB_DIRECTORY", directory.path().join("lab")).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let runs = result["runs"].as_array().unwrap();
    for (run, threads) in runs.iter().zip([1, 2]) {
        assert_eq!(run["large_beside"]["statements"], 63 * threads, "{result}");
        assert_eq!(run["small_alone"]["statements"], 100 * threads, "{result}");
        assert!(run["large_alone"]["p50_ms"].as_f64().unwrap() > 0.0, "{result}");
    }
}

/// Both execute all queries.
#[test]
fn recorded_points_are_replayed_in_turns() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("points.json");
    let mut command = Command::new(spate());
    command.args(["lab", "study", "points", "--queries", "5000", "--repetitions", "2", "--json"]).arg(&json);
    let output = command.env("SPATE_LAB_DIRECTORY", directory.path().join("lab")).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("of sysbench's rate"), "{text}");
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let rounds = result["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 2, "{result}");
    assert!(
        rounds.iter().all(|round| round["sysbench"].as_f64() > Some(0.0) && round["replay"].as_f64() > Some(0.0)),
        "{result}"
    );
}
