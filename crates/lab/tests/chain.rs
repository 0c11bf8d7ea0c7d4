//! `spate lab chain`, with the programs that `cargo build` has built.

#![allow(clippy::unwrap_used)]

mod programs;

use std::process::Command;

use programs::spate;

/// The groups in the binlog of a C that does not wait, and of one that does. D's tables are those of A.
fn group_sizes(server: &str) -> (f64, f64) {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("chain.json");
    let mut command = Command::new(spate());
    command.args([
        "lab",
        "chain",
        "--server",
        server,
        "--seconds",
        "2",
        "--rate",
        "300",
        // Few of A's transactions wait for others: C could commit all of them together.
        "--rows",
        "20000",
        "--appliers",
        "1,4",
    ]);
    command.args(["--wait-count", "16", "--wait-microseconds", "50000", "--json"]).arg(&json);
    let output = command.env("SPATE_LAB_DIRECTORY", directory.path().join("lab")).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let variants = result["variants"].as_array().unwrap();
    let size = |variant: usize| variants[variant]["group_size"].as_f64().unwrap();
    for variant in variants {
        assert_eq!(variant["runs"].as_array().unwrap().len(), 2, "{result}");
    }
    (size(0), size(1))
}

#[test]
fn waiting_widens_the_groups_of_mariadb() {
    let (plain, waiting) = group_sizes("mariadb-10.11");
    assert!(waiting > plain && waiting > 1.5, "{plain} {waiting}");
}

/// What a race behind a chain says of the chain.
fn race_at_the_end(server: &str, contenders: [&str; 2]) -> serde_json::Value {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("race.json");
    let mut command = Command::new(spate());
    command.args(["lab", "race", "--chain", "--server", server, "--seconds", "2", "--rate", "300", "--rows", "20000"]);
    command.args(["--tables", "1", "--wait-count", "16"]);
    command.args(contenders.iter().flat_map(|contender| ["--contender", *contender]));
    command.arg("--json").arg(&json).env("SPATE_LAB_DIRECTORY", directory.path().join("lab"));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("At the end of a chain: A: "), "{text}");
    serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap()
}

/// All contenders have the whole backlog, though it came through two other servers.
fn assert_raced(result: &serde_json::Value) {
    let servers: Vec<_> = result["groups"].as_array().unwrap().iter().map(|group| group["server"].clone()).collect();
    assert_eq!(servers, ["A", "B", "C"], "{result}");
    assert!(result["transactions"].as_u64().unwrap() > 50, "{result}");
    let contenders = result["contenders"].as_array().unwrap();
    assert!(contenders.len() == 2 && contenders.iter().all(|one| one["identical"] == true), "{result}");
}

#[test]
fn contenders_race_at_the_end_of_a_chain_of_mariadb() {
    let result = race_at_the_end("mariadb-10.11", ["native:4:conservative", "spate"]);
    assert_raced(&result);
    let width = |server: usize| result["groups"][server]["mean"].as_f64().unwrap();
    assert!(width(2) > width(0) && width(2) > 1.5, "C has waited: {result}");
}

#[test]
fn contenders_race_at_the_end_of_a_chain_of_mysql() {
    assert_raced(&race_at_the_end("mysql-9.7", ["native:4", "spate"]));
}
