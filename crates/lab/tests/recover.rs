//! `spate lab recover`, with the programs that `cargo build` has built.

#![allow(clippy::unwrap_used)]

mod programs;

use std::process::Command;

use programs::spate;

/// The servers' own programs and `spate restore` lead to the source's rows.
#[test]
fn both_ways_lead_to_the_same_rows() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("recover.json");
    let mut command = Command::new(spate());
    command.args(["lab", "recover", "--server", "mariadb-10.11", "--workload", "counters", "--seconds", "2", "--json"]);
    let output = command.arg(&json).env("SPATE_LAB_DIRECTORY", directory.path().join("lab")).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let ways = result["ways"].as_array().unwrap();
    assert_eq!(ways.len(), 2, "{result}");
    assert!(ways.iter().all(|way| way["different_tables"] == serde_json::json!([])), "{result}");
    assert!(result["row_changes"].as_u64() > Some(0) && result["replay_ratio"].as_f64() > Some(0.0), "{result}");
}
